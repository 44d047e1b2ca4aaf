use std::{any::type_name, fmt, sync::Arc, time::Duration};

use super::{
    layer::{Layers, StackLayer},
    listeners::Listeners,
    optional::Optional,
};
#[cfg(feature = "metrics")]
use crate::metrics::{Metrics, MetricsLayer};
use crate::{
    call::{ReplaySafety, ToolCall},
    catch_panic::CatchPanicLayer,
    circuit_breaker::CircuitBreakerLayer,
    config::ConfigError,
    edge::{
        health::Health,
        settings::{Settings, circuit_breaker, health, rate_limit},
    },
    error::ToolError,
    event::Listen,
    identity::{IdentityLayer, Resolve},
    normalize::NormalizeLayer,
    outcome::ByError,
    rate_limit::RateLimitBackoffLayer,
    retry::RetryLayer,
    sanitize::SanitizeLayer,
    timeout::TimeoutLayer,
    trace::{DefaultHooks, TraceLayer},
};

/// Says something of a call.
type Rule<T> = Arc<dyn Fn(&ToolCall) -> T + Send + Sync>;

/// The documented stack, to be completed with what no file can say; made by [`Settings::stack`].
#[derive(Clone)]
#[must_use]
pub struct StackBuilder<C = ByError> {
    settings: Settings,
    classifier: C,
    replay_safety: Option<Rule<ReplaySafety>>,
    timeout: Option<Rule<Option<Duration>>>,
    identity: Option<IdentityLayer>,
    codes: Option<NormalizeLayer>,
    listeners: Listeners,
    #[cfg(feature = "metrics")]
    metrics: Option<Metrics>,
}

impl StackBuilder {
    pub(in crate::edge::settings) fn new(settings: Settings) -> Self {
        Self {
            settings,
            classifier: ByError,
            replay_safety: None,
            timeout: None,
            identity: None,
            codes: None,
            listeners: Listeners::default(),
            #[cfg(feature = "metrics")]
            metrics: None,
        }
    }
}

impl<C> StackBuilder<C> {
    /// Sets what results mean, for every layer that asks. Default: [`ByError`]. For MCP tools: `McpClassifier`.
    pub fn with_classifier<D>(self, classifier: D) -> StackBuilder<D> {
        StackBuilder {
            settings: self.settings,
            classifier,
            replay_safety: self.replay_safety,
            timeout: self.timeout,
            identity: self.identity,
            codes: self.codes,
            listeners: self.listeners,
            #[cfg(feature = "metrics")]
            metrics: self.metrics,
        }
    }

    /// Decides whether a call may run twice of which neither it nor `tools.*.replay_safe` says so. Default:
    /// [`ReplaySafety::Unknown`] (R6).
    pub fn with_replay_safety(
        mut self,
        decide: impl Fn(&ToolCall) -> ReplaySafety + Send + Sync + 'static,
    ) -> Self {
        self.replay_safety = Some(Arc::new(decide));
        self
    }

    /// Sets a function that says what timeout a call's tool has, as
    /// [`TimeoutLayer::with_timeout_fn`]; `None` leaves it to `tools.*.timeout_ms` and `timeout.default`. The
    /// [checks](super::super#errors) know nothing of it, nor does the time for which a trial call keeps its place.
    pub fn with_timeout_fn(
        mut self,
        timeout: impl Fn(&ToolCall) -> Option<Duration> + Send + Sync + 'static,
    ) -> Self {
        self.timeout = Some(Arc::new(timeout));
        self
    }

    /// Resolves the names of calls by this table of tools, a router's for example, inside the results and the redaction rules and outside of all
    /// other layers: see [`identity`](crate::identity). Default: keys are of the callers' names.
    pub fn with_identity(mut self, tools: impl Resolve) -> Self {
        self.identity = Some(IdentityLayer::new(tools));
        self
    }

    /// Gives the errors that the caller sees other codes, those of another system for one (E7); `None` keeps the error's
    /// own. Spans, events and metrics have ours in any case. Default: ours.
    pub fn with_codes(
        mut self,
        codes: impl Fn(&ToolError) -> Option<&'static str> + Send + Sync + 'static,
    ) -> Self {
        self.codes = Some(NormalizeLayer::new().with_codes(codes));
        self
    }

    /// Adds somebody who hears of the events of all layers. Default: nobody.
    pub fn with_listener(mut self, listen: impl Listen + 'static) -> Self {
        self.listeners.add(listen);
        self
    }

    /// Counts and times calls, and what the layers below tell of them. Default: no metrics.
    #[cfg(feature = "metrics")]
    pub fn with_metrics(mut self, metrics: &Metrics) -> Self {
        self.metrics = Some(metrics.clone());
        self
    }
}

