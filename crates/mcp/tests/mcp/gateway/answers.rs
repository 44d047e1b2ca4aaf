//! What clients are told when a call fails.

use std::time::Duration;

use rmcp::{
    model::{CallToolResponse, CreateTaskResult, ErrorCode, ErrorData},
    service::ServiceError,
};
use serde_json::{Value, json};
use tower::service_fn;
use tower_toolcall::{BoxError, ErrorKind, ReplaySafety, ToolCall, ToolError};
use tower_toolcall_mcp::{ERROR_META, GatewayHandler, McpAnswer};

use super::{
    kit::{WAYS, Way, connect, gateway},
    upstream::Upstream,
};

fn text(body: &Value) -> &str {
    assert_eq!(body["isError"], true, "{body}");
    body["content"][0]["text"].as_str().unwrap()
}

/// X4: as rmcp's own servers answer, with what is near.
#[tokio::test]
async fn a_tool_that_is_not_there_is_a_protocol_error_that_says_what_is_near() {
    let gateway = gateway().await;
    for way in WAYS {
        let client = connect(way, gateway.handler.clone()).await;
        let error = client.error("docs__eco").await;
        assert_eq!(error.code.0, -32602, "{way:?}");
        assert!(
            error.message.contains("Did you mean 'docs__echo'"),
            "{error:?}"
        );
        assert_eq!(error.data.unwrap()["code"], "TOOL_NOT_FOUND");
    }
    assert_eq!(gateway.upstream.begun(), 0);
}

/// A gateway behind a gateway, or our own leaf, reads it as what it is.
#[tokio::test]
async fn such_an_error_is_recognised_by_a_client_of_this_crate() {
    let gateway = gateway().await;
    let client = connect(Way::StreamModern, gateway.handler.clone()).await;
    let error = ToolError::from(Box::new(client.error("docs__eco").await) as BoxError);
    assert_eq!(error.kind(), ErrorKind::NotFound);
}

/// E5: code, message and data as the server has written them.
#[tokio::test]
async fn a_servers_protocol_error_goes_through() {
    for way in WAYS {
        let gateway = gateway().await;
        let through = connect(way, gateway.handler.clone()).await;
        let direct = connect(way, Upstream::default()).await;
        for (tool, flat) in [
            ("coded", "docs__coded"),
            ("invalid", "docs__invalid"),
            ("broken", "docs__broken"),
        ] {
            let through = through.body(flat, json!({})).await;
            assert_eq!(
                through,
                direct.body(tool, json!({})).await,
                "{way:?} {tool}"
            );
        }
    }
}

/// What a server says of the gateway's connection is not said of the client's.
#[tokio::test]
async fn an_error_of_the_gateways_own_connection_is_internal() {
    let gateway = gateway().await;
    *gateway.upstream.tools.lock().unwrap() = vec!["mismatch"];
    gateway
        .tools
        .tools()
        .refresh(gateway.behind.peer())
        .await
        .unwrap();
    let client = connect(Way::HttpModern, gateway.handler.clone()).await;
    let error = client.error("docs__mismatch").await;
    assert_eq!(error.code.0, -32603);
    assert!(!error.message.contains("who are you"));
}

/// The same of errors that clients' SDKs take for news of their own connection, session and
/// request.
#[tokio::test]
async fn a_session_that_the_gateway_has_lost_is_not_the_clients() {
    for (code, message, told) in [
        (-32000, "Bad Request: No valid session ID provided", true),
        (-32600, "Bad Request: Missing session ID", true),
        (-32000, "Connection closed", true),
        (-32001, "Request timed out", true),
        (-32000, "out of paper", false),
        (-32603, "connection closed by db", false),
    ] {
        let theirs = ErrorData::new(ErrorCode(code), message, None);
        let body = failing(move || ToolError::from(Box::new(theirs.clone()) as BoxError)).await;
        assert_eq!(body["isError"] == true, told, "{code} {message}: {body}");
        assert_eq!(body["code"] == code, !told, "{code} {message}: {body}");
    }
}

