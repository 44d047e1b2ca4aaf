use std::{
    convert::Infallible,
    fmt,
    task::{Context, Poll},
};

use tower_service::Service;

use super::{
    future::{Pending, ResponseFuture, State},
    tool_result::ToolResult,
};
use crate::{
    call::ToolCall,
    error::ToolError,
    outcome::{ByError, Classify},
    ready::{Prepared, Taken},
};

/// Makes a [`ToolResult`] of whatever happens. See the [module docs](super) for an example.
#[derive(Clone)]
pub struct ToolResultService<S, C = ByError> {
    inner: Prepared<S>,
    classifier: C,
}

impl<S, C> ToolResultService<S, C> {
    pub(super) fn new(inner: S, classifier: C) -> Self {
        Self {
            inner: Prepared::new(inner),
            classifier,
        }
    }
}

impl<S, C> Service<ToolCall> for ToolResultService<S, C>
where
    S: Service<ToolCall> + Clone,
    S::Error: Into<ToolError>,
    C: Classify<S::Response> + Clone,
{
    type Response = ToolResult<S::Response>;
    type Error = Infallible;
    type Future = ResponseFuture<S, S::Future, C>;

    /// Always ready.
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll(cx);
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut call: ToolCall) -> Self::Future {
        let pending = Pending::begin(&mut call);
        let state = match self.inner.take() {
            Taken::Ready => State::Called {
                fut: self.inner.get().call(call),
            },
            Taken::Wait(svc) => State::Waiting {
                svc,
                call: Some(call),
            },
            Taken::Failed(error) => State::Failed { error: Some(error) },
        };
        ResponseFuture::new(state, pending, self.classifier.clone())
    }
}

impl<S: fmt::Debug, C> fmt::Debug for ToolResultService<S, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolResultService")
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}
