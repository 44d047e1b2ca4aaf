use std::{any::type_name, fmt};

use tower_layer::Layer;

use super::{
    optional::{Optional, Switched},
    results::ResultsLayer,
    service::Stack,
};
#[cfg(feature = "metrics")]
use crate::metrics::{Measured, MetricsLayer};
use crate::{
    catch_panic::{CatchPanic, CatchPanicLayer},
    circuit_breaker::{CircuitBreaker, CircuitBreakerHandle, CircuitBreakerLayer},
    deadline::{Deadline, DeadlineLayer},
    edge::health::{Health, HealthLayer, HealthService},
    identity::{IdentityLayer, IdentityService},
    normalize::{Normalize, NormalizeLayer},
    outcome::ByError,
    rate_limit::{RateLimitBackoff, RateLimitBackoffLayer},
    result::ToolResultLayer,
    retry::{Retry, RetryLayer},
    sanitize::SanitizeLayer,
    timeout::{Timeout, TimeoutLayer},
    trace::{DefaultHooks, Trace, TraceLayer},
};

/// The documented stack as one layer, made by [`StackBuilder::build`](super::StackBuilder::build).
///
/// The breakers, the gates of rate limits, the registry of servers and the budget of retries live in this value: services made from it, or
/// from its clones, share them.
#[derive(Clone)]
#[must_use]
pub struct StackLayer<C = ByError> {
    sanitize: SanitizeLayer,
    layers: Layers<C>,
    classifier: C,
    handle: CircuitBreakerHandle,
    health: Health,
}

/// All but the outermost layer.
#[derive(Clone)]
pub(super) struct Layers<C> {
    pub(super) identity: Optional<IdentityLayer>,
    pub(super) codes: Optional<NormalizeLayer>,
    pub(super) trace: TraceLayer<DefaultHooks<C>>,
    #[cfg(feature = "metrics")]
    pub(super) metrics: Optional<MetricsLayer<C>>,
    pub(super) deadline: DeadlineLayer,
    pub(super) retry: Optional<RetryLayer<C>>,
    pub(super) attempts: Optional<TraceLayer<DefaultHooks<C>>>,
    pub(super) rate_limit: Optional<RateLimitBackoffLayer<C>>,
    pub(super) health: Optional<HealthLayer>,
    pub(super) circuit_breaker: Optional<CircuitBreakerLayer<C>>,
    pub(super) timeout: TimeoutLayer,
    pub(super) catch_panic: CatchPanicLayer,
}

type Bounded<S> = Timeout<CatchPanic<S>>;
type Guarded<S, C> = Switched<CircuitBreaker<Bounded<S>, C>, Bounded<S>>;
type Watched<S, C> = Switched<HealthService<Guarded<S, C>>, Guarded<S, C>>;
type Gated<S, C> = Switched<RateLimitBackoff<Watched<S, C>, C>, Watched<S, C>>;
type Attempted<S, C> = Switched<Trace<Gated<S, C>, DefaultHooks<C>>, Gated<S, C>>;
type Repeated<S, C> = Switched<Retry<Attempted<S, C>, C>, Attempted<S, C>>;
type Timed<S, C> = Deadline<Repeated<S, C>>;
#[cfg(feature = "metrics")]
type Counted<S, C> = Switched<Measured<Timed<S, C>, C>, Timed<S, C>>;
#[cfg(not(feature = "metrics"))]
type Counted<S, C> = Timed<S, C>;
type Traced<S, C> = Trace<Counted<S, C>, DefaultHooks<C>>;
type Resolved<S, C> = Switched<IdentityService<Traced<S, C>>, Traced<S, C>>;
pub(super) type Coded<S, C> = Switched<Normalize<Resolved<S, C>>, Resolved<S, C>>;

impl<S: Clone, C: Clone> Layer<S> for Layers<C> {
    type Service = Coded<S, C>;

    fn layer(&self, tool: S) -> Self::Service {
        let stack = self.timeout.layer(self.catch_panic.layer(tool));
        let stack = self.circuit_breaker.layer(stack);
        let stack = self.health.layer(stack);
        let stack = self.rate_limit.layer(stack);
        let stack = self.attempts.layer(stack);
        let stack = self.retry.layer(stack);
        let stack = self.deadline.layer(stack);
        #[cfg(feature = "metrics")]
        let stack = self.metrics.layer(stack);
        self.codes
            .layer(self.identity.layer(self.trace.layer(stack)))
    }
}

impl<C> StackLayer<C> {
    pub(super) fn new(
        sanitize: SanitizeLayer,
        layers: Layers<C>,
        classifier: C,
        handle: CircuitBreakerHandle,
        health: Health,
    ) -> Self {
        Self {
            sanitize,
            layers,
            classifier,
            handle,
            health,
        }
    }

    /// Reads the breakers and forces them. Where they are switched off there are none, and what is forced reaches no
    /// call.
    pub fn circuit_breaker(&self) -> CircuitBreakerHandle {
        self.handle.clone()
    }

    /// The registry of servers. Where its layer is switched off no call of this stack feeds it; a router below may
    /// (feature `router`, `RouterBuilder::with_health`), whose servers' names it knows.
    pub fn health(&self) -> Health {
        self.health.clone()
    }
}

impl<C: Clone> StackLayer<C> {
    /// The same stack with a [`ToolResult`](crate::ToolResult) for each call, whatever happens. It shares all
    /// state with this one. The redaction rules are outside it, so that results are written by them.
    pub fn results(&self) -> ResultsLayer<C> {
        let results = ToolResultLayer::new().with_classifier(self.classifier.clone());
        ResultsLayer::new(self.sanitize.clone(), results, self.layers.clone())
    }
}

impl<S: Clone, C: Clone> Layer<S> for StackLayer<C> {
    type Service = Stack<S, C>;

    fn layer(&self, tool: S) -> Self::Service {
        Stack::new(self.sanitize.layer(self.layers.layer(tool)))
    }
}

impl<C> fmt::Debug for StackLayer<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StackLayer")
            .field("sanitize", &self.sanitize)
            .field("layers", &self.layers)
            .finish_non_exhaustive()
    }
}

impl<C> fmt::Debug for Layers<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Layers")
            .field("deadline", &self.deadline)
            .field("rate_limit", &self.rate_limit)
            .field("health", &self.health)
            .field("circuit_breaker", &self.circuit_breaker)
            .field("timeout", &self.timeout)
            .field("classifier", &format_args!("{}", type_name::<C>()))
            .finish_non_exhaustive()
    }
}
