//! The availability of a server, and its changes.

use std::sync::Arc;

use serde::{Deserialize, Serialize, Serializer};
use tokio::time::Instant;

use super::transition::millis;
use crate::text::Short;

/// The health of one server.
///
/// With serde: `server`, `state`, `reason`, `failures`, `for_ms`: how long it has been in this
/// state, at the moment of writing, and `probe_in_ms`: the time to [`probe_at`](Self::probe_at).
#[derive(Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ServerHealth {
    /// The server's name, its first 256 bytes; `None` for calls that name none.
    pub server: Option<Arc<str>>,
    /// Its availability.
    pub state: Availability,
    /// The reason, if it is not available.
    pub reason: Option<Reason>,
    /// Timeouts and connection failures in a row.
    pub failures: u32,
    /// When it entered this state; for a server that was always available, when the registry was
    /// made.
    #[serde(rename = "for_ms", serialize_with = "millis_since")]
    pub since: Instant,
    /// When the next call passes as a probe, if calls are refused. `None` if calls pass.
    #[serde(rename = "probe_in_ms", serialize_with = "millis_until")]
    pub probe_at: Option<Instant>,
}

impl ServerHealth {
    /// Returns the part that watchers are notified of.
    pub(crate) fn news(&self) -> impl PartialEq + use<> {
        (self.server.clone(), self.state, self.reason, self.probe_at)
    }
}

fn millis_since<S: Serializer>(since: &Instant, to: S) -> Result<S::Ok, S::Error> {
    millis::of(since.elapsed()).serialize(to)
}

fn millis_until<S: Serializer>(at: &Option<Instant>, to: S) -> Result<S::Ok, S::Error> {
    let until = |at: Instant| millis::of(at.saturating_duration_since(Instant::now()));
    at.map(until).serialize(to)
}

crate::text::debug_fields! {
    /// Shows the name short and redacted, as events do.
    {} |this| ServerHealth {
        server: this.server.as_deref().map(Short::name),
        state, reason, failures, since, probe_at,
    }
}

/// The availability of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Availability {
    /// No recent call shows otherwise.
    #[default]
    Available,
    /// The last calls timed out or did not reach it, but fewer than the threshold.
    Degraded,
    /// The server is not reachable.
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

/// The reason why a server is not available.
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
    /// Timeouts and connection failures in a row: those that led to it, or those that an answer has
    /// ended.
    pub failures: u32,
    /// Counts the server's changes, anew if it was forgotten meanwhile. Of two the one with the
    /// higher number is the later one.
    pub generation: u64,
}

crate::text::debug_fields! {
    /// Shows the name short and redacted, as events do.
    {} |this| AvailabilityChange {
        server: this.server.as_deref().map(Short::name),
        from, to, reason, failures, generation,
    }
}
