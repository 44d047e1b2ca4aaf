//! What other layers tell.

use std::{
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicBool, AtomicI64, Ordering::Relaxed},
    },
    time::Duration,
};

use tower::{Service, ServiceBuilder, ServiceExt, service_fn};
use tower_toolcall::{
    BoxError, ErrorKind, Key, ReplaySafety, ToolCall, ToolError,
    circuit_breaker::CircuitBreakerLayer,
    event::BreakerState,
    rate_limit::RateLimitBackoffLayer,
    retry::{RetryLayer, RetryPolicy},
    timeout::TimeoutLayer,
    tool_metrics::{BreakerRow, CallEnd, Labels, Metrics, Series, Sink, ToolSink},
    trace::TraceLayer,
};

use super::{Tools, answer, call, stats, tools};

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
    assert_eq!(stats.calls, 2);
    assert_eq!(stats.attempts, 4);
    assert_eq!(stats.retries, Some(2));
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

enum Seen<'a> {
    Tool(&'a str),
    Breaker(Option<BreakerState>),
    Started,
    Happened,
}

/// A sink that calls a function while the metrics call it.
struct Calls<F>(Arc<F>);

impl<F: Fn(Seen<'_>) + Send + Sync + 'static> Sink for Calls<F> {
    fn tool(&self, labels: &Labels) -> Box<dyn ToolSink> {
        (self.0)(Seen::Tool(labels.tool()));
        Box::new(Self(Arc::clone(&self.0)))
    }

    fn breaker(&self, _: &Labels, state: Option<BreakerState>, _: bool) {
        (self.0)(Seen::Breaker(state));
    }
}

impl<F: Fn(Seen<'_>) + Send + Sync> ToolSink for Calls<F> {
    fn started(&self) {
        (self.0)(Seen::Started);
    }

    fn ended(&self, _: &CallEnd<'_>) {}

    fn happened(&self, _: Series) {
        (self.0)(Seen::Happened);
    }
}

fn with_sink(sink: impl Fn(Seen<'_>) + Send + Sync + 'static) -> Metrics {
    let builder = Metrics::builder().with_sink(Calls(Arc::new(sink)));
    builder.build().unwrap()
}

/// Reader R2, 9: the state that a sink received last is the breaker's.
#[tokio::test(start_paused = true)]
async fn breaker_that_changes_while_a_sink_is_called_has_its_last_state_there() {
    let breaker = CircuitBreakerLayer::new();
    let (handle, gauge) = (breaker.handle(), Arc::new(Mutex::new(None)));
    let seen = Arc::clone(&gauge);
    let metrics = with_sink(move |event| {
        if let Seen::Breaker(state) = event {
            if state == Some(BreakerState::Open) {
                handle.reset_all();
            }
            *seen.lock().unwrap() = state;
        }
    });
    let tools = ServiceBuilder::new()
        .layer(metrics.layer())
        .layer(breaker)
        .service(service_fn(answer));
    for _ in 0..5 {
        tools.clone().oneshot(call("times_out")).await.unwrap_err();
    }
    let row = metrics.snapshot().breakers[0].clone();
    assert_eq!((row.state, row.openings), (Some(BreakerState::Closed), 1));
    assert_eq!(*gauge.lock().unwrap(), Some(BreakerState::Closed));
}

/// Reader R2, 11: a sink may call the tool that it is made for.
#[tokio::test(start_paused = true)]
async fn sink_that_calls_its_tool_while_it_is_made_counts() {
    let (service, has_called) = (Arc::new(OnceLock::<Tools>::new()), AtomicBool::new(false));
    let started = Arc::new(AtomicI64::new(0));
    let (inner, seen) = (Arc::clone(&service), Arc::clone(&started));
    let metrics = with_sink(move |event| match event {
        Seen::Tool("works") if !has_called.swap(true, Relaxed) => {
            drop(inner.get().unwrap().clone().call(call("works")));
        }
        Seen::Started => drop(seen.fetch_add(1, Relaxed)),
        _ => {}
    });
    service.set(tools(&metrics)).unwrap();
    super::run(&metrics, "works").await;
    let stats = stats(&metrics, "works");
    assert_eq!(stats.successes, 1);
    assert_eq!(stats.cancelled, 1);
    assert_eq!(stats.in_flight, 0);
    assert_eq!(started.load(Relaxed), 2);
}

/// Reader R2, 17: a retry is not one more call in flight.
#[tokio::test(start_paused = true)]
async fn event_that_a_sink_receives_is_not_a_call_in_flight() {
    let (all, in_flight) = (Arc::new(OnceLock::<Metrics>::new()), Arc::default());
    let (inner, seen) = (Arc::clone(&all), Arc::<Mutex<Vec<_>>>::clone(&in_flight));
    let metrics = with_sink(move |event| {
        if let Seen::Happened = event {
            let now = stats(inner.get().unwrap(), "times_out").in_flight;
            seen.lock().unwrap().push(now);
        }
    });
    assert!(all.set(metrics.clone()).is_ok());
    let tools = ServiceBuilder::new()
        .layer(metrics.layer())
        .layer(RetryLayer::default())
        .service(service_fn(answer));
    tools.oneshot(safe("times_out")).await.unwrap_err();
    // Two retries, and that there is no third one.
    assert_eq!(*in_flight.lock().unwrap(), [1, 1, 1]);
}
