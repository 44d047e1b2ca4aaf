use std::task::{Context, Poll};

use tower_service::Service;

use super::{
    future::ResponseFuture,
    handle::ConcurrencyLimitHandle,
    limit::{KeyLimit, Place},
};
use crate::{
    call::ToolCall,
    error::ToolError,
    kit::{hold, ready::Prepared},
};

/// Bounds how many calls of a key run at a time. See the [module docs](super) for an example.
#[derive(Clone, Debug)]
pub struct ConcurrencyLimit<S> {
    inner: Prepared<S>,
    limits: ConcurrencyLimitHandle,
}

impl<S> ConcurrencyLimit<S> {
    pub(super) fn new(inner: S, limits: ConcurrencyLimitHandle) -> Self {
        Self {
            inner: Prepared::new(inner),
            limits,
        }
    }
}

crate::kit::inner::accessors!(@kept {S} ConcurrencyLimit<S>, inner.svc);

impl<S> Service<ToolCall> for ConcurrencyLimit<S>
where
    S: Service<ToolCall> + Clone,
    S::Error: Into<ToolError>,
{
    type Response = S::Response;
    type Error = ToolError;
    type Future = ResponseFuture<S, S::Future>;

    /// Always ready.
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ToolError>> {
        self.inner.poll(cx);
        Poll::Ready(Ok(()))
    }

    #[inline(never)]
    fn call(&mut self, call: ToolCall) -> Self::Future {
        let ConcurrencyLimitHandle { registry, settings } = &self.limits;
        settings.tools.look(&call);
        let entry = registry.keep(&call.info(), || KeyLimit::new(settings, &call));
        let place = Place::new(entry);
        hold::call(&mut self.inner, call, place, ResponseFuture::new)
    }
}
