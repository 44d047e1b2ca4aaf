//! The way of a call through a layer that may answer it with what another call has got.
//!
//! A layer enters a call at a key ([`Flight`]) and decides what is kept ([`Reuse`]). The future waits for its turn without a reservation
//! below; a call whose turn it is makes the service below ready and is sent, and ends its turn with its answer.

use std::{
    any::Any,
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use pin_project_lite::pin_project;
use tower_service::Service;

use super::{
    flights::{Flight, FlightKey, Flights, Source, Turn},
    inner::{self, call_in_place},
    preparing::{self, Preparing, WaitLimit},
    principal::Principal,
    ready::{Prepared, Taken},
    registry::MOST_KEYS,
    share::Units,
};
use crate::{
    answer::Answer,
    call::{CallInfo, ToolCall},
    config::{ConfigError, refuse_if},
    error::ToolError,
    event::{Event, Listener},
    foreign::{self, Json},
};

/// A call at its key, and what is made of its end.
pub(crate) trait Reuse<Res> {
    type Key: FlightKey;
    type Value: Clone;

    fn flight(&mut self) -> &mut Flight<Self::Key, Self::Value>;

    /// What the call gets of another one's end.
    fn give(
        &self,
        end: Result<Self::Value, ToolError>,
        source: Source,
        info: &CallInfo,
    ) -> Result<Res, ToolError>;

    /// The call is sent now.
    fn begin(&mut self);

    /// The call was sent and has ended.
    fn end(&mut self, result: &Result<Res, ToolError>);

    /// The error of a call that waited for another one in vain.
    fn waited(&self, error: ToolError) -> ToolError {
        error
    }
}

/// Tells the observers of a call that it has another one's answer.
pub(crate) fn tell(info: &CallInfo, layer: &'static str) {
    info.record(|record| record.set_reused());
    Listener::default().tell(&Event::Reused { call: info, layer });
}

pin_project! {
    /// The future of a call.
    pub(crate) struct Reused<S, F, R> {
        #[pin]
        state: State<S, F>,
        // Dropped with the answer, which ends the turn. An `Option` for `kit::inner::call_in_place` too.
        rest: Option<(CallInfo, Option<R>)>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<S, F> {
        // Waiting for another call's answer, or for a turn.
        Waiting { parts: Option<(S, ToolCall)>, #[pin] limit: WaitLimit },
        // It is its turn: waiting for the inner service.
        Preparing { #[pin] preparing: Preparing<S>, call: Option<ToolCall> },
        // Waiting for the response.
        Called { #[pin] fut: Option<F> },
        // Refused, or the inner service failed to become ready.
        Refused { error: Option<ToolError> },
    }
}

/// Calls the inner service, or lets the call wait for another one. A call that is not entered passes; one that could not be is refused.
pub(crate) fn call<S, R, T>(
    inner: &mut Prepared<S>,
    call: ToolCall,
    entered: Result<Option<R>, ToolError>,
    wrap: impl FnOnce(Reused<S, S::Future, R>) -> T,
) -> T
where
    S: Service<ToolCall> + Clone,
    S::Error: Into<ToolError>,
    R: Reuse<S::Response>,
{
    let info = call.info();
    let (state, reuse) = match entered {
        Err(error) => {
            inner.renew();
            (State::refused(error), None)
        }
        Ok(mut reuse) => {
            let is_mine = reuse.as_mut().is_none_or(|reuse| reuse.flight().try_turn());
            let state = match is_mine {
                false => {
                    // Nothing is reserved while another call runs.
                    inner.renew();
                    State::Waiting {
                        limit: WaitLimit::of(&call),
                        parts: Some((inner.svc.clone(), call)),
                    }
                }
                true => match inner.take() {
                    Taken::Ready => {
                        if let Some(reuse) = &mut reuse {
                            reuse.begin();
                        }
                        let mut rest = Some((info, reuse));
                        return call_in_place(inner.get(), call, |fut| {
                            let state = State::Called { fut: Some(fut) };
                            wrap(Reused {
                                state,
                                rest: rest.take(),
                            })
                        });
                    }
                    Taken::Wait(svc) => State::preparing(svc, call),
                    Taken::Failed(error) => State::refused(error),
                },
            };
            (state, reuse)
        }
    };
    wrap(Reused {
        state,
        rest: Some((info, reuse)),
    })
}

impl<S, F> State<S, F> {
    fn preparing(svc: S, call: ToolCall) -> Self {
        Self::Preparing {
            preparing: Preparing::new(svc, &call),
            call: Some(call),
        }
    }

    fn refused(error: ToolError) -> Self {
        Self::Refused { error: Some(error) }
    }
}

impl<S, R> Future for Reused<S, S::Future, R>
where
    S: Service<ToolCall>,
    S::Error: Into<ToolError>,
    R: Reuse<S::Response>,
{
    type Output = Result<S::Response, ToolError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            let (info, reuse) = this.rest.as_mut().expect("polled after completion");
            let result = match this.state.as_mut().project() {
                StateProj::Called { fut } => {
                    let result = ready!(inner::poll(fut, cx)).map_err(|e| e.into().for_call(info));
                    if let Some(reuse) = reuse {
                        reuse.end(&result);
                    }
                    result
                }
                _ => match ready!(this.state.as_mut().poll_unsent(cx, reuse, info)) {
                    Ok(next) => {
                        // Drops the service that was waited for.
                        this.state.set(next);
                        continue;
                    }
                    Err(result) => {
                        // Drops the service that was waited for, with its reservation.
                        this.state.set(State::Refused { error: None });
                        result
                    }
                },
            };
            // The next one has its turn now, and not when the future is dropped.
            *this.rest = None;
            return Poll::Ready(result);
        }
    }
}

impl<S> State<S, S::Future>
where
    S: Service<ToolCall>,
    S::Error: Into<ToolError>,
{
    fn called<R: Reuse<S::Response>>(svc: &mut S, call: ToolCall, reuse: &mut Option<R>) -> Self {
        if let Some(reuse) = reuse {
            reuse.begin();
        }
        Self::Called {
            fut: Some(svc.call(call)),
        }
    }

    /// Ready with what comes next, or with the end of a call that is not sent. Outlined, so that a call that is sent immediately
    /// does not pay for it.
    #[inline(never)]
    fn poll_unsent<R: Reuse<S::Response>>(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        reuse: &mut Option<R>,
        info: &CallInfo,
    ) -> Poll<Result<Self, Result<S::Response, ToolError>>> {
        let next = match self.project() {
            StateProj::Waiting { parts, limit } => {
                let waiting = reuse.as_mut().expect("a call that waits is entered");
                match waiting.flight().poll_turn(cx) {
                    Poll::Ready(Turn::Landed(end, source)) => {
                        return Poll::Ready(Err(waiting.give(end, source, info)));
                    }
                    Poll::Ready(Turn::Mine) => {
                        let (mut svc, call) = parts.take().expect("polled after completion");
                        match preparing::poll_once(&mut svc, &call, cx) {
                            Poll::Ready(Ok(())) => Ok(Self::called(&mut svc, call, reuse)),
                            Poll::Ready(Err(why)) => Err(why.into_error()),
                            Poll::Pending => Ok(Self::preparing(svc, call)),
                        }
                    }
                    Poll::Pending => {
                        let why = ready!(limit.poll(cx));
                        Err(waiting.waited(why.error()))
                    }
                }
            }
            StateProj::Preparing { preparing, call } => match ready!(preparing.poll(cx)) {
                Ok(svc) => {
                    let call = call.take().expect("called once");
                    Ok(Self::called(svc, call, reuse))
                }
                Err(why) => Err(why.into_error()),
            },
            StateProj::Refused { error } => Err(error.take().expect("polled after completion")),
            StateProj::Called { .. } => unreachable!("a call that was sent does not wait"),
        };
        Poll::Ready(next.map_err(|error| Err(error.for_call(info))))
    }
}

impl<S, F, R> fmt::Debug for Reused<S, F, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.state {
            State::Waiting { .. } => "Waiting",
            State::Preparing { .. } => "Preparing",
            State::Called { .. } => "Called",
            State::Refused { .. } => "Refused",
        })
    }
}

