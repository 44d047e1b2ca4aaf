//! The figures as OpenTelemetry metrics.
//!
//! | instrument | kind | attributes |
//! |---|---|---|
//! | `gen_ai.execute_tool.duration` | histogram, `s` | `gen_ai.operation.name`, `gen_ai.tool.name`, `tool.server`, `error.type` |
//! | `mcp.client.operation.duration` | histogram, `s` | the same, `mcp.method.name` |
//! | `tool.executions` | counter, `{call}` | `gen_ai.tool.name`, `tool.server`, `tool.outcome` |
//! | `tool.attempts` | counter, `{attempt}` | `gen_ai.tool.name`, `tool.server` |
//! | `tool.slow` | counter, `{call}` | the same |
//! | `tool.retries` | counter, `{attempt}` | the same |
//! | `tool.rate_limited` | counter, `{limit}` | the same |
//! | `tool.retries.refused` | counter, `{call}` | the same, `tool.reason` |
//! | `tool.errors` | counter, `{call}` | the same, `tool.error_code`, `error.type` |
//! | `tool.in_flight` | up-down counter, `{call}` | `gen_ai.tool.name`, `tool.server` |
//! | `circuit_breaker.openings` | counter, `{opening}` | the same |
//! | `circuit_breaker.state` | gauge, `1` | the same |
//!
//! What no layer of the stack can tell has no series (`tool.retries` without a retry layer, for example); what it can begins
//! at 0.
//!
//! The two histograms are those of the semantic conventions (in development), with their buckets. The first one times
//! every call, refused ones too: `error.type` tells them apart (`timeout`, `circuit_open`, ...; for errors of an MCP server it
//! is the [kind's](crate::ErrorKind::error_type) and not the JSON-RPC code that the span has). The second one is recorded
//! for calls that have a server and were sent, unless [told otherwise](OtelMetrics::with_mcp); above a retry layer it times the call
//! with all its attempts. Names are bounded and redacted [as
//! everywhere](crate::metrics#bounds).
//!
//! # Other systems' names
//!
//! [`with_aliases`](OtelMetrics::with_aliases) records these as well, with the attributes `tool`, `server` and those of the table:
//!
//! | alias | kind | further attributes | of |
//! |---|---|---|---|
//! | `tool_executions_total` | counter, `{call}` | `outcome` | an HTTP tool proxy |
//! | `tool_execution_duration_ms` | histogram, `ms` | | an HTTP tool proxy |
//! | `tool_execution_errors` | counter, `{call}` | `error_code` | an HTTP tool proxy |
//! | `tool_timeout_total` | counter, `{call}` | | an MCP gateway |
//! | `circuit_breaker_open_total` | counter, `{opening}` | | an MCP gateway |
//! | `circuit_breaker_state` | gauge, `1` | | an HTTP tool proxy |
//!
//! # Example
//!
//! ```
//! use tower_toolcall::{metrics::Metrics, otel::metrics::OtelMetrics};
//!
//! let meter = opentelemetry::global::meter("my-agent");
//! let metrics = Metrics::builder().with_sink(OtelMetrics::new(&meter)).build()?;
//! let layer = metrics.layer();
//! # Ok::<_, tower_toolcall::ConfigError>(())
//! ```

use std::sync::{Arc, OnceLock};

use opentelemetry::{
    KeyValue, Value,
    metrics::{Counter, Gauge, Histogram, Meter, UpDownCounter},
};

use crate::{
    call::Signal,
    error::ErrorKind,
    event::{BreakerState, CallOutcome, RetryRefusal, names::span},
    metrics::{CallEnd, Labels, Sink, ToolSink, names},
};

/// The upper bounds of the buckets of `gen_ai.execute_tool.duration`, in seconds.
const EXECUTE_TOOL_BOUNDS: [f64; 14] = [
    0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92,
];

/// Those of `mcp.client.operation.duration`.
const MCP_BOUNDS: [f64; 14] = [
    0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0,
];

/// A [`Sink`] that records with instruments of a [`Meter`]. See the [module docs](self) for an example.
#[derive(Clone, Debug)]
#[must_use]
pub struct OtelMetrics {
    instruments: Arc<Instruments>,
    aliases: Option<Arc<Aliases>>,
    mcp: bool,
}

/// Those with other systems' names.
#[derive(Debug)]
struct Aliases {
    executions: Counter<u64>,
    duration_ms: Histogram<f64>,
    errors: Counter<u64>,
    timeouts: Counter<u64>,
    openings: Counter<u64>,
    state: Gauge<u64>,
}

