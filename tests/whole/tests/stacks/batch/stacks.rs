//! Around whole stacks.

use tokio::time::Instant;
use tower::{Layer, Service, ServiceBuilder, ServiceExt, service_fn, util::BoxCloneSyncService};
use tower_toolcall::{
    BoxError, ErrorKind, Event, ToolCall, ToolError,
    batch::{Parallel, Sequence},
    circuit_breaker::CircuitBreakerLayer,
    concurrency_limit::ConcurrencyLimitLayer,
    deadline::DeadlineLayer,
    policy::{Approval, PolicyLayer},
    quota::{Quota, QuotaLayer},
    rate_limit::RateLimitBackoffLayer,
    redact::Rules,
    result::{Status, ToolResult},
    retry::{RetryLayer, RetryPolicy},
    sanitize::SanitizeLayer,
    timeout::TimeoutLayer,
    trace::TraceLayer,
};
use tower_toolcall_test::{Events, Script, Step};

use super::kit::{Counts, calls, ms, secs, statuses, tool};

/// X1, S2: a result has the metadata of its stack, and is written by the stack's redaction rules.
#[tokio::test(start_paused = true)]
async fn results_are_written_by_the_rules_of_the_stack() {
    let tools = Script::new([Step::status(503), Step::ok("pin 4711-0815")]);
    let stack = ServiceBuilder::new()
        .layer(SanitizeLayer::new(
            Rules::new().with_secret_prefix("4711-", 4).unwrap(),
        ))
        .layer(TraceLayer::new())
        .layer(RetryLayer::new(RetryPolicy::new().assume_replay_safe()))
        .layer(TimeoutLayer::new(secs(5)))
        .service(tools);
    let results = Parallel::new(stack).run(calls(["a"])).await;
    assert_eq!((results[0].attempts(), results[0].is_success()), (2, true));
    let shown = serde_json::to_string(&results[0]).unwrap();
    assert!(
        shown.contains("[REDACTED]") && !shown.contains("4711"),
        "{shown}"
    );
}

/// X2: a sequence over the whole stack; the budget bounds retries and cooldowns as well.
#[tokio::test(start_paused = true)]
async fn the_budget_bounds_retries_and_cooldowns() {
    let tools = service_fn(|call: ToolCall| async move {
        match call.tool() {
            "limited" => Err::<(), BoxError>("429 Too Many Requests".into()),
            _ => Err("503 Service Unavailable".into()),
        }
    });
    let stack = ServiceBuilder::new()
        .layer(DeadlineLayer::inherited())
        .layer(RetryLayer::new(RetryPolicy::new().assume_replay_safe()))
        .layer(RateLimitBackoffLayer::new())
        .layer(CircuitBreakerLayer::new())
        .layer(TimeoutLayer::new(secs(5)))
        .service(tools);
    let sequence = Sequence::new(stack).with_budget(secs(5));
    let report = sequence.run(calls(["limited", "broken", "broken"])).await;
    let results = report.results();
    assert_eq!(statuses(results), ["error"; 3]);
    // A cooldown of 30 s does not fit, so it is not waited for; 1 s and 2 s fit once.
    assert_eq!(
        results[0]
            .error()
            .unwrap()
            .retry_after()
            .map(|d| d.as_secs()),
        Some(30)
    );
    assert_eq!(results[0].attempts(), 1);
    assert_eq!(results[1].attempts(), 3);
    assert!(results[2].attempts() < 3);
    assert!(report.duration() <= secs(5));
}

/// E6: an answer that is an error in the tool's own words.
#[tokio::test]
async fn a_classifier_decides_what_is_a_success() {
    let classify =
        tower_toolcall::outcome::classify_fn(|result: Result<&bool, &ToolError>| match result {
            Ok(true) => tower_toolcall::Outcome::success(),
            Ok(false) => tower_toolcall::Outcome::reported(),
            Err(_) => tower_toolcall::Outcome::failure(),
        });
    let tool = service_fn(|call: ToolCall| async move { Ok::<_, BoxError>(call.tool() == "good") });
    let results = Parallel::new(tool)
        .with_classifier(classify)
        .run(calls(["good", "bad"]))
        .await;
    assert_eq!(statuses(&results), ["success", "error"]);
    assert_eq!(results[1].data(), Some(&false));
}

