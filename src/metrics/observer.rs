use std::{fmt, time::Duration};

use tokio::time::Instant;

use super::{
    handle::Metrics,
    row::{Began, Ended, Failure},
    seat::Seat,
};
use crate::{
    call::{Observation, Signals, ToolCall},
    error::{ErrorKind, ToolError},
    event::CallOutcome,
    kit::in_flight::{Abandoned, Report},
};

/// A call that is counted as being in flight.
pub(super) struct Observer {
    seat: Seat,
    began: Began,
    since: Instant,
    /// The metrics listen on the call's record as long.
    below: Observation,
}

impl Observer {
    /// The call begins: it is to be guarded from here on.
    #[inline(always)]
    pub(super) fn start(call: &mut ToolCall, metrics: &Metrics) -> (Self, Instant) {
        let mut below = call.observe();
        below.listen(metrics.listener());
        let seat = metrics.seat(below.call());
        let since = Instant::now();
        let observer = Self {
            began: seat.began(),
            seat,
            since,
            below,
        };
        (observer, since)
    }

    /// The error, stamped with the call's names.
    pub(super) fn about(&self, error: ToolError) -> ToolError {
        error.about(self.below.call())
    }

    /// The call has a result.
    #[inline]
    pub(super) fn ended(&self, error: Option<&ToolError>, failure_of_answer: Option<ErrorKind>) {
        match (error, failure_of_answer) {
            (None, None) if self.below.is_reported() => self.failed(ErrorKind::Reported.into()),
            (None, None) => self.succeeded(),
            (Some(error), _) => self.ended_with(error),
            (None, Some(kind)) => self.failed(kind.into()),
        }
    }

    /// Apart, so that what can only be of a failure is not asked.
    fn succeeded(&self) {
        let row = &*self.seat;
        row.succeeded(
            self.began,
            self.duration(),
            self.below.sent(None),
            self.below.is_slow(),
            self.below.signals(),
        );
    }

    #[cold]
    fn ended_with(&self, error: &ToolError) {
        let failure = Failure {
            kind: error.kind(),
            code: error.code(),
            outcome: CallOutcome::of_error(error),
            is_own_refusal: error.is_own_refusal(),
        };
        self.count(failure, self.below.sent(Some(error)));
    }

    #[cold]
    fn failed(&self, failure: Failure<'_>) {
        self.count(failure, self.below.sent(None));
    }

    fn count(&self, failure: Failure<'_>, attempts: u32) {
        self.seat.ended(
            self.began,
            &Ended {
                failure: Some(failure),
                duration: self.duration(),
                attempts,
                slow: self.below.is_slow(),
                signals: self.below.signals(),
            },
        );
    }

    #[inline]
    fn duration(&self) -> Duration {
        Instant::now().saturating_duration_since(self.since)
    }
}

/// A call that no layer has seen, and was not started.
#[cold]
pub(super) fn not_started(kind: ErrorKind) -> Ended<'static> {
    Ended {
        failure: Some(Failure {
            outcome: CallOutcome::of_failure(kind, true),
            is_own_refusal: true,
            ..kind.into()
        }),
        duration: Duration::ZERO,
        attempts: 0,
        slow: false,
        signals: Signals::default(),
    }
}

impl Report for Observer {
    fn abandoned(self, how: Abandoned) {
        let kind = match how.past_deadline {
            true => ErrorKind::Timeout,
            false => ErrorKind::Cancelled,
        };
        self.failed(kind.into());
    }

    fn panicked(self) {
        self.failed(ErrorKind::Panicked.into());
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observer")
            .field("call", self.below.call())
            .field("since", &self.since)
            .finish_non_exhaustive()
    }
}
