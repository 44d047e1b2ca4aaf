use std::{fmt, slice};

use jsonschema::{
    ValidationError,
    error::{TypeKind, ValidationErrorKind as Kind},
};
use serde::{Serialize, Serializer, ser::SerializeStruct as _};
use serde_json::Value;

use super::{path::Path, patterns::NAMED};
use crate::{error::ToolError, text::Short};

/// How many misfits are told.
const MAX_MISFITS: usize = 5;

/// The longest word of a schema that is shown, in characters.
const MAX_WORD: usize = 64;

/// How many of several words are shown, if there are more than [`MAX_WORDS`].
const SHOWN: usize = 2;
const MAX_WORDS: usize = 3;

/// Why a value does not fit a schema: five reasons at the most, in the order in which it is looked at. `Display` joins them: `limit: is not of type
/// "integer"; filters.0.op: is not one of "eq", "ne" or 2 others`.
///
/// There is no value in it, and no key that the schema does not name: such a key is `*`. What is shown is the schema's, redacted
/// and cut.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Misfits {
    list: Vec<Misfit>,
    #[serde(skip)]
    more: bool,
}

/// Why one part of a value does not fit. Serialised as `{ "path", "keyword", "message" }`.
#[derive(Clone, PartialEq, Eq)]
pub struct Misfit {
    path: String,
    keyword: &'static str,
    message: String,
}

impl Misfits {
    pub(super) fn of<'e>(
        value: &Value,
        errors: impl IntoIterator<Item = ValidationError<'e>>,
        knows: impl Fn(&str) -> bool,
    ) -> Self {
        let mut found = Self::default();
        for error in errors {
            for cause in causes(&error).unwrap_or_else(|| vec![&error]) {
                if found.list.len() == MAX_MISFITS {
                    found.more = true;
                    return found;
                }
                found.list.push(Misfit::of(value, cause, &knows));
            }
        }
        found
    }

    /// Of a value that was not searched.
    pub(super) fn unknown() -> Self {
        Self::of_root("does not fit the schema")
    }

    /// Of a value that the schema does not cover.
    pub(super) fn too_large() -> Self {
        Self::of_root("is too large to be checked")
    }

    fn of_root(message: &str) -> Self {
        let misfit = Misfit {
            path: Path::ROOT.to_owned(),
            keyword: "schema",
            message: message.to_owned(),
        };
        Self {
            list: vec![misfit],
            more: false,
        }
    }

    /// The number of misfits that are told.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether the value fits.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Whether there are others.
    pub fn has_more(&self) -> bool {
        self.more
    }

    /// The error of arguments that do not fit.
    pub(crate) fn refusal(&self, heading: Option<&str>) -> ToolError {
        let heading = match (heading, self.has_more()) {
            (Some(heading), _) => format!("{heading}: "),
            // The name of the argument comes first: a log may cut the rest.
            (None, false) => String::new(),
            (None, true) => format!("in more than {} ways: ", self.len()),
        };
        let reasons: Vec<String> = self.iter().map(Misfit::to_string).collect();
        let errors = serde_json::to_value(self).unwrap_or_default();
        ToolError::bad_arguments(&heading, &reasons).with_detail("errors", errors)
    }

    /// The misfits, in the order in which the schema looks at the value.
    pub fn iter(&self) -> slice::Iter<'_, Misfit> {
        self.list.iter()
    }
}

impl<'a> IntoIterator for &'a Misfits {
    type Item = &'a Misfit;
    type IntoIter = slice::Iter<'a, Misfit>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl fmt::Display for Misfits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, misfit) in self.iter().enumerate() {
            let between = if n == 0 { "" } else { "; " };
            write!(f, "{between}{misfit}")?;
        }
        Ok(())
    }
}

impl Misfit {
    fn of(value: &Value, error: &ValidationError<'_>, knows: impl Fn(&str) -> bool) -> Self {
        let mut place = error.instance_path();
        if let Kind::AnyOf { context } | Kind::OneOfNotValid { context } = error.kind() {
            if let Some((place, options)) = options(context) {
                return Self {
                    path: Path::new(value, place.instance_path().as_str(), knows).to_string(),
                    keyword: "enum",
                    message: format!("is not {}", one_of(&options)),
                };
            }
            if let Some(first) = flat(context).and_then(|mut all| all.next()) {
                place = first.instance_path();
            }
        }
        let path = Path::new(value, place.as_str(), knows);
        // With nothing else in it, `additionalProperties: false` is told as `false`.
        let closed = matches!(error.kind(), Kind::FalseSchema)
            && last_keyword(error.schema_path().as_str()) == Some("additionalProperties");
        let (keyword, message) = match closed {
            true => (
                "additionalProperties",
                "has properties, and none is allowed".to_owned(),
            ),
            false => (keyword(error.kind()), message(error)),
        };
        Self {
            path: path.to_string(),
            keyword,
            message,
        }
    }

