//! What it costs to make a request of a call, and a tool's answer of a response, above the bare
//! client.

use std::{
    convert::Infallible,
    future::{Ready, ready},
    hint::black_box,
    task::{Context, Poll},
};

use axum::body::Bytes;
use http::{Method, Request, Response, header::CONTENT_TYPE};
use http_body_util::{BodyExt, Full};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};
use tower::{Service, ServiceExt, service_fn};
use tower_toolcall::{BoxError, ToolCall};
use tower_toolcall_http::HttpTool;

use super::{By, Candidate, FIVE, Group, ours, peer};
use crate::kit::drive::{Subject, shared};

pub fn groups() -> Vec<Group> {
    vec![
        group("HTTP tool, GET", gets()),
        group("HTTP tool, POST of JSON", posts()),
    ]
}

fn group(name: &'static str, candidates: Vec<Candidate>) -> Group {
    let settings = vec![FIVE];
    Group {
        name,
        settings,
        candidates,
    }
}

/// Answers at once, without a connection.
#[derive(Clone)]
struct Client;

impl Service<Request<Full<Bytes>>> for Client {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Full<Bytes>>) -> Self::Future {
        black_box(request);
        let body = Bytes::from_static(br#"{"order": 7, "state": "accepted"}"#);
        ready(Ok(Response::new(Full::new(body))))
    }
}

fn gets() -> Vec<Candidate> {
    vec![
        alone(),
        ours("HTTP tool, GET", |_| {
            let url = "http://127.0.0.1/shops/{{ key0 }}/orders?state={{ key1 }}";
            tool(HttpTool::new(Method::GET, url).expect("a URL"))
        })
        .above(ALONE),
        peer("HTTP GET, by hand", |_| {
            by_hand(|call| {
                let url = format!(
                    "http://127.0.0.1/shops/{}/orders?state={}",
                    encoded(call, "key0")?,
                    encoded(call, "key1")?
                );
                Ok(Request::get(url).body(Full::default())?)
            })
        })
        .above(ALONE),
    ]
}

fn posts() -> Vec<Candidate> {
    vec![
        alone(),
        ours("HTTP tool, POST", |_| {
            let url = "http://127.0.0.1/shops/{{ key0 }}/orders";
            let body = r#"{"pizza": "{{ key1 }}", "toppings": {{ key2 }}, "quantity": {{ quantity | default(1) }}}"#;
            let made = HttpTool::new(Method::POST, url).expect("a URL");
            tool(made.with_body(body).expect("JSON"))
        })
        .above(ALONE),
        peer("HTTP POST, by hand", |_| {
            by_hand(|call| {
                let arguments = call.arguments();
                let body = json!({
                    "pizza": text(call, "key1")?,
                    "toppings": arguments.get("key2"),
                    "quantity": arguments.get("quantity").unwrap_or(&json!(1)),
                });
                let url = format!("http://127.0.0.1/shops/{}/orders", encoded(call, "key0")?);
                let body = Full::from(serde_json::to_vec(&body)?);
                Ok(Request::post(url)
                    .header(CONTENT_TYPE, "application/json")
                    .body(body)?)
            })
        })
        .above(ALONE),
    ]
}

const ALONE: &str = "bare, the HTTP client";

/// A client that is sent a request which is ready, and whose answer is only read.
fn alone() -> Candidate {
    super::candidate::<0>(ALONE, By::Bare, |_| {
        shared(service_fn(|call: ToolCall| async move {
            drop(black_box(call));
            let Ok(response) = Client.call(Request::default()).await;
            let body = response.into_body().collect().await?.to_bytes();
            black_box(body);
            Ok::<_, BoxError>(1)
        }))
    })
}

fn tool(tool: HttpTool) -> Box<dyn Subject> {
    let leaf = tool.client::<_, Full<Bytes>>(Client);
    shared(leaf.map_response(|answer| {
        black_box(answer);
        1
    }))
}

/// A function for one endpoint, as projects write it.
fn by_hand(request: fn(&ToolCall) -> Result<Request<Full<Bytes>>, BoxError>) -> Box<dyn Subject> {
    shared(service_fn(move |call: ToolCall| async move {
        let request = request(&call)?;
        let Ok(response) = Client.call(request).await;
        let body = response.into_body().collect().await?.to_bytes();
        let answer: Value = serde_json::from_slice(&body)?;
        black_box(answer);
        Ok::<_, BoxError>(1)
    }))
}

fn text<'a>(call: &'a ToolCall, key: &str) -> Result<&'a str, BoxError> {
    let text = call.arguments().get(key).and_then(Value::as_str);
    text.ok_or_else(|| format!("no {key}").into())
}

fn encoded(call: &ToolCall, key: &str) -> Result<String, BoxError> {
    Ok(utf8_percent_encode(text(call, key)?, NON_ALPHANUMERIC).to_string())
}
