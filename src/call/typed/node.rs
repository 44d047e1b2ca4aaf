use serde::{
    Deserializer,
    de::{Unexpected, Visitor},
    forward_to_deserialize_any,
};
use serde_json::{Number, Value};

use super::{
    access::{Entries, Items, Variant},
    mismatch::Mismatch,
};

/// JSON as serde_json's own `&Value` reads it, except for the errors, which keep no value and know
/// their place.
#[derive(Clone, Copy)]
pub(super) struct Node<'de>(pub(super) &'de Value);

impl Node<'_> {
    /// Its type, without the value.
    pub(super) fn kind(self) -> Unexpected<'static> {
        match self.0 {
            Value::Null => Unexpected::Unit,
            Value::Bool(_) => Unexpected::Bool(false),
            Value::Number(n) if n.is_f64() => Unexpected::Float(0.0),
            Value::Number(_) => Unexpected::Unsigned(0),
            Value::String(_) => Unexpected::Str(""),
            Value::Array(_) => Unexpected::Seq,
            Value::Object(_) => Unexpected::Map,
        }
    }
}

/// A visitor refuses the types that it cannot read.
impl<'de> Deserializer<'de> for Node<'de> {
    type Error = Mismatch;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mismatch> {
        match self.0 {
            Value::Object(map) => Entries::read(map, &[], visitor),
            Value::Array(items) => Items::read(items, None, visitor),
            Value::Null => visitor.visit_unit(),
            Value::Bool(b) => visitor.visit_bool(*b),
            Value::Number(n) => number(n, visitor),
            Value::String(s) => visitor.visit_borrowed_str(s),
        }
    }

    fn deserialize_tuple<V: Visitor<'de>>(
        self,
        len: usize,
        visitor: V,
    ) -> Result<V::Value, Mismatch> {
        match self.0 {
            Value::Array(items) => Items::read(items, Some(len), visitor),
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        len: usize,
        visitor: V,
    ) -> Result<V::Value, Mismatch> {
        self.deserialize_tuple(len, visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Mismatch> {
        match self.0 {
            Value::Object(map) => Entries::read(map, fields, visitor),
            _ => self.deserialize_tuple(fields.len(), visitor),
        }
    }

    /// Others read maps of `null` as well.
    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mismatch> {
        match self.0 {
            Value::Object(map) => Entries::read(map, &[], visitor),
            _ => Err(Mismatch::of_type(&self.kind(), &visitor)),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mismatch> {
        match self.0 {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Mismatch> {
        // serde_json's own kinds of values ask by such names for what only its `Value` has.
        if name.starts_with("$serde_json::private::") {
            let read = self.0.deserialize_newtype_struct(name, visitor);
            return read.map_err(|_| Mismatch::unfit());
        }
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Mismatch> {
        let (name, value) = match self.0 {
            Value::String(name) => (name, None),
            Value::Object(map) => match map.iter().next() {
                Some((name, value)) if map.len() == 1 => (name, Some(Node(value))),
                _ => {
                    let single = "an object with a single field";
                    return Err(Mismatch::expected(single, &self.kind()));
                }
            },
            _ => return Err(Mismatch::expected("a string or an object", &self.kind())),
        };
        visitor.visit_enum(Variant::new(name, value, variants))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct
        seq identifier ignored_any
    }
}

pub(super) fn number<'de, V: Visitor<'de>>(n: &Number, visitor: V) -> Result<V::Value, Mismatch> {
    if let Some(n) = n.as_u64() {
        visitor.visit_u64(n)
    } else if let Some(n) = n.as_i64() {
        visitor.visit_i64(n)
    } else if let Some(n) = n.as_f64() {
        visitor.visit_f64(n)
    } else {
        // More than these can hold, which serde_json has as a feature.
        let read = n.clone().deserialize_any(visitor);
        read.map_err(|_| Mismatch::unfit())
    }
}
