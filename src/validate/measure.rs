//! The extent of values, and the size of schemas from servers that are not trusted.

use std::{borrow::Cow, collections::HashMap};

use percent_encoding::percent_decode_str;
use serde_json::{Map, Value};

use super::parts::{DATA, IDS, NAMED, keywords};
use crate::answer::{json_bytes, values_of};

/// Reason why a schema is not compiled; it continues the words "the schema".
pub(super) type Reason = Cow<'static, str>;

/// Bytes of a schema as JSON: 10,000 properties take 80 ms to compile.
const MAX_BYTES: u64 = 256 << 10;

/// Levels of a schema as JSON, and of subschemas with references followed. The compiler and the
/// validator use stack for each level: 1,000 overflow 2 MiB.
const MAX_LEVELS: usize = 64;

/// The most levels of a schema from a trusted server, with each recursion followed once.
const MAX_TRUSTED_LEVELS: usize = 256;

/// Levels of a value for which a schema that refers to itself is measured.
const MAX_UNROLLED: usize = 16;

/// Values in all subschemas, with references followed: those of which the compiler keeps copies
/// are at most 64 MiB.
const MAX_KEPT: u64 = 1 << 20;

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

fn max_levels(is_trusted: bool) -> usize {
    match is_trusted {
        true => MAX_TRUSTED_LEVELS,
        false => MAX_LEVELS,
    }
}

