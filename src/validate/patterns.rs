//! The regular expressions in a schema: which engine takes them, and a schema without some of them.

use std::collections::BTreeSet;

use jsonschema::{PatternOptions, ValidationOptions};
use serde_json::{Map, Value, json};

use super::{
    graph::REFERENCES,
    limits::{
        MAX_BACKTRACKS, MAX_FANCY_STEPS, MAX_PATTERN, MAX_PATTERN_FANCY, MAX_PATTERN_TEXT,
        MAX_PATTERNS_TEXT, MAX_TEXT_FANCY, MAX_TEXT_STEPS,
    },
};

/// The engine for all patterns of a schema.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Engine {
    /// Reads each text once.
    Linear,
    /// Also knows look-around and back references, and goes back a limited number of times.
    Fancy,
}

/// What draft 7 decodes texts by.
const ENCODINGS: [&str; 5] = ["base64", "base64url", "base32", "base32hex", "base16"];

impl Engine {
    pub(super) fn options(self) -> ValidationOptions<'static> {
        let mut options = self
            .options_up_to(self.most())
            .offline()
            .should_validate_formats(false)
            .without_content_media_type_support("application/json");
        for encoding in ENCODINGS {
            options = options.without_content_encoding_support(encoding);
        }
        options
    }

    /// For patterns that are not larger than this when they are compiled, in bytes.
    fn options_up_to(self, size: usize) -> ValidationOptions<'static> {
        match self {
            Self::Linear => jsonschema::options().with_pattern_options(
                PatternOptions::regex()
                    .size_limit(size)
                    .dfa_size_limit(MAX_PATTERN),
            ),
            Self::Fancy => jsonschema::options().with_pattern_options(
                PatternOptions::fancy_regex()
                    .backtrack_limit(MAX_BACKTRACKS)
                    .size_limit(size)
                    .dfa_size_limit(MAX_PATTERN),
            ),
        }
    }

    fn most(self) -> usize {
        match self {
            Self::Linear => MAX_PATTERN,
            Self::Fancy => MAX_PATTERN_FANCY,
        }
    }

    /// Whether a schema of a dialect may have the pattern: the schemas of older drafts refuse Python's forms.
    fn takes_up_to(self, size: usize, pattern: &str, dialect: &str) -> bool {
        let options = self.options_up_to(size).offline();
        let schema = json!({ "$schema": dialect, "pattern": pattern });
        options.build(&schema).is_ok()
    }

    fn takes(self, pattern: &str, dialect: &str) -> bool {
        self.takes_up_to(self.most(), pattern, dialect)
    }

    /// How many bytes of text a value may have, if so many of these patterns look at one text.
    pub(super) fn most_text(self, patterns: &BTreeSet<&str>, at_once: u64, dialect: &str) -> u64 {
        let sizes = patterns.iter().map(|pattern| self.size(pattern, dialect));
        let most = match self {
            Self::Linear => sizes.max().map(|size| MAX_TEXT_STEPS / size),
            Self::Fancy => {
                let parts = patterns.iter().map(|pattern| parts(pattern));
                let largest = sizes.zip(parts).map(|(size, parts)| size * parts).max();
                largest.map(|size| (MAX_FANCY_STEPS / size).isqrt().min(MAX_TEXT_FANCY))
            }
        };
        most.map_or(u64::MAX, |most| most / at_once.max(1))
    }

    /// A size that the compiled pattern does not exceed, or none of its parts, in bytes.
    fn size(self, pattern: &str, dialect: &str) -> u64 {
        let most = self.most();
        let mut sizes = [most / 64, most / 16, most / 4].into_iter();
        let smallest = sizes.find(|size| self.takes_up_to(*size, pattern, dialect));
        smallest.unwrap_or(most) as u64
    }
}

/// Of how many parts the engine for look-around and back references makes a pattern, at the most.
fn parts(pattern: &str) -> u64 {
    let pairs = pattern.as_bytes().windows(2);
    let ends = pairs.filter(|pair| matches!(pair, [b'(', b'?'] | [b'\\', b'1'..=b'9' | b'k']));
    1 + ends.count() as u64
}

/// The engine that these patterns need, and those that are left out: too long, or not taken by it within its limits.
pub(super) fn engine_for<'p>(
    patterns: &BTreeSet<&'p str>,
    dialect: &str,
) -> (Engine, BTreeSet<&'p str>) {
    let mut left = MAX_PATTERNS_TEXT;
    let short: Vec<&str> = patterns
        .iter()
        .filter(|pattern| {
            let has_room = is_short(pattern) && pattern.len() <= left;
            left -= if has_room { pattern.len() } else { 0 };
            has_room
        })
        .copied()
        .collect();
    let linear: BTreeSet<&str> = taken(&short, Engine::Linear, dialect);
    let needs_fancy = short
        .iter()
        .any(|pattern| !linear.contains(pattern) && Engine::Fancy.takes(pattern, dialect));
    let (engine, kept) = match needs_fancy {
        false => (Engine::Linear, linear),
        true => (Engine::Fancy, taken(&short, Engine::Fancy, dialect)),
    };
    (engine, patterns - &kept)
}

