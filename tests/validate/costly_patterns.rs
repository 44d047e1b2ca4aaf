//! What a stranger's patterns may cost, when they are compiled and in a call.

use serde_json::{Map, Value, json};
use tower_toolcall::validate::Schema;

use crate::{
    hostile::{quick, random},
    kit::compile,
};

fn omitted(schema: Value) -> usize {
    quick(move || compile(schema).omitted().count())
}

/// The translator reads all of it again for each of these: 8,000 took 10 s.
#[test]
fn control_letters_are_left_out() {
    for times in [1, 8_000, 60_000] {
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
    assert_eq!(omitted(json!({ "pattern": "a".repeat(1 << 10) })), 0);
    let long = "a".repeat((1 << 10) + 1);
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
        let pattern = |n| json!({ "pattern": format!("{n:02}{}", "a".repeat(length - 2)) });
        let properties: Map<_, _> = (0..64).map(|n| (format!("p{n}"), pattern(n))).collect();
        json!({ "properties": properties })
    };
    assert_eq!(omitted(schema(128)), 0);
    assert_eq!(omitted(schema(1 << 10)), 64 - 8);
}

/// A look-ahead is begun at each byte, and reads the rest of the text each time: 2 KiB took up to 30 s.
#[test]
fn look_around_with_costly_parts_looks_at_short_texts_only() {
    for (size, times) in [(100, 1), (100, 6), (30, 20), (3_000, 1)] {
        let part = format!("(?![ab]*a[ab]{{{size}}}[cd])");
        let pattern = format!("^(?:{}[ab])*$", part.repeat(times));
        quick(move || {
            let schema = compile(json!({ "pattern": pattern }));
            let text = |length| json!(random(b"ab", length));
            let covered = |length: &usize| schema.covers(&text(*length));
            let longest = (0..=2 << 10).rev().find(covered).unwrap();
            let _ = schema.is_valid(&text(longest));
        });
    }
}

/// What a library for forms writes for an address.
#[test]
fn look_around_as_it_is_used_looks_at_long_texts() {
    const EMAIL: &str = r"^(?!\.)(?!.*\.\.)([A-Za-z0-9_'+\-\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\-]*\.)+[A-Za-z]{2,}$";
    const PASSWORD: &str =
        r"^(?=.*[a-z])(?=.*[A-Z])(?=.*\d)(?=.*[@$!%*?&])[A-Za-z\d@$!%*?&]{8,64}$";
    for pattern in [EMAIL, PASSWORD] {
        let schema = compile(json!({ "pattern": pattern }));
        assert_eq!(schema.omitted().count(), 0);
        assert!(schema.covers(&json!("a".repeat(320))), "{pattern}");
    }
}

/// Beside one with look-around, all have its engine.
#[test]
fn a_large_pattern_beside_look_around_is_left_out() {
    let large = r"^[a-z]{1,9}\p{L}$";
    assert_eq!(omitted(json!({ "pattern": large })), 0);
    let both = json!({ "properties": { "a": { "pattern": large }, "b": { "pattern": "^(?!x)" } } });
    let schema = quick(move || Schema::compile(&both).unwrap());
    assert_eq!(schema.omitted().collect::<Vec<_>>(), [large]);
    assert!(!schema.is_valid(&json!({ "b": "x" })) && schema.is_valid(&json!({ "a": "1" })));
}
