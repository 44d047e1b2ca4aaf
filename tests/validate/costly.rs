//! What a schema may cost where each keyword is cheap alone, and what honest schemas are not refused for it.

use std::time::Duration;

use serde_json::{Map, Value, json};
use tower_toolcall::validate::{Draft, Schema};

use crate::{
    hostile::{closed_around, of, quick, reason},
    kit::on_a_small_stack,
};

type Around = fn(Value) -> Value;

fn asked_again(around: Around) -> impl Fn(usize) -> Value {
    move |levels| (0..levels).fold(json!({ "type": "string" }), |inner, _| around(inner))
}

/// Each level of these is asked several times by the one above, or compiled.
#[test]
fn what_is_asked_again_on_each_level_is_refused() {
    let shapes: [(usize, Around); 6] = [
        // Compiled under two names.
        (
            29,
            |inner| json!({ "contains": inner, "minContains": 1, "unevaluatedItems": false }),
        ),
        (29, |inner| json!({ "unevaluatedItems": inner })),
        (
            29,
            |inner| json!({ "contains": inner, "unevaluatedItems": false }),
        ),
        (
            29,
            |inner| json!({ "unevaluatedProperties": inner, "anyOf": [{ "unevaluatedProperties": false }, true] }),
        ),
        (
            14,
            |inner| json!({ "allOf": [{ "contains": inner, "maxContains": 1 }], "unevaluatedItems": false }),
        ),
        (
            9,
            |inner| json!({ "allOf": [{ "unevaluatedItems": inner }], "unevaluatedItems": false }),
        ),
    ];
    for (levels, around) in shapes {
        let schema = asked_again(around)(levels);
        let text: String = schema.to_string().chars().take(100).collect();
        let reason = quick(move || reason(Schema::compile_with(&schema, Draft::Draft202012)));
        assert!(
            reason.ends_with("subschemas that look at one value"),
            "{text}"
        );
    }
}

#[test]
fn the_deepest_of_what_is_asked_again_is_quick() {
    let shapes: [Around; 4] = [
        |inner| json!({ "contains": inner, "minContains": 1, "unevaluatedItems": false }),
        |inner| json!({ "unevaluatedItems": inner }),
        |inner| json!({ "contains": inner, "unevaluatedItems": false }),
        |inner| json!({ "unevaluatedProperties": inner, "anyOf": [{ "unevaluatedProperties": false }, true] }),
    ];
    for around in shapes {
        quick(move || {
            let deepest = (1..20).rev().find_map(|levels| {
                let schema = asked_again(around)(levels);
                Schema::compile_with(&schema, Draft::Draft202012).ok()
            });
            let schema = deepest.unwrap();
            for around in [|v| Value::Array(vec![v]), |v| of("a", v)] {
                let value = (0..60).fold(json!(1), |inner, _| around(inner));
                let _ = schema.is_valid(&json!([value]));
                let _ = (schema.misfits(&value), schema.repaired(&value));
            }
        });
    }
}

/// For each outcome all `if`s before it are asked again: the outer one, in which is all the rest, most often.
#[test]
fn conditions_are_counted_for_each_outcome() {
    fn then(conditions: usize) -> Value {
        (0..conditions).fold(json!({}), |inner, n| {
            json!({ "properties": { format!("p{n}"): {} }, "if": { "minProperties": 1 }, "then": inner })
        })
    }
    fn nested(levels: usize, conditions: usize) -> Value {
        (0..levels).fold(json!({ "type": "object" }), |inner, _| {
            json!({ "if": inner, "then": then(conditions), "unevaluatedProperties": { "type": "integer" } })
        })
    }
    let compile = |levels, conditions| {
        Schema::compile_with(
            &json!({ "items": nested(levels, conditions) }),
            Draft::Draft202012,
        )
    };
    quick(move || {
        for (levels, conditions) in [(1, 29), (2, 29), (4, 27), (6, 3), (8, 1)] {
            let items = vec![json!({ "q": 1 }); 1_000];
            let schema = compile(levels, conditions);
            let _ = schema.map(|schema| {
                (
                    schema.is_valid(&json!(items)),
                    schema.misfits(&json!(items)),
                )
            });
        }
    });
}

