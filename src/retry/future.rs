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

use super::service::{Owner, Session};
use crate::{
    call::ToolCall,
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
        owner: Owner<S, C>,
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
    pub(super) fn new(fut: F, owner: Owner<S, C>) -> Self {
        Self {
            state: State::Called { fut },
            owner,
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
        let session = match this.owner {
            Owner::Us(session) => session,
            Owner::Other(info) => {
                let StateProj::Called { fut } = this.state.as_mut().project() else {
                    panic!("polled after completion");
                };
                let result = ready!(fut.poll(cx)).map_err(|e| e.into().about(info));
                this.state.set(State::Done);
                return Poll::Ready(result);
            }
        };
        loop {
            let result = match this.state.as_mut().project() {
                StateProj::Called { fut } => ready!(fut.poll(cx)).map_err(Into::into),
                StateProj::Waiting {
                    timer,
                    until,
                    caller,
                } => {
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
                StateProj::Preparing { svc, patience } => match svc.poll_ready(cx) {
                    // As if the attempt had been made; but it was not.
                    Poll::Ready(Err(error)) => {
                        Err(error.into().with_execution(Execution::NotStarted))
                    }
                    polled => {
                        let given_up = match polled.is_ready() {
                            true => Patience::is_over(&session.call),
                            false => Some(ready!(patience.poll_given_up(cx))),
                        };
                        if let Some(why) = given_up {
                            this.state.set(State::Done);
                            return Poll::Ready(Err(session.given_up(why)));
                        }
                        let fut = svc.call(session.call.clone());
                        this.state.set(State::Called { fut });
                        continue;
                    }
                },
                StateProj::Done => panic!("polled after completion"),
            };
            let result = result.map_err(|e| e.about(&session.call.info()));
            let Some(delay) = session.shared.policy.decide(&session.call, result.as_ref()) else {
                // The attempt is gone with its result, not with the future.
                this.state.set(State::Done);
                return Poll::Ready(result.map_err(|e| session.last(e)));
            };
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
