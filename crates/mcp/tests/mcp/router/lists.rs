//! X4: lists that follow their servers.

use std::{sync::atomic::Ordering::SeqCst, time::Duration};

use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use tokio::time::{Instant, sleep};
use tower::{ServiceExt, service_fn};
use tower_toolcall::{
    BoxError, ErrorKind, ModelText as _, ReplaySafety, ToolCall, ToolError,
    health::Health,
    router::{Definition, Router, tool_fn},
};
use tower_toolcall_mcp::{self as mcp, Catalog, McpAnswer, McpTools};

use super::server::{Connection, Server, settle};

fn router(connection: &Connection) -> Router<McpAnswer> {
    mcp::router()
        .tool(
            "local",
            tool_fn(|(): ()| async { Ok::<_, BoxError>("local done") }),
        )
        .server("docs", connection.service(), connection.tools.clone())
        .build()
        .unwrap()
}

async fn run(router: &Router<McpAnswer>, name: &str) -> Result<String, ToolError> {
    let answer = router.clone().oneshot(ToolCall::new(name)).await?;
    Ok(answer.model_text().into_owned())
}

#[tokio::test(start_paused = true)]
async fn tools_come_and_go_while_the_program_runs() {
    let server = Server::with(&["search"]);
    let connection = Connection::to(server.clone()).await;
    let router = router(&connection);
    assert_eq!(router.names(), ["docs__search", "local"]);
    assert_eq!(run(&router, "local").await.unwrap(), "local done");
    assert_eq!(run(&router, "docs__search").await.unwrap(), "search done");

    server.add("fetch");
    server.remove("search");
    connection.changed().await;
    assert_eq!(router.names(), ["docs__fetch", "local"]);
    assert_eq!(run(&router, "docs__fetch").await.unwrap(), "fetch done");
    let calls = server.calls.load(SeqCst);
    let error = run(&router, "docs__search").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert_eq!(server.calls.load(SeqCst), calls, "the server is not asked");
}

//= https://modelcontextprotocol.io/specification/2026-07-28/server/tools#tool-names
//# Clients or proxies that aggregate tools from multiple servers MAY encounter naming collisions
//# (for example, two servers each exposing a `search` tool) and SHOULD implement a disambiguation
//# strategy such as prefixing tool names with a server identifier.
#[tokio::test(start_paused = true)]
async fn the_definitions_have_the_flat_names() {
    let server = Server::with(&["search", "fetch"]);
    let connection = Connection::to(server).await;
    let definitions = router(&connection).definitions();
    let names: Vec<&str> = definitions.iter().map(Definition::name).collect();
    assert_eq!(names, ["docs__fetch", "docs__search"]);
    assert_eq!(definitions[0].description(), "a tool");
}

/// R6: a local tool's definition is shown, and what it says of repeats is believed.
#[tokio::test(start_paused = true)]
async fn a_local_tool_may_have_a_definition() {
    let definition = |name: &'static str| Tool::new(name, "a local tool", JsonObject::new());
    let read = definition("read").with_annotations(ToolAnnotations::new().read_only(true));
    let done = || tool_fn(|(): ()| async { Ok::<_, BoxError>("done") });
    let connection = Connection::to(Server::with(&["search"])).await;
    let router = mcp::router()
        .described_tool(mcp::definition(read), done())
        .described_tool(mcp::definition(definition("write")), done())
        .tool("unlisted", done())
        .server("docs", connection.service(), connection.tools.clone())
        .build()
        .unwrap();

    let definitions = router.definitions();
    let names: Vec<&str> = definitions.iter().map(Definition::name).collect();
    assert_eq!(names, ["docs__search", "read", "write"]);
    assert_eq!(run(&router, "write").await.unwrap(), "done");
    let safety = |name| router.replay_safety(&ToolCall::new(name));
    assert_eq!(safety("read"), ReplaySafety::Safe);
    assert_eq!(safety("write"), ReplaySafety::Unknown);
    assert_eq!(safety("unlisted"), ReplaySafety::Unknown);

    let twice = mcp::router()
        .tool("read", done())
        .described_tool(mcp::definition(definition("read")), done());
    assert!(twice.build().is_err());
}

