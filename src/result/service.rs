use std::task::{Context, Poll};

use tower_service::Service;

use super::{
    Never,
    future::{Pending, Plain, ResponseFuture},
    tool_result::ToolResult,
};
use crate::{
    call::ToolCall,
    error::ToolError,
    flow::{Prepared, again::Repeated},
    outcome::{ByError, Classify},
};

/// Makes a [`ToolResult`] of whatever happens. See the [module docs](super) for an example.
#[derive(Clone)]
pub struct ToolResultService<S, C = ByError> {
    pub(super) inner: Prepared<S>,
    pub(super) classifier: C,
}

crate::kit::inner::accessors!(@kept {S, C} ToolResultService<S, C>, inner.svc);

impl<S, C> Service<ToolCall> for ToolResultService<S, C>
where
    S: Service<ToolCall, Error: Into<ToolError>> + Clone,
    C: Classify<S::Response> + Clone,
{
    type Response = ToolResult<S::Response>;
    type Error = Never;
    type Future = ResponseFuture<S, S::Future, C>;

    /// Always ready.
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Never>> {
        self.inner.poll(cx);
        Poll::Ready(Ok(()))
    }

    #[inline(never)]
    fn call(&mut self, mut call: ToolCall) -> Self::Future {
        let mut pending = Pending::begin(&mut call);
        let classifier = &self.classifier;
        Repeated::send(&mut self.inner, call, Plain, false, |fut| ResponseFuture {
            fut,
            pending: pending.take(),
            classifier: classifier.clone(),
        })
    }
}

crate::text::debug_fields! { {S: std::fmt::Debug, C} |_| ToolResultService<S, C> { inner, .. } }
