//! Over HTTP/2, where the calls of a client share a connection.

use std::{sync::Arc, time::Duration};

use http::{Method, Response};
use serde_json::json;
use tokio::{sync::Notify, time::timeout};
use tower_toolcall::Execution;
use tower_toolcall_http::HttpTool;

use crate::kit::{Leaf, Server, closed_port, endless, full, hangs, hyper_http2, no_arguments};

const WAIT: Duration = Duration::from_secs(20);

fn leaf(server: &Server, path: &str) -> Leaf {
    let tool = server.tool(Method::GET, path).with_max_bytes(65_536);
    Leaf::new(tool.unwrap().client(hyper_http2()))
}

/// H4: a body over the limit ends its own stream; the connection goes on.
#[tokio::test]
async fn a_body_over_the_limit_ends_its_stream_alone() {
    let server = Server::start(|_, got| match got.uri().path() {
        "/endless" => Response::new(endless(&[b'x'; 1 << 14])),
        _ => Response::new(full(format!("{:?}", got.version()))),
    })
    .await;
    let leaf = leaf(&server, "/{{ at }}");
    for _ in 0..3 {
        let error = leaf.send(json!({ "at": "endless" })).await.unwrap_err();
        assert_eq!(error.message(), "the answer has more than 65536 bytes");
        let answer = leaf.send(json!({ "at": "version" })).await.unwrap();
        assert_eq!(answer.into_json(), json!("HTTP/2.0"));
    }
    assert_eq!(server.connections(), 1);
}

/// A call that is dropped resets its stream, and leaves the calls beside it alone.
#[tokio::test]
async fn a_dropped_call_resets_its_stream_alone() {
    let gone = Arc::new(Notify::new());
    let told = Arc::clone(&gone);
    let server = Server::start(move |_, got| match got.uri().path() {
        "/hang" => Response::new(hangs(Arc::clone(&told))),
        _ => Response::new(full("there")),
    })
    .await;
    let leaf = leaf(&server, "/{{ at }}");
    assert!(leaf.send(json!({ "at": "first" })).await.is_ok());
    let hangs = timeout(
        Duration::from_millis(200),
        leaf.send(json!({ "at": "hang" })),
    );
    assert!(hangs.await.is_err());
    timeout(WAIT, gone.notified()).await.unwrap();
    assert!(leaf.send(json!({ "at": "next" })).await.is_ok());
    assert_eq!(server.connections(), 1);
}

/// A refused connection has not started, as over HTTP/1.
#[tokio::test]
async fn a_refused_connection_has_not_started() {
    let tool = HttpTool::new(Method::POST, closed_port().await).unwrap();
    let leaf = Leaf::new(tool.client(hyper_http2()));
    let error = leaf.send(no_arguments()).await.unwrap_err();
    assert_eq!(error.execution(), Execution::NotStarted);
}
