use std::fmt;

use serde::{Deserialize, Serialize};

use crate::error::ErrorKind;

/// How a call ended: the label `outcome`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum CallOutcome {
    /// It has its answer.
    Success,
    /// It failed, was refused, or the tool reported an error of its own.
    Error,
    /// It was started and did not end in time.
    Timeout,
    /// It was not started: no time was left for it.
    Skipped,
    /// The caller gave it up, or its future was dropped unfinished.
    Cancelled,
    /// The tool panicked.
    Panicked,
}

impl CallOutcome {
    /// Every outcome, in the order of their declaration.
    pub(super) const ALL: [Self; 6] = [
        Self::Success,
        Self::Error,
        Self::Timeout,
        Self::Skipped,
        Self::Cancelled,
        Self::Panicked,
    ];

    /// What a call is that ended with this kind of error.
    pub const fn of(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::Timeout => Self::Timeout,
            ErrorKind::DeadlineExceeded => Self::Skipped,
            ErrorKind::Cancelled => Self::Cancelled,
            ErrorKind::Panicked => Self::Panicked,
            _ => Self::Error,
        }
    }

    /// Its name as a label.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Error => "error",
            Self::Timeout => "timeout",
            Self::Skipped => "skipped",
            Self::Cancelled => "cancelled",
            Self::Panicked => "panicked",
        }
    }
}

impl fmt::Display for CallOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
