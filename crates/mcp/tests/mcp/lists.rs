//! Lists of tools of servers of the official SDKs, which `tests/run` installs. Real time.

use futures_util::future::join_all;
use rmcp::{ServiceExt as _, transport::StreamableHttpClientTransport};
use serde_json::json;
use tokio::process::Command;
use tower::ServiceExt as _;
use tower_toolcall::{ModelText as _, circuit_breaker::CircuitBreakerLayer};
use tower_toolcall_mcp::McpServer;

use crate::{
    outage,
    real::{LIMIT, Server, call, everything, installed},
};

/// PyPI's SDK over stdio. Each page of its list names this one as the next.
fn endless(cursor: &'static str) -> McpServer {
    let server = McpServer::spawn("endless", move || {
        let mut command = Command::new("python3");
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/mcp/cursors.py");
        command.args([script, cursor]);
        command.env("PYTHONPATH", installed("mcp-servers-python"));
        command
    });
    // It is loaded slowly, on a machine that has much to do.
    let patient = server.with_connection(|it| it.with_connect_timeout(LIMIT));
    patient.unwrap()
}

fn names(server: &McpServer) -> Vec<String> {
    let catalog = server.tools().catalog();
    catalog.tools().map(|tool| tool.name.to_string()).collect()
}

/// M-8: a cursor that never advances, and one that is always empty. M-9: in the server's order.
#[tokio::test]
async fn tools_of_a_list_without_an_end_are_used() {
    for cursor in ["2", ""] {
        let server = endless(cursor);
        server.connect().await.unwrap();
        let tools = outage::readme(server.clone(), CircuitBreakerLayer::new());
        for name in ["apple", "zebra"] {
            let answer = tools.clone().oneshot(call(name, json!({}))).await;
            assert_eq!(answer.unwrap().model_text(), name, "{cursor:?}");
        }
        assert_eq!(names(&server), ["zebra", "mango", "apple"], "{cursor:?}");
        server.close().await;
    }
}

/// M-9: npm's `server-everything`, as a client of rmcp's lists it, at each connection.
#[tokio::test]
async fn tools_have_the_order_in_which_their_server_lists_them() {
    let process = Server::start(everything).await;
    let plain = StreamableHttpClientTransport::from_uri(process.url());
    let plain = ().serve(plain).await.unwrap();
    let listed: Vec<_> = plain.list_all_tools().await.unwrap();
    let listed: Vec<_> = listed.iter().map(|tool| tool.name.to_string()).collect();
    assert!(listed.len() > 5 && !listed.is_sorted(), "{listed:?}");
    for _ in 0..3 {
        let server = McpServer::http("everything", process.url());
        server.connect().await.unwrap();
        assert_eq!(names(&server), listed);
        server.close().await;
    }
    plain.cancel().await.unwrap();
}

//= https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/stdio#backward-compatibility
//# The fallback MUST NOT be keyed to one specific error code: legacy servers respond to unknown
//# pre-`initialize` requests with implementation-defined errors (commonly `-32601` or `-32602`) or
//# not at all.
/// M-8's kind: rmcp gives `server/discover` 10 s, and a package runner may download for longer.
#[tokio::test]
async fn a_server_that_starts_slowly_is_connected_to() {
    let connects = ["error", "result"].map(|discover| async move {
        let server = McpServer::spawn("late", move || {
            let mut command = Command::new("python3");
            command.args([
                concat!(env!("CARGO_MANIFEST_DIR"), "/tests/mcp/late.py"),
                discover,
            ]);
            command
        });
        server.connect().await.unwrap();
        assert_eq!(names(&server), ["late"], "{discover}");
        server.close().await;
    });
    join_all(connects).await;
}
