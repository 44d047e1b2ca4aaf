use std::{
    future::Future,
    mem,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use futures_util::Stream as _;
use tokio::time::Instant;
use tower_service::Service;

use super::{
    completions::{Completions, Plan, settings},
    report::{SequenceReport, Tally},
};
use crate::{
    call::ToolCall,
    error::ToolError,
    event::{event, ms, short},
    outcome::{ByError, Classify},
    result::ToolResult,
};

/// Runs calls one after the other, under one time budget. See the [module docs](super) for an
/// example.
///
/// A call that fails does not stop the others. With a budget, a call gets `min(its own timeout,
/// what is left - reserve)`; if that is nothing, it is not started, and its result says so:
/// `skipped`, with a duration of zero. The reserve is for the code that works with the results.
#[derive(Clone)]
#[must_use]
pub struct Sequence<S, C = ByError> {
    service: S,
    plan: Plan,
    classifier: C,
}

impl<S> Sequence<S>
where
    S: Service<ToolCall, Error: Into<ToolError>> + Clone,
{
    /// Calls of a stack, or of a bare tool: each answer and each error becomes a result.
    ///
    /// A stack with a [`ToolResultLayer`](crate::result::ToolResultLayer) makes results itself and
    /// does not compile here.
    pub fn new(service: S) -> Self {
        Self {
            service,
            plan: Plan::new(1, Some(Duration::from_millis(500))),
            classifier: ByError,
        }
    }
}

settings!(Sequence);

impl<S, C> Sequence<S, C> {
    /// Sets what no call gets of the time until the end of the budget, or until its own deadline if
    /// that is earlier. Default 500 ms; of a call's own deadline that came over a wire at most a
    /// tenth. If it is all of it, the call is skipped.
    pub fn with_reserve(mut self, reserve: Duration) -> Self {
        self.plan.reserve = Some(reserve);
        self
    }
}

impl<S, C> Sequence<S, C>
where
    S: Service<ToolCall, Error: Into<ToolError>> + Clone,
    C: Classify<S::Response> + Clone,
{
    /// Runs the calls. The budget begins now, the first call when the future is polled.
    pub fn run(&self, calls: impl IntoIterator<Item = ToolCall>) -> RunningSequence<S, C> {
        let calls = self.plan.map.collect(calls);
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
            completions: self.completions(calls),
            account: Some(account),
        }
    }
}

/// Future of a [`Sequence`]: its [report](SequenceReport).
///
/// Can be polled through `&mut`. At its end, or when it is dropped, there is an event
/// [`tool.sequence`](crate::event).
#[must_use = "futures do nothing unless polled"]
pub struct RunningSequence<S, C = ByError>
where
    S: Service<ToolCall, Error: Into<ToolError>> + Clone,
{
    completions: Completions<S, C>,
    results: Vec<ToolResult<S::Response>>,
    /// Until the end.
    account: Option<Account>,
}

impl<S, C> RunningSequence<S, C>
where
    S: Service<ToolCall, Error: Into<ToolError>> + Clone,
{
    /// Drops the call that runs, which cancels it, and begins no other. The future is ready then,
    /// with a report of all calls: those that had ended keep their results, the others' status is
    /// `cancelled`.
    pub fn cancel(&mut self)
    where
        C: Classify<S::Response>,
    {
        self.completions.cancel();
    }
}

impl<S, C> Unpin for RunningSequence<S, C> where S: Service<ToolCall, Error: Into<ToolError>> + Clone
{}

impl<S, C> Future for RunningSequence<S, C>
where
    S: Service<ToolCall, Error: Into<ToolError>> + Clone,
    C: Classify<S::Response>,
{
    type Output = SequenceReport<S::Response>;

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

crate::text::debug_fields! {
    {S: Service<ToolCall, Error: Into<ToolError>> + Clone, C} |this| RunningSequence<S, C> {
        completions: this.completions,
        account: this.account,
    }
}

/// Emits the event of a sequence when it is dropped, whichever way the sequence ends.
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
        // Those without a result, because the sequence was dropped.
        let dropped = self.calls - tally.calls;
        event!(
            INFO SEQUENCE,
            TRACE_ID = self.trace_id.as_deref().map(short),
            CALLS = self.calls,
            SUCCEEDED = tally.succeeded,
            FAILED = tally.failed,
            TIMED_OUT = tally.timed_out,
            SKIPPED = tally.skipped,
            CANCELLED = tally.cancelled + dropped,
            SLOW_CALLS = tally.slow,
            DURATION_MS = ms(self.since.elapsed()),
            BUDGET_MS = self.budget.map(ms),
        );
    }
}
