// Links to items that are not compiled go to the published docs.
#![cfg_attr(not(feature = "full"), doc = include_str!("guide/links.md"))]
//! Timeouts, retries, rate limits, circuit breakers, policies and traces for tool calls, as
//! separate [tower](https://docs.rs/tower) layers. They are for tool calls what `tower-http` is for
//! HTTP, and stand around any `Service<ToolCall>`.
//!
//! ```text
//!  agent ── ToolCall ──▶ ┌────────────┐
//!                        │ trace      │ a span for each call
//!                        │ deadline   │ for all attempts
//!                        │ retry      │ if it may run twice
//!                        │ rate limit │ one wait for all calls
//!                        │ breaker    │ one for each tool
//!                        │ timeout    │ for one attempt
//!                        └─────┬──────┘
//!                              ▼
//!      function, MCP server, HTTP endpoint, your service
//! ```
//!
//! # Example
//!
//! A tool is a function here. A stack is read from the outside in:
//!
//! ```rust
//! use std::time::Duration;
//! use serde::Deserialize;
//! use serde_json::json;
//! use tower::{ServiceBuilder, ServiceExt, service_fn};
//! use tower_toolcall::{
//!     AnyError, ServiceBuilderExt, ToolCall,
//!     tool_metrics::Metrics, retry::RetryPolicy,
//! };
//!
//! #[derive(Deserialize)]
//! struct Weather {
//!     city: String,
//! }
//!
//! async fn weather(call: ToolCall) -> Result<String, AnyError> {
//!     let Weather { city } = call.arguments_as()?;
//!     Ok(format!("{city}: 12 degrees"))
//! }
//!
//! #[tokio::main]
//! async fn main() -> Result<(), AnyError> {
//!     let metrics = Metrics::new();
//!     let stack = ServiceBuilder::new()
//!         .tool_trace() // a span for each call
//!         .tool_metrics(&metrics) // counts and latencies
//!         .tool_deadline(Duration::from_secs(60)) // for all
//!         .tool_retry(RetryPolicy::new()) // if it is safe
//!         .tool_rate_limit() // waits out a 429, for all calls
//!         .tool_circuit_breaker() // one for each tool
//!         .tool_timeout(Duration::from_secs(10)) // per attempt
//!         .tool_catch_panic() // a panic is an error
//!         .tool(service_fn(weather));
//!
//!     let city = json!({ "city": "Oslo" });
//!     let call = ToolCall::new("weather").with_json(city)?;
//!     println!("{}", stack.oneshot(call).await?);
//!     println!("{}", metrics.snapshot()); // a table
//!     Ok(())
//! }
//! ```
//!
//! ```toml
//! [dependencies]
//! serde = { version = "1", features = ["derive"] }
//! serde_json = "1"
//! tokio = { version = "1", features = ["full"] }
//! tower = { version = "0.5", features = ["util"] }
//! tower-toolcall = { path = "../tower-toolcall" } # a clone
//! ```
//!
//! Arguments that do not fit are the caller's mistake ([`ToolCall::arguments_as`]): a model reads
//! which field is wrong, and no circuit opens.
//!
//! This stack protects the tools of an MCP server that the program starts, too, by the crate
//! `tower-toolcall-mcp`:
//!
#![cfg_attr(not(doctest), doc = "```no_run")]
#![cfg_attr(doctest, doc = "```ignore")]
//! use tower::ServiceBuilder;
//! use tower_toolcall::ServiceBuilderExt;
//! use tower_toolcall_mcp::McpServer;
//!
//! # async fn run() -> Result<(), tower_toolcall::BoxError> {
//! let package = "@modelcontextprotocol/server-everything";
//! let args = ["-y", package];
//! let server = McpServer::command("everything", "npx", args)
//!     .trust_annotations(); // on what may run twice
//! server.connect().await?;
//! let stack = ServiceBuilder::new()
//!     .tool_identity(server.clone()) // names, annotations
//!     .tool_trace() // and so on, as above
//!     .tool(server.clone());
//!
//! server.close().await;
//! # let _ = stack; Ok(()) }
//! ```
//!
//! # Where to go on
//!
//! - [The stack from nothing][guide::start]: each step shows a failure, and the layer that ends it.
//! - [Which layer goes where][guide::order], and [what the compiler
//!   means][guide::does_not_compile].
//! - [The guide][guide]: tests, mistakes, guarantees, costs, names in other libraries, comparisons.
//!
//! # Layers
//!
//! From the outside in, in the order of the [documented stack][builder#order]. A layer needs no
//! feature unless it says so.
//!
//! | layer | what it does |
//! |---|---|
//! | [`sanitize`] | puts your redaction rules on a call, beside the built-in ones |
//! | [`result`] | never fails: a result with status, data or error, duration, attempts |
//! | [`identity`] | resolves names by a table of tools; refuses those that do not exist |
//! | [`trace`] | a span per call, or per attempt; an event for each way to end |
//! | [`tool_metrics`] | counts and times the calls of each tool |
//! | [`fit`] | shortens an answer that is too long for a model |
//! | [`check`] | refuses an answer that is too large, or fails your check |
//! | [`repeat_guard`] | refuses a call that a model makes again and again, and that always fails |
//! | [`validate`] | checks arguments against JSON Schemas, and repairs types (feature `validate`) |
//! | [`policy`] | allows calls, denies them, or asks a person first |
//! | [`once`] | runs equal calls within ten minutes once |
//! | [`cache`] | keeps answers of tools that only read, for each principal |
//! | [`quota`] | limits calls per period, by tool, agent or any key |
//! | [`deadline`] | a time budget for all inner layers; the caller's cancellation token |
//! | [`poll`] | waits for the job that a call has started; never starts it twice |
//! | [`retry`] | repeats what may run twice, within a budget and the deadline |
//! | [`rate_limit`] | backs off after a server's limit, for all calls of a key together |
//! | [`token`] | exchanges the caller's token for one of the tool's |
//! | [`health`] | learns which servers are available; refuses calls to the others if configured |
//! | [`concurrency_limit`] | limits how many calls of a key run at a time; a bounded queue |
//! | [`circuit_breaker`] | stops calling a tool that is broken, and tries it again later |
//! | [`timeout`] | limits one attempt: per call, per tool; idle timeouts with progress |
//! | [`catch_panic`] | turns a panic of a tool into an error |
//! | [`transport`] | directly around a client: knows whether its request was sent |
//! | [`normalize`] | outside of tower's own layers: turns their errors into ours |
//! | [`switch`] | turns a layer off by a setting |
//! | [`middleware`] | anywhere: a layer of your own from an async function |
//! | [`flow`] | anywhere: a layer of your own without a box |
//!
//! [`ServiceBuilderExt`] has a method for most of them. They communicate by public types:
//! [`ToolCall`] and its [`Record`], [`ToolError`], [`Classify`], [`Event`]. So a layer of your own
//! can do what ours do.
//!
//! # Tools, loops and servers
//!
//! | module, or crate | what it is |
//! |---|---|
//! | [`router`] | many tools and servers behind one service; functions of typed arguments |
//! | [`batch`] | many calls concurrently, or one after the other within a budget |
//! | [`settings`] | the whole stack from a file and the environment, with presets |
//! | [`serve`], [`grpc_status`] | a stack behind HTTP and JSON-RPC; errors as gRPC statuses |
//! | [`otel`], [`metrics_facade`] | OpenTelemetry and Langfuse; the `metrics` crate |
//! | [`reader`] | a deserializer with errors for people: for settings and files of your own |
//! | [`redact`] | finds secrets in arguments, answers and errors |
//! | [tower-toolcall-mcp] | MCP servers as tools, with reconnects; a stack as an MCP server |
//! | [tower-toolcall-http] | HTTP endpoints as tools, by templates and files; the token endpoint |
//! | [tower-toolcall-turn] | a model's calls from the JSON of its provider, and the results back |
//! | [tower-toolcall-redis] | breakers and rate limits that several processes share |
//! | [tower-toolcall-test] | scripted tools, faults and replays for tests |
//!
//! [tower-toolcall-mcp]: https://docs.rs/tower-toolcall-mcp
//! [tower-toolcall-http]: https://docs.rs/tower-toolcall-http
//! [tower-toolcall-turn]: https://docs.rs/tower-toolcall-turn
//! [tower-toolcall-redis]: https://docs.rs/tower-toolcall-redis
//! [tower-toolcall-test]: https://docs.rs/tower-toolcall-test
//!
//! # Features
//!
//! Each is off unless it says so; `full` is all of them. What an item needs is shown with it. With
//! `default-features = false` all layers remain that have no feature in the table of
//! [layers](#layers), [`flow`] and [`middleware`] too.
//!
//! | feature | brings |
//! |---|---|
//! | `tower` | on by default: [`ServiceBuilderExt`]; recognises tower's own errors |
//! | `metrics` | [`metrics_facade`] (`metrics`) |
//! | `otel` | [`otel`] (`opentelemetry`, `tracing-opentelemetry`) |
//! | `schemars` | [`router::RouterBuilder::typed_tool`]: schemas of typed functions (`schemars`) |
//! | `validate` | [`validate`] (`jsonschema`, which fetches nothing) |
//! | `settings` | [`settings`] (`humantime`) |
//! | `axum` | [`serve`], without its server |
//! | `tonic` | [`grpc_status`], without its server and client |
//! | `hyper` | recognises errors of hyper 1, hyper-util's client and HTTP/2 by their types |
//! | `reqwest` | recognises errors of reqwest by their types |
//! | `hints` | [`hint::from_headers`]: how long a server asks to wait |
//! | `anyhow` | tools that return `anyhow::Error` |
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod answer;
pub mod batch;
#[cfg(feature = "tower")]
pub mod builder;
pub mod cache;
pub mod call;
pub mod cancel;
pub mod catch_panic;
pub mod check;
pub mod circuit_breaker;
pub mod concurrency_limit;
mod config;
pub mod deadline;
pub mod error;
pub mod event;
pub mod fit;
pub mod flow;
mod foreign;
#[cfg(all(any(doc, doctest), feature = "full"))]
#[cfg_attr(docsrs, doc(auto_cfg = false))]
pub mod guide;
pub mod health;
pub mod hint;
pub mod identity;
pub mod key;
mod kit;
mod lock;
pub mod middleware;
mod names;
mod nearest;
pub mod normalize;
pub mod once;
pub mod outcome;
pub mod policy;
pub mod poll;
pub mod quota;
pub mod rate_limit;
pub mod reader;
pub mod repeat_guard;
pub mod result;
pub mod retry;
pub mod router;
pub mod sanitize;
#[cfg(feature = "settings")]
pub mod settings;
pub mod switch;
mod text;
pub mod timeout;
pub mod token;
pub mod tool_metrics;
pub mod trace;
pub mod transport;
#[cfg(feature = "validate")]
pub mod validate;

// Last, so that the pages of calls and errors do not begin with the methods of bridges.
mod bridge;

#[doc(inline)]
pub use self::{
    answer::{Answer, ModelPart, ModelText},
    call::{
        CallInfo, Claim, IdempotencyKey, Identity, MAX_DEPTH, MAX_NAME_BYTES, MAX_VALUES,
        Observation, Progress, Record, ReplaySafety, ToolCall, Trust, VerifiedCaller,
    },
    config::ConfigError,
    error::{AnyError, BoxError, ErrorKind, Evidence, Execution, ToolError},
    event::{Event, Listen},
    key::{Key, Keys},
    nearest::nearest,
    outcome::{Classify, Outcome},
    result::ToolResult,
};
#[cfg(feature = "metrics")]
pub use bridge::facade as metrics_facade;
#[cfg(feature = "tonic")]
pub use bridge::grpc_status;
#[cfg(feature = "otel")]
pub use bridge::otel;
#[cfg(feature = "axum")]
pub use bridge::serve;
#[cfg(feature = "tower")]
#[doc(inline)]
pub use builder::ServiceBuilderExt;
pub use kit::backoff;
#[doc(inline)]
pub use toolcall_redact as redact;
