use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use pin_project_lite::pin_project;
use tower_service::Service;

use super::guard::MaybeWatched;
use crate::{
    call::{CallInfo, ToolCall},
    error::ToolError,
    kit::{inner, preparing::Preparing},
    outcome::Classify,
};

pin_project! {
    /// Response future for [`RepeatGuard`](super::RepeatGuard).
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
        // The inner service was not ready: waiting for it.
        Preparing { #[pin] preparing: Preparing<S>, call: Option<(ToolCall, MaybeWatched)> },
        // Waiting for the response.
        Called { #[pin] fut: Option<F>, of_call: Option<(CallInfo, MaybeWatched)> },
        // Refused, or the inner service failed to become ready.
        Refused { error: Option<ToolError> },
    }
}

impl<S, F> State<S, F> {
    pub(super) fn refused(error: ToolError) -> Self {
        Self::Refused { error: Some(error) }
    }
}

impl<S, C> Future for ResponseFuture<S, S::Future, C>
where
    S: Service<ToolCall>,
    S::Error: Into<ToolError>,
    C: Classify<S::Response>,
{
    type Output = Result<S::Response, ToolError>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            let next = match this.state.as_mut().project() {
                StateProj::Called { fut, of_call } => {
                    let result = ready!(inner::poll(fut, cx));
                    let (info, watched) = of_call.take().expect("there until the end");
                    let result = result.map_err(|e| e.into().for_call(&info));
                    match (watched, &result) {
                        (None, _) => {}
                        (Some(watched), Ok(answer)) => {
                            watched.answered(&info, &this.classifier.classify(Ok(answer)));
                        }
                        (Some(watched), Err(error)) => watched.erred(error),
                    }
                    return Poll::Ready(result);
                }
                StateProj::Preparing { preparing, call } => {
                    let ready = ready!(preparing.poll(cx));
                    let (call, watched) = call.take().expect("called once");
                    let info = call.info();
                    match ready {
                        Ok(svc) => match watched.as_ref().map_or(Ok(()), |w| w.admit(&info)) {
                            Ok(()) => State::Called {
                                fut: Some(svc.call(call)),
                                of_call: Some((info, watched)),
                            },
                            Err(refusal) => State::refused(refusal),
                        },
                        Err(why) => State::refused(why.into_error().for_call(&info)),
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

impl<S, F, C> fmt::Debug for ResponseFuture<S, F, C> {
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
