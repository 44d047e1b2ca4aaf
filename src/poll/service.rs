use std::{
    fmt,
    task::{Context, Poll},
};

use tower_service::Service;

use super::{
    future::{ResponseFuture, State},
    job::Job,
    poller::{Poller, Shared},
};
use crate::{
    call::ToolCall,
    error::ToolError,
    kit::{caller::Caller, inner::call_in_place, lane::Spread},
};

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
        let mut caller = Caller::of(&call);
        let (poller, first) = Poller::begin(call, self.shared.keep());
        let mut poller = Some(poller);
        match first {
            Ok(call) => {
                call.release();
                call_in_place(&mut self.inner, call, |fut| {
                    let state = State::Called { fut: Some(fut) };
                    ResponseFuture::new(state, caller.take(), poller.take())
                })
            }
            Err(error) => {
                // Gives back what it has reserved.
                self.inner = self.inner.clone();
                let error = Some(error);
                ResponseFuture::new(State::Refused { error }, caller, poller)
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
