//! The parts of a schema: names, regular expressions, and a schema without some of them.

use std::collections::BTreeSet;

use jsonschema::{PatternOptions, ValidationOptions};
use serde_json::{Map, Value, json};

use crate::answer::values_of;

/// Bytes of a regular expression: a parser makes 40 KiB of each `\pL` before it looks at the size
/// of the automaton.
const MAX_PATTERN: usize = 1 << 10;

/// Different regular expressions, and their bytes together: each takes 1 ms to compile, or to be
/// found too large.
const MAX_PATTERNS: usize = 64;
const MAX_PATTERNS_TEXT: usize = 8 << 10;

/// Bytes of the automaton of a regular expression: its worst case for a byte of text is 1 us.
const MAX_AUTOMATON: usize = 16 << 10;

/// Bytes for the states of an automaton that is made while it runs.
const MAX_STATES: usize = 256 << 10;

/// Encodings by which draft 7 decodes texts.
const ENCODINGS: [&str; 5] = ["base64", "base64url", "base32", "base32hex", "base16"];

/// Returns the compiler's options. An untrusted server's patterns run in linear time; a trusted
/// server's may also have look-around and back references.
pub(super) fn options(is_trusted: bool) -> ValidationOptions<'static> {
    let mut options = jsonschema::options()
        .offline()
        .should_validate_formats(false)
        .without_content_media_type_support("application/json");
    for encoding in ENCODINGS {
        options = options.without_content_encoding_support(encoding);
    }
    let linear = PatternOptions::regex()
        .size_limit(MAX_AUTOMATON)
        .dfa_size_limit(MAX_STATES);
    match is_trusted {
        true => options,
        false => options.with_pattern_options(linear),
    }
}

/// Parts of a schema, wherever it has them.
#[derive(Default)]
pub(super) struct Parts {
    /// The keys and words of the schema, with the names for properties.
    pub(super) names: BTreeSet<Box<str>>,
    pub(super) patterns: BTreeSet<Box<str>>,
    /// The keywords that are not enforced for servers that are not trusted.
    unevaluated: BTreeSet<Box<str>>,
    /// An error may contain those of alternatives.
    pub(super) has_alternatives: bool,
    /// A part has its own `$id`.
    pub(super) has_ids: bool,
}

impl Parts {
    /// Finds the parts of a schema, and takes identifiers out of it: references by them are not
    /// followed.
    pub(super) fn of(schema: &mut Value, is_trusted: bool, dialect: &str) -> Self {
        let (mut parts, mut is_root) = (Self::default(), true);
        let is_old = dialect.contains("draft-04");
        each_schema(schema, |map| {
            parts.note(map);
            for keyword in IDS {
                let is_id = keyword == "$id" || is_old && keyword == "id";
                let id = map.get(keyword).and_then(Value::as_str);
                let is_own = id.is_some_and(|id| !id.is_empty() && !id.starts_with('#'));
                parts.has_ids |= is_own && is_id && !is_root;
                if !is_trusted && id.is_some() {
                    map.remove(keyword);
                }
            }
            is_root = false;
        });
        parts
    }

    fn note(&mut self, map: &Map<String, Value>) {
        fn keys(named: &Map<String, Value>) -> impl Iterator<Item = Box<str>> {
            named.keys().map(|name| name.as_str().into())
        }
        for (keyword, value) in map {
            match (keyword.as_str(), value) {
                ("pattern", Value::String(text)) => _ = self.patterns.insert(text.as_str().into()),
                (hidden, _) if UNEVALUATED.contains(&hidden) => {
                    self.unevaluated.insert(hidden.into());
                }
                ("anyOf" | "oneOf", _) => self.has_alternatives = true,
                ("patternProperties", Value::Object(named)) => self.patterns.extend(keys(named)),
                (_, Value::Object(named)) => self.names.extend(keys(named)),
                (_, Value::Array(list)) => {
                    let words = list.iter().filter_map(Value::as_str);
                    self.names.extend(words.map(Into::into));
                }
                _ => {}
            }
        }
    }

    /// Returns the regular expressions and keywords that are not enforced.
    pub(super) fn omitted(&self, is_trusted: bool, dialect: &str) -> BTreeSet<Box<str>> {
        let options = options(is_trusted);
        // Patterns that the engine takes have one room, and those that it refuses another.
        let mut rooms = [MAX_PATTERNS_TEXT; 2];
        let left_out = self.patterns.iter().filter(|pattern| {
            let bytes = pattern.len().max(MAX_PATTERNS_TEXT / MAX_PATTERNS);
            let has_room = pattern.len() <= MAX_PATTERN && rooms.iter().all(|r| bytes <= *r);
            if !is_trusted && !has_room {
                return true;
            }
            // The schemas of older drafts refuse Python's forms.
            let schema = json!({ "$schema": dialect, "pattern": pattern });
            let is_refused = options.build(&schema).is_err();
            let room = &mut rooms[usize::from(is_refused)];
            *room = room.saturating_sub(bytes);
            is_refused
        });
        let hidden = self.unevaluated.iter().filter(|_| !is_trusted);
        left_out.chain(hidden).cloned().collect()
    }
}

