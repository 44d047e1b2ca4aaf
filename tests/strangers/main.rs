//! A program of strangers against a gateway over real sockets: plain HTTP, JSON-RPC and MCP. They invent names, leave calls no
//! time, hang up, send wrong arguments, and make one tool fail with texts that are meant to trick it. Meanwhile others call tools
//! that work: they are served as if they were alone.
//!
//! Ten seconds by default; `STRANGERS_SECS=600 cargo test --release --all-features --test strangers` takes ten minutes.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]

mod attack;
mod gateway;
mod innocent;

use std::{env, time::Duration};

use tokio::time::sleep;

use self::gateway::Gateway;

fn lasting() -> Duration {
    let set = env::var("STRANGERS_SECS").ok();
    Duration::from_secs(set.map_or(10, |set| set.parse().unwrap()))
}

/// X11, V2 to V6: whatever strangers choose moves their own calls alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_innocent_caller_is_served_as_if_alone() {
    let gateway = Gateway::start().await;
    let alone = innocent::calls(&gateway, Duration::from_secs(3)).await;
    println!("alone: {alone:?}");

    let strangers = attack::begin(&gateway);
    sleep(Duration::from_secs(1)).await;
    let attacked = innocent::calls(&gateway, lasting()).await;
    println!("under attack: {attacked:?}");
    let attacks = strangers.end().await;
    println!("{attacks} attacks");

    assert!(attacks > 500, "{attacks} attacks");
    assert!(alone.failed.is_empty(), "{:?}", alone.failed);
    assert!(attacked.failed.is_empty(), "{:?}", attacked.failed);
    // The processor is shared with those who attack; a gate or a breaker would cost seconds.
    let most = alone.median * 4 + Duration::from_millis(100);
    assert!(attacked.median <= most, "{:?} > {most:?}", attacked.median);
    assert!(attacked.slowest < Duration::from_secs(2));
    assert!(attacked.calls > alone.calls);
    gateway.is_idle().await;
    gateway.is_unmoved();
}
