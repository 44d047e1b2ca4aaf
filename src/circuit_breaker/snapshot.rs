use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{
    event::transition::{BreakerState, OpenCause, TransitionReason, millis},
    text::Short,
};

/// A breaker at one moment.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
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
    /// Set if the breaker is open or half-open because [another process](super::Breaker::adopt) has
    /// opened it.
    #[serde(default)]
    pub adopted: bool,
    /// Failures that counted, in the lifetime of the breaker. Successes have no total, because a
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

crate::text::debug_fields! {
    /// Shows the key short and redacted, as events do.
    {} |this| BreakerSnapshot {
        server: this.server.as_deref().map(Short::name),
        tool: this.tool.as_deref().map(Short::name),
        state, reason, generation, calls, failures, slow_calls, probes, retry_after, adopted,
        failed_total, opened_total, principals_refused, rejected_total, principals_rejected_total,
        stale_total,
    }
}

/// Why a call is not admitted, and when to come back.
#[derive(Clone, Copy, Debug)]
pub(super) struct Refused {
    pub(super) retry_after: Duration,
    /// Why the circuit has opened last.
    pub(super) cause: Option<OpenCause>,
    /// Only the principal of the call is refused.
    pub(super) of_principal: bool,
    /// A probe is to decide.
    pub(super) is_half_open: bool,
}

impl Refused {
    pub(super) fn by_principal(self) -> Self {
        Self {
            of_principal: true,
            ..self
        }
    }
}
