//! Several layers at once, in the order that each house documents.

use std::time::Duration;

use tower::{Service, ServiceBuilder, timeout::Timeout};
use tower_layer::Layer as _;
use tower_resilience_circuitbreaker::CircuitBreakerError;
use tower_resilience_timelimiter::TimeLimiterError;
use tower_toolcall::{
    BoxError, ServiceBuilderExt, ToolCall, catch_panic::CatchPanicLayer,
    circuit_breaker::CircuitBreakerLayer, deadline::DeadlineLayer, redact::Rules,
    result::ToolResult, retry::RetryPolicy, timeout::TimeoutLayer, tool_metrics::Metrics,
    trace::TraceLayer,
};

use super::{
    AT_ONCE, FIVE, Group, LARGE, NEW, WAITS, bare, ours, peer,
    peers::{self, TIMEOUT},
    stacked,
};
use crate::kit::{
    drive::{Subject, executed, shared},
    tool::{Deep, Tool},
};

/// What a stack stands on.
pub trait Leaf:
    Service<ToolCall, Response = u64, Error = BoxError, Future: Send + 'static> + Clone + Send + 'static
{
}

impl<S> Leaf for S where
    S: Service<ToolCall, Response = u64, Error = BoxError, Future: Send + 'static>
        + Clone
        + Send
        + 'static
{
}

/// What it is then.
pub trait Stack:
    Service<ToolCall, Response = u64, Error: Send, Future: Send + 'static> + Clone + Send + 'static
{
}

impl<S> Stack for S where
    S: Service<ToolCall, Response = u64, Error: Send, Future: Send + 'static>
        + Clone
        + Send
        + 'static
{
}

const BUDGET: Duration = Duration::from_secs(60);

pub fn groups() -> Vec<Group> {
    let settings = || vec![AT_ONCE, FIVE, LARGE, WAITS, NEW];
    vec![
        Group {
            name: "stack: retry, breaker, timeout",
            settings: settings(),
            candidates: vec![
                bare(),
                ours("stack of three", three),
                peer("tower-resilience, stack of three", resilience_three),
                peer("seatbelt, stack of three, no budget", seatbelt_three),
                peer("seatbelt, the same as tower's", seatbelt_three_as_towers),
                peer("tower and recloser, stack of three", tower_three),
            ],
        },
        Group {
            name: "stack: all of it",
            settings: settings(),
            candidates: vec![
                bare(),
                ours("stack of six", six),
                ours("stack of eight", eight),
                ours("documented stack", documented),
                peer("tower-resilience, stack of five", resilience_five),
                peer("tower-resilience, its six", resilience_six),
            ],
        },
        Group {
            name: "stack: without state",
            settings: vec![AT_ONCE, WAITS, NEW],
            candidates: vec![bare(), ours("stack of four", four)],
        },
    ]
}

pub fn three<const N: usize>(tool: Tool<N>) -> Box<dyn Subject> {
    shared(three_on(Deep(tool)))
}

pub fn three_on<S: Leaf>(leaf: S) -> impl Stack {
    ServiceBuilder::new()
        .tool_retry(RetryPolicy::new())
        .tool_circuit_breaker()
        .tool_timeout(TIMEOUT)
        .service(leaf)
}

/// The layers with which the crate began.
pub fn six<const N: usize>(tool: Tool<N>) -> Box<dyn Subject> {
    shared(six_with(CircuitBreakerLayer::new(), Deep(tool)))
}

pub fn six_with<S: Leaf>(breaker: CircuitBreakerLayer, leaf: S) -> impl Stack {
    ServiceBuilder::new()
        .tool_sanitize(Rules::new())
        .tool_trace()
        .tool_retry(RetryPolicy::new())
        .tool_rate_limit()
        .layer(breaker)
        .tool_timeout(TIMEOUT)
        .service(leaf)
}

/// What an agent's calls need, and no more.
pub fn eight<const N: usize>(tool: Tool<N>) -> Box<dyn Subject> {
    shared(eight_on(Deep(tool)))
}

pub fn eight_on<S: Leaf>(leaf: S) -> impl Stack {
    ServiceBuilder::new()
        .tool_sanitize(Rules::new())
        .tool_trace()
        .tool_metrics(&Metrics::new())
        .tool_deadline(BUDGET)
        .tool_retry(RetryPolicy::new())
        .tool_rate_limit()
        .tool_circuit_breaker()
        .tool_timeout(TIMEOUT)
        .service(leaf)
}

