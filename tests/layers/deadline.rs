use std::time::Duration;

use tokio::time::{Instant, sleep};
use tower::{Layer, Service, ServiceBuilder, ServiceExt, layer::util::Stack, service_fn};
use tower_toolcall::{
    BoxError, ErrorKind, Execution, ToolCall, ToolError, Trust, deadline::DeadlineLayer,
    error::TimeoutLimit, flow::CallExt, timeout::TimeoutLayer,
};
use tower_toolcall_test::Step;

use crate::kit::{self, busy, limited, secs};

fn within(d: Duration) -> ToolCall {
    ToolCall::new("t").with_deadline(Instant::now() + d)
}

/// Runs a tool of a minute; answers the error, how long it took, and whether the tool was started.
async fn run<L>(layer: L, call: ToolCall) -> (ToolError, Duration, u64)
where
    L: Layer<kit::Probe, Service: Service<ToolCall, Response = &'static str, Error = ToolError>>,
{
    let probe = kit::Probe::always(Step::hang());
    let start = Instant::now();
    let error = layer.layer(probe.clone()).oneshot(call).await.unwrap_err();
    assert_eq!(probe.in_flight(), 0);
    (error, start.elapsed(), probe.count())
}

/// T5: a budget bounds the call.
#[tokio::test(start_paused = true)]
async fn a_budget_ends_the_call_as_a_timeout_that_names_the_deadline() {
    let (error, took, started) = run(DeadlineLayer::new(secs(10)), ToolCall::new("t")).await;
    assert_eq!((took, started), (secs(10), 1));
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert_eq!(error.timeout_limit(), Some(TimeoutLimit::Deadline));
    assert_eq!(error.timeout(), Some(secs(10)));
    assert_eq!(error.tool(), Some("t"));
}

/// T5: `min(own, remaining - reserve)`, reserve 500 ms; a deadline set outside is never exceeded.
#[tokio::test(start_paused = true)]
async fn an_outer_deadline_wins_and_keeps_its_reserve() {
    let layer = DeadlineLayer::new(secs(10));
    let (error, took, _) = run(layer.clone(), within(secs(4))).await;
    assert_eq!(took, Duration::from_millis(3500));
    assert_eq!(error.timeout(), Some(Duration::from_millis(3500)));
    assert_eq!(error.configured_timeout(), Some(secs(10)));
    let (_, took, _) = run(layer.with_reserve(secs(1)), within(secs(4))).await;
    assert_eq!(took, secs(3));
}

/// T5: a call whose share is nothing is not started, and still gets its own result.
#[tokio::test(start_paused = true)]
async fn a_call_without_a_share_is_not_started() {
    for remaining in [Duration::ZERO, Duration::from_millis(500)] {
        let (error, took, started) = run(DeadlineLayer::new(secs(10)), within(remaining)).await;
        assert_eq!((took, started), (Duration::ZERO, 0));
        assert_eq!(error.kind(), ErrorKind::DeadlineExceeded);
        assert_eq!(error.execution(), Execution::NotStarted);
        assert_eq!(error.elapsed(), Some(Duration::ZERO));
        assert_eq!(error.tool(), Some("t"));
    }
    let (_, _, started) = run(
        DeadlineLayer::new(secs(10)),
        within(Duration::from_millis(501)),
    )
    .await;
    assert_eq!(started, 1);
}

