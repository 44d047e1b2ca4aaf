use std::error::Error as StdError;

use rmcp::{
    model::ErrorData,
    service::{ClientInitializeError, ServiceError},
    transport::DynamicTransportError,
};

use crate::{
    error::{ErrorKind, Execution, ToolError, told},
    hint,
};

/// What an error of rmcp means; `None` for an error of another crate. With the feature `mcp-http`,
/// errors of reqwest are recognised as well.
///
/// | error | kind | did the tool run? |
/// |---|---|---|
/// | `McpError` -32602, "tool not found" and the like; -32601 | `NotFound` | no |
/// | `McpError` -32700, -32600, -32602, -32020 to -32022 | `InvalidInput` | no |
/// | `McpError` -32042 (the user has to open a URL) | `Denied` | no |
/// | `McpError` -32800 | `Cancelled` | unknown |
/// | `McpError` -32000 or -32600, "Bad Request: No valid session ID" and the like | `ConnectionFailed` | unknown |
/// | `McpError` with a code that is an HTTP status | that status' kind | by the kind if the message says nothing else, else unknown |
/// | `McpError` -32603 | a rate limit or timeout by its message, else `Upstream` | unknown; a message that is nothing but a rate limit: no |
/// | any other `McpError`, -32000 and -32001 too | by its message, else `Failed`, retryable | the same |
/// | `TransportSend`, over HTTP (feature `mcp-http`) | the status' kind, with `Retry-After` | 429: no, 503 with a delay: no, else unknown |
/// | `TransportSend`, could not connect (feature `mcp-http`) | `ConnectionFailed` | no |
/// | `TransportSend` otherwise, `TransportClosed` | `ConnectionFailed` | unknown |
/// | `ClientInitializeError`: of its transport, or of the server | that error's kind | the same |
/// | `Timeout` | `Timeout` | unknown |
/// | `Cancelled` | `Cancelled` | unknown |
/// | `UnexpectedResponse`, an answer over the size limit | `Reported` | yes |
///
/// -32000 and -32001 have no meaning of their own when a peer sends them (the specification of
/// 2026-07-28 keeps them for old SDKs), so the message decides.
pub fn recognise(error: &(dyn StdError + 'static)) -> Option<ToolError> {
    if let Some(error) = error.downcast_ref::<ServiceError>() {
        return Some(service(error));
    }
    if let Some(error) = error.downcast_ref::<ErrorData>() {
        return Some(protocol(error));
    }
    if let Some(error) = error.downcast_ref::<ClientInitializeError>() {
        return connecting(error);
    }
    #[cfg(feature = "mcp-http")]
    if let Some(known) = super::http::recognise(error) {
        return Some(known);
    }
    None
}

/// The error, with rmcp's as its source.
pub(super) fn from_service(error: ServiceError) -> ToolError {
    service(&error).with_source(error)
}

/// The JSON-RPC error that the server answered with, if that is the error's cause.
pub(super) fn protocol_error(error: &ToolError) -> Option<&ErrorData> {
    let source = StdError::source(error)?;
    match source.downcast_ref() {
        Some(ServiceError::McpError(answer)) => Some(answer),
        Some(_) => None,
        None => source.downcast_ref(),
    }
}

pub(super) fn protocol_code(error: &ToolError) -> Option<i32> {
    protocol_error(error).map(|answer| answer.code.0)
}

/// Whether the server says that it does not know the session, which is lost then. The specification asks for a status of
/// 404, which rmcp sees to. Servers made after an example of the TypeScript SDK answer with 400 and an `McpError`; no
/// tool's own words are as these.
pub(super) fn is_session_refused(error: &ErrorData) -> bool {
    matches!(error.code.0, -32000 | -32600) && is_about_session(&error.message)
}

/// The same for the text of an answer with the status 400.
pub(super) fn is_about_session(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    text.starts_with("bad request") && text.contains("session")
}

/// A connection that has not come about; `None` if the text alone can tell.
fn connecting(error: &ClientInitializeError) -> Option<ToolError> {
    match error {
        ClientInitializeError::TransportError { error, .. } => Some(transport(error)),
        ClientInitializeError::JsonRpcError(error) => Some(protocol(error)),
        ClientInitializeError::LegacyFallbackFailed { fallback, .. } => connecting(fallback),
        _ => None,
    }
}

fn transport(failed: &DynamicTransportError) -> ToolError {
    #[cfg(feature = "mcp-http")]
    if let Some(known) = super::http::recognise(&*failed.error) {
        return known;
    }
    let message = failed.error.to_string();
    let kind = match ToolError::from_text(&message) {
        Some(known) => known.kind(),
        None => ErrorKind::ConnectionFailed,
    };
    ToolError::new(kind, message).with_execution(Execution::Unknown)
}

fn service(error: &ServiceError) -> ToolError {
    match error {
        ServiceError::McpError(error) => protocol(error),
        ServiceError::TransportSend(failed) => transport(failed),
        ServiceError::TransportClosed => ToolError::new(
            ErrorKind::ConnectionFailed,
            "the connection to the MCP server is closed",
        ),
        ServiceError::Timeout { .. } => ToolError::new(ErrorKind::Timeout, error.to_string()),
        ServiceError::Cancelled { .. } => ToolError::new(ErrorKind::Cancelled, error.to_string()),
        ServiceError::UnexpectedResponse => ToolError::new(
            ErrorKind::Reported,
            "the MCP server answered with something that is no tool result",
        ),
        other => ToolError::new(ErrorKind::Failed, other.to_string()),
    }
}

fn protocol(error: &ErrorData) -> ToolError {
    let known = by_code(error);
    let told = told(known.kind(), || {
        let data = error.data.as_ref().and_then(hint::from_json);
        data.or_else(|| hint::from_text(&error.message))
    });
    // A hint says when to come back, and nothing of whether the tool has run.
    let execution = known.execution();
    known.hinted(told).with_execution(execution)
}

fn by_code(error: &ErrorData) -> ToolError {
    let code = error.code.0;
    let message = || format!("MCP error {code}: {}", error.message);
    // The message alone: in `MCP error -32603` the number is no status.
    let by_text = ToolError::from_text(&error.message);
    let by_text_kind = by_text.as_ref().map(ToolError::kind);
    let kind = match code {
        _ if is_session_refused(error) => ErrorKind::ConnectionFailed,
        -32602 if by_text_kind == Some(ErrorKind::NotFound) => ErrorKind::NotFound,
        -32601 => ErrorKind::NotFound,
        -32700 | -32600 | -32602 | -32022..=-32020 => ErrorKind::InvalidInput,
        -32042 => ErrorKind::Denied,
        -32800 => ErrorKind::Cancelled,
        400..=599 => return as_status(code, error, message()),
        _ => return ambiguous(code, by_text, message()),
    };
    ToolError::new(kind, message())
}

/// A code that is an HTTP status, often that of something beyond the server. That the tool did not run
/// is believed only if the message says nothing else.
fn as_status(code: i32, error: &ErrorData, message: String) -> ToolError {
    let status = u16::try_from(code).ok();
    let Some(status) = status.and_then(|s| http::StatusCode::from_u16(s).ok()) else {
        return ToolError::new(ErrorKind::Failed, message);
    };
    let bare = ToolError::from_text(&format!("HTTP {code}: {}", error.message));
    let execution = bare.map_or(Execution::Unknown, |e| e.execution());
    ToolError::from_status(status, message).with_execution(execution)
}

/// A code that says little. The server was reached, so the tool may have run, whatever the message
/// tells of connections beyond it.
fn ambiguous(code: i32, by_text: Option<ToolError>, message: String) -> ToolError {
    let (kind, execution) = match by_text.map(|e| (e.kind(), e.execution())) {
        // A message that is nothing but a rate limit: it was turned away.
        Some(known @ (ErrorKind::RateLimited | ErrorKind::Timeout, _)) => known,
        _ if code == -32603 => (ErrorKind::Upstream, Execution::Unknown),
        Some((kind, _)) => (kind, Execution::Unknown),
        // Nobody knows what it means: it counts for the tool alone, and a repeat may help.
        None => {
            return ToolError::new(ErrorKind::Failed, message)
                .with_execution(Execution::Unknown)
                .with_retryable(true);
        }
    };
    ToolError::new(kind, message).with_execution(execution)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use rmcp::model::ErrorCode;
    use serde_json::json;

    fn mcp(code: i32, message: &'static str) -> ToolError {
        from_service(ServiceError::McpError(ErrorData::new(
            ErrorCode(code),
            message,
            None,
        )))
    }

    /// L2: in `data`, or else in the text.
    #[test]
    fn the_hint_of_a_rate_limit_is_read() {
        let data = |data| ErrorData::new(ErrorCode(429), "slow down", data);
        for (error, seconds) in [
            (data(Some(json!({ "retryAfter": 12 }))), Some(12)),
            (
                ErrorData::new(
                    ErrorCode(-32603),
                    "rate limit exceeded, try again in 20s",
                    None,
                ),
                Some(20),
            ),
            (data(None), None),
            (
                ErrorData::new(ErrorCode(404), "try again in 20s", None),
                None,
            ),
        ] {
            let error = from_service(ServiceError::McpError(error));
            assert_eq!(error.retry_after(), seconds.map(Duration::from_secs));
        }
    }

    /// E2: MCP errors by code; a peer's -32000 and -32001 are decided by their message.
    #[test]
    fn protocol_errors_are_recognised() {
        use ErrorKind::*;
        for (code, message, kind) in [
            (-32602, "tool not found", NotFound),
            (-32602, "Unknown tool: x", NotFound),
            (-32602, "Tool nope not found", NotFound),
            (-32602, "Tool 'a.b' not found", NotFound),
            (
                -32602,
                "Tool 'eco' does not exist. Did you mean 'echo'?",
                NotFound,
            ),
            (-32602, "Tool 'a' said: file 'b' not found", InvalidInput),
            (-32602, "missing field `city`", InvalidInput),
            (-32700, "Parse error", InvalidInput),
            (-32601, "Method not found", NotFound),
            (-32603, "Internal error", Upstream),
            (-32603, "rate limit exceeded", RateLimited),
            (-32000, "Connection closed", ConnectionFailed),
            (-32000, "Server not initialized", Failed),
            (
                -32000,
                "Bad Request: No valid session ID provided",
                ConnectionFailed,
            ),
            (-32600, "Bad Request: Missing session ID", ConnectionFailed),
            (-32000, "browser session not found", Failed),
            (-32602, "Bad Request: no such session", InvalidInput),
            (-32001, "Request timed out", Timeout),
            (-32001, "Header mismatch", Failed),
            (-32800, "Request cancelled", Cancelled),
            (-32042, "URL elicitation required", Denied),
            (429, "slow down", RateLimited),
            (7, "who knows", Failed),
        ] {
            assert_eq!(mcp(code, message).kind(), kind, "{code} {message}");
        }
    }

    /// R6: the server was reached, so what its message says of others proves nothing.
    #[test]
    fn a_peers_answer_proves_that_the_tool_did_not_run_only_if_it_says_nothing_else() {
        for (code, message, kind) in [
            (
                -32603,
                "payment captured, but the ledger is down: connect ECONNREFUSED 10.0.0.7:5432",
                ErrorKind::Upstream,
            ),
            (
                -32000,
                "charged; then mail API said 429 Too Many Requests",
                ErrorKind::RateLimited,
            ),
            (
                -32603,
                "saved 3 of 5 rows: validation failed",
                ErrorKind::Upstream,
            ),
            (
                -32603,
                "tool ran; file x.csv not found",
                ErrorKind::Upstream,
            ),
            (
                -32000,
                "connect ECONNREFUSED 10.0.0.7:5432",
                ErrorKind::ConnectionFailed,
            ),
        ] {
            let error = mcp(code, message);
            assert_eq!(
                (error.kind(), error.execution()),
                (kind, Execution::Unknown),
                "{message}"
            );
        }
        for (code, message) in [
            (429, "charged; then mail API said 429"),
            (-32603, "Rate limit exceeded after the card was charged"),
        ] {
            let error = mcp(code, message);
            assert_eq!(
                (error.kind(), error.execution()),
                (ErrorKind::RateLimited, Execution::Unknown),
                "{message}"
            );
        }
        for (code, message) in [
            (-32000, "Too Many Requests"),
            (429, "slow down"),
            (-32603, "rate limit exceeded"),
        ] {
            assert_eq!(
                mcp(code, message).execution(),
                Execution::NotStarted,
                "{message}"
            );
        }
    }

    #[test]
    fn an_unknown_code_is_ambiguous_and_may_be_repeated_if_that_is_safe() {
        let error = mcp(7, "who knows");
        assert_eq!(error.execution(), Execution::Unknown);
        assert!(error.is_retryable());
    }

    #[test]
    fn a_closed_transport_leaves_open_whether_the_tool_ran() {
        let error = from_service(ServiceError::TransportClosed);
        assert_eq!(error.kind(), ErrorKind::ConnectionFailed);
        assert_eq!(error.execution(), Execution::Unknown);
    }

    /// E2: rmcp's errors are found in the source chain of others.
    #[test]
    fn rmcps_error_is_found_under_a_foreign_one() {
        let error = anyhow::Error::from(ServiceError::Timeout {
            timeout: std::time::Duration::from_secs(1),
        })
        .context("asking the weather");
        let error = ToolError::from_box(error.into());
        assert_eq!(error.kind(), ErrorKind::Timeout);
        assert!(
            error.message().starts_with("asking the weather: "),
            "{error}"
        );
    }
}
