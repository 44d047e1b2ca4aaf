//! What becomes of a call as a result.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use expect_test::expect;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use tower::{Service, ServiceBuilder, ServiceExt, service_fn};
use tower_layer::Layer;
use tower_toolcall::{
    BoxError, Classify, ErrorKind, Outcome, ReplaySafety, ToolCall, ToolError, ToolResult,
    catch_panic::CatchPanicLayer,
    deadline::DeadlineLayer,
    outcome::{ByError, classify_fn},
    redact::Rules,
    result::{Never, Status, ToolResultLayer},
    retry::{RetryLayer, RetryPolicy},
    sanitize::SanitizeLayer,
    timeout::TimeoutLayer,
};

/// The result layer, and above it what takes its results apart again: so it fits the contract.
#[derive(Clone)]
pub(crate) struct TakenApart;

#[derive(Clone)]
pub(crate) struct Open<S>(S);

impl<S> Layer<S> for TakenApart {
    type Service = Open<<ToolResultLayer as Layer<S>>::Service>;

    fn layer(&self, inner: S) -> Self::Service {
        Open(ToolResultLayer::new().layer(inner))
    }
}

impl<S, T> Service<ToolCall> for Open<S>
where
    S: Service<ToolCall, Response = ToolResult<T>, Error = Never, Future: Send + 'static>,
{
    type Response = T;
    type Error = ToolError;
    type Future = Pin<Box<dyn Future<Output = Result<T, ToolError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ToolError>> {
        self.0.poll_ready(cx).map_err(|never| match never {})
    }

    fn call(&mut self, call: ToolCall) -> Self::Future {
        let response = self.0.call(call);
        Box::pin(async move {
            let Ok(result) = response.await;
            result.into_result()
        })
    }
}

fn call() -> ToolCall {
    ToolCall::new("search")
        .with_server("docs")
        .with_id("c1")
        .with_trace_id("t1")
}

/// The result of a call through the usual stack.
async fn result_of<F, Fut, T>(call: ToolCall, tool: F) -> ToolResult<T>
where
    F: Fn(ToolCall) -> Fut + Clone,
    Fut: Future<Output = Result<T, BoxError>>,
{
    let tools = ServiceBuilder::new()
        .layer(ToolResultLayer::new())
        .layer(DeadlineLayer::inherited())
        .layer(RetryLayer::default())
        .layer(TimeoutLayer::new(Duration::from_secs(10)))
        .layer(CatchPanicLayer::new())
        .service(service_fn(tool));
    let Ok(result) = tools.oneshot(call).await;
    result
}

/// E3: success.
#[tokio::test(start_paused = true)]
async fn a_success_has_data_and_no_text() {
    let result = result_of(call(), |_| async {
        sleep(Duration::from_secs(9)).await;
        Ok("done")
    })
    .await;
    assert!(result.is_success());
    assert_eq!(result.status(), Status::Success);
    assert_eq!((result.tool(), result.server()), ("search", Some("docs")));
    assert_eq!(result.call_id(), Some("c1"));
    assert_eq!(result.call().trace_id(), Some("t1"));
    assert_eq!(result.data(), Some(&"done"));
    assert_eq!(result.duration(), Duration::from_secs(9));
    assert_eq!(result.attempts(), 1);
    assert_eq!(result.metadata().max_attempts(), Some(3));
    assert_eq!(result.metadata().timeout(), Some(Duration::from_secs(10)));
    assert!(result.metadata().is_slow());
    // E4: empty after a success.
    assert_eq!(
        (result.user_message(), result.model_message()),
        Default::default()
    );
    assert_eq!(result.into_result().unwrap(), "done");
}

