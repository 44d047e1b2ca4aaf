use std::{any::type_name, marker::PhantomData};

use tower_layer::Layer;
use tower_service::Service;

use super::{
    own::{Below, Hooks, Own, Place},
    placed::Placed,
    service::Stack,
};
use crate::tool_metrics::MetricsLayer;
#[cfg(feature = "validate")]
use crate::validate::ValidateLayer;
use crate::{
    call::ToolCall,
    catch_panic::{CatchPanic, CatchPanicLayer},
    circuit_breaker::{CircuitBreakerHandle, CircuitBreakerLayer},
    concurrency_limit::{ConcurrencyLimitHandle, ConcurrencyLimitLayer},
    deadline::{Deadline, DeadlineLayer},
    error::ToolError,
    health::{Health, HealthLayer},
    identity::{IdentityLayer, ToolNames},
    normalize::NormalizeLayer,
    outcome::{ByError, Classify},
    policy::PolicyLayer,
    quota::{QuotaHandle, QuotaLayer},
    rate_limit::{RateLimitBackoffLayer, RateLimitHandle},
    repeat_guard::RepeatGuardLayer,
    retry::RetryLayer,
    sanitize::SanitizeLayer,
    switch::{Switch, Switched},
    timeout::{Timeout, TimeoutLayer},
    trace::{Trace, TraceLayer},
};

/// The documented stack as one layer, made by [`StackBuilder::build`](super::StackBuilder::build).
///
/// The breakers, the gates of rate limits, quotas and concurrency limits, the registry of servers,
/// the calls that are compared and the budget of retries live in this value: services made from it,
/// or from its clones, share them.
///
/// `O` is `()`, or [`Own`](super::Own) where the builder was given hooks, checks or layers.
#[derive(Clone)]
#[must_use]
pub struct StackLayer<C = ByError, O = ()> {
    pub(super) names: ToolNames,
    pub(super) breakers: CircuitBreakerHandle,
    pub(super) servers: Health,
    pub(super) sanitize: SanitizeLayer,
    pub(super) identity: Switch<IdentityLayer>,
    pub(super) codes: Switch<NormalizeLayer>,
    pub(super) trace: TraceLayer,
    pub(super) metrics: Switch<MetricsLayer<C>>,
    pub(super) repeat_guard: Switch<RepeatGuardLayer<C>>,
    #[cfg(feature = "validate")]
    pub(super) validate: Switch<ValidateLayer>,
    pub(super) policy: Switch<PolicyLayer>,
    pub(super) quota: Switch<QuotaLayer>,
    pub(super) deadline: DeadlineLayer,
    pub(super) retry: Switch<RetryLayer<C>>,
    pub(super) attempts: Option<TraceLayer>,
    pub(super) rate_limit: Switch<RateLimitBackoffLayer<C>>,
    pub(super) health: Switch<HealthLayer>,
    pub(super) concurrency: Switch<ConcurrencyLimitLayer>,
    pub(super) circuit_breaker: Switch<CircuitBreakerLayer<C>>,
    pub(super) timeout: TimeoutLayer,
    pub(super) catch_panic: CatchPanicLayer,
    pub(super) classifier: C,
    pub(super) own: O,
}

/// The tool's answer.
type Res<S> = <S as Service<ToolCall>>::Response;

type Bounded<S> = Timeout<CatchPanic<S>>;
type Guarded<S, C> = Switched<CircuitBreakerLayer<C>, Bounded<S>>;
type Limited<S, C> = Switched<ConcurrencyLimitLayer, Guarded<S, C>>;
type Watched<S, C> = Switched<HealthLayer, Limited<S, C>>;
type Attempt<S, C> = Placed<Below<Res<S>>, Watched<S, C>>;
type Gated<S, C> = Switched<RateLimitBackoffLayer<C>, Attempt<S, C>>;
type Attempted<S, C> = Switched<TraceLayer<Hooks<Res<S>, C>>, Gated<S, C>>;
type Repeated<S, C> = Switched<RetryLayer<C>, Attempted<S, C>>;
type Timed<S, C> = <UpToDeadline<S, C> as Part>::Service;
type Call<S, C> = Placed<Below<Res<S>>, Timed<S, C>>;
type Rationed<S, C> = Switched<QuotaLayer, Call<S, C>>;
type Kept<S, C> = Placed<Below<Res<S>>, Rationed<S, C>>;
type Allowed<S, C> = Switched<PolicyLayer, Kept<S, C>>;
#[cfg(feature = "validate")]
type Checked<S, C> = Switched<ValidateLayer, Allowed<S, C>>;
#[cfg(not(feature = "validate"))]
type Checked<S, C> = Allowed<S, C>;
type Compared<S, C> = Switched<RepeatGuardLayer<C>, Checked<S, C>>;
type Renamed<S, C> = Switched<NormalizeLayer, Compared<S, C>>;
type Counted<S, C> = Switched<MetricsLayer<C>, Renamed<S, C>>;
type Traced<S, C> = Trace<Counted<S, C>, Hooks<Res<S>, C>>;
type Resolved<S, C> = Switched<IdentityLayer, Traced<S, C>>;
type Outside<S, C> = Placed<Below<Res<S>>, Resolved<S, C>>;
pub(super) type Coded<S, C> = Switched<NormalizeLayer, Outside<S, C>>;

