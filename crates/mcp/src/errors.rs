use std::{error::Error as StdError, sync::Arc, time::Duration};

use http::StatusCode;
use rmcp::{
    model::ErrorData,
    service::{ClientInitializeError, ServiceError},
    transport::DynamicTransportError,
};
use tower_toolcall::{
    call::CallInfo,
    error::{ErrorKind, KnownErrors, ToolError, known_by_type},
    hint,
};

use super::lines::TOO_LARGE;
use crate::register;

/// Recognises an error of rmcp; `None` for an error of another crate. With the feature `http`,
/// errors of reqwest are recognised as well.
///
/// - `McpError` -32602, "tool not found" and the like; -32601: `NotFound`
/// - `McpError` -32700, -32600, -32602: `InvalidInput`
/// - `McpError` -32020, -32022: headers, revision: `Failed`: it is for the program to mend, and the
///   model reads so
/// - `McpError` -32021 (a capability that the caller has not declared): `Denied`, with the same
///   text for the model
/// - `McpError` -32042 (the user has to open a URL): `Denied`
/// - `McpError` -32800: `Upstream`: this side did not cancel the call, or it would not wait for the
///   answer
/// - `McpError` -32000 or -32600, "Bad Request: No valid session ID" and the like:
///   `ConnectionFailed`
/// - `McpError` with a code that is an HTTP status: that status' kind
/// - `McpError` -32603: a rate limit or timeout by its message, else `Upstream`
/// - **any other `McpError`, -32000 and -32001 too**: by its message, else `Failed`, retryable
/// - `TransportSend`, over HTTP (feature `http`): the status' kind, with `Retry-After`; of
///   `McpHttpClient` as [`from_http`](ToolError::from_http)
/// - `TransportSend` otherwise, `TransportClosed`: `ConnectionFailed`
/// - `ClientInitializeError`: of its transport, or of the server: that error's kind
/// - `Timeout`: `Timeout`
/// - `Cancelled`: by the server: `Upstream`
/// - `UnexpectedResponse`, an answer over the size limit: `Reported`
///
/// -32000 and -32001 have no meaning of their own when a peer sends them (the specification of
/// 2026-07-28 keeps them for old SDKs), so the message decides.
///
/// The [execution](tower_toolcall::Execution) is unknown, as for [every foreign
/// error](tower_toolcall::error). Of the errors on their own connection
/// [`McpService`](super::McpService) and a [`transport`](tower_toolcall::transport) know more:
///
/// | error | did the tool run? |
/// |---|---|
/// | what [`McpService`](super::McpService) could not hand over to rmcp | no |
/// | a status over HTTP (feature `http`) | 429: no; 503 with a delay: no; else by the kind |
/// | could not connect; the session was refused (feature `http`) | no |
/// | `UnexpectedResponse`, an answer over the size limit | yes |
/// | a JSON-RPC error, whatever its number and its words | unknown |
/// | anything else | unknown |
pub fn recognise(error: &(dyn StdError + 'static)) -> Option<ToolError> {
    on_wire(error).map(ToolError::into_inferred)
}

/// Recognises an error that a tool service met on its own connection.
fn on_wire(error: &(dyn StdError + 'static)) -> Option<ToolError> {
    let known = error.downcast_ref().map(service);
    let known = known.or_else(|| error.downcast_ref().map(protocol));
    let known = known.or_else(|| connecting(error.downcast_ref()?));
    #[cfg(feature = "http")]
    let known = known.or_else(|| super::http::on_wire(error));
    known
}

pub(crate) struct Errors;

impl KnownErrors for Errors {
    fn cause(&self, error: &(dyn StdError + 'static)) -> Option<ToolError> {
        on_wire(error)
    }

    fn text(&self, error: &(dyn StdError + 'static)) -> Option<String> {
        shown(error)
    }

    #[cfg(feature = "http")]
    fn without_address(&self, text: String, error: &(dyn StdError + 'static)) -> String {
        super::http::without_address(text, error)
    }
}

/// Returns a text for errors of rmcp that otherwise show types or values of them.
fn shown(error: &(dyn StdError + 'static)) -> Option<String> {
    use ClientInitializeError as Failed;
    let sent = error.downcast_ref().or(match error.downcast_ref() {
        Some(ServiceError::TransportSend(failed)) => Some(failed),
        _ => None,
    });
    if let Some(failed) = sent {
        return Some(transport(failed).message().to_owned());
    }
    Some(match error.downcast_ref()? {
        Failed::TransportError { error, .. } => transport(error).message().to_owned(),
        Failed::ConnectionClosed(_) => "the server has closed the connection".to_owned(),
        Failed::ExpectedInitResponse(_) | Failed::ExpectedInitResult(_) => {
            "the server has not answered the handshake with its result".to_owned()
        }
        Failed::JsonRpcError(error) => {
            format!(
                "the server answered with error {}: {}",
                error.code.0, error.message
            )
        }
        Failed::LegacyFallbackFailed { fallback, .. } => return shown(&**fallback),
        Failed::NoCompatibleProtocolVersion {
            server_supported, ..
        } => {
            let known: Vec<_> = server_supported.iter().map(ToString::to_string).collect();
            format!("the server speaks only the revisions {}", known.join(", "))
        }
        other => other.to_string(),
    })
}

/// The error, with rmcp's as its source.
pub(super) fn from_service(error: ServiceError) -> ToolError {
    service(&error).with_source(error)
}

/// The error with the names of its call, and of the server if it has none.
pub(super) fn named(error: ToolError, call: &CallInfo, server: Option<&Arc<str>>) -> ToolError {
    let error = error.for_call(call);
    match (error.server(), server) {
        (None, Some(server)) => error.with_server(Arc::clone(server)),
        _ => error,
    }
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

/// Returns whether an attempt to connect failed with an answer of the server's own. The statuses
/// 502 to 504 come from a proxy while its server may be starting.
pub(super) fn is_answer(error: &ToolError) -> bool {
    let of_server = |status: StatusCode| !matches!(status.as_u16(), 502..=504);
    let source = StdError::source(error).and_then(|source| source.downcast_ref());
    error.status().is_some_and(of_server)
        || matches!(source, Some(ClientInitializeError::JsonRpcError(_)))
        || protocol_error(error).is_some()
}

pub(super) fn protocol_code(error: &ToolError) -> Option<i32> {
    protocol_error(error).map(|answer| answer.code.0)
}

/// The request's headers do not fit its body: the tool's definition has `x-mcp-header`, and the
/// transport has not listed the tools, or the definition has changed.
pub(super) const HEADER_MISMATCH: i32 = -32020;

/// The server does not speak the connection's revision of the protocol.
const UNSUPPORTED_VERSION: i32 = -32022;

/// The call needs a capability that its request has not declared.
const MISSING_CAPABILITY: i32 = -32021;

/// Returns whether the server answers each request on the connection like this.
pub(super) fn is_connection_refused(error: &ErrorData) -> bool {
    error.code.0 == UNSUPPORTED_VERSION || is_session_refused(error)
}

/// Returns whether an answer may be that of a server that does not know the session, whatever its
/// words are: a JSON-RPC error or a status that is not about the server's own state, or a limit.
pub(super) fn is_of_lost_session(error: &ToolError, is_http: bool) -> bool {
    use ErrorKind::*;
    match protocol_code(error) {
        Some(UNSUPPORTED_VERSION..=HEADER_MISMATCH) => false,
        Some(_) => match error.kind() {
            InvalidInput | NotFound | Failed | ConnectionFailed | Denied => true,
            // -32603 is also what a tool fails with: no process is asked after each of them.
            Upstream | Timeout => is_http,
            _ => false,
        },
        None => error
            .status()
            .is_some_and(|status| status.is_client_error() && error.kind() != RateLimited),
    }
}

/// Returns `true` if the server does not know the session, which is lost then. The specification
/// asks for a status of 404, which rmcp sees to. Servers made after an example of the TypeScript
/// SDK answer with 400 and an `McpError`; no tool's own words are as these.
pub(super) fn is_session_refused(error: &ErrorData) -> bool {
    matches!(error.code.0, -32000 | -32600) && is_about_session(&error.message)
}

/// Returns `true` if the text of an answer with the status 400 says so.
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
    // A transport's error may be rmcp's as well.
    register();
    let message = failed.error.to_string();
    match known_by_type(&*failed.error) {
        // It has a text, without the server's address.
        Some(known) if !known.message().is_empty() => known,
        Some(known) => known.with_message(&message),
        None => ToolError::new(ErrorKind::ConnectionFailed, message),
    }
}

fn service(error: &ServiceError) -> ToolError {
    match error {
        ServiceError::McpError(error) if error.data.as_ref().is_some_and(|d| d == TOO_LARGE) => {
            ToolError::unusable(error.message.clone())
        }
        ServiceError::McpError(error) => protocol(error),
        ServiceError::TransportSend(failed) => transport(failed),
        ServiceError::TransportClosed => ToolError::new(
            ErrorKind::ConnectionFailed,
            "the connection to the MCP server is closed",
        ),
        ServiceError::Timeout { .. } => ToolError::new(ErrorKind::Timeout, error.to_string()),
        ServiceError::Cancelled { .. } => ToolError::new(ErrorKind::Upstream, error.to_string()),
        ServiceError::UnexpectedResponse => {
            ToolError::unusable("the MCP server answered with something that is not a tool result")
        }
        other => ToolError::new(ErrorKind::Failed, other.to_string()),
    }
}

/// Returns the error for one of the server's. It proves nothing about the call: the server may pass
/// on what its tool met in its work.
fn protocol(error: &ErrorData) -> ToolError {
    let asked = error.data.as_ref().and_then(hint::from_json);
    let asked = asked.and_then(|hint| hint.delay);
    let error_of_code = by_code(error).into_inferred();
    hinted(error_of_code, asked).delayed_by_text(&error.message)
}

/// Sets the delay that a peer asks for, if it does.
pub(super) fn hinted(error: ToolError, delay: Option<Duration>) -> ToolError {
    match delay {
        Some(delay) => error.with_retry_after(delay),
        None => error,
    }
}

fn by_code(error: &ErrorData) -> ToolError {
    let code = error.code.0;
    let message = format!("MCP error {code}: {}", error.message);
    // The message alone: in `MCP error -32603` the number is not a status.
    let by_text = ToolError::from_text(&error.message);
    let by_text_kind = by_text.as_ref().map(ToolError::kind);
    let kind = match code {
        _ if is_session_refused(error) => ErrorKind::ConnectionFailed,
        -32602 if by_text_kind == Some(ErrorKind::NotFound) => ErrorKind::NotFound,
        -32601 => ErrorKind::NotFound,
        -32700 | -32600 | -32602 => ErrorKind::InvalidInput,
        UNSUPPORTED_VERSION..=HEADER_MISMATCH => {
            // Callers differ in what they have declared, so this says nothing of the tool.
            let kind = match code {
                MISSING_CAPABILITY => ErrorKind::Denied,
                _ => ErrorKind::Failed,
            };
            let error = ToolError::new(kind, message);
            return error.with_model_message(NOT_THE_ARGUMENTS);
        }
        -32042 => ErrorKind::Denied,
        -32800 => ErrorKind::Upstream,
        _ => match status(code) {
            Some(status) => return ToolError::from_status(status, message),
            None => return ambiguous(code, by_text, message),
        },
    };
    ToolError::new(kind, message)
}

/// For the model, of an error that the program has to mend.
const NOT_THE_ARGUMENTS: &str = "The tool cannot be called: this program and the tool's server do \
    not agree on the protocol. Other arguments will not help. Do without the tool.";

/// A code that is an HTTP status, often that of something beyond the server.
fn status(code: i32) -> Option<StatusCode> {
    let code = u16::try_from(code)
        .ok()
        .filter(|c| (400..600).contains(c))?;
    StatusCode::from_u16(code).ok()
}

/// A code that says little: the message may say more.
fn ambiguous(code: i32, by_text: Option<ToolError>, message: String) -> ToolError {
    match by_text {
        Some(known) if matches!(known.kind(), ErrorKind::RateLimited | ErrorKind::Timeout) => {
            known.with_message(&message)
        }
        _ if code == -32603 => ToolError::new(ErrorKind::Upstream, message),
        Some(known) => known.with_message(&message),
        // Its meaning is unknown: it counts for the tool alone, and a repeat may help.
        None => ToolError::new(ErrorKind::Failed, message).with_retryable(true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rmcp::model::ErrorCode;
    use serde_json::json;
    use tower_toolcall::error::{Evidence, Execution};

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
                Some(20),
            ),
        ] {
            let error = from_service(ServiceError::McpError(error));
            assert_eq!(error.retry_after(), seconds.map(Duration::from_secs));
        }
    }

    /// W10: a gateway's open breaker says when to come back, whatever its code means to others.
    #[test]
    fn the_delay_of_a_peers_open_breaker_is_read() {
        let data = json!({ "code": "CIRCUIT_OPEN", "tool_id": "x", "retry_after_seconds": 42 });
        for code in [-32000, -32001, -32603] {
            let error = ErrorData::new(ErrorCode(code), "Circuit breaker open", Some(data.clone()));
            let error = from_service(ServiceError::McpError(error));
            assert_eq!(error.retry_after(), Some(Duration::from_secs(42)), "{code}");
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
            (-32800, "Request cancelled", Upstream),
            (-32042, "URL elicitation required", Denied),
            (429, "slow down", RateLimited),
            (7, "who knows", Failed),
        ] {
            assert_eq!(mcp(code, message).kind(), kind, "{code} {message}");
        }
    }

    /// V1, R6: the server was reached, so no number and no message proves that its tool did not
    /// run.
    #[test]
    fn no_answer_of_a_server_proves_that_the_tool_did_not_run() {
        use ErrorKind::*;
        for (code, message, kind) in [
            (
                -32603,
                "payment captured, but the ledger is down: connect ECONNREFUSED 10.0.0.7:5432",
                Upstream,
            ),
            (
                -32000,
                "charged; then mail API said 429 Too Many Requests",
                RateLimited,
            ),
            (-32603, "saved 3 of 5 rows: validation failed", Upstream),
            (-32603, "tool ran; file x.csv not found", Upstream),
            (
                -32000,
                "connect ECONNREFUSED 10.0.0.7:5432",
                ConnectionFailed,
            ),
            (429, "charged; then mail API said 429", RateLimited),
            (-32000, "Too Many Requests", RateLimited),
            (429, "slow down", RateLimited),
            (-32603, "rate limit exceeded", RateLimited),
            (503, "busy, retry after 7 s", Upstream),
            (-32601, "Method not found", NotFound),
            (-32602, "Unknown tool: x", NotFound),
            (-32602, "missing field `city`", InvalidInput),
            (403, "no", Denied),
        ] {
            let error = mcp(code, message);
            assert_eq!(
                (error.kind(), error.execution(), error.evidence()),
                (kind, Execution::Unknown, Evidence::Inferred),
                "{code} {message}"
            );
        }
    }

    /// V10: the server's cancellation is the server's failure.
    #[test]
    fn a_call_that_the_server_cancelled_is_a_failure_of_the_server() {
        let error = from_service(ServiceError::Cancelled { reason: None });
        assert_eq!(error.kind(), ErrorKind::Upstream);
        assert_eq!(
            error.kind().count(),
            tower_toolcall::outcome::Count::Failure
        );
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
        assert_eq!(error.evidence(), Evidence::Reported);
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