/// As the docs of `builder` have it. The result is taken apart again.
pub fn documented<const N: usize>(tool: Tool<N>) -> Box<dyn Subject> {
    shared(documented_on(Deep(tool)))
}

pub fn documented_on<S: Leaf>(leaf: S) -> impl Stack {
    ServiceBuilder::new()
        .map_response(|result: ToolResult<u64>| result.into_data().unwrap_or(0))
        .tool_sanitize(Rules::new())
        .tool_result()
        .tool_trace()
        .tool_metrics(&Metrics::new())
        .tool_deadline(BUDGET)
        .tool_retry(RetryPolicy::new())
        .tool_rate_limit()
        .tool_circuit_breaker()
        .tool_timeout(TIMEOUT)
        .tool_catch_panic()
        .service(leaf)
}

fn four(tool: Tool) -> Box<dyn Subject> {
    let stack = ServiceBuilder::new()
        .layer(TraceLayer::new())
        .layer(DeadlineLayer::new(BUDGET))
        .layer(TimeoutLayer::default())
        .layer(CatchPanicLayer::new());
    stacked(stack, tool)
}

pub fn resilience_three<const N: usize>(tool: Tool<N>) -> Box<dyn Subject> {
    shared(resilience_three_on(Deep(tool)))
}

pub fn resilience_three_on<S: Leaf>(leaf: S) -> impl Stack {
    let retry = peers::resilience_retry().retry_on(timed_out);
    ServiceBuilder::new()
        .layer(retry.build())
        .layer(peers::resilience_breaker())
        .layer(peers::resilience_timeout())
        .service(leaf)
}

/// What its retry layer repeats: not what an open breaker refuses, as its docs advise.
fn timed_out<E>(error: &CircuitBreakerError<TimeLimiterError<E>>) -> bool {
    matches!(error, CircuitBreakerError::Inner(TimeLimiterError::Timeout))
}

/// Timeouts for the whole call and for an attempt, retry with a budget, breaker and rate limit:
/// nothing that looks on.
pub fn resilience_five<const N: usize>(tool: Tool<N>) -> Box<dyn Subject> {
    shared(resilience_five_on(Deep(tool)))
}

/// The same with a limit on calls that run at the same time.
pub fn resilience_six<const N: usize>(tool: Tool<N>) -> Box<dyn Subject> {
    let retry = peers::resilience_retry().retry_on(timed_out);
    shared(
        ServiceBuilder::new()
            .layer(peers::resilience_timeout())
            .layer(retry.build())
            .layer(peers::resilience_breaker())
            .layer(peers::resilience_timeout())
            .layer(peers::resilience_limit(usize::MAX))
            .layer(peers::resilience_bulkhead())
            .service(Deep(tool)),
    )
}

pub fn resilience_five_on<S: Leaf>(leaf: S) -> impl Stack {
    let retry = peers::resilience_retry().retry_on(timed_out);
    ServiceBuilder::new()
        .layer(peers::resilience_timeout())
        .layer(retry.build())
        .layer(peers::resilience_breaker())
        .layer(peers::resilience_timeout())
        .layer(peers::resilience_limit(usize::MAX))
        .service(leaf)
}

pub fn seatbelt_three<const N: usize>(tool: Tool<N>) -> Box<dyn Subject> {
    let timeout = peers::seatbelt_timeout().layer(Deep(tool));
    let breaker = peers::seatbelt_breakers().layer(timeout);
    executed(peers::seatbelt_retry(true).layer(breaker))
}

pub fn seatbelt_three_as_towers<const N: usize>(tool: Tool<N>) -> Box<dyn Subject> {
    shared(seatbelt_three_as_towers_on(Deep(tool)))
}

pub fn seatbelt_three_as_towers_on<S: Leaf + Sync>(leaf: S) -> impl Stack {
    ServiceBuilder::new()
        .layer(peers::seatbelt_retry(true))
        .layer(peers::seatbelt_breakers())
        .layer(peers::seatbelt_timeout())
        .service(leaf)
}

pub fn tower_three<const N: usize>(tool: Tool<N>) -> Box<dyn Subject> {
    let guarded = peers::reclosed(Timeout::new(Deep(tool), TIMEOUT));
    let retry = peers::tower_retry(true);
    shared(ServiceBuilder::new().layer(retry).service(guarded))
}

/// What tower brings itself.
pub fn tower_own_on<S: Leaf>(leaf: S) -> impl Stack {
    ServiceBuilder::new()
        .concurrency_limit(1 << 20)
        .layer(peers::tower_retry(true))
        .timeout(TIMEOUT)
        .service(leaf)
}
