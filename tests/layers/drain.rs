//! T4: a tool that is told to stop, and is waited for.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering::SeqCst},
    },
    time::Duration,
};

use tokio::time::{Instant, advance, sleep};
use tokio_test::{assert_pending, task};
use tokio_util::sync::CancellationToken;
use tower::{Layer, Service, ServiceBuilder, ServiceExt, layer::util::Stack, service_fn};
use tower_toolcall::{
    ErrorKind, Execution, ToolCall, ToolError,
    cancel::cancellable,
    circuit_breaker::{BreakerState, CircuitBreakerLayer, Trip},
    concurrency_limit::ConcurrencyLimitLayer,
    deadline::DeadlineLayer,
    error::TimeoutLimit,
    rate_limit::RateLimitBackoffLayer,
    retry::{RetryLayer, RetryPolicy},
    timeout::TimeoutLayer,
};
use tower_toolcall_test::{Script, Step};

use crate::kit::secs;

fn timeout() -> TimeoutLayer {
    TimeoutLayer::new(secs(10)).with_drain(secs(3)).unwrap()
}

fn deadline() -> DeadlineLayer {
    DeadlineLayer::new(secs(10)).with_drain(secs(3)).unwrap()
}

/// What a tool does once it is told to stop.
#[derive(Clone, Copy)]
enum Then {
    Succeeds,
    Fails(ErrorKind),
    Hangs,
}

/// A tool that works until it is told to stop, and for a time after that.
#[derive(Clone)]
struct Tool {
    takes: Duration,
    then: Then,
    /// When it was told, since it was called.
    told: Arc<AtomicU32>,
    dropped: Arc<AtomicBool>,
}

struct Dropped(Arc<AtomicBool>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

impl Tool {
    fn new(takes: Duration, then: Then) -> Self {
        let (told, dropped) = Default::default();
        Self {
            takes,
            then,
            told,
            dropped,
        }
    }

    async fn run(self, call: ToolCall) -> Result<&'static str, ToolError> {
        let _dropped = Dropped(self.dropped);
        let start = Instant::now();
        call.cancellation().expect("the layer's").cancelled().await;
        self.told.store(start.elapsed().as_secs() as u32, SeqCst);
        sleep(self.takes).await;
        match self.then {
            Then::Succeeds => Ok("late"),
            Then::Fails(kind) => Err(ToolError::new(kind, "stopped")),
            Then::Hangs => std::future::pending().await,
        }
    }

    /// The error of a call, and how long that took.
    async fn under<L, S>(&self, layer: L, call: ToolCall) -> (ToolError, Duration)
    where
        L: Layer<tower::util::BoxCloneSyncService<ToolCall, &'static str, ToolError>, Service = S>,
        S: Service<ToolCall, Response = &'static str, Error = ToolError>,
    {
        let tool = self.clone();
        let tool = service_fn(move |call| tool.clone().run(call));
        let svc = layer.layer(tower::util::BoxCloneSyncService::new(tool));
        let start = Instant::now();
        let error = svc.oneshot(call).await.unwrap_err();
        assert!(
            self.dropped.load(SeqCst),
            "the inner future goes with the call"
        );
        (error, start.elapsed())
    }
}

/// A late success is evidence: the caller who gave up reads that the tool has run.
#[tokio::test(start_paused = true)]
async fn a_late_success_is_a_timeout_of_a_tool_that_has_run() {
    for of_deadline in [false, true] {
        let tool = Tool::new(secs(2), Then::Succeeds);
        let (error, took) = match of_deadline {
            false => tool.under(timeout(), ToolCall::new("t")).await,
            true => tool.under(deadline(), ToolCall::new("t")).await,
        };
        assert_eq!((took, tool.told.load(SeqCst)), (secs(12), 10));
        assert_eq!(error.kind(), ErrorKind::Timeout);
        assert_eq!(error.execution(), Execution::Completed);
        assert!(!error.is_retryable());
        let words = error.model_message();
        assert!(
            words.contains("has run to its end") && words.contains("Do not repeat"),
            "{words}"
        );
        assert_eq!((error.timeout(), error.tool()), (Some(secs(10)), Some("t")));
    }
}

