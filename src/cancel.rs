//! A cancellation token for tools that spawn work.
//!
//! Dropping a response future is how a call is cancelled, and an ordinary tool needs no more than
//! that: its own future is dropped with it. What a tool has *spawned* is not. [`cancellable`] gives
//! such a tool a token that fires when its future is dropped unfinished, by a timeout, a deadline
//! or the caller.
//!
//! ```
//! use std::time::Duration;
//! use tower::{ServiceBuilder, ServiceExt, service_fn};
//! use tower_toolcall::{
//!     AnyError, ErrorKind, ToolCall, cancel::cancellable, timeout::TimeoutLayer,
//! };
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() {
//! let tool = service_fn(|call: ToolCall| {
//!     cancellable(&call, |token| async move {
//!         let work = tokio::spawn(async move {
//!             tokio::select! {
//!                 () = token.cancelled() => Err("stopped"),
//!                 () = tokio::time::sleep(Duration::from_secs(60)) => Ok("done"),
//!             }
//!         });
//!         Ok::<_, AnyError>(work.await?)
//!     })
//! });
//! let stack =
//!     ServiceBuilder::new().layer(TimeoutLayer::new(Duration::from_secs(1))).service(tool);
//! let error = stack.oneshot(ToolCall::new("crunch")).await.unwrap_err();
//! assert_eq!(error.kind(), ErrorKind::Timeout); // and the spawned task has seen its token fire
//! # }
//! ```

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use pin_project_lite::pin_project;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::call::ToolCall;

/// Runs `work` with a token that fires when the returned future is dropped unfinished.
///
/// The token is a child of the [caller's](ToolCall::with_cancellation), if there is one, so it
/// fires with that as well. Each attempt has a token of its own.
///
/// # Cancel safety
///
/// Dropping the future fires the token, then drops `work`.
pub fn cancellable<F, Fut>(call: &ToolCall, work: F) -> Cancellable<Fut>
where
    F: FnOnce(CancellationToken) -> Fut,
    Fut: Future,
{
    let token = call
        .cancellation()
        .map_or_else(CancellationToken::new, CancellationToken::child_token);
    let guard = Some(token.clone().drop_guard());
    Cancellable {
        guard,
        work: work(token),
    }
}

pin_project! {
    /// Future of [`cancellable`].
    #[derive(Debug)]
    #[must_use = "futures do nothing unless polled"]
    pub struct Cancellable<F> {
        // Before the work, so that it is dropped first.
        guard: Option<DropGuard>,
        #[pin]
        work: F,
    }
}

impl<F: Future> Future for Cancellable<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let output = ready!(this.work.poll(cx));
        if let Some(guard) = this.guard.take() {
            guard.disarm();
        }
        Poll::Ready(output)
    }
}
