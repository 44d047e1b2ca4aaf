//! One call of a batch.

use std::{
    future::Future,
    mem,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use pin_project_lite::pin_project;
use tokio::task::coop;
use tower::util::{MapRequest, Oneshot};
use tower_layer::Layer;

use crate::{
    call::{CallExt, CallInfo, ToolCall},
    catch_panic::{CatchPanic, CatchPanicLayer, panicked},
    deadline::{Deadline, DeadlineLayer},
    error::{ErrorKind, Execution, ToolError},
    event::{Event, Listener},
    outcome::Classify,
    result::{Pending, ToolResult},
};

/// A stack, guarded: a call of it ends at its deadline or by its caller's token, and does not
/// panic, unless the stack does when it is cloned. The call's record notes that it went through the
/// guard.
pub(super) type Guarded<S> = Deadline<CatchPanic<MapRequest<S, fn(ToolCall) -> ToolCall>>>;

pub(super) fn guarded<S>(stack: S) -> Guarded<S> {
    let dispatched: fn(ToolCall) -> ToolCall = |call| {
        call.record(|record| record.set_dispatched());
        call
    };
    let stack = CatchPanicLayer::new().layer(MapRequest::new(stack, dispatched));
    let deadline = DeadlineLayer::inherited().with_reserve(Duration::ZERO);
    deadline.layer(stack)
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
        unsettled: Option<Unsettled>,
        // It has used up the task's turn.
        is_tired: bool,
        // Its place among those that run, if a call that only waits leaves it.
        place: Option<Place>,
    }
}

impl<F> Child<F> {
    pub(super) fn new(index: usize, unsettled: Unsettled, fut: F, place: Option<Place>) -> Self {
        Self {
            fut: Some(fut),
            index,
            unsettled: Some(unsettled),
            is_tired: false,
            place,
        }
    }

    /// Ends it in the middle. `None` if it has ended already.
    pub(super) fn stop(self: Pin<&mut Self>) -> Option<(usize, Unsettled)> {
        let mut this = self.project();
        this.fut.set(None);
        Some((*this.index, this.unsettled.take()?))
    }
}

impl<F, Res> Future for Child<F>
where
    F: Future<Output = Result<Res, ToolError>>,
{
    type Output = (usize, Unsettled, F::Output);

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        // A task that has used up its turn makes no progress, and to ask all the others in vain,
        // turn by turn, would cost the square of their number. The call that used it up sits out
        // the next one, or it would be first again.
        if !coop::has_budget_remaining() || mem::take(this.is_tired) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let fut = this.fut.as_mut().as_pin_mut();
        let polled = fut.expect("polled after completion").poll(cx);
        *this.is_tired = polled.is_pending() && !coop::has_budget_remaining();
        if let (true, Some(place)) = (polled.is_pending(), this.place.as_mut()) {
            place.set(!this.unsettled.as_ref().is_some_and(Unsettled::is_held));
        }
        let output = ready!(polled);
        *this.place = None;
        this.fut.set(None);
        let unsettled = this.unsettled.take().expect("polled after completion");
        Poll::Ready((*this.index, unsettled, output))
    }
}

/// The place of a call among those that run. A call that only waits, for a cooldown for example,
/// has none. It takes one when it goes on, also beyond the limit: it may hold the permit or the
/// turn of a layer for which the others wait.
pub(super) struct Place {
    /// How many are taken.
    taken: Arc<AtomicUsize>,
    has: bool,
}

impl Place {
    pub(super) fn take(taken: &Arc<AtomicUsize>) -> Self {
        let (taken, has) = (Arc::clone(taken), false);
        let mut place = Self { taken, has };
        place.set(true);
        place
    }

    fn set(&mut self, has: bool) {
        if mem::replace(&mut self.has, has) != has {
            match has {
                true => self.taken.fetch_add(1, Relaxed),
                false => self.taken.fetch_sub(1, Relaxed),
            };
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.set(false);
    }
}

/// A call that has no result yet.
#[derive(Debug)]
pub(super) struct Unsettled(Pending);

impl Unsettled {
    pub(super) fn begin(call: &mut ToolCall) -> Self {
        // A clone of a call with an observer is a call of its own here.
        call.detach();
        Self(Pending::begin(call))
    }

    /// Returns whether a layer holds the call back: it only waits.
    fn is_held(&self) -> bool {
        self.0.observation().call().is_held()
    }

    /// Its end, with the answer or the error of the guarded service.
    pub(super) fn end<Res>(
        mut self,
        result: Result<Res, ToolError>,
        classifier: &impl Classify<Res>,
    ) -> ToolResult<Res> {
        // Foreign code: it must not take the other calls with it.
        let settled = catch_unwind(AssertUnwindSafe(|| self.0.settle(result, classifier)));
        settled.unwrap_or_else(|payload| self.0.settle(Err(panicked(payload)), classifier))
    }

    /// Its end, because the batch is cancelled.
    pub(super) fn cancel<Res>(self, classifier: &impl Classify<Res>) -> ToolResult<Res> {
        let (kind, text) = (ErrorKind::Cancelled, "the batch was cancelled");
        let error = match self.0.observation().is_dispatched() {
            true => ToolError::new(kind, text).with_execution(Execution::Unknown),
            false => ToolError::refusal(kind, text),
        };
        self.end(Err(error), classifier)
    }

    /// Returns the call and its failure, if no layer has seen it: it was not sent, and no layer
    /// reports its end.
    pub(super) fn untold(&self, failure: Option<ErrorKind>) -> Option<Untold> {
        let below = self.0.observation();
        let is_untold = |kind: &ErrorKind| {
            !below.is_dispatched()
                && matches!(kind, ErrorKind::DeadlineExceeded | ErrorKind::Cancelled)
        };
        Some((below.call().clone(), failure.filter(is_untold)?))
    }
}

/// A call that no layer has seen, and how it ended.
pub(super) type Untold = (CallInfo, ErrorKind);

pub(super) fn tell((call, kind): &Untold, listener: &Listener) {
    listener.tell(&Event::not_started(call, *kind));
}
