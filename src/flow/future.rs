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
        #[pin]
        state: State<S, F>,
        flight: InFlight<Ticketed<T>>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<S, F> {
        // Waiting for the inner service, with what the call has already taken.
        Preparing { #[pin] preparing: Preparing<S>, call: Option<ToolCall> },
        // Waiting for its turn, without a reservation of the inner service.
        Waiting { parts: Option<(S, ToolCall)>, #[pin] limit: WaitLimit, since: Instant },
        // Waiting for the response.
        Called { #[pin] fut: Option<F> },
        // Refused, or the inner service failed to become ready.
        Refused { error: Option<ToolError> },
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
    pub(crate) fn refused(error: ToolError) -> Self {
        Self {
            state: State::refused(error),
            flight: InFlight::unsent(None),
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
            return wrap(Self::wait(inner.svc.clone(), call, ticket));
        }
        let unsent = match inner.take() {
            Taken::Ready => match ticket.admit(&mut call) {
                Ok(Step::Go) => return Self::call(inner.get(), call, ticket, wrap),
                Ok(Step::Wait) => {
                    inner.renew();
                    Self::wait(inner.svc.clone(), call, ticket)
                }
                Err(refusal) => {
                    inner.renew();
                    Self::refused(refusal.for_call(ticket.info()))
                }
            },
            Taken::Wait(svc) => Self {
                state: State::preparing(svc, call),
                flight: InFlight::unsent(Some(Ticketed(ticket))),
            },
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
        let mut beginning = Beginning::new(Ticketed(ticket), call.trusted_deadline());
        call_in_place(svc, call, |fut| {
            wrap(Self {
                state: State::Called { fut: Some(fut) },
                flight: beginning.begun(),
            })
        })
    }

    /// `svc` has nothing reserved.
    #[cold]
    fn wait<Res>(svc: S, call: ToolCall, ticket: T) -> Self
    where
        T: Ends<Res>,
    {
        Self {
            state: State::waiting(svc, call),
            flight: InFlight::unsent(Some(Ticketed(ticket))),
        }
    }
}

impl<S, F> State<S, F> {
    fn preparing(svc: S, call: ToolCall) -> Self {
        Self::Preparing {
            preparing: Preparing::new(svc, &call),
            call: Some(call),
        }
    }

    fn waiting(svc: S, call: ToolCall) -> Self {
        Self::Waiting {
            limit: WaitLimit::of(&call),
            parts: Some((svc, call)),
            since: Instant::now(),
        }
    }

    fn refused(error: ToolError) -> Self {
        Self::Refused { error: Some(error) }
    }
}

/// The end of a call that is not sent.
type Unsent<Res> = Result<Res, ToolError>;

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
        loop {
            if let StateProj::Called { fut } = this.state.as_mut().project() {
                // Converting and judging run foreign code: a panic there is the call's.
                this.flight.begin_poll();
                let Poll::Ready(result) = inner::poll(fut, cx) else {
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
                return Poll::Ready(result);
            }
            if let Err(unsent) = ready!(poll_unsent(this.state.as_mut(), this.flight, cx)) {
                return Poll::Ready(unsent);
            }
        }
    }
}

/// Ready once the call is in its next state, or with its end if it is not sent. Outlined, so that a
/// call that is sent immediately does not pay for it.
#[inline(never)]
fn poll_unsent<S, T>(
    mut state: Pin<&mut State<S, S::Future>>,
    flight: &mut InFlight<Ticketed<T>>,
    cx: &mut Context<'_>,
) -> Poll<Result<(), Unsent<S::Response>>>
where
    S: Service<ToolCall> + Clone,
    S::Error: Into<ToolError>,
    T: Ends<S::Response>,
{
    let next = match state.as_mut().project() {
        StateProj::Called { .. } => return Poll::Ready(Ok(())),
        StateProj::Refused { error } => Err(Err(error.take().expect("polled after completion"))),
        StateProj::Preparing { preparing, call } => {
            let ready = ready!(preparing.poll(cx));
            let call = call.take().expect("polled after completion");
            send_when(ready, call, flight)
        }
        StateProj::Waiting {
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
                    Poll::Ready(ready) => send_when(ready.map(|()| &mut svc), call, flight),
                    Poll::Pending => Ok(State::preparing(svc, call)),
                },
                Ok(Some(answer)) => Err(Ok(answer)),
                Err(error) => Err(Err(error.for_call(ticket.info()))),
            }
        }
    };
    // Drops the service that was waited for, with its reservation for a call that is not sent.
    Poll::Ready(match next {
        Ok(next) => {
            state.set(next);
            Ok(())
        }
        Err(unsent) => {
            state.set(State::Refused { error: None });
            flight.give_up();
            Err(unsent)
        }
    })
}

/// Sends a call whose service was waited for, unless it is refused now or has to wait for its turn.
fn send_when<S, T>(
    ready: Result<&mut S, Unprepared>,
    mut call: ToolCall,
    flight: &mut InFlight<Ticketed<T>>,
) -> Result<State<S, S::Future>, Unsent<S::Response>>
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
                let fut = flight.send(call.trusted_deadline(), || svc.call(call));
                return Ok(State::Called { fut: Some(fut) });
            }
            // A clone: nothing stays reserved while the call waits.
            Ok(Step::Wait) => return Ok(State::waiting(svc.clone(), call)),
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
        f.write_str(match &self.state {
            State::Preparing { .. } => "Preparing",
            State::Waiting { .. } => "Waiting",
            State::Called { .. } => "Called",
            State::Refused { .. } => "Refused",
        })
    }
}
