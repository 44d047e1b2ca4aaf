//! Tools that do as they are told, and what became of calls.

use std::time::Duration;

use tower::{Layer, Service, ServiceExt};
use tower_toolcall::{
    ConfigError, ErrorKind, ReplaySafety, ToolCall, ToolError,
    settings::{Settings, StackLayer},
};
use tower_toolcall_test::{Script, Step};

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
