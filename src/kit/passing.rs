//! The future of a call that a layer passes on as it is, or refuses.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use pin_project_lite::pin_project;
use tower_service::Service;

use super::{
    inner::{self, call_in_place},
    preparing::Preparing,
    ready::{Prepared, Taken},
};
use crate::{
    call::{CallInfo, ToolCall},
    error::ToolError,
};

pin_project! {
    /// A call on its way, for layers that look at it once and not at its answer. Errors are stamped with the call's names.
    #[project = PassingProj]
    pub(crate) enum Passing<S, F> {
        // The inner service was not ready: waiting for it.
        Preparing { #[pin] preparing: Preparing<S>, call: Option<ToolCall> },
        // Waiting for the response.
        Called { #[pin] fut: Option<F>, info: Option<CallInfo> },
        // Refused, or the inner service failed to become ready.
        Refused { error: Option<ToolError> },
    }
}

impl<S, F> Passing<S, F> {
    /// Calls the inner service in place, or waits for it. `wrap` makes the layer's own future around this one; it must neither panic nor own anything.
    #[inline]
    pub(crate) fn send<T>(
        inner: &mut Prepared<S>,
        call: ToolCall,
        info: CallInfo,
        wrap: impl FnOnce(Self) -> T,
    ) -> T
    where
        S: Service<ToolCall, Future = F> + Clone,
    {
        match inner.take() {
            Taken::Ready => Self::call(inner.get(), call, info, wrap),
            Taken::Wait(svc) => wrap(Self::wait(svc, call)),
            Taken::Failed(error) => wrap(Self::refused(error.for_call(&info))),
        }
    }

    /// Waits until the service is ready for the call, and calls it.
    pub(crate) fn wait(svc: S, call: ToolCall) -> Self {
        Self::Preparing {
            preparing: Preparing::new(svc, &call),
            call: Some(call),
        }
    }

    pub(crate) fn refused(error: ToolError) -> Self {
        Self::Refused { error: Some(error) }
    }

    #[inline]
    fn call<T>(svc: &mut S, call: ToolCall, info: CallInfo, wrap: impl FnOnce(Self) -> T) -> T
    where
        S: Service<ToolCall, Future = F>,
    {
        let mut info = Some(info);
        call_in_place(svc, call, |fut| {
            wrap(Self::Called {
                fut: Some(fut),
                info: info.take(),
            })
        })
    }
}

impl<S> Future for Passing<S, S::Future>
where
    S: Service<ToolCall>,
    S::Error: Into<ToolError>,
{
    type Output = Result<S::Response, ToolError>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            let next = match self.as_mut().project() {
                PassingProj::Called { fut, info } => {
                    let result = ready!(inner::poll(fut, cx));
                    let info = info.as_ref().expect("there from the beginning");
                    return Poll::Ready(result.map_err(|e| e.into().for_call(info)));
                }
                PassingProj::Preparing { preparing, call } => {
                    let ready = ready!(preparing.poll(cx));
                    let call = call.take().expect("called once");
                    let info = call.info();
                    match ready {
                        Ok(svc) => Self::call(svc, call, info, |passing| passing),
                        Err(why) => Self::refused(why.into_error().for_call(&info)),
                    }
                }
                PassingProj::Refused { error } => {
                    return Poll::Ready(Err(error.take().expect("polled after completion")));
                }
            };
            // Drops the service that was waited for.
            self.set(next);
        }
    }
}

impl<S, F> fmt::Debug for Passing<S, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Preparing { .. } => "Preparing",
            Self::Called { .. } => "Called",
            Self::Refused { .. } => "Refused",
        })
    }
}
