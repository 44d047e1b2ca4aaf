//! A tool that fails after its work, and how often it ran.

use std::{
    future::{Ready, ready},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
    task::{Context, Poll},
};

use tower::{Service, ServiceBuilder, ServiceExt};
use tower_toolcall::{
    ReplaySafety, ToolCall, ToolError, rate_limit::RateLimitBackoffLayer, retry::RetryLayer,
};

/// Fails each time with a new error.
pub(crate) struct Tool<F> {
    error: Arc<F>,
    pub(crate) runs: Arc<AtomicU32>,
}

impl<F> Tool<F> {
    pub(crate) fn new(error: F) -> Self {
        Self {
            error: Arc::new(error),
            runs: Arc::default(),
        }
    }
}

impl<F> Clone for Tool<F> {
    fn clone(&self) -> Self {
        Self {
            error: Arc::clone(&self.error),
            runs: Arc::clone(&self.runs),
        }
    }
}

impl<F, E> Service<ToolCall> for Tool<F>
where
    F: Fn() -> E,
{
    type Response = ();
    type Error = E;
    type Future = Ready<Result<(), E>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), E>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: ToolCall) -> Self::Future {
        self.runs.fetch_add(1, SeqCst);
        ready(Err((self.error)()))
    }
}

/// Calls the tool through every layer that repeats, for a tool of unknown and of no replay safety.
/// The most runs that a call made, and the last error.
pub(crate) async fn runs<F, E>(error: F) -> (u32, ToolError)
where
    F: Fn() -> E,
    E: Into<ToolError>,
{
    let tool = Tool::new(error);
    let (mut most, mut last) = (0, None);
    for safety in [ReplaySafety::Unknown, ReplaySafety::Unsafe] {
        let call = ToolCall::new("pay").with_replay_safety(safety);
        let retry = ServiceBuilder::new().layer(RetryLayer::default());
        let limit = ServiceBuilder::new().layer(RateLimitBackoffLayer::new());
        let both = ServiceBuilder::new()
            .layer(RetryLayer::default())
            .layer(RateLimitBackoffLayer::new());
        let results = [
            (
                retry.service(tool.clone()).oneshot(call.clone()).await,
                tool.runs.swap(0, SeqCst),
            ),
            (
                limit.service(tool.clone()).oneshot(call.clone()).await,
                tool.runs.swap(0, SeqCst),
            ),
            (
                both.service(tool.clone()).oneshot(call).await,
                tool.runs.swap(0, SeqCst),
            ),
        ];
        for (result, runs) in results {
            most = most.max(runs);
            last = result.err();
        }
    }
    (most, last.unwrap())
}
