//! Tools that do as they are told, and what became of calls.

use std::{
    future::{Ready, ready},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    task::{Context, Poll},
    time::Duration,
};

use tower::{Layer, Service, ServiceExt};
use tower_toolcall::{
    ConfigError, ErrorKind, ReplaySafety, ToolCall, ToolError,
    settings::{Settings, StackLayer},
};

pub(crate) const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// A variable over the default settings.
pub(crate) fn env(name: &str, value: &str) -> Result<Settings, ConfigError> {
    Settings::default().with_env_from([(name, value)])
}

pub(crate) fn changed(change: impl FnOnce(&mut Settings)) -> Settings {
    let mut settings = Settings::default();
    change(&mut settings);
    settings
}

pub(crate) fn stack(settings: &Settings) -> StackLayer {
    settings.stack().build().unwrap()
}

/// A call that is not sent again after it may have run.
pub(crate) fn call() -> ToolCall {
    ToolCall::new("search")
        .with_server("docs")
        .with_replay_safety(ReplaySafety::Unsafe)
}

/// A call that may run twice.
pub(crate) fn safe() -> ToolCall {
    call().with_replay_safety(ReplaySafety::Safe)
}

/// Fails the first calls, and counts all.
#[derive(Clone)]
pub(crate) struct Flaky {
    kind: ErrorKind,
    failures: usize,
    calls: Arc<AtomicUsize>,
}

impl Flaky {
    pub(crate) fn new(kind: ErrorKind, failures: usize) -> Self {
        Self {
            kind,
            failures,
            calls: Arc::default(),
        }
    }

    pub(crate) fn calls(&self) -> usize {
        self.calls.load(SeqCst)
    }
}

impl Service<ToolCall> for Flaky {
    type Response = &'static str;
    type Error = ToolError;
    type Future = Ready<Result<&'static str, ToolError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ToolError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: ToolCall) -> Self::Future {
        let before = self.calls.fetch_add(1, SeqCst);
        ready(match before < self.failures {
            true => Err(ToolError::new(self.kind, "not now")),
            false => Ok("done"),
        })
    }
}

/// How one call to a tool in the stack ends.
pub(crate) async fn run<L>(
    layer: &L,
    tool: &Flaky,
    call: ToolCall,
) -> Result<&'static str, ErrorKind>
where
    L: Layer<Flaky, Service: Service<ToolCall, Response = &'static str, Error = ToolError>>,
{
    let result = layer.layer(tool.clone()).oneshot(call).await;
    result.map_err(|e| e.kind())
}
