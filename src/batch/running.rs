use std::{
    fmt,
    future::Future,
    mem,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use futures_util::Stream as _;
use serde::{Serialize, Serializer, ser::SerializeStruct as _};
use tokio::time::Instant;
use tower_service::Service;

use super::completions::Completions;
use crate::{
    call::ToolCall,
    error::ToolError,
    event::{event, ms, short},
    outcome::{ByError, Classify},
    result::{Status, ToolResult},
};

/// The results of a batch in the order of its calls. See the [module docs](super).
///
/// Can be polled through `&mut`. Dropping it drops the calls that run, and the results that are
/// there.
#[must_use = "futures do nothing unless polled"]
pub struct Running<S, C = ByError>
where
    S: Service<ToolCall, Error: Into<ToolError>> + Clone,
{
    completions: Completions<S, C>,
    /// Until the end.
    results: Option<Vec<Option<ToolResult<S::Response>>>>,
}

impl<S, C> Running<S, C>
where
    S: Service<ToolCall, Error: Into<ToolError>> + Clone,
{
    pub(super) fn new(completions: Completions<S, C>) -> Self {
        let mut results = Vec::new();
        results.resize_with(completions.remaining(), || None);
        Self {
            completions,
            results: Some(results),
        }
    }

    /// Returns how many calls have no result yet.
    pub fn remaining(&self) -> usize {
        self.completions.remaining()
    }

    /// Drops the calls that run, which cancels them, and begins no other. The future is ready then,
    /// with a result for each call: those that had ended keep theirs, the others' status is
    /// `cancelled`. It wakes no task: poll it again.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tower::service_fn;
    /// # use tower_toolcall::{AnyError, ToolCall, batch::Parallel};
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() {
    /// # let tools = service_fn(|call: ToolCall| async move {
    /// #     if call.tool() == "slow" { std::future::pending::<()>().await }
    /// #     Ok::<_, AnyError>(12)
    /// # });
    /// let mut running = Parallel::new(tools).run([ToolCall::new("fast"), ToolCall::new("slow")]);
    /// let results = match tokio::time::timeout(Duration::from_secs(1), &mut running).await {
    ///     Ok(results) => results,
    ///     Err(_) => {
    ///         running.cancel();
    ///         running.await
    ///     }
    /// };
    /// assert!(results[0].is_success());
    /// assert_eq!(results[1].status().name(), "cancelled");
    /// # }
    /// ```
    pub fn cancel(&mut self)
    where
        C: Classify<S::Response>,
    {
        self.completions.cancel();
    }
}

impl<S, C> Unpin for Running<S, C> where S: Service<ToolCall, Error: Into<ToolError>> + Clone {}

impl<S, C> Future for Running<S, C>
where
    S: Service<ToolCall, Error: Into<ToolError>> + Clone,
    C: Classify<S::Response>,
{
    type Output = Vec<ToolResult<S::Response>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let results = this.results.as_mut().expect("polled after completion");
        while let Some((n, result)) = ready!(Pin::new(&mut this.completions).poll_next(cx)) {
            results[n] = Some(result);
        }
        let results = this.results.take().into_iter().flatten();
        let results = results.map(|result| result.expect("each call has one"));
        Poll::Ready(results.collect())
    }
}

crate::text::debug_fields! {
    {S: Service<ToolCall, Error: Into<ToolError>> + Clone, C} |this| Running<S, C> {
        completions: this.completions,
    }
}

/// Future of a [`Sequence`](super::Sequence): its [report](SequenceReport).
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
    pub(super) fn new(completions: Completions<S, C>, account: Account) -> Self {
        Self {
            results: Vec::with_capacity(completions.remaining()),
            completions,
            account: Some(account),
        }
    }

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
pub(super) struct Account {
    since: Instant,
    budget: Option<Duration>,
    calls: usize,
    trace_id: Option<Box<str>>,
    tally: Tally,
}

impl Account {
    pub(super) fn new(calls: &[ToolCall], budget: Option<Duration>) -> Self {
        let mut ids = calls.iter().filter_map(ToolCall::trace_id);
        Self {
            since: Instant::now(),
            budget,
            calls: calls.len(),
            trace_id: ids.next().map(Into::into),
            tally: Tally::default(),
        }
    }
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

/// The report of a [`Sequence`](super::Sequence): a result for each call, in order, and their
/// tally.
///
/// `Debug` and `Serialize` show no data unredacted, as those of [`ToolResult`].
#[derive(Clone, Debug)]
#[must_use]
pub struct SequenceReport<T> {
    pub(super) results: Vec<ToolResult<T>>,
    pub(super) tally: Tally,
    pub(super) duration: Duration,
    pub(super) budget: Option<Duration>,
}

impl<T> SequenceReport<T> {
    /// Returns a result for each call, in order.
    pub fn results(&self) -> &[ToolResult<T>] {
        &self.results
    }

    /// Takes the results out.
    pub fn into_results(self) -> Vec<ToolResult<T>> {
        self.results
    }

    /// Returns how long it took, from its beginning to the end of the last call.
    pub fn duration(&self) -> Duration {
        self.duration
    }

    /// Returns the time that the calls had together.
    pub fn budget(&self) -> Option<Duration> {
        self.budget
    }

    /// Returns how many calls ended in which way.
    pub fn tally(&self) -> Tally {
        self.tally
    }
}

/// The numbers of calls by their ends.
///
/// Each call is one of succeeded, failed, timed out, skipped and cancelled; slow ones are counted
/// besides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Tally {
    /// All calls.
    pub calls: usize,
    /// Calls with an answer.
    pub succeeded: usize,
    /// Calls that failed, were refused, or were answered with a reported error.
    pub failed: usize,
    /// Calls that were started and did not end in time.
    pub timed_out: usize,
    /// Calls that were not started because no time was left.
    pub skipped: usize,
    /// They were given up.
    pub cancelled: usize,
    /// They took more than their fraction of the timeout.
    pub slow: usize,
}

impl Tally {
    pub(super) fn count<T>(&mut self, result: &ToolResult<T>) {
        self.calls += 1;
        self.slow += usize::from(result.metadata().is_slow());
        *match result.status() {
            Status::Success => &mut self.succeeded,
            Status::Error => &mut self.failed,
            Status::Timeout => &mut self.timed_out,
            Status::Skipped => &mut self.skipped,
            Status::Cancelled => &mut self.cancelled,
        } += 1;
    }
}

/// `3 calls in 12.5 s: 1 succeeded, 1 timed out, 1 skipped`
impl<T> fmt::Display for SequenceReport<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tally = &self.tally;
        let calls = if tally.calls == 1 { "call" } else { "calls" };
        write!(
            f,
            "{} {calls} in {:.1} s",
            tally.calls,
            self.duration.as_secs_f64()
        )?;
        let parts = [
            (tally.succeeded, "succeeded"),
            (tally.failed, "failed"),
            (tally.timed_out, "timed out"),
            (tally.skipped, "skipped"),
            (tally.cancelled, "cancelled"),
            (tally.slow, "slow"),
        ];
        let mut between = ": ";
        for (n, what) in parts {
            if n > 0 {
                write!(f, "{between}{n} {what}")?;
                between = ", ";
            }
        }
        Ok(())
    }
}

impl<T: Serialize> Serialize for SequenceReport<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut report = serializer.serialize_struct("SequenceReport", 4)?;
        report.serialize_field("tally", &self.tally)?;
        report.serialize_field("duration_ms", &ms(self.duration))?;
        report.serialize_field("budget_ms", &self.budget.map(ms))?;
        report.serialize_field("results", &self.results)?;
        report.end()
    }
}
