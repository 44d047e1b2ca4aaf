//! No token and no password anywhere that anybody reads: 100 of each, at TRACE of all targets, over
//! real sockets.

use std::{
    mem,
    panic::AssertUnwindSafe,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use ::axum::{Json, Router, http::StatusCode, routing::post};
use bytes::Bytes;
use futures_util::FutureExt;
use http::Method;
use serde_json::{Value, json};
use tokio::{net::TcpListener, runtime::Builder};
use tower::{ServiceBuilder, ServiceExt, util::BoxCloneSyncService};
use tower_toolcall::{
    ServiceBuilderExt, ToolCall, ToolResult,
    token::{Secret, Target, Token, TokenLayer, TokenRequest, UpstreamToken},
    tool_metrics::Metrics,
};
use tower_toolcall_http::{
    HttpTool, ReqwestClient,
    token::{ClientAuth, TokenEndpoint},
};
use tracing::{Dispatch, dispatcher};

use crate::observed::{Log, listening};

/// No form of a secret that redaction would know: what is not shown here is not shown by design.
fn canary(kind: &str, n: usize) -> String {
    format!("marmalade{kind}{n:03}x")
}

/// Returns a subscriber that writes the events and the spans of all targets, at TRACE.
pub(crate) fn everything(log: &Log) -> Dispatch {
    listening();
    let all = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_span_events(tracing_subscriber::fmt::format::FmtSpan::FULL);
    Dispatch::new(all.with_writer(log.clone()).finish())
}

/// Runs `work` on threads that all listen.
fn run(all: &Dispatch, work: impl Future<Output = ()>) {
    let of_thread = all.clone();
    let runtime = Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .on_thread_start(move || mem::forget(dispatcher::set_default(&of_thread)))
        .build()
        .unwrap();
    let _guard = dispatcher::set_default(all);
    runtime.block_on(work);
}

/// An identity provider and an upstream: as the subject's number says, both work, or one of them
/// fails.
async fn start() -> String {
    let refused = Arc::new(AtomicUsize::new(0));
    let token = |form: String| async move {
        // Nothing in it is encoded.
        let field = |name: &str| {
            let mut fields = form.split('&').filter_map(|field| field.split_once('='));
            let found = fields.find(|(key, _)| *key == name);
            found.map(|(_, value)| value.to_owned()).unwrap_or_default()
        };
        let subject = field("subject_token");
        let n: usize = subject
            .trim_end_matches('x')
            .rsplit("subject")
            .next()
            .unwrap()
            .parse()
            .unwrap();
        let description = format!("no token for {subject}, {}", field("client_secret"));
        match n % 5 {
            1 => (
                StatusCode::BAD_REQUEST,
                Json(json!({ "error": "invalid_grant", "error_description": description })),
            ),
            2 => (
                StatusCode::BAD_GATEWAY,
                Json(json!({ "error": description })),
            ),
            3 => (
                StatusCode::OK,
                Json(json!({ "access_token": canary("issued", n), "token_type": "mac" })),
            ),
            _ => (
                StatusCode::OK,
                Json(
                    json!({ "access_token": canary("issued", n), "token_type": "Bearer", "expires_in": 300 }),
                ),
            ),
        }
    };
    let orders = move || {
        let n = refused.fetch_add(1, SeqCst);
        async move {
            match n % 2 {
                0 => (StatusCode::OK, Json(json!({ "order": n }))),
                _ => (StatusCode::UNAUTHORIZED, Json(json!({ "error": "no" }))),
            }
        }
    };
    let app = Router::new()
        .route("/token", post(token))
        .route("/orders", post(orders));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { ::axum::serve(listener, app).await });
    at
}

type Stack = BoxCloneSyncService<ToolCall, ToolResult<Value>, tower_toolcall::result::Never>;

fn stack(at: &str, n: usize, metrics: &Metrics, said: &mut String) -> Stack {
    let client = ReqwestClient::new().unwrap();
    let secret = Secret::from(canary("password", n));
    let auth = match n % 2 {
        0 => ClientAuth::basic("gateway", secret),
        _ => ClientAuth::post("gateway", secret),
    };
    let endpoint = TokenEndpoint::<_, Bytes>::new(&format!("{at}/token"), auth, client.clone());
    let endpoint = endpoint.unwrap();
    *said += &format!("{endpoint:?}");
    let exchange = ServiceBuilder::new()
        .tool_trace()
        .tool_metrics(metrics)
        .tool_circuit_breaker()
        .tool_timeout(Duration::from_secs(5))
        .service(endpoint);
    let tokens = TokenLayer::new(exchange).with_tool("order", Target::audience("orders"));
    let tool = HttpTool::new(Method::POST, format!("{at}/orders")).unwrap();
    let tool = tool
        .with_header("authorization", "Bearer {{ upstream_token }}")
        .unwrap();
    *said += &format!("{tokens:?} {:?} {tool:?}", tokens.handle());
    let panics = n % 10 == 4;
    let tool = tool.client::<_, Bytes>(client);
    let stack = ServiceBuilder::new()
        .tool_trace()
        .tool_metrics(metrics)
        .layer(tokens)
        .tool_catch_panic()
        .map_request(move |call: ToolCall| {
            assert!(!panics, "{call:?} {:?}", call.extensions());
            call
        })
        .service(tool.map_response(|answer| serde_json::to_value(&answer).unwrap()));
    *said += &format!("{stack:?}");
    Stack::new(ServiceBuilder::new().tool_result().service(stack))
}

/// H2, S9.
#[test]
fn no_token_and_no_password_is_shown() {
    let log = Log::default();
    run(&everything(&log), shows_none(&log));
}

async fn shows_none(log: &Log) {
    let at = start().await;
    let metrics = Metrics::new();
    let mut said = String::new();
    for n in 0..100 {
        let subject = canary("subject", n);
        let call = ToolCall::new("order").with_subject_token(subject.clone());
        let target = Target::audience("orders");
        let request = TokenRequest::new(subject.clone(), target);
        let (upstream, token) = (UpstreamToken::new(subject.clone()), Token::new(subject));
        said += &format!("{call:?} {:?} {:?}", call.extensions(), call.info());
        said += &format!("{request:?} {upstream:?} {token:?} {}", token.secret());
        said += &serde_json::to_string(&call).unwrap();
        let stack = stack(&at, n, &metrics, &mut said);
        for _ in 0..2 {
            let result = stack.clone().oneshot(call.clone());
            let result = AssertUnwindSafe(result).catch_unwind().await.unwrap();
            let Ok(result) = result;
            said += &format!("{result:?} {}", serde_json::to_string(&result).unwrap());
            if let Some(error) = result.error() {
                said += &format!(
                    "{error} {error:?} {} {}",
                    error.model_message(),
                    error.user_message()
                );
                said += &format!("{:?} {}", error.to_http(), error.to_json_rpc());
                let mut cause = std::error::Error::source(error);
                while let Some(error) = cause {
                    said += &format!("{error} {error:?}");
                    cause = error.source();
                }
            }
        }
    }
    said += &format!("{:?} {}", metrics.snapshot(), metrics.snapshot());
    let heard = log.text();
    assert!(heard.contains("hyper"), "all threads are heard");
    said += &heard;
    assert!(said.len() > 100_000 && said.contains("invalid_grant"));
    assert!(said.contains("[REDACTED]"));
    let shown = said.find("marmalade");
    assert_eq!(shown.map(|at| &said[at.saturating_sub(300)..at + 40]), None);
}
