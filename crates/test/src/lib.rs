//! Tests for tools, and for the stacks around them.
//!
//! - **what a stack does with answers, errors, hangs, panics, rate limits and progress**:
//!   [`Script`]: a tool that follows a list of steps and records the calls that it got
//! - **whether a program survives random faults**: [`FaultLayer`]: rates of faults by tool, the
//!   same in each run
//! - **a program without its servers**: [`Capture`], which writes calls and answers down, and
//!   [`Replay`], which answers from that
//! - **what a success does not show: retries, waits, refusals**: [`Events`], and the call's
//!   [`RecordSnapshot`]
//!
//! All of it waits on tokio's clock. With `#[tokio::test(start_paused = true)]` (tokio's feature
//! `test-util`) a test of an hour takes milliseconds, and its durations are exact.
//!
//! ```toml
//! [dev-dependencies]
//! serde_json = "1"
//! tokio = { version = "1", features = ["macros", "rt", "test-util"] }
//! tower = { version = "0.5", features = ["util"] }
//! tower-toolcall-test = { path = "../tower-toolcall/crates/test" } # a clone
//! ```
//!
//! # Your own tool
//!
//! A tool is a service: call it, without a stack, and look at what the layers will act on.
//!
//! ```
//! use serde::Deserialize;
//! use serde_json::json;
//! use tower::{ServiceExt, service_fn};
//! use tower_toolcall::{AnyError, ErrorKind, Execution, ToolCall, ToolError};
//!
//! #[derive(Deserialize)]
//! struct Charge {
//!     cents: u64,
//! }
//!
//! async fn charge(call: ToolCall) -> Result<String, ToolError> {
//!     let Charge { cents } = call.arguments_as()?;
//!     Ok(format!("charged {cents}"))
//! }
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), AnyError> {
//! let call = ToolCall::new("charge").with_json(json!({ "cents": 250 }))?;
//! assert_eq!(service_fn(charge).oneshot(call).await?, "charged 250");
//!
//! let error = service_fn(charge).oneshot(ToolCall::new("charge")).await.unwrap_err();
//! assert_eq!(
//!     (error.kind(), error.execution()),
//!     (ErrorKind::InvalidInput, Execution::NotStarted)
//! );
//! # Ok(()) }
//! ```
//!
//! # A scripted tool
//!
//! ```
//! use std::time::Duration;
//! use serde_json::json;
//! use tokio::time::Instant;
//! use tower::{ServiceBuilder, ServiceExt};
//! use tower_toolcall::{
//!     AnyError, ErrorKind, ReplaySafety, ServiceBuilderExt, ToolCall, retry::RetryPolicy,
//! };
//! use tower_toolcall_test::{Script, Step};
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), AnyError> {
//! let tool = Script::new([
//!     Step::status(503),
//!     Step::hang(),
//!     Step::ok(json!("12 degrees")).after(Duration::from_secs(2)),
//! ]);
//! let stack = ServiceBuilder::new()
//!     .tool_retry(RetryPolicy::new())
//!     .tool_timeout(Duration::from_secs(10))
//!     .tool(tool.clone());
//!
//! let start = Instant::now();
//! let call = ToolCall::new("weather").with_replay_safety(ReplaySafety::Safe);
//! assert_eq!(stack.clone().oneshot(call).await?, "12 degrees");
//! // A backoff of about 1 s, a timeout of 10 s, a backoff of about 2 s, and the answer.
//! assert!(start.elapsed() >= Duration::from_secs(15));
//! assert_eq!((tool.count(), tool.cancelled(), tool.in_flight(), tool.left()), (3, 1, 0, 0));
//! assert_eq!(tool.calls()[2].attempt(), 3);
//!
//! // More calls than the test expects are an error that says so.
//! let error = stack.oneshot(ToolCall::new("weather")).await.unwrap_err();
//! assert_eq!(error.kind(), ErrorKind::Internal);
//! assert_eq!(error.message(), "the script has no answer for call 4 (`weather`)");
//! # Ok(()) }
//! ```
//!
//! # Faults
//!
//! Whether a program survives random faults shows after many calls. With the same seed each run is
//! the same. The fault that matters most is the lost answer: the tool has run, and its caller
//! cannot know.
//!
//! ```
//! use serde_json::Value;
//! use tower::{ServiceBuilder, ServiceExt};
//! use tower_toolcall::{ConfigError, ServiceBuilderExt, ToolCall, retry::RetryPolicy};
//! use tower_toolcall_test::{FaultLayer, Faults, Script, Step};
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), ConfigError> {
//! let faults = Faults::new()
//!     .with_fault(0.2, Step::status(429))?           // turned away: it may be sent again
//!     .with_lost_answer(0.2, Step::status(502))?;    // it ran
//! let tool = Script::always(Step::ok(Value::Null));
//! let stack = ServiceBuilder::new()
//!     .tool_retry(RetryPolicy::new())
//!     .layer(FaultLayer::new(1, faults))
//!     .tool(tool.clone());
//!
//! let mut failed = 0;
//! for _ in 0..100 {
//!     failed += u64::from(stack.clone().oneshot(ToolCall::new("pay")).await.is_err());
//! }
//! assert!(failed > 0);
//! assert!(tool.count() <= 100, "nothing was paid twice");
//! # Ok(()) }
//! ```
//!
//! # Capture and replay
//!
//! Around the real tools once, then instead of them. What is written down is redacted, so that it
//! may be kept in a repository.
//!
//! ```
//! use serde_json::json;
//! use tower::{ServiceBuilder, ServiceExt, service_fn};
//! use tower_toolcall::{AnyError, ToolCall};
//! use tower_toolcall_test::{Capture, Replay};
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), AnyError> {
//! let real = service_fn(|call: ToolCall| async move {
//!     Ok::<_, AnyError>(json!({ "city": call.arguments().get("city"), "degrees": 12 }))
//! });
//! let weather = |city: &str| {
//!     ToolCall::new("weather").with_json(json!({ "city": city, "api_key": "s3cr3t" }))
//! };
//!
//! let capture = Capture::new();
//! let tools = ServiceBuilder::new().layer(capture.layer()).service(real);
//! tools.oneshot(weather("Oslo")?).await?;
//! let lines = capture.lines(); // write them to a file
//! assert!(!lines.contains("s3cr3t"));
//!
//! let replay = Replay::from_lines(&lines)?;
//! let answer = replay.clone().oneshot(weather("Oslo")?).await?;
//! assert_eq!(answer["degrees"], 12);
//!
//! let error = replay.oneshot(weather("Rome")?).await.unwrap_err();
//! assert_eq!(
//!     error.message(),
//!     "the replay has no such call of `weather`: the nearest one has another `city`",
//! );
//! # Ok(()) }
//! ```
//!
//! # Events and the record
//!
//! A success does not show what it took. [`Events::run`] sends a call through a stack and records
//! the events of all its layers, without wiring. An [`assert`](Events::assert) that fails prints
//! everything that happened, with its times.
//!
//! ```
//! use std::time::Duration;
//! use serde_json::json;
//! use tower::ServiceBuilder;
//! use tower_toolcall::{ServiceBuilderExt, ToolCall, retry::RetryPolicy};
//! use tower_toolcall_test::{Events, Script, Step};
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() {
//! let limited = Step::status(429).with_retry_after(Duration::from_secs(5));
//! let tool = Script::new([limited, Step::ok(json!("done"))]);
//! let stack = ServiceBuilder::new().tool_retry(RetryPolicy::new()).tool(tool);
//!
//! let events = Events::new();
//! let (result, record) = events.run(stack, ToolCall::new("import")).await;
//! assert_eq!(result.unwrap(), "done");
//! events.assert(["tool.retry"]);
//! record.assert(|r| r.sent == 2 && r.waited >= Duration::from_secs(5));
//! # }
//! ```

mod capture;
mod events;
mod fault;
mod replay;
mod script;
mod step;

pub use self::{
    capture::{Capture, CaptureFuture, CaptureLayer, CaptureService},
    events::{Events, RecordSnapshot},
    fault::{Fault, FaultFuture, FaultLayer, Faults},
    replay::Replay,
    script::Script,
    step::{Step, StepFuture},
};

/// How many calls a [`Script`] keeps; further ones are counted only.
pub const MAX_CALLS: usize = 10_000;

/// How many events [`Events`] keep; further ones are counted only.
pub const MAX_EVENTS: usize = 10_000;

/// How many lines a [`Replay`] reads.
pub const MAX_LINES: usize = 100_000;

/// How many tools a [`FaultLayer`] counts one by one.
pub const MAX_TOOLS: usize = 1_000;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
