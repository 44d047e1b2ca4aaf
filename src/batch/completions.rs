use std::{
    collections::{HashSet, VecDeque},
    future::poll_fn,
    hash::{BuildHasher, RandomState},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Poll, ready},
    vec,
};

use futures_util::{Stream, stream::FuturesUnordered};
use tokio::{task::coop, time::Instant};
use tower::ServiceExt as _;
use tower_service::Service;

use super::{
    child::{Child, Guard, Guarded, Place, Unsettled, Untold, guarded, tell},
    plan::Plan,
};
use crate::{
    call::{CallExt, Claim, ToolCall},
    error::{ErrorKind, ToolError},
    outcome::{ByError, Classify},
    result::ToolResult,
};

/// How many calls are begun before those that run are polled again.
const BEGIN_AT_ONCE: usize = 32;

/// The results of a batch in the order in which its calls end. See the [module docs](super).
///
/// A [`Stream`] of pairs: the number of the call, from 0, and its result. Dropping it drops the
/// calls that run.
#[must_use = "calls run while it is polled"]
pub struct Completions<S, C = ByError>
where
    S: Service<ToolCall, Error: Into<ToolError>> + Clone,
{
    service: Guarded<S>,
    queue: vec::IntoIter<ToolCall>,
    /// The number of the first call in it.
    next: usize,
    running: FuturesUnordered<Child<Guard<S>>>,
    /// How many places are taken, if calls that wait leave theirs.
    places: Option<Arc<AtomicUsize>>,
    /// The results of calls that were cancelled here.
    cancelled: VecDeque<(usize, ToolResult<S::Response>)>,
    plan: Plan,
    end: Option<Instant>,
    classifier: C,
}

