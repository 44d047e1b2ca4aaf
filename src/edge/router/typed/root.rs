use serde::{
    Deserializer,
    de::{Error as _, Visitor},
    forward_to_deserialize_any,
};
use serde_json::{Error, Map, Value};

/// The arguments as serde_json reads a whole [`Value`]: its `&Map` knows neither `Option` nor newtypes.
#[derive(Clone, Copy)]
pub(super) struct Root<'de>(pub(super) &'de Map<String, Value>);

impl<'de> Deserializer<'de> for Root<'de> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.0.deserialize_any(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        // serde_json's own kinds of values ask by name for what only its `Value` has.
        if name.starts_with("$serde_json::") {
            return Err(Error::custom("no such arguments"));
        }
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.0.deserialize_enum(name, variants, visitor)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}
