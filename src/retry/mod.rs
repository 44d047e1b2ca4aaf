//! A layer that repeats calls that failed.
//!
//! | at a glance | |
//! |---|---|
//! | does | repeats failed calls that may run twice, or surely did not start |
//! | place | inside deadline, outside rate limit and breaker |
//! | default | 3 attempts, with waits of 1 s and 2 s between them; a budget for each tool |
//! | the caller sees | the last error, with the number of attempts |
//! | method | `ServiceBuilderExt::tool_retry` |
//!
//! A call is sent again on three conditions. The [classifier](crate::Classify) says that a
//! repetition may help: timeouts, lost connections, 5xx, rate limits. The call may run twice.
//! Another attempt can begin before the deadline. There are at most 3 attempts, with waits of 1 s
//! and 2 s between them, plus a random share. A delay that the server asks for takes precedence.
//! Retries are at most a fifth of a tool's calls, or 10 in 20 s if that is more.
//!
//! # Example
//!
//! ```
//! use tower::{ServiceBuilder, ServiceExt, service_fn};
//! use tower_toolcall::{
//!     AnyError, ReplaySafety, ToolCall, retry::RetryLayer,
//! };
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() {
//! let tool = service_fn(|call: ToolCall| async move {
//!     match call.attempt() {
//!         1 => Err(AnyError::from("503 Service Unavailable")),
//!         n => Ok(format!("done at attempt {n}")),
//!     }
//! });
//! let stack = ServiceBuilder::new()
//!     .layer(RetryLayer::default())
//!     .service(tool);
//!
//! // A search may run twice.
//! let search = ToolCall::new("search")
//!     .with_replay_safety(ReplaySafety::Safe);
//! assert_eq!(
//!     stack.clone().oneshot(search).await.unwrap(),
//!     "done at attempt 2"
//! );
//!
//! // A payment is not marked as safe: it is not sent again.
//! let error =
//!     stack.oneshot(ToolCall::new("pay")).await.unwrap_err();
//! assert_eq!(error.attempts(), Some(1));
//! # }
//! ```
//!
//! Customised:
//!
//! ```
//! use std::time::Duration;
//! use tower_toolcall::{
//!     ReplaySafety,
//!     backoff::{Backoff, Jitter},
//!     retry::{RetryBudget, RetryLayer, RetryPolicy},
//! };
//!
//! # fn main() -> Result<(), tower_toolcall::ConfigError> {
//! let backoff =
//!     Backoff::exponential(Duration::from_millis(200), 2.0)?.with_jitter(Jitter::Full);
//! let policy = RetryPolicy::new()
//!     .with_attempts(4)?
//!     .with_backoff(backoff)
//!     .with_tool("import", 1, backoff)? // never
//!     .with_budget(RetryBudget::new(0.1, 5)?)
//!     .with_replay_safety(|call| match call.tool() {
//!         name if name.starts_with("get_") => ReplaySafety::Safe,
//!         _ => ReplaySafety::Unknown,
//!     });
//! let layer = RetryLayer::new(policy);
//! # let _ = layer; Ok(()) }
//! ```
//!
//! The policy inside tower's own layer (feature `tower`):
//!
//! ```
//! # #[cfg(feature = "tower")] {
//! use tower::{ServiceBuilder, retry::RetryLayer, service_fn};
//! use tower_toolcall::{AnyError, ToolCall, retry::RetryPolicy};
//!
//! let stack = ServiceBuilder::new()
//!     .layer(RetryLayer::new(RetryPolicy::new()))
//!     .service(service_fn(|_: ToolCall| async { Ok::<_, AnyError>("done") }));
//! # let _ = async { tower::ServiceExt::oneshot(stack, ToolCall::new("t")).await };
//! # }
//! ```
//!
//! # Errors
//!
//! Those of the inner service, stamped with the call's names and, on calls that are ours to repeat,
//! the number of attempts. If the deadline or the caller ends a later attempt, the error of the
//! last finished attempt is the source of the call's error. Its code and message are the detail
//! `last_attempt`.
//!
//! # Differences from `tower::retry`
//!
//! A call keeps one count on the shared policy and template, not a clone of the whole stack. The
//! policy sees the call, so it knows what may have run, and the call's deadline.
//!
//! # Details
//!
//! **May it run twice?** A call of a tool that is not marked as safe is rarely repeated:
//!
//! - Repeated only if safe: a timeout, a 5xx, a connection lost during the call. The tool may have
//!   run.
//! - Repeated unless marked `Unsafe`: a 503 with `Retry-After` on the tool service's own
//!   connection.
//! - Always repeated: a tool service's error that says
//!   [`NotStarted`](crate::Execution::NotStarted); a 429 on its own connection; a refused
//!   connection of a [transport](crate::transport).
//! - Always continued: a [job](crate::poll) that still runs. The next attempt waits for it, and
//!   starts none.
//! - Never repeated: an error of no known kind ([`Failed`](crate::ErrorKind::Failed)), such as a
//!   tool's `Err("no oven is free".into())`. State its kind by
//!   [`ToolError::new`](crate::ToolError::new) or a [classifier](crate::outcome).
//! - Never repeated: the refusal of a layer of this crate.
//!
//! A call is safe if one of these says so:
//! [`ToolCall::with_replay_safety`](crate::ToolCall::with_replay_safety), a rule or a catalog of
//! trusted tools ([`RetryPolicy::with_replay_safety`]), an [identity layer](crate::identity) of a
//! trusted server, or the policy's assumption ([`RetryPolicy::assume_replay_safe`]). No text of an
//! error proves that a tool has not run. A refusal to repeat is an event with its reason
//! ([`RetryRefusal`]) and counted in the span and the result, never silence. The error of a call
//! that was not declared safe says so in its detail `retry_refused`.
//!
//! **How many together?** A [`RetryBudget`] for each tool bounds the retries of its calls to a
//! fifth of their number, or to 10 in 20 s if that is more. So under a full outage a tool with 50
//! calls or more in 20 s sees at most 1.2 times the calls, and uses up no other tool's retries. The
//! minimum holds for each tool: many tools of one server may exceed 1.2 times its calls.
//! [`RetryPolicy::with_total_budget`] bounds all of them together.
//!
//! Layers do not know each other: after a failure has just opened an inner breaker, the retry layer
//! still waits for the next attempt. The breaker's refusal does not count as an attempt: the result
//! is the tool's last error, with the breaker's remaining time as `retry_after` if it has none, and
//! the refusal's code among its details. (Inside tower's layer, the refusal.) If the breaker lets
//! calls [wait for a probe](crate::circuit_breaker::CircuitBreakerBuilder::with_probe_wait), an
//! attempt does so as well, until the deadline at most.
//!
//! Dropping the response future drops the attempt that runs, or ends the wait. An attempt that
//! failed is dropped before the wait for the next one. A cancellation token on the call, and its
//! deadline, end every wait between two attempts: with [`Cancelled`](crate::ErrorKind::Cancelled),
//! or with the error of the attempt before. (Inside tower's layer they cannot; there the next
//! attempt meets them.)
//!
//! ## Order
//!
//! Outside the breaker and the timeout, so that both see each attempt; inside the deadline, which
//! bounds all of them together. It passes readiness through; further attempts are made on fresh
//! instances, which wait for their own. One retrier is enough: the outermost claims the call, and
//! inner ones (including tower's with this policy) do not repeat it.
//!
//! ## Idempotency key
//!
//! Tool services can send [`ToolCall::idempotency_key`](crate::ToolCall::idempotency_key) along:
//! all attempts at a call share one, and each call has its own. tower's layer cannot provide one.
//!
//! ## Panics
//!
//! A retry that has to wait panics outside a tokio runtime, or in one without the time driver.
//!
//! ## Clone
//!
//! Clones, and services of one layer value, share the policy with its budget. Readiness belongs to
//! the inner service. Each service that the layer makes (not each clone) takes some KiB for
//! reference counts per thread.

mod budget;
mod layer;
mod policy;
mod service;

pub use self::{
    budget::RetryBudget,
    layer::RetryLayer,
    policy::RetryPolicy,
    service::{ResponseFuture, Retry},
};
#[doc(inline)]
pub use crate::event::RetryRefusal;
