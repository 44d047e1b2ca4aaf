use std::{fmt, slice};

use jsonschema::{
    JsonTypeSet, ValidationError as SchemaError,
    error::{TypeKind, ValidationErrorKind as Kind},
};
use serde::Serialize;
use serde_json::Value;

use super::{
    parts::keywords,
    path::{ROOT, shown},
};
use crate::{
    error::ToolError,
    text::{Short, either},
};

/// The most validation errors that are reported.
const MAX_ERRORS: usize = 5;

/// The longest word of a schema that is shown, in characters.
const MAX_WORD: usize = 64;

/// How many of several words are shown, if there are more than [`MAX_WORDS`].
const SHOWN: usize = 2;
const MAX_WORDS: usize = 3;

/// The reasons why a value does not fit a schema: at most five validation errors, in the order of
/// the check. `Display` joins them: `limit: is not of type "integer"; filters.0.op: is not one of
/// "eq", "ne" or 2 others`.
///
/// They contain no value and no key that the schema does not name: such a key is `*`. Texts come
/// from the schema alone, redacted and cut.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct ValidationErrors {
    list: Vec<ValidationError>,
    #[serde(skip)]
    more: bool,
}

/// The reason why one part of a value does not fit. Serialised as `{ "path", "keyword", "message"
/// }`.
#[derive(Clone, PartialEq, Eq, Serialize)]
pub struct ValidationError {
    path: String,
    keyword: Box<str>,
    message: String,
}

impl ValidationErrors {
    pub(super) fn of<'e>(
        value: &Value,
        errors: impl IntoIterator<Item = SchemaError<'e>>,
        knows: impl Fn(&str) -> bool,
    ) -> Self {
        let mut found = Self::default();
        for error in errors {
            for cause in causes(&error).unwrap_or_else(|| vec![&error]) {
                if found.list.len() == MAX_ERRORS {
                    found.more = true;
                    return found;
                }
                found.list.push(ValidationError::of(value, cause, &knows));
            }
        }
        found
    }

    /// Makes the error of a value that was not searched.
    pub(super) fn unknown() -> Self {
        Self::of_root("does not fit the schema")
    }

    /// Makes the error of a value that the schema does not cover.
    pub(super) fn too_large() -> Self {
        Self::of_root("is too large to be checked")
    }

    fn of_root(message: &str) -> Self {
        let error = ValidationError {
            path: ROOT.to_owned(),
            keyword: "schema".into(),
            message: message.to_owned(),
        };
        Self {
            list: vec![error],
            more: false,
        }
    }

    /// Returns the number of validation errors that are reported.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Returns whether the value fits.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Returns whether there are others.
    pub fn has_more(&self) -> bool {
        self.more
    }

    /// Returns the error of arguments that do not fit: a [refusal](ToolError::is_own_refusal) of
    /// the kind `InvalidInput`, with the validation errors as the detail `errors`. A model reads
    /// the first three. Without a `heading` the name of the first argument comes first.
    pub fn refusal(&self, heading: Option<&str>) -> ToolError {
        let heading = match (heading, self.has_more()) {
            (Some(heading), _) => format!("{heading}: "),
            // The name of the argument comes first: a log may cut the rest.
            (None, false) => String::new(),
            (None, true) => format!("in more than {} ways: ", self.len()),
        };
        let reasons: Vec<String> = self.iter().map(ValidationError::to_string).collect();
        let errors = serde_json::to_value(self).unwrap_or_default();
        ToolError::bad_arguments(&heading, &reasons).with_detail("errors", errors)
    }

    /// Returns the validation errors, in the order of the check.
    pub fn iter(&self) -> slice::Iter<'_, ValidationError> {
        self.list.iter()
    }
}

impl<'a> IntoIterator for &'a ValidationErrors {
    type Item = &'a ValidationError;
    type IntoIter = slice::Iter<'a, ValidationError>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl fmt::Display for ValidationErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, error) in self.iter().enumerate() {
            let between = if n == 0 { "" } else { "; " };
            write!(f, "{between}{error}")?;
        }
        Ok(())
    }
}

