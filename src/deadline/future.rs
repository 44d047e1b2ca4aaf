use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use pin_project_lite::pin_project;
use tokio::time::Instant;
use tower_service::Service;

use crate::{
    call::{CallInfo, ToolCall},
    error::{ErrorKind, TimeoutLimit, ToolError},
    kit::{
        caller::{Caller, GivenUp},
        timer::Timer,
    },
};

pin_project! {
    /// Response future for [`Deadline`](super::Deadline).
    #[project(!Unpin)]
    #[derive(Debug)]
    #[must_use = "futures do nothing unless polled"]
    pub struct ResponseFuture<S, F> {
        #[pin]
        state: State<S, F>,
        timer: Timer,
        #[pin]
        caller: Caller,
        limit: Limit,
        info: CallInfo,
    }
}

pin_project! {
    #[derive(Debug)]
    #[project = StateProj]
    pub(super) enum State<S, F> {
        // The inner service was not ready: waiting for it.
        Waiting { svc: S, call: Option<ToolCall> },
        // Waiting for the response.
        Called { #[pin] fut: F },
        // Refused before it was started.
        Refused { error: Option<ToolError> },
        // The inner future is gone.
        Done,
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Limit {
    pub(super) since: Instant,
    pub(super) at: Option<Instant>,
    pub(super) budget: Option<Duration>,
    pub(super) is_untrusted: bool,
}

impl Limit {
    /// The call was started and has not ended in time.
    fn expired(&self, call: &CallInfo) -> ToolError {
        let share = self.at.map_or(Duration::MAX, |at| at - self.since);
        // Without an own budget nothing shortened it.
        let configured = self.budget.unwrap_or(share);
        // One that leaves the tool all its time tells of the tool, whoever set it.
        let limit = match self.is_untrusted && share < call.patience() {
            true => TimeoutLimit::Caller,
            false => TimeoutLimit::Deadline,
        };
        ToolError::timed_out(call, share, configured, limit)
    }
}

impl<S, F> ResponseFuture<S, F> {
    pub(super) fn new(state: State<S, F>, limit: Limit, caller: Caller, info: CallInfo) -> Self {
        Self {
            state,
            timer: Timer::default(),
            caller,
            limit,
            info,
        }
    }
}

impl<S> Future for ResponseFuture<S, S::Future>
where
    S: Service<ToolCall>,
    S::Error: Into<ToolError>,
{
    type Output = Result<S::Response, ToolError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let started = loop {
            match this.state.as_mut().project() {
                StateProj::Waiting { svc, call } => match svc.poll_ready(cx) {
                    Poll::Pending => break false,
                    Poll::Ready(Err(error)) => {
                        this.state.set(State::Done);
                        return Poll::Ready(Err(error.into().about(this.info)));
                    }
                    // It became ready too late: nothing is started after the deadline, or after the
                    // caller has given up.
                    Poll::Ready(Ok(()))
                        if this.limit.at.is_some_and(|at| at <= Instant::now())
                            || this.caller.as_mut().poll_cancelled(cx).is_ready() =>
                    {
                        break false;
                    }
                    Poll::Ready(Ok(())) => {
                        let fut = svc.call(call.take().expect("called once"));
                        this.state.set(State::Called { fut });
                    }
                },
                StateProj::Called { fut } => match fut.poll(cx) {
                    Poll::Pending => break true,
                    // The response first: a tie is a success.
                    Poll::Ready(result) => {
                        return Poll::Ready(result.map_err(|e| e.into().about(this.info)));
                    }
                },
                StateProj::Refused { error } => {
                    let error = error.take().expect("polled after completion");
                    return Poll::Ready(Err(error.about(this.info)));
                }
                StateProj::Done => panic!("polled after completion"),
            }
        };

        if this.caller.poll_cancelled(cx).is_ready() {
            this.state.set(State::Done);
            let error = match started {
                true => ToolError::new(ErrorKind::Cancelled, "cancelled by the caller"),
                false => GivenUp::Cancelled.error(),
            };
            return Poll::Ready(Err(error.about(this.info)));
        }
        ready!(this.timer.poll(cx, || this.limit.at));
        this.state.set(State::Done);
        Poll::Ready(Err(if started {
            this.limit.expired(this.info)
        } else {
            let waited = this.limit.since.elapsed();
            GivenUp::Deadline
                .error()
                .with_elapsed(waited)
                .about(this.info)
        }))
    }
}
