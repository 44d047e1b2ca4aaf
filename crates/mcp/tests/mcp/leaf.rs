//! Calls through the leaf to a real server in this process.

use std::{
    sync::{Arc, Mutex, atomic::Ordering::SeqCst},
    time::Duration,
};

use expect_test::expect;
use rmcp::model::{CallToolResponse, CallToolResult, ContentBlock};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};
use tower::{Layer, ServiceBuilder, ServiceExt};
use tower_toolcall::{
    Answer, Classify, ErrorKind, ModelText as _, Outcome, ReplaySafety, ToolCall, ToolError,
    check::CheckLayer,
    deadline::DeadlineLayer,
    error::TimeoutLimit,
    outcome::Count,
    result::ToolResultLayer,
    retry::{RetryLayer, RetryPolicy},
    timeout::TimeoutLayer,
    trace::TraceHooks,
};
use tower_toolcall_mcp::{
    IDEMPOTENCY_KEY_META, McpAnswer, McpClassifier, McpHooks, McpProgress, McpService,
};
use tower_toolcall_test::{Capture, Replay, Script, Step};

use crate::server::{Server, connect, connect_modern};

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

async fn run(call: ToolCall) -> Result<McpAnswer, ToolError> {
    let client = connect(Server::default(), ()).await;
    let leaf = McpService::new(client.peer().clone()).with_server("docs");
    leaf.oneshot(call).await
}

//= https://modelcontextprotocol.io/specification/2026-07-28/basic/index#requests
//# Requests MUST include a string or integer ID.
//# Unlike base JSON-RPC, the ID MUST NOT be `null`.
#[tokio::test(start_paused = true)]
async fn arguments_reach_the_server_and_the_answer_comes_back() {
    let call = ToolCall::new("echo")
        .with_json(json!({ "password": "real" }))
        .unwrap();
    let response = run(call).await.unwrap();
    assert_eq!(response.model_text(), r#"{"password":"real"}"#);
}

#[tokio::test(start_paused = true)]
async fn structured_content_comes_back() {
    let answer = run(ToolCall::new("structured")).await.unwrap();
    let result = answer.result().unwrap();
    assert_eq!(result.structured_content, Some(json!({ "sum": 3 })));
}

/// E6: `isError` is `Ok` inside the stack: the model reads the tool's own words.
#[tokio::test(start_paused = true)]
async fn a_flagged_result_is_ok_and_the_classifier_sees_the_flag() {
    let response = run(ToolCall::new("flagged")).await.unwrap();
    assert_eq!(response.model_text(), "no such city");
    let strict = McpClassifier::new().with_reported(Outcome::tool_failure());
    let outcome = strict.classify(Ok(&response));
    assert_eq!(outcome.count(), Count::ToolFailure);
    assert!(outcome.is_reported());
}

/// R8: the attempts at one call carry one key to the server, other calls carry others, and a call
/// that nobody repeats carries none.
#[tokio::test(start_paused = true)]
async fn the_idempotency_key_reaches_the_server() {
    let client = connect(Server::default(), ()).await;
    let leaf = McpService::new(client.peer().clone());
    let sent = |answer: &McpAnswer| {
        let meta: Value = serde_json::from_str(&answer.model_text()).unwrap();
        meta.get(IDEMPOTENCY_KEY_META).cloned()
    };
    let call = ToolCall::new("meta").with_replay_safety(ReplaySafety::Safe);
    let keys = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&keys);
    let policy = RetryPolicy::new().classify_fn(move |answer| {
        let mut keys = seen.lock().unwrap();
        keys.push(sent(answer.unwrap()).unwrap());
        // Each call is made twice.
        match keys.len() % 2 {
            1 => Outcome::failure(),
            _ => Outcome::success(),
        }
    });
    let stack = RetryLayer::new(policy).layer(leaf.clone());
    stack.clone().oneshot(call.clone()).await.unwrap();
    stack.oneshot(call.clone()).await.unwrap();
    let keys = keys.lock().unwrap().clone();
    assert_eq!((&keys[0], &keys[2]), (&keys[1], &keys[3]));
    assert_ne!(keys[0], keys[2]);
    assert_eq!(sent(&leaf.oneshot(call).await.unwrap()), None);
}

