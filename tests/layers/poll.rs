//! Jobs: what `PollLayer` asks, when it stops, and that nothing is started twice.

use std::time::Duration;

use expect_test::expect;
use serde_json::{Map, Value, json};
use tokio::time::{Instant, sleep};
use tower::{Layer, Service, ServiceBuilder, ServiceExt};
use tower_toolcall::{
    CallInfo, ErrorKind, Evidence, Execution, ReplaySafety, ToolCall, ToolError,
    backoff::Backoff,
    call::JobRef,
    circuit_breaker::CircuitBreakerLayer,
    deadline::DeadlineLayer,
    flow::CallExt,
    poll::{Job, PollLayer, Polled, Started},
    retry::{RetryLayer, RetryPolicy},
    timeout::TimeoutLayer,
};
use tower_toolcall_test::{Script, Step};

/// A job by its id: `{"job": id}` starts it, `{"done": ..}`, `{"failed": ..}` and anything else are
/// polls' answers.
#[derive(Clone, Debug)]
struct Jobs;

#[derive(Clone, Debug, PartialEq)]
enum Asks {
    Status(String),
    Cancel(String),
}

fn follow_up(call: &ToolCall, job: &JobRef, asks: fn(String) -> Asks) -> ToolCall {
    let id = job.values()["id"].as_str().unwrap().to_owned();
    let mut call = call.follow_up();
    call.extensions_mut().insert(asks(id));
    call
}

impl Job<Value> for Jobs {
    fn started(&self, call: &ToolCall, answer: Value) -> Result<Started<Value>, ToolError> {
        let Some(id) = answer.get("job") else {
            return Ok(Started::Done(answer));
        };
        let values = Map::from_iter([("id".to_owned(), id.clone())]);
        let after = answer["after"].as_u64().map(Duration::from_secs);
        Ok(Started::Running(JobRef::new(call, values)?, after))
    }

    fn ask(&self, call: &ToolCall, job: &JobRef) -> ToolCall {
        follow_up(call, job, Asks::Status)
    }

    fn read(&self, _: &ToolCall, answer: Value) -> Result<Polled<Value>, ToolError> {
        match answer.get("failed") {
            Some(why) => Err(ToolError::new(ErrorKind::Reported, why.to_string())),
            None if answer.get("done").is_some() => Ok(Polled::Done(answer["done"].clone())),
            None => Ok(Polled::Running {
                after: answer["after"].as_u64().map(Duration::from_secs),
                note: answer["status"].as_str().map(|s| s.to_owned().into()),
            }),
        }
    }

    fn cancel(&self, call: &ToolCall, job: &JobRef) -> Option<ToolCall> {
        Some(follow_up(call, job, Asks::Cancel))
    }
}

/// The same, but its jobs cannot be cancelled.
#[derive(Clone)]
struct Endless;

impl Job<Value> for Endless {
    fn started(&self, call: &ToolCall, answer: Value) -> Result<Started<Value>, ToolError> {
        Jobs.started(call, answer)
    }

    fn ask(&self, call: &ToolCall, job: &JobRef) -> ToolCall {
        Jobs.ask(call, job)
    }

    fn read(&self, call: &ToolCall, answer: Value) -> Result<Polled<Value>, ToolError> {
        Jobs.read(call, answer)
    }
}

fn call() -> ToolCall {
    ToolCall::new("report").with_server("stats").with_id("7")
}

fn job() -> JobRef {
    let values = Map::from_iter([("id".to_owned(), json!("j"))]);
    JobRef::new(&call(), values).unwrap()
}

fn started() -> Step<Value> {
    Step::ok(json!({ "job": "j" }))
}

fn running() -> Step<Value> {
    Step::ok(json!({ "status": "running" }))
}

fn done() -> Step<Value> {
    Step::ok(json!({ "done": "rows" }))
}

/// What each call of the tool asked for, and when, in seconds after `since`: `None` starts a job.
fn asked(tool: &Script<Value>, since: Instant) -> Vec<(f32, Option<Asks>)> {
    let calls = tool.calls();
    let times = tool.times();
    let all = calls.iter().zip(times);
    let seconds = |at: Instant| (at - since).as_secs_f32();
    all.map(|(call, at)| (seconds(at), call.extensions().get::<Asks>().cloned()))
        .collect()
}

fn status() -> Option<Asks> {
    Some(Asks::Status("j".to_owned()))
}

