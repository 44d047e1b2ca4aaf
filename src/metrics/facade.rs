//! The figures through the facade of the `metrics` crate, for whichever recorder a program has installed.
//!
//! The names and labels are those of [Prometheus](super#). Whether the latencies become a histogram or a summary is the
//! recorder's affair; `metrics-exporter-prometheus` makes a summary unless it is told buckets. The handles of a tool's counters are looked up once, so a
//! recorder has to be installed before the first call.
//!
//! # Example
//!
//! ```
//! use tower_toolcall::metrics::{Metrics, facade::Facade};
//!
//! // After a recorder was installed, for one `metrics_exporter_prometheus::PrometheusBuilder::new().install()`:
//! let metrics = Metrics::builder().with_sink(Facade::new()).build()?;
//! let layer = metrics.layer();
//! # Ok::<_, tower_toolcall::ConfigError>(())
//! ```

use metrics::{
    Counter, Gauge, Histogram, Label, Unit, counter, describe_counter, describe_gauge,
    describe_histogram, gauge, histogram,
};

use super::{
    codes::PerCode,
    labels::Labels,
    names::{self, Metric, label},
    outcome::CallOutcome,
    sink::{CallEnd, Sink, ToolSink},
};
use crate::{
    error::ErrorKind,
    event::{BreakerState, RetryRefusal},
};

/// A [`Sink`] that records through the facade. See the [module docs](self) for an example.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Facade;

impl Facade {
    /// Describes the metrics to the recorder.
    pub fn new() -> Self {
        for Metric { name, help, .. } in [
            names::EXECUTIONS,
            names::ATTEMPTS,
            names::ERRORS,
            names::TIMEOUTS,
            names::SLOW,
            names::RETRIES,
            names::REFUSED,
            names::RATE_LIMITED,
            names::REJECTED,
            names::OPENINGS,
        ] {
            describe_counter!(name, help);
        }
        for Metric { name, help, .. } in [names::IN_FLIGHT, names::STATE] {
            describe_gauge!(name, help);
        }
        let Metric { name, help, .. } = names::DURATION;
        describe_histogram!(name, Unit::Milliseconds, help);
        Self
    }
}

impl Sink for Facade {
    fn tool(&self, labels: &Labels) -> Box<dyn ToolSink> {
        Box::new(Tool::new(labels))
    }

    fn breaker(&self, labels: &Labels, state: Option<BreakerState>, opened: bool) {
        let labels = of(labels);
        counter!(names::OPENINGS.name, labels.clone()).increment(opened.into());
        if let Some(state) = state {
            gauge!(names::STATE.name, labels).set(state.level());
        }
    }
}

fn of(labels: &Labels) -> Vec<Label> {
    vec![
        Label::new(label::SERVER, labels.server().unwrap_or("").to_owned()),
        Label::new(label::TOOL, labels.tool().to_owned()),
    ]
}

/// The handles of one tool.
struct Tool {
    labels: Vec<Label>,
    executions: [Counter; CallOutcome::ALL.len()],
    attempts: Counter,
    duration: Histogram,
    errors: PerCode<Counter>,
    timeouts: Counter,
    slow: Counter,
    retries: Counter,
    refused: [Counter; RetryRefusal::ALL.len()],
    rate_limited: Counter,
    rejected: Counter,
    in_flight: Gauge,
}

impl Tool {
    fn new(labels: &Labels) -> Self {
        let labels = of(labels);
        let plain = |metric: Metric| counter!(metric.name, labels.clone());
        let with = |metric: Metric, key, value| labelled(&labels, &metric, key, value);
        Self {
            executions: CallOutcome::ALL
                .map(|outcome| with(names::EXECUTIONS, label::OUTCOME, outcome.name())),
            attempts: plain(names::ATTEMPTS),
            duration: histogram!(names::DURATION.name, labels.clone()),
            errors: PerCode::new(),
            timeouts: plain(names::TIMEOUTS),
            slow: plain(names::SLOW),
            retries: plain(names::RETRIES),
            refused: RetryRefusal::ALL
                .map(|reason| with(names::REFUSED, label::REASON, reason.name())),
            rate_limited: plain(names::RATE_LIMITED),
            rejected: plain(names::REJECTED),
            in_flight: gauge!(names::IN_FLIGHT.name, labels.clone()),
            labels,
        }
    }

    #[cold]
    fn failed(&self, kind: ErrorKind, end: &CallEnd<'_>) {
        if let Some(code) = end.code {
            let make = || labelled(&self.labels, &names::ERRORS, label::CODE, code);
            if let Some(counter) = self.errors.get(code, make) {
                counter.increment(1);
            }
        }
        match kind {
            ErrorKind::Timeout => self.timeouts.increment(1),
            ErrorKind::CircuitOpen => self.rejected.increment(1),
            _ => {}
        }
    }
}

fn labelled(labels: &[Label], metric: &Metric, key: &'static str, value: &str) -> Counter {
    let mut labels = labels.to_vec();
    labels.push(Label::new(key, value.to_owned()));
    counter!(metric.name, labels)
}

impl ToolSink for Tool {
    fn started(&self) {
        self.in_flight.increment(1.0);
    }

    fn left(&self) {
        self.in_flight.decrement(1.0);
    }

    fn ended(&self, end: &CallEnd<'_>) {
        self.executions[end.outcome as usize].increment(1);
        self.attempts.increment(end.attempts.into());
        if end.was_sent() {
            self.duration.record(end.duration.as_secs_f64() * 1e3);
        }
        if end.slow {
            self.slow.increment(1);
        }
        if let Some(kind) = end.failure {
            self.failed(kind, end);
        }
    }

    fn retried(&self) {
        self.retries.increment(1);
    }

    fn refused(&self, reason: RetryRefusal) {
        self.refused[reason as usize].increment(1);
    }

    fn rate_limited(&self) {
        self.rate_limited.increment(1);
    }
}
