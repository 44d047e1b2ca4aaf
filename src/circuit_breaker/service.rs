use std::{
    fmt,
    task::{Context, Poll},
};

use tower_service::Service;

use super::{
    circuit::{Admission, Admitted},
    future::{ResponseFuture, State},
    handle::{Breaker, CircuitBreakerHandle, Permit},
    state::Pass,
};
use crate::{
    call::ToolCall,
    error::ToolError,
    kit::{
        in_flight::Beginning,
        inner::call_in_place,
        ready::{Prepared, Taken},
    },
    outcome::{ByError, Classify},
};

/// Stops calling a tool that is broken. See the [module docs](super) for an example.
#[derive(Clone)]
pub struct CircuitBreaker<S, C = ByError> {
    inner: Prepared<S>,
    breakers: CircuitBreakerHandle,
    classifier: C,
}

impl<S, C> CircuitBreaker<S, C> {
    pub(super) fn new(inner: S, breakers: CircuitBreakerHandle, classifier: C) -> Self {
        Self {
            inner: Prepared::new(inner),
            breakers,
            classifier,
        }
    }
}

crate::kit::inner::accessors!(@kept {S, C} CircuitBreaker<S, C>, inner.svc);

impl<S, C> CircuitBreaker<S, C> {
    /// A handle on its breakers, which are its layer's.
    pub fn handle(&self) -> CircuitBreakerHandle {
        self.breakers.clone()
    }
}

impl<S, C> Service<ToolCall> for CircuitBreaker<S, C>
where
    S: Service<ToolCall> + Clone,
    S::Error: Into<ToolError>,
    C: Classify<S::Response> + Clone,
{
    type Response = S::Response;
    type Error = ToolError;
    type Future = ResponseFuture<S, S::Future, C>;

    /// Always ready.
    #[inline]
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ToolError>> {
        self.inner.poll(cx);
        Poll::Ready(Ok(()))
    }

    #[inline(never)]
    fn call(&mut self, call: ToolCall) -> Self::Future {
        call.share_limit();
        let info = call.info();
        let breaker = self.breakers.keep(&info);
        let classifier = &self.classifier;
        let state = match self.inner.take() {
            Taken::Ready => match breaker.admit_call(&call) {
                Ok(Admission { pass, .. }) if breaker.ping_for(pass.is_probe()).is_some() => {
                    ping(&mut self.inner, breaker, pass, call)
                }
                Ok(passes) => {
                    let admitted = Admitted::new(breaker, info, passes);
                    let mut beginning = Beginning::new(admitted, call.trusted_deadline());
                    return call_in_place(self.inner.get(), call, |fut| ResponseFuture {
                        state: State::Called {
                            fut: Some(fut),
                            flight: beginning.begun(),
                        },
                        classifier: classifier.clone(),
                    });
                }
                Err(refused) => {
                    self.inner.renew();
                    State::refused(breaker.refused(Some(&info), refused))
                }
            },
            Taken::Wait(svc) => State::preparing(breaker, svc, call, &info),
            Taken::Failed(error) => {
                State::refused(breaker.not_ready(&call, error.for_call(&info), classifier))
            }
        };
        ResponseFuture {
            state,
            classifier: classifier.clone(),
        }
    }
}

/// The call waits for the ping that is sent in its place. Outlined, so that other calls do not pay for it.
#[cold]
#[inline(never)]
fn ping<S: Clone, F>(
    inner: &mut Prepared<S>,
    breaker: Breaker,
    pass: Pass,
    call: ToolCall,
) -> State<S, F> {
    let permit = Permit::new(&breaker, Some(pass));
    inner.renew();
    State::pinging(breaker, permit, inner.svc.clone(), call)
}

impl<S: fmt::Debug, C> fmt::Debug for CircuitBreaker<S, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CircuitBreaker")
            .field("inner", &self.inner)
            .field("rules", &self.breakers.shared.rules)
            .finish_non_exhaustive()
    }
}
