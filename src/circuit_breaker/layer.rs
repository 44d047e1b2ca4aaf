use std::{
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicBool, AtomicU64},
    },
    time::Duration,
};

use tokio::time::Instant;
use tower_layer::Layer;

use super::{
    circuit::{Circuit, Settings, Shared},
    handle::CircuitBreakerHandle,
    rules::{Probe, Rules, Trip},
    service::CircuitBreaker,
    weak::{Principal, WeakFailures},
};
use crate::{
    config::{ConfigError, period, refuse_if},
    event::Listener,
    key::{Key, Keys},
    kit::{
        keyed::{Classified, KeyedBuilder},
        registry::Registry,
    },
    outcome::ByError,
};

/// Layer that stops calling a tool that is broken. See the [module docs](super) for an example.
///
/// The breakers live in the layer value: services made from it, or from its clones, share them.
#[derive(Clone)]
#[must_use]
pub struct CircuitBreakerLayer<C = ByError> {
    pub(super) breakers: CircuitBreakerHandle,
    pub(super) classifier: C,
}

impl CircuitBreakerLayer {
    /// Makes a layer with the default settings: a breaker per tool opens after 5 failures in a row,
    /// stays open for 60 s, and closes after 1 successful probe.
    pub fn new() -> Self {
        CircuitBreakerBuilder::new().build_checked()
    }

    /// Returns a builder with the default settings.
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
    /// Returns a handle that reads the breakers of this layer, forces them and subscribes to them.
    pub fn handle(&self) -> CircuitBreakerHandle {
        self.breakers.clone()
    }
}

impl<S, C: Clone> Layer<S> for CircuitBreakerLayer<C> {
    type Service = CircuitBreaker<S, C>;

    fn layer(&self, inner: S) -> Self::Service {
        CircuitBreaker::new(inner, self.clone())
    }
}

crate::text::debug_fields! {
    {C} |this| CircuitBreakerLayer<C> { rules: this.breakers.shared.rules(), .. }
}

/// The settings of a [`CircuitBreakerLayer`].
pub type CircuitBreakerBuilder<C = ByError> = KeyedBuilder<Settings, C>;

impl Classified for Settings {}

impl CircuitBreakerBuilder {
    /// Returns the breakers of servers, for a registry that reports their availability.
    pub(crate) fn of_servers(
        threshold: u32,
        period: Duration,
        max: usize,
        listener: Listener,
    ) -> CircuitBreakerHandle {
        let mut builder = Self::new()
            .with_trip(threshold)
            .with_open_for(period)
            .with_probe_lease(period)
            .with_keys(Keys::by(Key::Server).at_most(max));
        builder.rules().of_servers = true;
        builder.listener = listener;
        builder.build_checked().handle()
    }
}

impl<C> CircuitBreakerBuilder<C> {
    fn rules(&mut self) -> &mut Rules {
        Arc::make_mut(&mut self.settings.rules)
    }

    /// Sets what opens a breaker: a number of failures in a row, [`Rates`](super::Rates), or
    /// another [`Trip`]. Default: 5 failures in a row.
    ///
    /// ```
    /// # use tower_toolcall::circuit_breaker::CircuitBreakerLayer;
    /// # fn main() -> Result<(), tower_toolcall::ConfigError> {
    /// let breaker = CircuitBreakerLayer::builder().with_trip(3).build()?;
    /// # let _ = breaker; Ok(()) }
    /// ```
    pub fn with_trip(mut self, trip: impl Into<Trip>) -> Self {
        self.rules().trip = trip.into().0;
        self
    }

    /// Sets how long a breaker stays open before it tries again. Default 60 s; at most a year.
    pub fn with_open_for(mut self, period: Duration) -> Self {
        self.rules().open_for = period;
        self
    }

    /// Makes the open period longer by `factor` for each failed probe in a row, up to `max`.
    /// Default: it stays the same.
    pub fn with_growth(mut self, factor: f64, max: Duration) -> Self {
        self.rules().growth = factor;
        self.rules().max_open_for = max;
        self
    }

    /// Sets how many probes may run at a time in a half-open breaker, and how many successes
    /// close it. Default 1. At most [`MAX_PROBES`](super::MAX_PROBES).
    pub fn with_probes(mut self, probes: u32) -> Self {
        self.rules().probes = probes;
        self
    }

    /// Sets how many successful probes close the breaker, if not as many as may run at a time.
    pub fn with_successes(mut self, successes: u32) -> Self {
        self.rules().successes = Some(successes);
        self
    }

    /// Sets which calls may be probes: any call, or only calls that may run twice. Default: [any
    /// call](Probe::AnyCall). An admission [by hand](super::Breaker::admit) is always a probe.
    pub fn with_probe(mut self, probe: Probe) -> Self {
        self.rules().safe_probes = probe == Probe::SafeCalls;
        self
    }

