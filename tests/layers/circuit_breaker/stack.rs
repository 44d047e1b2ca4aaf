//! The breaker in company: what is around it, and what calls it sees end.

use std::sync::{Arc, Mutex};

use tokio::{
    sync::Semaphore,
    time::{Instant, advance, timeout},
};
use tokio_test::{assert_pending, assert_ready_err, task};
use tower::{Layer, Service, ServiceBuilder, ServiceExt, limit::ConcurrencyLimit, service_fn};
use tower_test::mock;
use tower_toolcall::{
    ErrorKind, ToolCall, ToolError,
    backoff::{Backoff, Jitter},
    catch_panic::CatchPanicLayer,
    circuit_breaker::{BreakerState, CircuitBreakerLayer, Rates},
    deadline::DeadlineLayer,
    rate_limit::RateLimitBackoffLayer,
    retry::{RetryLayer, RetryPolicy},
    timeout::TimeoutLayer,
};

use super::{Rig, Step, Tool, default_rig, fails, kind, ok, probes::unavailable, secs};
use crate::kit::{MockTool, call};

/// Rule 3b: an open breaker answers at once, although the service below is not ready.
#[tokio::test(start_paused = true)]
async fn an_open_breaker_answers_although_the_service_is_not_ready() {
    let (mock, mut handle): (MockTool, _) = mock::pair();
    handle.allow(0);
    let layer = CircuitBreakerLayer::new();
    layer.handle().breaker(&call()).force_open();
    let mut response = task::spawn(layer.layer(mock).oneshot(call()));
    let error = assert_ready_err!(response.poll());
    assert_eq!(error.kind(), ErrorKind::CircuitOpen);
}

/// Rule 3b: so does a half-open one that is full.
#[tokio::test(start_paused = true)]
async fn a_full_half_open_breaker_answers_although_the_service_is_not_ready() {
    let (mock, mut handle): (MockTool, _) = mock::pair();
    handle.allow(0);
    let layer = CircuitBreakerLayer::new();
    let breaker = layer.handle().breaker(&call());
    while !breaker.record_failure() {}
    advance(secs(60)).await;
    let _probe = breaker.admit().unwrap();
    let mut response = task::spawn(layer.layer(mock).oneshot(call()));
    let error = assert_ready_err!(response.poll());
    assert_eq!(error.kind(), ErrorKind::CircuitOpen);
}

/// D11: an attempt that a retry layer makes waits for the verdict in the breaker, at most until the
/// deadline.
#[tokio::test(start_paused = true)]
async fn an_attempt_waits_for_the_verdict_of_a_probe() {
    for (deadline, expected) in [(60, None), (3, Some((ErrorKind::Upstream, 3)))] {
        let builder = CircuitBreakerLayer::builder().with_probe_wait(secs(10));
        let rig = Rig::new(builder.with_trip(1).with_open_for(secs(1)));
        let backoff = Backoff::exponential(secs(2), 1.0).unwrap();
        let policy = RetryPolicy::new().assume_replay_safe();
        let policy = policy.with_backoff(backoff.with_jitter(Jitter::None));
        let retries = RetryLayer::new(policy).layer(rig.svc.clone());
        let begun = Instant::now();
        rig.tool.set_then(fails());
        let call = call().with_deadline(begun + secs(deadline));
        let mut retried = task::spawn(retries.oneshot(call));
        assert_pending!(retried.poll());
        assert!(rig.breaker().is_open());
        advance(secs(1)).await;
        let probe = rig.starts(ok().after(secs(5)), crate::kit::call());
        rig.tool.set_then(ok());
        let retried = async {
            let error = retried.await.err()?;
            Some((error.kind(), begun.elapsed().as_secs()))
        };
        assert_eq!(tokio::join!(probe, retried).1, expected);
        let calls = if expected.is_none() { 3 } else { 2 };
        assert_eq!(rig.tool.count(), calls);
    }
}

