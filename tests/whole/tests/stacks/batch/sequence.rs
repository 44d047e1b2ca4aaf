use serde_json::Value;
use tokio::time::Instant;
use tower::ServiceBuilder;
use tower_toolcall::{
    ErrorKind, Execution, ToolCall,
    batch::{Sequence, SequenceReport},
    deadline::DeadlineLayer,
    timeout::TimeoutLayer,
};

use super::kit::{Counts, calls, ms, secs, statuses, tool};

/// System B: tools of 5 s, 30 s for all of them, 500 ms of it kept.
async fn system_b<const N: usize>(tools: [&str; N]) -> SequenceReport<String> {
    let stack = ServiceBuilder::new()
        .layer(TimeoutLayer::new(secs(5)))
        .service(tool(&Counts::default()));
    let sequence = Sequence::new(stack).with_budget(secs(30));
    sequence.run(calls(tools)).await
}

/// X2: one at a time, in order.
#[tokio::test(start_paused = true)]
async fn calls_run_one_after_the_other() {
    let (counts, start) = (Counts::default(), Instant::now());
    let report = Sequence::new(tool(&counts))
        .run(calls(["1s", "2s", "now"]))
        .await;
    assert_eq!((counts.begun(), counts.most()), (3, 1));
    assert_eq!(start.elapsed(), secs(3));
    assert_eq!(report.duration(), secs(3));
}

/// X2: a failed call, an unknown one, a panic: the run goes on.
#[tokio::test(start_paused = true)]
async fn a_call_that_fails_does_not_stop_the_run() {
    let report = system_b(["fail", "panic", "hang", "1s"]).await;
    let expected = ["error", "error", "timeout", "success"];
    assert_eq!(statuses(report.results()), expected);
    assert_eq!(report.duration(), secs(6));
}

/// T5, system B: the last calls get what is left, and then nothing; each has its own result.
#[tokio::test(start_paused = true)]
async fn what_is_left_of_the_budget_shortens_and_then_skips() {
    let report = system_b([
        "hang", "hang", "hang", "hang", "4s", "3s", "hang", "now", "1s",
    ])
    .await;
    let expected = [
        "timeout", "timeout", "timeout", "timeout", "success", "success", "timeout", "skipped",
        "skipped",
    ];
    let results = report.results();
    assert_eq!(statuses(results), expected);
    // 27 s are gone: 30 - 27 - 0.5 are left.
    assert_eq!(results[6].duration(), ms(2_500));
    assert_eq!(results[6].metadata().timeout(), Some(ms(2_500)));
    assert_eq!(results[6].metadata().configured_timeout(), Some(secs(5)));
    assert_eq!(report.duration(), ms(29_500));
    let skipped = results[7].error().unwrap();
    assert_eq!(skipped.kind(), ErrorKind::DeadlineExceeded);
    assert_eq!(skipped.execution(), Execution::NotStarted);
    assert_eq!((results[7].duration(), results[7].attempts()), (secs(0), 0));
    assert_eq!(results[7].tool(), "now");
}

/// T7: slow, timed out, skipped and failed are four things.
#[tokio::test(start_paused = true)]
async fn the_report_tells_slow_timed_out_skipped_and_failed_apart() {
    let stack = ServiceBuilder::new()
        .layer(TimeoutLayer::new(secs(10)))
        .service(tool(&Counts::default()));
    let sequence = Sequence::new(stack).with_budget(secs(20));
    let report = sequence
        .run(calls(["9s", "fail", "hang", "hang", "now"]))
        .await;
    let tally = report.tally();
    assert_eq!((tally.calls, tally.succeeded, tally.slow), (5, 1, 1));
    assert_eq!((tally.failed, tally.timed_out, tally.skipped), (1, 2, 1));
    assert_eq!(tally.cancelled, 0);
    let expected = "5 calls in 19.5 s: 1 succeeded, 1 failed, 2 timed out, 1 skipped, 1 slow";
    assert_eq!(report.to_string(), expected);
}

/// The reserve is kept once: a deadline layer below does not keep another from the same budget
/// (T5).
#[tokio::test(start_paused = true)]
async fn the_reserve_is_kept_once() {
    let stack = ServiceBuilder::new()
        .layer(DeadlineLayer::new(secs(60)))
        .layer(TimeoutLayer::new(secs(60)))
        .service(tool(&Counts::default()));
    let sequence = Sequence::new(stack.clone()).with_budget(secs(10));
    let report = sequence.run(calls(["hang"])).await;
    assert_eq!(report.duration(), ms(9_500));

    // From a deadline that the caller has set, nobody has kept one before that layer.
    let call = ToolCall::new("hang").with_deadline(Instant::now() + secs(5));
    let report = sequence.run([call]).await;
    assert_eq!(report.duration(), ms(4_500));

    // Budgets nest: the second of two such layers keeps its own from the first.
    let nested = ServiceBuilder::new()
        .layer(DeadlineLayer::inherited())
        .service(stack);
    let sequence = Sequence::new(nested).with_budget(secs(10));
    let report = sequence.run(calls(["hang"])).await;
    assert_eq!(report.duration(), secs(9));
}

