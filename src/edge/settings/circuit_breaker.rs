use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{KeyBy, Settings, duration};
use crate::{
    circuit_breaker::{CircuitBreakerBuilder, CircuitBreakerLayer, MAX_PERIOD, Rates, Trip},
    config::ConfigError,
    kit::registry::DEFAULT_MAX_KEYS,
};

/// A probe keeps its place at least so long.
const MIN_LEASE: Duration = Duration::from_secs(120);

/// When a broken tool is no longer called: `[circuit_breaker]`. See [`CircuitBreakerLayer`].
///
/// There are three ways to open. By default `threshold` failures in a row; with a `window`, so many in a row within
/// that time, or so many in all if `success_resets` is false; with a `failure_rate` or a `slow_call_rate`, that share of
/// the calls of the last `window`, or of the last `window_calls`, and `threshold` is not looked at.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct CircuitBreakerSettings {
    /// Whether the layer is there. Default: yes.
    pub enabled: bool,
    /// How many failures open a breaker. Default 5. Below `retry.attempts` one call can open it, and its last error
    /// is then [`CircuitOpen`](crate::ErrorKind::CircuitOpen).
    pub threshold: u32,
    /// How close together they are: older failures do not count. Default: none, so that any number of hours may lie
    /// between them. Calls one after the other that time out open it if `(threshold - 1) x timeout < window`.
    #[serde(with = "duration::optional")]
    pub window: Option<Duration>,
    /// Whether a success resets the count of failures. Default: yes. If not, `window` has to be set.
    pub success_resets: bool,
    /// How long a breaker stays open before it tries again. Default 60 s.
    #[serde(with = "duration")]
    pub open_for: Duration,
    /// How many probes may run at a time. Default 1.
    pub probes: u32,
    /// How many successful probes close the breaker. Default: as many as may run at a time.
    pub successes: Option<u32>,
    /// The share of failures that opens a breaker, above 0 and at most 1. Default: not looked at.
    pub failure_rate: Option<f64>,
    /// The share of slow calls that opens a breaker, above 0 and at most 1. Default: not looked at.
    pub slow_call_rate: Option<f64>,
    /// From when on a call is slow, for `slow_call_rate`. Default: none.
    #[serde(with = "duration::optional")]
    pub slow_call: Option<Duration>,
    /// How many calls a share needs to mean anything. Default: 10, or all of `window_calls` if these are fewer.
    pub minimum_calls: Option<u32>,
    /// How many calls the shares are of, in the place of `window`. Default: none.
    pub window_calls: Option<u32>,
    /// Which calls share a breaker: `tool`, `tool_name` or `server`. Default: `tool`.
    pub key: KeyBy,
    /// How many breakers are kept. Default 10,000.
    pub max_keys: usize,
    /// Whether an answer that is an error in the tool's own words (MCP's `isError`) counts as a failure, for a
    /// classifier that sees it. Default: no.
    pub reported_failures: bool,
}

impl Default for CircuitBreakerSettings {
    fn default() -> Self {
        Self {
            enabled: true,
            threshold: 5,
            window: None,
            success_resets: true,
            open_for: Duration::from_secs(60),
            probes: 1,
            successes: None,
            failure_rate: None,
            slow_call_rate: None,
            slow_call: None,
            minimum_calls: None,
            window_calls: None,
            key: KeyBy::Tool,
            max_keys: DEFAULT_MAX_KEYS,
            reported_failures: false,
        }
    }
}

impl CircuitBreakerSettings {
    fn has_rates(&self) -> bool {
        self.failure_rate.is_some() || self.slow_call_rate.is_some()
    }

    /// Whether one result alone opens a breaker.
    pub(super) fn opens_at_once(&self) -> bool {
        match self.has_rates() {
            true => self.minimum_calls == Some(1),
            false => self.threshold == 1,
        }
    }

    fn trip(&self) -> Result<Trip, ConfigError> {
        if self.has_rates() {
            if !self.success_resets {
                let reason = "with a rate there is no count to reset: it means nothing";
                return Err(refused("success_resets", reason));
            }
            return self.rates().map(Trip::from);
        }
        if !self.success_resets && self.window.is_none() {
            let reason =
                "it is false, so failures would add up for ever: set `circuit_breaker.window` too";
            return Err(refused("success_resets", reason));
        }
        let unused = [
            ("window_calls", self.window_calls.is_some()),
            ("minimum_calls", self.minimum_calls.is_some()),
            ("slow_call", self.slow_call.is_some()),
        ];
        if let Some((key, _)) = unused.iter().find(|(_, is_set)| *is_set) {
            return Err(refused(
                key,
                "neither `circuit_breaker.failure_rate` nor `circuit_breaker.slow_call_rate` is set, so it means nothing",
            ));
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
                let reason = "what is it a share of? Set `circuit_breaker.window` or \
                              `circuit_breaker.window_calls` too";
                return Err(refused(rate, reason));
            }
        };
        if let Some(rate) = self.failure_rate {
            rates = rates.with_failure_rate(rate);
        }
        if let Some(calls) = self.minimum_calls {
            rates = rates.with_minimum_calls(calls);
        }
        match (self.slow_call_rate, self.slow_call) {
            (Some(rate), Some(slow)) => Ok(rates.with_slow_call_rate(rate, slow)),
            (None, None) => Ok(rates),
            (Some(_), None) => {
                let reason = "from when on is a call slow? Set `circuit_breaker.slow_call` too";
                Err(refused("slow_call_rate", reason))
            }
            (None, Some(_)) => {
                let reason = "`circuit_breaker.slow_call_rate` is not set, so it means nothing";
                Err(refused("slow_call", reason))
            }
        }
    }
}

impl Settings {
    /// The circuit breaker layer alone, to be completed and built, whether it is enabled or not. A probe keeps
    /// its place for twice the longest timeout, and at least 120 s.
    ///
    /// # Errors
    ///
    /// If its settings do not say what opens a breaker, or contradict each other. All else is checked when it is built.
    pub fn circuit_breaker_builder(&self) -> Result<CircuitBreakerBuilder, ConfigError> {
        let breaker = &self.in_force().circuit_breaker;
        if breaker.reported_failures && breaker.key == KeyBy::Server {
            let reason = "they tell of one tool, and by `circuit_breaker.key` the tools of a server \
                          share a breaker";
            return Err(refused("reported_failures", reason));
        }
        let (_, longest) = self.longest_timeout();
        let builder = CircuitBreakerLayer::builder()
            .with_trip(breaker.trip()?)
            .with_open_for(breaker.open_for)
            .with_probes(breaker.probes)
            .with_probe_lease(longest.saturating_mul(2).clamp(MIN_LEASE, MAX_PERIOD))
            .with_key(breaker.key.into())
            .with_known_keys(self.known_calls(breaker.max_keys))
            .with_max_keys(breaker.max_keys)
            .with_reported_failures(breaker.reported_failures);
        Ok(match breaker.successes {
            Some(successes) => builder.with_successes(successes),
            None => builder,
        })
    }
}

fn refused(field: &str, reason: &'static str) -> ConfigError {
    ConfigError::new(format!("circuit_breaker.{field}"), reason)
}
