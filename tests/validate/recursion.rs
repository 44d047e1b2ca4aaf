//! Costs of schemas of trusted servers that refer to themselves. Their callers are not trusted.

use expect_test::expect;
use serde_json::{Value, json};
use tower_toolcall::validate::{Draft, Schema, Schemas};

use crate::{hostile::quick, kit::on_a_small_stack};

fn trusted(schema: &Value) -> Schema {
    Schema::compile_trusted(schema, Draft::Draft202012).unwrap()
}

/// `{"c":{"c":...1}}` of this many levels.
fn nested(levels: usize) -> Value {
    (1..levels).fold(json!(1), |inner, _| json!({ "c": inner }))
}

/// A schema with this many branches into itself.
fn branching(keyword: &str, branches: usize) -> Schema {
    let branch = |n| json!({ "properties": { "c": { "$ref": "#" } }, "required": ["c"], "maxProperties": n });
    let branches: Vec<Value> = (1..=branches).map(branch).collect();
    trusted(&json!({ keyword: branches, "type": "object" }))
}

/// H-10: errors of each branch have those of all branches inside it.
#[test]
fn recursion_in_alternatives_costs_no_power_of_its_branches() {
    for (keyword, branches) in [("anyOf", 8), ("anyOf", 16), ("oneOf", 8), ("oneOf", 16)] {
        let text = quick(move || {
            let (schema, value) = (branching(keyword, branches), nested(7));
            let told = || drop((schema.errors(&value), schema.repaired(&value)));
            assert!(allocation_counter::measure(told).bytes_max < 16 << 20);
            schema.errors(&value).to_string()
        });
        assert_eq!(text, "root: does not fit the schema", "{keyword}");
    }
}

/// H-10: the more branches, the fewer levels are searched.
#[test]
fn recursion_in_branches_is_searched_in_shallow_arguments() {
    let searched = |keyword: &'static str, branches: usize| {
        quick(move || {
            let schema = branching(keyword, branches);
            let is_searched = |levels: &usize| {
                schema.errors(&nested(*levels)).to_string() != "root: does not fit the schema"
            };
            (1..20).take_while(is_searched).count()
        })
    };
    let rows = ["anyOf", "oneOf", "allOf"].map(|keyword| {
        let levels = [1, 2, 8, 49].map(|branches| searched(keyword, branches));
        format!("{keyword}: {levels:?}")
    });
    expect![[r#"
        anyOf: [16, 7, 3, 2]
        oneOf: [16, 7, 3, 2]
        allOf: [16, 7, 3, 2]"#]]
    .assert_eq(&rows.join("\n"));
}

/// H-10: a value is valid, told and repaired without being looked at anew for each
/// way that leads to it.
#[test]
fn recursion_that_doubles_is_quick() {
    let c =
        |least: usize| json!({ "properties": { "c": { "$ref": "#" } }, "minProperties": least });
    let items = |least: usize| json!({ "items": { "$ref": "#" }, "minItems": least });
    let mut schemas = vec![
        json!({ "patternProperties": { "c": { "$ref": "#" }, "c+": { "$ref": "#" } } }),
        json!({ "contains": { "$ref": "#" }, "items": { "$ref": "#" } }),
        json!({ "items": { "anyOf": [{ "$ref": "#" }, { "items": { "$ref": "#" } }] } }),
    ];
    for keyword in ["allOf", "anyOf", "oneOf"] {
        for [one, other] in [[c(0), c(1)], [items(0), items(1)]] {
            schemas.push(json!({ keyword: [one, other], "type": ["array", "object"] }));
        }
    }
    for [one, other] in [[c(0), c(1)], [items(0), items(1)]] {
        schemas
            .push(json!({ "if": one, "then": other, "else": other, "type": ["array", "object"] }));
    }
    for schema in schemas {
        let text = schema.to_string();
        let ((), took) = on_a_small_stack(move || {
            let schema = trusted(&schema);
            for levels in [3, 8, 9, 20, 60, 118] {
                let around = |inner, _| json!([inner]);
                let lists = |last: Value| (1..levels).fold(last, around);
                // The wrong part comes last: all before it is looked at for the first error.
                for value in [
                    nested(levels),
                    lists(json!(1)),
                    json!([lists(json!({})), 1]),
                ] {
                    let _ = schema.is_valid(&value);
                    let _ = schema.errors(&value);
                    let _ = schema.repaired(&value);
                }
            }
        });
        assert!(took.as_secs() < 10, "{took:?} {text}");
    }
}

/// H-10: such a reference says nothing, and the rest of the schema is enforced.
#[test]
fn a_trusted_schema_that_refers_to_itself_for_the_same_value_is_taken() {
    for (schema, is_enforced) in [
        (json!({ "$ref": "#" }), false),
        (
            json!({ "allOf": [{ "$ref": "#" }], "type": "object" }),
            true,
        ),
        (
            json!({ "$defs": { "a": { "anyOf": [{ "$ref": "#/$defs/a" }] } }, "$ref": "#/$defs/a" }),
            false,
        ),
    ] {
        let text = schema.to_string();
        let (schema, fits) = quick(move || {
            let schema = trusted(&schema);
            let fits = schema.is_valid(&json!(1));
            assert_eq!(schema.errors(&json!(1)).is_empty(), fits);
            assert!(schema.is_valid(&json!({})));
            (schema, fits)
        });
        assert_eq!(fits, !is_enforced, "{text}");
        let schemas = Schemas::new();
        schemas.insert(None, "search", schema);
        assert!(schemas.refused().is_empty(), "{text}");
    }
}

/// Arguments of a usual depth are told and repaired as by other schemas.
#[test]
fn arguments_of_a_tree_are_told_and_repaired() {
    let schema = trusted(&json!({
        "type": "object",
        "properties": {
            "size": { "type": "integer" },
            "children": { "type": "array", "items": { "$ref": "#" } },
        },
    }));
    let tree = |size: Value| json!({ "children": [{ "children": [{ "size": size }] }] });
    let text = schema.errors(&tree(json!("x"))).to_string();
    expect![[r#"children.0.children.0.size: is not of type "integer""#]].assert_eq(&text);
    let (repaired, paths) = schema.repaired(&tree(json!("5"))).unwrap();
    assert_eq!((repaired, paths.len()), (tree(json!(5)), 1));
}
