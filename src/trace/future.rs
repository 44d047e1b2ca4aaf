use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use pin_project_lite::pin_project;
use tracing::Span;

use super::{hooks::TraceHooks, watch::Watch};
use crate::error::ToolError;

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
            if let Some(span) = this.watch.span() {
                // What happens below while it is dropped belongs to the span, and comes before its end.
                let _entered = span.enter();
                this.fut.set(None);
            }
        }
    }
}

impl<F, H: TraceHooks<Res>, Res> ResponseFuture<F, H, Res> {
    #[inline]
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

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        // If nothing follows, it panicked. Converting and classifying run foreign code, too: before the end.
        let watch = this.watch.begin_poll();
        let entered = watch.span().map(Span::enter);
        let fut = this.fut.as_mut().as_pin_mut();
        let Poll::Ready(result) = fut.expect("polled after completion").poll(cx) else {
            drop(entered);
            this.watch.wait();
            return Poll::Pending;
        };
        let result = result.map_err(|e| watch.about(e.into()));
        this.fut.set(None);
        let outcome = watch.classify(&result);
        drop(entered);
        this.watch.end(&result, &outcome);
        Poll::Ready(result)
    }
}
