//! A layer from an async function.
//!
//! | at a glance | |
//! |---|---|
//! | does | runs an async function for each call |
//! | place | anywhere |
//! | default | the function is yours |
//! | the caller sees | the result of the function |
//! | method | none: `.layer(middleware::from_fn(f))` |
//!
//! The function gets the call and the [rest of the stack](Next), and returns the answer. It may
//! change the call, refuse it, send it more than once, or change the answer.
//!
//! # Example
//!
//! ```
//! use tower::{ServiceBuilder, ServiceExt, service_fn};
//! use tower_toolcall::{
//!     AnyError, ErrorKind, ToolCall, ToolError, middleware,
//! };
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let no_payments = middleware::from_fn(
//!     |call: ToolCall, mut next| async move {
//!         if call.is_named("pay") {
//!             return Err(ToolError::refusal(
//!                 ErrorKind::Denied,
//!                 "payments are switched off",
//!             ));
//!         }
//!         next.run(call).await
//!     },
//! );
//! let tool = service_fn(|_call: ToolCall| async {
//!     Ok::<_, AnyError>("sunny")
//! });
//! let stack =
//!     ServiceBuilder::new().layer(no_payments).service(tool);
//!
//! assert_eq!(
//!     stack
//!         .clone()
//!         .oneshot(ToolCall::new("weather"))
//!         .await
//!         .unwrap(),
//!     "sunny"
//! );
//! let refused =
//!     stack.oneshot(ToolCall::new("pay")).await.unwrap_err();
//! assert!(refused.is_own_refusal());
//! # }
//! ```
//!
//! # A layer that repeats
//!
//! Each [`run`](Next::run) is an attempt. A function that repeats calls asks whether the call may
//! run twice, and waits by [`Next::wait`]: a sleep of its own ends neither at the deadline nor when
//! the caller cancels.
//!
//! ```
//! use std::time::Duration;
//! use tokio::time::sleep;
//! use tower::{Layer, Service};
//! use tower_toolcall::{
//!     Claim, Evidence, Execution, ReplaySafety, ToolCall, ToolError,
//!     flow::CallExt,
//!     middleware::{self, Next},
//! };
//!
//! async fn repeat<Res>(mut call: ToolCall, mut next: Next<Res>) -> Result<Res, ToolError> {
//!     if call.claim(Claim::Retry) {
//!         return next.run(call).await; // an outer layer repeats it; inner ones do not
//!     }
//!     let _attempts = call.observe_attempts(2); // with one idempotency key
//!     let error = match next.run(call.clone()).await {
//!         Err(error) if error.is_retryable() && !error.is_own_refusal() => error,
//!         result => return result,
//!     };
//!     let not_started = error.execution() == Execution::NotStarted
//!         && error.evidence() != Evidence::Inferred;
//!     if !not_started && call.replay_safety() != ReplaySafety::Safe {
//!         return Err(error);
//!     }
//!     let pause = error.retry_after().unwrap_or(Duration::from_millis(100));
//!     match next.wait(&call, sleep(pause)).await {
//!         Ok(()) => next.run(call).await,
//!         Err(_) => Err(error), // there is no time left
//!     }
//! }
//!
//! /// Returns the layer from a function.
//! fn repeats<S, Res>() -> impl Layer<
//!     S,
//!     Service: Service<ToolCall, Response = Res, Error = ToolError, Future: Send> + Clone,
//! > + Clone
//! where
//!     S: Service<ToolCall, Response = Res, Error: Into<ToolError>, Future: Send>,
//!     S: Clone + Send + Sync + 'static,
//!     Res: Send + 'static,
//! {
//!     middleware::from_fn(repeat)
//! }
//! # use tower::{ServiceExt, service_fn};
//! # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() {
//! # let tool = || service_fn(|call: ToolCall| async move {
//! #     match call.attempt() {
//! #         1 => Err(ToolError::new(tower_toolcall::ErrorKind::Timeout, "late")),
//! #         n => Ok(n),
//! #     }
//! # });
//! # let safe = ToolCall::new("weather").with_replay_safety(ReplaySafety::Safe);
//! # assert_eq!(repeats().layer(tool()).oneshot(safe).await.unwrap(), 2);
//! # assert!(repeats().layer(tool()).oneshot(ToolCall::new("pay")).await.is_err());
//! # }
//! ```
//!
//! # Order
//!
//! Anywhere. It passes the readiness of the inner service through; a reservation there is held
//! until the function calls it, or is done.
//!
//! # Errors
//!
//! What the function returns: a [`ToolError`], or what becomes one, stamped with the call's names.
//! A refusal is a
//! [`ToolError::refusal`]: circuit breakers do not count it, and no layer takes it for an attempt.
//!
//! # Cancel safety
//!
//! The function's future is dropped with the response future, and in the moment of its answer. A
//! call that is dropped before [`Next::run`] was not sent: outer layers count no attempt. An outer
//! [`OnceLayer`](crate::once::OnceLayer) keeps its key nevertheless, because the function may have
//! given the call to another service. Nor does an answer without `run` count as an attempt.
//!
//! # Clone
//!
//! Clones share the function.
//!
//! # Cost
//!
//! The inner stack is behind a box. A call allocates twice: for the instance of the stack that
//! goes with it, and for its future; each further attempt likewise.

use std::{
    future::{Future, poll_fn},
    marker::PhantomData,
    mem,
    pin::pin,
    sync::Arc,
    task::{Context, Poll},
};

use tower::{ServiceExt as _, util::BoxCloneSyncService};
use tower_layer::Layer;
use tower_service::Service;

use crate::{
    call::{CallInfo, Claim, ToolCall},
    error::ToolError,
    flow::Sent,
    kit::{
        attempts::{last, made_below},
        limit::WaitLimit,
    },
};

/// Makes a layer of a function from a call and the [rest of the stack](Next) to an answer. See the
/// [module docs](self) for an example.
pub fn from_fn<F, Fut, Res, E>(f: F) -> FromFnLayer<F, Res>
where
    F: Fn(ToolCall, Next<Res>) -> Fut,
    Fut: Future<Output = Result<Res, E>>,
    E: Into<ToolError>,
{
    FromFnLayer {
        f: Arc::new(f),
        answer: PhantomData,
    }
}

/// Layer of a function, made by [`from_fn`].
#[must_use]
pub struct FromFnLayer<F, Res> {
    f: Arc<F>,
    answer: PhantomData<fn() -> Res>,
}

impl<F, Res> Clone for FromFnLayer<F, Res> {
    fn clone(&self) -> Self {
        Self {
            f: Arc::clone(&self.f),
            answer: PhantomData,
        }
    }
}

crate::text::debug_fields! { {F, Res} |_| FromFnLayer<F, Res> { .. } }

impl<S, F, Res> Layer<S> for FromFnLayer<F, Res>
where
    S: Service<ToolCall, Response = Res, Error: Into<ToolError>, Future: Send>
        + Clone
        + Send
        + Sync
        + 'static,
{
    type Service = FromFn<F, Res>;

    fn layer(&self, inner: S) -> Self::Service {
        FromFn {
            f: Arc::clone(&self.f),
            inner: Boxed::new(inner.map_err(Into::into)),
        }
    }
}

/// Passes calls through a function. See the [module docs](self) for an example.
pub struct FromFn<F, Res> {
    f: Arc<F>,
    inner: Boxed<Res>,
}

/// Readiness belongs to an instance: a clone has none.
impl<F, Res> Clone for FromFn<F, Res> {
    fn clone(&self) -> Self {
        Self {
            f: Arc::clone(&self.f),
            inner: self.inner.clone(),
        }
    }
}

crate::text::debug_fields! { {F, Res} |_| FromFn<F, Res> { .. } }

impl<F, Fut, Res, E> Service<ToolCall> for FromFn<F, Res>
where
    F: Fn(ToolCall, Next<Res>) -> Fut,
    Fut: Future<Output = Result<Res, E>>,
    E: Into<ToolError>,
{
    type Response = Res;
    type Error = ToolError;
    type Future = ResponseFuture<Fut>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ToolError>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, call: ToolCall) -> Self::Future {
        let fresh = self.inner.clone();
        let info = call.info();
        info.enter_function();
        let next = Next {
            svc: mem::replace(&mut self.inner, fresh),
            is_ready: true,
            before: call.attempt() - 1,
            made: call.attempt() - 1,
            may_have_run: false,
            info: info.clone(),
        };
        Sent::new((self.f)(call, next), info)
    }
}

