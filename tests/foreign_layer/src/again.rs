//! A layer that repeats.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use tower::{Layer, Service, ServiceExt};
use tower_toolcall::{
    Claim, Listen, ReplaySafety, ToolCall, ToolError,
    event::{Event, Listener, RetryRefusal, Signal},
};

/// Sends a call again, up to a number of attempts, with a pause between them, where no layer above does so.
#[derive(Clone, Debug)]
pub struct AgainLayer {
    attempts: u32,
    pause: Duration,
    listener: Listener,
}

impl AgainLayer {
    /// At most so many attempts.
    pub fn new(attempts: u32, pause: Duration) -> Self {
        Self {
            attempts,
            pause,
            listener: Listener::default(),
        }
    }

    /// Sets who is told of retries.
    pub fn with_listener(mut self, listener: impl Listen + 'static) -> Self {
        self.listener = Listener::new(listener);
        self
    }
}

impl<S> Layer<S> for AgainLayer {
    type Service = Again<S>;

    fn layer(&self, inner: S) -> Again<S> {
        Again {
            inner,
            settings: self.clone(),
        }
    }
}

/// Made by [`AgainLayer`].
#[derive(Clone, Debug)]
pub struct Again<S> {
    inner: S,
    settings: AgainLayer,
}

impl<S> Service<ToolCall> for Again<S>
where
    S: Service<ToolCall, Error: Into<ToolError> + Send, Future: Send, Response: Send>
        + Clone
        + Send
        + 'static,
{
    type Response = S::Response;
    type Error = ToolError;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, ToolError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ToolError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, mut call: ToolCall) -> Self::Future {
        let fresh = self.inner.clone();
        if call.claim(Claim::Retry) {
            let sent = self.inner.call(call);
            return Box::pin(async move { sent.await.map_err(Into::into) });
        }
        let attempts = call.observe_attempts(self.settings.attempts);
        call.record(|record| record.announce(Signal::Retries));
        let first = self.inner.call(call.clone());
        let work = repeat(fresh, first, call, self.settings.clone());
        Box::pin(async move {
            // The recording ends with the answer.
            let _attempts = attempts;
            work.await
        })
    }
}

async fn repeat<S>(
    fresh: S,
    first: S::Future,
    mut call: ToolCall,
    settings: AgainLayer,
) -> Result<S::Response, ToolError>
where
    S: Service<ToolCall, Error: Into<ToolError>> + Clone,
{
    let info = call.info();
    let mut result = first.await;
    loop {
        let error = match result {
            Ok(answer) => return Ok(answer),
            Err(error) => error.into().for_call(&info),
        };
        let attempt = call.attempt();
        let why = match error.execution() {
            _ if error.is_own_refusal() || !error.is_retryable() => return Err(error),
            _ if attempt >= settings.attempts => Some(RetryRefusal::Exhausted),
            tower_toolcall::Execution::NotStarted => None,
            _ if call.replay_safety() == ReplaySafety::Safe => None,
            _ if call.replay_safety() == ReplaySafety::Unsafe => Some(RetryRefusal::Unsafe),
            _ => Some(RetryRefusal::NotMarkedSafe),
        };
        let error = error.with_attempts(attempt);
        let pause = error.retry_after().unwrap_or(settings.pause);
        if let Some(reason) = why {
            call.record(|record| record.add_refusal());
            let refused = Event::retry_refused(&info, attempt, reason).with_error(&error);
            settings.listener.tell(&refused);
            return Err(error);
        }
        let mut retry = Event::retry(&info, attempt, pause).with_error(&error);
        if error.retry_after().is_some() {
            retry = retry.hinted();
        }
        settings.listener.tell(&retry);
        tokio::time::sleep(pause).await;
        call.record(|record| record.add_wait(pause));
        call.next_attempt();
        result = fresh.clone().oneshot(call.clone()).await;
    }
}