/// T7: observers hear of a call that no layer has seen.
#[tokio::test(start_paused = true)]
async fn a_listener_hears_of_skipped_calls() {
    let skipped = Events::pick(|event| match event {
        Event::NotStarted { call, kind, .. } => Some((call.tool().to_owned(), *kind)),
        _ => None,
    });
    let sequence = Sequence::new(tool(&Counts::default()))
        .with_budget(secs(1))
        .with_listener(skipped.clone());
    let report = sequence.run(calls(["hang", "now", "now"])).await;
    assert_eq!(report.results()[0].status(), Status::Timeout);
    let late = || ("now".to_owned(), ErrorKind::DeadlineExceeded);
    skipped.assert([late(), late()]);
}

/// T7: and metrics count them.
#[tokio::test(start_paused = true)]
async fn metrics_count_skipped_calls() {
    let metrics = tower_toolcall::tool_metrics::Metrics::new();
    let stack = ServiceBuilder::new()
        .layer(metrics.layer())
        .service(tool(&Counts::default()));
    let sequence = Sequence::new(stack)
        .with_budget(secs(5))
        .with_listener(metrics.clone());
    let report = sequence
        .run(calls(["now", "4s", "hang", "now", "now"]))
        .await;
    let expected = ["success", "success", "timeout", "skipped", "skipped"];
    assert_eq!(statuses(report.results()), expected);
    let snapshot = metrics.snapshot();
    let now = snapshot.tool(None, "now").unwrap();
    assert_eq!((now.successes, now.skipped, now.in_flight), (1, 2, 0));
}

/// T7: calls that a cancelled batch had not started are counted too, those that ran by their layer.
#[tokio::test(start_paused = true)]
async fn metrics_count_calls_that_were_given_up_before_they_ran() {
    let metrics = tower_toolcall::tool_metrics::Metrics::new();
    let stack = ServiceBuilder::new()
        .layer(metrics.layer())
        .service(tool(&Counts::default()));
    let parallel = Parallel::new(stack).with_limit(1).unwrap();
    let mut running = parallel
        .with_listener(metrics.clone())
        .run(calls(["hang"; 4]));
    assert!(tokio::time::timeout(secs(1), &mut running).await.is_err());
    running.cancel();
    running.await;
    let hang = metrics.snapshot().tool(None, "hang").cloned().unwrap();
    assert_eq!((hang.calls, hang.cancelled, hang.in_flight), (4, 4, 0));
    // One attempt was made in all.
    assert_eq!(hang.attempts, 1);
}

/// S5, rule 9: the text of a panic that is caught outside the rules is redacted by them all the
/// same.
#[tokio::test]
async fn a_panic_that_passes_the_rules_is_redacted_by_them() {
    let stack = ServiceBuilder::new()
        .layer(SanitizeLayer::new(
            Rules::new().with_secret_prefix("4711-", 4).unwrap(),
        ))
        .service(service_fn(|_: ToolCall| async {
            panic!("bad pin 4711-0815") as Result<(), BoxError>
        }));
    let results = Parallel::new(stack).run(calls(["a"])).await;
    let shown = format!(
        "{:?} {}",
        results[0],
        serde_json::to_string(&results[0]).unwrap()
    );
    assert!(
        shown.contains("bad pin [REDACTED]") && !shown.contains("4711"),
        "{shown}"
    );
}

/// S8: the size of the answer is asked for.
#[tokio::test]
async fn a_result_knows_the_size_of_its_answer() {
    let stack = ServiceBuilder::new()
        .layer(tower_toolcall::check::CheckLayer::max_bytes(100))
        .service(service_fn(|_: ToolCall| async {
            Ok::<_, BoxError>("1234")
        }));
    let results = Parallel::new(stack).run(calls(["a"])).await;
    assert_eq!(results[0].metadata().output_bytes(), Some(6));
}

/// C2: a dead tool is stopped within a batch too.
#[tokio::test(start_paused = true)]
async fn a_breaker_stops_a_dead_tool_in_the_middle_of_a_batch() {
    let counts = Counts::default();
    let inner = tool(&counts);
    let stack = ServiceBuilder::new()
        .layer(CircuitBreakerLayer::new())
        .layer(TimeoutLayer::new(secs(1)))
        .service(inner);
    let parallel = Parallel::new(stack).with_limit(1).unwrap();
    let results = parallel.run(calls(["hang"; 8])).await;
    assert_eq!(counts.begun(), 5);
    assert_eq!(results[7].error().unwrap().code(), "CIRCUIT_OPEN");
}

/// R8: each call of a batch is a call of its own, clones too.
#[tokio::test]
async fn clones_of_one_call_are_calls_of_their_own() {
    let [call] = calls(["now"]);
    let results = Parallel::new(tool(&Counts::default()))
        .run(vec![call; 100])
        .await;
    assert!(results.iter().all(|r| r.is_success() && r.attempts() == 1));
}

