//! The wait of a call before it is sent: for its turn, and for the inner service.

use std::{
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::time::Instant;
use tower_service::Service;

use super::{Ends, PollTurn, Step, ready::Prepared};
use crate::{
    call::ToolCall,
    error::ToolError,
    kit::{
        limit::{Unready, WaitLimit},
        timer::Timer,
    },
};

/// The way of a call until it is sent.
#[derive(Clone, Copy, Debug)]
pub enum Way {
    /// Send the call, or wait until the inner service is ready for it.
    Go,
    /// Wait for the turn: [`Before::poll_turn`].
    Wait,
    /// Wait for the turn, which comes then.
    Until(Instant),
}

impl Way {
    /// Waits until then, if that is not over.
    pub(crate) fn until(at: Instant) -> Self {
        match at > Instant::now() {
            true => Self::Until(at),
            false => Self::Go,
        }
    }

    /// Returns now, if a wait for the turn begins.
    fn since(self) -> Option<Instant> {
        (!matches!(self, Self::Go)).then(Instant::now)
    }
}

impl From<Step> for Way {
    #[inline]
    fn from(step: Step) -> Self {
        match step {
            Step::Go => Self::Go,
            Step::Wait => Self::Wait,
        }
    }
}

/// The decisions about a call that is not sent yet.
pub trait Before<S: Service<ToolCall>> {
    /// Adds the names of the call to its error.
    fn stamp(&self, call: &ToolCall, error: ToolError) -> ToolError {
        error.for_call(&call.info())
    }

    /// Decides whether a call waits before the inner service is asked whether it is ready, or
    /// refuses it. Follows each [`Way::Until`] as well. If the service is ready,
    /// [`admit`](Self::admit) follows immediately.
    fn arrive(&mut self, _call: &ToolCall, _is_ready: bool) -> Result<Way, ToolError> {
        Ok(Way::Go)
    }

    /// Admits a call while the inner service is ready, refuses it, or lets it wait.
    fn admit(&mut self, _call: &mut ToolCall) -> Result<Way, ToolError> {
        Ok(Way::Go)
    }

    /// Waits for the turn of a call, after [`Way::Wait`]. Ready with an answer if the call is not
    /// sent.
    fn poll_turn(&mut self, _call: &mut ToolCall, _cx: &mut Context<'_>) -> PollTurn<S::Response> {
        Poll::Ready(Ok(None))
    }

    /// Records how long a call has waited for its turn.
    fn waited(&mut self, _time: Duration) {}

    /// Returns the error of a call that was given up while it waited.
    fn gave_up(&mut self, error: ToolError, _waited: Step) -> ToolError {
        error
    }

    /// Returns the error of a call after its inner service failed to become ready, or lets the call
    /// wait and try again with another instance.
    fn not_ready(&mut self, _call: &mut ToolCall, error: ToolError) -> Result<(S, Way), ToolError> {
        Err(error)
    }
}

/// The ticket of a layer that does not repeat calls.
pub(super) struct Of<'a, T>(pub(super) &'a mut T);

impl<S: Service<ToolCall>, T: Ends<S::Response>> Before<S> for Of<'_, T> {
    #[inline]
    fn stamp(&self, _: &ToolCall, error: ToolError) -> ToolError {
        error.for_call(self.0.info())
    }

    #[inline]
    fn arrive(&mut self, _: &ToolCall, _: bool) -> Result<Way, ToolError> {
        Ok(self.0.arrive().into())
    }

    #[expect(clippy::inline_always, reason = "measured")]
    #[inline(always)]
    fn admit(&mut self, call: &mut ToolCall) -> Result<Way, ToolError> {
        self.0.admit(call).map(Way::from)
    }

    fn poll_turn(&mut self, call: &mut ToolCall, cx: &mut Context<'_>) -> PollTurn<S::Response> {
        self.0.poll_turn(call, cx)
    }

    fn waited(&mut self, time: Duration) {
        self.0.waited(time);
    }

    fn gave_up(&mut self, error: ToolError, waited: Step) -> ToolError {
        self.0.gave_up(error, waited)
    }

    fn not_ready(&mut self, call: &mut ToolCall, error: ToolError) -> Result<(S, Way), ToolError> {
        Err(self.0.not_ready(call, error))
    }
}

/// Decides about a call that has arrived. `None`: it is sent, and `inner` is ready for it. An error
/// gets the names of the call in its [`Refusal`](super::refusal::Refusal).
#[inline]
pub(super) fn begin<S, T>(
    inner: &mut Prepared<S>,
    call: &mut ToolCall,
    ticket: &mut T,
) -> Result<Option<(S, Way)>, ToolError>
where
    S: Service<ToolCall> + Clone,
    T: Before<S>,
{
    let way = match ticket.arrive(call, inner.readiness().is_yes()) {
        Ok(Way::Go) if inner.take_ready() => match ticket.admit(call) {
            Ok(Way::Go) => return Ok(None),
            way => way.map(|way| (None, way)),
        },
        Ok(Way::Go) => match inner.take_unready() {
            Ok(svc) => return Ok(Some((svc, Way::Go))),
            Err(error) => failed(ticket, call, error),
        },
        way => way.map(|way| (None, way)),
    };
    inner.renew();
    way.map(|(svc, way)| Some((svc.unwrap_or_else(|| inner.svc.clone()), way)))
}

