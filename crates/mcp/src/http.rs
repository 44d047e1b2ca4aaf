//! Errors of rmcp's streamable HTTP client.

use std::{error::Error as StdError, io, time::SystemTime};

use http::{HeaderMap, StatusCode};
use rmcp::{
    service::{ClientInitializeError, ServiceError},
    transport::streamable_http_client::StreamableHttpError,
};
use tower_toolcall::{
    error::{self, ErrorKind, Execution, ToolError, known_by_type},
    hint,
};

use super::errors;

/// rmcp's error is transparent: walking its sources does not reach the status, only a downcast
/// does.
pub(super) fn on_wire(error: &(dyn StdError + 'static)) -> Option<ToolError> {
    use StreamableHttpError as Http;
    if error.is::<reqwest::Error>() {
        return known_by_type(error);
    }
    let error = error.downcast_ref::<Http<reqwest::Error>>()?;
    let new = |kind| ToolError::new(kind, without_address(error.to_string(), error));
    let not_started = || new(ErrorKind::ConnectionFailed).with_execution(Execution::NotStarted);
    Some(match error {
        // `McpHttpClient` has it for a session that is not known; without a session it is a text.
        Http::HttpStatus(failure) if failure.status == 404 => not_started(),
        Http::HttpStatus(failure) => {
            let status = StatusCode::from_u16(failure.status).ok()?;
            let error = ToolError::from_status(status, error.to_string());
            let hint = failure.retry_after.as_deref();
            let delay = hint.and_then(|hint| hint::retry_after(hint, wall_clock()));
            errors::hinted(error, delay)
        }
        Http::Io(error) => match error.get_ref().and_then(|error| error.downcast_ref()) {
            Some(refused) => ToolError::clone(refused),
            None => new(ErrorKind::ConnectionFailed),
        },
        Http::Client(error) => return known_by_type(error),
        Http::AuthRequired(_) => new(ErrorKind::Denied).with_status(StatusCode::UNAUTHORIZED),
        Http::InsufficientScope(_) => new(ErrorKind::Denied).with_status(StatusCode::FORBIDDEN),
        Http::ResponseBodyTooLarge { .. } => {
            ToolError::unusable(without_address(error.to_string(), error))
        }
        // Refused with a 404, and again after rmcp's own attempt at a new session; or that attempt
        // was refused.
        Http::SessionExpired | Http::ReinitializationFailed(_) => not_started(),
        Http::UnexpectedServerResponse(text) => match status_in(text) {
            // As `errors::is_session_refused`, for a text that is not JSON.
            _ if is_session_refused(text) => not_started(),
            Some(status) => {
                let (_, body) = text.split_once(": ").unwrap_or_default();
                ToolError::from_http(status, &HeaderMap::new(), body, wall_clock())
            }
            None => new(ErrorKind::Failed).with_unusable_answer(),
        },
        Http::UnexpectedContentType(None) => {
            let text = "the answer to the request has no content";
            ToolError::new(ErrorKind::Failed, text).with_unusable_answer()
        }
        Http::UnexpectedContentType(_) | Http::Deserialize(_) => {
            new(ErrorKind::Failed).with_unusable_answer()
        }
        _ => new(ErrorKind::ConnectionFailed),
    })
}

#[expect(
    clippy::disallowed_methods,
    reason = "an HTTP date can be compared with the wall clock only"
)]
fn wall_clock() -> SystemTime {
    SystemTime::now()
}

/// Returns the error of an answer to `McpHttpClient`, in a type of rmcp's that has room for it.
pub(super) fn refused(status: StatusCode, headers: &HeaderMap, body: &str) -> io::Error {
    let is_lost = is_session_refused(&format!("HTTP {status}: {body}"));
    let error = ToolError::from_http(status, headers, body, wall_clock());
    io::Error::other(match is_lost {
        true => ToolError::new(ErrorKind::ConnectionFailed, error.message().to_owned())
            .with_execution(Execution::NotStarted),
        false => error,
    })
}

/// Returns whether headers ask to wait.
pub(super) fn ask_to_wait(headers: &HeaderMap) -> bool {
    let hint = hint::from_headers(headers, wall_clock());
    hint.is_some_and(|hint| hint.delay.is_some())
}

/// A text that was made of `error`, with the server's name instead of the address, which may be a
/// secret as a whole.
pub(super) fn without_address(text: String, error: &(dyn StdError + 'static)) -> String {
    match request_in(error) {
        // That of the error itself is known with reqwest's.
        Some(request) if !error.is::<reqwest::Error>() => error::without_address(text, request),
        _ => text,
    }
}

/// The failed request that an error is, or wraps without naming it as its source.
fn request_in<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a reqwest::Error> {
    if let Some(ServiceError::TransportSend(send)) = error.downcast_ref() {
        return request_in(&*send.error);
    }
    // Its transport's error is not its source.
    if let Some(ClientInitializeError::TransportError { error, .. }) = error.downcast_ref() {
        return request_in(&*error.error);
    }
    match error.downcast_ref() {
        Some(StreamableHttpError::Client(request)) => Some(request),
        _ => error.downcast_ref(),
    }
}

fn is_session_refused(text: &str) -> bool {
    let refused = text.strip_prefix("HTTP 400 ");
    refused.is_some_and(errors::is_about_session)
}

/// The status of an answer that rmcp could not use: `HTTP 403 Forbidden: ...`.
fn status_in(text: &str) -> Option<StatusCode> {
    let status = text.strip_prefix("HTTP ")?.get(..3)?;
    StatusCode::from_bytes(status.as_bytes()).ok()
}
