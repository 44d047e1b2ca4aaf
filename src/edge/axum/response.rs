use ::axum::{
    body::Body,
    response::{IntoResponse, Response},
};
use http::{HeaderValue, StatusCode, header::CONTENT_TYPE};
use serde::Serialize;

use super::Rejection;
use crate::{
    call::MAX_DEPTH,
    edge::log_refusal,
    error::{ErrorKind, ToolError},
    result::ToolResult,
    text::limited,
};

/// As [`ToolError::to_http`] has it.
impl IntoResponse for ToolError {
    fn into_response(self) -> Response {
        self.to_http().map(Body::from)
    }
}

/// No layer sees the request, so the response is the event `tool.rejected`, at INFO.
impl IntoResponse for Rejection {
    fn into_response(self) -> Response {
        log_refusal(self.error());
        self.error().to_http_as(self.status()).map(Body::from)
    }
}

/// A tool's answer is 200 and that answer as JSON, real and as it is, also where the classifier
/// takes it for an error: the tool's own words are for the caller. Anything else is the error's
/// response. To have an error of such an answer too, answer with
/// [`into_result`](ToolResult::into_result); to send the whole result, duration, attempts and all,
/// with `Json` of [`exposed`](ToolResult::exposed).
impl<T: Serialize> IntoResponse for ToolResult<T> {
    fn into_response(self) -> Response {
        let info = self.call().clone();
        match self.into_answer().and_then(|answer| to_json(&answer)) {
            Ok(json) => of_json(StatusCode::OK, json),
            Err(error) => error.for_call(&info).into_response(),
        }
    }
}

/// The error of a tool that does not exist here says which ones are near.
pub(super) fn shown(error: ToolError) -> ToolError {
    match error.kind() {
        ErrorKind::NotFound if error.is_own_refusal() => {
            let text = error.model_message();
            error.with_user_message(text)
        }
        _ => error,
    }
}

/// The status of an error's answer: 401 if a call was denied for want of a token that its caller
/// could have sent.
pub(super) fn status(error: &ToolError, lacks_subject: bool) -> StatusCode {
    let is_denied = error.kind() == ErrorKind::Denied && error.is_own_refusal();
    match lacks_subject && is_denied {
        true => StatusCode::UNAUTHORIZED,
        false => error.http_status(),
    }
}

pub(super) fn of_json(status: StatusCode, json: Vec<u8>) -> Response {
    let json_type = HeaderValue::from_static("application/json");
    (status, [(CONTENT_TYPE, json_type)], json).into_response()
}

/// An answer, if it can be written. The tool has run by then.
pub(super) fn to_json<T: Serialize>(answer: &T) -> Result<Vec<u8>, ToolError> {
    let mut json = Vec::new();
    match limited::write(&mut json, answer, MAX_DEPTH) {
        Ok(()) => Ok(json),
        // The error's text is the answer's own.
        Err(_) => Err(ToolError::unusable(
            "the tool's answer cannot be written as JSON",
        )),
    }
}
