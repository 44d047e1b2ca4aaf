//! Reads what people write, settings and manifests of tools: an error names the key, the value and
//! the valid values.
//!
//! ```
//! use serde::Deserialize;
//! use tower_toolcall::reader::Reader;
//!
//! #[derive(Debug, Deserialize)]
//! #[serde(deny_unknown_fields)]
//! #[allow(dead_code)]
//! struct Shop {
//!     oven: u32,
//! }
//!
//! let mut json = serde_json::Deserializer::from_str(r#"{ "owen": 250 }"#);
//! let error = Shop::deserialize(Reader::new(&mut json)).unwrap_err();
//! assert!(error.to_string().starts_with("unknown key `owen`; did you mean `oven`?"));
//! ```

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{
        self, DeserializeSeed, Expected, IntoDeserializer, MapAccess, SeqAccess, Unexpected,
        Visitor,
    },
    forward_to_deserialize_any,
};

use super::nearest::nearest;
pub use crate::config::refuse_if;
use crate::text::{Short, did_you_mean};

/// Longer values are not quoted: they are not typing errors, and may be secrets.
const MAX_QUOTED: usize = 40;

/// Returns a short value, redacted.
pub(crate) fn quoted(text: &str) -> String {
    match text.chars().count() {
        0..=MAX_QUOTED => format!("`{}`", Short::new(text, MAX_QUOTED)),
        n => format!("a value of {n} characters"),
    }
}

/// Quotes a text of the wrong type that the format itself shows whole: it may be a secret.
fn requoted<E: de::Error>(error: E) -> E {
    let text = error.to_string();
    let quoted = text
        .split_once("invalid type: string \"")
        .and_then(|(before, rest)| {
            let (shown, expected) = rest.rsplit_once("\", expected ")?;
            Some(format!("{before}{} is not {expected}", quoted(shown)))
        });
    quoted.map_or(error, E::custom)
}

/// The ends of names that stand for the unit of a duration.
const UNITS: [&str; 8] = [
    "_ms", "_millis", "_s", "_sec", "_secs", "_seconds", "_minutes", "_hours",
];

/// Returns the nearest of the known names, with the unit that its value needs.
pub(crate) fn meant(name: &str, known: &[&str], prefix: &str) -> Option<String> {
    let lower = name.to_ascii_lowercase();
    let unit = UNITS.iter().find(|unit| lower.ends_with(**unit));
    let bare = &name[..name.len() - unit.map_or(0, |unit| unit.len())];
    let near = match unit.is_some() && known.contains(&bare) {
        true => vec![bare.to_owned()],
        false => nearest(bare, known.iter().copied()),
    };
    let near: Vec<_> = near.iter().map(|name| format!("{prefix}{name}")).collect();
    let hint = match unit {
        Some(_) => " A duration has its unit in the value: `500ms`, `30s`",
        None => "",
    };
    did_you_mean(&near).map(|meant| meant + hint)
}

/// Returns the reason why a name of this kind is refused.
fn unknown(kind: &str, name: &str, known: &[&str]) -> String {
    let shown = quoted(name);
    match meant(name, known, "") {
        Some(meant) => format!("unknown {kind} {shown}; {meant}"),
        None => format!(
            "unknown {kind} {shown}; expected one of `{}`",
            known.join("`, `")
        ),
    }
}

/// A deserializer, or a part of one, with errors in plain words: the key, a short value, and the
/// valid values, with the nearest of the known names. Values of more than 40 characters are not
/// quoted, because they may be secrets.
///
/// Enums of variants without data are read by their names.
pub struct Reader<'a, T> {
    inner: T,
    /// The key of the value, if errors name keys.
    key: Option<&'a str>,
}

impl<T> Reader<'_, T> {
    /// Returns this deserializer with errors for people.
    pub fn new(inner: T) -> Self {
        let key = Some("");
        Self { inner, key }
    }

    /// Makes a reader without keys in errors: for the value of a single variable.
    #[cfg(feature = "settings")]
    pub(crate) fn without_keys(inner: T) -> Self {
        Self { inner, key: None }
    }
}

impl<'a, T> Reader<'a, T> {
    /// Reads a part of it.
    fn of<U>(&self, inner: U) -> Reader<'a, U> {
        let key = self.key;
        Reader { inner, key }
    }
}

crate::text::debug_fields! { {T} |this| Reader<'_, T> { key: this.key, .. } }

macro_rules! pass_on {
    ($($method:ident)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
            let visitor = self.of(visitor);
            self.inner.$method(visitor).map_err(requoted)
        }
    )*};
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Reader<'_, D> {
    type Error = D::Error;

    pass_on! {
        deserialize_any deserialize_bool deserialize_i8 deserialize_i16 deserialize_i32
        deserialize_i64 deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64
        deserialize_f32 deserialize_f64 deserialize_seq deserialize_option
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        let visitor = self.of(visitor);
        self.inner.deserialize_newtype_struct(name, visitor)
    }

    /// Reads an enum of variants without data. A variable may have its name in any case.
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        names: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        let key = self.key;
        let text = String::deserialize(self)?;
        let is_it = |name: &&&str| key.is_none() && name.eq_ignore_ascii_case(&text);
        let name = names.iter().find(is_it).copied().unwrap_or(&text);
        let name = IntoDeserializer::<Plain>::into_deserializer(name);
        visitor.visit_enum(name).map_err(|error| error.at(key))
    }

    forward_to_deserialize_any! {
        i128 u128 char str string bytes byte_buf unit unit_struct tuple tuple_struct map struct
        identifier ignored_any
    }

    fn is_human_readable(&self) -> bool {
        self.inner.is_human_readable()
    }
}

