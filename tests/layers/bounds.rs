//! Bad input through a stack: a clear error or bounded output, never a panic.

use serde_json::{Map, Value};
use tower::{ServiceBuilder, ServiceExt, service_fn};
use tower_toolcall::{
    BoxError, ErrorKind, ToolCall,
    catch_panic::CatchPanicLayer,
    concurrency_limit::ConcurrencyLimitLayer,
    deadline::DeadlineLayer,
    quota::{Quota, QuotaLayer},
    timeout::TimeoutLayer,
    trace::TraceLayer,
};

async fn run(call: ToolCall) -> Result<usize, tower_toolcall::ToolError> {
    let tool = service_fn(|call: ToolCall| async move {
        call.check()?;
        Ok::<_, BoxError>(call.arguments().len())
    });
    ServiceBuilder::new()
        .layer(TraceLayer::new())
        .layer(QuotaLayer::new(Quota::per_day(1).unwrap()))
        .layer(DeadlineLayer::inherited())
        .layer(ConcurrencyLimitLayer::new(1))
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

/// What a refusal says of a call is as short, and a key as long as it takes.
#[tokio::test]
async fn the_refusal_of_a_tool_name_of_a_megabyte_is_a_short_error() {
    let limit = ConcurrencyLimitLayer::builder(0).build().unwrap();
    let quota = QuotaLayer::builder(Quota::per_day(1).unwrap()).with_cost(|_| u32::MAX);
    let quota = quota.build().unwrap();
    let tool = || service_fn(|_: ToolCall| async { Ok::<_, BoxError>(()) });
    let call = || ToolCall::new("x".repeat(1 << 20));
    for result in [
        ServiceBuilder::new()
            .layer(limit)
            .service(tool())
            .oneshot(call())
            .await,
        ServiceBuilder::new()
            .layer(quota)
            .service(tool())
            .oneshot(call())
            .await,
    ] {
        let error = result.unwrap_err();
        let shown = format!(
            "{error} {error:?} {} {}",
            error.user_message(),
            error.model_message()
        );
        assert!(shown.len() < 2000, "{}", shown.len());
    }
}
