//! The extent of values, and the size of schemas from servers that are not trusted.

use std::{borrow::Cow, collections::HashMap};

use percent_encoding::percent_decode_str;
use serde_json::{Map, Value};

use super::parts::{DATA, NAMED, keywords};
use crate::answer::json_bytes;

/// Reason why a schema is not compiled; it continues the words "the schema".
pub(super) type Reason = Cow<'static, str>;

/// Bytes of a schema as JSON: 10,000 properties take 80 ms to compile.
const MAX_BYTES: u64 = 256 << 10;

/// Levels of a schema as JSON, and of subschemas with references followed. The compiler and the
/// validator use stack for each level: 1,000 overflow 2 MiB.
const MAX_LEVELS: usize = 64;

/// Subschemas with references followed. Lists of two references, one inside the other twenty times,
/// are a million.
const MAX_SUBSCHEMAS: u64 = 10_000;

/// Bytes of the paths of all subschemas: the compiler keeps one or two for each.
const MAX_PATHS: u64 = 8 << 20;

/// Cost of a regular expression, in subschemas: an automaton of 16 KiB takes 1 us for a byte of
/// text in the worst case, a hundredth of that usually.
const PATTERN: u64 = 2_000;

/// Cost of dividing by a fraction, in subschemas.
const FRACTION: u64 = 100;

/// Cost of `uniqueItems` for an item, in subschemas: large integers collide in the validator's
/// hash, 2,000 at a time.
const UNIQUE: u64 = 400;

/// Extent of a value.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Extent {
    /// The values, and one more for each 64 bytes of text, of a key, and of a path, because
    /// validators read all of the text, and errors copy paths.
    pub(super) values: u64,
    /// The arrays and objects among them.
    pub(super) containers: u64,
    pub(super) levels: usize,
}

impl Extent {
    /// Allocates nothing. A value that is deeper than `max` levels is counted down to the next.
    pub(super) fn of(value: &Value, max: usize) -> Self {
        let mut extent = Self::default();
        extent.add(value, 1, 0, max);
        extent
    }

    fn add(&mut self, value: &Value, level: usize, path: u64, max: usize) {
        self.values += 1 + path / 64;
        self.levels = self.levels.max(level);
        match value {
            Value::String(text) => self.values += text.len() as u64 / 64,
            Value::Array(_) | Value::Object(_) if level > max => {}
            Value::Array(items) => {
                self.containers += 1;
                for item in items {
                    self.add(item, level + 1, path + 4, max);
                }
            }
            Value::Object(map) => {
                self.containers += 1;
                for (key, value) in map {
                    self.add(value, level + 1, path + 1 + key.len() as u64, max);
                }
            }
            _ => {}
        }
    }
}

/// Refuses a schema that is too deep to be walked, or too large.
pub(super) fn check(schema: &Value) -> Result<(), Reason> {
    if Extent::of(schema, MAX_LEVELS).levels > MAX_LEVELS {
        return Err(format!("is nested deeper than {MAX_LEVELS} levels").into());
    }
    match json_bytes(schema, MAX_BYTES) {
        Ok(_) => Ok(()),
        Err(_) => Err(format!("has more than {MAX_BYTES} bytes as JSON").into()),
    }
}

/// Size of a schema with its references followed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Size {
    subschemas: u64,
    /// Subschemas that look at one value, at most; a long list of options is several.
    pub(super) looks: u64,
    /// Cost of expensive keywords for one value, in subschemas.
    cost: u64,
    /// Whether items are compared with each other.
    is_set: bool,
    levels: usize,
    /// Bytes of the longest path.
    pub(super) path: u64,
}

impl Size {
    /// Size of a schema from a server that is not trusted.
    ///
    /// # Errors
    ///
    /// If the schema is too large, refers to itself, or has a reference to what it does not have.
    pub(super) fn of(schema: &Value, has_parts: bool) -> Result<Self, Reason> {
        let mut sizes = Sizes {
            root: schema,
            has_parts,
            known: HashMap::new(),
        };
        let size = sizes.of(schema, 1)?;
        if size.subschemas > MAX_SUBSCHEMAS {
            let what = "subschemas, references followed";
            return Err(format!("has more than {MAX_SUBSCHEMAS} {what}").into());
        }
        if size.levels > MAX_LEVELS {
            return Err(TOO_DEEP.into());
        }
        match size.subschemas * size.path > MAX_PATHS {
            true => Err("has too long paths to its subschemas".into()),
            false => Ok(size),
        }
    }

    /// Steps that the schema takes for a value of this extent, of about 10 ns each.
    pub(super) fn steps(&self, value: Extent) -> u64 {
        // If a server wants a set, all items may have to be compared with each other.
        let compared = match self.is_set {
            true => value.containers.saturating_mul(value.containers),
            false => 0,
        };
        let compared = compared.saturating_mul(self.cost / UNIQUE);
        let looked_at = value.values.saturating_mul(self.weight());
        looked_at.saturating_add(compared)
    }

    /// Steps that the schema takes for one small value.
    pub(super) fn weight(&self) -> u64 {
        self.looks.saturating_add(self.cost)
    }

    /// Adds a subschema that looks at the same value, or beside others at a part of it.
    fn add(&mut self, inner: Self) {
        self.looks = self.looks.saturating_add(inner.looks);
        self.cost = self.cost.saturating_add(inner.cost);
        self.note(inner);
    }

