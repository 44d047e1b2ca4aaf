//! A breaker that could never open, or never close again, cannot be built.

use std::time::Duration;

use tower_toolcall::circuit_breaker::{
    CircuitBreakerBuilder, CircuitBreakerLayer, MAX_PERIOD, MAX_PROBES, MAX_WINDOW_CALLS, Rates,
    Trip,
};

use super::secs;

fn builder() -> CircuitBreakerBuilder {
    CircuitBreakerLayer::builder()
}

fn trip(trip: impl Into<Trip>) -> CircuitBreakerBuilder {
    builder().with_trip(trip)
}

const WITHIN: [fn(u32, Duration) -> Trip; 2] = [
    Trip::consecutive_failures_within,
    Trip::total_failures_within,
];

const RATES: Rates = Rates::over_calls(10).with_failure_rate(0.5);

#[test]
fn settings_that_cannot_work_are_refused() {
    const ENDLESS: Duration = Duration::MAX;
    let rate = |rates: Rates| trip(rates.with_failure_rate(0.5));
    let slow = |rate, limit| trip(RATES.with_slow_call_rate(rate, limit));
    let mut refused = vec![
        ("threshold", trip(0)),
        ("window_calls", rate(Rates::over_calls(0))),
        (
            "window_calls",
            rate(Rates::over_calls(MAX_WINDOW_CALLS + 1)),
        ),
        ("window", rate(Rates::over_time(Duration::ZERO))),
        ("window", rate(Rates::over_time(ENDLESS))),
        ("failure_rate", trip(Rates::over_calls(10))),
        ("failure_rate", trip(Rates::over_time(secs(10)))),
        ("minimum_calls", trip(RATES.with_minimum_calls(11))),
        ("minimum_calls", trip(RATES.with_minimum_calls(0))),
        ("slow_call", slow(0.5, Duration::ZERO)),
        ("slow_call", slow(0.5, ENDLESS)),
        ("open_for", builder().with_open_for(Duration::ZERO)),
        ("open_for", builder().with_open_for(ENDLESS)),
        ("max_open_for", builder().with_growth(2.0, secs(59))),
        ("max_open_for", builder().with_growth(2.0, ENDLESS)),
        ("probes", builder().with_probes(0)),
        ("probes", builder().with_probes(MAX_PROBES + 1)),
        ("successes", builder().with_successes(0)),
        ("successes", builder().with_successes(u32::MAX)),
        ("probe_lease", builder().with_probe_lease(Duration::ZERO)),
        ("probe_lease", builder().with_probe_lease(ENDLESS)),
        ("probe_wait", builder().with_probe_wait(ENDLESS)),
        ("abandoned_after", builder().with_abandoned_after(ENDLESS)),
    ];
    for within in WITHIN {
        refused.push(("threshold", trip(within(0, secs(1)))));
        refused.push(("window", trip(within(5, Duration::ZERO))));
        refused.push(("window", trip(within(5, ENDLESS))));
    }
    for share in [
        0.0,
        -0.5,
        1.000_001,
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
    ] {
        refused.push(("failure_rate", trip(RATES.with_failure_rate(share))));
        refused.push(("slow_call_rate", slow(share, secs(1))));
    }
    for factor in [0.999, 0.0, -1.0, f64::NAN, f64::INFINITY] {
        refused.push(("growth", builder().with_growth(factor, secs(100))));
    }
    for (field, builder) in refused {
        let error = builder.build().expect_err(field);
        assert_eq!(error.field(), field);
        assert!(error.to_string().contains(field), "{error}");
    }
}

#[test]
fn settings_at_their_limits_work() {
    for builder in [
        trip(RATES.with_failure_rate(1.0)),
        trip(RATES.with_minimum_calls(10)),
        // The default minimum is one that fits.
        trip(Rates::over_calls(3).with_failure_rate(0.5)),
        builder().with_open_for(MAX_PERIOD),
        builder().with_growth(1.0, secs(60)),
    ] {
        assert!(builder.build().is_ok());
    }
}
