//! The breaker in company: what is around it, and what calls it sees end.

use std::sync::{Arc, Mutex};

use tokio::{
    sync::Semaphore,
    time::{Instant, advance},
};
use tokio_test::{assert_pending, task};
use tower::{
    Layer, Service, ServiceBuilder, ServiceExt, limit::ConcurrencyLimit, service_fn,
    util::BoxCloneSyncService,
};
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

use super::{Rig, Step, Tool, fails, kind, ok, probes::unavailable, secs};
use crate::kit::call;

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

/// The documented order: a timeout and a panic of an inner layer count. Trap 6: so does a call that
/// an outer deadline layer drops, at its own deadline or at the caller's, reserve and all. Trap 20:
/// and a panic that is caught outside.
#[tokio::test(start_paused = true)]
async fn timeouts_and_panics_count_wherever_they_are_caught() {
    fn boxed<S>(stack: S) -> BoxCloneSyncService<ToolCall, &'static str, ToolError>
    where
        S: Service<ToolCall, Response = &'static str, Error = ToolError, Future: Send>,
        S: Clone + Send + Sync + 'static,
    {
        BoxCloneSyncService::new(stack)
    }
    let breaker = CircuitBreakerLayer::new;
    let hangs = || Tool::always(Step::hang());
    let panics = || Tool::always(Step::panic("the tool panics"));
    let deadline = |layer: DeadlineLayer| boxed(layer.layer(breaker().layer(hangs())));
    let timeout = TimeoutLayer::new(secs(3)).layer(hangs());
    for (stack, expected) in [
        (boxed(breaker().layer(timeout)), ErrorKind::Timeout),
        (deadline(DeadlineLayer::new(secs(3))), ErrorKind::Timeout),
        (deadline(DeadlineLayer::inherited()), ErrorKind::Timeout),
        (
            boxed(breaker().layer(CatchPanicLayer::new().layer(panics()))),
            ErrorKind::Panicked,
        ),
        (
            boxed(CatchPanicLayer::new().layer(breaker().layer(panics()))),
            ErrorKind::Panicked,
        ),
    ] {
        for _ in 0..5 {
            let call = call().with_deadline(Instant::now() + secs(5));
            assert_eq!(kind(stack.clone().oneshot(call).await), expected);
        }
        assert_eq!(kind(stack.oneshot(call()).await), ErrorKind::CircuitOpen);
    }
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
