use std::{borrow::Cow, error::Error as StdError, fmt, net::SocketAddr};

use ::axum::{
    RequestExt as _,
    body::{Body, Bytes},
    extract::{
        ConnectInfo, FromRequest, RawPathParams, Request, rejection::RawPathParamsRejection,
    },
    response::{IntoResponse, Response},
};
use http::{Extensions, HeaderMap, HeaderValue, StatusCode, header::CONTENT_TYPE};
use serde::Serialize;
use serde_json::Value;

use crate::{
    bridge::headers::the_only,
    call::{MAX_DEPTH, MAX_NAME_BYTES, MAX_VALUES, ToolCall},
    error::{ErrorKind, ToolError},
    event::{Event, Listener},
    result::ToolResult,
    text::{limited, values},
};

/// A request that is not a tool call. As a response it has the body of an error with the reason.
#[derive(Clone, Debug)]
pub struct Rejection {
    status: StatusCode,
    error: ToolError,
}

impl Rejection {
    /// Rejects a request with this status, for example 400, 405, 413 or 415. A status other than
    /// 4xx or 5xx becomes 400. The reason is shown to the caller.
    pub fn new(status: StatusCode, reason: impl Into<Cow<'static, str>>) -> Self {
        let error = ToolError::new(ErrorKind::InvalidInput, reason);
        let error = match status {
            StatusCode::METHOD_NOT_ALLOWED => error.with_code("METHOD_NOT_ALLOWED"),
            StatusCode::PAYLOAD_TOO_LARGE => error.with_code("PAYLOAD_TOO_LARGE"),
            StatusCode::UNSUPPORTED_MEDIA_TYPE => error.with_code("UNSUPPORTED_MEDIA_TYPE"),
            _ => error,
        };
        let is_error = status.is_client_error() || status.is_server_error();
        let status = if is_error {
            status
        } else {
            StatusCode::BAD_REQUEST
        };
        let error = Self::of(error).error;
        Self { status, error }
    }

    pub(super) fn no_post() -> Self {
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "the method has to be POST")
    }

    /// An error of [`ToolCall`]: its message never quotes what was sent.
    fn of(error: ToolError) -> Self {
        let reason = error.message().to_owned();
        Self {
            status: error.kind().http_status(),
            error: error.with_user_message(reason),
        }
    }

    /// Returns the status of the answer: 400, 405 (code `METHOD_NOT_ALLOWED`), 413
    /// (`PAYLOAD_TOO_LARGE`), or 415 (`UNSUPPORTED_MEDIA_TYPE`). 404 for a request that names a
    /// server where none can be named. 500 on a route without `{tool}`, or with a `{server}` for
    /// the extractor.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// Returns the error with the reason.
    pub fn error(&self) -> &ToolError {
        &self.error
    }

    /// Returns the response with another body.
    pub fn into_response_with(self, body: &Value) -> Response {
        self.log();
        let response = self.error().to_http_with(self.status(), body);
        response.map(Body::from)
    }

    /// Emits `tool.rejected` for a request that never became a call which a layer sees.
    pub(super) fn log(&self) {
        let error = self.error();
        let call = ToolCall::new(error.tool().unwrap_or_default());
        let call = match error.call_id() {
            Some(id) => call.with_id(id),
            None => call,
        };
        let call = call.info();
        Listener::default().tell(&Event::not_started(&call, error.kind()).with_error(error));
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl StdError for Rejection {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(&self.error)
    }
}

/// As the response of an error it is a 400, whatever the rejection's [status](Rejection::status):
/// to keep that, answer with the rejection.
impl From<Rejection> for ToolError {
    fn from(rejection: Rejection) -> Self {
        rejection.error
    }
}

/// The tool's name is the path's parameter `{tool}`, the arguments are the body. See the
/// [module docs](crate::serve#requests).
///
/// No server is taken from the request, because an extractor knows no table of tools: a route with
/// a parameter `{server}` answers 500. A handler that knows its server puts it [on the
/// call](ToolCall::with_server). If it takes the server from the path under another name, its stack
/// needs an [identity layer](crate::identity). No deadline is taken either: see
/// [`with_request_deadline`](ToolCall::with_request_deadline).
impl<S: Send + Sync> FromRequest<S> for ToolCall {
    type Rejection = Rejection;

    async fn from_request(request: Request, state: &S) -> Result<Self, Rejection> {
        let takes_server = |_: ToolCall, _: &str| {
            let message = "a `ToolCall` out of a request takes no parameter `server`";
            Err(ToolError::new(ErrorKind::Internal, message))
        };
        let with_body = ToolCall::with_json_str;
        read(request, state, takes_server, |call| call, with_body).await
    }
}

/// Returns the call that a request asks for. The server in its path goes to `on_server`, the call
/// to `for_caller`, before the body is read.
pub(super) async fn read<S: Send + Sync>(
    mut request: Request,
    state: &S,
    on_server: impl FnOnce(ToolCall, &str) -> Result<ToolCall, ToolError>,
    for_caller: impl FnOnce(ToolCall) -> ToolCall,
    with_body: impl FnOnce(ToolCall, &str) -> Result<ToolCall, ToolError>,
) -> Result<ToolCall, Rejection> {
    let call = addressed(&mut request, on_server).await?;
    let call = call
        .with_request_headers(request.headers())
        .with_request_extensions(request.extensions());
    let call = for_caller(call);
    let info = call.info();
    let body = json_body(request, state).await;
    let call = body.and_then(|body| {
        let call = match str::from_utf8(&body) {
            Ok(text) => with_body(call, text).and_then(checked),
            Err(_) => Err(ToolError::new(
                ErrorKind::InvalidInput,
                "the body is not UTF-8",
            )),
        };
        call.map_err(Rejection::of)
    });
    call.map_err(|mut rejection| {
        rejection.error.address(&info);
        rejection
    })
}

