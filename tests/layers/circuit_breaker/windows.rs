//! C2: what opens a breaker, besides failures in a row.

use std::time::Duration;

use tokio::time::advance;
use tokio_test::assert_ready_ok;
use tower_toolcall::{
    ErrorKind,
    circuit_breaker::{BreakerState, CircuitBreakerLayer, Rates, TransitionReason, Trip},
};

use super::{Rig, Step, fails, ok, secs, transitions};
use crate::kit::call;

fn trips(trip: impl Into<Trip>) -> Rig {
    Rig::new(CircuitBreakerLayer::builder().with_trip(trip))
}

fn is_open(rig: &Rig) -> bool {
    rig.breaker().state() == BreakerState::Open
}

/// W4, C2: preset D counts 5 failures in a row within 300 s: 3 failures, a success and 4 failures
/// leave it closed.
#[tokio::test(start_paused = true)]
async fn a_success_resets_the_count_of_the_gateway_preset() {
    let rig = trips(Trip::consecutive_failures_within(5, secs(300)));
    rig.fails(3).await;
    rig.ask(ok()).await.unwrap();
    assert_eq!(rig.breaker().snapshot().failures, 0);
    rig.fails(4).await;
    assert!(!is_open(&rig));
    rig.fails(1).await;
    assert!(is_open(&rig));
    assert_eq!(rig.breaker().snapshot().retry_after, Some(secs(60)));
}

/// C2: who asks for all failures gets all, whatever succeeds in between.
#[tokio::test(start_paused = true)]
async fn a_success_does_not_reset_a_total() {
    let rig = trips(Trip::total_failures_within(5, secs(300)));
    for _ in 0..4 {
        rig.fails(1).await;
        rig.ask(ok()).await.unwrap();
        advance(secs(70)).await;
    }
    assert!(!is_open(&rig));
    rig.fails(1).await;
    assert!(is_open(&rig));
}

/// C2: the window slides: of failures a bit further apart there are never five in it.
#[tokio::test(start_paused = true)]
async fn failures_further_apart_than_the_window_do_not_open() {
    let rig = trips(Trip::consecutive_failures_within(5, secs(300)));
    for n in 0..50 {
        rig.fails(1).await;
        assert_eq!(rig.breaker().snapshot().failures, (n + 1).min(4));
        advance(secs(76)).await;
    }
    assert!(!is_open(&rig));
}

/// C2: it does not tumble: five failures around any moment are within it.
#[tokio::test(start_paused = true)]
async fn failures_around_the_edge_of_a_window_open() {
    for offset in (0..300).step_by(10) {
        let rig = trips(Trip::consecutive_failures_within(5, secs(300)));
        advance(secs(offset)).await;
        rig.fails(1).await;
        advance(secs(298)).await;
        rig.fails(4).await;
        assert!(is_open(&rig), "{offset}");
    }
}

/// C2: the share of failures of the last calls.
#[tokio::test(start_paused = true)]
async fn a_failure_rate_opens_over_a_count_window() {
    let rates = Rates::over_calls(20)
        .with_failure_rate(0.5)
        .with_minimum_calls(10);
    let rig = trips(rates);
    for _ in 0..10 {
        rig.ask(ok()).await.unwrap();
    }
    for n in 1..=10 {
        assert!(!is_open(&rig), "{n}");
        rig.fails(1).await;
    }
    assert!(is_open(&rig));
    let after = rig.breaker().snapshot();
    assert_eq!((after.calls, after.failures), (20, 10));
}

/// C2: below the minimum no rate means anything, and the call that completes it may be a success.
#[tokio::test(start_paused = true)]
async fn no_rate_opens_below_the_minimum_number_of_calls() {
    let rates = Rates::over_calls(20)
        .with_failure_rate(0.5)
        .with_minimum_calls(10);
    let rig = trips(rates);
    rig.fails(9).await;
    assert!(!is_open(&rig));
    rig.ask(ok()).await.unwrap();
    assert!(is_open(&rig));
}

/// C2: neutral results are no calls of a rate.
#[tokio::test(start_paused = true)]
async fn neutral_results_do_not_thin_a_rate() {
    let rates = Rates::over_calls(20)
        .with_failure_rate(0.5)
        .with_minimum_calls(10);
    let rig = trips(rates);
    for _ in 0..10 {
        for _ in 0..10 {
            rig.ask(Step::fail(ErrorKind::InvalidInput))
                .await
                .unwrap_err();
        }
        assert!(!is_open(&rig));
        rig.fails(1).await;
    }
    assert!(is_open(&rig));
}

/// C2: the share of failures over a time window; what is older does not count.
#[tokio::test(start_paused = true)]
async fn a_failure_rate_opens_over_a_time_window() {
    let rates = Rates::over_time(secs(60))
        .with_failure_rate(0.5)
        .with_minimum_calls(10);
    let rig = trips(rates);
    for _ in 0..1000 {
        rig.ask(ok()).await.unwrap();
    }
    rig.fails(9).await;
    assert!(!is_open(&rig));
    // The good thousand go, and the nine bad ones with them.
    advance(secs(60)).await;
    assert_eq!(rig.breaker().snapshot().calls, 0);
    rig.fails(9).await;
    assert!(!is_open(&rig));
    rig.fails(1).await;
    assert!(is_open(&rig));
}

