use std::{
    fmt,
    sync::{Arc, Mutex, OnceLock, atomic::AtomicBool},
    time::Duration,
};

use tokio::time::Instant;
use tower_layer::Layer;

use super::{
    circuit::{AbandonedPolicy, Circuit, Circuits, Shared},
    handle::CircuitBreakerHandle,
    rules::{Rules, Trip, period},
    service::CircuitBreaker,
};
use crate::{
    call::{CallInfo, ToolCall},
    config::{ConfigError, refuse_if},
    error::ToolError,
    event::{Listen, Listener},
    key::Key,
    kit::{
        in_flight::Abandoned,
        registry::{DEFAULT_MAX_KEYS, Registry, check_max_keys},
    },
    outcome::{ByError, Classify, Count, Outcome},
};

/// Layer that stops calling a tool that is broken. See the [module docs](super) for an example.
///
/// The breakers live in the layer value: services made from it, or from its clones, share them.
#[derive(Clone)]
#[must_use]
pub struct CircuitBreakerLayer<C = ByError> {
    circuits: Circuits,
    shared: Arc<Shared>,
    classifier: C,
}

impl CircuitBreakerLayer {
    /// A layer with the default settings: a breaker per tool opens after 5 failures in a row, stays
    /// open for 60 s, and closes after 1 successful probe.
    pub fn new() -> Self {
        CircuitBreakerBuilder::new().build_checked()
    }

    /// The settings, to be changed.
    pub fn builder() -> CircuitBreakerBuilder {
        CircuitBreakerBuilder::new()
    }
}

impl Default for CircuitBreakerLayer {
    fn default() -> Self {
        Self::new()
    }
}

impl<C> CircuitBreakerLayer<C> {
    /// A handle that reads the breakers of this layer, forces them and subscribes to them.
    pub fn handle(&self) -> CircuitBreakerHandle {
        CircuitBreakerHandle::new(self.circuits.clone(), Arc::clone(&self.shared))
    }
}

impl<S, C: Clone> Layer<S> for CircuitBreakerLayer<C> {
    type Service = CircuitBreaker<S, C>;

    fn layer(&self, inner: S) -> Self::Service {
        CircuitBreaker::new(
            inner,
            self.circuits.clone(),
            Arc::clone(&self.shared),
            self.classifier.clone(),
        )
    }
}

impl<C> fmt::Debug for CircuitBreakerLayer<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CircuitBreakerLayer")
            .field("rules", &self.shared.rules)
            .finish_non_exhaustive()
    }
}

/// The settings of a [`CircuitBreakerLayer`].
#[derive(Clone)]
#[must_use]
pub struct CircuitBreakerBuilder<C = ByError> {
    rules: Rules,
    key: Key,
    max_keys: usize,
    known: Vec<CallInfo>,
    counts_tools: Option<bool>,
    counts_reported: bool,
    abandoned: AbandonedPolicy,
    listener: Listener,
    classifier: C,
}

impl Default for CircuitBreakerBuilder {
    fn default() -> Self {
        Self::new()
    }
}

impl CircuitBreakerBuilder {
    /// The default settings; see [`CircuitBreakerLayer::new`].
    pub fn new() -> Self {
        Self {
            rules: Rules::default(),
            key: Key::default(),
            max_keys: DEFAULT_MAX_KEYS,
            known: Vec::new(),
            counts_tools: None,
            counts_reported: false,
            abandoned: AbandonedPolicy::default(),
            listener: Listener::default(),
            classifier: ByError,
        }
    }

    /// The preset of an MCP gateway: 5 failures in a row within 300 s, open for 60 s, 1 probe, and
    /// answers flagged as errors count, for a classifier that sees them (`McpClassifier`).
    pub fn gateway() -> Self {
        Self::new()
            .with_trip(Trip::consecutive_failures_within(
                5,
                Duration::from_secs(300),
            ))
            .with_reported_failures(true)
    }

