//! A circuit breaker's states, and how it goes from one to the next.

use std::{sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};

use crate::text::Short;

/// The state of a circuit breaker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum BreakerState {
    /// Calls pass.
    #[default]
    Closed,
    /// Calls are refused until the open period is over.
    Open,
    /// A few probes pass, and their results decide.
    HalfOpen,
    /// Calls are refused until a handle resets the breaker.
    ForcedOpen,
    /// Calls pass and their results are counted, but they do not open the breaker.
    ForcedClosed,
    /// Calls pass and nothing is counted.
    Disabled,
}

impl BreakerState {
    /// Returns whether every call is refused.
    pub const fn is_open(self) -> bool {
        matches!(self, Self::Open | Self::ForcedOpen)
    }

    /// Returns the state as a number, for metrics: 0 if calls pass, 1 if a few do, 2 if they are
    /// refused.
    pub const fn level(self) -> u8 {
        match self {
            Self::Closed | Self::ForcedClosed | Self::Disabled => 0,
            Self::HalfOpen => 1,
            Self::Open | Self::ForcedOpen => 2,
        }
    }
}

crate::text::names! {
    /// The state's name in events and snapshots.
    BreakerState {
        Closed = "closed",
        Open = "open",
        HalfOpen = "half_open",
        ForcedOpen = "forced_open",
        ForcedClosed = "forced_closed",
        Disabled = "disabled",
    }
}

/// The reason for a change of a circuit breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum TransitionReason {
    /// `threshold` failures came one after the other, within the window if there is one.
    ConsecutiveFailures,
    /// `threshold` failures came within the window, with or without successes in between.
    FailuresInWindow,
    /// The share of failures in the window was too high.
    FailureRate,
    /// The share of slow calls in the window was too high.
    SlowCallRate,
    /// The open period was over, or a lost connection may be back.
    PeriodElapsed,
    /// Enough probes succeeded.
    ProbesSucceeded,
    /// A probe failed.
    ProbeFailed,
    /// The state was forced, or reset, through a handle.
    Forced,
    /// The state, open or another one, was taken over from another process.
    Shared,
}

crate::text::names! {
    /// The reason's name in events.
    TransitionReason {
        ConsecutiveFailures = "consecutive_failures",
        FailuresInWindow = "failures_in_window",
        FailureRate = "failure_rate",
        SlowCallRate = "slow_call_rate",
        PeriodElapsed = "period_elapsed",
        ProbesSucceeded = "probes_succeeded",
        ProbeFailed = "probe_failed",
        Forced = "forced",
        Shared = "shared",
    }
}

/// Why a circuit breaker has opened, for the errors of the calls that it refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OpenCause {
    pub(crate) reason: TransitionReason,
    pub(crate) failures: u32,
    pub(crate) calls: u32,
}

/// A circuit breaker's change of state.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Transition {
    /// The server part of the breaker's key, its first 256 bytes.
    pub server: Option<Arc<str>>,
    /// The tool part of the key, or what a key function picked; its first 256 bytes.
    pub tool: Option<Arc<str>>,
    /// The state that was left.
    pub from: BreakerState,
    /// The new state.
    pub to: BreakerState,
    /// The cause.
    pub reason: TransitionReason,
    /// The number of the new state. It grows with each transition of the breaker.
    pub generation: u32,
    /// The number of results that caused the transition: those in the window, or the consecutive
    /// failures, or those of the probes. If the breaker becomes half-open or is forced, those that
    /// had opened it.
    pub calls: u32,
    /// Failures among them.
    pub failures: u32,
    /// Slow calls among them.
    pub slow_calls: u32,
    /// How long the breaker stays open, if it does now.
    #[serde(with = "millis")]
    pub open_for: Option<Duration>,
}

crate::text::debug_fields! {
    /// Shows the key short and redacted, as events do.
    {} |this| Transition {
        server: this.server.as_deref().map(Short::name),
        tool: this.tool.as_deref().map(Short::name),
        from, to, reason, generation, calls, failures, slow_calls, open_for,
    }
}

/// Durations as whole milliseconds, rounded up.
pub(crate) mod millis {
    use std::time::Duration;

    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};

    pub(crate) fn of(d: Duration) -> u64 {
        u64::try_from(d.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
    }

    pub(crate) fn serialize<S: Serializer>(d: &Option<Duration>, s: S) -> Result<S::Ok, S::Error> {
        d.map(of).serialize(s)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        d: D,
    ) -> Result<Option<Duration>, D::Error> {
        Ok(Option::<u64>::deserialize(d)?.map(Duration::from_millis))
    }
}