/// C2: a time window is right to a 32nd of it, in both directions, at any moment. Every step is
/// compared with all that happened.
#[tokio::test(start_paused = true)]
async fn a_time_window_holds_what_it_should() {
    let window = Duration::from_millis(3200);
    let rates = Rates::over_time(window)
        .with_failure_rate(1.0)
        .with_minimum_calls(1_000_000);
    let rig = trips(rates);
    let breaker = rig.breaker();
    let start = tokio::time::Instant::now();
    let mut all: Vec<(Duration, bool)> = Vec::new();
    let mut random = 3_u32;
    for step in 0..10_000 {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let pause = if step % 500 == 499 {
            7_000
        } else {
            u64::from(random >> 16) % 120
        };
        advance(Duration::from_millis(pause)).await;
        let failed = random & 0x8000 != 0;
        if failed {
            breaker.record_failure();
        } else {
            breaker.record_success();
        }
        let now = start.elapsed();
        all.push((now, failed));
        // To look takes up what was counted without a lock: not always.
        if random >> 29 != 0 {
            continue;
        }
        let within = |age: Duration| all.iter().filter(move |(at, _)| now - *at < age);
        let least = within(window * 31 / 32);
        let most = within(window);
        let seen = breaker.snapshot();
        let (calls, failures) = (seen.calls as usize, seen.failures as usize);
        assert!(
            calls >= least.clone().count() && calls <= most.clone().count(),
            "{step}"
        );
        let failed = |(_, failed): &&(Duration, bool)| *failed;
        assert!(failures >= least.filter(failed).count(), "{step}");
        assert!(failures <= most.filter(failed).count(), "{step}");
    }
}

/// C2: no result is lost, or counted twice, between threads.
#[test]
fn a_window_counts_what_many_threads_record() {
    for rates in [Rates::over_calls(10_000), Rates::over_time(secs(3600))] {
        let rates = rates.with_failure_rate(1.0).with_minimum_calls(10_000);
        let rig = trips(rates);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let breaker = rig.breaker();
                    for n in 0..1_000 {
                        match n % 10 {
                            0 => assert!(!breaker.record_failure()),
                            5 => breaker.admit().unwrap().success(),
                            9 => drop(breaker.admit().unwrap()),
                            _ => breaker.record_success(),
                        }
                        if n % 100 == 0 {
                            breaker.snapshot();
                        }
                    }
                });
            }
        });
        let seen = rig.breaker().snapshot();
        assert_eq!((seen.calls, seen.failures), (3_600, 400));
        assert_eq!(seen.failed_total, 400);
    }
}

/// C2: calls that succeed too slowly.
#[tokio::test(start_paused = true)]
async fn a_slow_call_rate_opens_although_all_calls_succeed() {
    let heard = transitions();
    let rates = Rates::over_calls(10)
        .with_slow_call_rate(0.5, secs(5))
        .with_minimum_calls(4);
    let rig = Rig::new(
        CircuitBreakerLayer::builder()
            .with_trip(rates)
            .with_listener(heard.clone()),
    );
    for millis in [4_999, 5_000, 4_999, 10_000] {
        assert!(!is_open(&rig));
        let took = Duration::from_millis(millis);
        let mut running = rig.starts(ok().after(took), call());
        advance(took).await;
        assert_ready_ok!(running.poll());
    }
    assert!(is_open(&rig));
    let (opened, _) = heard.take().remove(0);
    assert_eq!(opened.reason, TransitionReason::SlowCallRate);
    assert_eq!(
        (opened.calls, opened.failures, opened.slow_calls),
        (4, 0, 2)
    );
}

/// C2: too few slow calls say nothing.
#[tokio::test(start_paused = true)]
async fn no_slow_call_rate_opens_below_the_minimum() {
    let rates = Rates::over_time(secs(600))
        .with_slow_call_rate(0.5, secs(5))
        .with_minimum_calls(4);
    let rig = trips(rates);
    for n in 1..=4 {
        assert!(!is_open(&rig), "{n}");
        let mut running = rig.starts(ok().after(secs(5)), call());
        advance(secs(5)).await;
        assert_ready_ok!(running.poll());
    }
    assert!(is_open(&rig));
}

/// C2, C3: a probe that succeeds too slowly is a failed one.
#[tokio::test(start_paused = true)]
async fn a_slow_probe_reopens_the_breaker() {
    let rates = Rates::over_calls(5)
        .with_failure_rate(1.0)
        .with_slow_call_rate(1.0, secs(5));
    let rig = trips(rates);
    rig.half_opens().await;
    let mut probe = rig.starts(ok().after(secs(5)), call());
    advance(secs(5)).await;
    assert_ready_ok!(probe.poll());
    assert!(is_open(&rig));
}

/// C2: the breaker says why it opened.
#[tokio::test(start_paused = true)]
async fn each_way_to_open_has_its_reason() {
    let rates = Rates::over_calls(5).with_failure_rate(0.9);
    for (trip, reason) in [
        (Trip::default(), TransitionReason::ConsecutiveFailures),
        (
            Trip::consecutive_failures_within(5, secs(9)),
            TransitionReason::ConsecutiveFailures,
        ),
        (
            Trip::total_failures_within(5, secs(9)),
            TransitionReason::FailuresInWindow,
        ),
        (rates.into(), TransitionReason::FailureRate),
    ] {
        let heard = transitions();
        let builder = CircuitBreakerLayer::builder().with_trip(trip);
        let rig = Rig::new(builder.with_listener(heard.clone()));
        for _ in 0..5 {
            rig.ask(fails()).await.unwrap_err();
        }
        let (opened, _) = heard.take().remove(0);
        assert_eq!(opened.reason, reason);
        assert_eq!((opened.calls, opened.failures), (5, 5));
    }
}
