//! Answers of other crates' types, for layers that keep answers or compare them.

use std::{
    any::{Any, TypeId},
    fmt,
    hash::Hasher,
    marker::PhantomData,
};

use http::Extensions;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use super::{Answer, json_bytes};
use crate::{
    foreign::Chain,
    text::limited::{self, LEVELS},
};

/// An answer type, for layers that keep answers or compare them.
///
/// The layers know text, JSON and `()`. A tool service's constructor makes its own type known by
/// [`register`]. Answers of unknown types are kept as they are, count as the largest answer that
/// is kept, and are all the same to a [`RepeatGuardLayer`](crate::repeat_guard::RepeatGuardLayer).
///
/// ```
/// use std::hash::Hasher;
/// use serde::{Deserialize, Serialize};
/// use tower_toolcall::answer::{KnownAnswer, Kept, hash_json, register};
///
/// #[derive(Serialize, Deserialize, PartialEq)]
/// struct Found {
///     pages: Vec<String>,
///     took_ms: u64,
/// }
///
/// impl KnownAnswer for Found {
///     fn hash_into(&self, hasher: &mut dyn Hasher) -> bool {
///         hash_json(&self.pages, hasher) // a time is not news
///     }
///
///     fn keep(&self, max: u64) -> Option<Kept<Self>> {
///         Some(Kept::json(self, max))
///     }
/// }
///
/// register::<Found>(); // in the constructor of the tool service
/// ```
#[expect(unused_variables, reason = "implementations use them")]
pub trait KnownAnswer: Any + Sized {
    /// Returns whether the answer only asks for input, after which the call is made again: no layer
    /// keeps it. Default: `false`.
    fn asks_for_input(&self) -> bool {
        false
    }

    /// Feeds a hasher the answers to a tool's questions that a call has in its extensions.
    /// [`cache`](crate::cache) passes such a call, and [`once`](crate::once) compares the hash.
    ///
    /// Returns `false` if the call has none. Default: `false`.
    fn hash_input(extensions: &Extensions, hasher: &mut dyn Hasher) -> bool {
        false
    }

    /// Feeds a hasher the beginning of what the answer says: two answers with one hash are no news
    /// to a [`RepeatGuardLayer`](crate::repeat_guard::RepeatGuardLayer). [`hash_json`] and
    /// [`Answer::hash_into`] feed 16 KiB at most.
    ///
    /// Returns `false` if the answer cannot be compared. Default: `false`.
    fn hash_into(&self, hasher: &mut dyn Hasher) -> bool {
        false
    }

    /// Returns the form in which [`cache`](crate::cache) and [`once`](crate::once) keep the answer,
    /// of which they have room for `max` bytes. Default: `None`, as for an unknown type.
    fn keep(&self, max: u64) -> Option<Kept<Self>> {
        None
    }
}

impl KnownAnswer for Value {
    fn keep(&self, max: u64) -> Option<Kept<Self>> {
        Some(Kept::json(self, max))
    }
}

/// The form in which an answer of type `T` is kept: see [`KnownAnswer::keep`].
pub struct Kept<T>(pub(crate) Form, PhantomData<fn() -> T>);

/// Parsed JSON takes up to so many times the bytes of its text.
pub(crate) const PARSED: u64 = 100;

impl<T: 'static> Kept<T> {
    /// Keeps the JSON of an answer, or of the part that the answer is made of. An answer that would
    /// not be equal when it is read again is kept as [`value`](Self::value) keeps it.
    pub fn json<V>(answer: &V, max: u64) -> Self
    where
        V: Serialize + DeserializeOwned + PartialEq,
        T: From<V>,
    {
        let bytes = json_bytes(answer, max).ok();
        let json = bytes.and_then(|_| serde_json::to_string(answer).ok());
        let is_same = |json: &String| serde_json::from_str::<V>(json).is_ok_and(|v| v == *answer);
        let Some(json) = json.filter(is_same) else {
            return Self::of_bytes(bytes);
        };
        let text = Text {
            json: json.into(),
            read: |place, json| {
                if let Some(place) = place.downcast_mut::<Option<T>>() {
                    *place = serde_json::from_str::<V>(json).ok().map(T::from);
                }
            },
        };
        Self(Form::Text(text), PhantomData)
    }

    /// Keeps the answer as it is. It counts as 100 times the bytes of its JSON, because parsed JSON
    /// may take so much. An answer of more than `max` bytes of JSON is not kept.
    pub fn value(answer: &impl Serialize, max: u64) -> Self {
        Self::of_bytes(json_bytes(answer, max).ok())
    }

    fn of_bytes(bytes: Option<u64>) -> Self {
        let parsed = bytes.map(|bytes| bytes.saturating_mul(PARSED));
        Self(Form::Value(parsed), PhantomData)
    }
}

/// Shows the size, never what the answer says.
impl<T> fmt::Debug for Kept<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.bytes() {
            Some(bytes) => write!(f, "Kept({bytes} bytes)"),
            None => f.write_str("Kept(too large)"),
        }
    }
}

