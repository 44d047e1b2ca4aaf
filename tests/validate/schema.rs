//! What a schema takes.

use expect_test::expect;
use serde_json::{Value, json};
use tower_toolcall::validate::{Draft, Schema};

use crate::kit::compile;

/// H1: no check without a schema.
#[test]
fn an_empty_schema_takes_everything_and_false_takes_nothing() {
    for schema in [json!({}), json!(true), Value::Null] {
        let schema = compile(schema);
        assert!(schema.is_valid(&json!({ "a": 1 })) && schema.errors(&json!(1)).is_empty());
    }
    let schema = compile(json!(false));
    assert!(!schema.is_valid(&json!({})));
    assert_eq!(
        schema.errors(&json!({})).to_string(),
        "root: is not allowed"
    );
}

#[test]
fn what_is_no_schema_is_refused() {
    for schema in [
        json!("x"),
        json!(1),
        json!([]),
        json!({ "type": 7 }),
        json!({ "properties": 1 }),
    ] {
        let error = Schema::compile(&schema).unwrap_err();
        assert_eq!(error.field(), "schema", "{schema}");
    }
}

//= https://modelcontextprotocol.io/specification/2026-07-28/basic/index#implementation-requirements
//# Clients and servers MUST validate schemas according to their declared or default dialect.
/// H1: draft 7 where it does not say; MCP has another default.
#[test]
fn the_draft_is_that_of_the_schema_or_the_default() {
    let tuple = json!({ "items": [{ "type": "string" }] });
    let wrong = json!([1]);
    assert!(!compile(tuple.clone()).is_valid(&wrong));
    // An array of schemas is none in 2020-12.
    assert!(Schema::compile_with(&tuple, Draft::Draft202012).is_err());
    let tuple = json!({ "prefixItems": [{ "type": "string" }] });
    assert!(compile(tuple.clone()).is_valid(&wrong));
    assert!(
        !Schema::compile_with(&tuple, Draft::Draft202012)
            .unwrap()
            .is_valid(&wrong)
    );

    let mut said = tuple;
    said["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    assert!(!compile(said).is_valid(&wrong));
    let said = json!({ "$schema": "http://json-schema.org/draft-04/schema#", "minimum": 1, "exclusiveMinimum": true });
    assert!(!compile(said).is_valid(&json!(1)));
}

#[test]
fn formats_are_not_looked_at() {
    for draft in [Draft::Draft7, Draft::Draft202012] {
        let schema = Schema::compile_with(&json!({ "format": "email" }), draft).unwrap();
        assert!(schema.is_valid(&json!("no address")));
    }
}

#[test]
fn references_within_a_schema_are_followed() {
    for (schema, draft) in [
        (
            json!({ "definitions": { "s": { "type": "string" } }, "properties": { "a": { "$ref": "#/definitions/s" } } }),
            Draft::Draft7,
        ),
        (
            json!({ "$defs": { "a b~/%": { "type": "string" } }, "properties": { "a": { "$ref": "#/$defs/a%20b~0~1%25" } } }),
            Draft::Draft202012,
        ),
        (
            json!({ "$defs": { "s": { "$anchor": "here", "type": "string" } }, "properties": { "a": { "$ref": "#here" } } }),
            Draft::Draft202012,
        ),
        (
            json!({ "definitions": { "s": { "$id": "#here", "type": "string" } }, "properties": { "a": { "$ref": "#here" } } }),
            Draft::Draft7,
        ),
        (
            json!({ "$id": "https://example.com/tool", "$defs": { "s": { "type": "string" } }, "properties": { "a": { "$ref": "#/$defs/s" } } }),
            Draft::Draft202012,
        ),
    ] {
        let by_anchor = schema.to_string().contains("#here");
        assert_eq!(Schema::compile_with(&schema, draft).is_err(), by_anchor);
        let schema = Schema::compile_trusted(&schema, draft).unwrap();
        assert!(schema.is_valid(&json!({ "a": "x" })) && !schema.is_valid(&json!({ "a": 1 })));
    }
}

/// They are no indices where there is no list.
#[test]
fn names_that_look_like_numbers_are_followed() {
    let text = json!({ "type": "string" });
    let schema = compile(json!({
        "$defs": { "01_item": text },
        "properties": { "+1": text, "a": { "$ref": "#/$defs/01_item" }, "b": { "$ref": "#/properties/+1" } },
    }));
    assert!(schema.is_valid(&json!({ "a": "x", "b": "x" })));
    assert!(!schema.is_valid(&json!({ "a": 1 })) && !schema.is_valid(&json!({ "b": 1 })));
    for reference in ["#/allOf/00", "#/allOf/+0", "#/allOf/0x"] {
        let schema = json!({ "allOf": [text], "properties": { "a": { "$ref": reference } } });
        assert!(Schema::compile(&schema).is_err(), "{reference}");
    }
}

#[test]
fn a_recursive_schema_of_a_trusted_server_is_followed() {
    let schema = json!({
        "definitions": { "node": {
            "type": "object",
            "properties": { "name": { "type": "string" }, "children": { "items": { "$ref": "#/definitions/node" } } },
        } },
        "$ref": "#/definitions/node",
    });
    let schema = Schema::compile_trusted(&schema, Draft::Draft7).unwrap();
    let tree = |leaf: Value| json!({ "name": "a", "children": [{ "name": "b", "children": [{ "name": leaf }] }] });
    assert!(schema.is_valid(&tree(json!("c"))));
    expect![[r#"children.0.children.0.name: is not of type "string""#]]
        .assert_eq(&schema.errors(&tree(json!(1))).to_string());
}

#[test]
fn debug_does_not_show_the_schema() {
    let schema = compile(json!({ "properties": { "a": { "const": "CANARY" } } }));
    expect!["Schema { anything: false, omitted: 0, .. }"].assert_eq(&format!("{schema:?}"));
}

/// F-10: data that looks like a reference. The second case is an example of OpenAPI.
#[test]
fn a_name_or_an_example_is_not_a_reference() {
    for schema in [
        json!({ "dependentRequired": { "$ref": ["as"] } }),
        json!({ "properties": { "a": { "type": "object", "example": { "$ref": ".." } } } }),
    ] {
        let schema = Schema::compile_with(&schema, Draft::Draft202012).unwrap();
        assert!(schema.is_valid(&json!({ "a": {} })));
    }
}
