//! An error as a JSON-RPC error, and as an HTTP response for any server that has the types of the
//! `http` crate.

use std::time::Duration;

use http::{
    HeaderValue, Response, StatusCode,
    header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE},
};
use serde_json::{Map, Value, json};

use super::{
    ErrorKind, Evidence, Execution, OAUTH_ERROR, ToolError,
    message::{self, MAX},
    safe,
};
use crate::{event::transition::millis, text::Short};

impl ToolError {
    /// Returns the JSON-RPC error object for a JSON-RPC gateway (not for an MCP peer; see
    /// [`ErrorKind`]).
    ///
    /// Beside the two fixed texts of timeouts and open breakers the message is the
    /// [user's](Self::user_message). `data` always has `code`, `tool_id`, `retryable` and
    /// `execution`, and where they are known `server`, `timeout_ms`, `configured_timeout_ms`,
    /// `retry_after_seconds`, `attempts` and `reason`, as [`to_http`](Self::to_http) has them.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_toolcall::{ErrorKind, ToolError};
    ///
    /// let error = ToolError::new(ErrorKind::CircuitOpen, "5 failures in a row")
    ///     .with_tool("search")
    ///     .with_retry_after(Duration::from_millis(1500));
    ///
    /// assert_eq!(error.to_json_rpc(), serde_json::json!({
    ///     "code": -32001,
    ///     "message": "Circuit breaker open",
    ///     "data": {
    ///         "code": "CIRCUIT_OPEN",
    ///         "tool_id": "search",
    ///         "retryable": true,
    ///         "execution": "not_started",
    ///         "retry_after_seconds": 2,
    ///     },
    /// }));
    /// ```
    pub fn to_json_rpc(&self) -> Value {
        let message = match self.kind() {
            ErrorKind::Timeout | ErrorKind::DeadlineExceeded => "Tool invocation timed out",
            ErrorKind::CircuitOpen => "Circuit breaker open",
            _ => &self.public_message(),
        };
        let mut data = self.public_facts("tool_id");
        data.entry("tool_id").or_insert(Value::Null);
        json!({ "code": self.kind().json_rpc_code(), "message": message, "data": data })
    }

    /// The members that callers outside may see, without texts. `tool` is the key of the tool's
    /// name.
    fn public_facts(&self, tool: &'static str) -> Map<String, Value> {
        let ms = |d: Duration| json!(millis::of(d));
        let name = |s: &str| json!(Short::name(s).to_string());
        let configured = self
            .configured_timeout()
            .filter(|d| Some(*d) != self.timeout());
        let retry_after = self.retry_after_seconds();
        let members = [
            ("code", Some(json!(self.code()))),
            ("retryable", Some(self.is_retryable().into())),
            ("execution", Some(json!(self.execution()))),
            (tool, self.tool().map(name)),
            ("server", self.server().map(name)),
            ("timeout_ms", self.timeout().map(ms)),
            ("configured_timeout_ms", configured.map(ms)),
            ("retry_after_seconds", retry_after.map(Value::from)),
            ("attempts", self.attempts().map(Value::from)),
            ("reason", self.refused_arguments().map(|why| json!(why))),
        ];
        members
            .into_iter()
            .filter_map(|(key, value)| Some((key.to_owned(), value?)))
            .collect()
    }

    /// Returns the reason for which arguments were refused before the work, unless the user's
    /// message was replaced.
    fn refused_arguments(&self) -> Option<Box<str>> {
        let is_of_arguments = self.kind() == ErrorKind::InvalidInput
            && self.execution() == Execution::NotStarted
            && self.evidence() != Evidence::Inferred
            && self.more().is_none_or(|more| more.user_message.is_none());
        is_of_arguments
            .then(|| message::reason(self, MAX))
            .flatten()
    }

