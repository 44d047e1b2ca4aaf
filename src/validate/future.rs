use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use pin_project_lite::pin_project;
use tower_service::Service;

use crate::{
    call::{CallInfo, ToolCall},
    error::ToolError,
    kit::{
        inner::{self, call_in_place},
        preparing::Preparing,
    },
};

pin_project! {
    /// Response future for [`Validate`](super::Validate).
    #[must_use = "futures do nothing unless polled"]
    pub struct ResponseFuture<S, F> {
        #[pin]
        state: State<S, F>,
    }
}

pin_project! {
    #[project = StateProj]
    pub(super) enum State<S, F> {
        // The arguments fit, and the inner service was not ready: waiting for it.
        Preparing { #[pin] preparing: Preparing<S>, call: Option<ToolCall> },
        // Waiting for the response.
        Called { #[pin] fut: Option<F>, info: Option<CallInfo> },
        // The arguments do not fit, or the inner service failed to become ready.
        Refused { error: Option<ToolError> },
    }
}

impl<S, F> State<S, F> {
    pub(super) fn refused(error: ToolError) -> Self {
        Self::Refused { error: Some(error) }
    }
}

impl<S, F> From<State<S, F>> for ResponseFuture<S, F> {
    fn from(state: State<S, F>) -> Self {
        Self { state }
    }
}

impl<S, F> ResponseFuture<S, F> {
    #[inline]
    pub(super) fn call(svc: &mut S, call: ToolCall, info: CallInfo) -> Self
    where
        S: Service<ToolCall, Future = F>,
    {
        let mut info = Some(info);
        call_in_place(svc, call, |fut| Self {
            state: State::Called {
                fut: Some(fut),
                info: info.take(),
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
                StateProj::Called { fut, info } => {
                    let result = ready!(inner::poll(fut, cx));
                    let info = info.as_ref().expect("there from the beginning");
                    return Poll::Ready(result.map_err(|e| e.into().for_call(info)));
                }
                StateProj::Preparing { preparing, call } => {
                    let ready = ready!(preparing.poll(cx));
                    let call = call.take().expect("called once");
                    let info = call.info();
                    match ready {
                        Ok(svc) => Self::call(svc, call, info).state,
                        Err(why) => State::refused(why.into_error().for_call(&info)),
                    }
                }
                StateProj::Refused { error } => {
                    return Poll::Ready(Err(error.take().expect("polled after completion")));
                }
            };
            // Drops the service that was waited for.
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
