//! A layer that is switched off is not there (N4).

use tokio::time::Instant;
use tower::{Layer, ServiceExt, service_fn};
use tower_toolcall::{
    Claim, ErrorKind, ToolCall, ToolError,
    flow::CallExt,
    health::Availability,
    settings::{KeyBy, Settings, StackLayer},
};
use tower_toolcall_test::{Events, Script, Step};

use crate::kit::{call, changed, flaky, run, safe, secs, stack};

fn off(s: &mut Settings) {
    s.retry.enabled = false;
    s.rate_limit.enabled = false;
    s.circuit_breaker.enabled = false;
}

/// A stack, and the events that its layers have told of.
fn heard(settings: &Settings) -> (StackLayer, Events) {
    let events = Events::new();
    let stack = settings.stack().with_listener(events.clone());
    (stack.build().unwrap(), events)
}

#[tokio::test(start_paused = true)]
async fn without_retry_a_call_is_sent_once_and_nothing_is_told() {
    let (layer, events) = heard(&changed(|s| s.retry.enabled = false));
    let tool = flaky(ErrorKind::Upstream, 1);
    assert_eq!(run(&layer, &tool, safe()).await, Err(ErrorKind::Upstream));
    assert_eq!((tool.count(), events.names().len()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn without_a_breaker_a_dead_tool_is_called_each_time() {
    let (layer, events) = heard(&changed(off));
    let tool = flaky(ErrorKind::Upstream, 100);
    for _ in 0..20 {
        assert_eq!(run(&layer, &tool, call()).await, Err(ErrorKind::Upstream));
    }
    assert_eq!((tool.count(), events.names().len()), (20, 0));
    assert!(layer.circuit_breaker().is_empty());
}

#[tokio::test(start_paused = true)]
async fn without_rate_limit_and_retry_nobody_waits() {
    let (layer, events) = heard(&changed(off));
    let tool = flaky(ErrorKind::RateLimited, 1);
    let start = Instant::now();
    assert_eq!(
        run(&layer, &tool, call()).await,
        Err(ErrorKind::RateLimited)
    );
    assert_eq!(run(&layer, &tool, call()).await, Ok("done"));
    assert_eq!((start.elapsed(), events.names().len()), (secs(0), 0));
}

#[tokio::test(start_paused = true)]
async fn without_rate_limit_the_retry_layer_waits_for_itself() {
    let layer = stack(&changed(|s| s.rate_limit.enabled = false));
    let tool = flaky(ErrorKind::RateLimited, 1);
    let start = Instant::now();
    assert_eq!(run(&layer, &tool, call()).await, Ok("done"));
    assert!(start.elapsed() >= secs(30));
}

#[tokio::test(start_paused = true)]
async fn without_retry_the_rate_limit_layer_repeats_a_limited_call() {
    let layer = stack(&changed(|s| s.retry.enabled = false));
    let tool = flaky(ErrorKind::RateLimited, 1);
    assert_eq!(run(&layer, &tool, call()).await, Ok("done"));
    assert_eq!(tool.count(), 2);
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

/// Off by default; by settings a call that fails again and again is refused, with schemas and
/// without.
#[tokio::test(start_paused = true)]
async fn with_a_repeat_guard_a_model_that_loops_is_stopped() {
    for (enabled, sent) in [(false, 10), (true, 3)] {
        let (layer, events) = heard(&changed(|s| {
            off(s);
            s.repeat_guard.enabled = enabled;
        }));
        let tool = flaky(ErrorKind::Failed, 10);
        for n in 0..10 {
            let kind = if n < sent {
                ErrorKind::Failed
            } else {
                ErrorKind::InvalidInput
            };
            let call = call().with_session_id("s1");
            assert_eq!(run(&layer, &tool, call).await, Err(kind));
        }
        assert_eq!((tool.count(), events.names().len()), (sent, 0));
    }
}

/// X6: off by default; by settings the stack refuses, and the registry can be looked at.
#[tokio::test(start_paused = true)]
async fn with_health_a_server_that_is_not_there_is_not_called() {
    let tool = flaky(ErrorKind::ConnectionFailed, 3);
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
        assert_eq!(events.names().len(), expected);
    }
    assert_eq!(tool.count(), 3);
    let docs = layer.health().server("docs").unwrap();
    assert_eq!(docs.state, Availability::Unavailable);
    tokio::time::advance(secs(30)).await;
    assert_eq!(run(&layer, &tool, call()).await, Ok("done"));
}

/// Off by default. Outside of deadline and retry: a call costs once, and its wait does not use up
/// its budget.
#[tokio::test(start_paused = true)]
async fn with_tokens_there_is_a_quota_for_each_agent() {
    assert!(stack(&Settings::default()).quota().is_none());
    let layer = stack(&changed(|s| {
        s.quota.units = Some(1);
        s.quota.period = secs(20);
        s.quota.key = KeyBy::Agent;
        s.deadline.budget = Some(secs(10));
    }));
    let (handle, tool) = (layer.quota().unwrap(), flaky(ErrorKind::Upstream, 1));
    let of = |agent: &'static str| safe().with_agent_id(agent);
    let start = Instant::now();
    assert_eq!(run(&layer, &tool, of("a")).await, Ok("done"));
    assert_eq!(
        (
            tool.count(),
            handle.remaining(&of("a")),
            handle.remaining(&of("b"))
        ),
        (2, 0, 1)
    );
    assert_eq!(run(&layer, &tool, of("b")).await, Ok("done"));
    assert!(start.elapsed() < secs(3));
    assert_eq!(run(&layer, &tool, of("a")).await, Ok("done"));
    assert_eq!(start.elapsed().as_secs(), 20);
    // Two wait as long as they may, and a third does not.
    let calls = [of("a"), of("a"), of("a")]
        .map(|call| tokio::spawn(layer.layer(tool.clone()).oneshot(call)));
    let mut refused = 0;
    for call in calls {
        refused += usize::from(
            call.await
                .unwrap()
                .is_err_and(|e| e.kind() == ErrorKind::RateLimited),
        );
    }
    assert_eq!(refused, 2);
}

/// Off by default. Below retry and rate limit: no delay takes a place.
#[tokio::test(start_paused = true)]
async fn with_a_maximum_so_many_calls_run_at_a_time() {
    assert!(stack(&Settings::default()).concurrency_limit().is_none());
    let layer = stack(&changed(|s| {
        s.concurrency.max = Some(1);
        s.concurrency.max_queue = 1;
    }));
    let handle = layer.concurrency_limit().unwrap();
    let tool = Script::new([Step::fail(ErrorKind::Upstream)]).then(Step::ok("done").after(secs(5)));
    let repeated = tokio::spawn(layer.layer(tool.clone()).oneshot(safe()));
    tokio::time::sleep(secs(1) / 2).await;
    assert_eq!((tool.count(), handle.running(&call())), (1, 0));
    let [a, b] = [call(), call()].map(|call| tokio::spawn(layer.layer(tool.clone()).oneshot(call)));
    tokio::time::sleep(secs(1) / 10).await;
    assert_eq!((handle.running(&call()), handle.waiting(&call())), (1, 1));
    assert_eq!(run(&layer, &tool, call()).await, Err(ErrorKind::Overloaded));
    assert_eq!(a.await.unwrap().unwrap(), "done");
    assert_eq!(b.await.unwrap().unwrap(), "done");
    // Its second attempt found the queue full: what the tool said before stands.
    assert_eq!(
        repeated.await.unwrap().unwrap_err().kind(),
        ErrorKind::Upstream
    );
    assert_eq!(tool.most_in_flight(), 1);
}
