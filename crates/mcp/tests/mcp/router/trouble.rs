//! Servers that refuse, hang, die.

use std::{
    sync::{Arc, atomic::Ordering::SeqCst},
    time::Duration,
};

use rmcp::model::Tool;
use tokio::time::{Instant, sleep};
use tower::ServiceExt;
use tower_toolcall::{ErrorKind, Execution, ToolCall};
use tower_toolcall_mcp as mcp;

use crate::log::Log;

use super::server::{Connection, Server, page, settle};

/// Rule 9: the warning is redacted.
#[tokio::test(start_paused = true)]
async fn a_refresh_that_fails_keeps_the_old_list_and_warns() {
    let server = Server::with(&["a"]);
    let connection = Connection::to(server.clone()).await;
    let (log, _guard) = Log::begin();
    server.refuses.store(true, SeqCst);
    server.add("b");
    connection.changed().await;
    assert_eq!(connection.names(), ["a"]);

    let seen = log.lines();
    let [line] = &seen[..] else {
        panic!("{seen:?}")
    };
    assert_eq!(line["level"], "WARN");
    assert_eq!(line["message"], "tool.stale_list");
    assert_eq!(line["server"], "docs");
    assert_eq!(line["code"], "UPSTREAM_ERROR");
    assert!(line["error"].as_str().unwrap().contains("no list today"));
    assert!(!line.to_string().contains("hunter2"));
    // S9: neither the spans of the client's task, nor more than a short text.
    assert!(line.get("span").is_none(), "{line}");
    assert!(
        line["error"].as_str().unwrap().chars().count() <= 83,
        "{line}"
    );

    server.refuses.store(false, SeqCst);
    connection.changed().await;
    assert_eq!(connection.names(), ["a", "b"]);
}

//= https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/cancellation#timeouts
//# Implementations SHOULD establish timeouts for all sent requests, to prevent hung connections and
//# resource exhaustion.
/// The refresh is bounded; meanwhile and afterwards calls go on.
#[tokio::test(start_paused = true)]
async fn a_server_that_never_lists_is_not_waited_for() {
    let server = Server::with(&["a"]);
    let connection = Connection::to(server.clone()).await;
    server.slow.store(usize::MAX >> 20, SeqCst);
    let start = Instant::now();
    let error = connection.tools.refresh(connection.peer()).await;
    assert_eq!(error.unwrap_err().kind(), ErrorKind::Timeout);
    assert_eq!(start.elapsed(), Duration::from_secs(30));
    assert_eq!(connection.names(), ["a"]);
}

/// It was asked thousands of times a second, for ever: each ask led to the next.
#[tokio::test(start_paused = true)]
async fn a_server_that_changes_whenever_it_is_asked_is_asked_once_a_second() {
    for refuses in [false, true] {
        let server = Server::with(&["a"]);
        let connection = Connection::to(server.clone()).await;
        server.refuses.store(refuses, SeqCst);
        server.tells.store(1000, SeqCst);
        let (log, _guard) = Log::begin();
        connection.announce().await;
        sleep(Duration::from_millis(10_500)).await;
        let asked = server.listed.load(SeqCst) - 1;
        assert_eq!(asked, 10, "{refuses}");
        let warned = log.lines().len();
        assert_eq!(warned, if refuses { 10 } else { 0 });
        drop((_guard, connection));
        settle().await;
    }
}

/// A burst that is answered by an error is answered by one, not by one for each.
#[tokio::test(start_paused = true)]
async fn a_burst_that_fails_warns_twice() {
    let server = Server::with(&["a"]);
    let connection = Connection::to(server.clone()).await;
    let (log, _guard) = Log::begin();
    server.refuses.store(true, SeqCst);
    server.slow.store(1000, SeqCst);
    sleep(Duration::from_secs(2)).await;
    for _ in 0..100 {
        connection.announce().await;
    }
    settle().await;
    assert_eq!((server.listed.load(SeqCst), log.lines().len()), (3, 2));
}

/// After a reconnection the old server hangs, and the new one's change came while it did.
#[tokio::test(start_paused = true)]
async fn a_hanging_old_connection_does_not_swallow_a_change_of_the_new_one() {
    let server = Server::with(&["a"]);
    let old = Connection::to(server.clone()).await;
    let fresh = Server::with(&["a", "b"]);
    let new = Connection::sharing(fresh.clone(), old.tools.clone()).await;
    server.slow.store(1 << 30, SeqCst);
    for _ in 0..2 {
        old.announce().await;
        sleep(Duration::from_secs(2)).await;
    }
    new.announce().await;
    settle().await;
    assert_eq!(fresh.listed.load(SeqCst), 1);
    assert_eq!(old.names(), ["a", "b"]);
}

/// It waits for one who asks, and both waits are its 30 s.
#[tokio::test(start_paused = true)]
async fn a_refresh_that_waits_for_another_ask_is_bounded_too() {
    let server = Server::with(&["a"]);
    let connection = Connection::to(server.clone()).await;
    server.slow.store(1 << 30, SeqCst);
    connection.announce().await;
    sleep(Duration::from_secs(10)).await;
    let start = Instant::now();
    let error = connection.tools.refresh(connection.peer()).await;
    assert_eq!(error.unwrap_err().kind(), ErrorKind::Timeout);
    assert_eq!(start.elapsed(), Duration::from_secs(30));
}

