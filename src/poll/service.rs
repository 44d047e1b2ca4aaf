use std::{
    fmt,
    task::{Context, Poll},
};

use tower_service::Service;

use super::{
    job::Job,
    poller::{Poller, Shared},
};
use crate::{
    call::ToolCall,
    error::ToolError,
    flow::again::{Again as _, Arrival, Repeated, response_future},
    kit::lane::Spread,
};

response_future! {
    Polling<S, J>, Poller<S, J>,
    where { S: Send + 'static, S::Future: Send, J: Job<S::Response> + 'static, }
}

/// Waits for the jobs that calls start. See the [module docs](super) for an example.
pub struct Polling<S, J> {
    inner: S,
    shared: Spread<Shared<S, J>>,
}

impl<S, J> Polling<S, J> {
    pub(super) fn new(inner: S, shared: Spread<Shared<S, J>>) -> Self {
        Self { inner, shared }
    }
}

impl<S: Clone, J> Clone for Polling<S, J> {
    fn clone(&self) -> Self {
        Self::new(self.inner.clone(), self.shared.clone())
    }
}

crate::kit::inner::accessors!(@kept {S, J} Polling<S, J>, inner);

impl<S, J> Service<ToolCall> for Polling<S, J>
where
    S: Service<ToolCall> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<ToolError>,
    J: Job<S::Response> + 'static,
{
    type Response = S::Response;
    type Error = ToolError;
    type Future = ResponseFuture<S, S::Future, J>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ToolError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    #[inline(never)]
    fn call(&mut self, call: ToolCall) -> Self::Future {
        let (poller, first) = Poller::begin(call, self.shared.keep());
        match first {
            Ok(call) => Repeated::call(&mut self.inner, call, &mut Arrival::new(poller), |flow| {
                ResponseFuture { flow }
            }),
            Err(error) => {
                // Gives back what it has reserved.
                self.inner = self.inner.clone();
                let flow = Repeated::refused(poller.stamp(error));
                ResponseFuture { flow }
            }
        }
    }
}

impl<S: fmt::Debug, J> fmt::Debug for Polling<S, J> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Polling")
            .field("inner", &self.inner)
            .field("limits", &self.shared.settings.1)
            .finish_non_exhaustive()
    }
}