fn starts(tool: &Script<Value>) -> usize {
    let calls = tool.calls();
    let is_start = |call: &&ToolCall| call.extensions().get::<Asks>().is_none();
    calls.iter().filter(is_start).count()
}

/// H5: after 1 s, then half as long again each time, 30 s at most.
#[tokio::test(start_paused = true)]
async fn a_job_is_asked_for_at_growing_intervals_until_it_is_done() {
    let since = Instant::now();
    let tool = Script::new([started(), running(), running(), done()]);
    let stack = PollLayer::new(Jobs).layer(tool.clone());
    assert_eq!(stack.oneshot(call()).await.unwrap(), json!("rows"));
    let polls = [(1.0, status()), (2.5, status()), (4.75, status())];
    assert_eq!(asked(&tool, since)[0], (0.0, None));
    assert_eq!(asked(&tool, since)[1..], polls);
}

#[tokio::test(start_paused = true)]
async fn an_answer_without_a_job_is_the_result() {
    let tool = Script::new([Step::ok(json!(1))]);
    let stack = PollLayer::new(Jobs).layer(tool.clone());
    assert_eq!(stack.oneshot(call()).await.unwrap(), json!(1));
    assert_eq!(tool.count(), 1);
}

/// H5: 60 polls in 1,605 s, then `PollTimeout`, which has the job and what it said last, and is not
/// counted against the tool.
#[tokio::test(start_paused = true)]
async fn used_up_polls_are_a_poll_timeout_with_the_job() {
    let since = Instant::now();
    let tool = Script::new([started()]).then(running());
    let stack = PollLayer::new(Endless).layer(tool.clone());
    let error = stack.oneshot(call()).await.unwrap_err();
    assert_eq!((error.kind(), tool.count()), (ErrorKind::PollTimeout, 61));
    expect!["the job has not ended after 60 polls: running"].assert_eq(error.message());
    assert_eq!(error.job(), Some(&job()));
    expect!["The job that tool 'report' started has not finished and may still run. Repeat it only if it may run twice, or continue without it."].assert_eq(&error.model_message());
    assert!(error.is_retryable() && !error.is_own_refusal());
    let took = since.elapsed().as_secs();
    assert!((1_590..1_620).contains(&took), "{took} s");
}

/// H5: the tool said itself that its work has failed. Nothing is sent again.
#[tokio::test(start_paused = true)]
async fn a_job_that_has_failed_is_an_error_of_the_call_without_a_job() {
    let failed = Step::ok(json!({ "failed": "no rows" }));
    let tool = Script::new([started(), running(), failed]);
    let stack = ServiceBuilder::new()
        .layer(RetryLayer::new(RetryPolicy::new().assume_replay_safe()))
        .layer(PollLayer::new(Jobs))
        .service(tool.clone());
    let error = stack.oneshot(call()).await.unwrap_err();
    assert_eq!((error.kind(), error.job()), (ErrorKind::Reported, None));
    assert_eq!(tool.count(), 3);
}

#[tokio::test(start_paused = true)]
async fn the_error_of_the_call_that_starts_a_job_is_passed_on() {
    let tool = Script::new([Step::status(503)]);
    let error = PollLayer::new(Jobs).layer(tool.clone()).oneshot(call());
    let error = error.await.unwrap_err();
    assert_eq!((error.kind(), error.job()), (ErrorKind::Upstream, None));
    assert_eq!(tool.count(), 1);
}

/// H5: an error of HTTP while polling takes one of the polls.
#[tokio::test(start_paused = true)]
async fn a_poll_that_fails_is_repeated_within_the_polls() {
    let tool = Script::new([started(), Step::status(502), Step::status(500), done()]);
    let stack = PollLayer::new(Jobs).layer(tool.clone());
    assert_eq!(stack.oneshot(call()).await.unwrap(), json!("rows"));

    let tool = Script::new([started()]).then(Step::status(502));
    let layer = PollLayer::new(Jobs).with_polls(3).unwrap();
    let error = layer.layer(tool.clone()).oneshot(call()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PollTimeout);
    expect!["the job has not ended after 3 polls: UPSTREAM_ERROR"].assert_eq(error.message());
    assert_eq!(tool.count(), 4);
}

