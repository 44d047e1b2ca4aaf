use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use pin_project_lite::pin_project;
use tokio::time::Instant;
use tower_service::Service;

use super::service::Session;
use crate::{
    call::{CallInfo, ToolCall},
    caller::Caller,
    error::{ErrorKind, ToolError},
    outcome::Classify,
    timer::Timer,
};

pin_project! {
    /// Response future for [`Retry`](super::Retry).
    #[must_use = "futures do nothing unless polled"]
    pub struct ResponseFuture<S, F, C> {
        #[pin]
        state: State<S, F>,
        // Who repeats the call: we, or somebody above, and then only its names are kept.
        session: Option<Session<S, C>>,
        info: Option<CallInfo>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<S, F> {
        // Waiting for the response of an attempt.
        Called { #[pin] fut: F },
        // Waiting for the next attempt. The service is gone, with what it had reserved.
        Waiting { #[pin] timer: Timer, #[pin] caller: Caller, until: Option<Instant> },
        // Waiting for a fresh service to become ready.
        Preparing { svc: S },
        // The inner future is gone.
        Done,
    }
}

impl<S, F, C> ResponseFuture<S, F, C> {
    #[inline]
    pub(super) fn new(fut: F, session: Option<Session<S, C>>, info: Option<CallInfo>) -> Self {
        Self {
            state: State::Called { fut },
            session,
            info,
        }
    }
}

impl<S, C> Future for ResponseFuture<S, S::Future, C>
where
    S: Service<ToolCall> + Clone,
    S::Error: Into<ToolError>,
    C: Classify<S::Response>,
{
    type Output = Result<S::Response, ToolError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            let result = match this.state.as_mut().project() {
                StateProj::Called { fut } => ready!(fut.poll(cx)).map_err(Into::into),
                StateProj::Waiting {
                    timer,
                    caller,
                    until,
                } => {
                    let session = this.session.as_ref().expect("only our own calls wait");
                    if caller.poll_cancelled(cx).is_ready() {
                        this.state.set(State::Done);
                        return Poll::Ready(Err(session.cancelled()));
                    }
                    ready!(timer.poll_at(cx, *until));
                    let svc = session.shared.template.fresh();
                    this.state.set(State::Preparing { svc });
                    continue;
                }
                StateProj::Preparing { svc } => match ready!(svc.poll_ready(cx)) {
                    Ok(()) => {
                        let session = this.session.as_ref().expect("only our own calls wait");
                        let fut = svc.call(session.call.clone());
                        this.state.set(State::Called { fut });
                        continue;
                    }
                    // As if the attempt had been made.
                    Err(error) => Err(error.into()),
                },
                StateProj::Done => panic!("polled after completion"),
            };
            let Some(session) = this.session.as_mut() else {
                let info = this.info.as_ref().expect("one of the two is there");
                return Poll::Ready(result.map_err(|e| e.about(info)));
            };
            let result = result.map_err(|e| e.about(&session.call.info()));
            match session.shared.policy.decide(&session.call, result.as_ref()) {
                None => return Poll::Ready(result.map_err(|e| session.last(e))),
                Some(delay) => {
                    session.call.next_attempt();
                    // Drops the attempt before the wait (T4), and what it had reserved.
                    this.state.set(State::Waiting {
                        timer: Timer::default(),
                        caller: Caller::of(&session.call),
                        until: Instant::now().checked_add(delay),
                    });
                }
            }
        }
    }
}

impl<S, C> Session<S, C> {
    /// The error of the last attempt tells how many there were (R3).
    fn last(&self, error: ToolError) -> ToolError {
        error.with_attempts(self.call.attempt().into())
    }

    /// The caller has given up between two attempts.
    fn cancelled(&self) -> ToolError {
        let made = self.call.attempt().saturating_sub(1);
        ToolError::new(ErrorKind::Cancelled, "cancelled by the caller")
            .about(&self.call.info())
            .with_attempts(made.into())
    }
}

impl<S, F, C> fmt::Debug for ResponseFuture<S, F, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match &self.state {
            State::Called { .. } => "Called",
            State::Waiting { .. } => "Waiting",
            State::Preparing { .. } => "Preparing",
            State::Done => "Done",
        };
        f.debug_struct("ResponseFuture")
            .field("state", &state)
            .finish_non_exhaustive()
    }
}