/// W17: a peer that waits 300 ms is served; each hop keeps a tenth back, at most 500 ms.
#[tokio::test(start_paused = true)]
async fn of_a_deadline_from_a_wire_at_most_a_tenth_is_kept_back() {
    let ms = Duration::from_millis;
    for trust in [Trust::Untrusted, Trust::Trusted] {
        for (left, expected) in [(300, 270), (5_000, 4_500), (8_000, 7_500)] {
            let mut call = ToolCall::new("t");
            call.tighten_remote(Instant::now() + ms(left), trust);
            let (_, took, started) = run(DeadlineLayer::new(secs(10)), call).await;
            assert_eq!((took, started), (ms(expected), 1), "{trust:?}");
        }
        let wired = |left| {
            let mut call = ToolCall::new("t");
            call.tighten_remote(Instant::now() + ms(left), trust);
            call
        };
        let hops = |budget| Stack::new(DeadlineLayer::inherited(), DeadlineLayer::new(ms(budget)));
        // Each layer keeps the same: a tenth of what there was when the deadline came.
        let (_, took, _) = run(hops(10_000), wired(300)).await;
        assert_eq!(took, ms(240), "{trust:?}");
        // Also of an earlier one that is set here.
        let (_, took, _) = run(hops(400), wired(450)).await;
        assert_eq!(took, ms(400 - 45), "{trust:?}");
        let mut call = wired(300);
        call.tighten(Instant::now() + ms(299));
        let (_, took, _) = run(DeadlineLayer::inherited(), call).await;
        assert_eq!(took, ms(269), "{trust:?}");
    }
}

/// T5: budgets nest, each leaving time to clean up.
#[tokio::test(start_paused = true)]
async fn budgets_nest_and_each_keeps_its_reserve() {
    let layers = ServiceBuilder::new()
        .layer(DeadlineLayer::new(secs(50)))
        .layer(DeadlineLayer::new(secs(60)))
        .layer(TimeoutLayer::new(secs(70)));
    let (error, took, _) = run(layers, within(secs(100))).await;
    assert_eq!(took, Duration::from_millis(49_500));
    assert_eq!(error.configured_timeout(), Some(secs(70)));
    assert_eq!(error.timeout_limit(), Some(TimeoutLimit::Deadline));
}

/// T5: without an own budget the layer enforces what is set outside, and nothing else.
#[tokio::test(start_paused = true)]
async fn an_inherited_deadline_is_enforced() {
    let layer = DeadlineLayer::inherited().with_reserve(Duration::ZERO);
    let (error, took, _) = run(layer, within(secs(3))).await;
    assert_eq!((error.kind(), took), (ErrorKind::Timeout, secs(3)));
}

/// T5: a permit and the deadline come together, and nothing is started.
#[tokio::test(start_paused = true)]
async fn a_call_that_becomes_ready_at_its_deadline_is_not_started() {
    let (limited, probe, semaphore) = limited(kit::answers());
    let held = semaphore.clone().acquire_owned().await.unwrap();
    let mut stack = DeadlineLayer::new(secs(2)).layer(limited);
    let mut response = tokio_test::task::spawn(stack.ready().await.unwrap().call(kit::call()));
    tokio_test::assert_pending!(response.poll());
    tokio::time::advance(secs(2)).await;
    drop(held);
    let error = tokio_test::assert_ready_err!(response.poll());
    assert_eq!(error.kind(), ErrorKind::DeadlineExceeded);
    assert_eq!(error.elapsed(), Some(secs(2)));
    assert_eq!(probe.count(), 0);
    assert_eq!(semaphore.available_permits(), 1);
}

/// T4: the work is dropped at the deadline, not with the finished future.
#[tokio::test(start_paused = true)]
async fn the_work_is_dropped_at_the_deadline() {
    let probe = kit::Probe::always(Step::hang());
    let mut stack = DeadlineLayer::new(secs(2)).layer(probe.clone());
    let mut response = tokio_test::task::spawn(stack.ready().await.unwrap().call(kit::call()));
    tokio_test::assert_pending!(response.poll());
    tokio::time::advance(secs(2)).await;
    tokio_test::assert_ready_err!(response.poll());
    assert_eq!(probe.in_flight(), 0);
}

