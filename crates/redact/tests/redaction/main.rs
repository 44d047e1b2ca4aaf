//! No secret is in a view, in whatever form it comes; what is innocent survives (S2, S3, S5).
//!
//! The forms stand in `secrets.json` and `innocent.json`. All are invented. In each secret stands a `§`,
//! which is taken out here: otherwise every scanner that looks for credentials in repositories would find
//! hundreds.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]

mod corpus;
mod forms;
mod headers;
mod rules;

use serde_json::{Value, json};
use toolcall_redact::{REDACTED, Redacted, redact_text};

use self::forms::{innocent, none_of, secrets, shows};

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
