//! Servers that repeat the secrets of their transport.

use std::collections::HashMap;

use axum::{
    Json, Router,
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Response},
    routing::post,
};
use http::{HeaderName, HeaderValue};
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tower::{ServiceBuilder, ServiceExt as _};
use tower_toolcall::{ToolCall, result::ToolResultLayer, trace::TraceLayer};
use tower_toolcall_mcp::McpServer;

/// Neither has a form that redaction knows.
const TOKEN: &str = "marmalade-of-oranges/7";
const KEY: &str = "marmalade-of-plums/8";
/// It is JSON wherever it stands in JSON.
const DIGITS: &str = "48151623";

/// How a call is answered: its tool's name says it.
fn answered(tool: &str, id: &Value, seen: &str) -> Response {
    let reply = |kind: &str, value: Value| json!({ "jsonrpc": "2.0", "id": id, kind: value });
    let error = reply(
        "error",
        json!({ "code": -32603, "message": seen, "data": { "x": [seen] } }),
    );
    let content = json!([{ "type": "text", "text": seen }]);
    let result = reply(
        "result",
        json!({ "content": content, "structuredContent": { "x": seen } }),
    );
    match tool {
        "error" => Json(error).into_response(),
        "event" => {
            let event = format!("data: {}\n\n", error.to_string().replace('/', "\\/"));
            ([("content-type", "text/event-stream")], event).into_response()
        }
        "status" => (StatusCode::INTERNAL_SERVER_ERROR, seen.to_owned()).into_response(),
        "denied" => (StatusCode::FORBIDDEN, seen.to_owned()).into_response(),
        "challenge" => {
            let challenge = format!("Bearer error=\"no {TOKEN}\"");
            (StatusCode::UNAUTHORIZED, [("www-authenticate", challenge)]).into_response()
        }
        "number" | "numbers" => {
            let result = json!({ "content": [], "structuredContent": { "x": 48_151_623, "y": 7 } });
            let result = reply("result", result).to_string();
            let event = format!("data: {result}\n\n");
            match tool {
                "number" => ([("content-type", "application/json")], result).into_response(),
                _ => ([("content-type", "text/event-stream")], event).into_response(),
            }
        }
        "text" => ([("content-type", "application/json")], seen.to_owned()).into_response(),
        _ => Json(result).into_response(),
    }
}

async fn answer(headers: HeaderMap, Json(message): Json<Value>) -> Response {
    assert_eq!(headers["authorization"], format!("Bearer {TOKEN}"));
    let id = &message["id"];
    match message["method"].as_str().unwrap() {
        "tools/call" => {
            let seen = format!("no user for {TOKEN} with {KEY}");
            answered(message["params"]["name"].as_str().unwrap(), id, &seen)
        }
        "initialize" => {
            let info = json!({
                "protocolVersion": "2025-11-25",
                "capabilities": { "tools": {} },
                "serverInfo": { "name": "echo", "version": "1" },
            });
            Json(json!({ "jsonrpc": "2.0", "id": id, "result": info })).into_response()
        }
        _ if id.is_null() => StatusCode::ACCEPTED.into_response(),
        "tools/list" => {
            let result = json!({ "tools": [] });
            Json(json!({ "jsonrpc": "2.0", "id": id, "result": result })).into_response()
        }
        _ => {
            let error = json!({ "code": -32601, "message": "Method not found" });
            let body = json!({ "jsonrpc": "2.0", "id": id, "error": error });
            (StatusCode::BAD_REQUEST, Json(body)).into_response()
        }
    }
}

/// The server, which is sent this key.
async fn server(key: &'static str) -> McpServer {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let app = Router::new().route("/mcp", post(answer));
    tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    let key = (
        HeaderName::from_static("x-api-key"),
        HeaderValue::from_static(key),
    );
    let config = StreamableHttpClientTransportConfig::with_uri(url)
        .auth_header(TOKEN)
        .custom_headers(HashMap::from([key]));
    McpServer::http_with("echo", config)
}

/// H-7: a number that is the key, in an answer and in an event.
#[tokio::test]
async fn a_key_of_digits_is_hidden_and_its_message_stays_json() {
    let stack = ServiceBuilder::new()
        .layer(ToolResultLayer::new())
        .service(server(DIGITS).await);
    for tool in ["number", "numbers"] {
        let Ok(result) = stack.clone().oneshot(ToolCall::new(tool)).await;
        let said = format!(
            "{:?} {:?}",
            result.error(),
            result.data().map(|answer| &**answer)
        );
        assert!(result.error().is_none(), "{said}");
        assert!(
            said.contains("[REDACTED]") && said.contains("Number(7)"),
            "{said}"
        );
        assert!(!said.contains(DIGITS), "{said}");
    }
}

//= https://modelcontextprotocol.io/specification/2025-11-25/basic/authorization#token-requirements
//# Note that authorization MUST be included in every HTTP request from client to server, even if
//# they are part of the same logical session.
//= https://modelcontextprotocol.io/specification/2026-07-28/basic/authorization/index#token-requirements
//# Access token handling when making requests to MCP servers MUST conform to the requirements
//# defined in OAuth 2.1 Section 5 "Resource Requests".
//# MCP client MUST use the Authorization request header field defined in OAuth 2.1 Section 5.1.1:
//# Note that authorization MUST be included in every HTTP request from client to server.
/// H-7: a server that repeats the bearer token and the key of its HTTP transport, in a JSON-RPC
/// error, an event, a refusal, a challenge, and a result.
#[tokio::test]
async fn a_server_that_repeats_the_token_of_its_transport_shows_it_to_nobody() {
    let stack = ServiceBuilder::new()
        .layer(ToolResultLayer::new())
        .layer(TraceLayer::new())
        .service(server(KEY).await);
    for tool in [
        "error",
        "event",
        "status",
        "denied",
        "challenge",
        "text",
        "result",
    ] {
        let Ok(result) = stack.clone().oneshot(ToolCall::new(tool)).await;
        let mut said = format!("{result:?} {:?}", result.data().map(|answer| &**answer));
        said += &result.model_text();
        if let Some(error) = result.error() {
            said += &format!("{error} {error:?} {}", error.model_message());
            let mut cause = std::error::Error::source(error);
            while let Some(error) = cause {
                said += &format!(" {error} {error:?}");
                cause = error.source();
            }
        }
        assert_eq!(result.error().is_some(), tool != "result", "{said}");
        assert!(said.contains("[REDACTED]"), "{tool}: {said}");
        assert!(!said.contains("marmalade"), "{tool}: {said}");
    }
}
