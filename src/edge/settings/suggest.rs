//! Errors for names that do not exist: they suggest the nearest.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{self, DeserializeSeed, EnumAccess, IntoDeserializer, MapAccess, Visitor},
};

use super::text::quoted;
use crate::{edge::nearest::nearest, text::did_you_mean};

/// The reason why a name of this kind is refused.
pub(super) fn unknown(kind: &str, name: &str, known: &[&str]) -> String {
    let name_shown = quoted(name);
    match did_you_mean(&nearest(name, known.iter().copied())) {
        Some(meant) => format!("unknown {kind} {name_shown}; {meant}"),
        None => format!(
            "unknown {kind} {name_shown}; expected one of `{}`",
            known.join("`, `")
        ),
    }
}

/// A deserializer, or a part of one, whose errors for unknown keys and values suggest names.
pub(super) struct Suggest<T>(pub(super) T);

macro_rules! pass_on {
    ($($method:ident($($arg:ident: $type:ty),*) $($wrap:ident)?,)*) => {$(
        fn $method<V: Visitor<'de>>(
            self,
            $($arg: $type,)*
            visitor: V,
        ) -> Result<V::Value, D::Error> {
            self.0.$method($($arg,)* $($wrap)?(visitor))
        }
    )*};
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Suggest<D> {
    type Error = D::Error;

    pass_on! {
        deserialize_any(),
        deserialize_bool(),
        deserialize_i8(),
        deserialize_i16(),
        deserialize_i32(),
        deserialize_i64(),
        deserialize_i128(),
        deserialize_u8(),
        deserialize_u16(),
        deserialize_u32(),
        deserialize_u64(),
        deserialize_u128(),
        deserialize_f32(),
        deserialize_f64(),
        deserialize_char(),
        deserialize_str(),
        deserialize_string(),
        deserialize_bytes(),
        deserialize_byte_buf(),
        deserialize_unit(),
        deserialize_seq(),
        deserialize_identifier(),
        deserialize_ignored_any(),
        deserialize_unit_struct(name: &'static str),
        deserialize_newtype_struct(name: &'static str),
        deserialize_tuple(len: usize),
        deserialize_tuple_struct(name: &'static str, len: usize),
        deserialize_option() Suggest,
        deserialize_map() Suggest,
        deserialize_struct(name: &'static str, fields: &'static [&'static str]) Suggest,
        deserialize_enum(name: &'static str, variants: &'static [&'static str]) Suggest,
    }

    fn is_human_readable(&self) -> bool {
        self.0.is_human_readable()
    }
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Suggest<V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.expecting(f)
    }

    fn visit_none<E: de::Error>(self) -> Result<V::Value, E> {
        self.0.visit_none()
    }

    fn visit_unit<E: de::Error>(self) -> Result<V::Value, E> {
        self.0.visit_unit()
    }

    fn visit_some<D: Deserializer<'de>>(self, from: D) -> Result<V::Value, D::Error> {
        self.0.visit_some(Suggest(from))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<V::Value, A::Error> {
        self.0.visit_map(Suggest(map))
    }

    fn visit_enum<A: EnumAccess<'de>>(self, variant: A) -> Result<V::Value, A::Error> {
        self.0.visit_enum(Suggest(variant))
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Suggest<A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        key: K,
    ) -> Result<Option<K::Value>, A::Error> {
        self.0.next_key_seed(Name(key))
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, value: V) -> Result<V::Value, A::Error> {
        self.0.next_value_seed(Suggest(value))
    }
}

impl<'de, V: DeserializeSeed<'de>> DeserializeSeed<'de> for Suggest<V> {
    type Value = V::Value;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<V::Value, D::Error> {
        self.0.deserialize(Suggest(from))
    }
}

impl<'de, A: EnumAccess<'de>> EnumAccess<'de> for Suggest<A> {
    type Error = A::Error;
    type Variant = A::Variant;

    fn variant_seed<V: DeserializeSeed<'de>>(
        self,
        variant: V,
    ) -> Result<(V::Value, A::Variant), A::Error> {
        self.0.variant_seed(Name(variant))
    }
}

/// Reads a key, or the name of a variant.
struct Name<T>(T);

impl<'de, K: DeserializeSeed<'de>> DeserializeSeed<'de> for Name<K> {
    type Value = K::Value;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<K::Value, D::Error> {
        let name = String::deserialize(from)?;
        let name = IntoDeserializer::<Unknown>::into_deserializer(name.as_str());
        self.0.deserialize(name).map_err(de::Error::custom)
    }
}

#[derive(Debug)]
struct Unknown(String);

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unknown {}

impl de::Error for Unknown {
    fn custom<T: fmt::Display>(reason: T) -> Self {
        Self(reason.to_string())
    }

    fn unknown_field(name: &str, known: &'static [&'static str]) -> Self {
        Self(unknown("key", name, known))
    }

    fn unknown_variant(name: &str, known: &'static [&'static str]) -> Self {
        Self(unknown("value", name, known))
    }
}
