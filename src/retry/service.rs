use std::{
    fmt,
    task::{Context, Poll},
};

use tower_service::Service;

use super::{
    future::{ByPolicy, ResponseFuture},
    policy::RetryPolicy,
};
use crate::{
    call::{Claim, ToolCall},
    error::ToolError,
    kit::{
        attempts::{Request, Resend, State, Template},
        inner::call_in_place,
        lane::Spread,
    },
    outcome::{ByError, Classify},
};

/// Repeats calls that failed. See the [module docs](super) for an example.
pub struct Retry<S, C = ByError> {
    inner: S,
    shared: Spread<Template<S, RetryPolicy<C>>>,
}

impl<S, C> Retry<S, C> {
    pub(super) fn new(inner: S, shared: Spread<Template<S, RetryPolicy<C>>>) -> Self {
        Self { inner, shared }
    }
}

impl<S: Clone, C> Clone for Retry<S, C> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            shared: self.shared.clone(),
        }
    }
}

crate::kit::inner::accessors!(@kept {S, C} Retry<S, C>, inner);

impl<S, C> Service<ToolCall> for Retry<S, C>
where
    S: Service<ToolCall> + Clone,
    S::Error: Into<ToolError>,
    C: Classify<S::Response>,
{
    type Response = S::Response;
    type Error = ToolError;
    type Future = ResponseFuture<S, S::Future, C>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ToolError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    #[inline(never)]
    fn call(&mut self, mut call: ToolCall) -> Self::Future {
        let request = match self.shared.settings.begin(&call) {
            Some(attempts) => {
                let records = call.begin_repeated(attempts);
                let mut resend = Resend::sent(call.copy(), self.shared.keep(), Claim::Retry);
                resend.records = records;
                Request::Again(resend)
            }
            None => Request::once(&call),
        };
        let mut rest = Some((request, ByPolicy));
        call_in_place(&mut self.inner, call, |fut| ResponseFuture {
            state: State::Called { fut },
            rest: rest.take(),
        })
    }
}

impl<S: fmt::Debug, C> fmt::Debug for Retry<S, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Retry")
            .field("inner", &self.inner)
            .field("policy", &self.shared.settings)
            .finish()
    }
}
