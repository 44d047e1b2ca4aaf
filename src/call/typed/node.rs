use serde::{
    Deserializer,
    de::{Unexpected, Visitor},
};
use serde_json::{Map, Number, Value};

use super::{
    access::{Entries, Items, Variant},
    mismatch::Mismatch,
};

/// JSON as serde_json's own `&Value` reads it, except for the errors, which keep no value and know
/// their place.
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

impl Node<'_> {
    /// Its type, without the value.
    pub(super) fn kind(&self) -> Unexpected<'static> {
        match self {
            Self::Object(_) | Self::Other(Value::Object(_)) => Unexpected::Map,
            Self::Other(Value::Null) => Unexpected::Unit,
            Self::Other(Value::Bool(_)) => Unexpected::Bool(false),
            Self::Other(Value::Number(n)) if n.is_f64() => Unexpected::Float(0.0),
            Self::Other(Value::Number(_)) => Unexpected::Unsigned(0),
            Self::Other(Value::String(_)) => Unexpected::Str(""),
            Self::Other(Value::Array(_)) => Unexpected::Seq,
        }
    }

    fn into_value(self) -> Value {
        match self {
            Self::Object(map) => Value::Object(map.clone()),
            Self::Other(value) => value.clone(),
        }
    }
}

/// Methods that read what fits one of their patterns; whatever else there is does not fit.
macro_rules! read {
    ($([$($method:ident)+] $arguments:tt $patterns:tt)*) => {
        $($(read!(@one $method $arguments $patterns);)+)*
    };
    (@one $method:ident ($($argument:ident: $type:ty),*) {
        $($pattern:pat => |$visitor:ident| $visit:expr),+ $(,)?
    }) => {
        fn $method<V: Visitor<'de>>(self, $($argument: $type,)* visitor: V) -> Result<V::Value, Mismatch> {
            match self {
                $($pattern => {
                    let $visitor = visitor;
                    $visit
                })+
                other => Err(Mismatch::of_type(&other.kind(), &visitor)),
            }
        }
    };
}

impl<'de> Deserializer<'de> for Node<'de> {
    type Error = Mismatch;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mismatch> {
        match self {
            Self::Object(map) | Self::Other(Value::Object(map)) => Entries::read(map, &[], visitor),
            Self::Other(Value::Array(items)) => Items::read(items, None, visitor),
            Self::Other(Value::Null) => visitor.visit_unit(),
            Self::Other(Value::Bool(b)) => visitor.visit_bool(*b),
            Self::Other(Value::Number(n)) => number(n, visitor),
            Self::Other(Value::String(s)) => visitor.visit_borrowed_str(s),
        }
    }

    read! {
        [
            deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_i128
            deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64 deserialize_u128
            deserialize_f32 deserialize_f64
        ]() {
            Self::Other(Value::Number(n)) => |visitor| number(n, visitor),
        }
        [deserialize_char deserialize_str deserialize_string deserialize_identifier]() {
            Self::Other(Value::String(s)) => |visitor| visitor.visit_borrowed_str(s),
        }
        [deserialize_bool]() {
            Self::Other(Value::Bool(b)) => |visitor| visitor.visit_bool(*b),
        }
        [deserialize_bytes deserialize_byte_buf]() {
            Self::Other(Value::String(s)) => |visitor| visitor.visit_borrowed_str(s),
            Self::Other(Value::Array(items)) => |visitor| Items::read(items, None, visitor),
        }
        [deserialize_unit]() {
            Self::Other(Value::Null) => |visitor| visitor.visit_unit(),
        }
        [deserialize_unit_struct](_name: &'static str) {
            Self::Other(Value::Null) => |visitor| visitor.visit_unit(),
        }
        [deserialize_seq]() {
            Self::Other(Value::Array(items)) => |visitor| Items::read(items, None, visitor),
        }
        [deserialize_tuple](len: usize) {
            Self::Other(Value::Array(items)) => |visitor| Items::read(items, Some(len), visitor),
        }
        [deserialize_tuple_struct](_name: &'static str, len: usize) {
            Self::Other(Value::Array(items)) => |visitor| Items::read(items, Some(len), visitor),
        }
        [deserialize_map]() {
            Self::Object(map) => |visitor| Entries::read(map, &[], visitor),
        }
        [deserialize_struct](_name: &'static str, fields: &'static [&'static str]) {
            Self::Object(map) => |visitor| Entries::read(map, fields, visitor),
            Self::Other(Value::Array(items)) => |visitor| {
                Items::read(items, Some(fields.len()), visitor)
            },
        }
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mismatch> {
        visitor.visit_unit()
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mismatch> {
        match self {
            Self::Other(Value::Null) => visitor.visit_none(),
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
            let read = self.into_value().deserialize_newtype_struct(name, visitor);
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
        match self {
            Self::Object(map) => match map.iter().next() {
                Some((name, value)) if map.len() == 1 => {
                    visitor.visit_enum(Variant::new(name, Some(value.into()), variants))
                }
                _ => Err(Mismatch::expected(
                    "an object with a single field",
                    &self.kind(),
                )),
            },
            Self::Other(Value::String(name)) => {
                visitor.visit_enum(Variant::new(name, None, variants))
            }
            Self::Other(_) => Err(Mismatch::expected("a string or an object", &self.kind())),
        }
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
