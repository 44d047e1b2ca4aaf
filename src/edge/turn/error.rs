use std::fmt;

use super::{MAX_BYTES, MAX_CALLS, assembler::MAX_BLOCKS};
use crate::text::limited::LEVELS;

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
