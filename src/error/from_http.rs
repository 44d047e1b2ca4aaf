//! The error that a peer's HTTP answer means: by its status, its headers and its body.

use std::time::SystemTime;

use http::{HeaderMap, StatusCode};
use serde_json::Value;

use super::{ErrorKind, Execution, ToolError, recognise::MAX_BYTES};
use crate::{
    hint::{self, HintSource},
    redact::Rules,
    text::{prefix, redacted_head},
};

/// A longer body is not parsed, in bytes.
const MAX_JSON: usize = 64 << 10;

/// How much of a body stands in the error's message, in characters.
const MAX_REASON: usize = 200;

/// Where bodies have a text for people, as large APIs, RFC 9457 and JSON:API write it.
const REASONS: &[&str] = &[
    "/error/message",
    "/message",
    "/detail",
    "/error_description",
    "/errors/0/message",
    "/errors/0/detail",
    "/errors/0",
    "/errorMessages/0",
    "/reason",
    "/error",
    "/title",
];

/// Members with the errors of an answer. What stands in others, as an echoed request, is only
/// words.
const ERRORS: &[&str] = &["error", "errors", "details", "fault"];

/// Members of errors that have codes for programs, as large APIs name them.
const CODES: &[&str] = &[
    "reason",
    "code",
    "status",
    "type",
    "error",
    "errorCode",
    "error_code",
];

impl ToolError {
    /// Returns the error that an answer of a peer means, for a tool service with an HTTP client of
    /// its own.
    ///
    /// It is that of [`from_status`](Self::from_status), with the redacted body and the delay that
    /// the answer asks for: of its [headers](hint::from_headers), or of the [JSON](hint::from_json)
    /// or [words](hint::from_text) of the body of a limit or a 503. A 403 is
    /// [`RateLimited`](ErrorKind::RateLimited) if the same answer says that a limit is used up:
    ///
    /// - `Retry-After`, or a limit with nothing left (`X-RateLimit-Remaining: 0`):
    ///   [`Reported`](super::Evidence::Reported)
    /// - **a code of the error in a JSON body: Google's `rateLimitExceeded`, Salesforce's
    ///   `REQUEST_LIMIT_EXCEEDED`**: `Reported`
    /// - **words in a body: "secondary rate limit"**: [`Inferred`](super::Evidence::Inferred)
    ///
    /// The message has the status and the text for people in a JSON body: `error.message`,
    /// `message`, `detail` or `title` of RFC 9457 and the like, else the beginning of the body. The
    /// `reason` in a body of [`to_http`](Self::to_http) is the whole message.
    ///
    /// A 503 has not started if it has `Retry-After` or `retry-after-ms`. `now` is the wall clock's
    /// time, for HTTP dates.
    ///
    /// ```
    /// use std::time::{Duration, SystemTime};
    /// use http::{HeaderMap, HeaderValue, StatusCode};
    /// use tower_toolcall::{ErrorKind, ToolError};
    ///
    /// let headers =
    ///     HeaderMap::from_iter([(http::header::RETRY_AFTER, HeaderValue::from_static("60"))]);
    /// let error =
    ///     ToolError::from_http(StatusCode::FORBIDDEN, &headers, "slow down", SystemTime::now());
    /// assert_eq!(error.kind(), ErrorKind::RateLimited);
    /// assert_eq!(error.retry_after(), Some(Duration::from_secs(60)));
    /// ```
    pub fn from_http(status: StatusCode, headers: &HeaderMap, body: &str, now: SystemTime) -> Self {
        Self::from_http_with(&Rules::default(), status, headers, body, now)
    }

