//! The attributes that an executor of HTTP tools has on the spans of calls.

use std::{collections::HashMap, sync::Arc};

use tower_toolcall::{
    call::{CallInfo, ToolCall},
    event::{names::span as names, shown_name},
    otel::{Adding, Adds},
    trace::{DefaultHooks, End},
};
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;

use crate::{ExecutionStatus, ToolManifest, UpstreamStatus};

/// Hooks that add the attributes of an executor of HTTP tools to the spans of calls, beyond
/// OpenTelemetry's conventions:
///
/// - `tool.id`, `tool.name`: the tool's name
/// - `tool.status`: `completed`, `pending` or `failed`, as an
///   [`ExecutionResult`](crate::ExecutionResult) has it; none for a call that was dropped
/// - `tool.execution_time_ms`: how long the call took, with all waits and attempts
/// - `http.response.status_code`: the [status](UpstreamStatus) of the upstream's last answer, if
///   there was one
/// - `tool.execution_mode`: of a tool with a known [manifest](ExecutionAttributes::with_manifest):
///   `sync_http` or `async_poll`
/// - `tool.source_path`: of such a tool: where it came from
///
/// Other hooks can be wrapped, [`LangfuseHooks`](tower_toolcall::otel::LangfuseHooks) for example.
///
/// ```
/// use tower_toolcall::trace::{DefaultHooks, TraceLayer};
/// use tower_toolcall_http::{
///     ToolManifest,
///     otel::{ExecutionAttributes, ExecutionHooks},
/// };
///
/// # fn of(manifests: Vec<ToolManifest>) {
/// let none = ExecutionAttributes::default();
/// let all = manifests.iter().fold(none, ExecutionAttributes::with_manifest);
/// let hooks = ExecutionHooks::of(DefaultHooks::default(), all);
/// let layer = TraceLayer::new().with_hooks(hooks);
/// # let _: TraceLayer<_> = layer; }
/// ```
pub type ExecutionHooks<H = DefaultHooks> = Adding<H, ExecutionAttributes>;

/// The attributes of [`ExecutionHooks`].
#[derive(Clone, Debug, Default)]
pub struct ExecutionAttributes(Arc<HashMap<Box<str>, About>>);

/// The known facts of a tool.
#[derive(Clone, Debug)]
struct About {
    mode: &'static str,
    source: Option<Box<str>>,
}

impl ExecutionAttributes {
    /// Adds to the spans of a manifest's tool how it runs and where it came from.
    #[must_use]
    pub fn with_manifest(mut self, manifest: &ToolManifest) -> Self {
        let about = About {
            mode: manifest.mode(),
            source: manifest.source_path().map(Into::into),
        };
        Arc::make_mut(&mut self.0).insert(manifest.name().into(), about);
        self
    }
}

impl Adds for ExecutionAttributes {
    fn on_start(&self, call: &ToolCall, span: &Span) {
        let name = shown_name(call.tool()).to_string();
        span.set_attribute("tool.id", name.clone());
        span.set_attribute("tool.name", name);
        if let Some(about) = self.0.get(call.tool()) {
            span.set_attribute("tool.execution_mode", about.mode);
            if let Some(source) = &about.source {
                span.set_attribute("tool.source_path", source.to_string());
            }
        }
    }

    fn on_end<Res>(&self, call: &CallInfo, end: &End<'_, Res>, span: &Span) {
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
    }
}
