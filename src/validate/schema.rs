use std::{collections::BTreeSet, sync::Arc};

use jsonschema::Validator;
use serde_json::Value;

use super::{
    graph::{Cost, Graph, Recursion},
    limits::{
        Extent, LIGHT, MAX_BYTES, MAX_BYTES_TO_ALL, MAX_DEPTH, MAX_LEVELS_TO_MISFIT, MAX_PATHS,
        MAX_RECURSION, MAX_STEPS, MAX_STEPS_TO_ALL, MAX_STEPS_TO_ONE, Reason, UNIQUE,
        has_text_up_to,
    },
    misfits::Misfits,
    patterns::{Engine, engine_for, without},
    repair,
};
use crate::{
    answer::json_bytes,
    call::MAX_DEPTH as MAX_ARGUMENTS_DEPTH,
    config::ConfigError,
    text::{Bounded, Short},
};

/// The most that is said of why a schema is no schema, in characters.
const MAX_REASON: usize = 200;

/// What a schema is read as that does not say so itself, by `$schema`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Draft {
    /// Draft 7. The default.
    #[default]
    Draft7,
    /// Draft 2020-12, the default of MCP.
    Draft202012,
}

/// A JSON Schema, compiled. Clones share it.
///
/// `{}`, `true` and `null` are the schemas that everything fits, and `false` is the one that nothing does. `format` is not looked at, nothing is
/// ever fetched, and a `$ref` must be to a part of the schema itself.
///
/// ```
/// use serde_json::json;
/// use tower_toolcall::validate::Schema;
///
/// let schema = Schema::compile(&json!({
///     "type": "object",
///     "properties": {
///         "city": { "type": "string" },
///         "days": { "type": "integer", "maximum": 14 }
///     },
///     "required": ["city"],
/// }))?;
///
/// assert!(schema.is_valid(&json!({ "city": "Oslo", "days": 3 })));
/// let misfits = schema.misfits(&json!({ "days": "three" }));
/// assert_eq!(
///     misfits.to_string(),
///     r#"root: "city" is a required property; days: is not of type "integer""#
/// );
/// # Ok::<_, tower_toolcall::ConfigError>(())
/// ```
///
/// # Limits
///
/// A schema may come from a stranger, so it is measured before it is compiled. It is refused if:
///
/// - it has more than 256 KiB as JSON, 64 levels, or 64 different regular expressions;
/// - more than 10,000 subschemas look at one value, `$ref`s followed;
/// - references are nested more than 256 deep, or it refers to itself for the same value, or inside several `unevaluatedProperties` or
///   `unevaluatedItems`;
/// - a `$ref` is no JSON pointer or anchor in it, or stands beside an `$id` that is not at its root;
/// - a `$ref`, an anchor or an `$id` has more than 1 KiB.
///
/// Regular expressions look at values with little text: 8 to 512 KiB in texts and keys together, by the size of the largest expression; 2 KiB or
/// less if one has look-around or back references; less, if several look at one text. A value with more is checked by the rest of the schema: without expressions,
/// `maxContains` and `unevaluated...`, without `not` and `if` that have an expression or a reference in them, and with such a `oneOf` as `anyOf`; not at
/// all, if a reference leads into one of those. In the same way an expression is [left out](Self::omitted) for all values if it has more than
/// 1 KiB, or all before it have 8 KiB; if it has a control letter, `\cA`; if it is larger than 256 KiB when it is compiled, or a part of it larger
/// than 8 KiB where one has look-around or back references; or if no engine takes it. One with look-around or back references goes back 10,000 times at
/// most: then the value does not fit.
///
/// A value that is too large for a costly schema is not looked at, and fits: values times subschemas, and the square of arrays and objects if there is
/// `uniqueItems`, are at most 20 million, if more than 8 subschemas look at one value or the schema refers to itself. 64 bytes of text are a value more,
/// and an expression with look-around or back references is 256,000 subschemas: about 78 values are looked at with it, more by the rest of the schema.
#[derive(Clone)]
pub struct Schema(Option<Arc<Compiled>>);

