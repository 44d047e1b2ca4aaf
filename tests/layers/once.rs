//! A call that is made again does not run again; nobody gets another one's answer.

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};
use tokio::time::{Instant, advance, sleep, timeout};
use tokio_test::{assert_pending, assert_ready_ok, task};
use tower::{Layer, Service, ServiceBuilder, ServiceExt, limit::ConcurrencyLimit, service_fn};
use tower_toolcall::{
    ErrorKind, Evidence, Execution, ReplaySafety, ToolCall, ToolError,
    call::JobRef,
    catch_panic::CatchPanicLayer,
    event::Event,
    once::{OnceLayer, TOOL_ALREADY_DONE, TOOL_KEY_REUSED, TOOL_OUTCOME_UNKNOWN},
    retry::{RetryLayer, RetryPolicy},
    timeout::TimeoutLayer,
};
use tower_toolcall_test::{Events, Script, Step};

use crate::kit;

const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(24 * 3600);

type Tool = Script<&'static str>;

fn of(tool: &'static str, arguments: Value) -> ToolCall {
    let call = ToolCall::new(tool).with_agent_id("a1").with_once_key("k1");
    call.with_json(arguments).unwrap()
}

fn call(arguments: Value) -> ToolCall {
    of("pay", arguments)
}

fn pay() -> ToolCall {
    call(json!({ "euros": 20 }))
}

async fn make(layer: &OnceLayer, tool: &Tool, call: ToolCall) -> Result<&'static str, ToolError> {
    layer.layer(tool.clone()).oneshot(call).await
}

/// Makes the calls one after the other, and asserts how often the tool has run after each.
async fn runs(layer: &OnceLayer, calls: impl IntoIterator<Item = (ToolCall, u64)>) {
    let tool = Tool::always(Step::ok("r"));
    for (n, (call, sent)) in calls.into_iter().enumerate() {
        make(layer, &tool, call).await.unwrap();
        assert_eq!(tool.count(), sent, "call {n}");
    }
}

/// The code of the refusal.
async fn refused(layer: &OnceLayer, tool: &Tool, call: ToolCall) -> String {
    let error = make(layer, tool, call).await.unwrap_err();
    assert_eq!(error.evidence(), Evidence::Refusal);
    error.code().to_owned()
}