/// What ends otherwise, or not at all, has the error that it had without a wait.
#[tokio::test(start_paused = true)]
async fn another_end_leaves_the_timeout_as_it_is() {
    for (then, took) in [
        (Then::Fails(ErrorKind::Cancelled), 12),
        (Then::Fails(ErrorKind::NotFound), 12),
        (Then::Hangs, 13),
    ] {
        let tool = Tool::new(secs(2), then);
        let (error, elapsed) = tool.under(timeout(), ToolCall::new("t")).await;
        assert_eq!((error.kind(), elapsed), (ErrorKind::Timeout, secs(took)));
        assert_eq!(error.execution(), Execution::Unknown);
        assert!(error.is_retryable());
        let (error, elapsed) = Tool::new(secs(2), then)
            .under(deadline(), ToolCall::new("t"))
            .await;
        assert_eq!((error.kind(), elapsed), (ErrorKind::Timeout, secs(took)));
        assert_eq!(error.timeout_limit(), Some(TimeoutLimit::Deadline));
    }
    let tool = Tool::new(secs(2), Then::Fails(ErrorKind::Reported));
    let (error, _) = tool.under(timeout(), ToolCall::new("t")).await;
    assert_eq!(error.execution(), Execution::Completed);
    // It may have done nothing but stop, and nobody says more.
    let words = error.model_message();
    assert!(!words.contains("done its work"), "{words}");
}

/// The caller's own cancel is told in the same way.
#[tokio::test(start_paused = true)]
async fn a_cancel_is_waited_for_as_long() {
    for (then, took, execution) in [
        (Then::Succeeds, 6, Execution::Completed),
        (Then::Hangs, 7, Execution::Unknown),
    ] {
        let token = CancellationToken::new();
        let tool = Tool::new(secs(2), then);
        let call = ToolCall::new("t").with_cancellation(token.clone());
        let cancel = async {
            sleep(secs(4)).await;
            token.cancel();
        };
        let ((error, elapsed), ()) = tokio::join!(tool.under(deadline(), call), cancel);
        assert_eq!((error.kind(), elapsed), (ErrorKind::Cancelled, secs(took)));
        assert_eq!((error.execution(), tool.told.load(SeqCst)), (execution, 4));
    }
}

/// An answer in time is the answer, and nothing fires.
#[tokio::test(start_paused = true)]
async fn an_answer_in_time_is_not_told_to_stop() {
    let stack = ServiceBuilder::new().layer(deadline()).layer(timeout());
    let fired = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&fired);
    let svc = stack.service(service_fn(move |call: ToolCall| {
        let seen = Arc::clone(&seen);
        cancellable(&call, move |token| async move {
            tokio::spawn(async move {
                token.cancelled().await;
                seen.store(true, SeqCst);
            });
            sleep(secs(9)).await;
            Ok::<_, ToolError>("done")
        })
    }));
    assert_eq!(svc.oneshot(ToolCall::new("t")).await.unwrap(), "done");
    sleep(secs(60)).await;
    assert!(!fired.load(SeqCst));
}

/// Work that a tool has spawned sees it too.
#[tokio::test(start_paused = true)]
async fn spawned_work_is_told() {
    let svc = timeout().layer(service_fn(|call: ToolCall| {
        cancellable(&call, |token| async move {
            let work = tokio::spawn(async move {
                token.cancelled().await;
                sleep(secs(1)).await;
            });
            work.await.map_err(|e| ToolError::from_box(e.into()))
        })
    }));
    let start = Instant::now();
    let error = svc.oneshot(ToolCall::new("t")).await.unwrap_err();
    assert_eq!(error.execution(), Execution::Completed);
    assert_eq!(start.elapsed(), secs(11));
}

/// Progress begins no new time for a call that was told to stop.
#[tokio::test(start_paused = true)]
async fn progress_does_not_prolong_the_wait() {
    let layer = TimeoutLayer::new(secs(60))
        .with_idle_timeout(secs(10))
        .unwrap();
    let svc = layer
        .with_drain(secs(3))
        .unwrap()
        .layer(service_fn(|call: ToolCall| async move {
            call.cancellation().unwrap().cancelled().await;
            loop {
                sleep(secs(1)).await;
                call.progress().unwrap().report();
            }
            #[allow(unreachable_code)]
            Ok::<&str, ToolError>("never")
        }));
    let start = Instant::now();
    let error = svc.oneshot(ToolCall::new("t")).await.unwrap_err();
    assert_eq!(error.timeout_limit(), Some(TimeoutLimit::Idle));
    assert_eq!(start.elapsed(), secs(13));
}

