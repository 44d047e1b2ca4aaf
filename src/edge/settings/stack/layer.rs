use std::{any::type_name, marker::PhantomData};

use tower_layer::Layer;
use tower_service::Service;

use super::{
    optional::{Around, Optional, Placed, Switched},
    own::{Hooks, Looks, Own, Place, Surrounds},
    service::Stack,
};
#[cfg(feature = "metrics")]
use crate::metrics::{MetricsLayer, MetricsService};
#[cfg(feature = "validate")]
use crate::validate::{Validate, ValidateLayer};
use crate::{
    call::ToolCall,
    catch_panic::{CatchPanic, CatchPanicLayer},
    circuit_breaker::{CircuitBreaker, CircuitBreakerHandle, CircuitBreakerLayer},
    concurrency_limit::{ConcurrencyLimit, ConcurrencyLimitHandle, ConcurrencyLimitLayer},
    deadline::{Deadline, DeadlineLayer},
    edge::health::{Health, HealthLayer, HealthService},
    error::ToolError,
    identity::{IdentityLayer, IdentityService, ToolNames},
    normalize::{Normalize, NormalizeLayer},
    outcome::{ByError, Classify},
    policy::{PolicyLayer, PolicyService},
    quota::{QuotaHandle, QuotaLayer, QuotaService},
    rate_limit::{RateLimitBackoff, RateLimitBackoffLayer, RateLimitHandle},
    repeat_guard::{RepeatGuard, RepeatGuardLayer},
    retry::{Retry, RetryLayer},
    sanitize::SanitizeLayer,
    timeout::{Timeout, TimeoutLayer},
    trace::{Trace, TraceLayer},
};

/// The documented stack as one layer, made by [`StackBuilder::build`](super::StackBuilder::build).
///
/// The breakers, the gates of rate limits, quotas and concurrency limits, the registry of servers, the calls that are compared and the budget of retries live in this value: services made from it, or
/// from its clones, share them.
///
/// `O` is `()`, or [`Own`](super::Own) where the builder was given hooks, checks or layers.
#[derive(Clone)]
#[must_use]
pub struct StackLayer<C = ByError, O = ()> {
    pub(super) names: ToolNames,
    pub(super) breakers: CircuitBreakerHandle,
    pub(super) servers: Health,
    pub(super) sanitize: SanitizeLayer,
    pub(super) identity: Optional<IdentityLayer>,
    pub(super) codes: Optional<NormalizeLayer>,
    pub(super) trace: TraceLayer,
    #[cfg(feature = "metrics")]
    pub(super) metrics: Optional<MetricsLayer<C>>,
    pub(super) repeat_guard: Optional<RepeatGuardLayer<C>>,
    #[cfg(feature = "validate")]
    pub(super) validate: Optional<ValidateLayer>,
    pub(super) policy: Optional<PolicyLayer>,
    pub(super) quota: Optional<QuotaLayer>,
    pub(super) deadline: DeadlineLayer,
    pub(super) retry: Optional<RetryLayer<C>>,
    pub(super) attempts: Option<TraceLayer>,
    pub(super) rate_limit: Optional<RateLimitBackoffLayer<C>>,
    pub(super) health: Optional<HealthLayer>,
    pub(super) concurrency: Optional<ConcurrencyLimitLayer>,
    pub(super) circuit_breaker: Optional<CircuitBreakerLayer<C>>,
    pub(super) timeout: TimeoutLayer,
    pub(super) catch_panic: CatchPanicLayer,
    pub(super) classifier: C,
    pub(super) own: O,
}

/// The tool's answer.
type Res<S> = <S as Service<ToolCall>>::Response;

