//! The way of a call through a layer, for layers of your own.
//!
//! A layer that decides about calls also has to handle readiness, deadlines, cancellation, panics
//! and calls that are dropped. [`Gated`] handles them, for the layers of this crate too. A layer
//! implements only its decisions:
//!
//! - [`Gate`] decides whether a call may pass, as far as that is known when it arrives.
//! - [`Ends`] decides whether it is admitted or waits for its turn; how it is ended; the meaning of
//!   its result. Default: it passes.
//! - [`Ticket`] decides what the call holds; whether its drop or panic matters. Default: nothing.
//!
//! The methods of a call that only layers need are those of [`CallExt`].
//!
//! # Example
//!
//! A layer that refuses the calls of one server:
//!
//! ```
//! use tower::{Layer, ServiceBuilder, ServiceExt, service_fn};
//! use tower_toolcall::{
//!     AnyError, CallInfo, ErrorKind, ToolCall, ToolError,
//!     flow::{Gate, Gated, Readiness},
//! };
//!
//! #[derive(Clone)]
//! struct Without(&'static str);
//!
//! impl<Res> Gate<Res> for Without {
//!     type Ticket = CallInfo; // holds nothing, and does not look at the end
//!
//!     fn look(&self, call: &mut ToolCall, _: &Readiness) -> Result<CallInfo, ToolError> {
//!         match call.server() == Some(self.0) {
//!             true => Err(ToolError::refusal(ErrorKind::Denied, "the server is switched off")),
//!             false => Ok(call.info()),
//!         }
//!     }
//! }
//!
//! impl<S> Layer<S> for Without {
//!     type Service = Gated<S, Self>;
//!
//!     fn layer(&self, inner: S) -> Self::Service {
//!         Gated::new(inner, self.clone())
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let tool = service_fn(|_call: ToolCall| async { Ok::<_, AnyError>("paid") });
//! let stack = ServiceBuilder::new().layer(Without("bank")).service(tool);
//! let error = stack.oneshot(ToolCall::new("pay").with_server("bank")).await.unwrap_err();
//! assert!(error.is_own_refusal());
//! assert_eq!(error.tool(), Some("pay"));
//! # }
//! ```
//!
//! A layer that lets calls wait for each other. The permit is free again when the call ends in any
//! way, because the ticket owns it. The order is that of the first polls, because tokio's semaphore
//! queues a future when it is first polled. A queue in the order of arrival takes the place in
//! `look` or in `arrive`.
//!
//! ```
//! use std::{future::Future, pin::Pin, sync::Arc, task::{Context, Poll, ready}};
//! use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};
//! use tower::Layer;
//! use tower_toolcall::{
//!     CallInfo, ErrorKind, ToolCall, ToolError,
//!     flow::{Ends, Gate, Gated, PollTurn, Readiness, Step, Ticket},
//! };
//!
//! #[derive(Clone)]
//! struct OneByOne(Arc<Semaphore>);
//!
//! // `Sync`, so that the layer may stand inside of `middleware::from_fn`.
//! type Acquire = dyn Future<Output = Result<OwnedSemaphorePermit, AcquireError>> + Send + Sync;
//!
//! struct Turn {
//!     info: CallInfo,
//!     queue: Arc<Semaphore>,
//!     wait: Option<Pin<Box<Acquire>>>,
//!     permit: Option<OwnedSemaphorePermit>,
//! }
//!
//! impl<Res> Gate<Res> for OneByOne {
//!     type Ticket = Turn;
//!
//!     fn look(&self, call: &mut ToolCall, _: &Readiness) -> Result<Turn, ToolError> {
//!         let (info, queue) = (call.info(), Arc::clone(&self.0));
//!         Ok(Turn { info, queue, wait: None, permit: None })
//!     }
//! }
//!
//! impl Ticket for Turn {
//!     type Times = (); // has no `dropped` and no `panicked`
//!
//!     fn info(&self) -> &CallInfo {
//!         &self.info
//!     }
//! }
//!
//! impl<Res> Ends<Res> for Turn {
//!     type Class = ();
//!
//!     fn admit(&mut self, _: &mut ToolCall) -> Result<Step, ToolError> {
//!         if self.permit.is_none() {
//!             self.permit = Arc::clone(&self.queue).try_acquire_owned().ok();
//!         }
//!         Ok(if self.permit.is_some() { Step::Go } else { Step::Wait })
//!     }
//!
//!     fn poll_turn(&mut self, _: &mut ToolCall, cx: &mut Context<'_>) -> PollTurn<Res> {
//!         let queue = &self.queue;
//!         let wait = self.wait.get_or_insert_with(|| Box::pin(Arc::clone(queue).acquire_owned()));
//!         let permit = ready!(wait.as_mut().poll(cx));
//!         self.wait = None;
//!         Poll::Ready(match permit {
//!             Ok(permit) => {
//!                 self.permit = Some(permit);
//!                 Ok(None)
//!             }
//!             Err(closed) => Err(ToolError::refusal(ErrorKind::Overloaded, closed.to_string())),
//!         })
//!     }
//! }
//!
//! impl<S> Layer<S> for OneByOne {
//!     type Service = Gated<S, Self>;
//!
//!     fn layer(&self, inner: S) -> Self::Service {
//!         Gated::new(inner, self.clone())
//!     }
//! }
//! # use tower::{ServiceExt, service_fn};
//! # use tower_toolcall::AnyError;
//! # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() {
//! # let tool = service_fn(|_call: ToolCall| async {
//! #     tokio::time::sleep(std::time::Duration::from_secs(1)).await;
//! #     Ok::<_, AnyError>("done")
//! # });
//! # let queue = Arc::new(Semaphore::new(1));
//! # let stack = OneByOne(Arc::clone(&queue)).layer(tool);
//! # let began = tokio::time::Instant::now();
//! # let call = || stack.clone().oneshot(ToolCall::new("import"));
//! # let (first, second) = tokio::join!(call(), call());
//! # assert!(first.is_ok() && second.is_ok());
//! # assert_eq!(began.elapsed().as_secs(), 2);
//! # queue.close();
//! # assert_eq!(call().await.unwrap_err().kind(), ErrorKind::Overloaded);
//! # }
//! ```
//!
//! A layer that observes calls, and counts the attempts that were sent. Its `Layer` is as above:
//!
//! ```
//! use std::sync::{Arc, atomic::{AtomicU32, Ordering::Relaxed}};
//! use tokio::time::Instant;
//! use tower_toolcall::{
//!     CallInfo, Observation, ToolCall, ToolError,
//!     flow::{Abandoned, CallExt, Ends, Gate, Readiness, Ticket, Times},
//! };
//!
//! #[derive(Clone, Default)]
//! struct Attempts(Arc<AtomicU32>);
//!
//! struct Seen(Observation, Attempts);
//!
//! impl Seen {
//!     fn count(&self, error: Option<&ToolError>) {
//!         self.1.0.fetch_add(self.0.sent(error), Relaxed);
//!     }
//! }
//!
//! impl<Res> Gate<Res> for Attempts {
//!     type Ticket = Seen;
//!
//!     fn look(&self, call: &mut ToolCall, _: &Readiness) -> Result<Seen, ToolError> {
//!         Ok(Seen(call.observe(), self.clone()))
//!     }
//! }
//!
//! impl Ticket for Seen {
//!     type Times = Times;
//!
//!     fn info(&self) -> &CallInfo {
//!         self.0.call()
//!     }
//!
//!     fn dropped(&mut self, _: Abandoned) {
//!         self.count(None); // 0 if an inner layer held the call back
//!     }
//!
//!     fn panicked(&mut self) {
//!         self.count(None);
//!     }
//! }
//!
//! impl<Res> Ends<Res> for Seen {
//!     type Class = ();
//!
//!     fn ended(&mut self, result: &mut Result<Res, ToolError>, (): (), _: Option<Instant>) {
//!         self.count(result.as_ref().err());
//!     }
//! }
//! # use tower::{ServiceExt, service_fn};
//! # use tower_toolcall::{AnyError, ErrorKind, flow::Gated};
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! # let attempts = Attempts::default();
//! # let tool = service_fn(|call: ToolCall| async move {
//! #     match call.is_named("pay") {
//! #         true => Err(ToolError::refusal(ErrorKind::Denied, "switched off").into()),
//! #         false => Ok::<_, AnyError>("sunny"),
//! #     }
//! # });
//! # let stack = Gated::new(tool, attempts.clone());
//! # stack.clone().oneshot(ToolCall::new("pay")).await.unwrap_err();
//! # stack.oneshot(ToolCall::new("weather")).await.unwrap();
//! # assert_eq!(attempts.0.load(Relaxed), 1);
//! # }
//! ```
//!
//! [`Gated`] sends a call at most once. A layer that repeats calls is a function:
//! [`middleware::from_fn`](crate::middleware#a-layer-that-repeats).
//!
//! # From arrival to end
//!
//! ```text
//! look -> arrive -> inner service ready -> admit -> sent -> judge -> ended
//!            |              ^                |
//!            '-> poll_turn -'<---------------'   (Step::Wait)
//! ```
//!
//! `look` and `arrive` run in `Service::call`, in the order of the calls. If the inner service is
//! ready, `admit` follows there. Otherwise the rest runs when the future is polled. A limit of your
//! own refuses with [`ErrorKind::RateLimited`](crate::ErrorKind) and
//! [`with_retry_after`](ToolError::with_retry_after). `look` may read how much is left, but
//! `admit` takes it, because the call may wait between them.
//!
//! | the call | runs after `admit`, or instead of it |
//! |---|---|
//! | is refused in `look`, `admit` or `poll_turn` | nothing (`waited` after a turn) |
//! | is answered by `poll_turn` | `waited` |
//! | meets an inner service that fails to become ready | `not_ready` |
//! | reaches its deadline or is cancelled while it waits | `gave_up`, `waited` if for its turn |
//! | is dropped before it is sent | nothing |
//! | is sent and has a result | `judge`, `ended` |
//! | is sent and panics, in `judge` or `poll_pending` too | `panicked` |
//! | is sent and is dropped | `dropped` |
//! | is ended by `poll_pending` | nothing |
//!
//! In each case the ticket is dropped afterwards. Sent means handed to the inner service, which may
//! hold the call back: see [`Observation::sent`](crate::Observation::sent).
//!
//! # Details
//!
//! ## What `Gated` does
//!
//! 1. It is always ready. The gate looks at a call when it arrives, and may refuse it although the
//!    inner service is not ready. A refusal returns the reservation of the inner service.
//! 2. A call that waits for its turn holds no reservation of the inner service.
//! 3. The call is admitted when the inner service is ready for it, so that nothing is taken for a
//!    call that cannot run yet.
//! 4. Every wait ends at the call's [deadline](ToolCall::with_deadline) and at its caller's
//!    [cancellation](ToolCall::with_cancellation). After a wait, no call is sent past its deadline.
//!    A call that need not wait is sent, and a running call is not ended: that is the work of an
//!    outer [`DeadlineLayer`](crate::deadline::DeadlineLayer).
//! 5. The end of a call that was sent is reported exactly once: the result, a panic, or a drop. The
//!    error of a call that was not sent reaches at most `not_ready` or `gave_up`. Each call gives
//!    back what its ticket holds.
//! 6. Errors carry the names of the call, except an error that [`Ends::ended`] puts in the place of
//!    another one.
//! 7. The inner future is made in its place, and dropped with its result. A call that is sent
//!    immediately allocates nothing.
//! 8. If the inner service fails to become ready, the next call that arrives gets the error, and a
//!    clone takes the place of the service. [`Service`](tower_service::Service) asks to discard a
//!    service that failed. [`Gated`] has no other instance, because a spare one would be cloned for
//!    each layer and each connection. So the clone of a service that failed must be able to become
//!    ready, or fail again: it must not repeat what the failed instance kept.

