use std::task::{Context, Poll};

use tower_service::Service;

use super::{
    future::ResponseFuture,
    handle::QuotaHandle,
    limit::{KeyQuota, Tokens},
};
use crate::{
    call::ToolCall,
    error::ToolError,
    kit::{hold, ready::Prepared},
};

/// Gives the calls of a key so many tokens per period. See the [module docs](super) for an example.
#[derive(Clone, Debug)]
pub struct QuotaService<S> {
    inner: Prepared<S>,
    quotas: QuotaHandle,
}

impl<S> QuotaService<S> {
    pub(super) fn new(inner: S, quotas: QuotaHandle) -> Self {
        Self {
            inner: Prepared::new(inner),
            quotas,
        }
    }
}

crate::kit::inner::accessors!(@kept {S} QuotaService<S>, inner.svc);

impl<S> Service<ToolCall> for QuotaService<S>
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
        let QuotaHandle { registry, settings } = &self.quotas;
        let entry = registry.keep(&call.info(), || KeyQuota::new(settings, &call));
        let tokens = Tokens::new(entry, settings.cost(&call));
        hold::call(&mut self.inner, call, tokens, ResponseFuture::new)
    }
}
