//! The documented stack around a real server, exported to a real receiver.

use std::{collections::BTreeSet, pin::Pin, time::Duration};

use bytes::Bytes;
use opentelemetry::{Context, KeyValue, baggage::BaggageExt, trace::TracerProvider};
use opentelemetry_http::{HttpClient, HttpError};
use opentelemetry_otlp::{Protocol, WithExportConfig, WithHttpConfig};
use opentelemetry_proto::tonic::trace::v1::{Span as OtlpSpan, span::SpanKind};
use opentelemetry_sdk::trace::SdkTracerProvider;
use serde_json::json;
use tokio::{runtime::Handle, time::timeout};
use tower::{ServiceBuilder, ServiceExt, util::BoxCloneSyncService};
use tower_toolcall::{
    ErrorKind, ReplaySafety, ToolCall, ToolError,
    backoff::Backoff,
    catch_panic::CatchPanicLayer,
    circuit_breaker::CircuitBreakerLayer,
    deadline::DeadlineLayer,
    otel::{LangfuseHooks, UserId},
    rate_limit::RateLimitBackoffLayer,
    redact::Rules,
    retry::{RetryLayer, RetryPolicy},
    sanitize::SanitizeLayer,
    timeout::TimeoutLayer,
    trace::TraceLayer,
};
use tower_toolcall_mcp::{McpAnswer, McpClassifier, McpHooks, McpService};
use tracing::Instrument;
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::{
    filter::{LevelFilter, Targets},
    prelude::*,
};

use super::{
    collector::{Collector, Spans, attribute, error},
    server::{Client, Server},
};
use crate::observed::configure_process;

const SESSION: &str = "session-7";

/// What must never leave the process. Each stands in an argument, an answer or an error.
const CANARIES: [&str; 12] = [
    "canary-argument-key",
    "canary-nested-key",
    "canary-bearer-0123456789",
    "canary-url-password",
    "canary-json-in-text",
    "canary-command-line",
    "ghp_canary0123456789abcdefghijklmnopqrstuv",
    "canary-error-0123456789",
    "canary-error-data",
    "canary-result-key",
    "canary-result-url",
    "canary-flagged-text",
];

type Stack = BoxCloneSyncService<ToolCall, McpAnswer, ToolError>;

fn stack(client: &Client) -> Stack {
    let hooks = LangfuseHooks::new(McpHooks::new());
    let backoff = Backoff::exponential(Duration::from_millis(5), 2.0).unwrap();
    let retry = RetryPolicy::new().with_backoff(backoff);
    let pipe = KeyValue::new("network.transport", "pipe");
    let server = McpService::new(client.peer().clone()).with_span_attributes([pipe]);
    BoxCloneSyncService::new(
        ServiceBuilder::new()
            .layer(SanitizeLayer::new(Rules::new()))
            .layer(TraceLayer::new().with_hooks(hooks).with_output(true))
            .layer(DeadlineLayer::new(Duration::from_secs(10)))
            .layer(RetryLayer::new(retry.with_classifier(McpClassifier::new())))
            .layer(RateLimitBackoffLayer::new())
            .layer(CircuitBreakerLayer::new())
            .layer(TraceLayer::attempts().with_hooks(hooks))
            .layer(TimeoutLayer::new(Duration::from_secs(5)))
            .layer(CatchPanicLayer::new())
            .service(server),
    )
}

/// W9: the same of a preset, a variable or two, and hooks.
fn stack_of_settings(client: &Client) -> Stack {
    let vars = [
        ("TOOLCALL_PRESET", "agent_loop"),
        ("TOOLCALL_TRACE_OUTPUT", "true"),
        ("TOOLCALL_TRACE_ATTEMPTS", "true"),
        ("TOOLCALL_RETRY_BASE", "5ms"),
    ];
    let settings = tower_toolcall::settings::Settings::default().with_env_from(vars);
    let stack = settings
        .unwrap()
        .stack()
        .with_hooks(LangfuseHooks::new(McpHooks::new()))
        .with_classifier(McpClassifier::new())
        .build()
        .unwrap();
    let pipe = KeyValue::new("network.transport", "pipe");
    let server = McpService::new(client.peer().clone()).with_span_attributes([pipe]);
    BoxCloneSyncService::new(ServiceBuilder::new().layer(stack).service(server))
}

