//! MCP over streamable HTTP, written by hand.

use reqwest::{Client, Response};
use serde_json::{Value, json};

/// Posts a message.
pub(crate) async fn post(
    client: &Client,
    url: &str,
    session: Option<&str>,
    mut message: Value,
) -> Response {
    message["jsonrpc"] = "2.0".into();
    let request = client.post(url).body(message.to_string());
    let request = request.header("content-type", "application/json");
    let request = request.header("accept", "application/json, text/event-stream");
    let request = match session {
        Some(id) => request.header("mcp-session-id", id),
        None => request,
    };
    request.send().await.unwrap()
}

pub(crate) fn initialize() -> Value {
    let about = json!({
        "protocolVersion": "2025-11-25", "capabilities": {},
        "clientInfo": { "name": "by hand", "version": "1" },
    });
    json!({ "id": 0, "method": "initialize", "params": about })
}

/// Begins a session.
pub(crate) async fn session(client: &Client, url: &str) -> String {
    let answer = post(client, url, None, initialize()).await;
    assert_eq!(answer.status(), 200);
    let id: String = answer.headers()["mcp-session-id"].to_str().unwrap().into();
    let ready = json!({ "method": "notifications/initialized" });
    assert_eq!(post(client, url, Some(&id), ready).await.status(), 202);
    id
}

/// Calls a tool; all answers that there are to the request.
pub(crate) async fn call(
    client: &Client,
    url: &str,
    session: &str,
    id: u64,
    tool: &str,
    arguments: &Value,
) -> Vec<Value> {
    let params = json!({ "name": tool, "arguments": arguments });
    let message = json!({ "id": id, "method": "tools/call", "params": params });
    let answer = post(client, url, Some(session), message).await;
    assert_eq!(answer.status(), 200);
    let text = answer.text().await.unwrap();
    let messages = text.lines().filter_map(|line| line.strip_prefix("data:"));
    let messages = messages.filter_map(|data| serde_json::from_str::<Value>(data).ok());
    messages.filter(|message| message["id"] == id).collect()
}