/// E2: protocol errors, each with its kind and the names of the call.
#[tokio::test(start_paused = true)]
async fn protocol_errors_have_their_kinds() {
    for (tool, kind) in [
        ("nope", ErrorKind::NotFound),
        ("invalid", ErrorKind::InvalidInput),
        ("broken", ErrorKind::Upstream),
    ] {
        let error = run(ToolCall::new(tool)).await.unwrap_err();
        assert_eq!(error.kind(), kind);
        assert_eq!((error.tool(), error.server()), (Some(tool), Some("docs")));
        assert!(std::error::Error::source(&error).is_some());
    }
}

/// The server's words, and that the tool may have run.
#[tokio::test(start_paused = true)]
async fn a_model_reads_the_words_of_a_server_that_failed() {
    let text = run(ToolCall::new("broken")).await.unwrap_err();
    expect!["The service behind tool 'broken' failed: MCP error -32603: the database is on fire. It may have run: repeat it only if it may run twice, or continue without it."].assert_eq(&text.model_message());
}

//= https://modelcontextprotocol.io/specification/2025-11-25/basic/lifecycle#timeouts
//# When the request has not received a success or error response within the timeout period, the
//# sender SHOULD issue a cancellation notification for that request and stop waiting for a
//# response.
//= https://modelcontextprotocol.io/specification/2026-07-28/schema#cancellednotification
//# The request SHOULD still be in-flight, but due to communication latency, it is always possible
//# that this notification MAY arrive after the request has already finished.
//= https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/cancellation#timeouts
//# When the request has not received a success or error response within the timeout period, the
//# sender SHOULD cancel the request and stop waiting for a response.
//= https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/cancellation#behavior-requirements
//# Cancellation notifications MUST only reference requests that:
//# Are believed to still be in-progress
//= https://modelcontextprotocol.io/specification/2026-07-28/server/tools#security-considerations
//# Clients SHOULD:
//# Implement timeouts for tool calls
/// T4: a dropped call tells the server, seen at the server.
#[tokio::test(start_paused = true)]
async fn a_call_that_times_out_is_cancelled_at_the_server_once() {
    let server = Server::default();
    let client = connect(server.clone(), ()).await;
    let stack = ServiceBuilder::new()
        .layer(TimeoutLayer::new(secs(1)))
        .service(McpService::new(client.peer().clone()));
    let error = stack
        .clone()
        .oneshot(ToolCall::new("hang"))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    timeout(secs(5), server.on_cancel.notified())
        .await
        .expect("the server was not told");
    // The connection goes on, and a call that is answered is not cancelled.
    stack.oneshot(ToolCall::new("echo")).await.unwrap();
    tokio::time::sleep(secs(1)).await;
    assert_eq!(server.cancelled.load(SeqCst), 1);
}

//= https://modelcontextprotocol.io/specification/2025-11-25/schema#cancellednotificationparams
//# This MUST be provided for cancelling non-task requests.
//= https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/cancellation
//# A client SHOULD send a cancellation notification to indicate that a request it previously issued
//# should be terminated.
//= https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/cancellation#transport-specific-cancellation
//# The client MUST send a `notifications/cancelled` notification referencing the request ID.
//= https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/stdio#cancellation
//# To cancel an in-flight request, the client MUST send a `notifications/cancelled` notification
//# referencing the request's ID.
/// T4: the same over the stateless revision.
#[tokio::test(start_paused = true)]
async fn a_dropped_call_is_cancelled_at_a_modern_server() {
    let server = Server::default();
    let client = connect_modern(server.clone()).await;
    let leaf = McpService::new(client.peer().clone());
    let call = timeout(secs(1), leaf.oneshot(ToolCall::new("hang")));
    assert!(call.await.is_err());
    timeout(secs(5), server.on_cancel.notified())
        .await
        .expect("the server was not told");
}

