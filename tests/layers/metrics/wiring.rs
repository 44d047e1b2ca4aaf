//! What the layers below tell the metrics, with nothing to wire, and what is absent where none
//! could.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use tower::{Service, ServiceBuilder, ServiceExt, service_fn};
use tower_toolcall::{
    BoxError, ErrorKind, Event, ReplaySafety, ToolCall, ToolError,
    cache::CacheLayer,
    circuit_breaker::CircuitBreakerLayer,
    event::{BreakerState, Listen},
    flow::CallExt,
    once::OnceLayer,
    rate_limit::RateLimitBackoffLayer,
    retry::{RetryLayer, RetryPolicy},
    timeout::TimeoutLayer,
    tool_metrics::Metrics,
};

use super::{answer, call, stats, tools};

fn safe(tool: &str) -> ToolCall {
    call(tool).with_replay_safety(ReplaySafety::Safe)
}

async fn busy(_: ToolCall) -> Result<&'static str, BoxError> {
    Err(ToolError::new(ErrorKind::RateLimited, "slow down").into())
}

/// V8.
#[tokio::test(start_paused = true)]
async fn retries_refusals_limits_slow_calls_and_the_breaker_are_counted_without_wiring() {
    let metrics = Metrics::new();
    let tools = ServiceBuilder::new()
        .layer(metrics.layer())
        .layer(RetryLayer::default())
        .layer(RateLimitBackoffLayer::new())
        .layer(CircuitBreakerLayer::new())
        .layer(TimeoutLayer::new(Duration::from_millis(1_100)));
    let works = tools.clone().service(service_fn(answer));
    for tool in ["times_out", "takes_a_second"] {
        let _ = works.clone().oneshot(safe(tool)).await;
    }
    let _ = works.oneshot(call("times_out")).await;
    let limited = tools.service(service_fn(busy));
    limited.oneshot(call("busy")).await.unwrap_err();

    let times_out = stats(&metrics, "times_out");
    assert_eq!((times_out.attempts, times_out.retries), (4, Some(2)));
    let refused = times_out.refused_retries.unwrap();
    assert_eq!((refused["exhausted"], refused["not_marked_safe"]), (1, 1));
    assert_eq!(stats(&metrics, "takes_a_second").slow, Some(1));
    assert_eq!(stats(&metrics, "busy").rate_limited, Some(3));
    let all = metrics.snapshot();
    let told = |row: &tower_toolcall::tool_metrics::BreakerRow| (row.state, row.openings);
    assert_eq!(told(&all.breakers[0]), (Some(BreakerState::Closed), 0));
}

/// 20a: answers of other calls are told apart. The second case is the cache.
#[tokio::test(start_paused = true)]
async fn calls_that_are_answered_without_being_sent_have_a_series() {
    let metrics = Metrics::new();
    let sent = ServiceBuilder::new().layer(metrics.layer());
    let once = sent.clone().layer(OnceLayer::new()).service_fn(answer);
    let cache = CacheLayer::new(Duration::from_secs(60), ["docs__look"]).unwrap();
    let cache = sent.layer(cache).service_fn(answer);
    for _ in 0..3 {
        let of = |tool| call(tool).with_session_id("s");
        once.clone().oneshot(of("pay")).await.unwrap();
        cache.clone().oneshot(of("look")).await.unwrap();
        once.clone().oneshot(safe("free")).await.unwrap();
    }
    for tool in ["pay", "look"] {
        let stats = stats(&metrics, tool);
        let seen = (stats.calls, stats.attempts, stats.reused);
        assert_eq!(seen, (3, 1, Some(2)), "{tool}");
        let line = format!("tool_reused_total{{server=\"docs\",tool=\"{tool}\"}} 2\n");
        assert!(metrics.prometheus().contains(&line), "{line}");
    }
    assert_eq!(stats(&metrics, "free").reused, None);
    assert!(metrics.snapshot().to_string().contains("reused answers: 4"));
}

