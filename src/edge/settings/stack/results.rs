use std::{
    convert::Infallible,
    fmt,
    task::{Context, Poll},
};

use tower_layer::Layer;
use tower_service::Service;

use super::{
    layer::{Coded, Fits, Layers},
    service::ResponseFuture,
};
use crate::{
    call::ToolCall,
    error::ToolError,
    outcome::{ByError, Classify},
    result::{ToolResult, ToolResultLayer, ToolResultService},
    sanitize::{Sanitize, SanitizeLayer},
};

/// The documented stack with a [`ToolResult`] for each call, made by
/// [`StackLayer::results`](super::StackLayer::results).
#[derive(Clone)]
#[must_use]
pub struct ResultsLayer<C = ByError, O = ()> {
    sanitize: SanitizeLayer,
    results: ToolResultLayer<C>,
    layers: Layers<C, O>,
}

impl<C, O> ResultsLayer<C, O> {
    pub(super) fn new(
        sanitize: SanitizeLayer,
        results: ToolResultLayer<C>,
        layers: Layers<C, O>,
    ) -> Self {
        Self {
            sanitize,
            results,
            layers,
        }
    }
}

impl<S, C, O> Layer<S> for ResultsLayer<C, O>
where
    S: Service<ToolCall> + Clone,
    C: Clone,
    O: Fits<S, C>,
{
    type Service = Results<S, C>;

    fn layer(&self, tool: S) -> Self::Service {
        let stack = self.results.layer(self.layers.layer(tool));
        Results {
            inner: self.sanitize.layer(stack),
        }
    }
}

impl<C, O> fmt::Debug for ResultsLayer<C, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResultsLayer")
            .field("sanitize", &self.sanitize)
            .field("layers", &self.layers)
            .finish_non_exhaustive()
    }
}

type Inner<S, C> = Sanitize<ToolResultService<Coded<S, C>, C>>;

/// A tool in the documented stack that never fails, made by [`ResultsLayer`].
#[derive(Clone)]
pub struct Results<S: Service<ToolCall>, C = ByError> {
    inner: Inner<S, C>,
}

impl<S, C> Service<ToolCall> for Results<S, C>
where
    S: Service<ToolCall, Response: 'static, Error: Into<ToolError>> + Clone,
    C: Classify<S::Response> + Clone,
{
    type Response = ToolResult<S::Response>;
    type Error = Infallible;
    type Future = ResponseFuture<<Inner<S, C> as Service<ToolCall>>::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, call: ToolCall) -> Self::Future {
        ResponseFuture::new(self.inner.call(call))
    }
}

impl<S: Service<ToolCall>, C> fmt::Debug for Results<S, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Results").finish_non_exhaustive()
    }
}
