use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use pin_project_lite::pin_project;
use tower_service::Service;

use super::{Health, registry::Visit};
use crate::{
    call::{Claim, ToolCall},
    error::ToolError,
    kit::{
        in_flight::{Beginning, InFlight},
        inner::{self, call_in_place},
        preparing::{Preparing, Unprepared},
    },
};

pin_project! {
    /// Response future for [`HealthService`](super::HealthService).
    #[must_use = "futures do nothing unless polled"]
    pub struct ResponseFuture<S, F> {
        #[pin]
        state: State<S, F>,
    }
}

pin_project! {
    #[project = StateProj]
    pub(super) enum State<S, F> {
        // The inner service was not ready: waiting for it, without a place.
        Preparing { #[pin] preparing: Preparing<S>, call: Option<ToolCall>, health: Health },
        // Waiting for the response.
        Called { #[pin] fut: Option<F>, flight: InFlight<Visit> },
        // Refused, or the inner service failed to become ready.
        Refused { error: Option<ToolError> },
    }
}

impl<S, F> State<S, F> {
    pub(super) fn refused(error: ToolError) -> Self {
        Self::Refused { error: Some(error) }
    }
}

impl<S, F> ResponseFuture<S, F> {
    #[inline]
    pub(super) fn new(state: State<S, F>) -> Self {
        Self { state }
    }

    #[inline]
    pub(super) fn call(svc: &mut S, call: ToolCall, visit: Visit) -> Self
    where
        S: Service<ToolCall, Future = F>,
    {
        let mut beginning = Beginning::new(visit, call.trusted_deadline());
        call.share_limit();
        call.claim(Claim::Health);
        call_in_place(svc, call, |fut| Self {
            state: State::Called {
                fut: Some(fut),
                flight: beginning.begun(),
            },
        })
    }
}

impl<S> Future for ResponseFuture<S, S::Future>
where
    S: Service<ToolCall>,
    S::Error: Into<ToolError>,
{
    type Output = Result<S::Response, ToolError>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            let next = match this.state.as_mut().project() {
                StateProj::Called { fut, flight } => {
                    // Converting runs foreign code; inside `poll`, so that a panic there is reported too.
                    let polled = flight.poll(|visit| {
                        let result = ready!(inner::poll(fut, cx));
                        Poll::Ready(result.map_err(|e| e.into().for_call(&visit.info)))
                    });
                    let result = ready!(polled);
                    let visit = flight.report();
                    return Poll::Ready(match result {
                        Ok(response) => {
                            visit.answered();
                            Ok(response)
                        }
                        Err(error) => Err(visit.failed(error)),
                    });
                }
                StateProj::Preparing {
                    preparing,
                    call,
                    health,
                } => {
                    let ready = ready!(preparing.poll(cx));
                    let call = call.take().expect("called once");
                    match ready {
                        // Only now it is decided whether the call may run.
                        Ok(svc) => match health.admit(&call) {
                            Ok(visit) => Self::call(svc, call, visit).state,
                            Err(refusal) => State::refused(refusal),
                        },
                        Err(Unprepared::GivenUp(why)) => {
                            State::refused(why.error().for_call(&call.info()))
                        }
                        Err(Unprepared::Failed(error)) => {
                            State::refused(health.not_ready(&call, error))
                        }
                    }
                }
                StateProj::Refused { error } => {
                    return Poll::Ready(Err(error.take().expect("polled after completion")));
                }
            };
            // Drops the service that was waited for, with its reservation for a refused call.
            this.state.set(next);
        }
    }
}

impl<S, F> fmt::Debug for ResponseFuture<S, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match &self.state {
            State::Preparing { .. } => "Preparing",
            State::Called { .. } => "Called",
            State::Refused { .. } => "Refused",
        };
        f.debug_struct("ResponseFuture")
            .field("state", &state)
            .finish_non_exhaustive()
    }
}
