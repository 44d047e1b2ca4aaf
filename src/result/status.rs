use serde::{Deserialize, Serialize};

use crate::error::ErrorKind;

/// The end of a call, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Status {
    /// The call has its answer.
    Success,
    /// The call failed or was refused, or the tool reported its own error.
    Error,
    /// The call was started and did not end in time.
    Timeout,
    /// The call was not started, because no time was left.
    Skipped,
    /// The caller cancelled the call.
    Cancelled,
}

impl Status {
    /// Returns the status of a call that ended with this kind of error.
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