struct Compiled {
    whole: Part,
    /// The schema without patterns, for values with much text.
    rest: Option<Part>,
    /// The names for properties in the schema: others are the caller's.
    names: BTreeSet<Box<str>>,
    omitted: Vec<Box<str>>,
    /// Bytes of text that its patterns look at.
    most_text: u64,
}

/// A schema, or what is left of it, compiled.
struct Part {
    validator: Validator,
    cost: Cost,
    /// The bytes of the longest path in it.
    longest: u64,
}

impl Schema {
    /// Compiles a schema, of draft 7 if it does not say otherwise.
    ///
    /// Takes 50 us for a small one, and less than a second for what the [limits](Self#limits) let through: do it once for each tool, not in
    /// a call.
    ///
    /// # Errors
    ///
    /// If it is no schema, or beyond the [limits](Self#limits).
    pub fn compile(schema: &Value) -> Result<Self, ConfigError> {
        Self::compile_with(schema, Draft::Draft7)
    }

    /// The same of a schema that is of `draft` if it does not say otherwise.
    ///
    /// # Errors
    ///
    /// As of [`compile`](Self::compile).
    pub fn compile_with(schema: &Value, draft: Draft) -> Result<Self, ConfigError> {
        let is_empty = match schema {
            Value::Null | Value::Bool(true) => true,
            Value::Object(map) => map.is_empty(),
            _ => false,
        };
        if is_empty {
            return Ok(Self(None));
        }
        let compiled = Compiled::new(schema, draft);
        compiled
            .map(|compiled| Self(Some(Arc::new(compiled))))
            .map_err(|reason| ConfigError::new("schema", reason))
    }

    /// Whether a value fits. Allocates nothing, if the schema does not refer to itself and has no `uniqueItems`, no fractional `multipleOf`,
    /// no look-around and no back reference.
    pub fn is_valid(&self, value: &Value) -> bool {
        self.0.as_ref().is_none_or(|compiled| compiled.fits(value))
    }

    /// Whether the whole schema looks at this value, but for what is [left out](Self::omitted). Otherwise the value is beyond the
    /// [limits](Self#limits): only a part of the schema looks at it, or nothing does. As costly as [`is_valid`](Self::is_valid), or less.
    pub fn covers(&self, value: &Value) -> bool {
        let compiled = self.0.as_ref();
        compiled.is_none_or(|compiled| compiled.covers(value))
    }

    /// What does not fit: none if the value is [valid](Self::is_valid).
    ///
    /// Of a large value, or a costly schema, it may be the first misfit alone, or only that the value does not fit: what is
    /// searched is bounded in time and memory. So it is with values of more than 8 levels, if the schema refers to itself.
    pub fn misfits(&self, value: &Value) -> Misfits {
        match self.is_valid(value) {
            true => Misfits::default(),
            false => self.misfits_of_wrong(value),
        }
    }

    /// The same of a value that is known not to be valid.
    pub(super) fn misfits_of_wrong(&self, value: &Value) -> Misfits {
        let compiled = self.0.as_ref();
        compiled.map_or_else(Misfits::default, |compiled| compiled.misfits(value))
    }

    /// The value with texts made numbers, truth values, arrays and objects where the schema wants these, arrays and objects made
    /// texts, and without each `null` of a property that may be missing and may not be `null`; and the paths to what was changed. `None` if the value fits as it is, or does not fit after that either, or if less of the
    /// schema looks at it then, by the [limits](Self#limits).
    ///
    /// A text is changed only if it is exactly one number, truth value, array or object, and no text is allowed in its place. One with a key
    /// twice in an object, or with a number of more digits than are kept, stays.
    ///
    /// ```
    /// use serde_json::json;
    /// use tower_toolcall::validate::Schema;
    ///
    /// let schema = Schema::compile(&json!({
    ///     "properties": {
    ///         "limit": { "type": "integer" },
    ///         "tags": { "type": "array" },
    ///         "zip": { "type": "string" }
    ///     },
    /// }))?;
    /// let (repaired, paths) =
    ///     schema.repaired(&json!({ "limit": "5", "tags": "[\"a\"]", "zip": "00713" })).unwrap();
    /// assert_eq!(repaired, json!({ "limit": 5, "tags": ["a"], "zip": "00713" }));
    /// assert_eq!(paths, ["limit", "tags"]);
    ///
    /// assert!(schema.repaired(&json!({ "limit": "five" })).is_none());
    /// # Ok::<_, tower_toolcall::ConfigError>(())
    /// ```
    pub fn repaired(&self, value: &Value) -> Option<(Value, Vec<String>)> {
        match self.is_valid(value) {
            true => None,
            false => self.repaired_wrong(value),
        }
    }