/// E3, T7: each way to end has its status.
#[tokio::test(start_paused = true)]
async fn each_way_to_end_has_its_status() {
    let timeout = result_of(call(), |_| async {
        sleep(Duration::from_secs(11)).await;
        Ok(())
    })
    .await;
    assert_eq!(timeout.status(), Status::Timeout);
    assert_eq!(timeout.error().unwrap().kind(), ErrorKind::Timeout);
    assert!(timeout.ran_out_of_time());

    // T5: a call that was not started has its own result, and took no time.
    let spent = call().with_deadline(Instant::now());
    let skipped = result_of(spent, |_| async { Ok(()) }).await;
    assert_eq!(skipped.status(), Status::Skipped);
    assert_eq!(skipped.duration(), Duration::ZERO);
    assert!(skipped.ran_out_of_time());

    let cancelled = result_of(call(), |_| async {
        Err(ToolError::new(ErrorKind::Cancelled, "given up").into())
    });
    let cancelled: ToolResult<()> = cancelled.await;
    assert_eq!(cancelled.status(), Status::Cancelled);

    let failed: ToolResult<()> = result_of(call(), |_| async { Err("boom".into()) }).await;
    assert_eq!(failed.status(), Status::Error);
    assert!(!failed.ran_out_of_time());
    assert!(!failed.user_message().is_empty());
    assert_eq!(failed.into_result().unwrap_err().kind(), ErrorKind::Failed);
}

/// E3: a panic is a result, because it is caught innermost.
#[tokio::test(start_paused = true)]
async fn a_panic_is_a_result() {
    let result: ToolResult<()> = result_of(call(), |_| async { panic!("boom") }).await;
    assert_eq!(result.error().unwrap().kind(), ErrorKind::Panicked);
}

/// E3: attempts, and the time between them.
#[tokio::test(start_paused = true)]
async fn a_result_tells_of_attempts_and_waits() {
    let safe = call().with_replay_safety(ReplaySafety::Safe);
    let result: ToolResult<()> = result_of(safe, |_| async { Err("503".into()) }).await;
    assert_eq!(result.attempts(), 3);
    let waited = result.metadata().waited();
    assert!(waited >= Duration::from_secs(3), "{waited:?}");
    let working = result.duration() - waited;
    assert!(working < Duration::from_millis(5), "{working:?}");
    assert_eq!(result.metadata().refused_retries(), 1);
}

/// E6: the tool's own error is no success, and its words are there all the same.
#[tokio::test]
async fn an_error_in_the_tools_own_words_has_data_and_error() {
    let classifier = classify_fn(|r: Result<&&str, &ToolError>| match r {
        Ok(text) if text.starts_with("error") => Outcome::reported(),
        other => ByError.classify(other),
    });
    let tools = ServiceBuilder::new()
        .layer(ToolResultLayer::new().with_classifier(classifier))
        .service(service_fn(|_: ToolCall| async {
            Ok::<_, BoxError>("error: no table for 40")
        }));
    let Ok(result) = tools.oneshot(call()).await;
    assert!(!result.is_success());
    assert_eq!(result.status(), Status::Error);
    assert_eq!(result.error().unwrap().kind(), ErrorKind::Reported);
    assert_eq!(result.error().unwrap().call_id(), Some("c1"));
    assert_eq!(result.into_data(), Some("error: no table for 40"));
}

/// S8: what is serialised without being asked for the data is redacted, the data too.
#[tokio::test]
async fn a_serialised_result_is_redacted() {
    let mut result = result_of(call(), |_| async {
        Ok(json!({ "user": "ada", "password": "s3cr3t-canary", "text": "{\"token\":\"s3cr3t-canary\"}" }))
    })
    .await;
    result.metadata_mut().insert("api_key", "s3cr3t-canary");
    let written = serde_json::to_value(&result).unwrap();
    assert_eq!(written["data"]["user"], "ada");
    assert_eq!(written["data"]["password"], "[REDACTED]");
    assert_eq!(written["metadata"]["extra"]["api_key"], "[REDACTED]");
    let shown = format!("{written} {result:?}");
    assert!(!shown.contains("s3cr3t-canary"), "{shown}");
}