/// D5: a server that says when it is back is not asked earlier, and probed exactly then, where a
/// cooldown and an open breaker wait for it together.
#[tokio::test(start_paused = true)]
async fn a_server_that_says_when_it_is_back_is_probed_then_through_cooldown_and_breaker() {
    let (start, sent) = (Instant::now(), Arc::new(Mutex::new(Vec::new())));
    let log = Arc::clone(&sent);
    let tool = service_fn(move |_: ToolCall| {
        let at = start.elapsed();
        log.lock().unwrap().push(at);
        let is_away = at < secs(120);
        async move {
            if is_away {
                Err(unavailable(120))
            } else {
                Ok("done")
            }
        }
    });
    let cooldown = RateLimitBackoffLayer::builder().with_jitter(Jitter::None);
    let breaker = CircuitBreakerLayer::builder().with_trip(1);
    let stack = ServiceBuilder::new()
        .layer(RetryLayer::new(RetryPolicy::new().assume_replay_safe()))
        .layer(cooldown.build().unwrap())
        .layer(breaker.build().unwrap())
        .layer(TimeoutLayer::new(secs(10)))
        .service(tool);
    while start.elapsed() < secs(130) {
        let call = call().with_deadline(Instant::now() + secs(3));
        let end = stack.clone().oneshot(call).await;
        assert_eq!(end.is_ok(), start.elapsed() >= secs(120));
        tokio::time::sleep(secs(1)).await;
    }
    assert_eq!(sent.lock().unwrap()[..2], [secs(0), secs(120)]);
}

/// The documented order: a timeout below counts.
#[tokio::test(start_paused = true)]
async fn timeouts_of_the_layer_below_count() {
    let dead = Tool::always(Step::hang());
    let stack = ServiceBuilder::new()
        .layer(CircuitBreakerLayer::new())
        .layer(TimeoutLayer::new(secs(3)))
        .service(dead.clone());
    for _ in 0..5 {
        let answer = stack.clone().oneshot(call()).await;
        assert_eq!(kind(answer), ErrorKind::Timeout);
    }
    assert_eq!(kind(stack.oneshot(call()).await), ErrorKind::CircuitOpen);
    assert_eq!(dead.count(), 5);
}

/// The documented order: a panic caught below counts.
#[tokio::test(start_paused = true)]
async fn panics_caught_below_count() {
    let stack = ServiceBuilder::new()
        .layer(CircuitBreakerLayer::new())
        .layer(CatchPanicLayer::new())
        .service(Tool::always(Step::panic("the tool panics")));
    for _ in 0..5 {
        let answer = stack.clone().oneshot(call()).await;
        assert_eq!(kind(answer), ErrorKind::Panicked);
    }
    assert_eq!(kind(stack.oneshot(call()).await), ErrorKind::CircuitOpen);
}

/// Trap 6: a call that a deadline layer outside drops at its deadline is a failure.
#[tokio::test(start_paused = true)]
async fn calls_dropped_by_a_deadline_layer_count() {
    let dead = Tool::always(Step::hang());
    let stack = ServiceBuilder::new()
        .layer(DeadlineLayer::new(secs(3)))
        .layer(CircuitBreakerLayer::new())
        .service(dead.clone());
    for _ in 0..5 {
        let answer = stack.clone().oneshot(call()).await;
        assert_eq!(kind(answer), ErrorKind::Timeout);
    }
    assert_eq!(kind(stack.oneshot(call()).await), ErrorKind::CircuitOpen);
    assert_eq!(dead.count(), 5);
}

/// Trap 6: a caller's deadline that the deadline layer takes over, reserve and all, is one too.
#[tokio::test(start_paused = true)]
async fn calls_dropped_at_an_inherited_deadline_count() {
    let stack = ServiceBuilder::new()
        .layer(DeadlineLayer::inherited())
        .layer(CircuitBreakerLayer::new())
        .service(Tool::always(Step::hang()));
    for _ in 0..5 {
        let within = call().with_deadline(tokio::time::Instant::now() + secs(3));
        let answer = stack.clone().oneshot(within).await;
        assert_eq!(kind(answer), ErrorKind::Timeout);
    }
    assert_eq!(kind(stack.oneshot(call()).await), ErrorKind::CircuitOpen);
}

