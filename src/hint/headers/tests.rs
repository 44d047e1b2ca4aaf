use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::{HeaderMap, HeaderName, HeaderValue};
use proptest::{collection::vec, prelude::*};

use super::*;
use crate::hint::HintSource as S;

/// Thu, 21 Aug 2025 12:40:59 GMT.
const NOW: u64 = 1_755_780_059;

fn now() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(NOW)
}

/// `name: value` on each line.
fn headers(lines: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for line in lines.lines().map(str::trim).filter(|l| !l.is_empty()) {
        let (name, value) = line.split_once(':').unwrap();
        headers.append(
            name.parse::<HeaderName>().unwrap(),
            HeaderValue::from_bytes(value.trim().as_bytes()).unwrap(),
        );
    }
    headers
}

fn refused(lines: &str) -> Option<(u64, S)> {
    let hint = from_headers(&headers(lines), now())?;
    let millis = u64::try_from(hint.delay?.as_millis());
    Some((millis.unwrap_or(u64::MAX), hint.source))
}

fn accepted(lines: &str) -> Option<u64> {
    let delay = exhausted(&headers(lines), now())?;
    Some(u64::try_from(delay.as_millis()).unwrap())
}

fn check(rows: &[(&str, u64, S)]) {
    for (lines, millis, source) in rows {
        assert_eq!(refused(lines), Some((*millis, *source)), "{lines}");
    }
}

/// Trap 9; RFC 9110, section 10.2.3.
#[test]
fn retry_after_is_read_in_all_its_forms() {
    #[rustfmt::skip]
    check(&[
        ("retry-after: 120", 120_000, S::RetryAfter),
        ("retry-after: 0", 0, S::RetryAfter),
        ("retry-after: 1.5", 1_500, S::RetryAfter),
        ("retry-after: Thu, 21 Aug 2025 12:41:29 GMT", 30_000, S::RetryAfter),
        ("retry-after: Thursday, 21-Aug-25 12:41:29 GMT", 30_000, S::RetryAfter),
        ("retry-after: Thu Aug 21 12:41:29 2025", 30_000, S::RetryAfter),
        ("retry-after: Thu, 21 Aug 2025 11:51:22 GMT", 0, S::RetryAfter),
        // As a proxy joins them, and as some write them.
        ("retry-after: 120, 120", 120_000, S::RetryAfter),
        ("retry-after: \"30\"", 30_000, S::RetryAfter),
        ("retry-after: 30s", 30_000, S::RetryAfter),
        // 30 s after the moment of the test.
        ("retry-after: 1755780089", 30_000, S::RetryAfter),
        // Several: the longest that is valid.
        ("retry-after: 5\nretry-after: 60\nretry-after: soon", 60_000, S::RetryAfter),
        ("retry-after: 5\nretry-after: Thu, 21 Aug 2025 12:41:29 GMT", 30_000, S::RetryAfter),
        // The peer's clock, ten minutes ahead of ours.
        ("date: Thu, 21 Aug 2025 12:50:59 GMT\nretry-after: Thu, 21 Aug 2025 12:51:09 GMT", 10_000, S::RetryAfter),
        ("date: rubbish\nretry-after: Thu, 21 Aug 2025 12:41:29 GMT", 30_000, S::RetryAfter),
        ("date: Thu, 21 Aug 2025 12:50:59 GMT\nretry-after: 7", 7_000, S::RetryAfter),
        ("retry-after: Fri, 31 Dec 9999 23:59:59 GMT", 251_646_520_740_000, S::RetryAfter),
        // K-6: what no duration can hold is the longest one.
        ("retry-after: 1e20", u64::MAX, S::RetryAfter),
        ("retry-after-ms: 250", 250, S::RetryAfterMs),
        ("x-ms-retry-after-ms: 250", 250, S::RetryAfterMs),
        ("retry-after-ms: 250.5\nretry-after: 1", 250, S::RetryAfterMs),
        ("retry-after-ms: -1\nretry-after: 1", 1_000, S::RetryAfter),
    ]);
    for rubbish in [
        "",
        "-1",
        "-0.5",
        "NaN",
        "inf",
        "1e400",
        "soon",
        "12 apples",
        "1,5",
        "0x10",
        "é",
        "Mon, 21 Aug 2025 12:41:29 GMT",
        "Sun, 06 Nov 99999 08:50:07 GMT",
        "Fri, 31 Feb 2020 00:00:00 GMT",
    ] {
        let lines = format!("retry-after: {rubbish}");
        assert_eq!(refused(&lines), None, "{rubbish}");
        let lines = format!("{lines}\nx-ratelimit-reset: 3");
        assert_eq!(
            refused(&lines),
            Some((3_000, S::XRateLimitReset)),
            "{rubbish}"
        );
    }
    assert_eq!(
        retry_after(" 1.5 ", now()),
        Some(Duration::from_millis(1_500))
    );
}

