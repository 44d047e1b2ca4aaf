//! A layer that is switched off is not there (N4).

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::SeqCst},
};

use tokio::time::Instant;
use tower::{Layer, ServiceExt, service_fn};
use tower_toolcall::{
    Claim, ErrorKind, Event, ToolCall, ToolError,
    health::Availability,
    settings::{Settings, StackLayer},
};

use crate::kit::{Flaky, call, changed, run, safe, secs, stack};

fn off(s: &mut Settings) {
    s.retry.enabled = false;
    s.rate_limit.enabled = false;
    s.circuit_breaker.enabled = false;
}

/// A stack, and how many events its layers have told of.
fn heard(settings: &Settings) -> (StackLayer, Arc<AtomicUsize>) {
    let count = Arc::new(AtomicUsize::new(0));
    let events = count.clone();
    let listen = move |_: &Event<'_>| {
        events.fetch_add(1, SeqCst);
    };
    (
        settings.stack().with_listener(listen).build().unwrap(),
        count,
    )
}

#[tokio::test(start_paused = true)]
async fn without_retry_a_call_is_sent_once_and_nothing_is_told() {
    let (layer, events) = heard(&changed(|s| s.retry.enabled = false));
    let tool = Flaky::new(ErrorKind::Upstream, 1);
    assert_eq!(run(&layer, &tool, safe()).await, Err(ErrorKind::Upstream));
    assert_eq!((tool.calls(), events.load(SeqCst)), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn without_a_breaker_a_dead_tool_is_called_each_time() {
    let (layer, events) = heard(&changed(off));
    let tool = Flaky::new(ErrorKind::Upstream, 100);
    for _ in 0..20 {
        assert_eq!(run(&layer, &tool, call()).await, Err(ErrorKind::Upstream));
    }
    assert_eq!((tool.calls(), events.load(SeqCst)), (20, 0));
    assert!(layer.circuit_breaker().is_empty());
}

#[tokio::test(start_paused = true)]
async fn without_rate_limit_and_retry_nobody_waits() {
    let (layer, events) = heard(&changed(off));
    let tool = Flaky::new(ErrorKind::RateLimited, 1);
    let start = Instant::now();
    assert_eq!(
        run(&layer, &tool, call()).await,
        Err(ErrorKind::RateLimited)
    );
    assert_eq!(run(&layer, &tool, call()).await, Ok("done"));
    assert_eq!((start.elapsed(), events.load(SeqCst)), (secs(0), 0));
}

#[tokio::test(start_paused = true)]
async fn without_rate_limit_the_retry_layer_waits_for_itself() {
    let layer = stack(&changed(|s| s.rate_limit.enabled = false));
    let tool = Flaky::new(ErrorKind::RateLimited, 1);
    let start = Instant::now();
    assert_eq!(run(&layer, &tool, call()).await, Ok("done"));
    assert!(start.elapsed() >= secs(30));
}

#[tokio::test(start_paused = true)]
async fn without_retry_the_rate_limit_layer_repeats_a_limited_call() {
    let layer = stack(&changed(|s| s.retry.enabled = false));
    let tool = Flaky::new(ErrorKind::RateLimited, 1);
    assert_eq!(run(&layer, &tool, call()).await, Ok("done"));
    assert_eq!(tool.calls(), 2);
}

/// Trap 13: what is off claims nothing, so that a retrier outside does its work.
#[tokio::test]
async fn what_is_off_claims_nothing() {
    let tool = service_fn(|call: ToolCall| async move {
        Ok::<_, ToolError>([Claim::Retry, Claim::RateLimit].map(|claim| call.is_claimed(claim)))
    });
    let claims = |settings: Settings| stack(&settings).layer(tool).oneshot(call());
    assert_eq!(claims(changed(off)).await.unwrap(), [false, false]);
    assert!(claims(Settings::default()).await.unwrap()[0]);
}

/// X6: off by default; by settings the stack refuses, and the registry can be looked at.
#[tokio::test(start_paused = true)]
async fn with_health_a_server_that_is_not_there_is_not_called() {
    let tool = Flaky::new(ErrorKind::ConnectionFailed, 3);
    let layer = stack(&Settings::default());
    let _ = run(&layer, &tool, call()).await;
    assert!(layer.health().snapshot().is_empty());

    let (layer, events) = heard(&changed(|s| {
        off(s);
        s.health.enabled = true;
        s.health.threshold = 2;
        s.health.refusal = true;
    }));
    for expected in [1, 2, 2] {
        assert_eq!(
            run(&layer, &tool, call()).await,
            Err(ErrorKind::ConnectionFailed)
        );
        assert_eq!(events.load(SeqCst), expected);
    }
    assert_eq!(tool.calls(), 3);
    let docs = layer.health().server("docs").unwrap();
    assert_eq!(docs.state, Availability::Unavailable);
    tokio::time::advance(secs(30)).await;
    assert_eq!(run(&layer, &tool, call()).await, Ok("done"));
}