/// V8. The second case is a stack with layers that could report such events.
#[tokio::test(start_paused = true)]
async fn a_series_is_absent_before_its_first_event() {
    const ABSENT: [&str; 5] = [
        "tool_retries_total",
        "tool_retries_refused_total",
        "tool_rate_limited_total",
        "tool_slow_total",
        "circuit_breaker_rejected_total",
    ];
    let (bare, layered) = (Metrics::new(), Metrics::new());
    tools(&bare).oneshot(call("search")).await.unwrap();
    let tools = ServiceBuilder::new()
        .layer(layered.layer())
        .layer(RetryLayer::default())
        .layer(RateLimitBackoffLayer::new())
        .layer(CircuitBreakerLayer::new())
        .layer(TimeoutLayer::default())
        .service(service_fn(answer));
    tools.oneshot(call("search")).await.unwrap();
    for metrics in [&bare, &layered] {
        let none = stats(metrics, "search");
        assert_eq!((none.retries, none.refused_retries), (None, None));
        assert_eq!((none.rate_limited, none.slow), (None, None));
        assert_eq!(none.breaker_rejected, None);
        let text = metrics.prometheus();
        for series in ABSENT {
            assert!(!text.contains(series), "{series}: {text}");
        }
        let json = serde_json::to_value(metrics.snapshot()).unwrap();
        for key in ["retries", "refused_retries", "rate_limited", "slow"] {
            assert!(json["total"].get(key).is_none(), "{json}");
        }
    }
    assert!(!bare.prometheus().contains("circuit_breaker"));
    let state = "circuit_breaker_state{server=\"docs\",tool=\"search\"} 0\n";
    assert!(layered.prometheus().contains(state));
}

/// V8.
#[tokio::test(start_paused = true)]
async fn what_is_wired_by_hand_as_well_counts_once() {
    let metrics = Metrics::new();
    let breaker = CircuitBreakerLayer::builder().with_listener(Arc::new(metrics.clone()));
    let tools = ServiceBuilder::new()
        .layer(metrics.layer())
        .layer(RetryLayer::new(
            RetryPolicy::default().with_listener(metrics.clone()),
        ))
        .layer(breaker.build().unwrap())
        .service(service_fn(answer));
    for _ in 0..3 {
        tools.clone().oneshot(safe("times_out")).await.unwrap_err();
    }
    let stats = stats(&metrics, "times_out");
    assert_eq!((stats.attempts, stats.retries), (5, Some(4)));
    assert_eq!(metrics.snapshot().breakers[0].openings, 1);
}

/// V8.
#[tokio::test(start_paused = true)]
async fn each_of_two_metrics_hears_what_happens_below_it_and_the_same_one_twice_hears_it_once() {
    let (outer, inner) = (Metrics::new(), Metrics::new());
    let tools = ServiceBuilder::new()
        .layer(outer.layer())
        .layer(outer.layer())
        .layer(RetryLayer::default())
        .layer(inner.layer())
        .layer(CircuitBreakerLayer::new())
        .service(service_fn(answer));
    for _ in 0..2 {
        tools.clone().oneshot(safe("times_out")).await.unwrap_err();
    }
    // The retry layer is above the inner ones: they can tell nothing of it.
    assert_eq!(stats(&outer, "times_out").retries, Some(4));
    assert_eq!(stats(&inner, "times_out").retries, None);
    for metrics in [&outer, &inner] {
        let breakers = metrics.snapshot().breakers;
        assert_eq!((breakers.len(), breakers[0].openings), (1, 1));
    }
    assert_eq!(stats(&inner, "times_out").attempts, 5);
}

/// V8: there is no call that could carry the news.
#[tokio::test(start_paused = true)]
async fn a_breaker_that_is_forced_by_hand_tells_the_metrics_that_saw_its_calls() {
    let metrics = Metrics::new();
    let breaker = CircuitBreakerLayer::new();
    let tools = ServiceBuilder::new()
        .layer(metrics.layer())
        .layer(breaker.clone())
        .service(service_fn(answer));
    tools.clone().oneshot(call("search")).await.unwrap();
    let state = || metrics.snapshot().breakers[0].state;
    assert_eq!(state(), Some(BreakerState::Closed));
    breaker.handle().breaker(&call("search")).force_open();
    assert_eq!(state(), Some(BreakerState::ForcedOpen));
    tools.oneshot(call("search")).await.unwrap_err();
    assert_eq!(stats(&metrics, "search").breaker_rejected, Some(1));
    breaker.handle().reset_all();
    assert_eq!(state(), Some(BreakerState::Closed));
}

/// V8: names that a model invents are no labels of breakers either.
#[tokio::test(start_paused = true)]
async fn a_breaker_of_an_invented_name_is_no_series() {
    let metrics = Metrics::new();
    let tools = ServiceBuilder::new()
        .layer(metrics.layer())
        .layer(CircuitBreakerLayer::new())
        .service(service_fn(answer));
    for n in 0..100 {
        let invented = call(&format!("invented_{n}"));
        tools.clone().oneshot(invented).await.unwrap_err();
    }
    assert!(metrics.snapshot().breakers.is_empty());
    assert!(!metrics.prometheus().contains("invented"));
}

/// V8: the drop of a call may be what opens its breaker.
#[tokio::test(start_paused = true)]
async fn a_breaker_that_opens_when_calls_are_dropped_is_seen_to() {
    let metrics = Metrics::new();
    let mut tools = ServiceBuilder::new()
        .layer(metrics.layer())
        .layer(CircuitBreakerLayer::new())
        .service(service_fn(answer));
    for _ in 0..5 {
        let hangs = tools.ready().await.unwrap().call(call("hangs"));
        let _ = tokio::time::timeout(Duration::from_secs(60), hangs).await;
    }
    let breaker = &metrics.snapshot().breakers[0];
    assert_eq!(breaker.state, Some(BreakerState::Open));
    assert_eq!(breaker.openings, 1);
}

