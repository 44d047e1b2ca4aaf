use std::task::{Context, Poll};

use tower_service::Service;

use super::{
    future::{Observer, ResponseFuture},
    layer::Settings,
};
use crate::{call::ToolCall, error::ToolError};

/// Makes a span for each call. See the [module docs](super) for an example.
#[derive(Clone, Debug)]
pub struct Trace<S> {
    inner: S,
    settings: Settings,
}

impl<S> Trace<S> {
    pub(super) fn new(inner: S, settings: Settings) -> Self {
        Self { inner, settings }
    }
}

impl<S> Service<ToolCall> for Trace<S>
where
    S: Service<ToolCall>,
    S::Error: Into<ToolError>,
{
    type Response = S::Response;
    type Error = ToolError;
    type Future = ResponseFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ToolError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, mut call: ToolCall) -> Self::Future {
        let observer = Observer::start(&mut call, &self.settings);
        // The inner `call` may run a tool's first steps: they belong to the span.
        let fut = observer.span().in_scope(|| self.inner.call(call));
        ResponseFuture::new(fut, observer)
    }
}
