//! H-9: the codes of an executor, wherever one is shown.

use std::{
    fmt::Debug,
    io,
    sync::{Arc, Mutex},
};

use ::axum::body::{Body, to_bytes};
use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::Full;
use serde_json::Value;
use tower::{Layer as _, ServiceExt, service_fn};
use tower_toolcall::{
    AnyError, ErrorKind, ToolError, serve::Routes, settings::Settings, tool_metrics::Metrics,
};
use tower_toolcall_http::{ExecutionError, Executor, HttpTool};
use tracing::{Event, Subscriber, field::Field, instrument::WithSubscriber as _, span};
use tracing_subscriber::{
    Layer,
    layer::{Context, SubscriberExt as _},
};

/// The codes in spans and in events.
#[derive(Clone, Default)]
struct Codes(Arc<Mutex<(Vec<String>, Vec<String>)>>);

impl<S: Subscriber> Layer<S> for Codes {
    fn on_record(&self, _: &span::Id, values: &span::Record<'_>, _: Context<'_, S>) {
        let mut codes = self.0.lock().unwrap();
        values.record(&mut |field: &Field, value: &dyn Debug| {
            if field.name() == "tool.error_code" {
                codes.0.push(format!("{value:?}"));
            }
        });
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut codes = self.0.lock().unwrap();
        event.record(&mut |field: &Field, value: &dyn Debug| {
            if field.name() == "code" {
                codes.1.push(format!("{value:?}"));
            }
        });
    }
}

/// What becomes of a call whose client fails so: the body for the caller, metrics, spans and
/// events.
async fn failed(
    path: &str,
    error: impl Fn() -> AnyError + Clone + Send + Sync + 'static,
) -> (Value, String, Codes) {
    let metrics = Metrics::new();
    let client = service_fn(move |_: Request<Bytes>| {
        let error = error();
        async { Err::<Response<Full<Bytes>>, _>(error) }
    });
    let url = format!("https://api.example.com/{path}");
    let tool = HttpTool::new(Method::POST, url).unwrap().client(client);
    let stack = Settings::default()
        .stack()
        .with_metrics(&metrics)
        .with_codes(ExecutionError::code_of)
        .build()
        .unwrap()
        .layer(tool);
    let app = Executor::new(Routes::new(stack)).into_router();
    let request = Request::post("/api/tools/order/execute")
        .header("content-type", "application/json")
        .body(Body::from("{}"))
        .unwrap();
    let codes = Codes::default();
    let subscriber = tracing_subscriber::registry().with(codes.clone());
    let answer = app.oneshot(request).with_subscriber(subscriber).await;
    let body = to_bytes(answer.unwrap().into_body(), 10_000).await.unwrap();
    let body = serde_json::from_slice(&body).unwrap();
    (body, metrics.prometheus(), codes)
}

/// H-9: an argument that is missing, a server that is gone, and a code of the tool's own.
#[tokio::test]
async fn the_executors_codes_are_for_callers_metrics_spans_and_events() {
    let refused = || io::Error::from(io::ErrorKind::ConnectionRefused).into();
    let own = || {
        let error = ToolError::new(ErrorKind::Upstream, "sold out");
        error.with_code("SOLD_OUT").into()
    };
    for ((body, metrics, codes), code, ours) in [
        (
            failed("{{ city }}", refused).await,
            "validation_error",
            "TOOL_INVALID_INPUT",
        ),
        (
            failed("", refused).await,
            "upstream_connection_error",
            "CONNECTION_FAILED",
        ),
        (failed("", own).await, "SOLD_OUT", "UPSTREAM_ERROR"),
    ] {
        assert_eq!(body["error_code"], code, "{body}");
        let is_counted = |code: &str| {
            let label = format!("\"{code}\"");
            let mut lines = metrics.lines();
            lines.any(|line| line.contains(&label) && !line.ends_with(" 0"))
        };
        assert!(is_counted(code) && !is_counted(ours), "{code}: {metrics}");
        let (spans, events) = codes.0.lock().unwrap().clone();
        let code = format!("{code:?}");
        assert!(
            !spans.is_empty() && spans.iter().all(|of| *of == code),
            "{code}: {spans:?}"
        );
        assert!(events.contains(&code), "{code}: {events:?}");
    }
}
