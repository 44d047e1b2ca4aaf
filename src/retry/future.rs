use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use pin_project_lite::pin_project;
use tokio::time::Instant;
use tower_service::Service;

use super::service::Session;
use crate::{
    call::{CallInfo, ToolCall},
    caller::{Caller, GivenUp, Patience},
    error::{ErrorKind, Execution, ToolError},
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
        Waiting { #[pin] timer: Timer, until: Instant, #[pin] caller: Caller },
        // Waiting for a fresh service to become ready.
        Preparing { svc: S, #[pin] patience: Patience },
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
                    until,
                    caller,
                } => {
                    let session = this.session.as_mut().expect("only our own calls wait");
                    if caller.poll_cancelled(cx).is_ready() {
                        this.state.set(State::Done);
                        return Poll::Ready(Err(session.given_up(GivenUp::Cancelled)));
                    }
                    // It ends before the deadline, or it had not begun.
                    ready!(timer.poll_at(cx, Some(*until)));
                    let svc = session.shared.template.fresh();
                    let patience = Patience::of(&session.call);
                    this.state.set(State::Preparing { svc, patience });
                    continue;
                }
                StateProj::Preparing { svc, patience } => {
                    let session = this.session.as_mut().expect("only our own calls wait");
                    let mut unsent = None;
                    let given_up = match svc.poll_ready(cx) {
                        Poll::Pending => Some(ready!(patience.poll_given_up(cx))),
                        Poll::Ready(Ok(())) => Patience::is_over(&session.call),
                        // As if the attempt had been made; but it was not.
                        Poll::Ready(Err(error)) => {
                            unsent = Some(error.into().with_execution(Execution::NotStarted));
                            None
                        }
                    };
                    if let Some(why) = given_up {
                        this.state.set(State::Done);
                        return Poll::Ready(Err(session.given_up(why)));
                    }
                    match unsent {
                        Some(error) => Err(error),
                        None => {
                            let fut = svc.call(session.call.clone());
                            this.state.set(State::Called { fut });
                            continue;
                        }
                    }
                }
                StateProj::Done => panic!("polled after completion"),
            };
            let Some(session) = this.session.as_mut() else {
                this.state.set(State::Done);
                let info = this.info.as_ref().expect("one of the two is there");
                return Poll::Ready(result.map_err(|e| e.about(info)));
            };
            let result = result.map_err(|e| e.about(&session.call.info()));
            match session.shared.policy.decide(&session.call, result.as_ref()) {
                None => {
                    // The attempt is gone with its result, not with the future.
                    this.state.set(State::Done);
                    return Poll::Ready(result.map_err(|e| session.last(e)));
                }
                Some(delay) => {
                    session.call.next_attempt();
                    session.failed = result.err();
                    // Drops the attempt before the wait (T4), and what it had reserved.
                    this.state.set(State::Waiting {
                        timer: Timer::default(),
                        until: later(delay),
                        caller: Caller::of(&session.call),
                    });
                }
            }
        }
    }
}

/// The policy grants no delay that the clock does not reach.
fn later(delay: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(delay).unwrap_or(now)
}

impl<S, C> Session<S, C> {
    fn last(&self, error: ToolError) -> ToolError {
        self.shared.policy.last(&self.call, error)
    }

    /// A wait was ended: the attempt that it was for is not made.
    fn given_up(&mut self, why: GivenUp) -> ToolError {
        let made = self.call.attempt().saturating_sub(1);
        let failed = self.failed.take();
        let error = match (why, failed) {
            (GivenUp::Deadline, Some(failed)) => failed,
            (why, failed) => {
                let kind = match why {
                    GivenUp::Cancelled => ErrorKind::Cancelled,
                    GivenUp::Deadline => ErrorKind::Timeout,
                };
                let error = ToolError::new(kind, "ended between two attempts");
                match failed {
                    Some(failed) => error.with_source(failed),
                    None => error,
                }
            }
        };
        let error = error.about(&self.call.info());
        self.last(error).with_attempts(made.into())
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
