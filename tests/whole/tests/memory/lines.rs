//! Messages of MCP servers and clients over stdio.

use std::time::Duration;

use rmcp::{
    ServiceExt as _,
    model::{CallToolResult, ContentBlock, Tool},
};
use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    time::timeout,
};
use tower::{ServiceExt as _, service_fn};
use tower_toolcall::{AnyError, ErrorKind, Execution, ModelText as _, ToolCall, ToolError};
use tower_toolcall_mcp::{GatewayHandler, McpAnswer, McpLines, McpServer};

use crate::{MB, counted, small_values};

/// A server that answers calls of `echo`, and writes to all others what `answer` makes of their id.
fn server(answer: &str) -> McpServer {
    let script = r#"
import json, sys

def say(id, result):
    print(json.dumps({"jsonrpc": "2.0", "id": id, **result}), flush=True)

def hostile(id):
    ANSWER

for line in sys.stdin:
    ask = json.loads(line)
    method, id = ask.get("method"), ask.get("id")
    if id is None:
        continue
    if method == "initialize":
        info = {"name": "hostile", "version": "1"}
        start = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}
        say(id, {"result": start})
    elif method == "tools/list":
        tools = [{"name": name, "inputSchema": {"type": "object"}} for name in ("echo", "hostile")]
        say(id, {"result": {"tools": tools}})
    elif method != "tools/call":
        say(id, {"error": {"code": -32601, "message": "Method not found"}})
    elif ask["params"]["name"] == "echo":
        say(id, {"result": {"content": [{"type": "text", "text": "hello"}]}})
    else:
        hostile(id)
"#;
    McpServer::command(
        "hostile",
        "python3",
        ["-c", &script.replace("ANSWER", answer)],
    )
}

/// The error of a call whose answer is hostile.
async fn refusal(server: &McpServer) -> ToolError {
    let call = server.clone().oneshot(ToolCall::new("hostile"));
    let answer = timeout(Duration::from_secs(60), call).await;
    let answer = answer.expect("the call waits forever");
    answer.map(drop).unwrap_err()
}

async fn echo(server: &McpServer) -> Result<String, ToolError> {
    let answer = server.clone().oneshot(ToolCall::new("echo")).await?;
    Ok(answer.model_text().to_string())
}

/// S-1: a message of 2 MB of small values is an error of its call, and the connection stays.
#[test]
fn an_answer_of_many_small_values_over_stdio_is_refused_before_rmcp_parses_it() {
    let taken = counted(async {
        let values = r#"print('{"jsonrpc":"2.0","id":%s,"result":{"content":[],"structuredContent":{"a":[0%s]}}}' % (json.dumps(id), ",0" * 1000000), flush=True)"#;
        let server = server(values);
        let error = refusal(&server).await;
        assert_eq!(error.kind(), ErrorKind::Reported, "{error}");
        assert_eq!(error.execution(), Execution::Completed, "{error}");
        assert!(
            error.message().contains("more than 200000 values"),
            "{error}"
        );
        assert_eq!(echo(&server).await.unwrap(), "hello");
    });
    assert!(taken.bytes_max < 40 * MB, "{taken:?}");
}

/// S-1: as many values as are taken, in the shape that takes most memory.
#[test]
fn an_answer_of_the_worst_values_that_are_taken_over_stdio_is_bounded() {
    let taken = counted(async {
        let values = r#"print('{"jsonrpc":"2.0","id":%s,"result":{"content":[],"structuredContent":{"a":[0%s]}}}' % (json.dumps(id), (',' + '{"a":' * 10 + '0' + '}' * 10) * 9500), flush=True)"#;
        let answer = server(values).oneshot(ToolCall::new("hostile")).await;
        assert!(answer.is_ok());
    });
    assert!(taken.bytes_max < 120 * MB, "{taken:?}");
}

/// S-1: the id of the call stands at the end of the line, as the TypeScript SDK writes it.
#[test]
fn an_answer_that_is_too_long_over_stdio_is_an_error_of_its_call() {
    let taken = counted(async {
        let long = r#"print('{"result":{"content":[{"type":"text","text":"{\\"id\\":7,%s"}]},"jsonrpc":"2.0","id":%s}' % ("x" * 20000000, json.dumps(id)), flush=True)"#;
        let server = server(long);
        let error = refusal(&server).await;
        assert_eq!(error.kind(), ErrorKind::Reported, "{error}");
        assert!(error.message().contains("16 MiB"), "{error}");
        assert_eq!(echo(&server).await.unwrap(), "hello");
    });
    assert!(taken.bytes_max < 40 * MB, "{taken:?}");
}

/// S-1: a line without an end takes no more memory than a long one, and ends the connection.
#[test]
fn an_endless_line_over_stdio_ends_the_connection() {
    let taken = counted(async {
        let server = server(r#"while True: sys.stdout.write("x" * 65536)"#);
        let error = refusal(&server).await;
        assert_eq!(error.kind(), ErrorKind::ConnectionFailed, "{error}");
    });
    assert!(taken.bytes_max < 40 * MB, "{taken:?}");
}

/// S-1: a gateway's client over stdio.
#[test]
fn a_request_of_many_small_values_over_stdio_is_refused_before_rmcp_parses_it() {
    let taken = counted(async {
        let tool = service_fn(|_: ToolCall| async {
            let text = vec![ContentBlock::text("done")];
            Ok::<_, AnyError>(McpAnswer::from(CallToolResult::success(text)))
        });
        let list = || vec![Tool::new("a", "", std::sync::Arc::default())];
        let gateway = GatewayHandler::new(tool, list);
        let (theirs, ours) = tokio::io::duplex(64 * 1024);
        let (reads, writes) = tokio::io::split(theirs);
        tokio::spawn(async move {
            gateway
                .serve((McpLines::new(reads), writes))
                .await?
                .waiting()
                .await
                .map_err(anyhow::Error::from)
        });
        let (answers, mut ask) = tokio::io::split(ours);
        let mut answers = BufReader::new(answers).lines();
        let start = r#"{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"c","version":"1"}}"#;
        let values = small_values(2_000_000);
        let long = r#"{"name":"a","arguments":"#.to_owned() + &values + "}";
        let mut messages = Vec::new();
        for (id, method, params) in [
            (1, "initialize", start),
            (2, "tools/call", &*long),
            (3, "tools/call", r#"{"name":"a"}"#),
        ] {
            let line =
                format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#);
            ask.write_all(line.as_bytes()).await.unwrap();
            ask.write_all(b"\n").await.unwrap();
            let answer = answers.next_line().await.unwrap().unwrap();
            let answer: Value = serde_json::from_str(&answer).unwrap();
            assert_eq!(answer["id"], id, "{answer}");
            messages.push(answer);
            if id == 1 {
                let ready = "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n";
                ask.write_all(ready.as_bytes()).await.unwrap();
            }
        }
        assert_eq!(messages[1]["error"]["code"], -32600, "{}", messages[1]);
        let said = messages[1]["error"]["message"].as_str().unwrap();
        assert!(said.contains("more than 200000 values"), "{said}");
        assert_eq!(messages[2]["result"]["content"][0]["text"], "done");
    });
    assert!(taken.bytes_max < 40 * MB, "{taken:?}");
}
