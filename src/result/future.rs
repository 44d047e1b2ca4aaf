use std::{
    convert::Infallible,
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use pin_project_lite::pin_project;
use tokio::time::Instant;
use tower_service::Service;

use super::{
    metadata::Metadata,
    tool_result::{Parts, ToolResult},
};
use crate::{
    call::{CallInfo, Observation, ToolCall},
    caller::Patience,
    error::{ErrorKind, Execution, ToolError},
    outcome::{Classify, Outcome},
};

pin_project! {
    /// Response future for [`ToolResultService`](super::ToolResultService).
    #[must_use = "futures do nothing unless polled"]
    pub struct ResponseFuture<S, F, C> {
        #[pin]
        state: State<S, F>,
        pending: Option<Pending>,
        classifier: C,
    }
}

pin_project! {
    #[project = StateProj]
    pub(super) enum State<S, F> {
        // The inner service was not ready: waiting for it.
        Waiting { svc: S, call: Option<ToolCall> },
        // Waiting for the response.
        Called { #[pin] fut: F },
        // The inner service had failed to become ready.
        Failed { error: Option<ToolError> },
        // The inner future is gone.
        Done,
    }
}

/// What is known of a call while it runs.
#[derive(Debug)]
pub(crate) struct Pending {
    since: Instant,
    below: Observation,
    info: CallInfo,
}

impl<S, F, C> ResponseFuture<S, F, C> {
    pub(super) fn new(state: State<S, F>, pending: Pending, classifier: C) -> Self {
        Self {
            state,
            pending: Some(pending),
            classifier,
        }
    }
}

impl<S, C> Future for ResponseFuture<S, S::Future, C>
where
    S: Service<ToolCall>,
    S::Error: Into<ToolError>,
    C: Classify<S::Response>,
{
    type Output = Result<ToolResult<S::Response>, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let result = loop {
            match this.state.as_mut().project() {
                StateProj::Waiting { svc, call } => {
                    if let Err(error) = ready!(svc.poll_ready(cx)) {
                        break Err(error.into());
                    }
                    let call = call.take().expect("called once");
                    // It became ready too late.
                    if let Some(why) = Patience::is_over(&call) {
                        break Err(why.error());
                    }
                    let fut = svc.call(call);
                    this.state.set(State::Called { fut });
                }
                StateProj::Called { fut } => break ready!(fut.poll(cx)).map_err(Into::into),
                StateProj::Failed { error } => {
                    break Err(error.take().expect("failed once"));
                }
                StateProj::Done => panic!("polled after completion"),
            }
        };
        this.state.set(State::Done);
        let pending = this.pending.take().expect("polled after completion");
        Poll::Ready(Ok(pending.settle(result, this.classifier)))
    }
}

impl Pending {
    /// The call begins.
    pub(crate) fn begin(call: &mut ToolCall) -> Self {
        let below = call.observe();
        below.want_output_bytes();
        Self {
            since: Instant::now(),
            below,
            info: call.info(),
        }
    }

    /// Whether the call was handed on by its batch.
    #[cfg(feature = "batch")]
    pub(crate) fn was_sent(&self) -> bool {
        self.below.was_sent()
    }

    /// The call that runs.
    #[cfg(feature = "batch")]
    pub(crate) fn call(&self) -> &CallInfo {
        &self.info
    }

    /// It has ended.
    pub(crate) fn settle<Res, C>(
        self,
        result: Result<Res, ToolError>,
        classifier: &C,
    ) -> ToolResult<Res>
    where
        C: Classify<Res>,
    {
        let mut metadata = Metadata::of(&self.below);
        let (data, error) = match result {
            Ok(answer) => {
                let outcome = classifier.classify(Ok(&answer));
                (Some(answer), of_answer(&outcome))
            }
            Err(error) => {
                // It is the size of an answer that nobody gets.
                metadata.output_bytes = None;
                (None, Some(error))
            }
        };
        let (mut duration, mut attempts) = (self.since.elapsed(), self.below.attempts());
        let error = error.map(|error| {
            match error.kind() {
                // An attempt that a retry layer has counted was none (X4), unless an earlier one had found the tool.
                _ if is_unknown_here(&error) && attempts <= 1 => {
                    (duration, attempts) = (Duration::ZERO, 0);
                }
                // It was not started (T5): what it took to find that out is no duration of the call.
                ErrorKind::DeadlineExceeded => {
                    (duration, attempts) = (Duration::ZERO, error.attempts().unwrap_or(0));
                }
                ErrorKind::Cancelled if error.execution() == Execution::NotStarted => {
                    attempts = error.attempts().unwrap_or(0);
                }
                _ => attempts = error.attempts().unwrap_or(attempts),
            }
            let elapsed = error.elapsed().unwrap_or(duration);
            error.about(&self.info).with_elapsed(elapsed)
        });
        ToolResult::new(Parts {
            call: self.info,
            data,
            error,
            duration,
            attempts,
            metadata,
        })
    }
}

/// Whether a router of ours knows no such tool; a server that says so was asked.
fn is_unknown_here(error: &ToolError) -> bool {
    error.kind() == ErrorKind::NotFound && error.is_own_refusal()
}

/// What an answer is that is no success.
fn of_answer(outcome: &Outcome) -> Option<ToolError> {
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

impl<S, F, C> fmt::Debug for ResponseFuture<S, F, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture")
            .field("pending", &self.pending)
            .finish_non_exhaustive()
    }
}
