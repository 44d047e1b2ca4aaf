//! Upstreams that repeat the token that they were sent, over real sockets, at TRACE.

use std::{error::Error, time::Duration};

use ::axum::{
    Json, Router,
    http::{HeaderMap, StatusCode},
    response::IntoResponse,
    routing::post,
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http::Method;
use serde_json::json;
use tokio::net::TcpListener;
use tower::{ServiceBuilder, ServiceExt};
use tower_toolcall::{
    AnyError, ServiceBuilderExt, ToolCall, ToolError, ToolResult,
    retry::RetryPolicy,
    token::{Secret, Target, Token, TokenLayer, UpstreamToken},
};
use tower_toolcall_http::{
    HttpAnswer, HttpTool, ReqwestClient,
    token::{ClientAuth, TokenEndpoint},
};

use super::{canary::everything, kit::Provider};
use crate::observed::Log;

/// No form that redaction knows, and characters that are escaped in JSON and in URLs.
const TOKEN: &str = "marmalade+quince/7x-of=plums";

/// Parts that no shown text has, in whichever form.
const PARTS: [&str; 4] = ["marmalade+", "marmalade%2", "quince", "of=plums"];

fn forms() -> [String; 5] {
    let percent = TOKEN.replace('+', "%2B").replace('/', "%2F");
    [
        format!("no user for {TOKEN} here"),
        json!({ "errors": [{ "text": "who is this", "seen": TOKEN }] }).to_string(),
        format!(
            r#"{{"seen": "{}"}}"#,
            TOKEN.replace('/', r"\/").replace('-', r"\u002d")
        ),
        format!("GET /orders?t={percent} is not allowed"),
        format!("x-seen: {}", STANDARD.encode(format!("ada {TOKEN}"))),
    ]
}

/// A provider, and an upstream that answers with this status, the form, and the header `x-seen`.
async fn start() -> String {
    let issued = json!({ "access_token": TOKEN, "token_type": "Bearer", "expires_in": 300 });
    let seen = |headers: HeaderMap, Json(asked): Json<(u16, usize)>| async move {
        assert_eq!(headers["authorization"], format!("Bearer {TOKEN}"));
        let status = StatusCode::from_u16(asked.0).unwrap();
        (
            status,
            [("x-seen", format!("Bearer {TOKEN}"))],
            forms()[asked.1].clone(),
        )
            .into_response()
    };
    let app = Router::new()
        .route("/token", post(move || async { Json(issued) }))
        .route("/orders", post(seen));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { ::axum::serve(listener, app).await });
    at
}

fn texts_of(error: &ToolError) -> String {
    let mut said = format!(
        "{error} {error:?} {} {} {:?} {:?} {:?} {} {}",
        error.model_message(),
        error.user_message(),
        error.body(),
        error.details(),
        error.to_http(),
        error.to_json_rpc(),
        serde_json::to_string(error).unwrap(),
    );
    let mut cause = Error::source(error);
    while let Some(error) = cause {
        said += &format!("{error} {error:?}");
        cause = error.source();
    }
    said
}

/// H-7: an exchanged token that its upstream repeats, in five forms, is in no text of the error, no
/// event, and in nothing that a model reads, of a success too.
#[tokio::test]
async fn an_exchanged_token_that_the_upstream_repeats_is_shown_nowhere() {
    let log = Log::default();
    let _guard = tracing::dispatcher::set_default(&everything(&log));
    let at = start().await;
    let client = ReqwestClient::new().unwrap();
    let auth = ClientAuth::basic("gateway", Secret::from("the-gateways-own"));
    let endpoint = TokenEndpoint::<_, Bytes>::new(&format!("{at}/token"), auth, client.clone());
    let tokens = TokenLayer::new(endpoint.unwrap()).with_tool("order", Target::audience("orders"));
    let tool = HttpTool::new(Method::POST, format!("{at}/orders"))
        .and_then(|tool| tool.with_header("authorization", "Bearer {{ upstream_token }}"))
        .and_then(|tool| tool.with_body("[{{ status }}, {{ form }}]"))
        .and_then(|tool| tool.with_kept_header(http::HeaderName::from_static("x-seen")))
        .unwrap();
    let stack = ServiceBuilder::new()
        .tool_result()
        .tool_trace()
        .layer(tokens)
        .tool_circuit_breaker()
        .tool_timeout(Duration::from_secs(30))
        .service(tool.client::<_, Bytes>(client));
    let mut said = String::new();
    for status in [401, 200, 500] {
        for form in 0..forms().len() {
            let call = ToolCall::new("order").with_subject_token("the-subjects-own");
            let arguments = json!({ "status": status, "form": form });
            let call = call.with_json(arguments).unwrap();
            let Ok(result) = stack.clone().oneshot(call).await;
            let result: ToolResult<HttpAnswer> = result;
            said += &format!("\n{status} {form}: {result:?} ");
            said += &serde_json::to_string(&result).unwrap();
            let answer = match result.error() {
                Some(error) => {
                    said += &texts_of(error);
                    HttpAnswer::of_error(error).unwrap()
                }
                None => result.data().unwrap(),
            };
            said += &serde_json::to_string(answer).unwrap();
            said += &tower_toolcall::ModelText::model_text(answer);
        }
    }
    said += &log.text();
    assert!(said.matches("[REDACTED]").count() > 30, "{said}");
    for part in PARTS {
        let shown = said.find(part);
        assert_eq!(shown.map(|at| &said[at.saturating_sub(300)..at + 40]), None);
    }
}

/// H-7: a tool service of one's own that fails with the token in its text.
#[tokio::test(start_paused = true)]
async fn the_error_of_any_tool_service_is_without_the_token() {
    let tool = tower::service_fn(|call: ToolCall| async move {
        let token = call.extensions().get::<UpstreamToken>().unwrap().expose();
        Err::<String, _>(AnyError::from(format!("not allowed: {token}, go away")))
    });
    let stack = ServiceBuilder::new()
        .layer(Provider::default().layer())
        .service(tool);
    let subject = "ada-of-the-marmalade";
    for _ in 0..2 {
        let call = ToolCall::new("order").with_subject_token(subject);
        let error = stack.clone().oneshot(call).await.unwrap_err();
        assert_eq!(error.message(), "not allowed: [REDACTED], go away");
    }
}

/// H-7: the texts for models and users, which are otherwise shown as they were set, and the tokens
/// of both attempts.
#[tokio::test(start_paused = true)]
async fn no_text_of_an_error_has_the_token_of_an_attempt() {
    let tool = tower::service_fn(|call: ToolCall| async move {
        let token = call.extensions().get::<UpstreamToken>().unwrap();
        let said = format!("who is {}", token.expose());
        let error = ToolError::from_status(StatusCode::UNAUTHORIZED, said.clone());
        Err::<(), _>(error.with_model_message(&*said).with_user_message(&*said))
    });
    let tokens = ["marmalade-1-quince", "marmalade-2-quince"].map(|t| Ok(Token::new(t)));
    let stack = ServiceBuilder::new()
        .tool_retry(RetryPolicy::new())
        .layer(Provider::answering(tokens).layer())
        .service(tool);
    let call = ToolCall::new("order").with_subject_token("the-subjects-own");
    let error = stack.oneshot(call).await.unwrap_err();
    let said = texts_of(&error);
    assert!(said.contains("who is [REDACTED]"), "{said}");
    assert!(!said.contains("quince"), "{said}");
}
