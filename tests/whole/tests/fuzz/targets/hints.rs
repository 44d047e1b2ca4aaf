//! Whatever a peer sends, `hint` gives a value or nothing.
//!
//! The input is lines of `name: value`, which are taken as headers, as JSON and as text.

use std::time::{Duration, SystemTime};

use http::{HeaderMap, HeaderName, HeaderValue};
use tower_toolcall::hint::{self, Hint};

pub(crate) fn run(data: &[u8]) {
    let mut headers = HeaderMap::new();
    for line in data.split(|b| *b == b'\n').take(1_000) {
        let mut parts = line.splitn(2, |b| *b == b':');
        let (Some(name), Some(value)) = (parts.next(), parts.next()) else {
            continue;
        };
        let value = HeaderValue::from_bytes(value.trim_ascii());
        if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name), value) {
            headers.append(name, value);
        }
    }
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_755_780_059);
    is_sane(hint::from_headers(&headers, now));
    let _ = hint::exhausted(&headers, now);
    if let Ok(value) = serde_json::from_slice(data) {
        is_sane(hint::from_json(&value));
    }
    let text = String::from_utf8_lossy(data);
    is_sane(hint::from_text(&text));
    let pushback = hint::from_grpc_pushback(&text);
    assert_eq!(pushback.retry, Some(pushback.delay.is_some()));
    if let Ok(reset) = HeaderValue::from_str(&text) {
        headers.insert("x-ratelimit-reset", reset);
        is_sane(hint::from_headers(&headers, now));
    }
}

/// A hint says something. How long is too long to wait, layers decide.
fn is_sane(hint: Option<Hint>) {
    let Some(hint) = hint else { return };
    assert!(hint.delay.is_some() || hint.retry.is_some(), "{hint:?}");
}