/// The members of a written result (E3).
#[tokio::test(start_paused = true)]
async fn a_result_is_written_with_the_documented_members() {
    let result: ToolResult<()> = result_of(call(), |_| async {
        sleep(Duration::from_secs(11)).await;
        Ok(())
    })
    .await;
    expect![[r#"
        {
          "attempts": 1,
          "call_id": "c1",
          "duration_ms": 10000.0,
          "error": {
            "attempts": 1,
            "call_id": "c1",
            "code": "TOOL_TIMEOUT",
            "configured_timeout_ms": 10000,
            "details": {
              "retry_refused": "not_marked_safe: if the tool may run twice, declare it by `RetryPolicy::with_replay_safety` or `ToolCall::with_replay_safety`, or trust the server's annotations"
            },
            "elapsed_ms": 10000,
            "execution": "unknown",
            "kind": "timeout",
            "message": "Tool invocation timed out after 10000ms",
            "model_message": "Tool 'search' timed out and may still be running. Ask for less, or continue without it; repeat it only if it may run twice.",
            "recoverable": true,
            "retryable": true,
            "server": "docs",
            "timeout_limit": "timeout",
            "timeout_ms": 10000,
            "tool": "search",
            "user_message": "The tool 'search' took too long to answer (10000 ms)."
          },
          "metadata": {
            "configured_timeout_ms": 10000,
            "max_attempts": 3,
            "refused_retries": 1,
            "slow": false,
            "timeout_ms": 10000,
            "trace_id": "t1"
          },
          "server": "docs",
          "status": "timeout",
          "success": false,
          "tool": "search"
        }"#]].assert_eq(&format!("{:#}", json!(result)));
}

/// What is sent over a wire arrives.
#[tokio::test(start_paused = true)]
async fn an_exposed_result_survives_the_wire() {
    let mut success = result_of(call(), |_| async {
        Ok(json!({ "token": "real", "n": null }))
    })
    .await;
    success.metadata_mut().insert("room", 7);
    let failure: ToolResult<Value> = result_of(call(), |_| async {
        Err(ToolError::new(ErrorKind::RateLimited, "slow down")
            .with_code("MY_CODE")
            .with_user_message("Later.")
            .with_retry_after(Duration::from_millis(86_400_500))
            .with_detail("limit", 10)
            .into())
    })
    .await;
    for result in [success, failure] {
        let sent = serde_json::to_value(result.exposed()).unwrap();
        let received: ToolResult<Value> = serde_json::from_value(sent.clone()).unwrap();
        assert_eq!(received.data(), result.data());
        assert_eq!(serde_json::to_value(received.exposed()).unwrap(), sent);
        let retry_after = |r: &ToolResult<Value>| r.error().map(|e| e.retry_after());
        assert_eq!(retry_after(&received), retry_after(&result));
    }
}

/// Rule 8: what contradicts itself is refused, with the reason.
#[test]
fn a_written_result_that_contradicts_itself_is_refused() {
    let good = json!({ "success": true, "status": "success", "tool": "t", "data": null, "duration_ms": 1.5, "attempts": 1 });
    assert!(serde_json::from_value::<ToolResult<()>>(good.clone()).is_ok());
    for (member, value, why) in [
        ("status", json!("timeout"), "contradicts"),
        ("duration_ms", json!(-1), "not a duration"),
        ("duration_ms", json!(1e300), "not a duration"),
        ("status", json!("lost"), "unknown variant"),
    ] {
        let mut bad = good.clone();
        bad[member] = value;
        let error = serde_json::from_value::<ToolResult<()>>(bad).unwrap_err();
        assert!(error.to_string().contains(why), "{error}");
    }
    let mut bad = good;
    bad.as_object_mut().unwrap().remove("data");
    let error = serde_json::from_value::<ToolResult<()>>(bad).unwrap_err();
    assert!(
        error.to_string().contains("missing field `data`"),
        "{error}"
    );
}

/// S4: bounded, however deep and wide and long an answer is.
#[tokio::test]
async fn a_monstrous_answer_is_written_within_bounds() {
    let mut deep = json!(1);
    for _ in 0..10_000 {
        deep = Value::Array(vec![deep]);
    }
    let wide = Value::Array(vec![json!(1); 100_000]);
    let long = json!("x".repeat(1 << 20));
    for monster in [deep, wide, long] {
        // Given out once: serde_json's own clone and drop are recursive.
        let monster = std::sync::Arc::new(std::sync::Mutex::new(Some(monster)));
        let result = result_of(call(), move |_| {
            let answer = monster.lock().unwrap().take();
            async { Ok(answer.unwrap()) }
        })
        .await;
        let written = serde_json::to_string(&result).unwrap();
        assert!(written.len() < 10_000, "{} bytes", written.len());
        assert!(format!("{result:?}").len() < 1000);
        dismantle(result.into_data().unwrap());
    }
}

fn dismantle(value: Value) {
    let mut rest = vec![value];
    while let Some(value) = rest.pop() {
        if let Value::Array(items) = value {
            rest.extend(items);
        }
    }
}

/// What the classifier knows of an answer is in the error.
#[tokio::test]
async fn an_answer_that_is_a_rate_limit_tells_when_to_come_back() {
    let classifier = classify_fn(|_: Result<&u8, &ToolError>| {
        Outcome::rate_limited(Some(Duration::from_secs(7)))
    });
    let tools = ServiceBuilder::new()
        .layer(ToolResultLayer::new().with_classifier(classifier))
        .service(service_fn(|_: ToolCall| async { Ok::<_, BoxError>(1_u8) }));
    let Ok(result) = tools.oneshot(call()).await;
    let error = result.error().unwrap();
    assert_eq!(error.kind(), ErrorKind::RateLimited);
    assert_eq!(error.retry_after(), Some(Duration::from_secs(7)));
    assert!(error.is_retryable());
}

/// T5: no attempt was made, and it took no time.
#[tokio::test]
async fn a_skipped_call_has_made_no_attempt_in_no_time() {
    let spent = call().with_deadline(Instant::now());
    let skipped = result_of(spent, |_| async { Ok(()) }).await;
    assert_eq!(skipped.attempts(), 0);
    assert_eq!(skipped.duration(), Duration::ZERO);
}

/// The size of an answer that nobody gets is no size.
#[tokio::test(start_paused = true)]
async fn the_size_is_that_of_the_last_attempts_answer() {
    let safe = call().with_replay_safety(ReplaySafety::Safe);
    let result = result_of(safe, |call| async move {
        if call.attempt() == 1 {
            call.info().record(|r| r.set_output_bytes(5000));
            return Err("503".into());
        }
        Ok("ok")
    })
    .await;
    assert_eq!(result.attempts(), 2);
    assert_eq!(result.metadata().output_bytes(), None);
}

/// A clone of a call that is sent later begins with nothing.
#[tokio::test(start_paused = true)]
async fn a_later_call_with_a_clone_has_its_own_maximum() {
    let kept = call();
    let first = result_of(kept.clone(), |_| async { Ok(()) }).await;
    assert_eq!(first.metadata().max_attempts(), Some(3));
    let tools = ServiceBuilder::new()
        .layer(ToolResultLayer::new())
        .service(service_fn(|_: ToolCall| async { Ok::<_, BoxError>(()) }));
    let Ok(second) = tools.oneshot(kept).await;
    assert_eq!(second.metadata().max_attempts(), None);
}

/// A record for a log is not lost for data that is no JSON.
#[tokio::test]
async fn data_that_is_no_json_is_written_as_such() {
    let map = std::collections::BTreeMap::from([((1, 2), 3)]);
    let result = result_of(call(), move |_| {
        let map = map.clone();
        async { Ok(map) }
    })
    .await;
    assert_eq!(serde_json::to_value(&result).unwrap()["data"], "[not JSON]");
}

/// Names in a written result are short and redacted; a peer's texts and codes are redacted when
/// they are read.
#[tokio::test]
async fn names_and_a_peers_texts_are_redacted() {
    let secret = "Bearer s3cr3t-canary-0123456789";
    let named = ToolCall::new(format!("t {secret}")).with_id(secret);
    let result = result_of(named, |_| async { Ok(()) }).await;
    let written = serde_json::to_string(&result).unwrap();
    assert!(!written.contains("canary"), "{written}");

    let peer = json!({
        "success": false, "status": "error", "tool": "t", "duration_ms": 1.0, "attempts": 1,
        "error": {
            "kind": "of_a_newer_peer", "code": secret, "message": secret, "user_message": secret,
            "model_message": secret, "execution": "unknown", "retryable": false,
        },
    });
    let received: ToolResult<()> = serde_json::from_value(peer).unwrap();
    let error = received.error().unwrap();
    assert_eq!(error.kind(), ErrorKind::Failed);
    let shown = format!(
        "{error} {error:?} {} {}",
        error.user_message(),
        error.model_message()
    );
    assert!(!shown.contains("canary"), "{shown}");
}

/// R3: the error knows how often the call was sent where nobody observes the attempts.
#[tokio::test]
async fn the_attempts_are_those_that_the_error_tells_of() {
    let tool = service_fn(|_: ToolCall| async {
        Err::<(), _>(ToolError::new(ErrorKind::Upstream, "503").with_attempts(4))
    });
    let tools = ServiceBuilder::new()
        .layer(ToolResultLayer::new())
        .service(tool);
    let result = tools.oneshot(ToolCall::new("t")).await.unwrap();
    assert_eq!(result.attempts(), 4);
}

/// T5: what becomes ready after the deadline is not called.
#[tokio::test(start_paused = true)]
async fn nothing_is_called_after_its_deadline() {
    let (mock, mut handle) = tower_test::mock::pair::<ToolCall, ()>();
    handle.allow(0);
    let tools = ServiceBuilder::new()
        .layer(ToolResultLayer::new())
        .service(mock);
    let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(1);
    let mut call =
        tokio_test::task::spawn(tools.oneshot(ToolCall::new("t").with_deadline(deadline)));
    tokio_test::assert_pending!(call.poll());
    tokio::time::advance(std::time::Duration::from_secs(1)).await;
    handle.allow(1);
    let result = tokio_test::assert_ready!(call.poll()).unwrap();
    assert_eq!((result.status().name(), result.attempts()), ("skipped", 0));
}

/// S2: a result shows its data by the redaction rules that a layer below it has put on the call,
/// also where the call is repeated, and the next call without rules is shown as it is.
#[tokio::test]
async fn a_result_is_shown_by_the_rules_of_a_layer_below() {
    let rules = Rules::new().with_sensitive_key("iban").unwrap();
    let tool = service_fn(|call: ToolCall| async move {
        match call.attempt() {
            1 => Err(BoxError::from("503 Service Unavailable")),
            _ => Ok(json!({ "iban": "DE02" })),
        }
    });
    let stack = ServiceBuilder::new()
        .layer(ToolResultLayer::new())
        .layer(SanitizeLayer::new(rules))
        .layer(RetryLayer::new(RetryPolicy::new().assume_replay_safe()))
        .service(tool);
    let call = ToolCall::new("pay");
    let Ok(result) = stack.oneshot(call.clone()).await;
    let shown = serde_json::to_string(&result).unwrap();
    assert!(shown.contains(r#"{"iban":"[REDACTED]"}"#), "{shown}");

    let tool = service_fn(|_: ToolCall| async { Ok::<_, BoxError>(json!({ "iban": "DE02" })) });
    let Ok(result) = ToolResultLayer::new().layer(tool).oneshot(call).await;
    let shown = serde_json::to_string(&result).unwrap();
    assert!(shown.contains(r#"{"iban":"DE02"}"#), "{shown}");
}
