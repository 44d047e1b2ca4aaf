//! A layer that bounds how many calls of a key run at a time.
//!
//! | at a glance | |
//! |---|---|
//! | does | lets at most so many calls of a key run; others wait in a queue |
//! | place | inside retry and rate limit, outside breaker and timeout |
//! | default | the limit is yours; a queue of 64 places |
//! | the caller sees | [`Overloaded`](crate::ErrorKind::Overloaded), not started |
//! | method | `ServiceBuilderExt::tool_concurrency_limit` |
//!
//! Each tool of each server has its own limit ([`Key`](crate::Key)), so that one slow tool does not
//! take the connections, threads or memory of the others. Further calls wait in a queue, in the
//! order in which they were first polled. The queue of a key has 64 places
//! ([`with_max_queue`](ConcurrencyLimitBuilder::with_max_queue)); a call that finds it full is
//! refused immediately. The calls of a [batch](crate::Claim::Queue) always wait if the limit has a
//! queue, because the batch bounds their number. The queue has as many separate places for them.
//! Further calls of batches wait until one of these is free.
//!
//! # Example
//!
//! ```
//! use std::time::Duration;
//! use tokio::time::{Instant, sleep};
//! use tower::{ServiceBuilder, ServiceExt, service_fn};
//! use tower_toolcall::{
//!     AnyError, ToolCall,
//!     concurrency_limit::ConcurrencyLimitLayer,
//! };
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() {
//! let tool = service_fn(|_call: ToolCall| async {
//!     sleep(Duration::from_secs(1)).await;
//!     Ok::<_, AnyError>("done")
//! });
//! let stack = ServiceBuilder::new()
//!     .layer(ConcurrencyLimitLayer::new(2))
//!     .service(tool);
//!
//! // Four calls of a second each, two at a time.
//! let start = Instant::now();
//! let call =
//!     || stack.clone().oneshot(ToolCall::new("search"));
//! let (a, b, c, d) =
//!     tokio::join!(call(), call(), call(), call());
//! assert!([a, b, c, d].iter().all(Result::is_ok));
//! assert_eq!(start.elapsed().as_secs(), 2);
//! # }
//! ```
//!
//! One limit for each agent, and no queue; the handle shows what runs:
//!
//! ```
//! use tower_toolcall::{Key, concurrency_limit::ConcurrencyLimitLayer};
//!
//! # fn main() -> Result<(), tower_toolcall::ConfigError> {
//! let layer = ConcurrencyLimitLayer::builder(4)
//!     .with_keys(Key::by(|call| call.agent_id().unwrap_or("")))
//!     .with_max_queue(0)
//!     .build()?;
//! for load in layer.handle().loads() {
//!     println!("{:?}: {} run, {} wait", load.tool, load.running, load.waiting);
//! }
//! # Ok(()) }
//! ```
//!
//! # Errors
//!
//! [`Overloaded`](crate::ErrorKind::Overloaded), not started, for a call that finds the queue full.
//! It is a [refusal](crate::ToolError::is_own_refusal): no retry layer repeats it and no breaker
//! counts it. [`DeadlineExceeded`](crate::ErrorKind::DeadlineExceeded) or
//! [`Cancelled`](crate::ErrorKind::Cancelled), not started, if the deadline or the caller's token
//! ended the wait. Errors of the inner service pass, stamped with the call's names; an inner
//! readiness error is the result of the call that meets it.
//!
//! # Cancel safety
//!
//! Dropping the future at any point gives its permit, or its place in the queue, back. A waiting
//! call has to be polled: if it is not polled when its turn has come, it keeps its permit from
//! others.
//!
//! # Differences from `tower::limit::ConcurrencyLimit`
//!
//! `ConcurrencyLimit` has one limit for all calls. It takes a permit in `poll_ready`, and holds it
//! even if the call is never made. Its callers wait without a bound or a deadline. Here each key
//! has a limit, and a permit is taken when the call is sent. A call that succeeds without waiting
//! allocates nothing in both.
//!
//! # Details
//!
//! What happens to a call:
//!
//! - **It is sent**: it holds a permit from then on until its answer is there, a success or an
//!   error.
//! - **It waits**: until its turn, until its deadline, or until its caller cancels. It holds no
//!   reservation of the inner service.
//! - **Its future is dropped**, also after a panic: its permit, or its place in the queue, is free
//!   immediately, and the next call is woken.
//!
//! ## Order
//!
//! Inside retry and rate-limit layers, so that their delays hold no permit (a call that [waits for
//! a probe](crate::circuit_breaker::CircuitBreakerBuilder::with_probe_wait) holds one). Outside the
//! breaker, so that it admits a queued call when the call is about to run. Outside the timeout, so
//! that an attempt's time does not run while it waits. Inside a
//! [`DeadlineLayer`](crate::deadline::DeadlineLayer), which bounds the wait.
//!
//! It is always ready: back-pressure ends here, and the queue takes its place. If the inner service
//! is not ready for a call, the call waits for it first, without a permit and without a place in
//! the queue. If it is not ready when a call from the queue has its turn, the call keeps its permit
//! and waits for it.
//!
//! ## Bounds
//!
//! At most 10,000 keys are kept ([`Keys`](crate::Keys)). A key with running or waiting calls is not
//! evicted. If all places are taken, calls with new keys pass without a limit: under a shared limit
//! a caller who invents names would hold back others. A call that comes while its unused key is
//! evicted does not count for later calls; [known](crate::Keys::known) keys are never evicted.
//!
//! A wait is not bounded in time by the layer itself: give calls a deadline. A tool that calls
//! other tools through the same stack keeps its permit meanwhile: if the inner calls have the key
//! of the outer one, by agent for example, they can wait for each other until their deadlines.
//!
//! A limit for each key is none for all keys together: for that, put a second layer with one key
//! for all calls outside, `Key::by(|_| "")`.
//!
//! ## Panics
//!
//! A call with a deadline that has to wait panics outside a tokio runtime, or in one without the
//! time driver.
//!
//! ## Clone
//!
//! All services made from one layer value, or from its clones, share the limits. Readiness is not
//! shared.

mod handle;
mod layer;
mod limit;

pub use self::{
    handle::{ConcurrencyLimitHandle, Load},
    layer::{ConcurrencyLimitBuilder, ConcurrencyLimitLayer},
    limit::{ConcurrencyLimit, ResponseFuture},
};
pub use crate::kit::keyed::KeyedBuilder;