    /// Returns the answer of a plain HTTP endpoint: the [kind's
    /// status](super::ErrorKind::http_status), `Retry-After` in whole seconds where a delay is
    /// known, and a JSON body.
    ///
    /// The body is for callers outside. It has the [user's message](Self::user_message), never the
    /// one for developers, no details, and nothing of what an upstream wrote:
    ///
    /// - `code`, `message`, `retryable`, `execution`, `recoverable`: always
    /// - `tool`, `server`, `call_id`, `attempts`, `timeout_ms`, `configured_timeout_ms`,
    ///   `retry_after_seconds`: where known
    /// - `reason`: for arguments that were refused before the work: the reason that a model reads,
    ///   if `message` was not replaced
    ///
    /// `retryable` says that the same call may succeed later. It is false for a call marked unsafe
    /// that may have run. `execution` says whether this one has run: `not_started`, `unknown` or
    /// `completed`. A timeout is retryable if the safety of the tool is not known, and its
    /// execution is unknown: repeat the call if the tool may run twice.
    ///
    /// With the feature `axum` the error converts into a response. Other servers take the answer
    /// directly; this is hyper:
    ///
    /// ```
    /// use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
    /// use hyper::{
    ///     Request, Response, StatusCode,
    ///     body::{Body, Bytes},
    /// };
    /// use tower::{Service, ServiceExt};
    /// use tower_toolcall::{BoxError, ErrorKind, ToolCall, ToolError, Trust};
    ///
    /// /// In `hyper::service::service_fn`, with a clone of the stack.
    /// async fn handle<S, B>(stack: S, request: Request<B>) -> Response<Full<Bytes>>
    /// where
    ///     S: Service<ToolCall, Response = String, Error = ToolError>,
    ///     B: Body<Data: Send, Error: Into<BoxError>>,
    /// {
    ///     let (head, body) = request.into_parts();
    ///     // Decode the name (crate `percent-encoding`) if names have spaces, and let an identity
    ///     // layer resolve it. The caller is what an authentication put into the extensions.
    ///     let call = ToolCall::new(head.uri.path().trim_start_matches('/'))
    ///         .with_request_headers(&head.headers)
    ///         .with_request_extensions(&head.extensions)
    ///         .with_request_deadline(&head.headers, Trust::Untrusted);
    ///     let info = call.info();
    ///     match answer(stack, call, body).await.map_err(|error| error.for_call(&info)) {
    ///         Ok(text) => Response::new(Full::from(text)),
    ///         Err(error) => {
    ///             let mut response = error.to_http();
    ///             if error.code() == "PAYLOAD_TOO_LARGE" {
    ///                 *response.status_mut() = StatusCode::PAYLOAD_TOO_LARGE;
    ///             }
    ///             response.map(Full::from)
    ///         }
    ///     }
    /// }
    ///
    /// async fn answer<S, B>(stack: S, call: ToolCall, body: B) -> Result<String, ToolError>
    /// where
    ///     S: Service<ToolCall, Response = String, Error = ToolError>,
    ///     B: Body<Data: Send, Error: Into<BoxError>>,
    /// {
    ///     let unread = |error: BoxError| {
    ///         let unread = ToolError::new(ErrorKind::InvalidInput, "the body cannot be read");
    ///         match error.is::<LengthLimitError>() {
    ///             true => unread.with_code("PAYLOAD_TOO_LARGE"),
    ///             false => unread,
    ///         }
    ///     };
    ///     let body = Limited::new(body, 1 << 20).collect().await.map_err(unread)?.to_bytes();
    ///     let call = call.with_json_str(&String::from_utf8_lossy(&body))?;
    ///     call.check()?;
    ///     stack.oneshot(call).await
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// let open = tower::service_fn(|_| async {
    ///     let error = ToolError::new(ErrorKind::CircuitOpen, "5 failures in a row");
    ///     Err(error.with_retry_after(std::time::Duration::from_millis(1500)))
    /// });
    /// let response =
    ///     handle(open, Request::post("/search").body(Full::<Bytes>::default()).unwrap()).await;
    /// assert_eq!(response.status(), 503);
    /// assert_eq!(response.headers()["retry-after"], "2");
    ///
    /// let none = tower::service_fn(|_| async { Ok::<_, ToolError>(String::new()) });
    /// let large = Full::<Bytes>::from(vec![b' '; 2 << 20]);
    /// let response = handle(none, Request::post("/search").body(large).unwrap()).await;
    /// assert_eq!(response.status(), 413);
    /// # }
    /// ```
    ///
    /// A [`TokenExchange`](ErrorKind::TokenExchange) error after the provider refused the caller's
    /// own token (`invalid_grant`, `invalid_token`) is a 401 with `WWW-Authenticate` (RFC 6750,
    /// section 3).
    pub fn to_http(&self) -> Response<String> {
        self.to_http_as(self.http_status())
    }

    /// Returns the status of that answer.
    pub(crate) fn http_status(&self) -> StatusCode {
        match self.is_by_token_of_caller() {
            true => StatusCode::UNAUTHORIZED,
            false => self.kind().http_status(),
        }
    }

    /// Returns the answer of [`to_http`](Self::to_http) with another status.
    pub(crate) fn to_http_as(&self, status: StatusCode) -> Response<String> {
        self.to_http_with(status, &json!({ "error": self.public_body() }))
    }

