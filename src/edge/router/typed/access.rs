use serde::{
    Deserializer,
    de::{
        DeserializeSeed, EnumAccess, Error as _, MapAccess, SeqAccess, Unexpected, VariantAccess,
        Visitor,
    },
    forward_to_deserialize_any,
};
use serde_json::{Map, Value, map};

use super::{
    misfit::{Misfit, Step},
    node::{Node, kind},
};

/// The elements of an array.
pub(super) struct Items<'de> {
    left: std::slice::Iter<'de, Value>,
    read: usize,
}

impl<'de> Items<'de> {
    pub(super) fn read<V: Visitor<'de>>(
        items: &'de [Value],
        visitor: V,
    ) -> Result<V::Value, Misfit> {
        let mut items = Self {
            left: items.iter(),
            read: 0,
        };
        let all = items.left.len();
        let value = visitor.visit_seq(&mut items)?;
        match items.left.len() {
            0 => Ok(value),
            _ => Err(Misfit::invalid_length(all, &"fewer elements")),
        }
    }
}

impl<'de> SeqAccess<'de> for &mut Items<'de> {
    type Error = Misfit;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Misfit> {
        let Some(value) = self.left.next() else {
            return Ok(None);
        };
        let step = Step::Item(self.read);
        self.read += 1;
        let read = seed.deserialize(Node::from(value));
        read.map(Some).map_err(|misfit| misfit.under(step))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.left.len())
    }
}

/// The members of an object.
pub(super) struct Entries<'de> {
    left: map::Iter<'de>,
    value: Option<(Step, &'de Value)>,
}

impl<'de> Entries<'de> {
    pub(super) fn read<V: Visitor<'de>>(
        map: &'de Map<String, Value>,
        visitor: V,
    ) -> Result<V::Value, Misfit> {
        let mut entries = Self {
            left: map.iter(),
            value: None,
        };
        let value = visitor.visit_map(&mut entries)?;
        match entries.left.len() {
            0 => Ok(value),
            _ => Err(Misfit::invalid_length(map.len(), &"fewer fields")),
        }
    }
}

impl<'de> MapAccess<'de> for &mut Entries<'de> {
    type Error = Misfit;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Misfit> {
        let Some((name, value)) = self.left.next() else {
            return Ok(None);
        };
        let mut is_field = false;
        let key = Key {
            name,
            is_field: &mut is_field,
        };
        let read = seed.deserialize(key);
        self.value = Some((step(name, is_field), value));
        read.map(Some)
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, Misfit> {
        let Some((step, value)) = self.value.take() else {
            return Err(Misfit::custom("a value was read twice"));
        };
        let read = seed.deserialize(Node::from(value));
        read.map_err(|misfit| misfit.under(step))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.left.len())
    }
}

/// The step to what is under a key. What is read as a name that the program knows, and is none, has a value that is
/// read by nothing that could fail.
fn step(name: &str, is_field: bool) -> Step {
    match is_field {
        true => Step::Field(name.to_owned()),
        false => Step::Key,
    }
}

/// A key, and whether it is read as a name that the program knows.
struct Key<'a, 'de> {
    name: &'de str,
    is_field: &'a mut bool,
}

/// Keys that stand for numbers and booleans are read as such.
macro_rules! read_as {
    ($($method:ident $visit:ident $type:ty;)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
            match self.name.parse::<$type>() {
                Ok(value) => visitor.$visit(value),
                Err(_) => Err(Misfit::invalid_type(Unexpected::Str(""), &visitor)),
            }
        }
    )*};
}

impl<'de> Deserializer<'de> for Key<'_, 'de> {
    type Error = Misfit;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        visitor.visit_borrowed_str(self.name)
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        *self.is_field = true;
        visitor.visit_borrowed_str(self.name)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        visitor.visit_some(self)
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
        visitor.visit_enum(Variant::new(self.name, None))
    }

    read_as! {
        deserialize_bool visit_bool bool;
        deserialize_i8 visit_i8 i8;
        deserialize_i16 visit_i16 i16;
        deserialize_i32 visit_i32 i32;
        deserialize_i64 visit_i64 i64;
        deserialize_i128 visit_i128 i128;
        deserialize_u8 visit_u8 u8;
        deserialize_u16 visit_u16 u16;
        deserialize_u32 visit_u32 u32;
        deserialize_u64 visit_u64 u64;
        deserialize_u128 visit_u128 u128;
        deserialize_f32 visit_f32 f32;
        deserialize_f64 visit_f64 f64;
    }

    forward_to_deserialize_any! {
        char str string bytes byte_buf unit unit_struct seq tuple tuple_struct map struct ignored_any
    }
}

/// A variant of an enum: its name, and what goes with it.
pub(super) struct Variant<'de> {
    name: &'de str,
    is_known: bool,
    value: Option<&'de Value>,
}

impl<'de> Variant<'de> {
    pub(super) fn new(name: &'de str, value: Option<&'de Value>) -> Self {
        Self {
            name,
            is_known: false,
            value,
        }
    }

    fn read<T>(
        self,
        read: impl FnOnce(Node<'de>) -> Result<T, Misfit>,
        expected: &'static str,
    ) -> Result<T, Misfit> {
        match self.value {
            Some(value) => {
                let step = step(self.name, self.is_known);
                read(Node::from(value)).map_err(|misfit| misfit.under(step))
            }
            None => Err(Misfit::invalid_type(Unexpected::Str(""), &expected)),
        }
    }
}

impl<'de> EnumAccess<'de> for Variant<'de> {
    type Error = Misfit;
    type Variant = Self;

    fn variant_seed<T: DeserializeSeed<'de>>(
        mut self,
        seed: T,
    ) -> Result<(T::Value, Self), Misfit> {
        let key = Key {
            name: self.name,
            is_field: &mut self.is_known,
        };
        Ok((seed.deserialize(key)?, self))
    }
}

impl<'de> VariantAccess<'de> for Variant<'de> {
    type Error = Misfit;

    fn unit_variant(self) -> Result<(), Misfit> {
        match self.value {
            None | Some(Value::Null) => Ok(()),
            Some(other) => Err(Misfit::invalid_type(kind(other), &"a string")),
        }
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Misfit> {
        self.read(|node| seed.deserialize(node), "an object")
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Misfit> {
        self.read(|node| node.deserialize_any(visitor), "an object")
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Misfit> {
        self.read(|node| node.deserialize_any(visitor), "an object")
    }
}
