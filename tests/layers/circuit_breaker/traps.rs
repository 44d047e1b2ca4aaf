//! The semantics that other breakers got wrong: traps of the design.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    sync::Semaphore,
    task::JoinSet,
    time::{Instant, advance},
};
use tokio_test::{assert_pending, assert_ready, assert_ready_err, assert_ready_ok, task};
use tower::{Layer, Service, ServiceExt, limit::ConcurrencyLimit};
use tower_toolcall::{
    BoxError, ErrorKind, Key, Outcome, ToolCall, ToolError,
    circuit_breaker::{BreakerState, CircuitBreakerLayer, Rates, Trip},
};

use super::{Rig, Step, Tool, default_rig, fails, kind, ok, secs};
use crate::kit::{self, call, limited};

/// Trap 1, C10: a probe that is dropped in flight gives its place back.
#[tokio::test(start_paused = true)]
async fn a_cancelled_probe_gives_its_place_back() {
    let rig = default_rig();
    rig.half_opens().await;
    let probe = rig.hangs();
    assert!(!rig.reaches(ok()).await);
    drop(probe);
    assert_eq!(rig.breaker().snapshot().probes, 0);
    rig.ask(ok()).await.unwrap();
    assert_eq!(rig.breaker().state(), BreakerState::Closed);
}

/// Trap 1, C10: so does one that is never polled.
#[tokio::test(start_paused = true)]
async fn a_probe_dropped_before_its_first_poll_gives_its_place_back() {
    let mut rig = default_rig();
    rig.half_opens().await;
    let response = rig.svc.ready().await.unwrap().call(call());
    assert_eq!(rig.breaker().snapshot().probes, 1);
    drop(response);
    assert_eq!(rig.breaker().snapshot().probes, 0);
    assert!(rig.reaches(ok()).await);
}

/// Trap 1: a probe that panics is a failed one; the next period has its probe again.
#[tokio::test(start_paused = true)]
async fn a_panicked_probe_reopens_the_breaker() {
    for panics in [
        Step::panic("the tool panics"),
        Step::panic_in_call("the tool panics"),
    ] {
        let mut rig = default_rig();
        rig.half_opens().await;
        rig.tool.set_then(panics);
        rig.svc.ready().await.unwrap();
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            task::spawn(rig.svc.call(call())).poll().is_ready()
        }));
        assert!(panicked.is_err());
        let after = rig.breaker().snapshot();
        assert_eq!((after.state, after.probes), (BreakerState::Open, 0));
        advance(secs(60)).await;
        rig.ask(ok()).await.unwrap();
        assert_eq!(rig.breaker().state(), BreakerState::Closed);
    }
}

/// Trap 1: a probe that hangs and is never dropped loses its place after its lease.
#[tokio::test(start_paused = true)]
async fn a_hanging_probe_loses_its_place_after_its_lease() {
    let rig = Rig::new(CircuitBreakerLayer::builder().with_probe_lease(secs(40)));
    rig.half_opens().await;
    let _hanging = rig.hangs();
    advance(secs(39)).await;
    assert!(!rig.reaches(ok()).await);
    advance(secs(1)).await;
    assert_eq!(rig.breaker().snapshot().probes, 0);
    assert!(rig.reaches(ok()).await);
    assert_eq!(rig.breaker().state(), BreakerState::Closed);
}

/// Trap 1: a call that waits for the service below holds no place.
#[tokio::test(start_paused = true)]
async fn a_call_that_waits_for_readiness_holds_no_probe() {
    let (limited, probe, semaphore) = limited(kit::answers());
    let layer = CircuitBreakerLayer::new();
    let breaker = layer.handle().breaker(&call());
    while !breaker.record_failure() {}
    advance(secs(60)).await;
    let held = semaphore.clone().acquire_owned().await.unwrap();
    let svc = layer.layer(limited);
    let mut first = task::spawn(svc.clone().oneshot(call()));
    let mut second = task::spawn(svc.oneshot(call()));
    assert_pending!(first.poll());
    assert_pending!(second.poll());
    assert_eq!(breaker.snapshot().probes, 0);
    drop(first);
    drop(held);
    assert_ready_ok!(second.poll());
    assert_eq!(probe.count(), 1);
    assert_eq!(breaker.state(), BreakerState::Closed);
}

