//! The end of a wait before a call is sent: the caller's cancellation, and the call's deadline.

use std::{
    future::Future as _,
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::{task::coop, time::Instant};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tower_service::Service;

use super::timer::Timer;
use crate::{
    call::{Hold, ToolCall},
    error::{ErrorKind, ToolError},
};

/// The end of a wait before a call is sent: the caller's cancellation, and the call's deadline.
///
/// For a tool service that waits before it sends, for a connection for example. Layers have it from
/// [`Gated`](crate::flow::Gated). The call is held from [`of`](Self::of) to
/// [`release`](Self::release): an observer that sees the future dropped meanwhile knows that the
/// call was not sent.
///
/// ```
/// use std::{future::{Future, poll_fn}, pin::pin, task::Poll};
/// use tower_toolcall::{ToolCall, ToolError, flow::WaitLimit};
///
/// /// Waits for a connection, and then sends the call.
/// async fn send<C>(call: ToolCall, connect: impl Future<Output = C>) -> Result<C, ToolError> {
///     let mut limit = WaitLimit::of(&call);
///     let mut connect = pin!(connect);
///     let connection = poll_fn(|cx| match connect.as_mut().poll(cx) {
///         Poll::Ready(connection) => Poll::Ready(limit.check().map(|()| connection)),
///         Poll::Pending => limit.poll(cx).map(Err),
///     });
///     let connection = connection.await;
///     limit.release(); // the wait is over, also if it has failed
///     connection
/// }
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// # assert!(send(ToolCall::new("t"), async {}).await.is_ok());
/// # });
/// # Ok::<_, std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct WaitLimit {
    caller: Caller,
    timer: Timer,
    deadline: Option<Instant>,
    held: Hold,
}

/// The error of a call that waited for a service and was not sent.
#[derive(Debug)]
pub(crate) enum Unready {
    /// The wait was ended.
    GivenUp(ToolError),
    /// The service failed to become ready.
    Failed(ToolError),
}

impl From<Unready> for ToolError {
    fn from(why: Unready) -> Self {
        match why {
            Unready::GivenUp(error) | Unready::Failed(error) => error,
        }
    }
}

impl WaitLimit {
    /// Returns the limit of a call's wait, and holds the call.
    pub fn of(call: &ToolCall) -> Self {
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
            held: Hold::default(),
        }
    }

    /// Marks that the wait has ended: call it when the wait ends, however it ends. Without this the
    /// call stays held, also after a drop.
    pub fn release(&self) {
        self.held.release();
    }

    /// Refuses a call that must not be sent any more.
    ///
    /// # Errors
    ///
    /// [`Cancelled`](ErrorKind::Cancelled) if its caller has cancelled,
    /// [`DeadlineExceeded`](ErrorKind::DeadlineExceeded) if its deadline has passed; a
    /// [refusal](ToolError::refusal) in both cases.
    pub fn check(&self) -> Result<(), ToolError> {
        check_now(self.caller.is_cancelled(), self.deadline)
    }

    /// Polls for the end of the wait: ready with the refusal of the call. For a `Pending` wait
    /// only; once the wait is over, [`check`](Self::check) returns whether the call may be sent. A
    /// poll does not count towards the task's budget.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<ToolError> {
        if self.caller.poll_cancelled(cx).is_ready() {
            return Poll::Ready(cancelled());
        }
        let over = self.timer.poll(cx, || self.deadline);
        over.map(|()| too_late())
    }

    /// Ready once a service is ready for the call, or the wait has to end. The call is not sent if
    /// the service becomes ready too late.
    pub(crate) fn poll_ready<S>(
        &mut self,
        svc: &mut S,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Unready>>
    where
        S: Service<ToolCall, Error: Into<ToolError>>,
    {
        let ready = match svc.poll_ready(cx) {
            Poll::Pending => Err(Unready::GivenUp(ready!(self.poll(cx)))),
            Poll::Ready(Ok(())) => self.check().map_err(Unready::GivenUp),
            Poll::Ready(Err(error)) => Err(Unready::Failed(error.into())),
        };
        self.release();
        Poll::Ready(ready)
    }
}

/// Refuses a call that must not be sent any more, because its deadline has passed or its caller has
/// cancelled.
pub(crate) fn check(call: &ToolCall) -> Result<(), ToolError> {
    check_now(call.is_cancelled(), call.deadline())
}

fn check_now(is_cancelled: bool, deadline: Option<Instant>) -> Result<(), ToolError> {
    if is_cancelled {
        return Err(cancelled());
    }
    match deadline.is_some_and(|at| at <= Instant::now()) {
        true => Err(too_late()),
        false => Ok(()),
    }
}

/// Returns the error of a call that was not sent because its caller has cancelled.
pub(crate) fn cancelled() -> ToolError {
    ToolError::refusal(ErrorKind::Cancelled, "cancelled by the caller")
}

/// Returns the error of a call that was not sent because its deadline has passed.
pub(crate) fn too_late() -> ToolError {
    let text = "the time budget was spent before the call could start";
    ToolError::refusal(ErrorKind::DeadlineExceeded, text)
}

/// Ready once the caller has cancelled; never for a call without a token.
#[derive(Debug, Default)]
pub(crate) struct Caller {
    token: Option<CancellationToken>,
    /// Made when the call begins to wait.
    cancelled: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
}

impl Caller {
    pub(crate) fn of(call: &ToolCall) -> Self {
        Self {
            token: call.cancellation().cloned(),
            cancelled: None,
        }
    }

    fn is_cancelled(&self) -> bool {
        self.token.as_ref().is_some_and(|t| t.is_cancelled())
    }

    pub(crate) fn poll_cancelled(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(token) = &self.token else {
            return Poll::Pending;
        };
        let wait = || Box::pin(token.clone().cancelled_owned());
        let cancelled = self.cancelled.get_or_insert_with(wait);
        // A busy inner future uses up the task's budget, and must not delay the cancellation.
        Pin::new(&mut coop::unconstrained(cancelled)).poll(cx)
    }
}
