use std::{
    fmt,
    task::{Context, Poll},
    time::Duration,
};

use tower_service::Service;

use super::{
    Health,
    future::{ResponseFuture, State},
    state::Sign,
};
use crate::{
    call::ToolCall,
    error::{ErrorKind, Execution, ToolError},
    ready::{Prepared, Taken},
};

/// Tells a [`Health`] registry how calls end. See the [module docs](super) for an example.
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

    #[inline]
    fn call(&mut self, call: ToolCall) -> Self::Future {
        let info = call.info();
        let cell = self.health.cell(&info);
        ResponseFuture::new(match self.inner.take() {
            Taken::Ready => match self.health.admit(info, cell) {
                Ok(visit) => State::call(self.inner.get(), call, visit),
                Err(wait) => {
                    self.inner.renew();
                    State::refused(refusal(wait).about(&call.info()))
                }
            },
            // A look, no place: that is taken when the call is about to run.
            Taken::Wait(svc) => match self.health.refuses(&cell) {
                Some(wait) => State::refused(refusal(wait).about(&info)),
                None => State::Waiting {
                    svc,
                    call: Some(call),
                    health: self.health.clone(),
                },
            },
            Taken::Failed(error) => State::refused(not_ready(&self.health, &call, error)),
        })
    }
}

/// The inner service failed to become ready: the result of the call, if it may pass.
pub(super) fn not_ready(health: &Health, call: &ToolCall, error: ToolError) -> ToolError {
    let (info, error) = (call.info(), error.about(&call.info()));
    let cell = health.cell(&info);
    match health.admit(info, cell) {
        Ok(visit) => {
            visit.ended(Sign::of::<()>(Err(&error)));
            error
        }
        Err(wait) => refusal(wait).about(&call.info()),
    }
}

#[cold]
pub(super) fn refusal(wait: Duration) -> ToolError {
    ToolError::new(ErrorKind::ConnectionFailed, "the server is unavailable")
        .with_execution(Execution::NotStarted)
        .with_retry_after(wait)
        .into_own_refusal()
}

impl<S: fmt::Debug> fmt::Debug for HealthService<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HealthService")
            .field("inner", &self.inner)
            .field("health", &self.health)
            .finish()
    }
}
