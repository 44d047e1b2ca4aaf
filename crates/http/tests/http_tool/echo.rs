//! Upstreams that repeat what they were sent as a secret.

use std::sync::Arc;

use http::{Method, Request, Response};
use proptest::{
    prelude::*,
    test_runner::{Config, TestCaseError},
};
use serde_json::{Value, json};
use tower::{ServiceBuilder, ServiceExt};
use tower_toolcall::{
    ToolCall, ToolError, ToolResult, redact::Rules, result::ToolResultLayer, token::UpstreamToken,
    trace::TraceLayer,
};
use tower_toolcall_http::{HttpAnswer, HttpTool};
use tracing::{Level, instrument::WithSubscriber};

use crate::{
    events::Hears,
    kit::{Body, Got, Server, answered_by, call, full, leaves},
};

fn failed(body: impl Into<bytes::Bytes>) -> Response<Body> {
    Response::builder().status(500).body(full(body)).unwrap()
}

fn texts_of(error: &ToolError) -> String {
    format!(
        "{error} {error:?} {} {} {:?} {:?} {:?} {} {}",
        error.model_message(),
        error.user_message(),
        error.body(),
        error.details(),
        error.to_http(),
        error.to_json_rpc(),
        serde_json::to_string(error).unwrap(),
    )
}

/// All that is shown of a call, and its answer.
async fn shown(leaf: crate::kit::Leaf, call: ToolCall) -> (String, ToolResult<HttpAnswer>) {
    let stack = ServiceBuilder::new()
        .layer(ToolResultLayer::new())
        .layer(TraceLayer::new().with_arguments(true).with_output(true))
        .service(leaf);
    let hears = Hears(Level::TRACE, Arc::default());
    let Ok(result) = stack.oneshot(call).with_subscriber(hears.clone()).await;
    let mut said = hears.1.lock().unwrap().clone();
    said += &format!("{result:?} {}", serde_json::to_string(&result).unwrap());
    said += &result.error().map(texts_of).unwrap_or_default();
    (said, result)
}

