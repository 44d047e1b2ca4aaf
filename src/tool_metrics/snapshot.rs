use std::{collections::BTreeMap, sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};

use super::{
    counts::{Collected, Tokens, Tool},
    latency::{Latencies, micros},
    names::Series,
};
use crate::event::{BreakerState, CallOutcome, RetryRefusal, TokenOutcome};

/// The counts of a period: since the start or a reset, or in an [interval](super::Interval).
///
/// Prints as a table. Every name that was counted here is redacted and short; what another process
/// has [written](serde::Deserialize) is taken as it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Snapshot {
    /// How long the period was. In JSON in milliseconds, as all durations.
    #[serde(rename = "period_ms", with = "fractional_millis")]
    pub period: Duration,
    /// Every tool that was called, in the order of server and tool.
    pub tools: Vec<ToolRow>,
    /// All tools together.
    pub total: Stats,
    /// Every circuit breaker that the calls have met since the start and that counted something, in
    /// the order of server and tool.
    pub breakers: Vec<BreakerRow>,
    /// The calls for which a layer could do nothing, in the order of layer and reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inert: Vec<InertRow>,
    /// The tokens that calls needed; `None` if none ever did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<TokenStats>,
}

/// One tool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ToolRow {
    /// Its server, if the calls have one.
    pub server: Option<String>,
    /// Its name, or [`_other`](super::OTHER).
    pub tool: String,
    /// Its counts.
    #[serde(flatten)]
    pub stats: Stats,
}

/// One circuit breaker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct BreakerRow {
    /// The server part of its key.
    pub server: Option<String>,
    /// The tool part of its key; none for a breaker of a whole server.
    pub tool: Option<String>,
    /// Its state; none for all those together that have no row of their own.
    pub state: Option<BreakerState>,
    /// How often it has opened.
    pub openings: u64,
}

/// The calls for which a layer could do nothing for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct InertRow {
    /// The layer: the name of its module.
    pub layer: String,
    /// The name of an [`InertReason`](crate::event::InertReason).
    pub reason: String,
    /// How many.
    pub calls: u64,
}

/// The tokens that calls needed, each attempt for itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TokenStats {
    /// Those that were kept.
    pub hits: u64,
    /// Those that the identity provider was asked for.
    pub exchanged: u64,
    /// Those that another call had asked for.
    pub shared: u64,
    /// Those that could not be had.
    pub failed: u64,
    /// Failures by the error code of the cause.
    pub failures: BTreeMap<String, u64>,
    /// How long the identity provider took, including failures.
    pub exchange: Latency,
}

/// The counts of one tool's calls, or of all calls.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Stats {
    /// Calls that have ended.
    pub calls: u64,
    /// Calls that succeeded.
    pub successes: u64,
    /// Calls that failed, or were answered with a reported error.
    pub errors: u64,
    /// Calls that a layer of ours refused: an open breaker, a cooldown, an unknown name.
    pub rejected: u64,
    /// Calls that were started and did not end in time.
    pub timeouts: u64,
    /// Calls that were not started: no time was left.
    pub skipped: u64,
    /// Calls that the caller gave up.
    pub cancelled: u64,
    /// Calls in which the tool panicked.
    pub panicked: u64,
    /// The share of calls that neither succeeded nor were given up, from 0 to 1, rounded to six
    /// digits.
    pub error_rate: f64,
    /// Errors, timeouts and all other ends than success, by code.
    pub codes: BTreeMap<String, u64>,
    /// Attempts of all calls: requests that were sent.
    pub attempts: u64,
    /// Attempts that failed and were repeated by a retry layer. `None` if there was none, as the
    /// next five fields.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retries: Option<u64>,
    /// Calls that failed and were not sent again although that might have helped, by reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused_retries: Option<BTreeMap<String, u64>>,
    /// Rate limits that were met.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_limited: Option<u64>,
    /// Calls that took more than their fraction of the timeout, whether they succeeded or not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slow: Option<u64>,
    /// Calls that a circuit breaker refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub breaker_rejected: Option<u64>,
    /// Calls that got the answer, or the error, of another call from `once` or `cache`. They count
    /// as calls, without an attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reused: Option<u64>,
    /// Calls in flight at the end of the period.
    pub in_flight: u64,
    /// How long calls took.
    pub latency: Latency,
}

/// How long calls took, however they ended; without those that this side refused (no time left,
/// circuit open, overloaded). Percentiles are rounded up to the end of their bucket of the
/// histogram.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Latency {
    /// How many calls were timed.
    pub count: u64,
    /// The mean, exact.
    #[serde(rename = "mean_ms", with = "fractional_millis")]
    pub mean: Duration,
    /// Half of the calls took no longer.
    #[serde(rename = "p50_ms", with = "fractional_millis")]
    pub p50: Duration,
    /// 90 % took no longer.
    #[serde(rename = "p90_ms", with = "fractional_millis")]
    pub p90: Duration,
    /// 95 % took no longer.
    #[serde(rename = "p95_ms", with = "fractional_millis")]
    pub p95: Duration,
    /// 99 % took no longer.
    #[serde(rename = "p99_ms", with = "fractional_millis")]
    pub p99: Duration,
    /// 99.9 % took no longer.
    #[serde(rename = "p999_ms", with = "fractional_millis")]
    pub p999: Duration,
    /// The longest.
    #[serde(rename = "max_ms", with = "fractional_millis")]
    pub max: Duration,
    /// The sum.
    #[serde(rename = "sum_ms", with = "fractional_millis")]
    pub sum: Duration,
    /// How many were longer than the longest latency of the range, and count as that.
    pub clamped: u64,
    /// The histogram, if it was asked for: latencies in whole microseconds, ascending, each with
    /// the number of calls.
    #[serde(
        rename = "histogram_us",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub histogram: Option<Vec<(u64, u64)>>,
}

