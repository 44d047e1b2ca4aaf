//! Whatever is posted to the JSON-RPC endpoint, each request has one answer with its id, and a
//! notification has none.

use std::{
    future::Future,
    pin::pin,
    task::{Context, Poll, Waker},
};

use axum::{body::Body, http::Request};
use http_body_util::BodyExt as _;
use serde_json::{Map, Value};
use tower::{ServiceExt as _, service_fn};
use tower_toolcall::{AnyError, ToolCall, serve::Routes};

pub(crate) fn run(data: &[u8]) {
    let tool = service_fn(|call: ToolCall| async move {
        match call.tool() {
            "fails" => Err(AnyError::from("429 Too Many Requests")),
            _ => Ok(call.arguments().clone()),
        }
    });
    let request = Request::post("/rpc")
        .header("content-type", "application/json")
        .body(Body::from(data.to_vec()));
    let routes = Routes::new(tool).rpc();
    let Ok(response) = now(routes.oneshot(request.expect("a request")));
    assert!(matches!(response.status().as_u16(), 200 | 204 | 413));
    let body = now(response.into_body().collect()).expect("a body");
    let answers = match body.to_bytes() {
        empty if empty.is_empty() => Vec::new(),
        body => match serde_json::from_slice(&body).expect("JSON") {
            Value::Array(answers) => answers,
            answer => vec![answer],
        },
    };
    for answer in &answers {
        is_answer(answer.as_object().expect("an object"));
    }
    // Parts of a body that nobody can read may still have ids that can be.
    let Ok(posted) = serde_json::from_slice::<Value>(data) else {
        return;
    };
    let of_batch = posted.is_array();
    let entries = match posted {
        Value::Array(entries) => entries,
        entry => vec![entry],
    };
    assert!(answers.len() <= entries.len().max(1));
    if of_batch && (entries.is_empty() || entries.len() > 100) {
        assert_eq!(answers.len(), 1, "the whole is refused");
        return;
    }
    let asked: Vec<&Value> = entries.iter().filter_map(id_of).collect();
    let answered: Vec<&Value> = answers.iter().map(|answer| &answer["id"]).collect();
    let count = |ids: &[&Value], id: &Value| ids.iter().filter(|other| **other == id).count();
    let ids: Vec<&Value> = entries.iter().filter_map(|entry| entry.get("id")).collect();
    let mut missing = 0;
    for (i, id) in asked.iter().enumerate() {
        if !asked[..i].contains(id) {
            let answered = count(&answered, id);
            assert!(answered <= count(&ids, id), "{answered} answers to {id}");
            missing += count(&asked, id).saturating_sub(answered);
        }
    }
    // A request that has two ids has none.
    assert!(
        missing <= count(&answered, &Value::Null),
        "{missing} missing"
    );
}

/// The id of what is surely a request.
fn id_of(entry: &Value) -> Option<&Value> {
    let entry = entry.as_object()?;
    let is_request = entry.get("jsonrpc")? == "2.0" && entry.get("method")?.is_string();
    let id = entry.get("id")?;
    (is_request && (id.is_string() || id.is_i64() || id.is_u64())).then_some(id)
}

fn is_answer(answer: &Map<String, Value>) {
    assert_eq!(answer.get("jsonrpc").and_then(Value::as_str), Some("2.0"));
    assert_eq!(answer.len(), 3, "{answer:?}");
    let id = &answer["id"];
    assert!(id.is_string() || id.is_number() || id.is_null());
    if let Some(error) = answer.get("error") {
        assert!(error["code"].is_i64() && error["message"].is_string());
    } else {
        assert!(answer.contains_key("result"), "{answer:?}");
    }
}

/// What waits for nothing.
fn now<F: Future>(future: F) -> F::Output {
    let mut context = Context::from_waker(Waker::noop());
    match pin!(future).as_mut().poll(&mut context) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("it waits for something"),
    }
}
