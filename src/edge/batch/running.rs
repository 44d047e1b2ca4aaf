use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use futures_util::Stream as _;
use tower_service::Service;

use super::completions::Completions;
use crate::{
    call::ToolCall,
    error::ToolError,
    outcome::{ByError, Classify},
    result::ToolResult,
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

    /// How many calls have no result yet.
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
        Poll::Ready(
            results
                .map(|result| result.expect("each call has one"))
                .collect(),
        )
    }
}

crate::text::debug_fields! {
    {S: Service<ToolCall, Error: Into<ToolError>> + Clone, C} |this| Running<S, C> {
        completions: this.completions,
    }
}
