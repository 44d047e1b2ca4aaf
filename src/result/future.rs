use std::{
    convert::Infallible,
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use pin_project_lite::pin_project;
use tokio::time::Instant;
use tower_service::Service;

use super::{
    metadata::Metadata,
    status::Status,
    tool_result::{Parts, ToolResult},
};
use crate::{
    call::{CallInfo, Observation, ToolCall},
    error::ToolError,
    outcome::Classify,
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
pub(super) struct Pending {
    pub(super) since: Instant,
    pub(super) below: Observation,
    pub(super) info: CallInfo,
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
                    let fut = svc.call(call.take().expect("called once"));
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
    fn settle<Res, C>(self, result: Result<Res, ToolError>, classifier: &C) -> ToolResult<Res>
    where
        C: Classify<Res>,
    {
        let (data, error) = match result {
            Ok(answer) => {
                let outcome = classifier.classify(Ok(&answer));
                let error = outcome
                    .failure_of_answer()
                    .map(|(kind, text)| ToolError::new(kind, text).about(&self.info));
                (Some(answer), error)
            }
            Err(error) => (None, Some(error.about(&self.info))),
        };
        let duration = self.since.elapsed();
        let error = error.map(|e| match e.elapsed() {
            Some(_) => e,
            None => e.with_elapsed(duration),
        });
        let made = error.as_ref().and_then(ToolError::attempts);
        ToolResult::new(Parts {
            status: error
                .as_ref()
                .map_or(Status::Success, |e| Status::of(e.kind())),
            duration,
            attempts: made.unwrap_or_else(|| self.below.attempts()),
            metadata: Metadata::of(&self.below),
            call: self.info,
            data,
            error,
        })
    }
}

impl<S, F, C> fmt::Debug for ResponseFuture<S, F, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture")
            .field("pending", &self.pending)
            .finish_non_exhaustive()
    }
}
