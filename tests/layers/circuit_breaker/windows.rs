//! C2: what opens a breaker; `traces` has how windows slide.

use tower_toolcall::circuit_breaker::{
    CircuitBreakerLayer, Rates,
    TransitionReason::{ConsecutiveFailures, FailureRate, FailuresInWindow, SlowCallRate},
    Trip,
};

use super::{Rig, fails, ok, secs, transitions};

fn trips(trip: impl Into<Trip>) -> Rig {
    Rig::new(CircuitBreakerLayer::builder().with_trip(trip))
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

/// C2: the breaker says why it opened.
#[tokio::test(start_paused = true)]
async fn each_way_to_open_has_its_reason() {
    let rates = Rates::over_calls(5);
    for (trip, does, reason, failures) in [
        (Trip::default(), fails(), ConsecutiveFailures, 5),
        (
            Trip::consecutive_failures_within(5, secs(9)),
            fails(),
            ConsecutiveFailures,
            5,
        ),
        (
            Trip::total_failures_within(5, secs(9)),
            fails(),
            FailuresInWindow,
            5,
        ),
        (
            rates.clone().with_failure_rate(0.9).into(),
            fails(),
            FailureRate,
            5,
        ),
        (
            rates.with_slow_call_rate(0.9, secs(1)).into(),
            ok().after(secs(1)),
            SlowCallRate,
            0,
        ),
    ] {
        let heard = transitions();
        let builder = CircuitBreakerLayer::builder().with_trip(trip);
        let rig = Rig::new(builder.with_listener(heard.clone()));
        for _ in 0..5 {
            let _ = rig.ask(does.clone()).await;
        }
        let (opened, _) = heard.take().remove(0);
        assert_eq!(opened.reason, reason);
        assert_eq!((opened.calls, opened.failures), (5, failures));
        assert_eq!(opened.slow_calls, 5 - failures);
    }
}