fn taken<'p>(patterns: &[&'p str], engine: Engine, dialect: &str) -> BTreeSet<&'p str> {
    let taken = patterns
        .iter()
        .filter(|pattern| engine.takes(pattern, dialect));
    taken.copied().collect()
}

/// Whether a pattern may be given to an engine: it reads a whole one again for each `\cA`.
fn is_short(pattern: &str) -> bool {
    pattern.len() <= MAX_PATTERN_TEXT && !has_control_letter(pattern)
}

fn has_control_letter(pattern: &str) -> bool {
    let mut bytes = pattern.bytes();
    while let Some(byte) = bytes.next() {
        if byte == b'\\' && bytes.next() == Some(b'c') {
            return true;
        }
    }
    false
}

/// Where a part of the schema asks for less, these may let fewer values pass.
const ALWAYS: [&str; 3] = ["maxContains", "unevaluatedItems", "unevaluatedProperties"];

/// And these, if the part is in one of them.
const AROUND: [&[&str]; 3] = [&["not"], &["if", "then", "else"], &["oneOf"]];

/// The schema without some of its patterns, and without keywords that might refuse more values then: it lets all values pass that the
/// whole one does.
pub(super) fn without(schema: &Value, patterns: &BTreeSet<&str>) -> Value {
    let mut copy = schema.clone();
    each_schema(&mut copy, |map| {
        leave_out(map, patterns);
        map.retain(|keyword, _| !ALWAYS.contains(&keyword.as_str()));
        for keywords in AROUND {
            let mut inner = keywords.iter().filter_map(|keyword| map.get(*keyword));
            if !inner.any(|schema| has_one_of(schema, patterns)) {
                continue;
            }
            for keyword in keywords {
                if let Some(alternatives) = map.remove(*keyword).filter(|_| *keyword == "oneOf") {
                    map.entry("anyOf").or_insert(alternatives);
                }
            }
        }
    });
    copy
}

/// Whether one of these patterns may be in the schema, or where a reference in it leads, or a keyword that is always taken out.
fn has_one_of(schema: &Value, patterns: &BTreeSet<&str>) -> bool {
    let mut rest = vec![schema];
    while let Some(value) = rest.pop() {
        match value {
            Value::Array(items) => rest.extend(items),
            Value::Object(map) => {
                let is_one = |(key, value): (&String, &Value)| {
                    patterns.contains(key.as_str())
                        || value.as_str().is_some_and(|text| patterns.contains(text))
                        || REFERENCES.contains(&key.as_str())
                        || ALWAYS.contains(&key.as_str())
                };
                if map.iter().any(is_one) {
                    return true;
                }
                rest.extend(map.values());
            }
            _ => {}
        }
    }
    false
}

/// Keywords with data, and those with names of schemas.
const DATA: [&str; 4] = ["const", "enum", "default", "examples"];
pub(super) const NAMED: [&str; 6] = [
    "properties",
    "patternProperties",
    "$defs",
    "definitions",
    "dependentSchemas",
    "dependencies",
];

/// Calls `edit` with the schema and all that may be one in it: not with its data, nor with lists of names as if these were keywords.
fn each_schema(schema: &mut Value, edit: impl Fn(&mut Map<String, Value>)) {
    let mut rest = vec![schema];
    while let Some(value) = rest.pop() {
        match value {
            Value::Array(items) => rest.extend(items),
            Value::Object(map) => {
                edit(map);
                for (keyword, value) in map {
                    let keyword = keyword.as_str();
                    if DATA.contains(&keyword) {
                        continue;
                    }
                    match (NAMED.contains(&keyword), value) {
                        (true, Value::Object(named)) => rest.extend(named.values_mut()),
                        (_, value) => rest.push(value),
                    }
                }
            }
            _ => {}
        }
    }
}

fn leave_out(map: &mut Map<String, Value>, patterns: &BTreeSet<&str>) {
    let is_out = |pattern: &str| patterns.contains(pattern);
    if map
        .get("pattern")
        .and_then(Value::as_str)
        .is_some_and(is_out)
    {
        map.remove("pattern");
    }
    let Some(Value::Object(keys)) = map.get_mut("patternProperties") else {
        return;
    };
    let before = keys.len();
    keys.retain(|pattern, _| !is_out(pattern));
    if keys.len() < before {
        // They would all be additional.
        map.remove("additionalProperties");
    }
}
