//! A model that makes the same failing call again and again is stopped; nobody else is.

use std::{future::pending, task::Poll, time::Duration};

use expect_test::expect;
use serde_json::{Value, json};
use tokio::time::{Instant, advance, timeout};
use tokio_test::{assert_pending, task};
use tower::{Layer, ServiceExt, limit::ConcurrencyLimit, service_fn};
use tower_toolcall::{
    ErrorKind, Evidence, Execution, Key, Keys, ToolCall, ToolError,
    backoff::Backoff,
    event::Event,
    once::OnceLayer,
    outcome::{Outcome, classify_fn},
    repeat_guard::{RepeatGuardLayer, TOOL_REPEATED},
    retry::{RetryLayer, RetryPolicy},
};
use tower_toolcall_test::{Events, Script, Step};

fn call(arguments: Value) -> ToolCall {
    let call = ToolCall::new("search").with_session_id("s1");
    call.with_json(arguments).unwrap()
}

fn query(text: &str) -> ToolCall {
    call(json!({ "query": text }))
}

fn fails(kind: ErrorKind) -> Script<&'static str> {
    Script::always(Step::fail(kind))
}

/// How many of ten calls reach the tool.
async fn sent(layer: &RepeatGuardLayer, tool: Script<&'static str>, call: &ToolCall) -> u64 {
    for _ in 0..10 {
        let _ = layer.layer(tool.clone()).oneshot(call.clone()).await;
    }
    tool.count()
}

/// Of refusals those count that have judged the call, and would do so again; what is full or has
/// closed would not.
#[tokio::test(start_paused = true)]
async fn only_failures_that_are_due_to_the_call_count() {
    use ErrorKind::{Denied, Failed, InvalidInput, NotFound, Reported};

    let refuses = |kind| Script::always(Step::error(ToolError::refusal(kind, "no")));
    for &kind in ErrorKind::ALL {
        let judges = [InvalidInput, NotFound, Denied].contains(&kind);
        let counts = judges || [Failed, Reported].contains(&kind);
        for (tool, counts) in [(fails(kind), counts), (refuses(kind), judges)] {
            let sent = sent(&RepeatGuardLayer::new(), tool, &query("a")).await;
            assert_eq!(sent, if counts { 3 } else { 10 }, "{kind}");
        }
    }
}

/// S3: an error that `once` gives again is the failure that was counted, and so is an answer that
/// is an error in the tool's own words. A success that `cache` gives again changes nothing either.
#[tokio::test(start_paused = true)]
async fn a_failure_from_memory_is_not_counted_again() {
    for kind in [ErrorKind::Failed, ErrorKind::Reported] {
        let tool = fails(kind);
        let stack = RepeatGuardLayer::new().layer(OnceLayer::new().layer(tool.clone()));
        for _ in 0..10 {
            let error = stack.clone().oneshot(query("a")).await.unwrap_err();
            assert_eq!(error.kind(), kind, "{error}");
        }
        assert_eq!(tool.count(), 1);
    }
    let reports = classify_fn(|_: Result<&&str, &ToolError>| Outcome::reported());
    let guard = RepeatGuardLayer::builder().with_classifier(reports);
    let answers = Script::always(Step::ok("no such city"));
    let stack = guard
        .build()
        .unwrap()
        .layer(OnceLayer::new().layer(answers));
    for _ in 0..10 {
        stack.clone().oneshot(query("a")).await.unwrap();
    }
}

