//! The spans of an executor of HTTP tools.

use std::{convert::Infallible, time::Duration};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use opentelemetry::trace::TracerProvider;
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider};
use serde_json::json;
use tower::{ServiceBuilder, ServiceExt, service_fn};
use tower_toolcall::{
    ServiceBuilderExt, ToolCall, http_tool::ToolManifest, otel::ExecutionHooks, trace::TraceLayer,
};
use tracing_subscriber::prelude::*;

use crate::configure_process;

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

/// The attributes of the span of a call whose upstream answers so, within 5 s.
async fn attributes(mode: &str, status: u16, body: &'static str) -> Vec<(String, String)> {
    configure_process();
    let exporter = InMemorySpanExporter::default();
    let provider = SdkTracerProvider::builder()
        .with_simple_exporter(exporter.clone())
        .build();
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("test"));
    let guard = tracing_subscriber::registry().with(layer).set_default();
    let manifest = manifest(mode);
    let client = service_fn(move |_: Request<Bytes>| async move {
        let answer = Response::builder().status(status);
        Ok::<_, Infallible>(answer.body(Full::<Bytes>::from(body)).unwrap())
    });
    let stack = ServiceBuilder::new()
        .layer(TraceLayer::new().with_hooks(ExecutionHooks::default().with_manifest(&manifest)))
        .tool_deadline(Duration::from_secs(5))
        .option_layer(manifest.poll_layer().unwrap())
        .service(manifest.tool().unwrap().client::<_, Bytes>(client));
    let _ = stack.oneshot(ToolCall::new("deliver")).await;
    drop(guard);
    let spans = exporter.get_finished_spans().unwrap();
    let call = spans
        .iter()
        .find(|span| span.name == "execute_tool deliver");
    let attributes = call.unwrap().attributes.iter();
    attributes
        .map(|pair| (pair.key.to_string(), pair.value.to_string()))
        .collect()
}

/// E.9: its attributes, whatever the end.
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