impl Aliases {
    fn new(meter: &Meter) -> Self {
        let bounds = names::BOUNDS_MS.map(|ms| ms as f64);
        let duration_ms = meter.f64_histogram(names::DURATION.name).with_unit("ms");
        Self {
            executions: counter(
                meter,
                names::EXECUTIONS.name,
                "{call}",
                names::EXECUTIONS.help,
            ),
            duration_ms: duration_ms
                .with_boundaries(bounds.to_vec())
                .with_description(names::DURATION.help)
                .build(),
            errors: counter(
                meter,
                names::ERRORS_ALIAS.name,
                "{call}",
                names::ERRORS.help,
            ),
            timeouts: counter(meter, names::TIMEOUTS.name, "{call}", names::TIMEOUTS.help),
            openings: counter(
                meter,
                names::OPENINGS.name,
                "{opening}",
                names::OPENINGS.help,
            ),
            state: gauge(meter, names::STATE.name),
        }
    }

    fn ended(&self, end: &CallEnd<'_>, of: &[KeyValue]) {
        let outcome = and(of, names::label::OUTCOME, end.outcome.name());
        self.executions.add(1, &outcome);
        if end.was_sent() {
            let ms = end.duration.as_secs_f64() * 1e3;
            self.duration_ms.record(ms, of);
        }
        if let Some(code) = end.code {
            let of = and(of, names::label::ERROR_CODE, code.to_owned());
            self.errors.add(1, &of);
        }
        let timed_out = end.outcome == CallOutcome::Timeout;
        self.timeouts.add(timed_out.into(), of);
    }

    fn breaker(&self, labels: &Labels, state: Option<BreakerState>, opened: bool) {
        let of = plain(labels);
        self.openings.add(opened.into(), &of);
        if let Some(state) = state {
            self.state.record(state.level().into(), &of);
        }
    }
}

fn counter(
    meter: &Meter,
    name: &'static str,
    unit: &'static str,
    what: &'static str,
) -> Counter<u64> {
    let counter = meter.u64_counter(name).with_unit(unit);
    counter.with_description(what).build()
}

fn gauge(meter: &Meter, name: &'static str) -> Gauge<u64> {
    let gauge = meter.u64_gauge(name).with_unit("1");
    gauge.with_description(names::STATE.help).build()
}

#[derive(Debug)]
struct Instruments {
    execute_tool: Histogram<f64>,
    mcp_operation: Histogram<f64>,
    executions: Counter<u64>,
    attempts: Counter<u64>,
    slow: Counter<u64>,
    retries: Counter<u64>,
    refused: Counter<u64>,
    rate_limited: Counter<u64>,
    errors: Counter<u64>,
    in_flight: UpDownCounter<i64>,
    openings: Counter<u64>,
    state: Gauge<u64>,
}

impl OtelMetrics {
    /// Makes the instruments.
    pub fn new(meter: &Meter) -> Self {
        let histogram = |name: &'static str, bounds: [f64; 14], what: &'static str| {
            let histogram = meter.f64_histogram(name).with_unit("s");
            let histogram = histogram.with_boundaries(bounds.to_vec());
            histogram.with_description(what).build()
        };
        let calls = |name, what| counter(meter, name, "{call}", what);
        let attempts = |name, what| counter(meter, name, "{attempt}", what);
        let instruments = Instruments {
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
            executions: calls("tool.executions", names::EXECUTIONS.help),
            attempts: attempts("tool.attempts", names::ATTEMPTS.help),
            slow: calls("tool.slow", names::SLOW.help),
            retries: attempts("tool.retries", names::RETRIES.help),
            refused: calls("tool.retries.refused", names::REFUSED.help),
            rate_limited: counter(
                meter,
                "tool.rate_limited",
                "{limit}",
                names::RATE_LIMITED.help,
            ),
            errors: calls("tool.errors", names::ERRORS.help),
            in_flight: meter
                .i64_up_down_counter("tool.in_flight")
                .with_unit("{call}")
                .with_description(names::IN_FLIGHT.help)
                .build(),
            openings: counter(
                meter,
                "circuit_breaker.openings",
                "{opening}",
                names::OPENINGS.help,
            ),
            state: gauge(meter, "circuit_breaker.state"),
        };
        Self {
            instruments: Arc::new(instruments),
            aliases: None,
            mcp: true,
        }
    }

    /// Whether calls that have a server are requests to an MCP server. Default: yes.
    pub fn with_mcp(mut self, mcp: bool) -> Self {
        self.mcp = mcp;
        self
    }
}

impl OtelMetrics {
    /// Records under [other systems' names](self#other-systems-names) as well. Default: no.
    pub fn with_aliases(mut self, meter: &Meter) -> Self {
        self.aliases = Some(Arc::new(Aliases::new(meter)));
        self
    }
}

impl Sink for OtelMetrics {
    fn tool(&self, labels: &Labels) -> Box<dyn ToolSink> {
        Box::new(Tool::new(self, labels))
    }