/// Trap 6: so is one that a plain timeout drops, if the call says how long it may take.
#[tokio::test(start_paused = true)]
async fn calls_dropped_by_a_plain_timeout_count() {
    let rig = default_rig();
    rig.tool.set_then(Step::hang());
    for _ in 0..5 {
        let running = timeout(secs(3), rig.send(call().with_timeout(secs(3))));
        assert!(running.await.is_err());
    }
    assert_eq!(kind(rig.send(call()).await), ErrorKind::CircuitOpen);
}

/// Trap 6: the probe too.
#[tokio::test(start_paused = true)]
async fn a_probe_dropped_at_its_deadline_reopens_the_breaker() {
    let dead = Tool::always(Step::hang());
    let layer = CircuitBreakerLayer::new();
    let breaker = layer.handle().breaker(&call());
    while !breaker.record_failure() {}
    advance(secs(60)).await;
    let stack = ServiceBuilder::new()
        .layer(DeadlineLayer::new(secs(3)))
        .layer(layer)
        .service(dead);
    assert_eq!(kind(stack.oneshot(call()).await), ErrorKind::Timeout);
    let after = breaker.snapshot();
    assert_eq!((after.state, after.probes), (BreakerState::Open, 0));
}

/// A call that its deadline meets in the queue below has not told anything of the tool.
#[tokio::test(start_paused = true)]
async fn a_call_that_ends_in_the_queue_is_neutral() {
    let semaphore = Arc::new(Semaphore::new(0));
    let tool = Tool::always(ok());
    let layer = CircuitBreakerLayer::new();
    let stack = ServiceBuilder::new()
        .layer(DeadlineLayer::new(secs(3)))
        .layer(layer.clone())
        .service(ConcurrencyLimit::with_semaphore(tool.clone(), semaphore));
    for _ in 0..10 {
        stack.clone().oneshot(call()).await.unwrap_err();
    }
    let after = layer.handle().breaker(&call()).snapshot();
    assert_eq!((after.state, after.failed_total), (BreakerState::Closed, 0));
    assert_eq!(tool.count(), 0);
}

/// C5: a caller that is impatient, or gives up, tells nothing of the tool.
#[tokio::test(start_paused = true)]
async fn a_call_dropped_early_by_an_impatient_caller_is_neutral() {
    let rig = default_rig();
    rig.fails(4).await;
    rig.tool.set_then(Step::hang());
    for _ in 0..50 {
        let running = timeout(secs(1), rig.send(call().with_timeout(secs(10))));
        assert!(running.await.is_err());
    }
    // Nor does it say that the tool is well.
    assert_eq!(rig.breaker().snapshot().failures, 4);
    assert_eq!(rig.breaker().state(), BreakerState::Closed);
}

/// C5: so does one that cancels by its token.
#[tokio::test(start_paused = true)]
async fn a_call_cancelled_by_its_token_is_neutral() {
    use tokio_util::sync::CancellationToken;
    let layer = CircuitBreakerLayer::new();
    let stack = ServiceBuilder::new()
        .layer(DeadlineLayer::new(secs(10)))
        .layer(layer.clone())
        .service(Tool::always(Step::hang()));
    for _ in 0..10 {
        let token = CancellationToken::new();
        let mut running = task::spawn(
            stack
                .clone()
                .oneshot(call().with_cancellation(token.clone())),
        );
        assert!(running.poll().is_pending());
        token.cancel();
        assert_eq!(kind(running.await), ErrorKind::Cancelled);
    }
    let after = layer.handle().breaker(&call()).snapshot();
    assert_eq!((after.state, after.failed_total), (BreakerState::Closed, 0));
}

