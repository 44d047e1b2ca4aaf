//! What result, trace and metrics say of MCP calls, with the short methods alone: no classifier, no
//! hooks, no listener.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, Once},
    time::Duration,
};

use tower::{ServiceBuilder, ServiceExt, util::BoxCloneSyncService};
use tower_toolcall::{
    ErrorKind, ModelText as _, ReplaySafety, ServiceBuilderExt, ToolCall, ToolError, ToolResult,
    event::BreakerState,
    result::{Status, ToolResultLayer},
    retry::RetryPolicy,
    tool_metrics::{Metrics, Stats},
};
use tower_toolcall_mcp::McpAnswer;
use tower_toolcall_mcp::McpService;
use tracing::{Subscriber, field::Visit, span};
use tracing_subscriber::{Layer, layer::Context, prelude::*, registry::LookupSpan};

use crate::server::{Server, connect};

type Fields = BTreeMap<String, String>;
type Events = Vec<(tracing::Level, String)>;
type Tools = BoxCloneSyncService<ToolCall, McpAnswer, ToolError>;

/// The stack of the README around a server in this process.
async fn tools(metrics: &Metrics) -> Tools {
    let client = connect(Server::default(), ()).await;
    let leaf = McpService::new(client.peer().clone()).with_server("files");
    // The connection lasts as long as the test.
    std::mem::forget(client);
    BoxCloneSyncService::new(
        ServiceBuilder::new()
            .tool_trace()
            .tool_metrics(metrics)
            .tool_deadline(Duration::from_secs(100))
            .tool_retry(RetryPolicy::new())
            .tool_rate_limit()
            .tool_circuit_breaker()
            .tool_timeout(Duration::from_secs(2))
            .tool_catch_panic()
            .service(leaf),
    )
}

async fn result_of(tools: Tools, call: ToolCall) -> ToolResult<McpAnswer> {
    let stack = ServiceBuilder::new()
        .layer(ToolResultLayer::new())
        .service(tools);
    let Ok(result) = stack.oneshot(call).await;
    result
}

fn call(tool: &str) -> ToolCall {
    ToolCall::new(tool)
        .with_server("docs")
        .with_replay_safety(ReplaySafety::Safe)
}

fn stats(metrics: &Metrics, tool: &str) -> Stats {
    let snapshot = metrics.snapshot();
    snapshot
        .tool(Some("docs"), tool)
        .cloned()
        .unwrap_or_default()
}

/// The last value of each field of the span of the call, and the names of events.
#[derive(Clone, Default)]
pub(crate) struct Seen(pub(crate) Arc<Mutex<(Fields, Events)>>);

struct Collect<'a>(&'a mut Fields);

impl Visit for Collect<'_> {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn fmt::Debug) {
        self.0.insert(field.name().into(), format!("{value:?}"));
    }
    fn record_str(&mut self, field: &tracing::field::Field, value: &str) {
        self.0.insert(field.name().into(), value.into());
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Seen {
    fn on_record(&self, id: &span::Id, values: &span::Record<'_>, cx: Context<'_, S>) {
        if cx
            .span(id)
            .is_some_and(|span| span.name() == "execute_tool")
        {
            values.record(&mut Collect(&mut self.0.lock().unwrap().0));
        }
    }
    fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
        let meta = event.metadata();
        if meta.target() == "tower_toolcall" {
            let event = (*meta.level(), meta.name().to_owned());
            self.0.lock().unwrap().1.push(event);
        }
    }
}

/// Gives each thread a subscriber. Otherwise tracing could cache that no thread listens to a call
/// site.
pub(crate) fn listen() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| tracing_subscriber::registry().init());
}

pub(crate) fn watch() -> (Seen, tracing::subscriber::DefaultGuard) {
    listen();
    let seen = Seen::default();
    let guard = tracing_subscriber::registry()
        .with(seen.clone())
        .set_default();
    (seen, guard)
}

/// V7, F-3.
#[tokio::test(start_paused = true)]
async fn a_failed_mcp_call_is_no_success_in_result_trace_and_metrics_with_no_setting() {
    let (seen, _guard) = watch();
    let metrics = Metrics::new();
    let result = result_of(tools(&metrics).await, call("flagged")).await;

    assert!(!result.is_success());
    assert_eq!(result.status(), Status::Error);
    assert_eq!(result.error().unwrap().kind(), ErrorKind::Reported);
    // The model reads the tool's own words.
    assert_eq!(result.model_text(), "no such city");

    let seen = seen.0.lock().unwrap();
    assert_eq!(seen.0["tool.success"], "false");
    assert_eq!(seen.0["tool.outcome"], "error");
    assert_eq!(seen.0["error.type"], "tool_error");
    assert_eq!(seen.0["otel.status_code"], "ERROR");
    let end = (tracing::Level::WARN, "tool.failure".to_owned());
    assert!(seen.1.contains(&end), "{:?}", seen.1);
    assert!(!seen.1.iter().any(|(_, name)| name == "tool.success"));

    let stats = stats(&metrics, "flagged");
    assert_eq!((stats.calls, stats.successes, stats.errors), (1, 0, 1));
    assert_eq!(stats.error_rate, 1.0);
    assert_eq!(stats.codes["TOOL_EXECUTION_FAILED"], 1);
}