/// T4, trap 14: the caller's token reaches the server through the drop.
#[tokio::test(start_paused = true)]
async fn the_callers_token_is_told_to_the_server() {
    let server = Server::default();
    let client = connect(server.clone(), ()).await;
    let stack = ServiceBuilder::new()
        .layer(DeadlineLayer::inherited())
        .service(McpService::new(client.peer().clone()));
    let token = tokio_util::sync::CancellationToken::new();
    let call = ToolCall::new("hang").with_cancellation(token.clone());
    let response = tokio::spawn(stack.oneshot(call));
    tokio::time::sleep(secs(1)).await;
    token.cancel();
    assert_eq!(
        response.await.unwrap().unwrap_err().kind(),
        ErrorKind::Cancelled
    );
    timeout(secs(5), server.on_cancel.notified())
        .await
        .expect("the server was not told");
}

/// T4: the notification goes out although the dropping task has used up its budget.
#[tokio::test(start_paused = true)]
async fn a_drop_in_a_task_without_budget_is_told_all_the_same() {
    let server = Server::default();
    let client = connect(server.clone(), ()).await;
    let leaf = McpService::new(client.peer().clone());
    let mut call = Box::pin(leaf.oneshot(ToolCall::new("hang")));
    assert!(timeout(secs(1), call.as_mut()).await.is_err());
    tokio::spawn(async move {
        while tokio::task::coop::has_budget_remaining() {
            let _ = std::future::poll_fn(|cx| {
                let left = tokio::task::coop::poll_proceed(cx);
                left.map(|proceed| proceed.made_progress())
            })
            .await;
        }
        drop(call);
    });
    timeout(secs(5), server.on_cancel.notified())
        .await
        .expect("the server was not told");
}

/// T4: rmcp's queue has 1024 places; a cancellation that finds it full is told all the same.
#[tokio::test(start_paused = true)]
async fn a_bulk_of_dropped_calls_is_told_to_the_last() {
    let server = Server::default();
    let client = connect(server.clone(), ()).await;
    let leaf = McpService::new(client.peer().clone());
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..1500 {
        calls.spawn(leaf.clone().oneshot(ToolCall::new("hang")));
    }
    while server.started.load(SeqCst) < 1500 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    calls.shutdown().await;
    for _ in 0..500 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(server.cancelled.load(SeqCst), 1500);
}

/// Bad input: what passes the check comes back, what does not is refused: nothing hangs.
#[tokio::test(start_paused = true)]
async fn the_deepest_arguments_that_are_let_through_reach_the_server() {
    let nested = |levels: usize| {
        let mut value = json!(1);
        for _ in 1..levels {
            value = json!([value]);
        }
        ToolCall::new("echo")
            .with_json(json!({ "a": value }))
            .unwrap()
    };
    for (levels, arrives) in [
        (tower_toolcall::MAX_DEPTH, true),
        (tower_toolcall::MAX_DEPTH + 1, false),
    ] {
        let client = connect_modern(Server::default()).await;
        let leaf = McpService::new(client.peer().clone());
        let answer = timeout(secs(5), leaf.oneshot(nested(levels))).await;
        assert_eq!(answer.expect("an answer").is_ok(), arrives, "{levels}");
    }
}

/// A future that was never polled has sent nothing, so there is nothing to cancel.
#[tokio::test(start_paused = true)]
async fn a_call_that_was_never_polled_never_reaches_the_server() {
    let server = Server::default();
    let client = connect(server.clone(), ()).await;
    drop(McpService::new(client.peer().clone()).oneshot(ToolCall::new("hang")));
    tokio::time::sleep(secs(1)).await;
    assert_eq!(server.started.load(SeqCst), 0);
}

//= https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/progress#progress-flow
//# Progress tokens MUST be a string or integer value
/// T8: the server's progress notifications feed the idle timeout.
#[tokio::test(start_paused = true)]
async fn progress_keeps_a_call_alive_beyond_its_idle_time() {
    let progress = McpProgress::new();
    let client = connect(Server::default(), progress.clone()).await;
    let leaf = McpService::new(client.peer().clone()).with_progress(progress.clone());
    let stack = |total| {
        let layer = TimeoutLayer::new(total).with_idle_timeout(secs(3)).unwrap();
        ServiceBuilder::new().layer(layer).service(leaf.clone())
    };
    let start = Instant::now();
    let response = stack(secs(60))
        .oneshot(ToolCall::new("progress"))
        .await
        .unwrap();
    assert_eq!(
        (&*response.model_text(), start.elapsed()),
        ("imported", secs(10))
    );

    // The total is hard, and the entry of a call that is gone is gone.
    let error = stack(secs(5))
        .oneshot(ToolCall::new("progress"))
        .await
        .unwrap_err();
    assert_eq!(error.timeout_limit(), Some(TimeoutLimit::Timeout));
    assert_eq!(format!("{progress:?}"), "McpProgress { calls: 0 }");
}