    /// Sets how long a probe keeps its place. One that runs longer goes on, and its result
    /// counts, but another probe may start. Default 120 s; should be longer than a call may take.
    pub fn with_probe_lease(mut self, lease: Duration) -> Self {
        self.rules().lease = lease;
        self
    }

    /// Sets how long a call waits for the probes of a half-open breaker, instead of being refused.
    /// The call continues once the breaker closes, or becomes a probe itself. A call that is
    /// refused to its [principal](super#weak-failures) waits for the probe of that principal.
    /// Default: zero, calls do not wait. At most a year.
    ///
    /// The wait ends at the call's deadline and when its caller cancels, with a call that has not
    /// started. If the breaker opens again, or the time has passed, the call is refused as usual.
    /// After a probe that neither succeeds nor fails, a waiting call may be the next probe.
    ///
    /// A waiting call keeps its permit of an outer
    /// [concurrency limit](crate::concurrency_limit), so that calls of one tool may delay those of
    /// another with the same limit. Give each tool a limit of its own, or keep the wait short.
    pub fn with_probe_wait(mut self, most: Duration) -> Self {
        self.rules().probe_wait = most;
        self
    }

    /// Sets whether an error result (MCP's `isError`) counts as a failure of the tool. Default: no;
    /// it is neutral. Many servers flag their callers' mistakes as well, a file that does not exist
    /// for example: then five wrong calls of one caller switch the tool off for all. What the
    /// classifier knows as a [mistake](crate::Outcome::mistake) never counts. Needs a key of tools:
    /// [`Key::Tool`] or [`Key::ToolName`].
    pub fn with_reported_failures(mut self, count: bool) -> Self {
        self.settings.counts_reported = count;
        self
    }

    /// Sets what [weak failures](crate::Outcome::is_weak) count for. Default:
    /// [per principal](WeakFailures::PerPrincipal).
    ///
    /// The same trip and open period hold for a principal as for the breaker. See
    /// [how many principals are kept](super#bounds).
    pub fn with_weak_failures(mut self, count: WeakFailures) -> Self {
        self.settings.weak_failures = count;
        self
    }

    /// Sets how long a call must have been pending to count as a failure when it is dropped.
    /// Default: the duration of a slow call, if [`Rates`](super::Rates) set one; else 99 % of the
    /// shortest timeout of the outer and inner [`TimeoutLayer`](crate::timeout::TimeoutLayer)s, as
    /// configured, else of the call's own timeout, else of 30 s. The time is counted from the
    /// sending.
    ///
    /// A call that had to wait for its answer and is dropped after its deadline is always a
    /// failure, unless the deadline was set by an [untrusted
    /// caller](crate::flow::CallExt::tighten_remote), or an inner layer had held the call back.
    /// Other drops do not count.
    pub fn with_abandoned_after(mut self, pending: Duration) -> Self {
        self.settings.abandoned_after = Some(pending);
        self
    }

    /// Builds the layer.
    ///
    /// # Errors
    ///
    /// If a breaker with these settings could never open, or never close again, or if a setting is
    /// beyond its bound. The error names the setting.
    pub fn build(self) -> Result<CircuitBreakerLayer<C>, ConfigError> {
        self.settings.rules.check()?;
        self.keys.check()?;
        let reason = "each is of one tool, and tools share the breakers of this key";
        let is_bad = self.settings.counts_reported && !self.is_of_tools();
        refuse_if(is_bad, "reported_failures", reason)?;
        let abandoned_after = self.settings.abandoned_after;
        period("abandoned_after", abandoned_after.unwrap_or_default())?;
        Ok(self.build_checked())
    }

    /// Failures that concern one tool alone count, unless tools share the breakers.
    fn is_of_tools(&self) -> bool {
        matches!(self.keys.key().base(), Key::Tool | Key::ToolName)
    }

    fn build_checked(mut self) -> CircuitBreakerLayer<C> {
        const LAYER: &str = "circuit_breaker";
        self.settings.counts_tools = self.is_of_tools();
        let (key, origin) = (self.keys.key().clone().per_principal(), Instant::now());
        let overflow = Principal::new(&self.settings.rules, origin);
        let shared = Arc::new(Shared {
            settings: self.settings,
            listener: self.listener.clone(),
            principals: Registry::new(LAYER, key, self.keys.max(), overflow, Listener::NONE),
            epochs: AtomicU64::new(1),
            disabled: AtomicBool::new(false),
            forcing: Mutex::new(()),
            subscribers: OnceLock::new(),
            origin,
        });
        let overflow = Circuit::new(&shared, true);
        let make = |_: &_| Circuit::new(&shared, false);
        let circuits = self.keys.registry(LAYER, self.listener, overflow, make);
        CircuitBreakerLayer {
            breakers: CircuitBreakerHandle { circuits, shared },
            classifier: self.classifier,
        }
    }
}
