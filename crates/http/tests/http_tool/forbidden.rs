//! A 403 is a denial, unless the same answer says that a limit is used up.

use std::time::Duration;

use http::{HeaderMap, Method, Response, StatusCode};
use serde_json::json;
use tower::{ServiceBuilder, ServiceExt};
use tower_toolcall::{
    ErrorKind, Evidence, Execution, ServiceBuilderExt as _, ToolError,
    rate_limit::RateLimitBackoffLayer,
    retry::{RetryLayer, RetryPolicy},
};

use crate::kit::{Server, answered_by, call, full, hyper, leaves, no_arguments};

/// Fields of an answer's head, and its body.
type Forbidden = (&'static [(&'static str, &'static str)], &'static str);

const GITHUB: Forbidden = (
    &[
        ("date", "Tue, 01 Jul 2025 00:00:00 GMT"),
        ("x-ratelimit-limit", "60"),
        ("x-ratelimit-remaining", "0"),
        ("x-ratelimit-reset", "1751328030"),
    ],
    r#"{"message": "API rate limit exceeded for user ID 1.", "documentation_url": "https://docs.github.com"}"#,
);

const GITHUB_SECONDARY: Forbidden = (
    &[("retry-after", "60"), ("x-ratelimit-remaining", "4990")],
    r#"{"message": "You have exceeded a secondary rate limit."}"#,
);

const GITHUB_IN_WORDS: Forbidden = (
    &[("x-ratelimit-remaining", "4990")],
    r#"{"message": "You have exceeded a secondary rate limit. Please wait a few minutes."}"#,
);

const GOOGLE: Forbidden = (
    &[],
    r#"{"error": {"code": 403, "message": "Rate Limit Exceeded", "errors": [
        {"domain": "usageLimits", "reason": "rateLimitExceeded", "message": "Rate Limit Exceeded"}]}}"#,
);

const GOOGLE_USER: Forbidden = (
    &[],
    r#"{"error": {"errors": [{"domain": "usageLimits", "reason": "userRateLimitExceeded"}]}}"#,
);

const GOOGLE_QUOTA: Forbidden = (
    &[],
    r#"{"error": {"errors": [{"domain": "youtube.quota", "reason": "quotaExceeded"}]}}"#,
);

const FACEBOOK: Forbidden = (
    &[],
    r#"{"error": {"message": "(#4) Application request limit reached", "type": "OAuthException", "code": 4}}"#,
);

const SALESFORCE: Forbidden = (
    &[],
    r#"[{"message": "TotalRequests Limit exceeded.", "errorCode": "REQUEST_LIMIT_EXCEEDED"}]"#,
);

fn answer((headers, body): Forbidden) -> Response<crate::kit::Body> {
    let mut answer = Response::builder().status(StatusCode::FORBIDDEN);
    for (name, value) in headers {
        answer = answer.header(*name, *value);
    }
    answer.body(full(body)).unwrap()
}

async fn error(forbidden: Forbidden) -> ToolError {
    let server = Server::start(move |_, _| answer(forbidden)).await;
    let [hyper, reqwest] = leaves(&server.tool(Method::GET, "/"));
    let error = hyper.send(no_arguments()).await.unwrap_err();
    let other = reqwest.send(no_arguments()).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.retry_after()),
        (other.kind(), other.retry_after())
    );
    assert_eq!(error.status(), Some(StatusCode::FORBIDDEN));
    error
}

/// H-1: GitHub's headers, of both of its limits.
#[tokio::test]
async fn headers_of_a_used_up_limit_make_a_403_a_rate_limit() {
    for (forbidden, seconds) in [(GITHUB, Some(30)), (GITHUB_SECONDARY, Some(60))] {
        let error = error(forbidden).await;
        assert_eq!(error.kind(), ErrorKind::RateLimited, "{forbidden:?}");
        assert_eq!(error.evidence(), Evidence::Reported);
        assert!(error.is_retryable() && error.code() == "RATE_LIMITED");
        assert_eq!(error.retry_after(), seconds.map(Duration::from_secs));
    }
}

