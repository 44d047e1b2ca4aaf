//! V1: a type proves nothing either, where a tool may have met it in the middle of its work.

use std::{io, time::Duration};

use tonic::Status;
use tonic_types::{ErrorDetails, StatusExt as _};
use tower::{Service, ServiceBuilder, ServiceExt, buffer::BufferLayer, load_shed, service_fn};
use tower_toolcall::{
    BoxError, ErrorKind, Evidence, Execution, ServiceBuilderExt, ToolCall, ToolError,
    normalize::NormalizeLayer, retry::RetryLayer,
};

use super::kit::{Tool, runs};

/// V1: a card is charged, and then a client of the tool's is shed.
#[tokio::test(start_paused = true)]
async fn a_tool_that_hands_on_overloaded_runs_once() {
    let (runs, error) = runs(|| BoxError::from(load_shed::error::Overloaded::new())).await;
    assert_eq!((runs, error.kind()), (1, ErrorKind::Overloaded));
    assert_eq!(error.execution(), Execution::Unknown);
    assert!(!error.is_own_refusal());
}

/// V1: the tool's own verdict on the same error stays what it is, below a `NormalizeLayer` too.
#[tokio::test(start_paused = true)]
async fn overloaded_that_a_tool_has_converted_is_no_refusal() {
    let tool = Tool::new(|| {
        let ours = ToolError::from_box(load_shed::error::Overloaded::new().into());
        BoxError::from(ours)
    });
    let stack = NormalizeLayer::new();
    let mut stack = tower::Layer::layer(&stack, tool);
    let error = stack.call(ToolCall::new("pay")).await.unwrap_err();
    assert_eq!(error.evidence(), Evidence::Inferred);
}

/// V1: directly above tower's load shedder it is a refusal: not sent, not repeated, counted by
/// nobody.
#[tokio::test]
async fn overloaded_of_a_layer_below_normalize_is_a_refusal() {
    let busy = service_fn(|_: ToolCall| std::future::pending::<Result<(), BoxError>>());
    let mut stack = ServiceBuilder::new()
        .tool_normalize()
        .load_shed()
        .concurrency_limit(1)
        .service(busy);
    let running = stack.ready().await.unwrap().call(ToolCall::new("pay"));
    let error = stack.ready().await.unwrap().call(ToolCall::new("pay"));
    let error = error.await.unwrap_err();
    drop(running);
    assert!(error.is_own_refusal());
    assert_eq!(error.kind(), ErrorKind::Overloaded);
    assert_eq!(error.execution(), Execution::NotStarted);
}

/// V1: the same behind tower's `Buffer`, whose other errors prove nothing.
#[tokio::test]
async fn overloaded_behind_a_buffer_is_a_refusal() {
    let error = |failed: fn() -> BoxError| async move {
        let tool = Unready(failed);
        let mut stack = ServiceBuilder::new()
            .tool_normalize()
            .layer(BufferLayer::new(1))
            .service(tool);
        stack
            .ready()
            .await
            .unwrap()
            .call(ToolCall::new("pay"))
            .await
            .unwrap_err()
    };
    let shed = error(|| load_shed::error::Overloaded::new().into()).await;
    assert!(shed.is_own_refusal(), "{shed:?}");
    let refused = error(|| io::Error::from(io::ErrorKind::ConnectionRefused).into()).await;
    assert_eq!(refused.evidence(), Evidence::Inferred);
}

/// A service that fails when it is asked whether it is ready.
struct Unready(fn() -> BoxError);

impl Service<ToolCall> for Unready {
    type Response = ();
    type Error = BoxError;
    type Future = std::future::Ready<Result<(), BoxError>>;

    fn poll_ready(
        &mut self,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Result<(), BoxError>> {
        std::task::Poll::Ready(Err((self.0)()))
    }

    fn call(&mut self, _: ToolCall) -> Self::Future {
        unreachable!("not ready")
    }
}

/// V1: a refusal that an `io::Error` carries came from a stream of the tool's, not from the call.
#[tokio::test(start_paused = true)]
async fn our_own_refusal_inside_an_io_error_proves_nothing() {
    let (runs, error) =
        runs(|| io::Error::other(ToolError::refusal(ErrorKind::Overloaded, ""))).await;
    assert_eq!((runs, error.evidence()), (1, Evidence::Inferred));
    assert_eq!(error.execution(), Execution::Unknown);
}

/// V1: what a tool says itself is its word.
#[tokio::test(start_paused = true)]
async fn a_tool_that_says_that_it_did_not_run_is_repeated() {
    let tool = Tool::new(|| ToolError::new(ErrorKind::RateLimited, "quota used up"));
    let stack = ServiceBuilder::new()
        .layer(RetryLayer::default())
        .service(tool.clone());
    let error = stack.oneshot(ToolCall::new("pay")).await.unwrap_err();
    assert_eq!(error.evidence(), Evidence::Reported);
    assert_eq!(tool.runs.load(std::sync::atomic::Ordering::SeqCst), 3);
}

/// V1: neither a delay nor an `ErrorInfo` of a stranger's proves that a gRPC method did not run.
#[tokio::test(start_paused = true)]
async fn a_status_with_a_delay_runs_once() {
    let later = || {
        let details = ErrorDetails::with_retry_info(Some(Duration::from_millis(700)));
        Status::with_error_details(tonic::Code::Unavailable, "busy", details)
    };
    let (count, error) = runs(later).await;
    assert_eq!((count, error.execution()), (1, Execution::Unknown));
    assert_eq!(error.retry_after(), Some(Duration::from_millis(700)));

    let sent = || Status::from(ToolError::refusal(ErrorKind::Overloaded, "busy"));
    let arrived = || {
        let sent = sent();
        Status::with_details(sent.code(), "busy", sent.details().to_vec().into())
    };
    let (count, error) = runs(arrived).await;
    assert_eq!((count, error.execution()), (1, Execution::Unknown));
    assert_eq!(error.kind(), ErrorKind::Overloaded);
}

/// V10, V17: the end of a task or a stream of the tool's own is no cancellation of the call.
#[tokio::test]
async fn an_aborted_task_of_the_tool_is_a_failure() {
    let task = tokio::spawn(std::future::pending::<()>());
    task.abort();
    let error = ToolError::from_box(task.await.unwrap_err().into());
    assert_eq!(error.kind(), ErrorKind::Upstream);
    assert_eq!(
        error.kind().count(),
        tower_toolcall::outcome::Count::Failure
    );
}
