//! What is told of arguments that do not fit: the schema's words, never the caller's.

use serde_json::{Value, json};
use tower_toolcall::validate::{Draft, Schema};

use crate::kit::{compile, search};

fn text(schema: Value, value: Value) -> String {
    let schema = Schema::compile_with(&schema, Draft::Draft202012).unwrap();
    schema.misfits(&value).to_string()
}

/// H1: path and message, `root` for the top, indices in the path.
#[test]
fn a_misfit_has_a_path_and_a_message() {
    let misfits = search().misfits(&json!({ "limit": "5", "filters": [{ "op": "like" }] }));
    let told: Vec<_> = misfits
        .iter()
        .map(|m| (m.path(), m.keyword(), m.message()))
        .collect();
    assert_eq!(
        told,
        [
            (
                "filters.0.op",
                "enum",
                r#"is not one of "eq", "ne" or 2 others"#
            ),
            ("limit", "type", r#"is not of type "integer""#),
            ("root", "required", r#""query" is a required property"#),
        ]
    );
    let json = serde_json::to_value(&misfits).unwrap();
    assert_eq!(
        json[1],
        json!({ "path": "limit", "keyword": "type", "message": r#"is not of type "integer""# })
    );
}

/// H1: the first five.
#[test]
fn five_are_told() {
    let properties: serde_json::Map<_, _> = (0..9)
        .map(|n| (format!("p{n}"), json!({ "type": "integer" })))
        .collect();
    let schema = compile(json!({ "properties": properties }));
    let arguments = |n: usize| -> Value {
        (0..n)
            .map(|n| (format!("p{n}"), json!("x")))
            .collect::<serde_json::Map<_, _>>()
            .into()
    };
    let misfits = schema.misfits(&arguments(9));
    assert_eq!((misfits.len(), misfits.has_more()), (5, true));
    assert_eq!(
        misfits.iter().map(|m| m.path()).collect::<Vec<_>>(),
        ["p0", "p1", "p2", "p3", "p4"]
    );
    let misfits = schema.misfits(&arguments(5));
    assert_eq!((misfits.len(), misfits.has_more()), (5, false));
}

#[test]
fn each_keyword_has_its_words() {
    for (schema, value, expected) in [
        (
            json!({ "type": ["integer", "null"] }),
            json!("x"),
            r#"is not of type "integer" or "null""#,
        ),
        (
            json!({ "anyOf": [{ "type": "integer" }, { "type": "null" }] }),
            json!("x"),
            r#"is not of type "integer" or "null""#,
        ),
        (
            json!({ "anyOf": [{ "type": "integer" }, { "const": "a" }] }),
            json!("x"),
            r#"is not of type "integer", or else is not "a""#,
        ),
        (
            json!({ "oneOf": [{ "type": "integer" }, { "minimum": 1 }] }),
            json!(2),
            "is more than one of what it may be",
        ),
        (json!({ "enum": ["a"] }), json!("x"), r#"is not "a""#),
        (
            json!({ "enum": ["a", 1, null] }),
            json!("x"),
            r#"is not one of "a", 1 or null"#,
        ),
        (
            json!({ "enum": [1, 2, 3, 4] }),
            json!("x"),
            "is not one of 1, 2 or 2 others",
        ),
        (json!({ "const": "a" }), json!("x"), r#"is not "a""#),
        (
            json!({ "const": { "a": 1 } }),
            json!("x"),
            "is not the object of the schema",
        ),
        (json!({ "minimum": 1 }), json!(0), "is less than 1"),
        (json!({ "maximum": 1.5 }), json!(2), "is greater than 1.5"),
        (
            json!({ "exclusiveMinimum": 1 }),
            json!(1),
            "is not greater than 1",
        ),
        (
            json!({ "exclusiveMaximum": 1 }),
            json!(1),
            "is not less than 1",
        ),
        (
            json!({ "multipleOf": 5 }),
            json!(1),
            "is not a multiple of 5",
        ),
        (
            json!({ "minLength": 2 }),
            json!("x"),
            "is shorter than 2 characters",
        ),
        (
            json!({ "maxLength": 1 }),
            json!("xy"),
            "is longer than 1 character",
        ),
        (
            json!({ "pattern": "^a+$" }),
            json!("x"),
            r#"does not match "^a+$""#,
        ),
        (json!({ "minItems": 1 }), json!([]), "has fewer than 1 item"),
        (
            json!({ "maxItems": 0 }),
            json!([1]),
            "has more than 0 items",
        ),
        (
            json!({ "uniqueItems": true }),
            json!([1, 1]),
            "has equal items",
        ),
        (
            json!({ "contains": { "type": "string" } }),
            json!([1]),
            "has too few, or too many, items of a kind",
        ),
        (
            json!({ "minProperties": 1 }),
            json!({}),
            "has fewer than 1 property",
        ),
        (
            json!({ "maxProperties": 0 }),
            json!({ "a": 1 }),
            "has more than 0 properties",
        ),
        (
            json!({ "additionalProperties": false }),
            json!({ "x": 1 }),
            "has properties, and none is allowed",
        ),
        (
            json!({ "properties": { "a": {} }, "additionalProperties": false }),
            json!({ "x": 1 }),
            "has a property that is not allowed",
        ),
        (
            json!({ "properties": { "a": {} }, "additionalProperties": false }),
            json!({ "x": 1, "y": 1 }),
            "has 2 properties that are not allowed",
        ),
        (
            json!({ "unevaluatedProperties": false }),
            json!({ "x": 1 }),
            "has a property that is not allowed",
        ),
        (
            json!({ "propertyNames": { "maxLength": 1 } }),
            json!({ "xy": 1 }),
            "has a property whose name is longer than 1 character",
        ),
        (json!({ "not": {} }), json!(1), "is what it must not be"),
        (
            json!({ "required": ["a"] }),
            json!({}),
            r#""a" is a required property"#,
        ),
        (
            json!({ "dependentRequired": { "a": ["b"] } }),
            json!({ "a": 1 }),
            r#""b" is a required property"#,
        ),
    ] {
        assert_eq!(
            text(schema.clone(), value),
            format!("root: {expected}"),
            "{schema}"
        );
    }
}

/// A name that the schema has is shown; the caller's own are not, even if they look like indices.
#[test]
fn keys_of_the_caller_are_stars() {
    let integers = json!({ "additionalProperties": { "type": "integer" } });
    for key in ["sk-live-4242", "4111111111111111", "a/b~c", ""] {
        assert_eq!(
            text(integers.clone(), json!({ key: "x" })),
            r#"*: is not of type "integer""#
        );
    }
    let schema = json!({ "properties": { "list": { "items": integers } } });
    assert_eq!(
        text(schema, json!({ "list": [{}, { "mine": "x" }] })),
        r#"list.1.*: is not of type "integer""#
    );
    let schema = json!({ "properties": { "a/b~c": { "type": "integer" } } });
    assert_eq!(
        text(schema, json!({ "a/b~c": "x" })),
        r#"a/b~c: is not of type "integer""#
    );
}

#[test]
fn a_name_that_could_be_read_as_something_else_is_quoted() {
    for (name, path) in [
        ("a.b", r#""a.b""#),
        ("root", r#""root""#),
        ("*", r#""*""#),
        ("0", r#""0""#),
        ("", r#""""#),
        ("a b", r#""a b""#),
        (r#"a"."b"#, "*"),
        ("$id-a_b/c", "$id-a_b/c"),
    ] {
        let schema =
            json!({ "properties": { "in": { "properties": { name: { "type": "null" } } } } });
        let text = text(schema, json!({ "in": { name: 1 } }));
        assert_eq!(text, format!("in.{path}: is not of type \"null\""));
    }
}

#[test]
fn eight_steps_of_a_path_are_shown() {
    let schema = |levels| {
        (0..levels).fold(
            json!({ "type": "string" }),
            |inner, _| json!({ "properties": { "a": inner } }),
        )
    };
    let value = |levels| (0..levels).fold(json!(1), |inner, _| json!({ "a": inner }));
    assert_eq!(
        text(schema(8), value(8)),
        r#"a.a.a.a.a.a.a.a: is not of type "string""#
    );
    assert_eq!(
        text(schema(9), value(9)),
        r#"a.a.a.a.a.a.a.a...: is not of type "string""#
    );
}

/// A word of the schema is as short as any name of a stranger's.
#[test]
fn what_is_shown_of_a_schema_is_short() {
    let long = "x".repeat(10_000);
    for (schema, value) in [
        (json!({ "const": long }), json!(1)),
        (json!({ "enum": [long, long.clone() + "1"] }), json!(1)),
        (json!({ "pattern": long }), json!("1")),
        (json!({ "required": [long] }), json!({})),
        (
            json!({ "properties": { long.as_str(): { "type": "string" } } }),
            json!({ long.as_str(): 1 }),
        ),
        (json!({ "multipleOf": 1e300 }), json!(1)),
        (json!({ "maximum": -1e300 }), json!(1)),
        (
            json!({ "enum": (0..9_000).collect::<Vec<_>>() }),
            json!("x"),
        ),
    ] {
        let text = text(schema, value);
        assert!(text.len() < 220, "{}", text.len());
    }
}

/// Whether it matches is not known, also where it must not; what is in `not` has no path then.
#[test]
fn a_match_that_is_given_up_is_told_as_that() {
    let pattern = json!({ "pattern": "^(a|a)*\\1!$" });
    for (schema, path) in [(pattern.clone(), "t"), (json!({ "not": pattern }), "root")] {
        let schema = compile(json!({ "properties": { "t": schema } }));
        let text = schema.misfits(&json!({ "t": "a".repeat(40) })).to_string();
        assert_eq!(
            text,
            format!("{path}: could not be matched with its pattern")
        );
    }
}

#[test]
fn a_property_may_have_the_name_of_a_keyword() {
    let property = json!({ "properties": { "additionalProperties": false } });
    assert_eq!(
        text(property, json!({ "additionalProperties": 1 })),
        "additionalProperties: is not allowed"
    );
    let closed = json!({ "properties": { "properties": { "additionalProperties": false }, "additionalProperties": { "additionalProperties": false } } });
    let told = "has properties, and none is allowed";
    assert_eq!(
        text(closed.clone(), json!({ "properties": { "a": 1 } })),
        format!("properties: {told}")
    );
    assert_eq!(
        text(closed, json!({ "additionalProperties": { "a": 1 } })),
        format!("additionalProperties: {told}")
    );
}

/// H-10: of alternatives, the best one says which field is wrong, and what it may be.
#[test]
fn the_best_of_the_alternatives_is_told() {
    let kind = |kind: &str, field: &str, of: &str| json!({ "properties": { "kind": { "const": kind }, field: { "type": of } }, "required": ["kind", field] });
    let union =
        json!({ "oneOf": [kind("city", "name", "string"), kind("point", "lat", "number")] });
    let nested = json!({ "properties": { "at": { "anyOf": [{ "type": "string" }, union] } } });
    for (schema, value, expected) in [
        (
            union.clone(),
            json!({ "kind": "point" }),
            r#"root: "lat" is a required property"#,
        ),
        (
            union.clone(),
            json!({ "kind": "point", "lat": "north" }),
            r#"lat: is not of type "number""#,
        ),
        // Of the same kind: by the type, by the number of errors, in one another, and where no alternative is meant.
        (
            json!({ "anyOf": [{ "type": "string" }, { "items": { "type": "integer" }, "type": "array" }] }),
            json!([1, "x"]),
            r#"1: is not of type "integer""#,
        ),
        (
            json!({ "anyOf": [{ "required": ["a", "b", "c"] }, { "required": ["d"] }] }),
            json!({ "a": 1 }),
            r#"root: "d" is a required property"#,
        ),
        (
            nested,
            json!({ "at": { "kind": "city", "name": 1 } }),
            r#"at.name: is not of type "string""#,
        ),
        (
            union,
            json!({ "kind": "planet", "name": "Mars" }),
            r#"kind: is not one of "city" or "point""#,
        ),
        (
            json!({ "anyOf": [{ "type": "integer" }, { "const": "all" }] }),
            json!("some"),
            r#"root: is not of type "integer", or else is not "all""#,
        ),
        (
            json!({ "anyOf": [{ "required": ["id"] }, { "required": ["name"] }] }),
            json!({}),
            r#"root: "id" is a required property, or else "name" is a required property"#,
        ),
    ] {
        assert_eq!(text(schema.clone(), value), expected, "{schema}");
    }
}
