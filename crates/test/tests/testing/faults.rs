use std::{sync::Arc, time::Duration};

use tokio::{
    sync::Semaphore,
    task::JoinSet,
    time::{Instant, sleep},
};
use tokio_test::{assert_pending, assert_ready_err, task};
use tower::{Layer, Service, ServiceBuilder, ServiceExt, limit::ConcurrencyLimit};
use tower_toolcall::{
    ErrorKind, Evidence, Execution, ReplaySafety, ToolCall, ToolError,
    catch_panic::CatchPanicLayer,
    circuit_breaker::CircuitBreakerLayer,
    deadline::DeadlineLayer,
    rate_limit::RateLimitBackoffLayer,
    retry::{RetryLayer, RetryPolicy},
    timeout::TimeoutLayer,
};
use tower_toolcall_test::{FaultLayer, Faults, Script, Step};

use crate::{call, secs};

fn tool() -> Script<()> {
    Script::always(Step::ok(()))
}

fn always(faults: Result<Faults, tower_toolcall::ConfigError>) -> FaultLayer {
    FaultLayer::new(1, faults.unwrap())
}

#[tokio::test]
async fn a_fault_keeps_the_call_from_the_tool_and_names_it() {
    let tool = tool();
    let layer = always(Faults::new().with_fault(1.0, Step::status(429)));
    let error = layer.layer(tool.clone()).oneshot(call()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::RateLimited);
    assert_eq!(
        (error.tool(), error.server(), error.call_id()),
        (Some("search"), Some("docs"), Some("c1"))
    );
    assert_eq!((tool.count(), layer.injected()), (0, 1));
}

/// R6: the tool ran, and nobody above can know.
#[tokio::test]
async fn a_lost_answer_comes_after_the_tool_ran() {
    let tool = tool();
    let layer = always(Faults::new().with_lost_answer(1.0, Step::status(502)));
    let error = layer.layer(tool.clone()).oneshot(call()).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.execution(), error.evidence()),
        (ErrorKind::Upstream, Execution::Unknown, Evidence::Reported)
    );
    assert_eq!(
        (tool.count(), tool.in_flight(), tool.cancelled()),
        (1, 0, 0)
    );
}

