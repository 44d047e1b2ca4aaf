use std::{borrow::Cow, collections::HashMap, sync::Arc};

use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;

use crate::{
    answer::Answer,
    call::{CallInfo, ToolCall},
    edge::http_tool::{ExecutionStatus, ToolManifest, UpstreamStatus},
    error::ToolError,
    event::names::span as names,
    outcome::Outcome,
    text::Short,
    trace::{DefaultHooks, End, TraceHooks},
};

/// Hooks that add to the spans of calls what an executor of HTTP tools has there, beyond
/// OpenTelemetry's conventions:
///
/// | attribute | is |
/// |---|---|
/// | `tool.id`, `tool.name` | the tool's name |
/// | `tool.status` | `completed`, `pending` or `failed`, as an [`ExecutionResult`](crate::http_tool::ExecutionResult) has it; none for a call that was dropped |
/// | `tool.execution_time_ms` | how long the call took, with all waits and attempts |
/// | `http.response.status_code` | the [status](UpstreamStatus) of the upstream's last answer, if there was one |
/// | `tool.execution_mode` | of a tool whose [manifest](Self::with_manifest) is known: `sync_http` or `async_poll` |
/// | `tool.source_path` | of such a tool: where it came from |
///
/// Other hooks can be wrapped, [`LangfuseHooks`](super::LangfuseHooks) for example.
///
/// ```
/// use tower_toolcall::{http_tool::ToolManifest, otel::ExecutionHooks, trace::TraceLayer};
///
/// # fn of(manifests: Vec<ToolManifest>) {
/// let hooks = manifests.iter().fold(ExecutionHooks::default(), ExecutionHooks::with_manifest);
/// let layer = TraceLayer::new().with_hooks(hooks);
/// # let _: TraceLayer<_> = layer; }
/// ```
#[derive(Clone, Debug)]
pub struct ExecutionHooks<H = DefaultHooks> {
    inner: H,
    tools: Arc<HashMap<Box<str>, About>>,
}

/// What is known of a tool.
#[derive(Clone, Debug)]
struct About {
    mode: &'static str,
    source: Option<Box<str>>,
}

/// Around the default hooks.
impl Default for ExecutionHooks {
    fn default() -> Self {
        Self::new(DefaultHooks::default())
    }
}

impl<H> ExecutionHooks<H> {
    /// Adds to what `hooks` do.
    pub fn new(hooks: H) -> Self {
        Self {
            inner: hooks,
            tools: Arc::default(),
        }
    }

    /// Tells of the tool of a manifest how it runs and where it came from.
    #[must_use]
    pub fn with_manifest(mut self, manifest: &ToolManifest) -> Self {
        let about = About {
            mode: manifest.mode(),
            source: manifest.source_path().map(Into::into),
        };
        Arc::make_mut(&mut self.tools).insert(manifest.name().into(), about);
        self
    }
}

impl<Res, H: TraceHooks<Res>> TraceHooks<Res> for ExecutionHooks<H> {
    fn classify(&self, result: Result<&Res, &ToolError>) -> Outcome {
        self.inner.classify(result)
    }

    fn output_bytes(&self, response: &Res) -> Option<u64> {
        self.inner.output_bytes(response)
    }

    fn answer<'a>(&self, response: &'a Res) -> Option<Answer<'a>> {
        self.inner.answer(response)
    }

    fn error_type(&self, error: &ToolError) -> Option<Cow<'static, str>> {
        self.inner.error_type(error)
    }

    fn on_start(&self, call: &ToolCall, span: &Span) {
        let name = Short::name(call.tool()).to_string();
        span.set_attribute("tool.id", name.clone());
        span.set_attribute("tool.name", name);
        if let Some(about) = self.tools.get(call.tool()) {
            span.set_attribute("tool.execution_mode", about.mode);
            if let Some(source) = &about.source {
                span.set_attribute("tool.source_path", source.to_string());
            }
        }
        self.inner.on_start(call, span);
    }

    fn on_end(&self, call: &CallInfo, end: &End<'_, Res>, span: &Span) {
        let status = match (end.error(), end.failure()) {
            (Some(error), _) => Some(ExecutionStatus::of_error(error)),
            (None, None) => Some(ExecutionStatus::Completed),
            (None, Some(_)) => end.answer().map(|_| ExecutionStatus::Failed),
        };
        if let Some(status) = status {
            span.set_attribute("tool.status", status.name());
        }
        let ms = i64::try_from(end.duration().as_millis()).unwrap_or(i64::MAX);
        span.set_attribute("tool.execution_time_ms", ms);
        call.record(|r| {
            if let Some(UpstreamStatus(status)) = r.extension() {
                span.set_attribute(names::STATUS_CODE, i64::from(status.as_u16()));
            }
        });
        self.inner.on_end(call, end, span);
    }
}
