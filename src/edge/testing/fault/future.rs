use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use pin_project_lite::pin_project;
use tower_service::Service;

use crate::{
    call::{CallInfo, ToolCall},
    edge::testing::{future::StepFuture, step::Step},
    error::{Execution, ToolError},
    kit::{
        inner,
        preparing::{Preparing, WaitLimit},
    },
};

pin_project! {
    /// Response future for [`Fault`](super::Fault).
    #[project(!Unpin)]
    #[must_use = "futures do nothing unless polled"]
    pub struct ResponseFuture<S, F> {
        #[pin]
        state: State<S, F>,
        // There from the beginning: an `Option` for `kit::inner::call_in_place`.
        info: Option<CallInfo>,
    }
}

/// What happens after the call, and the call.
type Lost = Option<(Step<Infallible>, ToolCall)>;

pin_project! {
    #[project = StateProj]
    pub(super) enum State<S, F> {
        // The fault is a delay: nothing is reserved below.
        Delayed { #[pin] delay: StepFuture<()>, #[pin] limit: WaitLimit, svc: Option<S>, call: Option<ToolCall> },
        // The tool was not ready: waiting for it.
        Preparing { #[pin] preparing: Preparing<S>, call: Option<ToolCall>, lost: Lost },
        // Waiting for the tool's answer, which may be lost.
        Called { #[pin] fut: Option<F>, lost: Lost },
        // Instead of the call, or after it ran.
        Step { #[pin] step: StepFuture<Infallible>, ran: bool },
        // The tool failed to become ready, or the call may wait no longer.
        Failed { error: Option<ToolError> },
    }
}

impl<S, F> State<S, F> {
    pub(super) fn preparing(svc: S, call: ToolCall, lost: Lost) -> Self {
        Self::Preparing {
            preparing: Preparing::new(svc, &call),
            call: Some(call),
            lost,
        }
    }
}

impl<S, F> ResponseFuture<S, F> {
    pub(super) fn new(state: State<S, F>, info: Option<CallInfo>) -> Self {
        Self { state, info }
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
        loop {
            let next = match this.state.as_mut().project() {
                StateProj::Delayed {
                    delay,
                    mut limit,
                    svc,
                    call,
                } => match delay.poll(cx) {
                    Poll::Ready(_) => {
                        let (svc, call) = svc.take().zip(call.take()).expect("taken once");
                        State::preparing(svc, call, None)
                    }
                    Poll::Pending => {
                        let error = Some(ready!(limit.as_mut().poll(cx)).error());
                        limit.release();
                        State::Failed { error }
                    }
                },
                StateProj::Preparing {
                    preparing,
                    call,
                    lost,
                } => match ready!(preparing.poll(cx)) {
                    Ok(svc) => {
                        let fut = svc.call(call.take().expect("called once"));
                        let (fut, lost) = (Some(fut), lost.take());
                        State::Called { fut, lost }
                    }
                    Err(why) => State::Failed {
                        error: Some(why.into_error()),
                    },
                },
                StateProj::Called { fut, lost } => {
                    let result = ready!(inner::poll(fut, cx));
                    let Some((step, call)) = lost.take() else {
                        return Poll::Ready(result.map_err(|e| e.into().for_call(info)));
                    };
                    let step = StepFuture::new(step, call, None);
                    State::Step { step, ran: true }
                }
                StateProj::Step { step, ran } => {
                    let Err(error) = ready!(step.poll(cx));
                    let denies = *ran && error.execution() == Execution::NotStarted;
                    let error = error.for_call(info);
                    return Poll::Ready(Err(match denies {
                        true => error.into_inferred(),
                        false => error,
                    }));
                }
                StateProj::Failed { error } => {
                    let error = error.take().expect("polled after completion");
                    return Poll::Ready(Err(error.for_call(info)));
                }
            };
            this.state.set(next);
        }
    }
}

crate::text::debug_fields! {
    {S, F} |this| ResponseFuture<S, F> { info: this.info, .. }
}