impl<S, C> Completions<S, C>
where
    S: Service<ToolCall, Error: Into<ToolError>> + Clone,
{
    pub(super) fn new(service: S, plan: Plan, classifier: C, calls: Vec<ToolCall>) -> Self {
        Self {
            service: guarded(service),
            queue: with_ids(calls).into_iter(),
            next: 0,
            running: FuturesUnordered::new(),
            places: (plan.gives_way && plan.limit != usize::MAX).then(Arc::default),
            cancelled: VecDeque::new(),
            end: plan.end(Instant::now()),
            plan,
            classifier,
        }
    }

    /// Returns how many results are still to come.
    pub fn remaining(&self) -> usize {
        self.queue.len() + self.running.len() + self.cancelled.len()
    }

    /// Waits for the next call that ends: its number, from 0, and its result. `None` after the
    /// last.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped before it is ready, no result is lost.
    pub async fn next(&mut self) -> Option<(usize, ToolResult<S::Response>)>
    where
        C: Classify<S::Response>,
    {
        poll_fn(|cx| self.poll_result(cx)).await
    }

    /// Drops the calls that run, which cancels them, and begins no other: the results still to come
    /// are there, with the status `cancelled`.
    pub fn cancel(&mut self)
    where
        C: Classify<S::Response>,
    {
        let stopped = self.stop();
        let untold = self.untold(&stopped);
        let results = stopped.into_iter();
        let results = results.map(|(index, call)| (index, call.cancel(&self.classifier)));
        self.cancelled.extend(results);
        let cancelled = self.cancelled.make_contiguous();
        cancelled.sort_by_key(|(index, _)| *index);
        for call in untold {
            tell(&call, &self.plan.listener);
        }
    }

    fn untold(&self, stopped: &[(usize, Unsettled)]) -> Vec<Untold> {
        let untold = stopped.iter().map(|(_, call)| call);
        let untold = untold.filter_map(|call| call.untold(Some(ErrorKind::Cancelled)));
        untold.collect()
    }

    /// Drops the calls that run, and takes those that wait.
    fn stop(&mut self) -> Vec<(usize, Unsettled)> {
        let running = Pin::new(&mut self.running).iter_pin_mut();
        let mut stopped: Vec<_> = running.filter_map(Child::stop).collect();
        self.running.clear();
        while let Some((index, mut call)) = self.take_waiting() {
            stopped.push((index, Unsettled::begin(&mut call)));
        }
        stopped
    }

    fn poll_result(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<(usize, ToolResult<S::Response>)>>
    where
        C: Classify<S::Response>,
    {
        if let Some(result) = self.cancelled.pop_front() {
            return Poll::Ready(Some(result));
        }
        // Calls that never wait would keep others from their turn. It is paid for afterwards: what
        // is held meanwhile would give back what the calls have spent.
        if !coop::has_budget_remaining() {
            ready!(coop::poll_proceed(cx)).made_progress();
        }
        self.begin(cx);
        let Poll::Ready(ended) = Pin::new(&mut self.running).poll_next(cx) else {
            // A call may have left its place to wait.
            if self.places.is_some() && self.has_room() && !self.queue.as_slice().is_empty() {
                cx.waker().wake_by_ref();
            }
            return Poll::Pending;
        };
        if let Poll::Ready(coop) = coop::poll_proceed(cx) {
            coop.made_progress();
        }
        Poll::Ready(ended.map(|(index, call, output)| {
            let untold = call.untold(output.as_ref().err().map(ToolError::kind));
            let result = call.end(output, &self.classifier);
            if let Some(untold) = untold {
                tell(&untold, &self.plan.listener);
            }
            (index, result)
        }))
    }

    /// Begins calls, as far as the limit lets it.
    fn begin(&mut self, cx: &mut Context<'_>) {
        for _ in 0..BEGIN_AT_ONCE {
            if !self.has_room() {
                return;
            }
            let Some((index, mut call)) = self.take_waiting() else {
                return;
            };
            self.hold(&mut call);
            let unsettled = Unsettled::begin(&mut call);
            let place = self.places.as_ref().map(Place::take);
            let fut = self.service.clone().oneshot(call);
            self.running.push(Child::new(index, unsettled, fut, place));
        }
        if self.has_room() && !self.queue.as_slice().is_empty() {
            // The rest next time, after those that run.
            cx.waker().wake_by_ref();
        }
    }

    fn has_room(&self) -> bool {
        let taken = self.places.as_ref().map(|taken| taken.load(Relaxed));
        taken.unwrap_or(self.running.len()) < self.plan.limit
    }

    fn take_waiting(&mut self) -> Option<(usize, ToolCall)> {
        let call = self.queue.next()?;
        self.next += 1;
        Some((self.next - 1, call))
    }

    /// Holds a call to the end of the batch, and keeps the reserve from it or from the call's own
    /// deadline.
    fn hold(&self, call: &mut ToolCall) {
        // Time that a sequence around the caller reserves is not reserved here once more.
        call.take_reserved();
        if self.plan.gives_way {
            call.claim(Claim::Queue);
        }
        if let Some(end) = self.end {
            call.tighten(end);
        }
        if let Some(reserve) = self.plan.reserve.filter(|_| call.deadline().is_some()) {
            call.reserve(reserve, Instant::now());
            call.set_reserved();
        }
    }
}

impl<S, C> Drop for Completions<S, C>
where
    S: Service<ToolCall, Error: Into<ToolError>> + Clone,
{
    fn drop(&mut self) {
        let stopped = self.stop();
        for call in self.untold(&stopped) {
            tell(&call, &self.plan.listener);
        }
    }
}

/// Nothing in it is pinned except on the heap.
impl<S, C> Unpin for Completions<S, C> where S: Service<ToolCall, Error: Into<ToolError>> + Clone {}

impl<S, C> Stream for Completions<S, C>
where
    S: Service<ToolCall, Error: Into<ToolError>> + Clone,
    C: Classify<S::Response>,
{
    type Item = (usize, ToolResult<S::Response>);

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().poll_result(cx)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let n = self.remaining();
        (n, Some(n))
    }
}

crate::text::debug_fields! {
    {S: Service<ToolCall, Error: Into<ToolError>> + Clone, C} |this| Completions<S, C> {
        waiting: this.queue.len(),
        running: this.running.len(),
        ..
    }
}

/// Gives an id to each call that has none, or has the id of an earlier call. Some models number
/// their calls again from 1 with each answer, or not at all, and two results with one id would look
/// like one result.
fn with_ids(mut calls: Vec<ToolCall>) -> Vec<ToolCall> {
    let mut taken = HashSet::with_capacity(calls.len());
    let mut unnamed = Vec::new();
    for (n, call) in calls.iter().enumerate() {
        let info = call.info();
        let id = info.shared_id().filter(|id| !id.trim().is_empty());
        if !id.is_some_and(|id| taken.insert(Arc::clone(id))) {
            unnamed.push(n);
        }
    }
    let random = RandomState::new();
    let mut count = 0_u64;
    for n in unnamed {
        let id = loop {
            count += 1;
            let id: Arc<str> = format!("call_{:016x}", random.hash_one(count)).into();
            if taken.insert(Arc::clone(&id)) {
                break id;
            }
        };
        calls[n].set_id(id);
    }
    calls
}
