use std::{fmt, sync::Arc, time::Duration};

use serde::{Serialize, Serializer, ser::SerializeStruct as _};
use tokio::time::Instant;

use crate::{
    event::availability::{Availability, Reason},
    text::Short,
};

/// The health of one server.
///
/// With serde: `server`, `state`, `reason`, `failures`, `for_ms`: how long it has been in this state, at the moment of writing,
/// and `probe_in_ms`: the time to [`probe_at`](Self::probe_at).
#[derive(Clone, PartialEq, Eq)]
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
    /// When it entered this state; for a server that was always available, when it became known.
    pub since: Instant,
    /// When the next call passes as a probe, if calls are refused. `None` if calls pass.
    pub probe_at: Option<Instant>,
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl Serialize for ServerHealth {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let now = Instant::now();
        let probe_in = self.probe_at.map(|at| at.saturating_duration_since(now));
        let mut to = to.serialize_struct("ServerHealth", 6)?;
        to.serialize_field("server", &self.server)?;
        to.serialize_field("state", &self.state)?;
        to.serialize_field("reason", &self.reason)?;
        to.serialize_field("failures", &self.failures)?;
        let elapsed = now.saturating_duration_since(self.since);
        to.serialize_field("for_ms", &millis(elapsed))?;
        to.serialize_field("probe_in_ms", &probe_in.map(millis))?;
        to.end()
    }
}

/// Shows the name short and redacted, as events do.
impl fmt::Debug for ServerHealth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerHealth")
            .field("server", &self.server.as_deref().map(Short::name))
            .field("state", &self.state)
            .field("reason", &self.reason)
            .field("failures", &self.failures)
            .field("since", &self.since)
            .field("probe_at", &self.probe_at)
            .finish()
    }
}
