//! Whether a server is there, and how that changes.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::text::Short;

/// Whether a server is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Availability {
    /// The server is there, as far as is known.
    #[default]
    Available,
    /// The last calls timed out or did not reach it, but fewer than the threshold.
    Degraded,
    /// The server is not there.
    Unavailable,
}

crate::text::names! {
    /// The state's name in events and snapshots.
    Availability {
        Available = "available",
        Degraded = "degraded",
        Unavailable = "unavailable",
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

crate::text::names! {
    /// The reason's name in events and snapshots.
    Reason {
        Timeout = "timeout",
        ConnectionFailed = "connection_failed",
    }
}

/// A change of a server's availability.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct AvailabilityChange {
    /// The server's name, its first 256 bytes; none for calls that name none.
    pub server: Option<Arc<str>>,
    /// The availability before.
    pub from: Availability,
    /// The availability now.
    pub to: Availability,
    /// Why it is not available, if it is not.
    pub reason: Option<Reason>,
    /// Timeouts and connection failures in a row: those that led to it, or those that an answer has ended.
    pub failures: u32,
    /// Counts the server's changes, anew if it was forgotten meanwhile. Of two the one with the higher number is the later one.
    pub generation: u64,
}

crate::text::debug_fields! {
    /// Shows the name short and redacted, as events do.
    {} |this| AvailabilityChange {
        server: this.server.as_deref().map(Short::name),
        from: this.from,
        to: this.to,
        reason: this.reason,
        failures: this.failures,
        generation: this.generation,
    }
}
