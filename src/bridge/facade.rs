//! The figures through the facade of the `metrics` crate, for the recorder that a program has
//! installed.
//!
//! The names and labels are those of [Prometheus](crate::tool_metrics). Whether the latencies
//! become a histogram or a summary is the recorder's choice; `metrics-exporter-prometheus` makes a
//! summary unless it has been given buckets. The handles of a tool's counters are looked up once,
//! so a recorder has to be installed before the first call.
//!
//! # Example
//!
//! ```
//! use tower_toolcall::{tool_metrics::Metrics, metrics_facade::Facade};
//!
//! // After a recorder was installed, for example
//! // `metrics_exporter_prometheus::PrometheusBuilder::new().install()`:
//! let metrics = Metrics::builder().with_sink(Facade::new()).build()?;
//! let layer = metrics.layer();
//! # Ok::<_, tower_toolcall::ConfigError>(())
//! ```

use std::{sync::OnceLock, time::Duration};

use metrics::{
    Counter, Gauge, Histogram, Label, Unit, counter, describe_counter, describe_gauge,
    describe_histogram, gauge, histogram,
};

use crate::{
    error::ErrorKind,
    event::{BreakerState, InertReason, TokenOutcome},
    tool_metrics::{
        CallEnd, Labels, Sink, ToolSink,
        names::{self, Series, label},
    },
};

/// A [`Sink`] that records through the facade. See the [module docs](self) for an example.
#[derive(Clone, Copy, Debug, Default)]
#[must_use]
pub struct Facade {
    aliases: bool,
}

impl Facade {
    /// Describes the metrics to the recorder.
    pub fn new() -> Self {
        let others = [
            names::ERRORS,
            names::OPENINGS,
            names::TOKENS,
            names::INERT,
            names::TOKEN_FAILURES,
        ];
        for name in Series::all().map(Series::metric).chain(others) {
            describe_counter!(name, names::help(name));
        }
        for name in [names::IN_FLIGHT, names::STATE] {
            describe_gauge!(name, names::help(name));
        }
        for name in [names::DURATION, names::TOKEN_EXCHANGE] {
            describe_histogram!(name, Unit::Milliseconds, names::help(name));
        }
        Self::default()
    }

    /// Returns whether errors are counted under [the name of other
    /// systems](crate::tool_metrics#other-systems-names) as well. Default: no.
    pub fn with_aliases(mut self, aliases: bool) -> Self {
        self.aliases = aliases;
        self
    }
}

impl Sink for Facade {
    fn tool(&self, labels: &Labels) -> Box<dyn ToolSink> {
        Box::new(Tool::new(labels, self.aliases))
    }

    fn breaker(&self, labels: &Labels, state: Option<BreakerState>, opened: bool) {
        let labels = of(labels);
        counter!(names::OPENINGS, labels.clone()).increment(opened.into());
        if let Some(state) = state {
            gauge!(names::STATE, labels).set(state.level());
        }
    }

    fn inert(&self, layer: &'static str, reason: InertReason) {
        let labels = [(label::LAYER, layer), (label::REASON, reason.name())];
        counter!(names::INERT, &labels).increment(1);
    }

    fn token(&self, outcome: TokenOutcome, exchange: Option<Duration>, failure: Option<ErrorKind>) {
        counter!(names::TOKENS, label::OUTCOME => outcome.name()).increment(1);
        if let Some(kind) = failure {
            counter!(names::TOKEN_FAILURES, label::CODE => kind.code()).increment(1);
        }
        if let Some(took) = exchange {
            histogram!(names::TOKEN_EXCHANGE).record(took.as_secs_f64() * 1e3);
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
    /// By [`Series::place`], each registered once it exists.
    counters: [OnceLock<Counter>; Series::COUNT],
    duration: Histogram,
    aliases: bool,
    in_flight: Gauge,
}

impl Tool {
    fn new(labels: &Labels, aliases: bool) -> Self {
        let labels = of(labels);
        let tool = Self {
            counters: [const { OnceLock::new() }; Series::COUNT],
            duration: histogram!(names::DURATION, labels.clone()),
            aliases,
            in_flight: gauge!(names::IN_FLIGHT, labels.clone()),
            labels,
        };
        for series in Series::all().filter(|series| series.is_always_there()) {
            tool.counter(series).increment(0);
        }
        tool
    }

    fn counter(&self, series: Series) -> &Counter {
        let name = series.metric();
        self.counters[series.place()].get_or_init(|| labelled(name, &self.labels, series.label()))
    }
}

fn labelled(name: &'static str, labels: &[Label], more: Option<(&'static str, &str)>) -> Counter {
    let more = more.map(|(key, value)| Label::new(key, value.to_owned()));
    counter!(name, labels.iter().cloned().chain(more).collect::<Vec<_>>())
}

impl ToolSink for Tool {
    fn started(&self) {
        self.in_flight.increment(1.0);
    }

    fn left(&self) {
        self.in_flight.decrement(1.0);
    }

    fn ended(&self, end: &CallEnd<'_>) {
        end.each_count(|series, n| {
            if n > 0 {
                self.counter(series).increment(n);
            }
        });
        if end.was_sent() {
            self.duration.record(end.duration.as_secs_f64() * 1e3);
        }
        if let Some(code) = end.code {
            let count = |name, key| labelled(name, &self.labels, Some((key, code))).increment(1);
            count(names::ERRORS, label::CODE);
            if self.aliases {
                count(names::ERRORS_ALIAS, label::ERROR_CODE);
            }
        }
    }

    fn happened(&self, series: Series) {
        self.counter(series).increment(1);
    }
}