/// draft-ietf-httpapi-ratelimit-headers, its present form and the two before.
#[test]
fn the_rate_limit_fields_are_read() {
    #[rustfmt::skip]
    check(&[
        (r#"ratelimit: "default";r=0;t=30"#, 30_000, S::RateLimit),
        ("ratelimit: default;r=0;t=30", 30_000, S::RateLimit),
        (r#"ratelimit: "burst";r=0;t=5, "daily";r=0;t=3600"#, 3_600_000, S::RateLimit),
        (r#"ratelimit: "burst";r=0;t=5, "daily";r=900;t=3600"#, 5_000, S::RateLimit),
        ("ratelimit: \"burst\";r=0;t=5\nratelimit: \"daily\";r=0;t=60", 60_000, S::RateLimit),
        (r#"ratelimit: "default";r=0;t=30;pk=:dXNlcg==:"#, 30_000, S::RateLimit),
        // Where the time is missing, the policy's window.
        ("ratelimit: \"daily\";r=0\nratelimit-policy: \"burst\";q=100;w=60,\"daily\";q=1000;w=86400", 86_400_000, S::RateLimit),
        ("ratelimit: limit=100, remaining=0, reset=5", 5_000, S::RateLimit),
        ("ratelimit: limit=100, reset=5", 5_000, S::RateLimit),
        ("ratelimit-limit: 100\nratelimit-remaining: 0\nratelimit-reset: 5", 5_000, S::RateLimitReset),
        ("ratelimit-reset: 5", 5_000, S::RateLimitReset),
        // "Retry-After MUST take precedence"
        ("retry-after: 2\nratelimit: \"default\";r=0;t=30", 2_000, S::RetryAfter),
        ("ratelimit: \"default\";r=0;t=30\nratelimit-reset: 5\nx-ratelimit-reset: 9", 30_000, S::RateLimit),
        ("ratelimit-reset: 5\nx-ratelimit-reset: 9", 5_000, S::RateLimitReset),
        // A malformed one is ignored.
        ("ratelimit: \"default;r=0;t=30\nratelimit-reset: 5", 5_000, S::RateLimitReset),
    ]);
    for nothing in [
        r#"ratelimit: "default";r=50;t=30"#,
        "ratelimit: limit=100, remaining=50, reset=5",
        r#"ratelimit: "default";r=0"#,
        "ratelimit: \"default\";r=0\nratelimit-policy: \"other\";q=1;w=60",
        "ratelimit: \"default\";r=0\nratelimit-policy: \"default\";q=1;w=",
        r#"ratelimit: "default";t=30"#,
        r#"ratelimit: "default";r=0;t=-1"#,
        r#"ratelimit: "default";r=0;t=1.5"#,
        r#"ratelimit: "default";r=0;t="30""#,
        r#"ratelimit: "default";r=0;t=9999999999999999"#,
        r#"ratelimit: ("default");r=0;t=30"#,
        r#"ratelimit-policy: "burst";q=100;w=60"#,
        "ratelimit: limit=100, remaining=0, reset=(5)",
        "ratelimit-remaining: 50\nratelimit-reset: 5",
        "ratelimit-reset: -1",
    ] {
        assert_eq!(refused(nothing), None, "{nothing}");
    }
}

/// What vendors send with a refusal.
#[test]
fn vendors_are_understood() {
    #[rustfmt::skip]
    check(&[
        // GitHub: primary limit (403 or 429), secondary limit
        ("x-ratelimit-limit: 60\nx-ratelimit-remaining: 0\nx-ratelimit-used: 60\nx-ratelimit-resource: core\nx-ratelimit-reset: 1755780359", 300_000, S::XRateLimitReset),
        ("x-ratelimit-remaining: 4900\nx-ratelimit-reset: 1755780359\nretry-after: 60", 60_000, S::RetryAfter),
        ("date: Thu, 21 Aug 2025 12:45:49 GMT\nx-ratelimit-remaining: 0\nx-ratelimit-reset: 1755780359", 10_000, S::XRateLimitReset),
        ("x-ratelimit-remaining: 0\nx-ratelimit-reset: 1755768282", 0, S::XRateLimitReset),
        // OpenAI, Groq, Cerebras, Azure
        ("x-ratelimit-remaining-requests: 0\nx-ratelimit-reset-requests: 1s\nx-ratelimit-remaining-tokens: 100\nx-ratelimit-reset-tokens: 6m0s", 1_000, S::XRateLimitReset),
        ("x-ratelimit-remaining-requests: 0\nx-ratelimit-reset-requests: 12ms\nx-ratelimit-remaining-tokens: 0\nx-ratelimit-reset-tokens: 6m0s", 360_000, S::XRateLimitReset),
        ("x-ratelimit-reset-requests: 12ms\nx-ratelimit-reset-tokens: 1m26.4s", 86_400, S::XRateLimitReset),
        ("retry-after-ms: 812\nretry-after: 1\nx-ratelimit-remaining-tokens: 0\nx-ratelimit-reset-tokens: 6m0s", 812, S::RetryAfterMs),
        ("x-ratelimit-remaining-tokens: 0\nx-ratelimit-reset-tokens: 7.66s\nx-ratelimit-remaining-requests: 14370\nx-ratelimit-reset-requests: 2m59.56s", 7_660, S::XRateLimitReset),
        ("x-ratelimit-remaining-requests-day: 0\nx-ratelimit-reset-requests-day: 33011.5\nx-ratelimit-remaining-tokens-minute: 9\nx-ratelimit-reset-tokens-minute: 11.5", 33_011_500, S::XRateLimitReset),
        ("x-ratelimit-remaining-requests: 0\nx-ratelimit-reset-requests: 10", 10_000, S::XRateLimitReset),
        ("x-ratelimit-remaining-requests: -1\nx-ratelimit-reset-requests: -1\nx-ratelimit-remaining-tokens: 0\nx-ratelimit-reset-tokens: 4", 4_000, S::XRateLimitReset),
        // Anthropic: the limits of an API key, those of a subscription
        ("anthropic-ratelimit-requests-remaining: 49\nanthropic-ratelimit-requests-reset: 2025-08-21T12:41:00Z\nanthropic-ratelimit-input-tokens-remaining: 0\nanthropic-ratelimit-input-tokens-reset: 2025-08-21T12:41:29Z", 30_000, S::XRateLimitReset),
        ("anthropic-ratelimit-output-tokens-remaining: 0\nanthropic-ratelimit-output-tokens-reset: 2025-08-21T12:41:09Z\nanthropic-ratelimit-tokens-remaining: 0\nanthropic-ratelimit-tokens-reset: 2025-08-21T13:41:19+01:00", 20_000, S::XRateLimitReset),
        ("date: Wed, 30 Apr 2025 13:31:10 GMT\nretry-after: 4\nx-should-retry: true\nanthropic-ratelimit-input-tokens-remaining: 0\nanthropic-ratelimit-input-tokens-reset: 2025-04-30T13:32:11Z", 4_000, S::RetryAfter),
        ("date: Wed, 30 Apr 2025 13:31:10 GMT\nanthropic-ratelimit-input-tokens-remaining: 0\nanthropic-ratelimit-input-tokens-reset: 2025-04-30T13:32:11Z", 61_000, S::XRateLimitReset),
        ("anthropic-ratelimit-unified-status: rejected\nanthropic-ratelimit-unified-reset: 1755783659", 3_600_000, S::XRateLimitReset),
        ("anthropic-ratelimit-unified-5h-status: rejected\nanthropic-ratelimit-unified-5h-reset: 1755783659\nanthropic-ratelimit-unified-7d-status: allowed_warning\nanthropic-ratelimit-unified-7d-reset: 1756384859", 3_600_000, S::XRateLimitReset),
        ("anthropic-ratelimit-unified-5h-utilization: 1.08\nanthropic-ratelimit-unified-5h-reset: 1755783659\nanthropic-ratelimit-unified-7d-utilization: 0.30\nanthropic-ratelimit-unified-7d-reset: 1756384859", 3_600_000, S::XRateLimitReset),
        ("anthropic-ratelimit-unified-reset: 1755780069", 10_000, S::XRateLimitReset),
        // Slack, Notion, Stripe, Shopify: Retry-After alone
        ("retry-after: 30", 30_000, S::RetryAfter),
        ("retry-after: 2.0", 2_000, S::RetryAfter),
        // Discord, Reddit: fractions
        ("retry-after: 65\nx-ratelimit-remaining: 0\nx-ratelimit-reset: 1755780123.57\nx-ratelimit-reset-after: 64.57", 65_000, S::RetryAfter),
        ("x-ratelimit-remaining: 0\nx-ratelimit-reset-after: 64.5\nx-ratelimit-bucket: abcd1234", 64_500, S::XRateLimitReset),
        ("x-ratelimit-used: 100\nx-ratelimit-remaining: 0.0\nx-ratelimit-reset: 423", 423_000, S::XRateLimitReset),
        // X, Okta
        ("x-rate-limit-limit: 900\nx-rate-limit-remaining: 0\nx-rate-limit-reset: 1755780959", 900_000, S::XRateLimitReset),
        ("x-app-limit-24hour-remaining: 0\nx-app-limit-24hour-reset: 1755783659\nx-rate-limit-remaining: 10\nx-rate-limit-reset: 1755780959", 3_600_000, S::XRateLimitReset),
        // Linear: milliseconds since 1970
        ("x-ratelimit-requests-remaining: 0\nx-ratelimit-requests-reset: 1755780064000", 5_000, S::XRateLimitReset),
        ("x-complexity-limit: 1\nx-ratelimit-complexity-remaining: 0\nx-ratelimit-complexity-reset: 1755780064500", 5_500, S::XRateLimitReset),
        // GitLab, Zendesk: the draft's names, with seconds since 1970, with seconds
        ("ratelimit-remaining: 0\nratelimit-reset: 1755780119\nratelimit-resettime: Thu, 21 Aug 2025 12:41:59 GMT", 60_000, S::RateLimitReset),
        ("ratelimit-remaining: 0\nratelimit-reset: 41\nx-rate-limit: 700\nx-rate-limit-remaining: 0", 41_000, S::RateLimitReset),
        // Docker Hub: the window beside the number
        ("ratelimit-limit: 100;w=21600\nratelimit-remaining: 0;w=21600\nratelimit-reset: 9", 9_000, S::RateLimitReset),
        // Brave: per second and per month
        ("x-ratelimit-limit: 1, 15000\nx-ratelimit-policy: 1;w=1, 15000;w=2592000\nx-ratelimit-remaining: 0, 14523\nx-ratelimit-reset: 1, 1419704", 1_000, S::XRateLimitReset),
        ("x-ratelimit-remaining: 0, 0\nx-ratelimit-reset: 1, 1419704", 1_419_704_000, S::XRateLimitReset),
        ("x-ratelimit-remaining: 0\nx-ratelimit-remaining: 7\nx-ratelimit-reset: 1\nx-ratelimit-reset: 60", 1_000, S::XRateLimitReset),
        // Vimeo, Jira: moments
        ("x-ratelimit-remaining: 0\nx-ratelimit-reset: 2025-08-21T12:41:59+00:00", 60_000, S::XRateLimitReset),
        ("x-ratelimit-remaining: 0\nx-ratelimit-reset: 2025-08-21T12:42Z", 61_000, S::XRateLimitReset),
        ("x-ratelimit-remaining: 0\nx-ratelimit-reset: Thu, 21 Aug 2025 12:41:29 GMT", 30_000, S::XRateLimitReset),
        // Hugging Face, Cloudflare: the draft
        (r#"ratelimit: "api";r=0;t=55"#, 55_000, S::RateLimit),
        ("ratelimit: \"default\";r=0;t=5\nratelimit-policy: \"default\";q=1200;w=300\nretry-after: 6", 6_000, S::RetryAfter),
        // Contentful
        ("x-contentful-ratelimit-second-remaining: 0\nx-contentful-ratelimit-reset: 1", 1_000, S::XRateLimitReset),
        // Mistral
        ("ratelimitbysize-remaining: 0\nratelimitbysize-reset: 12", 12_000, S::XRateLimitReset),
    ]);
    for nothing in [
        // GitHub: a 403 that is no limit
        "x-ratelimit-remaining: 57\nx-ratelimit-reset: 1755780359",
        // GitLab: its second form of the same header does not count for more
        "ratelimit-remaining: 500\nratelimit-reset: 1755780119\nratelimit-resettime: Thu, 21 Aug 2025 12:41:59 GMT",
        // Anthropic: other limits are far from used up
        "anthropic-ratelimit-unified-status: allowed\nanthropic-ratelimit-unified-reset: 1755783659",
        "anthropic-ratelimit-unified-5h-utilization: 0.42\nanthropic-ratelimit-unified-5h-reset: 1755783659",
        // lemlist: the date of a JavaScript engine
        "x-ratelimit-remaining: 0\nx-ratelimit-reset: Tue Feb 16 2021 09:02:42 GMT+0100 (Central European Standard Time)",
        "x-ratelimit-reset: NaN",
        "x-ratelimit-reset: -1",
        "x-ratelimit-reset: 1e400",
        "x-ratelimit-reset: é",
        "x-ratelimit-reset-ms: 100",
        "x-ratelimit-reset: 1, 2",
        "x-reset: 5",
        "x-ratelimit-resets: 5",
        "content-type: text/plain",
    ] {
        assert_eq!(refused(nothing), None, "{nothing}");
    }
}

#[test]
fn x_should_retry_is_the_verdict_with_and_without_a_delay() {
    let hint = |lines| from_headers(&headers(lines), now());
    let found = hint("x-should-retry: false").unwrap();
    assert_eq!((found.delay, found.retry), (None, Some(false)));
    assert_eq!(found.source, S::ShouldRetry);
    let found = hint("x-should-retry: True\nretry-after: 1").unwrap();
    assert_eq!(found.retry, Some(true));
    assert_eq!(found.source, S::RetryAfter);
    assert_eq!(hint("x-should-retry: maybe"), None);
    assert_eq!(hint("retry-after: 1").unwrap().retry, None);
}

#[test]
fn a_success_tells_of_limits_that_are_used_up_and_of_no_others() {
    for (lines, millis) in [
        (r#"ratelimit: "default";r=0;t=30"#, Some(30_000)),
        (r#"ratelimit: "default";r=1;t=30"#, None),
        ("ratelimit: limit=100, remaining=0, reset=5", Some(5_000)),
        ("ratelimit: limit=100, reset=5", None),
        ("ratelimit-remaining: 0\nratelimit-reset: 5", Some(5_000)),
        (
            "x-ratelimit-remaining: 0\nx-ratelimit-reset: 1755780069",
            Some(10_000),
        ),
        (
            "x-ratelimit-remaining: 1\nx-ratelimit-reset: 1755780069",
            None,
        ),
        ("x-ratelimit-reset: 1755780069", None),
        ("x-ratelimit-remaining: -1\nx-ratelimit-reset: 5", None),
        (
            "x-ratelimit-remaining-requests: 0\nx-ratelimit-reset-requests: 8s\n\
             x-ratelimit-remaining-tokens: 0\nx-ratelimit-reset-tokens: 20s",
            Some(20_000),
        ),
        ("retry-after: 5", None),
        ("x-should-retry: true", None),
    ] {
        assert_eq!(accepted(lines), millis, "{lines}");
    }
}

#[test]
fn values_that_are_no_text_or_too_long_are_ignored() {
    let mut map = headers("x-ratelimit-reset: 3");
    map.append("retry-after", HeaderValue::from_bytes(b"\xff\xfe").unwrap());
    let long = HeaderValue::from_bytes(&vec![b'1'; 16 << 20]).unwrap();
    for name in ["retry-after", "retry-after-ms", "ratelimit", "date"] {
        map.append(name, long.clone());
    }
    let hint = from_headers(&map, now()).unwrap();
    assert_eq!(hint.delay, Some(Duration::from_secs(3)));

    // Many lines of one header.
    let mut map = HeaderMap::new();
    for _ in 0..20_000 {
        map.append("ratelimit", HeaderValue::from_static("\"a\";r=0;t=1"));
        map.append("x-ratelimit-reset", HeaderValue::from_static("1"));
        map.append("retry-after", HeaderValue::from_static("x"));
    }
    assert_eq!(from_headers(&map, now()), None);
}

#[rustfmt::skip]
const NAMES: &[&str] = &[
    "date", "retry-after", "retry-after-ms", "x-should-retry", "ratelimit", "ratelimit-policy",
    "ratelimit-remaining", "ratelimit-reset", "x-ratelimit-remaining", "x-ratelimit-reset",
    "x-ratelimit-reset-after", "x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens",
    "anthropic-ratelimit-unified-status", "anthropic-ratelimit-unified-utilization",
    "anthropic-ratelimit-unified-reset",
];

/// Bytes at random, and text that is nearly right.
fn value() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        vec(any::<u8>(), 0..64),
        "[0-9]{1,45}(\\.[0-9]{0,30})?(e-?[0-9]{1,4})?".prop_map(String::into_bytes),
        "-?([0-9]{0,25}(\\.[0-9]{0,25})?(ns|us|ms|s|m|h)){1,4}".prop_map(String::into_bytes),
        "\"[a-z]{0,3}\";r=-?[0-9]{1,16}(;t=-?[0-9]{1,16})?(, ?[a-z]{1,3};r=0;t=[0-9]{1,3})?"
            .prop_map(String::into_bytes),
        "(limit=[0-9]{1,3}, )?remaining=0, reset=[0-9]{1,16}".prop_map(String::into_bytes),
        "[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}(:[0-9]{2}(\\.[0-9]{0,25})?)?(Z|[+-][0-9]{2}:[0-9]{2})"
            .prop_map(String::into_bytes),
        "(Sun|Mon), [0-9]{2} (Nov|Dec|Feb) [0-9]{4} [0-9]{2}:[0-9]{2}:[0-9]{2} GMT"
            .prop_map(String::into_bytes),
    ]
}

/// `(name, value)`s that say "in n seconds", at a server whose clock says `at`.
fn forms(n: u64, at: u64) -> Vec<(&'static str, String)> {
    let moment = UNIX_EPOCH + Duration::from_secs(at + n);
    let date = httpdate::fmt_http_date(moment);
    vec![
        ("retry-after-ms", (n * 1000).to_string()),
        ("retry-after", n.to_string()),
        ("retry-after", format!("{n}.0")),
        ("retry-after", date.clone()),
        ("ratelimit", format!("\"default\";r=0;t={n}")),
        ("ratelimit", format!("limit=1, remaining=0, reset={n}")),
        ("ratelimit-reset", n.to_string()),
        ("x-ratelimit-reset", n.to_string()),
        ("x-ratelimit-reset", (at + n).to_string()),
        ("x-ratelimit-reset", ((at + n) * 1000).to_string()),
        ("x-ratelimit-reset", date),
        ("x-ratelimit-reset-tokens", format!("{n}s")),
        (
            "x-ratelimit-reset-tokens",
            format!("{}h{}m{}s", n / 3600, n / 60 % 60, n % 60),
        ),
        ("anthropic-ratelimit-tokens-reset", rfc3339_text(at + n)),
    ]
}

/// Written with httpdate, read by ours.
fn rfc3339_text(at: u64) -> String {
    let date = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(at));
    let months = "JanFebMarAprMayJunJulAugSepOctNovDec";
    let month = months.find(&date[8..11]).unwrap() / 3 + 1;
    format!(
        "{}-{month:02}-{}T{}Z",
        &date[12..16],
        &date[5..7],
        &date[17..25]
    )
}

/// Returns the number of random cases: `PROPTEST_CASES`, else 64.
fn cases() -> u32 {
    let cases = std::env::var("PROPTEST_CASES");
    cases.map_or(64, |cases| {
        cases.parse().expect("PROPTEST_CASES is a number")
    })
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: cases(),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn no_headers_make_it_panic(
        lines in vec((0..NAMES.len(), value()), 0..24),
        now in prop_oneof![Just(0), any::<u32>().prop_map(u64::from), Just(1 << 62)],
    ) {
        let mut map = HeaderMap::new();
        for (name, value) in &lines {
            if let Ok(value) = HeaderValue::from_bytes(value) {
                map.append(NAMES[*name], value);
            }
        }
        let now = UNIX_EPOCH + Duration::from_secs(now);
        let hint = from_headers(&map, now);
        prop_assert!(hint.is_none_or(|h| h.delay.is_some() || h.retry.is_some()));
        let _ = exhausted(&map, now);
    }

    /// From the year 2001 on, so that seconds since 1970 are more than 10⁹.
    #[test]
    fn n_seconds_are_n_seconds_in_each_form(
        n in prop_oneof![0..100_u64, 0..1_000_000_000_u64],
        server in 1_000_000_001..4_000_000_000_u64,
        ours in 0..4_000_000_000_u64,
    ) {
        let ours = UNIX_EPOCH + Duration::from_secs(ours);
        let date = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(server));
        for (name, value) in forms(n, server) {
            let map = headers(&format!("date: {date}\n{name}: {value}"));
            let hint = from_headers(&map, ours).expect(name);
            prop_assert_eq!(hint.delay, Some(Duration::from_secs(n)), "{}: {}", name, value);
        }
    }

    #[test]
    fn no_text_makes_it_panic(text in "\\PC{0,80}", tail in "(retry after|try again in|wait) [0-9.,:\\-a-z ]{0,40}") {
        let _ = crate::hint::from_text(&format!("{text} {tail}"));
        let _ = crate::hint::from_text(&tail);
        let _ = go_duration(&tail[5..]);
        let _ = crate::hint::from_grpc_pushback(&text);
        let _ = moment::rfc3339(&text);
    }

    #[test]
    fn n_seconds_in_a_text_are_n_seconds(n in 0..1_000_000_000_u64) {
        for text in [
            format!("Retry-After: {n}"),
            format!("please try again in {n}s."),
            format!("retry after {n} seconds"),
            format!("wait {n} sec"),
            format!("retry in {}ms", n * 1000),
            format!("try again in {}m{}s", n / 60, n % 60),
        ] {
            let hint = crate::hint::from_text(&text).expect(&text);
            prop_assert_eq!(hint.delay, Some(Duration::from_secs(n)), "{}", text);
        }
        let body = serde_json::json!({ "error": { "data": { "retry_after": n } } });
        prop_assert_eq!(crate::hint::from_json(&body).unwrap().delay, Some(Duration::from_secs(n)));
    }
}
