//! D1: a call that waits for its connection was not sent, whoever ends the wait.

use std::{future::pending, time::Duration};

use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tower::{Layer, ServiceExt, service_fn};
use tower_toolcall::{
    ToolCall, ToolError,
    circuit_breaker::{BreakerState, CircuitBreakerLayer},
    once::OnceLayer,
    tool_metrics::Metrics,
};
use tower_toolcall_mcp::{McpReconnect, McpService};
use tower_toolcall_test::{Script, Step};

const SECOND: Duration = Duration::from_secs(1);

fn pay() -> ToolCall {
    ToolCall::new("pay").with_agent_id("a1").with_once_key("k1")
}

/// A server that is never connected.
fn unconnected() -> McpReconnect {
    McpReconnect::new("bank", pending::<Result<((), McpService), ToolError>>)
}

/// Makes the same payment once more, with a tool that works.
async fn pay_again(once: &OnceLayer) -> Result<&'static str, ToolError> {
    once.layer(Script::always(Step::ok("paid")))
        .oneshot(pay())
        .await
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_dropped_before_it_has_a_connection_was_not_sent() {
    let (once, metrics) = (OnceLayer::new(), Metrics::new());
    let breaker = CircuitBreakerLayer::builder().with_trip(1).build().unwrap();
    let waits = unconnected().map_response(|_| "answer");
    let stack = once.layer(breaker.layer(metrics.layer().layer(waits)));
    let call = stack.oneshot(pay().with_timeout(30 * SECOND));
    timeout(SECOND, call).await.unwrap_err();
    assert_eq!(breaker.handle().snapshot()[0].state, BreakerState::Closed);
    assert_eq!(metrics.snapshot().total.attempts, 0);
    assert_eq!(pay_again(&once).await.unwrap(), "paid");
}

/// A foreign layer sends the call elsewhere after the wait was cancelled: that was an attempt, and
/// the key is kept.
#[tokio::test(start_paused = true)]
async fn a_call_that_is_sent_elsewhere_does_not_free_its_key() {
    let (once, metrics) = (OnceLayer::new(), Metrics::new());
    let (tool, token) = (
        Script::<&str>::always(Step::hang()),
        CancellationToken::new(),
    );
    let (elsewhere, caller) = (tool.clone(), token.clone());
    let stack = metrics.layer().layer(service_fn(move |call: ToolCall| {
        let elsewhere = elsewhere.clone();
        let waits = unconnected().map_response(|_| "answer");
        let refused = waits.oneshot(call.clone().with_cancellation(caller.clone()));
        async move {
            refused.await.unwrap_err();
            elsewhere.oneshot(call).await
        }
    }));
    let cancels = async {
        sleep(SECOND).await;
        token.cancel();
        pending::<()>().await
    };
    let call = once.layer(stack).oneshot(pay());
    let both = async { tokio::join!(call, cancels) };
    timeout(2 * SECOND, both).await.unwrap_err();
    assert_eq!((tool.count(), metrics.snapshot().total.attempts), (1, 1));
    let refused = pay_again(&once).await.unwrap_err();
    assert_eq!(refused.code(), "TOOL_OUTCOME_UNKNOWN");
}
