//! What is told of arguments that do not fit: the schema's words, never the caller's.

use expect_test::expect;
use serde_json::{Value, json};
use tower_toolcall::validate::{Draft, Schema};

use crate::kit::{compile, search};

fn text(schema: &Value, value: &Value) -> String {
    let schema = Schema::compile_trusted(schema, Draft::Draft202012).unwrap();
    schema.errors(value).to_string()
}

/// What does not fit of each value.
fn table<const N: usize>(cases: [(Value, Value); N]) -> String {
    let lines = cases.map(|(schema, value)| format!("{value}: {}", text(&schema, &value)));
    lines.join("\n")
}

/// H1: path and message, `root` for the top, indices in the path.
#[test]
fn an_error_has_a_path_and_a_message() {
    let errors = search().errors(&json!({ "limit": "5", "filters": [{ "op": "like" }] }));
    expect![[r#"
        [
          {
            "path": "filters.0.op",
            "keyword": "enum",
            "message": "is not one of \"eq\", \"ne\" or 2 others"
          },
          {
            "path": "limit",
            "keyword": "type",
            "message": "is not of type \"integer\""
          },
          {
            "path": "root",
            "keyword": "required",
            "message": "\"query\" is a required property"
          }
        ]"#]]
    .assert_eq(&serde_json::to_string_pretty(&errors).unwrap());
    let [first, ..] = errors.iter().collect::<Vec<_>>()[..] else {
        panic!("{errors}");
    };
    assert_eq!((first.path(), first.keyword()), ("filters.0.op", "enum"));
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
    let errors = schema.errors(&arguments(9));
    assert_eq!((errors.len(), errors.has_more()), (5, true));
    assert_eq!(
        errors.iter().map(|m| m.path()).collect::<Vec<_>>(),
        ["p0", "p1", "p2", "p3", "p4"]
    );
    let errors = schema.errors(&arguments(5));
    assert_eq!((errors.len(), errors.has_more()), (5, false));
}

#[test]
fn each_keyword_has_its_words() {
    let cases = [
        (json!({ "type": ["integer", "null"] }), json!("x")),
        (
            json!({ "anyOf": [{ "type": "integer" }, { "type": "null" }] }),
            json!("x"),
        ),
        (
            json!({ "anyOf": [{ "type": "integer" }, { "const": "a" }] }),
            json!("x"),
        ),
        (
            json!({ "oneOf": [{ "type": "integer" }, { "minimum": 1 }] }),
            json!(2),
        ),
        (json!({ "enum": ["a"] }), json!("x")),
        (json!({ "enum": ["a", 1, null] }), json!("x")),
        (json!({ "enum": [1, 2, 3, 4] }), json!("x")),
        (json!({ "const": "a" }), json!("x")),
        (json!({ "const": { "a": 1 } }), json!("x")),
        (json!({ "minimum": 1 }), json!(0)),
        (json!({ "maximum": 1.5 }), json!(2)),
        (json!({ "exclusiveMinimum": 1 }), json!(1)),
        (json!({ "exclusiveMaximum": 1 }), json!(1)),
        (json!({ "multipleOf": 5 }), json!(1)),
        (json!({ "minLength": 2 }), json!("x")),
        (json!({ "maxLength": 1 }), json!("xy")),
        (json!({ "pattern": "^a+$" }), json!("x")),
        (json!({ "minItems": 1 }), json!([])),
        (json!({ "maxItems": 0 }), json!([1])),
        (json!({ "uniqueItems": true }), json!([1, 1])),
        (json!({ "contains": { "type": "string" } }), json!([1])),
        (json!({ "minProperties": 1 }), json!({})),
        (json!({ "maxProperties": 0 }), json!({ "a": 1 })),
        (json!({ "additionalProperties": false }), json!({ "x": 1 })),
        (
            json!({ "properties": { "a": {} }, "additionalProperties": false }),
            json!({ "x": 1 }),
        ),
        (
            json!({ "properties": { "a": {} }, "additionalProperties": false }),
            json!({ "x": 1, "y": 1 }),
        ),
        (json!({ "unevaluatedProperties": false }), json!({ "x": 1 })),
        (
            json!({ "propertyNames": { "maxLength": 1 } }),
            json!({ "xy": 1 }),
        ),
        (json!({ "not": {} }), json!(1)),
        (json!({ "required": ["a"] }), json!({})),
        (
            json!({ "dependentRequired": { "a": ["b"] } }),
            json!({ "a": 1 }),
        ),
    ];
    let lines = cases.map(|(schema, value)| format!("{schema} {value}: {}", text(&schema, &value)));
    expect![[r#"
        {"type":["integer","null"]} "x": root: is not of type "integer" or "null"
        {"anyOf":[{"type":"integer"},{"type":"null"}]} "x": root: is not of type "integer" or "null"
        {"anyOf":[{"type":"integer"},{"const":"a"}]} "x": root: is not of type "integer", or else is not "a"
        {"oneOf":[{"type":"integer"},{"minimum":1}]} 2: root: is more than one of what it may be
        {"enum":["a"]} "x": root: is not "a"
        {"enum":["a",1,null]} "x": root: is not one of "a", 1 or null
        {"enum":[1,2,3,4]} "x": root: is not one of 1, 2 or 2 others
        {"const":"a"} "x": root: is not "a"
        {"const":{"a":1}} "x": root: is not the object of the schema
        {"minimum":1} 0: root: is less than the minimum of 1
        {"maximum":1.5} 2: root: is greater than the maximum of 1.5
        {"exclusiveMinimum":1} 1: root: is less than or equal to the minimum of 1
        {"exclusiveMaximum":1} 1: root: is greater than or equal to the maximum of 1
        {"multipleOf":5} 1: root: is not a multiple of 5
        {"minLength":2} "x": root: is shorter than 2 characters
        {"maxLength":1} "xy": root: is longer than 1 character
        {"pattern":"^a+$"} "x": root: does not match "^a+$"
        {"minItems":1} []: root: has less than 1 item
        {"maxItems":0} [1]: root: has more than 0 items
        {"uniqueItems":true} [1,1]: root: has non-unique elements
        {"contains":{"type":"string"}} [1]: root: has too few, or too many, items of a kind
        {"minProperties":1} {}: root: has less than 1 property
        {"maxProperties":0} {"a":1}: root: has more than 0 properties
        {"additionalProperties":false} {"x":1}: root: has properties, and none is allowed
        {"additionalProperties":false,"properties":{"a":{}}} {"x":1}: root: has a property that is not allowed
        {"additionalProperties":false,"properties":{"a":{}}} {"x":1,"y":1}: root: has 2 properties that are not allowed
        {"unevaluatedProperties":false} {"x":1}: root: has a property that is not allowed
        {"propertyNames":{"maxLength":1}} {"xy":1}: root: has a property name that is longer than 1 character
        {"not":{}} 1: root: is what it must not be
        {"required":["a"]} {}: root: "a" is a required property
        {"dependentRequired":{"a":["b"]}} {"a":1}: root: "b" is a required property"#]].assert_eq(&lines.join("\n"));
}

/// A name that the schema has is shown; the caller's own are not, even if they look like indices.
#[test]
fn keys_of_the_caller_are_stars() {
    let integers = json!({ "additionalProperties": { "type": "integer" } });
    for key in ["sk-live-4242", "4111111111111111", "a/b~c", ""] {
        let said = text(&integers, &json!({ key: "x" }));
        expect![[r#"*: is not of type "integer""#]].assert_eq(&said);
    }
    let list = json!({ "properties": { "list": { "items": integers } } });
    let known = json!({ "properties": { "a/b~c": { "type": "integer" } } });
    expect![[r#"
        {"list":[{},{"mine":"x"}]}: list.1.*: is not of type "integer"
        {"a/b~c":"x"}: a/b~c: is not of type "integer""#]]
    .assert_eq(&table([
        (list, json!({ "list": [{}, { "mine": "x" }] })),
        (known, json!({ "a/b~c": "x" })),
    ]));
}

#[test]
fn a_name_that_could_be_read_as_something_else_is_quoted() {
    let names = ["a.b", "root", "*", "0", "", "a b", r#"a"."b"#, "$id-a_b/c"];
    let texts = names.map(|name| {
        let schema = json!({ "properties": { name: { "type": "null" } } });
        let schema = json!({ "properties": { "in": schema } });
        text(&schema, &json!({ "in": { name: 1 } }))
    });
    expect![[r#"
        in."a.b": is not of type "null"
        in."root": is not of type "null"
        in."*": is not of type "null"
        in."0": is not of type "null"
        in."": is not of type "null"
        in."a b": is not of type "null"
        in.*: is not of type "null"
        in.$id-a_b/c: is not of type "null""#]]
    .assert_eq(&texts.join("\n"));
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
    let texts = [8, 9].map(|levels| text(&schema(levels), &value(levels)));
    expect![[r#"
        a.a.a.a.a.a.a.a: is not of type "string"
        a.a.a.a.a.a.a.a...: is not of type "string""#]]
    .assert_eq(&texts.join("\n"));
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
        let text = text(&schema, &value);
        assert!(text.len() < 220, "{}", text.len());
    }
}

/// Whether it matches is not known, also where it must not; what is in `not` has no path then.
#[test]
fn a_match_that_is_given_up_is_told_as_that() {
    let pattern = json!({ "pattern": "^(a|a)*\\1!$" });
    for (schema, path) in [(pattern.clone(), "t"), (json!({ "not": pattern }), "root")] {
        let schema = json!({ "properties": { "t": schema } });
        let schema = Schema::compile_trusted(&schema, Draft::Draft7).unwrap();
        let text = schema.errors(&json!({ "t": "a".repeat(40) })).to_string();
        assert_eq!(
            text,
            format!("{path}: could not be matched with its pattern")
        );
    }
}

#[test]
fn a_property_may_have_the_name_of_a_keyword() {
    let property = json!({ "properties": { "additionalProperties": false } });
    let none = json!({ "additionalProperties": false });
    let closed = json!({ "properties": { "properties": none, "additionalProperties": none } });
    expect![[r#"
        {"additionalProperties":1}: additionalProperties: is not allowed
        {"properties":{"a":1}}: properties: has properties, and none is allowed
        {"additionalProperties":{"a":1}}: additionalProperties: has properties, and none is allowed"#]].assert_eq(&table([
        (property, json!({ "additionalProperties": 1 })),
        (closed.clone(), json!({ "properties": { "a": 1 } })),
        (closed, json!({ "additionalProperties": { "a": 1 } })),
    ]));
}

/// H-10: of alternatives, the best one says which field is wrong, and what it may be.
#[test]
fn the_best_of_the_alternatives_is_told() {
    let kind = |kind: &str, field: &str, of: &str| json!({ "properties": { "kind": { "const": kind }, field: { "type": of } }, "required": ["kind", field] });
    let union =
        json!({ "oneOf": [kind("city", "name", "string"), kind("point", "lat", "number")] });
    let nested = json!({ "properties": { "at": { "anyOf": [{ "type": "string" }, union] } } });
    let cases = [
        (union.clone(), json!({ "kind": "point" })),
        (union.clone(), json!({ "kind": "point", "lat": "north" })),
        // Of the same kind: by the type, by the number of errors, in one another, and where no
        // alternative is meant.
        (
            json!({ "anyOf": [{ "type": "string" }, { "items": { "type": "integer" }, "type": "array" }] }),
            json!([1, "x"]),
        ),
        (
            json!({ "anyOf": [{ "required": ["a", "b", "c"] }, { "required": ["d"] }] }),
            json!({ "a": 1 }),
        ),
        (nested, json!({ "at": { "kind": "city", "name": 1 } })),
        (union, json!({ "kind": "planet", "name": "Mars" })),
        (
            json!({ "anyOf": [{ "type": "integer" }, { "const": "all" }] }),
            json!("some"),
        ),
        (
            json!({ "anyOf": [{ "required": ["id"] }, { "required": ["name"] }] }),
            json!({}),
        ),
    ];
    expect![[r#"
        {"kind":"point"}: root: "lat" is a required property
        {"kind":"point","lat":"north"}: lat: is not of type "number"
        [1,"x"]: 1: is not of type "integer"
        {"a":1}: root: "d" is a required property
        {"at":{"kind":"city","name":1}}: at.name: is not of type "string"
        {"kind":"planet","name":"Mars"}: kind: is not one of "city" or "point"
        "some": root: is not of type "integer", or else is not "all"
        {}: root: "id" is a required property, or else "name" is a required property"#]]
    .assert_eq(&table(cases));
}
