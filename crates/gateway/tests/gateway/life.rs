//! It starts and stops.

use std::{ffi::OsString, fs, path::PathBuf, time::Duration};

use rmcp::{
    ServiceExt as _, model::CallToolRequestParams, transport::StreamableHttpClientTransport,
};
use serde_json::{Value, json};
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep},
};
use tower_toolcall::settings::Settings;
use tower_toolcall_mcp::ERROR_META;

use crate::{
    kit::{LIMIT, Running, alone, beside, demo, in_use, of_servers, rpc},
    upstream::Server,
    wire::{call, session},
};

pub(crate) const LONG: &str = "everything__trigger-long-running-operation";

/// The same call over both protocols; whether each had its answer.
fn long_calls(gateway: &Running, seconds: u64) -> [JoinHandle<bool>; 2] {
    let arguments = json!({ "duration": seconds, "steps": 2 });
    let (url, given) = (gateway.url("/rpc"), arguments.clone());
    let over_rpc = async move {
        let client = reqwest::Client::new();
        let answer = rpc(&client, &url, 1, LONG, &given).await;
        answer.get("result").is_some()
    };
    let url = gateway.url("/mcp");
    let over_mcp = async move {
        let client = ().serve(StreamableHttpClientTransport::from_uri(url)).await.unwrap();
        let arguments = arguments.as_object().unwrap().clone();
        let params = CallToolRequestParams::new(LONG).with_arguments(arguments);
        let answer = client.call_tool(params).await;
        answer.is_ok_and(|result| result.is_error != Some(true))
    };
    [tokio::spawn(over_rpc), tokio::spawn(over_mcp)]
}

async fn until_running(gateway: &Running, calls: u64) {
    until_running_at(&gateway.url("/metrics"), calls).await;
}

/// Waits until so many calls are in flight.
pub(crate) async fn until_running_at(metrics: &str, calls: u64) {
    let since = Instant::now();
    loop {
        let page = reqwest::get(metrics).await.unwrap();
        let page = page.text().await.unwrap();
        let in_flight = page.lines().filter(|l| l.starts_with("tool_in_flight{"));
        let running = in_flight.filter_map(|l| l.rsplit_once(' ')?.1.parse::<f64>().ok());
        if running.sum::<f64>() == calls as f64 {
            return;
        }
        assert!(since.elapsed() < LIMIT, "{page}");
        sleep(Duration::from_millis(20)).await;
    }
}

async fn health(gateway: &Running) -> (u16, Value) {
    let answer = reqwest::get(gateway.url("/health")).await.unwrap();
    let status = answer.status().as_u16();
    (
        status,
        serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap(),
    )
}

/// N2: calls in flight end with their answers, over both protocols; new ones are turned away; then
/// it is over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_in_flight_have_their_answers_before_it_stops() {
    let _beside = beside().await;
    let gateway = Running::start(Settings::gateway()).await;
    let (status, servers) = health(&gateway).await;
    assert_eq!((status, &servers["status"]), (200, &json!("ok")));
    assert_eq!(servers["servers"].as_array().unwrap().len(), 2, "{servers}");

    let calls = long_calls(&gateway, 3);
    until_running(&gateway, 2).await;
    gateway.stop();
    while health(&gateway).await.0 != 503 {}
    turns_away(&gateway).await;
    for call in calls {
        assert!(call.await.unwrap(), "an answer is lost");
    }
    assert!(gateway.ended().await.is_empty());
}

/// S-1: bodies in flight take memory, so calls beyond the bound are refused before theirs is read.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_beyond_the_bound_are_refused() {
    let _beside = beside().await;
    let mut gateway = demo(Settings::gateway()).await;
    gateway.options.calls = 2;
    let gateway = Running::serve(gateway).await;
    let calls = long_calls(&gateway, 3);
    until_running(&gateway, 2).await;
    let client = reqwest::Client::new();
    for path in ["/rpc", "/mcp", "/tools/count_words/call"] {
        let late = client.post(gateway.url(path)).send().await.unwrap();
        assert_eq!(late.status(), 503, "{path}");
        assert_eq!(late.headers()["retry-after"], "1");
    }
    assert_eq!(health(&gateway).await.0, 200);
    for call in calls {
        assert!(call.await.unwrap(), "an answer is lost");
    }
    let (url, text) = (gateway.url("/rpc"), json!({ "text": "a b" }));
    let next = rpc(&client, &url, 1, "count_words", &text).await;
    assert_eq!(next["result"]["structuredContent"]["words"], 2);
    gateway.stopped().await;
}

/// New calls are refused, over each protocol in its own words.
async fn turns_away(gateway: &Running) {
    let client = reqwest::Client::new();
    let late = rpc(&client, &gateway.url("/rpc"), 1, "count_words", &json!({})).await;
    assert_eq!(late["error"]["data"]["code"], "SERVER_CLOSING", "{late}");
    let late = client.post(gateway.url("/tools/count_words/call"));
    let late = late.header("content-type", "application/json").send().await;
    assert_eq!(late.unwrap().status(), 503);
    let url = gateway.url("/mcp");
    let session = session(&client, &url).await;
    let late = call(&client, &url, &session, 1, "count_words", &json!({})).await;
    assert_eq!(late.len(), 1);
    let error = &late[0]["result"]["_meta"][ERROR_META];
    assert_eq!(error["code"], "SERVER_CLOSING", "{late:?}");
}