    /// Where it is: names and indices, joined by dots; `root` for the value itself.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The keyword of the schema that the value does not fit: `type`, for example.
    pub fn keyword(&self) -> &str {
        self.keyword
    }

    /// What is wrong: `is not of type "integer"`, for example.
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.message)
    }
}

impl fmt::Debug for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.to_string())
    }
}

impl Serialize for Misfit {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut fields = to.serialize_struct("Misfit", 3)?;
        fields.serialize_field("path", &self.path)?;
        fields.serialize_field("keyword", &self.keyword)?;
        fields.serialize_field("message", &self.message)?;
        fields.end()
    }
}

/// The keyword at the end of a path into a schema, unless that is a name.
fn last_keyword(path: &str) -> Option<&str> {
    let (mut parts, mut last) = (path.split('/').skip(1), None);
    while let Some(part) = parts.next() {
        last = match NAMED.contains(&part) {
            true => parts.next().and(None),
            false => Some(part),
        };
    }
    last
}

/// The keyword, in the word of the specification.
fn keyword(kind: &Kind) -> &'static str {
    match kind {
        Kind::AdditionalItems { .. } => "additionalItems",
        Kind::AdditionalProperties { .. } => "additionalProperties",
        Kind::AnyOf { .. } => "anyOf",
        Kind::Constant { .. } => "const",
        Kind::Contains => "contains",
        Kind::Enum { .. } => "enum",
        Kind::ExclusiveMaximum { .. } => "exclusiveMaximum",
        Kind::ExclusiveMinimum { .. } => "exclusiveMinimum",
        Kind::FalseSchema => "false",
        Kind::MaxItems { .. } => "maxItems",
        Kind::Maximum { .. } => "maximum",
        Kind::MaxLength { .. } => "maxLength",
        Kind::MaxProperties { .. } => "maxProperties",
        Kind::MinItems { .. } => "minItems",
        Kind::Minimum { .. } => "minimum",
        Kind::MinLength { .. } => "minLength",
        Kind::MinProperties { .. } => "minProperties",
        Kind::MultipleOf { .. } => "multipleOf",
        Kind::Not { .. } => "not",
        Kind::OneOfMultipleValid { .. } | Kind::OneOfNotValid { .. } => "oneOf",
        Kind::Pattern { .. }
        | Kind::BacktrackLimitExceeded { .. }
        | Kind::RegexEngineFailure { .. } => "pattern",
        Kind::PropertyNames { .. } => "propertyNames",
        Kind::Required { .. } => "required",
        Kind::Type { .. } => "type",
        Kind::UnevaluatedItems { .. } => "unevaluatedItems",
        Kind::UnevaluatedProperties { .. } => "unevaluatedProperties",
        Kind::UniqueItems => "uniqueItems",
        _ => "schema",
    }
}

