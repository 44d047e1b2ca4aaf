use std::{
    collections::VecDeque,
    convert::Infallible,
    fmt,
    future::poll_fn,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
    vec,
};

use futures_util::{Stream, stream::FuturesUnordered};
use tokio::{task::coop, time::Instant};
use tower::ServiceExt as _;
use tower_service::Service;

use super::{
    child::{Child, Guard, Guarded, guarded},
    ids,
};
use crate::{
    call::ToolCall,
    error::{ErrorKind, Execution, ToolError},
    event::{Event, Listener},
    outcome::ByError,
    result::{Pending, ToolResult},
};

/// How a batch is run.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    /// How many calls at a time.
    pub(super) limit: usize,
    /// For all of them.
    pub(super) budget: Option<Duration>,
    /// What of it no call gets, if any is kept.
    pub(super) reserve: Option<Duration>,
    pub(super) listener: Listener,
}

/// The end of a budget.
#[derive(Clone, Copy, Debug)]
enum End {
    At(Instant),
    /// So early that a reserve is left.
    WithReserve(Instant),
}

impl End {
    /// `None`: no clock reaches it.
    fn of(plan: &Plan, now: Instant) -> Option<Self> {
        let at = now.checked_add(plan.budget?)?;
        Some(match plan.reserve {
            None => Self::At(at),
            // A budget too small to hold the reserve leaves nothing.
            Some(reserve) => {
                Self::WithReserve(at.checked_sub(reserve).map_or(now, |at| at.max(now)))
            }
        })
    }

    fn hold(self, call: &mut ToolCall) {
        match self {
            Self::At(at) => call.tighten(at),
            Self::WithReserve(at) => call.tighten_with_reserve(at),
        }
    }
}

/// The results of a batch in the order in which its calls end. See the [module docs](super).
///
/// A [`Stream`] of pairs: the number of the call, from 0, and its result. Dropping it drops the calls that run.
#[must_use = "calls run while it is polled"]
pub struct Completions<S>
where
    S: Service<ToolCall, Error = Infallible> + Clone,
{
    service: Guarded<S>,
    queue: vec::IntoIter<ToolCall>,
    /// The number of the first call in it.
    next: usize,
    running: FuturesUnordered<Child<Guard<S>>>,
    /// The results of calls that were cancelled here.
    cancelled: VecDeque<(usize, S::Response)>,
    limit: usize,
    end: Option<End>,
    listener: Listener,
}

impl<S> Completions<S>
where
    S: Service<ToolCall, Error = Infallible> + Clone,
{
    pub(super) fn new(service: S, plan: &Plan, calls: Vec<ToolCall>) -> Self {
        let end = End::of(plan, Instant::now());
        Self {
            service: guarded(service),
            queue: ids::given(calls).into_iter(),
            next: 0,
            running: FuturesUnordered::new(),
            cancelled: VecDeque::new(),
            limit: plan.limit,
            end,
            listener: plan.listener.clone(),
        }
    }

    /// How many results are still to come.
    pub fn remaining(&self) -> usize {
        self.queue.len() + self.running.len() + self.cancelled.len()
    }
}

impl<S, T> Completions<S>
where
    S: Service<ToolCall, Response = ToolResult<T>, Error = Infallible> + Clone,
{
    /// The next call that ends: its number, from 0, and its result. `None` after the last.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped before it is ready, no result is lost.
    pub async fn next(&mut self) -> Option<(usize, ToolResult<T>)> {
        poll_fn(|cx| self.poll_result(cx)).await
    }

    /// Drops the calls that run, which cancels them, and begins no other: the results still to come are there, with
    /// the status `cancelled`.
    pub fn cancel(&mut self) {
        let error = |execution| {
            let error = ToolError::new(ErrorKind::Cancelled, "the batch was cancelled");
            error.with_execution(execution)
        };
        let running = Pin::new(&mut self.running).iter_pin_mut();
        let stopped = running.filter_map(|child| child.stop(error(Execution::Unknown)));
        self.cancelled.extend(stopped);
        self.running.clear();
        self.tell_waiting();
        while let Some((index, mut call)) = self.take_waiting() {
            let error = Err(error(Execution::NotStarted));
            let result = Pending::begin(&mut call).settle(error, &ByError);
            self.cancelled.push_back((index, result));
        }
        self.cancelled
            .make_contiguous()
            .sort_by_key(|(index, _)| *index);
    }

    fn poll_result(&mut self, cx: &mut Context<'_>) -> Poll<Option<(usize, ToolResult<T>)>> {
        if let Some(result) = self.cancelled.pop_front() {
            return Poll::Ready(Some(result));
        }
        // Calls that never wait would keep others from their turn.
        let coop = ready!(coop::poll_proceed(cx));
        self.begin();
        let ended = ready!(Pin::new(&mut self.running).poll_next(cx));
        coop.made_progress();
        Poll::Ready(ended.map(|ended| {
            if let Some(call) = &ended.skipped {
                self.listener.tell(&Event::Skipped { call });
            }
            (ended.index, ended.result)
        }))
    }

    /// Begins as many calls as may run.
    fn begin(&mut self) {
        while self.running.len() < self.limit
            && let Some((index, mut call)) = self.take_waiting()
        {
            if let Some(end) = self.end {
                end.hold(&mut call);
            }
            let pending = Pending::begin(&mut call);
            let fut = self.service.clone().oneshot(call);
            self.running.push(Child::new(index, pending, fut));
        }
    }
}

impl<S> Completions<S>
where
    S: Service<ToolCall, Error = Infallible> + Clone,
{
    fn take_waiting(&mut self) -> Option<(usize, ToolCall)> {
        let call = self.queue.next()?;
        self.next += 1;
        Some((self.next - 1, call))
    }

    /// No layer has heard of the calls that wait, and none will tell what becomes of them.
    fn tell_waiting(&self) {
        for call in self.queue.as_slice() {
            self.listener.tell(&Event::Cancelled {
                call: &call.info(),
                elapsed: Duration::ZERO,
                past_deadline: false,
            });
        }
    }
}

impl<S> Drop for Completions<S>
where
    S: Service<ToolCall, Error = Infallible> + Clone,
{
    fn drop(&mut self) {
        self.tell_waiting();
    }
}

/// Nothing in it is pinned but what lies on the heap.
impl<S> Unpin for Completions<S> where S: Service<ToolCall, Error = Infallible> + Clone {}

impl<S, T> Stream for Completions<S>
where
    S: Service<ToolCall, Response = ToolResult<T>, Error = Infallible> + Clone,
{
    type Item = (usize, ToolResult<T>);

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().poll_result(cx)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let n = self.remaining();
        (n, Some(n))
    }
}

impl<S> fmt::Debug for Completions<S>
where
    S: Service<ToolCall, Error = Infallible> + Clone,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Completions")
            .field("waiting", &self.queue.len())
            .field("running", &self.running.len())
            .finish_non_exhaustive()
    }
}
