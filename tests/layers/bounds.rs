//! Bad input through a stack: a clear error or bounded output, never a panic.

use serde_json::{Map, Value};
use tower::{ServiceBuilder, ServiceExt, service_fn};
use tower_toolcall::{
    BoxError, ErrorKind, ToolCall, catch_panic::CatchPanicLayer, deadline::DeadlineLayer,
    timeout::TimeoutLayer, trace::TraceLayer,
};

async fn run(call: ToolCall) -> Result<usize, tower_toolcall::ToolError> {
    let tool = service_fn(|call: ToolCall| async move {
        call.check()?;
        Ok::<_, BoxError>(call.arguments().len())
    });
    ServiceBuilder::new()
        .layer(TraceLayer::new())
        .layer(DeadlineLayer::inherited())
        .layer(TimeoutLayer::default())
        .layer(CatchPanicLayer::new())
        .service(tool)
        .oneshot(call)
        .await
}

#[tokio::test]
async fn a_tool_name_of_a_megabyte_is_a_short_error() {
    let error = run(ToolCall::new("x".repeat(1 << 20))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    let shown = format!(
        "{error} {error:?} {} {}",
        error.user_message(),
        error.model_message()
    );
    assert!(shown.len() < 2000, "{}", shown.len());
}

#[tokio::test]
async fn ten_thousand_levels_of_arguments_are_an_error() {
    let mut value = Value::Null;
    for _ in 0..10_000 {
        value = Value::Array(vec![value]);
    }
    let call = ToolCall::new("t").with_arguments(Map::from_iter([("a".into(), value)]));
    assert_eq!(run(call).await.unwrap_err().kind(), ErrorKind::InvalidInput);
}