/// The services of optional layers.
macro_rules! around {
    ($($(#[$cfg:meta])* {$($param:ident),*} $layer:ty => $service:ident<S $(, $arg:ident)?>;)*) => {$(
        $(#[$cfg])*
        impl<$($param),*> Around for $layer {
            type Service<S> = $service<S $(, $arg)?>;
        }
    )*};
}

around! {
    {} NormalizeLayer => Normalize<S>;
    {} IdentityLayer => IdentityService<S>;
    #[cfg(feature = "metrics")]
    {C} MetricsLayer<C> => MetricsService<S, C>;
    #[cfg(feature = "validate")]
    {} ValidateLayer => Validate<S>;
    {} PolicyLayer => PolicyService<S>;
    {} QuotaLayer => QuotaService<S>;
    {C} RetryLayer<C> => Retry<S, C>;
    {H} TraceLayer<H> => Trace<S, H>;
    {C} RateLimitBackoffLayer<C> => RateLimitBackoff<S, C>;
    {} HealthLayer => HealthService<S>;
    {} ConcurrencyLimitLayer => ConcurrencyLimit<S>;
    {C} CircuitBreakerLayer<C> => CircuitBreaker<S, C>;
    {C} RepeatGuardLayer<C> => RepeatGuard<S, C>;
}

pub(super) type Bounded<S> = Timeout<CatchPanic<S>>;
type Guarded<S, C> = Switched<CircuitBreakerLayer<C>, Bounded<S>>;
type Limited<S, C> = Switched<ConcurrencyLimitLayer, Guarded<S, C>>;
pub(super) type Watched<S, C> = Switched<HealthLayer, Limited<S, C>>;
type Attempt<S, C> = Placed<Res<S>, Watched<S, C>>;
type Gated<S, C> = Switched<RateLimitBackoffLayer<C>, Attempt<S, C>>;
type Attempted<S, C> = Switched<TraceLayer<Hooks<Res<S>, C>>, Gated<S, C>>;
type Repeated<S, C> = Switched<RetryLayer<C>, Attempted<S, C>>;
pub(super) type Timed<S, C> = <UpToDeadline<S, C> as Part>::Service;
type Call<S, C> = Placed<Res<S>, Timed<S, C>>;
pub(super) type Rationed<S, C> = Switched<QuotaLayer, Call<S, C>>;
type Kept<S, C> = Placed<Res<S>, Rationed<S, C>>;
type Allowed<S, C> = Switched<PolicyLayer, Kept<S, C>>;
#[cfg(feature = "validate")]
type Checked<S, C> = Switched<ValidateLayer, Allowed<S, C>>;
#[cfg(not(feature = "validate"))]
type Checked<S, C> = Allowed<S, C>;
type Compared<S, C> = Switched<RepeatGuardLayer<C>, Checked<S, C>>;
type Renamed<S, C> = Switched<NormalizeLayer, Compared<S, C>>;
#[cfg(feature = "metrics")]
type Counted<S, C> = Switched<MetricsLayer<C>, Renamed<S, C>>;
#[cfg(not(feature = "metrics"))]
type Counted<S, C> = Renamed<S, C>;
type Traced<S, C> = Trace<Counted<S, C>, Hooks<Res<S>, C>>;
pub(super) type Resolved<S, C> = Switched<IdentityLayer, Traced<S, C>>;
type Outside<S, C> = Placed<Res<S>, Resolved<S, C>>;
pub(super) type Coded<S, C> = Switched<NormalizeLayer, Outside<S, C>>;

/// A part of the stack by its name. Spelled out, the whole is nested more deeply than readers of rustdoc's JSON allow: 128 levels,
/// in serde_json. No blanket implementation: rustdoc would look for it in each type of the crate.
pub trait Part {
    type Service;
}

#[derive(Debug)]
pub struct UpToDeadline<S, C>(PhantomData<(S, C)>);

impl<S: Service<ToolCall>, C> Part for UpToDeadline<S, C> {
    type Service = Deadline<Repeated<S, C>>;
}

/// The bounds on the parameter for layers and hooks of the user's: `()` and [`Own`] are all there is.
///
/// The impl for [`Own`] asks only for what is said of `S` and `C`: that the parts of the stack are then `Send` and all else is proved once,
/// here. Where users' types would be asked for it, each use of the stack would take the compiler a minute. Nor is there a blanket
/// implementation, as above.
pub trait Fits<S: Service<ToolCall>, C>:
    Looks<Res<S>>
    + Surrounds<Watched<S, C>, Res<S>>
    + Surrounds<Timed<S, C>, Res<S>>
    + Surrounds<Rationed<S, C>, Res<S>>
    + Surrounds<Resolved<S, C>, Res<S>>
{
}

impl<S: Service<ToolCall>, C> Fits<S, C> for () {}

impl<S, C> Fits<S, C> for Own<Res<S>>
where
    S: Service<ToolCall, Response: Send + 'static, Error: Into<ToolError>, Future: Send>
        + Clone
        + Send
        + Sync
        + 'static,
    C: Classify<Res<S>> + Clone + Send + Sync + 'static,
{
}

impl<C, O> StackLayer<C, O> {
    /// Returns the names and patterns of tools in its layers, and whether calls have matched them. With a table of all
    /// tools ([`with_identity`](super::StackBuilder::with_identity)) they are known to match.
    ///
    /// Not those of layers of your own, except [`with_cache`](super::StackBuilder::with_cache) and what
    /// [`with_layer`](super::StackBuilder::with_layer) knows.
    pub fn tool_names(&self) -> ToolNames {
        let mut names = self.names.clone();
        names = names.and(self.timeout.tool_names());
        if let Some(policy) = &self.policy.0 {
            names = names.and(policy.tool_names());
        }
        if let Some(quota) = &self.quota.0 {
            names = names.and(quota.tool_names());
        }
        if let Some(retry) = &self.retry.0 {
            names = names.and(retry.tool_names());
        }
        if let Some(limit) = &self.concurrency.0 {
            names = names.and(limit.tool_names());
        }
        if let Some(guard) = &self.repeat_guard.0 {
            names = names.and(guard.tool_names());
        }
        #[cfg(feature = "validate")]
        if let Some(validate) = &self.validate.0 {
            names = names.and(validate.tool_names());
        }
        names
    }

    /// Reads the breakers and forces them. A tool that settings name has one before its first call, under the name that stands there;
    /// behind a router, whose calls have a server, that is another key. Where they are switched off there are none, and what is forced reaches no
    /// call.
    pub fn circuit_breaker(&self) -> CircuitBreakerHandle {
        self.breakers.clone()
    }

    /// Reads the cooldowns of rate limits, ends them and begins others. `None` where the layer is switched off.
    pub fn rate_limit(&self) -> Option<RateLimitHandle> {
        self.rate_limit
            .0
            .as_ref()
            .map(RateLimitBackoffLayer::handle)
    }

    /// The registry of servers. Where its layer is switched off no call of this stack feeds it; a router below may
    /// (feature `router`, `RouterBuilder::with_health`), whose servers' names it knows.
    pub fn health(&self) -> Health {
        self.servers.clone()
    }

    /// Reads what is left of quotas. `None` without `quota.tokens`.
    pub fn quota(&self) -> Option<QuotaHandle> {
        self.quota.0.as_ref().map(QuotaLayer::handle)
    }

    /// Reads how many calls run and wait. `None` without `concurrency.max`.
    pub fn concurrency_limit(&self) -> Option<ConcurrencyLimitHandle> {
        self.concurrency
            .0
            .as_ref()
            .map(ConcurrencyLimitLayer::handle)
    }
}

impl<S, C, O> Layer<S> for StackLayer<C, O>
where
    S: Service<ToolCall> + Clone,
    C: Clone,
    O: Fits<S, C>,
{
    type Service = Stack<S, C>;

    fn layer(&self, tool: S) -> Self::Service {
        let hooks = Hooks::new(self.classifier.clone(), self.own.hooks());
        let attempts = self.attempts.clone();
        let attempts = Optional(attempts.map(|layer| layer.with_hooks(hooks.clone())));

        let stack = self.timeout.layer(self.catch_panic.layer(tool));
        let stack = self.concurrency.layer(self.circuit_breaker.layer(stack));
        let stack = self.health.layer(stack);
        let stack = self.own.put(Place::Attempt, stack);
        let stack = attempts.layer(self.rate_limit.layer(stack));
        let stack = self.deadline.layer(self.retry.layer(stack));
        let stack = self.quota.layer(self.own.put(Place::Call, stack));
        let stack = self.policy.layer(self.own.put(Place::Allowed, stack));
        #[cfg(feature = "validate")]
        let stack = self.validate.layer(stack);
        // Inside of what observes, and again outside of all: identity refuses names there.
        let stack = self.codes.layer(self.repeat_guard.layer(stack));
        #[cfg(feature = "metrics")]
        let stack = self.metrics.layer(stack);
        let stack = self.trace.clone().with_hooks(hooks).layer(stack);
        let stack = self.own.put(Place::Outside, self.identity.layer(stack));
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
