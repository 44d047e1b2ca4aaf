use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use pin_project_lite::pin_project;
use tokio::time::Instant;
use tower_service::Service;

use super::{
    Never,
    metadata::Metadata,
    tool_result::{About, ToolResult},
};
use crate::{
    call::{CallExt, Observation, ToolCall},
    error::{ErrorKind, ToolError},
    flow::again::{After, Again, Before, Repeated},
    outcome::{Classify, Outcome},
};

pin_project! {
    /// Response future for [`ToolResultService`](super::ToolResultService).
    #[must_use = "futures do nothing unless polled"]
    pub struct ResponseFuture<S, F, C> {
        #[pin]
        pub(super) fut: Repeated<S, F, Plain>,
        pub(super) pending: Pending,
        pub(super) classifier: C,
    }
}

/// The part of a call on its way to the inner service: nothing is decided there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plain;

impl<S: Service<ToolCall>> Before<S> for Plain {}

impl<S: Service<ToolCall>> Again<S> for Plain {
    #[inline]
    fn again(&mut self, result: Result<S::Response, ToolError>) -> After<S, S::Response> {
        After::End(result)
    }
}

/// Observes a call while it runs, and makes its [`ToolResult`]: for executors that end calls
/// themselves, where no [`ToolResultLayer`](super::ToolResultLayer) stands around them.
///
/// ```
/// use tower_toolcall::{
///     ErrorKind, ToolCall, ToolError,
///     outcome::ByError,
///     result::{Pending, ToolResult},
/// };
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() {
/// let mut call = ToolCall::new("search");
/// let mut pending = Pending::begin(&mut call);
/// let never = Err(ToolError::new(ErrorKind::Cancelled, "the queue was closed"));
/// let result: ToolResult<String> = pending.settle(never, &ByError);
/// assert_eq!(result.error().unwrap().kind(), ErrorKind::Cancelled);
/// # }
/// ```
#[derive(Debug)]
pub struct Pending {
    since: Instant,
    below: Observation,
}

impl<S, C> Future for ResponseFuture<S, S::Future, C>
where
    S: Service<ToolCall, Error: Into<ToolError>> + Clone,
    C: Classify<S::Response>,
{
    type Output = Result<ToolResult<S::Response>, Never>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let result = ready!(this.fut.poll(cx));
        Poll::Ready(Ok(this.pending.settle(result, this.classifier)))
    }
}

impl Pending {
    /// Begins the call, and its duration.
    #[inline(always)]
    pub fn begin(call: &mut ToolCall) -> Self {
        let below = call.observe();
        below.want_output_bytes();
        Self {
            since: Instant::now(),
            below,
        }
    }

    /// Hands over what it knows, and leaves nothing here.
    #[inline]
    pub(super) fn take(&mut self) -> Self {
        Self {
            since: self.since,
            below: self.below.take(),
        }
    }

    /// Returns the records of the inner layers so far.
    pub fn observation(&self) -> &Observation {
        &self.below
    }

    /// Ends the call. Its [observation](Self::observation) ends with it.
    ///
    /// # Panics
    ///
    /// If the call was settled before, as a method of the observation does then.
    #[inline]
    pub fn settle<Res, C>(
        &mut self,
        result: Result<Res, ToolError>,
        classifier: &C,
    ) -> ToolResult<Res>
    where
        C: Classify<Res>,
    {
        self.below.adopt_rules();
        let (data, error) = match result {
            Ok(answer) => {
                let outcome = classifier.classify(Ok(&answer));
                (
                    Some(answer),
                    of_answer(&outcome).or_else(|| self.reported()),
                )
            }
            Err(error) => (None, Some(error)),
        };
        let mut duration = Instant::now().saturating_duration_since(self.since);
        let mut below = self.below.recorded();
        let attempts = self.below.sent(error.as_ref());
        if data.is_none() {
            // The size is of an answer that is not handed on.
            below.output_bytes = 0;
        }
        let error = error.map(|error| self.failed(error, &mut duration, attempts));
        ToolResult {
            data,
            about: About {
                call: self.below.take_call(),
                error,
                duration,
                attempts,
                metadata: Metadata { below, extra: None },
            },
        }
    }

    /// Returns the error of an answer that the tool service has reported, but the classifier counts
    /// as a success.
    #[inline]
    fn reported(&self) -> Option<ToolError> {
        let is_reported = self.below.is_reported();
        is_reported.then(|| failure_of_answer(&Outcome::reported()))?
    }

    /// Adds the records of the call to its error.
    #[cold]
    fn failed(&self, error: ToolError, duration: &mut Duration, attempts: u32) -> ToolError {
        // It was not started: the time to find that out is not a duration of the call.
        let is_unknown = error.kind() == ErrorKind::NotFound && error.is_own_refusal();
        if error.kind() == ErrorKind::DeadlineExceeded || is_unknown && attempts == 0 {
            *duration = Duration::ZERO;
        }
        let elapsed = error.elapsed().unwrap_or(*duration);
        error.for_call(self.below.call()).with_elapsed(elapsed)
    }
}

/// Returns the error of an answer that is not a success.
#[inline]
fn of_answer(outcome: &Outcome) -> Option<ToolError> {
    (!outcome.is_success()).then(|| failure_of_answer(outcome))?
}

#[cold]
fn failure_of_answer(outcome: &Outcome) -> Option<ToolError> {
    let (kind, text) = outcome.failure_of_answer()?;
    let text = match kind {
        // The texts for models say the rest.
        ErrorKind::Reported => "see its answer",
        _ => text,
    };
    let error = ToolError::new(kind, text).with_retryable(outcome.is_retryable());
    Some(match outcome.retry_after() {
        Some(delay) => error.with_retry_after(delay),
        None => error,
    })
}

crate::text::debug_fields! { {S, F, C} |_| ResponseFuture<S, F, C> { pending, .. } }
