//! Whatever stands in a text or in JSON, redaction gives a bounded view.
//!
//! `cargo fuzz run --fuzz-dir tests/fuzz redact -- -max_total_time=60`, with a stable toolchain `-s none`
//! before `redact`.
//!
//! The input is taken as text, as a key and as JSON.
#![no_main]

use libfuzzer_sys::fuzz_target;
use serde_json::Value;
use tower_toolcall::redact::{MAX_BYTES, Rules, is_sensitive_key, redact_text};

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let _ = is_sensitive_key(text);
    let once = redact_text(text);
    let _ = redact_text(&once);
    let rules = Rules::default();
    assert!(rules.text(text, 20).to_string().chars().count() <= 20 + "...[truncated]".len());
    if let Ok(value) = serde_json::from_str::<Value>(text) {
        assert!(rules.json(&value).to_string().len() <= MAX_BYTES);
    }
});