/// Its tools are still known, and calls of them fail as calls of a dead server do.
#[tokio::test(start_paused = true)]
async fn a_server_that_dies_during_a_refresh_leaves_the_old_list() {
    let server = Server::with(&["a"]);
    let connection = Connection::to(server.clone()).await;
    let router = mcp::router()
        .server("docs", connection.service(), connection.tools.clone())
        .build()
        .unwrap();
    server.slow.store(5000, SeqCst);
    connection.announce().await;
    sleep(Duration::from_secs(2)).await;
    let Connection {
        server: dies,
        client,
        tools,
    } = connection;
    dies.cancel().await.unwrap();
    settle().await;
    assert_eq!(tools.catalog().len(), 1);
    let error = router.oneshot(ToolCall::new("docs__a")).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.execution(), error.tool()),
        (
            ErrorKind::ConnectionFailed,
            Execution::NotStarted,
            Some("docs__a")
        )
    );
    assert!(tools.refresh(client.peer()).await.is_err());
}

/// Nothing of ours lives on: the server sees that the connection has ended.
#[tokio::test(start_paused = true)]
async fn dropping_everything_ends_everything() {
    let server = Server::with(&["a"]);
    let connection = Connection::to(server.clone()).await;
    let router = mcp::router()
        .server("docs", connection.service(), connection.tools.clone())
        .build()
        .unwrap();
    server.slow.store(5000, SeqCst);
    connection.announce().await;
    sleep(Duration::from_secs(2)).await;
    let Connection {
        server: ends,
        client,
        tools,
    } = connection;
    drop((router, client, tools));
    let ended = tokio::time::timeout(Duration::from_secs(60), ends.waiting());
    ended.await.expect("it goes on").unwrap();
}

/// What a server lists instead of its tools, the first page last.
async fn refused(pages: Vec<rmcp::model::ListToolsResult>) -> (usize, String) {
    let server = Server::with(&["a"]);
    let connection = Connection::to(server.clone()).await;
    *server.pages.lock().unwrap() = pages;
    let refused = connection.tools.refresh(connection.peer()).await;
    let error = refused.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Reported);
    assert_eq!(connection.names(), ["a"]);
    (server.listed.load(SeqCst) - 1, error.message().to_owned())
}

//= https://modelcontextprotocol.io/specification/2026-07-28/server/utilities/pagination#implementation-guidelines
//# Clients MUST treat cursors as opaque tokens:
//# Don't make assumptions about cursor format
//# Don't attempt to parse or modify cursors
//# Don't make any determination based on cursor value other than whether a non-null value was
//# provided (e.g. an empty string is a valid cursor and thus MUST NOT be treated as the end of
//# results)
/// M-8: a cursor that does not advance, one that is always empty, and a circle.
#[tokio::test(start_paused = true)]
async fn a_list_ends_where_its_cursor_repeats() {
    for (cursors, asked) in [
        (["1", "1", "1"], 2),
        (["", "", ""], 2),
        (["1", "2", "1"], 3),
    ] {
        let server = Server::with(&["a"]);
        let connection = Connection::to(server.clone()).await;
        let pages = ["x", "y", "z"]
            .into_iter()
            .zip(cursors)
            .map(|(name, next)| {
                let tool = Tool::new(name, "", Arc::default());
                page(vec![tool], Some(next))
            });
        // The first page last.
        *server.pages.lock().unwrap() = pages.rev().collect();
        let (log, _guard) = Log::begin();
        connection.tools.refresh(connection.peer()).await.unwrap();
        assert_eq!(server.listed.load(SeqCst) - 1, asked, "{cursors:?}");
        assert_eq!(connection.names(), ["x", "y", "z"][..asked], "{cursors:?}");
        let lines = log.lines();
        assert_eq!(lines.len(), 1, "{cursors:?}");
        assert_eq!(lines[0]["message"], "tool.stale_list");
        assert_eq!(lines[0]["server"], "docs");
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_of_too_many_pages_is_refused() {
    let pages = (0..2000).map(|n| page(Vec::new(), Some(&n.to_string())));
    let (asked, why) = refused(pages.collect()).await;
    assert!(why.ends_with("more than 1,000 pages"), "{why}");
    assert_eq!(asked, 1000);
}

#[tokio::test(start_paused = true)]
async fn a_list_of_too_many_bytes_is_refused() {
    let huge = |n: usize| {
        Tool::new(
            format!("t{n}"),
            "d".repeat(1 << 20),
            std::sync::Arc::default(),
        )
    };
    let pages = (0..40).map(|n| page(vec![huge(n)], Some(&n.to_string())));
    let (asked, why) = refused(pages.collect()).await;
    assert!(why.ends_with("larger than 16 MiB"), "{why}");
    assert_eq!(asked, 16);
}
