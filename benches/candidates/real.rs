//! Calls as they are in use: each a new one, to a tool whose future is of 1 KiB, or of 4.
//!
//! A layer that moves the future of the layer below after that is made copies it, which a future of
//! a few bytes hides.

use tower::ServiceBuilder;
use tower_layer::Layer as _;
use tower_toolcall::{
    catch_panic::CatchPanicLayer,
    circuit_breaker::CircuitBreakerLayer,
    concurrency_limit::ConcurrencyLimitLayer,
    deadline::DeadlineLayer,
    health::Health,
    rate_limit::RateLimitBackoffLayer,
    result::{ToolResult, ToolResultLayer},
    retry::RetryLayer,
    sanitize::SanitizeLayer,
    timeout::TimeoutLayer,
    tool_metrics::Metrics,
    trace::TraceLayer,
};

use super::{
    By, Candidate, Group, NEW, NEW_AT_ONCE, candidate, layered,
    layers::{bare_http_of, http_timeout, http_trace, quota, tower_limit},
    peers::{self, TIMEOUT},
    stacked, stacks,
};
use crate::kit::{
    drive::{Subject, executed, shared},
    tool::Tool,
};

pub fn groups() -> Vec<Group> {
    let mut groups = of_size::<1024>();
    groups.extend(of_size::<4096>());
    groups
}

/// A name with the size.
fn sized<const N: usize>(name: &str) -> &'static str {
    format!("{name}, {} KiB", N / 1024).leak()
}

fn ours<const N: usize>(name: &str, make: fn(Tool<N>) -> Box<dyn Subject>) -> Candidate {
    candidate(sized::<N>(name), By::Ours, make).above(sized::<N>("bare"))
}

fn peer<const N: usize>(name: &str, make: fn(Tool<N>) -> Box<dyn Subject>) -> Candidate {
    candidate(sized::<N>(name), By::Peer, make).above(sized::<N>("bare"))
}

fn of_size<const N: usize>() -> Vec<Group> {
    let group = |name: &str, mut candidates: Vec<Candidate>| {
        candidates.push(candidate::<N>(sized::<N>("bare"), By::Bare, |tool| {
            shared(tool)
        }));
        Group {
            name: sized::<N>(name),
            settings: vec![NEW_AT_ONCE, NEW],
            candidates,
        }
    };
    vec![
        group("real futures: timeout", timeouts::<N>()),
        group("real futures: retry", retries::<N>()),
        group("real futures: circuit breaker", breakers::<N>()),
        group("real futures: rate limit", limits::<N>()),
        group("real futures: concurrency limit", concurrency_limits::<N>()),
        group("real futures: trace and metrics", observers::<N>()),
        group("real futures: others", others::<N>()),
        group("real futures: stack of three", threes::<N>()),
        group("real futures: stacks", all::<N>()),
    ]
}

fn timeouts<const N: usize>() -> Vec<Candidate> {
    let bare_http = sized::<N>("bare, in HTTP's types");
    vec![
        bare_http_of::<N>(bare_http),
        ours::<N>("timeout", |tool| layered(TimeoutLayer::default(), tool)),
        peer::<N>("tower timeout", |tool| {
            layered(tower::timeout::TimeoutLayer::new(TIMEOUT), tool)
        }),
        peer::<N>("tower-http timeout", http_timeout).above(bare_http),
        peer::<N>("tower-resilience timeout", |tool| {
            layered(peers::resilience_timeout(), tool)
        }),
        peer::<N>("seatbelt timeout", |tool| {
            executed(peers::seatbelt_timeout().layer(tool))
        }),
        peer::<N>("seatbelt timeout, as tower's", |tool| {
            layered(peers::seatbelt_timeout(), tool)
        }),
    ]
}

fn retries<const N: usize>() -> Vec<Candidate> {
    vec![
        ours::<N>("retry", |tool| layered(RetryLayer::default(), tool)),
        peer::<N>("tower retry, with a budget", |tool| {
            layered(peers::tower_retry(true), tool)
        }),
        peer::<N>("tower-resilience retry, with a budget", |tool| {
            layered(peers::resilience_retry().build(), tool)
        }),
        peer::<N>("seatbelt retry, no budget", |tool| {
            executed(peers::seatbelt_retry(true).layer(tool))
        }),
        peer::<N>("seatbelt retry, no budget, as tower's", |tool| {
            layered(peers::seatbelt_retry(true), tool)
        }),
    ]
}

