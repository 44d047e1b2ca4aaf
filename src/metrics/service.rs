use std::task::{Context, Poll};

use tower_service::Service;

use super::{future::ResponseFuture, layer::MetricsLayer, observer::Observer};
use crate::{
    call::ToolCall,
    error::ToolError,
    kit::{in_flight::Beginning, inner::call_in_place},
    outcome::{ByError, Classify},
};

/// Counts and times calls. See the [module docs](super) for an example.
#[derive(Clone)]
pub struct MetricsService<S, C = ByError> {
    pub(super) inner: S,
    pub(super) layer: MetricsLayer<C>,
}

crate::kit::inner::accessors!({S, C} MetricsService<S, C>, inner);

impl<S, C> Service<ToolCall> for MetricsService<S, C>
where
    S: Service<ToolCall, Error: Into<ToolError>>,
    C: Classify<S::Response> + Clone,
{
    type Response = S::Response;
    type Error = ToolError;
    type Future = ResponseFuture<S::Future, C>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ToolError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    #[inline(never)]
    fn call(&mut self, mut call: ToolCall) -> Self::Future {
        let (observer, since) = Observer::start(&mut call, &self.layer.metrics);
        let mut beginning = Beginning::new(observer, call.deadline());
        let classifier = &self.layer.classifier;
        call_in_place(&mut self.inner, call, |fut| ResponseFuture {
            fut: Some(fut),
            flight: beginning.begun().with_start(since),
            classifier: classifier.clone(),
        })
    }
}

crate::text::debug_fields! {
    {S: std::fmt::Debug, C} |this| MetricsService<S, C> { inner: this.inner, layer: this.layer }
}
