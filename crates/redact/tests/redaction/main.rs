//! No secret is in a view, in whatever form it comes; what is innocent survives (S2, S3, S5).
//!
//! The forms stand in `secrets.json` and `innocent.json`. All are invented. In each secret stands a
//! `§`, which is taken out here: otherwise every scanner that looks for credentials in repositories
//! would find hundreds.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]

mod attacks;
mod corpus;
mod forms;
mod headers;
mod rules;

use serde_json::{Value, json};
use toolcall_redact::{MAX_STRING, REDACTED, Redacted, Rules, redact_text};

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

/// S-9b: characters that turn or hide text are escaped, so that a reader sees what there is.
#[test]
fn characters_that_turn_or_hide_text_are_escaped_in_every_view() {
    let hidden = "\u{202e}\u{2066}\u{200b}\u{feff}\u{61c}\u{200d}\u{2028}\u{e0041}\u{ad}";
    let rules = Rules::new();
    let mut failed = Vec::new();
    for c in hidden.chars() {
        let text = format!("a{c}b");
        let escaped = format!("a\\u{{{:x}}}b", u32::from(c));
        let value = json!({ text.as_str(): [text.as_str()] });
        let views = [
            (rules.text(&text, 50).to_string(), escaped.clone()),
            (
                serde_json::to_value(rules.json(&value))
                    .unwrap()
                    .to_string(),
                json!({ escaped.as_str(): [escaped.as_str()] }).to_string(),
            ),
            (
                rules.json(&value).to_string(),
                json!({ escaped.as_str(): [escaped.as_str()] }).to_string(),
            ),
            (rules.text(&escaped, 50).to_string(), escaped.clone()),
        ];
        let wrong = views
            .into_iter()
            .filter(|(view, expected)| view != expected);
        failed.extend(wrong.map(|(view, expected)| format!("{view} is not {expected}")));
    }
    none_of("views", &failed);
}

/// S-9b: an escape is longer than its character, and the limits hold all the same.
#[test]
fn escaped_characters_do_not_make_a_view_longer() {
    let text = "\u{202e}".repeat(1_000);
    let shown = Rules::new().text(&text, 20).to_string();
    assert_eq!(shown, "\\u{202e}\\u{202e}...[truncated]");
    let view = Redacted::of(&json!(text)).to_string();
    assert!(view.chars().count() <= MAX_STRING + 60, "{view}");
    assert!(view.ends_with("...[truncated]\""), "{view}");
    let joined = "👩\u{200d}🚀 naïve 日本語 ❤\u{fe0f} a\tb";
    assert_eq!(Rules::new().text(joined, 50).to_string(), joined);
}
