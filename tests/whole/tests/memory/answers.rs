//! Answers of an MCP server over HTTP.

use axum::{
    Json, Router,
    http::StatusCode,
    response::{IntoResponse as _, Response},
    routing::post,
};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tower::ServiceExt as _;
use tower_toolcall::{ErrorKind, Execution, ModelText as _, ToolCall, ToolError};
use tower_toolcall_mcp::McpServer;

use crate::{MB, counted, small_values};

fn text(id: &Value) -> String {
    let result = json!({ "content": [{ "type": "text", "text": "hello" }] });
    json!({ "jsonrpc": "2.0", "id": id, "result": result }).to_string()
}

/// The answer to a call with so much structured content.
fn values(id: &Value, content: &str) -> String {
    let result = format!(r#"{{"content":[],"structuredContent":{content}}}"#);
    format!(r#"{{"jsonrpc":"2.0","result":{result},"id":{id}}}"#)
}

fn of_json(status: u16, body: String) -> Response {
    let header = [("content-type", "application/json; charset=utf-8")];
    (StatusCode::from_u16(status).unwrap(), header, body).into_response()
}

fn of_events(events: &[String]) -> Response {
    let body = events.join("\r\n\r\n") + "\r\n\r\n";
    ([("content-type", "text/event-stream")], body).into_response()
}

/// A server that answers calls of `echo`, and all others like this.
async fn server(hostile: fn(&Value) -> Response) -> McpServer {
    let answer = move |Json(asked): Json<Value>| async move {
        let id = &asked["id"];
        let result = match asked["method"].as_str() {
            Some("initialize") => json!({
                "protocolVersion": "2025-11-25",
                "capabilities": { "tools": {} },
                "serverInfo": { "name": "hostile", "version": "1" },
            }),
            Some("tools/list") => json!({
                "tools": [{ "name": "echo", "inputSchema": {} }, { "name": "x", "inputSchema": {} }],
            }),
            Some("tools/call") if asked["params"]["name"] == "echo" => {
                return of_json(200, text(id));
            }
            Some("tools/call") => return hostile(id),
            _ if id.is_null() => return StatusCode::ACCEPTED.into_response(),
            _ => return StatusCode::BAD_REQUEST.into_response(),
        };
        of_json(
            200,
            json!({ "jsonrpc": "2.0", "id": id, "result": result }).to_string(),
        )
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let app = Router::new().route("/mcp", post(answer));
    tokio::spawn(async move { axum::serve(listener, app).await });
    McpServer::http("hostile", url)
}

async fn call(server: &McpServer, tool: &str) -> Result<String, ToolError> {
    let answer = server.clone().oneshot(ToolCall::new(tool)).await?;
    Ok(answer.model_text().to_string())
}

/// Returns the error of a call that is answered like this. The connection stays.
async fn refusal(hostile: fn(&Value) -> Response) -> ToolError {
    let server = server(hostile).await;
    let error = call(&server, "x").await.unwrap_err();
    assert_eq!(call(&server, "echo").await.unwrap(), "hello");
    error
}

/// S-1: as JSON, and as an event of a stream.
#[test]
fn an_answer_of_many_small_values_over_http_is_refused_before_it_is_parsed() {
    for hostile in [
        (|id| of_json(200, values(id, &small_values(1_900_000)))) as fn(&Value) -> Response,
        |id| of_events(&[format!("data: {}", values(id, &small_values(1_900_000)))]),
    ] {
        let taken = counted(async {
            let error = refusal(hostile).await;
            assert_eq!(error.kind(), ErrorKind::Reported, "{error}");
            assert_eq!(error.execution(), Execution::Completed, "{error}");
            let text = error.message();
            assert!(text.contains("more than 200000 values"), "{text}");
        });
        assert!(taken.bytes_max < 40 * MB, "{taken:?}");
    }
}

/// S-1: a notification before the answer is dropped, and the call is answered.
#[test]
fn a_notification_of_many_small_values_over_http_is_dropped() {
    let taken = counted(async {
        let server = server(|id| {
            let start = r#"data: {"jsonrpc":"2.0","method":"notifications/message","params":"#;
            let long = format!("{start}\r\ndata: {}}}", small_values(1_900_000));
            of_events(&[long, format!("data: {}", text(id))])
        });
        assert_eq!(call(&server.await, "x").await.unwrap(), "hello");
    });
    assert!(taken.bytes_max < 40 * MB, "{taken:?}");
}

/// S-1: the body of a status that is not successful.
#[test]
fn an_error_of_many_small_values_over_http_keeps_its_status() {
    let taken = counted(async {
        let error = refusal(|id| {
            let error = json!({ "code": -32602, "message": "no", "data": "VALUES" });
            let body = json!({ "jsonrpc": "2.0", "id": id, "error": error }).to_string();
            of_json(400, body.replace(r#""VALUES""#, &small_values(1_900_000)))
        });
        let error = error.await;
        assert_eq!(error.status().unwrap().as_u16(), 400, "{error}");
    });
    assert!(taken.bytes_max < 40 * MB, "{taken:?}");
}

/// S-1: bytes are bounded as over stdio.
#[test]
fn an_answer_that_is_too_long_over_http_is_an_error_of_its_call() {
    for hostile in [
        (|id| of_json(200, values(id, &json!("x".repeat(17 << 20)).to_string())))
            as fn(&Value) -> Response,
        |id| {
            let long = json!("x".repeat(17 << 20)).to_string();
            of_events(&[format!("data: {}", values(id, &long))])
        },
    ] {
        counted(async {
            let error = refusal(hostile).await;
            assert_eq!(error.kind(), ErrorKind::Reported, "{error}");
            assert!(error.message().contains("16 MiB"), "{error}");
        });
    }
}