/// The stack below a [function](from_fn).
pub struct Next<Res> {
    svc: Boxed<Res>,
    is_ready: bool,
    /// The call, which is not sent before the first run.
    info: CallInfo,
    /// The attempts of outer layers, before this one.
    before: u32,
    /// The attempts so far, those of other layers included.
    made: u32,
    may_have_run: bool,
}

impl<Res> Next<Res> {
    /// Sends a call. A second one first waits until the stack is ready again, but not longer than
    /// the call's deadline, nor after its caller has cancelled.
    ///
    /// A further run with a call of the same tool is a further attempt at the call, and is numbered
    /// so: [`ToolCall::attempt`]. One that a layer refuses does not count.
    ///
    /// # Errors
    ///
    /// That of the stack, or of the wait. After a run in which the tool may have run, an error does
    /// not say that the call was [not started](crate::Execution::NotStarted), because an outer
    /// layer would take it for proof and send the call again.
    pub async fn run(&mut self, mut call: ToolCall) -> Result<Res, ToolError> {
        if call.tool() != self.info.tool() {
            return self.send(call, false).await;
        }
        let made = self.made;
        if call.attempt() != made + 1 {
            call.begin_attempt(made + 1);
        }
        if self.may_have_run {
            call.set_ambiguous();
        }
        let attempt = call.copy();
        let result = self.send(call, true).await;
        result.map_err(|error| self.failed(error.for_call(&attempt.info()), &attempt, made))
    }

