//! A program of strangers against a gateway over real sockets: plain HTTP, JSON-RPC and MCP. They
//! invent names, leave calls no time, hang up, send wrong arguments, and make one tool fail with
//! texts that are meant to trick it. Meanwhile others call tools that work: they are served as if
//! they were alone.
//!
//! Five seconds by default;
//! `STRANGERS_SECS=600 cargo test --release -p whole-stacks --test strangers` takes ten minutes.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]

mod attack;
mod gateway;
mod innocent;

use std::{env, time::Duration};

use serde_json::json;
use tokio::time::sleep;

use self::gateway::Gateway;

fn lasting() -> Duration {
    let set = env::var("STRANGERS_SECS").ok();
    Duration::from_secs(set.map_or(5, |set| set.parse().unwrap()))
}

/// X11, V2 to V6: whatever strangers choose moves their own calls alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_innocent_caller_is_served_as_if_alone() {
    let gateway = Gateway::start(4_000, Duration::from_secs(1)).await;
    let alone = innocent::calls(&gateway, Duration::from_secs(3)).await;
    println!("alone: {alone:?}");

    let strangers = attack::begin(&gateway);
    sleep(Duration::from_secs(1)).await;
    let attacked = innocent::calls(&gateway, lasting()).await;
    println!("under attack: {attacked:?}");
    // A busy machine may need longer for that many.
    let attacks = strangers.end_after(500).await;
    println!("{attacks} attacks");

    assert!(alone.failed.is_empty(), "{:?}", alone.failed);
    assert!(attacked.failed.is_empty(), "{:?}", attacked.failed);
    // The processor is shared with those who attack; a gate or a breaker would cost seconds.
    let most = alone.median * 4 + Duration::from_millis(100);
    assert!(attacked.median <= most, "{:?} > {most:?}", attacked.median);
    assert!(attacked.slowest < alone.slowest * 4 + Duration::from_secs(2));
    assert!(attacked.calls > alone.calls);
    gateway.is_idle().await;
    gateway.is_unmoved();
}

/// A stranger has an eighth of the keys of calls that are made once. That his are used up for a
/// day, in which none is forgotten, is his own loss.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stranger_who_uses_up_his_keys_refuses_nobody_else() {
    const KEYS: usize = 400;
    const SHARE: usize = KEYS / 8;
    let gateway = Gateway::start(KEYS, Duration::from_secs(24 * 3600)).await;
    let client = reqwest::Client::new();
    let url = gateway.url("/tools/search/call");
    let call = async |query: &str| {
        let request = client.post(&url).header("content-type", "application/json");
        let body = json!({ "query": query }).to_string();
        let response = request.body(body).send().await.unwrap();
        response.text().await.unwrap()
    };
    let is_refused = |body: &str| body.contains("OVERLOADED");
    let mut refused = 0;
    for n in 0..3 * SHARE {
        let body = call(&format!("stranger {n}")).await;
        assert_eq!(is_refused(&body), n >= SHARE, "{n}: {body}");
        refused += usize::from(is_refused(&body));
        // Who waits for his turn meanwhile.
        if n % 3 == 0 {
            let body = call("tower").await;
            assert!(body.contains("found tower"), "{n}: {body}");
        }
    }
    assert_eq!(refused, 2 * SHARE);
    gateway.is_idle().await;
}
