use std::{iter::Enumerate, slice, str::FromStr};

use serde::{
    Deserializer,
    de::{DeserializeSeed, EnumAccess, MapAccess, SeqAccess, Unexpected, VariantAccess, Visitor},
    forward_to_deserialize_any,
};
use serde_json::{Map, Number, Value, map};

use super::{
    mismatch::{Mismatch, Step},
    node::{Node, number},
};

/// The elements of an array.
pub(super) struct Items<'de> {
    left: Enumerate<slice::Iter<'de, Value>>,
}

impl<'de> Items<'de> {
    /// `declared`: how many there should be, if the program says so.
    pub(super) fn read<V: Visitor<'de>>(
        items: &'de [Value],
        declared: Option<usize>,
        visitor: V,
    ) -> Result<V::Value, Mismatch> {
        let all = items.len();
        let mut items = Self {
            left: items.iter().enumerate(),
        };
        let read = match visitor.visit_seq(&mut items) {
            Ok(_) if items.left.len() > 0 => Err(Mismatch::length()),
            read => read,
        };
        read.map_err(|mismatch| mismatch.of_length(declared, all))
    }
}

impl<'de> SeqAccess<'de> for &mut Items<'de> {
    type Error = Mismatch;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Mismatch> {
        let Some((index, value)) = self.left.next() else {
            return Ok(None);
        };
        let read = seed.deserialize(Node(value));
        read.map(Some)
            .map_err(|mismatch| mismatch.under(Step::Item(index)))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.left.len())
    }
}

/// The members of an object.
pub(super) struct Entries<'de> {
    left: map::Iter<'de>,
    value: Option<(&'de str, &'de Value)>,
    known: &'static [&'static str],
}

impl<'de> Entries<'de> {
    pub(super) fn read<V: Visitor<'de>>(
        map: &'de Map<String, Value>,
        known: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Mismatch> {
        let mut entries = Self {
            left: map.iter(),
            value: None,
            known,
        };
        let value = visitor.visit_map(&mut entries)?;
        match entries.left.len() {
            0 => Ok(value),
            _ => Err(Mismatch::length()),
        }
    }
}

impl<'de> MapAccess<'de> for &mut Entries<'de> {
    type Error = Mismatch;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Mismatch> {
        let Some((name, value)) = self.left.next() else {
            return Ok(None);
        };
        self.value = Some((name, value));
        seed.deserialize(Key(name)).map(Some)
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, Mismatch> {
        let (name, value) = self.value.take().ok_or_else(Mismatch::unfit)?;
        let read = seed.deserialize(Node(value));
        read.map_err(|mismatch| mismatch.under(Step::to(name, self.known)))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.left.len())
    }
}

/// A key.
struct Key<'de>(&'de str);

impl<'de> Key<'de> {
    /// The number that the key is, written as JSON writes numbers.
    fn number(&self) -> Option<Number> {
        let is_bare = self.0.starts_with(|c: char| c == '-' || c.is_ascii_digit())
            && self.0.ends_with(|c: char| c.is_ascii_digit());
        serde_json::from_str(self.0).ok().filter(|_| is_bare)
    }

    /// The integer of 128 bits that the key is: no JSON number holds all of them.
    fn wide<T: FromStr>(&self, visitor: &impl Visitor<'de>) -> Result<T, Mismatch> {
        let n = self.number().and_then(|_| self.0.parse().ok());
        n.ok_or_else(|| not_one(visitor))
    }
}

/// The error of a key that is not of the type that is read. The key itself is the caller's text.
fn not_one<'de>(visitor: &impl Visitor<'de>) -> Mismatch {
    Mismatch::of_type(&Unexpected::Str(""), visitor)
}

/// Keys that stand for numbers are read as such.
macro_rules! read_numbers {
    ($($method:ident)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mismatch> {
            let n = self.number().ok_or_else(|| not_one(&visitor))?;
            number(&n, visitor)
        }
    )*};
}

impl<'de> Deserializer<'de> for Key<'de> {
    type Error = Mismatch;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mismatch> {
        visitor.visit_borrowed_str(self.0)
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mismatch> {
        match self.0 {
            "true" => visitor.visit_bool(true),
            "false" => visitor.visit_bool(false),
            _ => Err(not_one(&visitor)),
        }
    }

    fn deserialize_i128<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mismatch> {
        let n = self.wide(&visitor)?;
        visitor.visit_i128(n)
    }

    fn deserialize_u128<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mismatch> {
        let n = self.wide(&visitor)?;
        visitor.visit_u128(n)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mismatch> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Mismatch> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Mismatch> {
        visitor.visit_enum(Variant::new(self.0, None, variants))
    }

    read_numbers! {
        deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64
        deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64
        deserialize_f32 deserialize_f64
    }

    forward_to_deserialize_any! {
        char str string bytes byte_buf unit unit_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}

/// A variant of an enum: its name, and what goes with it.
pub(super) struct Variant<'de> {
    name: &'de str,
    value: Option<Node<'de>>,
    known: &'static [&'static str],
}

impl<'de> Variant<'de> {
    pub(super) fn new(
        name: &'de str,
        value: Option<Node<'de>>,
        known: &'static [&'static str],
    ) -> Self {
        Self { name, value, known }
    }

    fn read<T>(self, read: impl FnOnce(Node<'de>) -> Result<T, Mismatch>) -> Result<T, Mismatch> {
        // Its name alone is a string.
        let alone = || Mismatch::expected("an object", &Unexpected::Str(""));
        let read = read(self.value.ok_or_else(alone)?);
        read.map_err(|mismatch| mismatch.under(Step::to(self.name, self.known)))
    }
}

impl<'de> EnumAccess<'de> for Variant<'de> {
    type Error = Mismatch;
    type Variant = Self;

    fn variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<(T::Value, Self), Mismatch> {
        Ok((seed.deserialize(Key(self.name))?, self))
    }
}

impl<'de> VariantAccess<'de> for Variant<'de> {
    type Error = Mismatch;

    fn unit_variant(self) -> Result<(), Mismatch> {
        match self.value {
            None | Some(Node(Value::Null)) => Ok(()),
            Some(other) => Err(Mismatch::expected("a string", &other.kind())),
        }
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Mismatch> {
        self.read(|node| seed.deserialize(node))
    }

    fn tuple_variant<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, Mismatch> {
        self.read(|node| node.deserialize_tuple(len, visitor))
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Mismatch> {
        self.read(|node| match node.0 {
            Value::Object(map) => Entries::read(map, fields, visitor),
            _ => Err(Mismatch::expected("an object", &node.kind())),
        })
    }
}
