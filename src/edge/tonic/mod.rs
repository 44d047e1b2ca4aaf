//! gRPC, with [tonic](https://docs.rs/tonic): an error as a status and back, and the metadata of
//! requests.
//!
//! The example [`tonic_server`] is a whole program with its message types, without `protoc`.
//!
//! [`tonic_server`]: https://docs.rs/crate/tower-toolcall/latest/source/examples/edges/tonic_server.rs
//!
//! A method runs the stack and lets `?` make a
//! [`Status`](https://docs.rs/tonic/latest/tonic/struct.Status.html) of its error:
//!
//! ```
//! use tonic::{Request, Response, Status};
//! use tower::{Service, ServiceExt};
//! use tower_toolcall::{ToolCall, ToolError};
//!
//! /// A method of a service; `stack` is a clone of the one that all methods share.
//! async fn call<S>(stack: S, request: Request<String>) -> Result<Response<String>, Status>
//! where
//!     S: Service<ToolCall, Response = String, Error = ToolError>,
//! {
//!     let call = ToolCall::new("search").with_grpc_metadata(request.metadata());
//!     let call = call.with_json_str(request.get_ref())?;
//!     call.check()?;
//!     let info = call.info();
//!     let answer = stack.oneshot(call).await.map_err(|error| error.for_call(&info))?;
//!     Ok(Response::new(answer))
//! }
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let limited = tower::service_fn(|_| async {
//!     let error = ToolError::from_box("429 Too Many Requests".into());
//!     Err(error.with_retry_after(std::time::Duration::from_secs(2)))
//! });
//! let status = call(limited, Request::new("{}".into())).await.unwrap_err();
//! assert_eq!(status.code(), tonic::Code::ResourceExhausted);
//! assert_eq!(status.metadata().get("grpc-retry-pushback-ms").unwrap(), "2000");
//! # }
//! ```
//!
//! Limits belong into the stack, not into tonic's own layers, which do not know these errors: a
//! `Server::timeout` answers `CANCELLED`, and a `TimeoutLayer` of tower's answers `INTERNAL`.
//! tonic's server also enforces `grpc-timeout` by itself, with `CANCELLED`. With
//! [`with_grpc_deadline`](crate::ToolCall::with_grpc_deadline) it is the call's deadline too, and a
//! [`DeadlineLayer`](crate::deadline) ends the call earlier by its reserve, so that the stack's own
//! answer is there first. The reserve is a tenth of a short `grpc-timeout`: below 100 ms that is
//! less than 10 ms, and tonic's answer may be first. No deadline is taken without it, and it says
//! whether the client is trusted: deadlines of strangers tell a circuit breaker nothing.
//!
//! The names of tools and servers in a request are the client's: resolve them by an [identity
//! layer](crate::identity).
//!
//! Whose a call is, a method says:
//! [`with_request_extensions`](crate::ToolCall::with_request_extensions) takes up the
//! [`VerifiedCaller`](crate::VerifiedCaller) that an interceptor has put into the request's
//! extensions; else set the peer's address as the session id, as [not
//! verified](crate::ToolCall::with_unverified_ids).
//!
//! # A status from an error
//!
//! | of the status | is |
//! |---|---|
//! | code | the [kind's](crate::ErrorKind::grpc_code) |
//! | message | the [user's](crate::ToolError::user_message), never the one for developers |
//! | `google.rpc.ErrorInfo` in the details | reason: the code; domain: [`DOMAIN`]; `kind`, `execution`, and of [the facts over HTTP](crate::ToolError::to_http) those that have no other place here |
//! | `google.rpc.RetryInfo` in the details | the delay, where one is known |
//! | `grpc-retry-pushback-ms` in the metadata | the same in milliseconds, rounded up; `-1`, do not repeat, if that is more than the 32 bits which gRPC has for it |
//! | `source()` | the error; it stays in the process |
//!
//! # An error from a status
//!
//! Of a client's call, for tools that speak gRPC. `From`, and the search through source chains
//! ([`recognise`]), know:
//!
//! | status | kind |
//! |---|---|
//! | one that was made of a [`ToolError`](crate::ToolError) in this process | the same error |
//! | one that a peer with this crate made of an error | that kind and its code; its `Cancelled` is `Upstream` |
//! | with a cause met on this side: no connection, an `io::Error`, a timeout | the cause's |
//! | `CANCELLED`, "Timeout expired", which is tonic's timeout | `Timeout` |
//! | `CANCELLED` with a cause met on this side: the connection is gone | `ConnectionFailed` |
//! | `CANCELLED` of the peer's | `Upstream`: this side did not ask for it |
//! | `RESOURCE_EXHAUSTED`, `OUT_OF_RANGE` for a message that is too large | `InvalidInput` |
//! | any other | [by its code](crate::ErrorKind::from_grpc_code); `NOT_FOUND` has the status 404, as the tool is there |
//!
//! Whether the tool ran is unknown, whatever the code and the delay: a tool may have met the status
//! in the middle of its work, and a server may answer `RESOURCE_EXHAUSTED` or `UNAVAILABLE` after
//! its own. More is believed where the tool service says whose word it is:
//!
//! | status | [`transport`](crate::transport) around the client | [`from_trusted_peer`] |
//! |---|---|---|
//! | no connection was made ([`ConnectError`](https://docs.rs/tonic/latest/tonic/struct.ConnectError.html)) | not started | not started |
//! | the peer refused the stream (HTTP/2 `REFUSED_STREAM`) | not started | not started |
//! | with `execution` in an `ErrorInfo` of [`DOMAIN`] | unknown | as it says |
//! | any other | unknown | unknown |
//!
//! The delay is `RetryInfo`'s, or else `grpc-retry-pushback-ms`, or else that of the message. A
//! pushback that forbids the repeat (a negative or unreadable value, or several of them) makes the
//! error not retryable, unless `RetryInfo` names a delay. What a peer writes into them is a value
//! or nothing.
//!
//! # Errors, cancellation
//!
//! Nothing here fails, whatever a peer writes. But tonic's own client panics (0.14) over a
//! `grpc-status-details-bin` that is no base64, before there is a status: put a
//! [`CatchPanicLayer`](crate::catch_panic) around tools that ask peers you do not trust.
//!
//! A client that cancels, or is gone, drops its method's future, and with it the call.

mod metadata;
mod received;
mod sent;

#[cfg(doc)]
use ::tonic::Status;

pub(crate) use self::received::{is_transparent, on_wire, shown};
pub use self::{
    metadata::timeout,
    received::{from_trusted_peer, recognise},
    sent::DOMAIN,
};