fn call(tool: &str) -> ToolCall {
    let mut call = ToolCall::new(tool)
        .with_id("call-1")
        .with_server("demo")
        .with_session_id(SESSION)
        .with_replay_safety(ReplaySafety::Safe);
    call.extensions_mut().insert(UserId::new("user-12"));
    call.with_json(json!({
        "city": "Oslo",
        "password": "canary-argument-key",
        "list": [{ "client_secret": "canary-nested-key" }],
        "header": "Authorization: Bearer canary-bearer-0123456789",
        "url": "postgres://app:canary-url-password@db.example.com/",
        "body": r#"{"user":{"api_key":"canary-json-in-text"}}"#,
        "command": "deploy --token canary-command-line --fast",
        "text": "with ghp_canary0123456789abcdefghijklmnopqrstuv",
    }))
    .unwrap()
}

/// The exporter's requests, sent from this runtime. The exporter's own blocking client was seen to
/// hang for ever while it was built: a wake-up of its thread is lost now and then.
#[derive(Debug)]
struct FromHere(reqwest::Client, Handle);

impl HttpClient for FromHere {
    fn send_bytes<'a, 'b>(
        &'a self,
        request: http::Request<Bytes>,
    ) -> Pin<Box<dyn Future<Output = Result<http::Response<Bytes>, HttpError>> + Send + 'b>>
    where
        'a: 'b,
        Self: 'b,
    {
        let client = self.0.clone();
        let answer = self
            .1
            .spawn(async move { client.send_bytes(request).await });
        Box::pin(async move { answer.await? })
    }
}

/// The pipeline that a program has, but for the address and the client.
fn pipeline(collector: &Collector) -> (SdkTracerProvider, tracing::subscriber::DefaultGuard) {
    configure_process();
    let exporter = opentelemetry_otlp::SpanExporter::builder()
        .with_http()
        .with_protocol(Protocol::HttpBinary)
        .with_endpoint(&collector.endpoint)
        .with_timeout(Duration::from_secs(5))
        .with_http_client(FromHere(reqwest::Client::new(), Handle::current()))
        .build()
        .unwrap();
    let provider = SdkTracerProvider::builder()
        .with_batch_exporter(exporter)
        .build();
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("test"));
    // rmcp writes errors into its own events as they are.
    let ours = Targets::new()
        .with_default(LevelFilter::INFO)
        .with_target("rmcp", LevelFilter::OFF);
    let guard = tracing_subscriber::registry()
        .with(layer.with_filter(ours))
        .set_default();
    (provider, guard)
}