/// T8: a server that reports nothing is ended by the idle timeout.
#[tokio::test(start_paused = true)]
async fn a_server_that_goes_quiet_is_ended() {
    let progress = McpProgress::new();
    let client = connect(Server::default(), progress.clone()).await;
    let layer = TimeoutLayer::new(secs(60))
        .with_idle_timeout(secs(3))
        .unwrap();
    let stack = ServiceBuilder::new()
        .layer(layer)
        .service(McpService::new(client.peer().clone()).with_progress(progress));
    let error = stack.oneshot(ToolCall::new("hang")).await.unwrap_err();
    assert_eq!(error.timeout_limit(), Some(TimeoutLimit::Idle));
}

//= https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/mrtr#client-requirements-basic-workflow
//# If a client receives an `InputRequiredResult` that contains the `inputRequests` field, the
//# client MUST construct the requested inputs before retrying the original request.
#[tokio::test(start_paused = true)]
async fn input_required_is_handed_up_and_never_repeated() {
    let client = connect_modern(Server::default()).await;
    let leaf = McpService::new(client.peer().clone());
    let response = leaf.oneshot(ToolCall::new("ask")).await.unwrap();
    assert!(matches!(*response, CallToolResponse::InputRequired(_)));
    assert_eq!(
        McpClassifier::new().classify(Ok(&response)),
        Outcome::neutral()
    );
    assert!(response.model_text().contains("input_required"));
}

