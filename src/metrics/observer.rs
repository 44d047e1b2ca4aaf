use tokio::time::Instant;

use super::{layer::MetricsLayer, row::Seat, sink::CallEnd};
use crate::{
    call::{CallInfo, Observation, ToolCall},
    error::{ErrorKind, ToolError},
    flow::{Abandoned, Ticket},
};

/// A call that is counted as being in flight.
pub struct Observer<C> {
    seat: Seat,
    /// Whether its row was [known](super::row::Row::began) when it began.
    began_as_known: bool,
    /// Whether a table has given the call its tool's name.
    is_resolved: bool,
    since: Instant,
    /// While it exists, the metrics listen on the call's record.
    pub(super) below: Observation,
    pub(super) classifier: C,
}

impl<C> Observer<C> {
    /// The call begins: it is to be guarded from here on.
    #[inline(always)]
    pub(super) fn start(call: &mut ToolCall, layer: &MetricsLayer<C>) -> Self
    where
        C: Clone,
    {
        // A clone that panics leaves nothing in flight.
        let classifier = layer.classifier.clone();
        let mut below = call.observe();
        below.listen(layer.metrics.listener());
        let seat = layer.metrics.seat(below.call());
        Self {
            began_as_known: seat.value().began(),
            seat,
            is_resolved: call.is_resolved() && below.call().listed_tool().is_some(),
            since: Instant::now(),
            below,
            classifier,
        }
    }

    /// Apart from failures, whose details a success does not ask for.
    pub(super) fn succeeded(&self) {
        self.count(&self.end(None));
    }

    #[cold]
    pub(super) fn ended_with(&self, error: &ToolError) {
        let refused = error.is_own_refusal();
        let end = self.end(Some(error)).of_known(self.is_known());
        self.count(&end.with_failure(error.kind(), error.code(), refused));
    }

    #[cold]
    pub(super) fn failed(&self, kind: ErrorKind) {
        let end = self.end(None).of_known(self.is_known());
        self.count(&end.with_failure(kind, kind.code(), false));
    }

    /// Returns whether there is a tool of this name, whatever became of the call.
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
        let row = self.seat.value();
        row.ended(self.began_as_known, end);
    }
}

impl<C> Ticket for Observer<C> {
    #[inline]
    fn info(&self) -> &CallInfo {
        self.below.call()
    }

    #[inline]
    fn deadline(&self, call: &ToolCall) -> Option<Instant> {
        call.deadline()
    }

    #[inline]
    fn pending_since(&self) -> Instant {
        self.since
    }

    fn dropped(&mut self, how: Abandoned) {
        let kind = match how.past_deadline {
            true => ErrorKind::Timeout,
            false => ErrorKind::Cancelled,
        };
        self.failed(kind);
    }

    fn panicked(&mut self) {
        self.failed(ErrorKind::Panicked);
    }
}

crate::text::debug_fields! {
    {C} |this| Observer<C> { call: this.below.call(), since: this.since, .. }
}
