//! Which context goes out with a call, and which one is taken up.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use http::{HeaderMap, HeaderValue};
use opentelemetry::{
    Context, SpanId,
    trace::{SpanContext, TraceContextExt, TracerProvider},
};
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider, SpanData};
use serde_json::{Map, Value, json};
use tower::{Layer, ServiceBuilder, ServiceExt, service_fn};
use tower_toolcall::{
    BoxError, ReplaySafety, ToolCall,
    backoff::Backoff,
    flow::CallExt,
    otel,
    retry::{RetryLayer, RetryPolicy},
    trace::TraceLayer,
};
use tower_toolcall_mcp::McpService;
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::prelude::*;

use super::server::Server;
use crate::observed::configure_process;

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const SPAN: &str = "00f067aa0ba902b7";

fn traceparent() -> String {
    format!("00-{TRACE}-{SPAN}-01")
}

/// The spans of this test, once they have ended.
struct Ended {
    exporter: InMemorySpanExporter,
    _provider: SdkTracerProvider,
}

impl Ended {
    fn one(&self, name: &str) -> SpanData {
        let mut spans = self.exporter.get_finished_spans().unwrap();
        spans.retain(|s| s.name == name);
        assert_eq!(spans.len(), 1, "{name}");
        spans.remove(0)
    }
}

fn listen() -> (Ended, tracing::subscriber::DefaultGuard) {
    configure_process();
    let exporter = InMemorySpanExporter::default();
    let provider = SdkTracerProvider::builder()
        .with_simple_exporter(exporter.clone())
        .build();
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("test"));
    let guard = tracing_subscriber::registry().with(layer).set_default();
    let ended = Ended {
        exporter,
        _provider: provider,
    };
    (ended, guard)
}

/// A span that is a child of nothing.
fn root(name: &'static str) -> Span {
    let span = tracing::info_span!(parent: None, "root", otel.name = name);
    span.set_parent(Context::new()).unwrap();
    span
}

fn context_of(span: &Span) -> SpanContext {
    span.context().span().span_context().clone()
}

/// What a server reads in the `_meta` of a call that is made inside `span`.
async fn meta_of_a_call(leaf: impl Fn(McpService) -> McpService, span: Span) -> Map<String, Value> {
    let server = Server::default();
    let client = server.connect().await;
    let leaf = leaf(McpService::new(client.peer().clone()));
    let call = leaf.oneshot(ToolCall::new("echo"));
    tracing::Instrument::instrument(call, span).await.unwrap();
    let mut metas = server.metas.lock().unwrap();
    metas.pop().unwrap()
}

fn has_context(meta: &Map<String, Value>) -> bool {
    let keys = ["traceparent", "tracestate", "baggage"];
    keys.iter().any(|key| meta.contains_key(*key))
}

#[tokio::test]
async fn without_a_context_nothing_goes_out() {
    configure_process();
    let _nobody = tracing::subscriber::set_default(tracing::subscriber::NoSubscriber::new());
    let meta = meta_of_a_call(|leaf| leaf, Span::none()).await;
    assert!(!has_context(&meta), "{meta:?}");

    // Somebody exports, but the caller is in no span.
    let (_spans, _guard) = listen();
    let mut headers = HeaderMap::new();
    otel::inject_headers(&mut headers);
    assert!(headers.is_empty());
}

/// O6.
#[tokio::test]
async fn the_current_spans_context_goes_out_unless_it_is_switched_off() {
    let (_spans, _guard) = listen();
    let caller = root("caller");
    let meta = meta_of_a_call(|leaf| leaf, caller.clone()).await;
    let cx = context_of(&caller);
    let expected = format!("00-{}-{}-01", cx.trace_id(), cx.span_id());
    assert_eq!(meta["traceparent"], expected);
    assert!(!meta.contains_key("tracestate"), "it is empty");

    let meta = meta_of_a_call(|leaf| leaf.with_propagation(false), caller).await;
    assert!(!has_context(&meta), "{meta:?}");
}