/// X1: a classifier that panics is that call's failure, and the others have their results.
#[tokio::test]
async fn a_classifier_that_panics_costs_its_call_alone() {
    let classify = tower_toolcall::outcome::classify_fn(|result: Result<&bool, &ToolError>| {
        assert!(!matches!(result, Ok(false)), "an answer of this kind");
        tower_toolcall::Outcome::success()
    });
    let tool = service_fn(|call: ToolCall| async move { Ok::<_, BoxError>(call.tool() == "good") });
    let results = Parallel::new(tool)
        .with_classifier(classify)
        .run(calls(["bad", "good"]))
        .await;
    assert_eq!(statuses(&results), ["error", "success"]);
    assert_eq!(results[0].error().unwrap().kind(), ErrorKind::Panicked);
}

/// S2: rules that the caller has put on a call beat those of the stack, in its result.
#[tokio::test]
async fn the_callers_rules_beat_those_of_the_stack() {
    let strict = Rules::new().with_secret_prefix("4711-", 4).unwrap();
    let tool = service_fn(|_: ToolCall| async { Ok::<_, BoxError>("pin 4711-0815") });
    let stack = SanitizeLayer::new(Rules::new()).layer(tool);
    let call = ToolCall::new("a").with_rules(strict);
    let results = Parallel::new(stack).run([call]).await;
    let shown = serde_json::to_string(&results[0]).unwrap();
    assert!(
        shown.contains("[REDACTED]") && !shown.contains("4711"),
        "{shown}"
    );
}

/// D12: the calls of a batch wait for the places of a limit below, however many there are.
#[tokio::test(start_paused = true)]
async fn a_batch_waits_for_places_beyond_the_queue_of_a_limit() {
    let tool = Script::always(Step::ok("done").after(secs(1)));
    let stack = ConcurrencyLimitLayer::new(4).layer(tool.clone());
    let calls = || (0..100).map(|_| ToolCall::new("search"));
    let results = Parallel::new(stack.clone()).run(calls()).await;
    assert!(results.iter().all(ToolResult::is_success));
    assert_eq!((tool.count(), tool.most_in_flight()), (100, 4));
    // Calls that are made one by one are refused beyond it.
    let alone = calls().map(|call| stack.clone().oneshot(call));
    let alone = futures_util::future::join_all(alone).await;
    assert_eq!(alone.iter().filter(|answer| answer.is_err()).count(), 32);
}

/// D12: where no call may wait, those of a batch do not.
#[tokio::test(start_paused = true)]
async fn a_batch_does_not_wait_at_a_limit_without_a_queue() {
    let tool = Script::always(Step::ok("done").after(secs(1)));
    let limit = ConcurrencyLimitLayer::builder(4).with_max_queue(0);
    let stack = limit.build().unwrap().layer(tool.clone());
    let calls = (0..10).map(|_| ToolCall::new("search"));
    let results = Parallel::new(stack).run(calls).await;
    let done = results.iter().filter(|result| result.is_success()).count();
    assert_eq!((done, tool.count()), (4, 4));
}

/// D12: a call that waits for a cooldown, or between two attempts, leaves its place to others.
#[tokio::test(start_paused = true)]
async fn a_call_that_only_waits_holds_no_place() {
    for kind in [ErrorKind::RateLimited, ErrorKind::Upstream] {
        let start = Instant::now();
        let tool = service_fn(move |call: ToolCall| async move {
            tokio::time::sleep(secs(1)).await;
            match (call.tool(), start.elapsed().as_secs()) {
                ("away", ..=29) => Err(ToolError::new(kind, "away").with_retry_after(secs(30))),
                _ => Ok(start.elapsed().as_secs()),
            }
        });
        let stack = ServiceBuilder::new()
            .layer(RetryLayer::new(RetryPolicy::new().assume_replay_safe()))
            .layer(RateLimitBackoffLayer::new())
            .service(tool);
        let names = ["away", "away", "away", "well", "well", "well", "well"];
        let parallel = Parallel::new(stack).with_limit(2).unwrap();
        let results = parallel.run(names.map(ToolCall::new)).await;
        let ended = results
            .into_iter()
            .map(|result| result.into_result().unwrap());
        let ended: Vec<u64> = ended.collect();
        assert!(ended[..3].iter().all(|at| *at >= 31), "{kind}: {ended:?}");
        assert!(ended[3..].iter().all(|at| *at <= 5), "{kind}: {ended:?}");
    }
}

