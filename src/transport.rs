//! A layer for a client, which reads from an error's type whether the call was sent.
//!
//! | at a glance | |
//! |---|---|
//! | does | marks errors as not started if the client sent nothing |
//! | place | directly around a client |
//! | default | knows the errors of std, hyper, reqwest, tonic and tower |
//! | the caller sees | a [`ToolError`] |
//! | method | none: [`transport`], or `.layer(TransportLayer::new())` |
//!
//! A tool that fails with "connection refused" may have met it after its work. Such an error proves
//! nothing, and the call is repeated only if that [is safe](crate::retry). A *transport* only sends
//! the call somewhere else: an HTTP, gRPC or socket client. Its refused connection means that the
//! call was not sent. Declare that with [`transport`] around the client, or with
//! [`TransportLayer`] in a `ServiceBuilder`, and such calls may be repeated.
//!
//! Answers pass unchanged. Errors become a [`ToolError`]:
//!
//! | the error, or one in its source chain | kind | did the tool run? |
//! |---|---|---|
//! | [`std::io::Error`]: `ConnectionRefused`, `AddrNotAvailable` | `ConnectionFailed` | no |
//! | hyper-util's client: `is_connect()` (feature `hyper`) | `ConnectionFailed` | no |
//! | reqwest: `is_connect()` (feature `reqwest` or `hyper`) | `ConnectionFailed` | no |
//! | tonic's `ConnectError` (feature `tonic`) | `ConnectionFailed` | no |
//! | HTTP/2 `REFUSED_STREAM` (feature `hyper` or `tonic`) | `ConnectionFailed` | no |
//! | another [`std::io::Error`] of a connection | `ConnectionFailed` | unknown |
//! | hyper: `is_canceled()`, `is_closed()` and the like | `ConnectionFailed` | unknown |
//! | reqwest with a status (feature `reqwest`) | [by it][status] | 429: no; else by the kind |
//! | a gRPC status (feature `tonic`) | by its code: the table in `grpc_status` | unknown |
//! | a timeout of tokio, tower, hyper or reqwest | `Timeout` | unknown |
//! | a [`ToolError`] of the client's own | as it is | as it is |
//! | anything else | by its text | unknown |
//!
//! [status]: crate::ErrorKind::from_http_status
//!
//! An error that is known by its type is [reported](crate::Evidence::Reported), any other is
//! [inferred](crate::Evidence::Inferred). An answer with an error status that the client returns as
//! `Ok` is for the client to judge: [`ToolError::from_status`], with
//! [`ToolError::with_retry_after`] where the answer names a delay.
//!
//! # Example
//!
//! ```
//! use std::io;
//! use tower::{ServiceBuilder, ServiceExt, service_fn};
//! use tower_toolcall::{
//!     Execution, ToolCall, retry::RetryLayer,
//!     transport::transport,
//! };
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() {
//! // A client of your own: it connects, sends the call, and hands the answer on.
//! let client = service_fn(|_call: ToolCall| async {
//!     Err::<String, io::Error>(
//!         io::ErrorKind::ConnectionRefused.into(),
//!     )
//! });
//! let stack = ServiceBuilder::new()
//!     .layer(RetryLayer::default())
//!     .service(transport(client));
//!
//! let error = stack
//!     .oneshot(ToolCall::new("search"))
//!     .await
//!     .unwrap_err();
//! assert_eq!(error.execution(), Execution::NotStarted);
//! assert_eq!(error.attempts(), Some(3));
//! # }
//! ```
//!
//! # Errors
//!
//! Those of the client, as above, stamped with the call's names. Readiness errors are read in the
//! same way.
//!
//! # Cancel safety
//!
//! Dropping the response future drops the client's.
//!
//! # Details
//!
//! ## Order
//!
//! Directly around the client. Not around a tool that uses the client: a tool that calls two
//! services, or works with the answer, has begun when its second request is refused. A client that
//! follows redirects is a transport only if its peers send none: the redirect of a call that was
//! done may lead to a host that refuses.
//!
//! ## Your own error type
//!
//! `transport` takes any error, also of types that this crate does not know. So it cannot ask for a
//! conversion, and does **not use** a `From<YourError> for ToolError`. A client with such an error
//! needs no `transport`: every layer converts the error. Where several clients share one
//! `transport`, convert it first:
//!
//! ```
//! use std::fmt;
//! use tower::{ServiceExt, service_fn};
//! use tower_toolcall::{ErrorKind, ToolCall, ToolError, transport::transport};
//!
//! #[derive(Debug)]
//! struct NoSuchCity;
//!
//! impl From<NoSuchCity> for ToolError {
//!     fn from(error: NoSuchCity) -> Self {
//!         ToolError::new(ErrorKind::InvalidInput, "no such city").with_source(error)
//!     }
//! }
//!
//! impl fmt::Display for NoSuchCity {
//!     fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
//!         f.write_str("no such city")
//!     }
//! }
//!
//! impl std::error::Error for NoSuchCity {}
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let client = service_fn(|_call: ToolCall| async { Err::<String, _>(NoSuchCity) });
//! let tool = transport(client.map_err(ToolError::from));
//!
//! let error = tool.oneshot(ToolCall::new("weather")).await.unwrap_err();
//! assert_eq!(error.kind(), ErrorKind::InvalidInput);
//! # }
//! ```
//!
//! [`ToolError::from_transport`] is the conversion of `transport` for one error of the client:
//! see the example in [`error`](crate::error#your-own-error-type).
//!
//! ## Clone
//!
//! A clone holds a clone of the client, and is ready only if that is.

use tower_layer::Layer;

use crate::{
    error::{AnyError, ToolError},
    kit::converted::{Convert, Converted, Converting},
};

/// Declares that a tool service is a transport. See the [module docs](self) for an example, and for
/// [your own error type](self#your-own-error-type), which is not converted here.
pub fn transport<S>(leaf: S) -> Transport<S> {
    Transport::new(leaf, TransportLayer(()))
}

/// Layer that declares the inner service a transport: [`transport`] for a `ServiceBuilder`.
#[derive(Clone, Copy, Debug, Default)]
#[must_use]
pub struct TransportLayer(());

impl TransportLayer {
    /// Returns the layer.
    pub fn new() -> Self {
        Self::default()
    }
}

impl<S> Layer<S> for TransportLayer {
    type Service = Transport<S>;

    fn layer(&self, leaf: S) -> Self::Service {
        transport(leaf)
    }
}

/// A tool service that is a transport. Made by [`transport`] and [`TransportLayer`]; see the
/// [module docs](self).
pub type Transport<S> = Converted<S, TransportLayer>;

/// Response future for [`Transport`].
pub type ResponseFuture<F> = Converting<F, TransportLayer>;

impl<E: Into<AnyError>> Convert<E> for TransportLayer {
    fn convert(&self, error: E) -> ToolError {
        ToolError::from_transport(error)
    }
}