#[test]
fn without_a_context_nothing_is_allocated() {
    let (mut headers, mut meta) = (HeaderMap::new(), Map::new());
    let mut inject = || {
        otel::inject_headers(&mut headers);
        otel::inject_meta(&mut meta);
    };
    inject(); // OpenTelemetry's own state of the thread
    assert_eq!(allocation_counter::measure(inject).count_total, 0);
}

/// O6: a tool that speaks HTTP, below a layer that repeats calls.
#[tokio::test]
async fn a_server_sees_the_attempt_that_called_it() {
    let (spans, _guard) = listen();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let server = Arc::clone(&seen);
    let tool = service_fn(move |call: ToolCall| {
        let mut headers = HeaderMap::new();
        otel::inject_headers(&mut headers);
        let parent = otel::parent_from_headers(&headers).unwrap();
        let parent = parent.span().span_context().clone();
        server.lock().unwrap().push(parent.span_id());
        let first = call.attempt() == 1;
        async move {
            if first {
                Err("503 Service Unavailable")
            } else {
                Ok(())
            }
        }
    });
    let backoff = Backoff::fixed(Duration::from_millis(1)).unwrap();
    let stack = ServiceBuilder::new()
        .layer(TraceLayer::new())
        .layer(RetryLayer::new(RetryPolicy::new().with_backoff(backoff)))
        .layer(TraceLayer::attempts())
        .map_err(|e: &str| BoxError::from(e))
        .service(tool);
    let call = ToolCall::new("fetch").with_replay_safety(ReplaySafety::Safe);
    stack.oneshot(call).await.unwrap();
    let attempts = ["attempt 1 fetch", "attempt 2 fetch"];
    let attempts = attempts.map(|name| spans.one(name).span_context.span_id());
    assert_eq!(*seen.lock().unwrap(), attempts);
}

/// Where a program uses OpenTelemetry without tracing.
#[tokio::test]
async fn a_context_that_only_opentelemetry_knows_goes_out() {
    configure_process();
    let parent = json!({ "traceparent": traceparent(), "tracestate": "vendor=1" });
    let parent = otel::parent_from_meta(parent.as_object().unwrap()).unwrap();
    let _attached = parent.attach();
    let mut headers = HeaderMap::new();
    otel::inject_headers(&mut headers);
    assert_eq!(headers["traceparent"], traceparent());
    assert_eq!(headers["tracestate"], "vendor=1");
}

#[tokio::test]
async fn what_the_caller_has_put_there_stays() {
    let (_spans, _guard) = listen();
    let caller = root("caller");
    let _entered = caller.enter();
    let own = json!({ "traceparent": traceparent() });
    let mut meta = own.as_object().unwrap().clone();
    otel::inject_meta(&mut meta);
    assert_eq!(Value::from(meta), own);

    let mut headers = HeaderMap::new();
    headers.insert("tracestate", HeaderValue::from_static("mine=1"));
    otel::inject_headers(&mut headers);
    assert_eq!(headers.len(), 1, "half of it would be of another trace");

    let mut headers = HeaderMap::new();
    headers.insert("baggage", HeaderValue::from_static("mine=1"));
    otel::inject_headers(&mut headers);
    assert_eq!(headers["baggage"], "mine=1");
    assert!(headers.contains_key("traceparent"));
}

/// The spans of two layers around a tool, of a call with a remote parent that is made inside
/// `ambient`.
async fn call_from_afar(ambient: Span) {
    let parent = json!({ "traceparent": traceparent() });
    let parent = otel::parent_from_meta(parent.as_object().unwrap()).unwrap();
    let tool = service_fn(|_: ToolCall| async { Ok::<_, BoxError>(()) });
    let below = TraceLayer::attempts().layer(TraceLayer::new().layer(tool));
    let stack = TraceLayer::new().layer(service_fn(move |mut call: ToolCall| {
        // The same call, as a router may pass it on under another name.
        call.next_attempt();
        let renamed = ToolCall::new("inner").with_id(call.id().unwrap_or("none"));
        assert!(call.extensions().is_empty());
        below.clone().oneshot(renamed)
    }));
    let call = ToolCall::new("outer").with_remote_parent(parent);
    let response = stack.oneshot(call);
    tracing::Instrument::instrument(response, ambient)
        .await
        .unwrap();
}

