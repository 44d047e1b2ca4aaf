use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use pin_project_lite::pin_project;
use tokio::time::Instant;
use tower_service::Service;

use super::session::{Session, Turn};
use crate::{
    call::ToolCall,
    error::ToolError,
    kit::{
        caller::Caller,
        preparing::{GivenUp, Preparing, Unprepared},
        timer::Timer,
    },
    outcome::Classify,
};

pin_project! {
    /// Response future for [`RateLimitBackoff`](super::RateLimitBackoff).
    #[project(!Unpin)]
    #[must_use = "futures do nothing unless polled"]
    pub struct ResponseFuture<S, F, C> {
        #[pin]
        state: State<S, F>,
        session: Session<S>,
        classifier: C,
    }
}

pin_project! {
    #[project = StateProj]
    pub(super) enum State<S, F> {
        // Waiting for its turn, without a reservation.
        Waiting { timer: Timer, #[pin] caller: Caller, until: Instant },
        // Its turn has come: waiting for the service to become ready.
        Preparing { #[pin] preparing: Preparing<S> },
        // Waiting for the response.
        Called { #[pin] fut: F },
        // Refused, or the inner service failed to become ready.
        Refused { error: Option<ToolError> },
        // The inner future is gone.
        Done,
    }
}

impl<S, F> State<S, F> {
    pub(super) fn waiting(session: &Session<S>, until: Instant) -> Self {
        Self::Waiting {
            timer: Timer::default(),
            caller: Caller::of(session.call()),
            until,
        }
    }

    pub(super) fn preparing(session: &Session<S>, svc: S) -> Self {
        Self::Preparing {
            preparing: Preparing::new(svc, session.call()),
        }
    }

    pub(super) fn refused(error: ToolError) -> Self {
        Self::Refused { error: Some(error) }
    }
}

impl<S, F, C> ResponseFuture<S, F, C> {
    pub(super) fn new(state: State<S, F>, session: Session<S>, classifier: C) -> Self {
        Self {
            state,
            session,
            classifier,
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
        let session = this.session;
        loop {
            let next = match this.state.as_mut().project() {
                StateProj::Called { fut } => {
                    let result = ready!(fut.poll(cx)).map_err(|e| session.met(e.into()));
                    let outcome = this.classifier.classify(result.as_ref());
                    if result.is_ok() {
                        session.answered(&outcome);
                    }
                    if !Session::<S>::is_news(&outcome) {
                        // The attempt is gone with its result, not with the future.
                        this.state.set(State::Done);
                        return Poll::Ready(session.result(result));
                    }
                    let (response, mut error) = match result {
                        Ok(response) => (Some(response), None),
                        Err(error) => (None, Some(error)),
                    };
                    let again = session.learn(&outcome, &mut error);
                    let result = match (response, error) {
                        (Some(response), _) => Ok(response),
                        (None, error) => Err(error.expect("one of the two is there")),
                    };
                    this.state.set(State::Done);
                    if !again {
                        return Poll::Ready(session.result(result));
                    }
                    match session.turn() {
                        Turn::Now => State::preparing(session, session.fresh()),
                        Turn::At(until) => State::waiting(session, until),
                        // A wait that cannot end in time is not begun: the limit itself is the result.
                        Turn::Never(_) => {
                            return Poll::Ready(result.map_err(|e| session.last(e)));
                        }
                    }
                }
                StateProj::Waiting {
                    timer,
                    caller,
                    until,
                } => {
                    if caller.poll_cancelled(cx).is_ready() {
                        State::refused(session.given_up(GivenUp::Cancelled))
                    } else {
                        ready!(timer.poll(cx, || Some(*until)));
                        match session.turn_after_wait() {
                            Turn::Now => State::preparing(session, session.fresh()),
                            Turn::At(until) => State::waiting(session, until),
                            Turn::Never(error) => State::refused(error),
                        }
                    }
                }
                StateProj::Preparing { preparing } => match ready!(preparing.poll(cx)) {
                    // If a limit was met meanwhile, what was reserved is given back.
                    Ok(svc) => match session.turn_after_wait() {
                        Turn::Now => {
                            let fut = session.send(svc);
                            State::Called { fut }
                        }
                        Turn::At(until) => State::waiting(session, until),
                        Turn::Never(error) => State::refused(error),
                    },
                    Err(Unprepared::GivenUp(why)) => State::refused(session.given_up(why)),
                    Err(Unprepared::Failed(error)) => State::refused(session.not_sent(error)),
                },
                StateProj::Refused { error } => {
                    return Poll::Ready(Err(error.take().expect("polled after completion")));
                }
                StateProj::Done => panic!("polled after completion"),
            };
            this.state.set(next);
        }
    }
}

impl<S, F, C> fmt::Debug for ResponseFuture<S, F, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match &self.state {
            State::Waiting { .. } => "Waiting",
            State::Preparing { .. } => "Preparing",
            State::Called { .. } => "Called",
            State::Refused { .. } => "Refused",
            State::Done => "Done",
        };
        f.debug_struct("ResponseFuture")
            .field("state", &state)
            .finish_non_exhaustive()
    }
}
