//! The way of a call that its layer may send again.
//!
//! As in a [`Flow`](super::Flow), a call that waits for its turn holds no reservation of the inner
//! service, and each wait ends at the call's deadline and at its caller's cancellation. Nothing is
//! reported while a call runs.

use std::{
    fmt,
    future::Future,
    mem::ManuallyDrop,
    pin::Pin,
    task::{Context, Poll, ready},
};

use pin_project_lite::pin_project;
use tokio::time::Instant;
use tower_service::Service;

use crate::{
    call::ToolCall,
    error::ToolError,
    kit::{
        inner::{self, call_in_place},
        preparing::{self, Preparing, Unprepared, WaitLimit},
        ready::{Prepared, Taken},
        timer::Timer,
    },
};

/// The decisions of a layer about calls that arrive.
pub(crate) trait Enter<S: Service<ToolCall>> {
    type Ticket: Again<S>;

    /// Looks at a call that has just arrived. Changes it, or refuses it.
    fn enter(&self, call: &mut ToolCall) -> Result<Self::Ticket, ToolError>;
}

/// The part of one call in a layer that may send it again.
pub(crate) trait Again<S: Service<ToolCall>> {
    /// Adds the names of the call to its error.
    fn stamp(&self, error: ToolError) -> ToolError;

    /// Decides whether a call waits before the inner service is asked whether it is ready, or
    /// refuses it. Follows each [`Way::Until`] as well. If the service is ready,
    /// [`admit`](Self::admit) follows immediately.
    fn arrive(&mut self, _call: &ToolCall, _is_ready: bool) -> Result<Way, ToolError> {
        Ok(Way::Go)
    }

    /// Admits an attempt whose inner service is ready, refuses it, or lets it wait.
    fn admit(&mut self, _call: &mut ToolCall) -> Result<Way, ToolError> {
        Ok(Way::Go)
    }

    /// Waits for the turn of a call, after [`Way::Wait`].
    fn poll_turn(
        &mut self,
        _call: &mut ToolCall,
        _cx: &mut Context<'_>,
    ) -> Poll<Result<(), ToolError>> {
        Poll::Ready(Ok(()))
    }

    /// Returns the error of a call that was given up before an attempt.
    fn gave_up(&mut self, error: ToolError) -> ToolError {
        error
    }

    /// Returns the error of a call whose inner service failed to become ready, or lets the call
    /// wait and try again with another instance.
    fn not_ready(&mut self, _call: &mut ToolCall, error: ToolError) -> Result<(S, Way), ToolError> {
        Err(error)
    }

    /// Ends an attempt that has no result yet. Ready with the error of the call.
    fn poll_end(&mut self, _cx: &mut Context<'_>) -> Poll<ToolError> {
        Poll::Pending
    }

    /// Decides whether the call is sent again after a result. An error has no names yet.
    fn again(&mut self, result: Result<S::Response, ToolError>) -> After<S, S::Response>;
}

/// The way of a call to its next attempt.
pub(crate) enum Way {
    /// It is sent, or waits until the inner service is ready for it.
    Go,
    /// It waits for its turn: [`Again::poll_turn`].
    Wait,
    /// Its turn comes then.
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
}

/// The step after an attempt.
pub(crate) enum After<S, Res> {
    /// A further attempt.
    Again(S, ToolCall, Way),
    /// The result of the call. An error has the names of the call.
    End(Result<Res, ToolError>),
}

pin_project! {
    /// A call on its way.
    #[repr(C)]
    pub(crate) struct Repeated<S, F, T> {
        // Waiting for the response. No variant of an enum, and in this order: else it would be
        // copied to its place, as in `Sent`.
        #[pin]
        fut: Option<F>,
        // Waiting to be sent. Boxed, because few calls wait and all futures would carry the size.
        wait: Option<Pin<Box<Wait<S>>>>,
        // Refused, or the inner service failed to become ready.
        refused: Option<ToolError>,
        ticket: Option<T>,
    }
}

