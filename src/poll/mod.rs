//! A layer that waits for long jobs: a call that starts one has the job's result as its answer.
//!
//! | at a glance | |
//! |---|---|
//! | does | polls the job that a call has started |
//! | place | inside the deadline, outside retry, breaker and timeout |
//! | default | the first poll after 1 s, then up to 30 s apart; at most 60 polls |
//! | the caller sees | the job's result, or `PollTimeout` with the job |
//! | method | `ServiceBuilderExt::tool_poll` |
//!
//! Some tools do not answer with their result, but with a job that runs on: HTTP APIs with `202
//! Accepted`, MCP's tasks. The layer sends the call once. If its answer names a job, it polls the
//! job, by separate calls, until the job is over. A [`Job`] reads the answers and makes the polls:
//! `HttpJob` of the crate `tower-toolcall-http`, `McpTask` of the crate `tower-toolcall-mcp`, or
//! one of your own.
//!
//! # Example
//!
//! ```
//! use std::time::Duration;
//! use serde_json::{Map, Value, json};
//! use tower::{ServiceBuilder, ServiceExt, service_fn};
//! use tower_toolcall::{
//!     AnyError, ErrorKind, ServiceBuilderExt, ToolCall,
//!     ToolError,
//!     call::JobRef,
//!     poll::{Job, Polled, Started},
//! };
//!
//! /// Begins with `{"job": 7}`, and the job ends with
//! /// `{"state": "done", "rows": 3}`.
//! #[derive(Clone)]
//! struct Reports;
//!
//! #[derive(Clone)]
//! struct Asks(u64);
//!
//! impl Job<Value> for Reports {
//!     fn started(
//!         &self,
//!         call: &ToolCall,
//!         answer: Value,
//!     ) -> Result<Started<Value>, ToolError> {
//!         let id = ("id".to_owned(), answer["job"].clone());
//!         let job = JobRef::new(call, Map::from_iter([id]))?;
//!         Ok(Started::Running(job, None))
//!     }
//!
//!     fn ask(
//!         &self,
//!         call: &ToolCall,
//!         job: &JobRef,
//!     ) -> ToolCall {
//!         let id = job.values()["id"].as_u64();
//!         let id = id.unwrap_or_default();
//!         let mut ask = call.follow_up();
//!         ask.extensions_mut().insert(Asks(id));
//!         ask
//!     }
//!
//!     fn read(
//!         &self,
//!         _: &ToolCall,
//!         answer: Value,
//!     ) -> Result<Polled<Value>, ToolError> {
//!         match answer["state"].as_str() {
//!             Some("done") => Ok(Polled::Done(answer)),
//!             Some("failed") => Err(ToolError::new(
//!                 ErrorKind::Reported,
//!                 "the report has failed",
//!             )),
//!             _ => Ok(Polled::Running {
//!                 after: None,
//!                 note: None,
//!             }),
//!         }
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), AnyError> {
//! let begin = tokio::time::Instant::now();
//! let tool = service_fn(move |call: ToolCall| async move {
//!     let is_done = begin.elapsed() > Duration::from_secs(20);
//!     let asks = call.extensions().get::<Asks>();
//!     Ok::<_, AnyError>(match asks {
//!         None => json!({ "job": 7 }),
//!         Some(Asks(7)) if is_done => {
//!             json!({ "state": "done", "rows": 3 })
//!         }
//!         Some(_) => json!({ "state": "running" }),
//!     })
//! });
//! let stack = ServiceBuilder::new()
//!     .tool_deadline(Duration::from_secs(600))
//!     .tool_poll(Reports)
//!     .tool_timeout(Duration::from_secs(10))
//!     .tool(tool);
//!
//! let answer = stack.oneshot(ToolCall::new("report")).await?;
//! assert_eq!(answer["rows"], 3);
//! # Ok(()) }
//! ```
//!
//! # Errors
//!
//! The table above; and `InvalidInput`, as a refusal, for a call with a job of another tool.
//! Stamped with the call's names.
//!
//! # Cancel safety
//!
//! Dropping the response future ends the wait and drops a poll that runs. If the job still runs,
//! and its kind knows how ([`Job::cancel`]), one call cancels it. That call runs in its own task
//! for at most 5 s. A process makes at most 100 of them at a time, and none if the future is
//! dropped outside a runtime. [`PollLayer::without_cancel`] leaves it running. The caller's
//! cancellation token does the same. A job is never cancelled because its polls or time are used
//! up: a caller with its [`JobRef`](crate::call::JobRef) may continue to wait. A call cancels
//! nothing if it is dropped before its answer has named a job, or if it was
//! [given](crate::ToolCall::with_job) a job, because others may wait for it too.
//!
//! # Details
//!
//! - **the answer names no job, or a job that is over**: that answer
//! - **the job is done**: its result
//! - **the job has failed**: the job's own error, of kind `Reported`: never repeated, not counted
//!   against the tool
//! - **the polls, the deadline or the budget are used up**: `PollTimeout`, with the
//!   [job](crate::ToolError::job), and the detail `limit`: `polls` or `time`; not counted against
//!   the tool
//! - **a poll fails, and may succeed later (timeout, lost connection, 5xx, 429, open breaker); or
//!   one of the first three does not find the job**: it takes one of the polls, and the wait goes
//!   on
//! - **a poll fails otherwise (401, 404)**: its error, with the job. It is
//!   [inferred](crate::Evidence::Inferred): it proves nothing of the call that has started the job
//! - **the call that starts the job fails**: its error
//!
//! Polls wait before they ask: 1 s, then half as long again each time, 30 s at most
//! ([`PollLayer::with_interval`]), or as long as the server asks for, 5 minutes at most. The last
//! wait before the call's deadline is shortened: the last poll begins 500 ms before it and has to
//! be answered 400 ms later. A call has 60 polls.
//!
//! **Nothing is started twice.** A call that [carries](crate::ToolCall::with_job) a job asks for it
//! immediately and starts none. An outer retry layer makes such a call by itself: while the job of
//! a call runs, another attempt only waits for it, whatever the call's replay safety. If a timeout
//! between the two layers drops the call, its job is cancelled and forgotten. A call that may run
//! twice then starts another job, even if the cancellation has not arrived; so put no timeout of
//! single requests outside this layer. Put no layer that renames calls, such as a router, between
//! the two: the retry layer would not know the job for its own. A lost answer may have started a
//! job all the same, as with any call.
//!
//! **Progress.** While a call waits for its job, it [reports](crate::Progress::report) to an outer
//! idle timeout in time: the wait between polls does not count as silence. A hanging poll does.
//! Observers find the [job](crate::Observation::job) on the call's record meanwhile. An MCP client
//! hears nothing before the answer: a job reports that it runs, not how far it is.
//!
//! ## Order
//!
//! Inside of the deadline, outside of retry, breaker and timeout: they then act on single requests.
//! An outer timeout ends the wait too. If it is shorter than the wait may be, as around a router of
//! tools with poll layers, the first call is the event `tool.inert`, with the reason
//! `outer_timeout`: give such a tool a timeout as long as its jobs. A poll is a separate call with
//! the names, arguments, extensions and deadline of the first. It may run twice, and has neither
//! the claims nor the timeout of the call. Readiness is passed through; polls are made on fresh
//! instances, which wait for their own. Without an inner timeout, and without a deadline, a hanging
//! poll is waited for.
//!
//! ## Panics
//!
//! Outside a tokio runtime, or in one without the time driver, once it has to wait.
//!
//! ## Clone
//!
//! Clones, and services of one layer value, share nothing but settings. Readiness belongs to the
//! inner service. A call is copied. More is allocated only if it starts a job.

mod cancel;
mod job;
mod layer;
mod poller;

pub use self::{
    job::{Job, Polled, Started},
    layer::PollLayer,
    poller::{Polling, ResponseFuture},
};
