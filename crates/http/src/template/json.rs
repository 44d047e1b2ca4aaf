//! Checks the JSON of a body when its values are in.

use std::{borrow::Cow, cell::Cell, collections::HashSet, fmt};

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

/// How deep arrays and objects of a body may nest. `serde_json` itself takes a few more.
const MAX_NESTING: usize = 120;

/// Why a text is not the JSON of a body.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Broken {
    Syntax,
    Nesting,
    /// An object has a key twice: which one counts is the server's choice (RFC 8259, section 4).
    Repeats,
}

/// Checks a text. Keys with `placeholder` in them may repeat.
pub(super) fn check(text: &str, placeholder: Option<char>) -> Result<(), Broken> {
    let broken = Cell::new(Broken::Syntax);
    let level = Level {
        depth: 0,
        placeholder,
        broken: &broken,
    };
    let mut from = serde_json::Deserializer::from_str(text);
    let read = level.deserialize(&mut from).and_then(|()| from.end());
    read.map_err(|_| broken.get())
}

/// A value, and what stands around it.
#[derive(Clone, Copy)]
struct Level<'c> {
    depth: usize,
    placeholder: Option<char>,
    /// The reason for an error of ours.
    broken: &'c Cell<Broken>,
}

impl Level<'_> {
    fn refuse<E: Error>(&self, broken: Broken) -> E {
        self.broken.set(broken);
        E::custom("")
    }

    fn inner<E: Error>(self) -> Result<Self, E> {
        let depth = self.depth + 1;
        match depth > MAX_NESTING {
            true => Err(self.refuse(Broken::Nesting)),
            false => Ok(Self { depth, ..self }),
        }
    }
}

impl<'de> DeserializeSeed<'de> for Level<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Level<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let inner = self.inner()?;
        while items.next_element_seed(inner)?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut pairs: A) -> Result<(), A::Error> {
        let inner = self.inner()?;
        let mut keys = HashSet::new();
        while let Some(key) = pairs.next_key_seed(Key)? {
            let may_repeat = self.placeholder.is_some_and(|c| key.contains(c));
            if !may_repeat && !keys.insert(key) {
                return Err(self.refuse(Broken::Repeats));
            }
            pairs.next_value_seed(inner)?;
        }
        Ok(())
    }
}

/// A key, copied only where it has escapes.
struct Key;

impl<'de> DeserializeSeed<'de> for Key {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
        from.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for Key {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_borrowed_str<E: Error>(self, key: &'de str) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(key))
    }

    fn visit_str<E: Error>(self, key: &str) -> Result<Self::Value, E> {
        Ok(Cow::Owned(key.to_owned()))
    }
}
