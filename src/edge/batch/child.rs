//! One call of a batch.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use pin_project_lite::pin_project;
use tower::util::Oneshot;
use tower_layer::Layer;

use crate::{
    call::{CallInfo, ToolCall},
    catch_panic::{CatchPanic, CatchPanicLayer},
    deadline::{Deadline, DeadlineLayer},
    error::{ErrorKind, ToolError},
    outcome::ByError,
    result::{Pending, ToolResult},
};

/// A stack, guarded: a call of it ends at its deadline or by its caller's token, and never panics.
pub(super) type Guarded<S> = Deadline<CatchPanic<S>>;

pub(super) fn guarded<S>(stack: S) -> Guarded<S> {
    let deadline = DeadlineLayer::inherited().with_reserve(Duration::ZERO);
    deadline.layer(CatchPanicLayer::new().layer(stack))
}

/// The future of a guarded call.
pub(super) type Guard<S> = Oneshot<Guarded<S>, ToolCall>;

pin_project! {
    /// A call that runs, and its place in the batch.
    pub(super) struct Child<F> {
        #[pin]
        fut: Option<F>,
        index: usize,
        // Until it has its result.
        pending: Option<Pending>,
    }
}

/// How a call has ended.
pub(super) struct Ended<T> {
    pub(super) index: usize,
    pub(super) result: ToolResult<T>,
    /// If it was not started here: no layer below has heard of it.
    pub(super) skipped: Option<CallInfo>,
}

impl<F> Child<F> {
    pub(super) fn new(index: usize, pending: Pending, fut: F) -> Self {
        Self {
            fut: Some(fut),
            index,
            pending: Some(pending),
        }
    }

    /// Ends it in the middle. `None` if it has ended already.
    pub(super) fn stop<T>(
        self: Pin<&mut Self>,
        error: ToolError,
    ) -> Option<(usize, ToolResult<T>)> {
        let mut this = self.project();
        this.fut.set(None);
        let pending = this.pending.take()?;
        Some((*this.index, pending.settle(Err(error), &ByError)))
    }
}

impl<F, T> Future for Child<F>
where
    F: Future<Output = Result<ToolResult<T>, ToolError>>,
{
    type Output = Ended<T>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Ended<T>> {
        let mut this = self.project();
        let fut = this
            .fut
            .as_mut()
            .as_pin_mut()
            .expect("polled after completion");
        let output = ready!(fut.poll(cx));
        this.fut.set(None);
        let pending = this.pending.take().expect("polled after completion");
        let mut skipped = None;
        let result = output.unwrap_or_else(|error| {
            if error.kind() == ErrorKind::DeadlineExceeded {
                skipped = Some(pending.call().clone());
            }
            pending.settle(Err(error), &ByError)
        });
        Poll::Ready(Ended {
            index: *this.index,
            result,
            skipped,
        })
    }
}
