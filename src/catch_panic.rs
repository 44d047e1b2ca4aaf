//! A layer that turns a panicking tool into an error.
//!
//! | at a glance | |
//! |---|---|
//! | does | catches a panic of the tool |
//! | place | innermost, directly around the tool |
//! | default | every panic is caught |
//! | the caller sees | [`Panicked`](ErrorKind::Panicked) |
//! | method | `ServiceBuilderExt::tool_catch_panic` |
//!
//! Without it a panic unwinds through every layer and ends the task that awaits the call. With it
//! as the innermost layer, outer layers get [`ErrorKind::Panicked`]: it counts for the breaker, is
//! measured, and becomes a result. The panic hook still runs, so the panic is printed as always.
//! Dropping the response future drops the inner one.
//!
//! # Order
//!
//! Innermost, directly around the tool.
//!
//! # Example
//!
//! ```
//! use tower::{ServiceBuilder, ServiceExt, service_fn};
//! use tower_toolcall::{
//!     AnyError, ErrorKind, ToolCall,
//!     catch_panic::CatchPanicLayer,
//! };
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let tool = service_fn(|call: ToolCall| async move {
//!     if call.arguments().is_empty() {
//!         panic!("no arguments")
//!     }
//!     Ok::<_, AnyError>(())
//! });
//! let stack = ServiceBuilder::new()
//!     .layer(CatchPanicLayer::new())
//!     .service(tool);
//!
//! let error = stack
//!     .oneshot(ToolCall::new("buggy"))
//!     .await
//!     .unwrap_err();
//! assert_eq!(error.kind(), ErrorKind::Panicked);
//! # }
//! ```
//!
//! # Errors
//!
//! `Panicked`, with the panic's text, redacted and cut, as the message. Errors of the inner service
//! pass, stamped with the call's names.
//!
//! # Panics
//!
//! A panic while the inner future is dropped is caught as well; only the panic hook reports it.
//! Compiled with `panic = "abort"` nothing can be caught.
//!
//! # Clone
//!
//! Clones share nothing.

use std::{
    any::Any,
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    task::{Context, Poll, ready},
};

use pin_project_lite::pin_project;
use tower_layer::Layer;
use tower_service::Service;

use crate::{
    call::{CallInfo, ToolCall},
    error::{ErrorKind, ToolError, recognise::forget},
};

/// Layer that turns panics into errors. See the [module docs](self) for an example.
#[derive(Clone, Copy, Debug, Default)]
#[must_use]
pub struct CatchPanicLayer {
    _private: (),
}

impl CatchPanicLayer {
    /// Makes a layer that catches panics.
    pub fn new() -> Self {
        Self::default()
    }
}

impl<S> Layer<S> for CatchPanicLayer {
    type Service = CatchPanic<S>;

    fn layer(&self, inner: S) -> Self::Service {
        CatchPanic { inner }
    }
}

/// Turns panics into errors. See the [module docs](self) for an example.
#[derive(Clone, Debug)]
pub struct CatchPanic<S> {
    inner: S,
}

crate::kit::inner::accessors!({S} CatchPanic<S>, inner);

impl<S> Service<ToolCall> for CatchPanic<S>
where
    S: Service<ToolCall, Error: Into<ToolError>>,
{
    type Response = S::Response;
    type Error = ToolError;
    type Future = ResponseFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ToolError>> {
        let poll = || self.inner.poll_ready(cx).map_err(Into::into);
        match catch_unwind(AssertUnwindSafe(poll)) {
            Ok(polled) => polled,
            Err(payload) => Poll::Ready(Err(panicked(payload))),
        }
    }

    fn call(&mut self, call: ToolCall) -> Self::Future {
        let info = call.info();
        // Unwind safety: a tool that panicked is asked again only if its owner calls it again,
        // exactly as if the panic had ended another task.
        let called = catch_unwind(AssertUnwindSafe(|| self.inner.call(call)));
        let (fut, error) = match called {
            Ok(fut) => (Some(fut), None),
            Err(payload) => (None, Some(caught(payload, &info))),
        };
        ResponseFuture { fut, error, info }
    }
}

pin_project! {
    /// Response future for [`CatchPanic`].
    #[derive(Debug)]
    #[must_use = "futures do nothing unless polled"]
    pub struct ResponseFuture<F> {
        // None once it has ended, or if the tool panicked when it was called.
        #[pin]
        fut: Option<F>,
        error: Option<ToolError>,
        info: CallInfo,
    }

    impl<F> PinnedDrop for ResponseFuture<F> {
        fn drop(this: Pin<&mut Self>) {
            discard(this.project().fut);
        }
    }
}

/// Drops the tool's future. The drop may panic, as a poll may have done before, and must not end
/// the task that drops the call.
fn discard<F>(mut fut: Pin<&mut Option<F>>) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(|| fut.set(None))) {
        forget(payload);
    }
}

impl<F, Res, E> Future for ResponseFuture<F>
where
    F: Future<Output = Result<Res, E>>,
    E: Into<ToolError>,
{
    type Output = Result<Res, ToolError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let Some(fut) = this.fut.as_mut().as_pin_mut() else {
            return Poll::Ready(Err(this.error.take().expect("polled after completion")));
        };
        // Inside, because a foreign error runs foreign code when it is converted.
        let poll = || fut.poll(cx).map_err(|e| e.into().for_call(this.info));
        let result = match catch_unwind(AssertUnwindSafe(poll)) {
            Ok(polled) => ready!(polled),
            Err(payload) => Err(caught(payload, this.info)),
        };
        // What it panics with then is not its answer.
        discard(this.fut);
        Poll::Ready(result)
    }
}

/// Returns the error of a call that panicked.
fn caught(payload: Box<dyn Any + Send>, info: &CallInfo) -> ToolError {
    panicked(payload).for_call(info)
}

pub(crate) fn panicked(payload: Box<dyn Any + Send>) -> ToolError {
    let text = payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    let error = match text {
        Some(text) => ToolError::new(ErrorKind::Panicked, format!("the tool panicked: {text}")),
        None => ToolError::new(ErrorKind::Panicked, "the tool panicked"),
    };
    forget(payload);
    error
}