/// A result over 16 MiB is dropped by rmcp's transport without a word: the timeout ends the call,
/// the server is told, and the connection goes on.
#[tokio::test(start_paused = true)]
async fn a_result_over_16_mebibytes_ends_with_the_timeout() {
    let client = connect(Server::default(), ()).await;
    let stack = ServiceBuilder::new()
        .layer(TimeoutLayer::new(secs(5)))
        .service(McpService::new(client.peer().clone()));
    let error = stack
        .clone()
        .oneshot(ToolCall::new("large"))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert!(stack.oneshot(ToolCall::new("echo")).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_request_over_16_mebibytes_is_refused_with_a_clear_error() {
    let call = ToolCall::new("echo")
        .with_json(json!({ "a": "x".repeat(16 << 20) }))
        .unwrap();
    let error = run(call).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.message().contains("16 MiB"));
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_sent_is_refused_before_it_is_sent() {
    let server = Server::default();
    let client = connect(server.clone(), ()).await;
    let leaf = McpService::new(client.peer().clone());
    let error = leaf
        .oneshot(ToolCall::new("x".repeat(1 << 20)))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert_eq!(server.started.load(SeqCst), 0);
}

/// R6: what could not be sent has not run; what was sent may have.
#[tokio::test(start_paused = true)]
async fn a_closed_connection_is_an_error_of_the_call() {
    let client = connect(Server::default(), ()).await;
    let leaf = McpService::new(client.peer().clone());
    let in_flight = tokio::spawn(leaf.clone().oneshot(ToolCall::new("hang")));
    tokio::time::sleep(secs(1)).await;
    client.cancel().await.unwrap();

    let lost = in_flight.await.unwrap().unwrap_err();
    assert_eq!(lost.kind(), ErrorKind::ConnectionFailed);
    assert_eq!(lost.execution(), tower_toolcall::Execution::Unknown);
    let refused = leaf.oneshot(ToolCall::new("echo")).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionFailed);
    assert_eq!(refused.execution(), tower_toolcall::Execution::NotStarted);
}

//= https://modelcontextprotocol.io/specification/2026-07-28/server/utilities/caching#cache-key
//# Clients MUST NOT serve a cached response for a request whose method or parameters differ from
//# the request that produced it.
//= https://modelcontextprotocol.io/specification/2026-07-28/server/utilities/pagination#pagination-model
//# Page size is determined by the server, and clients MUST NOT assume a fixed page size
//= https://modelcontextprotocol.io/specification/2026-07-28/server/utilities/pagination#implementation-guidelines
//# Clients SHOULD:
//# Treat a missing `nextCursor` as the end of results
//# Support both paginated and non-paginated flows
/// R6: the catalog reads every page, and believes annotations only if told to.
#[tokio::test(start_paused = true)]
async fn the_catalog_has_the_tools_of_every_page() {
    let client = connect(Server::default(), ()).await;
    let catalog = McpService::new(client.peer().clone())
        .catalog()
        .await
        .unwrap();
    assert_eq!(catalog.len(), 2);
    assert_eq!(catalog.replay_safety("echo"), ReplaySafety::Unknown);
    let catalog = catalog.trust_annotations(true);
    assert_eq!(catalog.replay_safety("echo"), ReplaySafety::Safe);
    assert_eq!(catalog.replay_safety("pay"), ReplaySafety::Unsafe);
}

/// E3, E6, X7: a result knows its size, the tool's own error, and a limit.
#[tokio::test(start_paused = true)]
async fn a_result_is_measured_and_may_be_too_large() {
    let client = connect(Server::default(), ()).await;
    let run = |tool: &str, max| {
        let tools = ServiceBuilder::new()
            .layer(ToolResultLayer::new().with_classifier(McpClassifier::new()))
            .layer(CheckLayer::max_bytes(max))
            .service(McpService::new(client.peer().clone()));
        tools.oneshot(ToolCall::new(tool))
    };
    let Ok(flagged) = run("flagged", 1000).await;
    assert_eq!(flagged.error().unwrap().kind(), ErrorKind::Reported);
    assert_eq!(flagged.model_text(), "no such city");

    let Ok(result) = run("structured", 1000).await;
    let complete = result.data().unwrap().result().unwrap();
    let size = serde_json::to_string(complete).unwrap().len() as u64;
    assert_eq!(result.metadata().output_bytes(), Some(size));

    let Ok(fits) = run("structured", size).await;
    assert!(fits.is_success());
    let Ok(refused) = run("structured", size - 1).await;
    let message = format!("the answer has more than {} bytes", size - 1);
    assert_eq!(refused.error().unwrap().message(), message);
}

/// What a trace shows of MCP results.
#[test]
fn hooks_know_texts_errors_and_other_results() {
    let shown = |result: CallToolResult| {
        let response: McpAnswer = result.into();
        match TraceHooks::answer(&McpHooks::new(), &response) {
            Some(Answer::Text(text)) => text.to_owned(),
            Some(Answer::Json(json)) => json.to_string(),
            _ => panic!("no answer"),
        }
    };
    let text = || ContentBlock::text("sunny");
    assert_eq!(shown(CallToolResult::success(vec![text()])), "sunny");
    let two = shown(CallToolResult::success(vec![text(), text()]));
    assert_eq!(two.matches("sunny").count(), 2);
    let error: McpAnswer = CallToolResult::error(vec![text()]).into();
    assert!(TraceHooks::classify(&McpHooks::new(), Ok(&error)).is_reported());
}

/// A stack whose answers are of another type.
#[tokio::test]
async fn a_captured_answer_is_read_again() {
    let content = vec![ContentBlock::text("12 degrees")];
    let answer = McpAnswer::from(CallToolResult::success(content));
    let capture = Capture::new();
    let stack = ServiceBuilder::new()
        .layer(capture.layer())
        .service(Script::new([Step::ok(answer)]));
    let call = || ToolCall::new("search").with_server("docs");
    let real = stack.oneshot(call()).await.unwrap();

    let replay = Replay::from_lines(&capture.lines()).unwrap();
    let replay = replay.and_then(|answer| async move {
        let result = serde_json::from_value::<CallToolResult>(answer);
        let answer = result.map(McpAnswer::from);
        answer.map_err(|error| ToolError::from_box(error.into()))
    });
    let again: McpAnswer = replay.oneshot(call()).await.unwrap();
    assert_eq!(again.model_text(), real.model_text());
}
