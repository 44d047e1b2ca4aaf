use std::{sync::Arc, time::Duration};

use super::{layer::StackLayer, listeners::Listeners};
use crate::tool_metrics::Metrics;
#[cfg(feature = "validate")]
use crate::validate::{Schemas, ValidateLayer};
use crate::{
    call::{ReplaySafety, ToolCall},
    catch_panic::CatchPanicLayer,
    circuit_breaker::CircuitBreakerLayer,
    concurrency_limit::ConcurrencyLimitLayer,
    config::{ConfigError, refuse_if},
    event::event,
    health::Health,
    identity::{IdentityLayer, ToolNames},
    kit::per_tool::PerTool,
    normalize::NormalizeLayer,
    outcome::ByError,
    policy::PolicyLayer,
    quota::QuotaLayer,
    rate_limit::RateLimitBackoffLayer,
    repeat_guard::RepeatGuardLayer,
    retry::RetryLayer,
    sanitize::SanitizeLayer,
    settings::{
        Settings,
        check::{joined, names_match},
        layers::by,
        names::in_section,
    },
    timeout::TimeoutLayer,
    trace::TraceLayer,
};

/// A function of the user's that decides about a call.
type Rule<T> = Arc<dyn Fn(&ToolCall) -> T + Send + Sync>;

/// Gives a policy its approver.
type Approves = Arc<dyn Fn(PolicyLayer) -> PolicyLayer + Send + Sync>;

/// A layer, unless it is off.
type Built<L> = Result<Option<L>, ConfigError>;

/// The parts of a stack's layers, except those with a type of the user's.
#[derive(Clone, Default)]
pub(in crate::settings) struct Parts {
    pub(super) settings: Settings,
    pub(super) replay_safety: Option<Rule<ReplaySafety>>,
    pub(super) timeout: Option<Rule<Option<Duration>>>,
    pub(super) identity: Option<IdentityLayer>,
    pub(super) codes: Option<NormalizeLayer>,
    pub(super) approver: Option<Approves>,
    pub(super) listeners: Arc<Listeners>,
    /// Those of layers of the user.
    pub(super) names: ToolNames,
    pub(super) metrics: Option<Metrics>,
    #[cfg(feature = "validate")]
    pub(super) schemas: Option<Schemas>,
}

impl Parts {
    pub(super) fn new(settings: Settings) -> Self {
        Self {
            settings,
            ..Self::default()
        }
    }

    /// Checks the layers that only a stack builds.
    pub(in crate::settings) fn checks(settings: &Settings) -> [Result<(), ConfigError>; 5] {
        let parts = Self::new(settings.clone());
        let limits = parts.quota().and_then(|_| parts.concurrency());
        [
            limits.map(drop),
            parts.rate_limit(ByError).map(drop),
            parts.repeat_guard(ByError).map(drop),
            parts.health().map(drop),
            parts.circuit_breaker(ByError).map(drop),
        ]
    }

    pub(super) fn build<C: Clone, O>(
        self,
        classifier: C,
        own: O,
    ) -> Result<StackLayer<C, O>, ConfigError> {
        let settings = &self.settings;
        let are_names_known = self.check()?;
        let breaker = self.circuit_breaker(classifier.clone())?;
        let health = self.health()?;
        let metrics = self.metrics.as_ref().map(Metrics::layer);
        let safety = settings.replay_safety();
        let names = self.names.clone().and(safety.names());
        let timeout = self.timeout()?;
        let (known, budget) = (timeout.clone(), settings.deadline.budget);
        let in_force = move |call: &ToolCall| {
            let timeout = known.timeout_of(call);
            Some(budget.map_or(timeout, |budget| timeout.min(budget)))
        };
        let stack = StackLayer {
            names,
            breakers: breaker.handle(),
            servers: health.clone(),
            sanitize: SanitizeLayer::new(settings.redaction_rules()?),
            identity: self.identity().into(),
            codes: self.codes.clone().into(),
            trace: self.listeners.of(
                settings.trace_layer().with_timeout_fn(in_force),
                TraceLayer::with_listener,
            ),
            metrics: metrics
                .map(|layer| layer.with_classifier(classifier.clone()))
                .into(),
            repeat_guard: self.repeat_guard(classifier.clone())?.into(),
            #[cfg(feature = "validate")]
            validate: self.validate().into(),
            policy: self.policy()?.into(),
            quota: self.quota()?.into(),
            deadline: settings.deadline_layer(),
            retry: self.retry(classifier.clone(), safety)?.into(),
            // The spans of attempts have no listener.
            attempts: settings.trace.attempts.then(TraceLayer::attempts),
            rate_limit: self.rate_limit(classifier.clone())?.into(),
            health: settings.health.enabled.then(|| health.layer()).into(),
            concurrency: self.concurrency()?.into(),
            circuit_breaker: settings.circuit_breaker.enabled.then_some(breaker).into(),
            timeout,
            catch_panic: CatchPanicLayer::new(),
            classifier,
            own,
        };
        if are_names_known {
            // They match, however rarely they are called.
            let names = stack.tool_names().0;
            names.iter().for_each(|(_, name)| name.matched());
        }
        Ok(stack)
    }

