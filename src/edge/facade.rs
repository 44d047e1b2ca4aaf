//! The figures through the facade of the `metrics` crate, for whichever recorder a program has installed.
//!
//! The names and labels are those of [Prometheus](crate::metrics). Whether the latencies become a histogram or a summary is the
//! recorder's affair; `metrics-exporter-prometheus` makes a summary unless it is told buckets. The handles of a tool's counters are looked up once, so a
//! recorder has to be installed before the first call.
//!
//! # Example
//!
//! ```
//! use tower_toolcall::{metrics::Metrics, metrics_facade::Facade};
//!
//! // After a recorder was installed, for one `metrics_exporter_prometheus::PrometheusBuilder::new().install()`:
//! let metrics = Metrics::builder().with_sink(Facade::new()).build()?;
//! let layer = metrics.layer();
//! # Ok::<_, tower_toolcall::ConfigError>(())
//! ```

use std::sync::OnceLock;

use metrics::{
    Counter, Gauge, Histogram, Label, Unit, counter, describe_counter, describe_gauge,
    describe_histogram, gauge, histogram,
};

use crate::{
    call::Signal,
    error::ErrorKind,
    event::{BreakerState, CallOutcome, RetryRefusal},
    metrics::{
        CallEnd, Labels, Sink, ToolSink,
        codes::MAX_CODES,
        names::{self, Metric, label},
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
        Self::default()
    }

    /// Whether errors are counted under [the name of other systems](crate::metrics#other-systems-names) as well. Default: no.
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
    aliases: Option<PerCode<Counter>>,
    timeouts: Counter,
    /// Those that not every stack can tell: registered once one can.
    slow: OnceLock<Counter>,
    retries: OnceLock<(Counter, [Counter; RetryRefusal::ALL.len()])>,
    rate_limited: OnceLock<Counter>,
    rejected: OnceLock<Counter>,
    in_flight: Gauge,
}

impl Tool {
    fn new(labels: &Labels, aliases: bool) -> Self {
        let labels = of(labels);
        let plain = |metric: Metric| counter!(metric.name, labels.clone());
        let with = |metric: Metric, key, value| labelled(&labels, &metric, key, value);
        Self {
            executions: CallOutcome::ALL
                .map(|outcome| with(names::EXECUTIONS, label::OUTCOME, outcome.name())),
            attempts: plain(names::ATTEMPTS),
            duration: histogram!(names::DURATION.name, labels.clone()),
            errors: PerCode::new(),
            aliases: aliases.then(PerCode::new),
            timeouts: plain(names::TIMEOUTS),
            slow: OnceLock::new(),
            retries: OnceLock::new(),
            rate_limited: OnceLock::new(),
            rejected: OnceLock::new(),
            in_flight: gauge!(names::IN_FLIGHT.name, labels.clone()),
            labels,
        }
    }

    fn one<'a>(&self, cell: &'a OnceLock<Counter>, metric: &Metric) -> &'a Counter {
        cell.get_or_init(|| counter!(metric.name, self.labels.clone()))
    }

    fn retries(&self) -> &(Counter, [Counter; RetryRefusal::ALL.len()]) {
        let with = |reason: RetryRefusal| {
            labelled(&self.labels, &names::REFUSED, label::REASON, reason.name())
        };
        let plain = || counter!(names::RETRIES.name, self.labels.clone());
        self.retries
            .get_or_init(|| (plain(), RetryRefusal::ALL.map(with)))
    }

    #[cold]
    fn failed(&self, kind: ErrorKind, end: &CallEnd<'_>) {
        if let Some(code) = end.code {
            let make = || labelled(&self.labels, &names::ERRORS, label::CODE, code);
            let alias = || labelled(&self.labels, &names::ERRORS_ALIAS, label::ERROR_CODE, code);
            let counted = self.errors.get(code, make);
            let aliases = self.aliases.as_ref();
            let aliased = aliases.and_then(|aliases| aliases.get(code, alias));
            for counter in counted.into_iter().chain(aliased) {
                counter.increment(1);
            }
        }
        match kind {
            ErrorKind::Timeout => self.timeouts.increment(1),
            ErrorKind::CircuitOpen => self.one(&self.rejected, &names::REJECTED).increment(1),
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
            self.one(&self.slow, &names::SLOW).increment(1);
        }
        if let Some(kind) = end.failure {
            self.failed(kind, end);
        }
    }

    fn announced(&self, signal: Signal) {
        let counter = match signal {
            Signal::Retries => {
                let (retries, refused) = self.retries();
                refused.iter().for_each(|counter| counter.increment(0));
                retries
            }
            Signal::RateLimits => self.one(&self.rate_limited, &names::RATE_LIMITED),
            Signal::Breakers => self.one(&self.rejected, &names::REJECTED),
            Signal::SlowCalls => self.one(&self.slow, &names::SLOW),
        };
        counter.increment(0);
    }

    fn retried(&self) {
        self.retries().0.increment(1);
    }

    fn refused(&self, reason: RetryRefusal) {
        self.retries().1[reason as usize].increment(1);
    }

    fn rate_limited(&self) {
        self.one(&self.rate_limited, &names::RATE_LIMITED)
            .increment(1);
    }
}

/// Something for each code of a tool, made when it is first asked for.
#[derive(Debug)]
struct PerCode<T>([OnceLock<(Box<str>, T)>; MAX_CODES + 1]);

impl<T> PerCode<T> {
    fn new() -> Self {
        Self([const { OnceLock::new() }; MAX_CODES + 1])
    }

    /// None if there are more codes than a tool has.
    fn get(&self, code: &str, make: impl Fn() -> T) -> Option<&T> {
        self.0.iter().find_map(|slot| {
            let (known, made) = slot.get_or_init(|| (code.into(), make()));
            (**known == *code).then_some(made)
        })
    }
}