/// R6: whatever the error says of the tool, the tool ran.
#[tokio::test(start_paused = true)]
async fn a_lost_answer_never_says_that_the_tool_did_not_run() {
    let limited = || ToolError::new(ErrorKind::RateLimited, "slow down");
    for step in [
        Step::status(429),
        Step::of(move |_| Err(limited())),
        Step::error(ToolError::refusal(ErrorKind::Overloaded, "full")),
    ] {
        let tool = tool();
        let stack = ServiceBuilder::new()
            .layer(RetryLayer::default())
            .layer(always(Faults::new().with_lost_answer(1.0, step)))
            .service(tool.clone());
        let error = stack.oneshot(call()).await.unwrap_err();
        assert_eq!((error.execution(), tool.count()), (Execution::Unknown, 1));
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_can_be_lost_by_a_hang() {
    let tool = tool();
    let layer = always(Faults::new().with_lost_answer(1.0, Step::hang()));
    let answer = tokio::time::timeout(secs(60), layer.layer(tool.clone()).oneshot(call()));
    assert!(answer.await.is_err());
    assert_eq!(tool.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_delayed_call_has_the_tools_answer() {
    let tool = tool();
    let layer = always(Faults::new().with_delay(1.0, secs(3)));
    let start = Instant::now();
    layer.layer(tool.clone()).oneshot(call()).await.unwrap();
    assert_eq!(start.elapsed(), secs(3));
    assert_eq!(tool.times(), [start + secs(3)]);
}

/// Rule 3d: nothing that is reserved below is held while a fault waits.
#[tokio::test(start_paused = true)]
async fn a_fault_gives_the_reservation_back() {
    for faults in [
        Faults::new().with_fault(1.0, Step::hang()),
        Faults::new().with_delay(1.0, secs(3)),
    ] {
        let semaphore = Arc::new(Semaphore::new(1));
        let limited = ConcurrencyLimit::with_semaphore(tool(), semaphore.clone());
        let mut svc = always(faults).layer(limited);
        svc.ready().await.unwrap();
        assert_eq!(semaphore.available_permits(), 0);
        let mut response = task::spawn(svc.call(call()));
        assert_pending!(response.poll());
        assert_eq!(semaphore.available_permits(), 1);
    }
}

/// W1.
#[tokio::test(start_paused = true)]
async fn a_delayed_call_that_is_not_let_in_ends_with_its_deadline() {
    let semaphore = Arc::new(Semaphore::new(0));
    let limited = ConcurrencyLimit::with_semaphore(tool(), semaphore);
    let mut svc = always(Faults::new().with_delay(1.0, secs(3))).layer(limited);
    let start = Instant::now();
    let response = svc.call(call().with_deadline(start + secs(5)));
    let error = response.await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DeadlineExceeded);
    assert_eq!(start.elapsed(), secs(5));
}

/// W1: the wait of a fault is as long as the call may wait.
#[tokio::test(start_paused = true)]
async fn a_delay_ends_with_the_deadline() {
    let tool = tool();
    let svc = always(Faults::new().with_delay(1.0, secs(30))).layer(tool.clone());
    let start = Instant::now();
    let response = svc.oneshot(call().with_deadline(start + secs(5)));
    let error = response.await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DeadlineExceeded);
    assert_eq!((start.elapsed(), tool.count()), (secs(5), 0));
}

/// The caller's token ends it as well.
#[tokio::test(start_paused = true)]
async fn a_delay_ends_when_the_caller_cancels() {
    let token = tokio_util::sync::CancellationToken::new();
    let tool = tool();
    let mut svc = always(Faults::new().with_delay(1.0, secs(30))).layer(tool.clone());
    let mut response = task::spawn(svc.call(call().with_cancellation(token.clone())));
    assert_pending!(response.poll());
    token.cancel();
    let error = assert_ready_err!(response.poll());
    assert_eq!((error.kind(), tool.count()), (ErrorKind::Cancelled, 0));
}

/// Its timer is made at the first poll.
#[test]
fn a_delayed_call_needs_no_runtime_until_it_is_polled() {
    let mut svc = always(Faults::new().with_delay(1.0, secs(3))).layer(tool());
    drop(svc.call(call()));
}

#[tokio::test]
async fn a_panic_is_the_tools() {
    let layer = always(Faults::new().with_fault(1.0, Step::panic("at random")));
    let running = tokio::spawn(layer.layer(tool()).oneshot(call()));
    assert!(running.await.unwrap_err().is_panic());
}

#[tokio::test]
async fn a_tool_has_faults_of_its_own() {
    let none = FaultLayer::new(1, Faults::new());
    let all = Faults::new().with_fault(1.0, Step::status(503)).unwrap();
    let layer = none.with_tool("pay", all);
    for (name, struck) in [("pay", true), ("look", false)] {
        let result = layer.layer(tool()).oneshot(ToolCall::new(name)).await;
        assert_eq!(result.is_err(), struck, "{name}");
    }
}

async fn ended(seed: u64, concurrent: bool) -> Vec<bool> {
    let faults = Faults::new().with_fault(0.3, Step::status(503)).unwrap();
    let stack = FaultLayer::new(seed, faults).layer(tool());
    if concurrent {
        let other = stack.clone();
        tokio::spawn(async move {
            loop {
                let _ = other.clone().oneshot(ToolCall::new("other")).await;
                tokio::task::yield_now().await;
            }
        });
    }
    let mut ended = Vec::new();
    for _ in 0..100 {
        ended.push(stack.clone().oneshot(call()).await.is_ok());
        tokio::task::yield_now().await;
    }
    ended
}

#[tokio::test]
async fn a_run_is_repeated_by_its_seed_whatever_other_tools_do() {
    let first = ended(1, false).await;
    assert_eq!(first, ended(1, true).await);
    assert_ne!(first, ended(2, false).await);
}

/// R6, trap 7: of 2,000 payments whose answers are lost, none is made twice; what was turned away
/// is repeated.
#[tokio::test(start_paused = true)]
async fn under_faults_nothing_is_paid_twice() {
    let faults = Faults::new()
        .with_fault(0.1, Step::status(429))
        .and_then(|f| f.with_fault(0.05, Step::fail(ErrorKind::ConnectionFailed)))
        .and_then(|f| f.with_lost_answer(0.1, Step::status(502)));
    let tool = tool();
    let stack = ServiceBuilder::new()
        .layer(RetryLayer::new(RetryPolicy::new().without_budget()))
        .layer(always(faults))
        .service(tool.clone());
    let mut failed = 0;
    for n in 0..2_000 {
        let call = ToolCall::new("pay").with_id(n.to_string());
        failed += u32::from(stack.clone().oneshot(call).await.is_err());
    }
    let mut ids: Vec<_> = tool
        .calls()
        .iter()
        .map(|c| c.id().unwrap().to_owned())
        .collect();
    let ran = ids.len();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), ran, "a payment ran twice");
    assert!((200..=400).contains(&failed), "{failed}");
}

