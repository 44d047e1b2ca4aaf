//! The caller's cancellation token, watched. Nothing at all without the feature `cancel`.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use tokio::time::Instant;

use crate::{
    call::ToolCall,
    error::{ErrorKind, ToolError},
    kit::timer::Timer,
};

#[cfg(feature = "cancel")]
pin_project_lite::pin_project! {
    /// Ready once the caller has cancelled; never for a call without a token.
    #[derive(Debug)]
    pub(crate) struct Caller {
        #[pin]
        cancelled: Option<tokio_util::sync::WaitForCancellationFutureOwned>,
    }
}

#[cfg(feature = "cancel")]
impl Caller {
    pub(crate) fn of(call: &ToolCall) -> Self {
        Self {
            cancelled: call.cancellation().map(|t| t.clone().cancelled_owned()),
        }
    }

    pub(crate) fn has_cancelled(call: &ToolCall) -> bool {
        call.cancellation().is_some_and(|t| t.is_cancelled())
    }

    pub(crate) fn poll_cancelled(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        match self.project().cancelled.as_pin_mut() {
            // A busy inner future uses up the task's budget, and must not make us deaf.
            Some(cancelled) => Pin::new(&mut tokio::task::coop::unconstrained(cancelled)).poll(cx),
            None => Poll::Pending,
        }
    }
}

#[cfg(feature = "cancel")]
use std::future::Future as _;

#[cfg(not(feature = "cancel"))]
#[derive(Debug)]
pub(crate) struct Caller;

#[cfg(not(feature = "cancel"))]
impl Caller {
    pub(crate) fn of(_: &ToolCall) -> Self {
        Self
    }

    pub(crate) fn has_cancelled(_: &ToolCall) -> bool {
        false
    }

    pub(crate) fn poll_cancelled(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        Poll::Pending
    }
}

pin_project_lite::pin_project! {
    /// What ends a wait for a service to become ready: the caller's token, and the call's deadline.
    #[derive(Debug)]
    pub(crate) struct Patience {
        #[pin]
        caller: Caller,
        timer: Timer,
        deadline: Option<Instant>,
    }
}

/// Why a wait was ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GivenUp {
    Cancelled,
    Deadline,
}

impl GivenUp {
    /// The error of a call that was not sent for it.
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

impl Patience {
    pub(crate) fn of(call: &ToolCall) -> Self {
        Self {
            caller: Caller::of(call),
            timer: Timer::default(),
            deadline: call.deadline(),
        }
    }

    /// The same for a call that need not wait: nothing is sent after the one or the other.
    pub(crate) fn is_over(call: &ToolCall) -> Option<GivenUp> {
        if Caller::has_cancelled(call) {
            return Some(GivenUp::Cancelled);
        }
        let over = call.deadline().is_some_and(|at| at <= Instant::now());
        over.then_some(GivenUp::Deadline)
    }

    pub(crate) fn poll_given_up(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<GivenUp> {
        let this = self.project();
        if this.caller.poll_cancelled(cx).is_ready() {
            return Poll::Ready(GivenUp::Cancelled);
        }
        let deadline = this.timer.poll(cx, || *this.deadline);
        deadline.map(|()| GivenUp::Deadline)
    }
}