/// Dropping the call is the end of the wait.
#[tokio::test(start_paused = true)]
async fn a_dropped_call_waits_for_nothing() {
    let tool = Script::always(Step::<&str>::hang());
    for of_deadline in [false, true] {
        let svc = match of_deadline {
            false => tower::util::BoxCloneSyncService::new(timeout().layer(tool.clone())),
            true => tower::util::BoxCloneSyncService::new(deadline().layer(tool.clone())),
        };
        let mut running = task::spawn(svc.oneshot(ToolCall::new("t")));
        assert_pending!(running.poll());
        advance(secs(11)).await;
        assert_pending!(running.poll());
        assert_eq!(tool.in_flight(), 1);
        drop(running);
        assert_eq!(tool.in_flight(), 0);
    }
}

/// C10: the probe's place is held as long as the tool may be at work, and the timeout counts.
#[tokio::test(start_paused = true)]
async fn a_probe_keeps_its_place_while_its_tool_is_waited_for() {
    let breaker = CircuitBreakerLayer::builder()
        .with_trip(Trip::consecutive_failures(1))
        .build()
        .unwrap();
    let handle = breaker.handle().breaker(&ToolCall::new("t"));
    let tool = Script::always(Step::<&str>::hang());
    let svc = ServiceBuilder::new()
        .layer(&breaker)
        .layer(timeout())
        .service(tool);
    handle.record_failure();
    advance(secs(60)).await;
    let mut running = task::spawn(svc.oneshot(ToolCall::new("t")));
    assert_pending!(running.poll());
    advance(secs(11)).await;
    assert_pending!(running.poll());
    assert_eq!(handle.state(), BreakerState::HalfOpen);
    assert_eq!(handle.snapshot().probes, 1);
    advance(secs(3)).await;
    assert_eq!(running.await.unwrap_err().kind(), ErrorKind::Timeout);
    assert_eq!(handle.state(), BreakerState::Open);
}

/// R6: what has run is not run again, though the policy takes every tool for safe.
#[tokio::test(start_paused = true)]
async fn what_has_run_is_not_repeated() {
    let tool = Tool::new(secs(2), Then::Succeeds);
    let retry = RetryLayer::new(RetryPolicy::new().assume_replay_safe());
    let layer = ServiceBuilder::new()
        .layer(retry)
        .layer(timeout())
        .into_inner();
    let (error, took) = tool.under(layer, ToolCall::new("t")).await;
    assert_eq!((error.kind(), took), (ErrorKind::Timeout, secs(12)));
    assert_eq!(error.attempts(), Some(1));
}

/// R6: nor by a layer below: what fails as it was told to stop is the last attempt.
#[tokio::test(start_paused = true)]
async fn what_was_told_to_stop_is_not_repeated() {
    let retry = || RetryLayer::new(RetryPolicy::new().assume_replay_safe());
    for of_deadline in [false, true] {
        let tool = Tool::new(Duration::ZERO, Then::Fails(ErrorKind::Upstream));
        let (error, took) = match of_deadline {
            false => {
                let layer = ServiceBuilder::new().layer(timeout()).layer(retry());
                tool.under(layer.into_inner(), ToolCall::new("t")).await
            }
            true => {
                let layer = ServiceBuilder::new().layer(deadline()).layer(retry());
                tool.under(layer.into_inner(), ToolCall::new("t")).await
            }
        };
        assert_eq!((error.kind(), took), (ErrorKind::Timeout, secs(10)));
        // A second run would be told at once.
        assert_eq!(tool.told.load(SeqCst), 10);
    }
}

#[test]
fn a_wait_is_something_and_has_an_end() {
    for time in [Duration::ZERO, secs(3601), Duration::MAX] {
        let errors = [
            TimeoutLayer::default().with_drain(time).map(drop),
            DeadlineLayer::inherited().with_drain(time).map(drop),
        ];
        for error in errors {
            assert!(error.unwrap_err().to_string().contains("drain"));
        }
    }
}

/// The documented stack: the timeout of each call within the deadline.
fn documented(
    deadline: DeadlineLayer,
    timeout: TimeoutLayer,
) -> Stack<TimeoutLayer, DeadlineLayer> {
    Stack::new(timeout, deadline)
}

/// D4: the deadline's owner has the drain; the timeout inside leaves the deadline to it.
#[tokio::test(start_paused = true)]
async fn a_timeout_inside_leaves_the_deadline_to_its_owner() {
    for timeout in [
        TimeoutLayer::default(),
        TimeoutLayer::default().with_idle_timeout(secs(20)).unwrap(),
        TimeoutLayer::default().with_drain(secs(1)).unwrap(),
    ] {
        let tool = Tool::new(secs(2), Then::Succeeds);
        let layer = documented(deadline(), timeout);
        let (error, took) = tool.under(layer, ToolCall::new("t")).await;
        assert_eq!((took, tool.told.load(SeqCst)), (secs(12), 10));
        assert_eq!(error.execution(), Execution::Completed);
        assert_eq!(error.timeout_limit(), Some(TimeoutLimit::Deadline));
    }
}

