use std::{borrow::Cow, error::Error as StdError, fmt, hash::Hasher, time::Duration};

use http::{HeaderMap, HeaderValue, StatusCode, Uri, header::CONTENT_TYPE};
use serde::{Serialize, Serializer, ser::SerializeStruct};
use serde_json::{Map, Value};

use tower_toolcall::{
    AnyError, Classify, Outcome, ToolError,
    answer::{Answer, KnownAnswer, ModelText, left_out_bytes},
    call::CallInfo,
    fit::{Cut, Shorten},
    outcome::ByError,
    redact::{REDACTED, Rules},
};

use super::plain;

/// The most that a model reads of kept headers, in characters.
const MAX_HEADERS: usize = 1_000;

/// The answer of an HTTP endpoint.
///
/// Serialised, it is the result of an execution: `status` (`failed` if it is [behind an
/// error](Self::of_error), else `completed`), `result` (the body), `upstream_status`,
/// `execution_time_ms`, and `metadata` with the kept headers: several of one name are joined by
/// `, `.
#[derive(Clone)]
pub struct HttpAnswer {
    pub(super) status: StatusCode,
    pub(super) body: Value,
    /// The body is not JSON, and a string.
    pub(super) is_text: bool,
    pub(super) headers: HeaderMap,
    /// The URL of the request, if headers are kept: one of them may be a reference.
    pub(super) url: Option<Uri>,
    pub(super) elapsed: Duration,
    /// For how long nothing is left of what the server grants.
    pub(super) cooldown: Option<Duration>,
    /// For how long the server wants to be left alone.
    pub(super) retry_after: Option<Duration>,
    /// The answer is behind an error, whatever its status: the job has failed.
    pub(super) is_failure: bool,
    /// The part that was left out for a model.
    pub(super) cut: Option<Cut>,
}

impl KnownAnswer for HttpAnswer {
    /// Headers and times are not news.
    fn hash_into(&self, hasher: &mut dyn Hasher) -> bool {
        hasher.write_u16(self.status.as_u16());
        self.body().hash_into(hasher)
    }
}

/// Reads a body as JSON, else as text, else as a line about it. An empty body is `null`. Returns
/// whether it is text.
pub(super) fn read_body(bytes: &[u8], headers: &HeaderMap) -> (Value, bool) {
    // The byte order mark, which JSON does not have (RFC 8259, section 8.1).
    let bytes = bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(bytes);
    if bytes.is_empty() {
        return (Value::Null, false);
    }
    if let Ok(json) = serde_json::from_slice(bytes) {
        return (json, false);
    }
    let is_binary = str::from_utf8(bytes).is_err();
    let text = match media_type(headers).filter(|of| is_binary && !is_text(of)) {
        Some(of) => left_out_bytes("body", of, bytes.len()),
        None => String::from_utf8_lossy(bytes).into_owned(),
    };
    (text.into(), true)
}

/// The type of the content, without its parameters (RFC 9110, section 8.3).
fn media_type(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(CONTENT_TYPE)?.to_str().ok()?;
    value.split(';').next().map(str::trim)
}

/// Returns whether content of this type is text, in whichever charset.
fn is_text(media_type: &str) -> bool {
    let of = media_type.to_ascii_lowercase();
    let ends = ["json", "xml", "javascript", "x-www-form-urlencoded"];
    of.starts_with("text/") || ends.iter().any(|end| of.ends_with(end))
}

impl HttpAnswer {
    /// Returns the answer that is kept with an error: that of a status other than 2xx, as far as it
    /// was read, or of a 2xx that has no [result](super::HttpTool::with_result).
    pub fn of_error(error: &ToolError) -> Option<&Self> {
        let mut link = StdError::source(error);
        while let Some(error) = link {
            if let Some(Refused(answer)) = error.downcast_ref() {
                return Some(answer);
            }
            link = error.downcast_ref::<ToolError>().and_then(StdError::source);
        }
        None
    }

    /// Takes out the secrets that only this side knows.
    pub(super) fn hide(&mut self, secrets: &Rules) {
        if *secrets == Rules::new() {
            return;
        }
        secrets.hide_secrets(&mut self.body);
        for value in self.headers.values_mut() {
            let shown = String::from_utf8_lossy(value.as_bytes()).into_owned();
            if let Cow::Owned(hidden) = secrets.without_secrets(&shown) {
                let hidden = HeaderValue::try_from(hidden);
                *value = hidden.unwrap_or(HeaderValue::from_static(REDACTED));
            }
        }
    }

    /// Returns the status.
    pub fn upstream_status(&self) -> StatusCode {
        self.status
    }

