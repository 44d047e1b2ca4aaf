use std::{future::pending, time::Duration};

use expect_test::expect;
use tokio::time::{Instant, sleep};
use tower::{Layer, ServiceBuilder, ServiceExt, service_fn, util::BoxCloneSyncService};
use tower_toolcall::{
    BoxError, ErrorKind, Event, ToolCall, ToolError, error::TimeoutLimit, flow::CallExt,
    timeout::TimeoutLayer,
};
use tower_toolcall_test::{Events, Script, Step};

use crate::kit::{busy, secs};

/// A tool that works for so long.
fn works_for(d: Duration) -> Script<&'static str> {
    Script::always(Step::ok("done").after(d))
}

async fn run(layer: TimeoutLayer, work: Duration, call: ToolCall) -> Result<Duration, ToolError> {
    let start = Instant::now();
    let stack = ServiceBuilder::new().layer(layer).service(works_for(work));
    stack.oneshot(call).await.map(|_| start.elapsed())
}

async fn fails(layer: TimeoutLayer, work: Duration, call: ToolCall) -> ToolError {
    run(layer, work, call).await.unwrap_err()
}

/// T1: every call has a timeout, 30 s by default.
#[tokio::test(start_paused = true)]
async fn a_call_times_out_after_30_seconds_by_default() {
    let start = Instant::now();
    let error = fails(TimeoutLayer::default(), secs(31), ToolCall::new("t")).await;
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert_eq!(start.elapsed(), secs(30));
}

/// T2: the call's own timeout beats its tool's, and that beats the default.
#[tokio::test(start_paused = true)]
async fn the_calls_own_timeout_beats_its_tools_and_that_beats_the_default() {
    let layer = TimeoutLayer::new(secs(9)).with_tool("slow", secs(5));
    for (call, seconds) in [
        (ToolCall::new("other"), 9),
        (ToolCall::new("slow"), 5),
        (ToolCall::new("slow").with_timeout(secs(7)), 7),
    ] {
        let error = fails(layer.clone(), secs(60), call).await;
        assert_eq!(error.timeout(), Some(secs(seconds)));
    }
}

/// T3: what the error says.
#[tokio::test(start_paused = true)]
async fn the_error_names_the_call_and_the_time() {
    let call = ToolCall::new("search").with_server("docs");
    let error = fails(TimeoutLayer::new(secs(5)), secs(6), call).await;
    assert_eq!(error.code(), "TOOL_TIMEOUT");
    expect!["Tool invocation timed out after 5000ms"].assert_eq(error.message());
    assert!(error.is_retryable() && error.is_recoverable());
    assert!(error.user_message().contains("search"));
    let names = (error.tool(), error.server());
    assert_eq!(names, (Some("search"), Some("docs")));
    assert_eq!(error.timeout(), Some(secs(5)));
    assert_eq!(error.configured_timeout(), Some(secs(5)));
    assert_eq!(error.timeout_limit(), Some(TimeoutLimit::Timeout));
}

/// T3, T5: the time in force, and beside it the configured one that the deadline shortened.
#[tokio::test(start_paused = true)]
async fn a_deadline_shortens_the_timeout_and_is_named_as_the_limit() {
    let call = ToolCall::new("t").with_deadline(Instant::now() + secs(2));
    let error = fails(TimeoutLayer::new(secs(5)), secs(6), call).await;
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert_eq!(error.timeout(), Some(secs(2)));
    assert_eq!(error.configured_timeout(), Some(secs(5)));
    assert_eq!(error.timeout_limit(), Some(TimeoutLimit::Deadline));
}

