//! `retryable` and `execution`, side by side in every form of an error.

use serde_json::{Value, json};
use tonic::Status;
use tonic_types::StatusExt as _;
use tower::{Service, ServiceBuilder, ServiceExt, service_fn};
use tower_toolcall::{
    ErrorKind, Execution, ReplaySafety, ServiceBuilderExt as _, ToolCall, ToolError,
    result::ToolResultLayer,
};

use crate::kit::{Server, Stack, Tools, axum_of, ms, post, seen};

/// Tools that fail after they have begun; `refused_*` have not. `*_money` must not run twice.
async fn run(call: ToolCall) -> Result<Value, ToolError> {
    match call.tool() {
        "pay_money" | "search" => std::future::pending().await,
        "send_money" => Err(ToolError::new(ErrorKind::ConnectionFailed, "reset")),
        "limit_money" => Err(ToolError::new(ErrorKind::RateLimited, "slow down")
            .with_execution(Execution::Completed)),
        "refused_money" => Err(ToolError::refusal(ErrorKind::Overloaded, "full")),
        other => Err(ToolError::new(ErrorKind::Failed, other.to_owned())),
    }
}

fn marked(call: ToolCall) -> ToolCall {
    match call.tool().ends_with("_money") {
        true => call.with_replay_safety(ReplaySafety::Unsafe),
        false => call,
    }
}

fn tools()
-> impl Service<ToolCall, Response = Value, Error = ToolError, Future: Send> + Clone + Send + Sync {
    ServiceBuilder::new()
        .map_request(marked)
        .tool_timeout(ms(20))
        .service(service_fn(run))
}

async fn server() -> Server {
    axum_of(Tools::default(), Stack::new(tools())).await
}

/// The tool, `retryable`, `execution`.
const ENDS: &[(&str, bool, &str)] = &[
    ("pay_money", false, "unknown"),
    ("send_money", false, "unknown"),
    ("limit_money", false, "completed"),
    ("refused_money", true, "not_started"),
    ("search", true, "unknown"),
];

fn checks(form: &str, tool: &str, body: &Value, retryable: bool, execution: &str) {
    assert_eq!(body["retryable"], retryable, "{form} of {tool}: {body}");
    assert_eq!(body["execution"], execution, "{form} of {tool}: {body}");
}

/// P9: an HTTP client does not read that it may repeat a payment.
#[tokio::test]
async fn an_unsafe_call_that_may_have_run_is_not_retryable_over_http() {
    let server = server().await;
    for &(tool, retryable, execution) in ENDS {
        let got = seen(post(&server.url(&format!("/tools/{tool}/call")), "{}")).await;
        checks("HTTP", tool, &got.body["error"], retryable, execution);
    }
}

/// P9: likewise over JSON-RPC.
#[tokio::test]
async fn an_unsafe_call_that_may_have_run_is_not_retryable_over_json_rpc() {
    let server = server().await;
    for &(tool, retryable, execution) in ENDS {
        let body = json!({
            "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": { "name": tool },
        });
        let got = seen(post(&server.url("/rpc"), body.to_string())).await;
        let data = &got.body["error"]["data"];
        checks("JSON-RPC", tool, data, retryable, execution);
    }
}

/// P9: likewise over gRPC, in a serialised error and in a serialised result. The text for the model
/// says the same.
#[tokio::test]
async fn an_unsafe_call_that_may_have_run_is_not_retryable_in_any_form() {
    for &(tool, retryable, execution) in ENDS {
        let error = tools().oneshot(ToolCall::new(tool)).await.unwrap_err();
        assert_eq!(error.is_retryable(), retryable, "{tool}");
        let json = serde_json::to_value(&error).unwrap();
        checks("an error", tool, &json, retryable, execution);
        let text = error.model_message();
        assert_eq!(text.contains("Do not repeat"), !retryable, "{text}");

        let info = Status::from(error).get_details_error_info().unwrap();
        assert_eq!(info.metadata["retryable"], retryable.to_string(), "{tool}");
        assert_eq!(info.metadata["execution"], execution, "{tool}");

        let results = ServiceBuilder::new()
            .layer(ToolResultLayer::new())
            .service(tools());
        let Ok(result) = results.oneshot(ToolCall::new(tool)).await;
        let json = serde_json::to_value(&result).unwrap();
        checks("a result", tool, &json["error"], retryable, execution);
    }
}
