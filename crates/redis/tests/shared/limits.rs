//! Rate limits that one process has met, for all.

use tokio::time::{Instant, sleep};
use tower::{Layer, ServiceExt, service_fn};
use tower_toolcall::{
    ErrorKind, Key, ToolCall, ToolError, circuit_breaker::CircuitBreakerLayer,
    rate_limit::RateLimitBackoffLayer,
};
use tower_toolcall_redis::{MemoryStore, SharedState};

use super::{Process, fleet, secs, settle, store::Way};

fn call() -> ToolCall {
    ToolCall::new("search").with_server("s")
}

/// A call that meets a limit of 60 s, as this error says.
async fn meet(layer: &RateLimitBackoffLayer, error: ToolError) {
    let tool = service_fn(move |_: ToolCall| {
        let error = error.clone();
        async move { Err::<(), _>(error) }
    });
    let refused = layer
        .layer(tool)
        .oneshot(call().with_deadline(Instant::now() + secs(1)));
    refused.await.unwrap_err();
}

fn by_text() -> ToolError {
    ToolError::from_box("429 Too Many Requests: try again in 60 seconds".into())
}

impl Process {
    async fn meets(&self, error: ToolError) {
        meet(&self.layer, error).await;
    }

    fn cools(&self) -> Option<std::time::Duration> {
        self.limits.remaining(&call())
    }
}

fn by_status() -> ToolError {
    ToolError::from_status(http::StatusCode::TOO_MANY_REQUESTS, "busy").with_retry_after(secs(60))
}

/// L3, C8: a limit that the server itself has told one process.
#[tokio::test(start_paused = true)]
async fn a_limit_that_one_process_meets_holds_all_back() {
    let [a, b, c] = fleet().await;
    a.meets(by_status()).await;
    settle().await;
    for process in [&b, &c] {
        let left = process.cools().unwrap();
        assert!(left > secs(59) && left <= secs(61), "{left:?}");
    }
    assert_eq!(b.limits.cooldowns().len(), 1);
    // What was taken over is not told again.
    sleep(secs(3)).await;
    assert_eq!(b.shared.snapshot().told_total, 0);
    assert_eq!(a.shared.snapshot().told_total, 1);
}

/// L3, C8: a text proves nothing to others.
#[tokio::test(start_paused = true)]
async fn a_limit_that_is_known_by_text_is_not_shared() {
    let [a, b] = fleet().await;
    a.meets(by_text()).await;
    settle().await;
    assert_eq!([a.cools(), b.cools()], [None, None]);
    // Nor where it holds back others of this process.
    let layer = RateLimitBackoffLayer::builder()
        .with_text_limits()
        .build()
        .unwrap();
    let limits = layer.handle();
    let shared = SharedState::new(a.link.another()).rate_limits("limits", &limits);
    let handle = shared.as_ref().unwrap().handle();
    tokio::spawn(shared.unwrap().run());
    let c = Process {
        limits,
        layer,
        shared: handle,
        ..a
    };
    c.meets(by_text()).await;
    settle().await;
    assert!(c.cools().is_some());
    assert_eq!(b.cools(), None);
}

/// L3, C8: a person who ends a cooldown ends it for all; the next limit is one again.
#[tokio::test(start_paused = true)]
async fn a_cooldown_that_a_person_ends_or_begins_does_so_everywhere() {
    let [a, b] = fleet().await;
    a.meets(by_status()).await;
    settle().await;
    b.limits.clear(&call());
    settle().await;
    assert_eq!([a.cools(), b.cools()], [None, None]);
    // Also if the store begins again: it is not told any more.
    a.link.loses_everything();
    sleep(secs(3)).await;
    assert_eq!([a.cools(), b.cools()], [None, None]);
    b.limits.cool(&call(), secs(30));
    settle().await;
    assert!(a.cools().is_some());
}

/// C8: what one process knows by text, and tells no other, outlasts a shorter limit of theirs.
#[tokio::test(start_paused = true)]
async fn a_limit_after_a_clearing_does_not_shorten_another() {
    let [a] = fleet().await;
    let layer = RateLimitBackoffLayer::builder()
        .with_text_limits()
        .build()
        .unwrap();
    let limits = layer.handle();
    let shared = SharedState::new(a.link.another()).rate_limits("limits", &limits);
    tokio::spawn(shared.unwrap().run());
    a.meets(by_status()).await;
    settle().await;
    a.limits.clear(&call());
    settle().await;
    assert_eq!(limits.remaining(&call()), None);
    meet(&layer, by_text()).await;
    a.limits.cool(&call(), secs(10));
    settle().await;
    let left = limits.remaining(&call()).unwrap();
    assert!(left > secs(20), "{left:?}");
}

/// C8: more than a subscriber is given to keep.
#[tokio::test(start_paused = true)]
async fn a_thousand_cooldowns_that_end_at_once_end_everywhere() {
    let [a, b] = fleet().await;
    let tool = |n: usize| ToolCall::new(format!("tool{n}")).with_server("s");
    (0..1_000).for_each(|n| a.limits.cool(&tool(n), secs(60)));
    sleep(secs(2)).await;
    assert_eq!(b.limits.cooldowns().len(), 1_000);
    b.limits.clear_all();
    sleep(secs(2)).await;
    assert!(a.limits.cooldowns().is_empty());
}

