//! Patterns beyond the limits are left out, and never make a schema stricter.

use serde_json::{Value, json};
use tower_toolcall::validate::Schema;

use crate::kit::compile;

/// Larger than 256 KiB when it is compiled.
const LARGE: &str = r"^[a-z]{1,9}\p{L}{2,20}$";

#[test]
fn the_rest_of_the_schema_is_looked_at() {
    let schema = compile(json!({ "properties": {
        "a": { "type": "string", "pattern": LARGE },
        "b": { "pattern": "^x" },
    } }));
    assert_eq!(schema.omitted().collect::<Vec<_>>(), [LARGE]);
    assert!(schema.is_valid(&json!({ "a": "1", "b": "x" })));
    assert!(!schema.is_valid(&json!({ "a": 1 })) && !schema.is_valid(&json!({ "b": "y" })));
}

#[test]
fn keys_of_a_pattern_that_is_left_out_are_not_additional() {
    for closed in ["additionalProperties", "unevaluatedProperties"] {
        let schema = json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "patternProperties": { LARGE: { "type": "string" } },
            closed: false,
        });
        assert!(compile(schema).is_valid(&json!({ "name": 1 })), "{closed}");
    }
}

#[test]
fn where_a_schema_would_become_stricter_it_is_refused() {
    let pattern = json!({ "pattern": LARGE });
    for schema in [
        json!({ "not": pattern }),
        json!({ "oneOf": [pattern, { "type": "string" }] }),
        json!({ "if": pattern, "then": false }),
        json!({ "contains": pattern, "maxContains": 1 }),
    ] {
        let error = Schema::compile(&schema).unwrap_err();
        assert_eq!(error.reason(), "has a pattern that cannot be left out");
    }
}

#[test]
fn data_of_a_schema_is_not_changed() {
    let data = json!({ "pattern": LARGE, "if": 1 });
    let schema =
        compile(json!({ "properties": { "a": { "const": data }, "b": { "pattern": LARGE } } }));
    assert!(schema.is_valid(&json!({ "a": data, "b": "1" })));
    assert!(!schema.is_valid(&json!({ "a": { "if": 1 } })));
}

#[test]
fn names_of_properties_are_no_keywords() {
    for name in ["default", "enum", "const", "examples", "not", "if", "oneOf"] {
        let schema = compile(json!({ "properties": {
            name: { "type": "string", "pattern": LARGE },
            "x": { "pattern": "^x" },
        } }));
        assert_eq!(schema.omitted().count(), 1, "{name}");
        assert!(schema.is_valid(&json!({ name: "1" })) && !schema.is_valid(&json!({ "x": "y" })));
    }
}

#[test]
fn data_is_not_changed_where_keys_are_not_looked_at() {
    let data = json!({ "unevaluatedProperties": false });
    let schema = compile(
        json!({ "$schema": "https://json-schema.org/draft/2020-12/schema",
            "patternProperties": { LARGE: {} },
            "properties": { "a": { "const": data }, "b": { "enum": [data] } },
            "unevaluatedProperties": false,
        }),
    );
    assert!(schema.is_valid(&json!({ "a": data, "b": data, "c": 1 })));
    assert!(!schema.is_valid(&json!({ "a": {} })) && !schema.is_valid(&json!({ "b": {} })));
}

/// They are of JavaScript's dialect.
#[test]
fn look_around_and_back_references_work() {
    let fits =
        |pattern: &str, text: &str| compile(json!({ "pattern": pattern })).is_valid(&json!(text));
    assert!(fits(r"^(?!\s)\S+$", "word") && !fits(r"^(?!\s)\S+$", " word"));
    assert!(fits(r"^(a|b)\1$", "aa") && !fits(r"^(a|b)\1$", "ab"));
    assert!(fits(r"^\d+$", "12") && !fits(r"^\d+$", "१२"));
}

#[test]
fn a_pattern_that_is_none_is_no_schema_or_left_out() {
    let schema: Value = json!({ "properties": { "a": { "type": "string", "pattern": "(" } } });
    match Schema::compile(&schema) {
        Ok(schema) => assert_eq!(schema.omitted().count(), 1),
        Err(error) => assert!(error.reason().starts_with("is not one")),
    }
}
