//! Patterns beyond the limits are left out, and never make a schema stricter.

use serde_json::{Value, json};
use tower_toolcall::validate::{Draft, Schema, Schemas};

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
fn what_would_become_stricter_is_left_out_too() {
    let pattern = json!({ "type": "string", "pattern": LARGE });
    for (part, fits) in [
        (json!({ "not": pattern }), json!("x")),
        (
            json!({ "oneOf": [pattern, { "type": "string" }] }),
            json!("x"),
        ),
        (json!({ "if": pattern, "then": false }), json!("x")),
        (
            json!({ "contains": pattern, "maxContains": 1 }),
            json!(["x", "y"]),
        ),
    ] {
        let schema = compile(json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "properties": { "a": part }, "required": ["a"],
        }));
        assert_eq!(schema.omitted().count(), 1);
        assert!(schema.is_valid(&json!({ "a": fits })), "{part}");
        assert!(!schema.is_valid(&json!({})));
    }
    let either = compile(json!({ "oneOf": [pattern, { "type": "integer" }] }));
    assert!(either.is_valid(&json!("1")) && !either.is_valid(&json!(true)));
}

/// H-10: the rest of the schema looks at what is too long for the patterns.
#[test]
fn long_texts_are_checked_without_patterns() {
    let schema = compile(json!({
        "type": "object",
        "properties": {
            "to": { "type": "string", "pattern": "^[a-z]+@" },
            "body": { "type": "string" },
            "count": { "type": "integer", "maximum": 9 },
        },
        "patternProperties": { "^x-": { "type": "string" } },
        "additionalProperties": false,
        "required": ["to"],
    }));
    let long = || "b".repeat(600 << 10);
    for (wrong, why) in [
        (
            json!({ "body": long() }),
            r#"root: "to" is a required property"#,
        ),
        (
            json!({ "to": 1, "body": long() }),
            r#"to: is not of type "string""#,
        ),
        (
            json!({ "to": "n", "count": 10, "body": long() }),
            "count: is greater than the maximum of 9",
        ),
    ] {
        assert!(!schema.is_valid(&wrong), "{why}");
        assert_eq!(schema.errors(&wrong).to_string(), why);
    }
    // Of what the patterns are for nothing is known.
    let right = json!({ "to": "n", "body": long(), "x-a": 1 });
    assert!(schema.is_valid(&right) && schema.errors(&right).is_empty());
    assert!(!schema.covers(&right));
    let (repaired, paths) = schema
        .repaired(&json!({ "to": "n", "count": "5", "body": long() }))
        .unwrap();
    assert_eq!(
        (&repaired["count"], paths),
        (&json!(5), vec!["count".to_owned()])
    );
}

/// H-10: in alternatives too, to which references lead.
#[test]
fn long_texts_are_checked_where_there_are_alternatives() {
    let schema = compile(json!({
        "definitions": { "address": { "anyOf": [
            { "pattern": "^[a-z]+@", "type": "string" },
            { "type": "null" },
        ] } },
        "properties": {
            "to": { "oneOf": [{ "$ref": "#/definitions/address" }, { "type": "array" }] },
            "a": { "not": { "pattern": "^[a-z]+@" } },
            "plain": { "type": "string" },
        },
        "if": { "properties": { "to": { "pattern": "^[a-z]+@" } } },
        "then": { "required": ["x"] },
    }));
    let long = "b".repeat(1 << 20);
    let fits = |value: Value| schema.is_valid(&value);
    assert!(fits(json!({ "to": long, "plain": "", "a": long })));
    assert!(!fits(json!({ "to": 1, "plain": long })));
    assert!(!fits(json!({ "plain": 1, "to": long })));
}