/// What is wrong, in words of the schema alone: the crate's own text quotes the value, or keys of it.
fn message(error: &ValidationError<'_>) -> String {
    if let Some(types) = Types::wanted(error) {
        return format!("is not of type {types}");
    }
    match error.kind() {
        Kind::AdditionalItems { limit } => format!("has more than {}", items(*limit as u64)),
        Kind::AdditionalProperties { unexpected } | Kind::UnevaluatedProperties { unexpected } => {
            match unexpected.len() {
                1 => "has a property that is not allowed".to_owned(),
                n => format!("has {n} properties that are not allowed"),
            }
        }
        Kind::UnevaluatedItems { .. } => "has items that are not allowed".to_owned(),
        Kind::AnyOf { context } | Kind::OneOfNotValid { context } => match flat(context) {
            Some(all) => {
                let all: Vec<_> = all.take(MAX_WORDS).map(message).collect();
                all.join(", or else ")
            }
            None => "is none of what it may be".to_owned(),
        },
        Kind::OneOfMultipleValid { .. } => "is more than one of what it may be".to_owned(),
        Kind::Constant { expected_value } => format!("is not {}", word(expected_value)),
        Kind::Contains => "has too few, or too many, items of a kind".to_owned(),
        Kind::Enum { options } => format!("is not {}", one_of(options)),
        Kind::ExclusiveMaximum { limit } => format!("is not less than {}", word(limit)),
        Kind::ExclusiveMinimum { limit } => format!("is not greater than {}", word(limit)),
        Kind::FalseSchema => "is not allowed".to_owned(),
        Kind::MaxItems { limit } => format!("has more than {}", items(*limit)),
        Kind::MinItems { limit } => format!("has fewer than {}", items(*limit)),
        Kind::Maximum { limit } => format!("is greater than {}", word(limit)),
        Kind::Minimum { limit } => format!("is less than {}", word(limit)),
        Kind::MaxLength { limit } => format!("is longer than {}", characters(*limit)),
        Kind::MinLength { limit } => format!("is shorter than {}", characters(*limit)),
        Kind::MaxProperties { limit } => format!("has more than {}", properties(*limit)),
        Kind::MinProperties { limit } => format!("has fewer than {}", properties(*limit)),
        Kind::MultipleOf { multiple_of } => {
            format!("is not a multiple of {}", short(&multiple_of.to_string()))
        }
        Kind::Not { .. } => "is what it must not be".to_owned(),
        Kind::Pattern { pattern } => format!("does not match \"{}\"", short(pattern)),
        Kind::BacktrackLimitExceeded { .. } | Kind::RegexEngineFailure { .. } => {
            "could not be matched with its pattern".to_owned()
        }
        Kind::PropertyNames { error } => format!("has a property whose name {}", message(error)),
        Kind::Required { property } => format!("{} is a required property", word(property)),
        Kind::UniqueItems => "has equal items".to_owned(),
        _ => "does not fit the schema".to_owned(),
    }
}

fn count(n: u64, one: &str, many: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { many })
}

fn items(n: u64) -> String {
    count(n, "item", "items")
}

fn characters(n: u64) -> String {
    count(n, "character", "characters")
}

fn properties(n: u64) -> String {
    count(n, "property", "properties")
}

fn short(text: &str) -> Short<'_> {
    Short::new(text, MAX_WORD)
}

/// A value of the schema, as far as it is short.
fn word(value: &Value) -> String {
    match value {
        Value::String(text) => format!("\"{}\"", short(text)),
        Value::Array(_) => "the array of the schema".to_owned(),
        Value::Object(_) => "the object of the schema".to_owned(),
        other => short(&other.to_string()).to_string(),
    }
}

/// Some of several values of the schema.
fn one_of(options: &Value) -> String {
    let options = options.as_array().map_or(&[][..], Vec::as_slice);
    let shown = match options.len() {
        n if n <= MAX_WORDS => n,
        _ => SHOWN,
    };
    let words: Vec<String> = options[..shown].iter().map(word).collect();
    match (&*words, options.len() - shown) {
        ([], _) => "allowed".to_owned(),
        ([only], 0) => only.clone(),
        ([some @ .., last], 0) => format!("one of {} or {last}", some.join(", ")),
        (_, others) => format!("one of {} or {others} others", words.join(", ")),
    }
}

/// How deep alternatives in alternatives are looked at.
const MAX_UNIONS: usize = 8;

/// What does not fit in the best of the alternatives, where none fits: of those that the value has the type of, the
/// one that it belongs to by its constants, then the one with the fewest errors. `None` if the error says it all.
pub(super) fn causes<'e>(error: &'e ValidationError<'_>) -> Option<Vec<&'e ValidationError<'e>>> {
    causes_within(error, MAX_UNIONS)
}

fn causes_within<'e>(
    error: &'e ValidationError<'_>,
    levels: usize,
) -> Option<Vec<&'e ValidationError<'e>>> {
    let (Kind::AnyOf { context } | Kind::OneOfNotValid { context }) = error.kind() else {
        return None;
    };
    if flat(context).is_some() || options(context).is_some() {
        return None;
    }
    let at = error.instance_path();
    let rank = |alternative: &&Vec<ValidationError<'static>>| {
        let is_other_type = |e: &&ValidationError<'static>| {
            matches!(e.kind(), Kind::Type { .. }) && e.instance_path() == at
        };
        let is_other = |e: &&ValidationError<'static>| chosen(e).is_some();
        let others = alternative.iter().filter(is_other).count();
        (
            alternative.iter().any(|e| is_other_type(&e)),
            others,
            alternative.len(),
        )
    };
    let best = context.iter().filter(|a| !a.is_empty()).min_by_key(rank)?;
    let inner = |error: &'e ValidationError<'static>| {
        let inner = levels
            .checked_sub(1)
            .and_then(|left| causes_within(error, left));
        inner.unwrap_or_else(|| vec![error])
    };
    Some(best.iter().flat_map(inner).collect())
}