/// T5: "each leaves time for clean-up": from an outer deadline as well.
#[tokio::test(start_paused = true)]
async fn a_reserve_is_kept_from_the_calls_own_deadline() {
    let sequence = || Sequence::new(tool(&Counts::default())).with_budget(secs(60));
    let call = ToolCall::new("hang").with_deadline(Instant::now() + secs(10));
    let report = sequence().run([call.clone()]).await;
    assert_eq!(report.duration(), ms(9_500));

    // A tool that runs a sequence of its own has its report in time.
    let outer = tower::service_fn(|call: ToolCall| async move {
        let report = Sequence::new(tool(&Counts::default()))
            .with_budget(secs(60))
            .run([call])
            .await;
        tokio::time::sleep(ms(100)).await;
        Ok::<_, tower_toolcall::BoxError>(report.tally().timed_out)
    });
    let nested = Sequence::new(outer)
        .with_budget(secs(10))
        .run(calls(["hang"]))
        .await;
    assert_eq!(nested.results()[0].data(), Some(&1));
    assert_eq!(nested.duration(), ms(9_100));
}

/// What was kept was kept from that deadline, and not from another.
#[tokio::test(start_paused = true)]
async fn a_reserve_is_not_taken_for_that_of_another_deadline() {
    let inherited = || {
        ServiceBuilder::new()
            .layer(DeadlineLayer::inherited())
            .service(tool(&Counts::default()))
    };
    let sequence = |budget| Sequence::new(inherited()).with_budget(secs(budget));

    // Somebody sets another one below.
    let inner = tower::util::MapRequest::new(inherited(), |call: ToolCall| {
        call.with_deadline(Instant::now() + secs(5))
    });
    let report = Sequence::new(inner)
        .with_budget(secs(60))
        .run(calls(["hang"]))
        .await;
    assert_eq!(report.duration(), ms(4_500));

    // A layer without a reserve has a budget of its own.
    let inner = ServiceBuilder::new()
        .layer(DeadlineLayer::new(secs(5)).with_reserve(ms(0)))
        .service(inherited());
    let report = Sequence::new(inner)
        .with_budget(secs(60))
        .run(calls(["hang"]))
        .await;
    assert_eq!(report.duration(), ms(4_500));

    // The tool of a sequence passes its own call on, in a batch.
    let inner = tower::service_fn(move |call: ToolCall| {
        let batch = tower_toolcall::batch::Parallel::new(inherited()).with_budget(secs(10));
        async move { Ok::<_, tower_toolcall::BoxError>(batch.run([call]).await[0].duration()) }
    });
    let report = Sequence::new(inner)
        .with_budget(secs(60))
        .run(calls(["hang"]))
        .await;
    assert_eq!(report.results()[0].data(), Some(&ms(9_500)));
    assert_eq!(
        sequence(10).run(calls(["hang"])).await.duration(),
        ms(9_500)
    );
}

/// T5: a budget that holds only the reserve starts no call.
#[tokio::test(start_paused = true)]
async fn a_budget_below_the_reserve_starts_no_call() {
    for budget in [ms(0), ms(500)] {
        let counts = Counts::default();
        let sequence = Sequence::new(tool(&counts)).with_budget(budget);
        let report = sequence.run(calls(["now", "now"])).await;
        assert_eq!(statuses(report.results()), ["skipped", "skipped"]);
        assert_eq!(counts.begun(), 0);
    }
}

/// Without a budget each call has its own limits and no other.
#[tokio::test(start_paused = true)]
async fn without_a_budget_nothing_is_shortened() {
    let report = Sequence::new(tool(&Counts::default()))
        .run(calls(["90s", "90s"]))
        .await;
    assert_eq!(report.duration(), secs(180));
    assert_eq!(report.budget(), None);
    let endless = Sequence::new(tool(&Counts::default())).with_budget(std::time::Duration::MAX);
    assert_eq!(endless.run([]).await.budget(), None);
}

/// The budget is enforced around a tool that knows of no time limit.
#[tokio::test(start_paused = true)]
async fn a_bare_tool_is_ended_as_well() {
    let counts = Counts::default();
    let sequence = Sequence::new(tool(&counts))
        .with_budget(secs(2))
        .with_reserve(secs(1));
    let report = sequence.run(calls(["hang", "now"])).await;
    assert_eq!(statuses(report.results()), ["timeout", "skipped"]);
    assert_eq!((report.duration(), counts.running()), (secs(1), 0));
}

/// X2, S8: the record as JSON, the data redacted.
#[tokio::test(start_paused = true)]
async fn the_report_is_serialised_without_secrets() {
    let tools = tower::service_fn(|_: ToolCall| async {
        Ok::<_, tower_toolcall::BoxError>(serde_json::json!({ "token": "s3cr3t" }))
    });
    let report = Sequence::new(tools)
        .with_budget(secs(30))
        .run(calls(["a"]))
        .await;
    let json: Value = serde_json::to_value(&report).unwrap();
    assert_eq!(json["tally"]["succeeded"], 1);
    assert_eq!(
        (&json["duration_ms"], &json["budget_ms"]),
        (&0.0.into(), &30_000.0.into())
    );
    assert_eq!(json["results"][0]["data"]["token"], "[REDACTED]");
    assert_eq!(json["results"][0]["status"], "success");
    assert!(!format!("{report:?}").contains("s3cr3t"));
}

#[tokio::test]
async fn nothing_is_reported_as_nothing() {
    let report = Sequence::new(tool(&Counts::default())).run([]).await;
    assert!(report.results().is_empty());
    assert_eq!(report.to_string(), "0 calls in 0.0 s");
}