/// D4: nor do the layers of the documented stack, where they are between both, end a drained call.
#[tokio::test(start_paused = true)]
async fn a_deadline_around_the_documented_stack_is_drained() {
    let breaker = CircuitBreakerLayer::builder().with_trip(1).build().unwrap();
    let layers = ServiceBuilder::new()
        .layer(deadline())
        .layer(RetryLayer::new(RetryPolicy::new().assume_replay_safe()))
        .layer(RateLimitBackoffLayer::new())
        .layer(ConcurrencyLimitLayer::new(1))
        .layer(breaker)
        .layer(TimeoutLayer::new(secs(60)))
        .into_inner();
    let tool = Tool::new(secs(2), Then::Succeeds);
    let (error, took) = tool.under(&layers, ToolCall::new("t")).await;
    assert_eq!((took, tool.told.load(SeqCst)), (secs(12), 10));
    assert_eq!(error.execution(), Execution::Completed);
    assert_eq!(error.timeout_limit(), Some(TimeoutLimit::Deadline));
}

/// D4: the timeout's own time is its own, with its own drain; the deadline's drain begins while
/// that runs.
#[tokio::test(start_paused = true)]
async fn drains_compose() {
    let tool = Tool::new(secs(2), Then::Hangs);
    let plain = TimeoutLayer::new(secs(4));
    let (error, took) = tool
        .under(documented(deadline(), plain), ToolCall::new("t"))
        .await;
    assert_eq!(took, secs(4));
    assert_eq!(error.timeout_limit(), Some(TimeoutLimit::Timeout));

    let drained = || TimeoutLayer::new(secs(9)).with_drain(secs(3)).unwrap();
    let tool = Tool::new(secs(2), Then::Hangs);
    let (error, took) = tool
        .under(documented(deadline(), drained()), ToolCall::new("t"))
        .await;
    assert_eq!((took, tool.told.load(SeqCst)), (secs(12), 9));
    assert_eq!(error.kind(), ErrorKind::Timeout);
}

/// D4: an inner deadline layer that enforces the same deadline leaves it, and the caller's cancel,
/// to the owner.
#[tokio::test(start_paused = true)]
async fn an_inner_deadline_layer_leaves_the_deadline_to_its_owner() {
    let inner = || DeadlineLayer::inherited().with_reserve(Duration::ZERO);
    let tool = Tool::new(secs(2), Then::Succeeds);
    let layer = Stack::new(inner(), deadline());
    let (error, took) = tool.under(layer, ToolCall::new("t")).await;
    assert_eq!((took, error.execution()), (secs(12), Execution::Completed));

    let (token, tool) = (CancellationToken::new(), Tool::new(secs(2), Then::Succeeds));
    let call = ToolCall::new("t").with_cancellation(token.clone());
    let cancel = async {
        sleep(secs(4)).await;
        token.cancel();
    };
    let layer = Stack::new(DeadlineLayer::new(secs(30)), deadline());
    let ((error, took), ()) = tokio::join!(tool.under(layer, call), cancel);
    assert_eq!((took, error.kind()), (secs(6), ErrorKind::Cancelled));
    assert_eq!(error.execution(), Execution::Completed);
}

/// D4: a deadline that is set in between has another owner.
#[tokio::test(start_paused = true)]
async fn a_tighter_deadline_inside_is_its_own_layers() {
    let tool = Tool::new(secs(2), Then::Hangs);
    let layer = Stack::new(DeadlineLayer::new(secs(4)), deadline());
    let (error, took) = tool.under(layer, ToolCall::new("t")).await;
    assert_eq!((took, error.kind()), (secs(4), ErrorKind::Timeout));
}

/// D4: an inner deadline layer keeps no reserve of a deadline that its owner drains.
#[tokio::test(start_paused = true)]
async fn an_inner_reserve_does_not_end_a_drained_call() {
    for inner in [
        DeadlineLayer::inherited(),
        DeadlineLayer::new(secs(60)),
        DeadlineLayer::new(secs(60)).with_drain(secs(1)).unwrap(),
    ] {
        let tool = Tool::new(secs(2), Then::Succeeds);
        let layer = Stack::new(inner, deadline());
        let (error, took) = tool.under(layer, ToolCall::new("t")).await;
        assert_eq!((took, tool.told.load(SeqCst)), (secs(12), 10));
        assert_eq!(error.execution(), Execution::Completed);
    }
}
