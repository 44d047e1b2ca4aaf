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

#[track_caller]
fn names(field: &str, builder: CircuitBreakerBuilder) {
    let error = builder.build().unwrap_err();
    assert_eq!(error.field(), field);
    assert!(error.to_string().contains(field), "{error}");
}

#[track_caller]
fn works(builder: CircuitBreakerBuilder) {
    assert!(builder.build().is_ok());
}

const WITHIN: [fn(u32, Duration) -> Trip; 2] = [
    Trip::consecutive_failures_within,
    Trip::total_failures_within,
];

const RATES: Rates = Rates::over_calls(10).with_failure_rate(0.5);

#[tokio::test]
async fn zero_failures_are_refused() {
    names("threshold", trip(Trip::consecutive_failures(0)));
    names("threshold", trip(0));
    for within in WITHIN {
        names("threshold", trip(within(0, secs(1))));
    }
}

#[tokio::test]
async fn an_impossible_window_is_refused() {
    for within in WITHIN {
        names("window", trip(within(5, Duration::ZERO)));
        names("window", trip(within(5, Duration::MAX)));
    }
    names(
        "window_calls",
        trip(Rates::over_calls(0).with_failure_rate(0.5)),
    );
    let zero = Rates::over_time(Duration::ZERO).with_failure_rate(0.5);
    names("window", trip(zero));
    let endless = Rates::over_time(Duration::MAX).with_failure_rate(0.5);
    names("window", trip(endless));
    let huge = Rates::over_calls(MAX_WINDOW_CALLS + 1).with_failure_rate(0.5);
    names("window_calls", trip(huge));
}

#[tokio::test]
async fn rates_without_a_rate_are_refused() {
    names("failure_rate", trip(Rates::over_calls(10)));
    names("failure_rate", trip(Rates::over_time(secs(10))));
}

#[tokio::test]
async fn a_rate_that_is_no_share_is_refused() {
    let bad = [
        0.0,
        -0.5,
        1.000_001,
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
    ];
    for rate in bad {
        names("failure_rate", trip(RATES.with_failure_rate(rate)));
        let slow = RATES.with_slow_call_rate(rate, secs(1));
        names("slow_call_rate", trip(slow));
    }
    works(trip(RATES.with_failure_rate(1.0)));
}

#[tokio::test]
async fn a_minimum_that_is_never_reached_is_refused() {
    names("minimum_calls", trip(RATES.with_minimum_calls(11)));
    names("minimum_calls", trip(RATES.with_minimum_calls(0)));
    works(trip(RATES.with_minimum_calls(10)));
    // The default is one that fits.
    works(trip(Rates::over_calls(3).with_failure_rate(0.5)));
}

#[tokio::test]
async fn a_slow_call_of_no_time_is_refused() {
    for limit in [Duration::ZERO, Duration::MAX] {
        names("slow_call", trip(RATES.with_slow_call_rate(0.5, limit)));
    }
}

#[tokio::test]
async fn an_open_period_that_is_none_or_endless_is_refused() {
    names("open_for", builder().with_open_for(Duration::ZERO));
    names("open_for", builder().with_open_for(Duration::MAX));
    works(builder().with_open_for(MAX_PERIOD));
}

#[tokio::test]
async fn a_period_that_shrinks_or_has_no_maximum_is_refused() {
    for factor in [0.999, 0.0, -1.0, f64::NAN, f64::INFINITY] {
        names("growth", builder().with_growth(factor, secs(100)));
    }
    names("max_open_for", builder().with_growth(2.0, secs(59)));
    names("max_open_for", builder().with_growth(2.0, Duration::MAX));
    works(builder().with_growth(1.0, secs(60)));
}

#[tokio::test]
async fn no_probes_are_refused() {
    names("probes", builder().with_probes(0));
    names("probes", builder().with_probes(MAX_PROBES + 1));
    names("probes", builder().with_probes(u32::MAX));
}

#[tokio::test]
async fn no_successes_are_refused() {
    names("successes", builder().with_successes(0));
    names("successes", builder().with_successes(u32::MAX));
}

#[tokio::test]
async fn a_lease_of_no_time_or_without_end_is_refused() {
    names("probe_lease", builder().with_probe_lease(Duration::ZERO));
    names("probe_lease", builder().with_probe_lease(Duration::MAX));
    names("probe_wait", builder().with_probe_wait(Duration::MAX));
}

#[tokio::test]
async fn an_endless_patience_is_refused() {
    names(
        "abandoned_after",
        builder().with_abandoned_after(Duration::MAX),
    );
}
