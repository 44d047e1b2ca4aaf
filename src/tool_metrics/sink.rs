use std::time::Duration;

use super::{labels::Labels, names::Series};
use crate::{
    error::ErrorKind,
    event::{BreakerState, CallOutcome, InertReason, TokenOutcome},
};

/// Passes the figures on to another system's metrics, as they are counted.
///
/// Called in the middle of a poll or a drop: must be quick, must not block and must not panic.
#[expect(unused_variables, reason = "implementations use them")]
pub trait Sink: Send + Sync {
    /// Makes the sink for the calls of a tool: looks up or allocates what its labels need. Called
    /// with the tool's first event. If several threads report one, each makes a sink and the row
    /// keeps one of them.
    fn tool(&self, labels: &Labels) -> Box<dyn ToolSink>;

    /// Records the state of a circuit breaker when it changes, or is first known. The state is
    /// `None` for all breakers together that have no row of their own. `opened`: whether it has
    /// opened. The last report has the current state. Default: nothing.
    fn breaker(&self, labels: &Labels, state: Option<BreakerState>, opened: bool) {}

    /// Counts a call that needed a token; `exchange`: how long the identity provider took, if the
    /// call asked it; `failure`: the cause, if there is none. Default: nothing.
    fn token(&self, outcome: TokenOutcome, exchange: Option<Duration>, failure: Option<ErrorKind>) {
    }

    /// Counts a call for which a layer could do nothing. Default: nothing.
    fn inert(&self, layer: &'static str, reason: InertReason) {}
}

/// Receives the calls of one tool; see [`Sink`].
#[expect(unused_variables, reason = "implementations use them")]
pub trait ToolSink: Send + Sync {
    /// A call begins. Default: nothing.
    fn started(&self) {}

    /// A call that has [`started`](Self::started) is no longer in flight. Default: nothing.
    fn left(&self) {}

    /// Counts a call that has ended.
    fn ended(&self, end: &CallEnd<'_>);

    /// Counts an event of a running call that a layer reported, for this series:
    /// [`Retries`](Series::Retries), [`Refused`](Series::Refused),
    /// [`RateLimited`](Series::RateLimited) or [`Reused`](Series::Reused). Default: nothing.
    fn happened(&self, series: Series) {}
}

/// The end of a call.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct CallEnd<'a> {
    /// How the call ended.
    pub outcome: CallOutcome,
    /// The kind of the failure; `None` after a success.
    pub failure: Option<ErrorKind>,
    /// The error's code as a label: bounded, redacted, and few for each tool.
    pub code: Option<&'a str>,
    /// How long the call took.
    pub duration: Duration,
    /// How many attempts were sent; 0 for a call that was only refused.
    pub attempts: u32,
    /// The call took more than its fraction of the timeout.
    pub slow: bool,
    pub(super) sent: bool,
    pub(super) known: bool,
}

impl CallEnd<'_> {
    #[inline]
    pub(super) fn success(duration: Duration, attempts: u32, slow: bool) -> Self {
        Self {
            outcome: CallOutcome::Success,
            failure: None,
            code: None,
            duration,
            attempts,
            slow,
            sent: true,
            known: false,
        }
    }

    /// Makes the call a failed one; `refused` if one of our layers says that it refused it.
    pub(super) fn with_failure<'a>(
        self,
        kind: ErrorKind,
        code: &'a str,
        refused: bool,
    ) -> CallEnd<'a> {
        use ErrorKind::{Cancelled, CircuitOpen, DeadlineExceeded, Overloaded, Timeout};
        CallEnd {
            outcome: CallOutcome::of_failure(kind, refused),
            failure: Some(kind),
            code: Some(code),
            sent: match kind {
                _ if refused => self.attempts > 0,
                // Dropped while a layer held it back.
                Cancelled | Timeout => self.attempts > 0,
                // Refused by a layer that did not say so.
                CircuitOpen | DeadlineExceeded | Overloaded => self.attempts > 1,
                _ => true,
            },
            ..self
        }
    }

    /// Returns whether it shows that there is a tool of this name: a table or a schema has it, or
    /// its server was asked. A model can invent names, and what refuses a call without asking its
    /// server refuses invented ones as well.
    pub(super) fn shows_a_tool(&self) -> bool {
        self.known || self.sent && self.failure != Some(ErrorKind::NotFound)
    }

    /// Returns whether it proves that: the tool has answered, or a table or a schema has it.
    pub(super) fn proves_a_tool(&self) -> bool {
        self.known || self.failure.is_none()
    }

    /// Calls `count` with each counter and its increment. Unrolled, so that the compiler folds
    /// constants.
    #[inline]
    pub(crate) fn each_count(&self, mut count: impl FnMut(Series, u64)) {
        let failed_as = |kind| u64::from(self.failure == Some(kind));
        count(Series::Executions(self.outcome), 1);
        count(Series::Attempts, self.attempts.into());
        count(Series::Timeouts, failed_as(ErrorKind::Timeout));
        count(Series::Slow, self.slow.into());
        count(Series::Rejected, failed_as(ErrorKind::CircuitOpen));
    }

    /// Returns whether this side let the call go, at its first attempt at least: time was left, no
    /// circuit was open, nothing was overloaded, no cooldown was on. How long others took says
    /// nothing of the tool.
    pub fn was_sent(&self) -> bool {
        self.sent
    }
}
