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

use tokio::{sync::Semaphore, task::JoinSet, time::advance};
use tokio_test::{assert_pending, assert_ready, assert_ready_err, assert_ready_ok, task};
use tower::{Layer, Service, ServiceExt, limit::ConcurrencyLimit};
use tower_toolcall::{
    BoxError, ErrorKind, Key, Outcome, ToolCall, ToolError,
    circuit_breaker::{BreakerState, CircuitBreakerLayer, Rates, Trip},
    flow::CallExt,
};

use super::{Rig, Step, Tool, default_rig, fails, kind, ok, secs, tool};
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

/// Trap 1: a probe that somebody below turns away has decided nothing.
#[tokio::test(start_paused = true)]
async fn a_probe_that_is_rejected_below_gives_its_place_back() {
    let rig = default_rig();
    rig.half_opens().await;
    for rejection in [
        ErrorKind::Overloaded,
        ErrorKind::RateLimited,
        ErrorKind::CircuitOpen,
        ErrorKind::DeadlineExceeded,
        ErrorKind::Denied,
    ] {
        assert_eq!(kind(rig.ask(Step::fail(rejection)).await), rejection);
        let after = rig.breaker().snapshot();
        assert_eq!((after.state, after.probes), (BreakerState::HalfOpen, 0));
    }
    assert!(rig.reaches(ok()).await);
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

/// Trap 1: even a future that is forgotten, whose destructor never runs, blocks no longer.
#[tokio::test(start_paused = true)]
async fn a_forgotten_probe_loses_its_place_after_its_lease() {
    let rig = default_rig();
    rig.half_opens().await;
    std::mem::forget(rig.hangs());
    advance(secs(120)).await;
    assert!(rig.reaches(ok()).await);
}

/// Trap 1: a lease that is over belongs to nobody; who lost it takes nobody else's place.
#[tokio::test(start_paused = true)]
async fn a_probe_that_lost_its_place_does_not_give_back_anothers() {
    let rig = Rig::new(CircuitBreakerLayer::builder().with_probe_lease(secs(40)));
    rig.half_opens().await;
    let mut late = rig.starts(Step::fail(ErrorKind::RateLimited).after(secs(50)), call());
    advance(secs(40)).await;
    let _second = rig.hangs();
    advance(secs(10)).await;
    assert_ready_err!(late.poll());
    assert_eq!(rig.breaker().snapshot().probes, 1);
    assert!(!rig.reaches(ok()).await);
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

/// Trap 2: a success that was admitted before the trip does not close a half-open breaker.
#[tokio::test(start_paused = true)]
async fn a_stale_success_does_not_close_the_breaker() {
    let rig = default_rig();
    let mut old = rig.starts(ok().after(secs(90)), call());
    rig.half_opens().await;
    let _probe = rig.hangs();
    advance(secs(30)).await;
    assert_ready_ok!(old.poll());
    let after = rig.breaker().snapshot();
    assert_eq!((after.state, after.probes), (BreakerState::HalfOpen, 1));
    assert_eq!(after.stale_total, 1);
}

/// Trap 2: nor does a failure that was admitted before the trip open it again.
#[tokio::test(start_paused = true)]
async fn a_stale_failure_does_not_reopen_the_breaker() {
    let rig = default_rig();
    let mut old = rig.starts(Step::fail(ErrorKind::Upstream).after(secs(90)), call());
    rig.half_opens().await;
    let mut probe = rig.starts(ok().after(secs(40)), call());
    advance(secs(30)).await;
    assert_ready_err!(old.poll());
    assert_eq!(rig.breaker().state(), BreakerState::HalfOpen);
    advance(secs(10)).await;
    assert_ready_ok!(probe.poll());
    let after = rig.breaker().snapshot();
    assert_eq!((after.state, after.stale_total), (BreakerState::Closed, 1));
    // Nor is it the first of the next five.
    assert_eq!((after.calls, after.failures), (0, 0));
}

/// Trap 2: failures that come in while the breaker is open do not make the period longer.
#[tokio::test(start_paused = true)]
async fn a_stale_failure_does_not_extend_the_open_period() {
    let rig = default_rig();
    let mut old = rig.starts(Step::fail(ErrorKind::Upstream).after(secs(30)), call());
    rig.fails(5).await;
    advance(secs(30)).await;
    assert_ready_err!(old.poll());
    assert_eq!(rig.breaker().snapshot().retry_after, Some(secs(30)));
    advance(secs(30)).await;
    assert!(rig.reaches(ok()).await);
}

/// Trap 2: a probe of an earlier half-open state decides nothing in the next one.
#[tokio::test(start_paused = true)]
async fn a_probe_of_an_earlier_half_open_state_is_stale() {
    let rig = Rig::new(
        CircuitBreakerLayer::builder()
            .with_probes(2)
            .with_successes(1),
    );
    rig.half_opens().await;
    let mut early = rig.starts(ok().after(secs(61)), call());
    rig.fails(1).await;
    advance(secs(60)).await;
    let _probe = rig.hangs();
    advance(secs(1)).await;
    assert_ready_ok!(early.poll());
    let after = rig.breaker().snapshot();
    assert_eq!((after.state, after.probes), (BreakerState::HalfOpen, 1));
    assert_eq!(after.stale_total, 1);
}

/// Trap 2: forcing a state makes what is in flight stale too.
#[tokio::test(start_paused = true)]
async fn results_admitted_before_a_forced_state_are_stale() {
    let rig = default_rig();
    let mut old: Vec<_> = (0..5)
        .map(|_| rig.starts(Step::fail(ErrorKind::Upstream).after(secs(10)), call()))
        .collect();
    rig.breaker().force_open();
    rig.breaker().reset();
    advance(secs(10)).await;
    for call in &mut old {
        assert_ready_err!(call.poll());
    }
    let after = rig.breaker().snapshot();
    assert_eq!((after.state, after.stale_total), (BreakerState::Closed, 5));
}

/// Trap 2: the generation changes with the state only: results do not make each other stale.
#[tokio::test(start_paused = true)]
async fn results_of_one_state_all_count() {
    let rig = default_rig();
    let mut calls: Vec<_> = (1..=5)
        .map(|n| rig.starts(Step::fail(ErrorKind::Upstream).after(secs(n)), call()))
        .collect();
    for running in &mut calls {
        assert_eq!(rig.breaker().state(), BreakerState::Closed);
        advance(secs(1)).await;
        assert_ready_err!(running.poll());
    }
    assert_eq!(rig.breaker().state(), BreakerState::Open);
    assert_eq!(rig.breaker().snapshot().stale_total, 0);
}

/// Trap 3: a neutral probe is neither a success nor a failure, as often as it comes.
#[tokio::test(start_paused = true)]
async fn neutral_probes_do_not_close_the_breaker() {
    let rig = Rig::new(CircuitBreakerLayer::builder().with_probes(3));
    rig.half_opens().await;
    for _ in 0..100 {
        rig.ask(Step::fail(ErrorKind::Denied)).await.unwrap_err();
    }
    assert_eq!(rig.breaker().state(), BreakerState::HalfOpen);
    // Nor do they count towards the successes.
    for n in 1..=3 {
        rig.ask(ok()).await.unwrap();
        assert_eq!(rig.breaker().state() == BreakerState::Closed, n == 3);
    }
}

/// Trap 3: nor do they make room for more probes than are allowed.
#[tokio::test(start_paused = true)]
async fn neutral_probes_do_not_inflate_the_places() {
    let rig = Rig::new(CircuitBreakerLayer::builder().with_probes(3));
    rig.half_opens().await;
    for _ in 0..4 {
        rig.ask(Step::fail(ErrorKind::RateLimited))
            .await
            .unwrap_err();
    }
    let _probes = [rig.hangs(), rig.hangs(), rig.hangs()];
    assert!(!rig.reaches(ok()).await);
}

/// Trap 3: a neutral end of a call that is no probe gives no probe's place back.
#[tokio::test(start_paused = true)]
async fn a_stale_neutral_end_does_not_give_a_probes_place_back() {
    let rig = default_rig();
    let old = rig.hangs();
    rig.half_opens().await;
    let _probe = rig.hangs();
    drop(old);
    assert_eq!(rig.breaker().snapshot().probes, 1);
    assert!(!rig.reaches(ok()).await);
}

/// Trap 3: while closed, a neutral result does not end a run of failures.
#[tokio::test(start_paused = true)]
async fn a_neutral_result_does_not_reset_the_run_of_failures() {
    let rig = default_rig();
    rig.fails(4).await;
    rig.ask(Step::fail(ErrorKind::InvalidInput))
        .await
        .unwrap_err();
    drop(rig.hangs());
    assert_eq!(rig.breaker().snapshot().failures, 4);
    rig.fails(1).await;
    assert_eq!(rig.breaker().state(), BreakerState::Open);
}

/// Trap 4: what was before does not count after recovery.
#[tokio::test(start_paused = true)]
async fn the_window_does_not_survive_recovery() {
    let trips: [Trip; 4] = [
        Trip::consecutive_failures(5),
        Trip::consecutive_failures_within(5, secs(300)),
        Trip::total_failures_within(5, secs(300)),
        Rates::over_calls(5).with_failure_rate(0.8).into(),
    ];
    for trip in trips {
        let rig = Rig::new(CircuitBreakerLayer::builder().with_trip(trip.clone()));
        rig.half_opens().await;
        rig.ask(ok()).await.unwrap();
        assert_eq!(rig.breaker().state(), BreakerState::Closed);
        rig.fails(3).await;
        assert_eq!(rig.breaker().state(), BreakerState::Closed, "{trip:?}");
    }
}

/// Trap 4: calls are stamped when they end. These ended together, though each started longer ago
/// than the window is long.
#[tokio::test(start_paused = true)]
async fn calls_longer_than_the_window_count_at_their_end() {
    for trip in [
        Trip::consecutive_failures_within(5, secs(10)),
        Trip::total_failures_within(5, secs(10)),
        Rates::over_time(secs(10))
            .with_failure_rate(0.5)
            .with_minimum_calls(5)
            .into(),
    ] {
        let rig = Rig::new(CircuitBreakerLayer::builder().with_trip(trip.clone()));
        let act = Step::fail(ErrorKind::Timeout).after(secs(100));
        let mut calls: Vec<_> = (0..5).map(|_| rig.starts(act.clone(), call())).collect();
        advance(secs(100)).await;
        for running in &mut calls {
            assert_ready_err!(running.poll());
        }
        assert_eq!(rig.breaker().state(), BreakerState::Open, "{trip:?}");
    }
}

/// Trap 5: what a tool says of its business does not close a server to all others.
#[tokio::test(start_paused = true)]
async fn business_errors_of_one_tool_do_not_open_its_servers_breaker() {
    let rig = Rig::new(CircuitBreakerLayer::builder().with_keys(Key::Server));
    for _ in 0..100 {
        rig.ask(Step::fail(ErrorKind::Reported)).await.unwrap_err();
        rig.ask(Step::fail(ErrorKind::Failed)).await.unwrap_err();
        rig.ask(Step::fail(ErrorKind::NotFound)).await.unwrap_err();
    }
    assert_eq!(rig.breaker().state(), BreakerState::Closed);
    // A failure of the transport does.
    rig.fails(5).await;
    assert_eq!(kind(rig.send(tool("other")).await), ErrorKind::CircuitOpen);
}

/// Trap 6: a call that is dropped after its deadline is a failure.
#[tokio::test(start_paused = true)]
async fn a_call_dropped_after_its_deadline_is_a_failure() {
    let rig = default_rig();
    for n in 1..=5 {
        let at = tokio::time::Instant::now() + secs(2);
        let running = rig.starts(Step::hang(), call().with_deadline(at));
        advance(secs(2)).await;
        drop(running);
        assert_eq!(rig.breaker().snapshot().failed_total, n);
    }
    assert_eq!(rig.breaker().state(), BreakerState::Open);
}

/// Trap 6: so is one that is dropped after it has been pending for its own timeout.
#[tokio::test(start_paused = true)]
async fn a_call_dropped_after_its_own_timeout_is_a_failure() {
    let rig = default_rig();
    for _ in 0..5 {
        let running = rig.starts(Step::hang(), call().with_timeout(secs(2)));
        advance(secs(2)).await;
        drop(running);
    }
    assert_eq!(rig.breaker().state(), BreakerState::Open);
}

/// Trap 6: the timer of whoever enforces the timeout runs a moment before the call is polled first.
#[tokio::test(start_paused = true)]
async fn a_timeout_that_began_a_moment_before_the_call_is_a_failure() {
    let rig = default_rig();
    for _ in 0..5 {
        let running = rig.starts(Step::hang(), call().with_timeout(secs(2)));
        advance(secs(2) - Duration::from_millis(1)).await;
        drop(running);
    }
    assert_eq!(rig.breaker().state(), BreakerState::Open);
}

/// A deadline that has passed before the call begins tells nothing of the tool.
#[tokio::test(start_paused = true)]
async fn a_call_dropped_at_once_with_a_spent_deadline_is_neutral() {
    let rig = default_rig();
    for _ in 0..10 {
        let spent = call().with_deadline(tokio::time::Instant::now());
        drop(rig.starts(Step::hang(), spent));
    }
    assert_eq!(rig.breaker().snapshot().failed_total, 0);
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
    let asked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| breaker.admit()));
    assert!(asked.is_err());
    assert!(breaker.admit().is_ok());
}