/// Trap 6: without any limit of its own, a call that has been pending for 30 s (T1) is a failure.
#[tokio::test(start_paused = true)]
async fn without_a_timeout_the_limit_is_thirty_seconds() {
    let rig = default_rig();
    let running = rig.hangs();
    advance(secs(29)).await;
    drop(running);
    assert_eq!(rig.breaker().snapshot().failed_total, 0);
    let running = rig.hangs();
    advance(secs(30)).await;
    drop(running);
    assert_eq!(rig.breaker().snapshot().failed_total, 1);
}

/// Trap 6: the limit is a setting, and beats the call's own timeout in both directions.
#[tokio::test(start_paused = true)]
async fn the_limit_for_abandoned_calls_is_a_setting() {
    let rig = Rig::new(CircuitBreakerLayer::builder().with_abandoned_after(secs(5)));
    for (own, pending, failures) in [(60, 4, 0), (60, 5, 1), (1, 4, 1), (1, 6, 2)] {
        let running = rig.starts(Step::hang(), call().with_timeout(secs(own)));
        advance(secs(pending)).await;
        drop(running);
        assert_eq!(rig.breaker().snapshot().failed_total, failures);
    }
}

/// Trap 6: a deadline that has passed is a failure whatever the limit is.
#[tokio::test(start_paused = true)]
async fn a_passed_deadline_beats_the_limit_for_abandoned_calls() {
    let rig = Rig::new(CircuitBreakerLayer::builder().with_abandoned_after(secs(50)));
    let at = tokio::time::Instant::now() + secs(2);
    let running = rig.starts(Step::hang(), call().with_deadline(at));
    advance(secs(2)).await;
    drop(running);
    assert_eq!(rig.breaker().snapshot().failed_total, 1);
}

/// C5: time spent in the queue below is no call time: the call was not slow.
#[tokio::test(start_paused = true)]
async fn waiting_for_the_service_below_is_not_slow() {
    let semaphore = Arc::new(Semaphore::new(1));
    let rates = Rates::over_calls(10).with_slow_call_rate(0.1, secs(5));
    let layer = CircuitBreakerLayer::builder()
        .with_trip(rates)
        .build()
        .unwrap();
    let tool = Tool::always(ok().after(secs(4)));
    let svc = layer.layer(ConcurrencyLimit::with_semaphore(tool, semaphore));
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..20 {
        calls.spawn(svc.clone().oneshot(call()));
    }
    for answer in calls.join_all().await {
        answer.unwrap();
    }
    let after = layer.handle().breaker(&call()).snapshot();
    assert_eq!((after.calls, after.slow_calls), (10, 0));
}

/// A result is passed on as it is, and a failure names the call.
#[tokio::test(start_paused = true)]
async fn results_pass_unchanged() {
    let rig = default_rig();
    assert_eq!(rig.ask(ok()).await.unwrap(), "answer");
    let error: ToolError = rig.ask(fails()).await.unwrap_err();
    assert_eq!(error.message(), "the script fails this call");
    assert_eq!(
        (error.tool(), error.server(), error.call_id()),
        (Some("search"), Some("docs"), Some("c1"))
    );
}

/// Trap 20: a panic is a failure though it is caught above, and nothing hangs on it.
#[tokio::test(start_paused = true)]
async fn a_panic_that_is_caught_above_counts() {
    let layer = CircuitBreakerLayer::new();
    let stack = ServiceBuilder::new()
        .layer(CatchPanicLayer::new())
        .layer(layer.clone())
        .service(Tool::always(Step::panic("the tool panics")));
    for _ in 0..5 {
        let mut stack = stack.clone();
        let response = stack.ready().await.unwrap().call(ToolCall::new("p"));
        assert_eq!(response.await.unwrap_err().kind(), ErrorKind::Panicked);
    }
    assert!(layer.handle().breaker(&ToolCall::new("p")).is_open());
}
