use std::{
    collections::VecDeque,
    fmt,
    future::poll_fn,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Poll, ready},
    time::Duration,
    vec,
};

use futures_util::{Stream, stream::FuturesUnordered};
use tokio::{task::coop, time::Instant};
use tower::ServiceExt as _;
use tower_service::Service;

use super::{
    child::{Child, Guard, Guarded, Place, Unsettled, Untold, guarded, tell},
    ids,
};
use crate::{
    call::{Claim, ToolCall},
    error::{ErrorKind, ToolError},
    event::Listener,
    outcome::{ByError, Classify},
    result::ToolResult,
};

/// How many calls are begun before those that run are polled again.
const BEGIN_AT_ONCE: usize = 32;

/// How a batch is run.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    /// How many calls at a time.
    pub(super) limit: usize,
    /// A call that only waits leaves its place to others; else the calls keep their order.
    pub(super) gives_way: bool,
    /// For all of them.
    pub(super) budget: Option<Duration>,
    /// When all of them must have ended.
    pub(super) deadline: Option<Instant>,
    /// The reserve, which is kept back from each call's time.
    pub(super) reserve: Option<Duration>,
    pub(super) listener: Listener,
    /// Changes each call before it begins.
    pub(super) map: MapCalls,
}

/// A function of the user, if there is one.
#[derive(Clone, Default)]
pub(super) struct MapCalls(Option<Arc<dyn Fn(ToolCall) -> ToolCall + Send + Sync>>);

impl MapCalls {
    pub(super) fn new(map: impl Fn(ToolCall) -> ToolCall + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(map)))
    }

    pub(super) fn collect(&self, calls: impl IntoIterator<Item = ToolCall>) -> Vec<ToolCall> {
        let calls = calls.into_iter();
        match &self.0 {
            Some(map) => calls.map(|call| map(call)).collect(),
            None => calls.collect(),
        }
    }
}

impl fmt::Debug for MapCalls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Some(..)" } else { "None" })
    }
}

impl Plan {
    pub(super) fn new(limit: usize, reserve: Option<Duration>) -> Self {
        Self {
            limit,
            gives_way: reserve.is_none(),
            budget: None,
            deadline: None,
            reserve,
            listener: Listener::default(),
            map: MapCalls::default(),
        }
    }

    pub(super) fn set_budget(&mut self, budget: Duration) {
        self.budget = Some(budget).filter(|budget| *budget != Duration::MAX);
    }

    /// The end of a batch that begins `now`. `None`: no clock reaches it.
    fn end(&self, now: Instant) -> Option<Instant> {
        let budget = self.budget.and_then(|budget| now.checked_add(budget));
        budget.into_iter().chain(self.deadline).min()
    }
}

/// The settings that both ways of running calls have.
macro_rules! settings {
    ($batch:ident) => {
        impl<S, C> $batch<S, C> {
            /// Sets the classifier that decides whether an answer is an error result. Default: it
            /// is a success, unless the tool service has [reported](crate::Record::set_reported) an
            /// error, as `McpService` does (`isError`). That holds with any classifier.
            pub fn with_classifier<D>(self, classifier: D) -> $batch<S, D> {
                $batch {
                    service: self.service,
                    plan: self.plan,
                    classifier,
                }
            }

            /// Sets the time that the calls have together, from [`run`](Self::run) on. Default: no
            /// limit but their own timeouts and deadlines.
            /// [`Duration::MAX`](std::time::Duration::MAX) is none.
            pub fn with_budget(mut self, budget: std::time::Duration) -> Self {
                self.plan.set_budget(budget);
                self
            }

            /// Sets the moment by which all calls must have ended. With a budget as well, the
            /// earlier end holds.
            pub fn with_deadline(mut self, at: tokio::time::Instant) -> Self {
                self.plan.deadline = Some(at);
                self
            }

            /// Sets a function that changes each call before it begins. Default: calls stay as they
            /// are.
            ///
            /// It puts on all calls what the layers of the stack need of their caller: a session,
            /// an agent, a trace id, a subject's token.
            ///
            /// ```
            /// # use tower::service_fn;
            /// # use tower_toolcall::{AnyError, ToolCall};
            #[doc = concat!("use tower_toolcall::batch::", stringify!($batch), ";")]
            ///
            /// # let stack = service_fn(|_: ToolCall| async { Ok::<_, AnyError>(12) });
            #[doc = concat!("let batch = ", stringify!($batch), "::new(stack)")]
            ///     .map_calls(|call| call.with_session_id("chat 17").with_agent_id("concierge"));
            /// # let _ = batch;
            /// ```
            pub fn map_calls(
                mut self,
                map: impl Fn(ToolCall) -> ToolCall + Send + Sync + 'static,
            ) -> Self {
                self.plan.map = $crate::edge::batch::completions::MapCalls::new(map);
                self
            }

            /// Sets the listener for calls that were not started. Default: none; the events are
            /// emitted either way.
            pub fn with_listener(mut self, listen: impl $crate::event::Listen + 'static) -> Self {
                self.plan.listener = $crate::event::Listener::new(listen);
                self
            }
        }

        impl<S, C> $batch<S, C>
        where
            S: Service<ToolCall, Error: Into<ToolError>> + Clone,
            C: Clone,
        {
            fn completions(&self, calls: Vec<ToolCall>) -> Completions<S, C> {
                let (service, classifier) = (self.service.clone(), self.classifier.clone());
                Completions::new(service, self.plan.clone(), classifier, calls)
            }
        }

        crate::text::debug_fields! { {S, C} |this| $batch<S, C> { plan: this.plan, .. } }
    };
}
pub(super) use settings;

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
            queue: ids::given(calls).into_iter(),
            next: 0,
            running: FuturesUnordered::new(),
            places: (plan.gives_way && plan.limit != usize::MAX).then(Arc::default),
            cancelled: VecDeque::new(),
            end: plan.end(Instant::now()),
            plan,
            classifier,
        }
    }

    /// How many results are still to come.
    pub fn remaining(&self) -> usize {
        self.queue.len() + self.running.len() + self.cancelled.len()
    }

    /// The next call that ends: its number, from 0, and its result. `None` after the last.
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
        let untold = stopped.iter();
        untold
            .filter_map(|(_, call)| call.untold(Some(ErrorKind::Cancelled)))
            .collect()
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