/// C8: what ends nothing is told to nobody, and what is told is told again by one of the fleet.
#[tokio::test(start_paused = true)]
async fn a_clearing_is_told_once_and_only_if_it_has_ended_something() {
    let store = super::Link::new();
    let process = |_| {
        let breakers = CircuitBreakerLayer::new();
        Process::with_resync(store.another(), &breakers, secs(60))
    };
    let fleet: [Process; 4] = std::array::from_fn(process);
    let told = || -> u64 {
        let told = fleet.iter().map(|p| p.shared.snapshot().told_total);
        told.sum()
    };
    fleet[0].limits.cool(&call(), secs(10));
    sleep(secs(60)).await;
    fleet[0].calls("other", true);
    let before = told();
    fleet[0].limits.clear(&ToolCall::new("unknown"));
    fleet[0].limits.clear_all();
    sleep(secs(2)).await;
    // The gate is in its return still.
    assert_eq!(told(), before + 1);
    fleet[0].limits.clear_all();
    sleep(secs(2)).await;
    assert_eq!(told(), before + 1);
    for day in 1..=5 {
        sleep(secs(24 * 3600)).await;
        let most = before + 1 + 3 * day;
        assert!(told() <= most, "{} after {day} days", told() - before);
    }
}

/// C8: a limit that is met in the moment after a person's clearing.
#[tokio::test(start_paused = true)]
async fn a_clearing_is_known_although_a_cooldown_follows_it_at_once() {
    let [a, b] = fleet().await;
    a.limits.cool(&call(), secs(250));
    settle().await;
    b.limits.clear(&call());
    b.limits.cool(&call(), secs(5));
    settle().await;
    for process in [&a, &b] {
        let left = process.cools().unwrap();
        assert!(left <= secs(5), "{left:?}");
    }
}

/// C8: however many have met it, the longest holds.
#[tokio::test(start_paused = true)]
async fn a_longer_limit_is_taken_over_however_many_have_told_one() {
    let fleet: [Process; 80] = fleet().await;
    for process in &fleet[..79] {
        process.limits.cool(&call(), secs(30));
    }
    settle().await;
    fleet[79].limits.cool(&call(), secs(200));
    settle().await;
    for process in &fleet {
        assert!(process.cools().unwrap() > secs(190));
        assert_eq!(process.shared.snapshot().dropped_total, 0);
    }
}

/// C8.
#[tokio::test(start_paused = true)]
async fn while_the_store_is_away_limits_are_each_processes_own() {
    let [a, b] = fleet().await;
    b.link.is(Way::Cut);
    a.meets(by_status()).await;
    sleep(secs(20)).await;
    assert_eq!(b.cools(), None);
    b.link.is(Way::Good);
    sleep(secs(2)).await;
    // What is left of it.
    let left = b.cools().unwrap();
    assert!(left > secs(36) && left <= secs(41), "{left:?}");
}

/// L3, C8: processes come back one by one, as the calls of one do.
#[tokio::test(start_paused = true)]
async fn a_fleet_returns_as_slowly_as_one_process() {
    let processes: [Process; 8] = fleet().await;
    processes[0].meets(by_status()).await;
    settle().await;
    sleep(secs(61)).await;
    let begun = Instant::now();
    let sent = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let mut calls = tokio::task::JoinSet::new();
    for process in &processes {
        for _ in 0..20 {
            let sent = std::sync::Arc::clone(&sent);
            let tool = service_fn(move |_: ToolCall| {
                sent.lock().unwrap().push(begun.elapsed());
                async { Ok::<_, ToolError>(()) }
            });
            calls.spawn(process.layer.layer(tool).oneshot(call()));
        }
    }
    while let Some(done) = calls.join_next().await {
        done.unwrap().unwrap();
    }
    let sent = sent.lock().unwrap();
    assert_eq!(sent.len(), 160);
    // One process alone would send 1 in the first second, 2 in the next, then 4. Places are drawn,
    // so some are taken twice.
    let until = |n| sent.iter().filter(|at| **at < secs(n)).count();
    assert!(until(1) <= 8, "{}", until(1));
    assert!(until(3) <= 24, "{}", until(3));
    assert!(until(9) == 160, "{}", until(9));
}

/// C8: without its mirror a process returns alone.
#[tokio::test(start_paused = true)]
async fn who_goes_on_alone_has_all_turns() {
    let [a, b] = fleet().await;
    for process in [a, b] {
        let (layer, limits) = (process.layer.clone(), process.limits.clone());
        process.killed();
        settle().await;
        limits.cool(&call(), secs(10));
        sleep(secs(10)).await;
        let begun = Instant::now();
        let tool = service_fn(|_: ToolCall| async { Ok::<_, ToolError>(()) });
        layer.layer(tool).oneshot(call()).await.unwrap();
        assert!(begun.elapsed() < secs(1));
    }
}

/// C8.
#[tokio::test]
async fn keys_of_a_function_are_shared_by_an_explicit_word_only() {
    let layer = RateLimitBackoffLayer::builder()
        .with_keys(Key::by(|call| call.tool()))
        .build()
        .unwrap();
    let new = || SharedState::new(MemoryStore::new());
    let error = new().rate_limits("limits", &layer.handle()).unwrap_err();
    assert_eq!(error.field(), "layer");
    let shared = new().public_rate_limits("limits", &layer.handle()).unwrap();
    let twice = shared.public_rate_limits("limits", &layer.handle());
    assert_eq!(twice.unwrap_err().field(), "layer");
}

/// C8: an error is no limit because another process says so.
#[tokio::test(start_paused = true)]
async fn other_errors_hold_nobody_back() {
    let [a, b] = fleet().await;
    a.meets(ToolError::new(ErrorKind::Upstream, "down")).await;
    settle().await;
    assert_eq!([a.cools(), b.cools()], [None, None]);
}
