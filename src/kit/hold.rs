//! The way of a call through a layer that may hold it back before it is sent, once.
//!
//! A layer decides on one call at a time ([`Hold`]). The future makes the service below ready, asks, and sends the call; a call that
//! has to wait gives the reservation below back first, and waits until its turn, its deadline or its caller's token.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use pin_project_lite::pin_project;
use tokio::time::Instant;
use tower_service::Service;

use super::{
    inner::{self, call_in_place},
    preparing::{self, GivenUp, Preparing, WaitLimit},
    ready::{Prepared, Taken},
};
use crate::{
    call::{CallInfo, ToolCall},
    error::ToolError,
};

/// What a layer has taken for one call, and decides on it. Its drop gives back what the call did not use up.
pub(crate) trait Hold {
    /// Whether the call may be sent now. If so, it has taken what it needs, and is sent.
    fn admit(&mut self) -> bool;

    /// Why the call would be refused now. Takes nothing.
    fn refusal(&self, call: &ToolCall) -> Option<ToolError>;

    /// Takes a turn for a call that was not admitted, or refuses it.
    fn enter(&mut self, call: &ToolCall) -> Result<(), ToolError>;

    /// Ready once a call that has taken its turn may be sent.
    fn poll_turn(&mut self, cx: &mut Context<'_>) -> Poll<()>;

    /// The call is being sent.
    fn sent(&mut self) {}

    /// The call has succeeded.
    fn succeeded(&self, info: &CallInfo);
}

pin_project! {
    /// The future of a call.
    pub(crate) struct Held<S, F, H> {
        #[pin]
        state: State<S, F>,
        // Dropped with the answer. An `Option` for `kit::inner::call_in_place` too.
        rest: Option<(CallInfo, H)>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<S, F> {
        // Waiting for the inner service, with a turn if the call had to wait for one, else without.
        Preparing { #[pin] preparing: Preparing<S>, call: Option<ToolCall>, admitted: bool },
        // Waiting for its turn, without a reservation below.
        Waiting { parts: Option<(S, ToolCall)>, #[pin] limit: WaitLimit, since: Instant },
        // Waiting for the response.
        Called { #[pin] fut: Option<F> },
        // Refused, or the inner service failed to become ready.
        Refused { error: Option<ToolError> },
    }
}

/// Calls the inner service, or lets the call wait. `wrap` makes the layer's own future of it, around it.
pub(crate) fn call<S, H, T>(
    inner: &mut Prepared<S>,
    call: ToolCall,
    mut hold: H,
    wrap: impl FnOnce(Held<S, S::Future, H>) -> T,
) -> T
where
    S: Service<ToolCall> + Clone,
    S::Error: Into<ToolError>,
    H: Hold,
{
    let info = call.info();
    let state = match inner.take() {
        Taken::Ready if hold.admit() => {
            hold.sent();
            let mut rest = Some((info, hold));
            return call_in_place(inner.get(), call, |fut| {
                let state = State::Called { fut: Some(fut) };
                wrap(Held {
                    state,
                    rest: rest.take(),
                })
            });
        }
        Taken::Ready => {
            // Gives back the reservation below: the call does not run now.
            inner.renew();
            State::waiting(inner.svc.clone(), call, &mut hold).unwrap_or_else(State::refused)
        }
        Taken::Wait(svc) => {
            let over = GivenUp::by(&call).map(GivenUp::error);
            match over.or_else(|| hold.refusal(&call)) {
                Some(error) => State::refused(error),
                None => State::preparing(svc, call, false),
            }
        }
        Taken::Failed(error) => State::refused(error),
    };
    wrap(Held {
        state,
        rest: Some((info, hold)),
    })
}

impl<S, F> State<S, F> {
    fn preparing(svc: S, call: ToolCall, admitted: bool) -> Self {
        Self::Preparing {
            preparing: Preparing::new(svc, &call),
            call: Some(call),
            admitted,
        }
    }

    /// `svc` has nothing reserved.
    #[cold]
    fn waiting(svc: S, call: ToolCall, hold: &mut impl Hold) -> Result<Self, ToolError> {
        if let Some(why) = GivenUp::by(&call) {
            return Err(why.error());
        }
        hold.enter(&call)?;
        Ok(Self::Waiting {
            limit: WaitLimit::of(&call),
            parts: Some((svc, call)),
            since: Instant::now(),
        })
    }

    fn refused(error: ToolError) -> Self {
        Self::Refused { error: Some(error) }
    }
}

impl<S, H> Future for Held<S, S::Future, H>
where
    S: Service<ToolCall> + Clone,
    S::Error: Into<ToolError>,
    H: Hold,
{
    type Output = Result<S::Response, ToolError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            let (info, hold) = this.rest.as_mut().expect("polled after completion");
            let result = match this.state.as_mut().project() {
                StateProj::Called { fut } => {
                    let result = ready!(inner::poll(fut, cx)).map_err(|e| e.into().for_call(info));
                    if result.is_ok() {
                        hold.succeeded(info);
                    }
                    result
                }
                _ => match ready!(this.state.as_mut().poll_unsent(cx, hold)) {
                    Ok(next) => {
                        // Drops the service that was waited for.
                        this.state.set(next);
                        continue;
                    }
                    Err(error) => {
                        let error = error.for_call(info);
                        // Drops the service that was waited for, with its reservation.
                        this.state.set(State::Refused { error: None });
                        Err(error)
                    }
                },
            };
            // Gives back what was taken for the call, now and not when the future is dropped.
            *this.rest = None;
            return Poll::Ready(result);
        }
    }
}

impl<S> State<S, S::Future>
where
    S: Service<ToolCall> + Clone,
    S::Error: Into<ToolError>,
{
    fn called(svc: &mut S, call: ToolCall, hold: &mut impl Hold) -> Self {
        hold.sent();
        Self::Called {
            fut: Some(svc.call(call)),
        }
    }

    /// Ready with what comes next, or with the error of a call that is not sent. Outlined, so that a call that is sent immediately
    /// does not pay for it.
    #[inline(never)]
    fn poll_unsent(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        hold: &mut impl Hold,
    ) -> Poll<Result<Self, ToolError>> {
        Poll::Ready(match self.project() {
            StateProj::Preparing {
                preparing,
                call,
                admitted,
            } => {
                let svc = ready!(preparing.poll(cx));
                let call = call.take().expect("polled after completion");
                match svc {
                    Ok(svc) if *admitted || hold.admit() => Ok(Self::called(svc, call, hold)),
                    Ok(svc) => Self::waiting(svc.clone(), call, hold),
                    Err(why) => Err(why.into_error()),
                }
            }
            StateProj::Waiting {
                parts,
                limit,
                since,
            } => {
                let given_up = match hold.poll_turn(cx) {
                    Poll::Ready(()) => None,
                    Poll::Pending => Some(ready!(limit.poll(cx))),
                };
                let (mut svc, call) = parts.take().expect("polled after completion");
                call.record(|r| r.add_wait(since.elapsed()));
                match given_up {
                    Some(why) => Err(why.error()),
                    None => match preparing::poll_once(&mut svc, &call, cx) {
                        Poll::Ready(Ok(())) => Ok(Self::called(&mut svc, call, hold)),
                        Poll::Ready(Err(why)) => Err(why.into_error()),
                        Poll::Pending => Ok(Self::preparing(svc, call, true)),
                    },
                }
            }
            StateProj::Refused { error } => Err(error.take().expect("polled after completion")),
            StateProj::Called { .. } => unreachable!("a call that was sent does not wait"),
        })
    }
}

impl<S, F, H> fmt::Debug for Held<S, F, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.state {
            State::Preparing { .. } => "Preparing",
            State::Waiting { .. } => "Waiting",
            State::Called { .. } => "Called",
            State::Refused { .. } => "Refused",
        })
    }
}

/// The future of a layer that holds calls back.
macro_rules! response_future {
    ($(#[$doc:meta])* $hold:ty) => {
        pin_project_lite::pin_project! {
            $(#[$doc])*
            #[project(!Unpin)]
            #[derive(Debug)]
            #[must_use = "futures do nothing unless polled"]
            pub struct ResponseFuture<S, F> {
                #[pin]
                held: $crate::kit::hold::Held<S, F, $hold>,
            }
        }

        impl<S, F> ResponseFuture<S, F> {
            pub(super) fn new(held: $crate::kit::hold::Held<S, F, $hold>) -> Self {
                Self { held }
            }
        }

        impl<S> std::future::Future for ResponseFuture<S, S::Future>
        where
            S: tower_service::Service<$crate::call::ToolCall> + Clone,
            S::Error: Into<$crate::error::ToolError>,
        {
            type Output = Result<S::Response, $crate::error::ToolError>;

            fn poll(
                self: std::pin::Pin<&mut Self>,
                cx: &mut std::task::Context<'_>,
            ) -> std::task::Poll<Self::Output> {
                self.project().held.poll(cx)
            }
        }
    };
}
pub(crate) use response_future;
