use std::{
    fmt,
    sync::Arc,
    task::{Context, Poll},
};

use tower_service::Service;

use super::{Resolve, future::ResponseFuture};
use crate::{call::ToolCall, error::ToolError};

/// Resolves the names of calls. See the [module docs](super) for an example.
#[derive(Clone)]
pub struct IdentityService<S> {
    inner: S,
    tools: Arc<dyn Resolve>,
}

impl<S> IdentityService<S> {
    pub(super) fn new(inner: S, tools: Arc<dyn Resolve>) -> Self {
        Self { inner, tools }
    }
}

impl<S> Service<ToolCall> for IdentityService<S>
where
    S: Service<ToolCall> + Clone,
    S::Error: Into<ToolError>,
{
    type Response = S::Response;
    type Error = ToolError;
    type Future = ResponseFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ToolError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, call: ToolCall) -> Self::Future {
        let identity = match call.is_resolved() {
            true => Ok(None),
            false => self.tools.resolve(&call),
        };
        let (call, spelled) = match identity {
            Ok(None) => (call, None),
            Ok(Some(identity)) if call.has_names_of(&identity) => (call.resolved(&identity), None),
            Ok(Some(identity)) => {
                let spelled = call.info();
                (call.resolved(&identity), Some(spelled))
            }
            Err(error) => {
                // The reservation of the one that was ready is given back.
                self.inner = self.inner.clone();
                return ResponseFuture::refused(error.into_own_refusal().about(&call.info()));
            }
        };
        let info = call.info();
        ResponseFuture::called(self.inner.call(call), info, spelled)
    }
}

impl<S: fmt::Debug> fmt::Debug for IdentityService<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdentityService")
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}
