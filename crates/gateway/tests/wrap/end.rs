//! How it ends: no process is left.

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::kit::{Client, LIMIT, file, is_alive, own, signal, text, wrapped};

/// Without other work 3 s, of the 4 s that clients' SDKs wait. Answers would have 10 s.
const ENDS: Duration = Duration::from_secs(9);

async fn until_dead(pid: &str) {
    let since = Instant::now();
    while is_alive(pid) {
        assert!(since.elapsed() < LIMIT, "{pid} is left over");
        sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn its_exit_code_is_the_servers() {
    let mut client = Client::wrap(&[], &own(&[])).await;
    client.close();
    assert_eq!(client.ended().await.code(), Some(0));
}

//= https://modelcontextprotocol.io/specification/2025-11-25/basic/lifecycle#stdio
//# For the stdio transport, the client SHOULD initiate shutdown by:
//# Sending `SIGKILL` if the server does not exit within a reasonable time after `SIGTERM`
//= https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/stdio#shutdown
//# The client SHOULD initiate shutdown by:
//# If the server does not exit within a reasonable time, forcibly terminating the process using the
//# mechanism appropriate for the operating system.
/// Neither a closed stdin nor SIGTERM ends this one, which is behind a shell. Clients' SDKs wait 2
/// s, and 2 s more after SIGTERM.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deaf_server_is_killed_with_all_that_it_has_started() {
    let server = own(&["--stays"]).join(" ");
    let shell = ["sh".to_owned(), "-c".to_owned(), format!("{server}; true")];
    let ends = [None, Some("-TERM"), Some("-INT"), Some("-HUP")].map(async |by| {
        let mut client = Client::wrap(&[], &shell).await;
        let pid = text(&client.call("pid", json!({})).await).to_owned();
        assert_eq!(text(&client.call("deaf", json!({})).await), "deaf");
        let since = Instant::now();
        match by {
            None => client.close(),
            Some(name) => signal(name, client.child.id().unwrap()),
        }
        client.ended().await;
        let took = since.elapsed();
        assert!(took < ENDS, "{by:?}: {took:?}");
        until_dead(&pid).await;
    });
    join_all(ends).await;
}

/// The shell that is in front of it ends at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_behind_a_shell_has_its_time_to_end() {
    let server = own(&["--tidy", "--stays"]).join(" ");
    let shell = ["sh".to_owned(), "-c".to_owned(), format!("{server}; true")];
    let mut client = Client::wrap(&[], &shell).await;
    let since = Instant::now();
    signal("-TERM", client.child.id().unwrap());
    client.ended().await;
    // On a busy machine 1.5 s may not be enough to tidy up. They must have been granted.
    if since.elapsed() < Duration::from_millis(1500) {
        client.until_said("tidied up").await;
    }
}

/// As a launcher that was killed, and the server it has started goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_has_outlived_its_parent_is_killed() {
    let server = own(&["--deaf", "--stays"]).join(" ");
    let script = format!("exec 3<&0; {server} <&3 & exit 0");
    for by in [None, Some("-TERM")] {
        let shell = ["sh".to_owned(), "-c".to_owned(), script.clone()];
        let mut client = Client::wrap(&[], &shell).await;
        let pid = text(&client.call("pid", json!({})).await).to_owned();
        match by {
            None => client.close(),
            Some(name) => signal(name, client.child.id().unwrap()),
        }
        client.ended().await;
        until_dead(&pid).await;
    }
}

//= https://modelcontextprotocol.io/specification/2025-11-25/basic/lifecycle#stdio
//# For the stdio transport, the client SHOULD initiate shutdown by:
//# First, closing the input stream to the child process (the server)
//# Waiting for the server to exit, or sending `SIGTERM` if the server does not exit within a
//# reasonable time
//= https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/stdio#shutdown
//# The client SHOULD initiate shutdown by:
//# Closing the input stream to the child process (the server).
//# Waiting for the server to exit.
//# Servers SHOULD exit promptly when their standard input is closed or reads return end-of-file.
/// What was asked before the client has closed its end is answered:
/// `printf ... | gateway wrap -- ..` works as without.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_asked_before_the_end_is_answered() {
    let mut client = Client::start(&wrapped(&[], &own(&[])));
    let first = client.ask("initialize", json!({})).await;
    let second = client.ask_tool("echo", json!({ "a": 1 })).await;
    client.close();
    client.answer_to(first).await;
    assert!(client.answer_to(second).await.contains("content"));
    assert_eq!(client.ended().await.code(), Some(0));
}

/// A client that was killed closes its ends; nobody tells anybody.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_is_gone_takes_the_server_along() {
    let mut client = Client::wrap(&[], &own(&["--stays"])).await;
    let pid = text(&client.call("pid", json!({})).await).to_owned();
    client.ask_tool("hang", json!({})).await;
    let mut program = client.leave();
    until_dead(&pid).await;
    let ended = tokio::time::timeout(LIMIT, program.wait()).await;
    assert!(ended.is_ok());
}

/// Nobody can do anything about SIGKILL. The server finds its stdin closed, as it does without
/// `wrap`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_outlives_a_killed_wrap_only_if_it_does_not_read() {
    let mut client = Client::wrap(&[], &own(&[])).await;
    let pid = text(&client.call("pid", json!({})).await).to_owned();
    signal("-KILL", client.child.id().unwrap());
    client.ended().await;
    until_dead(&pid).await;
}

/// It is told to end while it waits for the end of a process, so that another one can be started.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_makes_the_end_no_later() {
    let runs = file("leaves", "");
    let mut client = Client::wrap(&[], &own(&[&runs, "--deaf", "--stays"])).await;
    client.ask_tool("leave", json!({})).await;
    sleep(Duration::from_millis(300)).await;
    client.ask("ping", json!({})).await;
    sleep(Duration::from_millis(100)).await;
    let since = Instant::now();
    signal("-TERM", client.child.id().unwrap());
    client.ended().await;
    let took = since.elapsed();
    assert!(took < ENDS, "{took:?}");
    assert_eq!(std::fs::read_to_string(runs).unwrap(), ".");
}
