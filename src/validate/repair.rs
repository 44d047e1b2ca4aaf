//! Arguments as models mean them: `"5"` where the schema wants an integer, `null` for what they
//! leave out.

use std::collections::BTreeSet;

use jsonschema::{JsonType, JsonTypeSet, ValidationError as SchemaError};
use serde_json::{Number, Value};

use super::{
    errors::{causes, types_wanted},
    path::shown,
};

/// The most validation errors that are looked at.
const MAX_REPAIRS: usize = 64;

/// The value with what has the wrong type changed, and the paths to it. `None` if there is nothing
/// to change. Whether it fits then is for the caller to see: what else is wrong may only follow
/// from the type.
pub(super) fn repair<'e>(
    value: &Value,
    errors: impl Iterator<Item = SchemaError<'e>>,
    knows: impl Fn(&str) -> bool,
) -> Option<(Value, Vec<String>)> {
    let mut repaired = value.clone();
    let (mut paths, mut seen) = (Vec::new(), BTreeSet::new());
    for error in errors.take(MAX_REPAIRS) {
        for error in causes(&error).unwrap_or_else(|| vec![&error]) {
            let pointer = error.instance_path().as_str();
            let is_null = value.pointer(pointer).is_some_and(Value::is_null);
            let types = types_wanted(error);
            // Two parts of a schema may want the same.
            if !is_null && types.is_none() || !seen.insert(pointer.to_owned()) {
                continue;
            }
            match types.filter(|_| !is_null) {
                Some(types) => {
                    let place = repaired.pointer_mut(pointer)?;
                    *place = changed(place, types)?;
                }
                None => remove(&mut repaired, pointer)?,
            }
            paths.push(shown(value, pointer, &knows));
        }
    }
    (!paths.is_empty()).then_some((repaired, paths))
}

/// Takes a property out.
fn remove(value: &mut Value, pointer: &str) -> Option<()> {
    let (object, name) = pointer.rsplit_once('/')?;
    let name = name.replace("~1", "/").replace("~0", "~");
    let object = value.pointer_mut(object)?.as_object_mut()?;
    object.remove(&name).map(drop)
}

/// Returns the value as one of these types.
fn changed(value: &Value, wanted: JsonTypeSet) -> Option<Value> {
    match value {
        Value::String(text) if !wanted.contains(JsonType::String) => read(text, wanted),
        Value::Array(_) | Value::Object(_) if wanted.contains(JsonType::String) => {
            serde_json::to_string(value).ok().map(Value::String)
        }
        _ => None,
    }
}

/// Reads a text only if it is exactly a value: `"05"`, `" 5"` and `"5 "` are not numbers.
fn read(text: &str, wanted: JsonTypeSet) -> Option<Value> {
    let value: Value = match text.as_bytes() {
        [b'{' | b'[', .., b'}' | b']'] => {
            let value = serde_json::from_str(text).ok()?;
            is_exactly(&value, text).then_some(value)?
        }
        b"true" => Value::Bool(true),
        b"false" => Value::Bool(false),
        [b'-' | b'0'..=b'9', ..] => Value::Number(number(text)?),
        _ => return None,
    };
    let fits = match &value {
        Value::Number(n) if !n.is_f64() => {
            wanted.contains(JsonType::Number) || wanted.contains(JsonType::Integer)
        }
        other => wanted.contains(JsonType::from(other)),
    };
    fits.then_some(value)
}

/// Returns whether a text of JSON says no more than this value, which was read from it: all digits
/// of its numbers, and each key once.
fn is_exactly(value: &Value, text: &str) -> bool {
    let (mut colons, mut rest) = (0, text);
    while let Some(first) = rest.bytes().next() {
        let length = match first {
            b'"' => length_of_string(rest),
            b'-' | b'0'..=b'9' => {
                let is_in = |c: char| matches!(c, '0'..='9' | '+' | '-' | '.' | 'e' | 'E');
                let length = rest.find(|c| !is_in(c)).unwrap_or(rest.len());
                if number(&rest[..length]).is_none() {
                    return false;
                }
                length
            }
            _ => {
                colons += usize::from(first == b':');
                1
            }
        };
        rest = &rest[length..];
    }
    colons == keys(value)
}

/// Returns the bytes of the string at the beginning of a valid text of JSON.
fn length_of_string(text: &str) -> usize {
    let (mut escaped, mut quotes) = (false, 0);
    let end = text.bytes().position(|byte| {
        let is_quote = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        quotes += u8::from(is_quote);
        quotes == 2
    });
    end.map_or(text.len(), |end| end + 1)
}

/// Returns how many keys are in a value.
fn keys(value: &Value) -> usize {
    match value {
        Value::Array(items) => items.iter().map(keys).sum(),
        Value::Object(map) => map.len() + map.values().map(keys).sum::<usize>(),
        _ => 0,
    }
}

/// No number that is meant as one is longer.
const MAX_DIGITS: usize = 32;

/// How many significant digits every `f64` keeps.
const DIGITS: usize = f64::DIGITS as usize;

/// A number that keeps all its digits.
fn number(text: &str) -> Option<Number> {
    if text.len() > MAX_DIGITS {
        return None;
    }
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
