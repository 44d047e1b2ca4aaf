//! Arguments as models mean them: `"5"` where the schema wants an integer.

use std::collections::BTreeSet;

use jsonschema::ValidationError;
use serde_json::{Number, Value};

use super::{misfits::Types, path::Path};

/// How many misfits are looked at.
const MAX_REPAIRS: usize = 64;

/// The value with what has the wrong type changed, and the paths to it. `None` if there is nothing to change. Whether it fits then is for
/// the caller to see: what else is wrong may only follow from the type.
pub(super) fn repair<'e>(
    value: &Value,
    errors: impl Iterator<Item = ValidationError<'e>>,
    knows: impl Fn(&str) -> bool,
) -> Option<(Value, Vec<String>)> {
    let mut repaired = value.clone();
    let (mut paths, mut seen) = (Vec::new(), BTreeSet::new());
    for error in errors.take(MAX_REPAIRS) {
        let Some(types) = Types::wanted(&error) else {
            continue;
        };
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
        [b'{' | b'[', .., b'}' | b']'] => {
            let value = serde_json::from_str(text).ok()?;
            keeps_numbers(&value).then_some(value)?
        }
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

/// Whether no number in it was an integer that has been rounded.
fn keeps_numbers(value: &Value) -> bool {
    const EXACT: f64 = (1_u64 << f64::MANTISSA_DIGITS) as f64;
    match value {
        Value::Number(n) => !n.is_f64() || n.as_f64().is_some_and(|n| n.abs() < EXACT),
        Value::Array(items) => items.iter().all(keeps_numbers),
        Value::Object(map) => map.values().all(keeps_numbers),
        _ => true,
    }
}

/// No number that is meant as one is longer.
const MAX_DIGITS: usize = 32;

/// How many significant digits every `f64` keeps.
const DIGITS: usize = f64::DIGITS as usize;

/// A number that keeps all its digits.
fn number(text: &str) -> Option<Number> {
    let number: Number = serde_json::from_str(text).ok()?;
    let mantissa = text.split(['e', 'E']).next()?;
    let digits = mantissa.bytes().filter(u8::is_ascii_digit);
    let is_whole = mantissa.len() == text.len() && !text.contains('.');
    let is_zero = digits.clone().all(|digit| digit == b'0');
    let is_exact = match number.is_f64() {
        // One that is too large for an integer would be rounded, one too small would be zero.
        true => !is_whole && digits.count() <= DIGITS && (is_zero || number.as_f64() != Some(0.0)),
        false => true,
    };
    (is_exact && !text.ends_with(char::is_whitespace)).then_some(number)
}
