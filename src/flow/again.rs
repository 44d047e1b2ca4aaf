//! The way of a call that its layer may send again.
//!
//! As in a [`Flow`](super::Flow), a call that waits for its turn holds no reservation of the inner
//! service, and each wait ends at the call's deadline and at its caller's cancellation. Nothing is
//! reported while a call runs.

use std::{
    fmt,
    future::Future,
    mem,
    pin::Pin,
    task::{Context, Poll, ready},
};

use pin_project_lite::pin_project;
use tower_service::Service;

pub(crate) use super::wait::{Before, Way};
use super::{
    ready::Prepared,
    refusal::Refusal,
    wait::{self, End, Wait},
};
use crate::{
    call::ToolCall,
    error::ToolError,
    kit::{
        attempts::Template,
        inner::{self, call_in_place},
        lane::Spread,
    },
};

/// The decisions of a layer about calls that arrive: its settings.
pub trait Enter<S: Service<ToolCall>>: Sized {
    /// The part of one call, from its arrival to its end.
    type Ticket: Again<S>;

    /// Set if the layer is ready when the inner service is. Then it does not decide about the first
    /// attempt. Default: the layer is always ready.
    const PASSES: bool = false;

    /// Looks at a call that has just arrived. Changes it, or refuses it.
    fn enter(shared: &Shared<S, Self>, call: &mut ToolCall) -> Result<Self::Ticket, ToolError>;
}

/// The part of one call in a layer that may send it again.
pub trait Again<S: Service<ToolCall>>: Before<S> {
    /// Ends an attempt that has no result yet. Ready with the error of the call.
    fn poll_end(&mut self, _cx: &mut Context<'_>) -> Poll<ToolError> {
        Poll::Pending
    }

    /// Decides whether the call is sent again after a result. An error has no names yet.
    fn again(&mut self, result: Result<S::Response, ToolError>) -> After<S, S::Response>;
}

/// The step after an attempt.
#[derive(Debug)]
pub enum After<S, Res> {
    /// A further attempt.
    Again(S, ToolCall, Way),
    /// The result of the call. An error has the names of the call.
    End(Result<Res, ToolError>),
}

/// The state that the services of a layer share: its settings, and an instance of the inner service
/// to clone.
pub(crate) type Shared<S, G> = Spread<Template<S, G>>;

/// The service of a layer that repeats calls.
#[derive(Clone)]
pub struct Repeats<S, G> {
    inner: Prepared<S>,
    shared: Shared<S, G>,
}

impl<S: Clone, G> Repeats<S, G> {
    pub(crate) fn new(inner: S, gate: G) -> Self {
        let shared = Spread::new(Template::new(inner.clone(), gate));
        let inner = Prepared::new(inner);
        Self { inner, shared }
    }
}

inner::accessors!(@kept {S, G} Repeats<S, G>, inner.svc);

impl<S, G> Service<ToolCall> for Repeats<S, G>
where
    S: Service<ToolCall, Error: Into<ToolError>> + Clone,
    G: Enter<S>,
{
    type Response = S::Response;
    type Error = ToolError;
    type Future = Repeated<S, S::Future, G::Ticket>;

    #[inline]
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ToolError>> {
        if G::PASSES {
            return self.inner.svc.poll_ready(cx).map_err(Into::into);
        }
        self.inner.poll(cx);
        Poll::Ready(Ok(()))
    }

    #[inline(never)]
    fn call(&mut self, mut call: ToolCall) -> Self::Future {
        match G::enter(&self.shared, &mut call) {
            Ok(ticket) => Repeated::send(&mut self.inner, call, ticket, G::PASSES, |sent| sent),
            Err(refusal) => {
                self.inner.renew();
                Repeated::refused(refusal, call)
            }
        }
    }
}

crate::text::debug_fields! {
    {S: fmt::Debug, G: fmt::Debug} |this| Repeats<S, G> {
        settings: this.shared.settings,
        inner: this.inner.svc,
    }
}

pin_project! {
    /// The response future of a layer that repeats calls.
    #[project(!Unpin)]
    #[repr(C)]
    #[must_use = "futures do nothing unless polled"]
    pub struct Repeated<S, F, T> {
        // Waiting for the response. No variant of an enum, and in this order: else it would be
        // copied to its place, as in `Sent`.
        #[pin]
        fut: Option<F>,
        // Waiting to be sent. Boxed, because few calls wait and all futures would carry the size.
        wait: Option<Box<Wait<S>>>,
        // A refused call has no ticket. The ticket of a sent call stays after its end.
        pub(crate) ticket: Result<T, Refusal>,
    }
}