pub(crate) enum Form {
    Text(Text),
    /// The bytes of the answer as it is; `None` for too many.
    Value(Option<u64>),
}

impl Form {
    pub(crate) fn bytes(&self) -> Option<u64> {
        match self {
            Self::Text(text) => Some(text.json.len() as u64),
            Self::Value(bytes) => *bytes,
        }
    }
}

/// JSON of which an answer is made again: parsed, it can take 100 times the bytes.
pub(crate) struct Text {
    json: Box<str>,
    read: fn(&mut dyn Any, &str),
}

impl Text {
    /// Returns the answer; `None` if it is of another type.
    pub(crate) fn read<Res: 'static>(&self) -> Option<Res> {
        let mut answer = None::<Res>;
        (self.read)(&mut answer, &self.json);
        answer
    }
}

/// How many bytes of an answer are hashed.
const MAX_HASHED: usize = 16 << 10;

/// Feeds a hasher the beginning of a value's JSON, 16 KiB at most. Returns `false` if it cannot be
/// written as JSON.
pub fn hash_json<T: Serialize + ?Sized>(value: &T, hasher: &mut dyn Hasher) -> bool {
    // In one piece: the most writes are of one byte.
    let mut json = [0; MAX_HASHED];
    let mut rest = &mut json[..];
    // A slice that is full refuses what follows.
    let is_whole = limited::write(&mut rest, value, LEVELS).is_ok();
    let len = MAX_HASHED - rest.len();
    hasher.write(&json[..len]);
    is_whole || len == MAX_HASHED
}

impl Answer<'_> {
    /// Feeds a hasher the beginning of the answer, 16 KiB at most, and the length of a text.
    /// Returns `false` if it cannot be written as JSON.
    pub fn hash_into(&self, hasher: &mut dyn Hasher) -> bool {
        match self {
            Self::Text(text) => {
                hasher.write_usize(text.len());
                hasher.write(&text.as_bytes()[..text.len().min(MAX_HASHED)]);
                true
            }
            Self::Json(json) => hash_json(&**json, hasher),
        }
    }
}

/// A type that is known.
#[derive(Clone, Copy)]
struct Known {
    of: fn() -> TypeId,
    asks: fn(&dyn Any) -> bool,
    input: fn(&Extensions, &mut dyn Hasher) -> bool,
    hash: fn(&dyn Any, &mut dyn Hasher) -> bool,
    keep: fn(&dyn Any, u64) -> Option<Form>,
}

impl Known {
    const fn of<T: KnownAnswer>() -> Self {
        Self {
            of: TypeId::of::<T>,
            asks: |answer| of(answer).is_some_and(T::asks_for_input),
            input: T::hash_input,
            hash: |answer, hasher| of::<T>(answer).is_some_and(|answer| answer.hash_into(hasher)),
            keep: |answer, max| Some(of::<T>(answer)?.keep(max)?.0),
        }
    }
}

fn of<T: Any>(answer: &dyn Any) -> Option<&T> {
    answer.downcast_ref()
}

static REGISTERED: Chain<Known> = Chain::new();

/// Makes an answer type known to the layers, for the rest of the process. Returns whether it is
/// known now: `false` if 64 other types are.
///
/// For the constructors of tool services: a type that is known already changes nothing. Each type
/// costs a call that succeeds at most a load and a comparison in layers that keep or compare
/// answers, and one call of [`hash_input`](KnownAnswer::hash_input).
pub fn register<T: KnownAnswer>() -> bool {
    REGISTERED.add(Known::of::<T>(), |found| (found.of)() == TypeId::of::<T>())
}

fn known(of: TypeId) -> Option<&'static Known> {
    REGISTERED.iter().find(|known| (known.of)() == of)
}

pub(crate) fn asks_for_input<Res: Any>(answer: &Res) -> bool {
    known(TypeId::of::<Res>()).is_some_and(|known| (known.asks)(answer))
}

/// Returns the hash of the answers to a tool's questions that a call has. Every type is asked: a
/// layer between may have changed the type of the tool's answer.
pub(crate) fn input_of(extensions: &Extensions, mut hasher: impl Hasher) -> Option<u64> {
    let has_input = |known: &Known| (known.input)(extensions, &mut hasher);
    let found = REGISTERED.iter().any(has_input);
    found.then(|| hasher.finish())
}

/// Returns the form in which an answer of a known type is kept.
pub(crate) fn form_of(answer: &dyn Any, max: u64) -> Option<Form> {
    match answer.downcast_ref::<Value>() {
        Some(json) => Some(json.keep(max)?.0),
        None => (known(answer.type_id())?.keep)(answer, max),
    }
}

/// Feeds a hasher the beginning of an answer. `false` if its type is not known, or it cannot be
/// written as JSON.
pub(crate) fn hash_any(answer: &dyn Any, hasher: &mut dyn Hasher) -> bool {
    match Answer::of_usual(answer) {
        Some(answer) => answer.hash_into(hasher),
        None => known(answer.type_id()).is_some_and(|known| (known.hash)(answer, hasher)),
    }
}