/// Refuses a schema that is too deep to be walked, or too large.
pub(super) fn check(schema: &Value, is_trusted: bool) -> Result<(), Reason> {
    let max = max_levels(is_trusted);
    if Extent::of(schema, max).levels > max {
        return Err(format!("is nested deeper than {max} levels").into());
    }
    match is_trusted || json_bytes(schema, MAX_BYTES).is_ok() {
        true => Ok(()),
        false => Err(format!("has more than {MAX_BYTES} bytes as JSON").into()),
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
    /// Items are compared with each other.
    is_set: bool,
    levels: usize,
    /// Bytes of the longest path.
    pub(super) path: u64,
    /// Names of `required`, each of which may be an error, for one value.
    pub(super) names: u64,
    /// Values in all subschemas, of which the compiler keeps some.
    kept: u64,
}

impl Size {
    /// Size of a schema. `None`, only of a trusted one: it is beyond the limits.
    ///
    /// # Errors
    ///
    /// If the schema is too deep; and unless it is trusted if it is too large, refers to itself, or
    /// has a reference to a part that it does not have.
    pub(super) fn of(
        schema: &Value,
        has_parts: bool,
        is_trusted: bool,
    ) -> Result<Option<Self>, Reason> {
        let mut sizes = Sizes::new(schema, has_parts, is_trusted);
        let size = sizes.of(schema, 1, None)?;
        if is_trusted {
            let is_known = !sizes.is_beyond && size.check().is_ok();
            return Ok(is_known.then_some(size));
        }
        size.check().map(|()| Some(size))
    }

    /// Sizes of a schema that may refer to itself, for values of one level, of two, and so on, as
    /// far as it looks at each value with at most `looks` subschemas.
    pub(super) fn by_levels(schema: &Value, has_parts: bool, looks: u64) -> Vec<Self> {
        let mut sizes = Sizes::new(schema, has_parts, false);
        let sizes = (1..=MAX_UNROLLED).map_while(|levels| sizes.of(schema, 1, Some(levels)).ok());
        sizes.take_while(|size| size.looks <= looks).collect()
    }

    fn check(&self) -> Result<(), Reason> {
        if self.subschemas > MAX_SUBSCHEMAS {
            let what = "subschemas, references followed";
            return Err(format!("has more than {MAX_SUBSCHEMAS} {what}").into());
        }
        if self.levels > MAX_LEVELS {
            return Err(TOO_DEEP.into());
        }
        if self.kept > MAX_KEPT {
            let what = "values to keep, references followed";
            return Err(format!("has more than {MAX_KEPT} {what}").into());
        }
        match self.subschemas * self.path > MAX_PATHS {
            true => Err("has too long paths to its subschemas".into()),
            false => Ok(()),
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

    /// Adds a subschema that looks at the same value, or beside others at a part of it; or one of
    /// which only one looks at each part of the value.
    fn add(&mut self, inner: Self, is_part: bool) {
        let join = if is_part {
            u64::max
        } else {
            u64::saturating_add
        };
        self.looks = join(self.looks, inner.looks);
        self.cost = join(self.cost, inner.cost);
        self.names = join(self.names, inner.names);
        self.subschemas = self.subschemas.saturating_add(inner.subschemas);
        self.kept = self.kept.saturating_add(inner.kept);
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

/// Keywords of which several subschemas look at one part of a value.
const DEEPER: [&str; 2] = ["patternProperties", "contains"];

/// Keywords with a reference.
const REFERENCES: [&str; 3] = ["$ref", "$dynamicRef", "$recursiveRef"];

/// Keywords with schemas that only references use.
const DEFINITIONS: [&str; 2] = ["$defs", "definitions"];

/// Sizes of the subschemas of a document.
struct Sizes<'s> {
    root: &'s Value,
    /// A part has its own `$id`, from which references in it begin.
    has_parts: bool,
    is_trusted: bool,
    /// A trusted schema is beyond the limits.
    is_beyond: bool,
    /// Schemas of a trusted server by identifier, when a reference needs them.
    named: Option<HashMap<&'s str, &'s Value>>,
    /// By address and levels; `None` while a subschema is measured.
    known: HashMap<(*const Value, Option<usize>), Option<Size>>,
}

impl<'s> Sizes<'s> {
    fn new(root: &'s Value, has_parts: bool, is_trusted: bool) -> Self {
        Self {
            root,
            has_parts,
            is_trusted,
            is_beyond: false,
            named: None,
            known: HashMap::new(),
        }
    }

    /// `levels` are those of the values that the schema looks at, if only these are followed.
    fn of(
        &mut self,
        schema: &'s Value,
        level: usize,
        levels: Option<usize>,
    ) -> Result<Size, Reason> {
        let map = match schema {
            Value::Object(map) if levels != Some(0) => map,
            Value::Bool(_) => return Ok(own(&Map::new())),
            // A name, a number or a text is none.
            _ => return Ok(Size::default()),
        };
        let key = (std::ptr::from_ref(schema), levels);
        match self.known.get(&key) {
            Some(Some(size)) => return Ok(*size),
            Some(None) => return self.refuse("refers to itself").map(|()| Size::default()),
            None if level > max_levels(self.is_trusted) => return Err(TOO_DEEP.into()),
            None => self.known.insert(key, None),
        };
        if REFERENCES[1..]
            .iter()
            .any(|keyword| map.contains_key(*keyword))
        {
            self.refuse("has a `$dynamicRef` or a `$recursiveRef`")?;
        }
        let (mut size, mut parts) = (own(map), Size::default());
        let is_used = |keyword: &str| !DATA.contains(&keyword) && !DEFINITIONS.contains(&keyword);
        for (keyword, value) in map.iter().filter(|(keyword, _)| is_used(keyword)) {
            let subschemas: Vec<(&str, &Value)> = match value {
                reference if REFERENCES.contains(&keyword.as_str()) => self
                    .target(reference)?
                    .map_or_else(Vec::new, |target| vec![("", target)]),
                Value::Array(list) => list.iter().map(|schema| ("", schema)).collect(),
                Value::Object(named) if NAMED.contains(&keyword.as_str()) => {
                    named.iter().map(|(name, of)| (&**name, of)).collect()
                }
                schema => vec![("", schema)],
            };
            let is_part = PARTS.contains(&keyword.as_str());
            let is_deeper = is_part || DEEPER.contains(&keyword.as_str());
            let levels = levels.map(|levels| levels - usize::from(is_deeper));
            for (name, schema) in subschemas {
                let mut inner = self.of(schema, level + 1, levels)?;
                inner.levels += 1;
                inner.path += (keyword.len() + name.len() + 6) as u64;
                match is_part {
                    true => parts.add(inner, true),
                    false => size.add(inner, false),
                }
            }
        }
        size.add(parts, false);
        self.known.insert(key, Some(size));
        Ok(size)
    }

    /// Refuses a schema, unless it is trusted: then it is beyond the limits.
    fn refuse(&mut self, reason: &'static str) -> Result<(), Reason> {
        self.is_beyond = true;
        match self.is_trusted {
            true => Ok(()),
            false => Err(reason.into()),
        }
    }

    fn target(&mut self, reference: &Value) -> Result<Option<&'s Value>, Reason> {
        if self.has_parts {
            self.refuse("has a `$ref`, and an `$id` that is not at its root")?;
        }
        let to = reference.as_str().unwrap_or_default();
        let pointer = to.strip_prefix('#').and_then(decoded);
        let schema = pointer
            .filter(|to| !keywords(to).flatten().any(|part| DATA.contains(&part)))
            .and_then(|to| self.root.pointer(&to));
        if schema.is_some() {
            return Ok(schema);
        }
        self.refuse("has a `$ref` that is not a JSON pointer to a part of it")?;
        let root = self.root;
        let named = self.named.get_or_insert_with(|| named(root));
        Ok(named.get(to.trim_start_matches('#')).copied())
    }
}

/// Returns all that may be a schema, by identifier.
fn named(root: &Value) -> HashMap<&str, &Value> {
    let mut named = HashMap::new();
    for value in values_of(root) {
        for (key, inner) in value.as_object().into_iter().flatten() {
            if let (true, Some(name)) = (IDS.contains(&key.as_str()), inner.as_str()) {
                named.insert(name.trim_start_matches('#'), value);
            }
        }
    }
    named
}

/// Size of a schema without its subschemas.
fn own(schema: &Map<String, Value>) -> Size {
    let length = |keyword| match schema.get(keyword) {
        Some(Value::Array(list)) => list.len() as u64,
        Some(Value::Object(map)) => map.len() as u64,
        _ => 0,
    };
    let values = |keyword: &str| {
        let value = schema.get(keyword);
        value.map_or(0, |value| Extent::of(value, MAX_LEVELS).values)
    };
    let is_fraction = schema.get("multipleOf").is_some_and(|n| !n.is_u64());
    let is_set = schema.get("uniqueItems") == Some(&Value::Bool(true));
    let patterns = length("patternProperties") + u64::from(schema.contains_key("pattern"));
    let compared = length("required") + length("properties") + values("enum") + values("const");
    // An error copies the contents of `not`.
    let copied = values("not") + values("dependencies") + values("dependentRequired");
    Size {
        subschemas: 1,
        looks: 1 + compared / 8 + copied,
        cost: patterns * PATTERN + FRACTION * u64::from(is_fraction) + UNIQUE * u64::from(is_set),
        is_set,
        levels: 1,
        path: 0,
        names: length("required"),
        kept: schema.keys().map(|keyword| values(keyword)).sum(),
    }
}

/// Returns the pointer that a fragment of a URI means, unless its escapes can be read in two ways.
fn decoded(fragment: &str) -> Option<String> {
    let pointer = percent_decode_str(fragment).decode_utf8().ok()?;
    let mut escapes = pointer.split('~').skip(1);
    let is_plain = escapes.all(|rest| rest.starts_with(['0', '1']));
    is_plain.then(|| pointer.into_owned())
}
