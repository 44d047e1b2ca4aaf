use expect_test::expect;
use proptest::prelude::*;
use serde_json::{Map, Value, json};
use tower::{Layer, Service, ServiceBuilder, ServiceExt};
use tower_toolcall::{
    ErrorKind, Evidence, Execution, ToolCall, ToolError, redact::Rules, retry::RetryLayer,
    sanitize::SanitizeLayer,
};
use tower_toolcall_test::{Capture, Replay, Script, Step};

use crate::{call, secs};

fn with(arguments: Value) -> ToolCall {
    call().with_json(arguments).unwrap()
}

/// Any arguments.
fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,300}".prop_map(Value::from),
        "(Bearer |token=|password: )?[a-zA-Z0-9+/=_-]{0,60}".prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 40, 5, |inner| {
        let key = "[a-zA-Z_]{0,8}|password|api_key|.{0,20}";
        let map = prop::collection::vec((key, inner.clone()), 0..5);
        prop_oneof![
            prop::collection::vec(inner, 0..5).prop_map(Value::from),
            map.prop_map(|members| Value::Object(Map::from_iter(members))),
        ]
    })
}

/// What a tool with this script leaves of these calls.
async fn captured(script: &Script, calls: impl IntoIterator<Item = ToolCall>) -> String {
    let capture = Capture::new();
    let stack = capture.layer().layer(script.clone());
    for call in calls {
        let _ = stack.clone().oneshot(call).await;
    }
    assert_eq!(capture.dropped(), 0);
    capture.lines()
}

#[tokio::test]
async fn answers_come_back_by_their_arguments_and_in_their_order() {
    let tool = Script::new([1, 2, 3].map(|n| Step::ok(json!({ "n": n }))));
    let (a, b) = (
        || with(json!({ "q": "a", "page": 1.1 })),
        || with(json!({ "q": "b" })),
    );
    let lines = captured(&tool, [a(), b(), a()]).await;
    assert_eq!(lines.lines().count(), 3);

    let replay = Replay::from_lines(&lines).unwrap();
    assert_eq!(replay.left(), 3);
    let mut answers = Vec::new();
    for call in [b(), a(), a()] {
        answers.push(replay.clone().oneshot(call).await.unwrap()["n"].clone());
    }
    assert_eq!(answers, [2, 1, 3]);
    assert_eq!(replay.left(), 0);
}

/// What retry, breaker and health act on is as it was.
#[tokio::test]
async fn errors_come_back_as_they_were() {
    let errors = [
        ToolError::from_status(http::StatusCode::TOO_MANY_REQUESTS, "slow down")
            .with_retry_after(secs(7)),
        ToolError::new(ErrorKind::ConnectionFailed, "refused")
            .with_execution(Execution::NotStarted),
        ToolError::new(ErrorKind::Reported, "no rows").with_code("NO_ROWS"),
        ToolError::from_box("HTTP 503".into()),
        ToolError::refusal(ErrorKind::Overloaded, "full"),
    ];
    let tool = Script::new(errors.iter().cloned().map(Step::error));
    let lines = captured(&tool, errors.iter().map(|_| call())).await;
    let replay = Replay::from_lines(&lines).unwrap();
    for error in errors {
        let again = replay.clone().oneshot(call()).await.unwrap_err();
        let facts = |e: &ToolError| {
            let texts = (e.code().to_owned(), e.message().to_owned(), e.status());
            (
                texts,
                e.kind(),
                e.evidence(),
                e.execution(),
                e.retry_after(),
            )
        };
        assert_eq!(facts(&again), facts(&error));
        assert_eq!(again.tool(), Some("search"));
    }
}

/// R6: the error is of the call that is replayed, so that what it proves holds, whatever the ids
/// are.
#[tokio::test(start_paused = true)]
async fn a_replayed_429_is_repeated_under_another_id() {
    let tool = Script::new([Step::status(429), Step::ok(json!(1))]);
    let lines = captured(&tool, [call().with_id("a"), call().with_id("a")]).await;
    let stack = RetryLayer::default().layer(Replay::from_lines(&lines).unwrap());
    assert_eq!(stack.oneshot(call().with_id("b")).await.unwrap(), 1);
}

/// S1: nothing secret is written down, and the call is found again all the same.
#[tokio::test]
async fn secrets_are_not_written_down() {
    let tool = Script::new([
        Step::ok(json!({ "api_key": "canary-1", "iban": "canary-2", "city": "Oslo" })),
        Step::error(ToolError::from_box("api_key=canary-3 refused".into())),
    ]);
    let rules = Rules::new().with_sensitive_key("iban").unwrap();
    let capture = Capture::new();
    let stack = ServiceBuilder::new()
        .layer(SanitizeLayer::new(rules))
        .layer(capture.layer())
        .service(tool);
    let secret = || with(json!({ "password": "canary-4", "iban": "canary-5", "q": "a" }));
    stack.clone().oneshot(secret()).await.unwrap();
    stack.oneshot(secret()).await.unwrap_err();
    let lines = capture.lines();
    assert!(!lines.contains("canary"), "{lines}");
    assert!(lines.contains("Oslo"), "{lines}");
    assert!(!format!("{capture:?}").contains("canary"));

    let replay = Replay::from_lines(&lines).unwrap();
    let rules = Rules::new().with_sensitive_key("iban").unwrap();
    let stack = SanitizeLayer::new(rules).layer(replay);
    assert_eq!(stack.oneshot(secret()).await.unwrap()["city"], "Oslo");
}

