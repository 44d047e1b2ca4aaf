//! The figures as OpenTelemetry metrics.
//!
//! | instrument | kind | attributes |
//! |---|---|---|
//! | `gen_ai.execute_tool.duration` | histogram, `s` | `gen_ai.*`, `tool.server`, `error.type` |
//! | `mcp.client.operation.duration` | histogram, `s` | the same, `mcp.method.name` |
//! | `tool.executions` | counter, `{call}` | `gen_ai.tool.name`, `tool.server`, `tool.outcome` |
//! | `tool.attempts` | counter, `{attempt}` | `gen_ai.tool.name`, `tool.server` |
//! | `tool.slow` | counter, `{call}` | the same |
//! | `tool.retries` | counter, `{attempt}` | the same |
//! | `tool.rate_limited` | counter, `{limit}` | the same |
//! | `tool.reused` | counter, `{call}` | the same |
//! | `tool.retries.refused` | counter, `{call}` | the same, `tool.reason` |
//! | `tool.errors` | counter, `{call}` | the same, `tool.error_code`, `error.type` |
//! | `tool.in_flight` | up-down counter, `{call}` | `gen_ai.tool.name`, `tool.server` |
//! | `circuit_breaker.openings` | counter, `{opening}` | the same |
//! | `circuit_breaker.state` | gauge, `1` | the same |
//! | `tool.inert` | counter, `{call}` | `tool.layer`, `tool.reason` |
//! | `token.exchanges` | counter, `{call}` | `token.outcome` |
//! | `token.exchange.failures` | counter, `{call}` | `error.type` |
//! | `token.exchange.duration` | histogram, `s` | |
//!
//! `gen_ai.*` are `gen_ai.operation.name` and `gen_ai.tool.name`.
//!
//! The counters `tool.slow`, `tool.retries`, `tool.retries.refused`, `tool.rate_limited` and
//! `tool.reused` have no series for a tool before its first such event.
//!
//! The two histograms are those of the semantic conventions (in development), with their buckets.
//! The first one times every call, refused ones too. `error.type` distinguishes them (`timeout`,
//! `circuit_open`, ...); for errors of an MCP server it is the
//! [kind's](crate::ErrorKind::error_type), not the JSON-RPC code of the span. The second one is
//! recorded for calls that have a server and were sent, unless [switched
//! off](OtelMetrics::with_mcp); outside a retry layer it times the call with all its attempts.
//! Names are bounded and redacted [as everywhere](crate::tool_metrics#bounds).
//!
//! # Other systems' names
//!
//! [`with_aliases`](OtelMetrics::with_aliases) records these as well, with the attributes `tool`,
//! `server` and those of the table:
//!
//! | alias | kind | further attributes | of |
//! |---|---|---|---|
//! | `tool_executions_total` | counter, `{call}` | `outcome` | an HTTP tool proxy |
//! | `tool_execution_duration_ms` | histogram, `ms` | | an HTTP tool proxy |
//! | `tool_execution_errors` | counter, `{call}` | `error_code` | an HTTP tool proxy |
//! | `tool_timeout_total` | counter, `{call}` | | an MCP gateway |
//! | `circuit_breaker_open_total` | counter, `{opening}` | | an MCP gateway |
//! | `circuit_breaker_state` | gauge, `1` | | an HTTP tool proxy |
//! | `token_exchange_duration_ms` | histogram, `ms`, without attributes | | an HTTP tool proxy |
//!
//! # Example
//!
//! ```
//! use tower_toolcall::{tool_metrics::Metrics, otel::metrics::OtelMetrics};
//!
//! let meter = opentelemetry::global::meter("my-agent");
//! let metrics = Metrics::builder().with_sink(OtelMetrics::new(&meter)).build()?;
//! let layer = metrics.layer();
//! # Ok::<_, tower_toolcall::ConfigError>(())
//! ```

use std::{borrow::Cow, collections::BTreeMap, sync::Arc, time::Duration};

use opentelemetry::{
    Key, KeyValue, Value,
    metrics::{Counter, Gauge, Histogram, Meter, UpDownCounter},
};