/// The errors of alternatives that have one each, all of the same value.
fn flat<'e>(
    context: &'e [Vec<ValidationError<'static>>],
) -> Option<impl Iterator<Item = &'e ValidationError<'static>>> {
    let first = context.first()?.first()?.instance_path();
    let mut all = context.iter();
    let is_flat = all.all(|a| {
        let is_union = |e: &ValidationError<'_>| {
            matches!(e.kind(), Kind::AnyOf { .. } | Kind::OneOfNotValid { .. })
        };
        matches!(&**a, [only] if only.instance_path() == first && !is_union(only))
    });
    is_flat.then(|| context.iter().flatten())
}

/// The only values that an error allows.
fn chosen(error: &ValidationError<'_>) -> Option<Vec<Value>> {
    match error.kind() {
        Kind::Constant { expected_value } => Some(vec![Value::clone(expected_value)]),
        Kind::Enum { options } => options.as_array().cloned(),
        _ => None,
    }
}

/// The place and the values by which all alternatives are told apart, if the value has none of these.
fn options<'e>(
    context: &'e [Vec<ValidationError<'static>>],
) -> Option<(&'e ValidationError<'static>, Value)> {
    let mut place: Option<&ValidationError<'static>> = None;
    let mut all = Vec::new();
    for alternative in context {
        let (error, options) = alternative.iter().find_map(|e| Some((e, chosen(e)?)))?;
        if place.is_some_and(|place| place.instance_path() != error.instance_path()) {
            return None;
        }
        place = Some(error);
        all.extend(options);
    }
    Some((place?, all.into()))
}

/// Types of JSON.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Types {
    pub(super) array: bool,
    pub(super) boolean: bool,
    pub(super) integer: bool,
    pub(super) null: bool,
    pub(super) number: bool,
    pub(super) object: bool,
    pub(super) string: bool,
}

impl Types {
    /// The types of which a value has none, if that is what is wrong: by `type`, or by alternatives that differ in their types.
    pub(super) fn wanted(error: &ValidationError<'_>) -> Option<Self> {
        let mut types = Self::default();
        match error.kind() {
            Kind::Type { kind } => types.add(kind),
            Kind::AnyOf { context } | Kind::OneOfNotValid { context } => {
                for alternative in context {
                    let [only] = &**alternative else { return None };
                    let Kind::Type { kind } = only.kind() else {
                        return None;
                    };
                    if only.instance_path() != error.instance_path() {
                        return None;
                    }
                    types.add(kind);
                }
            }
            _ => return None,
        }
        Some(types)
    }

    fn add(&mut self, kind: &TypeKind) {
        match kind {
            TypeKind::Single(kind) => self.add_name(&kind.to_string()),
            TypeKind::Multiple(kinds) => {
                for kind in kinds.iter() {
                    self.add_name(&kind.to_string());
                }
            }
        }
    }

    fn add_name(&mut self, name: &str) {
        for (known, is_in) in self.all() {
            *is_in |= known == name;
        }
    }

    fn all(&mut self) -> [(&'static str, &mut bool); 7] {
        [
            ("array", &mut self.array),
            ("boolean", &mut self.boolean),
            ("integer", &mut self.integer),
            ("null", &mut self.null),
            ("number", &mut self.number),
            ("object", &mut self.object),
            ("string", &mut self.string),
        ]
    }
}

impl fmt::Display for Types {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut types = *self;
        let all = types.all();
        let mut names = all
            .iter()
            .filter(|(_, is_in)| **is_in)
            .map(|(name, _)| name)
            .peekable();
        let mut first = true;
        while let Some(name) = names.next() {
            let between = match (first, names.peek()) {
                (true, _) => "",
                (false, Some(_)) => ", ",
                (false, None) => " or ",
            };
            first = false;
            write!(f, "{between}\"{name}\"")?;
        }
        Ok(())
    }
}
