use std::{collections::BTreeSet, iter, sync::Arc};

use jsonschema::Validator;
use serde_json::Value;

use super::{
    errors::ValidationErrors,
    measure::{Extent, Reason, Size, check},
    parts::{Parts, options, secrets, without},
    repair,
};
use crate::{
    call::{CallExt, MAX_DEPTH as MAX_ARGUMENTS_DEPTH, ToolCall},
    config::ConfigError,
    redact::Rules,
    text::{Bounded, Short},
};

/// The longest reason for which a schema is refused, in characters.
const MAX_REASON: usize = 200;

/// The draft of a schema without `$schema`.
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
/// Every value fits `{}`, `true` and `null`, and no value fits `false`. `format` is ignored,
/// nothing is ever fetched, and a `$ref` must be to a part of the schema itself.
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
/// let errors = schema.errors(&json!({ "days": "three" }));
/// assert_eq!(
///     errors.to_string(),
///     r#"root: "city" is a required property; days: is not of type "integer""#
/// );
/// # Ok::<_, tower_toolcall::ConfigError>(())
/// ```
///
/// # Limits
///
/// A schema may come from a server that is not trusted, so [`compile`](Self::compile) measures it
/// first. It is refused, and not enforced, if:
///
/// - it has more than 256 KiB as JSON (10,000 properties take 80 ms to compile);
/// - it is nested deeper than 64 levels, as JSON or with `$ref`s followed (the compiler uses stack
///   for each);
/// - it has more than 10,000 subschemas with `$ref`s followed (short lists of references can mean
///   millions), or their paths have more than 8 MiB together;
/// - it has more than a million values, references followed, in `not` and in keywords other than
///   `properties`, `items` and the like, of which the compiler keeps copies;
/// - it refers to itself;
/// - a `$ref` is not a JSON pointer to a part of it, or stands beside an `$id` that is not at its
///   root.
///
/// Some parts are [left out](Self::omitted), and the rest is enforced: `unevaluatedItems` and
/// `unevaluatedProperties`; and a regular expression that has look-around or a back reference, more
/// than 1 KiB, or more than 16 KiB as an automaton, and all beyond the first 64 or 8 KiB of those
/// that are enforced, or of the others. Only the engine is used that reads each text once.
///
/// A large value is not looked at, and fits, if values times subschemas are more than 20 million,
/// or about 0.2 s. 64 bytes of text count as one more value. A regular expression counts as 2,000
/// subschemas, `uniqueItems` as 400 and a fractional `multipleOf` as 100; only those for the same
/// value are added up. A schema of at most 8 subschemas looks at values of any size. A value that
/// is too large only because of regular expressions is looked at by the rest of the schema, as if
/// all of them were left out.
///
/// [`compile_trusted`](Self::compile_trusted) has one limit alone: 256 levels, as JSON or with
/// `$ref`s followed.
#[derive(Clone)]
pub struct Schema(Option<Arc<Compiled>>);

struct Compiled {
    whole: Measured,
    /// The schema without its patterns, for values that are too large for these.
    plain: Option<Measured>,
    has_alternatives: bool,
    /// The keys and words of the schema: others are the caller's.
    names: BTreeSet<Box<str>>,
    omitted: BTreeSet<Box<str>>,
    /// The names of secret properties.
    secrets: BTreeSet<Box<str>>,
}

impl Schema {
    /// Compiles a schema, of draft 7 if it does not say otherwise.
    ///
    /// Takes 50 us for a small one, and less than a second for what the [limits](Self#limits) let
    /// through: do it once for each tool, not in a call.
    ///
    /// # Errors
    ///
    /// If it is not a schema, or beyond the [limits](Self#limits).
    pub fn compile(schema: &Value) -> Result<Self, ConfigError> {
        Self::compile_with(schema, Draft::Draft7)
    }

    /// Compiles a schema, of `draft` if it does not say otherwise.
    ///
    /// # Errors
    ///
    /// As of [`compile`](Self::compile).
    pub fn compile_with(schema: &Value, draft: Draft) -> Result<Self, ConfigError> {
        Self::build(schema, draft, false)
    }

    /// Compiles a schema of the program itself or of a trusted server, of at most 256 levels and
    /// otherwise without [limits](Self#limits). It may refer to itself, and have look-around and
    /// `unevaluated...`.
    ///
    /// Only patterns that the engine does not take are [left out](Self::omitted). How long it takes
    /// to compile such a schema, and to check a value, is up to its author.
    ///
    /// ```
    /// use serde_json::json;
    /// use tower_toolcall::validate::{Draft, Schema};
    ///
    /// let tree = json!({
    ///     "type": "object",
    ///     "properties": { "children": { "items": { "$ref": "#" } } }
    /// });
    /// assert!(Schema::compile(&tree).is_err());
    /// let schema = Schema::compile_trusted(&tree, Draft::default())?;
    /// assert!(!schema.is_valid(&json!({ "children": [{ "children": [1] }] })));
    /// # Ok::<_, tower_toolcall::ConfigError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If it is not a schema, or is nested deeper than 256 levels, as JSON or with references
    /// followed until they come back: the compiler uses stack for each.
    pub fn compile_trusted(schema: &Value, draft: Draft) -> Result<Self, ConfigError> {
        Self::build(schema, draft, true)
    }