    /// Returns the body: as JSON, else as text with U+FFFD for bytes that are not UTF-8, whatever
    /// charset the server names. A body that is not UTF-8 and has the `Content-Type` of an image, a
    /// sound, an archive or the like is a line: `[body left out: image/png, 12 bytes]`. An empty
    /// body is `null`. Not redacted.
    pub fn body(&self) -> Answer<'_> {
        match (self.json(), &self.body) {
            (None, Value::String(text)) => Answer::Text(text),
            (_, json) => Answer::Json(Cow::Borrowed(json)),
        }
    }

    /// The body, if it is JSON.
    pub(super) fn json(&self) -> Option<&Value> {
        (!self.is_text).then_some(&self.body)
    }

    /// Returns the body as JSON: a text is a string.
    pub fn into_json(self) -> Value {
        self.body
    }

    /// Returns the headers that the tool [keeps](super::HttpTool::with_kept_header).
    pub fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// Returns the kept headers as JSON; several of one name are joined.
    pub(super) fn kept_headers(&self) -> Map<String, Value> {
        to_json(&self.headers)
    }

    /// Returns the kept headers as a model reads them after the body: a line each, without the
    /// sensitive ones. The longest ones are left out until the others have at most `max`
    /// characters, with a note in their place.
    fn header_lines(&self, max: usize) -> String {
        let shown = self.headers.iter().filter(|(_, v)| !v.is_sensitive());
        let shown = to_json(&shown.map(|(n, v)| (n.clone(), v.clone())).collect());
        let line = |(name, value): (String, Value)| {
            let value = value.as_str().unwrap_or_default();
            let value: String = value.chars().map(plain).collect();
            format!("\n{name}: {value}")
        };
        let mut lines: Vec<_> = shown.into_iter().map(line).collect();
        lines.sort_by_key(String::len);
        let advice = self.cut.as_ref().map(|cut| format!("; {}", cut.advice()));
        let (all, advice) = (lines.len(), advice.unwrap_or_default());
        let mut text = lines.concat();
        while text.chars().count() > max {
            if lines.pop().is_none() {
                return String::new();
            }
            let left_out = all - lines.len();
            let note = format!("\n[{left_out} of {all} headers left out{advice}]");
            text = lines.concat() + &note;
        }
        text
    }

    /// Returns the header lines beside a body that may have been shortened.
    fn shown_headers(&self) -> String {
        let half = self.cut.as_ref().map(|cut| cut.max_chars() / 2);
        self.header_lines(half.unwrap_or(MAX_HEADERS).min(MAX_HEADERS))
    }

    /// Returns how many characters are left for the body.
    fn left_of(&self, max_chars: usize) -> usize {
        max_chars.saturating_sub(self.shown_headers().chars().count())
    }

    /// Leaves the kept headers on the call's record, for a bridge that sees the body alone, in
    /// place of those of an answer before.
    pub(super) fn tell(&self, call: &CallInfo) {
        call.record(|r| {
            if !self.headers.is_empty() || r.extension::<KeptHeaders>().is_some() {
                r.insert_extension(KeptHeaders(self.headers.clone()));
            }
        });
    }

    /// Returns how long it took, from the sent request to the end of the body.
    pub fn elapsed(&self) -> Duration {
        self.elapsed
    }
}

/// Shows the body's size, never what it says.
impl std::fmt::Debug for HttpAnswer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HttpAnswer")
            .field("status", &self.status)
            .field("body", &self.body())
            .field("elapsed", &self.elapsed)
            .finish_non_exhaustive()
    }
}

impl ModelText for HttpAnswer {
    fn model_text(&self) -> Cow<'_, str> {
        with_lines(self.body.model_text(), &self.shown_headers())
    }
}

fn with_lines<'a>(text: Cow<'a, str>, lines: &str) -> Cow<'a, str> {
    match lines {
        "" => text,
        lines => Cow::Owned(text.into_owned() + lines),
    }
}

impl Shorten for HttpAnswer {
    fn fits(&self, max_chars: usize) -> bool {
        self.body.fits(self.left_of(max_chars))
    }

    fn whole(&self) -> Cow<'_, str> {
        with_lines(self.body.whole(), &self.header_lines(usize::MAX))
    }

    /// Leaves out headers that do not fit into half of the room.
    fn shorten(&mut self, cut: &Cut) -> Result<(), AnyError> {
        self.cut = Some(cut.clone());
        let cut = cut.clone().to(self.left_of(cut.max_chars()));
        self.body.shorten(&cut)
    }
}

impl Serialize for HttpAnswer {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let ms = u64::try_from(self.elapsed.as_millis()).unwrap_or(u64::MAX);
        let mut result = to.serialize_struct("HttpAnswer", 5)?;
        let status = match self.is_failure {
            true => "failed",
            false => "completed",
        };
        result.serialize_field("status", status)?;
        result.serialize_field("result", &self.body)?;
        result.serialize_field("upstream_status", &self.status.as_u16())?;
        result.serialize_field("execution_time_ms", &ms)?;
        result.serialize_field("metadata", &self.kept_headers())?;
        result.end()
    }
}

