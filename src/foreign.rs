//! The core's questions about types of other crates. Each edge that is compiled in answers for its
//! own: this is the one list of them.

use std::{any::Any, error::Error as StdError, hash::Hasher};

use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use tracing::Span;

use crate::{
    answer::{Answer, json_bytes},
    call::ToolCall,
    error::ToolError,
    text::limited::{self, LEVELS},
};

/// Defines questions to each edge that is compiled in. The first one that knows the answer has it.
macro_rules! ask {
    ($($(#[$doc:meta])* $name:ident($arg:ty) -> $out:ty, $how:ident: [$($known:tt)*];)*) => {$(
        $(#[$doc])*
        pub(crate) fn $name(arg: $arg) -> $out {
            const KNOWN: &[fn($arg) -> $out] = &[$($known)*];
            KNOWN.iter().$how(|known| known(arg))
        }
    )*};
}

ask! {
    /// Recognises an error as a leaf that is a transport met it on its own wire; `None` if no edge
    /// knows its type.
    cause(&(dyn StdError + 'static)) -> Option<ToolError>, find_map: [
        #[cfg(feature = "tower")]
        crate::edge::tower::cause,
        #[cfg(feature = "hyper")]
        crate::edge::hyper::cause,
        #[cfg(any(feature = "hyper", feature = "tonic"))]
        crate::edge::h2::cause,
        #[cfg(feature = "http-client")]
        crate::edge::reqwest::cause,
        #[cfg(feature = "mcp")]
        crate::edge::mcp::on_wire,
        #[cfg(feature = "tonic")]
        crate::edge::grpc_status::on_wire,
    ];
    /// Returns whether an error wraps another and adds nothing.
    is_transparent(&(dyn StdError + 'static)) -> bool, any: [
        #[cfg(feature = "tower")]
        crate::edge::tower::is_transparent,
        #[cfg(feature = "tonic")]
        crate::edge::grpc_status::is_transparent,
    ];
    /// Returns the text of an error whose own is not for people.
    shown(&(dyn StdError + 'static)) -> Option<String>, find_map: [
        #[cfg(feature = "mcp")]
        crate::edge::mcp::shown,
        #[cfg(feature = "tonic")]
        crate::edge::grpc_status::shown,
    ];
    /// Returns whether a layer of another crate refused the call.
    is_refusal(&(dyn StdError + 'static)) -> bool, any: [
        #[cfg(feature = "tower")]
        crate::edge::tower::is_refusal,
    ];
    /// Returns whether a layer of another crate exports the span. The span is new, and was not
    /// entered yet.
    is_exported(&Span) -> bool, any: [
        #[cfg(feature = "otel")]
        crate::edge::otel::is_exported,
    ];
    /// Returns whether the sampler of another crate drops a span.
    is_sampled_out(&Span) -> bool, any: [
        #[cfg(feature = "otel")]
        crate::edge::otel::is_sampled_out,
    ];
    /// Returns the token of the one for whom a call is made.
    subject(&ToolCall) -> Option<&str>, find_map: [
        |call| call.subject_token().map(crate::call::Secret::expose),
    ];
    /// Returns whether an answer only asks for input: the call is made again with it.
    asks(&dyn Any) -> bool, any: [
        #[cfg(feature = "mcp")]
        crate::edge::mcp::asks,
    ];
}

/// A text that was made of an error, without the address in it: that may be a secret as a whole.
pub(crate) fn without_address(text: String, error: &(dyn StdError + 'static)) -> String {
    const KNOWN: &[fn(String, &(dyn StdError + 'static)) -> String] = &[
        #[cfg(feature = "http-client")]
        crate::edge::reqwest::without_address,
        #[cfg(feature = "mcp-http")]
        crate::edge::mcp::without_address,
    ];
    KNOWN.iter().fold(text, |text, known| known(text, error))
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
