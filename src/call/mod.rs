//! The request that every layer takes: a call of one tool.
//!
//! A [`ToolCall`] has two parts. What the caller wrote (tool, server, ids, arguments, extensions)
//! lies behind one `Arc` and is copied on write, so a clone costs one reference count whatever
//! the arguments weigh. What layers change for each attempt (deadline, attempt number, replay
//! safety, claims) lies inline.
//!
//! # Clone
//!
//! `clone()` does not allocate. A copy that a retry makes belongs to the same logical call and
//! shares its [record](crate::flow::CallExt::observe). A caller who clones a call to send it twice
//! makes two logical calls: each gets its own record when the first layer that observes it sees it.

// First, so that the page of the type begins with its constructors.
mod tool_call;

mod arguments;
mod claim;
mod deadline;
pub(crate) mod ext;
mod hash;
mod identity;
mod info;
mod job;
mod listeners;
mod observation;
mod principal;
mod progress;
mod record;
mod recording;
mod secret;
mod subject;
mod typed;
mod way;
mod wire;

#[cfg(test)]
pub(crate) use self::arguments::dismantle;
pub(crate) use self::ext::CallExt;
pub(crate) use self::hash::hash_of;
pub(crate) use self::listeners::Listeners;
use self::tool_call::Place;
pub use self::{
    claim::Claim,
    deadline::Trust,
    identity::Identity,
    info::CallInfo,
    job::{JobRef, MAX_JOB_BYTES},
    observation::Observation,
    principal::VerifiedCaller,
    progress::{Pause, Progress},
    record::{IdempotencyKey, Record},
    secret::{Secret, UpstreamToken},
    tool_call::ToolCall,
};
pub(crate) use self::{
    observation::Recorded,
    principal::Whose,
    record::{nanos, written},
    way::Hold,
};
pub use crate::text::values::ValueCounter;

/// The longest tool name, in bytes. [`ToolCall::check`] refuses longer ones.
///
/// MCP allows 128 characters (specification of 2025-11-25, "Tool Names"); twice that leaves room
/// for the prefix that a gateway puts before the name.
pub const MAX_NAME_BYTES: usize = 256;

/// The most levels of nested arguments. [`ToolCall::check`] refuses deeper ones.
///
/// `serde_json` parses 128 levels, as other parsers do; what a message has around its arguments
/// needs a few of them. An MCP server drops a deeper message without an error.
pub const MAX_DEPTH: usize = 120;

/// The most values that arguments may have. [`ToolCall::check`] refuses more.
///
/// Each item of an array and each member of an object is a value; so are arrays, objects, and the
/// names of members. A parsed value takes up to 320 bytes, 90 times its text: arguments take at
/// most 13 MB beside their strings. JSON text is refused before it is parsed. A table of 900 rows
/// and 20 columns fits, as does a vector of 39,000 numbers.
pub const MAX_VALUES: usize = 40_000;

/// May a call run twice?
///
/// After an ambiguous failure (a timeout, a lost connection) it is unknown whether the tool ran.
/// A retry layer repeats such a call only when running it twice is harmless.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ReplaySafety {
    /// Not known. Treated as unsafe unless a retry policy assumes otherwise. The default.
    #[default]
    Unknown,
    /// Running it twice does no harm: it only reads, or it is idempotent.
    Safe,
    /// Running it twice would do harm: it pays, sends or deletes.
    Unsafe,
}

#[cfg(test)]
mod tests;
