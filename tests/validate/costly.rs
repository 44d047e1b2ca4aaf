//! What a schema may cost where each keyword is cheap alone, and what honest schemas are not
//! refused for it.

use std::time::Duration;

use serde_json::{Map, Value, json};
use tower_toolcall::validate::{Draft, Schema};

use crate::{
    hostile::{of, quick, reason},
    kit::on_a_small_stack,
};

/// Each name is looked up in each value.
#[test]
fn long_lists_of_dependencies_are_counted() {
    for keyword in ["dependentRequired", "dependencies"] {
        let names: Vec<String> = (0..12_000).map(|n| format!("n{n}")).collect();
        let keys: Map<String, Value> = (0..9_000).map(|n| (format!("n{n}"), json!([]))).collect();
        for schema in [json!({ "a": names }), json!(keys)] {
            let covers = quick(move || {
                let schema = json!({ "items": { keyword: schema } });
                let schema = Schema::compile_with(&schema, Draft::Draft202012).unwrap();
                let rows = |n: usize| json!(vec![json!({ "a": 1 }); n]);
                [rows(10), rows(5_000)].map(|rows| (schema.is_valid(&rows), schema.covers(&rows)).1)
            });
            assert_eq!(covers, [true, false], "{keyword}");
        }
    }
}

#[test]
fn long_lists_of_options_are_counted() {
    let numbers: Vec<f64> = (0..21_000).map(|n| f64::from(n) + 0.5).collect();
    let texts: Vec<String> = (0..21_000).map(|n| n.to_string()).collect();
    for (options, right) in [
        (json!(numbers), json!(20_999.5)),
        (json!(texts), json!("20999")),
    ] {
        quick(move || {
            let schema = Schema::compile(&json!({ "items": { "enum": options } })).unwrap();
            assert!(schema.is_valid(&json!([right])) && !schema.is_valid(&json!([right, 1])));
            let many = json!(vec![right; 20_000]);
            assert!(schema.is_valid(&many) && !schema.covers(&many));
        });
    }
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
            let _ = (schema.errors(&value), schema.repaired(&value));
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
        let _ = schema.errors(&json!(numbers));
    });
    assert!(took < Duration::from_secs(9), "{took:?}");
}

/// Costly keywords make no schema too large, only values.
#[test]
fn many_alternatives_with_costly_keywords_are_taken() {
    let kind = |n: usize| {
        json!({ "properties": {
            "kind": { "const": n },
            "to": { "type": "string", "pattern": "^[a-z]+$" },
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
fn a_wide_recursion_is_enforced_for_a_trusted_server() {
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
        let wide = Schema::compile_with(&schema, Draft::Draft202012);
        assert_eq!(reason(wide), "refers to itself");
        let schema = Schema::compile_trusted(&schema, Draft::Draft202012).unwrap();
        let leaf = |n: usize, children: Value| json!({ "type": format!("b{n}"), format!("b{n}"): { "children": children } });
        let page =
            |inner: Value| json!({ "children": [leaf(59, json!([leaf(3, json!([inner]))]))] });
        assert!(schema.is_valid(&page(leaf(7, json!([])))));
        assert!(!schema.is_valid(&page(json!({ "b7": 1 }))));
        let _ = schema.errors(&page(json!({ "b7": 1 })));
    });
}

/// The compiler keeps the path of each subschema.
#[test]
fn a_long_name_above_many_subschemas_is_refused() {
    let many: Map<_, _> = (0..9_000).map(|i| (i.to_string(), json!({}))).collect();
    let mut schema = of(
        "properties",
        of(&"/".repeat(120_000), json!({ "$ref": "#/definitions/a" })),
    );
    schema["definitions"] = json!({ "a": { "properties": many } });
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
fn a_long_key_outside_many_errors_is_not_copied_for_each() {
    let schema = json!({ "additionalProperties": { "items": { "type": "string" } } });
    let arguments = of(&"/".repeat(47_000), json!(vec![json!(1); 8_000]));
    let memory = allocation_counter::measure(|| {
        let schema = Schema::compile(&schema).unwrap();
        assert_ne!(schema.errors(&arguments).len(), 0);
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
