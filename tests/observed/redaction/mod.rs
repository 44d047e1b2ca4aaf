//! A secret reaches no place where people or log stores read, in whatever form it comes
//! (S4, S7, S8, trap 15). The forms are those of the tests of `crates/redact`.

#[allow(dead_code, reason = "the tests of redaction alone use all of it")]
#[path = "../../../crates/redact/tests/redaction/forms.rs"]
mod forms;
mod sinks;

use serde_json::json;

use self::forms::{none_of, secrets, shows};

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
