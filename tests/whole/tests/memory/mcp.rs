//! Bodies of requests to an MCP server over HTTP.

use std::{net::SocketAddr, sync::Arc};

use axum::body::Bytes;
use rmcp::{
    model::{CallToolResult, ContentBlock, Tool},
    transport::{StreamableHttpServerConfig, StreamableHttpService},
};
use tokio::{net::TcpListener, sync::Barrier, task::JoinSet};
use tower::service_fn;
use tower_toolcall::{AnyError, ToolCall};
use tower_toolcall_mcp::{GatewayHandler, McpAnswer, McpBodies, McpSessions};

use crate::{MB, counted, small_values, worst_values};

/// A gateway whose tool answers when `calls` of its calls run. It needs no sessions.
async fn gateway(calls: usize) -> SocketAddr {
    let together = Arc::new(Barrier::new(calls));
    let tool = service_fn(move |_: ToolCall| {
        let together = Arc::clone(&together);
        async move {
            together.wait().await;
            let text = vec![ContentBlock::text("done")];
            Ok::<_, AnyError>(McpAnswer::from(CallToolResult::success(text)))
        }
    });
    let gateway = GatewayHandler::new(tool, || {
        vec![Tool::new("a", "", Arc::new(serde_json::Map::new()))]
    });
    let config = StreamableHttpServerConfig::default().with_legacy_session_mode(false);
    let sessions = Arc::new(McpSessions::default());
    let mcp = StreamableHttpService::new(move || Ok(gateway.clone()), sessions, config);
    let app = axum::Router::new().nest_service("/mcp", McpBodies::new(mcp));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

async fn send(server: SocketAddr, arguments: &str, times: usize) -> Vec<(u16, String)> {
    let params = format!(r#"{{"name":"a","arguments":{arguments}}}"#);
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":"#;
    let body = Bytes::from(format!("{body}{params}}}"));
    let client = reqwest::Client::new();
    let mut sent = JoinSet::new();
    for _ in 0..times {
        let request = client.post(format!("http://{server}/mcp"));
        let request = request.header("content-type", "application/json");
        let request = request.header("accept", "application/json, text/event-stream");
        let request = request.body(body.clone());
        sent.spawn(async move {
            let answer = request.send().await.unwrap();
            (answer.status().as_u16(), answer.text().await.unwrap())
        });
    }
    sent.join_all().await
}

/// S-1: rmcp takes bodies of 4 MiB.
#[test]
fn a_body_of_many_small_values_is_refused_before_rmcp_parses_it() {
    let taken = counted(async {
        let values = small_values(3_900_000);
        let (status, text) = &send(gateway(1).await, &values, 1).await[0];
        assert_eq!(*status, 413, "{text}");
        assert!(
            text.contains("the body has more than 40000 values"),
            "{text}"
        );
    });
    assert!(taken.bytes_max < 40 * MB, "{taken:?}");
}

/// S-1: as many values as are taken, in the shape that takes most memory.
#[test]
fn twenty_calls_of_the_worst_values_that_are_taken_are_bounded() {
    let taken = counted(async {
        for (status, text) in send(gateway(20).await, &worst_values(), 20).await {
            assert_eq!(status, 200, "{text}");
            assert!(text.contains("done"), "{text}");
        }
    });
    assert!(taken.bytes_max < 300 * MB, "{taken:?}");
}

#[test]
fn twenty_calls_with_a_long_string_are_answered_over_mcp() {
    let taken = counted(async {
        let arguments = format!(r#"{{"a":"{}"}}"#, "[,".repeat(950_000));
        for (status, text) in send(gateway(20).await, &arguments, 20).await {
            assert_eq!(status, 200, "{text}");
            assert!(text.contains("done"), "{text}");
        }
    });
    assert!(taken.bytes_max < 300 * MB, "{taken:?}");
}