/// A view that is shown to people is cut at 200 characters; an answer is not.
#[tokio::test]
async fn long_answers_are_whole() {
    let long = json!({ "text": "word ".repeat(10_000), "rows": vec![1; 5_000] });
    let tool = Script::new([Step::ok(long.clone())]);
    let lines = captured(&tool, [call()]).await;
    let replay = Replay::from_lines(&lines).unwrap();
    assert_eq!(replay.oneshot(call()).await.unwrap(), long);
}

/// Names are told apart to the last character that a call may have.
#[tokio::test]
async fn long_names_are_told_apart() {
    let of = |end: char| ToolCall::new(format!("{}{end}", "tool_".repeat(51)));
    let tool = Script::new([Step::ok(json!("a")), Step::ok(json!("b"))]);
    let lines = captured(&tool, [of('a'), of('b')]).await;
    let replay = Replay::from_lines(&lines).unwrap();
    assert_eq!(replay.oneshot(of('b')).await.unwrap(), "b");
}

/// A timeout above strikes again.
#[tokio::test(start_paused = true)]
async fn a_call_that_was_dropped_hangs() {
    let capture = Capture::new();
    let tool = Script::<Value>::new([Step::hang()]);
    let hangs = capture.layer().layer(tool).oneshot(call());
    assert!(tokio::time::timeout(secs(5), hangs).await.is_err());
    let replay = Replay::from_lines(&capture.lines()).unwrap();
    let again = tokio::time::timeout(secs(5), replay.clone().oneshot(call()));
    assert!(again.await.is_err());
    assert_eq!(replay.left(), 0);
}

#[tokio::test]
async fn a_call_that_panicked_panics() {
    let capture = Capture::new();
    for step in [Step::panic("at random"), Step::panic_in_call("at random")] {
        let tool = Script::<Value>::new([step]);
        let panics = tokio::spawn(capture.layer().layer(tool).oneshot(call()));
        assert!(panics.await.unwrap_err().is_panic());
    }
    assert!(!capture.lines().contains("unfinished"));
    let replay = Replay::from_lines(&capture.lines()).unwrap();
    for _ in 0..2 {
        let again = tokio::spawn(replay.clone().oneshot(call()));
        assert!(again.await.unwrap_err().is_panic());
    }
}

async fn refused(lines: &str, calls: impl IntoIterator<Item = ToolCall>) -> String {
    let replay = Replay::from_lines(lines).unwrap();
    let mut last = None;
    for call in calls {
        last = replay.clone().oneshot(call).await.err();
    }
    let error = last.unwrap();
    assert_eq!(error.kind(), ErrorKind::Internal);
    error.message().to_owned()
}

#[tokio::test]
async fn an_unknown_call_is_told_what_is_near() {
    let tool = Script::always(Step::ok(json!(1)));
    let known = || with(json!({ "q": "canary-a", "filter": { "lang": "en" }, "n": 1 }));
    let far = with(json!({ "other": true }));
    let lines = captured(&tool, [far, known(), ToolCall::new("pay")]).await;

    let near = with(json!({ "q": "canary-b", "filter": { "lang": "de" }, "n": 1 }));
    let told = refused(&lines, [near]).await;
    let text = "the replay has no such call of `docs__search`: the nearest one has another `filter.lang`, `q`";
    assert_eq!(told, text);

    let told = refused(&lines, [ToolCall::new("serch").with_server("docs")]).await;
    let text = "the replay has no call of `docs__serch`; near it: `docs__search`";
    assert_eq!(told, text);

    let told = refused(&lines, [ToolCall::new("translate")]).await;
    expect!["the replay has no call of `translate`"].assert_eq(&told);

    let told = refused(&lines, [ToolCall::new("docs__search")]).await;
    let text =
        "the replay has calls of `docs__search`, but with another division into server and tool";
    assert_eq!(told, text);

    let told = refused(&lines, [known(), known()]).await;
    let text = "the replay has no answer for call 2 of `docs__search` with these arguments";
    assert_eq!(told, text);
}

