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
        caller::Caller,
        drain::Drain,
        inner,
        preparing::{GivenUp, Preparing, Unprepared},
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
        drain: Drain,
        limit: Limit,
        // There from the beginning: an `Option` for `kit::inner::call_in_place`.
        info: Option<CallInfo>,
    }
}

pin_project! {
    #[derive(Debug)]
    #[project = StateProj]
    pub(super) enum State<S, F> {
        // The inner service was not ready: waiting for it.
        Preparing { #[pin] preparing: Preparing<S>, call: Option<ToolCall> },
        // Waiting for the response.
        Called { #[pin] fut: Option<F> },
        // Refused before it was started, or ended; `None` once the error was returned.
        Refused { error: Option<ToolError> },
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Limit {
    pub(super) since: Instant,
    pub(super) at: Option<Instant>,
    pub(super) budget: Option<Duration>,
    /// The number that the call had when it came.
    pub(super) attempt: u32,
    pub(super) is_untrusted: bool,
}

impl Limit {
    /// The call was started and has not ended in time.
    fn expired(&self, call: &CallInfo) -> ToolError {
        let share = self.at.map_or(Duration::MAX, |at| at - self.since);
        // Without an own budget nothing shortened it.
        let configured = self.budget.unwrap_or(share);
        // A deadline that leaves the tool all its time says something of the tool, even if an untrusted caller set it.
        let limit = match self.is_untrusted && share < call.patience() {
            true => TimeoutLimit::Caller,
            false => TimeoutLimit::Deadline,
        };
        ToolError::timed_out(call, share, configured, limit)
    }
}

impl<S, F> ResponseFuture<S, F> {
    #[inline]
    pub(super) fn new(
        state: State<S, F>,
        limit: Limit,
        caller: Caller,
        drain: Drain,
        info: Option<CallInfo>,
    ) -> Self {
        Self {
            state,
            timer: Timer::default(),
            caller,
            drain,
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
        let info = this.info.as_ref().expect("there from the beginning");
        let error = loop {
            match this.state.as_mut().project() {
                StateProj::Preparing { preparing, call } => match ready!(preparing.poll(cx)) {
                    Ok(svc) => {
                        let fut = Some(svc.call(call.take().expect("called once")));
                        this.state.set(State::Called { fut });
                    }
                    Err(Unprepared::GivenUp(GivenUp::Deadline)) => {
                        let waited = this.limit.since.elapsed();
                        break GivenUp::Deadline.error().with_elapsed(waited);
                    }
                    Err(why) => break why.into_error(),
                },
                StateProj::Called { fut } => {
                    // The response first: a tie is a success.
                    if let Poll::Ready(result) = inner::poll(fut, cx) {
                        let result = result.map_err(|e| e.into().for_call(info));
                        return Poll::Ready(match this.drain.has_begun() {
                            false => result,
                            true => this.drain.settle(result).map_err(|e| e.for_call(info)),
                        });
                    }
                    if this.drain.has_begun() {
                        break ready!(this.drain.poll(this.timer, cx));
                    }
                    let error = if this.caller.as_mut().poll_cancelled(cx).is_ready() {
                        let text = "cancelled by the caller";
                        ToolError::new(ErrorKind::Cancelled, text)
                    } else {
                        ready!(this.timer.poll(cx, || this.limit.at));
                        this.limit.expired(info)
                    };
                    let error = match info.failed_since(this.limit.attempt) {
                        Some(failed) => error.after(failed),
                        None => error,
                    };
                    if let Err(error) = this.drain.begin(error, this.timer) {
                        break error;
                    }
                }
                StateProj::Refused { error } => {
                    break error.take().expect("polled after completion");
                }
            }
        };
        this.state.set(State::Refused { error: None });
        Poll::Ready(Err(error.for_call(info)))
    }
}
