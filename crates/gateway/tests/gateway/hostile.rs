//! A hostile server: garbage, lines of 100 MiB, answers twice or without a question, halves of
//! messages, nothing.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep, timeout},
};

use crate::{
    kill::{at_rest, at_rest_with, settings},
    kit::{LIMIT, Running, alone, of_servers, rpc},
    upstream::Server,
};

/// What the server does with a call.
const WAYS: [&str; 13] = [
    "garbage",
    "huge_answer",
    "deep",
    "twice",
    "wrong_id",
    "both",
    "no_result",
    "old",
    "slowly",
    "notifies",
    "asks",
    "silence",
    "good",
];

/// After which it is of no use any more.
const ENDS: [&str; 5] = ["half", "half_silence", "deaf", "mute", "dies"];

const CALLERS: u64 = 8;

/// One answer to a call: a result, or an error of one code.
pub(crate) async fn answer(
    url: &str,
    id: u64,
    tool: &str,
    arguments: &Value,
) -> Result<Value, String> {
    let client = reqwest::Client::new();
    let call = rpc(&client, url, id, tool, arguments);
    let answer = timeout(LIMIT, call).await;
    let answer = answer.unwrap_or_else(|_| panic!("{tool} {arguments} has no answer"));
    assert_eq!(answer["id"], id);
    match (answer.get("result"), answer.get("error")) {
        (Some(result), None) => Ok(result.clone()),
        (None, Some(error)) => Err(error["data"]["code"].as_str().unwrap().to_owned()),
        _ => panic!("neither result nor error: {answer}"),
    }
}

/// Calls in all ways, in an order of their own, for some time; how many had a result.
async fn caller(url: String, caller: u64, until: Instant) -> (u64, u64) {
    let (mut results, mut errors) = (0, 0);
    for n in 0.. {
        if Instant::now() >= until {
            break;
        }
        // Each way beside each other one.
        let nth = (n * (2 * caller + 1) + caller) as usize;
        let way = match (caller, n % 8) {
            (0, 7) => "huge",
            (1, 7) => ENDS[(n / 8) as usize % ENDS.len()],
            _ => WAYS[nth % WAYS.len()],
        };
        let id = caller * 100_000 + n;
        let arguments = json!({ "how": way, "n": id });
        match answer(&url, id, "everything__act", &arguments).await {
            // It is this call's own.
            Ok(result) if matches!(way, "no_result" | "both" | "huge_answer") => {
                assert!(result.is_object() || result.is_array(), "{way}: {result}");
                results += 1;
            }
            Ok(result) => {
                assert_eq!(result["content"][0]["text"], id.to_string(), "{way}");
                results += 1;
            }
            Err(_) => errors += 1,
        }
        sleep(Duration::from_millis(10)).await;
    }
    (results, errors)
}

/// Those who call other tools meanwhile.
async fn innocent(url: String, until: Instant) -> Duration {
    let mut longest = Duration::ZERO;
    for n in 0.. {
        if Instant::now() >= until {
            break;
        }
        let (tool, arguments) = match n % 2 {
            0 => ("time__get_current_time", json!({ "timezone": "UTC" })),
            _ => ("count_words", json!({ "text": "one two three" })),
        };
        let since = Instant::now();
        let answer = answer(&url, n, tool, &arguments).await;
        longest = longest.max(since.elapsed());
        assert!(answer.is_ok(), "{tool}: {answer:?}");
        sleep(Duration::from_millis(20)).await;
    }
    longest
}

async fn load(gateway: &Running, time: Duration) -> (u64, u64, Duration) {
    let until = Instant::now() + time;
    let mut callers = JoinSet::new();
    for n in 0..CALLERS {
        callers.spawn(caller(gateway.url("/rpc"), n, until));
    }
    let innocent = tokio::spawn(innocent(gateway.url("/rpc"), until));
    let (mut results, mut errors) = (0, 0);
    while let Some(ended) = callers.join_next().await {
        let (more_results, more_errors) = ended.unwrap();
        results += more_results;
        errors += more_errors;
    }
    (results, errors, innocent.await.unwrap())
}

/// Calls the server until it answers. Returns how long that took.
async fn back(gateway: &Running) -> Duration {
    let since = Instant::now();
    let url = gateway.url("/rpc");
    for id in 0.. {
        let good = json!({ "how": "good", "n": id });
        if answer(&url, id, "everything__act", &good).await.is_ok() {
            break;
        }
        assert!(since.elapsed() < LIMIT, "it does not come back");
        sleep(Duration::from_millis(50)).await;
    }
    since.elapsed()
}

//= https://modelcontextprotocol.io/specification/2025-11-25/basic/utilities/cancellation#behavior-requirements
//# The sender of the cancellation notification SHOULD ignore any response to the request that
//# arrives afterward
//= https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/cancellation#behavior-requirements
//# The client SHOULD ignore any response to the cancelled request that arrives afterward
//= https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/cancellation#timing-considerations
//# Both parties MUST handle these race conditions gracefully:
/// X8: whatever it sends, each call has one answer in time, and its own; others are served as if it
/// were not there; and as soon as it behaves it is back, with nothing left over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_may_send_whatever_it_likes() {
    let _alone = alone().await;
    // Refusals would be most of what happens.
    let mut settings = settings();
    settings.circuit_breaker.enabled = false;
    settings.health.refusal = false;
    let mut servers = Server::installed().unwrap();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/gateway/hostile.py");
    servers[0].words = vec!["python3".into(), script.into()];
    let gateway = of_servers(settings, servers).await;
    let gateway = Running::serve(gateway).await;
    // Everything has been there once.
    load(&gateway, Duration::from_secs(3)).await;
    back(&gateway).await;
    let before = at_rest().await;
    let (mut results, mut errors, mut longest) = (0, 0, Duration::ZERO);
    // On a busy machine little happens in that time.
    for _ in 0..10 {
        let (answered, failed, took) = load(&gateway, Duration::from_secs(6)).await;
        (results, errors, longest) = (results + answered, errors + failed, longest.max(took));
        if results > 10 && errors > 5 {
            break;
        }
    }
    let back = back(&gateway).await;
    let after = at_rest_with(&before).await;
    println!(
        "{results} results, {errors} errors; the longest call of others took {longest:?}; back after {back:?}"
    );
    println!("before {before:?}\nafter  {after:?}");
    assert!(results > 10 && errors > 5, "too little has happened");
    assert!(after.tasks <= before.tasks, "tasks are left over");
    assert!(after.files <= before.files, "files are left open");
    assert_eq!(after.children.len(), 2);
    assert!(!after.children.contains(&'Z'), "a zombie is left over");
    // rmcp keeps the room of the longest line of a connection.
    let grown = after.resident_kib.saturating_sub(before.resident_kib);
    assert!(grown < 192 << 10, "memory has grown by {grown} KiB");
    gateway.stopped().await;
}
