//! What no well-behaved server sends, from a server that answers by script, line by line.

use std::time::Duration;

use rmcp::{ServiceExt as _, model::CallToolResponse};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tower::{ServiceBuilder, ServiceExt};
use tower_toolcall::{
    Classify, ErrorKind, Execution, ModelText as _, Outcome, ToolCall, ToolError,
    timeout::TimeoutLayer,
};
use tower_toolcall_mcp::{McpAnswer, McpClassifier, McpService};

/// Calls a tool of a server whose answer to `tools/call` is `answer`, its id filled in. `None`:
/// the server closes the connection instead.
async fn answer(answer: Option<Value>) -> Result<McpAnswer, ToolError> {
    let (theirs, ours) = tokio::io::duplex(64 * 1024);
    tokio::spawn(async move {
        let (read, mut write) = tokio::io::split(theirs);
        let mut lines = BufReader::new(read).lines();
        while let Some(line) = lines.next_line().await.unwrap() {
            let request: Value = serde_json::from_str(&line).unwrap();
            let mut reply = match request["method"].as_str() {
                Some("initialize") => json!({ "result": {
                    "protocolVersion": "2025-11-25",
                    "capabilities": { "tools": {} },
                    "serverInfo": { "name": "script", "version": "1" },
                }}),
                Some("tools/call") => match answer.clone() {
                    Some(answer) => answer,
                    None => return,
                },
                _ => continue,
            };
            reply["jsonrpc"] = "2.0".into();
            reply["id"] = request["id"].clone();
            write
                .write_all(format!("{reply}\n").as_bytes())
                .await
                .unwrap();
        }
    });
    let client = ().serve(ours).await.unwrap();
    ServiceBuilder::new()
        .layer(TimeoutLayer::new(Duration::from_secs(5)))
        .service(McpService::new(client.peer().clone()))
        .oneshot(ToolCall::new("t"))
        .await
}

async fn error(code: i32, message: &str) -> ToolError {
    let error = json!({ "error": { "code": code, "message": message } });
    answer(Some(error)).await.unwrap_err()
}

//= https://modelcontextprotocol.io/specification/2026-07-28/basic/index#error-codes
//# Apart from `-32002` (see below), receivers MUST NOT assume any specific meaning for these codes.
/// E2: a peer's codes are read by what they mean, the meaningless ones by their message.
#[tokio::test(start_paused = true)]
async fn error_codes_of_other_sdks() {
    for (code, message, kind) in [
        (-32602, "Unknown tool: t", ErrorKind::NotFound),
        (-32001, "Request timed out", ErrorKind::Timeout),
        (-32000, "Connection closed", ErrorKind::ConnectionFailed),
        (-32000, "Too Many Requests", ErrorKind::RateLimited),
        (-32603, "oops", ErrorKind::Upstream),
        (-32099, "oops", ErrorKind::Failed),
        (429, "slow down", ErrorKind::RateLimited),
    ] {
        assert_eq!(error(code, message).await.kind(), kind, "{code} {message}");
    }
}

/// M-1: the model is not told to correct its arguments.
#[tokio::test(start_paused = true)]
async fn errors_that_the_program_has_to_mend_are_not_the_models() {
    // M3: a caller that has declared less opens no breaker for the others.
    for (code, kind) in [
        (-32020, ErrorKind::Failed),
        (-32021, ErrorKind::Denied),
        (-32022, ErrorKind::Failed),
    ] {
        let error = error(code, "Mcp-Param-Owner is missing").await;
        assert_eq!(error.kind(), kind, "{code}");
        assert!(!error.is_retryable(), "{code}");
        assert!(error.message().contains("Mcp-Param-Owner"), "{error}");
        let text = error.model_message();
        assert!(text.contains("Other arguments will not help"), "{text}");
        assert!(!text.contains("Mcp-Param-Owner"), "{text}");
    }
}