    /// Adds a subschema of which only one looks at each part of the value.
    fn add_part(&mut self, inner: Self) {
        self.looks = self.looks.max(inner.looks);
        self.cost = self.cost.max(inner.cost);
        self.note(inner);
    }

    fn note(&mut self, inner: Self) {
        self.subschemas = self.subschemas.saturating_add(inner.subschemas);
        self.is_set |= inner.is_set;
        self.levels = self.levels.max(inner.levels);
        self.path = self.path.max(inner.path);
    }
}

const TOO_DEEP: &str = "has references that are nested too deeply";

/// Keywords of which only one subschema looks at each part of a value.
const PARTS: [&str; 5] = [
    "properties",
    "additionalProperties",
    "prefixItems",
    "items",
    "additionalItems",
];

/// Keywords with schemas that only references use.
const DEFINITIONS: [&str; 2] = ["$defs", "definitions"];

/// Sizes of the subschemas of a document.
struct Sizes<'s> {
    root: &'s Value,
    /// Whether a part has an `$id` of its own, from which references in it begin.
    has_parts: bool,
    /// By address; `None` while a subschema is measured.
    known: HashMap<*const Value, Option<Size>>,
}

impl<'s> Sizes<'s> {
    fn of(&mut self, schema: &'s Value, level: usize) -> Result<Size, Reason> {
        let map = match schema {
            Value::Object(map) => map,
            Value::Bool(_) => return Ok(own(&Map::new())),
            // A name, a number or a text is none.
            _ => return Ok(Size::default()),
        };
        match self.known.get(&std::ptr::from_ref(schema)) {
            Some(Some(size)) => return Ok(*size),
            Some(None) => return Err("refers to itself".into()),
            None if level > MAX_LEVELS => return Err(TOO_DEEP.into()),
            None => self.known.insert(schema, None),
        };
        let uneven = ["$dynamicRef", "$recursiveRef"];
        if uneven.iter().any(|keyword| map.contains_key(*keyword)) {
            return Err("has a `$dynamicRef` or a `$recursiveRef`".into());
        }
        let (mut size, mut parts) = (own(map), Size::default());
        let is_used = |keyword: &str| !DATA.contains(&keyword) && !DEFINITIONS.contains(&keyword);
        for (keyword, value) in map.iter().filter(|(keyword, _)| is_used(keyword)) {
            let subschemas: Vec<(&str, &Value)> = match value {
                reference if keyword == "$ref" => vec![("", self.target(reference)?)],
                Value::Array(list) => list.iter().map(|schema| ("", schema)).collect(),
                Value::Object(named) if NAMED.contains(&keyword.as_str()) => {
                    named.iter().map(|(name, of)| (&**name, of)).collect()
                }
                schema => vec![("", schema)],
            };
            for (name, schema) in subschemas {
                let mut inner = self.of(schema, level + 1)?;
                inner.levels += 1;
                inner.path += (keyword.len() + name.len() + 6) as u64;
                match PARTS.contains(&keyword.as_str()) {
                    true => parts.add_part(inner),
                    false => size.add(inner),
                }
            }
        }
        size.add(parts);
        self.known.insert(schema, Some(size));
        Ok(size)
    }

    fn target(&self, reference: &Value) -> Result<&'s Value, Reason> {
        if self.has_parts {
            return Err("has a `$ref`, and an `$id` that is not at its root".into());
        }
        let fragment = reference.as_str().and_then(|to| to.strip_prefix('#'));
        let pointer = fragment.and_then(decoded);
        let schema = pointer
            .filter(|to| !keywords(to).flatten().any(|part| DATA.contains(&part)))
            .and_then(|to| self.root.pointer(&to));
        schema.ok_or("has a `$ref` that is not a JSON pointer to a part of it".into())
    }
}

/// Size of a schema without its subschemas.
fn own(schema: &Map<String, Value>) -> Size {
    let length = |keyword| match schema.get(keyword) {
        Some(Value::Array(list)) => list.len() as u64,
        Some(Value::Object(map)) => map.len() as u64,
        _ => 0,
    };
    let values = |keyword| {
        let value = schema.get(keyword);
        value.map_or(0, |value| Extent::of(value, MAX_LEVELS).values)
    };
    let is_fraction = schema.get("multipleOf").is_some_and(|n| !n.is_u64());
    let is_set = schema.get("uniqueItems") == Some(&Value::Bool(true));
    let patterns = length("patternProperties") + u64::from(schema.contains_key("pattern"));
    let compared = length("required") + length("properties") + values("enum") + values("const");
    // An error has a copy of what is in `not`.
    let copied = values("not") + values("dependencies") + values("dependentRequired");
    Size {
        subschemas: 1,
        looks: 1 + compared / 8 + copied,
        cost: patterns * PATTERN + FRACTION * u64::from(is_fraction) + UNIQUE * u64::from(is_set),
        is_set,
        levels: 1,
        path: 0,
    }
}

/// Returns the pointer that a fragment of a URI means, unless its escapes can be read in two ways.
fn decoded(fragment: &str) -> Option<String> {
    let pointer = percent_decode_str(fragment).decode_utf8().ok()?;
    let mut escapes = pointer.split('~').skip(1);
    let is_plain = escapes.all(|rest| rest.starts_with(['0', '1']));
    is_plain.then(|| pointer.into_owned())
}
