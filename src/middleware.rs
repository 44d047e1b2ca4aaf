//! A layer from an async function.
//!
//! The function has the call and the [rest of the stack](Next), and gives the answer: it may change
//! the call, refuse it, send it more than once, or change what comes back.
//!
//! ```
//! use tower::{ServiceBuilder, ServiceExt, service_fn};
//! use tower_toolcall::{AnyError, ErrorKind, ToolCall, ToolError, middleware};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let no_payments = middleware::from_fn(|call: ToolCall, mut next| async move {
//!     if call.is_named("pay") {
//!         return Err(ToolError::refusal(ErrorKind::Denied, "payments are switched off"));
//!     }
//!     next.run(call).await
//! });
//! let tool = service_fn(|_call: ToolCall| async { Ok::<_, AnyError>("sunny") });
//! let stack = ServiceBuilder::new().layer(no_payments).service(tool);
//!
//! assert_eq!(stack.clone().oneshot(ToolCall::new("weather")).await.unwrap(), "sunny");
//! let refused = stack.oneshot(ToolCall::new("pay")).await.unwrap_err();
//! assert!(refused.is_own_refusal());
//! # }
//! ```
//!
//! # Order
//!
//! Anywhere. It passes the readiness of the service below through; what that has reserved is held
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
//! call that is dropped before [`Next::run`] was not sent: outer layers count no attempt.
//!
//! # Clone
//!
//! Clones share the function.
//!
//! # Cost
//!
//! The stack below stands behind a box. A call allocates twice: for the instance of the stack that
//! goes with it, and for its future; each further attempt likewise.

use std::{
    future::{Future, poll_fn},
    marker::PhantomData,
    mem,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll},
};

use tower_layer::Layer;
use tower_service::Service;

use crate::{
    call::{CallInfo, Held, ToolCall},
    error::ToolError,
    flow::Sent,
    kit::preparing::Preparing,
};

/// A layer of a function from a call and the [rest of the stack](Next) to an answer. See the
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

crate::text::opaque_debug!({F, Res} FromFnLayer<F, Res>);

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
            inner: Boxed(Box::new(inner)),
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

crate::text::opaque_debug!({F, Res} FromFn<F, Res>);

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
        Service::poll_ready(&mut self.inner, cx)
    }

    fn call(&mut self, call: ToolCall) -> Self::Future {
        let fresh = self.inner.clone();
        let next = Next {
            svc: mem::replace(&mut self.inner, fresh),
            held: Some(call.info().hold()),
        };
        let info = call.info();
        Sent::new((self.f)(call, next), info)
    }
}

/// The stack below a [function](from_fn).
pub struct Next<Res> {
    svc: Boxed<Res>,
    // Until the stack is called, which is ready.
    held: Option<Held>,
}

impl<Res> Next<Res> {
    /// Sends a call. A second one first waits until the stack is ready again, but not longer than
    /// the call's deadline, nor after its caller has cancelled.
    ///
    /// # Errors
    ///
    /// That of the stack, or of the wait.
    pub async fn run(&mut self, call: ToolCall) -> Result<Res, ToolError> {
        if let Some(held) = self.held.take() {
            held.release();
            return self.svc.call(call).await;
        }
        let info = call.info();
        let sent = {
            // An instance of its own: what it has reserved is free again if the wait ends, or is
            // dropped.
            let mut preparing = pin!(Preparing::new(self.svc.clone(), &call));
            let mut call = Some(call);
            let mut send = |svc: &mut Boxed<Res>| svc.call(call.take().expect("called once"));
            poll_fn(|cx| preparing.as_mut().poll(cx).map(|svc| svc.map(&mut send))).await
        };
        let sent = sent.map_err(|why| why.into_error().for_call(&info))?;
        sent.await
    }
}

crate::text::opaque_debug!({Res} Next<Res>);

/// Response future for [`FromFn`].
pub type ResponseFuture<F> = Sent<F, CallInfo>;

type Answer<Res> = Pin<Box<dyn Future<Output = Result<Res, ToolError>> + Send>>;

/// A stack whose type is forgotten.
struct Boxed<Res>(Box<dyn Erased<Res>>);

trait Erased<Res>: Send + Sync {
    fn poll_erased(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ToolError>>;
    fn call_erased(&mut self, call: ToolCall) -> Answer<Res>;
    fn boxed_clone(&self) -> Box<dyn Erased<Res>>;
}

impl<S, Res> Erased<Res> for S
where
    S: Service<ToolCall, Response = Res, Error: Into<ToolError>, Future: Send>
        + Clone
        + Send
        + Sync
        + 'static,
{
    fn poll_erased(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ToolError>> {
        Service::poll_ready(self, cx).map_err(Into::into)
    }

    fn call_erased(&mut self, call: ToolCall) -> Answer<Res> {
        let fut = Service::call(self, call);
        Box::pin(async move { fut.await.map_err(Into::into) })
    }

    fn boxed_clone(&self) -> Box<dyn Erased<Res>> {
        Box::new(self.clone())
    }
}

impl<Res> Clone for Boxed<Res> {
    fn clone(&self) -> Self {
        Self(self.0.boxed_clone())
    }
}

impl<Res> Service<ToolCall> for Boxed<Res> {
    type Response = Res;
    type Error = ToolError;
    type Future = Answer<Res>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ToolError>> {
        self.0.poll_erased(cx)
    }

    fn call(&mut self, call: ToolCall) -> Answer<Res> {
        self.0.call_erased(call)
    }
}
