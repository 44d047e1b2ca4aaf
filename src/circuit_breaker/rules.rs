//! When a breaker opens, for how long, and what closes it again.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::config::{ConfigError, MAX_PERIOD, period, positive, refuse_if};

/// The maximum number of results in a window.
pub const MAX_WINDOW_CALLS: u32 = 10_000;

/// The maximum number of simultaneous probes.
pub const MAX_PROBES: u32 = 1_000;

/// Buckets of a time window.
pub(super) const BUCKETS: usize = 32;

/// The condition that opens a breaker.
///
/// ```
/// use std::time::Duration;
/// use tower_toolcall::circuit_breaker::{Rates, Trip};
///
/// let default = Trip::consecutive_failures(5);
/// let gateway = Trip::consecutive_failures_within(5, Duration::from_secs(300));
/// let total = Trip::total_failures_within(5, Duration::from_secs(300));
/// let busy = Rates::over_calls(100).with_failure_rate(0.5).with_minimum_calls(20);
/// let slow = Rates::over_time(Duration::from_secs(60))
///     .with_slow_call_rate(0.8, Duration::from_secs(5));
/// # let _ = (default, gateway, total, Trip::from(busy), Trip::from(slow));
/// ```
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub struct Trip(pub(super) Kind);

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Kind {
    Failures {
        threshold: u32,
        /// How long a failure counts; without end if there is none.
        window: Option<Duration>,
        /// A success resets the count.
        in_a_row: bool,
    },
    Rates(Rates),
}

impl Trip {
    /// Counts consecutive failures, however long they take: a rarely called tool is stopped too.
    /// The default, with 5. At least 1.
    pub const fn consecutive_failures(threshold: u32) -> Self {
        Self::failures(threshold, None, true)
    }

    /// Counts failures with no success in between, all within a sliding window of time: a success
    /// resets the count, and failures older than the window do not count.
    ///
    /// Exact: a failure is as old as the end of its call, and counts until it is as old as the
    /// window is long. The threshold is at least 1 and at most [`MAX_WINDOW_CALLS`]. Each failure
    /// in the window takes 16 bytes.
    pub const fn consecutive_failures_within(threshold: u32, window: Duration) -> Self {
        Self::failures(threshold, Some(window), true)
    }

    /// Counts failures within a sliding window of time, whatever succeeds in between. Otherwise as
    /// [`consecutive_failures_within`](Self::consecutive_failures_within).
    ///
    /// This depends on how busy a tool is: with many calls, a small share of failures opens the
    /// breaker. [`Rates`] use the share instead.
    pub const fn total_failures_within(threshold: u32, window: Duration) -> Self {
        Self::failures(threshold, Some(window), false)
    }

    const fn failures(threshold: u32, window: Option<Duration>, in_a_row: bool) -> Self {
        Self(Kind::Failures {
            threshold,
            window,
            in_a_row,
        })
    }
}

impl Default for Trip {
    fn default() -> Self {
        Self::consecutive_failures(5)
    }
}

/// Consecutive failures.
impl From<u32> for Trip {
    fn from(failures: u32) -> Self {
        Self::consecutive_failures(failures)
    }
}

impl From<Rates> for Trip {
    fn from(rates: Rates) -> Self {
        Self(Kind::Rates(rates))
    }
}

/// Opens a breaker when the share of failures, or of slow calls, is too high.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub struct Rates {
    pub(super) span: Span,
    minimum: Option<u32>,
    pub(super) failure_rate: Option<f64>,
    pub(super) slow_call_rate: Option<f64>,
    slow_call: Option<Duration>,
}

/// The window of the shares.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Span {
    Calls(u32),
    Time(Duration),
}

impl Rates {
    const fn over(span: Span) -> Self {
        Self {
            span,
            minimum: None,
            failure_rate: None,
            slow_call_rate: None,
            slow_call: None,
        }
    }

    /// Counts over the last `calls` results, at most [`MAX_WINDOW_CALLS`]. Each result takes 3
    /// bytes, from the first failure or slow call on. Each key has such a window, and each
    /// principal with a weak failure has one of its own at that key.
    pub const fn over_calls(calls: u32) -> Self {
        Self::over(Span::Calls(calls))
    }

