//! What is sent to an identity provider, and what becomes of its answers.

use std::collections::BTreeMap;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use expect_test::expect;
use http::{Response, header::LOCATION};
use http_body_util::Full;
use serde_json::json;
use tower::ServiceExt;
use tower_toolcall::{
    BoxError, ErrorKind, Execution, ToolCall, ToolError,
    token::{Secret, Target, Token, TokenLayer, TokenRequest},
};
use tower_toolcall_http::token::{ClientAuth, TokenEndpoint};
use tracing::instrument::WithSubscriber;

use super::kit::Http;
use crate::observed::{Log, listening};

const URL: &str = "https://id.example.com/token";

fn good() -> Http {
    let token_type = "urn:ietf:params:oauth:token-type:access_token";
    let answer = json!({ "access_token": "t0k3n", "issued_token_type": token_type, "token_type": "Bearer", "expires_in": 300 });
    Http::new(200, answer.to_string())
}

fn gateway() -> ClientAuth {
    ClientAuth::basic("gateway", "s3cr3t")
}

async fn ask(http: &Http, auth: ClientAuth, target: Target) -> Result<Token, ToolError> {
    let endpoint = TokenEndpoint::<_, Bytes>::new(URL, auth, http.clone()).unwrap();
    let mut call = ToolCall::new("token_exchange");
    call.extensions_mut()
        .insert(TokenRequest::new("subject+token/=&", target));
    endpoint.oneshot(call).await
}

async fn error(http: Http) -> ToolError {
    let target = Target::audience("orders");
    ask(&http, gateway(), target).await.unwrap_err()
}

/// The fields of the form that was sent, and the `Authorization`.
fn sent(http: &Http) -> (BTreeMap<String, Vec<String>>, Option<String>) {
    let got = http.got.lock().unwrap();
    let request = got.last().unwrap();
    let mut fields: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for field in std::str::from_utf8(request.body()).unwrap().split('&') {
        let (name, value) = field.split_once('=').unwrap();
        let value = percent_encoding::percent_decode_str(value).decode_utf8();
        let value = value.unwrap().into_owned();
        fields.entry(name.into()).or_default().push(value);
    }
    let authorization = request.headers().get("authorization");
    if let Some(value) = authorization {
        assert!(value.is_sensitive());
    }
    let authorization = authorization.map(|value| value.to_str().unwrap().to_owned());
    (fields, authorization)
}

/// H2: RFC 8693, section 2.1.
#[tokio::test]
async fn the_form_is_that_of_a_token_exchange() {
    let http = good();
    let target = Target::audience("orders & more")
        .with_scope("write read")
        .with_resource("https://a.example/?x=1")
        .with_resource("https://b.example");
    let _ = ask(&http, gateway(), target).await.unwrap();
    let (fields, _) = sent(&http);
    let expected = json!({
        "grant_type": ["urn:ietf:params:oauth:grant-type:token-exchange"],
        "subject_token": ["subject+token/=&"],
        "subject_token_type": ["urn:ietf:params:oauth:token-type:access_token"],
        "audience": ["orders & more"],
        "resource": ["https://a.example/?x=1", "https://b.example"],
        "scope": ["read write"],
    });
    assert_eq!(json!(fields), expected);
    let got = http.got.lock().unwrap();
    assert_eq!(
        (got[0].method().as_str(), got[0].uri().to_string()),
        ("POST", URL.into())
    );
    let form = "application/x-www-form-urlencoded";
    assert_eq!(got[0].headers()["content-type"], form);
}

#[tokio::test]
async fn what_a_target_does_not_name_is_left_out() {
    let http = good();
    let target = Target::resource("https://a.example");
    let _ = ask(&http, gateway(), target).await.unwrap();
    let (fields, _) = sent(&http);
    assert!(!fields.contains_key("audience") && !fields.contains_key("scope"));
}

/// RFC 6749, section 2.3.1: encoded as in a form, and then in Base64.
#[tokio::test]
async fn an_id_and_a_password_are_encoded_before_they_are_joined() {
    let http = good();
    let auth = ClientAuth::basic("a:b c", "s:e/c+r%t é");
    let _ = ask(&http, auth, Target::audience("orders")).await.unwrap();
    let (fields, authorization) = sent(&http);
    let encoded = authorization.unwrap();
    let pair = STANDARD.decode(encoded.strip_prefix("Basic ").unwrap());
    let pair = String::from_utf8(pair.unwrap()).unwrap();
    assert_eq!(pair, "a%3Ab%20c:s%3Ae%2Fc%2Br%25t%20%C3%A9");
    assert!(!fields.contains_key("client_id"));
}

