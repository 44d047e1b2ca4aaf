use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use pin_project_lite::pin_project;
use tower_service::Service;

use super::{
    Ends, Gate, Readiness, Ticket,
    in_flight::{Beginning, InFlight, Part},
    refusal::Refusal,
};
use crate::{
    call::{CallInfo, ToolCall},
    error::ToolError,
    kit::inner::{self, call_in_place},
};

pin_project! {
    /// A call that was sent, or refused when it arrived.
    #[project(!Unpin)]
    #[repr(C)]
    #[must_use = "futures do nothing unless polled"]
    pub struct Sent<F, T: Ticket> {
        // No variant of an enum, and in this order: else it would be copied to its place. A word
        // follows it, because LLVM would join it with a field that is copied as well.
        #[pin]
        pub(super) fut: Option<F>,
        pub(super) flight: InFlight<T>,
    }
}

impl<F, T: Ticket> Sent<F, T> {
    /// Follows a call that is sent. A drop before the first poll is not reported.
    pub(crate) fn new(fut: F, ticket: T) -> Self {
        Self {
            fut: Some(fut),
            flight: InFlight::unsent(Some(Ok(ticket))),
        }
    }

    /// Ends a call with the error that keeps it from being sent.
    #[cold]
    pub(crate) fn refused(error: ToolError, call: ToolCall) -> Self {
        Self::unsent(Some(Err(Refusal::new(error, &call))))
    }

    pub(super) fn parts(self: Pin<&mut Self>) -> (Pin<&mut Option<F>>, &mut InFlight<T>) {
        let this = self.project();
        (this.fut, this.flight)
    }

    /// Holds a call that is not sent yet.
    pub(super) fn unsent(part: Option<Part<T>>) -> Self {
        Self {
            fut: None,
            flight: InFlight::unsent(part),
        }
    }

    /// Sends a call to its ready service, unless the gate refuses it.
    #[inline]
    pub(super) fn send<S, G>(svc: &mut S, gate: &G, mut call: ToolCall) -> Self
    where
        S: Service<ToolCall, Future = F>,
        G: Gate<S::Response, Ticket = T>,
        T: Ends<S::Response>,
    {
        match gate.look(&mut call, &Readiness::Yes) {
            Ok(ticket) => Self::call(svc, call, &mut Some(Ok(ticket)), |sent| sent),
            Err(refusal) => Self::refused(refusal, call),
        }
    }

    /// Sends a call that the gate has let pass. `wrap` makes the layer's own future around this
    /// one; it neither panics nor owns anything.
    #[inline]
    pub(super) fn call<S, R>(
        svc: &mut S,
        call: ToolCall,
        part: &mut Option<Part<T>>,
        wrap: impl FnOnce(Self) -> R,
    ) -> R
    where
        S: Service<ToolCall, Future = F>,
    {
        let mut beginning = Beginning::new(part, &call);
        call_in_place(svc, call, |fut| {
            wrap(Self {
                fut: Some(fut),
                flight: beginning.begun(),
            })
        })
    }
}

impl<F, T, Res, E> Future for Sent<F, T>
where
    F: Future<Output = Result<Res, E>>,
    E: Into<ToolError>,
    T: Ends<Res>,
{
    type Output = Result<Res, ToolError>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let Some(fut) = this.fut.as_mut().as_pin_mut() else {
            return Poll::Ready(Err(this.flight.refusal()));
        };
        // Converting and judging run foreign code: a panic there is the call's.
        this.flight.begin_poll();
        let Poll::Ready(result) = fut.poll(cx) else {
            let ticket = this.flight.ticket_mut();
            let Poll::Ready(error) = ticket.poll_pending(cx) else {
                this.flight.wait();
                return Poll::Pending;
            };
            let error = error.for_call(ticket.info());
            // The work is cancelled now, not when the finished future is dropped.
            this.fut.set(None);
            this.flight.give_up();
            return Poll::Ready(Err(error));
        };
        // Its permits and connections are free now.
        this.fut.set(None);
        let ticket = this.flight.ticket_mut();
        // Written once, where the caller expects it.
        let mut result = result.map_err(|e| e.into().for_call(ticket.info()));
        let class = ticket.judge(&result);
        let since = this.flight.since();
        let was_ok = result.is_ok();
        let mut end = this.flight.finish();
        let ticket = end.ticket();
        ticket.ended(&mut result, class, since);
        if was_ok && let Err(error) = &mut result {
            error.address(ticket.info());
        }
        Poll::Ready(result)
    }
}

/// Polls the future of a call that was sent, and drops it with its result. Its error is converted
/// and gets the names of the call.
pub(crate) fn poll_sent<Res, E>(
    fut: Pin<&mut Option<impl Future<Output = Result<Res, E>>>>,
    cx: &mut Context<'_>,
    info: &CallInfo,
    convert: impl FnOnce(E) -> ToolError,
) -> Poll<Result<Res, ToolError>> {
    inner::poll(fut, cx).map_err(|error| convert(error).for_call(info))
}

impl<F, T: Ticket> fmt::Debug for Sent<F, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match &self.fut {
            Some(_) => "Called",
            None if self.flight.is_refused() => "Refused",
            None => "Ended",
        };
        f.debug_tuple("Sent")
            .field(&format_args!("{state}"))
            .finish()
    }
}