use crate::{
    error::ErrorKind,
    event::{BreakerState, InertReason, TokenOutcome, names::span},
    tool_metrics::{
        CallEnd, Labels, Sink, ToolSink,
        names::{self, Series, label},
    },
};

/// The upper bounds of the buckets of `gen_ai.execute_tool.duration`, in seconds.
const EXECUTE_TOOL_BOUNDS: [f64; 14] = [
    0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92,
];

/// Those of `mcp.client.operation.duration`.
const MCP_BOUNDS: [f64; 14] = [
    0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0,
];

/// A [`Sink`] that records with instruments of a [`Meter`]. See the [module docs](self) for an
/// example.
#[derive(Clone, Debug)]
#[must_use]
pub struct OtelMetrics {
    execute_tool: Histogram<f64>,
    mcp_operation: Histogram<f64>,
    in_flight: UpDownCounter<i64>,
    counters: Arc<Counters>,
    tokens: Counter<u64>,
    inert: Counter<u64>,
    token_failures: Counter<u64>,
    token_exchange: Histogram<f64>,
    aliases: Option<Aliases>,
    mcp: bool,
}

/// The instruments under other systems' names: durations in milliseconds, and the counters.
#[derive(Clone, Debug)]
struct Aliases {
    duration: Histogram<f64>,
    token_exchange: Histogram<f64>,
    counters: Arc<Counters>,
}

impl OtelMetrics {
    /// Makes the instruments.
    pub fn new(meter: &Meter) -> Self {
        let histogram = |name: &'static str, bounds: [f64; 14], help: &'static str| {
            let histogram = meter.f64_histogram(name).with_unit("s");
            let histogram = histogram.with_boundaries(bounds.to_vec());
            histogram.with_description(help).build()
        };
        let in_flight = meter.i64_up_down_counter("tool.in_flight");
        let in_flight = in_flight.with_unit("{call}");
        Self {
            execute_tool: histogram(
                "gen_ai.execute_tool.duration",
                EXECUTE_TOOL_BOUNDS,
                "How long the execution of a tool took.",
            ),
            mcp_operation: histogram(
                "mcp.client.operation.duration",
                MCP_BOUNDS,
                "How long a request to an MCP server took, as its sender sees it.",
            ),
            in_flight: in_flight
                .with_description(names::help(names::IN_FLIGHT))
                .build(),
            tokens: counter(meter, "token.exchanges", "{call}", names::TOKENS),
            inert: counter(meter, "tool.inert", "{call}", names::INERT),
            token_failures: counter(
                meter,
                "token.exchange.failures",
                "{call}",
                names::TOKEN_FAILURES,
            ),
            token_exchange: histogram(
                "token.exchange.duration",
                EXECUTE_TOOL_BOUNDS,
                "How long the identity provider took for a token.",
            ),
            counters: Arc::new(Counters::new(meter, Names::Ours)),
            aliases: None,
            mcp: true,
        }
    }

    /// Returns whether calls that have a server are requests to an MCP server. Default: yes.
    pub fn with_mcp(mut self, mcp: bool) -> Self {
        self.mcp = mcp;
        self
    }

    /// Records under [other systems' names](self#other-systems-names) as well. Default: no.
    pub fn with_aliases(mut self, meter: &Meter) -> Self {
        let bounds = names::BOUNDS_MS.map(|ms| ms as f64);
        let millis = |metric| {
            let histogram = meter.f64_histogram(metric).with_unit("ms");
            let histogram = histogram.with_boundaries(bounds.to_vec());
            histogram.with_description(names::help(metric)).build()
        };
        self.aliases = Some(Aliases {
            duration: millis(names::DURATION),
            token_exchange: millis(names::TOKEN_EXCHANGE),
            counters: Arc::new(Counters::new(meter, Names::Aliases)),
        });
        self
    }
}

impl Sink for OtelMetrics {
    fn tool(&self, labels: &Labels) -> Box<dyn ToolSink> {
        Box::new(Tool::new(self, labels))
    }

    fn breaker(&self, labels: &Labels, state: Option<BreakerState>, opened: bool) {
        self.counters.breaker(labels, state, opened);
        if let Some(Aliases { counters, .. }) = &self.aliases {
            counters.breaker(labels, state, opened);
        }
    }

