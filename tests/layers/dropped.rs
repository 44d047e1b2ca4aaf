//! D1: a call that a layer holds back, and whose caller hangs up, was not sent: outer layers count no
//! attempt, no latency and no failure.

use std::time::Duration;

use serde_json::json;
use tokio::time::{advance, sleep, timeout};
use tokio_test::{assert_pending, task};
use tower::{Layer, ServiceExt, service_fn, util::BoxCloneSyncService};
use tower_toolcall::{
    ErrorKind, ToolCall, ToolError,
    circuit_breaker::{BreakerState, CircuitBreakerLayer},
    concurrency_limit::ConcurrencyLimitLayer,
    health::{Availability, Health},
    metrics::Metrics,
    once::OnceLayer,
    policy::{Approval, PolicyLayer, Verdict},
    quota::{Quota, QuotaLayer},
    rate_limit::RateLimitBackoffLayer,
    repeat_guard::RepeatGuardLayer,
    retry::{RetryLayer, RetryPolicy},
    testing::{Script, Step},
    timeout::TimeoutLayer,
};

type Tool = Script<&'static str>;
type Stack = BoxCloneSyncService<ToolCall, &'static str, ToolError>;

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn pay() -> ToolCall {
    ToolCall::new("pay")
        .with_server("bank")
        .with_agent_id("a1")
        .with_once_key("k1")
        .with_json(json!({ "euros": 20 }))
        .unwrap()
}

/// Layers that hold back the next call of `pay`, each over a tool; the tool was called once if it
/// took a call to get there.
async fn holders() -> Vec<(&'static str, Stack, Tool)> {
    let mut all = Vec::new();
    let mut add = |name, stack: Stack, tool: &Tool| all.push((name, stack, tool.clone()));

    // First: the time of the others passes too.
    let limited = Step::fail(ErrorKind::RateLimited).with_retry_after(secs(240));
    let tool = Tool::new([limited]).then(Step::ok("paid"));
    let gate = RateLimitBackoffLayer::new().layer(tool.clone());
    assert_pending!(task::spawn(gate.clone().oneshot(pay())).poll());
    add("cooldown", BoxCloneSyncService::new(gate), &tool);

    let tool = Tool::new([Step::hang()]).then(Step::ok("paid"));
    let limit = ConcurrencyLimitLayer::new(1).layer(tool.clone());
    // It hangs to the end of the test.
    let running = Box::leak(Box::new(task::spawn(limit.clone().oneshot(pay()))));
    assert_pending!(running.poll());
    add("concurrency limit", BoxCloneSyncService::new(limit), &tool);

    let tool = Tool::always(Step::ok("paid"));
    let quota = QuotaLayer::builder(Quota::per_hour(1).unwrap()).with_max_wait(secs(7200));
    let quota = quota.build().unwrap().layer(tool.clone());
    quota.clone().oneshot(pay()).await.unwrap();
    add("quota", BoxCloneSyncService::new(quota), &tool);

    let tool = Tool::always(Step::ok("paid"));
    let silent = service_fn(|_: Approval| std::future::pending::<Result<Verdict, ToolError>>());
    let policy = PolicyLayer::new().ask("pay").with_approver(silent);
    let policy = policy.layer(tool.clone());
    add("approval", BoxCloneSyncService::new(policy), &tool);

    let tool = Tool::always(Step::ok("paid"));
    let busy = tower::limit::ConcurrencyLimit::new(tool.clone(), 0);
    let guard = RepeatGuardLayer::new().layer(busy);
    add("readiness", BoxCloneSyncService::new(guard), &tool);
    all
}

/// Drops a call a minute after it has begun to wait.
async fn hang_up(stack: impl tower::Service<ToolCall, Response = &'static str, Error = ToolError>) {
    let mut waiting = task::spawn(stack.oneshot(pay().with_timeout(secs(30))));
    assert_pending!(waiting.poll());
    advance(secs(60)).await;
    assert_pending!(waiting.poll());
}

/// D1: a breaker above a queue does not open.
#[tokio::test(start_paused = true)]
async fn a_held_call_does_not_open_a_breaker() {
    for (name, stack, tool) in holders().await {
        let before = tool.count();
        let layer = CircuitBreakerLayer::builder().with_trip(1).build().unwrap();
        hang_up(layer.layer(stack)).await;
        let breakers = layer.handle().snapshot();
        assert_eq!(breakers[0].state, BreakerState::Closed, "{name}");
        assert_eq!(tool.count(), before, "{name}");
    }
}

