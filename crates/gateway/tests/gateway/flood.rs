//! Clients that begin sessions, and never come back.

use std::{net::SocketAddr, sync::Arc};

use serde_json::json;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    task::JoinSet,
    time::Instant,
};
use tower_toolcall::settings::Settings;

use crate::{
    kill::at_rest,
    kit::{Running, alone},
    wire::{call, initialize, session},
};

const SESSIONS: u32 = 20_000;
const WORKERS: u32 = 8;

/// Begins sessions, as quickly as bytes can be written.
async fn flood(at: SocketAddr, sessions: u32) {
    let mut body = initialize();
    body["jsonrpc"] = "2.0".into();
    let body = body.to_string();
    let request = format!(
        "POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         accept: application/json, text/event-stream\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let request: Arc<str> = request.into();
    let mut workers = JoinSet::new();
    for _ in 0..WORKERS {
        let request = Arc::clone(&request);
        workers.spawn(async move {
            let mut wire = TcpStream::connect(at).await.unwrap();
            let mut answer = Vec::new();
            for _ in 0..sessions / WORKERS {
                answer.clear();
                wire.write_all(request.as_bytes()).await.unwrap();
                while !answer.ends_with(b"\r\n0\r\n\r\n") {
                    assert_ne!(wire.read_buf(&mut answer).await.unwrap(), 0);
                }
                assert!(answer.starts_with(b"HTTP/1.1 200"));
            }
        });
    }
    while let Some(ended) = workers.join_next().await {
        ended.unwrap();
    }
}

/// W14: memory is flat, and who works is not disturbed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_thousand_sessions_take_no_more_than_a_thousand() {
    let _alone = alone().await;
    let gateway = Running::start(Settings::gateway()).await;
    let url = gateway.url("/mcp");
    let client = reqwest::Client::new();
    let works = session(&client, &url).await;
    // All places are taken, and some have changed hands.
    flood(gateway.at, 4000).await;
    // What was replaced ends in tasks of its own.
    let (before, since) = (at_rest().await, Instant::now());
    flood(gateway.at, SESSIONS).await;
    let took = since.elapsed();
    let after = at_rest().await;
    println!("{SESSIONS} sessions in {took:?}\nbefore {before:?}\nafter  {after:?}");

    let echo = json!({ "message": "hello" });
    for session in [works, session(&client, &url).await] {
        let answers = call(&client, &url, &session, 7, "everything__echo", &echo).await;
        assert_eq!(answers.len(), 1);
        assert_eq!(answers[0]["result"]["content"][0]["text"], "Echo: hello");
    }
    // Where there is no limit it is 1,100 MiB.
    let grown = after.resident_kib.saturating_sub(before.resident_kib);
    assert!(grown < 48 << 10, "memory has grown by {grown} KiB");
    assert!(after.tasks < before.tasks + 100, "tasks are left over");
    gateway.stopped().await;
}
