use std::{
    fmt,
    sync::Arc,
    task::{Context, Poll},
};

use tower_service::Service;

use super::{future::ResponseFuture, layer::Settings};
use crate::{
    call::ToolCall,
    error::ToolError,
    kit::{passing::Passing, ready::Prepared},
};

/// Checks the arguments of calls. See the [module docs](super) for an example.
#[derive(Clone)]
pub struct Validate<S> {
    inner: Prepared<S>,
    settings: Arc<Settings>,
}

impl<S> Validate<S> {
    pub(super) fn new(inner: S, settings: Arc<Settings>) -> Self {
        Self {
            inner: Prepared::new(inner),
            settings,
        }
    }
}

crate::kit::inner::accessors!(@kept {S} Validate<S>, inner.svc);

impl<S> Service<ToolCall> for Validate<S>
where
    S: Service<ToolCall> + Clone,
    S::Error: Into<ToolError>,
{
    type Response = S::Response;
    type Error = ToolError;
    type Future = ResponseFuture<S, S::Future>;

    /// Always ready.
    #[inline]
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ToolError>> {
        self.inner.poll(cx);
        Poll::Ready(Ok(()))
    }

    #[inline(never)]
    fn call(&mut self, mut call: ToolCall) -> Self::Future {
        let info = call.info();
        if let Err(refusal) = self.settings.admit(&mut call, &info) {
            self.inner.renew();
            let state = Passing::refused(refusal);
            return ResponseFuture { state };
        }
        Passing::send(&mut self.inner, call, info, |state| ResponseFuture {
            state,
        })
    }
}

impl<S: fmt::Debug> fmt::Debug for Validate<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Validate")
            .field("inner", &self.inner)
            .field("settings", &self.settings)
            .finish()
    }
}