/// Trap 1: a classifier is foreign code; if it panics over a probe, the place is given back all the
/// same.
#[tokio::test(start_paused = true)]
async fn a_classifier_that_panics_does_not_keep_the_probe() {
    let layer = CircuitBreakerLayer::builder()
        .classify_fn(|_: Result<&&'static str, &ToolError>| -> Outcome {
            panic!("the classifier panics")
        })
        .build()
        .unwrap();
    let breaker = layer.handle().breaker(&call());
    while !breaker.record_failure() {}
    advance(secs(60)).await;
    let mut svc = layer.layer(Tool::always(ok()));
    svc.ready().await.unwrap();
    let mut probe = task::spawn(svc.call(call()));
    assert!(catch_unwind(AssertUnwindSafe(|| probe.poll())).is_err());
    drop(probe);
    assert_eq!(breaker.snapshot().probes, 0);
}

/// Trap 6: a call that is dropped after its deadline is a failure, and so is one that is dropped
/// when it has been pending for its own timeout, or else for 30 s (T1); the timer of whoever
/// enforces that runs a moment before the call is polled first. A setting beats the call's own
/// timeout in both directions, and no deadline that has passed. One that is dropped before says
/// nothing (C5), nor does one whose deadline had passed before it began.
#[tokio::test(start_paused = true)]
async fn a_call_dropped_after_its_deadline_is_a_failure() {
    let deadline = |ms| call().with_deadline(Instant::now() + Duration::from_millis(ms));
    let timeout = |ms| call().with_timeout(Duration::from_millis(ms));
    let builder = CircuitBreakerLayer::builder;
    let after = |n| builder().with_abandoned_after(secs(n));
    for (builder, call, limit, dropped_after, counts) in [
        (
            builder(),
            &deadline as &dyn Fn(u64) -> ToolCall,
            2000,
            2000,
            true,
        ),
        (builder(), &deadline, 0, 0, false),
        (builder(), &timeout, 2000, 2000, true),
        (builder(), &timeout, 2000, 1999, true),
        (builder(), &timeout, 2000, 1900, false),
        (builder(), &|_| call(), 0, 29_000, false),
        (builder(), &|_| call(), 0, 30_000, true),
        (after(5), &timeout, 60_000, 4000, false),
        (after(5), &timeout, 60_000, 5000, true),
        (after(5), &timeout, 1000, 4000, false),
        (after(5), &timeout, 1000, 6000, true),
        (after(50), &deadline, 2000, 2000, true),
    ] {
        let rig = Rig::new(builder);
        for n in 1..=5 {
            let running = rig.starts(Step::hang(), call(limit));
            advance(Duration::from_millis(dropped_after)).await;
            drop(running);
            let failed = rig.breaker().snapshot().failed_total;
            assert_eq!(
                failed,
                if counts { n } else { 0 },
                "{limit} {dropped_after}"
            );
        }
        assert_eq!(rig.breaker().is_open(), counts);
    }
}

/// Trap 1: so does one whose transition makes a listener panic.
#[tokio::test(start_paused = true)]
async fn a_listener_that_panics_does_not_keep_the_probe() {
    let layer = CircuitBreakerLayer::builder()
        .with_listener(|event: &tower_toolcall::Event<'_>| {
            if let tower_toolcall::Event::Transition { transition, .. } = event {
                assert_ne!(transition.to, BreakerState::HalfOpen, "as it should not");
            }
        })
        .build()
        .unwrap();
    let breaker = layer.handle().breaker(&call());
    while !breaker.record_failure() {}
    advance(secs(60)).await;
    let asked = catch_unwind(AssertUnwindSafe(|| breaker.admit()));
    assert!(asked.is_err());
    assert!(breaker.admit().is_ok());
}

/// Trap 6: the limit is the slow-call limit, where one is set.
#[tokio::test(start_paused = true)]
async fn a_call_dropped_beyond_the_slow_call_limit_is_a_failure() {
    let rates = Rates::over_calls(10)
        .with_failure_rate(0.5)
        .with_slow_call_rate(1.0, secs(5));
    let rig = Rig::new(CircuitBreakerLayer::builder().with_trip(rates));
    for _ in 0..10 {
        let running = rig.hangs();
        advance(secs(6)).await;
        drop(running);
    }
    let after = rig.breaker().snapshot();
    assert_eq!(after.calls, 10);
    assert_eq!(after.failures, 10);
    assert_eq!(after.slow_calls, 10);
    assert_eq!(after.state, BreakerState::Open);
}