/// A call of what the path names.
async fn addressed(
    request: &mut Request,
    on_server: impl FnOnce(ToolCall, &str) -> Result<ToolCall, ToolError>,
) -> Result<ToolCall, Rejection> {
    // A fallback has none at all.
    let params: Result<RawPathParams, _> = request.extract_parts().await;
    if let Err(RawPathParamsRejection::InvalidUtf8InPathParam(_)) = params {
        let reason = "the path is not UTF-8";
        return Err(Rejection::new(StatusCode::BAD_REQUEST, reason));
    }
    let param = |name| params.iter().flatten().find(|(key, _)| *key == name);
    let Some((_, tool)) = param("tool") else {
        let error = ToolError::new(ErrorKind::Internal, "the route has no parameter `tool`");
        return Err(Rejection::of(error));
    };
    let call = ToolCall::new(tool);
    match param("server") {
        Some((_, server)) => on_server(call, server).map_err(Rejection::of),
        None => Ok(call),
    }
}

/// The handling of the server that a request names.
#[derive(Clone, Copy, Debug)]
pub(super) enum Servers {
    /// No table here knows the server's name.
    Refused,
    Taken,
}

impl Servers {
    /// Puts the server on the call. Its name has the limits of a tool's.
    pub(super) fn put_on(self, call: ToolCall, server: &str) -> Result<ToolCall, ToolError> {
        let fits = (1..=MAX_NAME_BYTES).contains(&server.len());
        let (kind, message) = match self {
            _ if !fits || server.chars().any(char::is_control) => (
                ErrorKind::InvalidInput,
                "the server name is empty, has more than 256 bytes, or has control characters",
            ),
            Self::Taken => return Ok(call.with_server(server)),
            Self::Refused => (
                ErrorKind::NotFound,
                "no server can be named here: call the tool by its name alone",
            ),
        };
        Err(ToolError::refusal(kind, message).for_call(&call.info()))
    }
}

pub(super) fn checked(call: ToolCall) -> Result<ToolCall, ToolError> {
    call.check().map(|()| call)
}

/// The body of a request that says it is JSON, within axum's limit and [`MAX_VALUES`].
pub(super) async fn json_body<S: Send + Sync>(
    request: Request,
    state: &S,
) -> Result<Bytes, Rejection> {
    if !is_json(request.headers()) {
        return Err(Rejection::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "the request has to say `content-type: application/json`",
        ));
    }
    let too_large =
        |reason: Cow<'static, str>| Rejection::new(StatusCode::PAYLOAD_TOO_LARGE, reason);
    let body = Bytes::from_request(request, state).await;
    let body = body.map_err(|rejection| match rejection.status() {
        StatusCode::PAYLOAD_TOO_LARGE => too_large("the body is too large".into()),
        _ => Rejection::new(StatusCode::BAD_REQUEST, "the body broke off"),
    })?;
    match values::are_more_than(MAX_VALUES, &body) {
        true => Err(too_large(
            format!("the body has more than {MAX_VALUES} values").into(),
        )),
        false => Ok(body),
    }
}

/// The address of the peer, if the server gives it to its requests.
pub(in crate::bridge) fn address(extensions: &Extensions) -> Option<String> {
    let ConnectInfo(peer) = extensions.get::<ConnectInfo<SocketAddr>>()?;
    Some(peer.ip().to_canonical().to_string())
}

fn is_json(headers: &HeaderMap) -> bool {
    let Some(value) = the_only(headers, CONTENT_TYPE) else {
        return false;
    };
    let essence = value.split(';').next().unwrap_or_default().trim();
    let essence = essence.to_ascii_lowercase();
    let Some(subtype) = essence.strip_prefix("application/") else {
        return false;
    };
    subtype == "json" || subtype.ends_with("+json")
}

/// As [`ToolError::to_http`] has it.
impl IntoResponse for ToolError {
    fn into_response(self) -> Response {
        self.to_http().map(Body::from)
    }
}

/// No layer sees the request, so the response is the event `tool.rejected`, at INFO.
impl IntoResponse for Rejection {
    fn into_response(self) -> Response {
        self.log();
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
        match self.into_answer().and_then(|answer| json(&answer)) {
            Ok(response) => response,
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

/// Returns the response with this answer of a tool, as JSON, with the status 200.
///
/// # Errors
///
/// [`Reported`](ErrorKind::Reported): the answer is not JSON, or has more than [`MAX_DEPTH`]
/// levels.
pub fn json<T: Serialize>(answer: &T) -> Result<Response, ToolError> {
    to_json(answer).map(|json| of_json(StatusCode::OK, json))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_json_type_is_known() {
        for (value, json) in [
            ("application/json", true),
            ("Application/JSON ; charset=utf-8", true),
            ("application/vnd.tool+json", true),
            ("text/plain", false),
            ("text/json", false),
            ("application/jsonp", false),
            ("", false),
        ] {
            let mut headers = HeaderMap::new();
            assert!(!is_json(&headers));
            headers.insert(CONTENT_TYPE, value.parse().unwrap());
            assert_eq!(is_json(&headers), json, "{value}");
        }
    }
}
