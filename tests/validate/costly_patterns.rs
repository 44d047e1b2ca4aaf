//! What a stranger's patterns may cost, when they are compiled and in a call.

use serde_json::{Map, Value, json};
use tower_toolcall::validate::{Draft, Schema};

use crate::{hostile::quick, kit::compile};

fn omitted(schema: Value) -> usize {
    quick(move || compile(schema).omitted().count())
}

/// The translator reads all of it again for each of these: 8,000 took 10 s.
#[test]
fn control_letters_are_left_out() {
    for times in [8_000, 60_000] {
        assert_eq!(omitted(json!({ "pattern": r"\cA".repeat(times) })), 1);
    }
    assert_eq!(
        omitted(json!({ "pattern": r"^C:\\code\\\\c$" })),
        0,
        "backslashes"
    );
}

/// The parser makes 40 KiB of each: 60,000 were 2.3 GB.
#[test]
fn a_pattern_of_more_than_1_kib_is_left_out() {
    assert_eq!(omitted(json!({ "pattern": "x{0}".repeat(256) })), 0);
    let long = "x{0}".repeat(257);
    let classes = format!("(?i){}", r"\pL".repeat(60_000));
    for pattern in [long, classes] {
        let keys = json!({ "patternProperties": { pattern.as_str(): {} } });
        assert_eq!(omitted(keys), 1);
        assert_eq!(omitted(json!({ "pattern": pattern })), 1);
    }
}

#[test]
fn patterns_are_looked_at_up_to_8_kib_together() {
    let schema = |length: usize| {
        let pattern = |n| json!({ "pattern": format!("{n:02}{}", "|a".repeat(length / 2 - 1)) });
        let properties: Map<_, _> = (0..64).map(|n| (format!("p{n}"), pattern(n))).collect();
        json!({ "properties": properties })
    };
    assert_eq!(omitted(schema(128)), 0);
    assert_eq!(omitted(schema(1 << 10)), 64 - 8);
}

/// Only the engine that reads each text once runs the patterns of a server that is not trusted.
#[test]
fn look_around_is_left_out_unless_the_server_is_trusted() {
    const EMAIL: &str = r"^(?!\.)(?!.*\.\.)([A-Za-z0-9_'+\-\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\-]*\.)+[A-Za-z]{2,}$";
    for pattern in [EMAIL, r"^(a+)+\1$", "(?<!x)(a|a)*$"] {
        let schema =
            json!({ "properties": { "a": { "pattern": pattern }, "b": { "pattern": "^x" } } });
        let trusted = Schema::compile_trusted(&schema, Draft::Draft7).unwrap();
        assert_eq!(trusted.omitted().count(), 0);
        let schema = compile(schema);
        assert_eq!(schema.omitted().collect::<Vec<_>>(), [pattern]);
        assert!(!schema.is_valid(&json!({ "b": "y" })));
    }
}

/// H-10: the engine for trusted servers gives up a match that takes too long.
#[test]
fn a_pattern_that_goes_back_does_so_for_a_moment() {
    for pattern in ["^(a+)+\\1$", "^(?=.*b)(a+)+$(?!x)", "(?<!x)(a|a)*\\1$"] {
        quick(move || {
            let schema = json!({ "properties": { "s": { "pattern": pattern } } });
            let schema = Schema::compile_trusted(&schema, Draft::Draft7).unwrap();
            assert_eq!(schema.omitted().count(), 0);
            for length in [28, 1_000, 60_000] {
                let arguments = json!({ "s": format!("{}!", "a".repeat(length)) });
                let _ = schema.is_valid(&arguments);
                let _ = schema.errors(&arguments);
            }
        });
    }
}
