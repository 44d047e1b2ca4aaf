//! S-3: what one client's arguments cause is felt by that client alone.

use rmcp::model::{CallToolResult, ContentBlock, Tool};
use serde_json::json;
use tower::{ServiceBuilder, service_fn};
use tower_toolcall::{AnyError, ToolCall, circuit_breaker::CircuitBreakerLayer};
use tower_toolcall_mcp::GatewayHandler;
use tower_toolcall_mcp::McpAnswer;

use super::kit::{Connected, Way, connect, connect_to, http};

async fn fails_if_told(call: ToolCall) -> Result<McpAnswer, AnyError> {
    match call.arguments().contains_key("fail") {
        true => Err("boom".into()),
        false => {
            let session = call.session_id().unwrap_or("none").to_owned();
            Ok(CallToolResult::success(vec![ContentBlock::text(session)]).into())
        }
    }
}

fn gateway() -> GatewayHandler {
    let stack = ServiceBuilder::new()
        .layer(CircuitBreakerLayer::new())
        .service(service_fn(fails_if_told));
    GatewayHandler::new(stack, Vec::<Tool>::new)
}

async fn is_served(client: &Connected) -> bool {
    client.body("t", json!({})).await["isError"] == false
}

async fn fails_five_times(client: &Connected) {
    for _ in 0..5 {
        let body = client.body("t", json!({ "fail": true })).await;
        assert_eq!(body["isError"], true);
    }
}

/// Two connections over stdio.
#[tokio::test]
async fn a_clients_failing_arguments_refuse_the_tool_to_its_connection_alone() {
    let gateway = gateway();
    for way in [Way::Stream, Way::StreamModern] {
        let alice = connect(way, gateway.clone()).await;
        let bob = connect(way, gateway.clone()).await;
        fails_five_times(&alice).await;
        assert!(!is_served(&alice).await, "{way:?}");
        assert!(is_served(&bob).await, "{way:?}");
    }
}

/// Two sessions with one server over HTTP.
#[tokio::test]
async fn a_clients_failing_arguments_refuse_the_tool_to_its_session_alone() {
    let (url, server) = http(gateway()).await;
    let alice = connect_to(Way::Http, url.clone(), []).await;
    let bob = connect_to(Way::Http, url, []).await;
    fails_five_times(&alice).await;
    assert!(!is_served(&alice).await);
    assert!(is_served(&bob).await);
    server.abort();
}

/// The id of a session is a key to it: calls, and so spans and events, have another one.
#[tokio::test]
async fn the_session_id_of_a_call_is_not_the_clients() {
    let client = connect(Way::Http, gateway()).await;
    let body = client.body("t", json!({})).await;
    let session = body["content"][0]["text"].as_str().unwrap();
    assert!(session.starts_with('s') && session.len() < 10, "{session}");
}

//= https://modelcontextprotocol.io/specification/2026-07-28/basic/index#statelessness
//# Servers SHOULD NOT require that a client reuse the same connection or process to perform related
//# operations.
/// Without a session each request is one of a handler of its own, and of no client that could be
/// known.
#[tokio::test]
async fn without_a_session_a_call_has_none() {
    let client = connect(Way::HttpModern, gateway()).await;
    let body = client.body("t", json!({})).await;
    assert_eq!(body["content"][0]["text"], "none");
}