#[test]
fn the_costliest_wraps_and_many_items_are_not_multiplied() {
    quick(|| {
        let inner = || json!({ "properties": { "a": {} } });
        let of_items = |wraps| json!({ "items": closed_around(wraps, inner()) });
        let deepest = (1..20)
            .rev()
            .find_map(|wraps| Schema::compile_with(&of_items(wraps), Draft::Draft202012).ok());
        let schema = deepest.unwrap();
        let items = vec![json!({ "a": 1, "b": 2 }); 1_600];
        let _ = schema.is_valid(&json!(items));
        let _ = schema.misfits(&json!(items));
    });
    let eleven = json!({ "items": closed_around(11, json!({ "properties": { "a": {} } })) });
    assert!(quick(move || Schema::compile_with(&eleven, Draft::Draft202012)).is_err());
}

/// Each name is looked up in each value.
#[test]
fn long_lists_of_dependencies_are_counted() {
    for keyword in ["dependentRequired", "dependencies"] {
        let names: Vec<String> = (0..12_000).map(|n| format!("n{n}")).collect();
        let one = json!({ keyword: { "a": names } });
        let keys: Map<String, Value> = names.iter().map(|n| (n.clone(), json!([]))).collect();
        for schema in [one, json!({ keyword: keys })] {
            let reason = quick(move || reason(Schema::compile_with(&schema, Draft::Draft202012)));
            assert!(
                reason.ends_with("subschemas that look at one value"),
                "{keyword}"
            );
        }
    }
}

#[test]
fn long_lists_of_options_are_counted_unless_they_are_texts() {
    let (numbers, texts) = quick(|| {
        let numbers: Vec<f64> = (0..21_000).map(|n| f64::from(n) + 0.5).collect();
        let texts: Vec<String> = (0..21_000).map(|n| n.to_string()).collect();
        (
            reason(Schema::compile(&json!({ "enum": numbers }))),
            Schema::compile(&json!({ "enum": texts })),
        )
    });
    assert!(numbers.ends_with("subschemas that look at one value"));
    assert!(texts.unwrap().is_valid(&json!("20999")));
}

/// Trees of empty arrays, which have one hash.
fn trees(many: usize) -> Vec<Value> {
    let mut trees = vec![json!([])];
    let mut next = 0;
    while trees.len() < many {
        for other in 0..=next {
            trees.push(json!([trees[next], trees[other]]));
        }
        next += 1;
    }
    trees
}

#[test]
fn items_with_one_hash_are_not_all_compared() {
    quick(|| {
        let schema = Schema::compile(&json!({ "properties": { "a": { "uniqueItems": true } } }));
        let schema = schema.unwrap();
        for many in [100, 500, 20_000] {
            let value = json!({ "a": trees(many) });
            let _ = schema.is_valid(&value);
            let _ = (schema.misfits(&value), schema.repaired(&value));
        }
        let numbers: Vec<u64> = (0..300_000).map(|n| u64::MAX - n).collect();
        let _ = schema.is_valid(&json!({ "a": numbers }));
    });
}

/// As honest servers have it.
#[test]
fn a_list_of_thousands_may_be_a_set() {
    let schema =
        json!({ "properties": { "a": { "items": { "type": "string" }, "uniqueItems": true } } });
    let schema = quick(move || Schema::compile(&schema)).unwrap();
    let mut names: Vec<String> = (0..5_000).map(|n| n.to_string()).collect();
    assert!(schema.is_valid(&json!({ "a": names })));
    names.push("7".into());
    assert!(!schema.is_valid(&json!({ "a": names })));
}

/// A megabyte of JSON in a text, parsed and decoded by each of many subschemas.
#[test]
fn texts_are_not_decoded() {
    quick(|| {
        let json = json!({ "contentMediaType": "application/json" });
        let decoded =
            json!({ "contentMediaType": "application/json", "contentEncoding": "base64" });
        let encoded = |name: &str| json!({ "contentEncoding": name });
        let parts = [
            json,
            decoded,
            encoded("base64"),
            encoded("base64url"),
            encoded("base32"),
            encoded("base32hex"),
            encoded("base16"),
        ];
        for part in parts {
            let schema = Schema::compile(&json!({ "allOf": [part] })).unwrap();
            assert!(schema.is_valid(&json!("*")), "{part}");
        }
    });
}

