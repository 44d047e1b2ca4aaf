//! A layer that repeats.

use std::time::Duration;

use tower::{Layer, Service, util::BoxCloneSyncService};
use tower_toolcall::{
    Claim, Evidence, Execution, Listen, ReplaySafety, ToolCall, ToolError,
    event::{Event, Listener, RetryRefusal},
    flow::CallExt,
    middleware::{self, Next},
};

/// Sends a call again, up to a number of attempts, with a pause between them, where no layer above
/// does so.
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

impl<S, Res> Layer<S> for AgainLayer
where
    S: Service<ToolCall, Response = Res, Error: Into<ToolError>, Future: Send>
        + Clone
        + Send
        + Sync
        + 'static,
    Res: Send + 'static,
{
    type Service = BoxCloneSyncService<ToolCall, Res, ToolError>;

    fn layer(&self, inner: S) -> Self::Service {
        let settings = self.clone();
        let again = move |call: ToolCall, next: Next<Res>| repeat(call, next, settings.clone());
        BoxCloneSyncService::new(middleware::from_fn(again).layer(inner))
    }
}

async fn repeat<Res>(
    mut call: ToolCall,
    mut next: Next<Res>,
    settings: AgainLayer,
) -> Result<Res, ToolError> {
    if call.claim(Claim::Retry) {
        return next.run(call).await;
    }
    // The recording ends with the answer.
    let _attempts = call.observe_attempts(settings.attempts);
    let info = call.info();
    loop {
        let error = match next.run(call.clone()).await {
            Ok(answer) => return Ok(answer),
            Err(error) => error.for_call(&info),
        };
        let attempt = call.attempt();
        let why = match error.execution() {
            _ if error.is_own_refusal() || !error.is_retryable() => return Err(error),
            _ if attempt >= settings.attempts => Some(RetryRefusal::Exhausted),
            Execution::NotStarted if error.evidence() != Evidence::Inferred => None,
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
        if next.wait(&call, tokio::time::sleep(pause)).await.is_err() {
            return Err(error);
        }
        call.record(|record| record.add_wait(pause));
        call.next_attempt();
    }
}
