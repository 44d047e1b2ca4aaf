use std::panic::{AssertUnwindSafe, catch_unwind};

use serde_json::{Value, json};
use tokio::time::{Instant, advance, sleep};
use tokio_test::{assert_pending, assert_ready_ok, task};
use tower::{Layer, Service, ServiceExt};
use tower_toolcall::{BoxError, ErrorKind, Evidence, Execution, ToolError, timeout::TimeoutLayer};
use tower_toolcall_test::{MAX_CALLS, Script, Step};

use crate::{call, secs};

async fn kinds(tool: &Script, calls: usize) -> Vec<Result<Value, ErrorKind>> {
    let mut ended = Vec::new();
    for _ in 0..calls {
        let result = tool.clone().oneshot(call()).await;
        ended.push(result.map_err(|error| error.kind()));
    }
    ended
}

#[tokio::test]
async fn the_steps_are_done_in_their_order() {
    let tool = Script::new([
        Step::ok(json!(1)),
        Step::fail(ErrorKind::Denied),
        Step::status(503),
        Step::error(BoxError::from("HTTP 429")),
        Step::of(|call| Ok(json!(call.tool()))),
    ]);
    let expected = [
        Ok(json!(1)),
        Err(ErrorKind::Denied),
        Err(ErrorKind::Upstream),
        Err(ErrorKind::RateLimited),
        Ok(json!("search")),
    ];
    assert_eq!(kinds(&tool, 5).await, expected);
    assert_eq!((tool.left(), tool.count()), (0, 5));
}

#[tokio::test]
async fn a_script_that_is_used_up_says_which_call_it_did_not_expect() {
    let tool = Script::new([Step::ok(json!(1))]);
    let ended = kinds(&tool, 2).await;
    assert_eq!(ended, [Ok(json!(1)), Err(ErrorKind::Internal)]);
    let error = tool.oneshot(call()).await.unwrap_err();
    let text = "the script has no answer for call 3 (`search`)";
    assert_eq!(error.message(), text);
}

#[tokio::test]
async fn the_last_step_can_be_repeated_and_changed() {
    let tool = Script::new([Step::ok(json!(1))]).then(Step::ok(json!(2)));
    let ended = kinds(&tool, 3).await;
    assert_eq!(ended, [Ok(json!(1)), Ok(json!(2)), Ok(json!(2))]);
    tool.set_then(Step::fail(ErrorKind::Failed));
    assert_eq!(kinds(&tool, 1).await, [Err(ErrorKind::Failed)]);
}