impl<C: Clone> StackBuilder<C> {
    /// The layer.
    ///
    /// # Errors
    ///
    /// Those of [`Settings::check`].
    pub fn build(self) -> Result<StackLayer<C>, ConfigError> {
        self.settings.check()?;
        let listeners = Arc::new(self.listeners.clone());
        let breaker = self.circuit_breaker(&listeners)?;
        let handle = breaker.handle();
        let health = self.health(&listeners)?;
        let layers = Layers {
            identity: Optional(self.identity(&listeners)),
            codes: Optional(self.codes.clone()),
            trace: self.trace(&listeners),
            #[cfg(feature = "metrics")]
            metrics: Optional(self.metrics()),
            deadline: self.settings.deadline_layer(),
            retry: Optional(self.retry(&listeners)?),
            attempts: Optional(self.attempts()),
            rate_limit: Optional(self.rate_limit(&listeners)?),
            health: Optional(self.settings.health.enabled.then(|| health.layer())),
            circuit_breaker: Optional(self.settings.circuit_breaker.enabled.then_some(breaker)),
            timeout: self.timeout(&listeners)?,
            catch_panic: CatchPanicLayer::new(),
        };
        let sanitize = SanitizeLayer::new(self.settings.redaction_rules()?);
        Ok(StackLayer::new(
            sanitize,
            layers,
            self.classifier,
            handle,
            health,
        ))
    }

    fn identity(&self, listeners: &Arc<Listeners>) -> Option<IdentityLayer> {
        let layer = self.identity.clone()?;
        #[cfg(feature = "metrics")]
        if let Some(metrics) = &self.metrics {
            let mut heard = (**listeners).clone();
            heard.add(metrics.clone());
            return Some(layer.with_listener(heard));
        }
        Some(layer.with_listener(Arc::clone(listeners)))
    }

    fn trace(&self, listeners: &Arc<Listeners>) -> TraceLayer<DefaultHooks<C>> {
        self.settings
            .trace_layer()
            .with_classifier(self.classifier.clone())
            .with_listener(Arc::clone(listeners))
    }

    /// Those of attempts tell nobody.
    fn attempts(&self) -> Option<TraceLayer<DefaultHooks<C>>> {
        let layer = TraceLayer::attempts().with_classifier(self.classifier.clone());
        self.settings.trace.attempts.then_some(layer)
    }

    #[cfg(feature = "metrics")]
    fn metrics(&self) -> Option<MetricsLayer<C>> {
        let layer = self.metrics.as_ref()?.layer();
        Some(layer.with_classifier(self.classifier.clone()))
    }

    fn retry(&self, listeners: &Arc<Listeners>) -> Result<Option<RetryLayer<C>>, ConfigError> {
        if !self.settings.retries() {
            return Ok(None);
        }
        let policy = self
            .settings
            .retry_policy()?
            .with_classifier(self.classifier.clone())
            .with_listener(Arc::clone(listeners))
            .with_replay_safety(self.replay_safety());
        Ok(Some(RetryLayer::new(policy)))
    }

    fn replay_safety(&self) -> impl Fn(&ToolCall) -> ReplaySafety + Send + Sync + 'static + use<C> {
        let (tools, rule) = (self.settings.replay_safety(), self.replay_safety.clone());
        move |call| match (tools.get(call), &rule) {
            (Some(said), _) => *said,
            (None, Some(rule)) => rule(call),
            (None, None) => ReplaySafety::Unknown,
        }
    }

    fn rate_limit(
        &self,
        listeners: &Arc<Listeners>,
    ) -> Result<Option<RateLimitBackoffLayer<C>>, ConfigError> {
        if !self.settings.rate_limit.enabled {
            return Ok(None);
        }
        let layer = self
            .settings
            .rate_limit_builder()
            .with_classifier(self.classifier.clone())
            .with_listener(Arc::clone(listeners))
            .build();
        layer.map(Some).map_err(rate_limit::named)
    }

    fn circuit_breaker(
        &self,
        listeners: &Arc<Listeners>,
    ) -> Result<CircuitBreakerLayer<C>, ConfigError> {
        self.settings
            .circuit_breaker_builder()?
            .with_classifier(self.classifier.clone())
            .with_listener(Arc::clone(listeners))
            .build()
            .map_err(|e| circuit_breaker::named(e, &self.settings.circuit_breaker))
    }

    fn health(&self, listeners: &Arc<Listeners>) -> Result<Health, ConfigError> {
        let builder = self.settings.health_builder();
        let builder = builder.with_listener(Arc::clone(listeners));
        builder.build().map_err(health::named)
    }

    fn timeout(&self, listeners: &Arc<Listeners>) -> Result<TimeoutLayer, ConfigError> {
        let layer = self.settings.timeout_layer()?;
        let layer = layer.with_listener(Arc::clone(listeners));
        Ok(match self.timeout.clone() {
            Some(timeout) => layer.with_timeout_fn(move |call| timeout(call)),
            None => layer,
        })
    }
}

impl<C> fmt::Debug for StackBuilder<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StackBuilder")
            .field("settings", &self.settings)
            .field("classifier", &format_args!("{}", type_name::<C>()))
            .finish_non_exhaustive()
    }
}