/// The future of a layer that answers calls with what others have got.
macro_rules! response_future {
    ($(#[$doc:meta])* {$($param:ident),*} $reuse:ty where $($bounds:tt)*) => {
        pin_project_lite::pin_project! {
            $(#[$doc])*
            #[project(!Unpin)]
            #[must_use = "futures do nothing unless polled"]
            pub struct ResponseFuture<S, F $(, $param)*> {
                #[pin]
                pub(super) fut: $crate::kit::reuse::Reused<S, F, $reuse>,
            }
        }

        impl<S $(, $param)*> std::future::Future for ResponseFuture<S, S::Future $(, $param)*>
        where
            S: tower_service::Service<$crate::call::ToolCall>,
            S::Error: Into<$crate::error::ToolError>,
            $($bounds)*
        {
            type Output = Result<S::Response, $crate::error::ToolError>;

            #[inline]
            fn poll(
                self: std::pin::Pin<&mut Self>,
                cx: &mut std::task::Context<'_>,
            ) -> std::task::Poll<Self::Output> {
                self.project().fut.poll(cx)
            }
        }

        impl<S, F $(, $param)*> std::fmt::Debug for ResponseFuture<S, F $(, $param)*> {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct("ResponseFuture")
                    .field("state", &self.fut)
                    .finish_non_exhaustive()
            }
        }
    };
}
pub(crate) use response_future;

/// An answer of any type.
pub(crate) type AnyAnswer = Arc<dyn Any + Send + Sync>;

/// An answer of a type that is known as JSON: parsed, it can take 100 times its bytes.
struct Text(Box<str>);

/// A copy of a kept answer. `None` if it is of another type.
pub(crate) fn copy_of<Res: Clone + 'static>(kept: &AnyAnswer) -> Option<Res> {
    match kept.downcast_ref() {
        Some(Text(json)) => foreign::answer_of(json),
        None => kept.downcast_ref().cloned(),
    }
}

