//! Layers made of functions.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use tower::{Layer, ServiceBuilder, ServiceExt, service_fn};
use tower_toolcall::{
    AnyError, ErrorKind, Execution, ReplaySafety, ToolCall, ToolError,
    flow::CallExt,
    middleware::{self, Next},
    retry::RetryLayer,
};
use tower_toolcall_test::{Script, Step};

use crate::kit::{self, call, limited};

#[tokio::test(start_paused = true)]
async fn a_function_changes_the_call_and_the_answer() {
    let shout = middleware::from_fn(|call: ToolCall, mut next| async move {
        let answer: String = next.run(call.with_agent_id("ada")).await?;
        Ok::<_, ToolError>(answer.to_uppercase())
    });
    let tool = service_fn(|call: ToolCall| async move {
        Ok::<_, AnyError>(call.agent_id().unwrap_or_default().to_owned())
    });
    let answer = shout.layer(tool).oneshot(call()).await;
    assert_eq!(answer.unwrap(), "ADA");
}

/// Its permit is free then, not when the function is done.
#[tokio::test(start_paused = true)]
async fn a_call_that_is_sent_again_takes_a_permit_of_its_own() {
    let (limited, probe, semaphore) = limited(kit::answers());
    let twice = middleware::from_fn(|call: ToolCall, mut next| async move {
        next.run(call.clone()).await?;
        sleep(Duration::from_secs(1)).await;
        next.run(call).await
    });
    let mut response = tokio_test::task::spawn(twice.layer(limited).oneshot(call()));
    tokio_test::assert_pending!(response.poll());
    assert_eq!(semaphore.available_permits(), 1);
    assert_eq!(response.await.unwrap(), "answer");
    assert_eq!(probe.count(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_second_call_waits_for_the_stack_no_longer_than_its_deadline() {
    let (limited, _, semaphore) = limited(kit::answers());
    let held = std::sync::Arc::clone(&semaphore);
    let twice = middleware::from_fn(move |call: ToolCall, mut next: Next<_>| {
        let held = std::sync::Arc::clone(&held);
        async move {
            next.run(call.clone()).await?;
            let _other = held.acquire_owned().await;
            next.run(call).await
        }
    });
    let start = Instant::now();
    let late = call().with_deadline(start + Duration::from_secs(5));
    let error = twice.layer(limited).oneshot(late).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DeadlineExceeded);
    assert_eq!(error.execution(), Execution::Unknown);
    assert_eq!(error.tool(), Some("search"));
    assert_eq!(start.elapsed(), Duration::from_secs(5));
}

/// Trap 23: its place in the queue is gone with the wait.
#[tokio::test(start_paused = true)]
async fn a_second_call_that_is_given_up_holds_no_place() {
    let (limited, _, semaphore) = limited(kit::answers());
    let all = std::sync::Arc::clone(&semaphore);
    let twice = middleware::from_fn(move |call: ToolCall, mut next: Next<_>| {
        let all = std::sync::Arc::clone(&all);
        async move {
            let answer = next.run(call.clone()).await;
            let held = all.acquire_owned().await;
            let late = tokio::time::timeout(Duration::from_secs(1), next.run(call));
            assert!(late.await.is_err());
            drop(held);
            sleep(Duration::from_secs(60)).await;
            answer
        }
    });
    let response = tokio::spawn(twice.layer(limited).oneshot(call()));
    sleep(Duration::from_secs(30)).await;
    assert_eq!(semaphore.available_permits(), 1);
    assert_eq!(response.await.unwrap().unwrap(), "answer");
}

#[tokio::test]
async fn errors_of_any_type_become_ours_with_the_calls_names() {
    let fails =
        middleware::from_fn(|_, _: Next<()>| async { Err(AnyError::from("no such policy")) });
    let tool = service_fn(|_: ToolCall| async { Ok::<_, AnyError>(()) });
    let stack = ServiceBuilder::new().layer(fails).service(tool);
    let error = stack.oneshot(call()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Failed);
    assert_eq!(error.tool(), Some("search"));
}

/// Sends a call twice, the second time after the first one has ended, or a second later.
async fn repeat(call: ToolCall, mut next: Next<&'static str>) -> Result<&'static str, ToolError> {
    let _ = timeout(Duration::from_secs(1), next.run(call.clone())).await;
    next.run(call).await
}

fn connection_refused() -> Step<&'static str> {
    let refused = ToolError::new(ErrorKind::ConnectionFailed, "refused");
    Step::error(refused.with_execution(Execution::NotStarted))
}

fn refusal() -> Step<&'static str> {
    Step::error(ToolError::refusal(ErrorKind::Overloaded, "busy"))
}

/// S1: an outer layer does not take the second attempt for proof that the first one did not run.
#[tokio::test(start_paused = true)]
async fn a_call_that_may_have_run_in_an_earlier_attempt_is_not_sent_again() {
    let first: [fn() -> Step<&'static str>; 3] = [|| Step::status(503), Step::hang, kit::answers];
    for first in first {
        for second in [connection_refused, refusal] {
            let tool = Script::new([first(), second()]).then(kit::answers());
            let stack =
                RetryLayer::default().layer(middleware::from_fn(repeat).layer(tool.clone()));
            let call = call().with_replay_safety(ReplaySafety::Unsafe);
            let error = stack.oneshot(call).await.unwrap_err();
            assert_eq!(error.execution(), Execution::Unknown, "{:?}", first());
            assert_eq!(tool.count(), 2, "{:?}", first());
        }
    }
}

/// S1: attempts that did not run are no reason to stop.
#[tokio::test(start_paused = true)]
async fn a_call_that_has_run_in_no_attempt_is_sent_again() {
    let none = [connection_refused(), connection_refused()];
    let tool = Script::new(none).then(kit::answers());
    let stack = RetryLayer::default().layer(middleware::from_fn(repeat).layer(tool.clone()));
    let call = call().with_replay_safety(ReplaySafety::Unsafe);
    assert_eq!(stack.oneshot(call).await.unwrap(), "answer");
    // The function repeats the third attempt as well.
    assert_eq!(tool.count(), 4);
}

/// S1: a call of another tool that a function makes before is not an attempt at this one.
#[tokio::test(start_paused = true)]
async fn a_call_of_another_tool_is_not_an_attempt() {
    let tool = Script::new([kit::answers(), connection_refused()]).then(kit::answers());
    let logs_in = middleware::from_fn(|call: ToolCall, mut next: Next<_>| async move {
        next.run(ToolCall::new("login")).await?;
        next.run(call).await
    });
    let mut call = call();
    let seen = call.observe();
    let error = logs_in.layer(tool).oneshot(call).await.unwrap_err();
    assert_eq!(error.execution(), Execution::NotStarted);
    assert_eq!(seen.sent(Some(&error)), 1);
}

/// S2: an observer counts what was sent, whichever error the function returns and whether it
/// numbers its attempts.
#[tokio::test(start_paused = true)]
async fn an_observer_counts_the_attempts_of_a_function() {
    let second: [fn() -> Step<&'static str>; 3] = [refusal, connection_refused, kit::answers];
    for (second, sent) in second.into_iter().zip([1, 2, 2]) {
        for (numbers, returns_first) in [(true, false), (false, false), (true, true)] {
            let tool = Script::new([Step::status(503), second()]);
            let repeats = middleware::from_fn(move |mut call: ToolCall, mut next| async move {
                let first = next.run(call.clone()).await.unwrap_err();
                if numbers {
                    call.next_attempt();
                }
                let result: Result<&str, _> = next.run(call).await;
                if returns_first { Err(first) } else { result }
            });
            let mut call = call();
            let seen = call.observe();
            let result = repeats.layer(tool).oneshot(call).await;
            assert_eq!(seen.sent(result.as_ref().err()), sent, "{result:?}");
        }
    }
}

/// S2: a call whose first attempt was refused, and that waits for the next one, was not sent.
#[tokio::test(start_paused = true)]
async fn a_refused_call_that_waits_in_a_function_was_not_sent() {
    let waits = middleware::from_fn(|call: ToolCall, mut next: Next<_>| async move {
        let _ = next.run(call.clone()).await;
        sleep(Duration::from_secs(5)).await;
        next.run(call).await
    });
    let mut call = call();
    let seen = call.observe();
    let stack = waits.layer(Script::always(refusal()));
    let late = timeout(Duration::from_secs(1), stack.oneshot(call)).await;
    assert!(late.is_err());
    assert_eq!(seen.sent(None), 0);
}

/// S3: a call that is in a function counts for the limit of a batch, because it may be at work.
#[tokio::test(start_paused = true)]
async fn a_call_in_a_function_has_its_place_in_a_batch() {
    let tool = Script::always(kit::answers().after(Duration::from_secs(1)));
    let slow = middleware::from_fn(|call: ToolCall, mut next| async move {
        sleep(Duration::from_secs(1)).await;
        next.run(call).await
    });
    let batch = tower_toolcall::batch::Parallel::new(slow.layer(tool.clone()))
        .with_limit(2)
        .unwrap();
    batch.run((0..8).map(|_| call())).await;
    assert_eq!((tool.count(), tool.most_in_flight()), (8, 2));
}