/// E5, T4: the text is for the model; programs read the rest in `_meta`. The breaker behind it
/// opens.
#[tokio::test]
async fn a_timeout_and_then_an_open_breaker_are_told_to_the_model() {
    for way in WAYS {
        let gateway = gateway().await;
        let client = connect(way, gateway.handler.clone()).await;
        for _failure in 0..3 {
            let body = client.body("docs__hang", json!({})).await;
            assert!(text(&body).contains("timed out"), "{way:?} {body}");
            let facts = &body["_meta"][ERROR_META];
            assert_eq!(facts["code"], "TOOL_TIMEOUT", "{way:?}");
            assert_eq!(facts["timeout_ms"], 300);
        }
        let body = client.body("docs__hang", json!({})).await;
        assert!(text(&body).contains("switched off"), "{way:?} {body}");
        let facts = &body["_meta"][ERROR_META];
        assert_eq!(facts["code"], "CIRCUIT_OPEN", "{way:?}");
        assert!(facts["retry_after_seconds"].as_u64().unwrap() >= 1);
        assert_eq!(facts["retryable"], true);
        gateway.upstream.until_cancelled(3).await;
        assert_eq!(gateway.upstream.begun(), 3);
    }
}

async fn failing(error: impl Fn() -> ToolError + Clone + Send + Sync + 'static) -> Value {
    let stack = service_fn(move |_: ToolCall| {
        let error = error();
        async move { Err::<McpAnswer, _>(error) }
    });
    let client = connect(Way::StreamModern, GatewayHandler::new(stack, Vec::new)).await;
    client.body("pay", json!({})).await
}

//= https://modelcontextprotocol.io/specification/2026-07-28/schema#calltoolresult
//# Any errors that originate from the tool SHOULD be reported inside the result object, with
//# isError set to true, not as an MCP protocol-level error response.
//= https://modelcontextprotocol.io/specification/2026-07-28/basic/index#error-codes
//# New error codes for purposes not defined by this specification SHOULD be allocated outside the
//# JSON-RPC reserved range (`-32768` to `-32000`); the remainder of the integer space is available
//# for application-defined errors.
/// §7.3: of every kind the model reads what it should do; only a tool that is not there is a
/// protocol error.
#[tokio::test]
async fn every_kind_of_error_is_a_text_for_the_model() {
    for &kind in ErrorKind::ALL {
        let error =
            move || ToolError::new(kind, "no city").with_retry_after(Duration::from_secs(7));
        let body = failing(error).await;
        let expected = error().with_tool("pay").model_message();
        match kind {
            ErrorKind::NotFound => assert_eq!(body["code"], -32602),
            _ => {
                assert_eq!(text(&body), expected);
                assert_eq!(body["_meta"][ERROR_META]["code"], kind.code());
                assert_eq!(body["_meta"][ERROR_META]["retry_after_seconds"], 7);
            }
        }
    }
}

/// P9: an MCP client does not read that it may repeat a payment; and the second case, an answer
/// that was lost.
#[tokio::test]
async fn an_unsafe_call_that_may_have_run_is_not_retryable() {
    for (kind, safety, retryable) in [
        (ErrorKind::Timeout, ReplaySafety::Unsafe, false),
        (ErrorKind::ConnectionFailed, ReplaySafety::Unsafe, false),
        (ErrorKind::Timeout, ReplaySafety::Unknown, true),
    ] {
        let call = ToolCall::new("pay").with_replay_safety(safety).info();
        let body = failing(move || ToolError::new(kind, "late").for_call(&call)).await;
        let facts = &body["_meta"][ERROR_META];
        assert_eq!(facts["retryable"], retryable, "{kind:?} {safety:?}");
        assert_eq!(facts["execution"], "unknown");
        assert_eq!(text(&body).contains("Do not repeat"), !retryable, "{body}");
    }
}

/// A 404 is what a tool did not find, not the tool.
#[tokio::test]
async fn a_tool_that_finds_nothing_is_there_all_the_same() {
    let body = failing(|| ToolError::from_status(http::StatusCode::NOT_FOUND, "no page")).await;
    assert!(text(&body).contains("did not find"), "{body}");
}

