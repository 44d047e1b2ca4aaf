use std::{
    fmt,
    task::{Context, Poll},
};

use tower_service::Service;

use super::{
    Health,
    future::{ResponseFuture, State},
};
use crate::{
    call::ToolCall,
    error::ToolError,
    kit::{
        preparing::Preparing,
        ready::{Prepared, Taken},
    },
};

/// Records in a [`Health`] registry how calls end. See the [module docs](super) for an example.
#[derive(Clone)]
pub struct HealthService<S> {
    inner: Prepared<S>,
    health: Health,
}

impl<S> HealthService<S> {
    pub(super) fn new(inner: S, health: Health) -> Self {
        Self {
            inner: Prepared::new(inner),
            health,
        }
    }
}

impl<S> Service<ToolCall> for HealthService<S>
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
    fn call(&mut self, call: ToolCall) -> Self::Future {
        ResponseFuture::new(match self.inner.take() {
            Taken::Ready => match self.health.admit(&call) {
                Ok(visit) => return ResponseFuture::call(self.inner.get(), call, visit),
                Err(refusal) => {
                    self.inner.renew();
                    State::refused(refusal)
                }
            },
            // Takes no place: a place is taken when the call is about to run.
            Taken::Wait(svc) => match self.health.refusal(&call) {
                Some(refusal) => State::refused(refusal),
                None => State::Preparing {
                    preparing: Preparing::new(svc, &call),
                    call: Some(call),
                    health: self.health.clone(),
                },
            },
            Taken::Failed(error) => State::refused(self.health.not_ready(&call, error)),
        })
    }
}

impl<S: fmt::Debug> fmt::Debug for HealthService<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HealthService")
            .field("inner", &self.inner)
            .field("health", &self.health)
            .finish()
    }
}