macro_rules! read {
    ($($method:ident($($value:ident: $type:ty)?))*) => {$(
        fn $method<E: de::Error>(self $(, $value: $type)?) -> Result<V::Value, E> {
            let key = self.key;
            self.inner.$method($($value)?).map_err(|error: Plain| error.at(key))
        }
    )*};
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Reader<'_, V> {
    type Value = V::Value;

    /// Describes the value in errors of the format itself.
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let expected: &dyn Expected = &self.inner;
        f.write_str(plain(&expected.to_string()))?;
        match self.key.filter(|key| !key.is_empty()) {
            Some(key) => write!(f, " for {}", quoted(key)),
            None => Ok(()),
        }
    }

    read! {
        visit_bool(v: bool) visit_i64(v: i64) visit_u64(v: u64) visit_f64(v: f64)
        visit_str(v: &str) visit_none() visit_unit()
    }

    fn visit_some<D: Deserializer<'de>>(self, from: D) -> Result<V::Value, D::Error> {
        let from = self.of(from);
        self.inner.visit_some(from)
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, from: D) -> Result<V::Value, D::Error> {
        let from = self.of(from);
        self.inner.visit_newtype_struct(from)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<V::Value, A::Error> {
        let items = self.of(items);
        self.inner.visit_seq(items)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<V::Value, A::Error> {
        let key = self.key.map(|_| String::new());
        self.inner.visit_map(Entries { map, key })
    }
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Reader<'_, S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<S::Value, D::Error> {
        let from = self.of(from);
        self.inner.deserialize(from)
    }
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for Reader<'_, A> {
    type Error = A::Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, A::Error> {
        let seed = self.of(seed);
        self.inner.next_element_seed(seed)
    }
}

/// The entries of a table, and the key of the last one.
struct Entries<A> {
    map: A,
    key: Option<String>,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Entries<A> {
    type Error = A::Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, A::Error> {
        let key = self.key.as_mut();
        self.map.next_key_seed(Name { seed, key })
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, inner: S) -> Result<S::Value, A::Error> {
        let key = self.key.as_deref();
        self.map.next_value_seed(Reader { inner, key })
    }
}

/// Reads a key, and keeps it.
struct Name<'a, S> {
    seed: S,
    key: Option<&'a mut String>,
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Name<'_, S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<S::Value, D::Error> {
        let name = String::deserialize(from)?;
        let read = IntoDeserializer::<Plain>::into_deserializer(name.as_str());
        let read = self.seed.deserialize(read);
        if let Some(key) = self.key {
            *key = name;
        }
        read.map_err(|error| error.at(None))
    }
}

/// An error in plain words.
#[derive(Debug)]
struct Plain {
    text: String,
    /// The text names a key itself.
    is_of_key: bool,
}

impl Plain {
    fn at<E: de::Error>(self, key: Option<&str>) -> E {
        match key.filter(|key| !key.is_empty() && !self.is_of_key) {
            Some(key) => E::custom(format_args!("{}: {}", quoted(key), self.text)),
            None => E::custom(self.text),
        }
    }
}

impl fmt::Display for Plain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Plain {}

impl de::Error for Plain {
    fn custom<T: fmt::Display>(reason: T) -> Self {
        let (text, is_of_key) = (reason.to_string(), false);
        Self { text, is_of_key }
    }

    fn invalid_type(came: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::invalid_value(came, expected)
    }

    fn invalid_value(came: Unexpected<'_>, expected: &dyn Expected) -> Self {
        let came = match came {
            Unexpected::Bool(value) => format!("`{value}`"),
            Unexpected::Unsigned(value) => format!("`{value}`"),
            Unexpected::Signed(value) => format!("`{value}`"),
            Unexpected::Float(value) => format!("`{value}`"),
            Unexpected::Str(text) => quoted(text),
            Unexpected::Seq => "a list".to_owned(),
            Unexpected::Map => "a table".to_owned(),
            Unexpected::Unit | Unexpected::Option => "null".to_owned(),
            _ => "the value".to_owned(),
        };
        let expected = expected.to_string();
        Self::custom(match &*expected {
            "a boolean" => format!("{came} is neither true nor false"),
            _ => format!("{came} is not {}", plain(&expected)),
        })
    }

    fn unknown_field(name: &str, known: &'static [&'static str]) -> Self {
        let (text, is_of_key) = (unknown("key", name, known), true);
        Self { text, is_of_key }
    }

    fn unknown_variant(name: &str, known: &'static [&'static str]) -> Self {
        Self::custom(unknown("value", name, known))
    }
}

/// serde's words for a type, in plain ones.
fn plain(expected: &str) -> &str {
    match expected {
        "u8" => "a whole number from 0 to 255",
        "u16" => "a whole number from 0 to 65,535",
        "u32" => "a whole number from 0 to 4,294,967,295",
        "u64" | "usize" => "a whole number of at least 0",
        "a nonzero usize" => "a whole number of at least 1",
        "f32" | "f64" => "a number",
        "a sequence" => "a list",
        "a map" => "a table",
        _ if expected.starts_with("struct ") => "a table",
        _ if expected.starts_with("enum ") => "a string",
        other => other,
    }
}