/// The headers of the last answer that its tool keeps.
#[derive(Clone)]
#[cfg_attr(
    not(feature = "axum"),
    expect(dead_code, reason = "read by a bridge alone")
)]
pub(super) struct KeptHeaders(pub(super) HeaderMap);

/// Several of one name are joined.
pub(super) fn to_json(headers: &HeaderMap) -> Map<String, Value> {
    let joined = |name| {
        let values = headers.get_all(name).iter();
        let values = values.map(|v| String::from_utf8_lossy(v.as_bytes()));
        values.collect::<Vec<_>>().join(", ").into()
    };
    let names = headers.keys();
    names.map(|name| (name.to_string(), joined(name))).collect()
}

/// The source of an error that an answer means.
#[derive(Debug)]
pub(super) struct Refused(HttpAnswer);

impl Refused {
    pub(super) fn new(mut answer: HttpAnswer) -> Self {
        answer.is_failure = true;
        Self(answer)
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HTTP {}", self.0.status)
    }
}

impl StdError for Refused {}

/// Classifies answers of HTTP endpoints. Errors are classified as by [`ByError`]. A success that
/// has used up the server's limit (`RateLimit`, `X-RateLimit-Remaining` and the like) begins a
/// cooldown of a [rate-limit layer](tower_toolcall::rate_limit::RateLimitBackoffLayer).
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct HttpClassifier;

impl HttpClassifier {
    /// Makes the classifier.
    pub fn new() -> Self {
        Self
    }
}

impl Classify<HttpAnswer> for HttpClassifier {
    fn classify(&self, result: Result<&HttpAnswer, &ToolError>) -> Outcome {
        match result {
            Ok(HttpAnswer {
                cooldown: Some(cooldown),
                ..
            }) => Outcome::success().with_cooldown(*cooldown),
            other => ByError.classify(other),
        }
    }
}

impl tower_toolcall::router::IntoAnswer<Value> for HttpAnswer {
    fn into_answer(self) -> Result<Value, ToolError> {
        Ok(self.into_json())
    }
}

/// JSON as structured content, with its text; anything else as text. Kept headers are a text of
/// their own.
#[cfg(feature = "mcp")]
impl tower_toolcall::router::IntoAnswer<tower_toolcall_mcp::McpAnswer> for HttpAnswer {
    fn into_answer(self) -> Result<tower_toolcall_mcp::McpAnswer, ToolError> {
        let lines = self.shown_headers();
        let mut answer: tower_toolcall_mcp::McpAnswer = match self.body {
            Value::String(text) if self.is_text => text.into_answer(),
            json => json.into_answer(),
        }?;
        if let (Some(result), [_, ..]) = (answer.result_mut(), lines.as_bytes()) {
            let lines = rmcp::model::ContentBlock::text(&lines[1..]);
            result.content.push(lines);
        }
        Ok(answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tower_toolcall::{ToolCall, flow::CallExt};

    /// Of the body, status and headers stay.
    #[test]
    fn the_body_is_shortened() {
        let answer = |body: Value| HttpAnswer {
            status: StatusCode::OK,
            is_text: body.is_string(),
            body,
            headers: HeaderMap::new(),
            url: None,
            elapsed: Duration::ZERO,
            cooldown: None,
            retry_after: None,
            is_failure: false,
            cut: None,
        };
        let long = "x".repeat(1_000);
        for body in [long.clone().into(), serde_json::json!({ "a": long })] {
            let mut answer = answer(body);
            assert!(answer.fits(2_000) && !answer.fits(500));
            answer.shorten(&Cut::of(500)).unwrap();
            assert!(answer.fits(500) && !answer.fits(400));
            assert!(answer.model_text().contains(" of 1,000 characters"));
        }
    }

    /// A job's last answer has no header that only the one before had.
    #[test]
    fn kept_headers_are_those_of_the_last_answer() {
        let mut call = ToolCall::new("order");
        let _observation = call.observe();
        let call = call.info();
        let mut headers = HeaderMap::new();
        let answer = |headers: &HeaderMap| HttpAnswer {
            status: StatusCode::OK,
            body: Value::Null,
            is_text: false,
            headers: headers.clone(),
            url: None,
            elapsed: Duration::ZERO,
            cooldown: None,
            retry_after: None,
            is_failure: false,
            cut: None,
        };
        let kept = || {
            let mut kept = None;
            call.record(|r| kept = r.extension::<KeptHeaders>());
            kept.map(|kept| kept.0.len())
        };
        answer(&headers).tell(&call);
        assert_eq!(kept(), None);
        headers.insert("etag", http::HeaderValue::from_static("v7"));
        answer(&headers).tell(&call);
        assert_eq!(kept(), Some(1));
        answer(&HeaderMap::new()).tell(&call);
        assert_eq!(kept(), Some(0));
    }
}