/// V8: a layer of somebody else's listens as ours does, and its listener is gone with the call.
#[tokio::test(start_paused = true)]
async fn any_layer_can_listen_for_the_time_of_a_call() {
    let heard = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&heard);
    let listen: Arc<dyn Listen> = Arc::new(move |event: &Event<'_>| {
        assert_eq!(event.call().unwrap().tool(), "times_out");
        count.fetch_add(1, SeqCst);
    });
    let tools = ServiceBuilder::new()
        .layer(RetryLayer::default())
        .service(service_fn(answer));

    let mut observed = safe("times_out");
    let again = observed.clone();
    let mut observation = observed.observe();
    assert!(observation.listen(&Arc::downgrade(&listen)));
    tools.clone().oneshot(observed).await.unwrap_err();
    // Two retries and that there is no third one.
    assert_eq!(heard.load(SeqCst), 3);
    drop(observation);
    tools.oneshot(again).await.unwrap_err();
    assert_eq!(heard.load(SeqCst), 3);
}

/// V8: a listener of a layer that is on the call as well hears each event once.
#[tokio::test(start_paused = true)]
async fn a_listener_of_the_layer_and_of_the_call_hears_each_event_once() {
    let heard = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&heard);
    let listen: Arc<dyn Listen> = Arc::new(move |_: &Event<'_>| {
        count.fetch_add(1, SeqCst);
    });
    let policy = RetryPolicy::default().with_listener(Arc::clone(&listen));
    let retry = ServiceBuilder::new().layer(RetryLayer::new(policy));
    let mut observed = safe("times_out");
    let mut observation = observed.observe();
    assert!(observation.listen(&Arc::downgrade(&listen)));
    retry
        .service_fn(answer)
        .oneshot(observed)
        .await
        .unwrap_err();
    assert_eq!(heard.load(SeqCst), 3);
}

/// V8: a fifth listener has no place, and the four keep theirs. The places of listeners that have
/// left the call are free, also those of clones that were sent before.
#[tokio::test(start_paused = true)]
async fn a_call_has_four_listeners_at_a_time() {
    let metrics: Vec<_> = (0..5).map(|_| Metrics::new()).collect();
    let [a, b, c, d, e] = &metrics[..] else {
        panic!("five")
    };
    let tools = ServiceBuilder::new()
        .layer(a.layer())
        .layer(b.layer())
        .layer(c.layer())
        .layer(d.layer())
        .layer(e.layer())
        .layer(RetryLayer::default())
        .service(service_fn(answer));
    tools.oneshot(safe("times_out")).await.unwrap_err();
    let retries: Vec<_> = metrics
        .iter()
        .map(|m| stats(m, "times_out").retries)
        .collect();
    assert_eq!(retries[..4], [Some(2); 4]);

    let template = safe("times_out");
    for _ in 0..6 {
        let alone = Metrics::new();
        let tools = ServiceBuilder::new()
            .layer(alone.layer())
            .layer(RetryLayer::default());
        let tools = tools.service_fn(answer);
        tools.oneshot(template.clone()).await.unwrap_err();
        assert_eq!(stats(&alone, "times_out").retries, Some(2));
    }

    let template = safe("times_out");
    for listening in [&metrics[..1], &metrics[1..2], &metrics[2..3], &metrics[3..]] {
        let outer = ServiceBuilder::new().layer(listening[0].layer());
        let tools = outer
            .option_layer(listening.get(1).map(Metrics::layer))
            .layer(RetryLayer::default())
            .service_fn(answer);
        tools.oneshot(template.clone()).await.unwrap_err();
    }
    let retries = metrics.iter().map(|m| stats(m, "times_out").retries);
    let counted: Vec<_> = retries.collect();
    assert_eq!(counted, [Some(4), Some(4), Some(4), Some(4), Some(2)]);
}

