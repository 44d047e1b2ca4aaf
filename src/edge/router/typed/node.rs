use serde::{
    Deserializer,
    de::{Error as _, Unexpected, Visitor},
    forward_to_deserialize_any,
};
use serde_json::{Map, Number, Value};

use super::{
    access::{Entries, Items, Variant},
    misfit::Misfit,
};

/// JSON that is read to learn why it does not fit.
#[derive(Clone, Copy)]
pub(super) enum Node<'de> {
    Object(&'de Map<String, Value>),
    Other(&'de Value),
}

impl<'de> From<&'de Value> for Node<'de> {
    fn from(value: &'de Value) -> Self {
        match value {
            Value::Object(map) => Self::Object(map),
            other => Self::Other(other),
        }
    }
}

impl<'de> Deserializer<'de> for Node<'de> {
    type Error = Misfit;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        match self {
            Self::Object(map) | Self::Other(Value::Object(map)) => Entries::read(map, visitor),
            Self::Other(Value::Array(items)) => Items::read(items, visitor),
            Self::Other(Value::Null) => visitor.visit_unit(),
            Self::Other(Value::Bool(b)) => visitor.visit_bool(*b),
            Self::Other(Value::Number(n)) => number(n, visitor),
            Self::Other(Value::String(s)) => visitor.visit_borrowed_str(s),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        match self {
            Self::Other(Value::Null) => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Misfit> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Misfit> {
        match self {
            Self::Object(map) => match map.iter().next() {
                Some((name, value)) if map.len() == 1 => {
                    visitor.visit_enum(Variant::new(name, Some(value)))
                }
                _ => Err(Misfit::invalid_value(
                    Unexpected::Map,
                    &"an object with a single field",
                )),
            },
            Self::Other(Value::String(name)) => visitor.visit_enum(Variant::new(name, None)),
            Self::Other(other) => Err(Misfit::invalid_type(kind(other), &"a string or an object")),
        }
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct seq tuple tuple_struct map struct identifier
    }
}

fn number<'de, V: Visitor<'de>>(n: &Number, visitor: V) -> Result<V::Value, Misfit> {
    if let Some(n) = n.as_u64() {
        visitor.visit_u64(n)
    } else if let Some(n) = n.as_i64() {
        visitor.visit_i64(n)
    } else {
        visitor.visit_f64(n.as_f64().unwrap_or(f64::NAN))
    }
}

/// Its type; the value itself is not told.
pub(super) fn kind(value: &Value) -> Unexpected<'static> {
    match value {
        Value::Null => Unexpected::Unit,
        Value::Bool(_) => Unexpected::Bool(false),
        Value::Number(n) if n.is_f64() => Unexpected::Float(0.0),
        Value::Number(_) => Unexpected::Unsigned(0),
        Value::String(_) => Unexpected::Str(""),
        Value::Array(_) => Unexpected::Seq,
        Value::Object(_) => Unexpected::Map,
    }
}
