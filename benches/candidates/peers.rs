//! The peers, set up once each: what takes the tool is a function, what is a layer is one.

use std::{
    future::{Ready, ready},
    hash::{BuildHasher, BuildHasherDefault, Hasher},
    num::NonZeroU32,
    ops::Deref,
    sync::Arc,
    time::Duration,
};

use dashmap::DashMap;
use failsafe::{
    Config, StateMachine,
    backoff::{self, Constant},
    failure_policy::{self, ConsecutiveFailures},
    futures::CircuitBreaker as _,
};
use foldhash::fast::RandomState;
use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use recloser::{AnyError, AsyncRecloser, Recloser, RecloserFuture};
use seatbelt::{
    RecoveryInfo, ResilienceContext,
    breaker::{Breaker, BreakerId, BreakerLayer},
    retry::{Retry, RetryLayer},
    timeout::{Timeout, TimeoutLayer},
    typestates::Set,
};
use tick::Clock;
use tower::{
    Service,
    retry::{
        Policy, RetryLayer as TowerRetryLayer,
        budget::{Budget, TpsBudget},
    },
    service_fn,
};
use tower_resilience_bulkhead::BulkheadLayer;
use tower_resilience_circuitbreaker::{CircuitBreakerLayer, DefaultClassifier};
use tower_resilience_ratelimiter::RateLimiterLayer;
use tower_resilience_retry::{RetryBudgetBuilder, RetryConfigBuilder};
use tower_resilience_timelimiter::{FixedTimeout, TimeLimiterLayer};
use tower_toolcall::{BoxError, ToolCall};

use super::stacks::Stack;
use crate::kit::{
    drive::{Subject, shared},
    tool::Tool,
};

pub const TIMEOUT: Duration = Duration::from_secs(30);

/// How long what has opened or is used up stays so.
pub const LONG: Duration = Duration::from_secs(3600);

/// tower's own budget, in the simplest policy.
#[derive(Clone)]
pub struct Budgeted {
    budget: Arc<TpsBudget>,
    repeats: bool,
}

pub fn tower_retry(repeats: bool) -> TowerRetryLayer<Budgeted> {
    TowerRetryLayer::new(Budgeted {
        budget: Arc::default(),
        repeats,
    })
}

impl<Res, E> Policy<ToolCall, Res, E> for Budgeted {
    type Future = Ready<()>;

    fn retry(&mut self, _: &mut ToolCall, result: &mut Result<Res, E>) -> Option<Ready<()>> {
        match result {
            Ok(_) => {
                self.budget.deposit();
                None
            }
            Err(_) => (self.repeats && self.budget.withdraw()).then(|| ready(())),
        }
    }

    fn clone_request(&mut self, call: &ToolCall) -> Option<ToolCall> {
        Some(call.clone())
    }
}

/// Three attempts, as tower's docs write such a policy.
#[derive(Clone)]
pub struct Thrice(u32);

pub fn tower_retry_thrice() -> TowerRetryLayer<Thrice> {
    TowerRetryLayer::new(Thrice(2))
}

impl<Res, E> Policy<ToolCall, Res, E> for Thrice {
    type Future = Ready<()>;

    fn retry(&mut self, _: &mut ToolCall, result: &mut Result<Res, E>) -> Option<Ready<()>> {
        result.as_ref().err()?;
        self.0 = self.0.checked_sub(1)?;
        Some(ready(()))
    }

    fn clone_request(&mut self, call: &ToolCall) -> Option<ToolCall> {
        Some(call.clone())
    }
}

pub fn resilience_timeout() -> TimeLimiterLayer<FixedTimeout> {
    TimeLimiterLayer::builder()
        .timeout_duration(TIMEOUT)
        .build()
}

/// Three attempts within a budget.
pub fn resilience_retry<E: 'static>() -> RetryConfigBuilder<ToolCall, u64, E> {
    let budget = RetryBudgetBuilder::new().token_bucket().build();
    RetryConfigBuilder::new()
        .max_attempts(3)
        .exponential_backoff(Duration::from_secs(1))
        .budget(budget.expect("valid"))
}

pub fn resilience_breaker() -> CircuitBreakerLayer<DefaultClassifier> {
    CircuitBreakerLayer::builder()
        .consecutive_failures(5)
        .wait_duration_in_open(LONG)
        .build()
        .expect("valid")
}

/// So many calls in an hour.
pub fn resilience_limit(calls: usize) -> RateLimiterLayer {
    RateLimiterLayer::builder()
        .limit_for_period(calls)
        .refresh_period(LONG)
        .timeout_duration(Duration::ZERO)
        .build()
        .expect("valid")
}

pub fn resilience_bulkhead() -> BulkheadLayer {
    BulkheadLayer::builder()
        .max_concurrent_calls(1 << 20)
        .build()
        .expect("valid")
}

// seatbelt's layers are of two traits: its own one, which its documentation begins with, and
// tower's, for which they box their futures. Both are measured.

type Outcome<E> = Result<u64, E>;

fn seatbelt<E>() -> ResilienceContext<ToolCall, Outcome<E>> {
    ResilienceContext::new(Clock::new_tokio())
}

fn recovery<E>(result: &Outcome<E>) -> RecoveryInfo {
    match result {
        Ok(_) => RecoveryInfo::never(),
        Err(_) => RecoveryInfo::retry(),
    }
}

pub fn seatbelt_timeout() -> TimeoutLayer<ToolCall, Outcome<BoxError>, Set, Set> {
    Timeout::layer("timeout", &seatbelt())
        .timeout(TIMEOUT)
        .timeout_error(|_| "timeout".into())
}