/// D1: nor is its server marked.
#[tokio::test(start_paused = true)]
async fn a_held_call_does_not_mark_its_server() {
    for (name, stack, _) in holders().await {
        let health = Health::new();
        for _ in 0..3 {
            hang_up(health.layer().layer(stack.clone())).await;
        }
        let server = health.server("bank").unwrap();
        assert_eq!(server.state, Availability::Available, "{name}");
    }
}

/// D1: metrics count neither an attempt nor a latency.
#[tokio::test(start_paused = true)]
async fn a_held_call_is_no_attempt() {
    for (name, stack, _) in holders().await {
        let metrics = Metrics::new();
        hang_up(metrics.layer().layer(stack)).await;
        let snapshot = metrics.snapshot();
        let all = &snapshot.total;
        assert_eq!(
            (all.calls, all.attempts, all.cancelled),
            (1, 0, 1),
            "{name}"
        );
        assert_eq!(all.latency.mean, secs(0), "{name}");
    }
}

/// D1: between two attempts nothing runs, and the first one is counted.
#[tokio::test(start_paused = true)]
async fn a_call_that_is_dropped_between_attempts_has_made_one() {
    let error = ToolError::new(ErrorKind::Timeout, "gone").with_retry_after(secs(3600));
    let tool = Tool::new([Step::error(error)]);
    let policy = RetryPolicy::new()
        .assume_replay_safe()
        .with_max_delay(secs(7200));
    let metrics = Metrics::new();
    hang_up(metrics.layer().layer(RetryLayer::new(policy).layer(tool))).await;
    let snapshot = metrics.snapshot();
    assert_eq!(snapshot.tool(Some("bank"), "pay").unwrap().attempts, 1);
}

/// D1: a call that was sent after its wait counts as ever.
#[tokio::test(start_paused = true)]
async fn a_call_that_was_sent_after_a_wait_counts() {
    let tool = Tool::new([Step::ok("paid").after(secs(1))]).then(Step::hang());
    let limit = ConcurrencyLimitLayer::new(1).layer(tool.clone());
    let breaker = CircuitBreakerLayer::builder().with_trip(1).build().unwrap();
    let (once, metrics) = (OnceLayer::new(), Metrics::new());
    let stack = once.layer(breaker.layer(metrics.layer().layer(limit.clone())));
    let mut first = task::spawn(limit.oneshot(pay()));
    assert_pending!(first.poll());
    let mut second = task::spawn(stack.oneshot(pay().with_timeout(secs(30))));
    assert_pending!(second.poll());
    advance(secs(1)).await;
    assert!(first.poll().is_ready());
    assert_pending!(second.poll());
    assert_eq!(tool.count(), 2);
    advance(secs(60)).await;
    drop(second);
    assert_eq!(breaker.handle().snapshot()[0].state, BreakerState::Open);
    let snapshot = metrics.snapshot();
    assert_eq!(snapshot.tool(Some("bank"), "pay").unwrap().attempts, 1);
    let next = Tool::always(Step::ok("paid"));
    let refused = once.layer(next.clone()).oneshot(pay()).await;
    assert_eq!(refused.unwrap_err().code(), "TOOL_OUTCOME_UNKNOWN");
}

/// D1: a call that was dropped while it was held leaves no trace on the next one that has its record.
#[tokio::test(start_paused = true)]
async fn a_clone_of_a_held_call_counts_when_it_is_sent() {
    let call = pay().with_timeout(secs(30));
    let tool = Tool::always(Step::hang());
    let breaker = CircuitBreakerLayer::builder().with_trip(1).build().unwrap();
    let busy = tower::limit::ConcurrencyLimit::new(tool.clone(), 0);
    let held = breaker.layer(RepeatGuardLayer::new().layer(busy));
    let mut first = task::spawn(held.oneshot(call.clone()));
    assert_pending!(first.poll());
    drop(first);
    let sent = breaker.layer(TimeoutLayer::new(secs(300)).layer(tool));
    let mut second = task::spawn(sent.oneshot(call));
    assert_pending!(second.poll());
    advance(secs(60)).await;
    drop(second);
    assert_eq!(breaker.handle().snapshot()[0].state, BreakerState::Open);
}