impl Snapshot {
    pub(super) fn of(collected: &Collected, period: Duration, with_histograms: bool) -> Self {
        let name = |name: &str| Some(name.to_owned()).filter(|name| !name.is_empty());
        let tools = collected.tools.iter().map(|(labels, tool)| ToolRow {
            server: labels.server().and_then(name),
            tool: labels.tool().to_owned(),
            stats: Stats::of(tool, with_histograms),
        });
        let common = &collected.common;
        let breakers = common.breakers.iter().map(|(labels, seen)| BreakerRow {
            server: labels.server().and_then(name),
            tool: name(labels.tool()),
            state: seen.state,
            openings: seen.openings,
        });
        let inert = common
            .inert
            .iter()
            .map(|((layer, reason), calls)| InertRow {
                layer: (*layer).to_owned(),
                reason: reason.name().to_owned(),
                calls: *calls,
            });
        let tokens = common.tokens.as_ref();
        Self {
            period: Duration::from_micros(micros(period)),
            tools: tools.collect(),
            total: Stats::of(&collected.total(), with_histograms),
            breakers: breakers.collect(),
            inert: inert.collect(),
            tokens: tokens.map(|tokens| TokenStats::of(tokens, with_histograms)),
        }
    }

    /// Returns the row of a tool.
    pub fn tool(&self, server: Option<&str>, tool: &str) -> Option<&Stats> {
        let row = self
            .tools
            .iter()
            .find(|row| row.server.as_deref() == server && row.tool == tool);
        row.map(|row| &row.stats)
    }
}

impl TokenStats {
    fn of(tokens: &Tokens, with_histogram: bool) -> Self {
        Self {
            hits: tokens.of(TokenOutcome::Hit),
            exchanged: tokens.of(TokenOutcome::Exchanged),
            shared: tokens.of(TokenOutcome::Shared),
            failed: tokens.of(TokenOutcome::Failed),
            failures: owned(&tokens.codes),
            exchange: Latency::of(&tokens.latencies, with_histogram),
        }
    }
}

impl Stats {
    fn of(tool: &Tool, with_histogram: bool) -> Self {
        let counts = &tool.counts;
        let ended = |outcome| counts.of(Series::Executions(outcome));
        let refused = |reason: RetryRefusal| {
            let calls = counts.get(Series::Refused(reason))?;
            Some((reason.name().to_owned(), calls))
        };
        let refused: BTreeMap<_, _> = RetryRefusal::ALL.into_iter().filter_map(refused).collect();
        let calls: u64 = CallOutcome::ALL.map(ended).iter().sum();
        let fine = ended(CallOutcome::Success) + ended(CallOutcome::Cancelled);
        let rate = (calls - fine) as f64 / calls.max(1) as f64;
        Self {
            calls,
            successes: ended(CallOutcome::Success),
            errors: ended(CallOutcome::Error),
            rejected: ended(CallOutcome::Rejected),
            timeouts: ended(CallOutcome::Timeout),
            skipped: ended(CallOutcome::Skipped),
            cancelled: ended(CallOutcome::Cancelled),
            panicked: ended(CallOutcome::Panicked),
            error_rate: (rate * 1e6).round() / 1e6,
            codes: owned(&counts.codes),
            attempts: counts.of(Series::Attempts),
            retries: counts.get(Series::Retries),
            refused_retries: Some(refused).filter(|reasons| !reasons.is_empty()),
            rate_limited: counts.get(Series::RateLimited),
            slow: counts.get(Series::Slow),
            breaker_rejected: counts.get(Series::Rejected),
            reused: counts.get(Series::Reused),
            in_flight: tool.in_flight,
            latency: Latency::of(&counts.latencies, with_histogram),
        }
    }
}

fn owned(counts: &BTreeMap<Arc<str>, u64>) -> BTreeMap<String, u64> {
    let counts = counts.iter().map(|(name, n)| (name.to_string(), *n));
    counts.collect()
}

impl Latency {
    fn of(latencies: &Latencies, with_histogram: bool) -> Self {
        let histogram = &latencies.histogram;
        let at = |quantile| Duration::from_micros(histogram.value_at_quantile(quantile));
        let count = histogram.len();
        let recorded = || {
            let recorded = histogram.iter_recorded().map(|step| {
                let us = histogram.lowest_equivalent(step.value_iterated_to());
                (us, step.count_at_value())
            });
            recorded.collect()
        };
        Self {
            count,
            mean: Duration::from_micros(latencies.sum_us / count.max(1)),
            p50: at(0.5),
            p90: at(0.9),
            p95: at(0.95),
            p99: at(0.99),
            p999: at(0.999),
            max: at(1.0),
            sum: Duration::from_micros(latencies.sum_us),
            clamped: latencies.clamped,
            histogram: with_histogram.then(recorded),
        }
    }
}

/// Durations of whole microseconds as milliseconds with three digits.
mod fractional_millis {
    use std::time::Duration;

    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    pub(super) fn serialize<S: Serializer>(d: &Duration, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_f64(d.as_micros() as f64 / 1e3)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Duration, D::Error> {
        let micros = (f64::deserialize(d)? * 1e3).round();
        // `as` would take a negative number for zero.
        if !(0.0..=u64::MAX as f64).contains(&micros) {
            return Err(D::Error::custom("no duration"));
        }
        Ok(Duration::from_micros(micros as u64))
    }
}
