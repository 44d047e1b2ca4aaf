//! reqwest's errors.

use std::error::Error as StdError;

use crate::error::KnownErrors;
use crate::error::{ErrorKind, Execution, ToolError, recognise::text_of};

pub(crate) struct Errors;

impl KnownErrors for Errors {
    fn cause(&self, error: &(dyn StdError + 'static)) -> Option<ToolError> {
        error.downcast_ref().map(from_request)
    }

    fn text(&self, error: &(dyn StdError + 'static)) -> Option<String> {
        let lacks_tls = error.downcast_ref().is_some_and(lacks_tls);
        lacks_tls.then(|| "reqwest is built without TLS".to_owned())
    }

    fn without_address(&self, text: String, error: &(dyn StdError + 'static)) -> String {
        match error.downcast_ref() {
            Some(error) => without_url(text, error),
            None => text,
        }
    }
}

pub(super) fn from_request(error: &reqwest::Error) -> ToolError {
    let message = text_of(error);
    // A request that cannot be, or a client that cannot send it: it says nothing of the server.
    if error.is_builder() || lacks_tls(error) {
        return ToolError::refusal(ErrorKind::Internal, message);
    }
    match error.status() {
        Some(status) => ToolError::from_status(status, message),
        // What did not connect was not sent. (Unless it followed a redirect; an MCP server sends
        // none, and HTTP tools follow none.)
        None if error.is_connect() => ToolError::new(ErrorKind::ConnectionFailed, message)
            .with_execution(Execution::NotStarted),
        None if error.is_timeout() => ToolError::new(ErrorKind::Timeout, message),
        None => ToolError::new(ErrorKind::ConnectionFailed, message),
    }
}

/// Returns whether a client without TLS was asked for `https`. Of hyper-util's error only the text
/// says so.
fn lacks_tls(error: &reqwest::Error) -> bool {
    let mut link = error.is_connect().then_some(error as &dyn StdError);
    while let Some(error) = link {
        if error.source().is_none() {
            return error.to_string().contains("scheme is not http");
        }
        link = error.source();
    }
    false
}

/// A text that was made of `error`, with the server's name instead of the address, which may be a
/// secret as a whole.
pub(super) fn without_url(text: String, error: &reqwest::Error) -> String {
    match error.url() {
        Some(url) => {
            let host = url.host_str().unwrap_or("the server");
            let text = text.replace(&format!("for url ({url})"), &format!("to {host}"));
            text.replace(url.as_str(), host)
        }
        None => text,
    }
}