/// A foreign layer that gives an attempt a second, and makes another one a second later.
fn repeats(stack: Stack) -> Stack {
    BoxCloneSyncService::new(service_fn(move |call: ToolCall| {
        let stack = stack.clone();
        async move {
            let first = timeout(secs(1), stack.clone().oneshot(call.clone())).await;
            if let Ok(Ok(answer)) = first {
                return Ok(answer);
            }
            sleep(secs(1)).await;
            stack.oneshot(call).await
        }
    }))
}

/// D1: an attempt that was sent runs, although the one before was dropped while it was held.
#[tokio::test(start_paused = true)]
async fn an_attempt_after_one_that_was_held_counts_as_sent() {
    let tool = Tool::always(Step::hang());
    let limit = ConcurrencyLimitLayer::new(1).layer(tool.clone());
    let mut running = task::spawn(limit.clone().oneshot(pay()));
    assert_pending!(running.poll());
    let breaker = CircuitBreakerLayer::builder().with_trip(1).build().unwrap();
    let stack = breaker.layer(repeats(BoxCloneSyncService::new(limit)));
    let mut call = task::spawn(stack.oneshot(pay().with_timeout(secs(30))));
    assert_pending!(call.poll());
    advance(secs(1)).await;
    assert_pending!(call.poll());
    drop(running);
    advance(secs(1)).await;
    assert_pending!(call.poll());
    assert_eq!(tool.count(), 2);
    advance(secs(60)).await;
    drop(call);
    assert_eq!(breaker.handle().snapshot()[0].state, BreakerState::Open);
}

/// Returns how an equal payment ends after one whose caller has hung up.
async fn pay_again(once: &OnceLayer) -> Result<&'static str, ToolError> {
    let tool = Tool::always(Step::ok("paid"));
    once.layer(tool).oneshot(pay()).await
}

/// D1: a payment that was held back does not block its key.
#[tokio::test(start_paused = true)]
async fn a_held_payment_leaves_its_key_free() {
    for (name, stack, _) in holders().await {
        let once = OnceLayer::new();
        hang_up(once.layer(stack)).await;
        assert_eq!(pay_again(&once).await.unwrap(), "paid", "{name}");
    }
}

/// D1: nor does one that was refused with a 429 and waits for its next attempt.
#[tokio::test(start_paused = true)]
async fn a_payment_that_waits_after_a_429_leaves_its_key_free() {
    let limited = Step::fail(ErrorKind::RateLimited).with_retry_after(secs(240));
    let tool = Tool::new([limited]);
    let once = OnceLayer::new();
    hang_up(once.layer(RateLimitBackoffLayer::new().layer(tool.clone()))).await;
    assert_eq!(tool.count(), 1);
    assert_eq!(pay_again(&once).await.unwrap(), "paid");
}

/// Drops a payment in its second attempt, which a limit holds back. `layer` repeats it: the first
/// attempt has ended after `first`, and the next one begins within a minute.
async fn hang_up_in_the_second_attempt(
    tool: Tool,
    layer: impl FnOnce(Stack) -> Stack,
    first: Duration,
) -> ToolError {
    let limit = ConcurrencyLimitLayer::new(1).layer(tool.clone());
    let once = OnceLayer::new();
    let stack = once.layer(layer(BoxCloneSyncService::new(limit.clone())));
    let mut call = task::spawn(stack.oneshot(pay().with_timeout(secs(30))));
    assert_pending!(call.poll());
    advance(first).await;
    assert_pending!(call.poll());
    let mut other = task::spawn(limit.oneshot(pay()));
    assert_pending!(other.poll());
    advance(secs(60)).await;
    assert_pending!(call.poll());
    drop(call);
    assert_eq!(tool.count(), 2);
    pay_again(&once).await.unwrap_err()
}

/// D1: a first attempt that may have run blocks the key, although the second one is held back.
#[tokio::test(start_paused = true)]
async fn a_held_second_attempt_does_not_free_the_key() {
    let tool = Tool::new([Step::fail(ErrorKind::ConnectionFailed)]).then(Step::hang());
    let policy = RetryPolicy::new().assume_replay_safe();
    let retry = |stack| BoxCloneSyncService::new(RetryLayer::new(policy).layer(stack));
    let refused = hang_up_in_the_second_attempt(tool, retry, secs(0)).await;
    assert_eq!(refused.code(), "TOOL_OUTCOME_UNKNOWN");
}

/// D1: nor does the repetition of a foreign layer, which reports nothing.
#[tokio::test(start_paused = true)]
async fn a_held_attempt_of_a_foreign_layer_does_not_free_the_key() {
    let tool = Tool::always(Step::hang());
    let refused = hang_up_in_the_second_attempt(tool, repeats, secs(1)).await;
    assert_eq!(refused.code(), "TOOL_OUTCOME_UNKNOWN");
}