    fn build(schema: &Value, draft: Draft, is_trusted: bool) -> Result<Self, ConfigError> {
        match schema {
            Value::Null | Value::Bool(true) => return Ok(Self(None)),
            Value::Object(map) if map.is_empty() => return Ok(Self(None)),
            _ => {}
        }
        let compiled = Compiled::new(schema, draft, is_trusted);
        let compiled = compiled.map_err(|reason| ConfigError::new("schema", reason))?;
        Ok(Self(Some(Arc::new(compiled))))
    }

    /// Returns whether a value fits, or is beyond the [limits](Self#limits). Allocates nothing,
    /// unless the schema has `uniqueItems` or a fractional `multipleOf`, or is trusted and refers
    /// to itself or has look-around or a back reference.
    pub fn is_valid(&self, value: &Value) -> bool {
        let part = self.0.as_ref().and_then(|all| all.part_with_error(value));
        part.is_none()
    }

    /// Returns whether the whole schema looks at this value, except for the
    /// [omitted](Self::omitted) parts. Otherwise the value is beyond the [limits](Self#limits).
    /// Costs less than [`is_valid`](Self::is_valid).
    pub fn covers(&self, value: &Value) -> bool {
        let compiled = self.0.as_ref();
        compiled.is_none_or(|compiled| compiled.whole.takes(value))
    }

    /// Returns the validation errors, none if the value is [valid](Self::is_valid).
    ///
    /// The search is bounded in time and memory. Of a large value, or a costly schema, it may find
    /// only the first error, or only that the value does not fit. If the schema is recursive,
    /// values of more than 16 levels have only that error, and more branches that recurse mean
    /// fewer levels.
    pub fn errors(&self, value: &Value) -> ValidationErrors {
        let found = self.0.as_ref().and_then(|compiled| {
            let part = compiled.part_with_error(value)?;
            Some(compiled.errors(value, part))
        });
        found.unwrap_or_default()
    }

    /// Returns the value with repaired types, and the paths to the changes. Texts become numbers,
    /// truth values, arrays or objects if the schema requires these, and arrays and objects become
    /// texts. A `null` of an optional property that may not be `null` is removed. Returns `None` if
    /// the value fits as it is, does not fit after that either, or is then beyond the
    /// [limits](Self#limits).
    ///
    /// A text is changed only if it is exactly one number, truth value, array or object, and no
    /// text is allowed in its place. One with a key twice in an object, or with a number of more
    /// digits than are kept, stays. An array or object that was a text is repaired in its turn; one
    /// that was a text within that is not.
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
        let compiled = self.0.as_ref()?;
        compiled.repaired(value, compiled.part_with_error(value)?)
    }

    /// Hides the arguments that the schema calls secrets (`writeOnly`, `format: password`) in all
    /// that is shown of the call from here on: see [`ToolCall::with_secrets`].
    pub fn hide_secrets(&self, call: &mut ToolCall) {
        if let Some(secrets) = self.0.as_ref().map(|compiled| &compiled.secrets)
            && !secrets.is_empty()
        {
            let is_secret = |name: &str| secrets.contains(name);
            let rules = Rules::new().with_secrets_under(call.arguments(), is_secret);
            call.hide_secrets_of(&rules);
        }
    }

    /// Returns the regular expressions that are not enforced, because they are beyond the
    /// [limits](Self#limits) or no engine takes them, and `unevaluatedItems` and
    /// `unevaluatedProperties` if they are not.
    ///
    /// If there are some, the rest of the schema is enforced, but for `not`, `if`, `then`, `else`,
    /// `oneOf` (as `anyOf`), `unevaluated...` and `maxContains`.
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

/// Steps for a value, of about 10 ns each: no call takes longer than a fifth of a second, ten times
/// that if each of its texts is the worst case of a regular expression.
const MAX_STEPS: u64 = 20_000_000;

/// Steps for finding all that is wrong: each may be an error, of 300 bytes.
const MAX_STEPS_TO_ALL: u64 = 100_000;

/// A schema of at most this weight looks at any number of values: counting them costs as much.
const LIGHT: u64 = 8;

