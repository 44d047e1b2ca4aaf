//! How fast redaction is: `cargo test --release -p toolcall-redact --test speed -- --nocapture
//! --ignored`.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]

use std::{hint::black_box, time::Instant};

use serde_json::json;
use toolcall_redact::{Redacted, Rules, is_sensitive_key, redact_text};

/// The best of some rounds, in nanoseconds for each of `n`.
fn best(n: usize, mut work: impl FnMut()) -> f64 {
    #[allow(clippy::disallowed_methods, reason = "no runtime, and no paused clock")]
    let round = |work: &mut dyn FnMut()| {
        let start = Instant::now();
        work();
        start.elapsed().as_nanos() as f64
    };
    (0..20).map(|_| round(&mut work)).fold(f64::MAX, f64::min) / n as f64
}

#[test]
#[ignore = "prints times, asserts nothing: cargo test --release -- --ignored --nocapture"]
fn speed() {
    const KEYS: &[&str] = &[
        "query",
        "max_results",
        "user_name",
        "description",
        "location",
        "start_date",
        "include_raw",
        "pageNumber",
        "language",
        "temperature",
        "file_path",
        "timezone",
    ];
    let ordinary = best(KEYS.len() * 10_000, || {
        for _ in 0..10_000 {
            for key in KEYS {
                black_box(is_sensitive_key(black_box(key)));
            }
        }
    });
    let sensitive = best(10_000, || {
        for _ in 0..10_000 {
            black_box(is_sensitive_key(black_box("api_key")));
        }
    });
    println!("key: ordinary {ordinary:.1} ns, sensitive {sensitive:.1} ns");

    let texts = [
        ("prose", "The quick brown fox was found at line 42 of src/main.rs, and 17 files were left. ".repeat(1_000)),
        ("log", "2024-01-01T12:00:00Z INFO request id=550e8400-e29b-41d4-a716-446655440000 path=/a/b status: 200 took 12ms\n".repeat(1_000)),
        ("base64", "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk".repeat(1_000)),
        ("secrets", "GET /x?api_key=s3cr3t&q=1 with Bearer abcdef123456 and password: hunter2, then more of it. ".repeat(1_000)),
    ];
    for (name, text) in &texts {
        let ns = best(text.len(), || {
            black_box(redact_text(black_box(text)));
        });
        println!("text, {name}: {:.0} MB/s", 1_000.0 / ns);
    }
    let values: Vec<_> = (0..64_u64)
        .map(|n| format!("{:040x}", n.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
        .collect();
    let log = &texts[1].1;
    for count in [2, 64] {
        let rules = Rules::new().with_secrets(values[..count].iter().map(|value| &**value));
        for (kind, text) in [("plain", log.clone()), ("escaped", log.replace(' ', "\\n"))] {
            let ns = best(text.len(), || {
                black_box(rules.without_secrets(black_box(&text)));
            });
            println!(
                "{count} registered values, {kind}: {:.0} MB/s",
                1_000.0 / ns
            );
        }
    }
    let short = best(10_000, || {
        for _ in 0..10_000 {
            black_box(redact_text(black_box("search_files")));
        }
    });
    println!("a name: {short:.1} ns");

    let arguments = json!({ "query": "tower", "max_results": 10, "user_name": "ada", "api_key": "x", "path": "/src" });
    let view = best(1_000, || {
        for _ in 0..1_000 {
            black_box(Redacted::of(black_box(&arguments)).to_string());
        }
    });
    println!("view of 5 keys: {view:.0} ns");
}