/// It proves nothing of the call that has started the job: not that it has not run, and nothing of
/// its server.
#[tokio::test(start_paused = true)]
async fn a_poll_that_is_refused_for_good_ends_the_wait_and_leaves_the_job() {
    let tool = Script::new([started(), Step::status(401)]);
    let stack = PollLayer::new(Jobs).layer(tool.clone());
    let error = stack.oneshot(call()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied);
    assert_eq!(error.job(), Some(&job()));
    assert_eq!(error.execution(), Execution::Unknown);
    assert_eq!(error.evidence(), Evidence::Inferred);
    assert_eq!(tool.count(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_job_may_not_be_there_yet_at_its_first_three_polls() {
    let missing = || Step::status(404);
    let tool = Script::new([started(), missing(), missing(), missing(), done()]);
    let stack = PollLayer::new(Jobs).layer(tool.clone());
    assert_eq!(stack.oneshot(call()).await.unwrap(), json!("rows"));

    let tool = Script::new([started()]).then(missing());
    let error = PollLayer::new(Jobs).layer(tool.clone()).oneshot(call());
    assert_eq!(error.await.unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(tool.count(), 5);
}

/// H5: `Retry-After` of a status answer, or of its error, beats a shorter interval; 5 minutes at
/// most.
#[tokio::test(start_paused = true)]
async fn a_delay_that_the_server_asks_for_beats_the_interval() {
    let since = Instant::now();
    let seconds = Duration::from_secs;
    let tool = Script::new([
        Step::ok(json!({ "job": "j", "after": 5 })),
        Step::ok(json!({ "after": 7 })),
        Step::status(429).with_retry_after(seconds(20)),
        Step::ok(json!({ "after": 86_400 })),
        done(),
    ]);
    let stack = PollLayer::new(Jobs).layer(tool.clone());
    stack.oneshot(call()).await.unwrap();
    let times: Vec<f32> = asked(&tool, since).iter().map(|(at, _)| *at).collect();
    assert_eq!(times, [0.0, 5.0, 12.0, 32.0, 332.0]);
}

/// H5: the last wait is shortened, so that a job of 20 s is seen to have ended at 19.5 s.
#[tokio::test(start_paused = true)]
async fn the_last_wait_before_the_deadline_is_shortened() {
    let since = Instant::now();
    let tool = Script::new([started()]).then(running());
    let stack = ServiceBuilder::new()
        .layer(DeadlineLayer::new(Duration::from_secs(20)))
        .layer(PollLayer::new(Endless))
        .service(tool.clone());
    let error = stack.oneshot(call()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PollTimeout);
    assert_eq!(error.job(), Some(&job()));
    let (last, _) = asked(&tool, since).pop().unwrap();
    assert_eq!((last, since.elapsed().as_secs_f32()), (19.5, 19.5));
}

#[tokio::test(start_paused = true)]
async fn a_poll_that_hangs_at_the_deadline_leaves_the_job() {
    let since = Instant::now();
    let tool = Script::new([started()]).then(Step::hang());
    let stack = ServiceBuilder::new()
        .layer(DeadlineLayer::new(Duration::from_secs(20)))
        .layer(PollLayer::new(Jobs))
        .service(tool.clone());
    let error = stack.oneshot(call()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PollTimeout);
    assert_eq!(error.job(), Some(&job()));
    assert_eq!(since.elapsed(), Duration::from_millis(19_900));
    // It is given up, not cancelled: whoever has the job goes on waiting.
    sleep(Duration::from_secs(10)).await;
    assert_eq!((tool.count(), tool.in_flight()), (2, 0));
}

#[tokio::test(start_paused = true)]
async fn a_budget_ends_the_wait_of_a_call_without_a_deadline() {
    let since = Instant::now();
    let tool = Script::new([started()]).then(running());
    let layer = PollLayer::new(Jobs).with_budget(Duration::from_secs(10));
    let error = layer
        .unwrap()
        .layer(tool)
        .oneshot(call())
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PollTimeout);
    assert_eq!(since.elapsed(), Duration::from_millis(9_500));
}

/// The layers between: each poll has its own timeout, its own retries, its own verdict of the
/// breaker.
#[tokio::test(start_paused = true)]
async fn layers_below_act_on_single_requests() {
    let tool = Script::new([
        started(),
        Step::hang(),
        running(),
        Step::status(502),
        done(),
    ]);
    let stack = ServiceBuilder::new()
        .layer(PollLayer::new(Jobs))
        .layer(RetryLayer::new(RetryPolicy::new()))
        .layer(CircuitBreakerLayer::new())
        .layer(TimeoutLayer::new(Duration::from_secs(10)))
        .service(tool.clone());
    assert_eq!(stack.oneshot(call()).await.unwrap(), json!("rows"));
    assert_eq!((tool.count(), starts(&tool)), (5, 1));
}

/// Intervals of 30 s, and a server that wants more, are longer than it.
#[tokio::test(start_paused = true)]
async fn a_wait_for_a_job_keeps_an_idle_timeout_quiet() {
    let long = Step::ok(json!({ "after": 60 }));
    let tool = Script::new([started(), long, done()]);
    let idle =
        TimeoutLayer::new(Duration::from_secs(500)).with_idle_timeout(Duration::from_secs(8));
    let stack = ServiceBuilder::new()
        .layer(idle.unwrap())
        .layer(PollLayer::new(Jobs))
        .service(tool.clone());
    let since = Instant::now();
    assert_eq!(stack.oneshot(call()).await.unwrap(), json!("rows"));
    // No poll more than without it.
    assert_eq!(tool.count(), 3);
    assert_eq!(since.elapsed(), Duration::from_secs(61));
}

/// The budget of a deadline layer below is that of one poll.
#[tokio::test(start_paused = true)]
async fn a_poll_that_had_no_time_is_one_of_the_polls() {
    let late = || {
        Step::error(ToolError::refusal(
            ErrorKind::DeadlineExceeded,
            "queued too long",
        ))
    };
    let tool = Script::new([started(), late(), done()]);
    let stack = PollLayer::new(Jobs).layer(tool.clone());
    assert_eq!(stack.oneshot(call()).await.unwrap(), json!("rows"));
}

/// Five minutes are for what a server asks for.
#[tokio::test(start_paused = true)]
async fn an_own_interval_may_be_as_long_as_it_likes() {
    let since = Instant::now();
    let tool = Script::new([started(), done()]);
    let hour = Backoff::fixed(Duration::from_secs(3_600)).unwrap();
    let layer = PollLayer::new(Jobs).with_interval(hour).unwrap();
    layer.layer(tool).oneshot(call()).await.unwrap();
    // Backoff's own jitter is left out.
    assert_eq!(since.elapsed(), Duration::from_secs(3_600));
}

/// H5: with the job, nothing is started, and it is asked for at once.
#[tokio::test(start_paused = true)]
async fn a_call_with_a_job_goes_on_waiting_and_starts_nothing() {
    let since = Instant::now();
    let tool = Script::new([running(), done()]);
    let stack = PollLayer::new(Jobs).layer(tool.clone());
    let stored = serde_json::to_string(&job()).unwrap();
    let job: JobRef = serde_json::from_str(&stored).unwrap();
    assert_eq!(
        stack.oneshot(call().with_job(job)).await.unwrap(),
        json!("rows")
    );
    assert_eq!(asked(&tool, since), [(0.0, status()), (1.5, status())]);
}

#[tokio::test(start_paused = true)]
async fn the_job_of_another_tool_is_refused() {
    let tool = Script::new([running()]);
    let stack = PollLayer::new(Jobs).layer(tool.clone());
    for other in [
        ToolCall::new("report"),
        ToolCall::new("x").with_server("stats"),
    ] {
        let error = stack
            .clone()
            .oneshot(other.with_job(job()))
            .await
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.is_own_refusal());
    }
    assert_eq!(tool.count(), 0);
}

/// A second attempt asks for the job of the first one, whatever the call's replay safety.
#[tokio::test(start_paused = true)]
async fn a_retry_above_goes_on_waiting_and_starts_nothing() {
    let tool = Script::new([started(), running(), running(), running(), done()]);
    let stack = ServiceBuilder::new()
        .layer(RetryLayer::new(RetryPolicy::new()))
        .layer(PollLayer::new(Jobs).with_polls(2).unwrap())
        .service(tool.clone());
    let call = call().with_replay_safety(ReplaySafety::Unsafe);
    assert_eq!(stack.oneshot(call).await.unwrap(), json!("rows"));
    assert_eq!((tool.count(), starts(&tool)), (5, 1));
}

/// The timeout knows nothing of the job; the record does.
#[tokio::test(start_paused = true)]
async fn a_retry_after_a_timeout_above_the_job_goes_on_waiting() {
    let tool = Script::new([started(), running(), running(), done()]);
    let stack = ServiceBuilder::new()
        .layer(RetryLayer::new(RetryPolicy::new()))
        .layer(TimeoutLayer::new(Duration::from_secs(4)))
        .layer(PollLayer::new(Endless))
        .service(tool.clone());
    assert_eq!(stack.oneshot(call()).await.unwrap(), json!("rows"));
    assert_eq!(starts(&tool), 1);
}

/// A job that was cancelled is not waited for.
#[tokio::test(start_paused = true)]
async fn a_retry_after_a_cancelled_job_starts_another_one_if_it_may() {
    let tool = Script::new([
        started(),
        running(),
        running(),
        Step::ok(Value::Null), // the answer to the cancellation
        Step::ok(json!(2)),
    ]);
    let stack = ServiceBuilder::new()
        .layer(RetryLayer::new(RetryPolicy::new().assume_replay_safe()))
        .layer(TimeoutLayer::new(Duration::from_secs(4)))
        .layer(PollLayer::new(Jobs))
        .service(tool.clone());
    assert_eq!(stack.oneshot(call()).await.unwrap(), json!(2));
    assert_eq!(starts(&tool), 2);
}

/// A timeout of another author returns its error, and drops its call later: the job is cancelled in
/// between. What must not run twice asks for that job, and starts none.
#[tokio::test(start_paused = true)]
async fn a_retry_never_starts_a_second_job_of_an_unsafe_call() {
    let tool = Script::new([started(), running()]).then(Step::ok(json!({ "failed": "cancelled" })));
    let stack = ServiceBuilder::new()
        .layer(RetryLayer::new(RetryPolicy::new()))
        .layer(tower::timeout::TimeoutLayer::new(Duration::from_secs(2)))
        .layer(PollLayer::new(Jobs))
        .service(tool.clone());
    let call = call().with_replay_safety(ReplaySafety::Unsafe);
    stack.oneshot(call).await.unwrap_err();
    assert_eq!(starts(&tool), 1);
}

/// Nobody has waited for it.
#[tokio::test(start_paused = true)]
async fn a_call_with_a_job_that_is_never_polled_cancels_nothing() {
    let tool = Script::new([running()]).then(running());
    let mut stack = PollLayer::new(Jobs).layer(tool.clone());
    drop(stack.ready().await.unwrap().call(call().with_job(job())));
    sleep(Duration::from_secs(10)).await;
    let cancel = Some(Asks::Cancel("j".to_owned()));
    let calls = tool.calls();
    assert!(
        calls
            .iter()
            .all(|call| call.extensions().get::<Asks>() != cancel.as_ref())
    );
}

/// Others may wait for it too.
#[tokio::test(start_paused = true)]
async fn a_dropped_call_leaves_a_job_that_it_was_given() {
    let tool = Script::new([Step::status(503), Step::hang()]).then(running());
    let stack = ServiceBuilder::new()
        .layer(RetryLayer::new(RetryPolicy::new()))
        .layer(PollLayer::new(Jobs).with_polls(1).unwrap())
        .service(tool.clone());
    let waits = stack.oneshot(call().with_job(job()));
    let dropped = tokio::time::timeout(Duration::from_secs(20), waits);
    assert!(dropped.await.is_err());
    sleep(Duration::from_secs(60)).await;
    assert_eq!((tool.count(), tool.in_flight()), (2, 0));
}

/// A clone that is sent beside the call finds its job on the record that they share.
#[tokio::test(start_paused = true)]
async fn a_dropped_clone_leaves_the_job_of_the_call_beside_it() {
    let tool = Script::new([started()]).then(running());
    let stack = PollLayer::new(Jobs)
        .with_polls(5)
        .unwrap()
        .layer(tool.clone());
    let mut call = call();
    let _observation = call.observe();
    let first = tokio::spawn(stack.clone().oneshot(call.clone()));
    sleep(Duration::from_millis(100)).await;
    let beside = tokio::time::timeout(Duration::from_millis(500), stack.oneshot(call));
    assert!(beside.await.is_err());
    let error = first.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PollTimeout);
    let asks = asked(&tool, Instant::now());
    assert!(
        asks.iter().skip(1).all(|(_, asks)| *asks == status()),
        "{asks:?}"
    );
}

/// An extension of a record that reads the record when it is cloned.
struct Reads(CallInfo);

impl Clone for Reads {
    fn clone(&self) -> Self {
        self.0.record(|record| assert!(record.job().is_some()));
        Self(self.0.clone())
    }
}

#[test]
fn a_value_in_the_record_of_a_job_may_read_the_record() {
    let mut call = call();
    let _observation = call.observe();
    call.record(|record| {
        record.set_job(job());
        record.insert_extension(Reads(call.info()));
        assert!(record.extension::<Reads>().is_some());
    });
}

#[tokio::test(start_paused = true)]
async fn a_dropped_attempt_cancels_the_job_that_an_earlier_one_has_started() {
    let tool = Script::new([started(), running(), Step::hang()]).then(running());
    let stack = ServiceBuilder::new()
        .layer(RetryLayer::new(RetryPolicy::new()))
        .layer(PollLayer::new(Jobs).with_polls(1).unwrap())
        .service(tool.clone());
    let dropped = tokio::time::timeout(Duration::from_secs(20), stack.oneshot(call()));
    assert!(dropped.await.is_err());
    sleep(Duration::from_secs(60)).await;
    assert_eq!(tool.count(), 4);
    let last = tool.calls().pop().unwrap();
    let cancel = Some(Asks::Cancel("j".to_owned()));
    assert_eq!(last.extensions().get::<Asks>().cloned(), cancel);
}

#[tokio::test(start_paused = true)]
async fn a_job_that_is_over_is_not_cancelled() {
    let failed = Step::ok(json!({ "failed": "no rows" }));
    for end in [done(), failed, Step::status(401)] {
        let tool = Script::new([started(), end]).then(Step::ok(Value::Null));
        let mut answer = Box::pin(PollLayer::new(Jobs).layer(tool.clone()).oneshot(call()));
        let _ = (&mut answer).await;
        drop(answer);
        sleep(Duration::from_secs(10)).await;
        assert_eq!(tool.count(), 2);
    }
}

/// There is no task for its cancellation then; nor has it a meaning that somebody panics.
#[test]
fn a_call_dropped_outside_of_a_runtime_leaves_its_job() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    let tool = Script::new([started()]).then(running());
    let mut call = call();
    let observation = call.observe();
    let mut answer = Box::pin(PollLayer::new(Jobs).layer(tool.clone()).oneshot(call));
    let waits = async { tokio::time::timeout(Duration::from_millis(10), &mut answer).await };
    assert!(runtime.block_on(waits).is_err());
    drop(answer);
    assert_eq!((tool.count(), observation.job()), (1, Some(job())));
}

