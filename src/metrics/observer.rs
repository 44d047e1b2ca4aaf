use std::{fmt, sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{
    handle::Metrics,
    row::{Began, Ended},
    seat::Seat,
};
use crate::{
    call::{CallInfo, Observation, ToolCall},
    error::{ErrorKind, ToolError},
    in_flight::{Abandoned, InFlight, Report},
    outcome::Outcome,
};

/// A call that is counted as being in flight.
pub(super) struct Observer {
    seat: Arc<Seat>,
    /// Attempts that were made before it began.
    earlier: u32,
    began: Began,
    since: Instant,
    below: Observation,
    info: CallInfo,
}

impl Observer {
    /// Guards the call from here on.
    #[inline]
    pub(super) fn start(call: &mut ToolCall, metrics: &Metrics) -> InFlight<Self> {
        let below = call.observe();
        // Below a layer that repeats calls, each attempt is a call.
        let earlier = u32::from(call.attempt()).saturating_sub(1);
        let info = call.info();
        let seat = metrics.seat(&info);
        let since = Instant::now();
        let observer = Self {
            earlier,
            began: seat.began(),
            seat,
            since,
            below,
            info,
        };
        InFlight::since_start(observer, call.deadline(), since)
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
        seat.ended(seat.began(), &ended);
    }

    /// The error, stamped with the call's names.
    pub(super) fn about(&self, error: ToolError) -> ToolError {
        error.about(&self.info)
    }

    /// The call has a result.
    #[inline]
    pub(super) fn ended(self, error: Option<&ToolError>, outcome: &Outcome) {
        let failure = match error {
            Some(error) => Some((error.kind(), error.code())),
            None => outcome
                .failure_of_answer()
                .map(|(kind, _)| (kind, kind.code())),
        };
        self.count(failure, error.is_some_and(ToolError::is_own_refusal));
    }

    fn count(self, failure: Option<(ErrorKind, &str)>, refused_here: bool) {
        self.seat.ended(
            self.began,
            &Ended {
                failure,
                duration: self.since.elapsed(),
                attempts: self.below.attempts().saturating_sub(self.earlier).max(1),
                slow: self.below.is_slow(),
                refused_here,
            },
        );
    }
}

impl Report for Observer {
    fn abandoned(self, how: Abandoned) {
        let kind = match how.past_deadline {
            true => ErrorKind::Timeout,
            false => ErrorKind::Cancelled,
        };
        self.count(Some((kind, kind.code())), false);
    }

    fn panicked(self) {
        let kind = ErrorKind::Panicked;
        self.count(Some((kind, kind.code())), false);
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observer")
            .field("call", &self.info)
            .field("since", &self.since)
            .finish_non_exhaustive()
    }
}
