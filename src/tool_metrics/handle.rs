use std::{
    sync::{Arc, Mutex, Weak},
    time::Duration,
};

use super::{
    breakers,
    counts::{Collected, Common, Tokens},
    interval::{Interval, Period},
    labels::Labels,
    latency::Range,
    names::Series,
    prometheus::Prometheus,
    row::{Place, Row, Seat, Shared},
    service::MetricsLayer,
    sink::{CallEnd, Sink},
    snapshot::Snapshot,
};
use crate::{
    call::CallInfo,
    config::{ConfigError, refuse_if},
    error::{ErrorKind, ToolError},
    event::{BreakerState, Event, Listen, Listener},
    key::Key,
    kit::registry::Registry,
    lock::lock,
    outcome::ByError,
};

/// The default bound on the number of tools.
const DEFAULT_MAX_TOOLS: usize = 1_000;

const MOST_TOOLS: usize = 1 << 20;

/// The counters of all layers that were made with it. Cheap to clone; clones share them.
///
/// Its layer puts it on the record of each call, so it receives the events of inner layers. It is
/// also a [listener](Listen), for layers with calls that do not pass its layer; an event that
/// reaches it both ways counts once. See the [module docs](super) for an example.
#[derive(Clone)]
pub struct Metrics(pub(super) Arc<Inner>);

pub(super) struct Inner {
    rows: Registry<Arc<Row>>,
    common: Mutex<Common>,
    max: usize,
    shared: Arc<Shared>,
    /// Since the last reset.
    period: Mutex<Period>,
    /// The listener that its layer puts on the records of calls.
    pub(super) listener: Weak<dyn Listen>,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// Makes a handle with the default settings: 1,000 tools, latencies from 1 us to 1 h with two
    /// significant digits.
    pub fn new() -> Self {
        MetricsBuilder::default().with_range(Range::default())
    }

    /// Returns a builder with other settings.
    pub fn builder() -> MetricsBuilder {
        MetricsBuilder::default()
    }

    /// Returns a layer that counts here. Any number of layers can: services for one tool each, or
    /// stacks for several servers.
    pub fn layer(&self) -> MetricsLayer {
        MetricsLayer {
            metrics: self.clone(),
            classifier: ByError,
        }
    }

    /// Returns the counts since the start, or since the last [`reset`](Self::reset).
    pub fn snapshot(&self) -> Snapshot {
        self.with_period(|period| period.read(self.collect(), false))
    }

    /// Returns the same with every tool's [histogram](super::Latency::histogram). Its counts can be
    /// added to those of other processes with the same settings.
    pub fn export(&self) -> Snapshot {
        self.with_period(|period| period.read(self.collect(), true))
    }

    /// Snapshots begin at zero from now on. [Prometheus](Self::prometheus), sinks and
    /// [intervals](Self::interval) do not notice: their counters only ever grow.
    pub fn reset(&self) {
        self.with_period(|period| *period = Period::new(self.collect()));
    }

    /// Returns a reader of what happens from now on, in intervals of its own. There can be several.
    pub fn interval(&self) -> Interval {
        Interval::new(self.clone())
    }

    /// Returns all counts in Prometheus' text format (`text/plain; version=0.0.4`), since the
    /// start.
    pub fn prometheus(&self) -> String {
        let (all, aliases) = (self.collect(), self.0.shared.aliases);
        Prometheus { all: &all, aliases }.to_string()
    }

    fn with_period<T>(&self, f: impl FnOnce(&mut Period) -> T) -> T {
        f(&mut lock(&self.0.period))
    }

    /// Returns all counts since the start.
    pub(super) fn collect(&self) -> Collected {
        let Inner { rows, .. } = &*self.0;
        let mut all = Collected {
            common: lock(&self.0.common).clone(),
            ..Collected::default()
        };
        for entry in rows
            .entries()
            .iter()
            .map(Arc::as_ref)
            .chain([rows.overflow()])
        {
            entry.value().collect(rows.calls(entry), &mut all);
        }
        all
    }
}

impl Inner {
    /// Returns a seat for a call at its tool's row, which is not forgotten while a call has a seat.
    #[inline]
    pub(super) fn seat(&self, call: &CallInfo) -> Seat {
        let Self { rows, shared, .. } = self;
        let make = || {
            let other = rows.overflow().value();
            Arc::new(Row::new(Labels::of(call), shared, Some(other)))
        };
        rows.entry(call, make)
    }

    fn happened(&self, call: &CallInfo, series: Series) {
        Row::happened(self.seat(call), series);
    }

    /// Counts a call that was not started, and that no layer has seen.
    fn not_started(&self, call: &CallInfo, kind: ErrorKind, error: Option<&ToolError>) {
        let end = CallEnd::success(Duration::ZERO, 0, false);
        let code = error.map_or(kind.code(), ToolError::code);
        let end = end.with_failure(kind, code, true);
        let count = |at: &Place| Row::ended(at, call, at.value().began(), &end);
        match kind {
            ErrorKind::DeadlineExceeded | ErrorKind::Cancelled => count(&self.seat(call)),
            // No table knows the name, or a table refused the call: it gets no row.
            _ => count(self.rows.overflow()),
        }
    }

    /// Calls the sinks. No lock is held.
    fn tell(&self, tell: impl Fn(&dyn Sink)) {
        self.shared.sinks.iter().for_each(|sink| tell(&**sink));
    }

    /// Records a breaker, and reports it to the sinks, again if its state has changed meanwhile: so
    /// the last state that they receive is the current one.
    fn breaker(&self, labels: Labels, from: Option<BreakerState>, to: (BreakerState, u32)) {
        let (labels, mut state, mut opened) =
            breakers::seen(&mut lock(&self.common).breakers, self.max, labels, from, to);
        while !self.shared.sinks.is_empty() {
            self.tell(|sink| sink.breaker(&labels, state, opened));
            let now = lock(&self.common)
                .breakers
                .get(&labels)
                .and_then(|it| it.state);
            if now == state {
                break;
            }
            (state, opened) = (now, false);
        }
    }
}