    /// Emits warnings. Returns whether all names are known to match a tool.
    fn check(&self) -> Result<bool, ConfigError> {
        self.settings.check()?;
        for warning in self.settings.warnings() {
            let (setting, reason) = (warning.field(), warning.reason());
            event!(WARN SETTINGS, SETTING = setting, REASON = reason);
        }
        let known = self.identity.as_ref().and_then(IdentityLayer::identities);
        let policy = &self.settings.policy;
        if let Some(tools) = &known {
            let wrong = names_match(&self.settings, tools).into_iter();
            joined(wrong.map(|error| self.settings.origin.rename(error)))?;
            self.names.check_all(tools)?;
        } else if let Some((key, _)) = policy.lists().find(|(_, tools)| !tools.is_empty()) {
            event!(WARN SETTINGS, SETTING = key, REASON = "the stack has no table of \
                tools to check the names with: set `StackBuilder::with_identity`");
        }
        Ok(known.is_some())
    }

    fn identity(&self) -> Option<IdentityLayer> {
        let mut listeners = (*self.listeners).clone();
        if let Some(metrics) = &self.metrics {
            listeners.add(metrics.clone());
        }
        Some(self.identity.clone()?.with_listener(listeners))
    }

    fn repeat_guard<C>(&self, classifier: C) -> Built<RepeatGuardLayer<C>> {
        let builder = self.settings.repeat_guard_builder();
        let builder = builder.with_classifier(classifier);
        let layer = builder.with_listener(Arc::clone(&self.listeners)).build();
        let layer = layer.map_err(in_section("repeat_guard"))?;
        Ok(self.settings.repeat_guard.enabled.then_some(layer))
    }

    #[cfg(feature = "validate")]
    fn validate(&self) -> Option<ValidateLayer> {
        let schemas = self.schemas.as_ref()?;
        Some(self.settings.validate_layer(schemas))
    }

    fn policy(&self) -> Built<PolicyLayer> {
        let asks = !self.settings.policy.ask.is_empty();
        let in_vain = asks && self.approver.is_none();
        refuse_if(in_vain, "policy.ask", "the stack has no approver")?;
        let layer = self.settings.policy_layer()?;
        Ok(layer.map(|layer| {
            let layer = self.listeners.of(layer, PolicyLayer::with_listener);
            by(self.approver.as_ref(), layer, |layer, approves| {
                approves(layer)
            })
        }))
    }

    fn quota(&self) -> Built<QuotaLayer> {
        let listeners = Arc::clone(&self.listeners);
        let builder = self.settings.quota_builder()?;
        let layer = builder.map(|builder| builder.with_listener(listeners).build());
        layer.transpose().map_err(in_section("quota"))
    }

    fn concurrency(&self) -> Built<ConcurrencyLimitLayer> {
        let listeners = Arc::clone(&self.listeners);
        let builder = self.settings.concurrency_limit_builder();
        let layer = builder.map(|builder| builder.with_listener(listeners).build());
        layer.transpose().map_err(in_section("concurrency"))
    }

    fn retry<C>(&self, classifier: C, tools: PerTool<ReplaySafety>) -> Built<RetryLayer<C>> {
        let rule = self.replay_safety.clone();
        let safety = move |call: &ToolCall| match (tools.get(call), &rule) {
            (Some(said), _) => *said,
            (None, Some(rule)) => rule(call),
            (None, None) => ReplaySafety::Unknown,
        };
        let policy = self.settings.retry_policy()?.with_classifier(classifier);
        let policy = policy.with_listener(Arc::clone(&self.listeners));
        let layer = || RetryLayer::new(policy.with_replay_safety(safety));
        Ok(self.settings.retries().then(layer))
    }

    fn rate_limit<C>(&self, classifier: C) -> Built<RateLimitBackoffLayer<C>> {
        let builder = self.settings.rate_limit_builder();
        let builder = builder.with_classifier(classifier);
        let layer = builder.with_listener(Arc::clone(&self.listeners)).build();
        let layer = layer.map_err(in_section("rate_limit"))?;
        Ok(self.settings.rate_limit.enabled.then_some(layer))
    }

    fn circuit_breaker<C>(&self, classifier: C) -> Result<CircuitBreakerLayer<C>, ConfigError> {
        self.settings
            .circuit_breaker_builder()?
            .with_classifier(classifier)
            .with_listener(Arc::clone(&self.listeners))
            .build()
            .map_err(in_section("circuit_breaker"))
    }

    fn health(&self) -> Result<Health, ConfigError> {
        let builder = self.settings.health_builder();
        let builder = builder.with_listener(Arc::clone(&self.listeners));
        builder.build().map_err(in_section("health"))
    }

    fn timeout(&self) -> Result<TimeoutLayer, ConfigError> {
        let layer = self.settings.timeout_layer()?;
        let layer = self.listeners.of(layer, TimeoutLayer::with_listener);
        Ok(by(self.timeout.clone(), layer, |layer, timeout| {
            layer.with_timeout_fn(move |call| timeout(call))
        }))
    }
}
