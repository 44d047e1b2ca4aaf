//! The acceptance scenarios of the gateway (system D) over the wire, in real time.

use std::time::Duration;

use expect_test::expect;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::kit::{Server, axum, ms, post, seen};

async fn call(server: &Server, tool: &str) -> Value {
    let params = json!({ "name": tool, "server": "gw", "arguments": {} });
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
    let got = seen(post(&server.url("/rpc"), body.to_string())).await;
    assert_eq!(got.status, 200);
    got.body
}

/// E5, T3: the exact fields, beside the number of attempts that a retry layer adds.
#[tokio::test]
async fn a_timeout_is_minus_32000_with_its_data() {
    let server = axum(ms(60_000)).await;
    expect![[r#"{"code":-32000,"data":{"attempts":1,"code":"TOOL_TIMEOUT","execution":"unknown","retryable":true,"server":"gw","timeout_ms":100,"tool_id":"slow"},"message":"Tool invocation timed out"}"#]].assert_eq(&call(&server, "slow").await["error"].to_string());
}

/// T2: each tool has its own timeout.
#[tokio::test]
async fn each_tool_has_its_own_timeout() {
    let server = axum(ms(60_000)).await;
    for (tool, timeout) in [("slow", 100), ("slower", 200)] {
        let since = Instant::now();
        let error = call(&server, tool).await;
        assert_eq!(error["error"]["data"]["timeout_ms"], timeout);
        assert!(since.elapsed() >= ms(timeout));
    }
}

/// E5, C1, C2, V15: a call that is only refused has no attempts. Five failures open the breaker of
/// that tool, and of no other.
#[tokio::test]
async fn five_failures_open_the_breaker_of_one_tool() {
    let server = axum(Duration::from_millis(59_999)).await;
    for _ in 0..5 {
        assert_eq!(call(&server, "slow").await["error"]["code"], -32000);
    }
    let begun = server.tools.begun();
    // Rounded up, unless the machine stood still for a second.
    expect![[r#"{"code":-32001,"data":{"code":"CIRCUIT_OPEN","execution":"not_started","retry_after_seconds":60,"retryable":true,"server":"gw","tool_id":"slow"},"message":"Circuit breaker open"}"#]].assert_eq(&call(&server, "slow").await["error"].to_string());
    assert_eq!(server.tools.begun(), begun, "the tool was called");
    assert!(call(&server, "ok").await.get("result").is_some());
    assert_eq!(call(&server, "slower").await["error"]["code"], -32000);

    // The same breaker on the plain route, which names the same server.
    let got = seen(post(&server.url("/servers/gw/tools/slow/call"), "")).await;
    assert_eq!(
        (got.status, got.body["error"]["code"].as_str()),
        (503, Some("CIRCUIT_OPEN"))
    );
    assert!(got.retry_after.is_some());
    let got = seen(post(&server.url("/servers/other/tools/slow/call"), "")).await;
    assert_eq!(got.status, 504);
}

/// C3, E5: a delay under a second is one second; when the open period is over and the probe
/// succeeds, the breaker closes.
#[tokio::test]
async fn the_breaker_closes_after_its_period() {
    let server = axum(ms(1000)).await;
    server.tools.break_down(true);
    for _ in 0..5 {
        assert_eq!(call(&server, "flaky").await["error"]["code"], -32603);
    }
    let refused = call(&server, "flaky").await;
    assert_eq!(refused["error"]["code"], -32001);
    assert_eq!(refused["error"]["data"]["retry_after_seconds"], 1);
    server.tools.break_down(false);
    sleep(ms(1050)).await;
    for _ in 0..3 {
        assert_eq!(call(&server, "flaky").await["result"], "up again");
    }
}