/// What retry and rate limit act on.
#[tokio::test]
async fn a_status_is_the_leafs_own_word() {
    let tool: Script = Script::new([
        Step::status(429).with_retry_after(secs(7)),
        Step::status(503).with_retry_after(secs(7)),
        Step::status(502),
    ]);
    for execution in [
        Execution::NotStarted,
        Execution::NotStarted,
        Execution::Unknown,
    ] {
        let error = tool.clone().oneshot(call()).await.unwrap_err();
        assert_eq!(
            (error.evidence(), error.execution()),
            (Evidence::Reported, execution)
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_step_waits_first() {
    let tool = Script::always(Step::ok(()).after(secs(3600)));
    let start = Instant::now();
    tool.clone().oneshot(call()).await.unwrap();
    assert_eq!(start.elapsed(), secs(3600));
    let failing: Script<()> = Script::always(Step::fail(ErrorKind::Timeout).after(secs(5)));
    failing.oneshot(call()).await.unwrap_err();
    assert_eq!(start.elapsed(), secs(3605));
}

/// T8.
#[tokio::test(start_paused = true)]
async fn progress_keeps_a_call_alive() {
    let idle = TimeoutLayer::new(secs(100)).with_idle_timeout(secs(10));
    let idle = idle.unwrap();
    let tool = Script::new([
        Step::ok("done").with_progress(5, secs(9)),
        Step::ok("done").after(secs(45)),
    ]);
    let start = Instant::now();
    let done = idle.layer(tool.clone()).oneshot(call()).await;
    assert_eq!((done.unwrap(), start.elapsed()), ("done", secs(45)));
    let error = idle.layer(tool).oneshot(call()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
}

#[tokio::test(start_paused = true)]
async fn futures_are_counted_for_as_long_as_they_exist() {
    let tool = Script::new([Step::hang(), Step::ok(()).after(secs(1))]);
    let mut hangs = task::spawn(tool.clone().call(call()));
    let mut waits = task::spawn(tool.clone().call(call()));
    assert_pending!(hangs.poll());
    assert_pending!(waits.poll());
    assert_eq!((tool.in_flight(), tool.cancelled()), (2, 0));
    advance(secs(1)).await;
    assert_ready_ok!(waits.poll());
    assert_eq!(tool.in_flight(), 2);
    drop(waits);
    assert_eq!((tool.in_flight(), tool.cancelled()), (1, 0));
    drop(hangs);
    assert_eq!((tool.in_flight(), tool.cancelled()), (0, 1));
    assert_eq!(tool.most_in_flight(), 2);
}

#[tokio::test]
async fn a_panic_is_no_cancellation() {
    let tool: Script<()> = Script::new([
        Step::panic("no such row"),
        Step::of(|_| panic!("no such row")),
        Step::panic_in_call("no such row"),
    ]);
    for n in 0..3 {
        let mut svc = tool.clone();
        let ended = catch_unwind(AssertUnwindSafe(|| {
            let mut response = task::spawn(svc.call(call()));
            assert!(n < 2, "it panics before");
            let _ = response.poll();
        }));
        let payload = ended.unwrap_err();
        let text = payload.downcast_ref::<String>().map(String::as_str);
        let text = text.or(payload.downcast_ref::<&str>().copied());
        assert_eq!(text, Some("no such row"));
    }
    assert_eq!((tool.in_flight(), tool.count()), (0, 3));
    // That which never had a future was dropped with its guard.
    assert_eq!(tool.cancelled(), 0);
}

#[tokio::test(start_paused = true)]
async fn what_it_got_and_when_is_kept() {
    let tool = Script::always(Step::ok(()));
    let start = Instant::now();
    for seconds in [1, 2] {
        sleep(secs(seconds)).await;
        let call = call().with_json(json!({ "n": seconds })).unwrap();
        tool.clone().oneshot(call).await.unwrap();
    }
    let got: Vec<_> = tool
        .calls()
        .iter()
        .map(|c| c.arguments()["n"].clone())
        .collect();
    assert_eq!(got, [1, 2]);
    assert_eq!(tool.times(), [start + secs(1), start + secs(3)]);
}

#[tokio::test]
async fn the_calls_that_are_kept_are_bounded() {
    let mut tool = Script::always(Step::ok(()));
    for _ in 0..MAX_CALLS + 5 {
        drop(tool.call(call()));
    }
    assert_eq!(tool.calls().len(), MAX_CALLS);
    assert_eq!(tool.count(), MAX_CALLS as u64 + 5);
}

/// Rule 9.
#[test]
fn an_answer_does_not_show() {
    let step = Step::ok(json!("s3cr3t-canary"));
    let script = Script::new([step.clone()]);
    let shown = format!("{step:?} {script:?} {:?}", script.clone().call(call()));
    assert!(!shown.contains("canary"), "{shown}");
}

#[test]
#[should_panic(expected = "only an error has a delay")]
fn a_delay_needs_an_error() {
    let _ = Step::ok(()).with_retry_after(secs(1));
}

#[test]
fn an_error_is_taken_as_it_is() {
    let error = ToolError::new(ErrorKind::Failed, "as it is").with_tool("mail");
    let mut tool = Script::<()>::always(Step::error(error));
    let mut response = task::spawn(tool.call(call()));
    let error = tokio_test::assert_ready_err!(response.poll());
    assert_eq!((error.message(), error.tool()), ("as it is", Some("mail")));
}

#[test]
#[should_panic(expected = "an error's status is 400 to 999")]
fn a_status_of_success_is_no_error() {
    let _ = Step::<()>::status(200);
}
