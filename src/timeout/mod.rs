//! A layer that bounds each call's time.
//!
//! | at a glance | |
//! |---|---|
//! | does | bounds the time of each attempt, and reports slow calls |
//! | place | inside retry, outside `catch_panic` |
//! | default | 30 s; a call is slow above 80 % of its timeout |
//! | the caller sees | [`Timeout`](crate::ErrorKind::Timeout) |
//! | method | `ServiceBuilderExt::tool_timeout` |
//!
//! A call that answers in time passes unchanged. A later one ends with
//! [`ErrorKind::Timeout`](crate::ErrorKind::Timeout): its inner future is dropped immediately,
//! which cancels inner work. A call that used more than 80 % of its time is reported as slow, even
//! if it succeeded. Dropping the response future drops the inner one.
//!
//! # Example
//!
//! ```
//! use std::time::Duration;
//! use tower::{ServiceBuilder, ServiceExt, service_fn};
//! use tower_toolcall::{
//!     AnyError, ErrorKind, ToolCall, timeout::TimeoutLayer,
//! };
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() {
//! let tool = service_fn(|_call: ToolCall| async {
//!     tokio::time::sleep(Duration::from_secs(60)).await;
//!     Ok::<_, AnyError>("too late")
//! });
//! let stack = ServiceBuilder::new()
//!     .layer(TimeoutLayer::default())
//!     .service(tool);
//!
//! let error =
//!     stack.oneshot(ToolCall::new("slow")).await.unwrap_err();
//! assert_eq!(error.kind(), ErrorKind::Timeout);
//! assert_eq!(
//!     error.message(),
//!     "Tool invocation timed out after 30000ms"
//! );
//! # }
//! ```
//!
//! Per tool, with an idle timeout. The idle time runs from the start of every call: use it only if
//! all tools of the stack report progress.
//!
//! ```
//! use std::time::Duration;
//! use tower_toolcall::timeout::TimeoutLayer;
//!
//! let layer = TimeoutLayer::new(Duration::from_secs(60))
//!     .with_tool("import", Duration::from_secs(600))
//!     .with_slow_fraction(0.5)?
//!     .with_idle_timeout(Duration::from_secs(20))?;
//! # Ok::<_, tower_toolcall::ConfigError>(())
//! ```
//!
//! # Errors
//!
//! `Timeout`, with the time in force and, beside it, the configured one if a deadline shortened it,
//! and [which limit](crate::error::TimeoutLimit) it was. Errors of the inner service pass, stamped
//! with the call's names.
//!
//! # Cancel safety
//!
//! Nothing is lost or leaked when the future is dropped. The response is polled before the timer:
//! when both are ready, the response wins.
//!
//! # Differences from `tower::timeout`
//!
//! The error is a [`ToolError`](crate::ToolError), not a box. A call takes its place at a timer
//! only when it waits, and waiting calls of one thread share a timer: threads do not contend for
//! the runtime's list of timers twice per call. A busy inner future cannot starve it. On expiry the
//! inner future is dropped immediately.
//!
//! # Details
//!
//! The timeout is the call's own, else its tool's (by a [function](TimeoutLayer::with_timeout_fn),
//! else by [name](TimeoutLayer::with_tool)), else the layer's (30 s by default), and never reaches
//! past the call's deadline. If a [deadline layer](crate::deadline) waits for the tool
//! (`with_drain`), its deadline is left to it. The clock starts when the call first waits: a call
//! that answers immediately reads no clock and makes no timer. A deadline that has passed already
//! ends the call as soon as it waits. To refuse such a call before it starts, use
//! [`DeadlineLayer`](crate::deadline::DeadlineLayer).
//!
//! ## Order
//!
//! Inside a retry layer, so that it bounds one attempt; outside
//! [`CatchPanicLayer`](crate::catch_panic::CatchPanicLayer). It bounds a call, not the wait until
//! the inner service is ready: [`DeadlineLayer`](crate::deadline::DeadlineLayer) bounds both.
//!
//! ## A tool that is told to stop
//!
//! With `with_drain` the inner future is not dropped when the time is up. The call's token
//! (`ToolCall::cancellation`) fires for the tool and its tasks, and the layer waits for the future
//! to end, for the time of `with_drain` at most. Permits and probes of inner layers are held until
//! then, because the tool may still be at work. Then the future is dropped. The call ends with the
//! same error in any case, later by the wait at most, so it may pass its deadline by that much.
//!
//! If the tool ends during the wait with a success, or with a
//! [completed](crate::Execution::Completed) error, its answer is lost. The error then says that the
//! tool has run, and is not retryable. Any answer counts as its end, even if it names a running
//! job: for such tools let an inner [`PollLayer`](crate::poll) wait.
//!
//! The token is a child of the caller's, so that it fires with that as well. Inner deadline layers
//! without such a wait end the call when it fires. A tool service that does not watch the token,
//! such as that of an MCP server, which is notified by the drop, is only waited for. Dropping the
//! response future drops the inner one immediately.
//!
//! ## Panics
//!
//! A call that has to wait panics outside a tokio runtime, in a runtime without the time driver, or
//! while the runtime shuts down.
//!
//! ## Tests with a paused clock
//!
//! The timer of a call that has waited stays set when the call is over, for the next. A paused
//! clock may advance to it in a test that awaits something from another thread; a test that only
//! sleeps is not affected. The same holds for all layers that wait.
//!
//! ## Clone
//!
//! Clones share the settings and nothing else.

mod layer;
mod timed;

pub use self::{
    layer::TimeoutLayer,
    timed::{ResponseFuture, Timeout},
};