impl ValidationError {
    fn of(value: &Value, error: &SchemaError<'_>, knows: impl Fn(&str) -> bool) -> Self {
        let alternatives = alternatives(error);
        let at = error.instance_path();
        let last = keywords(error.schema_path().as_str()).last().flatten();
        let (place, keyword, message) = match (alternatives.and_then(|of| options(of)), last) {
            (Some((place, options)), _) => {
                let message = format!("is not {}", one_of(&options));
                (place.instance_path(), "enum", message)
            }
            // With nothing else in it, `additionalProperties: false` is told as `false`.
            (_, Some("additionalProperties")) if matches!(error.kind(), Kind::FalseSchema) => {
                let message = "has properties, and none is allowed".to_owned();
                (at, "additionalProperties", message)
            }
            _ => {
                let first = alternatives.and_then(|of| flat(of)?.next());
                let keyword = match error.kind() {
                    Kind::FalseSchema => "false",
                    kind => kind.keyword(),
                };
                (
                    first.map_or(at, |first| first.instance_path()),
                    keyword,
                    message(error),
                )
            }
        };
        Self {
            path: shown(value, place.as_str(), knows),
            keyword: keyword.into(),
            message,
        }
    }

    /// Returns the place: names and indices, joined by dots; `root` for the value itself.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns the keyword of the schema that the value does not fit: `type`, for example.
    pub fn keyword(&self) -> &str {
        &self.keyword
    }

    /// Returns the reason: `is not of type "integer"`, for example.
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl fmt::Display for ValidationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.message)
    }
}

impl fmt::Debug for ValidationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.to_string())
    }
}

/// Returns the reason in words of the schema alone, because the text of `jsonschema` quotes the
/// value, or its keys.
fn message(error: &SchemaError<'_>) -> String {
    if let Some(types) = types_wanted(error) {
        let mut types: Vec<String> = types.iter().map(|of| format!("\"{of}\"")).collect();
        types.sort_unstable();
        return format!("is not of type {}", either(&types, ""));
    }
    if let Some(alternatives) = alternatives(error) {
        return match flat(alternatives) {
            Some(all) => {
                let all: Vec<_> = all.take(MAX_WORDS).map(message).collect();
                all.join(", or else ")
            }
            None => "is none of what it may be".to_owned(),
        };
    }
    match error.kind() {
        Kind::AdditionalProperties { unexpected } | Kind::UnevaluatedProperties { unexpected } => {
            match unexpected.len() {
                1 => "has a property that is not allowed".to_owned(),
                n => format!("has {n} properties that are not allowed"),
            }
        }
        Kind::AdditionalItems { .. } | Kind::UnevaluatedItems { .. } => {
            "has items that are not allowed".to_owned()
        }
        Kind::OneOfMultipleValid { .. } => "is more than one of what it may be".to_owned(),
        Kind::Constant { expected_value } => format!("is not {}", word(expected_value)),
        Kind::Contains => "has too few, or too many, items of a kind".to_owned(),
        Kind::Enum { options } => format!("is not {}", one_of(options)),
        Kind::FalseSchema => "is not allowed".to_owned(),
        Kind::Not { .. } => "is what it must not be".to_owned(),
        Kind::Pattern { pattern } => format!("does not match \"{}\"", short(pattern)),
        Kind::BacktrackLimitExceeded { .. } | Kind::RegexEngineFailure { .. } => {
            "could not be matched with its pattern".to_owned()
        }
        Kind::PropertyNames { error } => format!("has a property name that {}", message(error)),
        Kind::Required { property } => format!("{} is a required property", word(property)),
        // The value is beyond a limit, of which the crate's text says no more than the number.
        _ => {
            let text = error.masked_with("it").to_string();
            let text = text.strip_prefix("it ");
            short(text.unwrap_or("does not fit the schema")).to_string()
        }
    }
}

fn short(text: &str) -> Short<'_> {
    Short::new(text, MAX_WORD)
}

/// Returns a value of the schema, as far as it is short.
fn word(value: &Value) -> String {
    match value {
        Value::String(text) => format!("\"{}\"", short(text)),
        Value::Array(_) => "the array of the schema".to_owned(),
        Value::Object(_) => "the object of the schema".to_owned(),
        other => short(&other.to_string()).to_string(),
    }
}

