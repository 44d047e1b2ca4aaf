use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    time::Duration,
};

use expect_test::expect;
use tokio::time::{Instant, advance};
use tokio_test::{assert_pending, assert_ready, assert_ready_err, assert_ready_ok, task};
use tower::{Layer, Service, ServiceBuilder, ServiceExt};
use tower_test::mock;
use tower_toolcall::{
    ErrorKind, Execution, Key, Keys, ToolCall, ToolError,
    deadline::DeadlineLayer,
    quota::{QUOTA_IMPOSSIBLE, Quota, QuotaBuilder, QuotaLayer, QuotaService},
    retry::{RetryLayer, RetryPolicy},
};
use tower_toolcall_test::{Events, Script, Step};

use crate::kit::{self, Probe, secs};

fn call() -> ToolCall {
    kit::call()
}

fn named(name: impl AsRef<str>) -> ToolCall {
    ToolCall::new(name.as_ref())
}

/// One token per second, and so many at once.
fn quota(burst: u32) -> Quota {
    Quota::per_minute(60).unwrap().with_burst(burst).unwrap()
}

fn builder(burst: u32) -> QuotaBuilder {
    QuotaLayer::builder(quota(burst))
}

/// The layer that refuses instead of waiting.
fn strict(builder: QuotaBuilder) -> QuotaLayer {
    builder.with_fail_fast().build().unwrap()
}

fn answers() -> Probe {
    Script::always(kit::answers())
}

/// A call that was polled once, and waits.
fn begin<S>(
    svc: &QuotaService<S>,
    call: ToolCall,
) -> task::Spawn<<QuotaService<S> as Service<ToolCall>>::Future>
where
    S: Service<ToolCall, Error: Into<ToolError>> + Clone,
{
    let mut svc = svc.clone();
    assert!(task::spawn(svc.ready()).poll().is_ready());
    let mut response = task::spawn(svc.call(call));
    assert!(response.poll().is_pending());
    response
}

#[tokio::test(start_paused = true)]
async fn a_burst_passes_and_the_others_come_at_the_rate() {
    let tool = answers();
    let svc = QuotaLayer::new(quota(3)).layer(tool.clone());
    let start = Instant::now();
    let calls: Vec<_> = (0..6)
        .map(|_| tokio::spawn(svc.clone().oneshot(call())))
        .collect();
    for call in calls {
        call.await.unwrap().unwrap();
    }
    let times = tool.times().into_iter();
    let at: Vec<_> = times.map(|at| (at - start).as_secs()).collect();
    assert_eq!(at, [0, 0, 0, 1, 2, 3]);
}

