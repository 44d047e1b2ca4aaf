use std::task::{Context, Poll};

use tower_service::Service;

use super::{
    future::{Observer, ResponseFuture},
    layer::Settings,
};
use crate::{
    call::ToolCall,
    error::ToolError,
    outcome::{ByError, Classify},
};

/// Makes a span for each call. See the [module docs](super) for an example.
#[derive(Clone, Debug)]
pub struct Trace<S, C = ByError> {
    inner: S,
    settings: Settings<C>,
}

impl<S, C> Trace<S, C> {
    pub(super) fn new(inner: S, settings: Settings<C>) -> Self {
        Self { inner, settings }
    }
}

impl<S, C> Service<ToolCall> for Trace<S, C>
where
    S: Service<ToolCall>,
    S::Error: Into<ToolError>,
    C: Classify<S::Response> + Clone,
{
    type Response = S::Response;
    type Error = ToolError;
    type Future = ResponseFuture<S::Future, C>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ToolError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, mut call: ToolCall) -> Self::Future {
        let settings = &self.settings;
        let mut flight = Observer::start(&mut call, settings.arguments, &settings.listener);
        // The inner `call` may run a tool's first steps: they belong to the span.
        let fut = flight.enter(|o| o.span().in_scope(|| self.inner.call(call)));
        ResponseFuture::new(fut, flight, settings.classifier.clone())
    }
}
