use std::{fmt, time::Duration};

use tokio::time::Instant;

use super::{
    handle::Metrics,
    row::{Began, Ended},
    seat::Seat,
};
use crate::{
    call::{CallInfo, Observation, ToolCall},
    error::{ErrorKind, ToolError},
    in_flight::{Abandoned, Report},
};

/// A call that is counted as being in flight.
pub(super) struct Observer {
    seat: Seat,
    /// Which attempt it was sent as. Below a layer that repeats calls, each attempt is a call.
    first: u16,
    began: Began,
    since: Instant,
    below: Observation,
}

impl Observer {
    /// The call begins: it is to be guarded from here on.
    #[inline(always)]
    pub(super) fn start(call: &mut ToolCall, metrics: &Metrics) -> (Self, Instant) {
        let below = call.observe();
        let seat = metrics.seat(below.call());
        let since = Instant::now();
        let observer = Self {
            first: call.attempt(),
            began: seat.began(),
            seat,
            since,
            below,
        };
        (observer, since)
    }

    /// Counts a call that no layer has seen.
    #[cold]
    pub(super) fn not_started(call: &CallInfo, kind: ErrorKind, metrics: &Metrics) {
        let seat = metrics.seat(call);
        let ended = Ended {
            failure: Some((kind, kind.code())),
            duration: Duration::ZERO,
            attempts: 0,
            slow: false,
            refused_here: true,
        };
        let row = &*seat;
        row.ended(row.began(), &ended);
    }

    /// The error, stamped with the call's names.
    pub(super) fn about(&self, error: ToolError) -> ToolError {
        error.about(self.below.call())
    }

    /// The call has a result.
    #[inline]
    pub(super) fn ended(&self, error: Option<&ToolError>, failure_of_answer: Option<ErrorKind>) {
        match (error, failure_of_answer) {
            (None, None) => self.succeeded(),
            (Some(error), _) => self.failed((error.kind(), error.code()), error.is_own_refusal()),
            (None, Some(kind)) => self.failed((kind, kind.code()), false),
        }
    }

    /// Apart, so that what can only be of a failure is not asked.
    fn succeeded(&self) {
        let row = &*self.seat;
        row.succeeded(
            self.began,
            self.duration(),
            self.attempts(),
            self.below.is_slow(),
        );
    }

    #[cold]
    fn failed(&self, failure: (ErrorKind, &str), refused_here: bool) {
        self.seat.ended(
            self.began,
            &Ended {
                failure: Some(failure),
                duration: self.duration(),
                attempts: self.attempts(),
                slow: self.below.is_slow(),
                refused_here,
            },
        );
    }

    #[inline]
    fn duration(&self) -> Duration {
        Instant::now().saturating_duration_since(self.since)
    }

    #[inline]
    fn attempts(&self) -> u32 {
        let after = self.below.attempts().saturating_sub(self.first.into());
        after + 1
    }
}

impl Report for Observer {
    fn abandoned(self, how: Abandoned) {
        let kind = match how.past_deadline {
            true => ErrorKind::Timeout,
            false => ErrorKind::Cancelled,
        };
        self.failed((kind, kind.code()), false);
    }

    fn panicked(self) {
        let kind = ErrorKind::Panicked;
        self.failed((kind, kind.code()), false);
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
