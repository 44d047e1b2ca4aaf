use std::fmt;

use serde_json::Value;

use crate::{MAX_BYTES, MAX_CALLS, assembler::MAX_BLOCKS, format::LEVELS};

/// What goes back to the provider after a turn: what the model said, and exactly one result for
/// each of its calls.
#[derive(Clone)]
#[must_use]
pub struct Reply {
    pub(super) said: Vec<Value>,
    pub(super) results: Vec<Value>,
    pub(super) refused: Vec<Option<String>>,
}

impl Reply {
    /// What the model said, with signatures and reasoning as it sent them: a message, or the output
    /// items of a response.
    pub fn said(&self) -> &[Value] {
        &self.said
    }

    /// The results: a message for each (`OpenAiChat`), an item for each (`OpenAiResponses`), or one
    /// message with all of them. Alone they are what a conversation needs that the provider stores
    /// (`previous_response_id`).
    pub fn results(&self) -> &[Value] {
        &self.results
    }

    /// Both, in the order in which they are appended to the conversation.
    pub fn into_messages(self) -> impl Iterator<Item = Value> {
        self.said.into_iter().chain(self.results)
    }

    /// The ids of results that were not taken, as the turn has no such call, or has a result for it
    /// already.
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
    /// It is no response or message of the format.
    NotATurn,
    /// It has more than [`MAX_CALLS`] calls.
    TooManyCalls,
    /// A stream has more than [`MAX_BYTES`] bytes, or 1,024 blocks.
    TooLarge,
    /// It is nested deeper than JSON parsers go: 128 levels.
    TooDeep,
}

impl fmt::Display for TurnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotATurn => f.write_str("this is no response of a model in the given format"),
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
