//! Serialising values of any type with bounds: a `Serialize` of a user may be as deep and as wide
//! as it likes, and unbounded recursion on it would overflow the stack.

use std::{cell::Cell, fmt::Display, io};

use serde::{
    Serialize, Serializer,
    ser::{
        Error as _, SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant,
        SerializeTuple, SerializeTupleStruct, SerializeTupleVariant,
    },
};
use serde_json::{Error, Value};
use toolcall_redact::Rules;

/// More levels than any JSON parser takes.
pub(crate) const LEVELS: usize = 128;

/// `value` as JSON, without what lies below `levels` and what comes after `nodes` values. The
/// recursion ends there, however deep the value is.
pub(crate) fn collect<T: Serialize + ?Sized>(
    value: &T,
    levels: usize,
    nodes: usize,
) -> Result<Value, Error> {
    let budget = Budget::new(nodes);
    let limits = Limits::new(levels, &budget);
    value.serialize(Limited::new(serde_json::value::Serializer, limits))
}

/// `value` as JSON, no deeper and no wider than a view by `rules` shows.
pub(crate) fn collect_for<T: Serialize + ?Sized>(rules: &Rules, value: &T) -> Result<Value, Error> {
    // One more of both, so that the view shows that something is missing.
    collect(value, rules.max_depth() + 1, rules.max_nodes() + 1)
}

/// Writes `value` as JSON if it has no more than these levels.
pub(crate) fn write<T: Serialize + ?Sized>(
    to: impl io::Write,
    value: &T,
    levels: usize,
) -> Result<(), Error> {
    let budget = Budget::new(usize::MAX);
    let limits = Limits::new(levels, &budget);
    let mut to = serde_json::Serializer::new(to);
    value.serialize(Limited::new(&mut to, limits))?;
    match budget.too_deep.get() {
        true => Err(Error::custom("nested too deeply")),
        false => Ok(()),
    }
}

/// The budget of the whole value, and whether it was too deep.
struct Budget {
    nodes: Cell<usize>,
    too_deep: Cell<bool>,
}

impl Budget {
    fn new(nodes: usize) -> Self {
        Self {
            nodes: Cell::new(nodes),
            too_deep: Cell::new(false),
        }
    }

    fn below(&self, depth: usize) -> Option<usize> {
        self.too_deep.set(self.too_deep.get() || depth == 0);
        depth.checked_sub(1)
    }
}

/// How many wrappers may follow each other: `Some(..)`, or a struct around one value. They are no
/// levels of the JSON, but recursion all the same.
const WRAPPERS: usize = 8;

/// The prefix of the structs by which `serde_json` passes on a number or raw JSON.
const PRIVATE: &str = "$serde_json::private::";

#[derive(Clone, Copy)]
struct Limits<'n> {
    /// How many levels may still follow.
    levels: usize,
    wrappers: usize,
    /// Set for a [`PRIVATE`] struct, which is empty without its one member.
    whole: bool,
    budget: &'n Budget,
}

impl<'n> Limits<'n> {
    fn new(levels: usize, budget: &'n Budget) -> Self {
        Self {
            levels,
            wrappers: WRAPPERS,
            whole: false,
            budget,
        }
    }

    /// Returns the limits of one more member, if there is a place for it.
    fn member(self) -> Option<Self> {
        if self.whole {
            return Some(self);
        }
        let left = self.budget.nodes.get();
        self.budget.nodes.set(left.saturating_sub(1));
        let levels = self.budget.below(self.levels)?;
        (left > 0).then(|| Self::new(levels, self.budget))
    }

    /// Returns the limits inside a wrapper.
    fn wrapped(self) -> Option<Self> {
        let wrappers = self.budget.below(self.wrappers)?;
        Some(Self { wrappers, ..self })
    }

    fn of<'a, T: ?Sized>(self, value: &'a T) -> Below<'a, 'n, T> {
        let limits = self;
        Below { value, limits }
    }
}

/// A value one level further down.
struct Below<'a, 'n, T: ?Sized> {
    value: &'a T,
    limits: Limits<'n>,
}

impl<T: Serialize + ?Sized> Serialize for Below<'_, '_, T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.value.serialize(Limited::new(to, self.limits))
    }
}

/// Passes on to a serializer, or to what it has begun, no more than the limits allow.
struct Limited<'n, S> {
    to: S,
    limits: Limits<'n>,
    /// Of a map: the limits of the value for the last key.
    value: Option<Limits<'n>>,
}

impl<'n, S> Limited<'n, S> {
    fn new(to: S, limits: Limits<'n>) -> Self {
        let value = None;
        Self { to, limits, value }
    }

