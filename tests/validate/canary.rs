//! No value of the caller's, and no key that the schema does not name, anywhere that anybody reads.

use serde_json::{Value, json};
use tower::ServiceBuilder;
use tower_toolcall::{
    ModelText as _, ServiceBuilderExt,
    redact::Rules,
    validate::{Draft, Schema, Schemas, ValidateLayer, Validation},
};

use crate::kit::{Trace, call, run};

/// No form of a secret that redaction would know: what is not shown here is not shown by design.
const CANARY: &str = "marmalade";

/// Every keyword that has an error, and arguments with the canary in each place.
fn cases() -> Vec<(Value, Value)> {
    let c = CANARY;
    let key = |value: Value| json!({ c: value });
    vec![
        (
            json!({ "properties": { "a": { "type": "integer" } } }),
            json!({ "a": c }),
        ),
        (
            json!({ "properties": { "a": { "enum": [1] } } }),
            json!({ "a": c }),
        ),
        (
            json!({ "properties": { "a": { "const": 1 } } }),
            json!({ "a": c }),
        ),
        (
            json!({ "properties": { "a": { "pattern": "^x$" } } }),
            json!({ "a": c }),
        ),
        (
            json!({ "properties": { "a": { "maxLength": 1 } } }),
            json!({ "a": c }),
        ),
        (
            json!({ "properties": { "a": { "minLength": 99 } } }),
            json!({ "a": c }),
        ),
        (
            json!({ "properties": { "a": { "not": {} } } }),
            json!({ "a": c }),
        ),
        (json!({ "properties": { "a": false } }), json!({ "a": c })),
        (
            json!({ "properties": { "a": { "anyOf": [{ "type": "integer" }, { "const": 1 }] } } }),
            json!({ "a": c }),
        ),
        (
            json!({ "properties": { "a": { "oneOf": [{ "maxLength": 1 }, { "const": 1 }] } } }),
            json!({ "a": c }),
        ),
        (
            json!({ "properties": { "a": { "uniqueItems": true } } }),
            json!({ "a": [c, c] }),
        ),
        (
            json!({ "properties": { "a": { "contains": { "const": 1 } } } }),
            json!({ "a": [c] }),
        ),
        (
            json!({ "properties": { "a": { "maxItems": 0 } } }),
            json!({ "a": [c] }),
        ),
        (
            json!({ "properties": { "a": { "prefixItems": [true], "items": false } } }),
            json!({ "a": [c, c] }),
        ),
        (
            json!({ "properties": { "a": { "unevaluatedItems": false } } }),
            json!({ "a": [c] }),
        ),
        (json!({ "additionalProperties": false }), key(json!(1))),
        (json!({ "unevaluatedProperties": false }), key(json!(1))),
        (
            json!({ "propertyNames": { "maxLength": 1 } }),
            key(json!(1)),
        ),
        (
            json!({ "propertyNames": { "pattern": "^x$" } }),
            key(json!(1)),
        ),
        (json!({ "propertyNames": { "enum": ["x"] } }), key(json!(1))),
        (json!({ "maxProperties": 0 }), key(json!(1))),
        (
            json!({ "additionalProperties": { "type": "integer" } }),
            key(json!(c)),
        ),
        (
            json!({ "patternProperties": { "^m": { "properties": { "b": { "minimum": 3 } } } } }),
            key(json!({ "b": 1 })),
        ),
        (
            json!({ "additionalProperties": { "additionalProperties": { "required": ["z"] } } }),
            key(key(json!({}))),
        ),
        (
            json!({ "properties": { "a": { "type": "array" } } }),
            json!({ "a": format!("[{c}") }),
        ),
    ]
}

#[tokio::test]
async fn a_canary_is_seen_nowhere() {
    let own = Rules::new().with_sensitive_key("iban").unwrap();
    for (rules, validation) in [(Rules::new(), Validation::On), (own, Validation::Repair)] {
        for (schema, arguments) in cases() {
            let (trace, _guard) = Trace::begin();
            let schemas = Schemas::new();
            let compiled = Schema::compile_trusted(&schema, Draft::Draft202012).unwrap();
            schemas.insert(None, "search", compiled.clone());
            let layer = ServiceBuilder::new()
                .tool_sanitize(rules.clone())
                .layer(tower_toolcall::trace::TraceLayer::new().with_arguments(false))
                .layer(ValidateLayer::new(&schemas).with_validation(validation))
                .into_inner();
            let (result, calls) = run(layer, call(arguments.clone())).await;
            let error = result.unwrap_err();
            assert_eq!(calls, 0, "{schema}");
            let errors = compiled.errors(&arguments);
            let seen = [
                error.message().to_owned(),
                error.to_string(),
                format!("{error:?}"),
                error.model_message(),
                error.user_message(),
                error.to_json_rpc().to_string(),
                serde_json::to_string(&error).unwrap(),
                serde_json::to_string(&error.details().unwrap()).unwrap(),
                format!("{:?}", error.to_http().into_body()),
                errors.to_string(),
                format!("{errors:?}"),
                serde_json::to_string(&errors).unwrap(),
                trace.text(),
            ];
            for text in seen {
                assert!(!text.contains(CANARY), "{schema}: {text}");
                assert!(!text.is_empty());
            }
        }
    }
}

#[tokio::test]
async fn the_event_of_a_repair_has_paths_and_no_values() {
    let (trace, _guard) = Trace::begin();
    let schemas = Schemas::new();
    let schema = json!({ "additionalProperties": { "type": "array" }, "properties": { "a": { "type": "array" } } });
    schemas.insert(None, "search", Schema::compile(&schema).unwrap());
    let text = format!("[\"{CANARY}\"]");
    let arguments = json!({ "a": text, CANARY: text });
    let (result, _) = run(ValidateLayer::new(&schemas).repair(), call(arguments)).await;
    assert!(
        result.unwrap().model_text().contains(CANARY),
        "the tool gets it"
    );
    assert!(
        trace.events("tool.repaired")[0].contains("paths=\"a, *\""),
        "{}",
        trace.text()
    );
    assert!(!trace.text().contains(CANARY));
}
