use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use pin_project_lite::pin_project;
use tokio::time::Instant;
use tower_service::Service;

use super::{Ends, Gate, Step, Ticket};
use crate::{
    call::ToolCall,
    error::ToolError,
    kit::{
        in_flight::{Abandoned, Beginning, InFlight, Report},
        inner::{self, call_in_place},
        preparing::{self, Preparing, Unprepared, WaitLimit},
        ready::{Prepared, Taken},
    },
};

pin_project! {
    /// A call on its way.
    pub(crate) struct Flow<S, F, T: Ticket> {
        // Waiting for the response. No variant of an enum, and beside pointers alone: else it would be
        // copied to its place.
        #[pin]
        fut: Option<F>,
        // Waiting to be sent. Boxed, because few calls wait and all futures would carry the size.
        wait: Option<Pin<Box<Wait<S>>>>,
        // Refused, or the inner service failed to become ready.
        refused: Option<ToolError>,
        flight: InFlight<Ticketed<T>>,
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

/// Reports by a ticket.
pub(crate) struct Ticketed<T>(T);

impl<T: Ticket> Report for Ticketed<T> {
    fn abandoned(mut self, how: Abandoned) {
        self.0.dropped(how);
    }

    fn panicked(mut self) {
        self.0.panicked();
    }
}

impl<S, F, T: Ticket> Flow<S, F, T> {
    #[cold]
    fn refused(error: ToolError) -> Self {
        Self {
            fut: None,
            wait: None,
            refused: Some(error),
            flight: InFlight::unsent(None),
        }
    }

    #[cold]
    fn waits(wait: Wait<S>, ticket: T) -> Self {
        Self {
            fut: None,
            wait: Some(Box::pin(wait)),
            refused: None,
            flight: InFlight::unsent(Some(Ticketed(ticket))),
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
                Ok(Step::Go) => return Self::call(inner.get(), call, ticket, wrap),
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
                Self::refused(ticket.not_ready(&call, error))
            }
        };
        wrap(unsent)
    }

    #[inline]
    fn call<R>(svc: &mut S, call: ToolCall, ticket: T, wrap: impl FnOnce(Self) -> R) -> R
    where
        S: Service<ToolCall, Future = F>,
    {
        call.release();
        let mut beginning = Beginning::new(Ticketed(ticket), call.trusted_deadline());
        call_in_place(svc, call, |fut| {
            wrap(Self {
                fut: Some(fut),
                wait: None,
                refused: None,
                flight: beginning.begun(),
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
        if this.fut.is_none() {
            if let Some(error) = this.refused.take() {
                return Poll::Ready(Err(error));
            }
            let sent = ready!(poll_wait(this.fut.as_mut(), this.wait, this.flight, cx));
            if let Err(end) = sent {
                return Poll::Ready(end);
            }
        }
        // Converting and judging run foreign code: a panic there is the call's.
        this.flight.begin_poll();
        let Poll::Ready(result) = inner::poll(this.fut, cx) else {
            this.flight.wait();
            return Poll::Pending;
        };
        let Ticketed(ticket) = this.flight.report();
        // Written once, where the caller expects it.
        let mut result = result.map_err(|e| e.into().for_call(ticket.info()));
        let class = ticket.judge(&result);
        let since = this.flight.since();
        this.flight
            .finish(|Ticketed(ticket)| ticket.ended(&mut result, class, since));
        Poll::Ready(result)
    }
}

/// Ready once the call is sent, or with its end if it is not. Outlined, so that a call that is sent
/// immediately does not pay for it.
#[inline(never)]
fn poll_wait<S, T>(
    mut fut: Pin<&mut Option<S::Future>>,
    waiting: &mut Option<Pin<Box<Wait<S>>>>,
    flight: &mut InFlight<Ticketed<T>>,
    cx: &mut Context<'_>,
) -> Poll<Result<(), End<S::Response>>>
where
    S: Service<ToolCall> + Clone,
    S::Error: Into<ToolError>,
    T: Ends<S::Response>,
{
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
                let ticket = &mut flight.reporter_mut().expect("there until the end").0;
                let (_, call) = parts.as_mut().expect("polled after completion");
                let turn = match ticket.poll_turn(call, cx) {
                    Poll::Ready(turn) => turn,
                    Poll::Pending => {
                        let why = ready!(limit.poll(cx));
                        Err(ticket.gave_up(why.error()))
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
            Ok(None) => {
                *waiting = None;
                return Poll::Ready(Ok(()));
            }
            Err(end) => break end,
        }
    };
    // Drops the service that was waited for, with its reservation for a call that is not sent.
    *waiting = None;
    flight.give_up();
    Poll::Ready(Err(end))
}

/// Sends a call whose service was waited for, unless it is refused now or has to wait for its turn.
fn send_when<S, T>(
    ready: Result<&mut S, Unprepared>,
    mut call: ToolCall,
    mut fut: Pin<&mut Option<S::Future>>,
    flight: &mut InFlight<Ticketed<T>>,
) -> Result<Option<Wait<S>>, End<S::Response>>
where
    S: Service<ToolCall> + Clone,
    S::Error: Into<ToolError>,
    T: Ends<S::Response>,
{
    let ticket = &mut flight.reporter_mut().expect("there until the end").0;
    let info = ticket.info().clone();
    let refused = match ready {
        Ok(svc) => match ticket.admit(&mut call) {
            Ok(Step::Go) => {
                let sent = flight.send(call.trusted_deadline(), || svc.call(call));
                fut.set(Some(sent));
                return Ok(None);
            }
            // A clone: nothing stays reserved while the call waits.
            Ok(Step::Wait) => return Ok(Some(Wait::turn(svc.clone(), call))),
            Err(refusal) => refusal,
        },
        Err(Unprepared::GivenUp(why)) => why.error(),
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
            None if self.fut.is_some() => "Called",
            None => "Refused",
        })
    }
}