pub(crate) mod again;
mod future;
mod held;
pub(crate) mod in_flight;
mod ready;
mod refusal;
pub(crate) mod sent;
mod service;
mod wait;

use std::{
    task::{Context, Poll},
    time::Duration,
};

use tokio::time::Instant;

use self::in_flight::Timing;
pub use self::{future::Flow, service::Gated};
pub(crate) use self::{held::Held, ready::Prepared, sent::Sent, service::Watched};
#[doc(inline)]
pub use self::{
    in_flight::{Abandoned, Times},
    ready::Readiness,
};
#[doc(inline)]
pub use crate::call::ext::CallExt;
#[doc(inline)]
pub use crate::kit::limit::WaitLimit;
use crate::{
    call::{CallInfo, ToolCall},
    error::{ErrorKind, ToolError},
};

/// The decisions of a layer about calls that arrive.
pub trait Gate<Res> {
    /// The part of one call, from its arrival to its end.
    type Ticket: Ends<Res>;

    /// Looks at a call that has just arrived, and may change it. Takes nothing: the call may wait
    /// until the inner service is `ready` for it. If it is, [`Ends::admit`] follows immediately,
    /// unless [`Ends::arrive`] lets the call wait. Runs in `Service::call`.
    ///
    /// # Errors
    ///
    /// The refusal of the call: usually a [`ToolError::refusal`]. The reservation of the inner
    /// service is given back.
    fn look(&self, call: &mut ToolCall, ready: &Readiness) -> Result<Self::Ticket, ToolError>;
}

