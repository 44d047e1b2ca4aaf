use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use pin_project_lite::pin_project;
use tokio::time::Instant;
use tower_service::Service;

use super::{Ends, Gate, Step, Ticket, in_flight::InFlight, sent::Sent};
use crate::{
    call::ToolCall,
    error::ToolError,
    kit::{
        preparing::{self, Preparing, Unprepared, WaitLimit},
        ready::{Prepared, Taken},
    },
};

pin_project! {
    /// A call on its way through a [`Gated`](super::Gated) service: the future of its response.
    #[must_use = "futures do nothing unless polled"]
    pub struct Flow<S, F, T: Ticket> {
        #[pin]
        sent: Sent<F, T>,
        // Waiting to be sent. Boxed, because few calls wait and all futures would carry the size.
        wait: Option<Pin<Box<Wait<S>>>>,
    }
}

pin_project! {
    #[project = WaitProj]
    enum Wait<S> {
        // For the inner service, with the tokens or places that the call has already taken.
        Preparing { #[pin] preparing: Preparing<S>, call: Option<ToolCall> },
        // For the call's turn, without a reservation of the inner service.
        Turn { parts: Option<(S, ToolCall)>, #[pin] limit: WaitLimit, since: Instant },
    }
}

impl<S, F, T: Ticket> Flow<S, F, T> {
    #[cold]
    fn refused(error: ToolError) -> Self {
        Self {
            sent: Sent::unsent(Some(error), None),
            wait: None,
        }
    }

    #[cold]
    fn waits(wait: Wait<S>, ticket: T) -> Self {
        Self {
            sent: Sent::unsent(None, Some(ticket)),
            wait: Some(Box::pin(wait)),
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
        G: Gate<S::Response, Ticket = T>,
        T: Ends<S::Response>,
    {
        let mut ticket = match gate.look(&mut call, inner.readiness()) {
            Ok(ticket) => ticket,
            Err(refusal) => {
                inner.renew();
                return wrap(Self::refused(refusal.for_call(&call.info())));
            }
        };
        if let Step::Wait = ticket.arrive() {
            inner.renew();
            return wrap(Self::waits(Wait::turn(inner.svc.clone(), call), ticket));
        }
        let unsent = match inner.take() {
            Taken::Ready => match ticket.admit(&mut call) {
                Ok(Step::Go) => {
                    call.release();
                    let wrap = |sent| wrap(Self { sent, wait: None });
                    return Sent::call(inner.get(), call, ticket, wrap);
                }
                Ok(Step::Wait) => {
                    inner.renew();
                    Self::waits(Wait::turn(inner.svc.clone(), call), ticket)
                }
                Err(refusal) => {
                    inner.renew();
                    Self::refused(refusal.for_call(ticket.info()))
                }
            },
            Taken::Wait(svc) => Self::waits(Wait::preparing(svc, call), ticket),
            Taken::Failed(error) => {
                let error = error.for_call(ticket.info());
                let error = ticket.not_ready(&call, error);
                Self::refused(error.for_call(ticket.info()))
            }
        };
        wrap(unsent)
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
    fn turn(svc: S, call: ToolCall) -> Self {
        Self::Turn {
            limit: WaitLimit::of(&call),
            parts: Some((svc, call)),
            since: Instant::now(),
        }
    }
}

/// The end of a call that is not sent.
type End<Res> = Result<Res, ToolError>;

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
    waiting: &mut Option<Pin<Box<Wait<S>>>>,
    cx: &mut Context<'_>,
) -> Poll<Result<(), End<S::Response>>>
where
    S: Service<ToolCall> + Clone,
    S::Error: Into<ToolError>,
    T: Ends<S::Response>,
{
    let (mut fut, flight) = sent.parts();
    let mut turns = 0;
    let end = loop {
        let wait = waiting.as_mut().expect("polled after completion");
        let next = match wait.as_mut().project() {
            WaitProj::Preparing { preparing, call } => {
                let ready = ready!(preparing.poll(cx));
                let call = call.take().expect("polled after completion");
                send_when(ready, call, fut.as_mut(), flight)
            }
            WaitProj::Turn {
                parts,
                limit,
                since,
            } => {
                let ticket = flight.ticket_mut();
                let (_, call) = parts.as_mut().expect("polled after completion");
                let turn = match poll_turn(ticket, call, &mut turns, cx) {
                    Poll::Ready(turn) => turn,
                    Poll::Pending => {
                        let why = ready!(limit.poll(cx));
                        Err(ticket.gave_up(why.error(), Step::Wait))
                    }
                };
                ticket.waited(since.elapsed());
                let (mut svc, call) = parts.take().expect("polled after completion");
                match turn {
                    Ok(None) => match preparing::poll_once(&mut svc, &call, cx) {
                        Poll::Ready(ready) => {
                            send_when(ready.map(|()| &mut svc), call, fut.as_mut(), flight)
                        }
                        Poll::Pending => Ok(Some(Wait::preparing(svc, call))),
                    },
                    Ok(Some(answer)) => Err(Ok(answer)),
                    Err(error) => Err(Err(error.for_call(ticket.info()))),
                }
            }
        };
        match next {
            Ok(Some(next)) => wait.set(next),
            Ok(None) => break Ok(()),
            Err(end) => break Err(end),
        }
    };
    // Drops the service that was waited for, with its reservation for a call that is not sent.
    *waiting = None;
    if end.is_err() {
        flight.give_up();
    }
    Poll::Ready(end)
}

/// Polls for the turn of a call, at most twice in one poll: another call may take what the first
/// turn was waited for. So a turn that is ready and changes nothing does not occupy the thread.
fn poll_turn<T: Ends<Res>, Res>(
    ticket: &mut T,
    call: &mut ToolCall,
    turns: &mut u32,
    cx: &mut Context<'_>,
) -> Poll<Result<Option<Res>, ToolError>> {
    *turns += 1;
    if *turns > 2 {
        cx.waker().wake_by_ref();
        return Poll::Pending;
    }
    ticket.poll_turn(call, cx)
}

/// Sends a call whose service was waited for, unless it is refused now or has to wait for its turn.
fn send_when<S, T>(
    ready: Result<&mut S, Unprepared>,
    mut call: ToolCall,
    mut fut: Pin<&mut Option<S::Future>>,
    flight: &mut InFlight<T>,
) -> Result<Option<Wait<S>>, End<S::Response>>
where
    S: Service<ToolCall> + Clone,
    S::Error: Into<ToolError>,
    T: Ends<S::Response>,
{
    let ticket = flight.ticket_mut();
    let info = ticket.info().clone();
    let refused = match ready {
        Ok(svc) => match ticket.admit(&mut call) {
            Ok(Step::Go) => {
                let sent = flight.send(call, |call| svc.call(call));
                fut.set(Some(sent));
                return Ok(None);
            }
            // A clone: nothing stays reserved while the call waits.
            Ok(Step::Wait) => return Ok(Some(Wait::turn(svc.clone(), call))),
            Err(refusal) => refusal,
        },
        Err(Unprepared::GivenUp(why)) => ticket.gave_up(why.error(), Step::Go),
        Err(Unprepared::Failed(error)) => {
            let error = error.for_call(&info);
            ticket.not_ready(&call, error)
        }
    };
    Err(Err(refused.for_call(&info)))
}

impl<S, F, T: Ticket> fmt::Debug for Flow<S, F, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.wait.as_deref() {
            Some(Wait::Preparing { .. }) => "Preparing",
            Some(Wait::Turn { .. }) => "Waiting",
            None => return self.sent.fmt(f),
        })
    }
}
