//! The peers, set up once each: what takes the tool is a function, what is a layer is one.

use std::{
    future::{Ready, ready},
    hash::{BuildHasher, BuildHasherDefault, Hasher, RandomState},
    num::NonZeroU32,
    sync::Arc,
    time::Duration,
};

use dashmap::DashMap;
use failsafe::{Config, backoff, failure_policy, futures::CircuitBreaker as _};
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

// seatbelt's layers are of two traits: its own one, which its documentation begins with, and tower's, for which
// they box their futures. Both are measured.

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
pub fn reclosers(tool: Tool) -> Box<dyn Subject> {
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
    let breakers: Arc<DashMap<String, AsyncRecloser>> = Arc::default();
    service_fn(move |call: ToolCall| {
        // Called where it is: a clone of it would only cost.
        if let Some(breaker) = breakers.get(call.tool()) {
            return breaker.call(inner.call(call));
        }
        let name = call.tool().to_owned();
        let breaker = breakers.entry(name).or_insert_with(new_recloser);
        breaker.call(inner.call(call))
    })
}

pub fn failsafe(tool: Tool) -> Box<dyn Subject> {
    shared(failsafe_on(tool))
}

pub fn failsafe_on(mut tool: Tool) -> impl Stack {
    let policy = failure_policy::consecutive_failures(5, backoff::constant(LONG));
    let breaker = Config::new().failure_policy(policy).build();
    service_fn(move |call| breaker.call(tool.call(call)))
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

/// By a hash of the name, which is not hashed once more: a `String` would have to be made for each call.
pub fn governors(tool: Tool) -> Box<dyn Subject> {
    let limit = Arc::new(RateLimiter::<u64, _, _>::dashmap_with_hasher(
        MANY,
        BuildHasherDefault::<Hashed>::default(),
    ));
    let hasher = RandomState::new();
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

fn governed<F>(admits: F, mut tool: Tool) -> Box<dyn Subject>
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