/// One of many calls: how long it takes, and what answers there were.
type Asked = JoinHandle<Vec<(u64, Value)>>;

/// 50 calls, by turns of so many seconds, over JSON-RPC, one by one and in a batch, and over MCP in
/// five sessions.
async fn fifty_calls(gateway: &Running, seconds: [u64; 2]) -> Vec<Asked> {
    let client = reqwest::Client::new();
    let takes = move |id: u64| seconds[id as usize % 2];
    let arguments = move |id| json!({ "duration": takes(id), "steps": 2 });
    let mut asked = Vec::new();
    for id in 0..20 {
        let (client, url) = (client.clone(), gateway.url("/rpc"));
        asked.push(tokio::spawn(async move {
            let answer = rpc(&client, &url, id, LONG, &arguments(id)).await;
            vec![(takes(id), answer)]
        }));
    }
    let (rpcs, url) = (client.clone(), gateway.url("/rpc"));
    asked.push(tokio::spawn(async move {
        let batch = (0..5).map(|id| {
            let params = json!({ "name": LONG, "arguments": arguments(id) });
            json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params })
        });
        let batch = Value::from_iter(batch).to_string();
        let request = rpcs.post(url).header("content-type", "application/json");
        let answer = request.body(batch).send().await.unwrap();
        let answers: Vec<Value> = serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap();
        let answers = answers.into_iter();
        answers
            .map(|a| (takes(a["id"].as_u64().unwrap()), a))
            .collect()
    }));
    for _ in 0..5 {
        let url = gateway.url("/mcp");
        let session = session(&client, &url).await;
        for id in 1..=5 {
            let (client, url, session) = (client.clone(), url.clone(), session.clone());
            asked.push(tokio::spawn(async move {
                let answers = call(&client, &url, &session, id, LONG, &arguments(id)).await;
                answers.into_iter().map(|a| (takes(id), a)).collect()
            }));
        }
    }
    asked
}

/// W14: in the middle of 50 calls: those that end in their time have their results, the others are
/// cut short with an answer that says so; each has one answer, no new one runs, and no child is
/// left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_of_fifty_calls_has_one_answer_when_it_stops() {
    let _alone = alone().await;
    let mut gateway = demo(Settings::gateway()).await;
    let grace = Duration::from_secs(6);
    gateway.options.grace = grace.as_secs();
    let gateway = Running::serve(gateway).await;
    let (quick, slow) = (4, 50);
    let asked = fifty_calls(&gateway, [quick, slow]).await;
    until_running(&gateway, 50).await;
    let since = Instant::now();
    gateway.stop();
    while health(&gateway).await.0 != 503 {}
    turns_away(&gateway).await;

    let mut answers = Vec::new();
    for asked in asked {
        answers.extend(asked.await.unwrap());
    }
    assert_eq!(answers.len(), 50, "one answer each");
    let mut cut = 0;
    for (takes, answer) in &answers {
        let result = &answer["result"];
        let of_mcp = &result["_meta"][ERROR_META]["code"];
        let code = [of_mcp, &answer["error"]["data"]["code"]];
        let is_cut = code.contains(&&json!("SERVER_CLOSING"));
        assert_eq!(is_cut, *takes == slow, "{answer}");
        assert_eq!(
            !is_cut,
            result.is_object() && result["isError"] != true,
            "{answer}"
        );
        cut += usize::from(is_cut);
    }
    let told = gateway.ended().await;
    let took = since.elapsed();
    println!("{cut} of 50 calls cut short, closed after {took:?}");
    assert_eq!(told, vec![LONG; cut]);
    assert!(took >= grace, "they had {took:?} only");
    // The slow ones would take 50 s.
    assert!(took < Duration::from_secs(slow), "it took {took:?}");
    let since = Instant::now();
    while !in_use().children.is_empty() {
        assert!(since.elapsed() < LIMIT, "a child is left over");
        sleep(Duration::from_millis(50)).await;
    }
}

/// Who says so twice does not want to wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_signal_cuts_short_at_once() {
    let _beside = beside().await;
    let gateway = Running::start(Settings::gateway()).await;
    let calls = long_calls(&gateway, 40);
    until_running(&gateway, 2).await;
    let since = Instant::now();
    gateway.stop();
    gateway.stop();
    assert_eq!(gateway.ended().await, [LONG, LONG]);
    let took = since.elapsed();
    // The grace period is 10 s.
    assert!(took < Duration::from_secs(10), "it took {took:?}");
    for call in calls {
        assert!(!call.await.unwrap());
    }
}

