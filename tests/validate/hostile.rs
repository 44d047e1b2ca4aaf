//! What a stranger's schema, or a caller's arguments, may cost. Each row of measured attacks, on a
//! small stack, ten times slower than it was.

use std::time::Duration;

use expect_test::expect;
use serde_json::{Map, Value, json};
use tower_toolcall::{
    ConfigError,
    validate::{Draft, Schema},
};

use crate::kit::on_a_small_stack;

/// Nothing here may take longer. The slowest took 1.3 s, without optimisation, beside others on two
/// cores.
const LIMIT: Duration = Duration::from_secs(10);

pub(crate) fn quick<T: Send + 'static>(test: impl FnOnce() -> T + Send + 'static) -> T {
    let (result, took) = on_a_small_stack(test);
    assert!(took < LIMIT, "{took:?}");
    result
}

pub(crate) fn reason(result: Result<Schema, ConfigError>) -> String {
    result.unwrap_err().reason().to_owned()
}

/// `levels` schemas, one inside the other.
fn nested(levels: usize, around: fn(Value) -> Value) -> Value {
    (1..levels).fold(json!({ "type": "string" }), |inner, _| around(inner))
}

const AROUND: [fn(Value) -> Value; 4] = [
    |inner| of("items", inner),
    |inner| of("allOf", Value::Array(vec![inner])),
    |inner| of("properties", of("a", inner)),
    |inner| of("not", inner),
];

/// Moved: `json!` would write it again, and go down as deep as it is.
pub(crate) fn of(key: &str, value: Value) -> Value {
    Value::Object(Map::from_iter([(key.to_owned(), value)]))
}

/// Dropped without recursion.
fn forget(value: Value) {
    std::mem::forget(value);
}

/// The largest one that is taken.
fn largest(most: usize, of: impl Fn(usize) -> Result<Schema, ConfigError>) -> (Schema, usize) {
    let taken = (1..most).rev().find_map(|n| Some((of(n).ok()?, n)));
    taken.unwrap()
}

/// Looks at arguments in all ways.
fn look(schema: &Schema, arguments: &Value) {
    let _ = schema.is_valid(arguments);
    let _ = schema.errors(arguments);
    let _ = schema.repaired(arguments);
}

/// Arguments of that many levels.
fn deep(levels: usize, around: fn(Value) -> Value) -> Value {
    (0..levels).fold(json!(1), |inner, _| around(inner))
}

/// A thousand levels overflow the stack of the compiler.
#[test]
fn a_schema_of_a_hundred_thousand_levels_is_refused() {
    for around in AROUND {
        let reason = quick(move || {
            let schema = nested(100_000, around);
            let reason = reason(Schema::compile(&schema));
            forget(schema);
            reason
        });
        expect!["is nested deeper than 64 levels"].assert_eq(&reason);
    }
}

#[test]
fn the_deepest_schemas_that_are_taken_fit_on_the_stack() {
    for around in AROUND {
        quick(move || {
            let (schema, levels) = largest(65, |levels| Schema::compile(&nested(levels, around)));
            assert!(levels > 20, "{levels}");
            look(&schema, &deep(levels, |inner| json!({ "a": [inner] })));
        });
    }
}

/// References are levels too: a chain of 3,000 is flat.
fn chain(length: usize, link: fn(String) -> Value) -> Value {
    let mut definitions = Map::new();
    definitions.insert("l0".into(), json!({ "type": "string" }));
    for n in 1..length {
        definitions.insert(format!("l{n}"), link(format!("#/definitions/l{}", n - 1)));
    }
    json!({ "definitions": definitions, "$ref": format!("#/definitions/l{}", length - 1) })
}

const LINKS: [fn(String) -> Value; 3] = [
    |to| json!({ "allOf": [{ "$ref": to }] }),
    |to| json!({ "properties": { "c": { "$ref": to } } }),
    |to| json!({ "items": { "$ref": to } }),
];

#[test]
fn a_chain_of_references_is_as_deep_as_it_is_long() {
    for link in LINKS {
        let reason = quick(move || reason(Schema::compile(&chain(3_000, link))));
        expect!["has references that are nested too deeply"].assert_eq(&reason);
    }
}

#[test]
fn the_longest_chains_that_are_taken_fit_on_the_stack() {
    for link in LINKS {
        quick(move || {
            let (schema, length) = largest(200, |length| Schema::compile(&chain(length, link)));
            assert!(length > 25, "{length}");
            look(&schema, &deep(110, |inner| json!({ "c": inner })));
            look(&schema, &deep(110, |inner| json!([inner])));
        });
    }
}

