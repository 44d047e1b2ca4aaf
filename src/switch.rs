//! A layer that may be off.
//!
//! | at a glance | |
//! |---|---|
//! | does | applies a layer, or nothing |
//! | place | that of its layer |
//! | default | on for `Some`, off for `None` |
//! | the caller sees | no difference from a stack without the layer, if it is off |
//! | method | none: `.layer(Switch::from(option))` |
//!
//! A [`Switch`] that is off is exactly transparent: it passes calls, readiness, answers, errors and
//! `Debug` of the inner service unchanged, claims nothing and emits no event. It allocates nothing.
//!
//! The service's type is the same, on or off. Unlike tower's `option_layer`, it names the inner
//! service once: a stack of `n` switches has a type name of `n` parts, where one of tower's
//! `Either` has 2ⁿ.
//!
//! # Example
//!
//! ```
//! use tower::{ServiceBuilder, ServiceExt, service_fn};
//! use tower_toolcall::{
//!     ToolCall, ToolError,
//!     circuit_breaker::CircuitBreakerLayer, switch::Switch,
//! };
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), ToolError> {
//! let is_on = false; // a setting
//! let breaker =
//!     Switch::from(is_on.then(CircuitBreakerLayer::new));
//! let tool = service_fn(|_call: ToolCall| async {
//!     Ok::<_, ToolError>("sunny")
//! });
//! let tools =
//!     ServiceBuilder::new().layer(breaker).service(tool);
//! assert_eq!(
//!     tools.oneshot(ToolCall::new("weather")).await?,
//!     "sunny"
//! );
//! # Ok(()) }
//! ```
//!
//! # Errors
//!
//! The errors of the layer or of the inner service, of one type. If a tool's error is not a
//! [`ToolError`](crate::ToolError), put a [`NormalizeLayer`](crate::normalize) directly around it.
//!
//! # Cancel safety
//!
//! The response future is the layer's, or the inner one.
//!
//! # Clone
//!
//! Clones share what clones of the layer share.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use pin_project_lite::pin_project;
use tower_layer::Layer;
use tower_service::Service;

use crate::call::ToolCall;

/// Layer that is on or off. See the [module docs](self) for an example.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct Switch<L>(Option<L>);

impl<L> Switch<L> {
    /// Returns the layer, switched on.
    pub const fn on(layer: L) -> Self {
        Self(Some(layer))
    }

    /// Returns a layer that changes nothing.
    pub const fn off() -> Self {
        Self(None)
    }

    /// Returns the layer if it is on.
    pub const fn get(&self) -> Option<&L> {
        self.0.as_ref()
    }
}

impl<L> From<Option<L>> for Switch<L> {
    fn from(layer: Option<L>) -> Self {
        Self(layer)
    }
}

impl<S, L: Layer<S>> Layer<S> for Switch<L> {
    type Service = Switched<L, S>;

    fn layer(&self, inner: S) -> Self::Service {
        match &self.0 {
            Some(layer) => Switched::On(layer.layer(inner)),
            None => Switched::Off(inner),
        }
    }
}

/// Service of a [`Switch`]: the layer's service, or the inner one.
///
/// The type's name has the layer and not the layer's service. The name of that service has the
/// inner service in it, so each layer would double the name of a stack.
#[non_exhaustive]
pub enum Switched<L: Layer<S>, S> {
    /// The service of the layer.
    On(L::Service),
    /// The inner service.
    Off(S),
}

impl<L: Layer<S, Service: Clone>, S: Clone> Clone for Switched<L, S> {
    fn clone(&self) -> Self {
        match self {
            Self::On(service) => Self::On(service.clone()),
            Self::Off(service) => Self::Off(service.clone()),
        }
    }
}

impl<L: Layer<S, Service: fmt::Debug>, S: fmt::Debug> fmt::Debug for Switched<L, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::On(service) => service.fmt(f),
            Self::Off(service) => service.fmt(f),
        }
    }
}

impl<L, S> Service<ToolCall> for Switched<L, S>
where
    L: Layer<S, Service: Service<ToolCall, Response = S::Response, Error = S::Error>>,
    S: Service<ToolCall>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = ResponseFuture<L, S>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        match self {
            Self::On(service) => service.poll_ready(cx),
            Self::Off(service) => service.poll_ready(cx),
        }
    }

    // Forced inline, as is `poll`: otherwise the future that is returned is copied. 180 of the
    // 2,840 instructions that a call takes in the default stack of settings.
    #[inline(always)]
    fn call(&mut self, call: ToolCall) -> Self::Future {
        match self {
            Self::On(service) => ResponseFuture::On {
                fut: service.call(call),
            },
            Self::Off(service) => ResponseFuture::Off {
                fut: service.call(call),
            },
        }
    }
}

pin_project! {
    /// Response future for [`Switched`].
    // Its variants are public: a struct around them makes each switch two levels deeper, and a
    // spawned stack from settings exceeds the compiler's recursion limit.
    #[project = Projected]
    #[doc(hidden)]
    #[non_exhaustive]
    #[must_use = "futures do nothing unless polled"]
    pub enum ResponseFuture<L, S>
    where
        L: Layer<S>,
        L::Service: Service<ToolCall>,
        S: Service<ToolCall>,
    {
        On { #[pin] fut: <L::Service as Service<ToolCall>>::Future },
        Off { #[pin] fut: S::Future },
    }
}

impl<L, S> Future for ResponseFuture<L, S>
where
    L: Layer<S, Service: Service<ToolCall, Response = S::Response, Error = S::Error>>,
    S: Service<ToolCall>,
{
    type Output = Result<S::Response, S::Error>;

    #[inline(always)]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project() {
            Projected::On { fut } => fut.poll(cx),
            Projected::Off { fut } => fut.poll(cx),
        }
    }
}