    /// Returns the answer with another status, and with a body of your own instead of the error's.
    /// The body is sent as it is: it is not redacted.
    pub fn to_http_with(&self, status: StatusCode, body: &Value) -> Response<String> {
        let mut response = Response::new(body.to_string());
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(seconds) = self.retry_after_seconds() {
            headers.insert(RETRY_AFTER, seconds.into());
        }
        if status == StatusCode::UNAUTHORIZED {
            let challenge = match self.is_by_token_of_caller() {
                true => r#"Bearer error="invalid_token""#,
                false => "Bearer",
            };
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
        }
        response
    }

    /// Returns whether an identity provider has refused the token of the one for whom the call was
    /// made.
    fn is_by_token_of_caller(&self) -> bool {
        let code = self.more().and_then(|more| more.details.get(OAUTH_ERROR));
        let of_caller = ["invalid_grant", "invalid_token"];
        // What a peer writes of the tokens that it needs says nothing of this caller's.
        self.kind() == ErrorKind::TokenExchange
            && self.evidence() != Evidence::Inferred
            && code.is_some_and(|code| of_caller.iter().any(|of| code == of))
    }

    /// Returns the [message for users](Self::user_message) as it may leave the process: redacted
    /// and cut, also where it was [replaced](Self::with_user_message).
    pub fn public_message(&self) -> String {
        safe(&self.0.rules, &self.user_message())
    }

    /// Returns the [message for models](Self::model_message), likewise.
    pub fn public_model_message(&self) -> String {
        safe(&self.0.rules, &self.model_message())
    }

    /// Returns the fields that callers outside may see, as in the body of
    /// [`to_http`](Self::to_http).
    pub fn public_body(&self) -> Map<String, Value> {
        let mut body = self.public_facts("tool");
        body.insert("message".to_owned(), self.public_message().into());
        body.insert("recoverable".to_owned(), self.is_recoverable().into());
        if let Some(id) = self.call_id() {
            body.insert("call_id".to_owned(), Short::name(id).to_string().into());
        }
        body
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::error::ErrorKind;

    /// E1, E5: what developers and upstreams write stays inside; a user's text is redacted too.
    #[test]
    fn the_body_says_nothing_internal() {
        let error = ToolError::new(ErrorKind::Upstream, "connect to 10.0.0.7: db-internal")
            .with_body("stack trace of db-internal")
            .with_detail("host", "db-internal")
            .with_source("db-internal")
            .with_tool("search");
        assert!(!error.to_http().body().contains("db-internal"));
        let error = error.with_user_message("Authorization: Bearer abcdefghijklmnop0123456789");
        assert!(!error.to_http().body().contains("abcdefghijklmnop"));
    }

    /// Issue 48, D9: a peer that writes our JSON cannot make us say that our caller's token is bad.
    #[test]
    fn only_an_own_refusal_of_the_callers_token_is_a_challenge() {
        let own = ToolError::new(ErrorKind::TokenExchange, "refused");
        let own = own.with_detail("oauth_error", "invalid_grant");
        let read: ToolError = serde_json::from_value(json!(own)).unwrap();
        assert_eq!(own.to_http().status(), StatusCode::UNAUTHORIZED);
        assert_eq!(read.to_http().status(), StatusCode::BAD_GATEWAY);
        assert!(!read.to_http().headers().contains_key(WWW_AUTHENTICATE));
    }

    /// Issue 48, D12: all forms round up, so that a short timeout is not 0.
    #[test]
    fn a_timeout_of_half_a_millisecond_is_one() {
        let call = crate::ToolCall::new("t").info();
        let half = Duration::from_micros(500);
        let error = ToolError::timed_out(&call, half, half, crate::error::TimeoutLimit::Timeout);
        assert_eq!(error.to_json_rpc()["data"]["timeout_ms"], 1);
        assert_eq!(json!(error)["timeout_ms"], 1);
        assert!(error.message().ends_with("after 1ms"), "{error}");
        assert!(error.user_message().ends_with("(1 ms)."), "{error}");
    }

    /// E5: each kind has the status of the table, and a delay stands in the header.
    #[test]
    fn every_kind_is_a_response() {
        for &kind in ErrorKind::ALL {
            let error = ToolError::new(kind, "").with_retry_after(Duration::from_nanos(1));
            let response = error.to_http();
            assert_eq!(response.status(), kind.http_status(), "{kind:?}");
            assert_eq!(response.headers()["retry-after"], "1");
            let body: Value = serde_json::from_str(response.body()).unwrap();
            assert_eq!(body["error"]["code"], kind.code());
            assert_eq!(body["error"]["retryable"], kind.is_retryable());
            assert_eq!(body["error"]["recoverable"], kind.is_recoverable());
            assert_eq!(body["error"]["retry_after_seconds"], 1);
            assert_eq!(body["error"]["message"], json!(error.user_message()));
        }
    }
}