    /// The same of a value that is known not to be valid.
    pub(super) fn repaired_wrong(&self, value: &Value) -> Option<(Value, Vec<String>)> {
        self.0.as_ref()?.repaired(value)
    }

    /// The regular expressions that are not looked at: they are too long, or too large when they are compiled, or no engine takes them. The rest of the
    /// schema is looked at, but for `not`, `if`, `then`, `else` and `oneOf` (as `anyOf`) with such an expression or a reference in them, and for
    /// `unevaluated...` and `maxContains`.
    pub fn omitted(&self) -> impl Iterator<Item = &str> {
        let compiled = self.0.as_deref();
        compiled
            .into_iter()
            .flat_map(|c| c.omitted.iter().map(|p| &**p))
    }
}

crate::text::debug_fields! {
    {} |this| Schema { anything: this.0.is_none(), omitted: this.omitted().count(), .. }
}

/// How much of a value is searched for misfits.
#[derive(Clone, Copy, PartialEq)]
enum Search {
    All,
    /// Up to the first.
    One,
    Nothing,
}

impl Compiled {
    fn new(schema: &Value, draft: Draft) -> Result<Self, Reason> {
        let extent = Extent::of(schema, MAX_DEPTH);
        if extent.levels > MAX_DEPTH {
            return Err(format!("is nested deeper than {MAX_DEPTH} levels").into());
        }
        if extent.paths > MAX_PATHS {
            return Err("has too long paths to its subschemas".into());
        }
        if json_bytes(schema, MAX_BYTES).is_err() {
            return Err(format!("has more than {MAX_BYTES} bytes as JSON").into());
        }
        let graph = Graph::new(schema)?;
        let dialect = schema.get("$schema").and_then(Value::as_str);
        let dialect = dialect.unwrap_or(match draft {
            Draft::Draft7 => "http://json-schema.org/draft-07/schema#",
            Draft::Draft202012 => "https://json-schema.org/draft/2020-12/schema",
        });
        let (engine, omitted) = engine_for(&graph.patterns, dialect);
        let cost = graph.cost(engine)?;
        let mut options = engine.options();
        if schema.get("$schema").is_none() {
            options = options.with_draft(match draft {
                Draft::Draft7 => jsonschema::Draft::Draft7,
                Draft::Draft202012 => jsonschema::Draft::Draft202012,
            });
        }
        let build = |schema: &Value| {
            options.build(schema).map_err(|error| {
                let why = Bounded::print(4 * MAX_REASON, &error.masked_with("it"));
                Reason::from(format!("is not one: {}", Short::new(&why, MAX_REASON)))
            })
        };
        let validator = match omitted.is_empty() {
            true => build(schema)?,
            false => build(&without(schema, &omitted))?,
        };
        let part = |validator, cost| Part {
            validator,
            cost,
            longest: extent.longest,
        };
        let patterns = &graph.patterns - &omitted;
        let most_text = engine.most_text(&patterns, cost.patterns, dialect);
        let rest = || {
            let rest = without(schema, &graph.patterns);
            let graph = Graph::new(&rest).ok()?;
            // A reference may lead to where nobody expects a schema.
            graph.patterns.is_empty().then_some(())?;
            let cost = graph.cost(Engine::Linear).ok()?;
            let validator = build(&rest).ok()?;
            Some(part(validator, cost))
        };
        let owned = |names: BTreeSet<&str>| names.into_iter().map(Into::into).collect();
        Ok(Self {
            whole: part(validator, cost),
            rest: (most_text < u64::MAX).then(rest).flatten(),
            names: graph.names.iter().map(|name| (*name).into()).collect(),
            omitted: owned(omitted),
            most_text,
        })
    }

    fn knows(&self, name: &str) -> bool {
        self.names.contains(name)
    }

    fn fits(&self, value: &Value) -> bool {
        let part = self.part_for(value);
        part.is_none_or(|part| part.validator.is_valid(value))
    }

