use std::any::type_name;

use tokio::time::Instant;
use tower_layer::Layer;

use super::{
    handle::Metrics,
    row::{Row, Seat},
    sink::CallEnd,
};
use crate::{
    call::{CallExt, CallInfo, Observation, ToolCall},
    error::{ErrorKind, ToolError},
    flow::{Abandoned, Ends, Gate, Readiness, Sent, Ticket, Times, Watched},
    outcome::{ByError, Classify},
};

/// Layer that counts and times calls, made by [`Metrics::layer`]. See the [module docs](super) for
/// an example.
#[derive(Clone)]
#[must_use]
pub struct MetricsLayer<C = ByError> {
    pub(super) metrics: Metrics,
    pub(super) classifier: C,
}

/// Counts and times calls. See the [module docs](super) for an example.
pub type MetricsService<S, C = ByError> = Watched<S, MetricsLayer<C>>;

/// Response future for [`MetricsService`].
pub type ResponseFuture<F, C> = Sent<F, Observer<C>>;

impl<C> MetricsLayer<C> {
    /// Sets the classifier that decides whether an `Ok` is an error result
    /// ([`Outcome::is_reported`](crate::Outcome::is_reported)). Default: an `Ok` is a success. With
    /// any classifier an error that the tool service has [reported](crate::Record::set_reported) is
    /// an error result, as `McpService` does for `isError`.
    pub fn with_classifier<D>(self, classifier: D) -> MetricsLayer<D> {
        MetricsLayer {
            metrics: self.metrics,
            classifier,
        }
    }
}

impl<S, C: Clone> Layer<S> for MetricsLayer<C> {
    type Service = MetricsService<S, C>;

    fn layer(&self, inner: S) -> Self::Service {
        MetricsService::new(inner, self.clone())
    }
}

crate::text::debug_fields! {
    {C} |_| MetricsLayer<C> { metrics, classifier: format_args!("{}", type_name::<C>()) }
}

impl<Res, C: Classify<Res> + Clone> Gate<Res> for MetricsLayer<C> {
    type Ticket = Observer<C>;

    #[inline]
    fn look(&self, call: &mut ToolCall, _: &Readiness) -> Result<Observer<C>, ToolError> {
        // A clone that panics leaves nothing in flight.
        let classifier = self.classifier.clone();
        let mut below = call.observe();
        below.listen(&self.metrics.0.listener);
        let seat = self.metrics.0.seat(below.call());
        Ok(Observer {
            began_as_shown: seat.value().began(),
            seat,
            is_resolved: call.is_resolved() && below.call().listed_tool().is_some(),
            since: Instant::now(),
            below,
            classifier,
        })
    }
}

/// A call that is counted as being in flight.
pub struct Observer<C> {
    seat: Seat,
    /// Set if its row was [shown](super::row::Row::began) when it began.
    began_as_shown: bool,
    /// Set if a table has given the call its tool's name.
    is_resolved: bool,
    since: Instant,
    /// While it exists, the metrics listen on the call's record.
    below: Observation,
    classifier: C,
}

impl<C> Observer<C> {
    fn end(&self, error: Option<&ToolError>) -> CallEnd<'static> {
        let duration = Instant::now().saturating_duration_since(self.since);
        CallEnd::success(duration, self.below.sent(error), self.below.is_slow())
    }

    fn count(&self, end: &CallEnd<'_>) {
        Row::ended(&self.seat, self.below.call(), self.began_as_shown, end);
    }

    #[cold]
    fn failed(&self, kind: ErrorKind, error: Option<&ToolError>) {
        let code = error.map_or(kind.code(), ToolError::code);
        let refused = error.is_some_and(ToolError::is_own_refusal);
        let end = self.end(error).with_failure(kind, code, refused);
        self.count(&CallEnd {
            known: self.is_resolved || self.below.is_known(),
            ..end
        });
    }
}

impl<C> Ticket for Observer<C> {
    type Times = Times;

    fn info(&self) -> &CallInfo {
        self.below.call()
    }

    fn deadline(&self, call: &ToolCall) -> Option<Instant> {
        call.deadline()
    }

    fn pending_since(&self) -> Instant {
        self.since
    }

    fn dropped(&mut self, how: Abandoned) {
        let kind = match how.past_deadline {
            true => ErrorKind::Timeout,
            false => ErrorKind::Cancelled,
        };
        self.failed(kind, None);
    }

    fn panicked(&mut self) {
        self.failed(ErrorKind::Panicked, None);
    }
}

impl<Res, C: Classify<Res>> Ends<Res> for Observer<C> {
    type Class = Option<ErrorKind>;

    #[inline]
    fn judge(&self, result: &Result<Res, ToolError>) -> Option<ErrorKind> {
        let outcome = self.classifier.classify(result.as_ref());
        outcome.failure_of_answer().map(|(kind, _)| kind)
    }

    #[inline]
    fn ended(
        &mut self,
        result: &mut Result<Res, ToolError>,
        failure_of_answer: Option<ErrorKind>,
        _: Option<Instant>,
    ) {
        match (result, failure_of_answer) {
            (Err(error), _) => self.failed(error.kind(), Some(error)),
            (Ok(_), Some(kind)) => self.failed(kind, None),
            (Ok(_), None) if self.below.is_reported() => self.failed(ErrorKind::Reported, None),
            (Ok(_), None) => self.count(&self.end(None)),
        }
    }
}

crate::text::debug_fields! { {C} |this| Observer<C> { call: this.below.call(), since, .. } }
