//! The regular expressions in a schema: which engine takes them, and a schema without those that none takes.

use std::collections::BTreeSet;

use jsonschema::{PatternOptions, ValidationOptions};
use serde_json::{Map, Value, json};

use super::limits::{MAX_BACKTRACKS, MAX_PATTERN, Reason};

/// The engine for all patterns of a schema.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Engine {
    /// Reads each text once.
    Linear,
    /// Also knows look-around and back references, and goes back a limited number of times.
    Fancy,
}

impl Engine {
    pub(super) fn options(self) -> ValidationOptions<'static> {
        let options = jsonschema::options()
            .offline()
            .should_validate_formats(false);
        match self {
            Self::Linear => options.with_pattern_options(
                PatternOptions::regex()
                    .size_limit(MAX_PATTERN)
                    .dfa_size_limit(MAX_PATTERN),
            ),
            Self::Fancy => options.with_pattern_options(
                PatternOptions::fancy_regex()
                    .backtrack_limit(MAX_BACKTRACKS)
                    .size_limit(MAX_PATTERN)
                    .dfa_size_limit(MAX_PATTERN),
            ),
        }
    }

    fn takes(self, pattern: &str) -> bool {
        self.options().build(&json!({ "pattern": pattern })).is_ok()
    }
}

/// The engine that these patterns need, and those that no engine takes within the limits.
pub(super) fn engine_for<'p>(patterns: &BTreeSet<&'p str>) -> (Engine, BTreeSet<&'p str>) {
    let mut engine = Engine::Linear;
    let mut omitted = BTreeSet::new();
    for pattern in patterns {
        if Engine::Linear.takes(pattern) {
            continue;
        }
        match Engine::Fancy.takes(pattern) {
            true => engine = Engine::Fancy,
            false => _ = omitted.insert(*pattern),
        }
    }
    (engine, omitted)
}

/// Where these are, a schema that asks for less may let fewer values pass.
const REVERSING: [&str; 5] = ["not", "oneOf", "if", "maxContains", "unevaluatedItems"];

/// The schema without some of its patterns: it lets all values pass that the whole one does.
///
/// # Errors
///
/// If there is no telling what it would let pass.
pub(super) fn without(schema: &Value, patterns: &BTreeSet<&str>) -> Result<Value, Reason> {
    let mut copy = schema.clone();
    let mut rest = vec![&mut copy];
    let mut of_keys = false;
    while let Some(value) = rest.pop() {
        match value {
            Value::Array(items) => rest.extend(items),
            Value::Object(map) => {
                if REVERSING.iter().any(|keyword| map.contains_key(*keyword)) {
                    return Err("has a pattern that cannot be left out".into());
                }
                of_keys |= leave_out(map, patterns);
                let data = |key: &str| matches!(key, "const" | "enum" | "default" | "examples");
                let inner = map.iter_mut().filter(|(key, _)| !data(key));
                rest.extend(inner.map(|(_, value)| value));
            }
            _ => {}
        }
    }
    if of_keys {
        take_away(&mut copy, "unevaluatedProperties");
    }
    Ok(copy)
}

/// Whether keys are not looked at any more.
fn leave_out(map: &mut Map<String, Value>, patterns: &BTreeSet<&str>) -> bool {
    let is_out = |pattern: &str| patterns.contains(pattern);
    if map
        .get("pattern")
        .and_then(Value::as_str)
        .is_some_and(is_out)
    {
        map.remove("pattern");
    }
    let Some(Value::Object(keys)) = map.get_mut("patternProperties") else {
        return false;
    };
    let before = keys.len();
    keys.retain(|pattern, _| !is_out(pattern));
    let fewer = keys.len() < before;
    if fewer {
        // They would all be additional.
        map.remove("additionalProperties");
    }
    fewer
}

fn take_away(schema: &mut Value, keyword: &str) {
    let mut rest = vec![schema];
    while let Some(value) = rest.pop() {
        match value {
            Value::Array(items) => rest.extend(items),
            Value::Object(map) => {
                map.remove(keyword);
                rest.extend(map.values_mut());
            }
            _ => {}
        }
    }
}
