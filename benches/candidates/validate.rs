//! What it costs to check arguments that fit.

use std::{hint::black_box, sync::Arc};

use serde_json::{Map, Value, json};
use tower::ServiceBuilder;
use tower_toolcall::{
    ToolCall,
    validate::{Schema, Schemas, ValidateLayer},
};

use super::{Candidate, FIVE, Group, bare, layered, ours, peer, stacked};

pub fn groups() -> Vec<Group> {
    vec![Group {
        name: "validate, arguments that fit",
        settings: vec![FIVE],
        candidates: candidates(),
    }]
}

/// Of the five arguments.
fn schema() -> Value {
    let text = json!({ "type": "string", "minLength": 1, "maxLength": 20 });
    let properties: Map<_, _> = KEYS
        .iter()
        .map(|key| (key.to_string(), text.clone()))
        .collect();
    json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": properties,
        "required": KEYS,
        "additionalProperties": false,
    })
}

const KEYS: [&str; 5] = ["key0", "key1", "key2", "key3", "key4"];

/// The same as a value, for those who check values.
fn value() -> Value {
    KEYS.iter()
        .map(|key| (key.to_string(), json!("v")))
        .collect()
}

fn candidates() -> Vec<Candidate> {
    vec![
        bare(),
        ours("validate", |tool| {
            let schemas = Schemas::new();
            let schema = Schema::compile(&schema()).expect("valid");
            assert!(schemas.insert(Some("docs"), "search", schema));
            layered(ValidateLayer::new(&schemas), tool)
        }),
        peer("jsonschema, is_valid alone", |tool| {
            let (schema, value) = (
                Schema::compile(&schema()).expect("valid"),
                Arc::new(value()),
            );
            let check = move |call: ToolCall| {
                assert!(schema.is_valid(black_box(&value)));
                call
            };
            stacked(ServiceBuilder::new().map_request(check), tool)
        }),
        peer("boon, alone", |tool| {
            let (mut schemas, mut compiler) = (boon::Schemas::new(), boon::Compiler::new());
            compiler.add_resource("a.json", schema()).expect("a schema");
            let index = compiler.compile("a.json", &mut schemas).expect("valid");
            let (schemas, value) = (Arc::new(schemas), Arc::new(value()));
            let check = move |call: ToolCall| {
                assert!(schemas.validate(black_box(&value), index).is_ok());
                call
            };
            stacked(ServiceBuilder::new().map_request(check), tool)
        }),
        peer("by hand", |tool| {
            let check = |call: ToolCall| {
                let arguments = call.arguments();
                let fits = |key: &str| {
                    let text = arguments.get(key).and_then(Value::as_str);
                    text.is_some_and(|text| (1..=20).contains(&text.chars().count()))
                };
                assert!(KEYS.into_iter().all(fits) && arguments.len() == KEYS.len());
                call
            };
            stacked(ServiceBuilder::new().map_request(check), tool)
        }),
    ]
}