/// V8: an observer inside of a retry layer has another listener for each attempt.
#[tokio::test(start_paused = true)]
async fn each_attempt_has_a_place_for_its_listener() {
    let policy = RetryPolicy::default().with_attempts(7).unwrap();
    let places = Arc::new(AtomicU64::new(0));
    let listened = Arc::clone(&places);
    let tools = ServiceBuilder::new().layer(RetryLayer::new(policy));
    let tools = tools.service_fn(move |mut call: ToolCall| {
        let listen: Arc<dyn Listen> = Arc::new(|_: &Event<'_>| ());
        let mut observation = call.observe();
        let listens = observation.listen(&Arc::downgrade(&listen));
        listened.fetch_add(listens.into(), SeqCst);
        answer(call)
    });
    tools.oneshot(safe("times_out")).await.unwrap_err();
    assert_eq!(places.load(SeqCst), 7);
}

/// V8: of the listeners whose calls a breaker saw, those that are gone displace no other, and the
/// ones of the last call stay.
#[tokio::test(start_paused = true)]
async fn a_breaker_remembers_the_last_listeners_that_are_left() {
    let (once, always) = (Metrics::new(), Metrics::new());
    let breaker = CircuitBreakerLayer::new();
    let tools = |metrics: &Metrics| {
        let layers = ServiceBuilder::new().layer(metrics.layer());
        layers.layer(breaker.clone()).service_fn(answer)
    };
    tools(&once).oneshot(call("search")).await.unwrap();
    for _ in 0..5 {
        let listen: Arc<dyn Listen> = Arc::new(|_: &Event<'_>| ());
        let mut observed = call("search");
        let mut observation = observed.observe();
        observation.listen(&Arc::downgrade(&listen));
        tools(&always).oneshot(observed).await.unwrap();
    }
    breaker.handle().breaker(&call("search")).force_open();
    for metrics in [&always, &once] {
        let state = metrics.snapshot().breakers[0].state;
        assert_eq!(state, Some(BreakerState::ForcedOpen));
    }
}

/// V15.
#[tokio::test(start_paused = true)]
async fn a_call_that_was_only_refused_has_no_attempts() {
    use tower_toolcall::result::ToolResultLayer;

    let metrics = Metrics::new();
    let breaker = CircuitBreakerLayer::new();
    let tools = ServiceBuilder::new()
        .layer(ToolResultLayer::new())
        .layer(metrics.layer())
        .layer(RetryLayer::default())
        .layer(breaker.clone())
        .service(service_fn(answer));
    let _ = tools.clone().oneshot(call("search")).await.unwrap();
    breaker.handle().breaker(&call("search")).force_open();
    let Ok(refused) = tools.oneshot(call("search")).await;
    assert_eq!(refused.attempts(), 0);
    assert_eq!(refused.error().unwrap().kind(), ErrorKind::CircuitOpen);
    assert_eq!(refused.error().unwrap().attempts(), None);
    let stats = stats(&metrics, "search");
    assert_eq!((stats.calls, stats.attempts), (2, 1));
    assert!(
        metrics
            .prometheus()
            .contains("tool_attempts_total{server=\"docs\",tool=\"search\"} 1\n")
    );
}

/// V15: attempts that were sent before the refusal count, by the retry layer's and by the gate's
/// number.
#[tokio::test(start_paused = true)]
async fn the_number_of_attempts_is_that_of_the_calls_that_were_sent() {
    use tower_toolcall::result::ToolResultLayer;

    let metrics = Metrics::new();
    let sent = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&sent);
    let tools = ServiceBuilder::new()
        .layer(ToolResultLayer::new())
        .layer(metrics.layer())
        .layer(RetryLayer::default())
        .layer(RateLimitBackoffLayer::new())
        .layer(
            CircuitBreakerLayer::builder()
                .with_trip(tower_toolcall::circuit_breaker::Trip::consecutive_failures(
                    2,
                ))
                .build()
                .unwrap(),
        )
        .service(service_fn(move |call: ToolCall| {
            count.fetch_add(1, SeqCst);
            answer(call)
        }));
    let Ok(result) = tools.oneshot(safe("times_out")).await;
    assert_eq!(sent.load(SeqCst), 2);
    assert_eq!(result.attempts(), 2);
    assert_eq!(result.error().unwrap().attempts(), Some(2));
    assert_eq!(stats(&metrics, "times_out").attempts, 2);
}

/// W12: a call that a layer of ours refused is not an error of the tool.
#[tokio::test(start_paused = true)]
async fn a_refused_call_is_rejected_in_the_metrics() {
    let metrics = Metrics::new();
    let breaker = CircuitBreakerLayer::new();
    let tools = ServiceBuilder::new()
        .layer(metrics.layer())
        .layer(breaker.clone())
        .service(service_fn(answer));
    tools.clone().oneshot(call("search")).await.unwrap();
    breaker.handle().breaker(&call("search")).force_open();
    tools.oneshot(call("search")).await.unwrap_err();
    let stats = stats(&metrics, "search");
    assert_eq!((stats.calls, stats.errors, stats.rejected), (2, 0, 1));
    assert_eq!(stats.breaker_rejected, Some(1));
    let line = "tool_executions_total{server=\"docs\",tool=\"search\",outcome=\"rejected\"} 1\n";
    assert!(metrics.prometheus().contains(line));
}