impl Listen for Metrics {
    fn on(&self, event: &Event<'_>) {
        self.0.on(event);
    }

    fn includes(&self, other: &Weak<dyn Listen>) -> bool {
        other.ptr_eq(&self.0.listener)
    }
}

impl Listen for Inner {
    fn on(&self, event: &Event<'_>) {
        match *event {
            Event::Retry { call, .. } => self.happened(call, Series::Retries),
            Event::RetryRefused { call, reason, .. } => {
                self.happened(call, Series::Refused(reason))
            }
            Event::RateLimited { call, .. } => self.happened(call, Series::RateLimited),
            Event::Reused { call, .. } => self.happened(call, Series::Reused),
            Event::Transition { transition: t, .. } => {
                let tool = t.tool.as_deref().unwrap_or_default();
                let labels = Labels::new(t.server.as_deref(), tool);
                self.breaker(labels, Some(t.from), (t.to, t.generation));
            }
            Event::BreakerSeen {
                server,
                tool,
                state,
                generation,
                ..
            } => {
                let labels = Labels::new(server, tool.unwrap_or_default());
                self.breaker(labels, None, (state, generation));
            }
            Event::Token {
                outcome,
                exchange,
                error,
                ..
            } => {
                let (failure, range) = (error.map(ToolError::kind), self.shared.range);
                let make = || Tokens::new(range);
                let count = |tokens: &mut Tokens| tokens.needed(outcome, exchange, failure);
                count(lock(&self.common).tokens.get_or_insert_with(make));
                self.tell(|sink| sink.token(outcome, exchange, failure));
            }
            Event::NotStarted { call, kind, error } => self.not_started(call, kind, error),
            Event::Inert { layer, reason, .. } => {
                *lock(&self.common).inert.entry((layer, reason)).or_default() += 1;
                self.tell(|sink| sink.inert(layer, reason));
            }
            // The layer sees them at the end of the call, and counts them there.
            Event::Slow { .. } | Event::Cancelled { .. } | Event::Policy { .. } => {}
            Event::Health { .. }
            | Event::PrincipalTransition { .. }
            | Event::Repeated { .. }
            | Event::Evicted { .. } => {}
        }
    }
}

crate::text::debug_fields! {
    {} |this| Metrics { tools: this.0.rows.len(), latency: this.0.shared.range, .. }
}

/// Settings of a [`Metrics`].
#[must_use]
pub struct MetricsBuilder {
    max_tools: usize,
    latency: Result<Range, ConfigError>,
    sinks: Vec<Box<dyn Sink>>,
    aliases: bool,
}

crate::text::debug_fields! { {} |_| MetricsBuilder { max_tools, latency, .. } }

impl Default for MetricsBuilder {
    fn default() -> Self {
        Self {
            max_tools: DEFAULT_MAX_TOOLS,
            latency: Ok(Range::default()),
            sinks: Vec::new(),
            aliases: false,
        }
    }
}

impl MetricsBuilder {
    /// Sets how many tools, and how many circuit breakers, have a row of their own; the rest shares
    /// [`_other`](super::OTHER). Default: 1,000.
    pub fn with_max_tools(mut self, max: usize) -> Self {
        self.max_tools = max;
        self
    }

    /// Sets which latencies are distinguished, and by how many significant digits (1 to 5). Memory
    /// for a tool grows with the digits: about 26 KiB with two, seven times that with three.
    /// Default: 1 us to 1 h, two digits.
    ///
    /// A shorter latency counts as the shortest; a longer one as the longest, and is counted
    /// ([`Latency::clamped`](super::Latency::clamped)).
    pub fn with_latency(mut self, shortest: Duration, longest: Duration, digits: u8) -> Self {
        self.latency = Range::new(shortest, longest, digits);
        self
    }

    /// Sets whether [Prometheus' text](Metrics::prometheus) has [other systems'
    /// names](super#other-systems-names) as well. Default: no.
    pub fn with_aliases(mut self, aliases: bool) -> Self {
        self.aliases = aliases;
        self
    }

    /// Adds a sink, which receives all figures as they are counted. Default: none.
    pub fn with_sink(mut self, sink: impl Sink + 'static) -> Self {
        self.sinks.push(Box::new(sink));
        self
    }

    /// Checks the settings.
    ///
    /// # Errors
    ///
    /// A bound of zero, digits that are not 1 to 5, a range that is not one or is longer than a
    /// year.
    pub fn build(self) -> Result<Metrics, ConfigError> {
        let reason = format!("{} is not 1 to {MOST_TOOLS}", self.max_tools);
        refuse_if(
            !(1..=MOST_TOOLS).contains(&self.max_tools),
            "max_tools",
            reason,
        )?;
        let range = self.latency.clone()?;
        Ok(self.with_range(range))
    }

    fn with_range(self, range: Range) -> Metrics {
        let shared = Arc::new(Shared {
            range,
            sinks: self.sinks,
            aliases: self.aliases,
        });
        let other = Arc::new(Row::new(Labels::other(), &shared, None));
        let key = Key::default();
        Metrics(Arc::new_cyclic(|inner: &Weak<Inner>| Inner {
            listener: inner.clone() as _,
            rows: Registry::new("metrics", key, self.max_tools, other, Listener::default()),
            common: Mutex::default(),
            max: self.max_tools,
            period: Mutex::new(Period::new(Collected::default())),
            shared,
        }))
    }
}