#[tokio::test]
async fn a_client_signs_in_as_it_is_told() {
    let sign = |audience: &str| Ok::<_, BoxError>(Secret::from(format!("jwt for {audience}")));
    let none: &[(&str, &str)] = &[];
    for (auth, expected) in [
        (
            ClientAuth::post("gateway", "s3 cr3t"),
            &[("client_id", "gateway"), ("client_secret", "s3 cr3t")] as &[(&str, &str)],
        ),
        (ClientAuth::public("gateway"), &[("client_id", "gateway")]),
        (
            ClientAuth::assertion("gateway", sign),
            &[
                ("client_id", "gateway"),
                ("client_assertion", "jwt for https://id.example.com/token"),
                (
                    "client_assertion_type",
                    "urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
                ),
            ],
        ),
        (gateway(), none),
    ] {
        let http = good();
        let is_basic = matches!(auth, ClientAuth::Basic { .. });
        let _ = ask(&http, auth, Target::audience("orders")).await.unwrap();
        let (mut fields, authorization) = sent(&http);
        fields.retain(|name, _| name.starts_with("client"));
        let expected: BTreeMap<String, Vec<String>> = expected
            .iter()
            .map(|(name, value)| (name.to_string(), vec![value.to_string()]))
            .collect();
        assert_eq!((fields, authorization.is_some()), (expected, is_basic));
    }
}

#[tokio::test]
async fn a_client_that_cannot_sign_sends_nothing() {
    let http = good();
    let sign = |_: &str| Err::<Secret, _>(BoxError::from("the key is locked: c4n4ry"));
    let auth = ClientAuth::assertion("gateway", sign);
    let error = ask(&http, auth, Target::audience("orders"))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TokenExchange);
    assert!(!error.is_retryable() && !error.message().contains("c4n4ry"));
    assert!(http.got.lock().unwrap().is_empty());
}

/// H2: a refusal is the caller's, and the same each time.
#[tokio::test]
async fn an_oauth_error_is_told_and_not_repeated() {
    for status in [400, 401, 403, 404] {
        let body =
            json!({ "error": "invalid_grant", "error_description": "expired; password=c4n4ry" });
        let error = error(Http::new(status, body.to_string())).await;
        assert_eq!(error.kind(), ErrorKind::TokenExchange, "{status}");
        assert_eq!(error.status().unwrap().as_u16(), status);
        let details = serde_json::to_value(error.details().unwrap()).unwrap();
        assert_eq!(details, json!({ "oauth_error": "invalid_grant" }));
        assert_eq!(error.execution(), Execution::NotStarted);
        assert!(!error.is_retryable());
        let text = error.message();
        assert!(
            text.contains("invalid_grant: expired") && !text.contains("c4n4ry"),
            "{text}"
        );
    }
    let error = error(Http::new(400, "<html>no</html>")).await;
    expect!["refused by the identity provider: HTTP 400 Bad Request"].assert_eq(error.message());
    assert!(error.details().is_none());
}

#[tokio::test]
async fn a_provider_in_trouble_is_an_error_that_layers_know() {
    for (status, kind) in [
        (429, ErrorKind::RateLimited),
        (500, ErrorKind::Upstream),
        (502, ErrorKind::Upstream),
        (503, ErrorKind::Upstream),
    ] {
        let http = Http::by(move || {
            let answer = Response::builder().status(status);
            let answer = answer.header("retry-after", "7");
            answer.body(Full::default()).unwrap()
        });
        let error = error(http).await;
        assert_eq!((error.kind(), error.is_retryable()), (kind, true));
        assert_eq!(error.retry_after().unwrap().as_secs(), 7);
    }
}