/// Trap 6: one that is dropped before says nothing.
#[tokio::test(start_paused = true)]
async fn a_call_dropped_before_its_timeout_is_neutral() {
    let rig = default_rig();
    for _ in 0..100 {
        let running = rig.starts(Step::hang(), call().with_timeout(secs(2)));
        advance(Duration::from_millis(1900)).await;
        drop(running);
    }
    assert_eq!(rig.breaker().state(), BreakerState::Closed);
    assert_eq!(rig.breaker().snapshot().failed_total, 0);
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
    assert_eq!(
        (after.calls, after.failures, after.slow_calls),
        (10, 10, 10)
    );
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

/// Trap 16: the answer for call n depends on the last N only. Every step is compared with a window
/// that is counted anew from all that happened.
#[tokio::test(start_paused = true)]
async fn a_count_window_depends_on_the_last_calls_only() {
    for (size, minimum, rate) in [(1, 1, 1.0), (7, 3, 0.5), (10, 10, 0.3), (32, 20, 0.75)] {
        let rates = Rates::over_calls(size)
            .with_failure_rate(rate)
            .with_minimum_calls(minimum);
        let rig = Rig::new(CircuitBreakerLayer::builder().with_trip(rates));
        let breaker = rig.breaker();
        let mut last: Vec<bool> = Vec::new();
        let mut random = 1_u32;
        for step in 0..5_000 {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            // Good times and bad times.
            let failed = (random >> 16) % 100 < if step / 50 % 2 == 0 { 20 } else { 70 };
            last.push(failed);
            let window = &last[last.len().saturating_sub(size as usize)..];
            let failures = window.iter().filter(|&&failed| failed).count();
            let opens =
                window.len() >= minimum as usize && failures as f64 / window.len() as f64 >= rate;
            let just_opened = if failed {
                breaker.record_failure()
            } else {
                breaker.record_success();
                opens
            };
            assert_eq!(just_opened, opens, "{size} {step}");
            // To ask takes no lock, to look does: runs of successes have to be right in between.
            assert_eq!(breaker.admit().is_err(), opens, "{size} {step}");
            if opens || random >> 29 == 0 {
                let seen = breaker.snapshot();
                let seen = (seen.calls as usize, seen.failures as usize);
                assert_eq!(seen, (window.len(), failures), "{size} {step}");
            }
            if opens {
                breaker.reset();
                last.clear();
            }
        }
    }
}

/// Trap 16: a failure further back than the window has room for is forgotten.
#[tokio::test(start_paused = true)]
async fn a_failure_leaves_a_count_window_after_as_many_calls() {
    let rates = Rates::over_calls(10)
        .with_failure_rate(0.5)
        .with_minimum_calls(10);
    let rig = Rig::new(CircuitBreakerLayer::builder().with_trip(rates));
    for _ in 0..4 {
        rig.fails(1).await;
    }
    for n in 0..10 {
        assert_eq!(rig.breaker().snapshot().failures, 4.min(10 - n.max(6)));
        rig.ask(ok()).await.unwrap();
    }
    assert_eq!(rig.breaker().snapshot().failures, 0);
    rig.fails(4).await;
    assert_eq!(rig.breaker().state(), BreakerState::Closed);
    rig.fails(1).await;
    assert_eq!(rig.breaker().state(), BreakerState::Open);
}

fn forced_open() -> CircuitBreakerLayer {
    let layer = CircuitBreakerLayer::new();
    layer.handle().breaker(&call()).force_open();
    layer
}

/// Trap 19: a refusal gives the inner's permit back before its future is polled.
#[tokio::test(start_paused = true)]
async fn an_open_breaker_gives_the_reservation_back() {
    kit::a_refusal_gives_the_reservation_back(forced_open(), call()).await;
}

/// Trap 19: so does a half-open one that is full.
#[tokio::test(start_paused = true)]
async fn a_full_half_open_breaker_gives_the_reservation_back() {
    let layer = CircuitBreakerLayer::new();
    let breaker = layer.handle().breaker(&call());
    while !breaker.record_failure() {}
    advance(secs(60)).await;
    let _probe = breaker.admit().unwrap();
    kit::a_refusal_gives_the_reservation_back(layer, call()).await;
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
    assert_eq!(
        (error.call_id(), error.retry_after()),
        (Some("c1"), Some(secs(60)))
    );
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
    let start = tokio::time::Instant::now();
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

/// Trap 6: a caller who gives up on a tool that is allowed to take long says nothing, if the
/// timeout in force is known.
#[tokio::test(start_paused = true)]
async fn a_cancel_of_a_long_call_is_neutral_if_its_timeout_is_known() {
    let layer = CircuitBreakerLayer::new();
    let timeout = tower_toolcall::timeout::TimeoutLayer::new(secs(600));
    let stack = tower::ServiceBuilder::new()
        .layer(layer.clone())
        .layer(timeout)
        .service(Tool::always(Step::hang()));
    let mut observed = call();
    let _observer = observed.observe();
    let mut running = task::spawn(stack.oneshot(observed));
    assert!(running.poll().is_pending());
    advance(secs(100)).await;
    drop(running);
    assert_eq!(layer.handle().breaker(&call()).snapshot().failed_total, 0);
}