    fn breaker(&self, labels: &Labels, state: Option<BreakerState>, opened: bool) {
        let of = attributes(labels);
        self.instruments.openings.add(opened.into(), &of);
        if let Some(state) = state {
            self.instruments.state.record(state.level().into(), &of);
        }
        if let Some(aliases) = &self.aliases {
            aliases.breaker(labels, state, opened);
        }
    }
}

type Attributes = Vec<KeyValue>;

fn attributes(labels: &Labels) -> Attributes {
    let tool = KeyValue::new(span::TOOL_NAME, labels.tool().to_owned());
    let server = labels.server().map(str::to_owned);
    let server = server.map(|server| KeyValue::new(span::SERVER, server));
    [tool].into_iter().chain(server).collect()
}

/// The same under the names that other systems have.
fn plain(labels: &Labels) -> Attributes {
    let server = labels.server().unwrap_or_default().to_owned();
    vec![
        KeyValue::new(names::label::SERVER, server),
        KeyValue::new(names::label::TOOL, labels.tool().to_owned()),
    ]
}

fn and(of: &[KeyValue], key: &'static str, value: impl Into<Value>) -> Attributes {
    let mut all = of.to_vec();
    all.push(KeyValue::new(key, value));
    all
}

/// The attributes of one tool, made once.
struct Tool {
    instruments: Arc<Instruments>,
    of: Attributes,
    of_execution: Attributes,
    of_mcp: Option<Attributes>,
    aliases: Option<(Arc<Aliases>, Attributes)>,
    outcomes: [Attributes; CallOutcome::ALL.len()],
    failures: [OnceLock<Failure>; ErrorKind::ALL.len()],
}

/// The attributes of calls that ended with one kind of error.
struct Failure {
    of: Attributes,
    of_execution: Attributes,
    of_mcp: Option<Attributes>,
}

impl Tool {
    fn new(otel: &OtelMetrics, labels: &Labels) -> Self {
        let of = attributes(labels);
        let of_execution = and(&of, span::OPERATION_NAME, "execute_tool");
        let mcp = || and(&of_execution, "mcp.method.name", "tools/call");
        let aliases = otel.aliases.clone();
        Self {
            aliases: aliases.map(|aliases| (aliases, plain(labels))),
            of_mcp: (otel.mcp && labels.server().is_some()).then(mcp),
            outcomes: CallOutcome::ALL.map(|outcome| and(&of, "tool.outcome", outcome.name())),
            failures: [const { OnceLock::new() }; ErrorKind::ALL.len()],
            instruments: Arc::clone(&otel.instruments),
            of_execution,
            of,
        }
    }

    fn failure(&self, kind: ErrorKind) -> &Failure {
        let with = |of: &Attributes| and(of, span::ERROR_TYPE, kind.error_type());
        self.failures[kind as usize].get_or_init(|| Failure {
            of: with(&self.of),
            of_execution: with(&self.of_execution),
            of_mcp: self.of_mcp.as_ref().map(with),
        })
    }
}

impl ToolSink for Tool {
    fn started(&self) {
        self.instruments.in_flight.add(1, &self.of);
    }

    fn left(&self) {
        self.instruments.in_flight.add(-1, &self.of);
    }

    fn ended(&self, end: &CallEnd<'_>) {
        let Instruments {
            execute_tool,
            mcp_operation,
            executions,
            attempts,
            slow,
            errors,
            ..
        } = &*self.instruments;
        let (of, of_execution, of_mcp) = match end.failure.map(|kind| self.failure(kind)) {
            Some(failure) => (&failure.of, &failure.of_execution, &failure.of_mcp),
            None => (&self.of, &self.of_execution, &self.of_mcp),
        };
        let seconds = end.duration.as_secs_f64();
        execute_tool.record(seconds, of_execution);
        if let Some(of) = of_mcp
            && end.was_sent()
        {
            mcp_operation.record(seconds, of);
        }
        executions.add(1, &self.outcomes[end.outcome as usize]);
        attempts.add(end.attempts.into(), &self.of);
        if end.slow {
            slow.add(1, &self.of);
        }
        if let Some(code) = end.code {
            errors.add(1, &and(of, span::ERROR_CODE, code.to_owned()));
        }
        if let Some((aliases, of)) = &self.aliases {
            aliases.ended(end, of);
        }
    }

    fn announced(&self, signal: Signal) {
        let counter = match signal {
            Signal::Retries => &self.instruments.retries,
            Signal::RateLimits => &self.instruments.rate_limited,
            Signal::SlowCalls => &self.instruments.slow,
            // Of a breaker there is more to tell.
            Signal::Breakers => return,
        };
        counter.add(0, &self.of);
    }

    fn retried(&self) {
        self.instruments.retries.add(1, &self.of);
    }

    fn refused(&self, reason: RetryRefusal) {
        let of = and(&self.of, "tool.reason", reason.name());
        self.instruments.refused.add(1, &of);
    }

    fn rate_limited(&self) {
        self.instruments.rate_limited.add(1, &self.of);
    }
}