/// Keywords that see what other keywords have left.
pub(super) const UNEVALUATED: [&str; 2] = ["unevaluatedItems", "unevaluatedProperties"];

/// Keywords that may let fewer values pass if any part of the schema asks for less.
const ALWAYS: [&str; 3] = ["maxContains", UNEVALUATED[0], UNEVALUATED[1]];

/// Keywords that may do so if the part is in one of them.
const AROUND: [&[&str]; 3] = [&["not"], &["if", "then", "else"], &["oneOf"]];

/// Returns the schema without some of its patterns, and without keywords that might refuse more
/// values then: it lets all values pass that the whole one does.
pub(super) fn without(schema: &mut Value, patterns: &BTreeSet<Box<str>>) {
    each_schema(schema, |map| {
        map.retain(|keyword, value| match (keyword.as_str(), value) {
            ("pattern", Value::String(pattern)) => !patterns.contains(&**pattern),
            (keyword, _) => !ALWAYS.contains(&keyword),
        });
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
        if let Some(Value::Object(keys)) = map.get_mut("patternProperties") {
            let before = keys.len();
            keys.retain(|pattern, _| !patterns.contains(&**pattern));
            if keys.len() < before {
                // They would all be additional.
                map.remove("additionalProperties");
            }
        }
    });
}

/// Returns whether one of these patterns may be in the schema, or where a reference in it leads, or
/// a keyword that is always taken out.
fn has_one_of(schema: &Value, patterns: &BTreeSet<Box<str>>) -> bool {
    let is_one = |key: &String| {
        patterns.contains(&**key)
            || ["$ref", "$dynamicRef", "$recursiveRef"].contains(&key.as_str())
            || ALWAYS.contains(&key.as_str())
    };
    values_of(schema).any(|value| match value {
        Value::String(text) => patterns.contains(&**text),
        Value::Object(map) => map.keys().any(is_one),
        _ => false,
    })
}

/// Keywords with an identifier of a schema.
pub(super) const IDS: [&str; 4] = ["$id", "id", "$anchor", "$dynamicAnchor"];

/// Keywords with data, and those with names of schemas or of lists.
pub(super) const DATA: [&str; 5] = ["const", "enum", "default", "example", "examples"];
pub(super) const NAMED: [&str; 7] = [
    "properties",
    "patternProperties",
    "$defs",
    "definitions",
    "dependentSchemas",
    "dependentRequired",
    "dependencies",
];

/// Calls `edit` with the schema and all that may be one in it: not with its data, nor with lists of
/// names as if these were keywords.
fn each_schema(schema: &mut Value, mut edit: impl FnMut(&mut Map<String, Value>)) {
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

/// Returns the names of secret properties, anywhere in the schema.
pub(super) fn secrets(schema: &Value) -> BTreeSet<Box<str>> {
    let is_secret = |part: &Value| part["writeOnly"] == true || part["format"] == "password";
    // Of `Optional[SecretStr]` and of a shared definition, too.
    let is_any = |part: &Value| {
        let pointer = part["$ref"].as_str().and_then(|to| to.strip_prefix('#'));
        let referred = pointer.and_then(|to| schema.pointer(to));
        let lists = ["anyOf", "oneOf", "allOf"]
            .iter()
            .filter_map(|of| part[of].as_array());
        let mut all = [part, &part["items"]]
            .into_iter()
            .chain(referred)
            .chain(lists.flatten());
        all.any(is_secret)
    };
    let mut names = BTreeSet::new();
    for map in values_of(schema).filter_map(Value::as_object) {
        let named = map.get("properties").and_then(Value::as_object);
        let found = named.into_iter().flatten().filter(|(_, part)| is_any(part));
        names.extend(found.map(|(name, _)| name.as_str().into()));
    }
    names
}

/// Returns the keywords on a path into a schema; a name in between is `None`.
pub(super) fn keywords(path: &str) -> impl Iterator<Item = Option<&str>> {
    path.split('/').skip(1).scan(false, |is_name, part| {
        let keyword = (!*is_name).then_some(part);
        *is_name = keyword.is_some_and(|part| NAMED.contains(&part));
        Some(keyword)
    })
}