#[test]
fn fractions_and_many_numbers_are_not_multiplied() {
    let ((), took) = on_a_small_stack(|| {
        let parts = vec![json!({ "not": { "multipleOf": 0.1 } }); 50];
        let schema = Schema::compile(&json!({ "items": { "allOf": parts } })).unwrap();
        let numbers: Vec<f64> = (0..100_000).map(|n| f64::from(n) * 0.3 + 0.07).collect();
        let _ = schema.is_valid(&json!(numbers));
        let _ = schema.misfits(&json!(numbers));
    });
    assert!(took < Duration::from_secs(9), "{took:?}");
}

/// Costly keywords make no schema too large, only values.
#[test]
fn many_alternatives_with_costly_keywords_are_taken() {
    let kind = |n: usize| {
        json!({ "properties": {
            "kind": { "const": n },
            "to": { "type": "string", "pattern": "^(?!x)[a-z]+$" },
            "price": { "multipleOf": 0.01 },
            "tags": { "type": "array", "items": { "type": "string" }, "uniqueItems": true },
        } })
    };
    let kinds: Vec<Value> = (0..50).map(kind).collect();
    quick(move || {
        let schema = Schema::compile(&json!({ "anyOf": kinds })).unwrap();
        let value =
            |price: f64| json!({ "kind": 7, "to": "a", "price": price, "tags": ["a", "b"] });
        assert!(schema.is_valid(&value(1.25)) && !schema.is_valid(&value(1.255)));
    });
}

/// Eighty kinds of blocks, each of which may have blocks in it.
#[test]
fn a_wide_recursion_is_taken() {
    let block = |n: usize| {
        let text = json!({ "type": "object", "properties": { "content": { "type": "string" } } });
        let block = json!({
            "type": "object",
            "properties": {
                "rich_text": { "type": "array", "items": text },
                "children": { "type": "array", "items": { "$ref": "#/$defs/block" } },
            },
        });
        json!({ "type": "object", "properties": { "type": { "const": format!("b{n}") }, format!("b{n}"): block }, "required": [format!("b{n}")] })
    };
    let kinds: Vec<Value> = (0..80).map(block).collect();
    let schema = json!({
        "properties": { "children": { "type": "array", "items": { "$ref": "#/$defs/block" } } },
        "$defs": { "block": { "anyOf": kinds } },
    });
    quick(move || {
        let schema = Schema::compile_with(&schema, Draft::Draft202012).unwrap();
        let leaf = |n: usize, children: Value| json!({ "type": format!("b{n}"), format!("b{n}"): { "children": children } });
        let page =
            |inner: Value| json!({ "children": [leaf(59, json!([leaf(3, json!([inner]))]))] });
        assert!(schema.is_valid(&page(leaf(7, json!([])))));
        assert!(!schema.is_valid(&page(json!({ "b7": 1 }))));
        let _ = schema.misfits(&page(json!({ "b7": 1 })));
    });
}

/// A cycle of many references, with as much around each as is taken: compiled, asked and dropped.
#[test]
fn the_largest_cycles_that_are_taken_fit_on_the_stack() {
    let around: [Around; 2] = [
        |inner| of("properties", of("a", inner)),
        |inner| of("patternProperties", of("^a$", inner)),
    ];
    for around in around {
        quick(move || {
            let cycle = |nodes: usize, levels: usize| {
                let mut definitions = Map::new();
                for n in 0..nodes {
                    let next = json!({ "$ref": format!("#/$defs/l{}", (n + 1) % nodes) });
                    let link = (0..levels).fold(next, |inner, _| around(inner));
                    definitions.insert(format!("l{n}"), link);
                }
                json!({ "$defs": definitions, "$ref": "#/$defs/l0" })
            };
            let deepest = (10..28).rev().find_map(|levels| {
                let schema = Schema::compile_with(&cycle(400, levels), Draft::Draft202012);
                Some((schema.ok()?, levels))
            });
            let (schema, levels) = deepest.unwrap();
            assert!(levels >= 20, "{levels}");
            for schema in [
                schema,
                Schema::compile_with(&cycle(3_000, 1), Draft::Draft202012).unwrap(),
            ] {
                for around in [|v| of("a", v), |v| Value::Array(vec![v])] {
                    let value = (1..120).fold(json!(1), |inner, _| around(inner));
                    let _ = schema.is_valid(&value);
                    let _ = (schema.misfits(&value), schema.repaired(&value));
                }
            }
        });
    }
}

