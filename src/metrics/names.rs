//! The names of metrics and labels: part of what this crate promises.

use std::fmt::{self, Display};

use super::labels::Labels;

/// A metric with its help text.
pub(crate) struct Metric {
    pub(crate) name: &'static str,
    kind: &'static str,
    pub(crate) help: &'static str,
}

const fn metric(name: &'static str, kind: &'static str, help: &'static str) -> Metric {
    Metric { name, kind, help }
}

pub(crate) const EXECUTIONS: Metric = metric(
    "tool_executions_total",
    "counter",
    "Calls that have ended, by outcome.",
);
pub(crate) const ATTEMPTS: Metric = metric(
    "tool_attempts_total",
    "counter",
    "Attempts that were sent, of all calls that have ended.",
);
pub(crate) const DURATION: Metric = metric(
    "tool_execution_duration_ms",
    "histogram",
    "How long calls took, in milliseconds, without those that this side refused.",
);
pub(crate) const ERRORS: Metric = metric(
    "tool_execution_errors_total",
    "counter",
    "Calls that did not succeed, by error code.",
);
/// The name that an HTTP tool proxy gives it.
pub(crate) const ERRORS_ALIAS: Metric = Metric {
    name: "tool_execution_errors",
    ..ERRORS
};
pub(crate) const TIMEOUTS: Metric = metric(
    "tool_timeout_total",
    "counter",
    "Calls that were started and did not end in time.",
);
pub(crate) const SLOW: Metric = metric(
    "tool_slow_total",
    "counter",
    "Calls that took more than their fraction of the timeout.",
);
pub(crate) const RETRIES: Metric = metric(
    "tool_retries_total",
    "counter",
    "Attempts that failed and were repeated by a retry layer.",
);
pub(crate) const REFUSED: Metric = metric(
    "tool_retries_refused_total",
    "counter",
    "Calls that failed and were not sent again, by reason.",
);
pub(crate) const RATE_LIMITED: Metric = metric(
    "tool_rate_limited_total",
    "counter",
    "Rate limits that were met.",
);
pub(crate) const REJECTED: Metric = metric(
    "circuit_breaker_rejected_total",
    "counter",
    "Calls that a circuit breaker refused.",
);
pub(crate) const IN_FLIGHT: Metric = metric("tool_in_flight", "gauge", "Calls in flight.");
pub(crate) const OPENINGS: Metric = metric(
    "circuit_breaker_open_total",
    "counter",
    "How often a circuit breaker has opened.",
);
pub(crate) const STATE: Metric = metric(
    "circuit_breaker_state",
    "gauge",
    "State of a circuit breaker: 0 closed, 1 half-open, 2 open.",
);

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
    pub(crate) const LE: &str = "le";
}

impl Metric {
    /// The two lines before its first one.
    pub(crate) fn head(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, kind, help } = self;
        writeln!(f, "# HELP {name} {help}\n# TYPE {name} {kind}")
    }

    pub(crate) fn line(
        &self,
        f: &mut fmt::Formatter<'_>,
        labels: &Labels,
        more: Option<(&str, &str)>,
        value: u64,
    ) -> fmt::Result {
        line(f, &self.name, labels, more, &value)
    }
}

/// One line of the text format.
pub(crate) fn line(
    f: &mut fmt::Formatter<'_>,
    name: &dyn Display,
    labels: &Labels,
    more: Option<(&str, &str)>,
    value: &dyn Display,
) -> fmt::Result {
    let server = Escaped(labels.server().unwrap_or_default());
    let tool = Escaped(labels.tool());
    let [of_server, of_tool] = [label::SERVER, label::TOOL];
    write!(f, "{name}{{{of_server}=\"{server}\",{of_tool}=\"{tool}\"")?;
    if let Some((label, text)) = more {
        write!(f, ",{label}=\"{}\"", Escaped(text))?;
    }
    writeln!(f, "}} {value}")
}

/// The value of a label, as the text format wants it.
struct Escaped<'a>(&'a str);

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|c| match c {
            '\\' => f.write_str("\\\\"),
            '"' => f.write_str("\\\""),
            '\n' => f.write_str("\\n"),
            c => write!(f, "{c}"),
        })
    }
}