/// H-1: a limit that says that nothing is left, and not until when.
#[tokio::test]
async fn a_limit_without_a_reset_makes_a_403_a_rate_limit() {
    for headers in [
        &[("x-ratelimit-remaining", "0")][..],
        &[("x-rate-limit-remaining", "0")],
        &[("ratelimit", r#""daily";r=0"#)],
    ] {
        let error = error((headers, "")).await;
        assert_eq!(error.kind(), ErrorKind::RateLimited, "{headers:?}");
        assert_eq!(error.retry_after(), None);
    }
}

/// H-1: Google's reasons, and Salesforce's code.
#[tokio::test]
async fn a_code_of_a_limit_in_the_body_makes_a_403_a_rate_limit() {
    for forbidden in [GOOGLE, GOOGLE_USER, GOOGLE_QUOTA, SALESFORCE] {
        let error = error(forbidden).await;
        assert_eq!(error.kind(), ErrorKind::RateLimited, "{forbidden:?}");
        assert_eq!(error.evidence(), Evidence::Reported, "{forbidden:?}");
    }
}

/// H-1: words choose the kind, and prove nothing.
#[tokio::test]
async fn words_about_a_limit_make_a_403_an_inferred_rate_limit() {
    let proxy: Forbidden = (&[], "<p>Too many requests. Slow down.</p>");
    for forbidden in [GITHUB_IN_WORDS, FACEBOOK, proxy] {
        let error = error(forbidden).await;
        assert_eq!(error.kind(), ErrorKind::RateLimited, "{forbidden:?}");
        assert_eq!(error.evidence(), Evidence::Inferred, "{forbidden:?}");
    }
}

/// H-1: a code that stands among what the caller sent proves nothing, and closes no gate.
#[tokio::test]
async fn a_code_in_echoed_arguments_is_not_evidence() {
    for body in [
        r#"{"error": "forbidden", "request": {"reason": "rateLimitExceeded"}}"#,
        r#"{"error": {"message": "no", "input": [{"type": "too_many_requests"}]}}"#,
    ] {
        let error = error((&[], body)).await;
        assert_ne!(error.evidence(), Evidence::Reported, "{body}");
        assert_eq!(error.execution(), Execution::Unknown, "{body}");
    }
}

/// H-1: Google's newer errors have their reason among the details.
#[tokio::test]
async fn a_reason_among_details_is_a_code() {
    let body = r#"{"error": {"code": 403, "status": "PERMISSION_DENIED", "details": [
        {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "RATE_LIMIT_EXCEEDED"}]}}"#;
    let error = error((&[], body)).await;
    assert_eq!(
        (error.kind(), error.evidence()),
        (ErrorKind::RateLimited, Evidence::Reported)
    );
}

/// H-1: a body beyond 64 KiB is not parsed: its values would take a multiple of it.
#[test]
fn a_code_behind_a_huge_body_is_not_looked_for() {
    let body = format!(
        r#"[{}{{"code": "rateLimitExceeded"}}]"#,
        "0,".repeat(1 << 20)
    );
    let now = std::time::SystemTime::UNIX_EPOCH;
    let error = ToolError::from_http(StatusCode::FORBIDDEN, &HeaderMap::new(), &body, now);
    assert_eq!(error.kind(), ErrorKind::Denied);
}

/// H-1: what says nothing of a limit stays a denial.
#[tokio::test]
async fn any_other_403_is_a_denial() {
    let rows: [Forbidden; 5] = [
        (&[], ""),
        (
            &[
                ("x-ratelimit-remaining", "4999"),
                ("x-ratelimit-reset", "1751328030"),
            ],
            r#"{"message": "Resource not accessible by integration"}"#,
        ),
        // It says when the limit is full again, and not that it is used up.
        (&[("ratelimit-reset", "30")], ""),
        (
            &[],
            r#"{"error": {"code": 403, "errors": [{"reason": "insufficientPermissions"}]}}"#,
        ),
        (
            &[],
            r#"{"error": {"code": 403, "errors": [{"reason": "storageQuotaExceeded"}]}}"#,
        ),
    ];
    for forbidden in rows {
        let error = error(forbidden).await;
        assert_eq!(error.kind(), ErrorKind::Denied, "{forbidden:?}");
        assert!(!error.is_retryable() && error.retry_after().is_none());
    }
}