/// R6: what was set of a catalog holds for all lists that follow.
#[tokio::test(start_paused = true)]
async fn settings_survive_a_refresh() {
    let server = Server::with(&["read"]);
    let connection = Connection::to(server.clone()).await;
    let own = Catalog::default()
        .trust_annotations(true)
        .with_replay_safety("pay", ReplaySafety::Safe);
    let tools = McpTools::new(own);
    let router = mcp::router()
        .server("docs", connection.service(), tools.clone())
        .build()
        .unwrap();
    let safety = |name| router.replay_safety(&ToolCall::new(name));
    assert_eq!(safety("docs__read"), ReplaySafety::Unknown);

    tools.refresh(connection.peer()).await.unwrap();
    assert_eq!(safety("docs__read"), ReplaySafety::Safe);
    assert_eq!(safety("docs__pay"), ReplaySafety::Unknown, "there is none");
    for new in ["pay", "delete"] {
        server.add(new);
    }
    tools.changed(connection.peer()).await;
    assert_eq!(safety("docs__pay"), ReplaySafety::Safe);
    assert_eq!(safety("docs__delete"), ReplaySafety::Unsafe);
    assert_eq!(safety("docs__read"), ReplaySafety::Safe);
    let by_server = ToolCall::new("read").with_server("docs");
    assert_eq!(router.replay_safety(&by_server), ReplaySafety::Safe);
}

/// A catalog by itself is a list that stays.
#[tokio::test(start_paused = true)]
async fn a_catalog_is_a_list_too() {
    let server = Server::with(&["search"]);
    let connection = Connection::to(server).await;
    let catalog = connection.service().catalog().await.unwrap();
    let router = mcp::router()
        .server("docs", connection.service(), catalog)
        .build()
        .unwrap();
    assert_eq!(run(&router, "docs__search").await.unwrap(), "search done");
}

/// Calls go by the list that stands, and do not wait for the next one.
#[tokio::test(start_paused = true)]
async fn a_call_during_a_refresh_waits_for_nothing() {
    let server = Server::with(&["search"]);
    let connection = Connection::to(server.clone()).await;
    let router = router(&connection);
    server.slow.store(5000, SeqCst);
    server.add("fetch");
    connection.announce().await;
    sleep(Duration::from_secs(2)).await;
    assert_eq!(server.listed.load(SeqCst), 2, "it is being asked");

    let start = Instant::now();
    assert_eq!(run(&router, "docs__search").await.unwrap(), "search done");
    assert!(run(&router, "docs__fetch").await.is_err());
    assert_eq!(start.elapsed(), Duration::ZERO);
    settle().await;
    assert_eq!(run(&router, "docs__fetch").await.unwrap(), "fetch done");
}

//= https://modelcontextprotocol.io/specification/2026-07-28/server/utilities/caching#time-to-live-ttl-field
//# If `ttlMs` is absent, clients SHOULD assume a default of `0` (immediately stale) and rely on
//# their own caching heuristics or notifications.
/// One at a time, and one more: the last change is seen.
#[tokio::test(start_paused = true)]
async fn a_burst_of_a_hundred_notifications_asks_twice() {
    let server = Server::with(&["search"]);
    let connection = Connection::to(server.clone()).await;
    server.slow.store(1000, SeqCst);
    sleep(Duration::from_secs(2)).await;
    for i in 0..100 {
        server.add(&format!("tool{i}"));
        connection.announce().await;
    }
    settle().await;
    assert_eq!(connection.names().len(), 101);
    assert_eq!(server.listed.load(SeqCst), 1 + 2);
    assert_eq!(server.most_askers(), 1);
}

/// The answer to the first question, which is old by now, is followed by that to the second.
#[tokio::test(start_paused = true)]
async fn an_older_answer_never_replaces_a_newer_one() {
    let server = Server::with(&["a"]);
    let connection = Connection::to(server.clone()).await;
    server.slow.store(9000, SeqCst);
    connection.announce().await;
    sleep(Duration::from_secs(2)).await;
    server.add("b");
    server.slow.store(0, SeqCst);
    connection.announce().await;
    let by_hand = connection.tools.clone();
    by_hand.refresh(connection.peer()).await.unwrap();
    assert_eq!(connection.names(), ["a", "b"]);
    settle().await;
    assert_eq!(connection.names(), ["a", "b"]);
    assert_eq!(server.most_askers(), 1);
}

