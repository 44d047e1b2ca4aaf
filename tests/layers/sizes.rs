//! The sizes of response futures, which the caller's task carries.

use std::{
    future::{Ready, ready},
    task::{Context, Poll},
    time::Duration,
};

use tower::{Service, ServiceBuilder};
use tower_layer::Layer;
use tower_toolcall::{
    BoxError, ServiceBuilderExt, ToolCall, redact::Rules, retry::RetryPolicy, tool_metrics::Metrics,
};

const TIMEOUT: Duration = Duration::from_secs(30);

/// A tool with a small future.
#[derive(Clone)]
struct Tool;

impl Service<ToolCall> for Tool {
    type Response = u64;
    type Error = BoxError;
    type Future = Ready<Result<u64, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: ToolCall) -> Self::Future {
        ready(Ok(1))
    }
}

/// The size of the future of a stack, without the tool's.
fn size<L>(layer: L) -> usize
where
    L: Layer<Tool, Service: Service<ToolCall>>,
{
    let future = layer.layer(Tool).call(ToolCall::new("search"));
    size_of_val(&future) - size_of::<<Tool as Service<ToolCall>>::Future>()
}

#[tokio::test]
async fn futures_of_stacks_are_small() {
    let layer = || ServiceBuilder::new();
    let six = layer()
        .tool_sanitize(Rules::new())
        .tool_trace()
        .tool_retry(RetryPolicy::new())
        .tool_rate_limit()
        .tool_circuit_breaker()
        .tool_timeout(TIMEOUT);
    let ten = layer()
        .tool_sanitize(Rules::new())
        .tool_result()
        .tool_trace()
        .tool_metrics(&Metrics::new())
        .tool_deadline(TIMEOUT)
        .tool_retry(RetryPolicy::new())
        .tool_rate_limit()
        .tool_circuit_breaker()
        .tool_timeout(TIMEOUT)
        .tool_catch_panic();
    let (six, ten) = (size(six), size(ten));
    assert!(six <= 480 && ten <= 800, "{six} {ten}");
}
