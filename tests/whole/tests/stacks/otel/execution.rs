//! The spans of an executor of HTTP tools.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::Full;
use opentelemetry::trace::{SpanKind, Status, TracerProvider};
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider, SpanData};
use serde_json::json;
use tower::{ServiceBuilder, ServiceExt, service_fn};
use tower_toolcall::{
    ReplaySafety, ServiceBuilderExt, ToolCall,
    retry::RetryLayer,
    trace::{DefaultHooks, TraceLayer},
};
use tower_toolcall_http::{
    HttpTool, ToolManifest,
    otel::{ExecutionAttributes, ExecutionHooks},
};
use tracing::instrument::WithSubscriber;
use tracing_subscriber::{filter::LevelFilter, prelude::*};

use crate::observed::configure_process;

fn manifest(mode: &str) -> ToolManifest {
    let mut json = json!({
        "name": "deliver",
        "source_path": "pizzeria/openapi.json",
        "execution_profile": { "mode": mode, "url_template": "https://api.pizzeria.com/deliveries" },
    });
    if mode == "async_poll" {
        let status = "https://api.pizzeria.com/deliveries/{{ id }}";
        json["execution_profile"]["poll_config"] = json!({ "status_url_template": status });
    }
    serde_json::from_value(json).unwrap()
}

/// What is exported of this work down to a level.
async fn exported(level: LevelFilter, work: impl Future<Output = ()>) -> Vec<SpanData> {
    configure_process();
    let exporter = InMemorySpanExporter::default();
    let provider = SdkTracerProvider::builder()
        .with_simple_exporter(exporter.clone())
        .build();
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("test"));
    let layer = tracing_subscriber::registry().with(layer.with_filter(level));
    work.with_subscriber(layer).await;
    exporter.get_finished_spans().unwrap()
}

fn attribute(span: &SpanData, key: &str) -> Option<String> {
    let mut all = span.attributes.iter();
    let found = all.find(|pair| pair.key.as_str() == key)?;
    Some(found.value.to_string())
}

/// The attributes of the span of a call whose upstream answers so, within 5 s.
async fn attributes(mode: &str, status: u16, body: &'static str) -> Vec<(String, String)> {
    let manifest = manifest(mode);
    let client = service_fn(move |_: Request<Bytes>| async move {
        let answer = Response::builder().status(status);
        Ok::<_, Infallible>(answer.body(Full::<Bytes>::from(body)).unwrap())
    });
    let stack = ServiceBuilder::new()
        .layer(TraceLayer::new().with_hooks(ExecutionHooks::of(
            DefaultHooks::default(),
            ExecutionAttributes::default().with_manifest(&manifest),
        )))
        .tool_deadline(Duration::from_secs(5))
        .option_layer(manifest.poll_layer().unwrap())
        .service(manifest.tool().unwrap().client::<_, Bytes>(client));
    let work = async { drop(stack.oneshot(ToolCall::new("deliver")).await) };
    let spans = exported(LevelFilter::INFO, work).await;
    let call = spans
        .iter()
        .find(|span| span.name == "execute_tool deliver");
    let attributes = call.unwrap().attributes.iter();
    attributes
        .map(|pair| (pair.key.to_string(), pair.value.to_string()))
        .collect()
}

/// E.9.1, E.6.12: its attributes, whatever the end.
#[tokio::test(start_paused = true)]
async fn a_span_has_the_attributes_of_an_execution() {
    let running = r#"{"id": 7, "status": "running"}"#;
    for (mode, status, body, ends) in [
        ("sync_http", 200, "{}", "completed"),
        ("sync_http", 409, "{}", "failed"),
        ("async_poll", 200, running, "pending"),
    ] {
        let found = attributes(mode, status, body).await;
        let of = |key: &str| {
            let found = found.iter().find(|(name, _)| name == key);
            found.map(|(_, value)| value.as_str())
        };
        for (key, value) in [
            ("tool.id", "deliver"),
            ("tool.name", "deliver"),
            ("tool.source_path", "pizzeria/openapi.json"),
            ("tool.execution_mode", mode),
            ("tool.status", ends),
            ("http.response.status_code", &status.to_string()),
        ] {
            assert_eq!(of(key), Some(value), "{key} of {ends}: {found:?}");
        }
        let took: u64 = of("tool.execution_time_ms").unwrap().parse().unwrap();
        assert_eq!(took > 4_000, ends == "pending", "{took}");
    }
}

