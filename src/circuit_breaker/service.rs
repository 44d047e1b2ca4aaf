use std::{
    fmt,
    sync::Arc,
    task::{Context, Poll},
};

use tower_service::Service;

use super::{
    circuit::{Admitted, Circuit, CircuitEntry, Circuits, Shared, refusal},
    future::{ResponseFuture, State},
};
use crate::{
    call::ToolCall,
    error::ToolError,
    kit::{
        in_flight::Beginning,
        preparing::Preparing,
        ready::{Prepared, Taken},
    },
    outcome::{ByError, Classify},
};

/// Stops calling a tool that is broken. See the [module docs](super) for an example.
#[derive(Clone)]
pub struct CircuitBreaker<S, C = ByError> {
    inner: Prepared<S>,
    circuits: Circuits,
    shared: Arc<Shared>,
    classifier: C,
}

impl<S, C> CircuitBreaker<S, C> {
    pub(super) fn new(inner: S, circuits: Circuits, shared: Arc<Shared>, classifier: C) -> Self {
        Self {
            inner: Prepared::new(inner),
            circuits,
            shared,
            classifier,
        }
    }
}

crate::kit::inner::accessors!(@kept {S, C} CircuitBreaker<S, C>, inner.svc);

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

    #[inline]
    fn call(&mut self, call: ToolCall) -> Self::Future {
        call.share_limit();
        let info = call.info();
        let entry = self.circuits.keep(&info, || Circuit::new(&self.shared));
        let classifier = self.classifier.clone();
        let state = match self.inner.take() {
            Taken::Ready => match entry.admit(Some(&call)) {
                // Made where it is returned: what lies below is not moved once more.
                Ok(pass) => {
                    let admitted = Admitted::new(entry, info, pass);
                    let beginning = Beginning::new(admitted, call.trusted_deadline());
                    let fut = Some(self.inner.get().call(call));
                    let flight = beginning.begun();
                    return ResponseFuture::new(State::Called { fut, flight }, classifier);
                }
                Err(retry_after) => {
                    self.inner.renew();
                    State::refused(refusal(Some(&info), retry_after))
                }
            },
            // A look, no permit: that is taken when the call is about to run.
            Taken::Wait(svc) => match entry.refuses(&info) {
                Some(retry_after) => State::refused(refusal(Some(&info), retry_after)),
                None => State::Preparing {
                    preparing: Preparing::new(svc, &call),
                    call: Some(call),
                    entry,
                },
            },
            Taken::Failed(error) => {
                let error = error.for_call(&info);
                State::refused(not_ready(&entry, &call, error, &classifier))
            }
        };
        ResponseFuture::new(state, classifier)
    }
}

/// The inner service failed to become ready: that is the result of the call, and counts as one, if the
/// breaker admits it.
pub(super) fn not_ready<Res>(
    entry: &Arc<CircuitEntry>,
    call: &ToolCall,
    error: ToolError,
    classifier: &impl Classify<Res>,
) -> ToolError {
    let info = call.info();
    // Foreign code, and it may panic: before there is a permit.
    let outcome = classifier.classify(Err(&error));
    match entry.admit(Some(call)) {
        Ok(pass) => {
            Admitted::new(Arc::clone(entry), info, pass).ended(
                outcome.count(),
                outcome.is_reported(),
                None,
            );
            error
        }
        Err(retry_after) => refusal(Some(&info), retry_after),
    }
}

impl<S: fmt::Debug, C> fmt::Debug for CircuitBreaker<S, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CircuitBreaker")
            .field("inner", &self.inner)
            .field("rules", &self.shared.rules)
            .finish_non_exhaustive()
    }
}
