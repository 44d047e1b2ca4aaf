//! A layer that turns whatever error the inner service has into a [`ToolError`].
//!
//! | at a glance | |
//! |---|---|
//! | does | converts foreign errors |
//! | place | directly outside tower's layers |
//! | default | this crate's codes |
//! | the caller sees | a [`ToolError`] |
//! | method | `ServiceBuilderExt::tool_normalize` |
//!
//! For a stack with a foreign outermost layer: tower's `timeout`, `buffer`, `load_shed` and others
//! widen every error to a [`BoxError`]. Success passes unchanged. Dropping the response future
//! drops the inner one.
//!
//! # Order
//!
//! Directly outside tower's layers, outermost or wherever a layer needs `Error = ToolError`.
//!
//! An `Overloaded` of tower's `load_shed` that reaches it, bare or through tower's `Buffer`, is the
//! [refusal](ToolError::refusal) of a layer: the call was never sent. Elsewhere an `Overloaded`
//! proves nothing: a tool may have met it in the middle of its work. So do not put this layer
//! around a tool that has its own load shedder and hands on its `BoxError`; a tool that returns a
//! [`ToolError`] is fine.
//!
//! A `Buffer` never recovers after its service has failed to become ready. Each later call has that
//! error, of whatever [kind](crate::ErrorKind) it is, and whether the tool ran is unknown.
//!
//! # Example
//!
//! ```
//! use std::time::Duration;
//! use tower::{ServiceBuilder, ServiceExt, service_fn};
//! use tower_toolcall::{
//!     BoxError, ErrorKind, ToolCall,
//!     normalize::NormalizeLayer,
//! };
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() {
//! let tool = service_fn(|_call: ToolCall| {
//!     std::future::pending::<Result<(), BoxError>>()
//! });
//! let stack = ServiceBuilder::new()
//!     .layer(NormalizeLayer::new())
//!     .timeout(Duration::from_secs(1)) // tower's own
//!     .service(tool);
//!
//! let error =
//!     stack.oneshot(ToolCall::new("slow")).await.unwrap_err();
//! assert_eq!(
//!     (error.kind(), error.tool()),
//!     (ErrorKind::Timeout, Some("slow"))
//! );
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

use std::{any::Any, sync::Arc};

use tower_layer::Layer;

use crate::{
    error::{self, BoxError, ToolError},
    kit::converted::{Convert, Converted, Converting},
};

/// Layer that gives a stack our error type. See the [module docs](self) for an example.
#[derive(Clone, Default)]
#[must_use]
pub struct NormalizeLayer {
    /// Gives errors other codes; `None` leaves them alone.
    codes: Option<Arc<CodeFn>>,
}

type CodeFn = dyn Fn(&ToolError) -> Option<&'static str> + Send + Sync;

crate::text::debug_fields! { {} |this| NormalizeLayer { codes: this.codes.is_some() } }

impl NormalizeLayer {
    /// Makes a layer that converts errors.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets a function that gives errors other [codes](ToolError::code); `None` keeps the error's
    /// own.
    pub fn with_codes<F>(mut self, codes: F) -> Self
    where
        F: Fn(&ToolError) -> Option<&'static str> + Send + Sync + 'static,
    {
        self.codes = Some(Arc::new(codes));
        self
    }
}

impl<S> Layer<S> for NormalizeLayer {
    type Service = Normalize<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Normalize::new(inner, self.clone())
    }
}

/// Gives a service our error type. See the [module docs](self) for an example.
pub type Normalize<S> = Converted<S, NormalizeLayer>;

/// Response future for [`Normalize`].
pub type ResponseFuture<F> = Converting<F, NormalizeLayer>;

impl<E: Into<ToolError> + 'static> Convert<E> for NormalizeLayer {
    /// Returns the error; as a refusal, if it is that of an inner layer.
    fn convert(&self, error: E) -> ToolError {
        let boxed = (&error as &dyn Any).downcast_ref::<BoxError>();
        let refused = boxed.is_some_and(|error| error::is_refusal(&**error));
        let error = match refused {
            true => error.into().into_own_refusal(),
            false => error.into(),
        };
        match self.codes.as_ref().and_then(|codes| codes(&error)) {
            Some(code) => error.with_code(code),
            None => error,
        }
    }
}
