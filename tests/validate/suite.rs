//! The JSON Schema Test Suite: what is required of draft 7 and of 2020-12. `tests/run` has it from
//! a package of another author.

use std::{collections::BTreeMap, fs, path::Path};

use serde_json::Value;
use tower_toolcall::validate::{Draft, Schema};

/// Schemas by file that are refused from a trusted server: references out of the schema.
const REFUSED_7: &[(&str, usize)] = &[("refRemote", 11)];

const REFUSED_2020_12: &[(&str, usize)] =
    &[("dynamicRef", 5), ("refRemote", 15), ("vocabulary", 2)];

/// Schemas by file that are refused from others: references out of the schema (`definitions`,
/// `defs`, `refRemote`, `vocabulary`), by URIs or anchors, beside an `$id` that is not at the root,
/// and to the schema itself.
const UNTRUSTED_7: &[(&str, usize)] = &[("definitions", 1), ("ref", 17), ("refRemote", 11)];

const UNTRUSTED_2020_12: &[(&str, usize)] = &[
    ("anchor", 4),
    ("defs", 1),
    ("dynamicRef", 20),
    ("ref", 16),
    ("refRemote", 15),
    ("unevaluatedItems", 1),
    ("unevaluatedProperties", 2),
    ("vocabulary", 2),
];

#[derive(Debug, Default, PartialEq)]
struct Outcome {
    refused: BTreeMap<String, usize>,
    wrong: Vec<String>,
    right: usize,
}

fn run(folder: &str, draft: Draft, is_trusted: bool) -> Outcome {
    let suite = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/json-schema-suite/tests");
    let files = fs::read_dir(suite.join(folder));
    let files = files.expect("the suite is not installed: run `tests/run --no-run` once");
    let mut outcome = Outcome::default();
    let mut files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    files.sort();
    for file in files
        .iter()
        .filter(|file| file.extension().is_some_and(|e| e == "json"))
    {
        let name = file.file_stem().unwrap().to_str().unwrap();
        let groups: Vec<Value> = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
        for group in &groups {
            let schema = match is_trusted {
                true => Schema::compile_trusted(&group["schema"], draft),
                false => Schema::compile_with(&group["schema"], draft),
            };
            let Ok(schema) = schema else {
                eprintln!("refused: {name}: {}", group["description"]);
                *outcome.refused.entry(name.to_owned()).or_default() += 1;
                continue;
            };
            for test in group["tests"].as_array().unwrap() {
                let what = format!("{name}: {}: {}", group["description"], test["description"]);
                let data = &test["data"];
                let same = schema.errors(data).is_empty() == schema.is_valid(data);
                // What is left out refuses nothing.
                let lenient = schema.omitted().count() > 0 && schema.is_valid(data);
                let right = lenient || Value::Bool(schema.is_valid(data)) == test["valid"];
                match same && right {
                    true => outcome.right += 1,
                    false => outcome.wrong.push(what),
                }
            }
        }
    }
    outcome
}

fn check(folder: &str, draft: Draft, trusted: bool, refused: &[(&str, usize)], at_least: usize) {
    let outcome = run(folder, draft, trusted);
    assert_eq!(outcome.wrong, [""; 0]);
    let refused: BTreeMap<String, usize> = refused
        .iter()
        .map(|(name, n)| ((*name).to_owned(), *n))
        .collect();
    assert_eq!(outcome.refused, refused);
    assert!(outcome.right >= at_least, "{}", outcome.right);
}

#[test]
fn draft_7() {
    check("draft7", Draft::Draft7, true, REFUSED_7, 800);
    check("draft7", Draft::Draft7, false, UNTRUSTED_7, 800);
}

#[test]
fn draft_2020_12() {
    let draft = Draft::Draft202012;
    check("draft2020-12", draft, true, REFUSED_2020_12, 1_000);
    check("draft2020-12", draft, false, UNTRUSTED_2020_12, 1_000);
}