/// Whoever waits to ask and goes away leaves the place to the next.
#[tokio::test(start_paused = true)]
async fn a_refresh_that_is_dropped_blocks_nobody() {
    let server = Server::with(&["a"]);
    let connection = Connection::to(server.clone()).await;
    let (tools, peer) = (connection.tools.clone(), connection.peer());
    server.slow.store(1000, SeqCst);
    let mut asks = tokio_test::task::spawn(tools.refresh(peer));
    let mut waits = tokio_test::task::spawn(tools.changed(peer));
    tokio_test::assert_pending!(asks.poll());
    tokio_test::assert_pending!(waits.poll());
    drop(waits);
    drop(asks);
    server.add("b");
    tools.changed(peer).await;
    assert_eq!(connection.names(), ["a", "b"]);
}

/// Its caller's timeout ends a wait: the change of another, which came meanwhile, is asked for all
/// the same.
#[tokio::test(start_paused = true)]
async fn a_waiter_that_is_dropped_loses_no_change_of_another() {
    let server = Server::with(&["a"]);
    let connection = Connection::to(server.clone()).await;
    let (tools, peer) = (connection.tools.clone(), connection.peer());
    server.slow.store(5000, SeqCst);
    let mut asks = tokio_test::task::spawn(tools.changed(peer));
    tokio_test::assert_pending!(asks.poll());
    sleep(Duration::from_secs(2)).await;
    tokio_test::assert_pending!(asks.poll());
    let mut waits = tokio_test::task::spawn(tools.changed(peer));
    tokio_test::assert_pending!(waits.poll());
    sleep(Duration::from_millis(10)).await;
    server.add("b");
    let mut other = tokio_test::task::spawn(tools.changed(peer));
    let _ = other.poll();
    drop(waits);
    server.slow.store(0, SeqCst);
    asks.await;
    other.await;
    assert_eq!(connection.names(), ["a", "b"]);
}

/// More than can wait: whoever returned at once is answered by those who wait.
#[tokio::test(start_paused = true)]
async fn a_flood_of_changes_waits_in_a_bounded_place_and_loses_none() {
    let server = Server::with(&["a"]);
    let connection = Connection::to(server.clone()).await;
    let (tools, peer) = (connection.tools.clone(), connection.peer());
    server.slow.store(1000, SeqCst);
    let mut flood: Vec<_> = (0..64)
        .map(|_| tokio_test::task::spawn(tools.changed(peer)))
        .collect();
    assert!(flood.iter_mut().all(|one| one.poll().is_pending()));
    sleep(Duration::from_millis(1500)).await;
    assert!(flood[0].poll().is_pending(), "it asks");
    sleep(Duration::from_millis(10)).await;
    server.add("b");
    tools.changed(peer).await;
    assert_eq!(connection.names(), ["a"], "there was no room to wait");
    for one in flood {
        one.await;
    }
    assert_eq!(connection.names(), ["a", "b"]);
    assert_eq!(server.listed.load(SeqCst), 3);
}

/// Many thousand tools and names that are none: what a server lists is its own affair, and bounded.
#[tokio::test(start_paused = true)]
async fn too_many_tools_leave_the_old_list() {
    let server = Server::with(&["a"]);
    let connection = Connection::to(server.clone()).await;
    for i in 0..10_001 {
        server.add(&format!("tool{i}"));
    }
    connection.changed().await;
    assert_eq!(connection.names(), ["a"]);
}

#[test]
fn debug_shows_how_many_there_are() {
    let tool = Tool::new("secret_tool", "", std::sync::Arc::default());
    let tools = McpTools::new(Catalog::new([tool]));
    let shown = format!("{tools:?}");
    assert!(shown.contains("tools: 1") && !shown.contains("secret_tool"));
}

/// X6.
#[tokio::test(start_paused = true)]
async fn the_definitions_of_a_server_that_is_not_there_are_left_out_for_the_moment() {
    let server = Server::with(&["search"]);
    let connection = Connection::to(server).await;
    let health = Health::builder().with_refusal(true).with_threshold(1);
    let health = health.build().unwrap();
    let dead = service_fn(|_: ToolCall| async {
        Err::<&'static str, _>(ToolError::new(ErrorKind::ConnectionFailed, "refused"))
    });
    let router = mcp::router()
        .server("docs", dead, connection.tools.clone())
        .with_health(&health)
        .build()
        .unwrap();
    assert_eq!(router.definitions().len(), 1);
    let error = run(&router, "docs__search").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionFailed);
    assert_eq!(router.definitions().len(), 0);
    sleep(Duration::from_secs(30)).await;
    assert_eq!(router.definitions().len(), 1);
}