    /// Counts over the results of the last `window`, in 32 buckets: a result counts for at least
    /// 31/32 of the window and at most all of it. Takes 0.4 KiB for each key, and for each
    /// principal with a weak failure at it.
    pub const fn over_time(window: Duration) -> Self {
        Self::over(Span::Time(window))
    }

    /// Sets the share of failures that opens the breaker, above 0 and at most 1. Default: none.
    pub const fn with_failure_rate(mut self, rate: f64) -> Self {
        self.failure_rate = Some(rate);
        self
    }

    /// Sets the share of calls of at least `slow_call` that opens the breaker: above 0, at most 1.
    /// Default: none. A call that took so long and succeeded counts as slow. A call that failed,
    /// or was dropped, counts as slow and as a failure. A slow probe is a failed probe. The time
    /// starts when the call first waits, not counting waits in inner layers. Work that blocks
    /// before that is not seen.
    pub const fn with_slow_call_rate(mut self, rate: f64, slow_call: Duration) -> Self {
        self.slow_call_rate = Some(rate);
        self.slow_call = Some(slow_call);
        self
    }

    /// Sets the number of results below which the shares do not open the breaker. Default: 10, or
    /// the whole window of calls if that is smaller.
    pub const fn with_minimum_calls(mut self, calls: u32) -> Self {
        self.minimum = Some(calls);
        self
    }

    pub(super) fn minimum(&self) -> u32 {
        const DEFAULT: u32 = 10;
        match (self.minimum, self.span) {
            (Some(minimum), _) => minimum,
            (None, Span::Calls(calls)) => DEFAULT.min(calls),
            (None, Span::Time(_)) => DEFAULT,
        }
    }

    fn check(&self) -> Result<(), ConfigError> {
        match self.span {
            Span::Calls(calls) => {
                let reason = "the breaker could never open: it holds no call";
                count("window_calls", calls, MAX_WINDOW_CALLS, reason)?;
                let minimum = self.minimum();
                let reason = format!(
                    "the breaker could never open: {minimum} never fit into a window of {calls}"
                );
                refuse_if(minimum > calls, "minimum_calls", reason)?;
            }
            Span::Time(window) => {
                let reason = "the breaker could never open: nothing stays in so short a window";
                refuse_if(window.as_nanos() < BUCKETS as u128, "window", reason)?;
                period("window", window)?;
            }
        }
        let reason = "it is zero: a share of nothing has no meaning";
        count("minimum_calls", self.minimum(), u32::MAX, reason)?;
        let rates = [
            ("failure_rate", self.failure_rate),
            ("slow_call_rate", self.slow_call_rate),
        ];
        let reason = "the breaker could never open: neither it nor `slow_call_rate` is set";
        let has_none = rates.iter().all(|(_, rate)| rate.is_none());
        refuse_if(has_none, "failure_rate", reason)?;
        for (field, rate) in rates {
            let Some(rate) = rate else { continue };
            let reason = format!("{rate} is not above 0 and at most 1");
            refuse_if(!(rate > 0.0 && rate <= 1.0), field, reason)?;
        }
        let slow_call = self.slow_call.unwrap_or(MAX_PERIOD);
        let reason = "it is zero: every call would be slow";
        positive("slow_call", slow_call, reason)
    }
}

/// The evidence that the tool works again, for a half-open breaker. See
/// [`with_probe`](super::CircuitBreakerBuilder::with_probe).
///
/// ```
/// use tower_toolcall::circuit_breaker::{CircuitBreakerLayer, Probe};
///
/// # fn main() -> Result<(), tower_toolcall::ConfigError> {
/// // A payment is no probe.
/// let safe = CircuitBreakerLayer::builder().with_probe(Probe::SafeCalls).build()?;
/// # let _ = safe; Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Probe {
    /// The next call, whatever it is.
    #[default]
    AnyCall,
    /// The next call that may run twice: its [replay safety](crate::ToolCall::replay_safety) is
    /// [`Safe`](crate::ReplaySafety::Safe), as an [identity layer](crate::identity) or the caller
    /// has written it on the call (what a retry policy alone knows is not seen). Others are refused
    /// meanwhile, and take no probe's place.
    ///
    /// If no safe call has closed the breaker within another open period, any call may be the
    /// probe. So a tool that cannot run twice, such as a payment, is refused for two periods
    /// instead of one.
    SafeCalls,
}

