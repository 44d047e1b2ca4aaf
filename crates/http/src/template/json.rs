//! Checks the JSON of a body when its values are in.

use std::{borrow::Cow, collections::HashSet, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{Error, MapAccess, SeqAccess, Visitor},
};
use serde_json::error::Category;

/// Why a text is not the JSON of a body.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Broken {
    Syntax,
    /// Deeper than `serde_json` reads: 127 levels.
    Nesting,
    /// An object has a key twice: which one counts is the server's choice (RFC 8259, section 4).
    Repeats,
}

/// Checks a text.
pub(super) fn check(text: &str) -> Result<(), Broken> {
    let read: Result<Checked, _> = serde_json::from_str(text);
    read.map(drop).map_err(|error| match error.classify() {
        Category::Data => Broken::Repeats,
        // `serde_json` has no code for it.
        _ if error.to_string().starts_with("recursion limit") => Broken::Nesting,
        _ => Broken::Syntax,
    })
}

/// Any JSON value without repeated keys in an object.
struct Checked;

impl<'de> Deserialize<'de> for Checked {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Self)
    }
}

impl<'de> Visitor<'de> for Checked {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_unit<E: Error>(self) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self, A::Error> {
        while items.next_element::<Self>()?.is_some() {}
        Ok(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut pairs: A) -> Result<Self, A::Error> {
        let mut keys = HashSet::new();
        while let Some((Key(key), Self)) = pairs.next_entry()? {
            if !keys.insert(key) {
                return Err(A::Error::custom("repeats a key"));
            }
        }
        Ok(self)
    }
}

/// A key, copied only where it has escapes.
#[derive(Deserialize)]
#[serde(transparent)]
struct Key<'a>(#[serde(borrow)] Cow<'a, str>);
