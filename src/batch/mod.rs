//! Several calls: side by side ([`Parallel`]), or one after the other under one time budget
//! ([`Sequence`]).
//!
//! Either works on any `Service<ToolCall>` that can be cloned, and spawns nothing: the calls run in
//! the task that waits for them. Each call gets exactly one [`ToolResult`](crate::ToolResult), in
//! the order of the calls, whatever becomes of it or of the others:
//!
//! | the call | its result |
//! |---|---|
//! | has an answer, or fails | `success`, or what its error or its classifier says |
//! | panics | `error`, [`Panicked`](crate::ErrorKind::Panicked) |
//! | runs when the budget is spent | `timeout`; it is dropped, and so cancelled |
//! | has not begun when the budget is spent | `skipped`, with a duration of zero |
//! | has not ended when the batch is [cancelled](Running::cancel) | `cancelled` |
//!
//! A call gets a new id if it has none, an empty one, or that of an earlier call of the batch: a
//! result's id is unique in its batch.
//!
//! # Example
//!
//! ```
//! use std::time::Duration;
//! use serde::Deserialize;
//! use serde_json::json;
//! use tower::{ServiceBuilder, service_fn};
//! use tower_toolcall::{
//!     AnyError, BoxError, ToolCall, batch::Parallel,
//!     timeout::TimeoutLayer,
//! };
//!
//! #[derive(Deserialize)]
//! struct Weather {
//!     city: String,
//! }
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), BoxError> {
//! let weather = service_fn(|call: ToolCall| async move {
//!     let Weather { city } = call.arguments_as()?;
//!     match &*city {
//!         "Oslo" => Ok("12 degrees"),
//!         "Atlantis" => std::future::pending().await,
//!         _ => Err(AnyError::from("no such city")),
//!     }
//! });
//! let tools = ServiceBuilder::new()
//!     .layer(TimeoutLayer::new(Duration::from_secs(5)))
//!     .service(weather);
//!
//! let cities = ["Oslo", "Narnia", "Atlantis"];
//! let calls = cities.map(|city| {
//!     ToolCall::new("weather")
//!         .with_json(json!({ "city": city }))
//!         .unwrap()
//! });
//! let results =
//!     Parallel::new(tools).with_limit(2)?.run(calls).await;
//!
//! let ended: Vec<_> =
//!     results.iter().map(|r| r.status().name()).collect();
//! assert_eq!(ended, ["success", "error", "timeout"]);
//! # Ok(()) }
//! ```
//!
//! In the order in which they end, as they come; [`Completions`] is a `Stream` as well:
//!
//! ```
//! use tower::service_fn;
//! use tower_toolcall::{AnyError, ToolCall, batch::Parallel};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let tools = service_fn(|_: ToolCall| async { Ok::<_, AnyError>(12) });
//! let calls = [ToolCall::new("a"), ToolCall::new("b")];
//! let mut completions = Parallel::new(tools).stream(calls);
//! while let Some((n, result)) = completions.next().await {
//!     println!("call {n}: {}", result.status());
//! }
//! # }
//! ```
//!
//! One after the other, with 30 s for all of them:
//!
//! ```
//! use std::time::Duration;
//! use tower::service_fn;
//! use tower_toolcall::{AnyError, ToolCall, batch::Sequence};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let tools = service_fn(|_: ToolCall| async { Ok::<_, AnyError>(12) });
//! let calls = [ToolCall::new("a"), ToolCall::new("b")];
//! let report = Sequence::new(tools).with_budget(Duration::from_secs(30)).run(calls).await;
//! println!("{report}"); // 2 calls in 0.0 s: 2 succeeded
//! # }
//! ```
//!
//! `map_calls` puts on all calls of a batch what layers need of their caller: a session, an agent,
//! a trace id, a subject's token.
//!
//! # Errors
//!
//! None; each call's is in its result.
//!
//! # Cancel safety
//!
//! Dropping what runs drops the calls that run, which cancels them, and begins no other. Results
//! that were not taken are lost: to keep them, [cancel](Running::cancel), and take what there is.
//! The futures can be polled through `&mut`, so that a `select!` or a timeout does not own them.
//!
//! # Details
//!
//! ## Order
//!
//! Outside a stack with errors: the batch makes results of its answers and errors, and takes over
//! the redaction rules that a [`SanitizeLayer`](crate::sanitize) of the stack puts on its calls. So
//! a stack has no [`ToolResultLayer`](crate::result); with one it does not compile here.
//!
//! The budget becomes the deadline of each call, so inner layers know of it, and is enforced here
//! besides. An inner [`DeadlineLayer`](crate::deadline) keeps its reserve from it, unless a
//! sequence has already kept the reserve. A call that waits for an inner limit when the time is up
//! has not begun. Inside a layer that waits in its own future this cannot always be seen: the
//! result is `timeout` or `skipped`, and no event says so.
//!
//! The calls of [`Parallel`] wait for places of an inner [concurrency
//! limit](crate::concurrency_limit), also beyond its queue. A call that only waits takes no place
//! of [`with_limit`](Parallel::with_limit). It continues even if no place is free.
//!
//! ## Cost
//!
//! Memory in proportion to the calls: 40 bytes and a place for the result of each call that waits,
//! its future and one allocation for each that runs. A call is polled when it is woken, so the work
//! is linear. The task yields after 128 results, and begins at most 32 calls before it asks for a
//! result of those that run. A call's duration runs from its beginning here.
//!
//! ## Panics
//!
//! If the service does when it is cloned.

mod child;
mod completions;
mod plan;
mod running;

pub use self::{
    completions::Completions,
    plan::{Batch, OneByOne, Parallel, Sequence, SideBySide},
    running::{Running, RunningSequence, SequenceReport, Tally},
};
