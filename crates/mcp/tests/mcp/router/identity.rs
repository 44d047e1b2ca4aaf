//! X10: identities by lists that follow their servers.

use std::sync::atomic::Ordering::SeqCst;

use tower::{Layer, ServiceBuilder, ServiceExt, service_fn};
use tower_toolcall::{
    BoxError, ErrorKind, Key, ModelText as _, ServiceBuilderExt, ToolCall, ToolError,
    circuit_breaker::CircuitBreakerLayer, identity::IdentityLayer, retry::RetryPolicy,
    router::Router, tool_metrics::Metrics,
};
use tower_toolcall_mcp::{self as mcp, Catalog, McpAnswer, McpClassifier, McpTools};

use super::server::{Connection, Server};

fn router(connection: &Connection) -> Router<McpAnswer> {
    mcp::router()
        .server("docs", connection.service(), connection.tools.clone())
        .build()
        .unwrap()
}

/// X10: refused as soon as the list says so, and let through as soon as it does.
#[tokio::test(start_paused = true)]
async fn a_tool_that_comes_or_goes_is_resolved_or_refused() {
    let server = Server::with(&["search"]);
    let connection = Connection::to(server.clone()).await;
    let router = router(&connection);
    let stack = router.identity().layer(router);
    let run = async |name: &str| -> Result<String, ToolError> {
        let answer = stack.clone().oneshot(ToolCall::new(name)).await?;
        Ok(answer.model_text().into_owned())
    };
    assert_eq!(run("docs__search").await.unwrap(), "search done");
    let missing = run("docs__fetch").await.unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotFound);

    server.add("fetch");
    server.remove("search");
    connection.changed().await;
    assert_eq!(run("docs__fetch").await.unwrap(), "fetch done");
    let calls = server.calls.load(SeqCst);
    let gone = run("docs__search").await.unwrap_err();
    assert_eq!(gone.kind(), ErrorKind::NotFound);
    assert_eq!(server.calls.load(SeqCst), calls, "the server is not asked");
}

/// X10, C9: nobody can tell yet which tools there are.
#[tokio::test(start_paused = true)]
async fn calls_of_a_server_whose_list_was_never_read_go_on_under_one_key() {
    let fails = service_fn(|call: ToolCall| async move {
        assert_eq!(call.server(), Some("docs"));
        match call.tool() {
            "works" => Ok("done"),
            _ => Err(BoxError::from("503 Service Unavailable")),
        }
    });
    let tools = McpTools::new(Catalog::default());
    let router = mcp::router().server("docs", fails, tools.clone());
    let router = router.build().unwrap();
    for key in [Key::Tool, Key::ToolName, Key::Server] {
        let layer = CircuitBreakerLayer::builder()
            .with_keys(key)
            .build()
            .unwrap();
        let breakers = layer.handle();
        let metrics = Metrics::new();
        let stack = ServiceBuilder::new()
            .tool_identity(router.clone())
            .tool_metrics(&metrics)
            .layer(layer)
            .service(router.clone());
        let answer = stack.clone().oneshot(ToolCall::new("docs__works")).await;
        assert_eq!(answer.unwrap().model_text(), "done");
        for n in 0..5 {
            let call = match n % 2 {
                0 => ToolCall::new(format!("docs__tool-{n}")),
                _ => ToolCall::new(format!("tool-{n}")).with_server("docs"),
            };
            let error = stack.clone().oneshot(call).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Upstream);
        }
        let refused = stack.clone().oneshot(ToolCall::new("docs__new")).await;
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::CircuitOpen);
        assert_eq!(breakers.len(), 1);
        let found = &breakers.breakers()[0];
        assert_eq!((found.server(), found.tool()), (Some("docs"), None));
        let snapshot = metrics.snapshot();
        assert_eq!(snapshot.tools.len(), 1, "{snapshot}");
        assert_eq!(snapshot.tools[0].tool, "_other");
    }
    // A list that was read and is empty tells that there is nothing.
    let read = McpTools::new(Catalog::new([]));
    let router = mcp::router().server("docs", fails, read).build().unwrap();
    let stack = router.identity().layer(router);
    let error = stack.oneshot(ToolCall::new("docs__works")).await;
    assert_eq!(error.unwrap_err().kind(), ErrorKind::NotFound);
}

/// X10: the name that a tool has at its server is passed on, though it looks like a flat one.
#[tokio::test(start_paused = true)]
async fn a_name_is_split_once_where_the_list_was_never_read() {
    let names = service_fn(|call: ToolCall| async move {
        Ok::<_, ToolError>(format!("{} of {:?}", call.tool(), call.server()))
    });
    let tools = McpTools::new(Catalog::default());
    let router = mcp::router().server("docs", names, tools).build().unwrap();
    let stack = router.identity().layer(router);
    for call in [
        ToolCall::new("docs__docs__x"),
        ToolCall::new("docs__docs__x").with_server("docs"),
    ] {
        let answer = stack.clone().oneshot(call).await.unwrap();
        assert_eq!(answer.model_text(), "docs__x of Some(\"docs\")");
    }
}

/// R6: annotations of a trusted catalog reach the retry layer, with no rule set.
#[tokio::test(start_paused = true)]
async fn what_a_trusted_server_says_of_repeats_reaches_the_retry_layer() {
    for (tool, sent) in [("flaky_read", 2), ("flaky_pay", 1)] {
        let server = Server::with(&["flaky_read", "flaky_pay"]);
        let connection = Connection::to(server.clone()).await;
        let router = router(&connection);
        let stack = ServiceBuilder::new()
            .tool_identity(router.clone())
            .tool_retry(RetryPolicy::new().with_classifier(McpClassifier::new()))
            .service(router);
        let call = ToolCall::new(format!("docs__{tool}"));
        let answer = stack.oneshot(call).await;
        assert_eq!(answer.is_ok(), sent == 2, "{tool}");
        assert_eq!(server.calls.load(SeqCst), sent, "{tool}");
    }
}

/// X10: a stack without a router, in front of one server.
#[tokio::test(start_paused = true)]
async fn the_list_of_one_server_is_a_table_too() {
    let server = Server::with(&["search"]);
    let connection = Connection::to(server).await;
    let layer = CircuitBreakerLayer::new();
    let breakers = layer.handle();
    let stack = ServiceBuilder::new()
        .layer(IdentityLayer::new(connection.tools.clone()))
        .layer(layer)
        .service(connection.service());
    let calls = [
        ToolCall::new("search"),
        ToolCall::new("search").with_server("docs"),
    ];
    for call in calls {
        let answer = stack.clone().oneshot(call).await.unwrap();
        assert_eq!(answer.model_text(), "search done");
    }
    for call in [
        ToolCall::new("fetch"),
        ToolCall::new("search").with_server("web"),
    ] {
        let error = stack.clone().oneshot(call).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert!(error.is_own_refusal());
    }
    assert_eq!(breakers.len(), 1);
    assert_eq!(breakers.breakers()[0].server(), Some("docs"));
}
