//! The attempts at one call: the engine of every layer that sends a call again.
//!
//! A layer decides on each result ([`Repeat`]). The engine drops the attempt, waits, makes a fresh service ready and sends the
//! call again; the caller's token and the call's deadline end each of these waits.

pub(crate) mod resend;

use std::{
    fmt,
    future::Future as _,
    pin::Pin,
    task::{Context, Poll, ready},
};

use pin_project_lite::pin_project;
use tokio::time::Instant;
use tower_service::Service;

pub(crate) use self::resend::{Request, Resend, Template};
use super::{
    caller::Caller,
    preparing::{self, GivenUp, Preparing, Unprepared},
    timer::Timer,
};
use crate::{
    call::{Held, ToolCall},
    error::ToolError,
};

/// What a layer decides about the attempts at a call.
pub(crate) trait Repeat<S, T, Res> {
    /// When the call is sent again after this result; `None`: it is the result of the call, as always for a refused call.
    fn decide(
        &mut self,
        request: &mut Request<S, T>,
        result: &mut Result<Res, ToolError>,
    ) -> Option<Instant>;

    /// Whether the attempt may begin: asked after its wait, and again when the service is ready for it.
    fn admit(&mut self, _: &mut Resend<S, T>) -> Next {
        Next::Send
    }

    /// When the call is sent instead, if the service failed to become ready for it; or the error of the call.
    fn not_ready(
        &mut self,
        resend: &mut Resend<S, T>,
        error: ToolError,
    ) -> Result<Instant, ToolError> {
        Err(resend.not_sent(error))
    }

    /// The next attempt is not made.
    fn abandon(&mut self) {}
}

/// Whether an attempt may begin.
pub(crate) enum Next {
    Send,
    WaitUntil(Instant),
    /// The error of the call, from [`Resend`].
    Refuse(ToolError),
}