/// H-10: a repaired value that is short enough for the patterns has to fit them.
#[test]
fn what_becomes_short_when_it_is_repaired_is_looked_at_by_the_patterns() {
    let schema = compile(json!({ "properties": {
        "list": { "type": "array", "items": { "type": "integer" } },
        "to": { "type": "string", "pattern": "^[a-z]+$" },
    } }));
    let spaces = " ".repeat(1 << 20);
    let of = |to: &str| json!({ "list": format!("[1,{spaces}2]"), "to": to });
    assert!(!schema.is_valid(&of("a")) && !schema.covers(&of("a")));
    let (repaired, _) = schema.repaired(&of("a")).unwrap();
    assert_eq!(repaired, json!({ "list": [1, 2], "to": "a" }));
    assert!(schema.repaired(&of("A")).is_none());
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
fn look_around_and_back_references_of_trusted_servers_work() {
    let fits = |pattern: &str, text: &str| {
        let schema = Schema::compile_trusted(&json!({ "pattern": pattern }), Draft::Draft7);
        schema.unwrap().is_valid(&json!(text))
    };
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

/// Keywords that may become stricter are left out of the whole schema then; others stay.
#[test]
fn what_cannot_become_stricter_stays() {
    let schema = compile(json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "properties": {
            "name": { "pattern": LARGE },
            "mode": { "enum": ["user"] },
            "one": { "oneOf": [{ "minimum": 1 }, { "type": "string" }] },
            "all": { "allOf": [{ "maximum": 9 }] },
            "nested": { "not": { "not": { "not": { "pattern": LARGE } } } },
            "counted": { "not": { "contains": { "const": 1 }, "maxContains": 1 } },
        },
    }));
    assert_eq!(schema.omitted().count(), 1);
    for wrong in [
        json!({ "mode": "root" }),
        json!({ "one": 0 }),
        json!({ "all": 10 }),
    ] {
        assert!(!schema.is_valid(&wrong), "{wrong}");
    }
    for right in [
        json!({ "name": "x", "mode": "user", "one": 10, "all": 9, "nested": "x" }),
        json!({ "counted": [1, 1] }),
    ] {
        assert!(schema.is_valid(&right), "{right}");
    }
}

/// What has no such pattern in it is enforced as before.
#[test]
fn a_pattern_that_is_left_out_relaxes_nothing_beside_it() {
    let schema = compile(json!({
        "properties": {
            "comment": { "pattern": LARGE },
            "one": { "oneOf": [{ "minimum": 1 }, { "maximum": 9 }] },
        },
        "not": { "required": ["admin"] },
        "if": { "required": ["from"] },
        "then": { "required": ["to"] },
    }));
    assert_eq!(schema.omitted().count(), 1);
    for wrong in [
        json!({ "admin": true }),
        json!({ "from": 1 }),
        json!({ "one": 5 }),
    ] {
        assert!(!schema.is_valid(&wrong), "{wrong}");
    }
    assert!(schema.is_valid(&json!({ "comment": "1", "one": 0, "from": 1, "to": 2 })));
}

/// H-10: a pattern that cannot run is left out and listed; the rest of its schema is looked at.
#[test]
fn a_pattern_that_cannot_run_is_left_out_and_listed() {
    let schemas = Schemas::new();
    let patterns = [
        r"(?P<year>\d{4})",
        r"^(?!admin)\w+$",
        // Of the same kind
        r"\A[a-z]+\Z",
        r"(?i)abc",
        r"^(?!.*\.\.)[\w.-]+$",
    ];
    for (n, pattern) in patterns.iter().enumerate() {
        let schema = compile(json!({
            "type": "object",
            "properties": { "a": { "pattern": pattern }, "b": { "type": "integer" } },
        }));
        assert_eq!(schema.omitted().collect::<Vec<_>>(), [*pattern]);
        assert!(schema.is_valid(&json!({ "a": "!" })), "{pattern}");
        assert!(!schema.is_valid(&json!({ "b": "x" })), "{pattern}");
        schemas.insert(None, &format!("t{n}"), schema);
    }
    let keys = compile(json!({ "patternProperties": { r"(?P<x>\d)": { "type": "string" } } }));
    assert_eq!(keys.omitted().count(), 1);
    let refused = schemas.refused();
    assert_eq!(refused.len(), patterns.len());
    for (_, error) in refused {
        assert!(
            error
                .reason()
                .starts_with("has a pattern that is left out: ")
        );
    }
}

/// H-10: newer drafts do not refuse Python's forms, and the engine knows some of them.
#[test]
fn a_python_pattern_runs_where_the_draft_allows_it() {
    let schema = json!({ "properties": { "a": { "pattern": r"^(?P<year>\d{4})$" } } });
    let schema = Schema::compile_with(&schema, Draft::Draft202012).unwrap();
    assert_eq!(schema.omitted().count(), 0);
    assert!(schema.is_valid(&json!({ "a": "2025" })) && !schema.is_valid(&json!({ "a": "25" })));
}