/// A hundred parts of fifty levels, each of which refers to the next one.
fn rings() -> Value {
    let part = |n| {
        let next = json!({ "$ref": format!("#/definitions/l{}", (n + 1) % 100) });
        (
            format!("l{n}"),
            (0..50).fold(next, |inner, _| of("items", inner)),
        )
    };
    let parts: Map<_, _> = (0..100).map(part).collect();
    json!({ "definitions": parts, "$ref": "#/definitions/l0" })
}

/// The compiler goes down several of them, one inside the other.
#[test]
fn a_deep_cycle_is_refused() {
    let reason = quick(|| reason(Schema::compile(&rings())));
    expect!["has references that are nested too deeply"].assert_eq(&reason);
}

/// F-3: schemas of servers that are trusted may refer to themselves, and fit on the stack too.
#[test]
fn a_trusted_schema_that_is_too_deep_for_the_stack_is_refused() {
    let named = (0..3_000).map(|n| {
        (
            format!("n{n}"),
            json!({ "$id": format!("#n{n}"), "items": { "$ref": format!("#n{}", n + 1) } }),
        )
    });
    let named: Map<_, _> = named.collect();
    let named = json!({ "definitions": named, "items": { "$ref": "#n0" } });
    for schema in [
        rings(),
        named,
        chain(3_000, LINKS[2]),
        nested(3_000, AROUND[0]),
    ] {
        let reason = quick(move || {
            let reason = reason(Schema::compile_trusted(&schema, Draft::Draft7));
            forget(schema);
            reason
        });
        assert!(reason.contains("nested"), "{reason}");
    }
}

#[test]
fn the_deepest_trusted_schemas_that_are_taken_fit_on_the_stack() {
    for link in LINKS {
        quick(move || {
            let (schema, length) = largest(400, |length| {
                let mut schema = chain(length, link);
                schema["definitions"]["l0"] = json!({ "items": { "$ref": "#" } });
                Schema::compile_trusted(&schema, Draft::Draft7)
            });
            assert!(length > 50, "{length}");
            look(&schema, &deep(120, |inner| json!([inner])));
            look(&schema, &deep(120, |inner| json!({ "c": inner })));
        });
    }
}

/// 1.5 KB, and the first error takes a second.
fn doubling(levels: usize, keyword: &str) -> Value {
    let mut definitions = Map::new();
    definitions.insert("l0".into(), json!({ "type": "string" }));
    for n in 1..=levels {
        let to = json!({ "$ref": format!("#/definitions/l{}", n - 1) });
        let link = match keyword {
            "items" => json!({ "allOf": [{ "items": to }, { "items": to }] }),
            "patternProperties" => json!({ "patternProperties": { "a": to, "a+": to } }),
            "dependencies" => json!({ "dependencies": { "a": to, "b": to } }),
            "if" => json!({ "if": to, "then": to, "else": to }),
            keyword => json!({ keyword: [to, to] }),
        };
        definitions.insert(format!("l{n}"), link);
    }
    json!({ "definitions": definitions, "$ref": format!("#/definitions/l{levels}") })
}

#[rustfmt::skip]
const DOUBLING: [&str; 7] =
    ["allOf", "anyOf", "oneOf", "items", "patternProperties", "dependencies", "if"];

#[test]
fn references_that_double_on_each_level_are_refused() {
    for keyword in DOUBLING {
        let reason = quick(move || {
            let schema = doubling(20, keyword);
            reason(Schema::compile_with(&schema, Draft::Draft202012))
        });
        assert_eq!(
            reason, "has more than 10000 subschemas, references followed",
            "{keyword}"
        );
    }
}

#[test]
fn the_largest_doublings_that_are_taken_are_quick() {
    for keyword in DOUBLING {
        quick(move || {
            let (schema, _) = largest(20, |levels| {
                Schema::compile_with(&doubling(levels, keyword), Draft::Draft202012)
            });
            look(&schema, &json!(1));
            look(&schema, &json!({ "aa": 1, "b": 2 }));
            look(&schema, &deep(60, |v| json!([v])));
            look(&schema, &deep(60, |v| json!({ "a": v, "aa": 1 })));
        });
    }
}