/// E8, E7.
#[tokio::test(start_paused = true)]
async fn a_refusal_says_what_to_do_and_proves_that_nothing_was_sent() {
    let layer = RepeatGuardLayer::new();
    let fails = || {
        let error = ToolError::new(
            ErrorKind::Failed,
            "no such city: Osloo, token=s3cr3t-canary.",
        );
        Script::always(Step::error(error))
    };
    sent(&layer, fails(), &query("a")).await;
    let call = query("a").with_server("docs").with_id("c1");
    // The server is a part of the call.
    assert!(layer.layer(fails()).oneshot(call).await.unwrap_err().code() != TOOL_REPEATED);
    advance(Duration::from_secs(20)).await;
    let call = query("a").with_id("c1");
    let error = layer.layer(fails()).oneshot(call).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert_eq!(error.code(), TOOL_REPEATED);
    assert_eq!(error.evidence(), Evidence::Refusal);
    assert_eq!(error.execution(), Execution::NotStarted);
    assert_eq!(error.tool(), Some("search"));
    assert_eq!(error.call_id(), Some("c1"));
    assert_eq!(error.retry_after_seconds(), Some(40));
    assert!(!error.is_retryable() && error.is_recoverable());
    assert_eq!(error.details().unwrap().to_string(), r#"{"failures":3}"#);
    expect!["This exact call has failed 3 times in a row: no such city: Osloo, token=[REDACTED]. Change its arguments or do something else."].assert_eq(&error.model_message());
}

/// What the tool says is quoted as the model has read it, and bounded.
#[tokio::test(start_paused = true)]
async fn the_reason_is_the_one_that_the_model_was_told() {
    use ErrorKind::{Denied, Failed, NotFound};

    let long = "x".repeat(10_000);
    let cut = format!(": {}...", &long[..100]);
    let of = |kind, why: &str| ToolError::new(kind, why.to_owned());
    let told = of(Failed, "SQL").with_model_message("It is down.");
    for (error, quoted) in [
        (of(Failed, "why"), ": why."),
        (told, ": It is down."),
        // The message is for developers.
        (of(Denied, "internal"), "."),
        (of(NotFound, "internal"), "."),
        (of(Failed, "a\u{1b}[31m\u{202e}b"), ": a [31m b."),
        (of(Failed, &long), &*cut),
        (of(Failed, "").with_model_message(&long), &*cut),
    ] {
        let layer = RepeatGuardLayer::new();
        let tool = Script::always(Step::error(error));
        sent(&layer, tool.clone(), &query("a")).await;
        let error = layer.layer(tool).oneshot(query("a")).await.unwrap_err();
        let told = error.model_message();
        let expected = format!(
            "This exact call has failed 3 times in a row{quoted} Change its arguments or do something else."
        );
        assert_eq!(told, expected);
        assert!(told.chars().count() <= 200);
    }
}

#[tokio::test(start_paused = true)]
async fn calls_are_the_same_if_tool_and_arguments_are() {
    let same = [
        json!({ "a": 1, "b": { "c": [1, "2"], "d": null } }),
        json!({ "b": { "d": null, "c": [1, "2"] }, "a": 1 }),
    ];
    let others = [
        json!({ "a": 1, "b": { "c": ["2", 1], "d": null } }),
        json!({ "a": 1, "b": { "c": [1, 2], "d": null } }),
        json!({ "a": 1, "b": { "c": [1, "2"], "d": false } }),
        json!({ "a": 1, "b": { "c": [[1], "2"], "d": null } }),
        json!({ "a": 1, "b": { "c": [1, "2"] }, "d": null }),
        json!({ "b": 1, "a": { "c": [1, "2"], "d": null } }),
        json!({ "a": 1 }),
        json!({}),
    ];
    for other in others {
        let layer = RepeatGuardLayer::new();
        let tool = fails(ErrorKind::Failed);
        for n in 0..3 {
            sent_once(&layer, &tool, call(same[n % 2].clone()))
                .await
                .unwrap();
        }
        assert!(
            sent_once(&layer, &tool, call(same[1].clone()))
                .await
                .is_err()
        );
        assert!(
            sent_once(&layer, &tool, call(other.clone())).await.is_ok(),
            "{other}"
        );
        let renamed = ToolCall::new("search2")
            .with_session_id("s1")
            .with_json(same[0].clone());
        assert!(sent_once(&layer, &tool, renamed.unwrap()).await.is_ok());
    }
}

/// Whether the call reached the tool.
async fn sent_once(
    layer: &RepeatGuardLayer,
    tool: &Script<&'static str>,
    call: ToolCall,
) -> Result<(), ToolError> {
    let before = tool.count();
    let error = layer.layer(tool.clone()).oneshot(call).await.err();
    match tool.count() - before {
        0 => Err(error.unwrap()),
        _ => Ok(()),
    }
}

#[tokio::test(start_paused = true)]
async fn an_argument_that_is_another_one_in_each_call_can_be_left_out() {
    let layer = RepeatGuardLayer::builder().with_ignored_argument("at");
    let layer = layer.build().unwrap();
    let tool = fails(ErrorKind::Failed);
    for at in 0..10 {
        let call = call(json!({ "query": "a", "at": at }));
        assert_eq!(sent_once(&layer, &tool, call).await.is_ok(), at < 3);
    }
    // Only at the top.
    let inside = |at| call(json!({ "query": { "at": at } }));
    for at in 0..10 {
        sent_once(&layer, &tool, inside(at)).await.unwrap();
    }
}

/// A tool that is asked until it says yes.
#[tokio::test(start_paused = true)]
async fn calls_of_an_exempt_tool_are_not_watched() {
    let layer = RepeatGuardLayer::builder()
        .with_tool("search", false)
        .with_tool("docs__search", true)
        .build()
        .unwrap();
    let search = || call(json!({}));
    assert_eq!(sent(&layer, fails(ErrorKind::Failed), &search()).await, 10);
    let of = |server: &str| search().with_server(server);
    let sent_to = |call: ToolCall| {
        let layer = layer.clone();
        async move { sent(&layer, fails(ErrorKind::Failed), &call).await }
    };
    assert_eq!(sent_to(of("web")).await, 10);
    assert_eq!(sent_to(of("docs")).await, 3);
}

#[tokio::test(start_paused = true)]
async fn sessions_and_agents_are_told_apart_and_calls_of_nobody_pass() {
    let layer = RepeatGuardLayer::new();
    let bare = || ToolCall::new("search");
    for (of, sent_of_ten) in [
        (bare().with_session_id("a"), 3),
        (bare().with_session_id("b").with_agent_id("a"), 3),
        (bare().with_session_id("b").with_agent_id("c"), 0),
        (bare().with_agent_id("a"), 3),
        (bare().with_agent_id("c"), 3),
        (bare(), 10),
        (bare().with_session_id("").with_agent_id(""), 10),
    ] {
        let sent = sent(&layer, fails(ErrorKind::Failed), &of).await;
        assert_eq!(
            sent,
            sent_of_ten,
            "{:?} {:?}",
            of.session_id(),
            of.agent_id()
        );
    }
    let by_trace =
        RepeatGuardLayer::builder().with_keys(Key::by(|call| call.trace_id().unwrap_or_default()));
    let layer = by_trace.build().unwrap();
    for (of, sent_of_ten) in [
        (bare().with_trace_id("t").with_session_id("a"), 3),
        (bare().with_trace_id("t").with_session_id("b"), 0),
        (bare().with_session_id("a"), 10),
    ] {
        assert_eq!(
            sent(&layer, fails(ErrorKind::Failed), &of).await,
            sent_of_ten
        );
    }
}

/// What would succeed by now is refused for a window at most, however often it is asked for
/// meanwhile.
#[tokio::test(start_paused = true)]
async fn a_call_that_would_succeed_by_now_is_not_refused_for_good() {
    let layer = RepeatGuardLayer::new();
    let tool = Script::new(vec![Step::fail(ErrorKind::NotFound); 3]).then(Step::ok("found"));
    let start = Instant::now();
    let found = loop {
        match layer.layer(tool.clone()).oneshot(query("a")).await {
            Ok(found) => break found,
            Err(_) => advance(Duration::from_millis(700)).await,
        }
    };
    assert_eq!(found, "found");
    assert!(
        start.elapsed() <= Duration::from_secs(63),
        "{:?}",
        start.elapsed()
    );
    // And from then on.
    assert_eq!(sent(&layer, tool.clone(), &query("a")).await, 14);
}

/// The one that is let through may run for long, or be dropped.
#[tokio::test(start_paused = true)]
async fn after_the_window_one_call_is_let_through_and_not_all() {
    let layer = RepeatGuardLayer::new();
    let hangs = Script::new(vec![Step::fail(ErrorKind::Failed); 3]).then(Step::hang());
    sent(&layer, hangs.clone(), &query("a")).await;
    for round in 1..4 {
        advance(Duration::from_secs(60)).await;
        let call = || layer.layer(hangs.clone()).oneshot(query("a"));
        let mut calls: Vec<_> = (0..20).map(|_| task::spawn(call())).collect();
        let refused = calls.iter_mut().filter_map(|call| match call.poll() {
            Poll::Ready(result) => Some(result.unwrap_err()),
            Poll::Pending => None,
        });
        assert_eq!(
            refused
                .filter(|error| error.code() == TOOL_REPEATED)
                .count(),
            19
        );
        assert_eq!(hangs.count(), 3 + round);
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_dropped_or_panics_counts_neither_way() {
    let layer = RepeatGuardLayer::new();
    let fails = fails(ErrorKind::Failed);
    for _ in 0..2 {
        sent_once(&layer, &fails, query("a")).await.unwrap();
        let hangs = layer.layer(service_fn(|_| pending::<Result<(), ToolError>>()));
        timeout(Duration::from_secs(1), hangs.oneshot(query("a")))
            .await
            .unwrap_err();
        let panics = layer.layer(Script::<()>::always(Step::panic("boom")));
        tokio::spawn(panics.oneshot(query("a"))).await.unwrap_err();
    }
    sent_once(&layer, &fails, query("a")).await.unwrap();
    assert!(sent_once(&layer, &fails, query("a")).await.is_err());
}

/// The attempts of a retry layer are not the model's, wherever the guard stands.
#[tokio::test(start_paused = true)]
async fn attempts_of_a_retry_layer_above_are_no_repeats() {
    let retries = || {
        let policy = RetryPolicy::new()
            .with_attempts(10)
            .unwrap()
            .assume_replay_safe()
            .with_backoff(Backoff::fixed(Duration::ZERO).unwrap());
        RetryLayer::new(policy.without_budget().classify_fn(
            |result: Result<&&'static str, &ToolError>| match result {
                Ok(_) => Outcome::success(),
                Err(error) => Outcome::failure().with_retryable(!error.is_own_refusal()),
            },
        ))
    };
    // Each call succeeds in the end: no failure of the model's is left.
    let layer = RepeatGuardLayer::new();
    for round in 1..10 {
        let tool = Script::new(vec![Step::fail(ErrorKind::Failed); 8]).then(Step::ok("done"));
        let stack = retries().layer(layer.layer(tool.clone()));
        assert_eq!(stack.oneshot(query("a")).await.unwrap(), "done", "{round}");
        assert_eq!(tool.count(), 9);
    }
    // Each fails in the end: three calls of ten attempts. Above the retry layer, as documented, the
    // guard sees calls.
    macro_rules! three_of_ten {
        ($above:expr, $below:expr, $query:literal) => {
            let tool = fails(ErrorKind::Failed);
            for n in 0..5 {
                let stack = $above.layer($below.layer(tool.clone()));
                let error = stack.oneshot(query($query)).await.unwrap_err();
                assert_eq!(error.code() == TOOL_REPEATED, n >= 3);
            }
            assert_eq!(tool.count(), 30);
        };
    }
    three_of_ten!(retries(), layer, "b");
    three_of_ten!(layer, retries(), "c");
}

/// A guard at the agent and one at the gateway: the refusal of the one is not counted by the other.
#[tokio::test(start_paused = true)]
async fn the_refusal_of_a_guard_below_does_not_count() {
    let outer = RepeatGuardLayer::builder()
        .with_failures(5)
        .build()
        .unwrap();
    let inner = RepeatGuardLayer::new().layer(fails(ErrorKind::Failed));
    let stack = outer.layer(inner);
    for _ in 0..20 {
        let error = stack.clone().oneshot(query("a")).await.unwrap_err();
        let told = error.model_message();
        assert!(!told.contains("5 times"), "{told}");
    }
}

#[tokio::test(start_paused = true)]
async fn answers_that_are_errors_count_as_the_classifier_says() {
    let says = |result: Result<&&'static str, &ToolError>| match result {
        Ok(&"isError") => Outcome::reported(),
        Ok(&"busy") => Outcome::rate_limited(None),
        Ok(&"failed") => Outcome::failure(),
        _ => Outcome::success(),
    };
    for (answer, sent) in [("isError", 3), ("failed", 3), ("busy", 10), ("done", 10)] {
        let layer = RepeatGuardLayer::builder().with_classifier(classify_fn(says));
        let layer = layer.build().unwrap();
        let tool = Script::always(Step::ok(answer));
        for _ in 0..10 {
            let _ = layer.layer(tool.clone()).oneshot(query("a")).await;
        }
        assert_eq!(tool.count(), sent, "{answer}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_same_success_again_and_again_passes_and_is_an_event() {
    let events = Events::new();
    let layer = RepeatGuardLayer::builder().with_listener(events.clone());
    let layer = layer.build().unwrap();
    let tool = Script::always(Step::ok("done"));
    assert_eq!(sent(&layer, tool, &query("a")).await, 10);
    events.assert(["tool.repeated"; 3]);
    // An event of another author's layer has the same name.
    let info = query("a").info();
    assert_eq!(Event::repeated(&info, 3).name(), Some("tool.repeated"));
}

/// Calls that are queued when the third one fails are judged when it is their turn.
#[tokio::test(start_paused = true)]
async fn of_a_hundred_calls_that_wait_for_their_turn_three_are_sent() {
    let tool = fails(ErrorKind::Failed);
    let limited = ConcurrencyLimit::new(tool.clone(), 1);
    let svc = RepeatGuardLayer::new().layer(limited);
    let calls: Vec<_> = (0..100)
        .map(|_| tokio::spawn(svc.clone().oneshot(query("a"))))
        .collect();
    for call in calls {
        call.await.unwrap().unwrap_err();
    }
    assert_eq!(tool.count(), 3);
}

/// Bounded: those beyond are not watched, and who has failed of late stays.
#[tokio::test(start_paused = true)]
async fn a_flood_of_sessions_does_not_forget_the_one_that_loops() {
    let layer = RepeatGuardLayer::builder().with_keys(Keys::default().at_most(100));
    let layer = layer.build().unwrap();
    sent(&layer, fails(ErrorKind::Failed), &query("a")).await;
    let answers = Script::always(Step::ok("done"));
    for n in 0..10_000 {
        let call = ToolCall::new("search").with_session_id(format!("invented{n}"));
        sent_once(&layer, &answers, call).await.unwrap();
    }
    assert!(sent_once(&layer, &answers, query("a")).await.is_err());
    // If all have calls in flight, there is no place for another.
    let hangs = Script::always(Step::<&'static str>::hang());
    let full = RepeatGuardLayer::builder()
        .with_keys(Keys::default().at_most(2))
        .build()
        .unwrap();
    let mut held: Vec<_> = (0..2)
        .map(|n| {
            let call = ToolCall::new("search").with_session_id(format!("held{n}"));
            task::spawn(full.layer(hangs.clone()).oneshot(call))
        })
        .collect();
    held.iter_mut()
        .for_each(|call| assert_pending!(call.poll()));
    assert_eq!(sent(&full, fails(ErrorKind::Failed), &query("a")).await, 10);
    drop(held);
    assert_eq!(sent(&full, fails(ErrorKind::Failed), &query("a")).await, 3);
}

/// They are refused by whoever sends them.
#[tokio::test(start_paused = true)]
async fn arguments_that_are_too_deep_are_not_looked_at() {
    let mut deep = json!(1);
    for _ in 0..100_000 {
        deep = Value::Array(vec![deep]);
    }
    let deep = ToolCall::new("search")
        .with_session_id("s1")
        .with_arguments([("a".to_owned(), deep)].into_iter().collect());
    assert_eq!(
        sent(&RepeatGuardLayer::new(), fails(ErrorKind::Failed), &deep).await,
        10
    );
}

/// Rule 9.
#[tokio::test(start_paused = true)]
async fn neither_arguments_nor_sessions_are_shown() {
    let layer = RepeatGuardLayer::new();
    let call = call(json!({ "password": "s3cr3t-canary" })).with_session_id("s3cr3t-canary");
    sent(&layer, fails(ErrorKind::Failed), &call).await;
    let svc = layer.layer(fails(ErrorKind::Failed));
    let future = svc.clone().oneshot(call.clone());
    let shown = format!(
        "{layer:?} {svc:?} {future:?} {:?}",
        RepeatGuardLayer::builder()
    );
    assert!(!shown.contains("s3cr3t"), "{shown}");
    let error = future.await.unwrap_err();
    let shown = format!(
        "{error} {error:?} {} {}",
        error.model_message(),
        error.user_message()
    );
    assert!(!shown.contains("s3cr3t"), "{shown}");
}

#[test]
fn settings_that_cannot_work_are_named() {
    let builder = RepeatGuardLayer::builder;
    let secs = Duration::from_secs;
    for (builder, field) in [
        (builder().with_failures(0), "failures"),
        (builder().with_window(secs(0)), "window"),
        (builder().with_window(secs(86_401)), "window"),
    ] {
        assert_eq!(builder.build().unwrap_err().field(), field);
    }
    let least = builder().with_failures(1).with_window(secs(86_400));
    assert!(least.build().is_ok());
}

/// D8: a call whose answers differ each time makes progress: it does not succeed again and again.
#[tokio::test(start_paused = true)]
async fn successes_with_other_answers_are_no_repetition() {
    let events = Events::pick(|event| match event {
        Event::Repeated { times, .. } => Some(*times),
        _ => None,
    });
    let layer = RepeatGuardLayer::builder().with_listener(events.clone());
    let layer = layer.build().unwrap();
    let tool = Script::new(["1", "2", "3", "4", "5", "6", "7", "8", "9"].map(Step::ok));
    for _ in 0..9 {
        layer
            .layer(tool.clone())
            .oneshot(query("status"))
            .await
            .unwrap();
    }
    assert!(events.take().is_empty());
}
