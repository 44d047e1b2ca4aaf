//! Not a [`Sent`](crate::flow), because the span is entered around each poll and the drop, and a
//! call without a listener has no ticket to pay for.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use pin_project_lite::pin_project;
use tracing::Span;

use super::{hooks::TraceHooks, observer::Observer};
use crate::{
    call::CallInfo,
    error::ToolError,
    flow::{in_flight::InFlight, sent::poll_sent},
};

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
        watch: Watch<H, Res>,
    }

    impl<F, H: TraceHooks<Res>, Res> PinnedDrop for ResponseFuture<F, H, Res> {
        fn drop(this: Pin<&mut Self>) {
            let mut this = this.project();
            if let Watch::Heard { flight } = this.watch
                && let Some(span) = flight.ticket().and_then(Observer::span)
            {
                // What happens below while it is dropped belongs to the span, and comes before its
                // end.
                let _entered = span.enter();
                this.fut.set(None);
            }
        }
    }
}

impl<F, H: TraceHooks<Res>, Res> ResponseFuture<F, H, Res> {
    pub(super) fn new(fut: F, watch: Watch<H, Res>) -> Self {
        let fut = Some(fut);
        Self { fut, watch }
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
        let this = self.project();
        let flight = match this.watch {
            Watch::Unheard { info, hooks } => {
                let info = info.as_ref().expect("there from the beginning");
                let result = ready!(poll_sent(this.fut, cx, info, Into::into));
                let _ = hooks.classify(result.as_ref());
                return Poll::Ready(result);
            }
            Watch::Heard { flight } => flight,
        };
        // If nothing follows, it panicked. Converting and classifying run foreign code, too: before
        // the end.
        flight.begin_poll();
        let observer = flight.ticket().expect("there until the end");
        let entered = observer.span().map(Span::enter);
        let Poll::Ready(result) = poll_sent(this.fut, cx, observer.call(), Into::into) else {
            drop(entered);
            flight.wait();
            return Poll::Pending;
        };
        let outcome = observer.hooks().classify(result.as_ref());
        drop(entered);
        // The span ends here, and not with the future.
        flight.finish().ticket().ended(&result, &outcome);
        Poll::Ready(result)
    }
}

/// The observation of a call that runs.
pub(super) enum Watch<H, Res>
where
    H: TraceHooks<Res>,
{
    // There was neither a subscriber nor a listener when it began: names for an error, which are
    // always there, and what classifies.
    Unheard { info: Option<CallInfo>, hooks: H },
    // However it ends, its end is reported once.
    Heard { flight: InFlight<Observer<H, Res>> },
}

crate::text::debug_fields! { {H: TraceHooks<Res>, Res} |_| Watch<H, Res> { .. } }
