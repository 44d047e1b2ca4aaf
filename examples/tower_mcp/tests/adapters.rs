//! What the two adapters hold.

use std::{
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::Duration,
};

use example_tower_mcp::{ClientLeaf, ToolLayers, from_tower_mcp, is_error};
use serde_json::{Value, json};
use tower::{ServiceBuilder, ServiceExt as _};
use tower_mcp::{
    BoxError, CallToolResult, Error, JsonRpcError, RequestContext, Tool, ToolBuilder,
    client::{McpClient, StdioClientTransport},
    extract::{Context, RawArgs, State},
    protocol::RequestId,
};
use tower_toolcall::{
    ErrorKind, Evidence, Execution, ReplaySafety, ServiceBuilderExt as _, ToolCall, ToolError,
    circuit_breaker::{CircuitBreakerLayer, Trip},
    retry::RetryPolicy,
};

/// How often a handler was started, and dropped before its end.
#[derive(Default)]
struct Runs {
    started: AtomicU32,
    dropped: AtomicU32,
}

impl Runs {
    fn counts(&self) -> (u32, u32) {
        (self.started.load(Relaxed), self.dropped.load(Relaxed))
    }
}

/// A handler that never ends.
async fn hang(State(runs): State<Arc<Runs>>) -> Result<CallToolResult, Error> {
    struct Running(Arc<Runs>);
    impl Drop for Running {
        fn drop(&mut self) {
            self.0.dropped.fetch_add(1, Relaxed);
        }
    }
    runs.started.fetch_add(1, Relaxed);
    let _running = Running(runs);
    pending().await
}

/// A handler that fails twice, then answers with what it was given.
async fn third_time(
    State(runs): State<Arc<Runs>>,
    context: Context,
    RawArgs(arguments): RawArgs,
) -> Result<CallToolResult, Error> {
    match runs.started.fetch_add(1, Relaxed) {
        0 | 1 => Err(Error::tool("connection reset by peer")),
        _ => Ok(CallToolResult::text(format!(
            "{arguments} of {:?}",
            context.request_id()
        ))),
    }
}

fn context() -> RequestContext {
    RequestContext::new(RequestId::Number(7))
}

async fn call(tool: &Tool, arguments: Value) -> CallToolResult {
    tool.call_with_context(context(), arguments).await
}

