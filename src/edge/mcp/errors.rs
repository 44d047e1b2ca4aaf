use std::error::Error as StdError;

use rmcp::{model::ErrorData, service::ServiceError};

use crate::error::{ErrorKind, Execution, ToolError};

/// What an error of rmcp means; `None` for an error of another crate. With the feature `mcp-http`,
/// errors of reqwest are recognised as well.
///
/// | error | kind | did the tool run? |
/// |---|---|---|
/// | `McpError` -32602, "tool not found" and the like; -32601 | `NotFound` | no |
/// | `McpError` -32700, -32600, -32602, -32020 to -32022 | `InvalidInput` | no |
/// | `McpError` -32042 (the user has to open a URL) | `Denied` | no |
/// | `McpError` -32800 | `Cancelled` | unknown |
/// | `McpError` with a code that is an HTTP status | that status' kind | by the kind |
/// | `McpError` -32603 | by its message, else `Upstream` | by the kind |
/// | any other `McpError`, -32000 and -32001 too | by its message, else `Failed`, retryable | unknown |
/// | `TransportSend`, over HTTP (feature `mcp-http`) | the status' kind, with `Retry-After` | 429: no, 503 with a delay: no, else unknown |
/// | `TransportSend`, could not connect (feature `mcp-http`) | `ConnectionFailed` | no |
/// | `TransportSend` otherwise, `TransportClosed` | `ConnectionFailed` | unknown |
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

fn service(error: &ServiceError) -> ToolError {
    match error {
        ServiceError::McpError(error) => protocol(error),
        ServiceError::TransportSend(send) => {
            #[cfg(feature = "mcp-http")]
            if let Some(known) = super::http::recognise(&*send.error) {
                return known;
            }
            ToolError::new(ErrorKind::ConnectionFailed, send.error.to_string())
        }
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
    let code = error.code.0;
    let message = || format!("MCP error {code}: {}", error.message);
    // The message alone: in `MCP error -32603` the number is no status.
    let by_text = || ToolError::from_text(&error.message);
    let kind = match code {
        -32602 if by_text().is_some_and(|e| e.kind() == ErrorKind::NotFound) => ErrorKind::NotFound,
        -32601 => ErrorKind::NotFound,
        -32700 | -32600 | -32602 | -32022..=-32020 => ErrorKind::InvalidInput,
        -32042 => ErrorKind::Denied,
        -32800 => ErrorKind::Cancelled,
        400..=599 => {
            let status = u16::try_from(code).ok();
            status
                .and_then(ErrorKind::from_http_status)
                .unwrap_or(ErrorKind::Failed)
        }
        _ => {
            return match by_text() {
                Some(known) => {
                    ToolError::new(known.kind(), message()).with_execution(known.execution())
                }
                None if code == -32603 => ToolError::new(ErrorKind::Upstream, message()),
                // Nobody knows what it means: it counts for the tool alone, and a repeat may help.
                None => ToolError::new(ErrorKind::Failed, message())
                    .with_execution(Execution::Unknown)
                    .with_retryable(true),
            };
        }
    };
    ToolError::new(kind, message())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rmcp::model::ErrorCode;

    fn mcp(code: i32, message: &'static str) -> ToolError {
        from_service(ServiceError::McpError(ErrorData::new(
            ErrorCode(code),
            message,
            None,
        )))
    }

    /// E2: MCP errors by code; a peer's -32000 and -32001 are decided by their message.
    #[test]
    fn protocol_errors_are_recognised() {
        use ErrorKind::*;
        for (code, message, kind) in [
            (-32602, "tool not found", NotFound),
            (-32602, "Unknown tool: x", NotFound),
            (-32602, "Tool nope not found", NotFound),
            (-32602, "missing field `city`", InvalidInput),
            (-32700, "Parse error", InvalidInput),
            (-32601, "Method not found", NotFound),
            (-32603, "Internal error", Upstream),
            (-32603, "rate limit exceeded", RateLimited),
            (-32000, "Connection closed", ConnectionFailed),
            (-32000, "Server not initialized", Failed),
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
