//! A layer that shows each call as a span, and how it ended as an event.
//!
//! The span is OpenTelemetry's for the execution of a tool (`execute_tool {name}`), a child of the
//! span that the caller is in. The arguments stand in it redacted, never raw. When no subscriber
//! listens, nothing is formatted, and no clock is read until the call waits.
//!
//! | ends with | event | level | span |
//! |---|---|---|---|
//! | (start) | `tool.start` | DEBUG | |
//! | success | `tool.success` | INFO | `success = true` |
//! | timeout | `tool.timeout` | WARN | `success = false`, `error.type`, status ERROR |
//! | not started: no time left | `tool.skipped` | WARN | the same |
//! | cancelled, or dropped unfinished | `tool.cancelled` | INFO | the same |
//! | dropped after its deadline | `tool.timeout` | WARN | the same |
//! | the tool's own error (`isError`) | `tool.failure` | ERROR | the same; `error.type = tool_error` |
//! | any other error, a panic | `tool.failure` | ERROR | the same |
//!
//! # Order
//!
//! Outside everything that should be inside the span; inside `ToolResultLayer`.
//!
//! # Example
//!
//! ```
//! use tower::{ServiceBuilder, ServiceExt, service_fn};
//! use tower_toolcall::{BoxError, ToolCall, trace::TraceLayer};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let tool = service_fn(|_call: ToolCall| async { Ok::<_, BoxError>("sunny") });
//! let stack = ServiceBuilder::new().layer(TraceLayer::new()).service(tool);
//! stack.oneshot(ToolCall::new("weather")).await.unwrap();
//! # }
//! ```
//!
//! An MCP tool's own errors (`isError`) are `Ok` inside a stack. The classifier tells:
//!
//! ```
//! # #[cfg(feature = "mcp")] {
//! use tower_toolcall::{mcp::McpClassifier, trace::TraceLayer};
//!
//! let layer = TraceLayer::new().with_classifier(McpClassifier::new());
//! # }
//! ```
//!
//! # Errors
//!
//! Those of the inner service, stamped with the call's names.
//!
//! # Cancel safety
//!
//! A future that is dropped unfinished is reported as cancelled, with how long it had been waiting.
//!
//! # Clone
//!
//! Clones share the settings and nothing else.
//!
//! # Differences from `tower_http::trace`
//!
//! A call that is dropped unfinished is seen. What the layers below did (attempts, the timeout in
//! force, slowness) is in the span of a success too.

mod future;
mod hooks;
mod layer;
mod observer;
mod service;
mod span;

pub use self::{
    future::ResponseFuture,
    hooks::{DefaultHooks, End, TraceHooks},
    layer::TraceLayer,
    service::Trace,
};