    fn inert(&self, layer: &'static str, reason: InertReason) {
        let layer = KeyValue::new("tool.layer", layer);
        let reason = KeyValue::new("tool.reason", reason.name());
        self.inert.add(1, &[layer, reason]);
    }

    fn token(&self, outcome: TokenOutcome, exchange: Option<Duration>, failure: Option<ErrorKind>) {
        let of = [KeyValue::new("token.outcome", outcome.name())];
        self.tokens.add(1, &of);
        if let Some(kind) = failure {
            let of = [KeyValue::new(span::ERROR_TYPE, kind.error_type())];
            self.token_failures.add(1, &of);
        }
        let Some(seconds) = exchange.map(|took| took.as_secs_f64()) else {
            return;
        };
        self.token_exchange.record(seconds, &[]);
        if let Some(aliases) = &self.aliases {
            aliases.token_exchange.record(seconds * 1e3, &[]);
        }
    }
}

fn counter(meter: &Meter, name: &'static str, unit: &'static str, metric: &str) -> Counter<u64> {
    let counter = meter.u64_counter(name).with_unit(unit);
    counter.with_description(names::help(metric)).build()
}

#[derive(Clone, Copy, Debug)]
enum Names {
    Ours,
    Aliases,
}

impl Names {
    /// The instrument of a series and its unit; none if it has no name here.
    fn instrument(self, series: Series) -> Option<(&'static str, &'static str)> {
        match (self, series) {
            (Self::Ours, Series::Executions(_)) => Some(("tool.executions", "{call}")),
            (Self::Ours, Series::Attempts) => Some(("tool.attempts", "{attempt}")),
            (Self::Ours, Series::Slow) => Some(("tool.slow", "{call}")),
            (Self::Ours, Series::Retries) => Some(("tool.retries", "{attempt}")),
            (Self::Ours, Series::Refused(_)) => Some(("tool.retries.refused", "{call}")),
            (Self::Ours, Series::RateLimited) => Some(("tool.rate_limited", "{limit}")),
            (Self::Ours, Series::Reused) => Some(("tool.reused", "{call}")),
            (Self::Aliases, Series::Executions(_) | Series::Timeouts) => {
                Some((series.metric(), "{call}"))
            }
            _ => None,
        }
    }

    fn attributes(self, labels: &Labels) -> Attributes {
        let (tool, server, unknown) = match self {
            Self::Ours => (span::TOOL_NAME, span::SERVER, None),
            Self::Aliases => (label::TOOL, label::SERVER, Some("")),
        };
        let tool = KeyValue::new(tool, labels.tool().to_owned());
        let name = labels.server().or(unknown).map(str::to_owned);
        let server = name.map(|name| KeyValue::new(server, name));
        [tool].into_iter().chain(server).collect()
    }

    /// The attribute of a label.
    fn key(self, label: &'static str) -> Key {
        match self {
            Self::Ours => format!("tool.{label}").into(),
            Self::Aliases => label.into(),
        }
    }
}

/// The counters, and the gauge of breakers, under our names or under other systems'.
#[derive(Debug)]
struct Counters {
    names: Names,
    /// The counters of the series that have a name here, by the name of their metric.
    series: BTreeMap<&'static str, Counter<u64>>,
    errors: Counter<u64>,
    openings: Counter<u64>,
    state: Gauge<u64>,
}

impl Counters {
    fn new(meter: &Meter, names: Names) -> Self {
        let counter = |name, unit, metric| counter(meter, name, unit, metric);
        let mut series = BTreeMap::new();
        for one in Series::all() {
            if let Some((name, unit)) = names.instrument(one) {
                let key = one.metric();
                let entry = series.entry(key);
                entry.or_insert_with(|| counter(name, unit, key));
            }
        }
        let [errors, openings, state] = match names {
            Names::Ours => [
                "tool.errors",
                "circuit_breaker.openings",
                "circuit_breaker.state",
            ],
            Names::Aliases => [names::ERRORS_ALIAS, names::OPENINGS, names::STATE],
        };
        let state = meter.u64_gauge(state).with_unit("1");
        Self {
            names,
            series,
            errors: counter(errors, "{call}", names::ERRORS),
            openings: counter(openings, "{opening}", names::OPENINGS),
            state: state.with_description(names::help(names::STATE)).build(),
        }
    }

