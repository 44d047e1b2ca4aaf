//! The bounds of messages, connections and bodies, in memory and time.

use std::fs;

use rmcp::{
    RoleClient,
    model::{CallToolRequestParams, CallToolResult},
    service::{RunningService, ServiceError},
};
use serde_json::json;
use tokio::time::timeout;

use crate::{
    kit::{LIMIT, alone},
    servers::Program,
};

const HOSTILE: &str = concat!(
    "hostile=python3 \"",
    env!("CARGO_MANIFEST_DIR"),
    "/tests/gateway/hostile.py\""
);

/// Returns the most memory that the program had at any time, in MiB.
fn peak(program: &Program) -> u64 {
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