    /// Waits for a future, such as the pause before another attempt, but not longer than the call's
    /// deadline, nor after its caller has cancelled.
    ///
    /// # Errors
    ///
    /// That the deadline or the caller has ended the wait.
    pub async fn wait<F: Future>(&self, call: &ToolCall, fut: F) -> Result<F::Output, ToolError> {
        let (mut fut, mut limit) = (pin!(fut), WaitLimit::of_function(call));
        let ended = poll_fn(|cx| match fut.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Ok(output)),
            Poll::Pending => limit.poll(cx).map(Err),
        });
        ended.await.map_err(|error| {
            let error = error.for_call(&call.info());
            if self.may_have_run {
                call.set_ambiguous();
            }
            match self.made > self.before {
                true => last(call, Claim::Retry, self.made, error),
                false => error,
            }
        })
    }

    async fn send(&mut self, call: ToolCall, is_attempt: bool) -> Result<Res, ToolError> {
        let info = is_attempt.then(|| self.info.clone());
        let release = || info.iter().for_each(CallInfo::release);
        let sent = if mem::take(&mut self.is_ready) {
            release();
            self.svc.call(call)
        } else {
            // An instance of its own: what it has reserved is free again if the wait ends, or is
            // dropped.
            let (mut svc, mut limit) = (self.svc.clone(), WaitLimit::of(&call));
            poll_fn(|cx| limit.poll_ready(&mut svc, cx)).await?;
            release();
            svc.call(call)
        };
        if is_attempt {
            self.made += 1;
            // Until it has ended, because it may be dropped.
            self.may_have_run = true;
        }
        sent.await
    }

    /// Takes the error of an attempt, after `made` others.
    fn failed(&mut self, error: ToolError, attempt: &ToolCall, made: u32) -> ToolError {
        let replay = attempt.replay_safety();
        let is_unsent = error.is_surely_not_started(replay) && !error.is_after_ambiguous();
        self.may_have_run = attempt.is_ambiguous() || (self.made > made && !is_unsent);
        if error.is_own_refusal() {
            self.made = made;
        }
        self.made = self.made.max(made_below(&error, attempt.tool()));
        let (is_first, is_sent) = (made == self.before, self.made > made);
        match is_first {
            true if is_sent => error,
            true => {
                self.info.enter_function();
                error
            }
            false => {
                if !is_sent {
                    attempt.record(|record| record.begin_attempt(made));
                }
                last(attempt, Claim::Retry, self.made, error)
            }
        }
    }
}

crate::text::debug_fields! { {Res} |_| Next<Res> { .. } }

/// Response future for [`FromFn`].
pub type ResponseFuture<F> = Sent<F, CallInfo>;

/// A boxed stack.
type Boxed<Res> = BoxCloneSyncService<ToolCall, Res, ToolError>;