    fn breaker(&self, labels: &Labels, state: Option<BreakerState>, opened: bool) {
        let of = self.names.attributes(labels);
        self.openings.add(opened.into(), &of);
        if let Some(state) = state {
            self.state.record(state.level().into(), &of);
        }
    }
}

type Attributes = Vec<KeyValue>;

fn and(of: &[KeyValue], key: impl Into<Key>, value: impl Into<Value>) -> Attributes {
    let mut all = of.to_vec();
    all.push(KeyValue::new(key, value));
    all
}

/// The counters of one tool with their attributes, made once.
struct ToolCounters {
    of: Attributes,
    /// By [`Series::place`]; none of a metric that has no name here.
    series: Vec<Option<(Counter<u64>, Attributes)>>,
    errors: Counter<u64>,
}

impl ToolCounters {
    fn new(counters: &Counters, labels: &Labels) -> Self {
        let names = counters.names;
        let of = names.attributes(labels);
        let with_attributes = |series: Series| {
            let counter = counters.series.get(series.metric())?;
            let of = match series.label() {
                Some((label, value)) => and(&of, names.key(label), value),
                None => of.clone(),
            };
            Some((counter.clone(), of))
        };
        Self {
            series: Series::all().map(with_attributes).collect(),
            errors: counters.errors.clone(),
            of,
        }
    }

    fn add(&self, series: Series, n: u64) {
        if let Some((counter, of)) = &self.series[series.place()] {
            counter.add(n, of);
        }
    }

    fn ended(&self, end: &CallEnd<'_>) {
        end.each_count(|series, n| {
            if n > 0 || series.is_always_there() {
                self.add(series, n);
            }
        });
    }
}

/// One tool.
struct Tool {
    otel: OtelMetrics,
    counters: ToolCounters,
    aliases: Option<(Histogram<f64>, ToolCounters)>,
    execution: Attributes,
    mcp: Option<Attributes>,
}

impl Tool {
    fn new(otel: &OtelMetrics, labels: &Labels) -> Self {
        let counters = ToolCounters::new(&otel.counters, labels);
        let execution = and(&counters.of, span::OPERATION_NAME, "execute_tool");
        let mcp = || and(&execution, "mcp.method.name", "tools/call");
        let aliases = otel.aliases.as_ref();
        Self {
            mcp: (otel.mcp && labels.server().is_some()).then(mcp),
            execution,
            aliases: aliases.map(|all| {
                (
                    all.duration.clone(),
                    ToolCounters::new(&all.counters, labels),
                )
            }),
            otel: otel.clone(),
            counters,
        }
    }
}

impl ToolSink for Tool {
    fn started(&self) {
        self.otel.in_flight.add(1, &self.counters.of);
    }

    fn left(&self) {
        self.otel.in_flight.add(-1, &self.counters.of);
    }

    fn ended(&self, end: &CallEnd<'_>) {
        fn with(of: &Attributes, failure: Option<ErrorKind>) -> Cow<'_, [KeyValue]> {
            match failure {
                Some(kind) => and(of, span::ERROR_TYPE, kind.error_type()).into(),
                None => of.into(),
            }
        }
        let seconds = end.duration.as_secs_f64();
        let of = with(&self.execution, end.failure);
        self.otel.execute_tool.record(seconds, &of);
        if let Some(of) = self.mcp.as_ref().filter(|_| end.was_sent()) {
            let of = with(of, end.failure);
            self.otel.mcp_operation.record(seconds, &of);
        }
        self.counters.ended(end);
        if let Some(code) = end.code {
            let of = with(&self.counters.of, end.failure);
            let of = and(&of, span::ERROR_CODE, code.to_owned());
            self.counters.errors.add(1, &of);
        }
        if let Some((duration, counters)) = &self.aliases {
            counters.ended(end);
            if end.was_sent() {
                duration.record(seconds * 1e3, &counters.of);
            }
            if let Some(code) = end.code {
                let of = and(&counters.of, label::ERROR_CODE, code.to_owned());
                counters.errors.add(1, &of);
            }
        }
    }

    fn happened(&self, series: Series) {
        self.counters.add(series, 1);
    }
}
