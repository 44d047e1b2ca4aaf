//! Whatever stands in a text or in JSON, redaction gives a bounded view, which it leaves as it is,
//! and which never shows a secret that has a name.
//!
//! The input is taken as text, as a key and as JSON.

use serde_json::{Value, json};
use tower_toolcall::redact::{MAX_BYTES, Rules, is_sensitive_key, redact_text};

/// In bytes: so far rules look for the name of a value.
const NEAR: usize = 512;

/// No text of a corpus has it.
const SECRET: &str = "zx7Qm2vT9kLw4bRn";

pub(crate) fn run(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let _ = is_sensitive_key(&text);
    let once = redact_text(&text);
    // What is redacted brings nearer what was too far from its name; and JSON without any secret
    // left is looked at as a text.
    if text.len() <= NEAR && serde_json::from_str::<Value>(&text).is_err() {
        assert_eq!(redact_text(&once), once, "it is redacted once more");
    }
    let rules = Rules::default();
    let short = rules.text(&text, 20).to_string();
    assert!(short.chars().count() <= 20 + "...[truncated]".len());

    let beside = json!({ "note": text, "password": SECRET, text.clone(): { "api_key": [SECRET] } });
    hides(&rules, &beside);
    if let Ok(mut value) = serde_json::from_str::<Value>(&text) {
        plant(&mut value);
        hides(&rules, &value);
        let shown = redact_text(&value.to_string()).into_owned();
        assert!(!shown.contains(SECRET), "as a text: {shown}");
    }
}

fn hides(rules: &Rules, value: &Value) {
    let shown = rules.json(value).to_string();
    assert!(shown.len() <= MAX_BYTES, "{} bytes", shown.len());
    assert!(!shown.contains(SECRET), "{shown}");
}

/// Each object has a secret.
fn plant(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(plant),
        Value::Object(map) => {
            map.values_mut().for_each(plant);
            map.insert("client_secret".into(), SECRET.into());
        }
        _ => {}
    }
}
