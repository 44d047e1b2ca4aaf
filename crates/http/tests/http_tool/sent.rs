//! What is sent.

use std::future::ready;

use bytes::Bytes;
use futures_util::FutureExt;
use http::{Method, Request, Response};
use http_body_util::Full;
use opentelemetry::{
    Context, KeyValue,
    baggage::BaggageExt,
    global,
    propagation::TextMapCompositePropagator,
    trace::{SpanContext, SpanId, TraceContextExt, TraceFlags, TraceId, TraceState},
};
use opentelemetry_sdk::propagation::{BaggagePropagator, TraceContextPropagator};
use serde_json::json;
use tower::{ServiceExt, service_fn};
use tower_toolcall::{AnyError, ToolCall};
use tower_toolcall_http::HttpTool;

use crate::kit::{Server, full, leaves};

async fn server() -> Server {
    Server::start(|_, got| Response::new(full(got.body().clone()))).await
}

#[tokio::test]
async fn method_headers_and_body_arrive() {
    let server = server().await;
    let tool = server
        .tool(Method::PATCH, "/orders/{{ id }}?q={{ id }}")
        .with_header("X-Id", "{{ id }}")
        .and_then(|tool| tool.with_body(r#"{"id": {{ id }}}"#))
        .unwrap();
    for leaf in leaves(&tool) {
        let answer = leaf.send(json!({ "id": "a b" })).await.unwrap();
        assert_eq!(answer.into_json(), json!({ "id": "a b" }));
    }
    assert_eq!(server.headers("x-id"), ["a b", "a b"]);
    assert_eq!(server.headers("content-type"), ["application/json"; 2]);
    assert_eq!(server.headers("content-length"), ["13"; 2]);
}

/// O2: the trace goes on in the endpoint, and baggage stays here. A header of the tool goes before
/// it.
#[test]
fn the_trace_context_goes_along_without_baggage() {
    global::set_text_map_propagator(TextMapCompositePropagator::new(vec![
        Box::new(TraceContextPropagator::new()),
        Box::new(BaggagePropagator::new()),
    ]));
    let span = SpanContext::new(
        TraceId::from(7_u128),
        SpanId::from(9_u64),
        TraceFlags::SAMPLED,
        true,
        TraceState::NONE,
    );
    let context = Context::new()
        .with_baggage([KeyValue::new("customer", "ada")])
        .with_remote_span_context(span);
    let _current = context.attach();
    let client = service_fn(|request: Request<Bytes>| {
        let text = format!("{:?}", request.headers());
        ready(Ok::<_, AnyError>(Response::new(Full::<Bytes>::from(text))))
    });
    let sent = |tool: HttpTool| {
        let answer = tool
            .client(client)
            .oneshot(ToolCall::new("x"))
            .now_or_never();
        answer.unwrap().unwrap().into_json().to_string()
    };
    let tool = || HttpTool::new(Method::POST, "http://h/").unwrap();
    let text = sent(tool());
    let parent = "00-00000000000000000000000000000007-0000000000000009-01";
    assert!(text.contains(parent) && !text.contains("baggage"), "{text}");
    let text = sent(tool().with_header("traceparent", "own").unwrap());
    assert!(text.contains("own") && !text.contains(parent), "{text}");
}
