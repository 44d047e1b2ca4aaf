//! A layer that stops calling a tool that is broken.
//!
//! A breaker is *closed* while calls pass. It *opens* when too many of them fail: then calls are refused
//! at once, with the time after which to come back. After that time it is *half-open*: a probe
//! passes, others are refused still; if the probe succeeds the breaker closes and starts afresh, if it
//! fails it opens again. Each tool of each server has a breaker of its own ([`Key`](crate::Key)).
//!
//! By default 5 failures in a row open it, for 60 s. No window of time is involved, so a dead tool that
//! is called every few minutes is stopped too. [`Trip`] offers a window of time for failures in a row, or for all
//! failures, and [`Rates`] shares of failures or slow calls.
//!
//! What happens to a call:
//!
//! - **It succeeds or fails**: the [classifier](crate::Classify) says what that means. Timeouts, lost
//!   connections, 5xx, panics and errors that nobody can classify are failures. The caller's own mistakes,
//!   rate limits, cancellations and refusals, ours as well, tell nothing: such a call does not count at
//!   all, and a probe's place is free again. Nor does a timeout count whose limit was the deadline of a caller who is
//!   [not trusted](crate::ToolCall::tighten_from_wire).
//! - **Its future is dropped**: past its deadline, unless that was such a caller's, it is a failure, as somebody outside
//!   enforced a timeout; so it is after the call had been pending for about its timeout, or 30 s
//!   ([`with_abandoned_after`](CircuitBreakerBuilder::with_abandoned_after)). Before that it tells
//!   nothing.
//! - **It panics**: a failure; the panic passes.
//! - **It ends after the breaker has changed its state**: the result is stale and decides nothing.
//!
//! # Order
//!
//! Below retry and rate-limit layers, so that each attempt counts and no wait holds a probe's place;
//! above [`TimeoutLayer`](crate::timeout::TimeoutLayer), so that timeouts are errors that it sees. (A timeout above it
//! drops calls; what that tells, see above.) It is always
//! ready: an open breaker answers although the service below is not ready, and gives back what was
//! reserved there. So back-pressure ends here; bound the load with a limit above it. A call that had to wait
//! for readiness is admitted when it is about to run: what was queued on a tool before it died does not
//! run after the breaker has opened.
//!
//! # Example
//!
//! ```
//! use tower::{ServiceBuilder, ServiceExt, service_fn};
//! use tower_toolcall::{AnyError, ErrorKind, ToolCall, circuit_breaker::CircuitBreakerLayer};
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() {
//! let tool = service_fn(|_call: ToolCall| async { Err::<(), AnyError>("503 Service Unavailable".into()) });
//! let stack = ServiceBuilder::new().layer(CircuitBreakerLayer::new()).service(tool);
//!
//! for _ in 0..5 {
//!     let error = stack.clone().oneshot(ToolCall::new("search")).await.unwrap_err();
//!     assert_eq!(error.kind(), ErrorKind::Upstream);
//! }
//! let error = stack.clone().oneshot(ToolCall::new("search")).await.unwrap_err();
//! assert_eq!(error.kind(), ErrorKind::CircuitOpen);
//! assert_eq!(error.retry_after_seconds(), Some(60));
//!
//! // Another tool is not affected.
//! let error = stack.oneshot(ToolCall::new("weather")).await.unwrap_err();
//! assert_eq!(error.kind(), ErrorKind::Upstream);
//! # }
//! ```
//!
//! Other settings, and a subscriber:
//!
//! ```
//! use std::time::Duration;
//! use tower_toolcall::circuit_breaker::{CircuitBreakerLayer, Rates};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tower_toolcall::ConfigError> {
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
//! # A server's breaker and a tool's
//!
//! An outcome has a scope. A lost connection tells of the whole server; an error that nobody can classify
//! tells of the tool alone ([`Count::ToolFailure`](crate::outcome::Count::ToolFailure)), and a breaker of a server leaves it
//! out. So two layers divide the work; here the tool's own breaker leaves lost connections to the server's:
//!
//! ```
//! use tower::ServiceBuilder;
//! use tower_toolcall::{
//!     Classify, ErrorKind, Key, Outcome, ToolError,
//!     circuit_breaker::CircuitBreakerLayer, outcome::ByError,
//! };
//!
//! # fn main() -> Result<(), tower_toolcall::ConfigError> {
//! let of_the_server = CircuitBreakerLayer::builder().with_key(Key::Server).build()?;
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
//! # Observing and forcing
//!
//! [`CircuitBreakerLayer::handle`] lists every breaker with its counters, forces, resets and disables
//! them, drives one by hand, and subscribes to their transitions. Each transition is a `tool.breaker` event at WARN
//! as well, and reaches the layer's [`Listen`](crate::Listen)er.
//!
//! # Bounds
//!
//! At most 10,000 breakers are kept ([`with_max_keys`](CircuitBreakerBuilder::with_max_keys)). When there
//! is no place for another one, those that are closed, have no call in flight and were not used for a
//! while are forgotten, first those without a failure in their window. An open, half-open or forced breaker is not,
//! unless its open period has been over for an hour and nobody called. Keys with which no call ever succeeded have half of
//! the places at most, and go first: so invented names take no place from tools that are
//! [known](CircuitBreakerBuilder::with_known_keys). If all places are taken, calls of new keys pass without a breaker, until
//! there is a place.
//!
//! # Errors
//!
//! [`CircuitOpen`](crate::ErrorKind::CircuitOpen), not started, always with a `retry_after`: the rest of the
//! open period; the period itself while the breaker is forced open; 1 s (or the period, if that is shorter)
//! while probes run, as nobody knows when they end. Errors of the inner service pass, stamped with the call's names. An inner
//! readiness error is the result of the call that meets it, and counts.
//!
//! A listener or a policy for dropped calls must not panic.
//!
//! # Cancel safety
//!
//! Dropping the future at any point gives a probe's place back. A probe that neither ends nor is dropped
//! loses its place after its lease ([`with_probe_lease`](CircuitBreakerBuilder::with_probe_lease)). After five probes in a row
//! that told nothing, dropped ones for example, a half-open breaker admits every call until one tells something: a failure
//! opens it again. So a breaker is never stuck, whatever its callers do. A call to which a caller who is not trusted leaves
//! less time than the tool may take is no probe, unless none other came for another open period.
//!
//! # Cost
//!
//! Finding the breaker of a known key takes a read lock that few other threads use, and waits for nobody but for a
//! table of breakers that is being replaced. While it is closed, admission is one atomic load. With consecutive failures or
//! failures in a window a success is another one, with no clock and no allocation; the one that resets a count takes
//! the mutex. With [`Rates`] a success is a
//! compare-and-swap, over time after one look at the clock. Failures, and what happens in the other states, take a
//! mutex for a moment, but for refusals of an open breaker. `tokio`'s clock is monotonic: a wall clock
//! that is set back changes nothing.
//!
//! # Clone
//!
//! All services made from one layer value, or from its clones, share the breakers, and so do their clones.
//! Readiness is not shared: a clone starts unpolled.

mod cell;
mod circuit;
mod future;
mod handle;
mod layer;
#[cfg(all(test, toolcall_loom))]
mod loom;
#[cfg(all(test, not(toolcall_loom)))]
mod model;
mod rules;
mod service;
mod state;
mod sync;
mod window;

pub(crate) use self::{
    cell::Cell,
    rules::Rules,
    state::{Demand, Pass, Recorded, Verdict},
};
pub use self::{
    future::ResponseFuture,
    handle::{Breaker, BreakerSnapshot, CircuitBreakerHandle, Lagged, Permit, Transitions},
    layer::{CircuitBreakerBuilder, CircuitBreakerLayer},
    rules::{MAX_PERIOD, MAX_PROBES, MAX_WINDOW_CALLS, Rates, Trip},
    service::CircuitBreaker,
};
pub use crate::{
    event::transition::{BreakerState, Transition, TransitionReason},
    kit::in_flight::Abandoned,
};
