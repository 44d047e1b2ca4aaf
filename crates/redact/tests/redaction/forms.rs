//! The forms of secrets and of innocent values, and how a test says that some of them failed.

use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Deserialize)]
pub(crate) struct Form {
    pub(crate) name: String,
    /// Arguments, or a text.
    pub(crate) input: Value,
    /// What may not be seen.
    pub(crate) secret: Option<String>,
    /// What stands beside it and should.
    pub(crate) keep: Option<String>,
}

fn forms(file: &str) -> Vec<Form> {
    serde_json::from_str(&file.replace('§', "")).unwrap()
}

pub(crate) fn secrets() -> Vec<Form> {
    let forms = forms(include_str!("secrets.json"));
    assert!(forms.len() >= 100);
    forms
}

pub(crate) fn innocent() -> Vec<Form> {
    let forms = forms(include_str!("innocent.json"));
    assert!(forms.len() >= 60);
    forms
}

/// Whether `text` shows the secret, as it is or as JSON or Rust escape it.
pub(crate) fn shows(text: &str, secret: &str) -> bool {
    let json = json!(secret).to_string();
    let debug = format!("{secret:?}");
    [secret, json.trim_matches('"'), debug.trim_matches('"')]
        .iter()
        .any(|form| text.contains(form))
}

pub(crate) fn none_of(what: &str, failed: &[String]) {
    assert!(
        failed.is_empty(),
        "{what}: {} of them\n{}",
        failed.len(),
        failed.join("\n")
    );
}
