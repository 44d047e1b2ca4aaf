//! A layer that turns whatever error the inner service has into a [`ToolError`].
//!
//! For a stack whose outermost layer is not one of ours: tower's `timeout`, `buffer`, `load_shed`
//! and others widen every error to a [`BoxError`]. Success passes unchanged. Dropping the response
//! future drops the inner one.
//!
//! # Order
//!
//! Directly above tower's layers, outermost or wherever a layer needs `Error = ToolError`.
//!
//! An `Overloaded` of tower's `load_shed` that reaches it, bare or behind tower's `Buffer`, is the
//! [refusal](ToolError::refusal) of a layer: the call was never sent. Elsewhere an `Overloaded`
//! proves nothing: a tool may have met it in the middle of its work. So a tool that has a load
//! shedder of its own and hands on its `BoxError` should not stand below this layer; one that
//! returns a [`ToolError`] may.
//!
//! A `Buffer` whose service has once failed to become ready never comes back: each later call has
//! that error, of whatever [kind](crate::ErrorKind) it is, and whether the tool ran is unknown.
//!
//! # Example
//!
//! ```
//! use std::time::Duration;
//! use tower::{ServiceBuilder, ServiceExt, service_fn};
//! use tower_toolcall::{BoxError, ErrorKind, ToolCall, normalize::NormalizeLayer};
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() {
//! let tool = service_fn(|_call: ToolCall| std::future::pending::<Result<(), BoxError>>());
//! let stack = ServiceBuilder::new()
//!     .layer(NormalizeLayer::new())
//!     .timeout(Duration::from_secs(1)) // tower's own
//!     .service(tool);
//!
//! let error = stack.oneshot(ToolCall::new("slow")).await.unwrap_err();
//! assert_eq!((error.kind(), error.tool()), (ErrorKind::Timeout, Some("slow")));
//! # }
//! ```
//!
//! Where another system's codes are expected, they are a setting:
//!
//! ```
//! use tower_toolcall::{ErrorKind, ToolError, normalize::NormalizeLayer};
//!
//! let layer = NormalizeLayer::new().with_codes(|error: &ToolError| match error.kind() {
//!     ErrorKind::ConnectionFailed => Some("MCP_CONNECTION_ERROR"),
//!     _ => None,
//! });
//! ```
//!
//! # Errors
//!
//! Those of the inner service, [converted](crate::error) and stamped with the call's names.
//!
//! # Clone
//!
//! Clones share the code mapper.

use std::{
    any::Any,
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use pin_project_lite::pin_project;
use tower_layer::Layer;
use tower_service::Service;

use crate::{
    call::{CallInfo, ToolCall},
    error::{BoxError, ToolError},
    foreign,
    kit::inner,
};

/// Layer that gives a stack our error type. See the [module docs](self) for an example.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct NormalizeLayer {
    codes: Codes,
}

/// Gives errors other codes; `None` leaves them alone.
#[derive(Clone, Default)]
struct Codes(Option<Arc<CodeFn>>);

type CodeFn = dyn Fn(&ToolError) -> Option<&'static str> + Send + Sync;

impl Codes {
    fn apply(&self, error: ToolError) -> ToolError {
        match self.0.as_ref().and_then(|codes| codes(&error)) {
            Some(code) => error.with_code(code),
            None => error,
        }
    }
}

impl fmt::Debug for Codes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Some(..)" } else { "None" })
    }
}

impl NormalizeLayer {
    /// A layer that converts errors.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets a function that gives errors other [codes](ToolError::code); `None` keeps the error's
    /// own.
    pub fn with_codes<F>(mut self, codes: F) -> Self
    where
        F: Fn(&ToolError) -> Option<&'static str> + Send + Sync + 'static,
    {
        self.codes = Codes(Some(Arc::new(codes)));
        self
    }
}

impl<S> Layer<S> for NormalizeLayer {
    type Service = Normalize<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Normalize {
            inner,
            codes: self.codes.clone(),
        }
    }
}

/// Gives a service our error type. See the [module docs](self) for an example.
#[derive(Clone, Debug)]
pub struct Normalize<S> {
    inner: S,
    codes: Codes,
}

crate::kit::inner::accessors!({S} Normalize<S>, inner);

impl<S> Service<ToolCall> for Normalize<S>
where
    S: Service<ToolCall>,
    S::Error: Into<ToolError> + 'static,
{
    type Response = S::Response;
    type Error = ToolError;
    type Future = ResponseFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ToolError>> {
        self.inner
            .poll_ready(cx)
            .map_err(|e| self.codes.apply(converted(e)))
    }

    fn call(&mut self, call: ToolCall) -> Self::Future {
        let info = call.info();
        ResponseFuture {
            fut: Some(self.inner.call(call)),
            info,
            codes: self.codes.clone(),
        }
    }
}

/// The error; as a refusal, if it is that of a layer below.
fn converted<E: Into<ToolError> + 'static>(error: E) -> ToolError {
    let boxed = (&error as &dyn Any).downcast_ref::<BoxError>();
    let refused = boxed.is_some_and(|error| foreign::is_refusal(&**error));
    let error = error.into();
    match refused {
        true => error.into_own_refusal(),
        false => error,
    }
}

pin_project! {
    /// Response future for [`Normalize`].
    #[derive(Debug)]
    #[must_use = "futures do nothing unless polled"]
    pub struct ResponseFuture<F> {
        #[pin]
        fut: Option<F>,
        info: CallInfo,
        codes: Codes,
    }
}

impl<F, Res, E> Future for ResponseFuture<F>
where
    F: Future<Output = Result<Res, E>>,
    E: Into<ToolError> + 'static,
{
    type Output = Result<Res, ToolError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        inner::poll(this.fut, cx).map_err(|e| this.codes.apply(converted(e).for_call(this.info)))
    }
}
