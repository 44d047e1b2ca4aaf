use serde::{Deserialize, Serialize};

use crate::error::ErrorKind;

/// How a call ended, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Status {
    /// It has its answer.
    Success,
    /// It failed, or was refused, or the tool reported an error of its own.
    Error,
    /// It was started and did not end in time.
    Timeout,
    /// It was not started: no time was left for it.
    Skipped,
    /// The caller gave it up.
    Cancelled,
}

impl Status {
    /// The status of a call that ended with this kind of error.
    pub const fn of(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::Timeout => Self::Timeout,
            ErrorKind::DeadlineExceeded => Self::Skipped,
            ErrorKind::Cancelled => Self::Cancelled,
            _ => Self::Error,
        }
    }
}

crate::text::names! {
    /// Its name, as it is serialised.
    Status {
        Success = "success",
        Error = "error",
        Timeout = "timeout",
        Skipped = "skipped",
        Cancelled = "cancelled",
    }
}