/// A tool that takes a second, and answers when the call began.
fn beginning() -> Stack {
    let start = Instant::now();
    BoxCloneSyncService::new(service_fn(move |_: ToolCall| async move {
        let begun = start.elapsed().as_secs();
        tokio::time::sleep(secs(1)).await;
        Ok::<_, ToolError>(begun)
    }))
}

/// A stack in which the tool `asks` waits a minute for an approval. It answers when calls began.
fn approving() -> impl Clone + Service<ToolCall, Response = u64, Error = ToolError> {
    let approver = service_fn(|asked: Approval| async move {
        tokio::time::sleep(secs(60)).await;
        Ok::<_, ToolError>(asked.approve())
    });
    let policy = PolicyLayer::new().ask("asks").with_approver(approver);
    policy.layer(beginning())
}

fn begun(results: Vec<ToolResult<u64>>) -> Vec<u64> {
    let results = results.into_iter();
    results.map(|r| r.into_result().unwrap()).collect()
}

/// D12: a call that waits for an approval leaves its place to others.
#[tokio::test(start_paused = true)]
async fn a_call_that_waits_for_an_approval_holds_no_place() {
    let parallel = Parallel::new(approving()).with_limit(1).unwrap();
    let results = parallel.run(["asks", "a", "b"].map(ToolCall::new)).await;
    assert_eq!(begun(results), [60, 0, 1]);
}

/// D12: a call that waits for a quota leaves its place to others.
#[tokio::test(start_paused = true)]
async fn a_call_that_waits_for_a_quota_holds_no_place() {
    let one_in_20_secs = Quota::new(1, secs(20)).unwrap();
    let stack = QuotaLayer::new(one_in_20_secs).layer(beginning());
    let parallel = Parallel::new(stack).with_limit(1).unwrap();
    let calls = ["scarce", "scarce", "a", "b"].map(ToolCall::new);
    assert_eq!(begun(parallel.run(calls).await), [0, 20, 1, 2]);
}

/// D12: the calls of a sequence keep their order, also while one only waits.
#[tokio::test(start_paused = true)]
async fn a_sequence_keeps_its_order_while_a_call_waits() {
    let report = Sequence::new(approving())
        .run(["asks", "a", "b"].map(ToolCall::new))
        .await;
    assert_eq!(begun(report.into_results()), [60, 61, 62]);
}

type Stack = BoxCloneSyncService<ToolCall, u64, ToolError>;

/// A tool that takes a second, or ten minutes if it is `slow`, and answers when its call ended.
/// `away` fails for 30 seconds.
fn clock(start: Instant) -> Stack {
    BoxCloneSyncService::new(service_fn(move |call: ToolCall| async move {
        let time = if call.tool() == "slow" { 600 } else { 1 };
        tokio::time::sleep(secs(time)).await;
        match (call.tool(), start.elapsed().as_secs()) {
            ("away", ..=29) => {
                Err(ToolError::new(ErrorKind::Upstream, "away").with_retry_after(secs(30)))
            }
            (_, at) => Ok(at),
        }
    }))
}

/// Makes the calls in a batch of one at a time, and a call of the first one's tool a moment later.
/// Returns when that ended.
async fn call_beside_a_batch(stack: Stack, names: [&str; 2]) -> Result<u64, ToolError> {
    let parallel = Parallel::new(stack.clone()).with_limit(1).unwrap();
    let mut batch = parallel.stream(names.map(ToolCall::new));
    let beside = async {
        tokio::time::sleep(ms(500)).await;
        stack.oneshot(ToolCall::new(names[0])).await
    };
    let mut beside = std::pin::pin!(beside);
    loop {
        tokio::select! {
            Some(_) = batch.next() => {}
            answer = &mut beside => return answer,
        }
    }
}

/// D12: a call of a batch that has its turn at a limit uses it, although the batch has no place.
#[tokio::test(start_paused = true)]
async fn a_call_uses_its_turn_at_a_limit_without_a_place_in_the_batch() {
    let start = Instant::now();
    let layer = ConcurrencyLimitLayer::new(1).layer(clock(start));
    let stack = BoxCloneSyncService::new(layer);
    let busy = tokio::spawn(stack.clone().oneshot(ToolCall::new("search")));
    tokio::task::yield_now().await;
    let beside = call_beside_a_batch(stack, ["search", "slow"]).await;
    assert_eq!(busy.await.unwrap().unwrap(), 1);
    // The batch's own call ended after two seconds.
    assert_eq!(beside.unwrap(), 3);
}

