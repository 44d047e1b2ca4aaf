//! The metrics and their names in every output: part of the public interface.

use crate::event::{CallOutcome, RetryRefusal};

/// A counter with the error code as a label.
pub(crate) const ERRORS: &str = "tool_execution_errors_total";
/// Its name in an HTTP tool proxy.
pub(crate) const ERRORS_ALIAS: &str = "tool_execution_errors";
/// A histogram.
pub(crate) const DURATION: &str = "tool_execution_duration_ms";
/// A gauge.
pub(crate) const IN_FLIGHT: &str = "tool_in_flight";
/// A counter of each circuit breaker.
pub(crate) const OPENINGS: &str = "circuit_breaker_open_total";
/// A gauge of each circuit breaker.
pub(crate) const STATE: &str = "circuit_breaker_state";
/// A counter by layer and reason.
pub(crate) const INERT: &str = "tool_inert_total";
/// A counter by outcome.
pub(crate) const TOKENS: &str = "token_exchange_total";
/// A counter by error code.
pub(crate) const TOKEN_FAILURES: &str = "token_exchange_failures_total";
/// A histogram.
pub(crate) const TOKEN_EXCHANGE: &str = "token_exchange_duration_ms";

/// The help texts, each after the name of its metric.
const HELP: &str = "\
tool_executions_total Calls that have ended, by outcome.
tool_attempts_total Attempts that were sent, of all calls that have ended.
tool_execution_duration_ms How long calls took, in milliseconds, without those that this side refused.
tool_execution_errors_total Calls that did not succeed, by error code.
tool_execution_errors Calls that did not succeed, by error code.
tool_timeout_total Calls that were started and did not end in time.
tool_slow_total Calls that took more than their fraction of the timeout.
tool_retries_total Attempts that failed and were repeated by a retry layer.
tool_retries_refused_total Calls that failed and were not sent again, by reason.
tool_rate_limited_total Rate limits that were met.
tool_reused_total Calls that got the answer of another call.
tool_in_flight Calls in flight.
tool_inert_total Calls for which a layer could do nothing, by layer and reason.
circuit_breaker_rejected_total Calls that a circuit breaker refused.
circuit_breaker_open_total How often a circuit breaker has opened.
circuit_breaker_state State of a circuit breaker: 0 closed, 1 half-open, 2 open.
token_exchange_total Calls that needed a token, by what became of that.
token_exchange_failures_total Calls that got no token, by the error code of the cause.
token_exchange_duration_ms How long the identity provider took for a token, in milliseconds.
";

/// Returns the help text of a metric.
pub(crate) fn help(metric: &str) -> &'static str {
    let of_it = |line: &'static str| line.strip_prefix(metric)?.strip_prefix(' ');
    HELP.lines().find_map(of_it).unwrap_or_default()
}

/// One counter of a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Series {
    /// Calls that have ended in this way.
    Executions(CallOutcome),
    /// Attempts that were sent.
    Attempts,
    /// Calls that did not end in time.
    Timeouts,
    /// Calls that took more than their fraction of the timeout.
    Slow,
    /// Attempts that failed and were repeated.
    Retries,
    /// Calls that failed and were not sent again for this reason.
    Refused(RetryRefusal),
    /// Rate limits that were met.
    RateLimited,
    /// Calls that a circuit breaker refused.
    Rejected,
    /// Calls that got the answer of another call.
    Reused,
}

impl Series {
    /// How many a tool has.
    pub(crate) const COUNT: usize = Self::Reused.place() + 1;

    /// Returns every one, in the order in which they are printed.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        let executions = CallOutcome::ALL.map(Self::Executions).into_iter();
        executions
            .chain([Self::Attempts, Self::Timeouts, Self::Slow, Self::Retries])
            .chain(RetryRefusal::ALL.map(Self::Refused))
            .chain([Self::RateLimited, Self::Rejected, Self::Reused])
    }

    /// Its place among all.
    #[inline]
    pub(crate) const fn place(self) -> usize {
        const ATTEMPTS: usize = CallOutcome::ALL.len();
        const RATE_LIMITED: usize = ATTEMPTS + 4 + RetryRefusal::ALL.len();
        match self {
            Self::Executions(outcome) => outcome as usize,
            Self::Attempts => ATTEMPTS,
            Self::Timeouts => ATTEMPTS + 1,
            Self::Slow => ATTEMPTS + 2,
            Self::Retries => ATTEMPTS + 3,
            Self::Refused(reason) => ATTEMPTS + 4 + reason as usize,
            Self::RateLimited => RATE_LIMITED,
            Self::Rejected => RATE_LIMITED + 1,
            Self::Reused => RATE_LIMITED + 2,
        }
    }

    /// The metric that it is a series of.
    pub(crate) const fn metric(self) -> &'static str {
        match self {
            Self::Executions(_) => "tool_executions_total",
            Self::Attempts => "tool_attempts_total",
            Self::Timeouts => "tool_timeout_total",
            Self::Slow => "tool_slow_total",
            Self::Retries => "tool_retries_total",
            Self::Refused(_) => "tool_retries_refused_total",
            Self::RateLimited => "tool_rate_limited_total",
            Self::Rejected => "circuit_breaker_rejected_total",
            Self::Reused => "tool_reused_total",
        }
    }

    /// Returns whether every tool has it. The others begin with their first event.
    pub(crate) const fn is_always_there(self) -> bool {
        matches!(self, Self::Executions(_) | Self::Attempts | Self::Timeouts)
    }

    /// Its label beside server and tool.
    pub(crate) const fn label(self) -> Option<(&'static str, &'static str)> {
        match self {
            Self::Executions(outcome) => Some((label::OUTCOME, outcome.name())),
            Self::Refused(reason) => Some((label::REASON, reason.name())),
            _ => None,
        }
    }
}

/// The upper bounds of the histogram's buckets, in milliseconds.
pub(crate) const BOUNDS_MS: [u64; 17] = [
    1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000, 60_000, 120_000,
    300_000,
];

/// Labels.
pub(crate) mod label {
    pub(crate) const SERVER: &str = "server";
    pub(crate) const TOOL: &str = "tool";
    pub(crate) const OUTCOME: &str = "outcome";
    pub(crate) const CODE: &str = "code";
    /// In the alias of the errors.
    pub(crate) const ERROR_CODE: &str = "error_code";
    pub(crate) const REASON: &str = "reason";
    pub(crate) const LAYER: &str = "layer";
    pub(crate) const LE: &str = "le";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_series_has_its_own_place() {
        let places: Vec<_> = Series::all().map(Series::place).collect();
        assert_eq!(places, (0..Series::COUNT).collect::<Vec<_>>());
        assert!(Series::all().all(|series| !help(series.metric()).is_empty()));
    }
}