    fn covers(&self, value: &Value) -> bool {
        let part = self.part_for(value);
        part.is_some_and(|part| std::ptr::eq(part, &self.whole))
    }

    /// What looks at the value, if it is not too large.
    #[inline]
    fn part_for(&self, value: &Value) -> Option<&Part> {
        let any_text = self.most_text == u64::MAX;
        let whole = any_text || has_text_up_to(value, self.most_text);
        let parts = [whole.then_some(&self.whole), self.rest.as_ref()];
        parts.into_iter().flatten().find(|part| part.takes(value))
    }

    #[cold]
    fn misfits(&self, value: &Value) -> Misfits {
        let knows = |name: &str| self.knows(name);
        let Some(part) = self.part_for(value) else {
            return Misfits::unknown();
        };
        match part.search(value) {
            Search::All => Misfits::of(value, part.validator.iter_errors(value), knows),
            Search::One => Misfits::of(value, part.validator.validate(value).err(), knows),
            Search::Nothing => Misfits::unknown(),
        }
    }

    #[cold]
    fn repaired(&self, value: &Value) -> Option<(Value, Vec<String>)> {
        let part = self.part_for(value)?;
        let errors = match part.search(value) {
            Search::All => part.validator.iter_errors(value),
            Search::One | Search::Nothing => return None,
        };
        let (repaired, paths) = repair::repair(value, errors, |name| self.knows(name))?;
        // Another part may ask for less; the whole does not.
        let judge = self.part_for(&repaired)?;
        let is_no_less = std::ptr::eq(judge, part) || std::ptr::eq(judge, &self.whole);
        (is_no_less && judge.validator.is_valid(&repaired)).then_some((repaired, paths))
    }
}

impl Part {
    /// Whether the value is small enough to be looked at.
    #[inline]
    fn takes(&self, value: &Value) -> bool {
        let light = self.cost.weight <= LIGHT && self.cost.recursion.is_none();
        light || self.reaches(value)
    }

    #[inline(never)]
    fn reaches(&self, value: &Value) -> bool {
        let extent = Extent::of(value, MAX_ARGUMENTS_DEPTH);
        let Cost {
            weight,
            runs,
            recursion,
            ..
        } = self.cost;
        // Those of a list are all compared with each other if the schema asks for that.
        let compared = match self.cost.compares_items {
            true => extent.containers.saturating_mul(extent.containers),
            false => 0,
        };
        let looked_at = extent.values.saturating_mul(weight);
        let compared = compared.saturating_mul((weight / UNIQUE).max(1));
        let steps = looked_at.saturating_add(compared).saturating_mul(runs);
        extent.levels <= MAX_ARGUMENTS_DEPTH
            && steps <= MAX_STEPS
            && recursion.is_none_or(|r| extent.levels * r.chain <= MAX_RECURSION)
    }

    fn search(&self, value: &Value) -> Search {
        let Extent {
            values,
            levels,
            longest,
            ..
        } = Extent::of(value, MAX_ARGUMENTS_DEPTH);
        if !self.reaches(value) {
            return Search::Nothing;
        }
        // The errors of a recursive schema are looked for in each level as often as it is asked in the one above.
        let times = match self.cost.recursion {
            Some(_) if levels > MAX_LEVELS_TO_MISFIT => return Search::Nothing,
            Some(Recursion { fan, .. }) => {
                (1..levels).fold(1, |all: u64, _| all.saturating_mul(fan))
            }
            None => 1,
        };
        let steps = times.saturating_mul(self.cost.weight);
        if let Ok(bytes) = json_bytes(value, MAX_BYTES_TO_ALL) {
            // An error may be a copy of the value, at each level, and of a part of the schema; it has its path in both.
            let copied = (self.cost.copied + longest + self.longest) / 256;
            let parts = (values + bytes / 64) * levels as u64 * (1 + copied);
            if steps.saturating_mul(parts) <= MAX_STEPS_TO_ALL {
                return Search::All;
            }
        }
        match !self.cost.has_alternatives && steps.saturating_mul(values) <= MAX_STEPS_TO_ONE {
            true => Search::One,
            false => Search::Nothing,
        }
    }
}