#[test]
fn a_schema_that_refers_to_itself_is_refused() {
    for schema in [
        json!({ "$ref": "#" }),
        json!({ "allOf": [{ "$ref": "#" }] }),
        json!({ "definitions": { "a": { "$ref": "#/definitions/b" }, "b": { "anyOf": [{ "$ref": "#/definitions/a" }] } }, "$ref": "#/definitions/a" }),
        json!({ "definitions": { "a": { "properties": { "x": { "$ref": "#/definitions/b" } }, "allOf": [{ "$ref": "#/definitions/b" }] },
            "b": { "allOf": [{ "$ref": "#/definitions/a" }] } }, "$ref": "#/definitions/a" }),
        json!({ "$id": "http://x/tree", "properties": { "children": { "items": { "$ref": "#" } } } }),
        json!({ "anyOf": [{ "properties": { "c": { "$ref": "#" } } }, { "items": { "$ref": "#" } }] }),
        json!({ "patternProperties": { "c": { "$ref": "#" }, "c+": { "$ref": "#" } } }),
        json!({ "contains": { "$ref": "#" }, "unevaluatedItems": { "$ref": "#" } }),
        json!({
            "$defs": {
                "a": { "anyOf": [{ "items": { "$ref": "#/$defs/b" } }, { "items": { "$ref": "#/$defs/c" } }] },
                "b": { "anyOf": [{ "items": { "$ref": "#/$defs/c" } }, { "items": { "$ref": "#/$defs/a" } }] },
                "c": { "oneOf": [{ "items": { "$ref": "#/$defs/a" } }, { "items": { "$ref": "#/$defs/b" } }] },
            },
            "$ref": "#/$defs/a",
        }),
    ] {
        let reason = quick(move || reason(Schema::compile_with(&schema, Draft::Draft202012)));
        expect!["refers to itself"].assert_eq(&reason);
    }
}