/// The same calls of a tool that may run twice are repeated.
#[tokio::test(start_paused = true)]
async fn under_faults_what_may_run_twice_is_repeated() {
    let faults = Faults::new().with_lost_answer(0.3, Step::status(502));
    let tool = tool();
    let stack = ServiceBuilder::new()
        .layer(RetryLayer::new(RetryPolicy::new().without_budget()))
        .layer(always(faults))
        .service(tool.clone());
    let mut failed = 0;
    for _ in 0..500 {
        let call = call().with_replay_safety(ReplaySafety::Safe);
        failed += u32::from(stack.clone().oneshot(call).await.is_err());
    }
    assert!(tool.count() > 600, "{}", tool.count());
    // Three in a row.
    assert!(failed < 40, "{failed}");
}

/// T5, R6, trap 1: whatever happens to calls, each ends by its deadline, none runs twice that must
/// not, and nothing is left.
#[tokio::test(start_paused = true)]
async fn the_documented_stack_survives_all_faults_at_once() {
    for seed in 0..5 {
        let faults = Faults::new()
            .with_fault(0.1, Step::status(429).with_retry_after(secs(2)))
            .and_then(|f| f.with_fault(0.05, Step::hang()))
            .and_then(|f| f.with_fault(0.05, Step::panic("at random")))
            .and_then(|f| f.with_fault(0.05, Step::panic_in_call("at random")))
            .and_then(|f| f.with_fault(0.05, Step::fail(ErrorKind::Failed).after(secs(4))))
            .and_then(|f| f.with_lost_answer(0.1, Step::status(502)))
            .and_then(|f| f.with_lost_answer(0.05, Step::hang()))
            .and_then(|f| f.with_delay(0.2, secs(3)));
        let tool = Script::always(Step::ok(()).after(secs(1)));
        let breaker = CircuitBreakerLayer::builder().with_open_for(secs(5));
        let stack = ServiceBuilder::new()
            .layer(DeadlineLayer::new(secs(60)))
            .layer(RetryLayer::new(RetryPolicy::new().without_budget()))
            .layer(RateLimitBackoffLayer::new())
            .layer(breaker.build().unwrap())
            .layer(TimeoutLayer::new(secs(5)))
            .layer(CatchPanicLayer::new())
            .layer(FaultLayer::new(seed, faults.unwrap()))
            .service(ConcurrencyLimit::new(tool.clone(), 8));
        let mut calls = JoinSet::new();
        for n in 0..500 {
            let call = ToolCall::new(format!("tool_{}", n % 10)).with_id(n.to_string());
            let stack = stack.clone();
            calls.spawn(async move {
                sleep(Duration::from_millis(100 * n)).await;
                let start = Instant::now();
                let result = stack.oneshot(call).await;
                assert!(start.elapsed() <= secs(60));
                result.is_ok()
            });
        }
        let ended = calls.join_all().await;
        let succeeded = ended.iter().filter(|ok| **ok).count();
        assert!((100..500).contains(&succeeded), "{succeeded}");
        let mut ids: Vec<_> = tool
            .calls()
            .iter()
            .map(|c| c.id().unwrap().to_owned())
            .collect();
        let ran = ids.len();
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), ran, "a call ran twice");
        assert_eq!(tool.in_flight(), 0);
    }
}

/// It is the tool for the layers above.
#[tokio::test]
async fn a_breaker_opens_by_faults() {
    let breaker = CircuitBreakerLayer::new();
    let tool = tool();
    let mut stack = ServiceBuilder::new()
        .layer(breaker.clone())
        .layer(always(Faults::new().with_fault(1.0, Step::status(500))))
        .service(tool);
    for _ in 0..5 {
        let mut response = task::spawn(stack.ready().await.unwrap().call(call()));
        assert_ready_err!(response.poll());
    }
    assert!(breaker.handle().breaker(&call()).is_open());
}
