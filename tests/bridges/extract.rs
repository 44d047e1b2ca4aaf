//! A `ToolCall` out of a request, and results as responses.

use std::task::{Context, Poll};

use axum::{
    Json, Router,
    extract::{DefaultBodyLimit, State},
    http::StatusCode,
    response::IntoResponse as _,
    routing::post as on_post,
};
use expect_test::expect;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider, SpanData};
use serde_json::{Value, json};
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_toolcall::{
    BoxError, Classify, Outcome, ToolCall, ToolError, ToolResult,
    result::ToolResultLayer,
    serve::{Rejection, Routes},
};
use tracing_subscriber::prelude::*;

use crate::kit::{Seen, Server, Stack, Tools, axum, ms, post, seen, serve_axum, stack};

async fn serve(app: Router) -> Server {
    Server::start(Tools::default(), |listener| serve_axum(listener, app)).await
}

/// System D's route: the server in the path becomes the call's.
#[tokio::test]
async fn the_path_names_server_and_tool() {
    let server = axum(ms(60_000)).await;
    let url = server.url("/servers/doc%20s/tools/ok/call");
    let got = seen(post(&url, r#"{"q":1}"#).header("x-request-id", "r-1")).await;
    assert_eq!(
        got.body,
        json!({
            "arguments": { "q": 1 }, "server": "doc s", "id": "r-1", "has_deadline": true,
        })
    );
    let got = seen(post(&server.url("/servers/docs/tools/missing/call"), "")).await;
    assert_eq!(
        (got.status, &got.body["error"]["server"]),
        (404, &json!("docs"))
    );
}

fn message(seen: &Seen) -> &str {
    // S8: what HTTP itself refuses has a code of its own.
    let code = match seen.status {
        405 => "METHOD_NOT_ALLOWED",
        413 => "PAYLOAD_TOO_LARGE",
        415 => "UNSUPPORTED_MEDIA_TYPE",
        _ => "TOOL_INVALID_INPUT",
    };
    assert_eq!(seen.body["error"]["code"], code);
    assert_eq!(seen.content_type.as_deref(), Some("application/json"));
    seen.body["error"]["message"].as_str().unwrap()
}

/// Rule 8: bad input has a clear answer that quotes nothing, and reaches no tool.
#[tokio::test]
async fn bad_input_is_refused_with_a_reason() {
    let server = axum(ms(60_000)).await;
    let url = server.url("/tools/ok/call");
    let mut deep = json!({});
    for _ in 0..121 {
        deep = json!({ "a": deep });
    }
    let mut reasons = String::new();
    for body in [
        b"hunter2".to_vec(),
        b"[\"hunter2\"]".to_vec(),
        vec![0xff],
        deep.to_string().into_bytes(),
        [b"[".repeat(1000), b"]".repeat(1000)].concat(),
    ] {
        let got = seen(post(&url, body)).await;
        assert_eq!(
            (got.status, &got.body["error"]["tool"]),
            (400, &json!("ok"))
        );
        reasons += &format!("{}\n", message(&got));
    }
    for (path, body, status) in [
        (format!("/tools/{}/call", "x".repeat(300)), "".into(), 400),
        (
            format!("/servers/{}/tools/ok/call", "x".repeat(257)),
            "".into(),
            400,
        ),
        ("/tools/%ff/call".into(), "".into(), 400),
        ("/tools/ok/call".into(), " ".repeat((2 << 20) + 1), 413),
    ] {
        let got = seen(post(&server.url(&path), body)).await;
        assert_eq!(got.status, status, "{path}");
        reasons += &format!("{}\n", message(&got));
    }
    expect![[r#"
        tool arguments are not valid JSON (line 1, column 1)
        tool arguments must be a JSON object, not an array
        the body is not UTF-8
        the arguments are nested deeper than 120 levels
        tool arguments are not valid JSON (line 1, column 128)
        the tool name is 300 bytes long, the limit is 256
        the server name is empty, has more than 256 bytes, or has control characters
        the path is not UTF-8
        the body is too large
    "#]]
    .assert_eq(&reasons);
    let untyped = reqwest::Client::new().post(&url);
    for request in [
        untyped.try_clone().unwrap(),
        untyped.header("content-type", "text/plain"),
    ] {
        let got = seen(request).await;
        assert_eq!(got.status, 415);
        expect!["the request has to say `content-type: application/json`"].assert_eq(message(&got));
    }
    assert_eq!(server.tools.begun(), 0);
}

/// The limit of the body is axum's own.
#[tokio::test]
async fn the_limit_of_the_body_can_be_set() {
    let tool =
        service_fn(|call: ToolCall| async move { Ok::<_, BoxError>(call.arguments().len()) });
    let app = Routes::new(tool)
        .into_router()
        .layer(DefaultBodyLimit::max(100));
    let server = serve(app).await;
    let ask = |n: usize| {
        seen(post(
            &server.url("/tools/t/call"),
            format!(r#"{{"a":"{}"}}"#, "x".repeat(n)),
        ))
    };
    assert_eq!(ask(10).await.body, json!(1));
    assert_eq!(ask(100).await.status, 413);
}

/// A client that hangs up in the middle of its body is no call.
#[tokio::test]
async fn a_body_that_breaks_off_reaches_no_tool() {
    use tokio::io::AsyncWriteExt;
    let server = axum(ms(60_000)).await;
    let mut stream = tokio::net::TcpStream::connect(server.at).await.unwrap();
    let head = "POST /tools/ok/call HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{";
    stream.write_all(head.as_bytes()).await.unwrap();
    drop(stream);
    // Another one is served meanwhile and afterwards.
    assert_eq!(
        seen(post(&server.url("/tools/ok/call"), "")).await.status,
        200
    );
    assert_eq!(server.tools.begun(), 1);
}

/// Handlers of one's own: the call is an argument, errors and results are answers.
#[tokio::test]
async fn a_handler_takes_a_call_and_answers_with_its_error() {
    async fn call(
        State(stack): State<Stack>,
        call: Result<ToolCall, Rejection>,
    ) -> Result<Json<Value>, ToolError> {
        Ok(Json(stack.oneshot(call?).await?))
    }
    async fn result(State(stack): State<Stack>, call: ToolCall) -> ToolResult<Value> {
        let Ok(result) = ToolResultLayer::new().layer(stack).oneshot(call).await;
        result
    }
    let app = Router::new()
        .route("/a/{tool}", on_post(call))
        .route("/b/{tool}", on_post(result))
        .route("/c/{name}", on_post(call))
        .route("/d", on_post(call))
        .fallback(on_post(call))
        .with_state(stack(&Tools::default(), ms(60_000)));
    let server = serve(app).await;
    let ask = async |path| seen(post(&server.url(path), "")).await;
    for path in ["/a/text", "/b/text"] {
        assert_eq!(
            (ask(path).await.status, ask(path).await.body),
            (200, json!("12 degrees"))
        );
    }
    assert_eq!(ask("/a/missing").await, ask("/b/missing").await);
    assert_eq!(ask("/a/missing").await.status, 404);
    for path in ["/c/text", "/d", "/text"] {
        let got = ask(path).await;
        let reason = "the route has no parameter `tool`";
        assert_eq!(
            (got.status, &got.body["error"]["message"]),
            (500, &json!(reason)),
            "{path}"
        );
    }
    assert_eq!(seen(post(&server.url("/a/text"), "[]")).await.status, 400);
}

/// E6: what the tool says itself is for the caller, also where a classifier takes it for an error.
#[tokio::test]
async fn a_tools_own_error_reaches_the_client() {
    #[derive(Clone, Copy)]
    struct Flagged;
    impl Classify<Value> for Flagged {
        fn classify(&self, result: Result<&Value, &ToolError>) -> Outcome {
            match result {
                Ok(answer) if answer["isError"] == true => Outcome::reported(),
                _ => Outcome::success(),
            }
        }
    }
    async fn result(State(stack): State<Stack>, call: ToolCall) -> ToolResult<Value> {
        let results = ToolResultLayer::new().with_classifier(Flagged).layer(stack);
        let Ok(result) = results.oneshot(call).await;
        assert!(!result.is_success());
        result
    }
    let answer =
        json!({ "isError": true, "content": [{ "type": "text", "text": "no such city" }] });
    let tool = service_fn({
        let answer = answer.clone();
        move |_: ToolCall| std::future::ready(Ok::<_, ToolError>(answer.clone()))
    });
    let own = Router::new()
        .route("/tools/{tool}/call", on_post(result))
        .with_state(Stack::new(tool.clone()));
    for app in [Routes::new(tool.clone()).into_router(), own] {
        let server = serve(app).await;
        let got = seen(post(&server.url("/tools/t/call"), "")).await;
        assert_eq!((got.status, got.body), (200, answer.clone()));
    }
    let server = serve(Routes::new(tool).into_router()).await;
    let ask =
        json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": { "name": "t" } });
    let got = seen(post(&server.url("/rpc"), ask.to_string())).await;
    assert_eq!(
        got.body,
        json!({ "jsonrpc": "2.0", "id": 1, "result": answer })
    );
}

/// S5: a name that looks like a secret is not given back.
#[tokio::test]
async fn a_secret_in_the_path_is_not_echoed() {
    let server = axum(ms(60_000)).await;
    let secret = "ghp_0123456789abcdefghijABCDEFGHIJ012345";
    for path in [
        format!("/tools/{secret}/call"),
        format!("/servers/{secret}/tools/nothing/call"),
    ] {
        for body in ["", "hunter2"] {
            let got = seen(post(&server.url(&path), body)).await;
            assert!(!got.body.to_string().contains("abcdefghij"), "{}", got.body);
        }
    }
    let ask = json!({
        "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": { "name": secret, "server": secret },
    });
    let got = seen(post(&server.url("/rpc"), ask.to_string())).await;
    assert!(!got.body.to_string().contains("abcdefghij"), "{}", got.body);
}

/// A service whose readiness fails.
#[derive(Clone)]
struct NeverReady;

impl Service<ToolCall> for NeverReady {
    type Response = Value;
    type Error = BoxError;
    type Future = std::future::Pending<Result<Value, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Err("503 Service Unavailable".into()))
    }

    fn call(&mut self, _: ToolCall) -> Self::Future {
        unreachable!("it was not ready")
    }
}

/// Rule 3e: a readiness error is the answer to the call that meets it, and names it.
#[tokio::test]
async fn a_readiness_error_is_an_answer() {
    let server = serve(Routes::new(NeverReady).into_router()).await;
    let got = seen(post(&server.url("/tools/t/call"), "")).await;
    assert_eq!((got.status, &got.body["error"]["tool"]), (502, &json!("t")));
}

/// An answer that is no JSON is an error, and no panic.
#[tokio::test]
async fn an_answer_that_cannot_be_written_is_an_error() {
    let tool = service_fn(|call: ToolCall| async move {
        let mut deep = json!("secret");
        for _ in 0..100 + call.arguments().len() * 10_000 {
            deep = Value::Array(vec![deep]);
        }
        // Leaked: to drop it would overflow the stack, here as anywhere.
        Ok::<_, BoxError>(&*Box::leak(Box::new(deep)))
    });
    let server = serve(Routes::new(tool).into_router()).await;
    let url = server.url("/tools/t/call");
    assert_eq!(seen(post(&url, "")).await.status, 200);
    let got = seen(post(&url, r#"{"a":1}"#)).await;
    assert_eq!(
        (got.status, &got.body["error"]["code"]),
        (502, &json!("TOOL_EXECUTION_FAILED"))
    );
}

/// O6: the caller's span is the parent of the call's, by the headers or by the nearer `_meta`.
#[tokio::test]
async fn the_trace_context_is_taken_up() {
    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
    const OTHER: &str = "1bf7651916cd43dd8448eb211c80319c";
    let exporter = InMemorySpanExporter::default();
    let provider = SdkTracerProvider::builder()
        .with_simple_exporter(exporter.clone())
        .build();
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("test"));
    let subscriber = tracing_subscriber::registry().with(layer);
    // axum makes a task for each connection, which has no other subscriber.
    tracing::subscriber::set_global_default(subscriber).unwrap();
    let server = axum(ms(60_000)).await;
    let parent = |trace| format!("00-{trace}-b7ad6b7169203331-01");
    let rpc = json!({
        "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": { "name": "ok", "_meta": { "traceparent": parent(OTHER) } },
    });
    for (path, body) in [
        ("/tools/ok/call", "{}".to_owned()),
        ("/rpc", rpc.to_string()),
    ] {
        let request = post(&server.url(path), body).header("traceparent", parent(TRACE));
        assert_eq!(seen(request).await.status, 200);
    }
    let mut spans = exporter.get_finished_spans().unwrap();
    // Other tests make spans as well.
    spans.retain(|span| span.parent_span_id.to_string() == "b7ad6b7169203331");
    let trace = |span: &SpanData| span.span_context.trace_id().to_string();
    assert_eq!(spans.iter().map(trace).collect::<Vec<_>>(), [TRACE, OTHER]);
}

/// For handlers that pass it on.
#[test]
fn a_rejection_is_an_error() {
    fn is_error<E: std::error::Error + Into<ToolError> + Clone + Send + Sync + 'static>() {}
    is_error::<Rejection>();
}

#[test]
fn a_rejection_is_never_a_success() {
    for status in [StatusCode::OK, StatusCode::FOUND] {
        let answer = Rejection::new(status, "no").into_response();
        assert_eq!(answer.status(), StatusCode::BAD_REQUEST);
    }
}