/// H-1: a retry layer sends the call again when the limit is over.
#[tokio::test(start_paused = true)]
async fn a_call_that_met_a_limit_by_a_403_is_sent_again_after_its_delay() {
    for forbidden in [GITHUB, GITHUB_SECONDARY, GOOGLE] {
        let sent = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let count = std::sync::Arc::clone(&sent);
        let tool = tower_toolcall_http::HttpTool::new(Method::GET, "http://h/").unwrap();
        let leaf = answered_by(tool, move |_| {
            match count.fetch_add(1, std::sync::atomic::Ordering::SeqCst) {
                0 => answer(forbidden),
                _ => Response::new(full("1")),
            }
        });
        let stack = ServiceBuilder::new()
            .layer(RetryLayer::new(RetryPolicy::new()))
            .layer(RateLimitBackoffLayer::new())
            .service(leaf);
        let begun = tokio::time::Instant::now();
        let answer = stack.oneshot(call(no_arguments())).await.unwrap();
        assert_eq!(answer.into_json(), json!(1));
        assert!(begun.elapsed() >= Duration::from_secs(1), "{forbidden:?}");
    }
}

/// H-1: a leaf of one's own, with reqwest's or any other client's answer.
#[test]
fn an_answer_of_any_client_becomes_an_error_by_its_head_and_body() {
    let headers = HeaderMap::from_iter([("retry-after".parse().unwrap(), "7".parse().unwrap())]);
    let now = std::time::SystemTime::UNIX_EPOCH;
    let of = |status: u16, headers: &HeaderMap, body: &str| {
        let status = StatusCode::from_u16(status).unwrap();
        ToolError::from_http(status, headers, body, now)
    };
    let none = HeaderMap::new();
    let error = of(403, &headers, "");
    assert_eq!(error.kind(), ErrorKind::RateLimited);
    assert_eq!(error.retry_after(), Some(Duration::from_secs(7)));
    assert_eq!(of(403, &none, GOOGLE.1).kind(), ErrorKind::RateLimited);
    assert_eq!(of(403, &none, "no").kind(), ErrorKind::Denied);
    assert_eq!(of(401, &headers, GOOGLE.1).kind(), ErrorKind::Denied);
    assert_eq!(of(503, &headers, "").kind(), ErrorKind::Upstream);
    // By its status and a delay alone.
    let error = ToolError::from_status(StatusCode::FORBIDDEN, "secondary rate limit");
    let error = error.with_retry_after(Duration::from_secs(60));
    assert_eq!(error.kind(), ErrorKind::RateLimited);
}

/// H-1: a limit told by a code closes the gate for all, one told in words does not.
#[tokio::test]
async fn only_a_code_of_a_limit_delays_other_calls() {
    for (forbidden, is_shared) in [(GOOGLE, true), (GITHUB, true), (GITHUB_IN_WORDS, false)] {
        let server = Server::start(move |_, _| answer(forbidden)).await;
        let leaf = server.tool(Method::GET, "/").client(hyper());
        let stack = ServiceBuilder::new()
            .layer(
                RateLimitBackoffLayer::builder()
                    .with_fail_fast()
                    .build()
                    .unwrap(),
            )
            .tool(leaf);
        for _ in 0..2 {
            let error = stack
                .clone()
                .oneshot(call(no_arguments()))
                .await
                .unwrap_err();
            assert_eq!(error.kind(), ErrorKind::RateLimited);
        }
        assert_eq!(
            server.count(),
            if is_shared { 1 } else { 2 },
            "{forbidden:?}"
        );
    }
}