/// The part of one call in a layer. Its drop gives back what the call has taken.
pub trait Ticket {
    /// The times that a call stores. Use [`Times`] if the layer implements
    /// [`dropped`](Self::dropped) or [`panicked`](Self::panicked), or needs the time for which a
    /// call was pending. With `()` the layer gets no such report.
    type Times: Timing;

    /// Returns the names of the call.
    fn info(&self) -> &CallInfo;

    /// Returns the deadline after which a drop is late. Asked when the call is sent. Default: the
    /// deadline of the call, unless an untrusted caller has set it.
    fn deadline(&self, call: &ToolCall) -> Option<Instant> {
        call.deadline().filter(|_| !call.is_deadline_untrusted())
    }

    /// Returns the time since which the call counts as pending. Called once, when the call is first
    /// pending and no inner layer holds it back. Default: now.
    fn pending_since(&self) -> Instant {
        Instant::now()
    }

    /// Records that the future of a call that was handed to the inner service was dropped. An
    /// [`Observation`](crate::Observation::sent) says whether inner layers have sent it. Default:
    /// nothing. A call that was not handed over yet is not reported: its ticket is dropped.
    fn dropped(&mut self, _how: Abandoned) {}

    /// Records that a call panicked. Default: nothing.
    fn panicked(&mut self) {}
}