#[test]
fn a_bad_line_is_named_and_not_quoted() {
    let good = r#"{"call":{"tool":"a","arguments":{}},"end":{"ok":1}}"#;
    for bad in [
        "no JSON: canary",
        r#"{"call":{"tool":"a"},"end":{"ok":1}}"#,
        r#"{"call":{"tool":"a","arguments":{},"canary":"docs"},"end":{"ok":1}}"#,
        r#"{"call":{"tool":"a","arguments":{}},"end":{"ok":1},"canary":1}"#,
        r#"{"call":{"tool":"a","arguments":{}},"end":{"canary":1}}"#,
    ] {
        let error = Replay::from_lines(&format!("{good}\n\n{bad}\n")).unwrap_err();
        assert_eq!(error.field(), "line 3", "{bad}");
        assert!(!error.to_string().contains("canary"), "{error}");
    }
}

#[tokio::test]
async fn what_is_kept_is_bounded_and_the_rest_is_counted() {
    let tool = Script::always(Step::ok(json!("x".repeat(100))));
    for capture in [
        Capture::new().with_max_lines(2),
        Capture::new().with_max_bytes(450),
    ] {
        let stack = capture.layer().layer(tool.clone());
        for _ in 0..5 {
            stack.clone().oneshot(call()).await.unwrap();
        }
        assert_eq!((capture.len(), capture.dropped()), (2, 3));
        assert!(capture.lines().len() <= 450);
    }
}

/// Or a later answer would be replayed in place of the one that is missing.
#[tokio::test]
async fn nothing_is_written_after_a_line_without_room() {
    let capture = Capture::new().with_max_bytes(450);
    let tool = Script::new([Step::ok(json!("x".repeat(1_000))), Step::ok(json!("y"))]);
    let stack = capture.layer().layer(tool);
    for _ in 0..2 {
        stack.clone().oneshot(call()).await.unwrap();
    }
    assert_eq!((capture.len(), capture.dropped()), (0, 2));
}

/// What a replay says of an answer that was not written down whole, and how many of them the
/// capture has counted.
async fn lost<Res: serde::Serialize + Clone>(answer: Res) -> (String, u64) {
    let capture = Capture::new();
    let tool = Script::new([Step::ok(answer)]);
    let passed = capture.layer().layer(tool).oneshot(call()).await;
    assert!(passed.is_ok());
    let told = refused(&capture.lines(), [call()]).await;
    (told, capture.dropped())
}

const LOST: &str = "the replay has no answer for call 1 of `docs__search` with these arguments: it was no JSON, or too large";

#[tokio::test]
async fn an_answer_that_is_no_json_is_counted_and_not_replayed() {
    #[derive(Clone)]
    struct NotJson;
    impl serde::Serialize for NotJson {
        fn serialize<S: serde::Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
            Err(serde::ser::Error::custom("not JSON"))
        }
    }
    assert_eq!(lost(NotJson).await, (LOST.to_owned(), 1));
}

#[tokio::test]
async fn an_answer_that_was_cut_is_counted_and_not_replayed() {
    let deep = (0..65).fold(json!(1), |inner, _| json!([inner]));
    for answer in [
        json!({ "text": "x ".repeat(40_000) }),
        json!(vec![1; 100_001]),
        json!(vec!["x ".repeat(25_000); 30]),
        deep,
    ] {
        assert_eq!(lost(answer).await, (LOST.to_owned(), 1));
    }
}

/// A tool's own mark is no cut.
#[tokio::test]
async fn an_answer_that_its_tool_has_cut_is_whole() {
    let cut = json!({ "text": "the beginning...[truncated]", "more": "[...]" });
    let lines = captured(&Script::new([Step::ok(cut.clone())]), [call()]).await;
    let replay = Replay::from_lines(&lines).unwrap();
    assert_eq!(replay.oneshot(call()).await.unwrap(), cut);
}

#[test]
fn the_lines_that_are_read_are_bounded() {
    let error = Replay::from_lines(&"x\n".repeat(100_001)).unwrap_err();
    expect!["invalid `lines`: there are more than 100000"].assert_eq(&error.to_string());
}

/// It changes nothing.
#[tokio::test]
async fn captured_answers_and_errors_pass() {
    let capture = Capture::new();
    let tool = Script::new([
        Step::ok(json!({ "api_key": "real" })),
        Step::error(ToolError::from_box("HTTP 503".into())),
    ]);
    let mut stack = capture.layer().layer(tool);
    let answer = stack.call(call()).await.unwrap();
    assert_eq!(answer, json!({ "api_key": "real" }));
    let error = stack.call(call()).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.evidence(), error.tool()),
        (ErrorKind::Upstream, Evidence::Inferred, Some("search"))
    );
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever is redacted of it, and however its numbers are written.
    #[test]
    fn any_call_is_found_again(arguments in values(), answer in values()) {
        let asked = || with(json!({ "a": arguments }));
        tokio_test::block_on(async {
            let tool = Script::new([Step::ok(answer.clone())]);
            let lines = captured(&tool, [asked()]).await;
            let replay = Replay::from_lines(&lines).unwrap();
            replay.oneshot(asked()).await.unwrap();
        });
    }
}
