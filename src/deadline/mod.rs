//! A layer that ends a call at its deadline, or when its caller cancels.
//!
//! | at a glance | |
//! |---|---|
//! | does | bounds the whole call: waits, retries and attempts |
//! | place | outside all layers that wait or repeat, inside observers |
//! | default | the budget is yours; 500 ms are reserved from an outer deadline |
//! | the caller sees | `DeadlineExceeded`, `Timeout` or `Cancelled` |
//! | method | `ServiceBuilderExt::tool_deadline` |
//!
//! It gives each call a time budget for all inner layers: the wait for readiness, retries,
//! cooldowns, the call itself. A deadline that the call brought along is never exceeded: the call
//! gets `min(budget, remaining - reserve)`. The owner of the outer deadline keeps the reserve to
//! finish its own work: 500 ms by default, and at most a tenth of a remote caller's deadline. If
//! nothing is left, the call is not started. When the time is up, or when the caller's token fires,
//! the inner future is dropped immediately. Dropping the response future drops the inner one.
//!
//! # Example
//!
//! ```
//! use std::time::Duration;
//! use tokio::time::Instant;
//! use tower::{ServiceBuilder, ServiceExt, service_fn};
//! use tower_toolcall::{
//!     AnyError, ErrorKind, ToolCall, deadline::DeadlineLayer,
//! };
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() {
//! let tool = service_fn(|_call: ToolCall| async {
//!     Ok::<_, AnyError>("done")
//! });
//! let stack = ServiceBuilder::new()
//!     .layer(DeadlineLayer::new(Duration::from_secs(10)))
//!     .service(tool);
//!
//! // The agent's whole turn ends in 300 ms: less than the reserve is left.
//! let call = ToolCall::new("search").with_deadline(
//!     Instant::now() + Duration::from_millis(300),
//! );
//! let error = stack.oneshot(call).await.unwrap_err();
//! assert_eq!(error.kind(), ErrorKind::DeadlineExceeded);
//! # }
//! ```
//!
//! Budgets nest; each keeps its reserve from the one outside:
//!
//! ```
//! use std::time::Duration;
//! use tower_toolcall::deadline::DeadlineLayer;
//!
//! let agent = DeadlineLayer::new(Duration::from_secs(50));
//! let tools = DeadlineLayer::new(Duration::from_secs(15)).with_reserve(Duration::from_secs(1));
//! let tool = DeadlineLayer::inherited(); // no own budget: enforces the deadline of the call
//! ```
//!
//! # Errors
//!
//! [`DeadlineExceeded`](crate::ErrorKind::DeadlineExceeded) for a call that was not started,
//! [`Timeout`](crate::ErrorKind::Timeout) with the deadline as its limit for a call that was
//! started, and [`Cancelled`](crate::ErrorKind::Cancelled). If an inner layer has repeated the
//! call, the error of the last finished attempt is the source, and its code and message are the
//! detail `last_attempt`. Errors of the inner service pass, stamped with the call's names; an inner
//! readiness error is the result of the call that meets it.
//!
//! # Cancel safety
//!
//! Nothing is lost or leaked when the future is dropped. The response is polled before token and
//! timer: when several are ready, the response wins. So a future that is first polled after its
//! deadline polls the tool once.
//!
//! # Details
//!
//! ## Order
//!
//! Outside every layer that waits or repeats, inside the observers. It is always ready: it can
//! refuse a call although the inner service is not ready, so back-pressure ends here; bound the
//! load with an outer limit.
//!
//! ## A tool that is told to stop
//!
//! With `with_drain` the inner future is not dropped at the deadline, or when the caller cancels.
//! The call's token (`ToolCall::cancellation`) fires for the tool and its tasks, and the layer
//! waits for the future to end, for the time of `with_drain` at most. Permits and probes of inner
//! layers are held until then, because the tool may still be at work. Then the future is dropped.
//! The call ends with the same error in any case, later by the wait at most, so it may pass its
//! deadline by that much.
//!
//! If the tool ends during the wait with a success, or with a
//! [completed](crate::Execution::Completed) error, its answer is lost. The error then says that the
//! tool has run, and is not retryable. Any answer counts as its end, even if it names a running
//! job: for such tools let an inner [`PollLayer`](crate::poll) wait.
//!
//! The token is a child of the caller's, so that it fires with that as well. Inner deadline and
//! timeout layers leave the deadline and the caller's token to this layer. They still enforce their
//! own limits: a timeout, or a tighter deadline. A tool service that does not watch the token, such
//! as that of an MCP server, which is notified by the drop, is only waited for. Dropping the
//! response future drops the inner one immediately.
//!
//! ## Panics
//!
//! A call that has to wait panics outside a tokio runtime, or in one without the time driver.
//!
//! ## Clone
//!
//! Clones share the settings. Readiness is not shared: a clone starts unpolled.

mod bounded;
mod layer;

pub use self::{
    bounded::{Deadline, ResponseFuture},
    layer::DeadlineLayer,
};
