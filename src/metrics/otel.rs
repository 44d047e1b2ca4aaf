//! The figures as OpenTelemetry metrics.
//!
//! | instrument | kind | attributes |
//! |---|---|---|
//! | `gen_ai.execute_tool.duration` | histogram, s | `gen_ai.tool.name`, `tool.server`, `error.type` |
//! | `mcp.client.operation.duration` | histogram, s | the same, `mcp.method.name`, `gen_ai.operation.name` |
//! | `tool.executions` | counter | `gen_ai.tool.name`, `tool.server`, `tool.outcome` |
//! | `tool.attempts`, `tool.slow`, `tool.retries`, `tool.rate_limited` | counters | `gen_ai.tool.name`, `tool.server` |
//! | `tool.retries.refused` | counter | the same, `tool.reason` |
//! | `tool.errors` | counter | the same, `tool.error_code`, `error.type` |
//! | `tool.in_flight` | up-down counter | `gen_ai.tool.name`, `tool.server` |
//! | `circuit_breaker.openings`, `circuit_breaker.state` | counter, gauge | the same |
//!
//! The two histograms are those of the semantic conventions (in development), with their buckets. The first one times
//! every call, refused ones too: `error.type` tells them apart (`timeout`, `circuit_open`, ...; for errors of an MCP server it
//! is the [kind's](crate::ErrorKind::error_type) and not the JSON-RPC code that the span has). The second one is recorded
//! for calls that have a server and were sent, unless [told otherwise](Otel::with_mcp); above a retry layer it times the call
//! with all its attempts. Names are bounded and redacted [as
//! everywhere](super#bounds).
//!
//! # Example
//!
//! ```
//! use tower_toolcall::metrics::{Metrics, otel::Otel};
//!
//! let meter = opentelemetry::global::meter("my-agent");
//! let metrics = Metrics::builder().with_sink(Otel::new(&meter)).build()?;
//! let layer = metrics.layer();
//! # Ok::<_, tower_toolcall::ConfigError>(())
//! ```

use std::sync::{Arc, OnceLock};

use opentelemetry::{
    KeyValue, Value,
    metrics::{Counter, Gauge, Histogram, Meter, UpDownCounter},
};

use super::{
    labels::Labels,
    outcome::CallOutcome,
    sink::{CallEnd, Sink, ToolSink},
};
use crate::{
    error::ErrorKind,
    event::{BreakerState, RetryRefusal, names::span},
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
pub struct Otel {
    instruments: Arc<Instruments>,
    mcp: bool,
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

impl Otel {
    /// Makes the instruments.
    pub fn new(meter: &Meter) -> Self {
        let histogram = |name: &'static str, bounds: [f64; 14], what: &'static str| {
            let histogram = meter.f64_histogram(name).with_unit("s");
            let histogram = histogram.with_boundaries(bounds.to_vec());
            histogram.with_description(what).build()
        };
        let counter = |name: &'static str, what: &'static str| {
            let counter = meter.u64_counter(name).with_unit("1");
            counter.with_description(what).build()
        };
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
            executions: counter("tool.executions", "Calls that have ended."),
            attempts: counter("tool.attempts", "Attempts of all calls that have ended."),
            slow: counter(
                "tool.slow",
                "Calls that took more than their fraction of the timeout.",
            ),
            retries: counter(
                "tool.retries",
                "Attempts that failed and were repeated by a retry layer.",
            ),
            refused: counter(
                "tool.retries.refused",
                "Calls that failed and were not sent again.",
            ),
            rate_limited: counter("tool.rate_limited", "Rate limits that were met."),
            errors: counter("tool.errors", "Calls that did not succeed."),
            in_flight: meter
                .i64_up_down_counter("tool.in_flight")
                .with_description("Calls in flight.")
                .build(),
            openings: counter(
                "circuit_breaker.openings",
                "How often a circuit breaker has opened.",
            ),
            state: meter
                .u64_gauge("circuit_breaker.state")
                .with_description("0 closed, 1 half-open, 2 open.")
                .build(),
        };
        Self {
            instruments: Arc::new(instruments),
            mcp: true,
        }
    }

    /// Whether calls that have a server are requests to an MCP server. Default: yes.
    pub fn with_mcp(mut self, mcp: bool) -> Self {
        self.mcp = mcp;
        self
    }
}

impl Sink for Otel {
    fn tool(&self, labels: &Labels) -> Box<dyn ToolSink> {
        Box::new(Tool::new(self, labels))
    }

    fn breaker(&self, labels: &Labels, state: Option<BreakerState>, opened: bool) {
        let of = attributes(labels);
        self.instruments.openings.add(opened.into(), &of);
        if let Some(state) = state {
            self.instruments.state.record(state.level().into(), &of);
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

fn and(of: &[KeyValue], key: &'static str, value: impl Into<Value>) -> Attributes {
    let mut all = of.to_vec();
    all.push(KeyValue::new(key, value));
    all
}

/// The attributes of one tool, made once.
struct Tool {
    instruments: Arc<Instruments>,
    of: Attributes,
    of_mcp: Option<Attributes>,
    outcomes: [Attributes; CallOutcome::ALL.len()],
    failures: [OnceLock<Failure>; ErrorKind::ALL.len()],
}

/// The attributes of calls that ended with one kind of error.
struct Failure {
    of: Attributes,
    of_mcp: Option<Attributes>,
}

impl Tool {
    fn new(otel: &Otel, labels: &Labels) -> Self {
        let of = attributes(labels);
        let mcp = || {
            let of = and(&of, "mcp.method.name", "tools/call");
            and(&of, span::OPERATION_NAME, "execute_tool")
        };
        Self {
            of_mcp: (otel.mcp && labels.server().is_some()).then(mcp),
            outcomes: CallOutcome::ALL.map(|outcome| and(&of, "tool.outcome", outcome.name())),
            failures: [const { OnceLock::new() }; ErrorKind::ALL.len()],
            instruments: Arc::clone(&otel.instruments),
            of,
        }
    }

    fn failure(&self, kind: ErrorKind) -> &Failure {
        let with = |of: &Attributes| and(of, span::ERROR_TYPE, kind.error_type());
        self.failures[kind as usize].get_or_init(|| Failure {
            of: with(&self.of),
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
        let (of, of_mcp) = match end.failure.map(|kind| self.failure(kind)) {
            Some(failure) => (&failure.of, &failure.of_mcp),
            None => (&self.of, &self.of_mcp),
        };
        let seconds = end.duration.as_secs_f64();
        execute_tool.record(seconds, of);
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