/// A call that waits to be sent. While it waits for its turn, the service has nothing reserved.
pub(super) struct Wait<S> {
    /// The instance that was polled, with its place in the queue.
    svc: S,
    limit: WaitLimit,
    call: Option<ToolCall>,
    way: Way,
    /// The beginning of the wait for the turn.
    since: Option<Instant>,
    timer: Timer,
}

/// The end of a call that is not sent.
pub(super) type End<Res> = Result<Res, ToolError>;

/// The service and the call that is sent now, or the end of the call.
type Due<'s, S, Res> = Result<(&'s mut S, ToolCall), End<Res>>;

impl<S> Wait<S> {
    pub(super) fn new((svc, way): (S, Way), call: ToolCall) -> Self {
        Self {
            svc,
            limit: WaitLimit::of(&call),
            call: Some(call),
            way,
            since: way.since(),
            timer: Timer::default(),
        }
    }

    /// Returns the state of the call.
    pub(super) fn state(&self) -> &'static str {
        match self.way {
            Way::Go => "Preparing",
            Way::Wait | Way::Until(_) => "Waiting",
        }
    }

    /// Lets the call wait once more, for this instance if it is given.
    fn restart(&mut self, svc: Option<S>, way: Way) {
        if let Some(svc) = svc {
            self.svc = svc;
        }
        if let Some(call) = &self.call {
            self.limit = WaitLimit::of(call);
        }
        (self.way, self.since) = (way, way.since());
        self.timer.reset();
    }

    /// Ready once the call is sent, or has its end.
    pub(super) fn poll<'s, T>(
        &'s mut self,
        ticket: &mut T,
        cx: &mut Context<'_>,
    ) -> Poll<Due<'s, S, S::Response>>
    where
        S: Service<ToolCall> + Clone,
        S::Error: Into<ToolError>,
        T: Before<S>,
    {
        let mut turns = 0;
        loop {
            let call = self.call.as_mut().expect("polled after completion");
            let next = match self.way {
                Way::Go => match ready!(self.limit.poll_ready(&mut self.svc, cx)) {
                    Ok(()) => match ticket.admit(call) {
                        Ok(Way::Go) => break,
                        // A clone: nothing stays reserved while the call waits.
                        way => way.map(|way| (Some(self.svc.clone()), way)),
                    },
                    Err(Unready::GivenUp(error)) => Err(ticket.gave_up(error, Step::Go)),
                    Err(Unready::Failed(error)) => failed(ticket, call, error),
                }
                .map_err(Err),
                way => {
                    let turn = match way {
                        Way::Until(at) => {
                            let over = self.timer.poll(cx, || Some(at));
                            over.map(|()| ticket.arrive(call, false).map_err(Err))
                        }
                        _ => poll_turn(ticket, call, &mut turns, cx),
                    };
                    let turn = match turn {
                        Poll::Ready(turn) => turn,
                        Poll::Pending => {
                            let error = ready!(self.limit.poll(cx));
                            Err(Err(ticket.gave_up(error, Step::Wait)))
                        }
                    };
                    ticket.waited(self.since.map_or(Duration::ZERO, |at| at.elapsed()));
                    turn.map(|way| (None, way))
                }
            };
            match next {
                Ok((svc, way)) => self.restart(svc, way),
                Err(end) => {
                    // An error says whether the call was sent, an answer does not.
                    if end.is_err() {
                        call.release();
                    }
                    return Poll::Ready(Err(end.map_err(|e| ticket.stamp(call, e))));
                }
            }
        }
        let call = self.call.take().expect("there until it is sent");
        Poll::Ready(Ok((&mut self.svc, call)))
    }
}

/// Polls for the turn of a call, at most twice in one poll: another call may take what the first
/// turn was waited for. So a turn that is ready and changes nothing does not occupy the thread.
fn poll_turn<S: Service<ToolCall>>(
    ticket: &mut impl Before<S>,
    call: &mut ToolCall,
    turns: &mut u32,
    cx: &mut Context<'_>,
) -> Poll<Result<Way, End<S::Response>>> {
    *turns += 1;
    if *turns > 2 {
        cx.waker().wake_by_ref();
        return Poll::Pending;
    }
    Poll::Ready(match ready!(ticket.poll_turn(call, cx)) {
        Ok(None) => Ok(Way::Go),
        Ok(Some(answer)) => Err(Ok(answer)),
        Err(error) => Err(Err(error)),
    })
}

/// The inner service failed to become ready: the call waits for another instance, or ends.
fn failed<S: Service<ToolCall>>(
    ticket: &mut impl Before<S>,
    call: &mut ToolCall,
    error: ToolError,
) -> Result<(Option<S>, Way), ToolError> {
    let error = ticket.stamp(call, error);
    let (svc, way) = ticket.not_ready(call, error)?;
    Ok((Some(svc), way))
}
