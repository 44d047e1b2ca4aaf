use std::{
    fmt,
    task::{Context, Poll},
};

use tower_service::Service;

use super::{
    future::ResponseFuture,
    hooks::{DefaultHooks, TraceHooks},
    layer::Settings,
    observer::Observer,
};
use crate::{call::ToolCall, error::ToolError};

/// Makes a span for each call. See the [module docs](super) for an example.
#[derive(Clone)]
pub struct Trace<S, H = DefaultHooks> {
    inner: S,
    settings: Settings<H>,
}

impl<S, H> Trace<S, H> {
    pub(super) fn new(inner: S, settings: Settings<H>) -> Self {
        Self { inner, settings }
    }
}

impl<S, H> Service<ToolCall> for Trace<S, H>
where
    S: Service<ToolCall>,
    S::Error: Into<ToolError>,
    H: TraceHooks<S::Response> + Clone,
{
    type Response = S::Response;
    type Error = ToolError;
    type Future = ResponseFuture<S::Future, H, S::Response>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ToolError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, mut call: ToolCall) -> Self::Future {
        let mut flight = Observer::start(&mut call, &self.settings);
        // The inner `call` may run a tool's first steps: they belong to the span.
        let fut = flight.enter(|o| o.span().in_scope(|| self.inner.call(call)));
        ResponseFuture::new(fut, flight)
    }
}

impl<S: fmt::Debug, H> fmt::Debug for Trace<S, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trace")
            .field("inner", &self.inner)
            .field("settings", &self.settings)
            .finish()
    }
}