/// T4: expiry drops the inner future in that moment, not when the response future is dropped.
#[tokio::test(start_paused = true)]
async fn the_work_is_dropped_when_the_time_is_up() {
    let tool = Script::<()>::always(Step::hang());
    let stack = ServiceBuilder::new()
        .layer(TimeoutLayer::new(secs(1)))
        .service(tool.clone());
    let mut response = tokio_test::task::spawn(stack.oneshot(ToolCall::new("t")));
    tokio_test::assert_pending!(response.poll());
    tokio::time::advance(secs(1)).await;
    tokio_test::assert_ready_err!(response.poll());
    assert_eq!((tool.in_flight(), tool.cancelled()), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn when_response_and_timer_come_together_the_response_wins() {
    let took = run(TimeoutLayer::new(secs(5)), secs(5), ToolCall::new("t"));
    assert_eq!(took.await.unwrap(), secs(5));
}

#[tokio::test(start_paused = true)]
async fn the_longest_duration_is_no_timeout_and_does_not_overflow() {
    let call = || ToolCall::new("t").with_timeout(Duration::MAX);
    let answer = run(TimeoutLayer::default(), secs(1 << 20), call());
    assert!(answer.await.is_ok());
    let call = call().with_deadline(Instant::now() + secs(3));
    let error = fails(TimeoutLayer::default(), secs(9), call).await;
    assert_eq!(error.timeout(), Some(secs(3)));
}

#[tokio::test(start_paused = true)]
async fn a_zero_timeout_lets_only_those_succeed_that_answer_at_once() {
    let layer = TimeoutLayer::new(Duration::ZERO);
    let stack = layer.layer(Script::always(Step::ok(1)));
    assert_eq!(stack.oneshot(ToolCall::new("t")).await.unwrap(), 1);
    assert!(run(layer, secs(1), ToolCall::new("t")).await.is_err());
}

/// Trap 21: a future that is always busy uses up the task's budget; the timer fires all the same.
#[tokio::test(start_paused = true)]
async fn a_busy_inner_future_cannot_starve_the_timer() {
    let stack = TimeoutLayer::new(secs(1)).layer(service_fn(busy));
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

fn slow_log(layer: TimeoutLayer) -> (TimeoutLayer, Events<(Duration, Duration)>) {
    let log = Events::pick(|event| match *event {
        Event::Slow {
            elapsed, timeout, ..
        } => Some((elapsed, timeout)),
        _ => None,
    });
    (layer.with_listener(log.clone()), log)
}

/// T6, T7: more than 80 % of the timeout in force is slow, also when the call succeeds; one that
/// timed out, here or in an inner layer, is not a slow call.
#[tokio::test(start_paused = true)]
async fn a_success_that_used_more_than_80_percent_is_reported_as_slow() {
    let slow = Some((secs(9), secs(10)));
    for (timeout, inner, deadline, work, expected) in [
        (10, 99, 99, 8, None),
        (10, 99, 99, 9, slow),
        (100, 99, 10, 9, slow),
        (1, 99, 99, 2, None),
        (10, 9, 99, 60, None),
    ] {
        let (layer, log) = slow_log(TimeoutLayer::new(secs(timeout)));
        let layers = ServiceBuilder::new()
            .layer(layer)
            .layer(TimeoutLayer::new(secs(inner)));
        let call = ToolCall::new("t").with_deadline(Instant::now() + secs(deadline));
        let _ = layers.service(works_for(secs(work))).oneshot(call).await;
        assert_eq!(log.take(), Vec::from_iter(expected), "{log:?}");
    }
}

/// T6: exactly when the runtime is late it is worth knowing.
#[tokio::test(start_paused = true)]
async fn a_slow_call_is_reported_although_its_task_was_polled_late() {
    let (layer, log) = slow_log(TimeoutLayer::new(secs(10)));
    let stack = layer.layer(works_for(secs(5)));
    let mut response = tokio_test::task::spawn(stack.oneshot(ToolCall::new("t")));
    tokio_test::assert_pending!(response.poll());
    tokio::time::advance(secs(9)).await;
    tokio_test::assert_ready_ok!(response.poll());
    log.assert([(secs(9), secs(10))]);
}

/// T6, T8: a call kept alive by its progress can be slow.
#[tokio::test(start_paused = true)]
async fn a_call_in_idle_mode_is_reported_as_slow_too() {
    let (layer, log) = slow_log(idle_layer(10, 3));
    let tool = layer.layer(Script::always(Step::ok(()).with_progress(9, secs(1))));
    tool.oneshot(ToolCall::new("t")).await.unwrap();
    log.assert([(secs(9), secs(10))]);
}

#[tokio::test(start_paused = true)]
async fn a_tools_timeout_can_be_set_anew() {
    let layer = TimeoutLayer::default()
        .with_tool("t", secs(5))
        .with_tool("t", secs(6));
    let error = fails(layer, secs(9), ToolCall::new("t")).await;
    assert_eq!(error.timeout(), Some(secs(6)));
}

#[test]
fn a_slow_fraction_that_cannot_be_met_is_refused() {
    for fraction in [0.0, -1.0, 1.1, f64::NAN, f64::INFINITY] {
        let error = TimeoutLayer::default().with_slow_fraction(fraction);
        assert_eq!(error.unwrap_err().field(), "slow_fraction");
    }
    assert!(TimeoutLayer::default().with_slow_fraction(1.0).is_ok());
    let error = TimeoutLayer::default().with_idle_timeout(Duration::ZERO);
    assert_eq!(error.unwrap_err().field(), "idle_timeout");
}

fn idle_layer(timeout: u64, idle: u64) -> TimeoutLayer {
    let layer = TimeoutLayer::new(secs(timeout)).with_idle_timeout(secs(idle));
    layer.unwrap()
}

/// Calls a tool that reports progress every so many seconds, `times` times, and then goes quiet.
/// Its idle timeout is 3 s. Returns how long that took.
async fn idle(every: u64, times: u32, timeout: u64) -> (Result<(), ToolError>, Duration) {
    let tool = service_fn(move |call: ToolCall| async move {
        let progress = call.progress().expect("idle mode");
        for _ in 0..times {
            sleep(secs(every)).await;
            progress.report();
        }
        sleep(secs(every)).await;
        Ok::<_, BoxError>(())
    });
    let start = Instant::now();
    let stack = idle_layer(timeout, 3).layer(tool);
    let result = stack.oneshot(ToolCall::new("import")).await;
    (result, start.elapsed())
}

/// T8: each report starts the idle time anew.
#[tokio::test(start_paused = true)]
async fn progress_keeps_a_call_alive_beyond_its_idle_time() {
    let (result, took) = idle(2, 9, 60).await;
    assert!(result.is_ok());
    assert_eq!(took, secs(20));
}

/// T8: a tool that goes quiet is ended.
#[tokio::test(start_paused = true)]
async fn a_tool_that_goes_quiet_is_ended() {
    let (result, took) = idle(4, 0, 60).await;
    let error = result.unwrap_err();
    assert_eq!(error.timeout_limit(), Some(TimeoutLimit::Idle));
    expect!["Tool invocation timed out after 3000ms without progress"].assert_eq(error.message());
    let timeouts = (error.timeout(), error.configured_timeout());
    assert_eq!(timeouts, (Some(secs(3)), Some(secs(60))));
    assert_eq!(took, secs(3));
}

/// T8: the total is hard, with progress and without.
#[tokio::test(start_paused = true)]
async fn the_total_holds_whatever_progress_is_reported() {
    for (every, times, total) in [(1, 1000, 10), (60, 0, 2)] {
        let (result, took) = idle(every, times, total).await;
        let limit = result.unwrap_err().timeout_limit();
        assert_eq!((limit, took), (Some(TimeoutLimit::Timeout), secs(total)));
    }
}

/// M13: a person's time to answer counts neither as the tool's time nor as its silence.
#[tokio::test(start_paused = true)]
async fn paused_clocks_do_not_count() {
    let tool = service_fn(|call: ToolCall| async move {
        let progress = call.progress().expect("idle mode");
        sleep(secs(2)).await;
        let (first, second) = (progress.pause(), progress.pause());
        sleep(secs(100)).await;
        drop(first);
        sleep(secs(100)).await;
        drop(second);
        sleep(secs(9)).await;
        Ok::<_, BoxError>(())
    });
    // The inner layer has no idle timeout of its own.
    let nested = idle_layer(100, 50).layer(TimeoutLayer::new(secs(10)).layer(tool));
    for stack in [
        BoxCloneSyncService::new(nested),
        BoxCloneSyncService::new(idle_layer(10, 8).layer(tool)),
    ] {
        let start = Instant::now();
        let error = stack.oneshot(ToolCall::new("t")).await.unwrap_err();
        assert_eq!(error.timeout_limit(), Some(TimeoutLimit::Timeout));
        assert_eq!(start.elapsed(), secs(210));
    }
}

/// M13: a deadline is not the tool's: a pause does not move it.
#[tokio::test(start_paused = true)]
async fn a_pause_moves_no_deadline() {
    let tool = service_fn(|call: ToolCall| async move {
        let _pause = call.progress().map(|progress| progress.pause());
        pending::<Result<(), BoxError>>().await
    });
    let stack = idle_layer(10, 5).layer(tool);
    let start = Instant::now();
    let call = ToolCall::new("t").with_deadline(start + secs(30));
    let error = stack.oneshot(call).await.unwrap_err();
    assert_eq!(start.elapsed(), secs(30));
    assert_eq!(error.timeout_limit(), Some(TimeoutLimit::Deadline));
}

/// T8: progress is asked for in idle mode only.
#[tokio::test]
async fn outside_idle_mode_nobody_waits_for_progress() {
    let tool = Script::always(Step::ok(()));
    let stack = TimeoutLayer::default().layer(tool.clone());
    stack.oneshot(ToolCall::new("t")).await.unwrap();
    assert!(tool.calls()[0].progress().is_none());
}

/// Trap 12: windows and timers know only the monotonic clock, which a paused test shows.
#[tokio::test(start_paused = true)]
async fn an_observer_learns_of_the_timeout_in_force_and_of_slowness() {
    let mut call = ToolCall::new("t").with_deadline(Instant::now() + secs(10));
    let seen = call.observe();
    let answer = run(TimeoutLayer::new(secs(30)), secs(9), call);
    answer.await.unwrap();
    assert_eq!(seen.timeout(), Some(secs(10)));
    assert_eq!(seen.configured_timeout(), Some(secs(30)));
    assert!(seen.is_slow());
}
