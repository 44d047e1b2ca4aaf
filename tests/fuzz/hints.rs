//! Whatever a peer sends, `hint` gives a value or nothing.
//!
//! `cargo fuzz run --fuzz-dir tests/fuzz hints -- -max_total_time=60`, with a stable toolchain `-s none`
//! before `hints`.
//!
//! The input is lines of `name: value`, which are taken as headers, as JSON and as text.
#![no_main]

use std::time::{Duration, SystemTime};

use http::{HeaderMap, HeaderName, HeaderValue};
use libfuzzer_sys::fuzz_target;
use tower_toolcall::hint;

fuzz_target!(|data: &[u8]| {
    let mut headers = HeaderMap::new();
    for line in data.split(|b| *b == b'\n').take(1_000) {
        let mut parts = line.splitn(2, |b| *b == b':');
        let (Some(name), Some(value)) = (parts.next(), parts.next()) else {
            continue;
        };
        let (name, value) = (HeaderName::from_bytes(name), HeaderValue::from_bytes(value));
        if let (Ok(name), Ok(value)) = (name, value) {
            headers.append(name, value);
        }
    }
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_755_780_059);
    let _ = hint::from_headers(&headers, now);
    let _ = hint::exhausted(&headers, now);
    if let Ok(value) = serde_json::from_slice(data) {
        let _ = hint::from_json(&value);
    }
    if let Ok(text) = std::str::from_utf8(data) {
        let _ = hint::from_text(text);
        let _ = hint::from_grpc_pushback(text);
        let _ = hint::go_duration(text);
        let _ = hint::rfc3339(text);
    }
});
