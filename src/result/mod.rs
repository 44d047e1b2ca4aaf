//! A layer that never fails: whatever happens to a call, its caller gets a [`ToolResult`].
//!
//! | at a glance | |
//! |---|---|
//! | does | makes a result of each answer, error and timeout |
//! | place | outermost, or directly inside `sanitize` |
//! | default | an `Ok` is a success unless the tool service reports an error |
//! | the caller sees | a [`ToolResult`], never an error |
//! | method | `ServiceBuilderExt::tool_result` |
//!
//! For agent loops, where the failure of one tool must not end the turn; `batch::Parallel` makes
//! such results itself. The result has the call's [`Status`], its answer or error, its duration,
//! and what the inner layers did. A readiness error is the result of the call that meets it.
//!
//! | ended with | [status](Status) | data | error |
//! |---|---|---|---|
//! | an answer | `success` | yes | |
//! | an error result of the tool by its classification (`isError`) | `error` | yes | `Reported` |
//! | `Timeout` | `timeout` | | yes |
//! | `DeadlineExceeded`: no time was left, it did not start | `skipped` | | yes |
//! | `Cancelled` | `cancelled` | | yes |
//! | any other error | `error` | | yes |
//!
//! # Example
//!
//! ```
//! use tower::{ServiceBuilder, ServiceExt, service_fn};
//! use tower_toolcall::{
//!     AnyError, ToolCall,
//!     result::{Status, ToolResultLayer},
//! };
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let tool = service_fn(|_: ToolCall| async {
//!     Err::<u64, _>(AnyError::from("503 Service Unavailable"))
//! });
//! let tools = ServiceBuilder::new()
//!     .layer(ToolResultLayer::new())
//!     .service(tool);
//!
//! let call = ToolCall::new("weather").with_id("call_1");
//! let Ok(result) = tools.oneshot(call).await;
//! assert_eq!(result.status(), Status::Error);
//! assert_eq!(result.tool(), "weather");
//! assert_eq!(result.call_id(), Some("call_1"));
//!
//! let text = "The service behind tool 'weather' failed: \
//!             503 Service Unavailable.";
//! assert!(result.model_message().starts_with(text));
//! # }
//! ```
//!
//! If a tool service reports its answer as the tool's own error
//! ([`Record::set_reported`](crate::Record::set_reported), as `McpService` does for `isError`), the
//! call has not succeeded. Its kind is [`Reported`](crate::ErrorKind::Reported), and
//! [`data`](ToolResult::data) still has the answer. A tool of your own reports it like this:
//!
//! ```
//! use tower::{ServiceBuilder, ServiceExt, service_fn};
//! use tower_toolcall::{AnyError, ErrorKind, ToolCall, result::ToolResultLayer};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let tool = service_fn(|call: ToolCall| async move {
//!     call.info().record(|record| record.set_reported(true));
//!     Ok::<_, AnyError>("there is no city of this name")
//! });
//! let tools = ServiceBuilder::new().layer(ToolResultLayer::new()).service(tool);
//!
//! let Ok(result) = tools.oneshot(ToolCall::new("weather")).await;
//! assert_eq!(result.error().unwrap().kind(), ErrorKind::Reported);
//! assert_eq!(result.data(), Some(&"there is no city of this name"));
//! # }
//! ```
//!
//! Answers that say so in themselves need a [classifier](ToolResultLayer::with_classifier).
//!
//! # Errors
//!
//! None: the error type is [`Never`], which has no value and does not convert into a
//! [`ToolError`](crate::ToolError). Layers and bridges that look at errors, such as a batch or
//! routes, would take all its results for successes. So they do not compile around such a stack,
//! unless a layer between them boxes errors. Give them the stack without this layer; they make
//! results themselves.
//!
//! # Cancel safety
//!
//! Dropping the response future drops the inner one, and no result is made. A call that its token
//! cancels has a result.
//!
//! # Details
//!
//! ## Serde
//!
//! A result is written *redacted*: [`ToolResult`]'s `Serialize` is for logs and stores, as its
//! `Debug` is. To hand the tool's real answer on, ask for it: [`ToolResult::exposed`],
//! [`ToolResult::into_data`].
//!
//! ## Order
//!
//! Outermost, or directly inside [`SanitizeLayer`](crate::sanitize): its rules hold either way. It
//! is always ready, so back-pressure ends here: bound the load with a limit outside it. A
//! [`CatchPanicLayer`](crate::catch_panic) innermost makes results of panics as well; without it a
//! panic goes on up.
//!
//! ## Other systems' names
//!
//! - `is_success()`: `success` (a TypeScript executor)
//! - [`Status::Timeout`], [`Status::Skipped`]: both are `timeout` in a Go agent library;
//!   [`ToolResult::ran_out_of_time`] is true for both
//! - `duration()`, `duration_ms`: `executionTimeMs`, `tool.execution_time_ms`
//! - `user_message()`: `userMessage`
//! - `error().code()`: see [the codes](crate::error#other-systems-codes)
//!
//! ## Clone
//!
//! Clones share nothing; a clone has no reservation.

mod future;
mod layer;
mod metadata;
mod never;
mod service;
mod status;
mod tool_result;
mod wire;

pub use self::{
    future::{Pending, ResponseFuture},
    layer::ToolResultLayer,
    metadata::Metadata,
    never::Never,
    service::ToolResultService,
    status::Status,
    tool_result::{Exposed, ToolResult},
};