#[tokio::test(start_paused = true)]
async fn a_timeout_drops_the_handler_and_has_our_text_for_the_model() {
    let runs = Arc::new(Runs::default());
    let layers = ServiceBuilder::new().tool_timeout(Duration::from_secs(1));
    let tool = ToolBuilder::new("dig")
        .extractor_handler(runs.clone(), hang)
        .layer(ToolLayers::new("dig", layers))
        .build();
    let answer = call(&tool, json!({})).await;
    assert!(answer.is_error);
    let text = answer.all_text();
    assert!(
        text.starts_with("Tool 'dig' timed out and may still be running."),
        "{text}"
    );
    assert_eq!(runs.counts(), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_its_client_cancels_is_dropped() {
    let runs = Arc::new(Runs::default());
    let tool = ToolBuilder::new("dig")
        .extractor_handler(runs.clone(), hang)
        .layer(ToolLayers::new("dig", ServiceBuilder::new()))
        .build();
    let context = context();
    let token = context.cancellation_token();
    let answer = tokio::spawn(tool.call_with_context(context, json!({})));
    tokio::task::yield_now().await;
    assert_eq!(runs.counts(), (1, 0));
    token.cancel();
    let answer = tokio::time::timeout(Duration::from_secs(1), answer).await;
    assert!(answer.is_ok_and(|answer| answer.is_ok_and(|answer| answer.is_error)));
    assert_eq!(runs.counts(), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn each_attempt_has_the_arguments_and_the_context() {
    let runs = Arc::new(Runs::default());
    let policy = RetryPolicy::new().with_replay_safety(|_| ReplaySafety::Safe);
    let tool = ToolBuilder::new("third_time")
        .extractor_handler(runs.clone(), third_time)
        .layer(ToolLayers::new(
            "third_time",
            ServiceBuilder::new().tool_retry(policy),
        ))
        .build();
    let answer = call(&tool, json!({ "a": 1 })).await;
    assert_eq!(answer.all_text(), r#"{"a":1} of Number(7)"#);
    assert_eq!(runs.counts().0, 3);
}

#[tokio::test(start_paused = true)]
async fn a_guard_of_tower_mcp_refuses_below_the_layers() {
    let runs = Arc::new(Runs::default());
    let tool = ToolBuilder::new("dig")
        .extractor_handler(runs.clone(), hang)
        .guard(|_| Err("not today".to_owned()))
        .layer(ToolLayers::new("dig", ServiceBuilder::new()))
        .build();
    let answer = call(&tool, json!({})).await;
    assert!(answer.is_error && answer.all_text().contains("not today"));
    assert_eq!(runs.counts(), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_fails_is_repeated_only_if_it_may_run_twice() {
    let runs = Arc::new(Runs::default());
    let layers = ServiceBuilder::new().tool_retry(RetryPolicy::new());
    let tool = ToolBuilder::new("third_time")
        .extractor_handler(runs.clone(), third_time)
        .layer(ToolLayers::new("third_time", layers))
        .build();
    assert!(call(&tool, json!({})).await.is_error);
    assert_eq!(runs.counts().0, 1);
}

/// Neither are answers in the tool's own words changed, nor do they open a breaker.
#[tokio::test(start_paused = true)]
async fn an_answer_with_is_error_stays_as_it_is() -> Result<(), BoxError> {
    let breaker = CircuitBreakerLayer::builder()
        .with_trip(Trip::consecutive_failures(1))
        .classify_fn(is_error)
        .build()?;
    let handle = breaker.handle();
    let mut said = CallToolResult::error("no such city");
    said.structured_content = Some(json!({ "near": ["Oslo"] }));
    let sent = said.clone();
    let tool = ToolBuilder::new("weather")
        .no_params_handler(move || std::future::ready(Ok(said.clone())))
        .layer(ToolLayers::new(
            "weather",
            ServiceBuilder::new().layer(breaker),
        ))
        .build();
    for _ in 0..3 {
        let answer = call(&tool, json!({})).await;
        assert_eq!(serde_json::to_value(answer)?, serde_json::to_value(&sent)?);
    }
    assert!(!handle.is_refusing(&ToolCall::new("weather")));
    Ok(())
}

/// The example's server, as a child process.
async fn leaf() -> Result<ClientLeaf, BoxError> {
    let program = env!("CARGO_BIN_EXE_example-tower-mcp");
    let transport = StdioClientTransport::spawn(program, &["serve"]).await?;
    let client = McpClient::connect(transport).await?;
    client.initialize("test", "1.0.0").await?;
    Ok(ClientLeaf::new(client))
}

#[tokio::test]
async fn a_timeout_tells_the_server() -> Result<(), BoxError> {
    let leaf = leaf().await?;
    let slow = ServiceBuilder::new().tool_timeout(Duration::from_millis(100));
    let error = slow
        .service(leaf.clone())
        .oneshot(ToolCall::new("dig"))
        .await;
    assert_eq!(
        error.map_err(|error| error.kind()).err(),
        Some(ErrorKind::Timeout)
    );
    for _ in 0..100 {
        let answer = leaf.clone().oneshot(ToolCall::new("how_often")).await?;
        if answer.all_text() == "`dig` was started 1 times and told to stop 1 times" {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Err("the server was not told".into())
}

#[tokio::test]
async fn a_server_that_dies_fails_its_call_at_once() -> Result<(), BoxError> {
    let leaf = leaf().await?;
    for tool in ["die", "weather"] {
        let answer = tokio::time::timeout(
            Duration::from_secs(5),
            leaf.clone().oneshot(ToolCall::new(tool)),
        );
        let Err(error) = answer.await? else {
            panic!("`{tool}` has no answer");
        };
        assert_eq!(error.kind(), ErrorKind::ConnectionFailed);
        assert_eq!(error.execution(), Execution::Unknown);
    }
    Ok(())
}

#[tokio::test]
async fn a_tool_that_does_not_exist_is_not_found() -> Result<(), BoxError> {
    let answer = leaf().await?.oneshot(ToolCall::new("wether")).await;
    assert_eq!(
        answer.map_err(|error| error.kind()).err(),
        Some(ErrorKind::NotFound)
    );
    Ok(())
}

/// A call that was made anew between has lost what the handler needs.
#[tokio::test(start_paused = true)]
async fn a_layer_between_that_makes_a_new_call_is_an_error_and_no_panic() {
    let runs = Arc::new(Runs::default());
    let layers = ServiceBuilder::new().map_request(|call: ToolCall| ToolCall::new(call.tool()));
    let tool = ToolBuilder::new("dig")
        .extractor_handler(runs.clone(), hang)
        .layer(ToolLayers::new("dig", layers))
        .build();
    assert!(call(&tool, json!({})).await.is_error);
    assert_eq!(runs.counts(), (0, 0));
}

/// A server passes on what its tool met in its work, whatever the code.
#[test]
fn words_of_a_server_do_not_prove_that_its_tool_did_not_run() {
    for code in [
        -32700, -32600, -32601, -32602, -32603, -32007, -32010, -32020, -32042, 429,
    ] {
        let error = JsonRpcError {
            code,
            message: "Unknown tool".to_owned(),
            data: None,
        };
        let error = from_tower_mcp(Error::JsonRpc(error));
        let proves = (error.execution(), error.evidence());
        assert_eq!(proves, (Execution::Unknown, Evidence::Inferred), "{code}");
    }
    // The client's own wire.
    let error = from_tower_mcp(Error::Transport("closed".to_owned()));
    assert_eq!(
        (error.execution(), error.evidence()),
        (Execution::Unknown, Evidence::Reported)
    );
}

#[test]
fn errors_have_their_kinds() {
    let kind = |error: Error| ToolError::kind(&from_tower_mcp(error));
    assert_eq!(
        kind(Error::invalid_params("no city")),
        ErrorKind::InvalidInput
    );
    assert_eq!(kind(Error::internal("out of disk")), ErrorKind::Upstream);
    assert_eq!(kind(Error::SessionExpired), ErrorKind::ConnectionFailed);
    assert_eq!(kind(Error::tool("no")), ErrorKind::Failed);
}