#[test]
fn a_hundred_thousand_wrong_items_are_told_as_one() {
    let errors = quick(|| {
        let schema =
            Schema::compile(&json!({ "properties": { "a": { "items": { "type": "string" } } } }));
        let items: Vec<Value> = (0..100_000).map(Value::from).collect();
        schema.unwrap().errors(&json!({ "a": items }))
    });
    expect![[r#"a.0: is not of type "string""#]].assert_eq(&errors.to_string());
}

/// The schema looks at each item with ten thousand subschemas.
#[test]
fn many_items_and_many_subschemas_are_not_multiplied() {
    quick(|| {
        let list = |n| (0..n).map(|n| json!({ "minimum": n })).collect::<Vec<_>>();
        let schema = json!({ "items": { "allOf": list(9_000) } });
        let schema = Schema::compile(&schema).unwrap();
        let items: Vec<Value> = (0..100_000).map(|n| json!(n + 10_000)).collect();
        assert!(schema.is_valid(&json!(items)));
        let items: Vec<Value> = (0..30_000).map(|_| json!(-1)).collect();
        let _ = schema.is_valid(&json!(items));
        let _ = schema.errors(&json!(items));
    });
}

/// Errors have copies of values, of parts of the schema, and of each other.
#[test]
fn what_is_told_takes_little_memory() {
    let list = |n: usize, of: Value| Value::Array(vec![of; n]);
    let long = || json!("x".repeat(60_000));
    let deep = |levels| (0..levels).fold(long(), |inner, _| json!([inner]));
    let nested = |keyword: &str| {
        (0..20).fold(
            json!({ "type": "string" }),
            |inner, _| json!({ keyword: [{ "items": inner }, { "type": "null" }] }),
        )
    };
    let closed = json!({ "properties": { "a": {} }, "additionalProperties": false });
    let required: Vec<String> = (0..30_000).map(|n| n.to_string()).collect();
    let names = json!({
        "allOf": list(18, json!({ "$ref": "#/$defs/a" })),
        "$defs": { "a": { "required": required } },
    });
    let items = |of: Value| json!({ "items": of });
    let key = || of(&"x".repeat(60_000), json!(1));
    let pattern = format!("[{}]", "ab".repeat(511));
    let text = json!({ "type": "string" });
    let (ones, twos) = (list(60_000, json!(1)), list(30_000, json!(2)));
    let whole = list(9_000, json!({ "type": "integer" }));
    for (schema, value) in [
        (items(json!({ "const": ones })), twos.clone()),
        (items(json!({ "enum": [ones] })), twos.clone()),
        (
            items(json!({ "not": { "enum": list(19_000, json!(2)) } })),
            twos,
        ),
        (
            items(json!({ "pattern": pattern })),
            list(20_000, json!("c")),
        ),
        (items(text.clone()), list(30_000, json!(1))),
        (
            json!({ "anyOf": list(2, items(text)) }),
            list(200_000, json!(1)),
        ),
        (json!({ "anyOf": whole }), long()),
        (json!({ "allOf": list(3_000, closed.clone()) }), key()),
        (json!({ "oneOf": list(2_000, closed) }), key()),
        (nested("anyOf"), deep(20)),
        (nested("oneOf"), deep(20)),
        (names, json!({})),
    ] {
        let text: String = schema.to_string().chars().take(100).collect();
        let bytes = quick(move || {
            let schema = Schema::compile_with(&schema, Draft::Draft202012).unwrap();
            let told = || drop((schema.errors(&value), schema.repaired(&value)));
            allocation_counter::measure(told).bytes_max
        });
        assert!(bytes < 64 << 20, "{bytes} {text}");
    }
}

fn properties(n: usize, of: impl Fn(usize) -> Value) -> Value {
    let properties: Map<String, Value> = (0..n).map(|i| (format!("p{i}"), of(i))).collect();
    json!({ "properties": properties })
}

#[test]
fn more_than_64_different_patterns_are_left_out() {
    let pattern = |i| json!({ "pattern": format!("^[a-z]{{1,{}}}$", i + 1) });
    let omitted = quick(move || {
        [
            properties(64, pattern),
            properties(70, pattern),
            properties(500, |_| pattern(1)),
        ]
        .map(|schema| Schema::compile(&schema).unwrap().omitted().count())
    });
    assert_eq!(omitted, [0, 6, 0]);
}

/// F-11: honest patterns are enforced beside many that the engine does not take.
#[test]
fn patterns_that_are_left_out_take_no_room_of_others() {
    let schema = properties(124, |i| match i < 62 {
        true => json!({ "pattern": format!("(?=a{i})") }),
        false => json!({ "pattern": format!("^[a-z]{{1,{}}}$", i + 1) }),
    });
    let omitted = quick(move || Schema::compile(&schema).unwrap().omitted().count());
    assert_eq!(omitted, 62);
}

/// Each is refused within 1.4 ms, with a limit of 256 KiB.
#[test]
fn patterns_of_megabytes_are_left_out() {
    let schema = quick(|| {
        let schema = properties(
            64,
            |i| json!({ "type": "string", "pattern": format!("^[a-z]{{1,{}}}\\p{{L}}{{2,20}}$", i + 1) }),
        );
        Schema::compile(&schema).unwrap()
    });
    assert_eq!(schema.omitted().count(), 64);
    assert!(schema.is_valid(&json!({ "p0": "1" })) && !schema.is_valid(&json!({ "p0": 1 })));
}

/// The compiler joins each reference with the identifier: 120 KiB and thousands of them were 1.8
/// GB.
#[test]
fn long_references_and_identifiers_take_little_memory() {
    let long = format!("https://example.com/{}", "a".repeat(120 << 10));
    let parts: Map<_, _> = (0..2_000)
        .map(|n| (format!("p{n}"), json!({ "$id": format!("x{n}") })))
        .collect();
    for schema in [
        json!({ "$id": long, "properties": parts }),
        json!({ "$schema": "http://json-schema.org/draft-04/schema#", "id": long, "properties": {} }),
        json!({ "$anchor": long, "type": "string" }),
        json!({ "$ref": format!("#/definitions/{long}"), "definitions": { "a": parts } }),
    ] {
        let bytes = quick(move || {
            let compile = || drop(Schema::compile(&schema));
            allocation_counter::measure(compile).bytes_max
        });
        assert!(bytes < 64 << 20, "{bytes}");
    }
}

/// F-2: the compiler keeps a copy of the schema in each `not`, and of each keyword that it does not
/// know.
#[test]
fn copies_of_the_schema_take_little_memory() {
    let numbers = || json!({ "const": vec![json!(0); 130_000 - 4_000] });
    let nested = |keyword: &str| (0..60).fold(numbers(), |inner, _| of(keyword, inner));
    let unknown = || {
        let all = (1..60).map(|n| json!({ "$ref": format!("#{}", "/x".repeat(n)) }));
        let all: Vec<Value> = all.collect();
        let mut schema = nested("x");
        schema["allOf"] = json!(all);
        schema
    };
    for schema in [nested("not"), unknown()] {
        let (bytes, reason) = quick(move || {
            let mut compiled = None;
            let compile = || compiled = Some(Schema::compile_with(&schema, Draft::Draft202012));
            let bytes = allocation_counter::measure(compile).bytes_max;
            (bytes, reason(compiled.unwrap()))
        });
        assert!(bytes < 64 << 20, "{bytes}");
        expect!["has more than 1048576 values to keep, references followed"].assert_eq(&reason);
    }
}

//= https://modelcontextprotocol.io/specification/2026-07-28/basic/index#composition-keyword-resource-use
//# Implementations SHOULD apply reasonable bounds, such as a maximum schema depth, a cap on the
//# total number of subschemas, or a per-validation time budget, to prevent a malicious schema from
//# acting as a Denial-of-Service vector against the validator.
#[test]
fn a_schema_of_more_than_256_kib_is_refused() {
    let (large, larger) = quick(|| {
        let of = |n| properties(n, |_| json!({ "type": "string" }));
        (
            Schema::compile(&of(9_000)),
            reason(Schema::compile(&of(12_000))),
        )
    });
    assert!(large.is_ok());
    expect!["has more than 262144 bytes as JSON"].assert_eq(&larger);
}

/// Arguments and schemas of odd numbers end as well.
#[test]
fn odd_numbers_are_quick() {
    quick(|| {
        for schema in [
            json!({ "multipleOf": 1e-300, "maximum": 1e308 }),
            json!({ "multipleOf": 5e-324 }),
            json!({ "minLength": u64::MAX, "maxLength": 0 }),
        ] {
            if let Ok(schema) = Schema::compile(&schema) {
                for value in [
                    json!(1e300),
                    json!(1e-300),
                    json!(u64::MAX),
                    json!("x".repeat(1 << 20)),
                ] {
                    let _ = schema.is_valid(&value);
                    let _ = schema.errors(&value);
                }
            }
        }
    });
}

//= https://modelcontextprotocol.io/specification/2026-07-28/basic/index#implementation-requirements
//# They MUST handle unsupported dialects gracefully by returning an appropriate error indicating
//# the dialect is not supported.
//= https://modelcontextprotocol.io/specification/2026-07-28/basic/index#ref-resolution
//# Implementations MUST NOT automatically dereference `$ref` values that resolve to a network URI.
//# Schemas that fail to validate due to an unresolved external `$ref` SHOULD be rejected rather
//# than silently treated as permissive.
//= https://modelcontextprotocol.io/specification/2026-07-28/server/tools#security-considerations
//# Clients SHOULD:
//# Follow the `$ref` resolution requirements when validating tool inputs and outputs against
//# `inputSchema` and `outputSchema`
#[test]
fn nothing_is_fetched() {
    for reference in [
        "https://example.com/s.json",
        "file:///etc/passwd",
        "other.json",
        "//h/x",
        "#/definitions/none",
        "#none",
    ] {
        let schema = json!({ "properties": { "a": { "$ref": reference } } });
        let reason = quick(move || reason(Schema::compile(&schema)));
        assert_eq!(
            reason, "has a `$ref` that is not a JSON pointer to a part of it",
            "{reference}"
        );
    }
    let schema = json!({ "$schema": "https://example.com/none", "type": "object" });
    assert!(quick(move || Schema::compile(&schema)).is_err());
}

/// The reason may stand in a log: a schema of 200 KB does not.
#[test]
fn the_reason_is_short() {
    let schema = json!({ "type": "x".repeat(200_000) });
    let reason = quick(move || reason(Schema::compile(&schema)));
    assert!(
        reason.starts_with("is not one: ") && reason.len() < 300,
        "{reason}"
    );
}

/// A text in which no letter lets an engine skip any.
pub(crate) fn random(letters: &[u8], length: usize) -> String {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut letter = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        char::from(letters[(state >> 33) as usize % letters.len()])
    };
    (0..length).map(|_| letter()).collect()
}

/// Patterns whose engine goes over the rest of the text, or all of its states, at each byte.
#[test]
fn long_texts_and_costly_patterns_are_not_multiplied() {
    for (pattern, letters) in [
        ("[ab]*a[ab]{3000}[cd]", &b"ab"[..]),
        ("(?:a[ab]{1,500}b|b[ab]{1,500}a)[c-f]", b"ab"),
    ] {
        for length in [2 << 10, 16 << 10, 256 << 10] {
            let keys = json!({ "patternProperties": { pattern: false }, "propertyNames": { "pattern": pattern } });
            for schema in [
                json!({ "pattern": pattern, "items": { "pattern": pattern } }),
                keys,
            ] {
                let took = quick(move || {
                    let schema = Schema::compile(&schema).unwrap();
                    let text = random(letters, length);
                    let parts = text
                        .as_bytes()
                        .chunks(64)
                        .map(|part| json!(str::from_utf8(part).unwrap()));
                    let values = [
                        json!(parts.collect::<Vec<_>>()),
                        of(&text, json!(1)),
                        json!(text),
                    ];
                    let started = std::time::Instant::now();
                    for value in values {
                        let _ = schema.errors(&value);
                    }
                    started.elapsed()
                });
                println!("{took:?} {length} {pattern}");
            }
        }
    }
}

/// Another part has a name that looks like the one that is meant, in a spelling that two readers
/// read in two ways.
#[test]
fn names_are_not_read_in_two_ways() {
    for schema in [
        json!({ "$id": "http://x/%66oo", "allOf": [{ "$ref": "http://x/foo" }], "$defs": { "d": { "$id": "http://y/foo" } } }),
        json!({ "$id": "http://FOO", "allOf": [{ "$ref": "http://foo" }], "$defs": { "d": { "$id": "http://y/foo" } } }),
        json!({ "$id": "http://foo:80", "allOf": [{ "$ref": "http://foo" }], "$defs": { "d": { "$id": "http://y/foo" } } }),
        json!({ "$ref": "https://json-schema.org/draft/2020-12/schema", "$defs": { "d": { "$id": "http://z/schema" } } }),
        json!({ "$id": "https://json-schema.org/draft/2020-12/", "$ref": "schema", "$defs": { "d": { "$id": "schema" } } }),
        json!({ "allOf": [{ "$ref": "#/allOf/+0" }], "$defs": { "d": { "const": { "$id": "http://d/", "allOf": { "+0": {} } } } } }),
        json!({ "allOf": [{ "$ref": "#/allOf/00" }], "default": { "$id": "http://d/", "allOf": { "00": {} } } }),
        json!({ "$ref": "#%61", "$defs": { "a": { "$anchor": "a", "allOf": [{ "$ref": "#" }] }, "d": { "const": { "$anchor": "%61" } } } }),
        json!({ "$ref": "#/$defs/a", "$defs": { "a": {}, "b": { "$id": "http://x/b" } } }),
        json!({ "allOf": [{ "$recursiveRef": "#/$defs/a" }], "$defs": { "a": {} } }),
        json!({ "allOf": [{ "$recursiveRef": 5 }], "unevaluatedItems": false }),
    ] {
        let text = schema.to_string();
        assert!(
            quick(move || Schema::compile_with(&schema, Draft::Draft202012)).is_err(),
            "{text}"
        );
    }
}

#[test]
fn doubling_by_names_with_decoys_is_refused() {
    let by_id = |level: usize| {
        let next = json!({ "$ref": format!("http://x/n{}", level + 1) });
        (
            format!("n{level}"),
            json!({ "$id": format!("http://x/%6e{level}"), "allOf": [next, next] }),
        )
    };
    let mut definitions: Map<String, Value> = (0..20).map(by_id).collect();
    definitions.insert(
        "n20".into(),
        json!({ "$id": "http://x/%6e20", "type": "string" }),
    );
    for level in 0..=20 {
        definitions.insert(
            format!("d{level}"),
            json!({ "$id": format!("http://y/n{level}") }),
        );
    }
    let schema = json!({ "$defs": definitions, "$ref": "http://x/n0" });
    assert!(quick(move || Schema::compile_with(&schema, Draft::Draft202012)).is_err());
}

/// As generators write them: nothing refers to these.
#[test]
fn ids_without_references_are_taken() {
    for schema in [
        json!({ "properties": { "a": { "$id": "/properties/a", "type": "string" } } }),
        json!({ "$id": "https://example.com/%41", "properties": { "a": { "$id": "#/properties/a", "type": "string" } } }),
        json!({ "$id": "https://example.com/a", "properties": { "a": { "$ref": "#/definitions/s" } }, "definitions": { "s": { "type": "string" } } }),
        json!({ "properties": { "a": { "$ref": "#/definitions/Of%3Cs%3E" } }, "definitions": { "Of<s>": { "type": "string" } } }),
    ] {
        let schema = quick(move || Schema::compile(&schema)).unwrap();
        assert!(schema.is_valid(&json!({ "a": "x" })) && !schema.is_valid(&json!({ "a": 1 })));
    }
}
