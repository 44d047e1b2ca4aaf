//! What HTTP itself asks of the routes: methods, and clients that go away.

use std::sync::{Arc, Mutex};

use axum::body::Body;
use hyper::{
    client::conn::http2::{SendRequest, handshake},
    rt::Executor,
};
use hyper_util::rt::TokioIo;
use reqwest::{Client, Method};
use serde_json::{Value, json};
use tokio::{net::TcpStream, task::JoinSet};

use crate::kit::{LIMIT, Server, axum, ms, seen};

/// E5: the wrong method is refused with the body that all errors have, and the right one is named.
#[tokio::test]
async fn another_method_is_an_error_like_others() {
    let server = axum(ms(60_000)).await;
    let reason = "the method has to be POST";
    for (path, body) in [
        (
            "/tools/ok/call",
            json!({ "error": {
                "code": "METHOD_NOT_ALLOWED", "message": reason,
                "retryable": false, "execution": "not_started", "recoverable": true,
            } }),
        ),
        (
            "/servers/docs/tools/ok/call",
            json!({ "error": {
                "code": "METHOD_NOT_ALLOWED", "message": reason,
                "retryable": false, "execution": "not_started", "recoverable": true,
            } }),
        ),
        (
            "/rpc",
            json!({ "jsonrpc": "2.0", "id": null, "error": { "code": -32600, "message": reason } }),
        ),
    ] {
        let request = |method| Client::new().request(method, server.url(path));
        for method in [Method::GET, Method::PUT, Method::DELETE, Method::OPTIONS] {
            let got = seen(request(method.clone())).await;
            assert_eq!((got.status, &got.body), (405, &body), "{method} {path}");
            assert_eq!(got.content_type.as_deref(), Some("application/json"));
        }
        let response = request(Method::HEAD).send().await.unwrap();
        assert_eq!(response.status(), 405);
        assert_eq!(response.headers()["allow"], "POST");
        assert_eq!(response.bytes().await.unwrap(), "");
    }
    assert_eq!(server.tools.begun(), 0);
}

/// All tasks of a client's connection, which ends with them.
#[derive(Clone, Default)]
struct Tasks(Arc<Mutex<JoinSet<()>>>);

impl<F: Future<Output: Send> + Send + 'static> Executor<F> for Tasks {
    fn execute(&self, task: F) {
        self.0.lock().unwrap().spawn(async { drop(task.await) });
    }
}

/// A client of HTTP/2, without TLS.
async fn connect(server: &Server) -> (SendRequest<Body>, Tasks) {
    let stream = TcpStream::connect(server.at).await.unwrap();
    let tasks = Tasks::default();
    let connected = handshake(tasks.clone(), TokioIo::new(stream)).await;
    let (client, connection) = connected.unwrap();
    tasks.execute(connection);
    (client, tasks)
}

fn request(server: &Server, path: &str, body: &Value) -> hyper::Request<Body> {
    hyper::Request::post(server.url(path))
        .header("content-type", "application/json")
        .body(Body::from(body.to_string()))
        .unwrap()
}

/// What hangs, as a plain call and as a batch.
fn hanging() -> [(&'static str, Value, usize); 2] {
    let call = |id: usize| json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": { "name": "hang" } });
    [
        ("/tools/hang/call", json!({}), 1),
        ("/rpc", (0..LIMIT).map(call).collect(), LIMIT),
    ]
}

/// T4: over HTTP/2 a client resets one stream, and its calls are dropped; the connection stays.
#[tokio::test]
async fn a_stream_that_is_reset_drops_its_calls() {
    let server = axum(ms(60_000)).await;
    let (mut client, _connection) = connect(&server).await;
    for (path, body, running) in hanging() {
        let call = tokio::spawn(client.send_request(request(&server, path, &body)));
        server.tools.until_running(running).await;
        call.abort();
        server.tools.until_running(0).await;
    }
    let request = request(&server, "/tools/text/call", &json!({}));
    let response = client.send_request(request).await.unwrap();
    assert_eq!(response.status(), hyper::StatusCode::OK);
    assert_eq!(response.version(), hyper::Version::HTTP_2);
}

/// T4: over HTTP/2 a connection is lost, and the calls of all its streams are dropped.
#[tokio::test]
async fn a_connection_that_is_lost_drops_the_calls_of_its_streams() {
    let server = axum(ms(60_000)).await;
    for (path, body, running) in hanging() {
        let (mut client, connection) = connect(&server).await;
        let call = tokio::spawn(client.send_request(request(&server, path, &body)));
        server.tools.until_running(running).await;
        connection.0.lock().unwrap().abort_all();
        server.tools.until_running(0).await;
        assert!(call.await.unwrap().is_err());
    }
}
