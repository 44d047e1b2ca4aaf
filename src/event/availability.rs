//! Whether a server is there, and how that changes.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::text::Short;

/// Whether a server is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Availability {
    /// For all that is known, it is.
    #[default]
    Available,
    /// The last calls timed out or did not reach it, but not as many as it takes.
    Degraded,
    /// It is not.
    Unavailable,
}

impl Availability {
    /// The state's name in events and snapshots.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Available => "available",
            Self::Degraded => "degraded",
            Self::Unavailable => "unavailable",
        }
    }
}

impl fmt::Display for Availability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Why a server is not available.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Reason {
    /// The last call timed out.
    Timeout,
    /// The last call did not reach it, or lost its connection.
    ConnectionFailed,
}

impl Reason {
    /// The reason's name in events and snapshots.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::ConnectionFailed => "connection_failed",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A change of a server's availability.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct AvailabilityChange {
    /// The server's name, its first 256 bytes; none for calls that name none.
    pub server: Option<Arc<str>>,
    /// What it was.
    pub from: Availability,
    /// What it is now.
    pub to: Availability,
    /// Why it is not available, if it is not.
    pub reason: Option<Reason>,
    /// Timeouts and connection failures in a row: those that led to it, or those that an answer has ended.
    pub failures: u32,
    /// Counts the server's changes, anew if it was forgotten meanwhile. Of two the one with the higher number is the later one.
    pub generation: u64,
}

/// Shows the name short and redacted, as events do.
impl fmt::Debug for AvailabilityChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AvailabilityChange")
            .field("server", &self.server.as_deref().map(Short::name))
            .field("from", &self.from)
            .field("to", &self.to)
            .field("reason", &self.reason)
            .field("failures", &self.failures)
            .field("generation", &self.generation)
            .finish()
    }
}
