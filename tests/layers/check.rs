//! What a check does to an answer.

use std::time::Duration;

use expect_test::expect;
use serde_json::{Value, json};
use tower::{ServiceBuilder, ServiceExt, service_fn};
use tower_toolcall::{
    AnyError, CallInfo, ErrorKind, Execution, ReplaySafety, ToolCall, ToolError,
    check::{Check, CheckLayer, check_fn},
    result::ToolResultLayer,
    retry::RetryLayer,
};

async fn checked(max: u64, answer: Value) -> Result<Value, ToolError> {
    ServiceBuilder::new()
        .layer(CheckLayer::max_bytes(max))
        .service(service_fn(move |_: ToolCall| {
            let answer = answer.clone();
            async { Ok::<_, AnyError>(answer) }
        }))
        .oneshot(ToolCall::new("search"))
        .await
}

/// X7: the limit itself passes, one byte more does not.
#[tokio::test]
async fn an_answer_of_the_largest_size_passes_and_a_larger_one_does_not() {
    let answer = json!({ "a": "\n" }); // {"a":"\n"}
    assert_eq!(checked(10, answer.clone()).await.unwrap(), answer);
    let error = checked(9, answer).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Reported);
    assert_eq!(error.execution(), Execution::Completed);
    assert_eq!(error.tool(), Some("search"));
    assert!(!error.is_retryable());
    // It would run twice.
    expect!["Tool 'search' ran; its answer is unusable: the answer has more than 9 bytes. Do not repeat it if it changes something."].assert_eq(&error.model_message());
}

/// X7: a bad answer is never retried, not even of a call that may run twice.
#[tokio::test(start_paused = true)]
async fn a_bad_answer_is_not_retried_on_either_side_of_the_retry_layer() {
    let refuse = check_fn(|_, _: &u32| Err(AnyError::from("no use")));
    let calls = std::sync::Arc::new(std::sync::atomic::AtomicU32::new(0));
    let count = calls.clone();
    let tool = service_fn(move |_: ToolCall| {
        let n = 1 + count.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        async move { Ok::<_, AnyError>(n) }
    });
    let call = ToolCall::new("search").with_replay_safety(ReplaySafety::Safe);
    let above = ServiceBuilder::new()
        .layer(CheckLayer::new(refuse))
        .layer(RetryLayer::default())
        .service(tool.clone());
    let below = ServiceBuilder::new()
        .layer(RetryLayer::default())
        .layer(CheckLayer::new(refuse))
        .service(tool);
    for error in [
        above.oneshot(call.clone()).await.unwrap_err(),
        below.oneshot(call).await.unwrap_err(),
    ] {
        assert_eq!(error.message(), "no use");
        assert_eq!(error.kind(), ErrorKind::Reported);
    }
    assert_eq!(calls.load(std::sync::atomic::Ordering::SeqCst), 2);
}

#[tokio::test]
async fn the_reason_is_redacted() {
    let layer = CheckLayer::new(check_fn(|_, answer: &&str| {
        Err(AnyError::from(format!("unexpected: {answer}")))
    }));
    let tools = ServiceBuilder::new()
        .layer(layer)
        .service(service_fn(|_: ToolCall| async {
            Ok::<_, AnyError>("api_key=s3cr3t-canary")
        }));
    let error = tools.oneshot(ToolCall::new("t")).await.unwrap_err();
    assert_eq!(error.message(), "unexpected: api_key=[REDACTED]");
}

/// Those above learn the size of what passed.
#[tokio::test(start_paused = true)]
async fn the_size_of_an_answer_that_passes_is_told_to_observers() {
    let tools = ServiceBuilder::new()
        .layer(ToolResultLayer::new())
        .layer(CheckLayer::max_bytes(100))
        .service(service_fn(|_: ToolCall| async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            Ok::<_, AnyError>("12345")
        }));
    let Ok(result) = tools.oneshot(ToolCall::new("t")).await;
    assert_eq!(result.metadata().output_bytes(), Some(7));
}

/// S4: an answer that nobody could parse is refused, not measured to the bitter end.
#[tokio::test]
async fn an_answer_of_ten_thousand_levels_does_not_pass() {
    struct Deep(Option<Box<Deep>>);
    impl serde::Serialize for Deep {
        fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
            [self.0.as_ref()].serialize(s)
        }
    }
    let answer = std::sync::Arc::new(std::sync::Mutex::new(Some({
        let mut deep = Deep(None);
        for _ in 0..10_000 {
            deep = Deep(Some(Box::new(deep)));
        }
        deep
    })));
    // Given on by hand, because its drop is recursive.
    struct Kept(std::sync::Arc<std::sync::Mutex<Option<Deep>>>);
    impl serde::Serialize for Kept {
        fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
            self.0.lock().unwrap().serialize(s)
        }
    }
    let kept = answer.clone();
    let tools = ServiceBuilder::new()
        .layer(CheckLayer::max_bytes(u64::MAX))
        .service(service_fn(move |_: ToolCall| {
            let kept = Kept(kept.clone());
            async { Ok::<_, AnyError>(kept) }
        }));
    let error = tools
        .oneshot(ToolCall::new("t"))
        .await
        .map(|_| ())
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Reported);
    let mut rest = answer.lock().unwrap().take();
    while let Some(Deep(next)) = rest {
        rest = next.map(|next| *next);
    }
}

/// A check of answers of any type needs no annotation.
#[tokio::test]
async fn a_check_for_every_type_of_answer_is_inferred() {
    #[derive(Clone)]
    struct Nothing;
    impl<Res> Check<Res> for Nothing {
        fn check(&self, call: &CallInfo, _: &Res) -> Result<(), AnyError> {
            Err(format!("nothing of {} passes", call.tool()).into())
        }
    }
    let tools = ServiceBuilder::new()
        .layer(CheckLayer::new(Nothing))
        .service(service_fn(|_: ToolCall| async { Ok::<_, AnyError>(1) }));
    let error = tools.oneshot(ToolCall::new("t")).await.unwrap_err();
    assert_eq!(error.message(), "nothing of t passes");
}