pub fn seatbelt_retry(repeats: bool) -> RetryLayer<ToolCall, Outcome<BoxError>, Set, Set> {
    Retry::layer("retry", &seatbelt())
        .clone_input()
        .recovery_with(move |result, _| match repeats {
            true => recovery(result),
            false => RecoveryInfo::never(),
        })
}

/// Without a delay.
pub fn seatbelt_retry_thrice() -> RetryLayer<ToolCall, Outcome<BoxError>, Set, Set> {
    seatbelt_retry(true)
        .max_retry_attempts(2)
        .base_delay(Duration::ZERO)
}

pub fn seatbelt_breaker() -> BreakerLayer<ToolCall, Outcome<BoxError>, Set, Set> {
    Breaker::layer("breaker", &seatbelt())
        .recovery_with(|result, _| recovery(result))
        .rejected_input_error(|_, _| "open".into())
        .break_duration(LONG)
}

/// A breaker per name. By a hash of it, as its documentation advises.
pub fn seatbelt_breakers() -> BreakerLayer<ToolCall, Outcome<BoxError>, Set, Set> {
    seatbelt_breaker().breaker_id(|call: &ToolCall| BreakerId::hashed(&call.tool(), "tool"))
}

fn new_recloser() -> AsyncRecloser {
    Recloser::custom().open_wait(LONG).build().into()
}

pub fn recloser(tool: Tool) -> Box<dyn Subject> {
    shared(recloser_on(tool))
}

pub fn recloser_on(mut tool: Tool) -> impl Stack {
    let breaker = new_recloser();
    service_fn(move |call| breaker.call(tool.call(call)))
}

/// A breaker per name, made when the name is met.
pub fn reclosers<const N: usize>(tool: Tool<N>) -> Box<dyn Subject> {
    shared(reclosed(tool))
}

pub fn reclosed<S>(
    mut inner: S,
) -> impl Service<
    ToolCall,
    Response = u64,
    Error = recloser::Error<S::Error>,
    Future = RecloserFuture<S::Future, AnyError>,
> + Clone
+ Send
where
    S: Service<ToolCall, Response = u64> + Clone + Send,
{
    let breakers = Keyed::new(new_recloser);
    service_fn(move |call: ToolCall| {
        let breaker = breakers.of(call.tool());
        breaker.call(inner.call(call))
    })
}

/// One per name, made when the name is met. Hashed fast, as one would who looks at the cost.
struct Keyed<B> {
    made: Arc<DashMap<String, B, RandomState>>,
    make: fn() -> B,
}

impl<B> Clone for Keyed<B> {
    fn clone(&self) -> Self {
        Self {
            made: Arc::clone(&self.made),
            make: self.make,
        }
    }
}

impl<B> Keyed<B> {
    fn new(make: fn() -> B) -> Self {
        Self {
            made: Arc::default(),
            make,
        }
    }

    /// Where it is: a clone of it would only cost.
    #[inline]
    fn of<'a>(&'a self, name: &str) -> impl Deref<Target = B> + use<'a, B> {
        if let Some(known) = self.made.get(name) {
            return known;
        }
        let made = self.made.entry(name.to_owned()).or_insert_with(self.make);
        made.downgrade()
    }
}

pub fn failsafe(tool: Tool) -> Box<dyn Subject> {
    shared(failsafe_on(tool))
}

pub fn failsafe_on(mut tool: Tool) -> impl Stack {
    let breaker = new_failsafe();
    service_fn(move |call| breaker.call(tool.call(call)))
}

fn new_failsafe() -> StateMachine<ConsecutiveFailures<Constant>, ()> {
    let policy = failure_policy::consecutive_failures(5, backoff::constant(LONG));
    Config::new().failure_policy(policy).build()
}

/// A breaker per name, made when the name is met.
pub fn failsafes<const N: usize>(mut tool: Tool<N>) -> Box<dyn Subject> {
    let breakers = Keyed::new(new_failsafe);
    shared(service_fn(move |call: ToolCall| {
        let breaker = breakers.of(call.tool());
        breaker.call(tool.call(call))
    }))
}

const MANY: Quota = Quota::per_second(NonZeroU32::MAX);

pub fn governor(tool: Tool) -> Box<dyn Subject> {
    let limit = Arc::new(DefaultDirectRateLimiter::direct(MANY));
    governed(move |_| limit.check().is_ok(), tool)
}

/// One call in an hour.
pub fn governor_of_one(tool: Tool) -> Box<dyn Subject> {
    let quota = Quota::with_period(LONG).expect("a period");
    let limit = Arc::new(DefaultDirectRateLimiter::direct(quota));
    governed(move |_| limit.check().is_ok(), tool)
}

/// By a hash of the name, which is not hashed once more: a `String` would have to be made for each
/// call.
pub fn governors<const N: usize>(tool: Tool<N>) -> Box<dyn Subject> {
    let limit = Arc::new(RateLimiter::<u64, _, _>::dashmap_with_hasher(
        MANY,
        BuildHasherDefault::<Hashed>::default(),
    ));
    let hasher = RandomState::default();
    let key = move |call: &ToolCall| hasher.hash_one(call.tool());
    governed(move |call| limit.check_key(&key(call)).is_ok(), tool)
}

/// What is a hash already.
#[derive(Clone, Default)]
struct Hashed(u64);

impl Hasher for Hashed {
    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("keys are hashes")
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

fn governed<F, const N: usize>(admits: F, mut tool: Tool<N>) -> Box<dyn Subject>
where
    F: Fn(&ToolCall) -> bool + Clone + Send + 'static,
{
    shared(service_fn(move |call| {
        let answer = admits(&call).then(|| tool.call(call));
        async move {
            match answer {
                Some(answer) => answer.await.map_err(Some),
                None => Err(None),
            }
        }
    }))
}
