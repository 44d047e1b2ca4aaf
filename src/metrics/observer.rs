use tokio::time::Instant;

use super::{handle::Metrics, row::Seat, sink::CallEnd};
use crate::{
    call::{Observation, ToolCall},
    error::{ErrorKind, ToolError},
    kit::in_flight::{Abandoned, Report},
};

/// A call that is counted as being in flight.
pub(super) struct Observer {
    seat: Seat,
    /// Whether its row was [known](super::row::Row::began) when it began.
    began_as_known: bool,
    /// Whether a table has given the call its tool's name.
    is_resolved: bool,
    since: Instant,
    /// While it exists, the metrics listen on the call's record.
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
            began_as_known: seat.began(),
            seat,
            is_resolved: call.is_resolved() && below.call().listed_tool().is_some(),
            since,
            below,
        };
        (observer, since)
    }

    /// The error, stamped with the call's names.
    pub(super) fn for_call(&self, error: ToolError) -> ToolError {
        error.for_call(self.below.call())
    }

    /// The call has a result.
    #[inline]
    pub(super) fn ended(&self, error: Option<&ToolError>, failure_of_answer: Option<ErrorKind>) {
        match (error, failure_of_answer) {
            (None, None) if self.below.is_reported() => self.failed(ErrorKind::Reported),
            (None, None) => self.succeeded(),
            (Some(error), _) => self.ended_with(error),
            (None, Some(kind)) => self.failed(kind),
        }
    }

    /// Apart from failures, whose details a success does not ask for.
    fn succeeded(&self) {
        self.count(&self.end(None));
    }

    #[cold]
    fn ended_with(&self, error: &ToolError) {
        let refused = error.is_own_refusal();
        let end = self.end(Some(error)).of_known(self.is_known());
        self.count(&end.with_failure(error.kind(), error.code(), refused));
    }

    #[cold]
    fn failed(&self, kind: ErrorKind) {
        let end = self.end(None).of_known(self.is_known());
        self.count(&end.with_failure(kind, kind.code(), false));
    }

    /// Whether there is a tool of this name, whatever became of the call.
    fn is_known(&self) -> bool {
        self.is_resolved || self.below.is_known()
    }

    #[inline]
    fn end(&self, error: Option<&ToolError>) -> CallEnd<'static> {
        let duration = Instant::now().saturating_duration_since(self.since);
        CallEnd::success(duration, self.below.sent(error), self.below.is_slow())
    }

    #[inline]
    fn count(&self, end: &CallEnd<'_>) {
        self.seat
            .ended(self.began_as_known, end, self.below.signals());
    }
}

impl Report for Observer {
    fn abandoned(self, how: Abandoned) {
        let kind = match how.past_deadline {
            true => ErrorKind::Timeout,
            false => ErrorKind::Cancelled,
        };
        self.failed(kind);
    }

    fn panicked(self) {
        self.failed(ErrorKind::Panicked);
    }
}

crate::text::debug_fields! { {} |this| Observer { call: this.below.call(), since: this.since, .. } }