pin_project! {
    #[project = WaitProj]
    enum Wait<S> {
        // For the inner service.
        Preparing { #[pin] preparing: Preparing<S>, call: Option<ToolCall> },
        // For the call's turn, without a reservation of the inner service: for a moment, or for
        // the layer.
        Turn {
            parts: Option<(S, ToolCall)>,
            #[pin]
            limit: WaitLimit,
            due: Option<(Instant, Timer)>,
        },
    }
}

/// A call that is decided about. Its drop is outlined, because few calls are not sent.
pub(crate) struct Arrival<T>(ManuallyDrop<Option<T>>);

impl<T> Arrival<T> {
    #[inline]
    pub(crate) fn new(ticket: T) -> Self {
        Self(ManuallyDrop::new(Some(ticket)))
    }
}

impl<T> Drop for Arrival<T> {
    #[inline]
    fn drop(&mut self) {
        #[cold]
        fn end<T>(ticket: T) {
            drop(ticket);
        }
        if let Some(ticket) = self.0.take() {
            end(ticket);
        }
    }
}

impl<S, F, T> Repeated<S, F, T> {
    #[cold]
    pub(crate) fn refused(error: ToolError) -> Self {
        Self {
            fut: None,
            wait: None,
            refused: Some(error),
            ticket: None,
        }
    }

    #[cold]
    fn waits(wait: Wait<S>, mut arrival: Arrival<T>) -> Self {
        Self {
            fut: None,
            wait: Some(Box::pin(wait)),
            refused: None,
            ticket: arrival.0.take(),
        }
    }

    /// Decides about a call and sends it. `wrap` makes the layer's own future around this one; it
    /// neither panics nor owns anything.
    #[inline]
    pub(crate) fn send<G, R>(
        inner: &mut Prepared<S>,
        gate: &G,
        mut call: ToolCall,
        wrap: impl FnOnce(Self) -> R,
    ) -> R
    where
        S: Service<ToolCall, Future = F> + Clone,
        G: Enter<S, Ticket = T>,
        T: Again<S>,
    {
        let mut arrival = match gate.enter(&mut call) {
            Ok(ticket) => Arrival::new(ticket),
            Err(refusal) => {
                inner.renew();
                return wrap(Self::refused(refusal.for_call(&call.info())));
            }
        };
        let ticket = arrival.0.as_mut().expect("there until it is sent");
        let way = match ticket.arrive(&call, inner.readiness().is_yes()) {
            Ok(Way::Go) => match inner.take() {
                Taken::Ready => match ticket.admit(&mut call) {
                    Ok(Way::Go) => return Self::call(inner.get(), call, &mut arrival, wrap),
                    way => way.map(|way| (None, way)),
                },
                Taken::Wait(svc) => return wrap(Self::waits(Wait::preparing(svc, call), arrival)),
                Taken::Failed(error) => {
                    let error = ticket.stamp(error);
                    let way = ticket.not_ready(&mut call, error);
                    way.map(|(svc, way)| (Some(svc), way))
                }
            },
            way => way.map(|way| (None, way)),
        };
        inner.renew();
        wrap(match way {
            Ok((svc, way)) => {
                let svc = svc.unwrap_or_else(|| inner.svc.clone());
                Self::waits(Wait::turn(svc, call, way), arrival)
            }
            Err(error) => Self::refused(ticket.stamp(error)),
        })
    }

    /// Sends a call to a service that is ready for it.
    #[inline]
    pub(crate) fn call<R>(
        svc: &mut S,
        call: ToolCall,
        arrival: &mut Arrival<T>,
        wrap: impl FnOnce(Self) -> R,
    ) -> R
    where
        S: Service<ToolCall, Future = F>,
    {
        call.release();
        call_in_place(svc, call, |fut| {
            wrap(Self {
                fut: Some(fut),
                wait: None,
                refused: None,
                ticket: arrival.0.take(),
            })
        })
    }
}

impl<S> Wait<S> {
    fn preparing(svc: S, call: ToolCall) -> Self {
        Self::Preparing {
            preparing: Preparing::new(svc, &call),
            call: Some(call),
        }
    }

    /// `svc` has nothing reserved.
    fn turn(svc: S, call: ToolCall, way: Way) -> Self {
        Self::Turn {
            limit: WaitLimit::of(&call),
            parts: Some((svc, call)),
            due: match way {
                Way::Until(at) => Some((at, Timer::default())),
                Way::Wait | Way::Go => None,
            },
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
                if let Some(error) = this.refused.take() {
                    return Poll::Ready(Err(error));
                }
                let sent = ready!(poll_wait(this.fut.as_mut(), this.wait, this.ticket, cx));
                if let Err(error) = sent {
                    return Poll::Ready(Err(error));
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
            let next = match way {
                Way::Go => make_ready(svc, call, this.fut.as_mut(), ticket, cx),
                way => Ok(Some(Wait::turn(svc, call, way))),
            };
            match next {
                Ok(next) => *this.wait = next.map(Box::pin),
                Err(error) => {
                    *this.ticket = None;
                    return Poll::Ready(Err(error));
                }
            }
        }
    }
}

/// Ready once the call is sent, or with its error if it is not. Outlined, so that a call that is
/// sent immediately does not pay for it.
#[inline(never)]
fn poll_wait<S, T>(
    mut fut: Pin<&mut Option<S::Future>>,
    waiting: &mut Option<Pin<Box<Wait<S>>>>,
    ticket: &mut Option<T>,
    cx: &mut Context<'_>,
) -> Poll<Result<(), ToolError>>
where
    S: Service<ToolCall> + Clone,
    S::Error: Into<ToolError>,
    T: Again<S>,
{
    let sent = loop {
        let wait = waiting.as_mut().expect("polled after completion");
        let own = ticket.as_mut().expect("there until the end");
        let next = match wait.as_mut().project() {
            WaitProj::Preparing {
                mut preparing,
                call,
            } => {
                let ready = ready!(preparing.as_mut().poll(cx)).map(|_| ());
                let call = call.take().expect("polled after completion");
                send_when((preparing.service(), ready), call, fut.as_mut(), own)
            }
            WaitProj::Turn { parts, limit, due } => {
                let (_, call) = parts.as_mut().expect("polled after completion");
                let polled = match due {
                    Some((at, timer)) => {
                        let over = timer.poll(cx, || Some(*at));
                        over.map(|()| own.arrive(call, false))
                    }
                    None => own.poll_turn(call, cx).map_ok(|()| Way::Go),
                };
                let turn = match polled {
                    Poll::Ready(turn) => turn,
                    Poll::Pending => {
                        let why = ready!(limit.poll(cx));
                        Err(own.gave_up(why.error()))
                    }
                };
                let (svc, call) = parts.take().expect("polled after completion");
                match turn {
                    Ok(Way::Go) => make_ready(svc, call, fut.as_mut(), own, cx),
                    Ok(way) => Ok(Some(Wait::turn(svc, call, way))),
                    Err(error) => Err(own.stamp(error)),
                }
            }
        };
        match next {
            Ok(Some(next)) => wait.set(next),
            sent => break sent.map(|_| ()),
        }
    };
    // Drops the service that was waited for, with its reservation for a call that is not sent.
    *waiting = None;
    if sent.is_err() {
        *ticket = None;
    }
    Poll::Ready(sent)
}

/// Sends a call that has its turn, as soon as a service is ready for it.
fn make_ready<S, T>(
    mut svc: S,
    call: ToolCall,
    fut: Pin<&mut Option<S::Future>>,
    ticket: &mut T,
    cx: &mut Context<'_>,
) -> Result<Option<Wait<S>>, ToolError>
where
    S: Service<ToolCall> + Clone,
    S::Error: Into<ToolError>,
    T: Again<S>,
{
    match preparing::poll_once(&mut svc, &call, cx) {
        Poll::Ready(ready) => send_when((&mut svc, ready), call, fut, ticket),
        Poll::Pending => Ok(Some(Wait::preparing(svc, call))),
    }
}

/// Sends a call whose service was waited for, unless it is refused now or has to wait for its turn.
fn send_when<S, T>(
    (svc, ready): (&mut S, Result<(), Unprepared>),
    mut call: ToolCall,
    mut fut: Pin<&mut Option<S::Future>>,
    ticket: &mut T,
) -> Result<Option<Wait<S>>, ToolError>
where
    S: Service<ToolCall> + Clone,
    S::Error: Into<ToolError>,
    T: Again<S>,
{
    let way = match ready {
        Ok(()) => match ticket.admit(&mut call) {
            Ok(Way::Go) => {
                fut.set(Some(svc.call(call)));
                return Ok(None);
            }
            // A clone: nothing stays reserved while the call waits.
            way => way.map(|way| (svc.clone(), way)),
        },
        Err(Unprepared::GivenUp(why)) => Err(ticket.gave_up(why.error())),
        Err(Unprepared::Failed(error)) => {
            let error = ticket.stamp(error);
            ticket.not_ready(&mut call, error)
        }
    };
    match way {
        Ok((svc, way)) => Ok(Some(Wait::turn(svc, call, way))),
        Err(error) => Err(ticket.stamp(error)),
    }
}

impl<S, F, T> fmt::Debug for Repeated<S, F, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.wait.as_deref() {
            Some(Wait::Preparing { .. }) => "Preparing",
            Some(Wait::Turn { .. }) => "Waiting",
            None if self.fut.is_some() => "Called",
            None => "Refused",
        })
    }
}

