//! Whatever a server sends as a schema and a model as arguments, they are judged in bounded time,
//! by answers that agree, and a repaired value fits.
//!
//! The input is a schema, a byte 0, and arguments.

use serde_json::{Value, json};
use tower_toolcall::validate::{Draft, Schema};

pub(crate) fn run(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let (schema, value) = text.split_once('\0').unwrap_or((&text, "{}"));
    let Ok(schema) = serde_json::from_str::<Value>(schema) else {
        return;
    };
    let value: Value = serde_json::from_str(value).unwrap_or_else(|_| json!({ "a": value }));
    for draft in [Draft::Draft7, Draft::Draft202012] {
        match Schema::compile_with(&schema, draft) {
            Ok(schema) => judge(&schema, &value),
            Err(error) => assert!(error.to_string().len() < 2_000, "{error}"),
        }
    }
}

fn judge(schema: &Schema, value: &Value) {
    let errors = schema.errors(value);
    assert_eq!(schema.is_valid(value), errors.is_empty());
    assert!(errors.len() <= 5 && errors.to_string().len() < 5_000);
    if let Some((repaired, changed)) = schema.repaired(value) {
        assert!(schema.is_valid(&repaired), "{repaired}");
        assert!(!schema.is_valid(value) && !changed.is_empty());
        assert_eq!(schema.repaired(&repaired), None, "repaired once more");
    }
}
