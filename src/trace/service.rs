use std::task::{Context, Poll};

use tower_service::Service;
use tracing::Span;

use super::{
    future::{ResponseFuture, Watch},
    hooks::{DefaultHooks, TraceHooks},
    layer::TraceLayer,
    observer::Observer,
};
use crate::{
    call::{CallInfo, ToolCall},
    error::ToolError,
    kit::in_flight::Beginning,
};

/// Makes a span for each call. See the [module docs](super) for an example.
#[derive(Clone)]
pub struct Trace<S, H = DefaultHooks> {
    pub(super) inner: S,
    pub(super) layer: TraceLayer<H>,
}

crate::kit::inner::accessors!({S, H} Trace<S, H>, inner);

impl<S, H> Service<ToolCall> for Trace<S, H>
where
    S: Service<ToolCall, Error: Into<ToolError>>,
    H: TraceHooks<S::Response> + Clone,
{
    type Response = S::Response;
    type Error = ToolError;
    type Future = ResponseFuture<S::Future, H, S::Response>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ToolError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, call: ToolCall) -> Self::Future {
        if self.layer.is_heard() {
            return self.call_heard(call);
        }
        let mut info = Some(call.info());
        self.call_unheard(call, &mut info)
    }
}

impl<S, H> Trace<S, H>
where
    S: Service<ToolCall>,
    H: TraceHooks<S::Response> + Clone,
{
    /// Apart, with nothing to drop if the inner `call` panics: its future is then made where it stays, which saves a
    /// stack of eight layers 74 instructions.
    #[inline(never)]
    fn call_unheard(
        &mut self,
        call: ToolCall,
        info: &mut Option<CallInfo>,
    ) -> ResponseFuture<S::Future, H, S::Response> {
        let fut = self.inner.call(call);
        let (info, hooks) = (info.take(), self.layer.hooks.clone());
        ResponseFuture::new(fut, Watch::Unheard { info, hooks })
    }

    /// Apart, as all that is for listeners: calls without listeners are not to carry its weight.
    #[inline(never)]
    fn call_heard(&mut self, mut call: ToolCall) -> ResponseFuture<S::Future, H, S::Response> {
        let observer = Observer::start(&mut call, &self.layer);
        let beginning = Beginning::new(observer, call.deadline());
        // The inner `call` may run a tool's first steps: they belong to the span.
        let entered = beginning.report().span().map(Span::enter);
        let fut = self.inner.call(call);
        drop(entered);
        let flight = beginning.begun();
        ResponseFuture::new(fut, Watch::Heard { flight })
    }
}

crate::text::debug_fields! {
    {S: std::fmt::Debug, H} |this| Trace<S, H> { inner: this.inner, layer: this.layer }
}