/// H2: no secret goes elsewhere.
#[tokio::test]
async fn a_redirect_is_not_followed() {
    let http = Http::by(|| {
        let answer = Response::builder().status(307);
        let answer = answer.header(LOCATION, "https://evil.example/token");
        answer.body(Full::default()).unwrap()
    });
    let error = error(http.clone()).await;
    assert_eq!(error.kind(), ErrorKind::TokenExchange);
    assert!(!error.is_retryable() && error.message().contains("redirect"));
    assert_eq!(http.got.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn an_answer_of_more_than_64_kib_is_refused() {
    let long = json!({ "access_token": "t", "token_type": "Bearer", "pad": "x".repeat(64 << 10) });
    let error = error(Http::new(200, long.to_string())).await;
    assert_eq!(error.kind(), ErrorKind::TokenExchange);
    assert!(error.message().contains("65536 bytes"), "{error}");
}

#[tokio::test]
async fn an_answer_that_is_no_token_is_refused() {
    for body in [
        "",
        "{}",
        "<html>",
        r#"{"access_token":"c4n4ry","token_type":"mac"}"#,
    ] {
        let error = error(Http::new(200, body)).await;
        assert_eq!(error.kind(), ErrorKind::TokenExchange);
        assert!(!error.is_retryable() && !format!("{error:?}").contains("c4n4ry"));
    }
}

#[test]
fn secrets_go_to_https_or_this_machine_only() {
    let new = |url: &str| TokenEndpoint::<_, Bytes>::new(url, gateway(), ());
    for url in [
        "https://id.example.com/token",
        "https://id.example.com:8443/realms/x/token",
        "http://localhost:8080/token",
        "http://127.0.0.1:8080/token",
        "http://[::1]:8080/token",
    ] {
        assert!(new(url).is_ok(), "{url}");
    }
    for url in [
        "http://id.example.com/token",
        "http://localhost.example.com/token",
        "http://127.0.0.1.example.com/token",
        "ftp://id.example.com",
        "/token",
        "",
        "https://user:c4n4ry@id.example.com/token",
        "https://id.example.com/token?secret=c4n4ry",
    ] {
        let error = new(url).unwrap_err();
        assert_eq!(error.field(), "endpoint", "{url}");
        assert!(!error.to_string().contains("c4n4ry"));
    }
    let nobody = TokenEndpoint::<_, Bytes>::new(URL, ClientAuth::public(""), ());
    assert_eq!(nobody.unwrap_err().field(), "client_id");
}

/// A leaf that is called by itself.
#[tokio::test]
async fn a_call_that_asks_for_no_token_is_refused() {
    let endpoint = TokenEndpoint::<_, Bytes>::new(URL, gateway(), good()).unwrap();
    let error = endpoint.oneshot(ToolCall::new("x")).await.unwrap_err();
    assert!(error.is_own_refusal());
}

/// The lines with `tool.token` that this work writes.
async fn warned(work: impl Future<Output = ()>) -> Vec<String> {
    listening();
    let log = Log::default();
    let listens = tracing_subscriber::fmt()
        .with_ansi(false)
        .with_writer(log.clone())
        .finish();
    work.with_subscriber(listens).await;
    let text = log.text();
    let lines = text.lines().filter(|line| line.contains("tool.token"));
    lines.map(str::to_owned).collect()
}

/// H2: an answer that leaves something out is taken; a warning tells of it once for the endpoint.
#[tokio::test]
async fn what_an_answer_leaves_out_is_one_warning() {
    let no_audience = "e30.e30.c2ln";
    for (answer, says) in [
        (
            json!({ "access_token": "t0k3n", "token_type": "Bearer" }),
            "the answer has no `issued_token_type`",
        ),
        (
            json!({
                "access_token": no_audience, "token_type": "Bearer",
                "issued_token_type": "urn:ietf:params:oauth:token-type:access_token",
            }),
            "the token looks like a JWT and has no audience that can be read",
        ),
    ] {
        let http = Http::new(200, answer.to_string());
        let endpoint = TokenEndpoint::<_, Bytes>::new(URL, gateway(), http).unwrap();
        let lines = warned(async {
            for _ in 0..3 {
                let mut call = ToolCall::new("token_exchange");
                let request = TokenRequest::new("alice", Target::audience("orders"));
                call.extensions_mut().insert(request);
                drop(endpoint.clone().oneshot(call).await.unwrap());
            }
        });
        let lines = lines.await;
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].contains("WARN") && lines[0].contains(says));
        assert!(lines[0].contains("id.example.com"));
        assert!(!lines[0].contains("t0k3n") && !lines[0].contains(no_audience));
    }
    let lines = warned(async {
        let target = Target::audience("orders");
        drop(ask(&good(), gateway(), target).await.unwrap());
    });
    assert!(lines.await.is_empty());
}

/// H2: a caller's own token that goes to a tool is told of when the layer is made.
#[tokio::test]
async fn a_token_that_is_passed_on_is_a_warning() {
    let lines = warned(async {
        let endpoint = TokenEndpoint::<_, Bytes>::new(URL, gateway(), good()).unwrap();
        drop(TokenLayer::new(endpoint).pass_subject("order"));
    });
    let lines = lines.await;
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains("WARN") && lines[0].contains("tool=order"));
}
