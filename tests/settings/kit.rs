//! Tools that do as they are told, and what became of calls.

use std::{
    sync::{Arc, LazyLock, Mutex},
    time::Duration,
};

use tower::{Layer, Service, ServiceExt};
use tower_toolcall::{
    ConfigError, ErrorKind, ReplaySafety, ToolCall, ToolError,
    settings::{Settings, StackLayer},
};
use tower_toolcall_test::{Script, Step};
use tracing::{Level, subscriber::DefaultGuard};
use tracing_subscriber::fmt::format::FmtSpan;

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

pub(crate) type Tool = Script<&'static str>;

/// Fails the first calls, and is done with the others.
pub(crate) fn flaky(kind: ErrorKind, failures: usize) -> Tool {
    Script::new(vec![Step::fail(kind); failures]).then(Step::ok("done"))
}

/// How one call to a tool in the stack ends.
pub(crate) async fn run<L>(
    layer: &L,
    tool: &Tool,
    call: ToolCall,
) -> Result<&'static str, ErrorKind>
where
    L: Layer<Tool, Service: Service<ToolCall, Response = &'static str, Error = ToolError>>,
{
    let result = layer.layer(tool.clone()).oneshot(call).await;
    result.map_err(|e| e.kind())
}

/// What a subscriber of this thread has written.
#[derive(Clone, Default)]
pub(crate) struct Written(Arc<Mutex<Vec<u8>>>);

impl Written {
    /// Hears the events of this thread from a level on, and the ends of spans.
    pub(crate) fn heard(level: Level) -> (Self, DefaultGuard) {
        let written = Self::default();
        let to = written.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(level)
            .with_span_events(FmtSpan::CLOSE)
            .with_ansi(false)
            .with_writer(move || to.clone())
            .finish();
        let guard = tracing::subscriber::set_default(subscriber);
        LazyLock::force(&ANOTHER);
        tracing::callsite::rebuild_interest_cache();
        (written, guard)
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl std::io::Write for Written {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// While there is one subscriber alone, tracing asks the thread that meets an event first, which
/// may have none.
static ANOTHER: LazyLock<tracing::Dispatch> =
    LazyLock::new(|| tracing::Dispatch::new(tracing_subscriber::registry()));