#[tokio::test(start_paused = true)]
async fn the_same_call_gets_the_same_answer_for_a_day() {
    let (layer, tool) = (
        OnceLayer::new(),
        Tool::new([Step::ok("r1"), Step::ok("r2")]),
    );
    for _ in 0..3 {
        assert_eq!(make(&layer, &tool, pay()).await.unwrap(), "r1");
    }
    advance(DAY - SECOND).await;
    assert_eq!(make(&layer, &tool, pay()).await.unwrap(), "r1");
    advance(SECOND).await;
    assert_eq!(make(&layer, &tool, pay()).await.unwrap(), "r2");
    assert_eq!(tool.count(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_key_of_another_tool_or_other_arguments_is_refused() {
    let (layer, tool) = (OnceLayer::new(), Tool::always(Step::ok("r")));
    make(&layer, &tool, pay()).await.unwrap();
    let others = [
        call(json!({ "euros": 21 })),
        pay().with_server("bank"),
        of("refund", json!({ "euros": 20 })),
    ];
    for other in others {
        let error = make(&layer, &tool, other).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert_eq!(error.code(), TOOL_KEY_REUSED);
        assert_eq!(error.execution(), Execution::NotStarted);
    }
    assert_eq!(tool.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_order_of_arguments_is_no_difference() {
    let call = |text: &str| pay().with_json_str(text).unwrap();
    let first = call(r#"{"a":{"x":1,"y":[2]},"b":3}"#);
    let second = call(r#"{"b":3,"a":{"y":[2],"x":1}}"#);
    runs(&OnceLayer::new(), [(first, 1), (second, 1)]).await;
}

/// Other arguments are refused while the first call runs as well.
#[tokio::test(start_paused = true)]
async fn a_thousand_callers_of_one_key_run_it_once() {
    let layer = OnceLayer::new();
    let tool = Tool::always(Step::ok("r").after(SECOND));
    let since = Instant::now();
    let all: Vec<_> = (0..1000)
        .map(|_| tokio::spawn(layer.layer(tool.clone()).oneshot(pay())))
        .collect();
    sleep(SECOND / 2).await;
    let other = call(json!({ "euros": 1 }));
    assert_eq!(refused(&layer, &tool, other).await, TOOL_KEY_REUSED);
    for one in all {
        assert_eq!(one.await.unwrap().unwrap(), "r");
    }
    assert_eq!((tool.count(), since.elapsed()), (1, SECOND));
}

#[tokio::test(start_paused = true)]
async fn a_definite_failure_is_the_answer_of_all() {
    use ErrorKind::{Failed, Reported};
    for kind in [Failed, Reported] {
        let (layer, tool) = (OnceLayer::new(), Tool::always(Step::fail(kind)));
        for id in ["c1", "c2"] {
            let error = make(&layer, &tool, pay().with_id(id)).await.unwrap_err();
            assert_eq!((error.kind(), error.call_id()), (kind, Some(id)));
        }
        assert_eq!(tool.count(), 1, "{kind}");
    }
}

/// An error of the tool's own may have any size, and its text is all that others get of it.
#[tokio::test(start_paused = true)]
async fn of_a_failure_its_text_is_kept_and_not_its_source() {
    struct Rows(Arc<[u8]>);
    impl std::fmt::Debug for Rows {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            write!(f, "{} rows", self.0.len())
        }
    }
    impl std::fmt::Display for Rows {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            write!(f, "refused {} rows", self.0.len())
        }
    }
    impl std::error::Error for Rows {}

    for kind in [ErrorKind::Failed, ErrorKind::Timeout] {
        let rows: Arc<[u8]> = Arc::from([0; 1000]);
        let source = Rows(Arc::clone(&rows));
        let failed = match kind {
            ErrorKind::Failed => ToolError::from_box(Box::new(source)),
            _ => std::io::Error::new(std::io::ErrorKind::TimedOut, source).into(),
        };
        let layer = OnceLayer::new();
        let tool = Tool::new([Step::error(failed)]);
        let first = make(&layer, &tool, pay()).await.unwrap_err();
        assert_eq!((first.kind(), first.message()), (kind, "refused 1000 rows"));
        drop((first, tool));
        assert_eq!(Arc::strong_count(&rows), 1, "{kind}");
        let again = make(&layer, &Tool::new([]), pay()).await.unwrap_err();
        match kind {
            ErrorKind::Failed => assert_eq!(again.message(), "refused 1000 rows"),
            _ => assert_eq!(again.code(), TOOL_OUTCOME_UNKNOWN),
        }
    }
}

/// Issue 48, D1: later callers of the key see no secret that the first call had to itself.
#[tokio::test(start_paused = true)]
async fn details_of_a_kept_error_hide_the_secrets_of_the_first_call() {
    const TOKEN: &str = "0paque-exchanged-7Q";
    let layer = OnceLayer::new();
    let tool = service_fn(|call: ToolCall| async move {
        let call = call.with_secrets([TOKEN]);
        let error = ToolError::new(ErrorKind::Failed, "no");
        let error = error.with_detail("upstream", format!("got {TOKEN} from you"));
        let error = error.with_code(format!("REFUSED_{TOKEN}"));
        Err::<&str, _>(error.for_call(&call.info()))
    });
    for caller in ["first", "second"] {
        let error = layer.layer(tool).oneshot(pay()).await.unwrap_err();
        let details = error.details().unwrap().to_string();
        assert!(details.contains("from you"), "{caller}: {details}");
        let written = serde_json::to_string(&error).unwrap();
        assert!(error.code().starts_with("REFUSED_"));
        assert!(!details.contains(TOKEN), "{caller}: {details}");
        assert!(!written.contains(TOKEN), "{caller}: {written}");
    }
}

/// Issue 48, D6: an id of any size is not part of the error that is kept.
#[tokio::test(start_paused = true)]
async fn the_id_of_a_call_is_not_kept_with_its_error() {
    for kind in [ErrorKind::Failed, ErrorKind::Timeout] {
        let tool = service_fn(move |_| async move { Err::<(), _>(ToolError::new(kind, "no")) });
        let stack = OnceLayer::new().layer(tool);
        let id: Arc<str> = "x".repeat(1 << 20).into();
        let kept = Arc::downgrade(&id);
        let call = pay().with_id(id);
        drop(stack.clone().oneshot(call).await.unwrap_err());
        assert!(kept.upgrade().is_none(), "{kind}");
        let again = stack.oneshot(pay().with_id("2")).await.unwrap_err();
        assert_eq!(again.call_id(), Some("2"));
    }
}

#[tokio::test(start_paused = true)]
async fn what_has_not_started_runs() {
    let refusal = || Step::error(ToolError::refusal(ErrorKind::CircuitOpen, "open"));
    let word = || Step::fail(ErrorKind::InvalidInput);
    for not_started in [refusal, word] {
        let tool = Tool::new([not_started(), Step::ok("r")]);
        let layer = OnceLayer::new();
        make(&layer, &tool, pay()).await.unwrap_err();
        assert!(layer.is_empty());
        assert_eq!(make(&layer, &tool, pay()).await.unwrap(), "r");
    }
}

/// It is read from a foreign error: the tool may have met it after its work.
#[tokio::test(start_paused = true)]
async fn a_text_does_not_prove_that_nothing_has_started() {
    let tool = Tool::always(Step::error(ToolError::from_box(
        "connection refused".into(),
    )));
    let layer = OnceLayer::new();
    make(&layer, &tool, pay()).await.unwrap_err();
    assert_eq!(refused(&layer, &tool, pay()).await, TOOL_OUTCOME_UNKNOWN);
    assert_eq!(tool.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_may_have_run_is_not_repeated() {
    use ErrorKind::{Cancelled, ConnectionFailed, Internal, Panicked, PollTimeout, Upstream};
    for kind in [
        ErrorKind::Timeout,
        Upstream,
        Cancelled,
        PollTimeout,
        Panicked,
        Internal,
        ConnectionFailed,
    ] {
        let failed = ToolError::new(kind, "lost").with_execution(Execution::Unknown);
        let (layer, tool) = (OnceLayer::new(), Tool::always(Step::error(failed)));
        assert_eq!(make(&layer, &tool, pay()).await.unwrap_err().kind(), kind);
        let error = make(&layer, &tool, pay()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Failed);
        assert_eq!(error.code(), TOOL_OUTCOME_UNKNOWN);
        assert_eq!(error.execution(), Execution::Unknown);
        assert!(error.is_own_refusal() && !error.is_retryable());
        assert!(error.details().unwrap().to_string().contains(kind.code()));
        assert!(error.model_message().contains("not known"));
        assert_eq!(tool.count(), 1, "{kind}");
    }
}

/// Until its time is over.
#[tokio::test(start_paused = true)]
async fn a_call_that_was_dropped_while_it_ran_is_not_repeated() {
    let (layer, tool) = (OnceLayer::new(), Tool::new([Step::hang(), Step::ok("r")]));
    let call = || layer.layer(tool.clone()).oneshot(pay());
    // Also of who waited for it.
    let waits = async {
        sleep(SECOND / 2).await;
        call().await
    };
    let (first, waited) = tokio::join!(timeout(SECOND, call()), waits);
    let error = waited.unwrap_err();
    assert!(first.is_err());
    assert_eq!(error.code(), TOOL_OUTCOME_UNKNOWN);
    assert_eq!(refused(&layer, &tool, pay()).await, TOOL_OUTCOME_UNKNOWN);
    advance(DAY).await;
    assert_eq!(make(&layer, &tool, pay()).await.unwrap(), "r");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_panicked_is_not_repeated() {
    for step in [Step::panic, Step::panic_in_call] {
        let tool = Tool::always(step("boom"));
        let once = OnceLayer::new();
        let svc = ServiceBuilder::new()
            .layer(CatchPanicLayer::new())
            .layer(once.clone())
            .service(tool.clone());
        let error = svc.oneshot(pay()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Panicked);
        assert_eq!(refused(&once, &tool, pay()).await, TOOL_OUTCOME_UNKNOWN);
        assert_eq!(tool.count(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_safe_tool_may_run_again() {
    let (layer, tool) = (
        OnceLayer::new(),
        Tool::new([Step::hang(), Step::status(502), Step::ok("r")]),
    );
    let safe = || pay().with_replay_safety(ReplaySafety::Safe);
    timeout(SECOND, make(&layer, &tool, safe()))
        .await
        .unwrap_err();
    make(&layer, &tool, safe()).await.unwrap_err();
    assert_eq!(make(&layer, &tool, safe()).await.unwrap(), "r");
    assert_eq!(make(&layer, &tool, safe()).await.unwrap(), "r");
    assert_eq!(tool.count(), 3);
}

/// Agents, whatever their sessions, and the subjects of an agent. P4: calls without a principal are
/// compared with each other, and with no principal's.
#[tokio::test(start_paused = true)]
async fn principals_have_keys_of_their_own() {
    let bare = || ToolCall::new("pay");
    let keyed = || bare().with_once_key("k1");
    let (x, y) = (|| keyed().with_agent_id("x"), || keyed().with_agent_id("y"));
    let s = || keyed().with_session_id("x");
    let of_principals = [(x(), 1), (x(), 1), (y(), 2), (y(), 2), (s(), 3), (s(), 3)];
    let resumed = (x().with_session_id("s2"), 3);
    runs(
        &OnceLayer::new(),
        of_principals.into_iter().chain([resumed]),
    )
    .await;
    let of = |subject| pay().with_subject_token(subject);
    runs(
        &OnceLayer::new(),
        [(of("u1"), 1), (of("u2"), 2), (of("u1"), 2)],
    )
    .await;
    let of_nobody = [
        (bare(), 1),
        (bare().with_id("c2"), 1),
        (keyed(), 2),
        (keyed(), 2),
        (keyed().with_agent_id("a1"), 3),
        (bare().with_session_id("s1"), 4),
    ];
    runs(&OnceLayer::new(), of_nobody).await;
}

/// A call that starts nothing passes, and so does one that may run twice.
#[tokio::test(start_paused = true)]
async fn calls_that_are_safe_too_deep_or_wait_for_a_job_pass() {
    let mut deep = json!(1);
    for _ in 0..200 {
        deep = json!([deep]);
    }
    let bare = || ToolCall::new("pay").with_agent_id("a1");
    let job = JobRef::new(&bare(), serde_json::Map::new()).unwrap();
    let safe = bare().with_replay_safety(ReplaySafety::Safe);
    let calls = [safe, bare().with_job(job), call(json!({ "deep": deep }))];
    let twice = calls.into_iter().flat_map(|call| [call.clone(), call]);
    let layer = OnceLayer::new();
    runs(&layer, twice.zip(1..)).await;
    assert!(layer.is_empty());
}

/// P4: without a key the arguments are the key, for ten minutes after the end of the call.
#[tokio::test(start_paused = true)]
async fn equal_arguments_are_not_run_again_for_ten_minutes() {
    let (layer, tool) = (OnceLayer::new(), Tool::always(Step::ok("r").after(SECOND)));
    let call = |euros, id| {
        let call = ToolCall::new("pay").with_session_id("s1").with_id(id);
        call.with_json(json!({ "euros": euros })).unwrap()
    };
    for (euros, id, sent) in [(20, "1", 1), (20, "2", 1), (20, "", 1), (21, "1", 2)] {
        make(&layer, &tool, call(euros, id)).await.unwrap();
        assert_eq!(tool.count(), sent);
    }
    make(&layer, &tool, call(20, "3").with_server("bank"))
        .await
        .unwrap();
    assert_eq!(tool.count(), 3);
    advance(Duration::from_secs(590)).await;
    make(&layer, &tool, call(20, "4")).await.unwrap();
    assert_eq!(tool.count(), 3);
    advance(Duration::from_secs(10)).await;
    make(&layer, &tool, call(20, "5")).await.unwrap();
    assert_eq!(tool.count(), 4);
}

/// P4: an author who says that nothing was done is believed; an error that was read from another
/// one proves nothing.
#[tokio::test(start_paused = true)]
async fn without_a_key_a_tool_that_has_done_nothing_runs_again() {
    use ErrorKind::{Denied, InvalidInput, NotFound};
    let call = || ToolCall::new("move_file").with_session_id("s1");
    for kind in [InvalidInput, NotFound, Denied] {
        let layer = OnceLayer::new();
        let tool = Tool::new([Step::fail(kind), Step::ok("moved")]);
        make(&layer, &tool, call()).await.unwrap_err();
        assert_eq!(make(&layer, &tool, call()).await.unwrap(), "moved");
        let layer = OnceLayer::new();
        let inferred = ToolError::new(kind, "no").into_inferred();
        let tool = Tool::always(Step::error(inferred));
        for _ in 0..2 {
            make(&layer, &tool, call()).await.unwrap_err();
        }
        assert_eq!(tool.count(), 1, "{kind}");
    }
}

/// P4: whoever gives no key does not know that the call was not made again, and is told.
#[tokio::test(start_paused = true)]
async fn the_error_of_an_equal_call_says_that_it_was_not_made_again() {
    let call = || ToolCall::new("move_file").with_session_id("s1");
    for (call, is_told) in [(call(), true), (call().with_once_key("k1"), false)] {
        let layer = OnceLayer::new();
        let tool = Tool::always(Step::error(ToolError::from_box("no such file".into())));
        let first = make(&layer, &tool, call.clone()).await.unwrap_err();
        let again = make(&layer, &tool, call).await.unwrap_err();
        assert_eq!(tool.count(), 1);
        let told = again.model_message();
        assert!(told.starts_with(&first.model_message()), "{told}");
        assert_eq!(told.ends_with("it was not made again."), is_told, "{told}");
        let details = serde_json::to_value(again.details()).unwrap();
        assert_eq!(details["reused"] == "once", is_told);
    }
}

/// P4: what may have run is not repeated without a key either; another layer value's time may be
/// shorter.
#[tokio::test(start_paused = true)]
async fn equal_arguments_of_a_call_that_may_have_run_are_refused() {
    let layer = OnceLayer::builder().with_repeat_within(SECOND);
    let layer = layer.build().unwrap();
    let tool = Tool::new([Step::hang(), Step::ok("r")]);
    let call = || ToolCall::new("pay").with_session_id("s1");
    timeout(SECOND, make(&layer, &tool, call()))
        .await
        .unwrap_err();
    assert_eq!(refused(&layer, &tool, call()).await, TOOL_OUTCOME_UNKNOWN);
    advance(SECOND).await;
    assert_eq!(make(&layer, &tool, call()).await.unwrap(), "r");
}

/// P4: the caller's key takes precedence over equal arguments, which a time of zero leaves alone.
#[tokio::test(start_paused = true)]
async fn calls_with_keys_of_their_own_are_not_compared_by_arguments() {
    let bare = || ToolCall::new("pay").with_agent_id("a1");
    let of = |key| bare().with_once_key(key);
    runs(
        &OnceLayer::new(),
        [(of("k1"), 1), (of("k2"), 2), (bare(), 3), (of(""), 3)],
    )
    .await;
    let layer = OnceLayer::builder().with_repeat_within(Duration::ZERO);
    let by_keys = [(bare(), 1), (bare(), 2), (pay(), 3), (pay(), 3)];
    runs(&layer.build().unwrap(), by_keys).await;
}

/// P4: many calls without keys never make the layer refuse one; the oldest are forgotten.
#[tokio::test(start_paused = true)]
async fn of_calls_without_keys_the_oldest_are_forgotten() {
    let layer = OnceLayer::builder().with_max_keys(80).build().unwrap();
    let tool = Tool::always(Step::ok("r"));
    let call = |n: u64| {
        let call = ToolCall::new("pay").with_agent_id("a1");
        call.with_json(json!({ "n": n })).unwrap()
    };
    for n in 0..100 {
        make(&layer, &tool, call(n)).await.unwrap();
        advance(Duration::from_millis(1)).await;
    }
    assert_eq!(tool.count(), 100);
    assert!(layer.len() <= 10, "{}", layer.len());
    make(&layer, &tool, call(99)).await.unwrap();
    assert_eq!(tool.count(), 100);
}

#[tokio::test(start_paused = true)]
async fn all_are_one_if_the_layer_says_so_and_a_function_may_say_who() {
    let tool = Tool::always(Step::ok("r"));
    let shared = OnceLayer::builder().shared().build().unwrap();
    for principal in ["a", "b"] {
        let call = pay().with_agent_id(principal);
        make(&shared, &tool, call).await.unwrap();
    }
    make(&shared, &tool, ToolCall::new("x").with_once_key("k2"))
        .await
        .unwrap();
    assert_eq!(tool.count(), 2);
    let by_trace = OnceLayer::builder().with_principal(|call| call.trace_id());
    let by_trace = by_trace.build().unwrap();
    for (trace, sent) in [("t1", 3), ("t1", 3), ("t2", 4), ("", 5), ("", 5)] {
        make(&by_trace, &tool, pay().with_trace_id(trace))
            .await
            .unwrap();
        assert_eq!(tool.count(), sent);
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiter_has_its_own_deadline() {
    let layer = OnceLayer::new();
    let tool = Tool::always(Step::ok("r").after(10 * SECOND));
    let first = tokio::spawn(layer.layer(tool.clone()).oneshot(pay()));
    sleep(SECOND).await;
    let since = Instant::now();
    let hurried = pay().with_deadline(since + SECOND);
    let error = make(&layer, &tool, hurried).await.unwrap_err();
    // Another call may run, and so this does not say that nothing does.
    assert_eq!(error.kind(), ErrorKind::DeadlineExceeded);
    assert_eq!(error.execution(), Execution::Unknown);
    assert_eq!(since.elapsed(), SECOND);
    assert_eq!(first.await.unwrap().unwrap(), "r");
}

#[tokio::test(start_paused = true)]
async fn a_waiter_has_its_own_token() {
    let layer = OnceLayer::new();
    let tool = Tool::always(Step::ok("r").after(10 * SECOND));
    let first = tokio::spawn(layer.layer(tool.clone()).oneshot(pay()));
    sleep(SECOND).await;
    let token = tokio_util::sync::CancellationToken::new();
    let waits = pay().with_cancellation(token.clone());
    let mut waits = task::spawn(layer.layer(tool.clone()).oneshot(waits));
    assert_pending!(waits.poll());
    token.cancel();
    let error = tokio_test::assert_ready_err!(waits.poll());
    assert_eq!(error.kind(), ErrorKind::Cancelled);
    assert_eq!(first.await.unwrap().unwrap(), "r");
}

/// Whoever was to run it and was dropped before leaves it to the next.
#[tokio::test(start_paused = true)]
async fn one_that_is_dropped_before_it_is_sent_leaves_its_turn() {
    let (limited, tool, semaphore) = kit::limited(kit::answers());
    let permit = semaphore.clone().try_acquire_owned().unwrap();
    let layer = OnceLayer::new();
    let mut first = task::spawn(layer.layer(limited.clone()).oneshot(pay()));
    let mut second = task::spawn(layer.layer(limited).oneshot(pay()));
    assert_pending!(first.poll());
    assert_pending!(second.poll());
    drop(first);
    assert!(second.is_woken());
    assert_pending!(second.poll());
    drop(permit);
    assert_eq!(assert_ready_ok!(second.poll()), "answer");
    drop(second);
    assert_eq!((tool.count(), semaphore.available_permits()), (1, 1));
}

/// Also while the service below is not ready: the answer needs nothing of it.
#[tokio::test(start_paused = true)]
async fn one_that_has_its_answer_or_waits_holds_nothing_below() {
    let (limited, tool, semaphore) = kit::limited(kit::answers());
    let layer = OnceLayer::new();
    let mut svc: tower_toolcall::once::Once<ConcurrencyLimit<_>> = layer.layer(limited);
    svc.ready().await.unwrap().call(pay()).await.unwrap();
    let permit = semaphore.clone().acquire_owned().await.unwrap();
    let again = svc.ready().await.unwrap().call(pay());
    assert_eq!(again.await.unwrap(), "answer");
    drop(permit);
    svc.ready().await.unwrap();
    assert_eq!(semaphore.available_permits(), 0);
    let again = svc.call(pay());
    assert_eq!(semaphore.available_permits(), 1);
    assert_eq!(again.await.unwrap(), "answer");
    assert_eq!(tool.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_full_store_refuses_and_forgets_nothing() {
    let layer = OnceLayer::builder()
        .with_max_keys(16)
        .with_ttl(60 * SECOND)
        .build()
        .unwrap();
    let tool = Tool::always(Step::ok("r"));
    let key = |agent: usize, key: usize| {
        let call = ToolCall::new("pay").with_agent_id(format!("a{agent}"));
        call.with_once_key(format!("k{key}"))
    };
    // An eighth for each.
    for agent in 0..8 {
        for n in 0..2 {
            make(&layer, &tool, key(agent, n)).await.unwrap();
        }
        assert_eq!(refused(&layer, &tool, key(agent, 2)).await, "OVERLOADED");
    }
    let error = make(&layer, &tool, key(9, 0)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Overloaded);
    assert_eq!(error.execution(), Execution::NotStarted);
    make(&layer, &tool, key(0, 0)).await.unwrap();
    assert_eq!((tool.count(), layer.len()), (16, 16));
    advance(61 * SECOND).await;
    make(&layer, &tool, key(9, 0)).await.unwrap();
    assert_eq!(layer.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_stranger_uses_up_his_own_share() {
    let layer = OnceLayer::builder().with_max_keys(80).build().unwrap();
    let tool = Tool::always(Step::ok("r"));
    for n in 0..1000 {
        let call = ToolCall::new("pay").with_agent_id("stranger");
        let _ = make(&layer, &tool, call.with_once_key(n.to_string())).await;
    }
    assert_eq!((layer.len(), tool.count()), (10, 10));
    make(&layer, &tool, pay()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn long_keys_principals_and_names_are_refused() {
    let (layer, tool) = (OnceLayer::new(), Tool::always(Step::ok("r")));
    for long in [
        pay().with_once_key("k".repeat(2_000)),
        pay().with_agent_id("a".repeat(30_000)),
        // Issue 48, D6: a key has the names as they are.
        pay().with_server("s".repeat(2_000)),
    ] {
        let error = make(&layer, &tool, long).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
    }
    assert!(tool.count() == 0 && layer.is_empty());
}

#[tokio::test(start_paused = true)]
async fn of_a_large_answer_it_is_kept_that_the_call_has_run() {
    let builder = OnceLayer::builder().with_max_answer(10);
    let layer = builder.with_size(|text: &&str| text.len() as u64);
    let layer = layer.build().unwrap();
    let tool = Tool::always(Step::ok("more than ten bytes"));
    make(&layer, &tool, pay()).await.unwrap();
    let error = make(&layer, &tool, pay()).await.unwrap_err();
    assert_eq!(error.code(), TOOL_ALREADY_DONE);
    assert_eq!(error.execution(), Execution::Completed);
    assert_eq!(tool.count(), 1);
}

/// A retry layer above sends the same call again: it runs if it has not started, and else it does
/// not. S-2: of a principal the oldest answers go, and no call runs again. Another principal's
/// stay.
#[tokio::test(start_paused = true)]
async fn beyond_the_bytes_of_a_principal_the_oldest_answers_go() {
    let size = |text: &&str| text.len() as u64;
    let builder = OnceLayer::builder().with_max_answer(10).with_size(size);
    let layer = builder.with_max_bytes(800).build().unwrap();
    let tool = Tool::always(Step::ok("ten bytes!"));
    let agents = |agent: &str, n: u32| {
        let call = ToolCall::new("pay").with_agent_id(agent.to_owned());
        call.with_once_key(n.to_string())
    };
    make(&layer, &tool, agents("b", 0)).await.unwrap();
    for n in 0..11 {
        make(&layer, &tool, agents("a", n)).await.unwrap();
        advance(SECOND).await;
    }
    assert_eq!(tool.count(), 12);
    for n in 0..2 {
        let error = make(&layer, &tool, agents("a", n)).await.unwrap_err();
        assert_eq!(error.code(), TOOL_ALREADY_DONE);
        assert_eq!(error.execution(), Execution::Completed);
    }
    for n in 2..11 {
        make(&layer, &tool, agents("a", n)).await.unwrap();
    }
    make(&layer, &tool, agents("b", 0)).await.unwrap();
    assert_eq!(tool.count(), 12);
}

/// S-2: an error counts as well; of a call that may have run it stays known that it may have.
#[tokio::test(start_paused = true)]
async fn an_error_without_room_is_kept_as_what_the_call_has_done() {
    let layer = OnceLayer::new();
    for (kind, code) in [
        (ErrorKind::Failed, TOOL_ALREADY_DONE),
        (ErrorKind::Upstream, TOOL_OUTCOME_UNKNOWN),
    ] {
        let error = ToolError::new(kind, "no").with_model_message("a".repeat(9_000_000));
        let tool = Tool::always(Step::error(error));
        let call = pay().with_once_key(code);
        let first = make(&layer, &tool, call.clone()).await.unwrap_err();
        assert_eq!(first.kind(), kind);
        let again = make(&layer, &tool, call).await.unwrap_err();
        assert_eq!((again.code(), tool.count()), (code, 1));
    }
}

#[tokio::test(start_paused = true)]
async fn attempts_from_above_are_the_same_call() {
    let overloaded = Step::status(503).with_retry_after(SECOND);
    let tool = Tool::new([overloaded, Step::ok("r")]);
    let once = OnceLayer::new();
    let svc = ServiceBuilder::new()
        .layer(RetryLayer::new(RetryPolicy::new().assume_replay_safe()))
        .layer(once.clone())
        .service(tool.clone());
    assert_eq!(svc.clone().oneshot(pay()).await.unwrap(), "r");
    assert_eq!(tool.count(), 2);
    let hangs = Tool::always(Step::hang());
    let svc = ServiceBuilder::new()
        .layer(RetryLayer::new(RetryPolicy::new().assume_replay_safe()))
        .layer(once)
        .layer(TimeoutLayer::new(SECOND))
        .service(hangs.clone());
    svc.oneshot(pay().with_once_key("k2")).await.unwrap_err();
    assert_eq!(hangs.count(), 1);
}

/// Attempts below are one run.
#[tokio::test(start_paused = true)]
async fn attempts_below_are_one_run() {
    let tool = Tool::new([Step::status(502), Step::ok("r")]);
    let svc = ServiceBuilder::new()
        .layer(OnceLayer::new())
        .layer(RetryLayer::new(RetryPolicy::new().assume_replay_safe()))
        .service(tool.clone());
    for _ in 0..2 {
        assert_eq!(svc.clone().oneshot(pay()).await.unwrap(), "r");
    }
    assert_eq!(tool.count(), 2);
}

#[tokio::test(start_paused = true)]
async fn observers_see_that_nothing_was_sent() {
    let (layer, tool) = (OnceLayer::new(), Tool::always(Step::ok("r")));
    for (sent, names) in [(1, vec![]), (0, vec!["tool.reused"])] {
        let events = Events::new();
        let mut call = pay();
        let below = events.observe(&mut call);
        make(&layer, &tool, call).await.unwrap();
        assert_eq!((below.sent(None), below.is_reused()), (sent, sent == 0));
        assert_eq!(events.names(), names);
    }
    let info = pay().info();
    assert_eq!(Event::reused(&info, "once").name(), Some("tool.reused"));
}

/// An answer that is an error in the tool's own words is one each time it is given.
#[tokio::test(start_paused = true)]
async fn observers_see_each_time_that_the_leaf_reports_an_error() {
    let tool = tower::service_fn(|call: ToolCall| async move {
        sleep(SECOND).await;
        call.record(|record| record.set_reported(true));
        Ok::<_, ToolError>("isError")
    });
    let layer = OnceLayer::new();
    // Nobody observes the first.
    let first = tokio::spawn(layer.layer(tool).oneshot(pay()));
    tokio::task::yield_now().await;
    let ask = || async {
        let (events, mut call) = (Events::new(), pay());
        let below = events.observe(&mut call);
        layer.layer(tool).oneshot(call).await.unwrap();
        below.is_reported()
    };
    assert_eq!((ask().await, ask().await), (true, true));
    first.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn one_layer_serves_answers_of_several_types() {
    let layer = OnceLayer::new();
    let text = Tool::always(Step::ok("r"));
    let number = Script::<u8>::always(Step::ok(7));
    make(&layer, &text, pay()).await.unwrap();
    let other = layer.layer(number.clone()).oneshot(pay()).await;
    assert_eq!(other.unwrap_err().code(), TOOL_KEY_REUSED);
    let other = pay().with_once_key("k2");
    assert_eq!(layer.layer(number).oneshot(other).await.unwrap(), 7);
}

#[test]
fn settings_that_cannot_work_are_refused() {
    let builder = OnceLayer::builder;
    let field = |builder: tower_toolcall::once::OnceBuilder| {
        builder.build().unwrap_err().field().to_owned()
    };
    assert_eq!(field(builder().with_ttl(Duration::ZERO)), "ttl");
    assert_eq!(field(builder().with_ttl(400 * DAY)), "ttl");
    assert_eq!(
        field(builder().with_repeat_within(400 * DAY)),
        "repeat_within"
    );
    assert_eq!(field(builder().with_max_keys(0)), "max_keys");
    assert_eq!(field(builder().with_max_keys(usize::MAX)), "max_keys");
}

/// Neither the texts nor the principal, which may be a token, are shown.
#[test]
fn debug_shows_no_key() {
    let layer = OnceLayer::new();
    let svc = layer.layer(Tool::always(Step::ok("r")));
    assert!(!format!("{layer:?} {:?}", OnceLayer::builder()).contains("k1"));
    let _ = svc;
}

/// Whatever becomes of callers and of the tool, in any order: at most one run may have had an
/// effect.
#[tokio::test(start_paused = true)]
async fn random_ends_of_calls_and_callers_run_it_at_most_once() {
    use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

    /// A run that does not surely end without an effect had one.
    struct Run(Arc<AtomicU32>);
    impl Drop for Run {
        fn drop(&mut self) {
            self.0.fetch_add(1, SeqCst);
        }
    }

    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move |below: u64| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        (seed >> 11) % below
    };
    let ms = Duration::from_millis;
    let (mut ran, mut answered) = (0, 0);
    for round in 0..2_000 {
        let layer = OnceLayer::new();
        let effects = Arc::new(AtomicU32::new(0));
        let callers = (0..2 + random(6)).map(|_| {
            let (end, takes, begins, leaves) =
                (random(7), ms(random(4)), ms(random(8)), ms(1 + random(12)));
            let runs = Arc::clone(&effects);
            let tool = tower::service_fn(move |_: ToolCall| {
                let run = Run(Arc::clone(&runs));
                async move {
                    sleep(takes).await;
                    match end {
                        0 | 1 => {
                            std::mem::forget(run);
                            let kind = ErrorKind::CircuitOpen;
                            Err(ToolError::refusal(kind, "not sent"))
                        }
                        2 => Err(ToolError::new(ErrorKind::Reported, "no")),
                        3 => Err(ToolError::new(ErrorKind::Timeout, "late")),
                        4 => panic!("in mid-work"),
                        5 => std::future::pending().await,
                        _ => Ok(7),
                    }
                }
            });
            let svc = ServiceBuilder::new()
                .layer(&layer)
                .layer(CatchPanicLayer::new())
                .service(tool);
            tokio::spawn(async move {
                sleep(begins).await;
                timeout(leaves, svc.oneshot(pay())).await
            })
        });
        for caller in callers.collect::<Vec<_>>() {
            answered += u32::from(caller.await.unwrap().is_ok());
        }
        let effects = effects.load(SeqCst);
        assert!(effects <= 1, "round {round}: {effects}");
        ran += effects;
    }
    assert!(ran > 1_500 && answered > 3_000, "{ran} {answered}");
}
