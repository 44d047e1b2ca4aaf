//! A layer that stops calling a tool that is broken.
//!
//! | at a glance | |
//! |---|---|
//! | does | refuses calls of a broken tool, and probes it |
//! | place | inside retry and rate limit, outside timeout |
//! | default | opens for 60 s after 5 failures in a row |
//! | the caller sees | `CircuitOpen` with `retry_after`, not started |
//! | method | `ServiceBuilderExt::tool_circuit_breaker` |
//!
//! ```text
//!              5 failures in a row
//!  ┌──────────┐ ─────────────────▶ ┌──────────┐
//!  │  closed  │                    │   open   │ refuses calls
//!  └──────────┘                    └──────────┘
//!       ▲                            │      ▲
//!       │ the probe                  │ 60 s │ the probe
//!       │ succeeds                   ▼      │ fails
//!       │                          ┌──────────┐
//!       └───────────────────────── │ half-open│ one probe passes
//!                                  └──────────┘
//! ```
//!
//! An open breaker refuses calls immediately, with the time after which to come back. A half-open
//! breaker refuses all calls except for the probe, unless they
//! [wait](CircuitBreakerBuilder::with_probe_wait) for its result. When it closes, it starts afresh.
//! Each tool of each server has its own breaker ([`Key`](crate::Key)).
//!
//! # Example
//!
//! ```
//! use tower::{ServiceBuilder, ServiceExt, service_fn};
//! use tower_toolcall::{
//!     AnyError, ErrorKind, ToolCall,
//!     circuit_breaker::CircuitBreakerLayer,
//! };
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() {
//! let tool = service_fn(|_call: ToolCall| async {
//!     Err::<(), AnyError>("503 Service Unavailable".into())
//! });
//! let stack = ServiceBuilder::new()
//!     .layer(CircuitBreakerLayer::new())
//!     .service(tool);
//!
//! for _ in 0..5 {
//!     let error = stack
//!         .clone()
//!         .oneshot(ToolCall::new("search"))
//!         .await
//!         .unwrap_err();
//!     assert_eq!(error.kind(), ErrorKind::Upstream);
//! }
//! let error = stack
//!     .clone()
//!     .oneshot(ToolCall::new("search"))
//!     .await
//!     .unwrap_err();
//! assert_eq!(error.kind(), ErrorKind::CircuitOpen);
//! assert_eq!(error.retry_after_seconds(), Some(60));
//!
//! // Another tool is not affected.
//! let error = stack
//!     .oneshot(ToolCall::new("weather"))
//!     .await
//!     .unwrap_err();
//! assert_eq!(error.kind(), ErrorKind::Upstream);
//! # }
//! ```
//!
//! Other settings (`with_trip(3)` is three failures in a row), and a subscriber.
//! `handle().snapshot()` lists all breakers:
//!
//! ```
//! use std::time::Duration;
//! use tower_toolcall::circuit_breaker::{CircuitBreakerLayer, Rates};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), tower_toolcall::ConfigError> {
//! let breaker = CircuitBreakerLayer::builder()
//!     .with_trip(
//!         Rates::over_time(Duration::from_secs(60))
//!             .with_failure_rate(0.5)
//!             .with_slow_call_rate(0.8, Duration::from_secs(10))
//!             .with_minimum_calls(20),
//!     )
//!     .with_open_for(Duration::from_secs(5))
//!     .with_growth(2.0, Duration::from_secs(300)) // 5 s, 10 s, 20 s .. for probes that fail
//!     .with_probes(3)
//!     .build()?;
//!
//! let mut transitions = breaker.handle().subscribe();
//! tokio::spawn(async move {
//!     while let Some(Ok(t)) = transitions.next().await {
//!         println!("{:?}: {} -> {} ({})", t.tool, t.from, t.to, t.reason);
//!     }
//! });
//! # Ok(()) }
//! ```
//!
//! # Errors
//!
//! [`CircuitOpen`](crate::ErrorKind::CircuitOpen), not started, always with a `retry_after`: the
//! rest of the open period, or the time to the next attempt to connect; the whole period while the
//! breaker is forced open; 1 s (or the period, if that is shorter) while probes run, because their
//! end is unknown. Its [details](crate::ToolError::details) say what has opened the breaker last
//! (`opened_by`: a [`TransitionReason`]'s name), with the `failures` and `calls` that led to it;
//! and `refused_for`: `principal`, if other callers are served. Errors of the inner service pass,
//! stamped with the call's names. An inner readiness error is the result of the call that meets it,
//! and counts.
//!
//! A listener must not panic.
//!
//! # Cancel safety
//!
//! Dropping the future at any point gives a probe's place back. A probe that neither ends nor is
//! dropped loses its place after its lease
//! ([`with_probe_lease`](CircuitBreakerBuilder::with_probe_lease)). After five consecutive probes
//! that neither succeeded nor failed, for example dropped ones, a half-open breaker admits every
//! call until one succeeds or fails: a failure opens it again. So a breaker is never stuck,
//! whatever its callers do.
//!
//! Two kinds of calls are probes only if no other call came for another open period: calls of an
//! untrusted caller with less time than the tool may take, and calls that are not marked as safe
//! although [probes have to be](Probe::SafeCalls). The second kind is not admitted after five such
//! probes either.
//!
//! # Details
//!
//! A failing server may name the time until it is back, for example by a 503 with `Retry-After`.
//! The breaker does not probe it earlier: the open period becomes the longer of its own and that
//! delay, counted from the answer, and at most 300 s. A delay that is inferred from a text changes
//! nothing.
//!
//! By default, 5 failures in a row open it for 60 s. No window of time is involved, so a dead tool
//! that is called every few minutes is stopped too. [`Trip`] offers a window of time for failures
//! in a row or for all failures; [`Rates`] offer shares of failures or slow calls.
//!
//! What happens to a call:
//!
//! - **It succeeds or fails**: the [classifier](crate::Classify) decides which. Timeouts, lost
//!   connections, 5xx, panics and errors of an unknown kind are failures. Caller errors, rate
//!   limits, cancellations and refusals (including those of this crate's layers) do not count, and
//!   free a probe's place. Timeouts caused by an [untrusted
//!   caller](crate::flow::CallExt::tighten_remote)'s deadline do not count either. A probe that the
//!   tool answers with such an error (a 404, wrong input, MCP's `isError`) has succeeded, because
//!   the tool answered. A denial, a rate limit, or a text alone prove nothing.
//! - **Its future is dropped**: this is a failure if the call's deadline has passed, because an
//!   outer layer or the caller has then enforced a timeout. It is not if an untrusted caller set
//!   the deadline, or an inner layer had held the call back. It is also a failure if the call had
//!   been pending for about its timeout, or 30 s
//!   ([`with_abandoned_after`](CircuitBreakerBuilder::with_abandoned_after)). That time is counted
//!   from the sending: a wait in an inner layer is not part of it. Otherwise it does not count.
//! - **It panics**: a failure; the panic passes.
//! - **It ends after the breaker has changed its state**: the result is stale and decides nothing.
//!   Weak failures are also stale after a change of their principal's own circuit.
//!
//! ## Weak failures
//!
//! A failure counts only for the principal of the call if its kind was
//! [inferred](crate::Evidence::Inferred) from a foreign error, or is unknown. The principal is the
//! call's subject, else its agent, else its session. Without a principal on the call the failure
//! counts for all callers ([`with_weak_failures`](CircuitBreakerBuilder::with_weak_failures) sets
//! both).
//!
//! So five errors that one caller's arguments cause refuse the tool to that caller. A tool's author
//! makes a failure count for all by what the tool returns: `ToolError::new(ErrorKind::Upstream,
//! ..)`, or the upstream's status by [`ToolError::from_status`](crate::ToolError::from_status), or
//! a client behind [`transport`](crate::transport). Timeouts of our own layers, panics, dropped
//! calls and a service that fails to become ready count for all. [`Breaker::principals`] lists the
//! principals that are refused.
//!
//! A weak failure of a probe decides nothing for others: the probe's place is free again. A weak
//! failure that was [slow](Rates::with_slow_call_rate) is a slow call for all callers.
//!
//! ## Lost connections
//!
//! Calls that fail with one lost connection are one failure, because they have one cause. The tool
//! service names it on its errors ([`ToolError::outage`](crate::ToolError::outage)), on those of
//! failed attempts to connect as well. A breaker that is open for an outage lets a call pass when
//! the tool service has connected again or makes its next attempt, whatever the open period is. If
//! that probe loses the next connection as well, the period holds.
//!
//! The tool services for MCP name outages. HTTP clients do not say on which connection a request
//! failed, so each failed request counts.
//!
//! ## Order
//!
//! Inside retry and rate-limit layers, so that each attempt counts (with three attempts to a call
//! two calls open a breaker) and no wait holds a probe's place; outside
//! [`TimeoutLayer`](crate::timeout::TimeoutLayer), so that it sees timeouts as errors. (An outer
//! timeout layer drops calls, as described above.) It is always ready: an open breaker answers
//! although the inner service is not ready, and gives back what was reserved there. So
//! back-pressure ends here; bound the load with an outer limit. A call that had to wait for
//! readiness is admitted when it is about to run: calls that were queued before a tool died do not
//! run after the breaker has opened.
//!
//! ## Probes
//!
//! By default the next call of any kind. A call that must not run twice is a bad one: if the tool
//! is still broken halfway, its caller does not know what has happened.
//! [`with_probe`](CircuitBreakerBuilder::with_probe) takes [safe calls](Probe::SafeCalls) alone.
//!
//! ## A server's breaker and a tool's
//!
//! An outcome has a scope. A lost connection concerns the whole server; an error of an unknown kind
//! concerns the tool alone ([`Count::ToolFailure`](crate::outcome::Count::ToolFailure)), and a
//! server's breaker ignores it. So two layers divide the work; here the tool's own breaker leaves
//! lost connections to the server's:
//!
//! ```
//! use tower::ServiceBuilder;
//! use tower_toolcall::{
//!     Classify, ErrorKind, Key, Outcome, ToolError,
//!     circuit_breaker::CircuitBreakerLayer, outcome::ByError,
//! };
//!
//! # fn main() -> Result<(), tower_toolcall::ConfigError> {
//! let of_the_server = CircuitBreakerLayer::builder().with_keys(Key::Server).build()?;
//! let of_the_tool = CircuitBreakerLayer::builder()
//!     .classify_fn(|result: Result<&String, &ToolError>| match result {
//!         Err(e) if e.kind() == ErrorKind::ConnectionFailed => Outcome::neutral(),
//!         other => ByError.classify(other),
//!     })
//!     .build()?;
//! let stack = ServiceBuilder::new().layer(of_the_server).layer(of_the_tool);
//! # let _ = stack; Ok(()) }
//! ```
//!
//! ## Observing and forcing
//!
//! What one process has learnt can be shared with others: by the crate `tower-toolcall-redis`, or
//! by [`Breaker::adopt`] and [`Breaker::adopt_state`] by hand.
//!
//! [`CircuitBreakerLayer::handle`] lists every breaker with its counters, forces, resets and
//! disables them, uses one by hand, and subscribes to their transitions.
//! [`is_refusing`](CircuitBreakerHandle::is_refusing) helps to leave tools out of a list while
//! their breakers are open. Each transition is also a `tool.breaker` event at WARN, and reaches the
//! layer's [`Listen`](crate::Listen)er.
//!
//! ## Bounds
//!
//! At most 10,000 breakers are kept ([`Keys`](crate::Keys)). When they are full, the layer evicts
//! closed breakers that were not used for a while, first those without a failure in their window.
//! It keeps breakers that are open, half-open or forced, or refuse a principal, unless their open
//! period has been over for an hour and no call came. If all places are taken, calls with new keys
//! pass without a breaker.
//!
//! As many principals with weak failures are kept as keys, for all keys together, and evicted as
//! keys are: a refused one is kept. Those of a key are forgotten after an hour without a weak
//! failure there. Principals that were [not verified](crate::ToolCall::with_unverified_ids) have
//! half of these places at most, and take none from others. A principal without a place is not
//! refused.
//!
//! ## Cost
//!
//! Finding the breaker of a known key takes a read lock that few other threads use; it waits only
//! while a table of breakers is replaced. While the breaker is closed, admission is one atomic
//! load. With consecutive failures or failures in a window, a success is another load, with no
//! clock and no allocation. All else takes the breaker's mutex for a moment: a success with
//! [`Rates`] or after failures, a failure, a refusal, and every call for an hour after a weak
//! failure there. `tokio`'s clock is monotonic: a wall clock that is set back changes nothing.
//!
//! ## Clone
//!
//! All services made from one layer value, or from its clones, share the breakers, and so do their
//! clones. Readiness is not shared: a clone starts unpolled.

mod admission;
mod breaker;
mod cell;
mod circuit;
mod handle;
mod layer;
#[cfg(all(test, toolcall_loom))]
mod loom;
#[cfg(all(test, not(toolcall_loom)))]
mod model;
mod rules;
mod server;
mod service;
mod snapshot;
mod state;
mod weak;
mod window;

pub use self::{
    breaker::{Breaker, Permit},
    handle::{CircuitBreakerHandle, Transitions},
    layer::{CircuitBreakerBuilder, CircuitBreakerLayer},
    rules::{MAX_PROBES, MAX_WINDOW_CALLS, Probe, Rates, Trip},
    service::{CircuitBreaker, ResponseFuture},
    snapshot::BreakerSnapshot,
    weak::{PrincipalRefused, WeakFailures},
};
pub(crate) use self::{
    server::Sign,
    state::{Pass, SERVER},
};
pub(crate) use crate::config::period;
pub use crate::{
    config::MAX_PERIOD,
    event::transition::{BreakerState, Transition, TransitionReason},
    flow::Abandoned,
    kit::{keyed::KeyedBuilder, lagged::Lagged},
};
