//! A layer that shows each call as a span, and how it ended as an event.
//!
//! | at a glance | |
//! |---|---|
//! | does | opens a span, and emits an event at the end |
//! | place | outermost of the observers, inside `identity` |
//! | default | redacted arguments, no answers |
//! | the caller sees | nothing |
//! | method | `ServiceBuilderExt::tool_trace` |
//!
//! The span is OpenTelemetry's for the execution of a tool (`execute_tool {name}`), a child of the
//! span that the caller is in, or of one in another process (`ToolCall::with_remote_parent`,
//! feature `otel`). The arguments stand in it redacted, never raw. When no subscriber listens,
//! nothing is formatted, and no clock is read until the call waits.
//!
//! # Example
//!
//! ```
//! use tower::{ServiceBuilder, ServiceExt, service_fn};
//! use tower_toolcall::{
//!     AnyError, ToolCall, retry::RetryLayer,
//!     trace::TraceLayer,
//! };
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let tool = service_fn(|_call: ToolCall| async {
//!     Ok::<_, AnyError>("sunny")
//! });
//! let stack = ServiceBuilder::new()
//!     .layer(TraceLayer::new())
//!     .layer(RetryLayer::default())
//!     .layer(TraceLayer::attempts())
//!     .service(tool);
//! stack.oneshot(ToolCall::new("weather")).await.unwrap();
//! # }
//! ```
//!
//! Inside a stack an MCP tool's own error (`isError`) is `Ok`. The layer reports it as a failure.
//! `McpHooks` of `tower-toolcall-mcp`, given to [`with_hooks`](TraceLayer::with_hooks), read MCP's
//! answers and protocol errors.
//!
//! # Errors
//!
//! Those of the inner service, stamped with the call's names.
//!
//! # Cancel safety
//!
//! A future that is dropped unfinished is reported as cancelled, with how long it had been waiting.
//! A subscriber that is added while a call runs receives nothing of that call.
//!
//! # Differences from `tower_http::trace`
//!
//! One trait of hooks instead of seven type parameters. A call that is dropped unfinished is seen.
//! The records of inner layers (attempts, the timeout in force, slowness) are in the span of a
//! success too.
//!
//! # Details
//!
//! ## Text logs
//!
//! The default of `tracing_subscriber::fmt()` writes one line for a call, of at most 200
//! characters, and one for each retry:
//!
//! ```text
//! 00:22:11Z  INFO execute_tool: tower_toolcall: tool.success tool=search duration_ms=9.1
//! ```
//!
//! A call that `once` or `cache` answers from memory has `reused=true` in place of `attempts`;
//! nothing was sent, and at DEBUG and in spans it has `attempts=0`. A call that was only refused
//! has `attempts=0` too.
//!
//! The line has the tool, how the call ended, its duration, its attempts, the code, and as much of
//! the server and of the error's text as there is room for. A text that is too long lacks its
//! middle, so that the cause at its end stays readable. All other fields of events and
//! spans are recorded if a subscriber listens to the target
//! [`tower_toolcall`](crate::event::TARGET) at DEBUG. Spans are INFO. A text log would repeat their
//! fields with each event, so without DEBUG they have them only with OpenTelemetry's layer (feature
//! `otel`), or if [configured](TraceLayer::with_span_fields).
//!
//! This crate does not redact the logs of other crates: rmcp prints whole messages and errors. With
//! `tracing-subscriber`:
//!
//! ```text
//! tracing_subscriber::fmt().with_env_filter(EnvFilter::new("info,rmcp=off")).init();
//! ```
//!
//! Lines of JSON are in [`event`](crate::event#json-logs).
//!
//! ## Levels
//!
//! INFO is for successes and mistakes of callers. WARN is for temporary failures and for errors
//! that the tool reports. ERROR is for other failures:
//!
//! | [kind](crate::ErrorKind) | level |
//! |---|---|
//! | `InvalidInput`, `NotFound`, `Denied`, `Cancelled`, `CircuitOpen` | INFO |
//! | `Timeout`, `DeadlineExceeded`, `PollTimeout`, `RateLimited`, `Overloaded`, `Reported` | WARN |
//! | `ConnectionFailed`, `Upstream`, `Failed`, `TokenExchange`, `Panicked`, `Internal` | ERROR |
//!
//! A `Failed` with the status 409, 412, 416 or 423 is INFO.
//!
//! A refusal of a layer of ours is INFO, unless no time was left. So is an answer that is the
//! caller's [mistake](crate::Outcome::mistake) by the classifier.
//!
//! - Start: `tool.start` at DEBUG.
//! - Success: `tool.success` at INFO; `tool.success = true`.
//! - Timeout: `tool.timeout` at WARN; `tool.success = false`, `error.type`, status ERROR.
//! - Not started: no time left: `tool.skipped` at WARN; the same.
//! - Refused by a layer of ours (open breaker, cooldown, unknown name): `tool.rejected` at INFO;
//!   the same.
//! - Cancelled, or dropped unfinished: `tool.cancelled` at INFO; the same without the status.
//! - Dropped after its deadline: `tool.timeout` at WARN; the same.
//! - The tool's own error (`isError`): `tool.failure` at WARN; the same; `error.type = tool_error`.
//! - Any other error, a panic: `tool.failure` at the level of its kind; the same.
//!
//! `tool.outcome` in the span is the name of its [`CallOutcome`](crate::event::CallOutcome). An
//! answer is the tool's own error if its tool service has [reported](crate::Record::set_reported)
//! it, as `McpService` does for `isError`, or by its classification.
//!
//! With `McpHooks` the `error.type` of an MCP server's protocol error is its code, for example
//! `-32602`.
//!
//! The events of other layers are in the table of [`event`](crate::event#which-layer-emits-what);
//! all names are constants of [`event::names`](crate::event::names).
//!
//! ## Attempts
//!
//! [`TraceLayer::attempts`] inside a layer that repeats calls makes a span `tool_attempt` for each
//! attempt, inside the call's: how it ended, how long it took, its timeout. Without it the call's
//! span has their number, and each one is an event `tool.retry` or `tool.exhausted`.
//! `tool.retry_refused` says why a call is *not* repeated.
//!
//! ## The answer's size
//!
//! `tool.output_bytes` in the span and `output_bytes` in the event are the size of the answer as
//! compact JSON. It is known
//! - of text, JSON and `()`, by their types;
//! - of MCP results, from `McpService`;
//! - where a [`CheckLayer`](crate::check) has measured it;
//! - of any other answer if the tool records it
//!   ([`Record::set_output_bytes`](crate::Record::set_output_bytes)), or
//!   [hooks](TraceHooks::answer) do.
//!
//! [`TraceLayer::with_output`] shows the redacted answer as well.
//!
//! ## Order
//!
//! Outside everything that should be inside the span; inside `ToolResultLayer` and `SanitizeLayer`.
//!
//! ## Other systems' names
//!
//! - `gen_ai.tool.name`: `tool.id` (an HTTP tool proxy), `tool.name` (a TypeScript executor)
//! - `tool.server`: `tool.source_path` (an HTTP tool proxy)
//! - **(an extension of the caller's; [hooks](TraceHooks::on_start) can record it)**:
//!   `tool.execution_mode` (an HTTP tool proxy)
//! - `tool.duration_ms`: `tool.execution_time_ms` (an HTTP tool proxy), `executionTimeMs` (a
//!   TypeScript executor)
//! - `tool.outcome`, `error.type`: `tool.status` (an HTTP tool proxy)
//! - `tool.error_code`: `error.code` (see [the codes](crate::error#other-systems-codes))
//! - `gen_ai.agent.id`, `gen_ai.conversation.id` and `session.id`: agent id, session id (a
//!   TypeScript executor)
//! - `tool.timeout_ms`, `tool.configured_timeout_ms`: `timeout_ms` of a gateway's JSON-RPC errors;
//!   effective and configured timeout of a Go agent library
//!
//! ## Clone
//!
//! Clones share the settings and nothing else.

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
    span::NewSpan,
};
