// What is not compiled is not there to be linked to.
#![cfg_attr(not(feature = "full"), doc = include_str!("guide/links.md"))]
//! For tool calls what `tower-http` is for HTTP: timeouts, retries, rate limits, circuit breakers,
//! policies, traces and more as separate [tower](https://docs.rs/tower) layers, around any
//! `Service<ToolCall>`.
//!
//! A tool is a function; a stack is read from the outside in:
//!
//! ```
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
//!         .tool_trace()
//!         .tool_metrics(&metrics)
//!         .tool_deadline(Duration::from_secs(60))
//!         .tool_retry(RetryPolicy::new())
//!         .tool_rate_limit()
//!         .tool_circuit_breaker()
//!         .tool_timeout(Duration::from_secs(10))
//!         .tool_catch_panic()
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
//! tower-toolcall = { path = "../tower-toolcall" } # not published yet: a clone
//! ```
//!
//! Arguments that do not fit are the caller's mistake ([`ToolCall::arguments_as`]): a model reads
//! which field is wrong, and no circuit opens.
//!
//! This stack protects the tools of an MCP server that the program starts, too, by the crate
//! `tower-toolcall-mcp`:
//!
//! ```no_run
//! # use tower::ServiceBuilder;
//! use tower_toolcall::ServiceBuilderExt;
//! use tower_toolcall_mcp::McpServer;
//!
//! # async fn run() -> Result<(), tower_toolcall::BoxError> {
//! let args = ["-y", "docs-server"];
//! let docs = McpServer::command("docs", "npx", args)
//!     .trust_annotations(); // on what may run twice
//! docs.connect().await?;
//! let stack = ServiceBuilder::new()
//!     .tool_identity(docs.clone()) // names, annotations
//!     .tool_trace() // and so on, as above
//!     .tool(docs.clone());
//!
//! docs.close().await;
//! # let _ = stack; Ok(()) }
//! ```
//!
//! # Where to go on
//!
//! The [guide] builds the [stack from nothing][guide::start], explains the [order][guide::order] of
//! its layers, [compiler errors][guide::does_not_compile], [mistakes][guide::mistakes] of others,
//! and [tests of tools][guide::testing]. It lists the limits of
//! [untrusted callers][guide::untrusted_callers], the [guarantees][guide::guarantees] of all layers
//! with their tests, [further tests][guide::reliability], the [cost][guide::cost], and
//! [names in other libraries][guide::names], and [compares][guide::comparison] this crate with
//! others. There are [examples][guide::examples] that run.
//!
//! # Layers
//!
//! From the outside in, in the order of the [documented stack][builder#order]. A layer needs no
//! feature unless it says so.
//!
//! | layer | what it does |
//! |---|---|
//! | [`SanitizeLayer`](sanitize::SanitizeLayer) | puts your redaction rules on a call, beside the built-in ones |
//! | [`ToolResultLayer`](result::ToolResultLayer) | never fails: a result with status, data or error, duration, attempts |
//! | [`IdentityLayer`](identity::IdentityLayer) | resolves names by a table of tools; refuses those that do not exist |
//! | [`TraceLayer`](trace::TraceLayer) | a span per call, or per attempt; an event for each way to end |
//! | [`MetricsLayer`][tool_metrics::MetricsLayer] | counts and times the calls of each tool, and the tokens they need |
//! | [`FitLayer`](fit::FitLayer) | shortens an answer that is too long for a model, and says how much is missing |
//! | [`CheckLayer`](check::CheckLayer) | an answer that is too large, or fails your check, is an error |
//! | [`RepeatGuardLayer`](repeat_guard::RepeatGuardLayer) | refuses a call that a model makes again and again, and that fails alike each time |
//! | [`ValidateLayer`][validate::ValidateLayer] | checks arguments against the tool's JSON Schema, and repairs types (feature `validate`) |
//! | [`PolicyLayer`](policy::PolicyLayer) | allows calls, denies them, or asks a person first |
//! | [`OnceLayer`](once::OnceLayer) | a repeated call runs once: equal arguments within ten minutes get the first one's answer |
//! | [`CacheLayer`](cache::CacheLayer) | keeps answers of tools that only read, for each principal apart |
//! | [`QuotaLayer`](quota::QuotaLayer) | bounds the calls per period, by tool, agent or any key |
//! | [`DeadlineLayer`](deadline::DeadlineLayer) | a time budget for all inner layers; the caller's cancellation token |
//! | [`PollLayer`](poll::PollLayer) | waits for the job that a call has started; never starts it twice |
//! | [`RetryLayer`](retry::RetryLayer) | repeats what may run twice, within a budget and the deadline |
//! | [`RateLimitBackoffLayer`](rate_limit::RateLimitBackoffLayer) | waits out a rate limit for all calls of a key together |
//! | [`TokenLayer`](token::TokenLayer) | exchanges the caller's token for one of the tool's |
//! | [`HealthLayer`](health::HealthLayer) | learns which servers are there; by setting it refuses calls to the others |
//! | [`ConcurrencyLimitLayer`](concurrency_limit::ConcurrencyLimitLayer) | bounds how many calls of a key run at a time; a bounded queue |
//! | [`CircuitBreakerLayer`](circuit_breaker::CircuitBreakerLayer) | stops calling a tool that is broken, and tries it again later |
//! | [`TimeoutLayer`](timeout::TimeoutLayer) | bounds one attempt: per call, per tool; idle timeouts with progress |
//! | [`CatchPanicLayer`](catch_panic::CatchPanicLayer) | a panicking tool is an error |
//! | [`TransportLayer`](transport::TransportLayer) | directly around a client: whether its request was sent is known by its errors' types |
//! | [`NormalizeLayer`](normalize::NormalizeLayer) | outside of tower's own layers: their errors become ours |
//! | [`Switch`](switch::Switch) | a layer that may be off, and changes nothing then |
//! | [`middleware::from_fn`] | anywhere: a layer of your own from an async function |
//! | [`flow`] | anywhere: a layer of your own that refuses calls, lets them wait, or looks at their ends, without a box |
//!
//! [`ServiceBuilderExt`] has a method for most of them. They communicate by public types:
//! [`ToolCall`] and its [`Record`], [`ToolError`], [`Classify`], [`Event`]. So a layer of your own
//! can do what ours do.
//!
//! # Tools, loops and servers
//!
//! | module | what it is |
//! |---|---|
//! | [`tower-toolcall-mcp`](https://docs.rs/tower-toolcall-mcp), a crate | MCP servers as tools, also ones that die and come back; a stack as an MCP server |
//! | [`tower-toolcall-http`](https://docs.rs/tower-toolcall-http), a crate | HTTP endpoints as tools, by templates; files that describe tools; the token endpoint of an identity provider |
//! | [`router`] | many tools and servers behind one service; functions of typed arguments |
//! | [`batch`] | many calls concurrently, or one after the other within a budget |
//! | [`tower-toolcall-turn`](https://docs.rs/tower-toolcall-turn), a crate | a model's tool calls from the JSON of OpenAI, Anthropic, Gemini and Bedrock, and the results back |
//! | [`serve`], [`grpc_status`] | a stack behind HTTP and JSON-RPC; errors as gRPC statuses. For others: [`ToolError::to_http`] |
//! | [`reader`] | a deserializer with errors for people: for settings and files of your own |
//! | [`settings`] | the whole stack from a file and the environment, with presets |
//! | [`tower-toolcall-redis`](https://docs.rs/tower-toolcall-redis), a crate | breakers and rate limits that several processes share, over Redis or a store of yours |
//! | [`otel`], [`metrics_facade`] | OpenTelemetry and Langfuse; figures through the `metrics` crate |
//! | [`redact`] | how secrets are found in arguments, answers and errors |
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
//! | `schemars` | [`router::RouterBuilder::typed_tool`]: the type of a function's arguments is the tool's schema (`schemars`) |
//! | `validate` | [`validate`] (`jsonschema`, which fetches nothing) |
//! | `settings` | [`settings`] (`humantime`) |
//! | `axum` | [`serve`], without its server |
//! | `tonic` | [`grpc_status`], without its server and client |
//! | `hyper` | recognises errors of `hyper` 1, of `hyper-util`'s client, and of HTTP/2 by their types: also for your own tool service over reqwest |
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

#[cfg(all(doctest, feature = "tower"))]
#[doc = include_str!("../README.md")]
struct Readme;