    /// The preset of an HTTP tool proxy: a breaker per server opens after 5 failures in a
    /// row, stays open for 30 s, and closes after 3 successful probes.
    pub fn http_proxy() -> Self {
        Self::new()
            .with_key(Key::Server)
            .with_open_for(Duration::from_secs(30))
            .with_probes(3)
    }
}

impl<C> CircuitBreakerBuilder<C> {
    /// Sets what opens a breaker. Default: 5 failures in a row.
    pub fn with_trip(mut self, trip: impl Into<Trip>) -> Self {
        self.rules.trip = trip.into().0;
        self
    }

    /// Sets how long a breaker stays open before it tries again. Default 60 s; at most a year.
    pub fn with_open_for(mut self, period: Duration) -> Self {
        self.rules.open_for = period;
        self
    }

    /// Makes the open period longer by `factor` for each failed probe in a row, up to `max`. Default:
    /// it stays the same.
    pub fn with_growth(mut self, factor: f64, max: Duration) -> Self {
        self.rules.growth = factor;
        self.rules.max_open_for = max;
        self
    }

    /// Sets how many probes may run at a time in a half-open breaker, and how many successes
    /// close it. Default 1. At most [`MAX_PROBES`](super::MAX_PROBES).
    pub fn with_probes(mut self, probes: u32) -> Self {
        self.rules.probes = probes;
        self
    }

    /// Sets how many successful probes close the breaker, if not as many as may run at a time.
    pub fn with_successes(mut self, successes: u32) -> Self {
        self.rules.successes = Some(successes);
        self
    }

    /// Sets how long a probe keeps its place. One that runs longer goes on, and its result
    /// counts, but another probe may start. Default 120 s; should be longer than a call may take.
    pub fn with_probe_lease(mut self, lease: Duration) -> Self {
        self.rules.lease = lease;
        self
    }

    /// Sets what calls share a breaker. Default: those of one tool of one server.
    pub fn with_key(mut self, key: Key) -> Self {
        self.key = key;
        self
    }

    /// Sets how many breakers are kept at most. Default 10,000; at most 16,777,216.
    ///
    /// Beyond it those go that are idle, without a call in flight, and closed; first those without a
    /// failure in their window. An open one goes only when its period has been over for an hour and
    /// nobody called. If no place is left, calls of unknown keys pass without a breaker.
    pub fn with_max_keys(mut self, max: usize) -> Self {
        self.max_keys = max;
        self
    }

    /// Makes the keys of these calls at once, and never forgets them. Of each call only what the key is made of matters.
    /// Default: none.
    ///
    /// A key is *known* if it is one of these, or once a call with it has succeeded, as the classifier says. Where names come
    /// from strangers, keys that are not known have half of the places at most and are forgotten first, so that invented
    /// names take no place from real ones.
    pub fn with_known_keys(mut self, calls: impl IntoIterator<Item = ToolCall>) -> Self {
        self.known.extend(calls.into_iter().map(|call| call.info()));
        self
    }

    /// Says whether what tells of one tool alone counts ([`Count::ToolFailure`]), such as an error that
    /// nobody can classify. Default: yes for [`Key::Tool`] and [`Key::ToolName`], else no, so that one
    /// tool's own errors do not stop a whole server.
    pub fn with_tool_failures(mut self, count: bool) -> Self {
        self.counts_tools = Some(count);
        self
    }

    /// Says whether an answer that is an error in the tool's own words (MCP's `isError`) counts as a
    /// failure of the tool. Default: no; it is neutral. Needs
    /// [`with_tool_failures`](Self::with_tool_failures).
    pub fn with_reported_failures(mut self, count: bool) -> Self {
        self.counts_reported = count;
        self
    }

