use std::task::{Context, Poll};

use tower_service::Service;

use super::layer::Coded;
use crate::{
    call::ToolCall,
    error::ToolError,
    outcome::{ByError, Classify},
    sanitize::Sanitize,
};

/// A tool in the documented stack, made by [`StackLayer`](super::StackLayer).
#[derive(Clone)]
pub struct Stack<S: Service<ToolCall> + Clone, C: Clone = ByError> {
    pub(super) inner: Sanitize<Coded<S, C>>,
}

impl<S, C> Service<ToolCall> for Stack<S, C>
where
    S: Service<ToolCall, Response: 'static, Error: Into<ToolError>> + Clone,
    C: Classify<S::Response> + Clone,
{
    type Response = S::Response;
    type Error = ToolError;
    type Future = <Sanitize<Coded<S, C>> as Service<ToolCall>>::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ToolError>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, call: ToolCall) -> Self::Future {
        self.inner.call(call)
    }
}

crate::text::debug_fields! { {S: Service<ToolCall> + Clone, C: Clone} |_| Stack<S, C> { .. } }
