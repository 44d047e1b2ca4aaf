//! A secret reaches no place where people or log stores read, in whatever form it comes; what is
//! innocent survives (S2, S4, S5, S7, S8, trap 15).
//!
//! The forms stand in `secrets.json` and `innocent.json`. All are invented. In each secret stands a `§`,
//! which is taken out here: otherwise every scanner that looks for credentials in repositories would find
//! hundreds.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]

mod corpus;
mod headers;
mod sinks;

use serde::Deserialize;
use serde_json::{Value, json};
use tower_toolcall::redact::{REDACTED, Redacted, redact_text};

#[derive(Deserialize)]
struct Form {
    name: String,
    /// Arguments, or a text.
    input: Value,
    /// What may not be seen.
    secret: Option<String>,
    /// What stands beside it and should.
    keep: Option<String>,
}

fn forms(file: &str) -> Vec<Form> {
    serde_json::from_str(&file.replace('§', "")).unwrap()
}

fn secrets() -> Vec<Form> {
    let forms = forms(include_str!("secrets.json"));
    assert!(forms.len() >= 100);
    forms
}

fn innocent() -> Vec<Form> {
    let forms = forms(include_str!("innocent.json"));
    assert!(forms.len() >= 60);
    forms
}

/// Whether `text` shows the secret, as it is or as JSON or Rust escape it.
fn shows(text: &str, secret: &str) -> bool {
    let json = json!(secret).to_string();
    let debug = format!("{secret:?}");
    [secret, json.trim_matches('"'), debug.trim_matches('"')]
        .iter()
        .any(|form| text.contains(form))
}

fn none_of(what: &str, failed: &[String]) {
    assert!(
        failed.is_empty(),
        "{what}: {} of them\n{}",
        failed.len(),
        failed.join("\n")
    );
}

/// S2, S5: in the view of arguments, and what stands beside it is kept.
#[test]
fn no_secret_is_in_a_view_and_its_surroundings_are() {
    let mut failed = Vec::new();
    for form in secrets() {
        let view = match &form.input {
            Value::String(text) => redact_text(text).into_owned(),
            json => Redacted::of(json).to_string(),
        };
        if shows(&view, form.secret.as_ref().unwrap()) || !view.contains(REDACTED) {
            failed.push(format!("{}: {view}", form.name));
        } else if form.keep.as_ref().is_some_and(|keep| !shows(&view, keep)) {
            failed.push(format!("{}: keeps too little: {view}", form.name));
        }
    }
    none_of("secrets", &failed);
}

#[test]
fn what_is_innocent_survives() {
    let mut failed = Vec::new();
    for form in innocent() {
        let as_argument = json!({ "input": form.input });
        let view = serde_json::to_value(Redacted::of(&as_argument)).unwrap();
        if view != as_argument {
            failed.push(format!("{}: {view}", form.name));
        } else if let Value::String(text) = &form.input
            && redact_text(text) != *text
        {
            failed.push(format!("{}: {}", form.name, redact_text(text)));
        }
    }
    none_of("innocents", &failed);
}

/// Trap 15: spans, events, `Debug`, `Display`, what users and models read, what is serialised.
#[test]
fn no_secret_reaches_any_sink() {
    let mut failed = Vec::new();
    for form in secrets() {
        let secret = form.secret.unwrap();
        let shows_it = |(sink, text): (&'static str, String)| shows(&text, &secret).then_some(sink);
        let sinks: Vec<_> = sinks::of(&form.input)
            .into_iter()
            .filter_map(shows_it)
            .collect();
        if !sinks.is_empty() {
            failed.push(format!("{}: {}", form.name, sinks.join("; ")));
        }
    }
    none_of("leaks", &failed);
}

/// The sinks themselves: what is no secret is seen in each that shows what it is given.
#[test]
fn the_sinks_show_what_is_no_secret() {
    let seen = sinks::of(&json!({ "city": "Reykjavik" }));
    for sink in [
        "arguments, printed",
        "arguments, serialised",
        "trace of a success",
        "trace of a failure",
        "error, Display",
        "error, Debug",
        "error, serialised",
        "error, message",
        "error, body",
        "error, details",
        "result of a success, serialised",
        "result of a failure, Debug",
        "result of a failure, serialised",
    ] {
        let text = &seen.iter().find(|(name, _)| *name == sink).unwrap().1;
        assert!(text.contains("Reykjavik"), "{sink}: {text}");
    }
}

/// K-4: what turns or hides text would show a reader other names and messages than there are.
#[test]
fn no_hidden_character_reaches_a_message_a_body_or_a_label() {
    let text = "read\u{202e}eteled\u{2066}\u{200b}\u{feff}\u{61c}\u{200d}\u{2028}\u{e0041}";
    let hidden: Vec<_> = text.chars().filter(|c| !c.is_ascii()).collect();
    let mut failed = Vec::new();
    let seen = sinks::of(&json!(text));
    for sink in [
        "names",
        "error, Display",
        "error, Debug",
        "error, message",
        "error, body",
        "model's message",
        "result of a failure, Debug",
    ] {
        let (_, shown) = seen.iter().find(|(name, _)| *name == sink).unwrap();
        let raw = shown.contains(&hidden[..]);
        let escaped = shown.contains("\\u{202e}") || shown.contains("\\u202e");
        if raw || escaped || !shown.contains("eteled") {
            failed.push(format!("{sink}: {shown:?}"));
        }
    }
    none_of("hidden characters", &failed);
}