//= https://modelcontextprotocol.io/specification/2026-07-28/server/tools#security-considerations
//# Clients SHOULD:
//# Log tool usage for audit purposes
/// F-7: the server that only the leaf knows stands in the span; what the call says itself stays.
#[tokio::test(start_paused = true)]
async fn the_span_of_a_call_names_the_server_of_its_leaf() {
    let (seen, _guard) = watch();
    let tools = tools(&Metrics::new()).await;
    for (tool, outcome) in [
        ("echo", "success"),
        ("flagged", "error"),
        ("hang", "timeout"),
    ] {
        let _ = result_of(tools.clone(), ToolCall::new(tool)).await;
        let (span, _) = std::mem::take(&mut *seen.0.lock().unwrap());
        assert_eq!(span["tool.outcome"], outcome);
        assert_eq!(span["tool.server"], "files", "{tool}");
    }
    let _ = result_of(tools, call("echo")).await;
    let (span, _) = std::mem::take(&mut *seen.0.lock().unwrap());
    assert_eq!(span["tool.server"], "docs");
}

/// V7, E6.
#[tokio::test(start_paused = true)]
async fn a_failed_mcp_call_counts_for_breaker_and_retry_by_setting_only() {
    let metrics = Metrics::new();
    let tools = tools(&metrics).await;
    for _ in 0..20 {
        let answer = tools.clone().oneshot(call("flagged")).await.unwrap();
        assert_eq!(answer.model_text(), "no such city");
    }
    let stats = stats(&metrics, "flagged");
    assert_eq!((stats.errors, stats.attempts), (20, 20));
    assert_eq!(stats.breaker_rejected, None);
}

/// V7.
#[tokio::test(start_paused = true)]
async fn a_success_after_a_failed_mcp_call_is_a_success() {
    let metrics = Metrics::new();
    let tools = tools(&metrics).await;
    let first = call("flagged");
    let again = first.clone();
    assert!(!result_of(tools.clone(), first).await.is_success());
    assert!(!result_of(tools.clone(), again).await.is_success());
    assert!(result_of(tools.clone(), call("echo")).await.is_success());
    assert_eq!(stats(&metrics, "echo").successes, 1);
}

/// V7.
#[tokio::test(start_paused = true)]
async fn a_failed_mcp_call_has_failed_in_a_batch_too() {
    use tower_toolcall::batch::Sequence;

    let tools = tools(&Metrics::new()).await;
    let calls = ["echo", "flagged", "echo"].map(call);
    let report = Sequence::new(tools).run(calls).await;
    let tally = report.tally();
    assert_eq!((tally.calls, tally.succeeded, tally.failed), (3, 2, 1));
}

/// V8.
#[tokio::test(start_paused = true)]
async fn retries_and_the_breaker_are_counted_with_no_listener_wired() {
    let metrics = Metrics::new();
    let tools = tools(&metrics).await;
    // Attempts that time out: 3 of the first call, 2 of the second one, then the breaker is open.
    for _ in 0..4 {
        let failed = tools.clone().oneshot(call("hang")).await;
        failed.unwrap_err();
    }
    let stats = stats(&metrics, "hang");
    assert_eq!(stats.calls, 4);
    assert_eq!(stats.attempts, 5);
    assert!(stats.retries >= Some(3), "{stats:?}");
    assert!(stats.breaker_rejected >= Some(2), "{stats:?}");
    assert_eq!(stats.rate_limited, None);

    let breaker = metrics.snapshot().breakers[0].clone();
    assert_eq!(breaker.tool.as_deref(), Some("hang"));
    assert_eq!(breaker.openings, 1);
    assert_eq!(breaker.state, Some(BreakerState::Open));
    let text = metrics.prometheus();
    for line in [
        "circuit_breaker_open_total{server=\"docs\",tool=\"hang\"} 1\n",
        "circuit_breaker_state{server=\"docs\",tool=\"hang\"} 2\n",
    ] {
        assert!(text.contains(line), "{text}");
    }
}
