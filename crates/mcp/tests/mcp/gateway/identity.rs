//! X10, X11: names that clients invent, at the gateway.

use rmcp::model::{CallToolResult, ContentBlock};
use serde_json::json;
use tower::{ServiceBuilder, service_fn};
use tower_toolcall::{
    BoxError, ToolCall,
    circuit_breaker::{CircuitBreakerHandle, CircuitBreakerLayer},
    tool_metrics::Metrics,
};
use tower_toolcall_mcp::{self as mcp, Catalog, GatewayHandler, McpAnswer, McpTools};

use super::kit::{Gateway, WAYS, Way, connect, gateway_with};

async fn observed() -> (Gateway, CircuitBreakerHandle, Metrics) {
    let layer = CircuitBreakerLayer::new();
    let (breakers, metrics) = (layer.handle(), Metrics::new());
    let figures = metrics.layer();
    let gateway = gateway_with(true, |router| {
        let stack = ServiceBuilder::new()
            .layer(figures)
            .layer(layer)
            .service(router.clone());
        GatewayHandler::new(stack, router)
    })
    .await;
    (gateway, breakers, metrics)
}

/// V2: the gateway resolves names by itself.
#[tokio::test]
async fn invented_tools_make_no_key_and_no_row_and_the_model_reads_which_are_near() {
    let (gateway, breakers, metrics) = observed().await;
    for way in WAYS {
        let client = connect(way, gateway.handler.clone()).await;
        for tool in ["docs__ecoh", "web__echo", "echo", "nothing"] {
            for _ in 0..25 {
                let error = client.error(tool).await;
                assert_eq!(error.code.0, -32602, "{way:?}");
                assert!(error.message.contains(tool), "{}", error.message);
            }
        }
        let error = client.error("docs__ecoh").await;
        assert!(error.message.contains("'docs__echo'"), "{}", error.message);
    }
    assert!(breakers.is_empty());
    assert_eq!(metrics.snapshot().total.calls, 0);
}

/// X10: layers see the server and the tool's own name; clients theirs.
#[tokio::test]
async fn layers_of_a_gateway_see_the_tool_and_its_server() {
    let (gateway, breakers, metrics) = observed().await;
    let client = connect(Way::StreamModern, gateway.handler.clone()).await;
    client.body("docs__echo", json!({})).await;
    let snapshot = metrics.snapshot();
    assert_eq!(snapshot.tools.len(), 1);
    let row = &snapshot.tools[0];
    assert_eq!((row.server.as_deref(), &*row.tool), (Some("docs"), "echo"));
    let known = breakers.find(&ToolCall::new("echo").with_server("docs"));
    assert!(known.is_some());
}

fn echo() -> impl tower::Service<ToolCall, Response = McpAnswer, Error = BoxError, Future: Send>
+ Clone
+ Send
+ Sync
+ 'static {
    service_fn(|call: ToolCall| async move {
        let text = format!("{} of {:?}", call.tool(), call.server());
        let text = ContentBlock::text(text);
        Ok(CallToolResult::success(vec![text]).into())
    })
}

/// A function lists names, and resolves none: the client's word stays, without a server.
#[tokio::test]
async fn a_list_that_cannot_resolve_leaves_the_clients_name() {
    let handler = GatewayHandler::new(echo(), Vec::new);
    let client = connect(Way::Stream, handler).await;
    let body = client.body("docs__echo", json!({})).await;
    assert_eq!(body["content"][0]["text"], "docs__echo of None");
}

/// X10: clients may come before the servers behind do.
#[tokio::test]
async fn a_server_whose_list_was_never_read_is_called_under_one_key() {
    let layer = CircuitBreakerLayer::new();
    let breakers = layer.handle();
    let tools = McpTools::new(Catalog::default());
    let router = mcp::router().server("docs", echo(), tools);
    let router = router.build().unwrap();
    let stack = ServiceBuilder::new().layer(layer).service(router.clone());
    let client = connect(Way::Stream, GatewayHandler::new(stack, router)).await;
    for tool in ["docs__a", "docs__b", "docs__c"] {
        let body = client.body(tool, json!({})).await;
        let own = tool.trim_start_matches("docs__");
        let text = format!("{own} of Some(\"docs\")");
        assert_eq!(body["content"][0]["text"], text);
    }
    assert_eq!(client.error("web__a").await.code.0, -32602);
    assert_eq!(breakers.len(), 1);
}
