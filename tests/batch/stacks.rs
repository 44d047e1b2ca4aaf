//! Around whole stacks.

use tower::{Layer, ServiceBuilder, service_fn};
use tower_toolcall::{
    BoxError, ErrorKind, Event, ToolCall, ToolError,
    batch::{Parallel, Sequence},
    circuit_breaker::CircuitBreakerLayer,
    deadline::DeadlineLayer,
    rate_limit::RateLimitBackoffLayer,
    redact::Rules,
    result::Status,
    retry::{RetryLayer, RetryPolicy},
    sanitize::SanitizeLayer,
    testing::{Events, Script, Step},
    timeout::TimeoutLayer,
    trace::TraceLayer,
};

use crate::kit::{Counts, calls, secs, statuses, tool};

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
#[cfg(feature = "metrics")]
#[tokio::test(start_paused = true)]
async fn metrics_count_skipped_calls() {
    let metrics = tower_toolcall::metrics::Metrics::new();
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
#[cfg(feature = "metrics")]
#[tokio::test(start_paused = true)]
async fn metrics_count_calls_that_were_given_up_before_they_ran() {
    let metrics = tower_toolcall::metrics::Metrics::new();
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

/// S5, rule 9: the text of a panic that is caught outside the rules is redacted by them all the same.
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