/// H-7: an argument with the name of a secret comes back in an error, and is in none of its texts,
/// in no span and in no event. The caller's own answer has it.
#[tokio::test]
async fn a_secret_argument_that_comes_back_is_in_no_error_span_or_event() {
    const PASSWORD: &str = "correct horse/7";
    let server = Server::start(|n, got| {
        let sent: Value = serde_json::from_slice(got.body()).unwrap();
        let seen = sent["pw"].as_str().unwrap();
        match n {
            0 | 1 => failed(json!({ "detail": format!("bad login: {seen} for ada") }).to_string()),
            _ => Response::new(full(json!({ "seen": seen }).to_string())),
        }
    })
    .await;
    let tool = server.tool(Method::POST, "/login");
    let tool = tool.with_body(r#"{"pw": "{{ password }}"}"#).unwrap();
    let arguments = json!({ "password": PASSWORD, "note": format!("it is {PASSWORD}") });
    for leaf in leaves(&tool) {
        let (said, result) = shown(leaf, call(arguments.clone())).await;
        let error = result.error().unwrap();
        assert!(
            error.message().contains("bad login: [REDACTED] for ada"),
            "{error}"
        );
        assert!(said.contains("it is [REDACTED]"), "{said}");
        assert!(!said.contains("horse"), "{said}");
    }
    let (_, result) = shown(leaves(&tool)[0].clone(), call(arguments)).await;
    assert_eq!(
        result.data().unwrap().clone().into_json(),
        json!({ "seen": PASSWORD })
    );
}

/// H-7: a value that the schema marks `writeOnly`, or as a password, comes back in another field.
#[tokio::test]
async fn a_value_that_the_schema_calls_secret_is_hidden_when_it_comes_back() {
    let schema = json!({ "type": "object", "properties": {
        "answer": { "anyOf": [{ "type": "string", "writeOnly": true }, { "type": "null" }] },
        "phrase": { "$ref": "#/definitions/hidden" },
        "city": { "type": "string" },
    }, "definitions": { "hidden": { "type": "string", "format": "password" } } });
    let tool = HttpTool::new(Method::POST, "https://h/reset")
        .and_then(|tool| tool.with_input_schema(&schema))
        .and_then(|tool| tool.with_body(r#"["{{ answer }}", "{{ phrase }}", "{{ city }}"]"#))
        .unwrap();
    let leaf = answered_by(tool, |got| {
        let sent: Vec<String> = serde_json::from_slice(got.body()).unwrap();
        failed(json!({ "message": format!("no: {}", sent.join(" or ")) }).to_string())
    });
    let arguments =
        json!({ "answer": "tortoiseshell", "phrase": "open sesame", "city": "Trondheim" });
    let error = leaf.send(arguments).await.unwrap_err();
    let said = texts_of(&error);
    assert!(
        said.contains("no: [REDACTED] or [REDACTED] or Trondheim"),
        "{said}"
    );
    assert!(
        !said.contains("tortoise") && !said.contains("sesame"),
        "{said}"
    );
}

/// H-7: the rules of the caller, with names of secrets of its own.
#[tokio::test]
async fn a_value_under_a_name_of_ones_own_is_hidden_when_it_comes_back() {
    let tool = HttpTool::new(Method::POST, "https://h/orders").unwrap();
    let leaf = answered_by(tool, |_: &Request<bytes::Bytes>| {
        failed("no customer C-48151623")
    });
    let rules = Rules::new().with_sensitive_key("customer_no").unwrap();
    let call = call(json!({ "customer_no": "C-48151623" })).with_rules(rules);
    let error = leaf.oneshot(call).await.unwrap_err();
    assert!(!texts_of(&error).contains("48151623"), "{error}");
}

/// The answer to a call whose upstream repeats this header: `said`, between two words.
async fn echoed(name: &str, template: &str, arguments: Value) -> String {
    let schema = json!({ "type": "object", "properties": { "tenant": { "type": "string" } } });
    let tool = HttpTool::new(Method::POST, "https://h/orders")
        .and_then(|tool| tool.with_input_schema(&schema))
        .and_then(|tool| tool.with_header(name, template))
        .unwrap();
    let name = name.to_owned();
    let leaf = answered_by(tool, move |got: &Got| {
        let seen = got.headers()[&name].to_str().unwrap();
        let (.., last) = seen.rsplit_once([' ', '=']).unwrap_or_default();
        let token = seen.split(';').next().unwrap().rsplit(' ').next().unwrap();
        let last = if last.is_empty() { seen } else { last };
        Response::new(full(json!([seen, last, token]).to_string()))
    });
    let mut call = call(arguments).with_id("order-of-marmalade");
    call.extensions_mut()
        .insert(UpstreamToken::new("marmalade-of-oranges"));
    leaf.oneshot(call).await.unwrap().into_json().to_string()
}

/// H-7: what the caller gave is no secret to the caller.
#[tokio::test]
async fn what_the_caller_knows_stays_in_its_answer() {
    for (name, template) in [
        ("x-api-key", "{{ request_id }}"),
        ("idempotency-key", "always-marmalade"),
    ] {
        let said = echoed(name, template, json!({})).await;
        assert!(!said.contains("[REDACTED]"), "{said}");
    }
}

/// H-7: a header with a name that other things have, too.
#[tokio::test]
async fn a_word_in_a_header_that_may_be_a_secret_stays_in_answers() {
    let said = echoed("x-auth-realm", "customer", json!({})).await;
    assert_eq!(said, r#"["customer","customer","customer"]"#);
    let said = echoed("x-auth-realm", "q7Zr91LmX0ptW4sB8kVd", json!({})).await;
    assert_eq!(said, r#"["[REDACTED]","[REDACTED]","[REDACTED]"]"#);
}

/// H-7: the credential without its scheme, its cookie, and the argument beside it.
#[tokio::test]
async fn a_credential_is_hidden_in_answers_whatever_stands_beside_it() {
    for (name, template) in [
        ("authorization", "SSWS marmalade-of-plums"),
        ("authorization", "Bot {{ upstream_token }}"),
        ("x-api-key", "DPoP marmalade-of-plums"),
        ("cookie", "sid=marmalade-of-plums"),
        ("cookie", "a=marmalade-of-figs; sid=marmalade-of-plums"),
        (
            "authorization",
            "Bearer {{ upstream_token }};t={{ tenant }}",
        ),
    ] {
        let said = echoed(name, template, json!({ "tenant": "customer" })).await;
        assert!(said.contains("[REDACTED]"), "{template}: {said}");
        assert!(!said.contains("marmalade"), "{template}: {said}");
        assert_eq!(said.contains("customer"), template.contains("tenant"));
    }
}

/// H-7: of 10,000 secrets none is shown; what is kept of them is bounded.
#[tokio::test]
async fn a_call_with_10_000_secrets_shows_none_of_them() {
    let tool = HttpTool::new(Method::POST, "https://h/orders").unwrap();
    let leaf = answered_by(tool, |_: &Got| failed("no marmalade09999"));
    let all: Vec<String> = (0..10_000).map(|n| format!("marmalade{n:05}")).collect();
    let error = leaf.send(json!({ "passwords": all })).await.unwrap_err();
    assert!(!texts_of(&error).contains("marmalade"), "{error}");
}

fn bodies(secret: &str, before: &str, after: &str) -> [String; 5] {
    let text = format!("{before}{secret}{after}");
    let nested = json!({ "detail": [{ "x": text }, secret] }).to_string();
    [
        text.clone(),
        json!({ "message": text }).to_string(),
        json!({ "data": { "type": "image", "data": text, secret: 1 } }).to_string(),
        json!({ "errors": nested }).to_string(),
        format!("{{cut {}", &nested[1..nested.len() - 2]),
    ]
}

/// H-7: whatever a secret of 8 bytes and more looks like, and wherever it stands in the body of an
/// error.
#[test]
fn no_secret_that_comes_back_is_shown() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let secret = "[ -~éß\n\u{202e}]{8,40}".prop_map(|text| text.trim().to_owned());
    let secret = secret.prop_filter("too short", |text| text.len() >= 8);
    let around = || "[ -~é\n]{0,60}";
    let test = |(secret, before, after): (String, String, String)| {
        for body in bodies(&secret, &before, &after) {
            let tool = HttpTool::new(Method::POST, "https://h/orders").unwrap();
            let answer = body.clone();
            let leaf = answered_by(tool, move |_: &Got| failed(answer.clone()));
            let call = call(json!({ "password": secret }));
            let (said, _) = runtime.block_on(shown(leaf, call));
            let quoted = json!(secret).to_string();
            for form in [&*secret, &quoted[1..quoted.len() - 1]] {
                let at = said.find(form);
                let found = at.map(|at| said[..at + form.len()].lines().last().unwrap().to_owned());
                prop_assert_eq!(found, None, "{} in {}", secret, body);
            }
        }
        Ok::<_, TestCaseError>(())
    };
    let cases = std::env::var("PROPTEST_CASES")
        .ok()
        .and_then(|n| n.parse().ok());
    let config = Config {
        cases: cases.unwrap_or(64),
        failure_persistence: None,
        ..Config::default()
    };
    let mut runner = proptest::test_runner::TestRunner::new(config);
    runner.run(&(secret, around(), around()), test).unwrap();
}
