//! Arguments as models mean them: `"5"` where the schema wants an integer.

use std::collections::BTreeSet;

use jsonschema::ValidationError;
use serde_json::{Number, Value};

use super::{misfits::Types, path::Path};

/// How many misfits are looked at.
const MAX_REPAIRS: usize = 64;

/// The value with what has the wrong type changed, and the paths to it. `None` if there is nothing to change, or something else is
/// wrong.
pub(super) fn repair<'e>(
    value: &Value,
    errors: impl Iterator<Item = ValidationError<'e>>,
    knows: impl Fn(&str) -> bool,
) -> Option<(Value, Vec<String>)> {
    let mut repaired = value.clone();
    let (mut paths, mut seen) = (Vec::new(), BTreeSet::new());
    for error in errors.take(MAX_REPAIRS) {
        let types = Types::wanted(&error)?;
        let pointer = error.instance_path().as_str();
        // Two parts of a schema may want the same.
        if !seen.insert(pointer.to_owned()) {
            continue;
        }
        let place = repaired.pointer_mut(pointer)?;
        *place = changed(place, types)?;
        paths.push(Path::new(value, pointer, &knows).to_string());
    }
    (!paths.is_empty()).then_some((repaired, paths))
}

/// The value as one of these types.
fn changed(value: &Value, wanted: Types) -> Option<Value> {
    match value {
        Value::String(text) if !wanted.string => read(text, wanted),
        Value::Array(_) | Value::Object(_) if wanted.string => {
            serde_json::to_string(value).ok().map(Value::String)
        }
        _ => None,
    }
}

/// What a text is exactly: `"05"`, `" 5"` and `"5 "` are no numbers.
fn read(text: &str, wanted: Types) -> Option<Value> {
    let value: Value = match text.as_bytes() {
        [b'{' | b'[', .., b'}' | b']'] => serde_json::from_str(text).ok()?,
        b"true" => Value::Bool(true),
        b"false" => Value::Bool(false),
        [b'-' | b'0'..=b'9', ..] if text.len() <= MAX_DIGITS => Value::Number(number(text)?),
        _ => return None,
    };
    let fits = match &value {
        Value::Bool(_) => wanted.boolean,
        Value::Number(n) => wanted.number || wanted.integer && !n.is_f64(),
        Value::Array(_) => wanted.array,
        Value::Object(_) => wanted.object,
        _ => false,
    };
    fits.then_some(value)
}

/// No number that is meant as one is longer.
const MAX_DIGITS: usize = 32;

/// A number that keeps all its digits.
fn number(text: &str) -> Option<Number> {
    let number: Number = serde_json::from_str(text).ok()?;
    let is_whole = !text.contains(['.', 'e', 'E']);
    // One that is too large for an integer would be rounded.
    let is_exact = !number.is_f64() || !is_whole && text.len() <= 17;
    (is_exact && !text.ends_with(char::is_whitespace)).then_some(number)
}