    /// Returns the error that an answer of a peer means, as [`from_http`](Self::from_http), with a
    /// message that is redacted by the rules of a call before it is cut.
    pub fn from_http_with(
        rules: &Rules,
        status: StatusCode,
        headers: &HeaderMap,
        body: &str,
        now: SystemTime,
    ) -> Self {
        let json = parsed(body);
        let json = json.as_ref();
        let error = Self::from_status(status, Self::reason_in(status, body, json, rules));
        let error = match body {
            "" => error,
            body => error.with_body(body),
        };
        let said = hint::from_headers(headers, now);
        let is_asked = said.is_some_and(|hint| {
            let of_header = [HintSource::RetryAfter, HintSource::RetryAfterMs];
            hint.delay.is_some() && of_header.contains(&hint.source)
        });
        let delay = said.and_then(|hint| hint.delay);
        match status {
            StatusCode::FORBIDDEN if is_asked || hint::is_used_up(headers, now) => {
                let error = error.limited_if_forbidden().hinted(delay);
                error.delayed_by_body(body, json)
            }
            StatusCode::FORBIDDEN => error.limited_by_body(body, json),
            StatusCode::TOO_MANY_REQUESTS => error.hinted(delay).delayed_by_body(body, json),
            // A quota that comes back, and words of a body, do not say that the request was turned
            // away.
            StatusCode::SERVICE_UNAVAILABLE if !is_asked => error
                .hinted(delay)
                .delayed_by_body(body, json)
                .with_execution(Execution::Unknown),
            _ => error.hinted(delay),
        }
    }

    /// Returns the message of an answer. That of a server of ours that refused arguments is written
    /// for a model by [`to_http`](Self::to_http).
    fn reason_in(status: StatusCode, body: &str, json: Option<&Value>, rules: &Rules) -> String {
        let json = json.unwrap_or(&Value::Null);
        let error = &json["error"];
        let is_ours = error["code"] == ErrorKind::InvalidInput.code();
        if let Some(reason) = error["reason"].as_str().filter(|_| is_ours) {
            return reason.to_owned();
        }
        let mut texts = REASONS.iter().filter_map(|at| json.pointer(at)?.as_str());
        let text = texts.find(|text| !text.trim().is_empty());
        // The text may say no more than that there are errors.
        let errors = json.get("errors").map(Value::to_string);
        let errors = errors.filter(|errors| {
            let is_in = |t| errors.contains(Value::from(t).to_string().trim_matches('"'));
            errors.len() > 2 && !text.is_some_and(is_in)
        });
        let text = match (text, errors) {
            (Some(text), Some(errors)) => &format!("{text}: {errors}"),
            (Some(text), None) => text,
            // A page for people who browse says less than its status.
            (None, _) if body.trim_start().starts_with('<') => "",
            (None, _) => body,
        };
        match text {
            "" => format!("HTTP {status}"),
            text => format!("HTTP {status}: {}", redacted_head(rules, text, MAX_REASON)),
        }
    }

    /// Makes a denial by status 403 a rate limit if the body of the same answer names one.
    fn limited_by_body(self, body: &str, json: Option<&Value>) -> Self {
        let named = match json {
            Some(json) => named_limit("", json, true),
            None => named_limit("", &prefix(body, MAX_BYTES).0.into(), true),
        };
        let error = match named {
            None => return self,
            Some(true) => self.limited_if_forbidden(),
            Some(false) => self.limited_if_forbidden().into_inferred(),
        };
        error.delayed_by_body(body, json)
    }

    /// Takes over the delay that a body asks for, in JSON or in words, if no other is known.
    fn delayed_by_body(self, body: &str, json: Option<&Value>) -> Self {
        if self.retry_after().is_some() {
            return self;
        }
        let hint = json.and_then(hint::from_json);
        self.hinted(hint.and_then(|hint| hint.delay))
            .delayed_by_text(body)
    }
}

/// The JSON of a body that is not too long.
fn parsed(body: &str) -> Option<Value> {
    let short = Some(body).filter(|body| body.len() <= MAX_JSON)?;
    serde_json::from_str(short).ok()
}

/// Returns `true` if a body names a rate limit by a code of its error, `false` if by words only.
fn named_limit(key: &str, value: &Value, is_error: bool) -> Option<bool> {
    match value {
        Value::String(text) => {
            let is_limit = ToolError::from_text(text)?.kind() == ErrorKind::RateLimited;
            let is_code = is_error && CODES.contains(&key) && !text.contains(char::is_whitespace);
            is_limit.then_some(is_code)
        }
        Value::Array(items) => {
            let named = |item| named_limit(key, item, is_error);
            items.iter().filter_map(named).max()
        }
        Value::Object(members) => {
            let named = members.iter().filter_map(|(key, value)| {
                let is_error = is_error && (value.is_string() || ERRORS.contains(&&**key));
                named_limit(key, value, is_error)
            });
            named.max()
        }
        _ => None,
    }
}
