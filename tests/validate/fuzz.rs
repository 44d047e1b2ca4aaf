//! Schemas and arguments of any shape end soon, on a small stack. `VALIDATE_FUZZ_SECS=600` for
//! longer than seconds.

use std::time::{Duration, Instant};

use proptest::{
    collection::{btree_map, vec},
    prelude::*,
    strategy::ValueTree as _,
    test_runner::TestRunner,
};
use serde_json::{Value, json};
use tower_toolcall::validate::{Draft, Schema};

use crate::kit::on_a_small_stack;

const NAMES: [&str; 4] = ["a", "b", "c", "d e"];

fn name() -> impl Strategy<Value = String> {
    prop::sample::select(&NAMES[..]).prop_map(str::to_owned)
}

fn scalar() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        prop::sample::select(
            &[
                "",
                "a",
                "5",
                "true",
                "[1]",
                "{\"a\":1}",
                "aaaaaaaaaaaaaaaaaaaaaaaa!"
            ][..]
        )
        .prop_map(Value::from),
    ]
}

fn value() -> impl Strategy<Value = Value> {
    scalar().prop_recursive(12, 200, 6, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..6).prop_map(Value::from),
            btree_map(name(), inner, 0..4).prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// Beside honest keywords, what breaks other programs: references to everything, patterns that go
/// back, odd limits.
fn schema() -> impl Strategy<Value = Value> {
    let reference = prop::sample::select(
        &[
            "#",
            "#/$defs/a",
            "#/$defs/b",
            "#/definitions/c",
            "#/properties/a",
            "#x",
            "#/$defs/a/allOf/0",
            "a",
            "b#/x",
        ][..],
    );
    let leaf = prop_oneof![
        Just(json!({})),
        Just(json!(true)),
        Just(json!(false)),
        reference.prop_map(|to| json!({ "$ref": to })),
        Just(json!({ "$dynamicRef": "#x" })),
        prop::sample::select(
            &[
                "integer", "number", "string", "boolean", "array", "object", "null", "odd"
            ][..]
        )
        .prop_map(|kind| json!({ "type": kind })),
        prop::sample::select(
            &[
                "^(a+)+$",
                "^(a+)+\\1$",
                "(?=a)*b",
                "\\p{L}{2,99}",
                "(",
                "^.*$"
            ][..]
        )
        .prop_map(|pattern| json!({ "pattern": pattern })),
        (any::<i64>(), any::<i64>())
            .prop_map(|(a, b)| json!({ "minimum": a, "maxLength": b, "multipleOf": 0.1 })),
        vec(scalar(), 0..4).prop_map(|options| json!({ "enum": options })),
        scalar().prop_map(|value| json!({ "const": value })),
        vec(name(), 0..3).prop_map(|names| json!({ "required": names })),
        Just(json!({ "uniqueItems": true, "additionalProperties": false })),
        Just(json!({ "$anchor": "x", "$dynamicAnchor": "x", "$id": "a" })),
    ];
    let any = leaf.prop_recursive(8, 120, 4, |inner| {
        let keyword = prop::sample::select(&["allOf", "anyOf", "oneOf", "prefixItems"][..]);
        let single = prop::sample::select(
            &[
                "not",
                "if",
                "then",
                "items",
                "contains",
                "additionalProperties",
                "propertyNames",
                "unevaluatedItems",
                "unevaluatedProperties",
            ][..],
        );
        let maps = prop::sample::select(
            &[
                "properties",
                "patternProperties",
                "dependentSchemas",
                "$defs",
                "definitions",
            ][..],
        );
        let part = prop_oneof![
            (keyword, vec(inner.clone(), 1..4))
                .prop_map(|(keyword, list)| json!({ keyword: list })),
            (single, inner.clone()).prop_map(|(keyword, schema)| json!({ keyword: schema })),
            (maps, btree_map(name(), inner.clone(), 0..4))
                .prop_map(|(keyword, map)| json!({ keyword: map })),
            inner,
        ];
        vec(part, 1..4).prop_map(|parts| {
            let mut all = serde_json::Map::new();
            for part in parts {
                match part {
                    Value::Object(map) => all.extend(map),
                    other => return other,
                }
            }
            Value::Object(all)
        })
    });
    // Some references lead somewhere.
    (any.clone(), any.clone(), any).prop_map(|(mut schema, a, b)| {
        if let Value::Object(map) = &mut schema {
            map.insert("$defs".into(), json!({ "a": a, "b": b }));
            map.insert("definitions".into(), json!({ "c": { "type": "integer" } }));
        }
        schema
    })
}

/// One schema and some arguments: the answers agree with each other.
fn check(schema: &Value, arguments: &[Value], draft: Draft) -> bool {
    let Ok(schema) = Schema::compile_with(schema, draft) else {
        return false;
    };
    for value in arguments {
        let errors = schema.errors(value);
        assert_eq!(schema.is_valid(value), errors.is_empty());
        assert!(errors.len() <= 5 && errors.to_string().len() < 5_000);
        if let Some((repaired, _)) = schema.repaired(value) {
            assert!(schema.is_valid(&repaired) && !schema.is_valid(value));
        }
    }
    true
}

#[test]
fn schemas_and_arguments_of_any_shape_end_soon() {
    let seconds = std::env::var("VALIDATE_FUZZ_SECS").map_or(1, |secs| secs.parse().unwrap());
    let (worst, _) = on_a_small_stack(move || {
        let mut runner = TestRunner::default();
        let cases = (schema(), vec(value(), 1..4), any::<bool>());
        let begun = Instant::now();
        let mut worst = (Duration::ZERO, Value::Null);
        let (mut rounds, mut taken) = (0_u64, 0_u64);
        while begun.elapsed() < Duration::from_secs(seconds) {
            let (schema, arguments, old) = cases.new_tree(&mut runner).unwrap().current();
            let draft = if old {
                Draft::Draft7
            } else {
                Draft::Draft202012
            };
            let one = Instant::now();
            taken += u64::from(check(&schema, &arguments, draft));
            if one.elapsed() > worst.0 {
                worst = (one.elapsed(), json!([schema, arguments]));
            }
            rounds += 1;
        }
        println!(
            "{rounds} schemas, {taken} of them taken; the longest took {:?}",
            worst.0
        );
        assert!(taken > rounds / 10, "{taken} of {rounds}");
        worst
    });
    assert!(
        worst.0 < Duration::from_secs(10),
        "{:?}: {}",
        worst.0,
        worst.1
    );
}
