//! More clients than a gateway has room for.

use std::{sync::Arc, time::Duration};

use reqwest::{Client, Response};
use rmcp::transport::StreamableHttpServerConfig;
use serde_json::{Value, json};
use tokio::{task::AbortHandle, time::timeout};
use tower_toolcall_mcp::McpSessions;

use super::kit::{Gateway, http_in, patient};

/// A gateway over HTTP, to which requests are written by hand.
struct Server {
    sessions: Arc<McpSessions>,
    url: String,
    client: Client,
    server: AbortHandle,
    gateway: Gateway,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl Server {
    async fn with_sessions(max: usize) -> Self {
        let gateway = patient().await;
        let sessions = Arc::new(McpSessions::new(max).unwrap());
        let config = StreamableHttpServerConfig::default();
        let (url, server) = http_in(gateway.handler.clone(), config, Arc::clone(&sessions)).await;
        Self {
            sessions,
            url,
            client: Client::new(),
            server,
            gateway,
        }
    }

    async fn post(&self, session: Option<&str>, mut message: Value) -> Response {
        message["jsonrpc"] = "2.0".into();
        let request = self.client.post(&self.url).body(message.to_string());
        let request = request.header("content-type", "application/json");
        let request = request.header("accept", "application/json, text/event-stream");
        let request = match session {
            Some(id) => request.header("mcp-session-id", id),
            None => request,
        };
        request.send().await.unwrap()
    }

    /// The id of a new session, or the status of the refusal.
    async fn initialize(&self) -> Result<String, u16> {
        let about = json!({
            "protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": { "name": "one of many", "version": "1" },
        });
        let message = json!({ "id": 0, "method": "initialize", "params": about });
        let answer = self.post(None, message).await;
        let id = answer.headers().get("mcp-session-id");
        let id = id.map(|id| id.to_str().unwrap().to_owned());
        id.ok_or(answer.status().as_u16())
    }

    /// A session whose client has said that it is ready.
    async fn ready(&self) -> String {
        let id = self.initialize().await.unwrap();
        let ready = json!({ "method": "notifications/initialized" });
        assert_eq!(self.post(Some(&id), ready).await.status(), 202);
        id
    }

    async fn call(&self, session: &str, tool: &str) -> Response {
        let params = json!({ "name": tool, "arguments": {} });
        let message = json!({ "id": 1, "method": "tools/call", "params": params });
        self.post(Some(session), message).await
    }

    /// The status of a quick call, which is over.
    async fn echo(&self, session: &str) -> u16 {
        let answer = self.call(session, "docs__echo").await;
        let status = answer.status().as_u16();
        answer.text().await.unwrap();
        status
    }
}

//= https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#sending-messages-to-the-server
//# If the server accepts the input, the server MUST return HTTP status code 202 Accepted with no
//# body.
//# If the server cannot accept the input, it MUST return an HTTP error status code (e.g., 400 Bad
//# Request).
//# After the JSON-RPC response has been sent, the server SHOULD terminate the SSE stream.
//= https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/streamable-http#sending-messages
//# If the server accepts it, the server MUST return HTTP status code `202 Accepted` with no body.
//# If the server cannot accept it, it MUST return an HTTP error status code (e.g., `400 Bad
//# Request`).
//= https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/streamable-http#protocol-version-header
//# A server that does not support such clients MUST reject a request without the header per Server
//# Validation.
/// W14: no client makes the gateway's memory grow without end, and none that works is disturbed.
#[tokio::test]
async fn the_session_that_has_been_idle_for_longest_goes() {
    let server = Server::with_sessions(3).await;
    let (a, b, c) = (
        server.ready().await,
        server.ready().await,
        server.ready().await,
    );
    assert_eq!(server.echo(&a).await, 200);
    let d = server.ready().await;
    assert_eq!(server.sessions.count(), 3);
    assert_eq!(server.echo(&b).await, 404);
    for session in [&a, &c, &d] {
        assert_eq!(server.echo(session).await, 200);
    }
}

/// W14: what is never heard of again makes no room for itself among those that work.
#[tokio::test]
async fn sessions_that_are_only_begun_replace_none_that_are_used() {
    let server = Server::with_sessions(3).await;
    let (a, b) = (server.ready().await, server.ready().await);
    for _ in 0..20 {
        server.initialize().await.unwrap();
    }
    assert_eq!(server.sessions.count(), 3);
    for session in [&a, &b] {
        assert_eq!(server.echo(session).await, 200);
    }
}

/// W14: two clients that begin at the same time do not put each other out where sessions that
/// nobody uses take the places.
#[tokio::test]
async fn handshakes_do_not_end_each_other() {
    let server = Server::with_sessions(16).await;
    for _ in 0..16 {
        server.ready().await;
    }
    let (x, y) = (
        server.initialize().await.unwrap(),
        server.initialize().await.unwrap(),
    );
    for session in [&x, &y] {
        let ready = json!({ "method": "notifications/initialized" });
        assert_eq!(server.post(Some(session), ready).await.status(), 202);
        assert_eq!(server.echo(session).await, 200);
    }
}

/// W14: a session with a call under way, or one that listens, is not idle; a new one is refused
/// until it is.
#[tokio::test]
async fn a_session_in_use_is_not_replaced() {
    let server = Server::with_sessions(2).await;
    let (calls, listens) = (server.ready().await, server.ready().await);
    let call = server.call(&calls, "docs__wait").await;
    server.gateway.upstream.until_begun(1).await;
    let listening = server.client.get(&server.url);
    let listening = listening.header("accept", "text/event-stream");
    let listening = listening.header("mcp-session-id", &listens);
    let listening = listening.send().await.unwrap();
    assert_eq!(listening.status(), 200);

    assert_eq!(server.initialize().await, Err(500));
    assert_eq!(server.sessions.count(), 2);
    server.gateway.upstream.go.notify_one();
    assert!(call.text().await.unwrap().contains("\"id\":1"));

    // The one whose stream is closed is free, once the server sees it.
    drop(listening);
    let late = async {
        loop {
            match server.initialize().await {
                Ok(_) => return,
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
    };
    timeout(Duration::from_secs(60), late).await.unwrap();
}

#[tokio::test]
async fn a_session_that_its_client_ends_leaves_room() {
    let server = Server::with_sessions(1).await;
    let a = server.ready().await;
    let end = server.client.delete(&server.url);
    let end = end.header("mcp-session-id", &a).send().await.unwrap();
    assert_eq!(end.status(), 202);
    assert_eq!(server.sessions.count(), 0);
    assert_eq!(server.echo(&a).await, 404);
    let b = server.ready().await;
    assert_eq!(server.echo(&b).await, 200);
}