/// Rule 3b: the place in the queue of the instance that was polled is kept.
#[tokio::test(start_paused = true)]
async fn a_waiting_call_keeps_its_place_in_the_queue() {
    let (limited, _, semaphore) = limited(kit::answers());
    let held = semaphore.clone().acquire_owned().await.unwrap();
    let mut stack = DeadlineLayer::new(secs(60)).layer(limited);
    let mut first = tokio_test::task::spawn(stack.ready().await.unwrap().call(kit::call()));
    let mut second = tokio_test::task::spawn(stack.ready().await.unwrap().call(kit::call()));
    tokio_test::assert_pending!(second.poll());
    tokio_test::assert_pending!(first.poll());
    drop(held);
    tokio_test::assert_pending!(second.poll());
    tokio_test::assert_ready_ok!(first.poll());
    // tower's limit keeps a permit until the finished future is dropped.
    drop(first);
    tokio_test::assert_ready_ok!(second.poll());
}

/// Rule 3b: a refusal gives the inner's reservation back before its future is polled.
#[tokio::test(start_paused = true)]
async fn a_refusal_gives_the_reservation_back() {
    let spent = kit::call().with_deadline(Instant::now());
    kit::a_refusal_gives_the_reservation_back(DeadlineLayer::new(secs(5)), spent).await;
}

