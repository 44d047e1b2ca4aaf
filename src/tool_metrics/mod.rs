//! A layer that counts and times calls, per tool, and a handle that shows the figures.
//!
//! | at a glance | |
//! |---|---|
//! | does | counts and times calls, and the events of inner layers |
//! | place | inside trace, outside all layers that act on calls |
//! | default | latencies to two digits |
//! | the caller sees | nothing |
//! | method | `ServiceBuilderExt::tool_metrics` |
//!
//! [`Metrics`] is the handle. [`Metrics::layer`] makes the layer, which sees every call begin and
//! end, however it ends: with an answer, an error, a panic, or dropped unfinished. Inner layers
//! report retries, rate limits and the states of circuit breakers to it, because it is on the call
//! as a [listener](crate::Observation::listen). That needs no wiring.
//!
//! # Example
//!
//! ```
//! use tower::{ServiceBuilder, ServiceExt, service_fn};
//! use tower_toolcall::{
//!     AnyError, BoxError, ToolCall,
//!     circuit_breaker::CircuitBreakerLayer,
//!     timeout::TimeoutLayer, tool_metrics::Metrics,
//! };
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), BoxError> {
//! let metrics = Metrics::new();
//! let stack = ServiceBuilder::new()
//!     .layer(metrics.layer())
//!     .layer(CircuitBreakerLayer::new())
//!     .layer(TimeoutLayer::default())
//!     .service(service_fn(|_call: ToolCall| async {
//!         Ok::<_, AnyError>("sunny")
//!     }));
//! stack
//!     .oneshot(ToolCall::new("weather").with_server("met"))
//!     .await?;
//!
//! let snapshot = metrics.snapshot();
//! assert_eq!(snapshot.total.successes, 1);
//! println!("{snapshot}"); // a table
//! println!("{}", serde_json::to_string(&snapshot)?);
//! println!("{}", metrics.prometheus());
//! # Ok(()) }
//! ```
//!
//! Five thousand tools, latencies to three digits up to five minutes, and a table every minute of
//! that minute:
//!
//! ```
//! use std::time::Duration;
//! use tower_toolcall::tool_metrics::Metrics;
//!
//! let metrics = Metrics::builder()
//!     .with_max_tools(5_000)
//!     .with_latency(Duration::from_micros(1), Duration::from_secs(300), 3)
//!     .build()?;
//! let mut last_minute = metrics.interval();
//! // Every minute:
//! println!("{}", last_minute.snapshot());
//! # Ok::<_, tower_toolcall::ConfigError>(())
//! ```
//!
//! # Errors
//!
//! Those of the inner service, stamped with the call's names. Readiness passes through, and its
//! errors with it: no call has begun that could be counted. An inner layer that is always ready
//! (deadline, rate limit, breaker) makes calls of them.
//!
//! # Cancel safety
//!
//! A future that is dropped unfinished is counted as cancelled, after its deadline as a timeout. It
//! leaves the calls in flight in any case.
//!
//! # Details
//!
//! | [Prometheus](Metrics::prometheus) | type | further labels | [snapshot](Stats) |
//! |---|---|---|---|
//! | `tool_executions_total` | counter | `outcome`: a [`CallOutcome`] | `calls`, and each outcome |
//! | `tool_attempts_total` | counter | | `attempts` |
//! | `tool_execution_duration_ms` | histogram | `le` | `latency` |
//! | `tool_execution_errors_total` | counter | `code` | `codes` |
//! | `tool_timeout_total` | counter | | `timeouts` |
//! | `tool_slow_total` | counter | | `slow` |
//! | `tool_retries_total` | counter | | `retries` |
//! | `tool_retries_refused_total` | counter | `reason`: a [`RetryRefusal`] | `refused_retries` |
//! | `tool_rate_limited_total` | counter | | `rate_limited` |
//! | `tool_reused_total` | counter | | `reused` |
//! | `tool_in_flight` | gauge | | `in_flight` |
//! | `circuit_breaker_rejected_total` | counter | | `breaker_rejected` |
//! | `circuit_breaker_open_total` | counter | | [`BreakerRow::openings`] |
//! | `circuit_breaker_state` | gauge: 0 closed, 1 half-open, 2 open | | [`BreakerRow::state`] |
//!
//! The [tokens](crate::event::Event::Token) that calls needed, of all tools together, so without
//! the labels `server` and `tool`, nor one of the audience: names of services behind tools are not
//! for every scraper. Absent before the first one:
//!
//! | [Prometheus](Metrics::prometheus) | type | labels | [snapshot](TokenStats) |
//! |---|---|---|---|
//! | `token_exchange_total` | counter | `outcome`: a [`TokenOutcome`] | its variants |
//! | `token_exchange_failures_total` | counter | `code`, by the kind of the cause | `failures` |
//! | `token_exchange_duration_ms` | histogram | `le` | `exchange` |
//!
//! `tool_inert_total` counts the calls for which a layer could do nothing
//! ([`Event::Inert`](crate::event::Event::Inert)), of all tools together, by `layer` and `reason`
//! ([`InertReason`]). It is absent before the first one. In a snapshot it is `inert`.
//!
//! [`RetryRefusal`]: crate::event::RetryRefusal
//! [`TokenOutcome`]: crate::event::TokenOutcome
//! [`InertReason`]: crate::event::InertReason
//!
//! Latencies have two digits, unless [set](MetricsBuilder::with_latency) otherwise. A latency that
//! equals the bound of a bucket within this precision counts in the next bucket: a call that ended
//! by its timeout of 2 s is not among those that took at most 2 s.
//!
//! `tool_execution_errors_total` counts every call that did not succeed, including cancelled and
//! timed out ones. Attempts are requests that were sent: a call that was only refused has none; a
//! call that its tool refused, for a wrong argument, has one. A breaker of a whole server has an
//! empty `tool`. Latencies are those of all calls except for refusals of this side (no time left,
//! circuit open, overloaded).
//!
//! `tool_retries_total`, `tool_retries_refused_total`, `tool_rate_limited_total`,
//! `tool_slow_total`, `tool_reused_total` and `circuit_breaker_rejected_total` need an inner layer
//! that reports such events. A tool has them from its first event on. Before it they are absent
//! from the snapshot (`None`), the table (`-`) and all exports. A breaker has a row once it has
//! seen a call succeed or fail, or refused it. If its handle changes it, the breaker reports that
//! to the last four listeners that were on its calls.
//!
//! Not seen without wiring are calls that never reach the layer: those that a batch does not start
//! (`batch::Parallel::with_listener`). A call has at most four listeners at a time. Events of a
//! layer count under the names that this layer sees: if retries happen inside a router, put an
//! [identity layer](crate::identity) outside the metrics, so that both see the same names. A
//! closure that passes events on to these metrics has to say so by
//! [`Listen::includes`](crate::Listen::includes), or each event counts twice.
//!
//! ## Other systems' names
//!
//! An HTTP tool proxy calls `tool_execution_errors_total{code}`
//! `tool_execution_errors{error_code}`. [`MetricsBuilder::with_aliases`] adds it to Prometheus'
//! text, and `Facade::with_aliases` to the facade; all other names of that proxy and of an MCP
//! gateway are ours. OpenTelemetry has names of its own; `Otel::with_aliases` adds theirs.
//!
//! The same figures go elsewhere as they come through a [`Sink`]: `metrics_facade::Facade` (feature
//! `metrics`) is one for the `metrics` crate, `otel::metrics::OtelMetrics` (feature `otel`)
//! one for OpenTelemetry.
//!
//! ## Order
//!
//! Inside [`trace`](crate::trace), outside everything else that should be counted: outside retry it
//! counts calls and their attempts, inside it would count attempts as calls.
//!
//! ## Bounds
//!
//! A tool that an [identity layer](crate::identity) outside of the metrics, a router or a schema
//! knows has a row from its first call on, also if that call is refused before it is sent. Any
//! other gets a row with the first call that is neither answered
//! [`NotFound`](crate::ErrorKind::NotFound) nor refused before it is sent: names that a model
//! invents count for [`_other`](OTHER), unless their server answers them with `isError`. So do
//! tools beyond the bound (1,000 by default) and, for each tool, error codes beyond the sixteenth.
//! At the bound, a new tool takes the place of a row that is not known and has no call in flight.
//! Its first calls count for `_other` until such a row is found.
//!
//! A server that cannot be reached fails invented names as it fails tools. So names of which no
//! call has succeeded, and that no table or schema knows, have half of the rows at most.
//! A tool keeps its row, so counters only ever grow. Labels are redacted and have at most 67
//! characters; names that look the same then share a row.
//!
//! ## Clone
//!
//! Clones of a [`Metrics`], of its layers and of their services all count together.
//!
//! ## Cost
//!
//! Two clock reads for each call, no allocation once a tool has been called. The counters of a tool
//! are behind a lock, which a call takes for a few instructions at its end, and a reader for the
//! microseconds in which it copies them. Tools beyond the bound share one lock.
//!
//! To measure the time of a call on your machine, run `cargo bench -p benches --bench overhead --
//! metrics`.

mod breakers;
mod counts;
mod handle;
mod interval;
mod labels;
mod latency;
pub(crate) mod names;
mod prometheus;
mod row;
mod service;
mod sink;
mod snapshot;
mod table;

pub use self::{
    handle::{Metrics, MetricsBuilder},
    interval::Interval,
    labels::{Labels, OTHER},
    names::Series,
    service::{MetricsLayer, MetricsService, ResponseFuture},
    sink::{CallEnd, Sink, ToolSink},
    snapshot::{BreakerRow, InertRow, Latency, Snapshot, Stats, TokenStats, ToolRow},
};
#[doc(inline)]
pub use crate::event::CallOutcome;
