//! Arguments of the wrong type, as models write them.

use expect_test::expect;
use serde_json::{Value, json};
use tower_toolcall::{
    ToolCall,
    validate::{Schema, Schemas, ValidateLayer, Validation},
};

use crate::kit::{Trace, call, compile, run, schemas};

fn repaired(schema: Value, value: Value) -> Option<Value> {
    let repaired =
        compile(json!({ "properties": { "a": schema } })).repaired(&json!({ "a": value }));
    repaired.map(|(value, paths)| {
        assert_eq!(paths, ["a"]);
        value["a"].clone()
    })
}

#[test]
fn what_is_written_as_a_text_becomes_what_it_is() {
    for (wanted, text, meant) in [
        ("integer", "5", json!(5)),
        ("integer", "-5", json!(-5)),
        ("integer", "18446744073709551615", json!(u64::MAX)),
        ("number", "1.5", json!(1.5)),
        ("number", "5", json!(5)),
        ("number", "1e3", json!(1000.0)),
        ("boolean", "true", json!(true)),
        ("boolean", "false", json!(false)),
        ("array", r#"["a", 1]"#, json!(["a", 1])),
        ("object", r#"{"b": null}"#, json!({ "b": null })),
    ] {
        assert_eq!(
            repaired(json!({ "type": wanted }), json!(text)),
            Some(meant),
            "{wanted} {text}"
        );
    }
}

/// Another spelling might be meant as something else.
#[test]
fn what_is_not_exactly_one_stays() {
    for (wanted, text) in [
        ("integer", "05"),
        ("integer", "00713"),
        ("integer", "+5"),
        ("integer", " 5"),
        ("integer", "5 "),
        ("integer", "5\n"),
        ("integer", "5.0"),
        ("integer", "1e3"),
        ("integer", "-0"),
        ("integer", "0x10"),
        ("integer", "five"),
        ("integer", ""),
        ("integer", "-"),
        ("integer", "18446744073709551616"),
        ("number", "NaN"),
        ("number", "1e999"),
        ("number", "123456789012345678901234567890"),
        ("number", "0.12345678901234567890"),
        ("number", "900719925474099.3"),
        ("number", "1e-400"),
        ("boolean", "True"),
        ("boolean", "yes"),
        ("boolean", "1"),
        ("array", r#"{"a": 1}"#),
        ("array", r#"["a""#),
        ("array", "a, b"),
        ("array", " [1]"),
        ("object", "[]"),
        ("null", "null"),
    ] {
        assert_eq!(
            repaired(json!({ "type": wanted }), json!(text)),
            None,
            "{wanted} {text:?}"
        );
    }
}

#[test]
fn an_array_or_an_object_becomes_a_text_where_one_is_wanted() {
    let text = |value| repaired(json!({ "type": "string" }), value);
    assert_eq!(
        text(json!({ "b": [1, null] })),
        Some(json!(r#"{"b":[1,null]}"#))
    );
    assert_eq!(text(json!(["b"])), Some(json!(r#"["b"]"#)));
    // What is no structure stays.
    assert_eq!((text(json!(5)), text(json!(true))), (None, None));
}

/// `"00713"` became 713 elsewhere.
#[test]
fn a_text_that_the_schema_allows_is_never_changed() {
    let schema = compile(json!({ "properties": {
        "zip": { "type": ["string", "integer"] },
        "any": {},
        "either": { "anyOf": [{ "type": "integer" }, { "type": "string" }] },
        "n": { "type": "integer" },
    } }));
    let (value, paths) = schema
        .repaired(&json!({ "zip": "713", "any": "5", "either": "5", "n": "5" }))
        .unwrap();
    assert_eq!(
        value,
        json!({ "zip": "713", "any": "5", "either": "5", "n": 5 })
    );
    assert_eq!(paths, ["n"]);
}

/// As optional parameters are written.
#[test]
fn alternatives_of_types_are_types() {
    let optional = json!({ "anyOf": [{ "type": "integer" }, { "type": "null" }] });
    assert_eq!(repaired(optional, json!("5")), Some(json!(5)));
}

#[test]
fn what_is_wrong_deep_inside_is_repaired_there() {
    let schema = compile(
        json!({ "properties": { "list": { "items": { "properties": { "n": { "type": "integer" } } } } } }),
    );
    let (value, paths) = schema
        .repaired(&json!({ "list": [{ "n": 1 }, { "n": "2" }] }))
        .unwrap();
    assert_eq!(
        (value, paths),
        (
            json!({ "list": [{ "n": 1 }, { "n": 2 }] }),
            vec!["list.1.n".to_owned()]
        )
    );
}

#[test]
fn two_parts_of_a_schema_may_want_the_same() {
    let schema = json!({ "allOf": [{ "type": "integer" }, { "type": "integer", "minimum": 1 }] });
    assert_eq!(repaired(schema, json!("5")), Some(json!(5)));
}

#[test]
fn arguments_that_are_wrong_otherwise_too_are_told_as_they_came() {
    let schema = compile(
        json!({ "properties": { "n": { "type": "integer", "maximum": 3 } }, "required": ["a"] }),
    );
    assert!(schema.repaired(&json!({ "n": "5" })).is_none());
    assert!(schema.repaired(&json!({ "n": "5", "a": 1 })).is_none());
    assert!(
        schema.repaired(&json!({ "n": 2, "a": 1 })).is_none(),
        "it fits"
    );
}

/// An `enum` of numbers has no text either.
#[test]
fn what_is_wrong_because_of_its_type_is_no_obstacle() {
    let schema = json!({ "type": "integer", "enum": [1, 2] });
    assert_eq!(repaired(schema.clone(), json!("1")), Some(json!(1)));
    assert_eq!(repaired(schema, json!("3")), None);
}

#[tokio::test]
async fn the_tool_gets_the_repaired_arguments_and_the_caller_keeps_its_own() {
    let (trace, _guard) = Trace::begin();
    let call = call(json!({ "query": "x", "limit": "5" }));
    let (result, calls) = run(ValidateLayer::new(&schemas()).repair(), call.clone()).await;
    assert_eq!(
        (result.unwrap(), calls),
        (json!({ "query": "x", "limit": 5 }), 1)
    );
    assert_eq!(call.arguments()["limit"], "5");
    let events = trace.events("tool.repaired");
    assert_eq!(events.len(), 1);
    assert!(
        events[0].starts_with("DEBUG") && events[0].contains("paths=\"limit\""),
        "{}",
        events[0]
    );
}

#[tokio::test]
async fn without_repair_it_is_refused() {
    let (result, calls) = run(
        ValidateLayer::new(&schemas()),
        call(json!({ "query": "x", "limit": "5" })),
    )
    .await;
    expect![[r#"limit: is not of type "integer""#]].assert_eq(result.unwrap_err().message());
    assert_eq!(calls, 0);
}

/// A text of JSON may be nested as deep as its own parser goes.
#[tokio::test]
async fn what_would_be_nested_too_deeply_is_not_repaired() {
    let schemas = Schemas::new();
    schemas.insert(
        None,
        "search",
        Schema::compile(&json!({ "properties": { "a": { "type": "array" } } })).unwrap(),
    );
    let text = "[".repeat(125) + &"]".repeat(125);
    let call = ToolCall::new("search")
        .with_json(json!({ "a": text }))
        .unwrap();
    let (result, _) = run(
        ValidateLayer::new(&schemas).with_validation(Validation::Repair),
        call,
    )
    .await;
    expect![[r#"a: is not of type "array""#]].assert_eq(result.unwrap_err().message());
}

#[test]
fn a_text_of_json_is_read_only_if_nothing_of_it_is_lost() {
    let schema = compile(json!({ "properties": { "ids": { "type": ["array", "object"] } } }));
    let repaired = |text: &str| {
        let repaired = schema.repaired(&json!({ "ids": text }));
        repaired.map(|(mut value, _)| value["ids"].take())
    };
    for text in [
        "[12345678901234567890123]",
        "[0.1234567890123456789]",
        "[1e-400]",
        "[-0]",
        r#"{"a": 1, "a": 2}"#,
        r#"{"a": {"b": 1, "b": 1}}"#,
        r#"{"a": 1, "\u0061": 2}"#,
    ] {
        assert_eq!(repaired(text), None, "{text}");
    }
    for text in [
        "[18446744073709551615, -0.5, 1e3, 0.0, -0.0]",
        r#"{"a\":": "1e-400, \"-0\": {", "b": [{"a": 1}, {"a": "\\"}], "\u00e9": null}"#,
        "[ ]",
    ] {
        let value: Value = serde_json::from_str(text).unwrap();
        assert_eq!(repaired(text), Some(value), "{text}");
    }
}

#[test]
fn what_would_be_too_large_for_the_schema_is_not_repaired() {
    let schema = compile(json!({ "properties": {
        "list": { "type": "array", "items": { "type": ["integer", "string"], "pattern": "^[^x]" } },
    } }));
    let list = |n| json!({ "list": serde_json::to_string(&vec![0; n]).unwrap() });
    assert!(schema.repaired(&list(9)).is_some());
    assert!(schema.repaired(&list(15_000)).is_none());
}

#[tokio::test]
async fn what_strict_refuses_is_not_told_as_repaired() {
    let (trace, _guard) = Trace::begin();
    let schemas = Schemas::new();
    let schema = compile(
        json!({ "properties": { "n": { "type": "integer" }, "text": { "pattern": "^[^x]" } } }),
    );
    schemas.insert(None, "search", schema);
    let call = |text: usize| call(json!({ "n": "5", "text": "a".repeat(text) }));
    let layer = || ValidateLayer::new(&schemas).repair().strict();
    assert_eq!(run(layer(), call(700_000)).await.1, 0);
    assert!(trace.events("tool.repaired").is_empty());
    assert_eq!(run(layer(), call(5)).await.1, 1);
    assert_eq!(trace.events("tool.repaired").len(), 1);
}

/// H-10: models write `null` for an optional argument that they leave out.
#[test]
fn a_null_for_an_optional_argument_is_taken_out() {
    for wanted in [
        json!({ "type": "string" }),
        json!({ "type": "integer", "minimum": 1 }),
        // Of the same kind
        json!({ "enum": ["asc", "desc"] }),
        json!({ "const": 1 }),
        json!({ "anyOf": [{ "type": "string" }, { "type": "array", "minItems": 1 }] }),
        json!({ "$ref": "#/definitions/b" }),
    ] {
        let schema = compile(json!({
            "definitions": { "b": { "type": "object" } },
            "properties": { "a": wanted, "q": { "type": "string" }, "x/y~z": { "type": "string" } },
            "required": ["q"],
            "additionalProperties": false,
        }));
        let (value, paths) = schema.repaired(&json!({ "a": null, "q": "x" })).unwrap();
        assert_eq!((value, paths), (json!({ "q": "x" }), vec!["a".to_owned()]));
        let (value, _) = schema
            .repaired(&json!({ "x/y~z": null, "q": "x" }))
            .unwrap();
        assert_eq!(value, json!({ "q": "x" }));
    }
}

/// H-10: in arguments inside arguments, and inside one of several alternatives.
#[test]
fn a_null_inside_an_argument_is_taken_out() {
    let op = |op: &str| json!({ "properties": { "op": { "const": op }, "limit": { "type": "integer" } }, "required": ["op"] });
    let schema = compile(json!({ "properties": {
        "list": { "items": { "properties": { "b": { "type": "string" } } } },
        "filter": { "oneOf": [op("eq"), op("ne")] },
    } }));
    let (value, paths) = schema
        .repaired(
            &json!({ "list": [{ "b": null, "c": 1 }], "filter": { "op": "ne", "limit": null } }),
        )
        .unwrap();
    assert_eq!(
        value,
        json!({ "list": [{ "c": 1 }], "filter": { "op": "ne" } })
    );
    assert_eq!(paths.len(), 2);
}

/// H-10: what is required, what may be `null`, and an item of a list stay as they are.
#[test]
fn a_null_that_means_something_stays() {
    let schema = compile(json!({
        "properties": {
            "q": { "type": "string" },
            "n": { "type": ["string", "null"] },
            "list": { "items": { "type": "string" } },
            "limit": { "type": "integer" },
        },
        "required": ["q"],
    }));
    assert_eq!(schema.repaired(&json!({ "q": null })), None);
    let errors = schema.errors(&json!({ "q": null }));
    expect![[r#"q: is not of type "string""#]].assert_eq(&errors.to_string());
    assert_eq!(schema.repaired(&json!({ "q": "x", "list": [null] })), None);
    let (value, _) = schema
        .repaired(&json!({ "q": "x", "n": null, "limit": "5" }))
        .unwrap();
    assert_eq!(value, json!({ "q": "x", "n": null, "limit": 5 }));
}

/// H-10: the JSON text of an object has `null` for what it leaves out, and texts, as an object has.
#[test]
fn what_stands_in_a_json_text_is_repaired_too() {
    let schema = compile(json!({
        "properties": {
            "filter": {
                "type": "object",
                "properties": { "op": { "enum": ["eq", "ne"] }, "limit": { "type": "integer" } },
                "required": ["op"],
            },
            "list": { "type": "array", "items": { "properties": { "b": { "type": "string" } } } },
        },
        "additionalProperties": false,
    }));
    for (arguments, expected, changed) in [
        (
            json!({ "filter": r#"{"op": "eq", "limit": null}"# }),
            json!({ "filter": { "op": "eq" } }),
            vec!["filter", "filter.limit"],
        ),
        // Of the same kind
        (
            json!({ "filter": r#"{"op": "ne", "limit": "5"}"# }),
            json!({ "filter": { "op": "ne", "limit": 5 } }),
            vec!["filter", "filter.limit"],
        ),
        (
            json!({ "list": r#"[{"b": null, "c": 1}, {"b": "x"}]"#, "filter": null }),
            json!({ "list": [{ "c": 1 }, { "b": "x" }] }),
            vec!["filter", "list", "list.0.b"],
        ),
    ] {
        let repaired = schema.repaired(&arguments);
        let (value, mut paths) = repaired.unwrap_or_else(|| panic!("{arguments}"));
        paths.sort();
        assert_eq!(value, expected);
        assert_eq!(paths, changed, "{arguments}");
    }
    // What is required, and what is a text within a text.
    for filter in [
        r#"{"op": null}"#,
        r#"{"op": "eq", "limit": "five"}"#,
        r#""{\"op\": \"eq\"}""#,
    ] {
        assert_eq!(
            schema.repaired(&json!({ "filter": filter })),
            None,
            "{filter}"
        );
    }
}

/// H-10: arguments that come as the JSON text that a model writes.
#[tokio::test]
async fn a_null_in_the_text_of_all_arguments_is_taken_out() {
    let schema = compile(json!({
        "properties": { "q": { "type": "string" }, "limit": { "type": "integer" } },
        "required": ["q"],
    }));
    for (text, sent) in [
        (r#"{"q": "x", "limit": null}"#, Some(json!({ "q": "x" }))),
        (
            r#"{"q": "x", "limit": "7"}"#,
            Some(json!({ "q": "x", "limit": 7 })),
        ),
        (r#"{"q": null, "limit": 7}"#, None),
    ] {
        let schemas = Schemas::new();
        schemas.insert(None, "search", schema.clone());
        let call = ToolCall::new("search").with_json_str(text).unwrap();
        let (answer, _) = run(ValidateLayer::new(&schemas).repair(), call).await;
        assert_eq!(answer.ok(), sent, "{text}");
    }
}
