//! The bounds of messages, connections and bodies, in memory and time.

use std::{fs, time::Duration};

use rmcp::{
    RoleClient,
    model::{CallToolRequestParams, CallToolResult},
    service::{RunningService, ServiceError},
};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::{Instant, sleep, timeout},
};

use crate::{
    kit::{LIMIT, alone},
    product::folder,
    servers::Program,
};

pub(crate) const HOSTILE: &str = concat!(
    "hostile=python3 \"",
    env!("CARGO_MANIFEST_DIR"),
    "/tests/gateway/hostile.py\""
);

/// Returns the most memory that the program had at any time, in MiB.
pub(crate) fn peak(program: &Program) -> u64 {
    let path = format!("/proc/{}/status", program.child.id().unwrap());
    let status = fs::read_to_string(path).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let peak = peak.unwrap().trim().trim_end_matches(" kB");
    peak.parse::<u64>().unwrap() >> 10
}

type Acted = Result<CallToolResult, ServiceError>;

async fn act(client: &RunningService<RoleClient, ()>, how: &str) -> Acted {
    let arguments = json!({ "how": how, "n": 1 });
    let arguments = arguments.as_object().unwrap().clone();
    let params = CallToolRequestParams::new("hostile__act").with_arguments(arguments);
    let result = timeout(LIMIT, client.call_tool(params)).await;
    result.expect("no answer")
}

/// S-4: a server that sends requests without end, and reads no answer.
#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_floods_requests_loses_its_connection() {
    let _alone = alone().await;
    let mut program = Program::start(&[HOSTILE]);
    let client = program.client().await;
    act(&client, "good").await.unwrap();
    let before = peak(&program);
    let flooded = act(&client, "floods").await.unwrap();
    assert_eq!(flooded.is_error, Some(true), "{flooded:?}");
    let line = program.line("tool.disconnected").await;
    let why = "more than 1000 requests without an answer";
    assert!(line.contains(why), "{line}");
    let grown = peak(&program) - before;
    println!("a flood of requests takes {grown} MiB");
    assert!(grown < 40, "it takes {grown} MiB");
    // The next call has another process.
    let good = async { while act(&client, "good").await.unwrap().is_error == Some(true) {} };
    timeout(LIMIT, good).await.expect("it does not come back");
}

/// S-5: the values of an answer are counted before they are parsed.
#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_of_many_small_values_is_not_parsed() {
    let _alone = alone().await;
    let mut program = Program::start(&[HOSTILE]);
    let client = program.client().await;
    act(&client, "good").await.unwrap();
    let before = peak(&program);
    let error = act(&client, "values").await.unwrap_err().to_string();
    assert!(error.contains("more than 200000 values"), "{error}");
    let grown = peak(&program) - before;
    println!("14 MB of small values take {grown} MiB");
    assert!(grown < 20, "it takes {grown} MiB");
    act(&client, "good").await.unwrap();
}

/// S-8: heads and bodies that never end are given up, and meanwhile take little memory.
#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_never_end_are_given_up() {
    let _alone = alone().await;
    let folder = folder("bounds");
    let file = folder.join("gateway.toml");
    let server = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/gateway/hostile.py");
    let text = format!(
        "head_timeout = 3\nbody_timeout = 2\n[servers.own]\ncommand = ['python3', '{server}']"
    );
    fs::write(&file, text).unwrap();
    let mut command = Program::command();
    command.arg("--config").arg(&file);
    let mut program = Program::of(command);
    let url = program.url().await;
    let at = url.split('/').nth(2).unwrap();
    let before = peak(&program);
    let mut bodies = Vec::new();
    let (head, part) = (
        "POST /rpc HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n",
        "x".repeat(1 << 20),
    );
    for n in 0..300 {
        let mut tcp = TcpStream::connect(at).await.unwrap();
        let body = format!("{head}content-length: 1900000\r\n\r\n{part}");
        // A refused one is not read to its end.
        let all = async { tcp.write_all(body.as_bytes()).await };
        let _ = timeout(Duration::from_millis(if n < 100 { 2000 } else { 5 }), all).await;
        bodies.push(tcp);
    }
    let mut heads = Vec::new();
    // One could be the beginning of HTTP/2.
    for part in [head, "PRI * HTTP", ""] {
        let mut tcp = TcpStream::connect(at).await.unwrap();
        tcp.write_all(part.as_bytes()).await.unwrap();
        heads.push(tcp);
    }
    let since = Instant::now();
    let mut late = Vec::new();
    let first = &mut bodies[0];
    timeout(LIMIT, first.read_to_end(&mut late))
        .await
        .unwrap()
        .unwrap();
    let late = String::from_utf8(late).unwrap();
    assert!(late.starts_with("HTTP/1.1 408 "), "{late}");
    assert!(late.contains("has not ended within 2s"), "{late}");
    for mut tcp in heads {
        let mut given_up = Vec::new();
        let read = timeout(LIMIT, tcp.read_to_end(&mut given_up)).await;
        let _ = read.expect("a head is waited for");
    }
    println!("given up after {:?}", since.elapsed());
    let grown = peak(&program) - before;
    println!("300 bodies take {grown} MiB");
    assert!(grown < 250, "it takes {grown} MiB");
    // All places are free again, although the clients hold their connections.
    let request = reqwest::Client::new().post(url.replace("/mcp", "/tools/own__act/call"));
    let request = request.header("content-type", "application/json");
    let served = async {
        loop {
            let request = request.try_clone().unwrap().body(r#"{"how":"good","n":1}"#);
            let status = request.send().await.unwrap().status();
            if status == 200 {
                return;
            }
            assert_eq!(status, 503);
            sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(LIMIT, served).await.expect("it serves no more");
    drop(bodies);
    fs::remove_dir_all(folder).unwrap();
}
