use std::task::{Context, Poll};

use tower_service::Service;
use tracing::{Level, Span};

use super::{
    future::{ResponseFuture, Watch},
    hooks::{DefaultHooks, TraceHooks},
    layer::TraceLayer,
    observer::Observer,
};
use crate::{
    call::ToolCall, error::ToolError, flow::in_flight::Beginning, kit::inner::call_in_place,
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

    #[inline(never)]
    fn call(&mut self, call: ToolCall) -> Self::Future {
        // Without a subscriber and a listener nothing has to be kept of a call.
        if self.layer.settings.listener.hears(Level::ERROR) {
            return self.call_heard(call);
        }
        let mut info = Some(call.info());
        let hooks = &self.layer.hooks;
        call_in_place(&mut self.inner, call, |fut| {
            let (info, hooks) = (info.take(), hooks.clone());
            ResponseFuture::new(fut, Watch::Unheard { info, hooks })
        })
    }
}

impl<S, H> Trace<S, H>
where
    S: Service<ToolCall>,
    H: TraceHooks<S::Response> + Clone,
{
    /// Apart, as all that is for listeners: calls without listeners are not to carry its weight.
    #[inline(never)]
    fn call_heard(&mut self, mut call: ToolCall) -> ResponseFuture<S::Future, H, S::Response> {
        let mut part = Some(Ok(Observer::start(&mut call, &self.layer)));
        let mut beginning = Beginning::new(&mut part, &call);
        // The inner `call` may run a tool's first steps: they belong to the span.
        let entered = beginning.ticket().span().map(Span::enter);
        let fut = self.inner.call(call);
        drop(entered);
        let flight = beginning.begun();
        ResponseFuture::new(fut, Watch::Heard { flight })
    }
}

crate::text::debug_fields! { {S: std::fmt::Debug, H} |_| Trace<S, H> { inner, layer } }
