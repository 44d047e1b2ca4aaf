use std::{
    convert::Infallible,
    fmt,
    future::Future,
    mem,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use futures_util::Stream as _;
use tokio::time::Instant;
use tower_layer::Layer;
use tower_service::Service;

use super::{
    completions::{Completions, Plan},
    report::{SequenceReport, Tally},
};
use crate::{
    call::ToolCall,
    event::{
        Listen, Listener, TARGET, ms,
        names::{event, field},
    },
    result::{ToolResult, ToolResultLayer, ToolResultService},
    text::Short,
};

/// Runs calls one after the other, under one time budget (X2). See the [module docs](super) for an example.
///
/// A call that fails does not stop the others. With a budget, a call gets `min(its own timeout, what is left - reserve)`;
/// if that is nothing, it is not started, and its result says so: `skipped`, with a duration of zero (T5). The
/// reserve is for whoever has to make something of the results.
#[derive(Clone)]
#[must_use]
pub struct Sequence<S> {
    service: S,
    plan: Plan,
}

impl<S> Sequence<ToolResultService<S>> {
    /// Calls of a stack, or of a bare tool, that may fail.
    pub fn new(service: S) -> Self {
        Self::with_plan(ToolResultLayer::new().layer(service))
    }
}

impl<S> Sequence<S> {
    fn with_plan(service: S) -> Self {
        Self {
            service,
            plan: Plan {
                limit: 1,
                budget: None,
                reserve: Some(Duration::from_millis(500)),
                listener: Listener::default(),
            },
        }
    }

    /// Sets the time that the calls have together, from [`run`](Self::run) on. Default: no limit but their own
    /// timeouts and deadlines. [`Duration::MAX`] is none.
    pub fn with_budget(mut self, budget: Duration) -> Self {
        self.plan.budget = Some(budget);
        self
    }

    /// Sets what of the budget no call gets. Default 500 ms (T5). If it is all of it, every call is skipped.
    pub fn with_reserve(mut self, reserve: Duration) -> Self {
        self.plan.reserve = Some(reserve);
        self
    }

    /// Sets who hears of calls that were not started. Default: nobody; the events are emitted either way.
    pub fn with_listener(mut self, listen: impl Listen + 'static) -> Self {
        self.plan.listener = Listener::new(listen);
        self
    }
}

impl<S, T> Sequence<S>
where
    S: Service<ToolCall, Response = ToolResult<T>, Error = Infallible> + Clone,
{
    /// Calls of a stack that makes results itself: one with a [`ToolResultLayer`].
    pub fn of_results(service: S) -> Self {
        Self::with_plan(service)
    }

    /// Runs the calls. The budget begins now, the first call when the future is polled.
    pub fn run(&self, calls: impl IntoIterator<Item = ToolCall>) -> RunningSequence<S> {
        let calls: Vec<_> = calls.into_iter().collect();
        let account = Account {
            since: Instant::now(),
            budget: self.plan.budget,
            calls: calls.len(),
            trace_id: calls
                .iter()
                .find_map(|call| call.trace_id().map(Into::into)),
            tally: Tally::default(),
        };
        RunningSequence {
            results: Vec::with_capacity(calls.len()),
            completions: Completions::new(self.service.clone(), &self.plan, calls),
            account: Some(account),
        }
    }
}

impl<S> fmt::Debug for Sequence<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sequence")
            .field("plan", &self.plan)
            .finish_non_exhaustive()
    }
}

/// Future of a [`Sequence`]: its [report](SequenceReport).
///
/// Can be polled through `&mut`. At its end, or when it is dropped, there is an event
/// [`tool.sequence`](crate::event).
#[must_use = "futures do nothing unless polled"]
pub struct RunningSequence<S>
where
    S: Service<ToolCall, Error = Infallible> + Clone,
{
    completions: Completions<S>,
    results: Vec<S::Response>,
    /// Until the end.
    account: Option<Account>,
}

impl<S, T> RunningSequence<S>
where
    S: Service<ToolCall, Response = ToolResult<T>, Error = Infallible> + Clone,
{
    /// Drops the call that runs, which cancels it, and begins no other. The future is ready then, with a report of
    /// all calls: those that had ended keep their results, the others' status is `cancelled`.
    pub fn cancel(&mut self) {
        self.completions.cancel();
    }
}

impl<S> Unpin for RunningSequence<S> where S: Service<ToolCall, Error = Infallible> + Clone {}

impl<S, T> Future for RunningSequence<S>
where
    S: Service<ToolCall, Response = ToolResult<T>, Error = Infallible> + Clone,
{
    type Output = SequenceReport<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let account = this.account.as_mut().expect("polled after completion");
        // They come in order, because one runs at a time.
        while let Some((_, result)) = ready!(Pin::new(&mut this.completions).poll_next(cx)) {
            account.tally.count(&result);
            this.results.push(result);
        }
        let report = SequenceReport {
            results: mem::take(&mut this.results),
            tally: account.tally,
            duration: account.since.elapsed(),
            budget: account.budget,
        };
        this.account = None;
        Poll::Ready(report)
    }
}

impl<S> fmt::Debug for RunningSequence<S>
where
    S: Service<ToolCall, Error = Infallible> + Clone,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunningSequence")
            .field("completions", &self.completions)
            .field("account", &self.account)
            .finish()
    }
}

/// What is told of a sequence at its end, whichever way it ends.
#[derive(Debug)]
struct Account {
    since: Instant,
    budget: Option<Duration>,
    calls: usize,
    trace_id: Option<Box<str>>,
    tally: Tally,
}

impl Drop for Account {
    fn drop(&mut self) {
        let tally = self.tally;
        // Those that have no result, because nobody waits for one.
        let dropped = self.calls - tally.calls;
        tracing::event!(
            name: event::SEQUENCE,
            target: TARGET,
            tracing::Level::INFO,
            { field::TRACE_ID } = self.trace_id.as_deref().map(|id| display(Short::name(id))),
            { field::CALLS } = self.calls,
            { field::SUCCEEDED } = tally.succeeded,
            { field::FAILED } = tally.failed,
            { field::TIMED_OUT } = tally.timed_out,
            { field::SKIPPED } = tally.skipped,
            { field::CANCELLED } = tally.cancelled + dropped,
            { field::SLOW_CALLS } = tally.slow,
            { field::DURATION_MS } = ms(self.since.elapsed()),
            { field::BUDGET_MS } = self.budget.map(ms),
            "{}", event::SEQUENCE
        );
    }
}
