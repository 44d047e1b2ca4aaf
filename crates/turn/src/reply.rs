use std::fmt;

use serde_json::Value;

use crate::{MAX_BYTES, MAX_CALLS, assembler::MAX_BLOCKS, format::LEVELS};

/// The reply to the provider after a turn: the model's message, and exactly one result for each of
/// its calls.
#[derive(Clone)]
#[must_use]
pub struct Reply {
    pub(super) said: Vec<Value>,
    pub(super) results: Vec<Value>,
    pub(super) refused: Vec<Option<String>>,
}

impl Reply {
    /// Returns the model's message, with signatures and reasoning unchanged: a message, or the
    /// output items of a response.
    pub fn said(&self) -> &[Value] {
        &self.said
    }

    /// Returns the results: a message for each (`OpenAiChat`), an item for each
    /// (`OpenAiResponses`), or one message with all of them. A conversation that the provider
    /// stores (`previous_response_id`) needs only these.
    pub fn results(&self) -> &[Value] {
        &self.results
    }

    /// Returns both, in the order in which they are appended to the conversation.
    pub fn into_messages(self) -> impl Iterator<Item = Value> {
        self.said.into_iter().chain(self.results)
    }

    /// Returns the ids of results that were not taken, as the turn has no such call, or has a
    /// result for it already.
    pub fn refused(&self) -> impl Iterator<Item = Option<&str>> {
        self.refused.iter().map(Option::as_deref)
    }
}

/// Shows sizes, never what was said.
impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reply")
            .field("said", &self.said.len())
            .field("results", &self.results.len())
            .field("refused", &self.refused.len())
            .finish()
    }
}

/// Why what a model sent cannot be read as a turn. A call with bad arguments is none of these: it
/// has its answer in the turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TurnError {
    /// The value is not a response or message of the format.
    NotATurn,
    /// The turn has more than [`MAX_CALLS`] calls.
    TooManyCalls,
    /// A stream has more than [`MAX_BYTES`] bytes, or 1,024 blocks.
    TooLarge,
    /// The value is nested deeper than JSON parsers go: 128 levels.
    TooDeep,
}

impl fmt::Display for TurnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotATurn => f.write_str("this is not a model's response in the given format"),
            Self::TooManyCalls => write!(f, "the turn has more than {MAX_CALLS} tool calls"),
            Self::TooLarge => write!(
                f,
                "the stream has more than {MAX_BYTES} bytes or {MAX_BLOCKS} blocks"
            ),
            Self::TooDeep => write!(f, "the turn is nested deeper than {LEVELS} levels"),
        }
    }
}

impl std::error::Error for TurnError {}
