//! The core's questions about types of other crates: the bridges that are compiled in, and what
//! tool services make known.

use std::{any::Any, hash::Hasher, iter, sync::OnceLock};

use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use tracing::Span;

use crate::{
    answer::{Answer, json_bytes},
    error::KnownErrors,
    text::limited::{self, LEVELS},
};

/// The bridges that recognise errors of other crates.
pub(crate) const BRIDGES: &[&dyn KnownErrors] = &[
    #[cfg(feature = "tower")]
    &crate::edge::tower::Errors,
    #[cfg(feature = "hyper")]
    &crate::edge::hyper::Errors,
    #[cfg(any(feature = "hyper", feature = "tonic"))]
    &crate::edge::h2::Errors,
    #[cfg(feature = "http-client")]
    &crate::edge::reqwest::Errors,
    #[cfg(feature = "tonic")]
    &crate::edge::grpc_status::Errors,
];

/// How many values a [`Chain`] has at most.
const MAX_KNOWN: usize = 64;

/// A list that only grows. Reading it takes no lock.
pub(crate) struct Chain<T>(OnceLock<Box<(T, Self)>>);

impl<T: Copy> Chain<T> {
    pub(crate) const fn new() -> Self {
        Self(OnceLock::new())
    }

    /// Adds a value, unless there is one that `is_same`. `false`: the list is full.
    pub(crate) fn add(&self, value: T, is_same: impl Fn(T) -> bool) -> bool {
        let mut end = self;
        for _ in 0..MAX_KNOWN {
            let (found, rest) = &**end.0.get_or_init(|| Box::new((value, Self::new())));
            if is_same(*found) {
                return true;
            }
            end = rest;
        }
        false
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = T> + '_ {
        let links = iter::successors(self.0.get(), |link| link.1.0.get());
        links.map(|link| link.0)
    }
}

/// Returns whether a layer of another crate exports the span. The span is new, and was not entered
/// yet.
pub(crate) fn is_exported(span: &Span) -> bool {
    #[cfg(feature = "otel")]
    return crate::edge::otel::is_exported(span);
    #[cfg(not(feature = "otel"))]
    {
        let _ = span;
        false
    }
}

/// Returns whether the sampler of another crate drops a span.
pub(crate) fn is_sampled_out(span: &Span) -> bool {
    #[cfg(feature = "otel")]
    return crate::edge::otel::is_sampled_out(span);
    #[cfg(not(feature = "otel"))]
    {
        let _ = span;
        false
    }
}

/// Returns whether an answer only asks for input: the call is made again with it.
pub(crate) fn asks(answer: &dyn Any) -> bool {
    #[cfg(feature = "mcp")]
    return crate::edge::mcp::asks(answer);
    #[cfg(not(feature = "mcp"))]
    {
        let _ = answer;
        false
    }
}

/// An answer of a known type, as it is kept.
pub(crate) enum Json {
    /// Equal when it is parsed.
    Text(Box<str>),
    /// No such text. The answer takes about so many bytes as it is, if that is known.
    Parsed(Option<u64>),
}

/// Parsed JSON takes up to so many times the bytes of its text.
pub(crate) const PARSED: u64 = 100;

/// The JSON of an answer, if it has at most `max` bytes. `None`: its type is not known.
pub(crate) fn json_of(answer: &dyn Any, max: u64) -> Option<Json> {
    type Write = fn(&dyn Any, u64) -> Option<Json>;
    const KNOWN: &[Write] = &[
        |answer, max| Some(same_json(answer.downcast_ref::<Value>()?, max)),
        #[cfg(feature = "mcp")]
        crate::edge::mcp::json_of,
    ];
    KNOWN.iter().find_map(|known| known(answer, max))
}

/// How many bytes of an answer are hashed.
const MAX_HASHED: usize = 16 << 10;

/// Feeds a hasher the beginning of an answer, and the length of a text. False: its type is not
/// known, or it cannot be written as JSON.
pub(crate) fn hash_into(answer: &dyn Any, hasher: &mut dyn Hasher) -> bool {
    type Hash = fn(&dyn Any, &mut dyn Hasher) -> bool;
    const KNOWN: &[Hash] = &[
        |answer, hasher| Answer::of_any(answer).is_some_and(|answer| hash_answer(answer, hasher)),
        #[cfg(feature = "http-tool")]
        crate::edge::http_tool::hash_into,
        #[cfg(feature = "mcp")]
        crate::edge::mcp::hash_into,
    ];
    KNOWN.iter().any(|known| known(answer, hasher))
}

pub(crate) fn hash_answer(answer: Answer<'_>, hasher: &mut dyn Hasher) -> bool {
    match answer {
        Answer::Text(text) => {
            hasher.write_usize(text.len());
            hasher.write(&text.as_bytes()[..text.len().min(MAX_HASHED)]);
            true
        }
        Answer::Json(json) => hash_json(&*json, hasher),
    }
}

/// Feeds a hasher the beginning of an answer's JSON, in one piece: the most writes are of one byte.
pub(crate) fn hash_json<T: Serialize>(answer: &T, hasher: &mut dyn Hasher) -> bool {
    let mut json = [0; MAX_HASHED];
    let mut rest = &mut json[..];
    // A slice that is full refuses what follows.
    let is_whole = limited::write(&mut rest, answer, LEVELS).is_ok();
    let len = MAX_HASHED - rest.len();
    hasher.write(&json[..len]);
    is_whole || len == MAX_HASHED
}

/// The answer that has this JSON.
pub(crate) fn answer_of<Res: 'static>(json: &str) -> Option<Res> {
    const KNOWN: &[fn(&mut dyn Any, &str)] = &[
        parse_into::<Value>,
        #[cfg(feature = "mcp")]
        crate::edge::mcp::parse_into,
    ];
    let mut answer = None::<Res>;
    KNOWN.iter().for_each(|known| known(&mut answer, json));
    answer
}

pub(crate) fn same_json<T>(answer: &T, max: u64) -> Json
where
    T: Serialize + DeserializeOwned + PartialEq,
{
    let bytes = json_bytes(answer, max).ok();
    let json = bytes.and_then(|_| serde_json::to_string(answer).ok());
    let is_same = |json: &String| serde_json::from_str::<T>(json).is_ok_and(|t| t == *answer);
    match json.filter(is_same) {
        Some(json) => Json::Text(json.into()),
        None => Json::Parsed(bytes.map(|bytes| bytes.saturating_mul(PARSED))),
    }
}

/// Parses the JSON if this is the place of an answer of its type.
pub(crate) fn parse_into<T: DeserializeOwned + 'static>(place: &mut dyn Any, json: &str) {
    if let Some(place) = place.downcast_mut::<Option<T>>() {
        *place = serde_json::from_str(json).ok();
    }
}
