//! Layers made of functions.

use std::time::Duration;

use tokio::time::{Instant, sleep};
use tower::{Layer, ServiceBuilder, ServiceExt, service_fn};
use tower_toolcall::{
    AnyError, ErrorKind, Execution, ToolCall, ToolError,
    middleware::{self, Next},
};

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
    assert_eq!(
        (error.execution(), error.tool()),
        (Execution::NotStarted, Some("search"))
    );
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
    assert_eq!(
        (error.kind(), error.tool()),
        (ErrorKind::Failed, Some("search"))
    );
}
