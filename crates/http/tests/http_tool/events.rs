//! Requests and answers as events.

use std::{
    fmt::{self, Write as _},
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::Full;
use serde_json::json;
use tower::{ServiceExt, service_fn};
use tower_toolcall::{AnyError, redact::Rules, token::UpstreamToken};
use tower_toolcall_http::HttpTool;
use tracing::{
    Level, Metadata, Subscriber,
    field::{Field, Visit},
    instrument::WithSubscriber,
    span,
};

use crate::kit::call;

/// Writes down the fields of spans and events, down to a level.
#[derive(Clone)]
pub(crate) struct Hears(pub(crate) Level, pub(crate) Arc<Mutex<String>>);

struct Line<'a>(&'a mut String);

impl Visit for Line<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let _ = writeln!(self.0, "{field}={value:?}");
    }
}

impl Subscriber for Hears {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("tower_toolcall") && *metadata.level() <= self.0
    }
    fn new_span(&self, span: &span::Attributes<'_>) -> span::Id {
        span.record(&mut Line(&mut self.1.lock().unwrap()));
        span::Id::from_u64(1)
    }
    fn record(&self, _: &span::Id, values: &span::Record<'_>) {
        values.record(&mut Line(&mut self.1.lock().unwrap()));
    }
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn event(&self, event: &tracing::Event<'_>) {
        event.record(&mut Line(&mut self.1.lock().unwrap()));
    }
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

/// What is heard of one call.
async fn heard(level: Level) -> String {
    let client = service_fn(|_: Request<Bytes>| async {
        let body = format!(
            r#"{{"api_key": "c4n4ry", "iban": "c4n4ry", "text": "{}"}}"#,
            "y".repeat(2_000)
        );
        Ok::<_, AnyError>(
            Response::builder()
                .header("set-cookie", "c4n4ry")
                .body(Full::<Bytes>::from(body))
                .unwrap(),
        )
    });
    let leaf = HttpTool::new(
        Method::POST,
        "https://h/orders/{{ id }}?key={{ key }}&q=1&{{ key }}&{{ key }}=1",
    )
    .and_then(|tool| tool.with_header("Authorization", "Bearer {{ upstream_token }}"))
    .and_then(|tool| {
        tool.with_body(r#"{"password": "{{ key }}", "text": "{{ text }}", "iban": "{{ key }}"}"#)
    })
    .unwrap()
    .client(client);
    let arguments = json!({ "id": 7, "key": "c4n4ry", "text": "x".repeat(2_000) });
    let rules = Rules::new().with_sensitive_key("iban").unwrap();
    let mut call = call(arguments).with_id("call_1").with_rules(rules);
    call.extensions_mut().insert(UpstreamToken::new("c4n4ry"));
    let text = Arc::new(Mutex::new(String::new()));
    let hears = Hears(level, Arc::clone(&text));
    leaf.oneshot(call).with_subscriber(hears).await.unwrap();
    text.lock().unwrap().clone()
}

/// O5, S7: both events, without secrets, cut at 500 characters.
#[tokio::test]
async fn requests_and_answers_are_debug_events_without_secrets() {
    let text = heard(Level::DEBUG).await;
    assert!(!text.contains("c4n4ry"), "{text}");
    for part in [
        "message=tool.http_request",
        "message=tool.http_response",
        "call_id=call_1",
        "method=\"POST\"",
        "url=https://h/orders/7?key=*&q=*&*&*=*",
        "headers=content-type, authorization",
        "status=200",
        "headers=set-cookie",
        "[REDACTED]",
    ] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    let bodies = text.lines().filter_map(|line| line.strip_prefix("body="));
    let lengths: Vec<usize> = bodies.map(|body| body.chars().count()).collect();
    assert_eq!(lengths, [500 + "...[truncated]".len(); 2]);
}

/// 46: a body is one line.
#[tokio::test]
async fn a_line_of_a_body_is_no_line_of_a_log() {
    for end in ["\n", "\r", "\u{2028}", "\u{85}", "\u{1b}[2J"] {
        let body = format!("{{\"a\":{end}\"2026-11-27T09:00:00Z INFO paid\"}}");
        let client = service_fn(move |_: Request<Bytes>| {
            let answer = Response::new(Full::<Bytes>::from(body.clone()));
            async { Ok::<_, AnyError>(answer) }
        });
        let leaf = HttpTool::new(Method::GET, "https://h/")
            .unwrap()
            .client(client);
        let text = Arc::new(Mutex::new(String::new()));
        let hears = Hears(Level::DEBUG, Arc::clone(&text));
        let called = leaf.oneshot(call(json!({})));
        called.with_subscriber(hears).await.unwrap();
        let text = text.lock().unwrap().clone();
        let lines = text.lines().filter(|line| line.contains("INFO paid"));
        for line in lines {
            assert!(line.starts_with("body={"), "{text:?}");
        }
        assert!(
            !text.contains(['\r', '\u{2028}', '\u{85}', '\u{1b}']),
            "{text:?}"
        );
    }
}

/// O5, S6.
#[tokio::test]
async fn nothing_is_written_above_debug() {
    assert_eq!(heard(Level::INFO).await, "");
}
