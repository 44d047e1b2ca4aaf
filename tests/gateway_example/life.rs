//! It starts and stops.

use std::{ffi::OsString, fs, time::Duration};

use rmcp::{
    ServiceExt as _, model::CallToolRequestParams, transport::StreamableHttpClientTransport,
};
use serde_json::{Value, json};
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep},
};
use tower_toolcall::settings::Settings;

use crate::{
    gateway::{DRAIN, Gateway},
    kit::{Running, alone, rpc},
    upstream::Program,
};

const LONG: &str = "everything__trigger-long-running-operation";

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
    let since = Instant::now();
    loop {
        let page = reqwest::get(gateway.url("/metrics")).await.unwrap();
        let page = page.text().await.unwrap();
        let in_flight = page.lines().filter(|l| l.starts_with("tool_in_flight{"));
        let running = in_flight.filter_map(|l| l.rsplit_once(' ')?.1.parse::<f64>().ok());
        if running.sum::<f64>() == calls as f64 {
            return;
        }
        assert!(since.elapsed() < Duration::from_secs(20), "{page}");
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

/// N2: calls in flight end with their answers, over both protocols; new ones are turned away; then it is over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_in_flight_have_their_answers_before_it_stops() {
    let _alone = alone().await;
    let mut gateway = Running::start(Settings::gateway()).await;
    let (status, servers) = health(&gateway).await;
    assert_eq!((status, &servers["status"]), (200, &json!("ok")));
    assert_eq!(servers["servers"].as_array().unwrap().len(), 2, "{servers}");

    let calls = long_calls(&gateway, 3);
    until_running(&gateway, 2).await;
    gateway.stop();
    while health(&gateway).await.0 != 503 {}
    let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": { "name": "count_words" } });
    let client = reqwest::Client::new();
    let late = client
        .post(gateway.url("/rpc"))
        .header("content-type", "application/json");
    let late = late.body(call.to_string()).send().await.unwrap();
    assert_eq!(late.status(), 503);
    for call in calls {
        assert!(call.await.unwrap(), "an answer is lost");
    }
    gateway.ended().await;
}

/// It ends in time, whatever still runs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_that_take_too_long_are_cut_off() {
    let _alone = alone().await;
    let mut gateway = Running::start(Settings::gateway()).await;
    let calls = long_calls(&gateway, 40);
    until_running(&gateway, 2).await;
    let since = Instant::now();
    gateway.stop();
    gateway.ended().await;
    let took = since.elapsed();
    assert!(took >= DRAIN, "they had {took:?} only");
    assert!(took < DRAIN + Duration::from_secs(5), "it took {took:?}");
    calls.iter().for_each(JoinHandle::abort);
}

/// X8: one that cannot be started at first is there as soon as it can.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_may_come_late() {
    let _alone = alone().await;
    let flag = std::env::temp_dir().join(format!("gateway-late-{}", std::process::id()));
    let _ = fs::remove_file(&flag);
    let mut program = Program::everything().unwrap();
    let script = OsString::from("test -e \"$0\" && exec node \"$@\"");
    let arguments = ["-c".into(), script, flag.clone().into_os_string()];
    program.file = "sh";
    program.arguments.splice(0..0, arguments);
    let settings = Settings::gateway();
    let gateway = Gateway::of(settings, program, Program::time().unwrap()).await;
    let gateway = Running::serve(gateway.unwrap()).await;
    assert_eq!(health(&gateway).await.1["status"], "degraded");

    fs::write(&flag, "").unwrap();
    let since = Instant::now();
    let client = reqwest::Client::new();
    let hello = json!({ "message": "hello" });
    while !rpc(&client, &gateway.url("/rpc"), 1, "everything__echo", &hello).await["result"]
        .is_object()
    {
        assert!(
            since.elapsed() < Duration::from_secs(30),
            "it does not come"
        );
        sleep(Duration::from_millis(50)).await;
    }
    fs::remove_file(&flag).unwrap();
    assert_eq!(health(&gateway).await.1["status"], "ok");
    gateway.stopped().await;
}

/// V5: three slow calls of one tool stop none of the server's other tools, and each is told that it timed out.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_tool_stops_no_other_tool_of_its_server() {
    let _alone = alone().await;
    let mut settings = Settings::gateway();
    settings.timeout.default = Duration::from_secs(1);
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
    let _alone = alone().await;
    let gateway = Running::start(Settings::gateway()).await;
    for server in &gateway.upstreams {
        let stat = fs::read_to_string(format!("/proc/{}/stat", server.pid())).unwrap();
        // `pid (name) state parent group ...`, where the name may be anything.
        let group = stat.rsplit_once(") ").unwrap().1.split(' ').nth(2).unwrap();
        assert_eq!(group, server.pid().to_string(), "{stat}");
    }
    gateway.stopped().await;
}
