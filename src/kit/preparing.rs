//! The wait of a call for a service that was not ready.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use pin_project_lite::pin_project;
use tokio::time::Instant;
use tower_service::Service;

use super::{caller::Caller, timer::Timer};
use crate::{
    call::{Held, ToolCall},
    error::{ErrorKind, ToolError},
};

pin_project! {
    /// Waits until a service is ready for one call, within the call's [`WaitLimit`]. Permits are
    /// taken afterwards, when the service is ready.
    #[derive(Debug)]
    pub(crate) struct Preparing<S> {
        svc: S,
        #[pin]
        limit: WaitLimit,
    }
}

pin_project! {
    /// What ends a wait before a call is sent: the caller's token, and the call's deadline.
    #[derive(Debug)]
    pub(crate) struct WaitLimit {
        #[pin]
        caller: Caller,
        timer: Timer,
        deadline: Option<Instant>,
        held: Held,
    }
}

/// Why a call was not sent.
#[derive(Debug)]
pub(crate) enum Unprepared {
    /// The wait was ended.
    GivenUp(GivenUp),
    /// The service failed to become ready.
    Failed(ToolError),
}

/// Why a wait was ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GivenUp {
    Cancelled,
    Deadline,
}

impl<S> Preparing<S> {
    /// The instance that was polled, with its place in the queue.
    pub(crate) fn new(svc: S, call: &ToolCall) -> Self {
        let limit = WaitLimit::of(call);
        Self { svc, limit }
    }

    /// Returns the service.
    pub(crate) fn service(self: Pin<&mut Self>) -> &mut S {
        self.project().svc
    }

    /// Waits once more for a call, for this instance if it is given.
    pub(crate) fn restart(self: Pin<&mut Self>, svc: Option<S>, call: &ToolCall) {
        let mut this = self.project();
        if let Some(svc) = svc {
            *this.svc = svc;
        }
        this.limit.set(WaitLimit::of(call));
    }

    /// Ready once the wait has to end. The service is not polled.
    pub(crate) fn poll_given_up(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<GivenUp> {
        self.project().limit.poll(cx)
    }

    /// The service, once it is ready for the call. A service that became ready too late is not
    /// called.
    pub(crate) fn poll<'s>(
        self: Pin<&'s mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<&'s mut S, Unprepared>>
    where
        S: Service<ToolCall>,
        S::Error: Into<ToolError>,
    {
        let mut this = self.project();
        let given_up = match this.svc.poll_ready(cx) {
            Poll::Pending => Some(ready!(this.limit.as_mut().poll(cx))),
            Poll::Ready(Ok(())) => this.limit.as_mut().given_up(cx),
            Poll::Ready(Err(error)) => {
                this.limit.release();
                return Poll::Ready(Err(Unprepared::Failed(error.into())));
            }
        };
        this.limit.release();
        Poll::Ready(match given_up {
            Some(why) => Err(Unprepared::GivenUp(why)),
            None => Ok(this.svc),
        })
    }
}

impl WaitLimit {
    /// From here on the call is [held](CallInfo::hold).
    pub(crate) fn of(call: &ToolCall) -> Self {
        Self {
            held: call.info().hold(),
            ..Self::of_function(call)
        }
    }

    /// Does not hold the call, because a function has it.
    pub(crate) fn of_function(call: &ToolCall) -> Self {
        Self {
            caller: Caller::of(call),
            timer: Timer::default(),
            deadline: call.deadline(),
            held: Held::default(),
        }
    }

    /// The wait has ended. Without this the call stays held, also after a drop.
    pub(crate) fn release(&self) {
        self.held.release();
    }

    /// Ready once the wait has to end.
    pub(crate) fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<GivenUp> {
        let this = self.project();
        if this.caller.poll_cancelled(cx).is_ready() {
            return Poll::Ready(GivenUp::Cancelled);
        }
        let over = this.timer.poll(cx, || *this.deadline);
        over.map(|()| GivenUp::Deadline)
    }

    /// Why the service became ready too late, if it did.
    fn given_up(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Option<GivenUp> {
        let this = self.project();
        if this.caller.is_cancelled(cx) {
            return Some(GivenUp::Cancelled);
        }
        let over = this.deadline.is_some_and(|at| at <= Instant::now());
        over.then_some(GivenUp::Deadline)
    }
}

impl Unprepared {
    /// The error of the call.
    pub(crate) fn into_error(self) -> ToolError {
        match self {
            Self::GivenUp(why) => why.error(),
            Self::Failed(error) => error,
        }
    }
}

impl GivenUp {
    /// Why a call must not be sent any more, if its deadline has passed or its caller has
    /// cancelled.
    pub(crate) fn by(call: &ToolCall) -> Option<Self> {
        if Caller::has_cancelled(call) {
            return Some(Self::Cancelled);
        }
        let over = call.deadline().is_some_and(|at| at <= Instant::now());
        over.then_some(Self::Deadline)
    }

    /// Refuses a call that must not be sent any more.
    pub(crate) fn refuse(call: &ToolCall) -> Result<(), ToolError> {
        Self::by(call).map_or(Ok(()), |why| Err(why.error()))
    }

    /// The error of a call that was not sent for this reason.
    pub(crate) fn error(self) -> ToolError {
        let (kind, text) = match self {
            Self::Cancelled => (ErrorKind::Cancelled, "cancelled by the caller"),
            Self::Deadline => (
                ErrorKind::DeadlineExceeded,
                "the time budget was spent before the call could start",
            ),
        };
        ToolError::refusal(kind, text)
    }
}