#[tokio::test(start_paused = true)]
async fn by_default_a_whole_period_passes_at_once() {
    let layer = QuotaLayer::new(Quota::per_hour(100).unwrap());
    let svc = layer.layer(answers());
    for left in (0..100).rev() {
        svc.clone().oneshot(call()).await.unwrap();
        assert_eq!(layer.handle().remaining(&call()), left);
    }
    assert!(svc.oneshot(call()).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_key_has_a_bucket_of_its_own() {
    let layer = strict(builder(1));
    let svc = layer.layer(answers());
    for call in [call(), named("weather"), call().with_server("other")] {
        svc.clone().oneshot(call.clone()).await.unwrap();
        assert_eq!(layer.handle().remaining(&call), 0);
        assert!(svc.clone().oneshot(call).await.is_err());
    }
    assert_eq!(layer.handle().remaining(&named("unused")), 1);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_tells_the_exact_time() {
    let svc = strict(builder(1)).layer(answers());
    svc.clone().oneshot(call()).await.unwrap();
    advance(Duration::from_millis(250)).await;
    let error = svc.clone().oneshot(call()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::RateLimited);
    assert_eq!(error.execution(), Execution::NotStarted);
    assert!(error.is_own_refusal() && error.is_retryable());
    let names = (error.tool(), error.server(), error.call_id());
    assert_eq!(names, (Some("search"), Some("docs"), Some("c1")));
    assert_eq!(error.retry_after(), Some(Duration::from_millis(750)));
    // Who comes back then passes, and not a millisecond earlier.
    advance(Duration::from_millis(749)).await;
    svc.clone().oneshot(call()).await.unwrap_err();
    advance(Duration::from_millis(1)).await;
    svc.oneshot(call()).await.unwrap();
}

/// A refused call has taken nothing: the next one is not later for it.
#[tokio::test(start_paused = true)]
async fn refusals_cost_nothing() {
    let svc = strict(builder(1)).layer(answers());
    svc.clone().oneshot(call()).await.unwrap();
    for _ in 0..1000 {
        let error = svc.clone().oneshot(call()).await.unwrap_err();
        assert_eq!(error.retry_after(), Some(secs(1)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_would_be_too_long_is_not_begun() {
    let layer = builder(1).with_max_wait(secs(2)).build().unwrap();
    let svc = layer.layer(answers());
    svc.clone().oneshot(call()).await.unwrap();
    let _waiting = [begin(&svc, call()), begin(&svc, call())];
    let start = Instant::now();
    let error = svc.oneshot(call()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::RateLimited);
    assert_eq!(error.retry_after(), Some(secs(3)));
    assert_eq!(start.elapsed(), secs(0));
}

#[tokio::test(start_paused = true)]
async fn by_default_a_call_waits_for_thirty_seconds() {
    let svc = QuotaLayer::new(quota(1)).layer(answers());
    svc.clone().oneshot(call()).await.unwrap();
    let _waiting: Vec<_> = (0..30).map(|_| begin(&svc, call())).collect();
    let error = svc.oneshot(call()).await.unwrap_err();
    assert_eq!(error.retry_after(), Some(secs(31)));
}

/// Nothing is sent at the deadline itself.
#[tokio::test(start_paused = true)]
async fn a_wait_that_does_not_end_before_the_deadline_is_not_begun() {
    let tool = answers();
    let svc = QuotaLayer::new(quota(1)).layer(tool.clone());
    svc.clone().oneshot(call()).await.unwrap();
    let start = Instant::now();
    let within = |left| {
        svc.clone()
            .oneshot(call().with_deadline(start + secs(left)))
    };
    let error = within(1).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::RateLimited);
    assert_eq!(error.retry_after(), Some(secs(1)));
    assert_eq!(start.elapsed(), secs(0));
    let late = within(0).await.unwrap_err();
    assert_eq!(late.kind(), ErrorKind::DeadlineExceeded);
    assert_eq!(late.execution(), Execution::NotStarted);
    within(2).await.unwrap();
    assert_eq!((start.elapsed().as_secs(), tool.count()), (1, 2));
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_is_given_back_leaves_the_turns_of_others() {
    let svc = QuotaLayer::new(quota(1)).layer(answers());
    svc.clone().oneshot(call()).await.unwrap();
    let start = Instant::now();
    let gives_up = begin(&svc, call());
    let waits = begin(&svc, call());
    drop(gives_up);
    waits.await.unwrap();
    assert_eq!(start.elapsed().as_secs(), 2);
    svc.oneshot(call()).await.unwrap();
    assert_eq!(start.elapsed().as_secs(), 3);
}

/// A caller that queues and gives up takes nothing from others.
#[tokio::test(start_paused = true)]
async fn turns_that_are_given_back_before_others_are_for_the_next_calls() {
    let svc = QuotaLayer::new(quota(1)).layer(answers());
    svc.clone().oneshot(call()).await.unwrap();
    let start = Instant::now();
    let give_up: Vec<_> = (0..29).map(|_| begin(&svc, call())).collect();
    let mut waits = begin(&svc, call());
    drop(give_up);
    for seconds in 1..30 {
        svc.clone().oneshot(call()).await.unwrap();
        assert_eq!(start.elapsed().as_secs(), seconds);
    }
    assert_pending!(waits.poll());
    waits.await.unwrap();
    assert_eq!(start.elapsed().as_secs(), 30);
}

/// No call is ever in the place of another: however many give up, no more pass than are granted.
#[tokio::test(start_paused = true)]
async fn callers_who_give_up_get_no_more_than_is_granted() {
    let tool = answers();
    let svc = QuotaLayer::new(quota(2)).layer(tool.clone());
    let start = Instant::now();
    for round in 0..50 {
        let calls: Vec<_> = (0..5)
            .map(|n| {
                let patience = Duration::from_millis(300 * (n + round % 7));
                tokio::spawn(tokio::time::timeout(patience, svc.clone().oneshot(call())))
            })
            .collect();
        for call in calls {
            let _ = call.await.unwrap();
        }
    }
    let times = tool.times();
    for (i, from) in times.iter().enumerate() {
        for (n, to) in times[i..].iter().enumerate() {
            // The timer has whole milliseconds.
            let span = (*to - *from).as_secs_f64() + 0.001;
            assert!(
                (n + 1) as f64 <= 2.0 + span,
                "{:?}..{:?}",
                *from - start,
                *to - start
            );
        }
    }
    // And, as callers always come, not much less.
    assert!(
        2 * times.len() as u64 >= start.elapsed().as_secs(),
        "{} in {:?}",
        times.len(),
        start.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn a_call_costs_what_its_function_says() {
    let costs = builder(10).with_cost(|call| match call.tool() {
        "dear" => 4,
        "free" => 0,
        "never" => 11,
        _ => 1,
    });
    let layer = strict(costs.with_keys(Key::by(|_| "")));
    let (handle, svc) = (layer.handle(), layer.layer(answers()));
    for (tool, left) in [("dear", 6), ("cheap", 5), ("free", 5), ("dear", 1)] {
        svc.clone().oneshot(named(tool)).await.unwrap();
        assert_eq!(handle.remaining(&call()), left, "{tool}");
    }
    let error = svc.clone().oneshot(named("dear")).await.unwrap_err();
    assert_eq!(error.retry_after(), Some(secs(3)));
    svc.clone().oneshot(named("cheap")).await.unwrap();
    // No token is left, and it needs none.
    svc.clone().oneshot(named("free")).await.unwrap();
    // No wait would help this one.
    let error = svc.oneshot(named("never")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert_eq!(error.execution(), Execution::NotStarted);
    // P10: nothing has denied it.
    assert_eq!(error.code(), QUOTA_IMPOSSIBLE);
    expect!["This call of tool 'never' costs more than its quota ever allows. Ask for less, or continue without it."].assert_eq(&error.model_message());
    assert!(error.is_own_refusal() && !error.is_retryable() && error.retry_after().is_none());
    expect!["the call costs 11 units, and the quota has at most 10"].assert_eq(error.message());
}

#[tokio::test(start_paused = true)]
async fn a_tool_has_a_quota_and_a_cost_of_its_own() {
    let of_tools = builder(5).with_tool("import", quota(2));
    let layer = strict(of_tools.with_tool_cost("docs__search", 2).with_cost(|_| 1));
    let (handle, svc) = (layer.handle(), layer.layer(answers()));
    for (call, left) in [(call(), 3), (named("search"), 4), (named("import"), 1)] {
        svc.clone().oneshot(call.clone()).await.unwrap();
        assert_eq!(handle.remaining(&call), left);
    }
    // A key without a call yet has what its tool has.
    assert_eq!(handle.remaining(&named("import").with_server("s3")), 2);
    let shared = builder(5)
        .with_tool("import", quota(2))
        .with_keys(Key::by(|_| ""));
    assert_eq!(shared.build().unwrap_err().field(), "key");
    let by_server = builder(5)
        .with_tool_cost("import", 2)
        .with_keys(Key::Server);
    assert!(by_server.build().is_ok());
}

/// Rule 3c.
#[tokio::test(start_paused = true)]
async fn a_call_that_waits_for_the_service_below_takes_its_units_when_it_is_sent() {
    let layer = QuotaLayer::new(quota(1));
    let (mut svc, mut below) = mock::spawn_layer::<ToolCall, &str, _>(layer.clone());
    below.allow(0);
    assert_ready_ok!(svc.poll_ready());
    let mut waits = task::spawn(svc.call(call()));
    assert_pending!(waits.poll());
    assert_eq!(layer.handle().remaining(&call()), 1);
    // Another call has been faster.
    layer.layer(answers()).oneshot(call()).await.unwrap();
    below.allow(1);
    assert_pending!(waits.poll());
    advance(secs(1)).await;
    // It keeps its turn while a fresh instance becomes ready.
    below.allow(0);
    assert_pending!(waits.poll());
    below.allow(1);
    assert_pending!(waits.poll());
    let (_, respond) = below.next_request().await.unwrap();
    respond.send_response("answer");
    assert_eq!(assert_ready_ok!(waits.poll()), "answer");
    assert_eq!(layer.handle().remaining(&call()), 0);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_gives_up_before_the_service_below_is_ready_gives_its_turn_back() {
    let layer = QuotaLayer::new(quota(1));
    layer.layer(answers()).oneshot(call()).await.unwrap();
    let (mut svc, mut below) = mock::spawn_layer::<ToolCall, &str, _>(layer.clone());
    below.allow(1);
    assert_ready_ok!(svc.poll_ready());
    let mut waits = task::spawn(svc.call(call()));
    assert_pending!(waits.poll());
    below.allow(0);
    advance(secs(1)).await;
    assert_pending!(waits.poll());
    assert_eq!(layer.handle().remaining(&call()), 0);
    drop(waits);
    assert_eq!(layer.handle().remaining(&call()), 1);
}

/// A call that is over by itself is not told to come back, whatever is ready.
#[tokio::test(start_paused = true)]
async fn a_call_that_is_too_late_is_no_matter_of_the_quota() {
    let layer = strict(builder(1));
    layer.layer(answers()).oneshot(call()).await.unwrap();
    let late = call().with_deadline(Instant::now());
    let error = layer.layer(answers()).oneshot(late.clone()).await;
    assert_eq!(error.unwrap_err().kind(), ErrorKind::DeadlineExceeded);
    let (mut svc, mut below) = mock::spawn_layer::<ToolCall, &str, _>(layer);
    below.allow(0);
    assert_ready_ok!(svc.poll_ready());
    let error = assert_ready_err!(task::spawn(svc.call(late)).poll());
    assert_eq!(error.kind(), ErrorKind::DeadlineExceeded);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_was_sent_has_cost_its_units_however_it_ends() {
    let layer = strict(builder(4));
    for (step, left) in [
        (Step::fail(ErrorKind::Failed), 3),
        (Step::<()>::hang(), 2),
        (Step::panic("boom"), 1),
        (Step::panic_in_call("boom"), 0),
    ] {
        let mut svc = layer.layer(Script::always(step));
        svc.ready().await.unwrap();
        let _ = catch_unwind(AssertUnwindSafe(|| {
            let _ = task::spawn(svc.call(call())).poll();
        }));
        assert_eq!(layer.handle().remaining(&call()), left);
    }
}

/// Outside of a deadline a wait does not use up the tool's time, and a call costs once, however
/// often it is sent.
#[tokio::test(start_paused = true)]
async fn outside_of_deadline_and_retry_a_call_costs_once() {
    let failures = [ErrorKind::Upstream; 2].map(Step::fail);
    let tool = Script::new(failures).then(Step::ok(()).after(secs(1)));
    let layer = builder(1).build().unwrap();
    let stack = ServiceBuilder::new()
        .layer(layer.clone())
        .layer(DeadlineLayer::new(secs(10)))
        .layer(RetryLayer::new(RetryPolicy::new().assume_replay_safe()))
        .service(tool.clone());
    let calls = [stack.clone().oneshot(call()), stack.clone().oneshot(call())];
    for call in calls.map(tokio::spawn) {
        call.await.unwrap().unwrap();
    }
    assert_eq!(tool.count(), 4);
}

/// What a caller invents uses up no other's units.
#[tokio::test(start_paused = true)]
async fn invented_names_take_no_units_from_others() {
    let events = Events::new();
    let keys = Keys::default().at_most(8).known(["known"]);
    let layer = strict(builder(1).with_keys(keys).with_listener(events.clone()));
    let tool = Script::always(Step::<()>::fail(ErrorKind::NotFound));
    let svc = layer.layer(tool.clone());
    svc.clone().oneshot(named("known")).await.unwrap_err();
    for n in 0..1000 {
        let error = svc.clone().oneshot(named(format!("invented{n}"))).await;
        assert_eq!(error.unwrap_err().kind(), ErrorKind::NotFound);
    }
    // What is known is not forgotten for them.
    let error = svc.clone().oneshot(named("known")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::RateLimited);
    // And what is new finds its own units.
    let error = svc.oneshot(named("new")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(events.names().contains(&"tool.evicted"));
}

/// One that has answered once has a place, whatever is invented afterwards; so nobody gets fresh
/// units by inventing names. A key without a place has no quota, so it is not refused by another
/// one's.
#[tokio::test(start_paused = true)]
async fn a_tool_without_a_place_may_cost_more_than_others_have() {
    let layer = builder(5)
        .with_tool("import", quota(10))
        .with_cost(|call| if call.tool() == "import" { 10 } else { 11 })
        .with_keys(Keys::default().at_most(1).known(["known"]))
        .build()
        .unwrap();
    let svc = layer.layer(answers());
    for _ in 0..2 {
        svc.clone().oneshot(named("import")).await.unwrap();
    }
    let error = svc.oneshot(named("other")).await.unwrap_err();
    assert_eq!(error.code(), QUOTA_IMPOSSIBLE);
}

#[tokio::test(start_paused = true)]
async fn a_key_in_use_is_not_forgotten_for_invented_ones() {
    let layer = strict(builder(2).with_keys(Keys::default().at_most(8)));
    let tool = Script::new([kit::answers(), kit::answers()]).then(Step::fail(ErrorKind::NotFound));
    let svc = layer.layer(tool);
    for _ in 0..2 {
        svc.clone().oneshot(call()).await.unwrap();
    }
    for n in 0..1000 {
        let _ = svc.clone().oneshot(named(format!("invented{n}"))).await;
    }
    assert_eq!(layer.handle().remaining(&call()), 0);
    let error = svc.oneshot(call()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::RateLimited);
}

/// A turn that has come while its future was not polled is its caller's still.
#[tokio::test(start_paused = true)]
async fn a_call_that_is_polled_late_is_sent_then() {
    let svc = QuotaLayer::new(quota(1)).layer(answers());
    svc.clone().oneshot(call()).await.unwrap();
    let mut waits = begin(&svc, call());
    advance(secs(100)).await;
    assert_eq!(assert_ready!(waits.poll()).unwrap(), "answer");
}

#[test]
fn what_cannot_work_is_refused() {
    let dear = || builder(5).with_tool_cost("import", 6);
    assert_eq!(dear().build().unwrap_err().field(), "tool_cost");
    assert!(dear().with_tool("docs__import", quota(6)).build().is_ok());
}

#[tokio::test]
async fn a_wait_without_end_does_not_overflow() {
    let layer = builder(1).with_max_wait(Duration::MAX).build().unwrap();
    let svc = layer.layer(answers());
    svc.clone().oneshot(call()).await.unwrap();
    let far = Instant::now() + secs(30 * 365 * 24 * 3600);
    let _waits = begin(&svc, call().with_deadline(far));
}
