use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use pin_project_lite::pin_project;
use tokio::time::Instant;
use tower_service::Service;

use super::{
    job::Job,
    poller::{Next, Poller},
};
use crate::{
    call::ToolCall,
    error::ToolError,
    kit::{
        caller::Caller,
        inner,
        preparing::{GivenUp, Preparing, Unprepared},
        timer::Timer,
    },
};

pin_project! {
    /// Response future for [`Polling`](super::Polling).
    #[project(!Unpin)]
    #[must_use = "futures do nothing unless polled"]
    pub struct ResponseFuture<S, F, J> {
        #[pin]
        state: State<S, F>,
        timer: Timer,
        #[pin]
        caller: Caller,
        // There from the beginning: an `Option` for `kit::inner::call_in_place`.
        poller: Option<Poller<S, J>>,
    }
}

pin_project! {
    #[project = StateProj]
    pub(super) enum State<S, F> {
        // Waiting for the answer to the call, or to a poll.
        Called { #[pin] fut: Option<F> },
        // Until the next poll.
        Waiting { at: Instant },
        // For the service to become ready for the poll.
        Preparing { #[pin] preparing: Preparing<S>, ask: Option<ToolCall> },
        // Refused before it was sent, or ended; `None` once the error was returned.
        Refused { error: Option<ToolError> },
    }
}

impl<S, F, J> ResponseFuture<S, F, J> {
    #[inline]
    pub(super) fn new(state: State<S, F>, caller: Caller, poller: Option<Poller<S, J>>) -> Self {
        Self {
            state,
            timer: Timer::default(),
            caller,
            poller,
        }
    }
}

impl<S, J> Future for ResponseFuture<S, S::Future, J>
where
    S: Service<ToolCall> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<ToolError>,
    J: Job<S::Response> + 'static,
{
    type Output = Result<S::Response, ToolError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let poller = this.poller.as_mut().expect("there from the beginning");
        poller.resume();
        let end = loop {
            let result = match this.state.as_mut().project() {
                StateProj::Called { fut } => match (inner::poll(fut, cx), poller.end_of_poll()) {
                    (Poll::Ready(result), _) => result.map_err(Into::into),
                    (Poll::Pending, None) => return Poll::Pending,
                    (Poll::Pending, Some(end)) => {
                        if this.caller.as_mut().poll_cancelled(cx).is_ready() {
                            break Err(poller.cancelled());
                        }
                        ready!(this.timer.poll(cx, || end));
                        break Err(poller.timed_out());
                    }
                },
                StateProj::Waiting { at } => {
                    if this.caller.as_mut().poll_cancelled(cx).is_ready() {
                        break Err(poller.cancelled());
                    }
                    ready!(this.timer.poll(cx, || Some(poller.wake(*at))));
                    this.timer.reset();
                    poller.report();
                    if *at > Instant::now() {
                        continue;
                    }
                    let ask = poller.ask();
                    let preparing = Preparing::new(poller.fresh(), &ask);
                    let ask = Some(ask);
                    this.state.set(State::Preparing { preparing, ask });
                    continue;
                }
                StateProj::Preparing { preparing, ask } => match ready!(preparing.poll(cx)) {
                    Ok(svc) => {
                        let fut = Some(svc.call(ask.take().expect("called once")));
                        this.state.set(State::Called { fut });
                        continue;
                    }
                    Err(Unprepared::GivenUp(GivenUp::Cancelled)) => break Err(poller.cancelled()),
                    Err(Unprepared::GivenUp(GivenUp::Deadline)) => break Err(poller.timed_out()),
                    Err(Unprepared::Failed(error)) => Err(error),
                },
                StateProj::Refused { error } => {
                    break Err(error.take().expect("polled after completion"));
                }
            };
            match poller.next(result) {
                Next::Wait(at) => {
                    poller.info().end_attempt(true);
                    this.timer.reset();
                    this.state.set(State::Waiting { at });
                }
                Next::End(result) => break result,
            }
        };
        // Drops a poll that runs, or the service that waited.
        this.state.set(State::Refused { error: None });
        poller.ended();
        Poll::Ready(end.map_err(|error| error.for_call(&poller.info())))
    }
}

impl<S, F, J> fmt::Debug for ResponseFuture<S, F, J> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match &self.state {
            State::Called { .. } => "Called",
            State::Waiting { .. } => "Waiting",
            State::Preparing { .. } => "Preparing",
            State::Refused { .. } => "Refused",
        };
        let polls = self.poller.as_ref().map(Poller::polls);
        f.debug_struct("ResponseFuture")
            .field("state", &state)
            .field("polls", &polls)
            .finish_non_exhaustive()
    }
}
