//! What breakers in other systems were published to do wrong, and what ours does.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use tokio::{
    sync::Barrier,
    task::JoinSet,
    time::{advance, timeout},
};
use tokio_test::assert_ready_ok;
use tower::{Layer, ServiceExt, service_fn};
use tower_toolcall::{
    ErrorKind, Keys, ToolCall, ToolError,
    circuit_breaker::{BreakerState, CircuitBreakerLayer, Rates, Trip},
};

use super::{Rig, Step, default_rig, ok, secs, tool};
use crate::kit::call;

/// "The window does not slide": once full, or once per period, it starts from nothing, so that
/// failures on either side of the cut are never seen together. Ours sees any stretch of the last N
/// calls.
#[tokio::test(start_paused = true)]
async fn a_window_that_does_not_slide() {
    for good in 0..20 {
        let rates = Rates::over_calls(10)
            .with_failure_rate(0.6)
            .with_minimum_calls(10);
        let rig = Rig::new(CircuitBreakerLayer::builder().with_trip(rates));
        for _ in 0..10 + good {
            rig.ask(ok()).await.unwrap();
        }
        rig.fails(5).await;
        assert_eq!(rig.breaker().state(), BreakerState::Closed, "{good}");
        rig.fails(1).await;
        assert_eq!(rig.breaker().state(), BreakerState::Open, "{good}");
    }
}

/// "Half-open lets everything through": every call that comes before the first probe has ended is
/// one. Ours admits as many as were asked for, though a hundred come at once from four threads.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn unlimited_concurrent_probes() {
    let ran = Arc::new(AtomicUsize::new(0));
    let probe = ran.clone();
    let tool = service_fn(move |_: ToolCall| {
        probe.fetch_add(1, SeqCst);
        std::future::pending::<Result<(), ToolError>>()
    });
    let layer = CircuitBreakerLayer::builder()
        .with_open_for(Duration::from_nanos(1))
        .with_probes(3)
        .build()
        .unwrap();
    let breaker = layer.handle().breaker(&call());
    while !breaker.record_failure() {}
    let svc = layer.layer(tool);
    let start = Arc::new(Barrier::new(100));
    let mut calls = JoinSet::new();
    for _ in 0..100 {
        let (start, svc) = (start.clone(), svc.clone());
        calls.spawn(async move {
            start.wait().await;
            svc.oneshot(call()).await
        });
    }
    // Three of them never end.
    for _ in 0..97 {
        let error = calls.join_next().await.unwrap().unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::CircuitOpen);
    }
    assert_eq!((ran.load(SeqCst), breaker.snapshot().probes), (3, 3));
    calls.shutdown().await;
    assert_eq!(breaker.snapshot().probes, 0);
}

/// "A late success closes the breaker": one that was sent before the outage is taken for a probe's.
/// Ours counts it as stale, in every state, and waits for a real probe.
#[tokio::test(start_paused = true)]
async fn a_stale_success_closes() {
    let rig = default_rig();
    let mut old = [30, 70, 100].map(|n| rig.starts(ok().after(secs(n)), call()));
    rig.fails(5).await;
    advance(secs(30)).await;
    assert_ready_ok!(old[0].poll());
    assert_eq!(rig.breaker().state(), BreakerState::Open);
    advance(secs(40)).await;
    // Before the first probe.
    assert_ready_ok!(old[1].poll());
    assert_ne!(rig.breaker().state(), BreakerState::Closed);
    let _probe = rig.hangs();
    advance(secs(30)).await;
    assert_ready_ok!(old[2].poll());
    let after = rig.breaker().snapshot();
    assert_eq!(
        (after.state, after.stale_total),
        (BreakerState::HalfOpen, 3)
    );
}

/// "A lost probe blocks for ever": its caller is gone and nobody gives its place back. Ours has it
/// back when the future is dropped, and when it is not, after its lease.
#[tokio::test(start_paused = true)]
async fn a_lost_probe_blocks_for_ever() {
    let rig = default_rig();
    rig.half_opens().await;
    let lost = tokio::spawn(rig.svc.clone().oneshot({
        rig.tool.set_then(Step::hang());
        call()
    }));
    tokio::task::yield_now().await;
    assert!(!rig.reaches(ok()).await);
    lost.abort();
    assert!(lost.await.unwrap_err().is_cancelled());
    // Nor does one whose destructor never runs.
    std::mem::forget(rig.hangs());
    advance(secs(120)).await;
    rig.ask(ok()).await.unwrap();
    assert_eq!(rig.breaker().state(), BreakerState::Closed);
}

/// "80 % timeouts never open": calls that the caller's timeout drops are not seen, so the rate is
/// that of the 20 % that succeed. Ours counts them as failures.
#[tokio::test(start_paused = true)]
async fn eighty_percent_timeouts_never_open() {
    let limit = secs(5);
    let rates = Rates::over_calls(20)
        .with_failure_rate(0.5)
        .with_minimum_calls(20);
    for trip in [rates.into(), Trip::total_failures_within(5, secs(300))] {
        let rig = Rig::new(CircuitBreakerLayer::builder().with_trip(trip));
        for n in 0..20 {
            rig.tool
                .set_then(if n % 5 == 0 { ok() } else { Step::hang() });
            let _ = timeout(limit, rig.send(call().with_timeout(limit))).await;
        }
        assert_eq!(rig.breaker().snapshot().opened_total, 1);
    }
}

/// "The wall clock was stepped back, and the breaker stayed open for hours." Ours knows tokio's
/// monotonic clock only: where that stands still, no time passes, and where it is advanced, the
/// period is over.
#[tokio::test(start_paused = true)]
async fn the_wall_clock_stepped_back() {
    let rig = default_rig();
    rig.fails(5).await;
    assert_eq!(rig.breaker().snapshot().retry_after, Some(secs(60)));
    advance(secs(60)).await;
    assert!(!rig.breaker().is_open());
}

/// "Ignored errors inflate the probe count": each gives back a place that it did not take, or is
/// counted as a probe that went well. Ours gives back the one place it had.
#[tokio::test(start_paused = true)]
async fn ignored_errors_inflate_the_probe_count() {
    let rig = Rig::new(CircuitBreakerLayer::builder().with_probes(2));
    rig.half_opens().await;
    let first = rig.hangs();
    for _ in 0..3 {
        rig.ask(Step::fail(ErrorKind::Denied)).await.unwrap_err();
    }
    let _second = rig.hangs();
    assert!(!rig.reaches(ok()).await);
    drop(first);
    let _third = rig.hangs();
    assert!(!rig.reaches(ok()).await);
    assert_eq!(rig.breaker().state(), BreakerState::HalfOpen);
}

/// "The map of keys grows for ever": a model invents a name per call. Ours keeps as many as it was
/// told to, and what protects a tool.
#[tokio::test(start_paused = true)]
async fn a_growing_key_map() {
    let rig = Rig::new(CircuitBreakerLayer::builder().with_keys(Keys::default().at_most(64)));
    rig.fails(5).await;
    for n in 0..5_000 {
        let invented = tool(&format!("{n}"));
        rig.tool.set_then(Step::fail(ErrorKind::NotFound));
        rig.send(invented).await.unwrap_err();
        assert!(rig.handle.len() <= 64);
    }
    assert_eq!(rig.handle.breakers().len(), rig.handle.len());
    assert!(!rig.reaches(ok()).await);
}