/// X8: one that cannot be started at first is there as soon as it can.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_may_come_late() {
    let _beside = beside().await;
    let flag = std::env::temp_dir().join(format!("gateway-late-{}", std::process::id()));
    let _ = fs::remove_file(&flag);
    let script = OsString::from("test -e \"$0\" && exec \"$@\"");
    let late = ["sh".into(), "-c".into(), script, flag.clone().into()];
    let mut servers = Server::installed().unwrap();
    servers[0].words.splice(0..0, late);
    let gateway = of_servers(Settings::gateway(), servers).await;
    let gateway = Running::with_any(gateway).await;
    let since = Instant::now();
    while !gateway.upstream("time").connection().is_connected() {
        assert!(since.elapsed() < 5 * LIMIT, "the other one does not come");
        sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(health(&gateway).await.1["status"], "degraded");

    fs::write(&flag, "").unwrap();
    let since = Instant::now();
    let client = reqwest::Client::new();
    let hello = json!({ "message": "hello" });
    while !rpc(&client, &gateway.url("/rpc"), 1, "everything__echo", &hello).await["result"]
        .is_object()
    {
        assert!(since.elapsed() < LIMIT, "it does not come");
        sleep(Duration::from_millis(50)).await;
    }
    fs::remove_file(&flag).unwrap();
    assert_eq!(health(&gateway).await.1["status"], "ok");
    gateway.stopped().await;
}

/// V5: three slow calls of one tool stop none of the server's other tools, and each is told that it
/// timed out.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_tool_stops_no_other_tool_of_its_server() {
    let _beside = beside().await;
    let mut settings = Settings::gateway();
    settings.timeout.default = Duration::from_secs(5);
    let gateway = Running::start(settings).await;
    let (client, url) = (reqwest::Client::new(), gateway.url("/rpc"));
    let slow = || {
        let (client, url) = (client.clone(), url.clone());
        let arguments = json!({ "duration": 30, "steps": 2 });
        tokio::spawn(async move { rpc(&client, &url, 1, LONG, &arguments).await })
    };
    for call in [slow(), slow(), slow()] {
        assert_eq!(call.await.unwrap()["error"]["data"]["code"], "TOOL_TIMEOUT");
    }
    let hello = json!({ "message": "hello" });
    let answer = rpc(&client, &url, 2, "everything__echo", &hello).await;
    assert!(answer["result"].is_object(), "{answer}");
    gateway.stopped().await;
}

/// A terminal's Ctrl-C goes to all programs of the group in front: the servers have to outlive it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_servers_are_in_groups_of_their_own() {
    let _beside = beside().await;
    let gateway = Running::start(Settings::gateway()).await;
    for server in &gateway.upstreams {
        let pid = server.process_id().unwrap();
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        // `pid (name) state parent group ...`, where the name may be anything.
        let group = stat.rsplit_once(") ").unwrap().1.split(' ').nth(2).unwrap();
        assert_eq!(group, pid.to_string(), "{stat}");
    }
    gateway.stopped().await;
}

/// M11: no call waits until the client has acknowledged the first part of the answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_are_not_held_back_for_an_acknowledgement() {
    let _beside = beside().await;
    let gateway = Running::start(Settings::gateway()).await;
    let url = gateway.url("/mcp");
    let client = reqwest::Client::new();
    let id = session(&client, &url).await;
    let arguments = json!({ "text": "one two" });
    // A client acknowledges after 40 ms, and all but a few calls would wait for that in each round.
    // A busy machine delays the calls of some rounds as well.
    let mut quick = 0;
    for round in 0..100 {
        let mut slow = 0;
        for n in round * 30..round * 30 + 30 {
            let since = Instant::now();
            let answers = call(&client, &url, &id, n, "count_words", &arguments).await;
            assert_eq!(answers[0]["result"]["structuredContent"]["words"], 2);
            slow += u32::from(since.elapsed() > Duration::from_millis(38));
        }
        // In the first round acknowledgements come immediately.
        quick += u32::from(round > 0 && slow < 12);
        if quick == 3 {
            return gateway.stopped().await;
        }
    }
    panic!("{quick} of 100 rounds are quick");
}

/// M11: no program and no page shows a listener whose answers are held back.
#[test]
fn every_listener_of_examples_and_docs_sends_immediately() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../");
    let mut listeners = 0;
    for folder in ["examples", "src", "crates"] {
        let (mut folders, mut files) = (vec![PathBuf::from(format!("{root}{folder}"))], 0);
        while let Some(path) = folders.pop() {
            if path.is_dir() {
                let inner = fs::read_dir(path).unwrap();
                let inner = inner.map(|entry| entry.unwrap().path());
                folders.extend(inner.filter(|path| !path.ends_with("tests")));
                continue;
            }
            files += 1;
            let text = fs::read_to_string(&path).unwrap_or_default();
            let serves = |way: &&str| text.contains(*way);
            if ["axum::serve(", "serve_connection(", "serve_with_incoming("]
                .iter()
                .any(serves)
            {
                listeners += 1;
                assert!(text.contains("nodelay("), "{}", path.display());
            }
        }
        assert!(files > 20, "{folder}: {files}");
    }
    assert!(listeners > 10, "{listeners}");
}
