//! The guide's page of compile errors, compared with what the compiler says of its code.

use std::{env, fs, path::Path, process::Command};

use serde_json::Value;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
const PAGE: &str = include_str!("../../../src/guide/does_not_compile.md");

const PACKAGE: &str = r#"
[package]
name = "does-not-compile"
version = "0.0.0"
edition = "2024"

[workspace]

[dependencies]
tokio = { version = "1", features = ["rt", "time"] }
tower = { version = "0.5", features = ["timeout", "util"] }
"#;

/// Code of the page, and what it quotes.
struct Case {
    code: String,
    quoted: Vec<Quoted>,
}

/// A part of an error, in the words of the page; `..` stands for anything.
#[derive(Debug)]
enum Quoted {
    Message { code: Option<String>, text: String },
    Label(String),
    Note(String),
}

/// P7.
#[test]
fn the_page_quotes_the_compiler() {
    let cases = cases();
    assert!(cases.len() > 9, "the page has {} cases", cases.len());
    let errors = compile(&cases);
    let mut wrong = String::new();
    for (n, case) in cases.iter().enumerate() {
        let name = name(n);
        let of_case: Vec<_> = errors
            .iter()
            .filter(|e| e["target"]["name"] == *name)
            .collect();
        for quoted in case.quoted.iter().filter(|quoted| !quoted.is_in(&of_case)) {
            wrong += &format!("not said: {quoted:?}\nof:\n{}\n", case.code);
            for error in &of_case {
                wrong += error["message"]["rendered"].as_str().unwrap_or("");
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

fn name(case: usize) -> String {
    format!("case_{case}")
}

fn cases() -> Vec<Case> {
    let (mut cases, mut code) = (Vec::new(), None);
    let mut blocks = PAGE.split("\n```");
    blocks.next();
    // Each second part is the text between two blocks.
    while let (Some(block), _) = (blocks.next(), blocks.next()) {
        let (kind, body) = block.split_once('\n').expect("a block has lines");
        match kind {
            "text" if body.starts_with("error") => cases.extend(code.take().map(|code| Case {
                code,
                quoted: quoted(body),
            })),
            "text" => {}
            _ => {
                let lines = body
                    .lines()
                    .map(|line| line.strip_prefix("# ").unwrap_or(line));
                code = Some(lines.collect::<Vec<_>>().join("\n"));
            }
        }
    }
    cases
}

fn quoted(text: &str) -> Vec<Quoted> {
    let mut all: Vec<Quoted> = Vec::new();
    // Where the text of a label begins.
    let mut column = None;
    for line in text.lines() {
        let said = line.trim_start_matches([' ', '=']);
        if let Some(of_code) = line.strip_prefix(" |") {
            let start = of_code.find(|c: char| !matches!(c, ' ' | '^' | '-'));
            let is_mark = of_code.trim_start().starts_with(['^', '-']);
            match (start, column, all.last_mut()) {
                (Some(start), ..) if is_mark => {
                    all.push(Quoted::Label(of_code[start..].to_owned()));
                    column = Some(start);
                }
                (Some(start), Some(column), Some(last)) if start >= column => last.extend(of_code),
                _ => column = None,
            }
            continue;
        }
        column = None;
        if let Some(error) = line.strip_prefix("error") {
            let (code, text) = error.split_once(": ").expect("a message follows");
            let code = code
                .strip_prefix('[')
                .and_then(|code| code.strip_suffix(']'));
            let (code, text) = (code.map(str::to_owned), text.to_owned());
            all.push(Quoted::Message { code, text });
        } else if let Some((_, text)) = said
            .split_once(": ")
            .filter(|(kind, _)| matches!(*kind, "note" | "help"))
        {
            all.push(Quoted::Note(text.to_owned()));
        } else if let Some(last) = all.last_mut() {
            last.extend(said);
        }
    }
    all
}

impl Quoted {
    fn text(&mut self) -> &mut String {
        match self {
            Self::Message { text, .. } | Self::Label(text) | Self::Note(text) => text,
        }
    }

    fn extend(&mut self, more: &str) {
        let text = self.text();
        text.push(' ');
        text.push_str(more.trim());
    }

    fn is_in(&self, errors: &[&Value]) -> bool {
        errors.iter().any(|error| {
            let message = &error["message"];
            let children = || list(&message["children"]);
            match self {
                Self::Message { code, text } => {
                    says(&message["message"], text)
                        && code.as_deref() == message["code"]["code"].as_str()
                }
                Self::Note(text) => children().any(|child| says(&child["message"], text)),
                Self::Label(text) => {
                    let spans = children()
                        .chain([message])
                        .flat_map(|of| list(&of["spans"]));
                    let mut labels = spans.map(|span| &span["label"]);
                    labels.any(|label| says(label, text))
                }
            }
        })
    }
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// Whether the parts of a quotation are there, one after the other.
fn says(said: &Value, quoted: &str) -> bool {
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let said = words(said.as_str().unwrap_or(""));
    let mut rest = &*said;
    words(quoted)
        .split("..")
        .all(|part| match rest.split_once(part.trim()) {
            Some((_, after)) => {
                rest = after;
                true
            }
            None => false,
        })
}

/// All cases in one run: what the compiler says of each.
fn compile(cases: &[Case]) -> Vec<Value> {
    let tmp = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let dir = tmp.join("does_not_compile");
    let bins = dir.join("src/bin");
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(&bins).expect("a directory can be made");
    let ours = format!("{PACKAGE}tower-toolcall = {{ path = {ROOT:?} }}\n");
    fs::write(dir.join("Cargo.toml"), ours).expect("it can be written");
    fs::copy(Path::new(ROOT).join("Cargo.lock"), dir.join("Cargo.lock")).expect("it is there");
    for (n, case) in cases.iter().enumerate() {
        let program = format!("#![allow(unused)]\nfn main() {{\n{}\n}}\n", case.code);
        fs::write(bins.join(name(n) + ".rs"), program).expect("it can be written");
    }
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args([
        "check",
        "--offline",
        "--keep-going",
        "--message-format=json",
        "--manifest-path",
    ]);
    cargo
        .arg(dir.join("Cargo.toml"))
        .arg("--target-dir")
        .arg(tmp.parent().expect("it has one"));
    let output = cargo.output().expect("cargo runs");
    let lines = String::from_utf8_lossy(&output.stdout);
    let messages = lines
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let errors = messages.filter(|m| m["message"]["level"] == "error");
    let errors: Vec<_> = errors.collect();
    assert!(
        !errors.is_empty(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    errors
}
