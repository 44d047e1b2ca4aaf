//! The page of the docs, held true: its list of keys, and its `jq` commands.

use std::{collections::BTreeMap, fs, path::Path, process::Command};

use serde_json::Value;

use super::Answers;

const PAGE: &str = include_str!("../../../src/event/json_logs.md");

/// Each key has its row, with the type that it has in the log.
pub(crate) fn lists_every_key(lines: &[Value]) {
    let rows = PAGE.lines().filter_map(|line| {
        let mut cells = line.strip_prefix("| `")?.split(" | ");
        Some((cells.next()?.trim_end_matches('`'), cells.next()?))
    });
    let listed: BTreeMap<&str, &str> = rows.collect();
    for (key, value) in lines.iter().flat_map(|l| l.as_object().unwrap()) {
        let is = match value {
            Value::String(_) => "string",
            Value::Number(_) => "number",
            Value::Bool(_) => "boolean",
            _ => "of no type that is listed",
        };
        assert_eq!(listed.get(key.as_str()), Some(&is), "{key}");
    }
}

/// Runs the page's commands on the log, where `jq` is installed.
pub(crate) fn jq_agrees(log: &str, answers: &Answers) {
    if Command::new("jq").arg("--version").output().is_err() {
        return;
    }
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("json_logs");
    fs::create_dir_all(&dir).unwrap();
    fs::write(dir.join("log.jsonl"), log).unwrap();
    let mut printed = PAGE
        .lines()
        .filter(|l| l.starts_with("jq "))
        .map(|command| {
            let run = Command::new("sh")
                .args(["-c", command])
                .current_dir(&dir)
                .output();
            let run = run.unwrap();
            assert!(run.status.success(), "{command}: {run:?}");
            serde_json::from_slice(&run.stdout).unwrap_or(Value::Null)
        });
    let mut next = || printed.next().unwrap();
    assert_eq!(next(), Value::Null, "the ends go into a file");
    assert_eq!(next(), answers.success_rate);
    assert_eq!(next(), answers.p95);
    let tools = next();
    assert_eq!(tools["hangs"], 1000.0);
    assert_eq!(tools["works"], 57.0);
    let errors: BTreeMap<String, u64> = serde_json::from_value(next()).unwrap();
    assert_eq!(errors, answers.errors);
    assert_eq!(next(), answers.repeated);
    // The last digit is a matter of who parses it.
    let off = next().as_f64().unwrap() - answers.retries_per_call;
    assert!(off.abs() < 1e-12, "{off}");
    assert!(printed.next().is_none());
    fs::remove_dir_all(&dir).unwrap();
}

/// The table of events and the table of keys agree.
#[test]
fn the_page_has_each_field_of_each_event() {
    let rows = PAGE
        .lines()
        .filter_map(|line| line.strip_prefix("| `tool."));
    let fields = rows.filter_map(|row| row.splitn(4, '|').nth(3));
    let names = fields.flat_map(|fields| fields.split('`').skip(1).step_by(2));
    let is_key = |name: &&str| !name.contains("::") && !matches!(*name, "down" | "up");
    let missing: Vec<_> = names
        .filter(is_key)
        .filter(|name| !PAGE.contains(&format!("\n| `{name}` |")))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}
