//! What other layers tell.

use std::time::Duration;

use tower::{Service, ServiceBuilder, ServiceExt, service_fn};
use tower_toolcall::{
    BoxError, ErrorKind, Key, ReplaySafety, ToolCall, ToolError,
    circuit_breaker::CircuitBreakerLayer,
    event::BreakerState,
    metrics::{BreakerRow, Metrics},
    rate_limit::RateLimitBackoffLayer,
    retry::{RetryLayer, RetryPolicy},
    timeout::TimeoutLayer,
    trace::TraceLayer,
};

use super::{answer, call, stats};

fn safe(tool: &str) -> ToolCall {
    call(tool).with_replay_safety(ReplaySafety::Safe)
}

async fn busy(_: ToolCall) -> Result<&'static str, BoxError> {
    Err(ToolError::new(ErrorKind::RateLimited, "slow down").into())
}

#[tokio::test(start_paused = true)]
async fn retries_and_their_refusals_are_counted_by_reason() {
    let metrics = Metrics::new();
    let tools = ServiceBuilder::new()
        .layer(metrics.layer())
        .layer(RetryLayer::new(
            RetryPolicy::default().with_listener(metrics.clone()),
        ))
        .service(service_fn(answer));
    tools.clone().oneshot(safe("times_out")).await.unwrap_err();
    tools.oneshot(call("times_out")).await.unwrap_err();
    let stats = stats(&metrics, "times_out");
    assert_eq!(
        (stats.calls, stats.attempts, stats.retries),
        (2, 4, Some(2))
    );
    assert_eq!(stats.refused_retries.as_ref().unwrap()["exhausted"], 1);
    assert_eq!(
        stats.refused_retries.as_ref().unwrap()["not_marked_safe"],
        1
    );
}

#[tokio::test(start_paused = true)]
async fn rate_limits_are_counted() {
    let metrics = Metrics::new();
    let tools = ServiceBuilder::new()
        .layer(metrics.layer())
        .layer(
            RateLimitBackoffLayer::builder()
                .with_listener(metrics.clone())
                .build()
                .unwrap(),
        )
        .service(service_fn(busy));
    tools.oneshot(call("busy")).await.unwrap_err();
    let stats = stats(&metrics, "busy");
    assert_eq!((stats.calls, stats.errors), (1, 1));
    assert_eq!(stats.rate_limited, Some(stats.attempts));
    assert!(stats.attempts > 1, "{stats:?}");
}

/// The layer sees the same in the call's record and at its end.
#[tokio::test(start_paused = true)]
async fn what_is_told_and_seen_is_counted_once() {
    let metrics = Metrics::new();
    let mut tools = ServiceBuilder::new()
        .layer(TraceLayer::new().with_listener(metrics.clone()))
        .layer(metrics.layer())
        .layer(TimeoutLayer::new(Duration::from_millis(1_100)).with_listener(metrics.clone()))
        .service(service_fn(answer));
    tools.call(call("takes_a_second")).await.unwrap();
    drop(tools.call(call("takes_a_second")));
    let stats = stats(&metrics, "takes_a_second");
    assert_eq!((stats.calls, stats.slow, stats.cancelled), (2, Some(1), 1));
}

#[tokio::test(start_paused = true)]
async fn a_breaker_is_seen_to_open_to_reject_and_to_close() {
    let metrics = Metrics::new();
    let breaker = CircuitBreakerLayer::builder().with_listener(metrics.clone());
    let breaker = breaker.build().unwrap();
    let tools = ServiceBuilder::new()
        .layer(metrics.layer())
        .layer(breaker.clone())
        .service(service_fn(answer));
    for _ in 0..8 {
        tools.clone().oneshot(call("times_out")).await.unwrap_err();
    }
    let told = |metrics: &Metrics| metrics.snapshot().breakers[0].clone();
    assert_eq!(told(&metrics).tool.as_deref(), Some("times_out"));
    assert_eq!(
        (told(&metrics).state, told(&metrics).openings),
        (Some(BreakerState::Open), 1)
    );
    assert_eq!(stats(&metrics, "times_out").breaker_rejected, Some(3));
    let text = metrics.prometheus();
    for line in [
        "circuit_breaker_open_total{server=\"docs\",tool=\"times_out\"} 1\n",
        "circuit_breaker_rejected_total{server=\"docs\",tool=\"times_out\"} 3\n",
        "circuit_breaker_state{server=\"docs\",tool=\"times_out\"} 2\n",
    ] {
        assert!(text.contains(line), "{text}");
    }
    breaker.handle().reset_all();
    assert_eq!(told(&metrics).state, Some(BreakerState::Closed));
}

#[tokio::test(start_paused = true)]
async fn a_breaker_of_a_whole_server_and_a_forced_one_are_seen() {
    let metrics = Metrics::new();
    let breaker = CircuitBreakerLayer::builder()
        .with_keys(Key::Server)
        .with_listener(metrics.clone())
        .build()
        .unwrap();
    let one = breaker.handle().breaker(&call("any"));
    let levels = |change: &dyn Fn()| {
        change();
        let row: BreakerRow = metrics.snapshot().breakers[0].clone();
        assert_eq!((row.server.as_deref(), row.tool), (Some("docs"), None));
        row.state.unwrap().level()
    };
    assert_eq!(levels(&|| one.force_open()), 2);
    assert_eq!(levels(&|| one.force_closed()), 0);
    assert_eq!(levels(&|| one.disable()), 0);
    assert_eq!(levels(&|| one.reset()), 0);
    for _ in 0..5 {
        one.record_failure();
    }
    assert_eq!(levels(&|| ()), 2);
    tokio::time::advance(Duration::from_secs(3600)).await;
    let permit = one.admit().unwrap();
    assert_eq!(levels(&|| ()), 1);
    drop(permit);
    assert_eq!(
        metrics.snapshot().breakers[0].openings,
        1,
        "a forced one has not opened"
    );
}
