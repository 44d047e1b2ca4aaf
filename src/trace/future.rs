use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use pin_project_lite::pin_project;

use super::{hooks::TraceHooks, observer::Observer};
use crate::{error::ToolError, in_flight::InFlight};

pin_project! {
    /// Response future for [`Trace`](super::Trace).
    #[derive(Debug)]
    #[must_use = "futures do nothing unless polled"]
    pub struct ResponseFuture<F, H, Res>
    where
        H: TraceHooks<Res>,
    {
        #[pin]
        fut: Option<F>,
        flight: InFlight<Observer<H, Res>>,
    }

    impl<F, H: TraceHooks<Res>, Res> PinnedDrop for ResponseFuture<F, H, Res> {
        fn drop(this: Pin<&mut Self>) {
            let mut this = this.project();
            if let Some(observer) = this.flight.reporter() {
                // What happens below while it is dropped belongs to the span, and comes before its end.
                let _entered = observer.span().enter();
                this.fut.set(None);
            }
        }
    }
}

impl<F, H: TraceHooks<Res>, Res> ResponseFuture<F, H, Res> {
    pub(super) fn new(fut: F, flight: InFlight<Observer<H, Res>>) -> Self {
        let fut = Some(fut);
        Self { fut, flight }
    }
}

impl<F, H, Res, E> Future for ResponseFuture<F, H, Res>
where
    F: Future<Output = Result<Res, E>>,
    E: Into<ToolError>,
    H: TraceHooks<Res>,
{
    type Output = Result<Res, ToolError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        // Converting and classifying run foreign code: inside, so that a panic there is reported too.
        let polled = this.flight.poll(|observer| {
            let _entered = observer.span().enter();
            let fut = this.fut.as_mut().as_pin_mut();
            let result = ready!(fut.expect("polled after completion").poll(cx));
            let result = result.map_err(|e| observer.about(e.into()));
            this.fut.set(None);
            let outcome = observer.classify(&result);
            Poll::Ready((result, outcome))
        });
        let (result, outcome) = ready!(polled);
        // Taken, so that the span is closed with the call and not with the future.
        this.flight.take().ended(&result, &outcome);
        Poll::Ready(result)
    }
}
