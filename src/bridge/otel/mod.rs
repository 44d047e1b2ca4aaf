//! OpenTelemetry: the trace goes on in other processes, and backends understand the spans.
//!
//! The spans are those of [`TraceLayer`](crate::trace::TraceLayer), which needs none of this: with
//! [`tracing-opentelemetry`](https://docs.rs/tracing-opentelemetry) in the subscriber they are
//! exported, named and described as OpenTelemetry's conventions for generative AI have it. This
//! module brings what concerns OpenTelemetry alone:
//!
//! - [propagation](#propagation) of the trace context, out with a call and in with a request;
//! - the conventions' attributes for calls of MCP tools (`McpHooks`, with the feature `otel` of
//!   `tower-toolcall-mcp`);
//! - metrics with the conventions' names, units and buckets, or with other systems' names
//!   ([`metrics`]);
//! - what [Langfuse](#langfuse) reads beyond the conventions ([`LangfuseHooks`]);
//! - attributes of your own ([`Adds`]), for example those of an executor of HTTP tools
//!   (`ExecutionHooks` of the crate `tower-toolcall-http`).
//!
//! Each request of an HTTP tool has a span of a client (`http_request`, DEBUG), which the filter
//! below leaves out unless it is asked for: `.with_target("tower_toolcall::http",
//! LevelFilter::DEBUG)`.
//!
//! It depends on OpenTelemetry's API; SDK and exporter are the program's.
//!
//! # The pipeline
//!
//! ```no_run
//! use opentelemetry::{global, propagation::TextMapCompositePropagator, trace::TracerProvider};
//! use opentelemetry_otlp::{SpanExporter, WithExportConfig, WithHttpConfig};
//! use opentelemetry_sdk::{
//!     Resource,
//!     propagation::{BaggagePropagator, TraceContextPropagator},
//!     trace::SdkTracerProvider,
//! };
//! use std::collections::HashMap;
//! use tower::{ServiceBuilder, service_fn};
//! use tower_toolcall::{
//!     AnyError, BoxError, ToolCall, otel::LangfuseHooks, retry::RetryLayer, trace::TraceLayer,
//! };
//! use tracing_subscriber::{
//!     filter::{LevelFilter, Targets},
//!     prelude::*,
//! };
//!
//! #[tokio::main]
//! async fn main() -> Result<(), BoxError> {
//!     // What goes along with a request to another process.
//!     // Without this line: trace context, no baggage.
//!     global::set_text_map_propagator(TextMapCompositePropagator::new(vec![
//!         Box::new(TraceContextPropagator::new()),
//!         Box::new(BaggagePropagator::new()),
//!     ]));
//!
//!     // Where the spans go: the whole address, and the headers that the backend asks for.
//!     let exporter = SpanExporter::builder()
//!         .with_http()
//!         .with_endpoint("http://127.0.0.1:4318/v1/traces")
//!         .with_headers(HashMap::new())
//!         .build()?;
//!     let provider = SdkTracerProvider::builder()
//!         .with_batch_exporter(exporter)
//!         .with_resource(Resource::builder().with_service_name("my-agent").build())
//!         .build();
//!
//!     // The spans: not rmcp's own, which have errors
//!     // as they are, secrets included.
//!     let filter =
//!         Targets::new().with_default(LevelFilter::INFO).with_target("rmcp", LevelFilter::OFF);
//!     let layer = tracing_opentelemetry::layer()
//!         .with_tracer(provider.tracer("my-agent"))
//!         .with_filter(filter);
//!     tracing_subscriber::registry().with(layer).init();
//!
//!     // For MCP tools: `LangfuseHooks::new(McpHooks::new())`, or `McpHooks` alone.
//!     let hooks = LangfuseHooks::default();
//!     let stack = ServiceBuilder::new()
//!         .layer(TraceLayer::new().with_hooks(hooks).with_output(true))
//!         .layer(RetryLayer::default())
//!         .layer(TraceLayer::attempts().with_hooks(hooks))
//!         .service(service_fn(|_: ToolCall| async { Ok::<_, AnyError>("sunny") }));
//!     # let _ = stack;
//!
//!     // Sends the rest at the end. It blocks, so not on a thread of the runtime.
//!     tokio::task::spawn_blocking(move || provider.shutdown()).await??;
//!     Ok(())
//! }
//! ```
//!
//! It needs these crates, in versions that belong together (`tracing-opentelemetry` is always one
//! ahead):
//!
//! ```toml
//! opentelemetry = "0.33"
//! opentelemetry_sdk = "0.33"
//! # HTTP by a client on its own thread, for any runtime. For https also "reqwest-rustls".
//! [dependencies.opentelemetry-otlp]
//! version = "0.33"
//! default-features = false
//! features = ["http-proto", "reqwest-blocking-client", "trace"]
//! tracing-opentelemetry = "0.34"
//! tracing-subscriber = "0.3"
//! ```
//!
//! `tracing-opentelemetry` adds attributes of its own (`code.*`, `thread.*`, `target`, `busy_ns`,
//! `idle_ns`) unless the layer is built with
//! `.with_location(false).with_threads(false).with_target(false).with_tracked_inactivity(false)`.
//! Our events are events of the spans. A filter at `WARN` for the target `tower_toolcall` would
//! take the spans away as well, which are `INFO`.
//!
//! # A text log beside it
//!
//! Spans have their fields wherever a subscriber has this layer, at INFO too, and a text log
//! repeats them with each event. A filter of its own keeps [its lines](crate::trace#text-logs)
//! short:
//!
//! ```
//! use tracing::Level;
//! use tracing_subscriber::{filter::filter_fn, prelude::*};
//!
//! let events = filter_fn(|m| {
//!     *m.level() <= Level::INFO && (m.is_event() || m.target() != "tower_toolcall")
//! });
//! let log = tracing_subscriber::fmt::layer().with_filter(events.with_max_level_hint(Level::INFO));
//! let otel = tracing_subscriber::layer::Identity::new(); // or the layer from above
//! tracing_subscriber::registry().with(otel).with(log).init();
//! ```
//!
//! # Jaeger
//!
//! Jaeger takes OTLP: `http://<host>:4318/v1/traces`, no headers. To try it out:
//!
//! ```text
//! docker run --rm -p 4318:4318 -p 16686:16686 jaegertracing/jaeger
//! ```
//!
//! and look at `http://127.0.0.1:16686`. The same goes for any OpenTelemetry collector.
//!
//! # Errors, cancellation
//!
//! Nothing here fails a call: what a peer sends is a value or nothing, and where nothing is
//! exported, nothing is done. The spans of a call that is dropped end with it: `error.type =
//! cancelled`, and no status, since nothing has failed.
//!
//! # Details
//!
//! ## Langfuse
//!
//! - **endpoint**: `https://cloud.langfuse.com/api/public/otel/v1/traces`, or that of your own
//!   host; HTTP only, no gRPC
//! - **header `Authorization`**: `Basic ` and the Base64 of `public key:secret key`
//! - **header `x-langfuse-ingestion-version`**: `4`
//! - **features of `opentelemetry-otlp`**: `reqwest-rustls` as well
//!
//! Langfuse reads these attributes:
//!
//! - **type of the observation**: `langfuse.observation.type`: `tool`, or `span` for an attempt; by
//!   [`LangfuseHooks`]
//! - **name**: `gen_ai.tool.name`; by `TraceLayer`
//! - **input**: `gen_ai.tool.call.arguments`, redacted; by `TraceLayer`
//!   ([`with_arguments`](crate::trace::TraceLayer::with_arguments))
//! - **output**: `gen_ai.tool.call.result`, redacted; by `TraceLayer`, if
//!   [`with_output`](crate::trace::TraceLayer::with_output) asks for it
//! - **level**: the span's status, and `langfuse.observation.level` where that is not `ERROR`; by
//!   `TraceLayer`, [`LangfuseHooks`]
//! - **status message**: the span's status; by `TraceLayer`
//! - **session**: `session.id`, on every span, attempts too (`gen_ai.conversation.id` is on those
//!   of calls alone); by `TraceLayer`, from [`with_session_id`](crate::ToolCall::with_session_id)
//! - **user**: `user.id`, on every span; by [`LangfuseHooks`], from [`UserId`]
//! - **release, environment**: `service.version`, `langfuse.environment`; by you, in the resource
//!
//! Spans around the calls are yours: an `agent_turn` needs its own `session.id` and `user.id`.
//!
//! ## Propagation
//!
//! Out: `McpService`, with the feature `otel` of `tower-toolcall-mcp`, puts the context of the span
//! in which it runs, the attempt's if there is one, into the request's `_meta` (`traceparent`,
//! `tracestate`, `baggage`; `McpService::with_propagation` switches it off). A tool that speaks
//! HTTP calls [`inject_headers`]. The global propagator writes the context; without one it is W3C
//! trace context. An invalid context is not written, and existing fields are never overwritten.
//!
//! In: the handler of a server finds its caller with [`parent_from_meta`] or
//! [`parent_from_headers`], and continues the trace with a span of its own ([`set_parent`]), or
//! with the span of the call that it makes in turn
//! ([`ToolCall::with_remote_parent`](crate::ToolCall::with_remote_parent)):
//!
//! ```
//! use serde_json::{Map, Value};
//! use tower_toolcall::{ToolCall, otel};
//! use tracing::Instrument;
//!
//! /// In an rmcp server's `call_tool`: `answer(&call.name, &cx.meta)`.
//! async fn answer(tool: &str, meta: &Map<String, Value>) {
//!     let span =
//!         tracing::info_span!("tools/call", otel.kind = "server", gen_ai.tool.name = tool);
//!     if let Some(parent) = otel::parent_from_meta(meta) {
//!         otel::set_parent(&span, parent);
//!     }
//!     async { /* work */ }.instrument(span).await
//! }
//!
//! /// In a gateway. Its span of the call is the next one in the trace.
//! fn call(tool: &str, headers: &http::HeaderMap) -> ToolCall {
//!     let call = ToolCall::new(tool);
//!     match otel::parent_from_headers(headers) {
//!         Some(parent) => call.with_remote_parent(parent),
//!         None => call,
//!     }
//! }
//! # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
//! # runtime.block_on(answer("search", &Map::new()));
//! # call("search", &http::HeaderMap::new());
//! ```
//!
//! A client that may send requests may choose the trace that they belong to, and its baggage. At
//! the edge to the public, start a trace of your own.

mod langfuse;
pub mod metrics;
mod propagate;
mod w3c;

pub(crate) use self::propagate::{is_exported, is_sampled_out};
pub use self::{
    langfuse::{Adding, Adds, Langfuse, LangfuseHooks, UserId},
    propagate::{inject_headers, inject_meta, parent_from_headers, parent_from_meta, set_parent},
};