/// Rule 9: a peer may echo what it was sent.
#[tokio::test(start_paused = true)]
async fn a_secret_in_a_peers_message_is_redacted() {
    let error = error(-32603, "denied for api_key=s3cr3t-canary").await;
    assert!(
        !format!("{error} {error:?}").contains("s3cr3t-canary"),
        "{error:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_task_is_handed_up_and_never_repeated() {
    let task = json!({ "result": {
        "resultType": "task", "taskId": "t-1", "status": "working",
        "createdAt": "2026-11-21T00:00:00Z", "lastUpdatedAt": "2026-11-21T00:00:00Z", "ttlMs": null,
    }});
    let response = answer(Some(task)).await.unwrap();
    assert!(
        matches!(*response, CallToolResponse::Task(_)),
        "{response:?}"
    );
    assert_eq!(
        McpClassifier::new().classify(Ok(&response)),
        Outcome::neutral()
    );
    assert!(response.model_text().contains("t-1"));
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_no_tool_result_is_reported_and_not_repeated() {
    let error = answer(Some(json!({ "result": { "tools": [] } })))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Reported);
    assert!(!error.is_retryable());
}

//= https://modelcontextprotocol.io/specification/2026-07-28/schema#inputrequiredresult
//# At least one of inputRequests or requestState MUST be present.
//= https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/mrtr#server-requirements-basic-workflow
//# Servers MUST include at least one of `inputRequests` or `requestState` in every
//# `InputRequiredResult` response.
/// MCP sch29, mrtr13: a question that asks nothing, and names no state, cannot be answered.
#[tokio::test(start_paused = true)]
async fn a_question_without_a_request_and_a_state_is_no_answer() {
    let asks = json!({ "resultType": "input_required", "inputRequests": {} });
    let error = answer(Some(json!({ "result": asks }))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Reported);
    let mut asks = asks;
    asks["requestState"] = "".into();
    let asked = answer(Some(json!({ "result": asks }))).await.unwrap();
    assert!(matches!(*asked, CallToolResponse::InputRequired(_)));
}

/// The tool ran and would run twice. The second one is the stand-in for a message that is
/// too large.
#[tokio::test(start_paused = true)]
async fn a_model_reads_that_a_tool_ran_whose_answer_cannot_be_used() {
    let large = json!({ "code": -32603, "message": "the message has more than 16 MiB", "data": "tower-toolcall/too_large" });
    for said in [
        json!({ "result": { "tools": [] } }),
        json!({ "error": large }),
    ] {
        let error = answer(Some(said)).await.unwrap_err();
        assert_eq!(error.execution(), Execution::Completed, "{error}");
        let text = error.model_message();
        assert!(text.contains("ran; its answer is unusable"), "{text}");
        assert!(text.contains("Do not repeat it if it changes"), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_closes_mid_call_leaves_open_whether_the_tool_ran() {
    let error = answer(None).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionFailed);
    assert_eq!(error.execution(), Execution::Unknown);
}

/// M-7: beside content, and where there is no content.
#[tokio::test(start_paused = true)]
async fn structured_content_of_null_is_absent() {
    let text = json!([{ "type": "text", "text": "done" }]);
    for (content, read) in [(text, "done"), (json!([]), "")] {
        let result = json!({ "content": content, "structuredContent": null });
        let response = answer(Some(json!({ "result": result }))).await.unwrap();
        assert_eq!(response.model_text(), read);
        let written = serde_json::to_value(response).unwrap();
        assert_eq!(written.get("structuredContent"), None);
    }
}

/// M-12: data beside a short text, and none twice where a text carries the same.
#[tokio::test(start_paused = true)]
async fn the_model_reads_structured_content_that_no_text_carries() {
    let rows = json!({ "rows": [{ "id": 7 }] });
    for (text, structured, read) in [
        ("1 row found", &rows, "1 row found\n{\"rows\":[{\"id\":7}]}"),
        ("sunny", &json!("18 degrees"), "sunny\n18 degrees"),
        (
            "{ \"rows\": [{ \"id\": 7 }] }",
            &rows,
            "{ \"rows\": [{ \"id\": 7 }] }",
        ),
        ("sunny", &json!({ "result": "sunny" }), "sunny"),
    ] {
        let content = json!([{ "type": "text", "text": text }]);
        let result = json!({ "content": content, "structuredContent": structured });
        let response = answer(Some(json!({ "result": result }))).await.unwrap();
        assert_eq!(response.model_text(), read);
    }
}

//= https://modelcontextprotocol.io/specification/2026-07-28/schema#result
//# For backward compatibility, when a client receives a result from a server implementing an
//# earlier protocol version (which does not include resultType), the client MUST treat the absent
//# field as "complete".
//= https://modelcontextprotocol.io/specification/2026-07-28/basic/index#resulttype
//# For backward compatibility with servers implementing earlier protocol versions, which do not
//# include `resultType`, clients MUST treat an absent `resultType` as `"complete"`.
/// E6: an absent flag is false, and content may be missing.
#[tokio::test(start_paused = true)]
async fn a_bare_result_is_a_success() {
    let response = answer(Some(json!({ "result": { "content": [] } })))
        .await
        .unwrap();
    assert_eq!(
        McpClassifier::new().classify(Ok(&response)),
        Outcome::success()
    );
    assert_eq!(response.model_text(), "");
}