/// N3: nothing of what developers read goes out, and texts that somebody has set are redacted.
#[tokio::test]
async fn nothing_internal_and_no_secret_goes_out() {
    let secret = concat!("Bear", "er abcdefghijklmnop0123456789");
    let body = failing(move || {
        ToolError::new(ErrorKind::Upstream, "connect to db.internal:5432")
            .with_body("stack trace of db.internal")
            .with_detail("host", "db.internal")
            .with_source("db.internal")
            .with_model_message(format!("Ask again with Authorization: {secret}"))
    })
    .await;
    let body = body.to_string();
    assert!(!body.contains("db.internal"), "{body}");
    assert!(!body.contains("abcdefghijklmnop"), "{body}");
}

/// A panic anywhere in the stack is an answer, and the session lives on.
#[tokio::test]
async fn a_panic_is_an_answer_and_the_session_goes_on() {
    let stack = service_fn(|call: ToolCall| async move {
        if call.tool() == "buggy" {
            panic!("index out of bounds of db.internal");
        }
        Ok::<_, BoxError>(rmcp::model::CallToolResult::success(vec![]).into())
    });
    let handler = GatewayHandler::new(stack, || panic!("no list"));
    for way in WAYS {
        let client = connect(way, handler.clone()).await;
        let body = client.body("buggy", json!({})).await;
        assert!(text(&body).contains("internal error"), "{way:?} {body}");
        assert!(!body.to_string().contains("db.internal"));
        assert!(client.client.peer().list_all_tools().await.is_err());
        assert_eq!(client.body("fine", json!({})).await["isError"], false);
    }
}

//= https://modelcontextprotocol.io/specification/2026-07-28/basic/versioning#extension-negotiation
//# If one party supports an extension but the other does not, the supporting party MUST either
//# revert to core protocol behavior or reject the request with an appropriate error.
//= https://github.com/modelcontextprotocol/ext-tasks/blob/main/specification/draft/tasks.md#capability-negotiation
//# A server MUST NOT return `CreateTaskResult` to a client that did not include the extension
//# capability on its request, regardless of prior declarations.
/// A task is known to its server alone, and is not promised to the client.
#[tokio::test]
async fn a_task_is_a_clear_error() {
    let stack = service_fn(|_: ToolCall| async {
        let task = json!({
            "resultType": "task", "taskId": "t-1", "status": "working", "ttlMs": null,
            "createdAt": "2026-07-28T00:00:00Z", "lastUpdatedAt": "2026-07-28T00:00:00Z",
        });
        let task: CreateTaskResult = serde_json::from_value(task).unwrap();
        Ok::<_, BoxError>(McpAnswer::from(CallToolResponse::Task(task)))
    });
    let client = connect(Way::StreamModern, GatewayHandler::new(stack, Vec::new)).await;
    let body = client.body("import", json!({})).await;
    assert!(text(&body).contains("may still run"), "{body}");
    assert_eq!(body["_meta"][ERROR_META]["code"], "TASK_NOT_PASSED_ON");
}

/// What it does not declare does not exist: a client that asks all the same is told so, and goes
/// on.
#[tokio::test]
async fn prompts_and_resources_are_unknown_methods() {
    for way in WAYS {
        let gateway = gateway().await;
        let client = connect(way, gateway.handler.clone()).await;
        let peer = client.client.peer();
        let capabilities = peer.peer_info().unwrap().capabilities.clone();
        assert!(capabilities.tools.is_some());
        assert!(capabilities.prompts.is_none() && capabilities.resources.is_none());
        for refused in [
            peer.list_prompts(None).await.map(drop),
            peer.list_resources(None).await.map(drop),
            peer.list_resource_templates(None).await.map(drop),
        ] {
            let Err(ServiceError::McpError(error)) = refused else {
                panic!("{way:?} {refused:?}");
            };
            assert_eq!(error.code.0, -32601, "{way:?}");
        }
        let body = client.body("docs__echo", json!({})).await;
        assert_eq!(body["content"][0]["text"], "{}", "{way:?}");
    }
}
