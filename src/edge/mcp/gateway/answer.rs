use rmcp::model::{
    CallToolResponse, CallToolResult, ContentBlock, ErrorCode, ErrorData, MetaObject, ResultType,
};
use serde_json::Value;

use crate::{
    call::CallInfo,
    edge::mcp::errors,
    error::{ErrorKind, Execution, ToolError},
};

/// The key in a result's `_meta` under which a [`GatewayHandler`](super::GatewayHandler) tells
/// programs what it tells the model in words: the error's code, and what else is known of it.
pub const ERROR_META: &str = "tower-toolcall/error";

/// The answer to a request that its client has cancelled. The client may not read it.
pub(super) fn cancelled() -> ErrorData {
    ErrorData::internal_error("the request was cancelled", None)
}

/// The stack's answer or error, as a client gets it.
pub(super) fn of(
    result: Result<CallToolResponse, ToolError>,
    call: &CallInfo,
) -> Result<CallToolResponse, ErrorData> {
    match result {
        Ok(CallToolResponse::Complete(mut result)) => {
            // Servers of older revisions do not say it, clients of the newer one expect it; rmcp
            // takes it away for others.
            result.result_type.get_or_insert(ResultType::COMPLETE);
            Ok(result.into())
        }
        Ok(CallToolResponse::Task(_)) => of_error(&task().for_call(call)),
        Ok(response) => Ok(response),
        Err(error) => of_error(&error.for_call(call)),
    }
}

/// The error for a task. It is known to its server alone: a client could not ask the gateway for
/// it.
fn task() -> ToolError {
    ToolError::new(
        ErrorKind::PollTimeout,
        "the tool has started a task, which a gateway cannot pass on",
    )
    .with_code("TASK_NOT_PASSED_ON")
    .with_execution(Execution::Unknown)
    .with_retryable(false)
}

fn of_error(error: &ToolError) -> Result<CallToolResponse, ErrorData> {
    let theirs = errors::protocol_error(error);
    if let Some(theirs) = theirs.filter(|theirs| !is_lost(theirs.code, error.kind())) {
        return Err(passed_on(theirs, error));
    }
    let text = error.public_model_message();
    let facts = Value::Object(error.public_body());
    // A status tells of what a tool looked for, not of the tool.
    if error.kind() == ErrorKind::NotFound && error.status().is_none() {
        return Err(ErrorData::invalid_params(text, Some(facts)));
    }
    let mut result = CallToolResult::error(vec![ContentBlock::text(text)]);
    let mut meta = MetaObject::default();
    meta.0.insert(ERROR_META.to_owned(), facts);
    result.meta = Some(meta);
    Ok(result.into())
}

/// Returns `true` for the words of a lost connection, an unknown session or a late answer. Clients
/// would take the gateway's for their own: to SDKs the first two codes say so, regardless of the
/// sender.
fn is_lost(code: ErrorCode, kind: ErrorKind) -> bool {
    let is_theirs_too = matches!(code.0, -32000 | -32001 | -32600);
    is_theirs_too && matches!(kind, ErrorKind::ConnectionFailed | ErrorKind::Timeout)
}

/// The JSON-RPC error of the tool's server, as a client gets it.
fn passed_on(theirs: &ErrorData, error: &ToolError) -> ErrorData {
    match theirs.code {
        // These tell of the gateway's own connection to that server; a client would take them for
        // its own.
        ErrorCode::HEADER_MISMATCH
        | ErrorCode::MISSING_REQUIRED_CLIENT_CAPABILITY
        | ErrorCode::UNSUPPORTED_PROTOCOL_VERSION => {
            let facts = Value::Object(error.public_body());
            ErrorData::internal_error(
                "the tool's server refused the gateway's request",
                Some(facts),
            )
        }
        _ => theirs.clone(),
    }
}