/// The compiler keeps the path of each subschema.
#[test]
fn a_long_name_above_many_subschemas_is_refused() {
    let many: Map<_, _> = (0..10_000).map(|i| (i.to_string(), json!({}))).collect();
    let schema = of(
        "properties",
        of(&"/".repeat(120_000), json!({ "properties": many })),
    );
    let reason = quick(move || reason(Schema::compile(&schema)));
    assert_eq!(reason, "has too long paths to its subschemas");
}

/// Each of these counts the characters of the whole text, or looks for one of many texts in it.
#[test]
fn a_long_text_is_not_counted_thousands_of_times() {
    let all = vec![json!({ "maxLength": 9_999_999 }); 9_900];
    let schema = json!({ "properties": { "t": { "allOf": all } } });
    let text = "x".repeat(16 << 20);
    let fits = quick(move || {
        let schema = Schema::compile(&schema).unwrap();
        schema.is_valid(&json!({ "t": text }))
    });
    assert!(fits, "it is too large to be looked at");
}

/// A pattern that is given up lets the validator begin again, with all else.
#[test]
fn a_pattern_that_is_given_up_does_not_multiply_the_rest() {
    let all = vec![json!({ "minimum": 0 }); 9_000];
    let given_up = json!({ "anyOf": [{ "pattern": "^(a+)+\\1$" }, {}] });
    let schema = json!({ "properties": {
        "a": { "items": { "allOf": all } },
        "b": { "items": given_up },
    } });
    let texts: Vec<_> = (28..35)
        .map(|n| json!(format!("{}!", "a".repeat(n))))
        .collect();
    let arguments = json!({ "a": vec![json!(1); 2_200], "b": texts });
    let (result, took) = on_a_small_stack(move || {
        Schema::compile(&schema).map(|schema| schema.is_valid(&arguments))
    });
    assert_eq!(result, Ok(true));
    assert!(took < Duration::from_secs(20), "{took:?}");
}

#[test]
fn empty_texts_are_looked_at_too() {
    let all = vec![json!({ "pattern": "^(?:[a-z]\\d)*x?$" }); 30];
    let schema = json!({ "properties": { "l": { "items": { "allOf": all } } } });
    let (fits, took) = on_a_small_stack(move || {
        let schema = Schema::compile(&schema).unwrap();
        schema.is_valid(&json!({ "l": vec![json!(""); 700_000] }))
    });
    assert!(fits);
    assert!(took < Duration::from_secs(20), "{took:?}");
}

/// Errors have their paths in the value and in the schema.
#[test]
fn a_long_key_above_many_misfits_is_not_copied_for_each() {
    let schema = json!({ "additionalProperties": { "items": { "type": "string" } } });
    let arguments = of(&"/".repeat(47_000), json!(vec![json!(1); 8_000]));
    let memory = allocation_counter::measure(|| {
        let schema = Schema::compile(&schema).unwrap();
        assert_ne!(schema.misfits(&arguments).len(), 0);
    });
    assert!(memory.bytes_max < 64 << 20, "{memory:?}");
}

#[test]
fn a_list_that_need_not_be_a_set_costs_nothing_more() {
    let schema = json!({ "properties": {
        "rows": { "uniqueItems": false, "items": { "required": ["id"] } },
    } });
    let schema = Schema::compile(&schema).unwrap();
    let rows = |row: Value| json!({ "rows": vec![row; 10_000] });
    assert!(!schema.is_valid(&rows(json!({}))));
    assert!(schema.is_valid(&rows(json!({ "id": 1 }))));
}
