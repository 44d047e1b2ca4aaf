use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use pin_project_lite::pin_project;
use tower_service::Service;

use super::{
    Ends, Gate, Ticket,
    in_flight::{Part, own},
    ready::Prepared,
    sent::Sent,
    wait::{self, End, Of, Wait, Way},
};
use crate::{call::ToolCall, error::ToolError};

pin_project! {
    /// A call on its way through a [`Gated`](super::Gated) service: the future of its response.
    #[must_use = "futures do nothing unless polled"]
    pub struct Flow<S, F, T: Ticket> {
        #[pin]
        sent: Sent<F, T>,
        // Waiting to be sent. Boxed, because few calls wait and all futures would carry the size.
        wait: Option<Box<Wait<S>>>,
    }
}

impl<S, F, T: Ticket> Flow<S, F, T> {
    #[cold]
    fn refused(error: ToolError, call: ToolCall) -> Self {
        Self {
            sent: Sent::refused(error, call),
            wait: None,
        }
    }

    #[cold]
    fn waits(wait: (S, Way), call: ToolCall, part: Option<Part<T>>) -> Self {
        Self {
            sent: Sent::unsent(part),
            wait: Some(Box::new(Wait::new(wait, call))),
        }
    }

    /// Decides about a call and sends it.
    #[inline]
    pub(super) fn send<G>(inner: &mut Prepared<S>, gate: &G, mut call: ToolCall) -> Self
    where
        S: Service<ToolCall, Future = F> + Clone,
        G: Gate<S::Response, Ticket = T>,
        T: Ends<S::Response>,
    {
        let mut part = match gate.look(&mut call, inner.readiness()) {
            Ok(ticket) => Some(Ok(ticket)),
            Err(refusal) => {
                inner.renew();
                return Self::refused(refusal, call);
            }
        };
        match wait::begin(inner, &mut call, &mut Of(own(&mut part))) {
            Ok(None) => {
                call.release();
                let wrap = |sent| Self { sent, wait: None };
                Sent::call(&mut inner.svc, call, &mut part, wrap)
            }
            Ok(Some(wait)) => Self::waits(wait, call, part),
            Err(error) => Self::refused(error, call),
        }
    }
}

impl<S, T> Future for Flow<S, S::Future, T>
where
    S: Service<ToolCall> + Clone,
    S::Error: Into<ToolError>,
    T: Ends<S::Response>,
{
    type Output = Result<S::Response, ToolError>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        if this.wait.is_some()
            && let Err(end) = ready!(poll_wait(this.sent.as_mut(), this.wait, cx))
        {
            return Poll::Ready(end);
        }
        this.sent.poll(cx)
    }
}

/// Ready once the call is sent, or with its end if it is not. Outlined, so that a call that is sent
/// immediately does not pay for it.
#[inline(never)]
fn poll_wait<S, T>(
    sent: Pin<&mut Sent<S::Future, T>>,
    waiting: &mut Option<Box<Wait<S>>>,
    cx: &mut Context<'_>,
) -> Poll<Result<(), End<S::Response>>>
where
    S: Service<ToolCall> + Clone,
    S::Error: Into<ToolError>,
    T: Ends<S::Response>,
{
    let (mut fut, flight) = sent.parts();
    let wait = waiting.as_mut().expect("there until the call is sent");
    let sent = ready!(wait.poll(&mut Of(flight.ticket_mut()), cx))
        .map(|(svc, call)| fut.set(Some(flight.send(call, |call| svc.call(call)))));
    // Drops the service that was waited for, with its reservation for a call that is not sent.
    *waiting = None;
    if sent.is_err() {
        flight.give_up();
    }
    Poll::Ready(sent)
}

impl<S, F, T: Ticket> fmt::Debug for Flow<S, F, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.wait {
            Some(wait) => f.write_str(wait.state()),
            None => self.sent.fmt(f),
        }
    }
}