/// A turn of an agent: five calls, one for each way to end.
async fn agent_turn(stack: Stack) {
    stack.clone().oneshot(call("flaky")).await.unwrap();
    stack.clone().oneshot(call("flagged")).await.unwrap();
    let error = stack.clone().oneshot(call("ecko")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    let hung = timeout(Duration::from_millis(100), stack.oneshot(call("hang")));
    assert!(hung.await.is_err());
}

/// Runs the turn, and returns what the collector got.
async fn run(stack: fn(&Client) -> Stack) -> Collector {
    let collector = Collector::start().await;
    let (provider, _guard) = pipeline(&collector);
    let server = Server::default();
    let client = server.connect().await;

    let turn = tracing::info_span!(parent: None, "agent_turn", session.id = SESSION);
    let session = KeyValue::new("session.id", SESSION);
    turn.set_parent(Context::new().with_baggage([session]))
        .unwrap();
    agent_turn(stack(&client)).instrument(turn).await;

    server.cancelled.notified().await;
    client.cancel().await.unwrap();
    // It waits for the receiver, which is on this thread.
    tokio::task::spawn_blocking(move || provider.shutdown())
        .await
        .unwrap()
        .unwrap();
    collector
}

/// O1, O4, O6: one run, because the pipeline is expensive; each check has its function.
#[tokio::test]
async fn a_collector_receives_the_whole_turn_and_no_secret() {
    receives_all(stack).await;
}

/// W9: Langfuse's type, MCP's attributes and all else, also of a stack that settings build.
#[tokio::test]
async fn a_collector_receives_the_same_of_a_preset() {
    receives_all(stack_of_settings).await;
}

async fn receives_all(stack: fn(&Client) -> Stack) {
    let run = run(stack);
    let collector = timeout(Duration::from_secs(60), run).await.unwrap();
    let spans = collector.spans();
    one_trace(&spans);
    a_retried_call(&spans);
    the_tools_own_error(&spans);
    a_protocol_error(&spans);
    a_cancelled_call(&spans);
    for canary in CANARIES {
        assert!(!collector.has_received(canary), "{canary}");
    }
    assert!(collector.has_received("[REDACTED]"));
}

/// Every span is of the turn's trace and has its session, on both sides of the wire.
fn one_trace(spans: &Spans) {
    let turn = spans.one("agent_turn");
    assert!(turn.parent_span_id.is_empty());
    for span in &spans.0 {
        if span.trace_id == turn.trace_id {
            assert_eq!(attribute(span, "session.id").as_deref(), Some(SESSION));
        }
    }
    let names: BTreeSet<_> = spans
        .children(turn)
        .iter()
        .map(|s| s.name.as_str())
        .collect();
    let tools = ["ecko", "flagged", "flaky", "hang"];
    let calls: BTreeSet<_> = tools.iter().map(|t| format!("execute_tool {t}")).collect();
    assert_eq!(names, calls.iter().map(String::as_str).collect());
}

#[track_caller]
fn has(span: &OtlpSpan, attributes: &[(&str, &str)]) {
    for (key, value) in attributes {
        let found = attribute(span, key);
        assert_eq!(found.as_deref(), Some(*value), "{key} of {}", span.name);
    }
}

fn a_retried_call(spans: &Spans) {
    let call = spans.one("execute_tool flaky");
    assert_eq!(call.kind(), SpanKind::Internal);
    assert_eq!(error(call), None);
    assert_eq!(attribute(call, "error.type"), None);
    has(
        call,
        &[
            ("gen_ai.operation.name", "execute_tool"),
            ("gen_ai.tool.name", "flaky"),
            ("gen_ai.tool.call.id", "call-1"),
            ("gen_ai.tool.type", "function"),
            ("mcp.method.name", "tools/call"),
            ("mcp.protocol.version", "2025-11-25"),
            ("network.transport", "pipe"),
            ("tool.server", "demo"),
            ("tool.success", "true"),
            ("tool.attempts", "2"),
            ("langfuse.observation.type", "tool"),
            ("user.id", "user-12"),
        ],
    );
    let shown = attribute(call, "gen_ai.tool.call.arguments").unwrap();
    assert!(shown.contains(r#""city":"Oslo""#), "{shown}");
    let shown = attribute(call, "gen_ai.tool.call.result").unwrap();
    assert!(shown.contains(r#""sum":3"#), "{shown}");

    let (first, second) = (spans.one("attempt 1 flaky"), spans.one("attempt 2 flaky"));
    assert_eq!(spans.children(call).len(), 2);
    assert!(error(first).unwrap().contains("503"));
    has(
        first,
        &[
            ("error.type", "-32603"),
            ("rpc.response.status_code", "-32603"),
        ],
    );
    assert_eq!(error(second), None);
    for (attempt, n) in [(first, "1"), (second, "2")] {
        assert_eq!(attempt.parent_span_id, call.span_id);
        has(
            attempt,
            &[("tool.attempt", n), ("langfuse.observation.type", "span")],
        );
        let server = spans.child(attempt);
        assert_eq!(server.name, "tools/call flaky");
        assert_eq!(server.kind(), SpanKind::Server);
    }
    // Each attempt is a request of its own; the call tells of the last.
    let id = |span| attribute(span, "jsonrpc.request.id").unwrap();
    assert_ne!(id(first), id(second));
    assert_eq!(id(call), id(second));
}

/// E6.
fn the_tools_own_error(spans: &Spans) {
    let call = spans.one("execute_tool flagged");
    assert_eq!(error(call), Some("the tool reported an error"));
    has(
        call,
        &[("error.type", "tool_error"), ("tool.success", "false")],
    );
    assert_eq!(attribute(call, "rpc.response.status_code"), None);
}

fn a_protocol_error(spans: &Spans) {
    let call = spans.one("execute_tool ecko");
    assert!(error(call).unwrap().contains("tool not found"));
    has(
        call,
        &[
            ("error.type", "-32602"),
            ("rpc.response.status_code", "-32602"),
            ("tool.error_code", "TOOL_NOT_FOUND"),
        ],
    );
}

fn a_cancelled_call(spans: &Spans) {
    let call = spans.one("execute_tool hang");
    // W13: nothing has failed.
    assert_eq!(error(call), None);
    has(
        call,
        &[
            ("error.type", "cancelled"),
            ("langfuse.observation.level", "DEFAULT"),
        ],
    );
    let attempt = spans.child(call);
    assert_eq!(attempt.name, "attempt 1 hang");
    assert_eq!(
        attribute(attempt, "error.type").as_deref(),
        Some("cancelled")
    );
    // The server was told: its span has ended as well.
    let server = spans.child(attempt);
    assert_eq!(server.name, "tools/call hang");
    for span in [call, attempt, server] {
        let lasted = Duration::from_nanos(span.end_time_unix_nano - span.start_time_unix_nano);
        assert!(lasted < Duration::from_secs(5), "{}: {lasted:?}", span.name);
    }
}