/// Trap 12: nothing but tokio's monotonic clock moves a breaker. Here it stands still until it is
/// advanced, and the period is over to the millisecond.
#[tokio::test(start_paused = true)]
async fn only_the_monotonic_clock_ends_the_open_period() {
    let rig = default_rig();
    rig.fails(5).await;
    assert_eq!(rig.breaker().snapshot().retry_after, Some(secs(60)));
    advance(Duration::from_millis(59_999)).await;
    assert!(!rig.reaches(ok()).await);
    advance(Duration::from_millis(1)).await;
    assert!(rig.reaches(ok()).await);
}

/// Trap 13: a breaker's rejection tells a breaker further out nothing: no failure, no success.
#[tokio::test(start_paused = true)]
async fn an_inner_breakers_rejections_do_not_count_in_an_outer_one() {
    let failures = |n| CircuitBreakerLayer::builder().with_trip(Trip::consecutive_failures(n));
    let outer = failures(2).with_keys(Key::Server).build().unwrap();
    let inner = failures(1).build().unwrap();
    let failing = Tool::always(fails());
    let stack = outer.layer(inner.layer(failing.clone()));
    let server = outer.handle().breaker(&call());

    let answer = stack.clone().oneshot(call()).await;
    assert_eq!(kind(answer), ErrorKind::Upstream);
    for _ in 0..50 {
        let answer = stack.clone().oneshot(call()).await;
        assert_eq!(kind(answer), ErrorKind::CircuitOpen);
    }
    let after = server.snapshot();
    assert_eq!((after.state, after.failed_total), (BreakerState::Closed, 1));
    assert_eq!((after.failures, after.rejected_total), (1, 0));
    // The run of failures is as it was.
    advance(secs(60)).await;
    stack.oneshot(call()).await.unwrap_err();
    assert_eq!(server.state(), BreakerState::Open);
    assert_eq!(failing.count(), 2);
}

fn forced_open() -> CircuitBreakerLayer {
    let layer = CircuitBreakerLayer::new();
    layer.handle().breaker(&call()).force_open();
    layer
}

/// Trap 19: a call that was queued and is refused at its turn passes the turn on at once, although
/// its future is held on to.
#[tokio::test(start_paused = true)]
async fn a_call_refused_at_its_turn_keeps_no_permit() {
    let (limited, probe, semaphore) = limited(kit::answers());
    let layer = CircuitBreakerLayer::new();
    let held = semaphore.clone().acquire_owned().await.unwrap();
    let svc = layer.layer(limited);
    let mut queued = task::spawn(svc.oneshot(call()));
    assert_pending!(queued.poll());
    layer.handle().breaker(&call()).force_open();
    drop(held);
    assert!(queued.is_woken());
    let error = assert_ready_err!(queued.poll());
    assert_eq!(error.kind(), ErrorKind::CircuitOpen);
    assert_eq!(error.call_id(), Some("c1"));
    assert_eq!(error.retry_after(), Some(secs(60)));
    assert_eq!(semaphore.available_permits(), 1);
    assert_eq!(probe.count(), 0);
}

/// Trap 19: a call that finds the breaker open while the service below is busy does not queue
/// there.
#[tokio::test(start_paused = true)]
async fn a_refused_call_leaves_the_queue() {
    let (limited, _, semaphore) = limited(kit::answers());
    let mut svc = forced_open().layer(limited);
    let held = semaphore.clone().acquire_owned().await.unwrap();
    let mut response = task::spawn(svc.ready().await.unwrap().call(call()));
    drop(held);
    // Nobody took what was set free, though the refusal is not polled yet.
    assert_eq!(semaphore.available_permits(), 1);
    assert_ready_err!(response.poll());
}