/// D12: a call that has waited between two attempts goes on, and gives a permit from above the
/// retries back.
#[tokio::test(start_paused = true)]
async fn a_call_goes_on_after_a_backoff_without_a_place_in_the_batch() {
    let start = Instant::now();
    let retry = RetryLayer::new(RetryPolicy::new().assume_replay_safe());
    let layer = ConcurrencyLimitLayer::new(1).layer(retry.layer(clock(start)));
    let stack = BoxCloneSyncService::new(layer);
    let beside = call_beside_a_batch(stack, ["away", "slow"]).await.unwrap();
    assert!((32..60).contains(&beside), "{beside}");
}

/// D12: a call that waits while no place is free ends at a deadline that the stack sets.
#[tokio::test(start_paused = true)]
async fn a_call_that_only_waits_ends_at_the_deadline_of_the_stack() {
    let start = Instant::now();
    let limit = ConcurrencyLimitLayer::new(1).layer(clock(start));
    let _busy = tokio::spawn(limit.clone().oneshot(ToolCall::new("slow")));
    tokio::task::yield_now().await;
    let own = DeadlineLayer::new(secs(20)).layer(limit);
    let stack = service_fn(move |call: ToolCall| {
        let own = own.clone();
        async move {
            match call.tool() {
                "slow" => own.oneshot(call).await,
                _ => std::future::pending().await,
            }
        }
    });
    let parallel = Parallel::new(stack).with_limit(1).unwrap();
    let mut completions = parallel.stream(["slow", "hangs"].map(ToolCall::new));
    let next = tokio::time::timeout(secs(60), completions.next()).await;
    let (index, result) = next.expect("the deadline").unwrap();
    assert_eq!((index, start.elapsed()), (0, secs(20)));
    let error = result.into_result().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DeadlineExceeded);
}

/// D12: a call that goes on takes a place, and no other begins beside it.
#[tokio::test(start_paused = true)]
async fn a_call_that_goes_on_takes_a_place() {
    let start = Instant::now();
    let tool = service_fn(move |call: ToolCall| async move {
        let begun = start.elapsed().as_secs();
        if call.tool() == "away" && begun == 0 {
            return Err(ToolError::new(ErrorKind::Upstream, "away").with_retry_after(secs(30)));
        }
        tokio::time::sleep(secs(20)).await;
        Ok(begun)
    });
    let retry = RetryLayer::new(RetryPolicy::new().assume_replay_safe());
    let parallel = Parallel::new(retry.layer(tool)).with_limit(1).unwrap();
    let results = parallel
        .run(["away", "a", "b", "c"].map(ToolCall::new))
        .await;
    let begun = results
        .into_iter()
        .map(|result| result.into_result().unwrap());
    let begun: Vec<u64> = begun.collect();
    assert_eq!(begun[1..3], [0, 20], "{begun:?}");
    assert!((30..35).contains(&begun[0]), "{begun:?}");
    assert_eq!(begun[3], begun[0] + 20, "{begun:?}");
}

/// D12: the waiting calls of a batch leave the queue of a limit to other callers, who do not wait
/// for all of them.
#[tokio::test(start_paused = true)]
async fn a_batch_leaves_the_queue_of_a_limit_to_other_callers() {
    let start = Instant::now();
    let layer = ConcurrencyLimitLayer::new(4);
    let stack = layer.layer(clock(start));
    let parallel = Parallel::new(stack.clone());
    let calls = (0..500).map(|_| ToolCall::new("search"));
    let batch = tokio::spawn(async move { parallel.run(calls).await });
    while layer.handle().waiting(&ToolCall::new("search")) < 496 {
        tokio::task::yield_now().await;
    }
    let others = (0..65).map(|_| stack.clone().oneshot(ToolCall::new("search")));
    let others = futures_util::future::join_all(others).await;
    let (ended, refused): (Vec<_>, Vec<_>) = others.into_iter().partition(Result::is_ok);
    assert_eq!((ended.len(), refused.len()), (64, 1));
    // 4 calls run, 64 wait before the first, and up to 64 between it and the last.
    let ended: Vec<u64> = ended.into_iter().map(Result::unwrap).collect();
    assert!(ended[0] <= 1 + 64 / 4 + 1, "{ended:?}");
    assert!(ended[63] <= 1 + 2 * 64 / 4 + 1, "{ended:?}");
    assert!(batch.await.unwrap().iter().all(ToolResult::is_success));
    assert_eq!(start.elapsed().as_secs(), 564 / 4);
}
