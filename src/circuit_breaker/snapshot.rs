use std::{fmt, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{
    event::transition::{BreakerState, TransitionReason, millis},
    text::Short,
};

/// A breaker at one moment.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct BreakerSnapshot {
    /// The server part of its key, the first 256 bytes.
    pub server: Option<String>,
    /// The tool part of its key, or the result of a key function, the first 256 bytes.
    pub tool: Option<String>,
    /// Its state. An open breaker stays open until a call comes after its period.
    pub state: BreakerState,
    /// Why it is in that state; `None` if it has never been in another.
    #[serde(default)]
    pub reason: Option<TransitionReason>,
    /// Changes with the state, and when a closed breaker is reset: results that were admitted
    /// before do not count.
    pub generation: u32,
    /// Results in the window, now or when the breaker opened. With consecutive failures, the number
    /// of failures.
    pub calls: u32,
    /// Failures among them.
    pub failures: u32,
    /// Slow calls among them.
    pub slow_calls: u32,
    /// Probes that are running.
    pub probes: usize,
    /// How long a call that would be refused now should wait; `None` if it would be admitted. In
    /// JSON as whole milliseconds, rounded up.
    #[serde(rename = "retry_after_ms", with = "millis")]
    pub retry_after: Option<Duration>,
    /// Whether it is open, or half-open, because [another process](super::Breaker::adopt) has
    /// opened it.
    #[serde(default)]
    pub adopted: bool,
    /// Failures that counted, in the lifetime of the breaker. There is no total of successes: a
    /// success that changes nothing writes nothing.
    pub failed_total: u64,
    /// How often it has opened by its own results.
    pub opened_total: u64,
    /// Principals for whom alone it [refuses calls](super::Breaker::principals).
    #[serde(default)]
    pub principals_refused: usize,
    /// Calls that it has refused, those of single principals included.
    pub rejected_total: u64,
    /// Calls among them that it has refused to their principals alone, after
    /// [weak failures](super::WeakFailures) of theirs.
    #[serde(default)]
    pub principals_rejected_total: u64,
    /// Successes and failures that came after a change of state and did not count.
    pub stale_total: u64,
}

/// Shows the key short and redacted, as events do.
impl fmt::Debug for BreakerSnapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BreakerSnapshot")
            .field("server", &self.server.as_deref().map(Short::name))
            .field("tool", &self.tool.as_deref().map(Short::name))
            .field("state", &self.state)
            .field("reason", &self.reason)
            .field("generation", &self.generation)
            .field("calls", &self.calls)
            .field("failures", &self.failures)
            .field("slow_calls", &self.slow_calls)
            .field("probes", &self.probes)
            .field("retry_after", &self.retry_after)
            .field("adopted", &self.adopted)
            .field("failed_total", &self.failed_total)
            .field("opened_total", &self.opened_total)
            .field("principals_refused", &self.principals_refused)
            .field("rejected_total", &self.rejected_total)
            .field("principals_rejected_total", &self.principals_rejected_total)
            .field("stale_total", &self.stale_total)
            .finish()
    }
}
