use std::fmt;

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

    /// Its name, as it is serialised.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Error => "error",
            Self::Timeout => "timeout",
            Self::Skipped => "skipped",
            Self::Cancelled => "cancelled",
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
