use std::{
    convert::Infallible,
    fmt,
    future::Future,
    marker::PhantomData,
    mem,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use futures_util::Stream as _;
use tokio::time::Instant;
use tower_service::Service;

use super::{
    completions::{Completions, Plan},
    ending::{Answers, Ending, Results},
    report::{SequenceReport, Tally},
};
use crate::{
    call::ToolCall,
    error::ToolError,
    event::{
        Listen, Listener, TARGET, ms,
        names::{event, field},
    },
    result::ToolResult,
    text::Short,
};

/// Runs calls one after the other, under one time budget. See the [module docs](super) for an example.
///
/// A call that fails does not stop the others. With a budget, a call gets `min(its own timeout, what is left - reserve)`;
/// if that is nothing, it is not started, and its result says so: `skipped`, with a duration of zero. The
/// reserve is for whoever has to make something of the results.
#[must_use]
pub struct Sequence<S, E = Answers> {
    service: S,
    plan: Plan,
    ending: PhantomData<fn() -> E>,
}

impl<S> Sequence<S>
where
    S: Service<ToolCall, Error: Into<ToolError>> + Clone,
{
    /// Calls of a stack, or of a bare tool, that gives answers and errors: each becomes a result.
    ///
    /// For a stack with a [`ToolResultLayer`](crate::result::ToolResultLayer) take [`of_results`](Self::of_results): here,
    /// its results would be the answers, and every one a success.
    pub fn new(service: S) -> Self {
        Self::with_plan(service)
    }
}

impl<S, T> Sequence<S, Results>
where
    S: Service<ToolCall, Response = ToolResult<T>, Error = Infallible> + Clone,
{
    /// Calls of a stack that makes results itself: one with a [`ToolResultLayer`](crate::result::ToolResultLayer).
    pub fn of_results(service: S) -> Self {
        Self::with_plan(service)
    }
}

impl<S, E> Sequence<S, E> {
    fn with_plan(service: S) -> Self {
        Self {
            service,
            plan: Plan {
                limit: 1,
                budget: None,
                deadline: None,
                reserve: Some(Duration::from_millis(500)),
                listener: Listener::default(),
            },
            ending: PhantomData,
        }
    }

    /// Sets the time that the calls have together, from [`run`](Self::run) on. Default: no limit but their own
    /// timeouts and deadlines. [`Duration::MAX`] is none.
    pub fn with_budget(mut self, budget: Duration) -> Self {
        self.plan.set_budget(budget);
        self
    }

    /// Sets the moment by which all calls must have ended. With a budget as well, the earlier end holds.
    pub fn with_deadline(mut self, at: Instant) -> Self {
        self.plan.deadline = Some(at);
        self
    }

    /// Sets what no call gets of the time until the end of the budget, or until its own deadline if that is earlier.
    /// Default 500 ms; of a call's own deadline that came over a wire at most a tenth. If it is all of it, the call is skipped.
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

impl<S, E> Sequence<S, E>
where
    S: Service<ToolCall, Error: Into<ToolError>> + Clone,
    E: Ending<S::Response>,
{
    /// Runs the calls. The budget begins now, the first call when the future is polled.
    pub fn run(&self, calls: impl IntoIterator<Item = ToolCall>) -> RunningSequence<S, E> {
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

impl<S: Clone, E> Clone for Sequence<S, E> {
    fn clone(&self) -> Self {
        Self {
            service: self.service.clone(),
            plan: self.plan.clone(),
            ending: PhantomData,
        }
    }
}

impl<S, E> fmt::Debug for Sequence<S, E> {
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
pub struct RunningSequence<S, E = Answers>
where
    S: Service<ToolCall, Error: Into<ToolError>> + Clone,
    E: Ending<S::Response>,
{
    completions: Completions<S, E>,
    results: Vec<ToolResult<E::Data>>,
    /// Until the end.
    account: Option<Account>,
}

impl<S, E> RunningSequence<S, E>
where
    S: Service<ToolCall, Error: Into<ToolError>> + Clone,
    E: Ending<S::Response>,
{
    /// Drops the call that runs, which cancels it, and begins no other. The future is ready then, with a report of
    /// all calls: those that had ended keep their results, the others' status is `cancelled`.
    pub fn cancel(&mut self) {
        self.completions.cancel();
    }
}

impl<S, E> Unpin for RunningSequence<S, E>
where
    S: Service<ToolCall, Error: Into<ToolError>> + Clone,
    E: Ending<S::Response>,
{
}

impl<S, E> Future for RunningSequence<S, E>
where
    S: Service<ToolCall, Error: Into<ToolError>> + Clone,
    E: Ending<S::Response>,
{
    type Output = SequenceReport<E::Data>;

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

impl<S, E> fmt::Debug for RunningSequence<S, E>
where
    S: Service<ToolCall, Error: Into<ToolError>> + Clone,
    E: Ending<S::Response>,
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