/// Returns some of several values of the schema.
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
        (_, 0) => format!("one of {}", either(&words, "")),
        (_, others) => format!("one of {} or {others} others", words.join(", ")),
    }
}

/// Returns the errors of each alternative, where none fits.
fn alternatives<'e>(error: &'e SchemaError<'_>) -> Option<&'e [Vec<SchemaError<'static>>]> {
    match error.kind() {
        Kind::AnyOf { context } | Kind::OneOfNotValid { context } => Some(context),
        _ => None,
    }
}

/// How deep alternatives in alternatives are looked at.
const MAX_UNIONS: usize = 8;

/// Returns the errors of the best alternative, if none fits. Alternatives of the value's type come
/// first, then the alternative that matches by its constants, then the one with the fewest errors.
/// `None` if the error says it all.
pub(super) fn causes<'e>(error: &'e SchemaError<'_>) -> Option<Vec<&'e SchemaError<'e>>> {
    causes_within(error, MAX_UNIONS)
}

fn causes_within<'e>(
    error: &'e SchemaError<'_>,
    levels: usize,
) -> Option<Vec<&'e SchemaError<'e>>> {
    let context = alternatives(error)?;
    if flat(context).is_some() || options(context).is_some() {
        return None;
    }
    let at = error.instance_path();
    let rank = |alternative: &&Vec<SchemaError<'static>>| {
        let is_other_type = |e: &&SchemaError<'static>| {
            matches!(e.kind(), Kind::Type { .. }) && e.instance_path() == at
        };
        let is_other = |e: &&SchemaError<'static>| {
            matches!(e.kind(), Kind::Constant { .. } | Kind::Enum { .. })
        };
        let others = alternative.iter().filter(is_other).count();
        (
            alternative.iter().any(|e| is_other_type(&e)),
            others,
            alternative.len(),
        )
    };
    let best = context.iter().filter(|a| !a.is_empty()).min_by_key(rank)?;
    let inner = |error: &'e SchemaError<'static>| {
        let inner = levels
            .checked_sub(1)
            .and_then(|left| causes_within(error, left));
        inner.unwrap_or_else(|| vec![error])
    };
    Some(best.iter().flat_map(inner).collect())
}

/// Returns the errors of alternatives that have one each, all of the same value.
fn flat<'e>(
    context: &'e [Vec<SchemaError<'static>>],
) -> Option<impl Iterator<Item = &'e SchemaError<'static>>> {
    let first = context.first()?.first()?.instance_path();
    let mut all = context.iter();
    let is_flat = all.all(
        |a| matches!(&**a, [only] if only.instance_path() == first && alternatives(only).is_none()),
    );
    is_flat.then(|| context.iter().flatten())
}

/// Returns the only values that an error allows.
fn chosen(error: &SchemaError<'_>) -> Option<Vec<Value>> {
    match error.kind() {
        Kind::Constant { expected_value } => Some(vec![Value::clone(expected_value)]),
        Kind::Enum { options } => options.as_array().cloned(),
        _ => None,
    }
}

/// Returns the place and the values by which all alternatives are told apart, if the value has none
/// of these.
fn options<'e>(
    context: &'e [Vec<SchemaError<'static>>],
) -> Option<(&'e SchemaError<'static>, Value)> {
    let mut place: Option<&SchemaError<'static>> = None;
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

/// Returns the wanted types if the value has none of them: by `type`, or by alternatives of
/// different types.
pub(super) fn types_wanted(error: &SchemaError<'_>) -> Option<JsonTypeSet> {
    match error.kind() {
        Kind::Type {
            kind: TypeKind::Single(kind),
        } => return Some((*kind).into()),
        Kind::Type {
            kind: TypeKind::Multiple(kinds),
        } => return Some(*kinds),
        _ => {}
    }
    let mut all = JsonTypeSet::empty();
    for alternative in alternatives(error)? {
        let [only] = &**alternative else { return None };
        let of_it = only.instance_path() == error.instance_path();
        let is_type = of_it && matches!(only.kind(), Kind::Type { .. });
        all = all.union(types_wanted(only).filter(|_| is_type)?);
    }
    Some(all)
}