/// An order whose first attempt is turned away, and the `traceparent`s that arrived.
async fn order(traces: Arc<Mutex<Vec<String>>>) {
    let client = service_fn(move |request: Request<Bytes>| {
        let mut traces = traces.lock().unwrap();
        let trace = request.headers().get("traceparent");
        traces.push(trace.unwrap().to_str().unwrap().to_owned());
        let answer = match traces.len() {
            1 => Response::builder().status(503).header("retry-after", "1"),
            _ => Response::builder().status(201),
        };
        let answer = answer.body(Full::<Bytes>::from(r#"{"note": "c4n4ry"}"#));
        std::future::ready(Ok::<_, Infallible>(answer.unwrap()))
    });
    let url = "https://api.pizzeria.com:8443/orders/{{ id }}?key=k3y&note={{ id }}";
    let tool = HttpTool::new(Method::POST, url).unwrap();
    let stack = ServiceBuilder::new()
        .layer(TraceLayer::new().with_arguments(false))
        .layer(RetryLayer::default())
        .layer(TraceLayer::attempts())
        .service(tool.client::<_, Bytes>(client));
    let call = ToolCall::new("order").with_replay_safety(ReplaySafety::Safe);
    let call = call.with_json(json!({ "id": "c4n4ry" })).unwrap();
    stack.oneshot(call).await.unwrap();
}

/// E.9.1, O2: by OpenTelemetry's names, inside the attempt; what the endpoint goes on with is this
/// span.
#[tokio::test(start_paused = true)]
async fn each_request_has_the_span_of_an_http_client() {
    let traces = Arc::default();
    let spans = exported(LevelFilter::DEBUG, order(Arc::clone(&traces))).await;
    let of = |name: &str| spans.iter().filter(|s| s.name == name).collect::<Vec<_>>();
    let requests = of("POST /orders/{{ id }}");
    let attempts = [of("attempt 1 order")[0], of("attempt 2 order")[0]];
    assert_eq!(requests.len(), 2);
    for (n, status) in [(0, "503"), (1, "201")] {
        let span = requests[n];
        assert_eq!(span.span_kind, SpanKind::Client);
        assert_eq!(span.parent_span_id, attempts[n].span_context.span_id());
        let id = span.span_context.span_id().to_string();
        assert!(traces.lock().unwrap()[n].contains(&id));
        for (key, value) in [
            ("http.request.method", "POST"),
            ("url.template", "/orders/{{ id }}"),
            ("server.address", "api.pizzeria.com"),
            ("server.port", "8443"),
            ("http.response.status_code", status),
        ] {
            assert_eq!(attribute(span, key).as_deref(), Some(value), "{key}");
        }
    }
    assert!(matches!(requests[0].status, Status::Error { .. }));
    assert_eq!(attribute(requests[0], "error.type").as_deref(), Some("503"));
    assert_eq!(requests[1].status, Status::Unset);
    assert_eq!(attribute(requests[1], "error.type"), None);
    for span in &spans {
        let shown = format!("{} {:?}", span.name, span.attributes);
        assert!(
            !shown.contains("c4n4ry") && !shown.contains("k3y"),
            "{shown}"
        );
    }
}

/// E.9.1: one for each poll, by the template of the status.
#[tokio::test(start_paused = true)]
async fn each_poll_has_the_span_of_an_http_client() {
    let manifest = manifest("async_poll");
    let polls = Mutex::new(0);
    let client = Arc::new(move |_: Request<Bytes>| {
        let mut polls = polls.lock().unwrap();
        *polls += 1;
        let state = if *polls < 4 { "running" } else { "completed" };
        let body = json!({ "id": "c4n4ry", "status": state }).to_string();
        std::future::ready(Ok::<_, Infallible>(Response::new(Full::<Bytes>::from(
            body,
        ))))
    });
    let stack = ServiceBuilder::new()
        .option_layer(manifest.poll_layer().unwrap())
        .service(
            manifest
                .tool()
                .unwrap()
                .client::<_, Bytes>(service_fn(move |request| client(request))),
        );
    let work = async { drop(stack.oneshot(ToolCall::new("deliver")).await.unwrap()) };
    let spans = exported(LevelFilter::DEBUG, work).await;
    let names: Vec<&str> = spans.iter().map(|span| &*span.name).collect();
    let [start, poll] = ["POST /deliveries", "GET /deliveries/{{ id }}"];
    assert_eq!(names, [start, poll, poll, poll]);
}

/// E.9.1, S6: whoever wants calls alone gets no more spans.
#[tokio::test(start_paused = true)]
async fn a_request_has_no_span_above_debug() {
    let spans = exported(LevelFilter::INFO, order(Arc::default())).await;
    let mut names: Vec<&str> = spans.iter().map(|span| &*span.name).collect();
    names.sort_unstable();
    assert_eq!(
        names,
        ["attempt 1 order", "attempt 2 order", "execute_tool order"]
    );
}
