use std::{
    any::type_name,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use pin_project_lite::pin_project;

use super::observer::Observer;
use crate::{
    error::ToolError,
    kit::{in_flight::InFlight, inner},
    outcome::Classify,
};

pin_project! {
    /// Response future for [`MetricsService`](super::MetricsService).
    #[must_use = "futures do nothing unless polled"]
    pub struct ResponseFuture<F, C> {
        #[pin]
        pub(super) fut: Option<F>,
        pub(super) flight: InFlight<Observer>,
        pub(super) classifier: C,
    }
}

impl<F, C, Res, E> Future for ResponseFuture<F, C>
where
    F: Future<Output = Result<Res, E>>,
    E: Into<ToolError>,
    C: Classify<Res>,
{
    type Output = Result<Res, ToolError>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let observer = this.flight.begin_poll();
        let Poll::Ready(result) = inner::poll(this.fut, cx) else {
            this.flight.wait();
            return Poll::Pending;
        };
        // Converting and classifying run foreign code: before the end, so that a panic there is counted too.
        let result = result.map_err(|e| observer.for_call(e.into()));
        let outcome = this.classifier.classify(result.as_ref());
        let failure = outcome.failure_of_answer().map(|(kind, _)| kind);
        let error = result.as_ref().err();
        this.flight.end(|observer| observer.ended(error, failure));
        Poll::Ready(result)
    }
}

crate::text::debug_fields! {
    {F: std::fmt::Debug, C} |this| ResponseFuture<F, C> {
        fut: this.fut,
        flight: this.flight,
        classifier: format_args!("{}", type_name::<C>()),
    }
}
