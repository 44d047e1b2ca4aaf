//! Servers that refuse, hang, die.

use std::{
    io::Write,
    sync::{Arc, Mutex, atomic::Ordering::SeqCst},
    time::Duration,
};

use tokio::time::{Instant, sleep};
use tower::ServiceExt;
use tower_toolcall::{ErrorKind, Execution, ToolCall, router::Router};
use tracing_subscriber::util::SubscriberInitExt as _;

use super::server::{Connection, Server, settle};

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn start() -> (Self, tracing::subscriber::DefaultGuard) {
        let log = Self::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt()
            .json()
            .flatten_event(true)
            .with_writer(move || writer.clone())
            .finish();
        (log, subscriber.set_default())
    }

    fn of_ours(&self) -> Vec<serde_json::Value> {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
        lines
            .filter(|line: &serde_json::Value| line["target"] == "tower_toolcall")
            .collect()
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Rule 9: the warning is redacted.
#[tokio::test(start_paused = true)]
async fn a_refresh_that_fails_keeps_the_old_list_and_warns() {
    let server = Server::with(&["a"]);
    let connection = Connection::to(server.clone()).await;
    let (log, _guard) = Log::start();
    server.refuses.store(true, SeqCst);
    server.add("b");
    connection.changed().await;
    assert_eq!(connection.names(), ["a"]);

    let seen = log.of_ours();
    let [line] = &seen[..] else {
        panic!("{seen:?}")
    };
    assert_eq!(line["level"], "WARN");
    assert_eq!(line["message"], "tool.stale_list");
    assert_eq!(line["server"], "docs");
    assert_eq!(line["code"], "UPSTREAM_ERROR");
    assert!(line["error"].as_str().unwrap().contains("no list today"));
    assert!(!line.to_string().contains("hunter2"));

    server.refuses.store(false, SeqCst);
    connection.changed().await;
    assert_eq!(connection.names(), ["a", "b"]);
}

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

/// Its tools are still known, and calls of them fail as calls of a dead server do.
#[tokio::test(start_paused = true)]
async fn a_server_that_dies_during_a_refresh_leaves_the_old_list() {
    let server = Server::with(&["a"]);
    let connection = Connection::to(server.clone()).await;
    let router = Router::mcp()
        .server("docs", connection.service(), connection.tools.clone())
        .build()
        .unwrap();
    server.slow.store(5000, SeqCst);
    connection.announce().await;
    sleep(Duration::from_secs(1)).await;
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
    let router = Router::mcp()
        .server("docs", connection.service(), connection.tools.clone())
        .build()
        .unwrap();
    server.slow.store(5000, SeqCst);
    connection.announce().await;
    sleep(Duration::from_secs(1)).await;
    let Connection {
        server: ends,
        client,
        tools,
    } = connection;
    drop((router, client, tools));
    let ended = tokio::time::timeout(Duration::from_secs(60), ends.waiting());
    ended.await.expect("it goes on").unwrap();
}
