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
    error::{ErrorKind, Execution, ToolError},
    kit::{
        caller::Caller,
        preparing::{GivenUp, Preparing, Unprepared},
        timer::Timer,
    },
    outcome::Classify,
};

pin_project! {
    /// Response future for [`Retry`](super::Retry).
    #[project(!Unpin)]
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
        // Between two attempts. Boxed, as few calls come here, and all would carry its size.
        Between { pause: Pin<Box<Pause<S>>> },
        // The inner future is gone.
        Done,
    }
}

pin_project! {
    /// The time between two attempts.
    struct Pause<S> {
        #[pin]
        stage: Stage<S>,
    }
}

pin_project! {
    #[project = StageProj]
    enum Stage<S> {
        // Waiting for the next attempt. The service is gone, with what it had reserved.
        Waiting { timer: Timer, until: Instant, #[pin] caller: Caller },
        // Waiting for a fresh service to become ready.
        Preparing { #[pin] preparing: Preparing<S> },
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
        loop {
            let result = match this.state.as_mut().project() {
                StateProj::Called { fut } => ready!(fut.poll(cx)),
                StateProj::Between { pause } => {
                    match ready!(pause.as_mut().poll(this.owner, cx)) {
                        Ok(fut) => this.state.set(State::Called { fut }),
                        Err(error) => {
                            this.state.set(State::Done);
                            return Poll::Ready(Err(error));
                        }
                    }
                    continue;
                }
                StateProj::Done => panic!("polled after completion"),
            };
            let session = match this.owner {
                Owner::Us(session) => session,
                Owner::Other(info) => {
                    this.state.set(State::Done);
                    return Poll::Ready(result.map_err(|e| e.into().about(info)));
                }
            };
            let result = result.map_err(|e| e.into().about(&session.call.info()));
            if let Err(error) = &result
                && error.is_own_refusal()
            {
                this.state.set(State::Done);
                return Poll::Ready(Err(session.refused(error)));
            }
            let Some(delay) = session.decide(result.as_ref()) else {
                // The attempt is gone with its result, not with the future.
                this.state.set(State::Done);
                return Poll::Ready(result.map_err(|e| session.last(e)));
            };
            // Drops the attempt before the wait (T4), and what it had reserved.
            session.failed = result.err();
            this.state.set(State::Between {
                pause: Pause::begin(session, delay),
            });
        }
    }
}

impl<S> Pause<S> {
    #[cold]
    fn begin<C>(session: &mut Session<S, C>, delay: Duration) -> Pin<Box<Self>> {
        Box::pin(Self {
            stage: Stage::waiting(session, delay),
        })
    }

    /// Ready with the next attempt, or with the error of the call that has none.
    #[cold]
    fn poll<C>(
        self: Pin<&mut Self>,
        owner: &mut Owner<S, C>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<S::Future, ToolError>>
    where
        S: Service<ToolCall> + Clone,
        S::Error: Into<ToolError>,
        C: Classify<S::Response>,
    {
        let Owner::Us(session) = owner else {
            unreachable!("others' calls are not repeated");
        };
        let mut this = self.project();
        let why = loop {
            match this.stage.as_mut().project() {
                StageProj::Waiting {
                    timer,
                    until,
                    caller,
                } => {
                    if caller.poll_cancelled(cx).is_ready() {
                        break GivenUp::Cancelled;
                    }
                    // It ends before the deadline, or it had not begun.
                    ready!(timer.poll(cx, || Some(*until)));
                    let svc = session.shared.template.fresh();
                    let preparing = Preparing::new(svc, &session.call);
                    this.stage.set(Stage::Preparing { preparing });
                }
                StageProj::Preparing { preparing } => match ready!(preparing.poll(cx)) {
                    Ok(svc) => {
                        session.call.next_attempt();
                        return Poll::Ready(Ok(svc.call(session.call.clone())));
                    }
                    Err(Unprepared::GivenUp(why)) => break why,
                    // As if the attempt had been made; but it was not.
                    Err(Unprepared::Failed(error)) => {
                        session.call.next_attempt();
                        let error = error.about(&session.call.info());
                        if error.is_own_refusal() {
                            return Poll::Ready(Err(session.refused(&error)));
                        }
                        let sure = error.clone().with_execution(Execution::NotStarted);
                        let error = error.unsent();
                        let Some(delay) = session.decide(Err(&sure)) else {
                            return Poll::Ready(Err(session.last(error)));
                        };
                        session.failed = Some(error);
                        this.stage.set(Stage::waiting(session, delay));
                    }
                },
            }
        };
        Poll::Ready(Err(session.given_up(why)))
    }
}

impl<S> Stage<S> {
    fn waiting<C>(session: &mut Session<S, C>, delay: Duration) -> Self {
        Self::Waiting {
            timer: Timer::default(),
            until: later(delay),
            caller: Caller::of(&session.call),
        }
    }
}

/// The policy grants no delay that the clock does not reach.
fn later(delay: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(delay).unwrap_or(now)
}

impl<S, C> Session<S, C> {
    #[inline]
    fn decide<Res>(&self, result: Result<&Res, &ToolError>) -> Option<Duration>
    where
        C: Classify<Res>,
    {
        self.shared.policy.decide(&self.call, result)
    }

    fn last(&self, error: ToolError) -> ToolError {
        self.shared.policy.last(&self.call, error)
    }

    /// An attempt was refused on this side: the tool's own error is the result, if there is one.
    #[cold]
    fn refused(&mut self, refusal: &ToolError) -> ToolError {
        match self.failed.take() {
            // A caller who has given up wants to know that it was in time.
            Some(failed) if refusal.kind() != ErrorKind::Cancelled => {
                self.without_last_attempt(failed.before(refusal))
            }
            _ => self.without_last_attempt(refusal.clone()),
        }
    }

    /// The last attempt was not sent.
    fn without_last_attempt(&self, error: ToolError) -> ToolError {
        let sent = self.call.attempt().saturating_sub(1);
        self.last(error).with_attempts(sent)
    }

    /// A wait was ended: the attempt that it was for is not made.
    fn given_up(&mut self, why: GivenUp) -> ToolError {
        let error = match (why, self.failed.take()) {
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
        self.last(error.about(&self.call.info()))
    }
}

impl<S, F, C> fmt::Debug for ResponseFuture<S, F, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match &self.state {
            State::Called { .. } => "Called",
            State::Between { pause } => match pause.stage {
                Stage::Waiting { .. } => "Waiting",
                Stage::Preparing { .. } => "Preparing",
            },
            State::Done => "Done",
        };
        f.debug_struct("ResponseFuture")
            .field("state", &state)
            .finish_non_exhaustive()
    }
}