impl Compiled {
    fn new(schema: &Value, draft: Draft, is_trusted: bool) -> Result<Self, Reason> {
        check(schema, is_trusted)?;
        let said = schema.get("$schema").and_then(Value::as_str);
        let dialect = said.unwrap_or(match draft {
            Draft::Draft7 => "http://json-schema.org/draft-07/schema#",
            Draft::Draft202012 => "https://json-schema.org/draft/2020-12/schema",
        });
        let mut copy = schema.clone();
        let parts = Parts::of(&mut copy, is_trusted, dialect);
        let omitted = parts.omitted(is_trusted, dialect);
        if !omitted.is_empty() {
            without(&mut copy, &omitted);
        }
        if let Value::Object(map) = &mut copy {
            map.entry("$schema").or_insert(dialect.into());
        }
        let whole = Measured::new(&copy, parts.has_ids, is_trusted)?;
        let plain = (!is_trusted && !parts.patterns.is_subset(&omitted)).then(|| {
            without(&mut copy, &parts.patterns);
            Measured::new(&copy, parts.has_ids, is_trusted).ok()
        });
        Ok(Self {
            whole,
            plain: plain.flatten(),
            has_alternatives: parts.has_alternatives,
            names: parts.names,
            omitted,
            secrets: secrets(schema),
        })
    }

    /// Returns the part of the schema that the value does not fit: all of it, unless the value is
    /// too large for that.
    #[inline]
    fn part_with_error(&self, value: &Value) -> Option<&Measured> {
        let mut parts = iter::once(&self.whole).chain(&self.plain);
        let part = parts.find(|part| part.takes(value))?;
        (!part.validator.is_valid(value)).then_some(part)
    }

    fn errors(&self, value: &Value, part: &Measured) -> ValidationErrors {
        let knows = |name: &str| self.names.contains(name);
        match part.takes_to_all(value) {
            true => ValidationErrors::of(value, part.validator.iter_errors(value), knows),
            // The first of a schema that refers to itself may be as far to find.
            false if self.has_alternatives || part.size.is_none() => ValidationErrors::unknown(),
            false => ValidationErrors::of(value, part.validator.validate(value).err(), knows),
        }
    }

    fn repaired(&self, value: &Value, part: &Measured) -> Option<(Value, Vec<String>)> {
        // No less of the schema looks at it than did before.
        let fits = |value: &Value| part.takes(value) && self.part_with_error(value).is_none();
        let (mut repaired, mut paths) = self.changed(value, part)?;
        if !fits(&repaired) {
            // What was a text has a `null` or a text in it.
            let (again, more) = self.changed(&repaired, part)?;
            paths.extend(more);
            repaired = again;
        }
        fits(&repaired).then_some((repaired, paths))
    }

    fn changed(&self, value: &Value, part: &Measured) -> Option<(Value, Vec<String>)> {
        if !part.takes_to_all(value) {
            return None;
        }
        let knows = |name: &str| self.names.contains(name);
        repair::repair(value, part.validator.iter_errors(value), knows)
    }
}

/// A validator, and how large its schema is.
struct Measured {
    validator: Validator,
    is_trusted: bool,
    /// `None`, only of a trusted schema: it is beyond the limits of others, or refers to itself.
    size: Option<Size>,
    /// Sizes for values of one level, of two, and so on, if the schema has no other size.
    by_levels: Vec<Size>,
}

impl Measured {
    fn new(schema: &Value, has_ids: bool, is_trusted: bool) -> Result<Self, Reason> {
        let size = Size::of(schema, has_ids, is_trusted)?;
        let by_levels = match size {
            Some(_) => Vec::new(),
            None => Size::by_levels(schema, has_ids, MAX_STEPS_TO_ALL),
        };
        let validator = options(is_trusted).build(schema).map_err(|error| {
            let why = Bounded::print(4 * MAX_REASON, &error.masked_with("it"));
            Reason::from(format!("is not one: {}", Short::new(&why, MAX_REASON)))
        })?;
        Ok(Self {
            validator,
            is_trusted,
            size,
            by_levels,
        })
    }

    /// Returns whether the value is small enough to be looked at.
    #[inline]
    fn takes(&self, value: &Value) -> bool {
        let is_light = self.size.is_some_and(|size| size.weight() <= LIGHT);
        is_light || self.reaches(value)
    }

    #[inline(never)]
    fn reaches(&self, value: &Value) -> bool {
        let extent = Extent::of(value, MAX_ARGUMENTS_DEPTH);
        let is_small = |size: Size| size.steps(extent) <= MAX_STEPS;
        extent.levels <= MAX_ARGUMENTS_DEPTH && (self.is_trusted || self.size.is_none_or(is_small))
    }

    /// Returns whether all errors can be collected: each may have a copy of the value at each
    /// level, and has its path in the schema.
    fn takes_to_all(&self, value: &Value) -> bool {
        let Extent { values, levels, .. } = Extent::of(value, MAX_ARGUMENTS_DEPTH);
        let by_levels = || self.by_levels.get(levels - 1).copied();
        let Some(size) = self.size.or_else(by_levels) else {
            return false;
        };
        let copies = (levels as u64).saturating_mul(1 + size.path / 256);
        let errors = values.saturating_mul(size.looks.saturating_add(size.names));
        errors.saturating_mul(copies) <= MAX_STEPS_TO_ALL
    }
}