impl<S, F, T> Repeated<S, F, T> {
    /// Decides about a call and sends it, unless it has to wait. If it `passes`, the service is
    /// ready and nothing is decided.
    ///
    /// `wrap` makes the layer's own future around this one; it neither panics nor owns anything.
    #[inline]
    pub(crate) fn send<R>(
        inner: &mut Prepared<S>,
        mut call: ToolCall,
        ticket: T,
        passes: bool,
        wrap: impl FnOnce(Self) -> R,
    ) -> R
    where
        S: Service<ToolCall, Future = F> + Clone,
        T: Before<S>,
    {
        let mut ticket = Ok(ticket);
        let begun = match &mut ticket {
            Ok(ticket) if !passes => wait::begin(inner, &mut call, ticket),
            _ => Ok(None),
        };
        match begun {
            Ok(None) => {
                call.release();
                call_in_place(&mut inner.svc, call, |fut| {
                    wrap(Self {
                        fut: Some(fut),
                        wait: None,
                        ticket: mem::replace(&mut ticket, Err(Refusal::default())),
                    })
                })
            }
            Ok(Some(wait)) => wrap(Self::waits(wait, call, ticket)),
            Err(error) => wrap(Self::refused(error, call)),
        }
    }

    #[cold]
    fn refused(error: ToolError, call: ToolCall) -> Self {
        Self {
            fut: None,
            wait: None,
            ticket: Err(Refusal::new(error, &call)),
        }
    }

    #[cold]
    fn waits(wait: (S, Way), call: ToolCall, ticket: Result<T, Refusal>) -> Self {
        Self {
            fut: None,
            wait: Some(Box::new(Wait::new(wait, call))),
            ticket,
        }
    }
}

impl<S, T> Future for Repeated<S, S::Future, T>
where
    S: Service<ToolCall> + Clone,
    S::Error: Into<ToolError>,
    T: Again<S>,
{
    type Output = Result<S::Response, ToolError>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            if this.fut.is_none() {
                if let Err(refusal) = this.ticket {
                    return Poll::Ready(Err(refusal.take()));
                }
                let wait = this.wait.as_mut().expect("polled after completion");
                let sent = ready!(poll_wait(this.fut.as_mut(), wait, this.ticket, cx));
                // Drops the service that was waited for, with its reservation.
                *this.wait = None;
                if let Err(end) = sent {
                    return Poll::Ready(end);
                }
            }
            let ended = inner::poll(this.fut.as_mut(), cx);
            let ticket = this.ticket.as_mut().expect("there until the end");
            let after = match ended {
                Poll::Ready(result) => ticket.again(result.map_err(Into::into)),
                Poll::Pending => {
                    let error = ready!(ticket.poll_end(cx));
                    this.fut.set(None);
                    After::End(Err(error))
                }
            };
            let (svc, call, way) = match after {
                After::Again(svc, call, way) => (svc, call, way),
                After::End(result) => return Poll::Ready(result),
            };
            // Not boxed before it has to wait.
            let mut wait = Wait::new((svc, way), call);
            match poll_wait(this.fut.as_mut(), &mut wait, this.ticket, cx) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(end)) => return Poll::Ready(end),
                Poll::Pending => {
                    *this.wait = Some(Box::new(wait));
                    return Poll::Pending;
                }
            }
        }
    }
}

/// Ready once the call is sent, or with its end if it is not. Outlined, so that a call that is sent
/// immediately does not pay for it.
#[inline(never)]
fn poll_wait<S, T>(
    mut fut: Pin<&mut Option<S::Future>>,
    wait: &mut Wait<S>,
    ticket: &mut Result<T, Refusal>,
    cx: &mut Context<'_>,
) -> Poll<Result<(), End<S::Response>>>
where
    S: Service<ToolCall> + Clone,
    S::Error: Into<ToolError>,
    T: Again<S>,
{
    let own = ticket.as_mut().expect("there until the end");
    let sent = ready!(wait.poll(own, cx)).map(|(svc, call)| fut.set(Some(svc.call(call))));
    if sent.is_err() {
        *ticket = Err(Refusal::default());
    }
    Poll::Ready(sent)
}

impl<S, F, T> fmt::Debug for Repeated<S, F, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match &self.wait {
            Some(wait) => wait.state(),
            None if self.fut.is_some() => "Called",
            None => "Refused",
        };
        let mut debug = f.debug_struct("Repeated");
        let debug = debug.field("state", &format_args!("{state}"));
        debug.finish_non_exhaustive()
    }
}