    fn begun<C, E>(limits: Limits<'n>, to: Result<C, E>) -> Result<Limited<'n, C>, E> {
        to.map(|to| Limited::new(to, limits))
    }
}

/// Methods for values without members, or methods that begin a value with members.
macro_rules! pass_on {
    ($($method:ident($($arg:ident: $type:ty),*);)*) => {$(
        fn $method(self, $($arg: $type),*) -> Result<S::Ok, S::Error> {
            self.to.$method($($arg),*)
        }
    )*};
    ($($method:ident($($arg:ident: $type:ty),*) -> $begun:ident;)*) => {$(
        fn $method(self, $($arg: $type),*) -> Result<Self::$begun, S::Error> {
            Self::begun(self.limits, self.to.$method($($arg),*))
        }
    )*};
}

impl<'n, S: Serializer> Serializer for Limited<'n, S> {
    type Ok = S::Ok;
    type Error = S::Error;
    type SerializeSeq = Limited<'n, S::SerializeSeq>;
    type SerializeTuple = Limited<'n, S::SerializeTuple>;
    type SerializeTupleStruct = Limited<'n, S::SerializeTupleStruct>;
    type SerializeTupleVariant = Limited<'n, S::SerializeTupleVariant>;
    type SerializeMap = Limited<'n, S::SerializeMap>;
    type SerializeStruct = Limited<'n, S::SerializeStruct>;
    type SerializeStructVariant = Limited<'n, S::SerializeStructVariant>;

    pass_on! {
        serialize_bool(v: bool);
        serialize_i8(v: i8);
        serialize_i16(v: i16);
        serialize_i32(v: i32);
        serialize_i64(v: i64);
        serialize_i128(v: i128);
        serialize_u8(v: u8);
        serialize_u16(v: u16);
        serialize_u32(v: u32);
        serialize_u64(v: u64);
        serialize_u128(v: u128);
        serialize_f32(v: f32);
        serialize_f64(v: f64);
        serialize_char(v: char);
        serialize_str(v: &str);
        serialize_none();
        serialize_unit();
        serialize_unit_struct(name: &'static str);
        serialize_unit_variant(name: &'static str, index: u32, variant: &'static str);
    }

    pass_on! {
        serialize_tuple(len: usize) -> SerializeTuple;
        serialize_tuple_struct(name: &'static str, len: usize) -> SerializeTupleStruct;
        serialize_tuple_variant(name: &'static str, index: u32, variant: &'static str, len: usize) -> SerializeTupleVariant;
        serialize_struct_variant(name: &'static str, index: u32, variant: &'static str, len: usize) -> SerializeStructVariant;
    }

    /// Writes an array of numbers, as JSON does.
    fn serialize_bytes(self, v: &[u8]) -> Result<S::Ok, S::Error> {
        let nodes = v.len().min(self.limits.budget.nodes.get());
        self.to.serialize_bytes(&v[..nodes])
    }

    fn collect_str<T: Display + ?Sized>(self, v: &T) -> Result<S::Ok, S::Error> {
        self.to.collect_str(v)
    }

    fn serialize_some<T: Serialize + ?Sized>(self, v: &T) -> Result<S::Ok, S::Error> {
        match self.limits.wrapped() {
            None => self.to.serialize_none(),
            Some(left) => self.to.serialize_some(&left.of(v)),
        }
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        v: &T,
    ) -> Result<S::Ok, S::Error> {
        self.serialize_some(v)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
        v: &T,
    ) -> Result<S::Ok, S::Error> {
        let to = self.to;
        match self.limits.member() {
            None => to.serialize_unit_variant(name, index, variant),
            Some(left) => to.serialize_newtype_variant(name, index, variant, &left.of(v)),
        }
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Self::SerializeSeq, S::Error> {
        Self::begun(self.limits, self.to.serialize_seq(None))
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Self::SerializeMap, S::Error> {
        Self::begun(self.limits, self.to.serialize_map(None))
    }

    fn serialize_struct(
        self,
        name: &'static str,
        len: usize,
    ) -> Result<Self::SerializeStruct, S::Error> {
        let mut limits = self.limits;
        limits.whole = name.starts_with(PRIVATE);
        Self::begun(limits, self.to.serialize_struct(name, len))
    }
}

macro_rules! members {
    ($($trait:ident: $method:ident($($key:ident: $type:ty)?);)*) => {$(
        impl<S: $trait> $trait for Limited<'_, S> {
            type Ok = S::Ok;
            type Error = S::Error;

            fn $method<T: Serialize + ?Sized>(
                &mut self,
                $($key: $type,)?
                v: &T,
            ) -> Result<(), S::Error> {
                match self.limits.member() {
                    Some(left) => self.to.$method($($key,)? &left.of(v)),
                    None => Ok(()),
                }
            }

            fn end(self) -> Result<S::Ok, S::Error> {
                self.to.end()
            }
        }
    )*};
}

members! {
    SerializeSeq: serialize_element();
    SerializeTuple: serialize_element();
    SerializeTupleStruct: serialize_field();
    SerializeTupleVariant: serialize_field();
    SerializeStruct: serialize_field(key: &'static str);
    SerializeStructVariant: serialize_field(key: &'static str);
}

impl<S: SerializeMap> SerializeMap for Limited<'_, S> {
    type Ok = S::Ok;
    type Error = S::Error;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), S::Error> {
        self.value = self.limits.member();
        match self.value {
            Some(_) => self.to.serialize_key(key),
            None => Ok(()),
        }
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, v: &T) -> Result<(), S::Error> {
        match self.value.take() {
            Some(left) => self.to.serialize_value(&left.of(v)),
            None => Ok(()),
        }
    }

    fn end(self) -> Result<S::Ok, S::Error> {
        self.to.end()
    }
}

#[cfg(test)]
mod tests;
