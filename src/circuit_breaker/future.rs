use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use pin_project_lite::pin_project;
use tower_service::Service;

use super::{
    circuit::{Admission, Admitted, End},
    handle::{Breaker, Permit},
    probe::Pinging,
};
use crate::{
    call::{CallInfo, ToolCall},
    error::ToolError,
    kit::{
        in_flight::{Beginning, InFlight},
        inner,
        preparing::{Preparing, Unprepared},
    },
    outcome::Classify,
};

pin_project! {
    /// Response future for [`CircuitBreaker`](super::CircuitBreaker).
    #[must_use = "futures do nothing unless polled"]
    pub struct ResponseFuture<S, F, C> {
        #[pin]
        pub(super) state: State<S, F>,
        pub(super) classifier: C,
    }
}

pin_project! {
    #[project = StateProj]
    pub(super) enum State<S, F> {
        // The inner service was not ready: waiting for it, without a permit.
        Preparing { #[pin] preparing: Preparing<S>, call: Option<ToolCall>, breaker: Breaker },
        // The call would be a probe: waiting for the ping that is sent in its place. A cold state may box.
        Pinging { pinging: Pin<Box<Pinging<S>>>, breaker: Breaker },
        // Waiting for the response.
        Called { #[pin] fut: Option<F>, flight: InFlight<Admitted> },
        // Refused, or the inner service failed to become ready; `None` once the error was returned.
        Refused { error: Option<ToolError> },
    }
}

impl<S, F> State<S, F> {
    /// The call waits for the ping of its breaker; `svc` is not polled meanwhile.
    #[cold]
    pub(super) fn pinging(breaker: Breaker, permit: Permit, svc: S, call: ToolCall) -> Self {
        let ping = breaker.ping_for(true).expect("the admission needs one");
        let pinging = Pinging::new(ping, permit, svc, call);
        Self::Pinging { pinging, breaker }
    }

    /// The call waits until its service is ready, unless it would be refused now. Takes no permit: a permit is taken when the call is
    /// about to run.
    pub(super) fn preparing(breaker: Breaker, svc: S, call: ToolCall, info: &CallInfo) -> Self {
        match breaker.refusal(info) {
            Some(refusal) => Self::refused(refusal),
            None => Self::Preparing {
                preparing: Preparing::new(svc, &call),
                call: Some(call),
                breaker,
            },
        }
    }

    pub(super) fn refused(error: ToolError) -> Self {
        Self::Refused { error: Some(error) }
    }
}

impl<S, C> Future for ResponseFuture<S, S::Future, C>
where
    S: Service<ToolCall> + Clone,
    S::Error: Into<ToolError>,
    C: Classify<S::Response>,
{
    type Output = Result<S::Response, ToolError>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            if let StateProj::Called { fut, flight } = this.state.as_mut().project() {
                // Converting and classifying run foreign code; inside `poll`, so that a panic there is
                // reported too.
                let polled = flight.poll(|admitted| {
                    let result = ready!(inner::poll(fut, cx));
                    let result = result.map_err(|e| e.into().for_call(&admitted.info));
                    let outcome = this.classifier.classify(result.as_ref());
                    let end = End::of(&outcome, result.as_ref().err());
                    Poll::Ready((result, end))
                });
                let (result, end) = ready!(polled);
                let error = result.as_ref().err();
                flight.report().ended(end, error, flight.since());
                return Poll::Ready(result);
            }
            ready!(this.state.as_mut().poll_called(cx, this.classifier))?;
        }
    }
}

impl<S> State<S, S::Future>
where
    S: Service<ToolCall> + Clone,
    S::Error: Into<ToolError>,
{
    /// Ready once the call is in its next state. Outlined, so that a call that is made immediately does not pay for it.
    #[inline(never)]
    fn poll_called(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        classifier: &impl Classify<S::Response>,
    ) -> Poll<Result<(), ToolError>> {
        let started = match self.as_mut().project() {
            StateProj::Called { .. } => return Poll::Ready(Ok(())),
            StateProj::Preparing {
                preparing,
                call,
                breaker,
            } => {
                let ready = ready!(preparing.poll(cx));
                let call = call.take().expect("polled after completion");
                let info = call.info();
                match ready {
                    // Only now it is decided whether the call may run: calls that were queued before the breaker opened
                    // do not run after it.
                    Ok(svc) => {
                        call.share_limit();
                        match breaker.admit_call(&call) {
                            Ok(Admission { pass, .. })
                                if breaker.ping_for(pass.is_probe()).is_some() =>
                            {
                                let permit = Permit::new(breaker, Some(pass));
                                // A clone: nothing stays reserved while the ping is under way.
                                Ok(Self::pinging(breaker.clone(), permit, svc.clone(), call))
                            }
                            Ok(passes) => {
                                let admitted = Admitted::new(breaker.clone(), info, passes);
                                let mut beginning =
                                    Beginning::new(admitted, call.trusted_deadline());
                                let fut = Some(svc.call(call));
                                let flight = beginning.begun();
                                Ok(Self::Called { fut, flight })
                            }
                            Err(refused) => Err(breaker.refused(Some(&info), refused)),
                        }
                    }
                    Err(Unprepared::GivenUp(why)) => Err(why.error().for_call(&info)),
                    Err(Unprepared::Failed(error)) => {
                        Err(breaker.not_ready(&call, error.for_call(&info), classifier))
                    }
                }
            }
            StateProj::Pinging { pinging, breaker } => match ready!(pinging.as_mut().poll(cx)) {
                Ok((svc, call)) => Ok(Self::preparing(breaker.clone(), svc, call, pinging.info())),
                Err(why) => Err(why.error().for_call(pinging.info())),
            },
            StateProj::Refused { error } => Err(error.take().expect("polled after completion")),
        };
        // Drops the service that was waited for, with its reservation for a refused call.
        Poll::Ready(match started {
            Ok(next) => {
                self.set(next);
                Ok(())
            }
            Err(error) => {
                self.set(Self::Refused { error: None });
                Err(error)
            }
        })
    }
}

impl<S, F, C> fmt::Debug for ResponseFuture<S, F, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture")
            .field(
                "state",
                &match &self.state {
                    State::Preparing { .. } => "Preparing",
                    State::Pinging { .. } => "Pinging",
                    State::Called { .. } => "Called",
                    State::Refused { .. } => "Refused",
                },
            )
            .finish_non_exhaustive()
    }
}