type SizeFn = dyn Fn(&dyn Any) -> Option<u64> + Send + Sync;

/// The largest answer that is kept, and how large an answer is.
#[derive(Clone)]
pub(crate) struct Size {
    pub(crate) max: u64,
    of: Arc<SizeFn>,
}

impl Default for Size {
    fn default() -> Self {
        Self {
            max: 64 * 1024,
            of: Arc::new(|_| None),
        }
    }
}

impl Size {
    pub(crate) fn measure<Res: 'static>(
        &mut self,
        of: impl Fn(&Res) -> u64 + Send + Sync + 'static,
    ) {
        self.of = Arc::new(move |answer| answer.downcast_ref().map(&of));
    }

    /// A copy of the answer, if it is small enough to be kept, and its bytes. One of unknown size has as many as may be.
    pub(crate) fn keep<Res: Clone + Send + Sync + 'static>(
        &self,
        answer: &Res,
    ) -> Option<(AnyAnswer, u64)> {
        let json = foreign::json_of(answer, self.max);
        let usual = || match &json {
            Some(Json::Text(json)) => Some(json.len() as u64),
            Some(Json::Parsed(bytes)) => *bytes,
            None => Some(Answer::of_usual(answer).map_or(self.max, |answer| answer.bytes())),
        };
        let bytes = (self.of)(answer).or_else(usual)?;
        (bytes <= self.max).then(|| match json {
            Some(Json::Text(json)) => (Arc::new(Text(json)) as AnyAnswer, bytes),
            _ => (Arc::new(answer.clone()) as AnyAnswer, bytes),
        })
    }
}

/// The longest time for which an answer is kept.
pub(crate) const MAX_TTL: Duration = Duration::from_secs(365 * 24 * 3600);

/// The settings of where answers are kept: for whom, how many, and how large.
#[derive(Clone)]
pub(crate) struct Store {
    pub(crate) principal: Principal,
    pub(crate) max_keys: usize,
    pub(crate) max_bytes: u64,
    pub(crate) size: Size,
}

/// How many bytes answers that are kept have together by default.
const MAX_BYTES: u64 = 64 << 20;

impl Store {
    pub(crate) fn new(principal: Principal, max_keys: usize) -> Self {
        Self {
            principal,
            max_keys,
            max_bytes: MAX_BYTES,
            size: Size::default(),
        }
    }

    /// Refuses what cannot work. `if_zero` is what would happen with a time of zero.
    pub(crate) fn check(
        &self,
        [shortest, longest]: [Duration; 2],
        if_zero: &str,
    ) -> Result<(), ConfigError> {
        let zero = format!("it is zero: {if_zero}");
        refuse_if(shortest.is_zero(), "ttl", zero)?;
        let long = format!("{longest:?} is longer than a year");
        refuse_if(longest > MAX_TTL, "ttl", long)?;
        let bounds = format!("is not in 1 to {MOST_KEYS}");
        refuse_if(
            !(1..=MOST_KEYS).contains(&self.max_keys),
            "max_keys",
            bounds,
        )?;
        let share = self.share(self.max_bytes);
        let reason = format!(
            "{} is more than the {share} bytes that a principal has of `max_bytes`",
            self.size.max
        );
        refuse_if(self.size.max > share, "max_answer", reason)
    }

    /// Of several principals each has an eighth.
    fn share(&self, most: u64) -> u64 {
        match self.principal.is_shared() {
            true => most,
            false => most.div_ceil(8),
        }
    }

    /// The empty store.
    pub(crate) fn flights<K: FlightKey, V: Clone>(&self, evicts: bool) -> Arc<Flights<K, V>> {
        let units = |most| Units::new(most, self.share(most));
        let (keys, bytes) = (units(self.max_keys as u64), units(self.max_bytes));
        Arc::new(Flights::shared_out(keys, bytes, evicts))
    }
}