fn breakers<const N: usize>() -> Vec<Candidate> {
    vec![
        ours::<N>("circuit_breaker", |tool| {
            layered(CircuitBreakerLayer::new(), tool)
        }),
        peer::<N>("map + recloser", peers::reclosers),
        peer::<N>("map + failsafe", peers::failsafes),
        peer::<N>("tower-resilience breaker, one key", |tool| {
            layered(peers::resilience_breaker(), tool)
        }),
        peer::<N>("seatbelt breaker, keyed", |tool| {
            executed(peers::seatbelt_breakers().layer(tool))
        }),
    ]
}

fn limits<const N: usize>() -> Vec<Candidate> {
    vec![
        ours::<N>("quota", |tool| {
            layered(quota().build().expect("valid"), tool)
        }),
        ours::<N>("rate_limit, nothing cools", |tool| {
            layered(RateLimitBackoffLayer::new(), tool)
        }),
        peer::<N>("governor, keyed", peers::governors),
        peer::<N>("tower-resilience rate limit, one key", |tool| {
            layered(peers::resilience_limit(usize::MAX), tool)
        }),
    ]
}

fn concurrency_limits<const N: usize>() -> Vec<Candidate> {
    vec![
        ours::<N>("concurrency_limit", |tool| {
            layered(ConcurrencyLimitLayer::new(1 << 20), tool)
        }),
        peer::<N>("tower concurrency limit, one key", tower_limit::<N>),
        peer::<N>("tower-resilience bulkhead, one key", |tool| {
            layered(peers::resilience_bulkhead(), tool)
        }),
    ]
}

fn observers<const N: usize>() -> Vec<Candidate> {
    let bare_http = sized::<N>("bare, in HTTP's types");
    vec![
        bare_http_of::<N>(bare_http),
        ours::<N>("trace, nobody listens", |tool| {
            layered(TraceLayer::new(), tool)
        }),
        ours::<N>("trace, nobody listens, and metrics", |tool| {
            let stack = ServiceBuilder::new()
                .layer(TraceLayer::new())
                .layer(Metrics::new().layer());
            stacked(stack, tool)
        }),
        peer::<N>("tower-http trace, records nothing", http_trace).above(bare_http),
    ]
}

fn others<const N: usize>() -> Vec<Candidate> {
    vec![
        ours::<N>("metrics", |tool| layered(Metrics::new().layer(), tool)),
        ours::<N>("deadline", |tool| {
            layered(DeadlineLayer::new(2 * TIMEOUT), tool)
        }),
        ours::<N>("catch_panic", |tool| layered(CatchPanicLayer::new(), tool)),
        ours::<N>("sanitize, built-in rules", |tool| {
            layered(SanitizeLayer::default(), tool)
        }),
        ours::<N>("result, taken apart again", |tool| {
            let stack = ServiceBuilder::new()
                .map_response(|result: ToolResult<u64>| result.into_data().unwrap_or(0))
                .layer(ToolResultLayer::new());
            stacked(stack, tool)
        }),
        ours::<N>("health", |tool| layered(Health::new().layer(), tool)),
    ]
}

fn threes<const N: usize>() -> Vec<Candidate> {
    vec![
        ours::<N>("stack of three", stacks::three),
        peer::<N>("tower-resilience, stack of three", stacks::resilience_three),
        peer::<N>(
            "seatbelt, the same as tower's",
            stacks::seatbelt_three_as_towers,
        ),
        peer::<N>("tower and recloser, stack of three", stacks::tower_three),
    ]
}

fn all<const N: usize>() -> Vec<Candidate> {
    vec![
        ours::<N>("stack of six", stacks::six),
        ours::<N>("stack of eight", stacks::eight),
        ours::<N>("documented stack", stacks::documented),
        peer::<N>("tower-resilience, its six", stacks::resilience_six),
    ]
}
