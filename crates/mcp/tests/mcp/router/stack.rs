//! R6: what may be repeated, by the catalogs of a router's servers.

use std::{sync::atomic::Ordering::SeqCst, time::Duration};

use tower::{ServiceBuilder, ServiceExt};
use tower_toolcall::{
    ErrorKind, ModelText as _, ToolCall,
    backoff::Backoff,
    result::ToolResultLayer,
    retry::{RetryLayer, RetryPolicy},
    timeout::TimeoutLayer,
};
use tower_toolcall_mcp::{self as mcp, McpClassifier};

use super::server::{Connection, Server};

/// A retry layer around the router that asks it.
async fn run(tool: &str) -> (usize, Result<String, ErrorKind>) {
    let server = Server::with(&["flaky_read", "flaky_pay"]);
    let connection = Connection::to(server.clone()).await;
    let router = mcp::router()
        .server("docs", connection.service(), connection.tools.clone())
        .build()
        .unwrap();
    let policy = RetryPolicy::new()
        .with_classifier(McpClassifier::new())
        .with_replay_safety({
            let router = router.clone();
            move |call| router.replay_safety(call)
        });
    let stack = ServiceBuilder::new()
        .layer(RetryLayer::new(policy))
        .service(router);
    let answer = stack.oneshot(ToolCall::new(format!("docs__{tool}"))).await;
    let answer = answer
        .map(|a| a.model_text().into_owned())
        .map_err(|e| e.kind());
    (server.calls.load(SeqCst), answer)
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_only_reads_is_repeated_through_the_router() {
    assert_eq!(run("flaky_read").await, (2, Ok("flaky_read done".into())));
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_pays_is_not() {
    assert_eq!(run("flaky_pay").await, (1, Err(ErrorKind::Upstream)));
}

/// T4, E3: a timeout above the router ends the call at the server, and is told of by the outer
/// name.
#[tokio::test(start_paused = true)]
async fn a_timeout_above_names_the_tool_as_the_model_does() {
    let connection = Connection::to(Server::with(&["hang"])).await;
    let router = mcp::router()
        .server("docs", connection.service(), connection.tools.clone())
        .build()
        .unwrap();
    let stack = ServiceBuilder::new()
        .layer(ToolResultLayer::new().with_classifier(McpClassifier::new()))
        .layer(TimeoutLayer::new(Duration::from_secs(1)))
        .service(router);
    let Ok(result) = stack.oneshot(ToolCall::new("docs__hang")).await;
    let error = result.error().unwrap();
    assert_eq!(
        (error.kind(), error.tool()),
        (ErrorKind::Timeout, Some("docs__hang"))
    );
}

/// X4: it was there when the call was first sent: that took its time.
#[tokio::test(start_paused = true)]
async fn a_tool_that_goes_between_two_attempts_was_tried_once() {
    let server = Server::with(&["flaky_read"]);
    let connection = Connection::to(server.clone()).await;
    let router = mcp::router()
        .server("docs", connection.service(), connection.tools.clone())
        .build()
        .unwrap();
    let policy = RetryPolicy::new()
        .with_classifier(McpClassifier::new())
        .assume_replay_safe()
        .with_backoff(Backoff::fixed(Duration::from_secs(9)).unwrap());
    let stack = ServiceBuilder::new()
        .layer(ToolResultLayer::new().with_classifier(McpClassifier::new()))
        .layer(RetryLayer::new(policy))
        .service(router);
    let call = tokio::spawn(stack.oneshot(ToolCall::new("docs__flaky_read")));
    tokio::time::sleep(Duration::from_secs(1)).await;
    server.remove("flaky_read");
    connection.announce().await;
    let Ok(result) = call.await.unwrap();
    // What the tool itself has said last.
    assert_eq!(result.error().unwrap().kind(), ErrorKind::Upstream);
    assert!(result.duration() >= Duration::from_secs(1));
    assert_eq!((result.attempts(), server.calls.load(SeqCst)), (1, 1));
}

/// X4: a server that has forgotten its tool, and has not said so.
#[tokio::test(start_paused = true)]
async fn a_tool_that_only_the_list_has_is_the_servers_not_found() {
    let server = Server::with(&["search"]);
    let connection = Connection::to(server.clone()).await;
    let router = mcp::router()
        .server("docs", connection.service(), connection.tools.clone())
        .build()
        .unwrap();
    server.remove("search");
    let error = router
        .oneshot(ToolCall::new("docs__search"))
        .await
        .unwrap_err();
    assert_eq!(
        (error.kind(), error.tool()),
        (ErrorKind::NotFound, Some("docs__search"))
    );
    assert_eq!(server.calls.load(SeqCst), 1);
}
