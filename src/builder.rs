//! The documented stack, in short methods of tower's `ServiceBuilder`.
//!
//! ```
//! use std::time::Duration;
//! use tower::{ServiceBuilder, ServiceExt, service_fn};
//! use tower_toolcall::{
//!     AnyError, ServiceBuilderExt, ToolCall, redact::Rules,
//!     retry::RetryPolicy,
//! };
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let tool = service_fn(|_call: ToolCall| async {
//!     Ok::<_, AnyError>("12 degrees")
//! });
//!
//! let tools = ServiceBuilder::new()
//!     .tool_sanitize(Rules::new())
//!     .tool_result()
//!     .tool_trace()
//!     .tool_deadline(Duration::from_secs(100))
//!     .tool_retry(RetryPolicy::new())
//!     .tool_rate_limit()
//!     .tool_circuit_breaker()
//!     .tool_timeout(Duration::from_secs(10))
//!     .tool_catch_panic()
//!     .tool(tool);
//!
//! let Ok(result) =
//!     tools.oneshot(ToolCall::new("weather")).await;
//! assert_eq!(result.into_data(), Some("12 degrees"));
//! # }
//! ```
//!
//! [`tool`](ServiceBuilderExt::tool) ends the stack, and lets the compiler name what a tool service
//! lacks.
//!
//! A method takes what its layer cannot do without. For the rest there is `.layer(..)`, between the
//! others:
//!
//! ```
//! use std::time::Duration;
//! use tower::{ServiceBuilder, service_fn};
//! use tower_toolcall::{
//!     AnyError, ServiceBuilderExt, ToolCall, circuit_breaker::CircuitBreakerLayer,
//!     timeout::TimeoutLayer,
//! };
//!
//! let tool = service_fn(|_call: ToolCall| async { Ok::<_, AnyError>(()) });
//! let breaker = CircuitBreakerLayer::new();
//! let handle = breaker.handle(); // to look at the breakers, and to force them
//! let tools = ServiceBuilder::new()
//!     .tool_trace()
//!     .layer(breaker)
//!     .layer(TimeoutLayer::default().with_tool("import", Duration::from_secs(300)))
//!     .tool_catch_panic()
//!     .tool(tool);
//! # let _ = (handle, tools);
//! ```
//!
//! The methods begin with `tool_`, because `ServiceBuilder` has its own `timeout`, `retry` and so
//! on, which would silently take precedence.
//!
//! # Details
//!
//! ## Order
//!
//! From the outside in. Any subset works, and so does any other order, in its own way; this one
//! does what its layers say:
//!
//! - `tool_sanitize`: its rules hold for all observers inside
//! - `tool_result`: whatever fails inside, the caller has a result
//! - `tool_identity`: inside it a tool has one name, however callers spell it; so layers that show
//!   or keep names are inside. An unknown name goes no further
//! - `tool_trace`: its span holds all attempts and waits, and their events
//! - `tool_metrics`: counts calls, not attempts; inner layers report the rest
//! - `tool_fit`: the check judges the whole answer; observers see the caller's
//! - `tool_check`, `tool_max_bytes`: a refused answer is not requested again
//! - `tool_repeat_guard`: arguments are compared as the model wrote them, and wrong ones that it
//!   sends repeatedly are refused here
//! - `tool_validate`: arguments that do not fit are not sent, and cost no attempt and no place in a
//!   queue; no breaker counts them. Checked once for each call
//! - `tool_policy`: arguments are sent as they were allowed, or approved by a person; the time for
//!   that is not the tools', and one approval is for all attempts
//! - `tool_once`: arguments are compared as they are sent, and a call that is not allowed gets no
//!   answer; all attempts are one run
//! - `tool_cache`: the same; and a kept answer needs no token, no time and no attempt
//! - `tool_quota`: a call costs once, however often it is sent; and its wait does not use up the
//!   time for the tool
//! - `tool_deadline`: bounds all waits and repeats inside
//! - `tool_poll`: waits for jobs; inner layers act on single requests
//! - `tool_retry`: repeats the inner layers and the tool
//! - `tool_trace_attempts`: a span for each attempt
//! - `tool_rate_limit`: a call that waits for its turn holds no place of the breaker's
//! - `tool_health`: an attempt shows the health of its server; and a call to an unavailable server
//!   asks no breaker
//! - `tool_concurrency_limit`: delays of outer layers hold no place; and a call from the queue asks
//!   the breaker when its turn has come
//! - `tool_circuit_breaker`: counts attempts, so it opens as soon as it can; and each attempt asks
//!   it
//! - `tool_timeout`: bounds one attempt, and its expiry is a failure for the breaker
//! - `tool_catch_panic`: a panic is an error for all of them
//!
//! `tool_normalize` converts the errors of tower's own layers into ours: directly outside such a
//! layer, wherever that is.
//!
//! What other orders do:
//!
//! - **timeout outside retry**: it bounds all attempts together, delays included: a tool that needs
//!   a retry times out in the middle of a delay, and a hanging tool is never retried
//! - **breaker outside retry**: it counts calls instead of attempts: a dead tool gets three times
//!   as many requests before it opens, and retries go on while others find it dead
//! - **fit inside check**: the check sees a shortened answer: its size says nothing, and JSON that
//!   became text fits no schema
//! - **rate limit inside breaker**: the probe of a half-open breaker waits for a cooldown in its
//!   place: all other calls are refused for as long
//! - **quota inside retry**: each attempt costs, and waits for its turn within the deadline
//! - **concurrency limit outside retry or rate limit**: calls hold their places while they wait for
//!   a delay or a cooldown, and others wait for them
//! - **concurrency limit inside timeout**: the time in the queue counts as the tool's: calls time
//!   out that were never sent, and the breaker opens for it
//! - **validate inside retry, rate limit or breaker**: arguments are checked again for each
//!   attempt, and a call that cannot be sent waits for its turn first
//! - **repeat guard inside retry**: only the first attempt of each call is counted, because the
//!   others are not the model's
//! - **policy inside deadline or retry**: a person thinks on the tools' time, and is asked again
//!   for each attempt
//! - **policy outside identity**: rules know tools by callers' spellings
//! - **policy outside validate**: a person approves arguments that are repaired afterwards
//! - **once inside retry**: each attempt is a call with the same key: after an attempt that may
//!   have run the next is refused, and the caller reads that instead of the first error
//! - **once or cache outside policy**: a call that is not allowed any more gets the answer from
//!   when it was
//! - **cache inside retry, rate limit or breaker**: a call with a kept answer waits, or is refused,
//!   for a server that it does not need
//! - **poll inside retry, breaker or timeout**: they act on the whole job: the timeout ends it, and
//!   the breaker's probe takes as long as it. A retry goes on waiting for the same job
//! - **identity inside a layer with keys**: that layer keeps its state under callers' spellings: a
//!   tool has several breakers, and invented names have theirs
//! - **tower's load_shed without normalize directly outside it**: a shed call looks like a failure
//!   of the tool: it is repeated and uses up the retry budget, or it is not, and the advice of
//!   `tool.inert` names `normalize`
//! - **one of our layers between tower's load_shed and concurrency_limit**: nothing is shed: ours
//!   are always ready, so calls queue inside them
//! - **tower's timeout outside the breaker**: its expiries are drops, which the breaker never
//!   counts, unless the timeout is [about 30 s or
//!   more](crate::circuit_breaker::CircuitBreakerBuilder::with_abandoned_after); the trace says
//!   cancelled
//! - **a breaker of each endpoint inside tower's balance**: an open breaker answers immediately, so
//!   the dead endpoint has the least load and gets all calls
//! - **catch_panic outside the breaker**: a panic passes the inner layers as a panic: the breaker
//!   counts it, but no layer has an error to name the call in, or to classify

use std::time::Duration;

use tower::ServiceBuilder;
use tower_layer::{Layer, Stack};
use tower_service::Service;

use crate::tool_metrics::{Metrics, MetricsLayer};
#[cfg(feature = "validate")]
use crate::validate::{Schemas, ValidateLayer};
use crate::{
    ToolCall,
    cache::CacheLayer,
    catch_panic::CatchPanicLayer,
    check::{CheckLayer, MaxBytes},
    circuit_breaker::CircuitBreakerLayer,
    concurrency_limit::ConcurrencyLimitLayer,
    deadline::DeadlineLayer,
    fit::FitLayer,
    health::{Health, HealthLayer},
    identity::{IdentityLayer, Resolve},
    normalize::NormalizeLayer,
    once::OnceLayer,
    policy::PolicyLayer,
    poll::PollLayer,
    quota::{Quota, QuotaLayer},
    rate_limit::RateLimitBackoffLayer,
    redact::Rules,
    repeat_guard::RepeatGuardLayer,
    result::ToolResultLayer,
    retry::{RetryLayer, RetryPolicy},
    sanitize::SanitizeLayer,
    timeout::TimeoutLayer,
    trace::TraceLayer,
};

/// One method for each layer, in the order of the documented stack. See the [module docs](self).
pub trait ServiceBuilderExt<L>: sealed::Sealed + Into<ServiceBuilder<L>> {
    /// Puts redaction rules on calls: a [`SanitizeLayer`].
    fn tool_sanitize(self, rules: Rules) -> ServiceBuilder<Stack<SanitizeLayer, L>> {
        self.into().layer(SanitizeLayer::new(rules))
    }

    /// Never fails: a [`ToolResultLayer`].
    fn tool_result(self) -> ServiceBuilder<Stack<ToolResultLayer, L>> {
        self.into().layer(ToolResultLayer::new())
    }

    /// Resolves the names of calls by a table of tools, a router for example: an [`IdentityLayer`].
    fn tool_identity(self, tools: impl Resolve) -> ServiceBuilder<Stack<IdentityLayer, L>> {
        self.into().layer(IdentityLayer::new(tools))
    }

    /// Adds a span for each call, and an event for its end: a [`TraceLayer`].
    fn tool_trace(self) -> ServiceBuilder<Stack<TraceLayer, L>> {
        self.into().layer(TraceLayer::new())
    }

    /// Counts and times calls, and the events of inner layers: a [`MetricsLayer`] of `metrics`.
    fn tool_metrics(self, metrics: &Metrics) -> ServiceBuilder<Stack<MetricsLayer, L>> {
        self.into().layer(metrics.layer())
    }

    /// Shortens answers to `max_chars` characters, for a model: a [`FitLayer`].
    fn tool_fit(self, max_chars: usize) -> ServiceBuilder<Stack<FitLayer, L>> {
        self.into().layer(FitLayer::new(max_chars))
    }

    /// Looks at answers before they are handed on: a [`CheckLayer`].
    fn tool_check<K>(self, check: K) -> ServiceBuilder<Stack<CheckLayer<K>, L>> {
        self.into().layer(CheckLayer::new(check))
    }

    /// Refuses answers of more than `max` bytes, as JSON: [`CheckLayer::max_bytes`].
    fn tool_max_bytes(self, max: u64) -> ServiceBuilder<Stack<CheckLayer<MaxBytes>, L>> {
        self.into().layer(CheckLayer::max_bytes(max))
    }

    /// Refuses a call that has failed again and again: a [`RepeatGuardLayer`].
    fn tool_repeat_guard(self) -> ServiceBuilder<Stack<RepeatGuardLayer, L>> {
        self.into().layer(RepeatGuardLayer::new())
    }

    /// Checks the arguments of calls against these schemas: a [`ValidateLayer`].
    #[cfg(feature = "validate")]
    fn tool_validate(self, schemas: &Schemas) -> ServiceBuilder<Stack<ValidateLayer, L>> {
        self.into().layer(ValidateLayer::new(schemas))
    }

    /// Allows calls, denies them, or asks for approval: this [`PolicyLayer`].
    fn tool_policy(self, policy: PolicyLayer) -> ServiceBuilder<Stack<PolicyLayer, L>> {
        self.into().layer(policy)
    }

    /// Runs no call again that is made again: a [`OnceLayer`].
    fn tool_once(self) -> ServiceBuilder<Stack<OnceLayer, L>> {
        self.into().layer(OnceLayer::new())
    }

    /// Answers calls of tools that only read with what they have got before: this [`CacheLayer`].
    fn tool_cache<C>(self, cache: CacheLayer<C>) -> ServiceBuilder<Stack<CacheLayer<C>, L>> {
        self.into().layer(cache)
    }

    /// Limits the calls of each tool per period: a [`QuotaLayer`].
    fn tool_quota(self, quota: Quota) -> ServiceBuilder<Stack<QuotaLayer, L>> {
        self.into().layer(QuotaLayer::new(quota))
    }

    /// Ends each call after `budget`, whatever it does below; and by its own deadline and its
    /// caller's token: a [`DeadlineLayer`].
    fn tool_deadline(self, budget: Duration) -> ServiceBuilder<Stack<DeadlineLayer, L>> {
        self.into().layer(DeadlineLayer::new(budget))
    }

    /// Waits for the jobs that calls start: a [`PollLayer`].
    fn tool_poll<J>(self, job: J) -> ServiceBuilder<Stack<PollLayer<J>, L>> {
        self.into().layer(PollLayer::new(job))
    }

    /// Sends failed calls again: a [`RetryLayer`].
    fn tool_retry<C>(self, policy: RetryPolicy<C>) -> ServiceBuilder<Stack<RetryLayer<C>, L>> {
        self.into().layer(RetryLayer::new(policy))
    }

    /// Adds a span for each attempt: [`TraceLayer::attempts`].
    fn tool_trace_attempts(self) -> ServiceBuilder<Stack<TraceLayer, L>> {
        self.into().layer(TraceLayer::attempts())
    }

    /// Waits out rate limits for all calls of a tool together: a [`RateLimitBackoffLayer`].
    fn tool_rate_limit(self) -> ServiceBuilder<Stack<RateLimitBackoffLayer, L>> {
        self.into().layer(RateLimitBackoffLayer::new())
    }

    /// Reports to `health` which servers are available: a [`HealthLayer`] of it.
    fn tool_health(self, health: &Health) -> ServiceBuilder<Stack<HealthLayer, L>> {
        self.into().layer(health.layer())
    }

    /// Lets `max` calls of each tool run at a time: a [`ConcurrencyLimitLayer`].
    fn tool_concurrency_limit(self, max: usize) -> ServiceBuilder<Stack<ConcurrencyLimitLayer, L>> {
        self.into().layer(ConcurrencyLimitLayer::new(max))
    }

    /// Stops calling a tool that is broken: a [`CircuitBreakerLayer`].
    fn tool_circuit_breaker(self) -> ServiceBuilder<Stack<CircuitBreakerLayer, L>> {
        self.into().layer(CircuitBreakerLayer::new())
    }

    /// Ends each attempt after `timeout`: a [`TimeoutLayer`].
    fn tool_timeout(self, timeout: Duration) -> ServiceBuilder<Stack<TimeoutLayer, L>> {
        self.into().layer(TimeoutLayer::new(timeout))
    }

    /// Makes errors of panics: a [`CatchPanicLayer`].
    fn tool_catch_panic(self) -> ServiceBuilder<Stack<CatchPanicLayer, L>> {
        self.into().layer(CatchPanicLayer::new())
    }

    /// Makes the errors of tower's own layers ours, directly above them: a [`NormalizeLayer`].
    fn tool_normalize(self) -> ServiceBuilder<Stack<NormalizeLayer, L>> {
        self.into().layer(NormalizeLayer::new())
    }

    /// Builds the stack around a tool service. It is
    /// [`ServiceBuilder::service`](tower::ServiceBuilder::service) with bounds.
    ///
    /// If the stack cannot serve calls, the compiler reports the cause here: a function that is not
    /// a service, an error that does not convert into [`ToolError`](crate::ToolError), a `Clone`
    /// that a layer needs. After `service` it reports only that a method is missing where the stack
    /// is used.
    ///
    /// Use `service` if the stack's requests are not [`ToolCall`]s, on the outside or on the
    /// inside.
    fn tool<S>(self, service: S) -> S::Stack
    where
        S: ToolService + Innermost<L>,
    {
        service.in_layers(self.into())
    }
}

impl<L> ServiceBuilderExt<L> for ServiceBuilder<L> {}

/// A `Service<ToolCall>`. Each is one; there is nothing to implement.
///
/// It makes the compiler say what [`tool`](ServiceBuilderExt::tool) takes.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a tool service",
    label = "not a `Service<ToolCall>`",
    note = "`tower::service_fn(..)` makes a tool service of a closure or an `async fn` that takes a `ToolCall` and \
            returns a `Result`"
)]
pub trait ToolService {}

// Else the compiler names this condition instead of the message above.
#[diagnostic::do_not_recommend]
impl<S: Service<ToolCall>> ToolService for S {}

/// A tool service that serves calls as the innermost service of the layers `L`. There is nothing to
/// implement.
///
/// The bound is on the service, not on the layers, so that errors of the compiler name its type.
pub trait Innermost<L>: Sized {
    /// The stack.
    type Stack: Service<ToolCall>;

    /// Builds the stack of layers with this service as the innermost.
    fn in_layers(self, layers: ServiceBuilder<L>) -> Self::Stack;
}

impl<S, L> Innermost<L> for S
where
    L: Layer<S, Service: Service<ToolCall>>,
{
    type Stack = L::Service;

    fn in_layers(self, layers: ServiceBuilder<L>) -> L::Service {
        layers.service(self)
    }
}

mod sealed {
    /// No method of it may be called from outside, which a bound would allow:
    ///
    /// ```compile_fail,E0599
    /// fn added<L, B: tower_toolcall::ServiceBuilderExt<L>>(builder: B) {
    ///     builder.add(());
    /// }
    /// ```
    pub trait Sealed {}

    impl<L> Sealed for tower::ServiceBuilder<L> {}
}
