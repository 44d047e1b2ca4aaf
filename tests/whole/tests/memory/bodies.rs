//! Bodies of requests to an HTTP server.

use std::{net::SocketAddr, sync::Arc};

use axum::body::Bytes;
use serde_json::json;
use tokio::{net::TcpListener, sync::Barrier, task::JoinSet};
use tower::service_fn;
use tower_toolcall::{AnyError, ToolCall, serve::Routes};
use tower_toolcall_http::Executor;

use crate::{MB, counted, small_values, worst_values};

/// A server whose tool answers when `calls` of its calls run.
async fn server(calls: usize) -> SocketAddr {
    let together = Arc::new(Barrier::new(calls));
    let tool = service_fn(move |call: ToolCall| {
        let together = Arc::clone(&together);
        async move {
            together.wait().await;
            Ok::<_, AnyError>(json!(call.arguments().len()))
        }
    });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let routes = Routes::new(tool);
    let app = Executor::new(routes.clone()).into_router();
    let app = app.merge(routes.into_router());
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

/// Sends so many bodies together. Returns the answers.
async fn send(server: SocketAddr, path: &str, body: &Bytes, times: usize) -> Vec<(u16, String)> {
    let client = reqwest::Client::new();
    let mut sent = JoinSet::new();
    for _ in 0..times {
        let request = client.post(format!("http://{server}{path}"));
        let request = request.header("content-type", "application/json");
        let request = request.body(body.clone());
        sent.spawn(async move {
            let answer = request.send().await.unwrap();
            (answer.status().as_u16(), answer.text().await.unwrap())
        });
    }
    sent.join_all().await
}

const CALL: &str = "/tools/a/call";

/// S-1: the row's own case.
#[test]
fn twenty_bodies_of_many_small_values_are_refused_before_they_are_parsed() {
    let taken = counted(async {
        let body = small_values(1_900_000).into();
        for (status, text) in send(server(20).await, CALL, &body, 20).await {
            assert_eq!(status, 413, "{text}");
            assert!(
                text.contains("the body has more than 40000 values"),
                "{text}"
            );
        }
    });
    assert!(taken.bytes_max < 150 * MB, "{taken:?}");
}

#[test]
fn twenty_calls_with_a_long_string_are_answered() {
    let taken = counted(async {
        let body = json!({ "a": ",".repeat(1_900_000) }).to_string().into();
        for (status, text) in send(server(20).await, CALL, &body, 20).await {
            assert_eq!((status, &*text), (200, "1"));
        }
    });
    assert!(taken.bytes_max < 300 * MB, "{taken:?}");
}

/// S-1: as many values as are taken, in the shape that takes most memory.
#[test]
fn twenty_calls_of_the_worst_values_that_are_taken_stay_within_the_bound() {
    let taken = counted(async {
        let body = worst_values().into();
        for (status, text) in send(server(20).await, CALL, &body, 20).await {
            assert_eq!((status, &*text), (200, "1"));
        }
    });
    assert!(taken.bytes_max < 300 * MB, "{taken:?}");
}

/// S-1: values that are no arguments are bounded as well.
#[test]
fn values_anywhere_in_a_body_are_counted() {
    let values = small_values(1_900_000);
    for (path, body) in [
        ("/rpc", format!("[{}{{}}]", "{},".repeat(600_000))),
        ("/rpc", format!(r#"{{"jsonrpc":"2.0","id":{values}}}"#)),
        (
            "/rpc",
            format!(r#"{{"jsonrpc":"2.0","method":"tools/call","params":{values}}}"#),
        ),
        (
            "/api/tools/a/execute",
            format!(r#"{{"arguments":{values}}}"#),
        ),
        ("/api/tools/a/execute", values),
    ] {
        let taken = counted(async {
            let (status, text) = &send(server(1).await, path, &body.into(), 1).await[0];
            assert_eq!(*status, 413, "{text}");
            assert!(text.contains("40000 values"), "{text}");
        });
        assert!(taken.bytes_max < 10 * MB, "{path}: {taken:?}");
    }
}

/// S-1: the digits of one number are not values.
#[test]
fn a_number_of_a_million_digits_takes_no_more_than_its_text() {
    let taken = counted(async {
        let body = format!(r#"{{"a":0.{}}}"#, "1".repeat(1_900_000)).into();
        let (status, text) = &send(server(1).await, CALL, &body, 1).await[0];
        assert_eq!((*status, &**text), (200, "1"));
    });
    assert!(taken.bytes_max < 15 * MB, "{taken:?}");
}