    /// Sets how long a call has to have been pending, so that it counts as a failure if it is dropped
    /// then. Default: as long as a slow call takes, if [`Rates`](super::Rates) say that; else 99 %
    /// of the shortest timeout of the [`TimeoutLayer`](crate::timeout::TimeoutLayer)s above and below, as configured, else of
    /// the call's own timeout, else of 30 s. A call that had to wait and is dropped after its deadline is a failure either
    /// way, unless the deadline is that of a caller who is
    /// [not trusted](crate::ToolCall::tighten_from_wire); any other drop tells nothing.
    pub fn with_abandoned_after(mut self, pending: Duration) -> Self {
        self.abandoned = AbandonedPolicy::After(pending);
        self
    }

    /// Decides how a call counts that was dropped unfinished, in place of the rule of
    /// [`with_abandoned_after`](Self::with_abandoned_after). Called in a `drop`: must not panic.
    pub fn with_abandoned_policy(
        mut self,
        policy: impl Fn(&Abandoned) -> Count + Send + Sync + 'static,
    ) -> Self {
        self.abandoned = AbandonedPolicy::By(Arc::new(policy));
        self
    }

    /// Sets who hears of transitions and evictions. Default: nobody; the events are emitted either
    /// way.
    pub fn with_listener(mut self, listen: impl Listen + 'static) -> Self {
        self.listener = Listener::new(listen);
        self
    }

    /// Sets what results mean. Default: [`ByError`]. It is cloned for each call: what is large in it belongs in an
    /// [`Arc`](std::sync::Arc).
    pub fn with_classifier<D>(self, classifier: D) -> CircuitBreakerBuilder<D> {
        CircuitBreakerBuilder {
            rules: self.rules,
            key: self.key,
            max_keys: self.max_keys,
            known: self.known,
            counts_tools: self.counts_tools,
            counts_reported: self.counts_reported,
            abandoned: self.abandoned,
            listener: self.listener,
            classifier,
        }
    }

    /// The same with a closure, its argument types inferred.
    pub fn classify_fn<Res, F>(self, classify: F) -> CircuitBreakerBuilder<F>
    where
        F: Fn(Result<&Res, &ToolError>) -> Outcome,
        F: Classify<Res>,
    {
        self.with_classifier(classify)
    }

    /// The layer.
    ///
    /// # Errors
    ///
    /// If a breaker with these settings could never open, or never close again, or if a setting is
    /// beyond its bound. The error names the setting.
    pub fn build(self) -> Result<CircuitBreakerLayer<C>, ConfigError> {
        self.rules.check()?;
        check_max_keys(self.max_keys, &self.key, &self.known)?;
        let reason = "they tell of a tool, and `tool_failures` do not count for this key";
        refuse_if(
            self.counts_reported && !self.counts_tools(),
            "reported_failures",
            reason,
        )?;
        if let AbandonedPolicy::After(limit) = self.abandoned {
            period("abandoned_after", limit)?;
        }
        Ok(self.build_checked())
    }

    fn counts_tools(&self) -> bool {
        let named = matches!(self.key, Key::Tool | Key::ToolName);
        self.counts_tools.unwrap_or(named)
    }

    fn build_checked(self) -> CircuitBreakerLayer<C> {
        let shared = Arc::new(Shared {
            counts_tools: self.counts_tools(),
            rules: self.rules,
            counts_reported: self.counts_reported,
            abandoned: self.abandoned,
            listener: self.listener.clone(),
            disabled: AtomicBool::new(false),
            demanding: Mutex::new(()),
            subscribers: OnceLock::new(),
            origin: Instant::now(),
        });
        let overflow = Circuit::overflow(&shared);
        let circuits = Registry::new(self.key, self.max_keys, overflow, self.listener);
        for call in &self.known {
            circuits.declare(call, || Circuit::new(&shared));
        }
        CircuitBreakerLayer {
            circuits,
            shared,
            classifier: self.classifier,
        }
    }
}

impl<C> fmt::Debug for CircuitBreakerBuilder<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CircuitBreakerBuilder")
            .field("rules", &self.rules)
            .field("key", &self.key)
            .field("max_keys", &self.max_keys)
            .finish_non_exhaustive()
    }
}