/// Sends 100 calls at once to a tool behind a limit of one; answers how many were refused.
async fn a_hundred_at_once(layer: &CircuitBreakerLayer, tool: &Tool) -> usize {
    let semaphore = Arc::new(Semaphore::new(1));
    let limited = ConcurrencyLimit::with_semaphore(tool.clone(), semaphore.clone());
    let svc = layer.layer(limited);
    let mut calls = JoinSet::new();
    for _ in 0..100 {
        calls.spawn(svc.clone().oneshot(call()));
    }
    let answers = calls.join_all().await;
    drop(svc);
    assert_eq!(semaphore.available_permits(), 1);
    let refused = |answer: &&super::Answer| matches!(answer, Err(error) if error.kind() == ErrorKind::CircuitOpen);
    answers.iter().filter(refused).count()
}

/// Trap 22: 100 calls queued on a dead tool: 5 run, 95 are refused.
#[tokio::test(start_paused = true)]
async fn calls_queued_before_the_trip_do_not_run_after_it() {
    let start = Instant::now();
    let dead = Tool::always(Step::fail(ErrorKind::ConnectionFailed).after(secs(1)));
    let layer = CircuitBreakerLayer::new();
    let refused = a_hundred_at_once(&layer, &dead).await;
    assert_eq!((dead.count(), refused), (5, 95));
    assert_eq!(start.elapsed(), secs(5));
    let after = layer.handle().snapshot().remove(0);
    assert_eq!((after.rejected_total, after.opened_total), (95, 1));
}

/// Trap 22: and when the period is over, 1 of a hundred is the probe.
#[tokio::test(start_paused = true)]
async fn calls_queued_for_a_probe_do_not_all_run() {
    let dead = Tool::always(Step::fail(ErrorKind::ConnectionFailed).after(secs(1)));
    let layer = CircuitBreakerLayer::new();
    let breaker = layer.handle().breaker(&call());
    while !breaker.record_failure() {}
    advance(secs(60)).await;
    let refused = a_hundred_at_once(&layer, &dead).await;
    assert_eq!((dead.count(), refused), (1, 99));
    assert_eq!(breaker.state(), BreakerState::Open);
}

/// A service that cannot become ready while it is told so.
#[derive(Clone, Default)]
struct Connection {
    down: Arc<AtomicBool>,
}

impl Service<ToolCall> for Connection {
    type Response = &'static str;
    type Error = BoxError;
    type Future = std::future::Ready<Result<&'static str, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(if self.down.load(SeqCst) {
            Err("connection refused".into())
        } else {
            Ok(())
        })
    }

    fn call(&mut self, _: ToolCall) -> Self::Future {
        std::future::ready(Ok("answer"))
    }
}

/// Trap 24: a service that fails to become ready opens the breaker.
#[tokio::test(start_paused = true)]
async fn readiness_errors_count() {
    let connection = Connection::default();
    connection.down.store(true, SeqCst);
    let svc = CircuitBreakerLayer::new().layer(connection);
    for _ in 0..5 {
        let error = svc.clone().oneshot(call()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionFailed);
        assert_eq!(error.call_id(), Some("c1"));
    }
    let error = svc.oneshot(call()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::CircuitOpen);
}

/// Trap 24: it is the result of a probe as well, whether it was met before the call or in it.
#[tokio::test(start_paused = true)]
async fn a_readiness_error_is_the_result_of_a_probe() {
    for polled_first in [true, false] {
        let connection = Connection::default();
        connection.down.store(true, SeqCst);
        let layer = CircuitBreakerLayer::new();
        let breaker = layer.handle().breaker(&call());
        while !breaker.record_failure() {}
        advance(secs(60)).await;
        let mut svc = layer.layer(connection.clone());
        if polled_first {
            svc.ready().await.unwrap();
        }
        let error = svc.call(call()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionFailed);
        let after = breaker.snapshot();
        assert_eq!((after.state, after.probes), (BreakerState::Open, 0));
        // It recovers.
        connection.down.store(false, SeqCst);
        advance(secs(60)).await;
        assert_eq!(
            svc.ready().await.unwrap().call(call()).await.unwrap(),
            "answer"
        );
        assert_eq!(breaker.state(), BreakerState::Closed);
    }
}

/// Trap 24: an open breaker answers for a service that cannot become ready.
#[tokio::test(start_paused = true)]
async fn an_open_breaker_hides_a_readiness_error() {
    let connection = Connection::default();
    connection.down.store(true, SeqCst);
    let mut svc = forced_open().layer(connection);
    let mut response = task::spawn(svc.ready().await.unwrap().call(call()));
    let error = assert_ready!(response.poll()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::CircuitOpen);
}
