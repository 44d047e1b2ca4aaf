use std::time::Duration;

use super::{CircuitBreakerSettings, KeyBy, Settings, layers::by};
use crate::{
    circuit_breaker::{CircuitBreakerBuilder, CircuitBreakerLayer, MAX_PERIOD, Rates, Trip},
    config::ConfigError,
};

/// A probe keeps its place at least so long.
const MIN_LEASE: Duration = Duration::from_secs(120);

impl CircuitBreakerSettings {
    fn has_rates(&self) -> bool {
        self.failure_rate.is_some() || self.slow_call_rate.is_some()
    }

    /// Returns whether one result alone opens a breaker.
    pub(super) fn opens_at_once(&self) -> bool {
        match self.has_rates() {
            true => self.minimum_calls == Some(1),
            false => self.threshold == 1,
        }
    }

    fn trip(&self) -> Result<Trip, ConfigError> {
        if self.has_rates() {
            if !self.success_resets {
                let reason = "it has no effect with a rate, which counts no failures in a row";
                return Err(refused("success_resets", reason));
            }
            return self.rates().map(Trip::from);
        }
        if !self.success_resets && self.window.is_none() {
            let reason =
                "it is false, so failures would add up for ever: set `circuit_breaker.window` too";
            return Err(refused("success_resets", reason));
        }
        let unused = self.window_calls.map(|_| "window_calls");
        let unused = unused.or(self.minimum_calls.map(|_| "minimum_calls"));
        if let Some(key) = unused.or(self.slow_call.map(|_| "slow_call")) {
            let reason = "neither `circuit_breaker.failure_rate` nor \
                          `circuit_breaker.slow_call_rate` is set, so it means nothing";
            return Err(refused(key, reason));
        }
        Ok(match self.window {
            Some(window) if self.success_resets => {
                Trip::consecutive_failures_within(self.threshold, window)
            }
            Some(window) => Trip::total_failures_within(self.threshold, window),
            None => Trip::consecutive_failures(self.threshold),
        })
    }

    fn rates(&self) -> Result<Rates, ConfigError> {
        let mut rates = match (self.window, self.window_calls) {
            (Some(window), None) => Rates::over_time(window),
            (None, Some(calls)) => Rates::over_calls(calls),
            (Some(_), Some(_)) => {
                let reason = "`circuit_breaker.window` is set too; the rates are over one of them";
                return Err(refused("window_calls", reason));
            }
            (None, None) => {
                let rate = self
                    .failure_rate
                    .map_or("slow_call_rate", |_| "failure_rate");
                let reason = "needs `circuit_breaker.window` or `circuit_breaker.window_calls`";
                return Err(refused(rate, reason));
            }
        };
        rates = by(self.failure_rate, rates, Rates::with_failure_rate);
        rates = by(self.minimum_calls, rates, Rates::with_minimum_calls);
        match (self.slow_call_rate, self.slow_call) {
            (Some(rate), Some(slow)) => Ok(rates.with_slow_call_rate(rate, slow)),
            (None, None) => Ok(rates),
            (Some(_), None) => Err(refused(
                "slow_call_rate",
                "needs `circuit_breaker.slow_call`",
            )),
            (None, Some(_)) => {
                let reason = "`circuit_breaker.slow_call_rate` is not set, so it means nothing";
                Err(refused("slow_call", reason))
            }
        }
    }
}

impl Settings {
    /// Returns the circuit breaker layer alone, to be completed and built, whether it is enabled or
    /// not. A probe keeps its place for twice the longest timeout, and at least 120 s.
    ///
    /// # Errors
    ///
    /// If its settings do not say what opens a breaker, or contradict each other. All else is
    /// checked when it is built.
    pub fn circuit_breaker_builder(&self) -> Result<CircuitBreakerBuilder, ConfigError> {
        let breaker = &self.in_force().circuit_breaker;
        if breaker.reported_failures && breaker.key == KeyBy::Server {
            let reason = "each is of one tool, and by `circuit_breaker.key` the tools of a server \
                          share a breaker";
            return Err(refused("reported_failures", reason));
        }
        let (_, longest) = self.longest_timeout();
        let builder = CircuitBreakerLayer::builder()
            .with_trip(breaker.trip()?)
            .with_open_for(breaker.open_for)
            .with_probes(breaker.probes)
            .with_probe(breaker.probe)
            .with_probe_wait(breaker.probe_wait.unwrap_or_default())
            .with_probe_lease(longest.saturating_mul(2).clamp(MIN_LEASE, MAX_PERIOD))
            .with_keys(self.keys(breaker.key, breaker.max_keys))
            .with_reported_failures(breaker.reported_failures)
            .with_weak_failures(breaker.weak_failures);
        let change = CircuitBreakerBuilder::with_successes;
        Ok(by(breaker.successes, builder, change))
    }
}

fn refused(field: &str, reason: &'static str) -> ConfigError {
    ConfigError::new(format!("circuit_breaker.{field}"), reason)
}