/// The service and the response future of a layer that repeats calls.
macro_rules! service {
    (
        $(#[$doc:meta])*
        $Service:ident<S $(, $C:ident $(= $Default:ty)?)?>, $Gate:ty => $Ticket:ty
        $(, where {$($bounds:tt)+})?
    ) => {
        $(#[$doc])*
        #[derive(Clone)]
        pub struct $Service<S $(, $C $(= $Default)?)?> {
            inner: $crate::kit::ready::Prepared<S>,
            pub(super) gate: $Gate,
        }

        impl<S $(, $C)?> $Service<S $(, $C)?> {
            pub(super) fn new(inner: S, gate: $Gate) -> Self {
                let inner = $crate::kit::ready::Prepared::new(inner);
                Self { inner, gate }
            }
        }

        $crate::kit::inner::accessors!(@kept {S $(, $C)?} $Service<S $(, $C)?>, inner.svc);

        impl<S $(, $C)?> tower_service::Service<$crate::call::ToolCall> for $Service<S $(, $C)?>
        where
            S: tower_service::Service<$crate::call::ToolCall, Error: Into<$crate::error::ToolError>>
                + Clone,
            $($($bounds)+)?
        {
            type Response = S::Response;
            type Error = $crate::error::ToolError;
            type Future = ResponseFuture<S, S::Future $(, $C)?>;

            /// Always ready.
            #[inline]
            fn poll_ready(
                &mut self,
                cx: &mut std::task::Context<'_>,
            ) -> std::task::Poll<Result<(), Self::Error>> {
                self.inner.poll(cx);
                std::task::Poll::Ready(Ok(()))
            }

            #[inline(never)]
            fn call(&mut self, call: $crate::call::ToolCall) -> Self::Future {
                $crate::flow::again::Repeated::send(&mut self.inner, &self.gate, call, |flow| ResponseFuture {
                    flow,
                })
            }
        }

        impl<S: std::fmt::Debug $(, $C)?> std::fmt::Debug for $Service<S $(, $C)?> {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let mut debug = f.debug_struct(stringify!($Service));
                debug.field("inner", &self.inner).finish_non_exhaustive()
            }
        }

        $crate::flow::again::response_future! {
            $Service<S $(, $C)?>, $Ticket $(, where {$($bounds)+})?
        }
    };
}
pub(crate) use service;

/// The response future of a layer that repeats calls.
macro_rules! response_future {
    (
        $Service:ident<S $(, $C:ident)?>, $Ticket:ty
        $(, where {$($bounds:tt)+})?
    ) => {
        pin_project_lite::pin_project! {
            #[doc = concat!("Response future for [`", stringify!($Service), "`].")]
            #[project(!Unpin)]
            #[must_use = "futures do nothing unless polled"]
            pub struct ResponseFuture<S, F $(, $C)?> {
                #[pin]
                pub(super) flow: $crate::flow::again::Repeated<S, F, $Ticket>,
            }
        }

        impl<S $(, $C)?> std::future::Future for ResponseFuture<S, S::Future $(, $C)?>
        where
            S: tower_service::Service<$crate::call::ToolCall, Error: Into<$crate::error::ToolError>>
                + Clone,
            $($($bounds)+)?
        {
            type Output = Result<S::Response, $crate::error::ToolError>;

            #[inline]
            fn poll(
                self: std::pin::Pin<&mut Self>,
                cx: &mut std::task::Context<'_>,
            ) -> std::task::Poll<Self::Output> {
                self.project().flow.poll(cx)
            }
        }

        impl<S, F $(, $C)?> std::fmt::Debug for ResponseFuture<S, F $(, $C)?> {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let mut debug = f.debug_struct("ResponseFuture");
                debug.field("state", &self.flow).finish_non_exhaustive()
            }
        }
    };
}
pub(crate) use response_future;
