//! The MCP conformance suite against a gateway over HTTP, and against the client of servers. Behind
//! the gateway is a server with the tools that the suite knows by name.
//!
//! What is expected to fail stands in a file for each revision, with the reason. What fails beside
//! it is an error, and so is what passes although it stands there. Another file names checks that
//! keep sentences of the specification. Each has to pass, also where the suite does not count it.

mod client;
mod fixture;

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use rmcp::{ClientServiceExt as _, ServiceExt as _, transport::StreamableHttpServerConfig};
use serde_json::Value;
use tokio::{process::Command, time::timeout};
use tower::ServiceBuilder;
use tower_toolcall::{ServiceBuilderExt as _, redact::Rules, retry::RetryPolicy};
use tower_toolcall_mcp::{GatewayHandler, McpNotifications, McpService};

use self::fixture::Fixture;
use crate::gateway::kit::{discover, http_with, stream};

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/mcp/gateway/conformance/{name}"))
}

/// Runs the suite for a role in a revision.
async fn suite(role: &str, revision: &str, arguments: &[&str]) {
    let target = target();
    let results = target.join(format!("results-{role}-{revision}"));
    // Those of an earlier run.
    let _ = fs::remove_dir_all(&results);
    let mut suite = Command::new(target.join("node"));
    suite
        .arg(target.join("node_modules/@modelcontextprotocol/conformance/dist/index.js"))
        .arg(role)
        .args(arguments)
        .args(["--requirements", revision, "--expected-failures"])
        .arg(file(&format!("{revision}.yaml")))
        .arg("--output-dir")
        .arg(&results)
        .kill_on_drop(true);
    let ended = timeout(Duration::from_secs(300), suite.output()).await;
    let ended = ended.expect("it does not end").unwrap();
    println!("{}", String::from_utf8_lossy(&ended.stdout));
    assert!(
        ended.status.success(),
        "{}",
        String::from_utf8_lossy(&ended.stderr)
    );
    cited_checks_have_passed(&format!("{role}-{revision}"), &results);
}

fn target() -> &'static Path {
    let target = Path::new(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../target/mcp-conformance"
    ));
    assert!(
        target.exists(),
        "the suite is not installed: run `tests/run --no-run` once; it puts it under target/"
    );
    target
}

async fn gateway_keeps_to(revision: &str, modern: bool) {
    let tools = McpNotifications::new();
    let ours = stream(Fixture);
    let behind = match modern {
        true => tools.clone().serve_with_lifecycle(ours, discover()).await,
        false => tools.clone().serve(ours).await,
    };
    let behind = behind.unwrap();
    let leaf = McpService::new(behind.peer().clone()).with_progress(tools.progress().clone());
    let stack = ServiceBuilder::new()
        .tool_sanitize(Rules::new())
        .tool_trace()
        .tool_deadline(Duration::from_secs(20))
        .tool_retry(RetryPolicy::new())
        .tool_rate_limit()
        .tool_circuit_breaker()
        .tool_timeout(Duration::from_secs(10))
        .tool_catch_panic()
        .service(leaf);
    // The bare names of the suite, where a router has them behind the name of their server.
    let handler = GatewayHandler::new(stack, fixture::tools);
    let (url, server) = http_with(handler, StreamableHttpServerConfig::default()).await;
    suite("server", revision, &["--url", &url]).await;
    server.abort();
    let _ = behind.cancel().await;
}

async fn client_keeps_to(revision: &str) {
    let played = client::Played::default();
    let port = client::listen(Arc::clone(&played)).await;
    // A shell runs it.
    let command = format!("bash '{}' {port}", file("client.sh").display());
    suite(
        "client",
        revision,
        &["--command", &command, "--timeout", "120000"],
    )
    .await;
    let mut played = std::mem::take(&mut *played.lock().unwrap());
    // Those expect failures.
    played.retain(|scenario, _| !scenario.starts_with("auth/"));
    let is_played = |error: &Option<String>| error.is_none();
    assert!(played.values().all(is_played), "{played:#?}");
}

/// Each line of the file is a check, and the sentences that it keeps.
fn cited_checks_have_passed(checks: &str, results: &Path) {
    let mut passed = HashMap::new();
    for scenario in fs::read_dir(results).unwrap() {
        // Those of a group of scenarios are in a folder of their own, and none is cited.
        let Ok(checks) = fs::read(scenario.unwrap().path().join("checks.json")) else {
            continue;
        };
        for check in serde_json::from_slice::<Vec<Value>>(&checks).unwrap() {
            let name = check["id"].as_str().unwrap().to_owned();
            *passed.entry(name).or_insert(true) &= check["status"] == "SUCCESS";
        }
    }
    let cited = fs::read_to_string(file(&format!("{checks}.checks"))).unwrap();
    for line in cited.lines().filter(|line| !line.starts_with('#')) {
        let (name, _) = line.split_once(": ").unwrap();
        assert_eq!(passed.get(name), Some(&true), "{line}");
    }
}

//= https://modelcontextprotocol.io/specification/2025-11-25/basic/index
//# All implementations MUST support the base protocol and lifecycle management components.
/// N2.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_gateway_keeps_to_the_revision_of_2025_11_25() {
    gateway_keeps_to("2025-11-25", false).await;
}

//= https://modelcontextprotocol.io/specification/2026-07-28/basic/index
//# All implementations MUST support the base protocol, versioning, and the message patterns.
/// N2.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_gateway_keeps_to_the_revision_of_2026_07_28() {
    gateway_keeps_to("2026-07-28", true).await;
}

/// Issue 52.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_client_keeps_to_the_revision_of_2025_11_25() {
    client_keeps_to("2025-11-25").await;
}

/// Issue 52.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_client_keeps_to_the_revision_of_2026_07_28() {
    client_keeps_to("2026-07-28").await;
}
