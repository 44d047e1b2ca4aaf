//! A load of calls, one kind for each way to end, and what their caller knows of them.

use std::{collections::BTreeMap, time::Duration};

use serde_json::json;
use tokio::time::{Instant, sleep, timeout};
use tower::{ServiceBuilder, ServiceExt, service_fn, util::BoxCloneSyncService};
use tower_toolcall::{
    BoxError, Classify, Outcome, ReplaySafety, ToolCall, ToolError,
    backoff::{Backoff, Jitter},
    catch_panic::CatchPanicLayer,
    circuit_breaker::CircuitBreakerLayer,
    deadline::DeadlineLayer,
    health::Health,
    outcome::{ByError, classify_fn},
    rate_limit::RateLimitBackoffLayer,
    retry::{RetryLayer, RetryPolicy},
    timeout::TimeoutLayer,
    trace::TraceLayer,
};

use super::{Answers, p95, share};

/// Stands in arguments and errors.
pub(crate) const CANARY: &str = "s3cr3t-canary";

type Stack = BoxCloneSyncService<ToolCall, &'static str, ToolError>;

/// A tool for each way to end; arguments say how long it takes.
async fn tool(call: ToolCall) -> Result<&'static str, BoxError> {
    let ms = call.arguments()["ms"].as_u64().unwrap();
    sleep(Duration::from_millis(ms)).await;
    let first = call.attempt() == 1;
    match call.tool() {
        "flaky" if first => Err(format!("503 Service Unavailable: Bearer {CANARY}-0123").into()),
        "limited" if first => Err("429 Too Many Requests, retry after 2 seconds".into()),
        "dead" => Err(format!("502 Bad Gateway: https://bot:{CANARY}@example.com/").into()),
        "denied" => Err(format!("403 Forbidden: api_key={CANARY}").into()),
        "reports" => Ok("error: no such city"),
        "hangs" | "dropped" => std::future::pending().await,
        "panics" => panic!("boom"),
        _ => Ok("sunny"),
    }
}

fn stack() -> Stack {
    let classifier = classify_fn(|result: Result<&&str, &ToolError>| match result {
        Ok(text) if text.starts_with("error") => Outcome::reported(),
        other => ByError.classify(other),
    });
    let backoff = Backoff::fixed(Duration::from_millis(100)).unwrap();
    let retry = RetryPolicy::new().with_backoff(backoff.with_jitter(Jitter::None));
    let stack = ServiceBuilder::new()
        .layer(TraceLayer::new().with_classifier(classifier))
        .layer(DeadlineLayer::inherited())
        .layer(RetryLayer::new(retry.without_budget()))
        .layer(RateLimitBackoffLayer::new())
        .layer(Health::new().layer())
        .layer(CircuitBreakerLayer::new())
        .layer(TraceLayer::attempts())
        .layer(TimeoutLayer::new(Duration::from_secs(1)))
        .layer(CatchPanicLayer::new())
        .service(service_fn(tool));
    BoxCloneSyncService::new(stack)
}

fn call(tool: &str, ms: u64) -> ToolCall {
    let arguments =
        json!({ "ms": ms, "password": CANARY, "note": format!("Bearer {CANARY}-4567") });
    let call = ToolCall::new(tool).with_server("demo").with_trace_id("t-1");
    call.with_id("call-7").with_json(arguments).unwrap()
}

/// How a call has to look in the log.
pub(crate) struct Known {
    code: Option<&'static str>,
    success: bool,
    attempts: u64,
    duration_ms: f64,
}

#[derive(Default)]
pub(crate) struct Ledger {
    pub(crate) calls: Vec<Known>,
}

impl Ledger {
    pub(crate) fn retries(&self) -> u64 {
        self.calls
            .iter()
            .map(|c| c.attempts.saturating_sub(1))
            .sum()
    }

    pub(crate) fn answers(&self) -> Answers {
        let mut errors = BTreeMap::new();
        for code in self.calls.iter().filter_map(|c| c.code) {
            *errors.entry(code.to_owned()).or_default() += 1;
        }
        Answers {
            success_rate: share(&self.calls, |c| c.success),
            p95: p95(self.calls.iter().map(|c| c.duration_ms)),
            errors,
            repeated: share(&self.calls, |c| c.attempts > 1),
            retries_per_call: self.retries() as f64 / self.calls.len() as f64,
        }
    }

    /// Makes a call, of which this is known: its code, if it is no success, and its attempts.
    async fn call(
        &mut self,
        stack: &Stack,
        call: ToolCall,
        code: Option<&'static str>,
        attempts: u64,
    ) {
        let begun = Instant::now();
        let patience = Duration::from_millis(if call.tool() == "dropped" {
            500
        } else {
            60_000
        });
        let result = timeout(patience, stack.clone().oneshot(call)).await;
        self.calls.push(Known {
            code,
            success: code.is_none() && result.is_ok(),
            attempts,
            duration_ms: begun.elapsed().as_secs_f64() * 1e3,
        });
    }
}

pub(crate) async fn run() -> Ledger {
    let (stack, mut ledger) = (stack(), Ledger::default());
    let safe = |tool, ms| call(tool, ms).with_replay_safety(ReplaySafety::Safe);
    for ms in 1..=60 {
        ledger.call(&stack, call("works", ms), None, 1).await;
    }
    for _ in 0..10 {
        ledger.call(&stack, safe("flaky", 10), None, 2).await;
    }
    ledger.call(&stack, safe("limited", 10), None, 2).await;
    for _ in 0..5 {
        ledger
            .call(&stack, call("denied", 10), Some("TOOL_UNAVAILABLE"), 1)
            .await;
    }
    for _ in 0..4 {
        ledger
            .call(
                &stack,
                call("reports", 10),
                Some("TOOL_EXECUTION_FAILED"),
                1,
            )
            .await;
    }
    for _ in 0..3 {
        ledger
            .call(&stack, call("hangs", 10), Some("TOOL_TIMEOUT"), 1)
            .await;
    }
    for _ in 0..2 {
        ledger
            .call(&stack, call("panics", 10), Some("INTERNAL_ERROR"), 1)
            .await;
    }
    for _ in 0..2 {
        ledger.call(&stack, call("dropped", 10), None, 1).await;
    }
    // The fifth failure in a row opens the breaker: the third attempt at the second call meets it,
    // and is not sent.
    ledger
        .call(&stack, safe("dead", 10), Some("UPSTREAM_ERROR"), 3)
        .await;
    ledger
        .call(&stack, safe("dead", 10), Some("UPSTREAM_ERROR"), 2)
        .await;
    ledger
        .call(&stack, safe("dead", 10), Some("CIRCUIT_OPEN"), 0)
        .await;
    let late = call("works", 10).with_deadline(Instant::now());
    ledger
        .call(&stack, late, Some("TOOL_DEADLINE_EXCEEDED"), 1)
        .await;
    ledger
}