/// A part of the stack by its name. Spelled out, the whole is nested more deeply than readers of
/// rustdoc's JSON allow: 128 levels, in serde_json. No blanket implementation: rustdoc would look
/// for it in each type of the crate.
pub trait Part {
    type Service;
}

#[derive(Debug)]
pub struct UpToDeadline<S, C>(PhantomData<(S, C)>);

impl<S: Service<ToolCall> + Clone, C: Clone> Part for UpToDeadline<S, C> {
    type Service = Deadline<Repeated<S, C>>;
}

impl<C, O> StackLayer<C, O> {
    /// Returns the names and patterns of tools in its layers, and whether calls have matched them.
    /// With a table of all tools ([`with_identity`](super::StackBuilder::with_identity)) they are
    /// known to match.
    ///
    /// Not those of layers of your own, except what
    /// [`with_layer`](super::StackBuilder::with_layer) knows.
    pub fn tool_names(&self) -> ToolNames {
        let own = [
            self.policy.get().map(PolicyLayer::tool_names),
            self.quota.get().map(QuotaLayer::tool_names),
            self.retry.get().map(RetryLayer::tool_names),
            self.concurrency
                .get()
                .map(ConcurrencyLimitLayer::tool_names),
            self.repeat_guard.get().map(RepeatGuardLayer::tool_names),
            #[cfg(feature = "validate")]
            self.validate.get().map(ValidateLayer::tool_names),
        ];
        let names = self.names.clone().and(self.timeout.tool_names());
        own.into_iter().flatten().fold(names, ToolNames::and)
    }

    /// Reads the breakers and forces them. A tool in the settings has a breaker before its first
    /// call, under that name. Behind a router calls have a server, so their key is another one. If
    /// breakers are switched off, forcing one has no effect.
    pub fn circuit_breaker(&self) -> CircuitBreakerHandle {
        self.breakers.clone()
    }

    /// Reads the cooldowns of rate limits, ends them and begins others. `None` if the layer is off.
    pub fn rate_limit(&self) -> Option<RateLimitHandle> {
        self.rate_limit.get().map(RateLimitBackoffLayer::handle)
    }

    /// Returns the registry of servers. If its layer is off, no call of this stack feeds it. An
    /// inner router may (`RouterBuilder::with_health`), because it knows its servers' names.
    pub fn health(&self) -> Health {
        self.servers.clone()
    }

    /// Reads the remaining quotas. `None` without `quota.units`.
    pub fn quota(&self) -> Option<QuotaHandle> {
        self.quota.get().map(QuotaLayer::handle)
    }

    /// Reads how many calls run and wait. `None` without `concurrency.max`.
    pub fn concurrency_limit(&self) -> Option<ConcurrencyLimitHandle> {
        self.concurrency.get().map(ConcurrencyLimitLayer::handle)
    }
}

impl<S, C, O> Layer<S> for StackLayer<C, O>
where
    S: Service<ToolCall, Response: Send + 'static, Error: Into<ToolError>, Future: Send>
        + Clone
        + Send
        + Sync
        + 'static,
    C: Classify<Res<S>> + Clone + Send + Sync + 'static,
    O: Clone + Into<Own<Res<S>>>,
{
    type Service = Stack<S, C>;

    fn layer(&self, tool: S) -> Self::Service {
        let own: Own<Res<S>> = self.own.clone().into();
        let hooks = own.hooks(self.classifier.clone());
        let attempts = self.attempts.clone();
        let attempts = attempts.map(|layer| layer.with_hooks(hooks.clone()));

        let stack = self.timeout.layer(self.catch_panic.layer(tool));
        let stack = self.circuit_breaker.layer(stack);
        let stack = self.health.layer(self.concurrency.layer(stack));
        let stack = self.rate_limit.layer(own.put(Place::Attempt, stack));
        let stack = self.retry.layer(Switch::from(attempts).layer(stack));
        let stack = own.put(Place::Call, self.deadline.layer(stack));
        let stack = own.put(Place::Allowed, self.quota.layer(stack));
        let stack = self.policy.layer(stack);
        #[cfg(feature = "validate")]
        let stack = self.validate.layer(stack);
        // Inside of what observes, and again outside of all: identity refuses names there.
        let stack = self.codes.layer(self.repeat_guard.layer(stack));
        let stack = self.metrics.layer(stack);
        let stack = self.trace.clone().with_hooks(hooks).layer(stack);
        let stack = own.put(Place::Outside, self.identity.layer(stack));
        let inner = self.sanitize.layer(self.codes.layer(stack));
        Stack { inner }
    }
}

crate::text::debug_fields! {
    {C, O} |this| StackLayer<C, O> {
        sanitize: this.sanitize,
        quota: this.quota,
        deadline: this.deadline,
        rate_limit: this.rate_limit,
        health: this.health,
        concurrency: this.concurrency,
        circuit_breaker: this.circuit_breaker,
        timeout: this.timeout,
        classifier: format_args!("{}", type_name::<C>()),
        ..
    }
}
