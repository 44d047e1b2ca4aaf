use std::{
    sync::Arc,
    task::{Context, Poll},
};

use tower_service::Service;

use super::{future::ResponseFuture, layer::Settings};
use crate::{call::ToolCall, error::ToolError};

/// Bounds each call's time. See the [module docs](super) for an example.
#[derive(Clone, Debug)]
pub struct Timeout<S> {
    inner: S,
    settings: Arc<Settings>,
}

impl<S> Timeout<S> {
    pub(super) fn new(inner: S, settings: Arc<Settings>) -> Self {
        Self { inner, settings }
    }

    /// The inner service.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }

    /// Gives the inner service back.
    pub fn into_inner(self) -> S {
        self.inner
    }
}

impl<S> Service<ToolCall> for Timeout<S>
where
    S: Service<ToolCall>,
    S::Error: Into<ToolError>,
{
    type Response = S::Response;
    type Error = ToolError;
    type Future = ResponseFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ToolError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, mut call: ToolCall) -> Self::Future {
        let settings = &*self.settings;
        let after = settings.timeout_of(&call);
        call.record(|r| r.set_timeout(after, after));
        let idle = settings.idle.map(|idle| (idle, call.ask_for_progress()));
        let (info, deadline) = (call.info(), call.deadline());
        let fut = self.inner.call(call);
        ResponseFuture::new(fut, info, after, deadline, idle, settings)
    }
}