#[tokio::test(start_paused = true)]
async fn a_zero_budget_starts_no_call_and_the_longest_is_none() {
    let (error, ..) = run(DeadlineLayer::new(Duration::ZERO), ToolCall::new("t")).await;
    assert_eq!(error.kind(), ErrorKind::DeadlineExceeded);
    let tool = service_fn(|call: ToolCall| async move { Ok::<_, BoxError>(call.deadline()) });
    let stack = DeadlineLayer::new(Duration::MAX).layer(tool);
    assert_eq!(stack.oneshot(ToolCall::new("t")).await.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn the_tool_sees_the_tightened_deadline() {
    let tool = service_fn(|call: ToolCall| async move { Ok::<_, BoxError>(call.deadline()) });
    let stack = DeadlineLayer::new(secs(5)).layer(tool);
    let seen = stack.oneshot(within(secs(60))).await.unwrap();
    assert_eq!(seen, Some(Instant::now() + secs(5)));
}

#[tokio::test(start_paused = true)]
async fn when_response_and_deadline_come_together_the_response_wins() {
    let tool = service_fn(|_: ToolCall| async {
        sleep(secs(5)).await;
        Ok::<_, BoxError>(())
    });
    assert!(
        DeadlineLayer::new(secs(5))
            .layer(tool)
            .oneshot(ToolCall::new("t"))
            .await
            .is_ok()
    );
}

mod cancellation {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    };

    use super::*;
    use tokio_util::sync::CancellationToken;
    use tower_toolcall::cancel::cancellable;

    /// T4, trap 14: the caller's token drops the inner future first and is terminal.
    #[tokio::test(start_paused = true)]
    async fn the_callers_token_ends_the_call() {
        let token = CancellationToken::new();
        let call = ToolCall::new("t").with_cancellation(token.clone());
        tokio::spawn(async move {
            sleep(secs(1)).await;
            token.cancel();
        });
        let (error, took, started) = run(DeadlineLayer::new(secs(10)), call).await;
        assert_eq!(error.kind(), ErrorKind::Cancelled);
        assert_eq!(took, secs(1));
        assert_eq!(started, 1);
        assert_eq!(error.execution(), Execution::Unknown);
        assert!(!error.is_retryable());
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_is_cancelled_already_is_not_started() {
        let token = CancellationToken::new();
        token.cancel();
        let call = ToolCall::new("t").with_cancellation(token);
        let (error, _, started) = run(DeadlineLayer::inherited(), call).await;
        assert_eq!((error.kind(), started), (ErrorKind::Cancelled, 0));
        assert_eq!(error.execution(), Execution::NotStarted);
    }

    /// Trap 14: a permit and the cancellation come together, and nothing is started.
    #[tokio::test(start_paused = true)]
    async fn a_call_that_becomes_ready_after_it_is_cancelled_is_not_started() {
        let (limited, probe, semaphore) = limited(kit::answers());
        let held = semaphore.clone().acquire_owned().await.unwrap();
        let token = CancellationToken::new();
        let mut stack = DeadlineLayer::inherited().layer(limited);
        let call = ToolCall::new("t").with_cancellation(token.clone());
        let mut response = tokio_test::task::spawn(stack.ready().await.unwrap().call(call));
        tokio_test::assert_pending!(response.poll());
        token.cancel();
        drop(held);
        let error = tokio_test::assert_ready_err!(response.poll());
        assert_eq!(error.execution(), Execution::NotStarted);
        assert_eq!(probe.count(), 0);
        assert_eq!(semaphore.available_permits(), 1);
    }

    /// Trap 21.
    #[tokio::test(start_paused = true)]
    async fn a_busy_inner_future_cannot_starve_the_timer() {
        let stack = DeadlineLayer::new(secs(1)).layer(service_fn(busy));
        let response = tokio::spawn(stack.oneshot(ToolCall::new("busy")));
        tokio::task::yield_now().await;
        tokio::time::advance(secs(1)).await;
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert!(response.is_finished(), "the timer starves");
        let error = response.await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout);
    }

    /// Trap 21 for the token: a busy inner future does not make us deaf.
    #[tokio::test(start_paused = true)]
    async fn a_busy_inner_future_cannot_hide_the_callers_token() {
        let token = CancellationToken::new();
        let call = ToolCall::new("busy").with_cancellation(token.clone());
        let response = tokio::spawn(
            DeadlineLayer::inherited()
                .layer(service_fn(busy))
                .oneshot(call),
        );
        tokio::task::yield_now().await;
        token.cancel();
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert!(response.is_finished());
        assert_eq!(
            response.await.unwrap().unwrap_err().kind(),
            ErrorKind::Cancelled
        );
    }

    /// T4: the work is dropped when the token fires, not with the finished future.
    #[tokio::test(start_paused = true)]
    async fn the_work_is_dropped_when_the_token_fires() {
        let probe = kit::Probe::always(Step::hang());
        let token = CancellationToken::new();
        let call = ToolCall::new("t").with_cancellation(token.clone());
        let mut stack = DeadlineLayer::inherited().layer(probe.clone());
        let mut response = tokio_test::task::spawn(stack.ready().await.unwrap().call(call));
        tokio_test::assert_pending!(response.poll());
        token.cancel();
        tokio_test::assert_ready_err!(response.poll());
        assert_eq!(probe.in_flight(), 0);
    }

    /// T4: a tool that spawns work learns of the timeout by a token, each attempt by its own.
    #[tokio::test(start_paused = true)]
    async fn a_token_fires_for_spawned_work_when_the_attempt_times_out() {
        let stopped = Arc::new(AtomicUsize::new(0));
        let count = stopped.clone();
        let tool = service_fn(move |call: ToolCall| {
            let count = count.clone();
            let quick = call.arguments().contains_key("quick");
            cancellable(&call, move |token| async move {
                tokio::spawn(async move {
                    token.cancelled().await;
                    count.fetch_add(1, SeqCst);
                });
                sleep(secs(if quick { 0 } else { 60 })).await;
                Ok::<_, BoxError>(())
            })
        });
        let stack = TimeoutLayer::new(secs(1)).layer(tool);
        stack.clone().oneshot(ToolCall::new("t")).await.unwrap_err();
        tokio::task::yield_now().await;
        assert_eq!(stopped.load(SeqCst), 1);

        // One that finishes leaves its spawned work alone.
        let quick = serde_json::json!({ "quick": true });
        stack
            .oneshot(ToolCall::new("t").with_json(quick).unwrap())
            .await
            .unwrap();
        tokio::task::yield_now().await;
        assert_eq!(stopped.load(SeqCst), 1);
    }

    /// T4: the tool's token is a child of the caller's.
    #[tokio::test(start_paused = true)]
    async fn the_tools_token_fires_with_the_callers() {
        let token = CancellationToken::new();
        let call = ToolCall::new("t").with_cancellation(token.clone());
        let waits = cancellable(&call, |token| async move { token.cancelled().await });
        token.cancel();
        waits.await;
    }
}