/// D1: a held call that a task of its own carries on with blocks the key, because it will be sent.
#[tokio::test(start_paused = true)]
async fn a_held_call_of_a_detached_task_does_not_free_the_key() {
    let tool = Tool::new([Step::ok("paid").after(secs(90))]).then(Step::ok("paid twice"));
    let limit = ConcurrencyLimitLayer::new(1).layer(tool.clone());
    let mut running = task::spawn(limit.clone().oneshot(pay()));
    assert_pending!(running.poll());
    let detached = service_fn(move |call: ToolCall| {
        let task = tokio::spawn(limit.clone().oneshot(call));
        async move { task.await.expect("no panic") }
    });
    let once = OnceLayer::new();
    hang_up(once.layer(detached)).await;
    assert_eq!(
        pay_again(&once).await.unwrap_err().code(),
        "TOOL_OUTCOME_UNKNOWN"
    );
    advance(secs(60)).await;
    assert!(running.poll().is_ready());
    while tool.count() < 2 {
        tokio::task::yield_now().await;
    }
}

/// D1: of two clones of one call that run together, one waits for the other: its end frees nothing.
#[tokio::test(start_paused = true)]
async fn a_clone_that_waits_for_a_payment_does_not_free_the_key() {
    let tool = Tool::always(Step::hang());
    let once = OnceLayer::new();
    let (tx, rx) = std::sync::mpsc::channel();
    let keep = service_fn(move |call: ToolCall| {
        tx.send(call).unwrap();
        std::future::pending::<Result<&str, ToolError>>()
    });
    let mut observed = task::spawn(Metrics::new().layer().layer(keep).oneshot(pay()));
    assert_pending!(observed.poll());
    let call = rx.recv().unwrap();
    let stack = once.layer(tool.clone());
    let mut first = task::spawn(stack.clone().oneshot(call.clone()));
    assert_pending!(first.poll());
    let mut second = task::spawn(stack.oneshot(call));
    assert_pending!(second.poll());
    drop(second);
    drop(first);
    assert_eq!(tool.count(), 1);
    assert_eq!(
        pay_again(&once).await.unwrap_err().code(),
        "TOOL_OUTCOME_UNKNOWN"
    );
}

/// D1: a clone that waits in an outer layer of `once`, and is not observed there, frees nothing.
#[tokio::test(start_paused = true)]
async fn a_clone_that_waits_outside_does_not_free_the_key() {
    let tool = Tool::always(Step::hang());
    let once = OnceLayer::new();
    let silent = service_fn(|_: Approval| std::future::pending::<Result<Verdict, ToolError>>());
    let policy = PolicyLayer::new().ask("pay").with_approver(silent);
    let call = pay();
    let mut first = task::spawn(once.layer(tool.clone()).oneshot(call.clone()));
    assert_pending!(first.poll());
    let mut second = task::spawn(policy.layer(once.layer(tool.clone())).oneshot(call));
    assert_pending!(second.poll());
    drop(second);
    drop(first);
    assert_eq!(tool.count(), 1);
    assert_eq!(
        pay_again(&once).await.unwrap_err().code(),
        "TOOL_OUTCOME_UNKNOWN"
    );
}

/// D1: an outer layer without an observer sees what inner layers note of a call that has waited.
#[tokio::test(start_paused = true)]
async fn a_call_that_has_waited_keeps_its_record() {
    let tool = Tool::new([Step::ok("paid").after(secs(1))]).then(Step::hang());
    let limit = ConcurrencyLimitLayer::new(1);
    let inner = TimeoutLayer::new(secs(5)).layer(tool.clone());
    let limit = limit.layer(Metrics::new().layer().layer(inner));
    let breaker = CircuitBreakerLayer::builder().with_trip(1).build().unwrap();
    let mut first = task::spawn(limit.clone().oneshot(pay()));
    assert_pending!(first.poll());
    let mut second = task::spawn(breaker.layer(limit).oneshot(pay()));
    assert_pending!(second.poll());
    advance(secs(1)).await;
    assert!(first.poll().is_ready());
    assert_pending!(second.poll());
    assert_eq!(tool.count(), 2);
    // Almost the timeout, which the breaker knows from the record.
    advance(Duration::from_millis(4990)).await;
    drop(second);
    assert_eq!(breaker.handle().snapshot()[0].state, BreakerState::Open);
}