pin_project! {
    #[project = StateProj]
    pub(crate) enum State<F, W> {
        // Waiting for the response of an attempt.
        Called { #[pin] fut: F },
        // Before an attempt.
        Before { #[pin] wait: W },
        // The inner future is gone.
        Done,
    }
}

pin_project! {
    /// The wait for an attempt.
    #[project = WaitProj]
    pub(crate) enum Wait<S> {
        // For its time, without a reservation.
        Until { held: Held, timer: Timer, #[pin] caller: Caller, at: Instant },
        // For the service to become ready.
        Preparing { #[pin] preparing: Preparing<S> },
        // None: the call was refused immediately, or its service had failed to become ready.
        Refused { error: Option<ToolError> },
    }
}

/// How a future holds a wait: in place, or boxed, if few calls wait and all would carry its size.
pub(crate) trait Hold<S>: From<Wait<S>> {
    fn wait(self: Pin<&mut Self>) -> Pin<&mut Wait<S>>;
}

impl<S> Hold<S> for Wait<S> {
    fn wait(self: Pin<&mut Self>) -> Pin<&mut Self> {
        self
    }
}

impl<S> Hold<S> for Pin<Box<Wait<S>>> {
    fn wait(self: Pin<&mut Self>) -> Pin<&mut Wait<S>> {
        self.as_deref_mut()
    }
}

impl<S> From<Wait<S>> for Pin<Box<Wait<S>>> {
    fn from(wait: Wait<S>) -> Self {
        Box::pin(wait)
    }
}

impl<F, W> State<F, W> {
    pub(crate) fn before<S>(wait: Wait<S>) -> Self
    where
        W: From<Wait<S>>,
    {
        Self::Before { wait: wait.into() }
    }
}

impl<S> Wait<S> {
    pub(crate) fn until(at: Instant, call: &ToolCall) -> Self {
        Self::Until {
            held: call.info().hold(),
            timer: Timer::default(),
            caller: Caller::of(call),
            at,
        }
    }

    pub(crate) fn preparing(svc: S, call: &ToolCall) -> Self {
        let preparing = Preparing::new(svc, call);
        Self::Preparing { preparing }
    }

    pub(crate) fn refused(error: ToolError) -> Self {
        Self::Refused { error: Some(error) }
    }
}

/// Polls the future of a call: all attempts at it.
pub(crate) fn poll<S, W, T, L>(
    mut state: Pin<&mut State<S::Future, W>>,
    request: &mut Request<S, T>,
    layer: &mut L,
    cx: &mut Context<'_>,
) -> Poll<Result<S::Response, ToolError>>
where
    S: Service<ToolCall> + Clone,
    S::Error: Into<ToolError>,
    W: Hold<S>,
    L: Repeat<S, T, S::Response>,
{
    loop {
        let next = match state.as_mut().project() {
            StateProj::Called { fut } => {
                let mut result = ready!(fut.poll(cx)).map_err(|e| request.met(e.into()));
                match (layer.decide(request, &mut result), &mut *request) {
                    (Some(until), Request::Again(resend)) => {
                        resend.end_attempt(result.err());
                        if until > Instant::now() {
                            Ok(State::before(Wait::until(until, &resend.call)))
                        } else {
                            // Drops the attempt before the next one is begun.
                            state.set(State::Done);
                            let ready = match Caller::has_cancelled(&resend.call) {
                                true => Err(Unprepared::GivenUp(GivenUp::Cancelled)),
                                false => Ok(None),
                            };
                            proceed(ready, cx, request, layer)
                        }
                    }
                    (_, request) => {
                        // Drops the attempt with its result, not with the future.
                        state.set(State::Done);
                        return Poll::Ready(result.map_err(|e| request.end(e)));
                    }
                }
            }
            StateProj::Before { wait } => ready!(wait.wait().poll(cx, request, layer)),
            StateProj::Done => panic!("polled after completion"),
        };
        match next {
            // Drops the attempt before the wait, or the service that waited, with what it had reserved.
            Ok(next) => state.set(next),
            Err(error) => {
                layer.abandon();
                state.set(State::Done);
                return Poll::Ready(Err(error));
            }
        }
    }
}

impl<S> Wait<S>
where
    S: Service<ToolCall> + Clone,
    S::Error: Into<ToolError>,
{
    /// Ready with what comes after the wait, or with the error of a call that has no further attempt.
    #[cold]
    fn poll<W, T, L>(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        request: &mut Request<S, T>,
        layer: &mut L,
    ) -> Poll<Result<State<S::Future, W>, ToolError>>
    where
        W: From<Self>,
        L: Repeat<S, T, S::Response>,
    {
        let ready = match self.project() {
            WaitProj::Until {
                timer, caller, at, ..
            } => {
                if caller.poll_cancelled(cx).is_ready() {
                    Err(Unprepared::GivenUp(GivenUp::Cancelled))
                } else {
                    // Only a wait that ends before the deadline is begun.
                    ready!(timer.poll(cx, || Some(*at)));
                    Ok(None)
                }
            }
            WaitProj::Preparing { preparing } => ready!(preparing.poll(cx)).map(Some),
            WaitProj::Refused { error } => {
                let error = error.take().expect("refused once");
                return Poll::Ready(Err(error));
            }
        };
        Poll::Ready(proceed(ready, cx, request, layer))
    }
}

/// What comes after a part of a wait: after its time (`Ok(None)`), once a service was ready, or when it was ended.
#[cold]
fn proceed<S, W, T, L>(
    ready: Result<Option<&mut S>, Unprepared>,
    cx: &mut Context<'_>,
    request: &mut Request<S, T>,
    layer: &mut L,
) -> Result<State<S::Future, W>, ToolError>
where
    S: Service<ToolCall> + Clone,
    S::Error: Into<ToolError>,
    W: From<Wait<S>>,
    L: Repeat<S, T, S::Response>,
{
    let resend = request.resend();
    let wait = match ready {
        Ok(svc) => match (layer.admit(resend), svc) {
            (Next::Send, Some(svc)) => {
                let fut = request.send(svc);
                return Ok(State::Called { fut });
            }
            (Next::Send, None) => {
                let mut svc = resend.fresh();
                match preparing::poll_once(&mut svc, &resend.call, cx) {
                    Poll::Pending => Ok(Wait::preparing(svc, &resend.call)),
                    Poll::Ready(ready) => {
                        return proceed(ready.map(|()| Some(&mut svc)), cx, request, layer);
                    }
                }
            }
            (Next::WaitUntil(at), _) => Ok(Wait::until(at, &resend.call)),
            (Next::Refuse(error), _) => Err(error),
        },
        Err(Unprepared::GivenUp(why)) => Err(resend.given_up(why)),
        Err(Unprepared::Failed(error)) => {
            let at = layer.not_ready(resend, error);
            at.map(|at| Wait::until(at, &resend.call))
        }
    };
    wait.map(State::before)
}

impl<F, W: fmt::Debug> fmt::Debug for State<F, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Called { .. } => f.write_str("Called"),
            Self::Before { wait } => wait.fmt(f),
            Self::Done => f.write_str("Done"),
        }
    }
}

impl<S> fmt::Debug for Wait<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Until { .. } => "Waiting",
            Self::Preparing { .. } => "Preparing",
            Self::Refused { .. } => "Refused",
        })
    }
}

/// The future of a layer that repeats calls.
macro_rules! response_future {
    ($(#[$doc:meta])* $wait:ty, $settings:ty, $layer:ty) => {
        pin_project_lite::pin_project! {
            $(#[$doc])*
            #[project(!Unpin)]
            #[must_use = "futures do nothing unless polled"]
            pub struct ResponseFuture<S, F, C> {
                #[pin]
                pub(super) state: $crate::kit::attempts::State<F, $wait>,
                // There from the beginning: an `Option` for `kit::inner::call_in_place`.
                pub(super) rest: Option<($crate::kit::attempts::Request<S, $settings>, $layer)>,
            }
        }

        impl<S, C> std::future::Future for ResponseFuture<S, S::Future, C>
        where
            S: tower_service::Service<$crate::call::ToolCall> + Clone,
            S::Error: Into<$crate::error::ToolError>,
            C: $crate::outcome::Classify<S::Response>,
        {
            type Output = Result<S::Response, $crate::error::ToolError>;

            fn poll(
                self: std::pin::Pin<&mut Self>,
                cx: &mut std::task::Context<'_>,
            ) -> std::task::Poll<Self::Output> {
                let this = self.project();
                let (request, layer) = this.rest.as_mut().expect("there from the beginning");
                $crate::kit::attempts::poll(this.state, request, layer, cx)
            }
        }

        impl<S, F, C> std::fmt::Debug for ResponseFuture<S, F, C> {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct("ResponseFuture")
                    .field("state", &self.state)
                    .finish_non_exhaustive()
            }
        }
    };
}
pub(crate) use response_future;
