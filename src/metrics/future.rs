use std::{
    any::type_name,
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use pin_project_lite::pin_project;

use super::observer::Observer;
use crate::{error::ToolError, in_flight::InFlight, outcome::Classify};

pin_project! {
    /// Response future for [`Measured`](super::Measured).
    #[must_use = "futures do nothing unless polled"]
    pub struct ResponseFuture<F, C> {
        #[pin]
        fut: F,
        flight: InFlight<Observer>,
        classifier: C,
    }
}

impl<F, C> ResponseFuture<F, C> {
    pub(super) fn new(fut: F, flight: InFlight<Observer>, classifier: C) -> Self {
        Self {
            fut,
            flight,
            classifier,
        }
    }
}

impl<F, C, Res, E> Future for ResponseFuture<F, C>
where
    F: Future<Output = Result<Res, E>>,
    E: Into<ToolError>,
    C: Classify<Res>,
{
    type Output = Result<Res, ToolError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        // Converting and classifying run foreign code: inside, so that a panic there is counted too.
        let polled = this.flight.poll(|observer| {
            let result = ready!(this.fut.poll(cx)).map_err(|e| observer.about(e.into()));
            let outcome = this.classifier.classify(result.as_ref());
            Poll::Ready((result, outcome))
        });
        let (result, outcome) = ready!(polled);
        this.flight.take().ended(result.as_ref().err(), &outcome);
        Poll::Ready(result)
    }
}

impl<F: fmt::Debug, C> fmt::Debug for ResponseFuture<F, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture")
            .field("fut", &self.fut)
            .field("flight", &self.flight)
            .field("classifier", &format_args!("{}", type_name::<C>()))
            .finish()
    }
}