/// A call that is passed on under other names has no job there.
#[tokio::test(start_paused = true)]
async fn the_job_of_a_record_is_that_of_its_own_tool() {
    let tool = Script::new([started(), running()]).then(done());
    let layer = PollLayer::new(Jobs).with_polls(1).unwrap();
    let stack = layer.layer(tool.clone());
    let mut call = call();
    let _observation = call.observe();
    let error = stack.clone().oneshot(call.clone()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PollTimeout);
    assert_eq!(call.job(), Some(job()));
    let elsewhere = call.with_server("other");
    assert_eq!(elsewhere.job(), None);
}

/// H5: dropped while it waits, while it polls: the job is told once.
#[tokio::test(start_paused = true)]
async fn a_dropped_call_cancels_its_job_once() {
    for (steps, seconds) in [([started(), running()], 2), ([started(), Step::hang()], 2)] {
        let tool = Script::new(steps).then(Step::ok(Value::Null));
        let stack = PollLayer::new(Jobs).layer(tool.clone());
        let dropped = tokio::time::timeout(Duration::from_secs(seconds), stack.oneshot(call()));
        assert!(dropped.await.is_err());
        sleep(Duration::from_secs(60)).await;
        let calls = tool.calls();
        let cancel = Some(Asks::Cancel("j".to_owned()));
        assert_eq!(calls.len(), 3);
        assert_eq!(calls[2].extensions().get::<Asks>().cloned(), cancel);
        assert_eq!((tool.in_flight(), calls[2].deadline().is_some()), (0, true));
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_dropped_before_its_job_has_begun_cancels_nothing() {
    let tool = Script::new([started().after(Duration::from_secs(5))]);
    let stack = PollLayer::new(Jobs).layer(tool.clone());
    let dropped = tokio::time::timeout(Duration::from_secs(2), stack.oneshot(call()));
    assert!(dropped.await.is_err());
    sleep(Duration::from_secs(60)).await;
    assert_eq!(tool.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_layer_may_leave_jobs_running() {
    let tool = Script::new([started(), running()]).then(running());
    let stack = PollLayer::new(Jobs).without_cancel().layer(tool.clone());
    let dropped = tokio::time::timeout(Duration::from_secs(2), stack.oneshot(call()));
    assert!(dropped.await.is_err());
    sleep(Duration::from_secs(60)).await;
    assert_eq!(tool.count(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_call_ends_at_once_and_cancels_its_job() {
    use tokio_util::sync::CancellationToken;

    let tool = Script::new([started(), running()]).then(Step::ok(Value::Null));
    let stack = PollLayer::new(Jobs).layer(tool.clone());
    let token = CancellationToken::new();
    let answer = tokio::spawn(stack.oneshot(call().with_cancellation(token.clone())));
    sleep(Duration::from_secs(2)).await;
    let since = Instant::now();
    token.cancel();
    let error = answer.await.unwrap().unwrap_err();
    assert_eq!((error.kind(), error.job()), (ErrorKind::Cancelled, None));
    assert_eq!(since.elapsed(), Duration::ZERO);
    sleep(Duration::from_secs(1)).await;
    let last = tool.calls().pop().unwrap();
    let cancel = Some(Asks::Cancel("j".to_owned()));
    assert_eq!(last.extensions().get::<Asks>().cloned(), cancel);
    // The token of the caller does not end the cancellation too.
    assert!(last.cancellation().is_none());
}

/// E.6.12. What is observed above is the job's last answer, not the answer that has started it.
#[tokio::test(start_paused = true)]
async fn the_record_has_the_job_while_it_runs() {
    let tool = Script::new([started(), running(), done()]);
    let stack = PollLayer::new(Jobs).layer(tool.clone());
    let mut call = call();
    let observation = call.observe();
    let answer = tokio::spawn(stack.oneshot(call));
    sleep(Duration::from_secs(2)).await;
    assert_eq!(observation.job(), Some(job()));
    assert_eq!(answer.await.unwrap().unwrap(), json!("rows"));
    assert_eq!((observation.job(), observation.attempts()), (None, 1));
}

/// The caller's own timeout and claims are for the whole, so polls have none of them.
#[tokio::test(start_paused = true)]
async fn a_poll_is_a_call_of_its_own_that_may_run_twice() {
    let tool = Script::new([started(), done()]);
    let stack = ServiceBuilder::new()
        .layer(RetryLayer::new(RetryPolicy::new()))
        .layer(PollLayer::new(Jobs))
        .service(tool.clone());
    let call = call().with_timeout(Duration::from_secs(600));
    stack
        .oneshot(call.with_json(json!({ "a": 1 })).unwrap())
        .await
        .unwrap();
    let poll = &tool.calls()[1];
    assert_eq!(poll.tool(), "report");
    assert_eq!(poll.server(), Some("stats"));
    assert_eq!(poll.id(), Some("7"));
    assert_eq!(
        (poll.timeout(), poll.arguments()["a"].as_u64()),
        (None, Some(1))
    );
    assert_eq!(poll.replay_safety(), ReplaySafety::Safe);
    assert!(!poll.is_claimed(tower_toolcall::Claim::Retry));
    assert!(poll.idempotency_key().is_none() && poll.job().is_none());
}

#[test]
fn a_job_of_more_than_four_kibibytes_is_refused() {
    let values = Map::from_iter([("id".to_owned(), json!("x".repeat(4_096)))]);
    let error = JobRef::new(&call(), values).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Reported);
    let long = json!({ "tool": "report", "values": { "id": "x".repeat(4_096) } });
    assert!(serde_json::from_value::<JobRef>(long).is_err());
    let canary = Map::from_iter([("id".to_owned(), json!("canary"))]);
    let job = JobRef::new(&call(), canary).unwrap();
    assert!(!format!("{job:?}").contains("canary"));
    let error = ToolError::new(ErrorKind::PollTimeout, "late").with_job(job);
    let shown = format!(
        "{error} {error:?} {}",
        serde_json::to_string(&error).unwrap()
    );
    assert!(!shown.contains("canary"), "{shown}");
}

#[test]
fn settings_that_never_ask_are_refused() {
    let layer = || PollLayer::new(Jobs);
    let none = Backoff::fixed(Duration::ZERO).unwrap();
    assert_eq!(layer().with_interval(none).unwrap_err().field(), "interval");
    assert_eq!(layer().with_polls(0).unwrap_err().field(), "polls");
    assert_eq!(
        layer().with_budget(Duration::ZERO).unwrap_err().field(),
        "budget"
    );
}