/// The settings of the state machine.
#[derive(Clone, Debug)]
pub(super) struct Rules {
    pub(super) trip: Kind,
    pub(super) open_for: Duration,
    pub(super) growth: f64,
    pub(super) max_open_for: Duration,
    pub(super) probes: u32,
    /// Defaults to the number of probes.
    pub(super) successes: Option<u32>,
    pub(super) lease: Duration,
    /// How long a call waits for the result of probes; zero if it does not.
    pub(super) probe_wait: Duration,
    /// Keeps the place of a probe for calls that may be probes, even after many undecided probes,
    /// because other calls must not be probes.
    pub(super) safe_probes: bool,
    /// Those of breakers that are the health of servers: each failed attempt to connect counts, and
    /// not only the outage.
    pub(super) of_servers: bool,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            trip: Trip::default().0,
            open_for: Duration::from_secs(60),
            growth: 1.0,
            max_open_for: MAX_PERIOD,
            probes: 1,
            successes: None,
            lease: Duration::from_secs(120),
            probe_wait: Duration::ZERO,
            safe_probes: false,
            of_servers: false,
        }
    }
}

impl Rules {
    /// Probe successes that close the breaker.
    pub(super) fn successes(&self) -> u32 {
        self.successes.unwrap_or(self.probes)
    }

    /// Returns how long the breaker stays open after so many failed probes in a row.
    pub(super) fn open_for(&self, failed_probes: u32) -> Duration {
        if self.growth == 1.0 || failed_probes == 0 {
            return self.open_for;
        }
        let exponent = i32::try_from(failed_probes).unwrap_or(i32::MAX);
        let secs = self.open_for.as_secs_f64() * self.growth.powi(exponent);
        Duration::try_from_secs_f64(secs)
            .unwrap_or(Duration::MAX)
            .min(self.max_open_for)
    }

    /// Limits a period that another process reports to the longest one of these rules.
    pub(super) fn bounded(&self, period: Duration) -> Duration {
        period.min(match self.growth == 1.0 {
            true => self.open_for,
            false => self.max_open_for,
        })
    }

    /// Returns the duration from which a call is slow, if that matters.
    pub(super) fn slow_call(&self) -> Option<Duration> {
        match &self.trip {
            Kind::Rates(rates) => rates.slow_call,
            Kind::Failures { .. } => None,
        }
    }

    /// Refuses rules by which a breaker can never open, or never close again.
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        match &self.trip {
            &Kind::Failures {
                threshold, window, ..
            } => {
                let reason = "it is zero: the breaker would be open before the first failure";
                let most = window.map_or(u32::MAX, |_| MAX_WINDOW_CALLS);
                count("threshold", threshold, most, reason)?;
                let reason = "the breaker could never open: nothing stays in a window of zero";
                positive("window", window.unwrap_or(MAX_PERIOD), reason)?;
            }
            Kind::Rates(rates) => rates.check()?,
        }
        let reason = "the breaker could never open: it is zero: no call is ever refused";
        positive("open_for", self.open_for, reason)?;
        let reason = format!("the factor {} is not a number of at least 1", self.growth);
        let grows = self.growth >= 1.0 && self.growth.is_finite();
        refuse_if(!grows, "growth", reason)?;
        let reason = "it is shorter than `open_for`";
        refuse_if(self.max_open_for < self.open_for, "max_open_for", reason)?;
        period("max_open_for", self.max_open_for)?;
        let reason = "it is zero: the breaker could never close again";
        count("probes", self.probes, MAX_PROBES, reason)?;
        let reason = "it is zero: the breaker would close without a success";
        count("successes", self.successes(), MAX_WINDOW_CALLS, reason)?;
        let reason = "it is zero: any number of probes could run together";
        positive("probe_lease", self.lease, reason)?;
        period("probe_wait", self.probe_wait)
    }
}

fn count(field: &'static str, n: u32, max: u32, if_zero: &'static str) -> Result<(), ConfigError> {
    refuse_if(n == 0, field, if_zero)?;
    refuse_if(n > max, field, format!("{n} is more than {max}"))
}