#[tokio::test]
async fn a_remote_parent_is_the_parent_of_the_calls_span() {
    let (spans, _guard) = listen();
    call_from_afar(Span::none()).await;
    let outer = spans.one("execute_tool outer");
    assert_eq!(outer.parent_span_id, SpanId::from_hex(SPAN).unwrap());
    assert!(outer.parent_span_is_remote);
    for name in [
        "execute_tool outer",
        "attempt 1 inner",
        "execute_tool inner",
    ] {
        assert_eq!(spans.one(name).span_context.trace_id().to_string(), TRACE);
    }
    let attempt = spans.one("attempt 1 inner");
    assert_eq!(attempt.parent_span_id, outer.span_context.span_id());
}

/// As the conventions say of the span of the HTTP request that brought the call.
#[tokio::test]
async fn a_current_span_of_another_trace_is_linked() {
    let (spans, _guard) = listen();
    let http = root("POST /mcp");
    call_from_afar(http.clone()).await;
    let outer = spans.one("execute_tool outer");
    assert_eq!(outer.parent_span_id.to_string(), SPAN);
    let [link] = &outer.links.links[..] else {
        panic!("{:?}", outer.links)
    };
    assert_eq!(link.span_context, context_of(&http));
}

#[tokio::test]
async fn a_current_span_of_the_same_trace_stays_the_parent() {
    let (spans, _guard) = listen();
    let handler = tracing::info_span!(parent: None, "handler");
    let parent = json!({ "traceparent": traceparent() });
    let parent = otel::parent_from_meta(parent.as_object().unwrap()).unwrap();
    otel::set_parent(&handler, parent);
    call_from_afar(handler.clone()).await;
    let outer = spans.one("execute_tool outer");
    assert_eq!(outer.parent_span_id, context_of(&handler).span_id());
    assert!(outer.links.links.is_empty());
}

/// Rule 8: a value, or nothing.
#[test]
fn malformed_and_oversized_values_are_ignored() {
    configure_process();
    let read = |meta: Value| otel::parent_from_meta(meta.as_object().unwrap());
    for parent in [
        json!(null),
        json!(7),
        json!({ "traceparent": traceparent() }),
        json!(""),
        json!("00-0-0-00"),
        json!(format!("00-{}-{SPAN}-01", "0".repeat(32))),
        json!(format!("{}\n", traceparent())),
        json!("\u{1F980}".repeat(20)),
        json!("0".repeat(16 << 20)),
    ] {
        assert!(read(json!({ "traceparent": parent })).is_none());
    }
    let with = |key: &str, value: String| {
        let cx = read(json!({ "traceparent": traceparent(), key: value })).unwrap();
        let span = cx.span().span_context().clone();
        assert_eq!(span.trace_id().to_string(), TRACE);
        let baggage = opentelemetry::baggage::BaggageExt::baggage(&cx).len();
        (span.trace_state().header(), baggage)
    };
    assert_eq!(with("tracestate", "a=1".into()), ("a=1".into(), 0));
    assert_eq!(with("tracestate", "a=\u{e9}".into()), (String::new(), 0));
    assert_eq!(with("tracestate", format!("a={}", "1".repeat(9000))).0, "");
    assert_eq!(with("tracestate", "=,=,==".into()).0, "");
    assert_eq!(with("baggage", "a=1,b=2".into()).1, 2);
    assert_eq!(with("baggage", "a=1,".repeat(3000)).1, 0);
}

#[test]
fn headers_are_read_by_the_same_rules() {
    configure_process();
    let mut headers = HeaderMap::new();
    headers.append("traceparent", traceparent().parse().unwrap());
    headers.append("tracestate", HeaderValue::from_static("a=1"));
    headers.append("tracestate", HeaderValue::from_static("b=2"));
    let cx = otel::parent_from_headers(&headers).unwrap();
    assert_eq!(cx.span().span_context().trace_state().header(), "a=1,b=2");

    headers.append("traceparent", traceparent().parse().unwrap());
    assert!(otel::parent_from_headers(&headers).is_none());
}