/// The result of [`Ends::poll_turn`]: `None` once the call may go, `Some` for an answer in place of
/// one from the inner service.
pub type PollTurn<Res> = Poll<Result<Option<Res>, ToolError>>;

/// The step that follows for a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "there are no other ways")]
pub enum Step {
    /// The call is sent, or waits until the inner service is ready for it.
    Go,
    /// The call waits for its turn: [`Ends::poll_turn`], which the layer has to implement.
    Wait,
}

/// The way of a call from its arrival to its end.
pub trait Ends<Res>: Ticket {
    /// The classification of a result. `()` if the layer has none.
    type Class: Default;

    /// Decides whether a call waits for its turn before the inner service is asked whether it is
    /// ready. Runs in `Service::call`, so that a queue can keep the order of arrival. Default: it
    /// does not.
    fn arrive(&mut self) -> Step {
        Step::Go
    }

    /// Admits a call while the inner service is ready, and takes what it needs. Or lets it wait,
    /// without the reservation of the inner service, and is asked again afterwards. Default: admits
    /// it.
    ///
    /// # Errors
    ///
    /// The refusal of the call.
    fn admit(&mut self, _call: &mut ToolCall) -> Result<Step, ToolError> {
        Ok(Step::Go)
    }

    /// Waits for the turn of a call. Ready with `None` if [`admit`](Self::admit) is to be asked
    /// again, or with the answer of the call, which is then not sent. Default: an error of kind
    /// [`Internal`](crate::ErrorKind::Internal), because a layer that returns [`Step::Wait`] has to
    /// implement this.
    ///
    /// A call that is let wait again and again is polled until its deadline, because each turn that
    /// is ready wakes it. If it cannot be admitted any more, return an error.
    ///
    /// # Errors
    ///
    /// The refusal of the call.
    fn poll_turn(&mut self, _call: &mut ToolCall, _cx: &mut Context<'_>) -> PollTurn<Res> {
        let text = "the layer returned `Step::Wait` and does not implement `Ends::poll_turn`";
        Poll::Ready(Err(ToolError::refusal(ErrorKind::Internal, text)))
    }

    /// Records how long a call has waited for its turn. Default: nothing.
    fn waited(&mut self, _time: Duration) {}

    /// Returns the error of a call that was given up while it waited. The step says for what:
    /// [`Step::Wait`] for its turn, [`Step::Go`] for the inner service. Default: `error`, which
    /// says whether the deadline or the caller ended the wait.
    fn gave_up(&mut self, error: ToolError, _waited: Step) -> ToolError {
        error
    }

    /// Returns the error of a call after its inner service failed to become ready. Default:
    /// `error`.
    fn not_ready(&mut self, _call: &ToolCall, error: ToolError) -> ToolError {
        error
    }

    /// Ends a call that is pending, with the error with which this is ready: its future is dropped,
    /// and its result is neither judged nor recorded. Polled after the inner future. Default:
    /// never.
    fn poll_pending(&mut self, _cx: &mut Context<'_>) -> Poll<ToolError> {
        Poll::Pending
    }

    /// Judges a result. A user's code may run here: its panic is [reported](Ticket::panicked) as
    /// the call's, and nothing was recorded. Default: the default class.
    fn judge(&self, _result: &Result<Res, ToolError>) -> Self::Class {
        Self::Class::default()
    }

    /// Records the result, and may change it in its place. Default: nothing.
    ///
    /// `since` is the time since which the call was pending, without a wait in an inner layer. If
    /// the call never was, or if [`Times`](Ticket::Times) is `()`, it is `None`. An error in the
    /// place of an answer gets the names of the call.
    fn ended(
        &mut self,
        _result: &mut Result<Res, ToolError>,
        _class: Self::Class,
        _since: Option<Instant>,
    ) {
    }
}

/// The ticket of a layer that does not look at the ends of calls.
impl Ticket for CallInfo {
    type Times = ();

    #[inline]
    fn info(&self) -> &CallInfo {
        self
    }
}

impl<Res> Ends<Res> for CallInfo {
    type Class = ();
}
