//! The MCP conformance suite against a gateway over HTTP. Behind it is a server with the tools that
//! the suite knows by name.
//!
//! What is expected to fail stands in a file for each revision, with the reason. What fails beside
//! it is an error, and so is what passes although it stands there. Another file names checks that
//! keep sentences of the specification. Each has to pass, also where the suite does not count it.

mod fixture;

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
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

async fn keeps_to(revision: &str, modern: bool) {
    let target = Path::new(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../target/mcp-conformance"
    ));
    assert!(
        target.exists(),
        "the suite is not installed: run `tests/run --no-run` once; it puts it under target/"
    );
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
    let expected = file(&format!("{revision}.yaml"));
    let results = target.join(format!("results-{revision}"));
    // Those of an earlier run.
    let _ = fs::remove_dir_all(&results);
    let mut suite = Command::new(target.join("node"));
    suite
        .arg(target.join("node_modules/@modelcontextprotocol/conformance/dist/index.js"))
        .args([
            "server",
            "--url",
            &url,
            "--requirements",
            revision,
            "--expected-failures",
        ])
        .arg(expected)
        .arg("--output-dir")
        .arg(&results)
        .kill_on_drop(true);
    let ended = timeout(Duration::from_secs(120), suite.output()).await;
    let ended = ended.expect("it does not end").unwrap();
    println!("{}", String::from_utf8_lossy(&ended.stdout));
    assert!(
        ended.status.success(),
        "{}",
        String::from_utf8_lossy(&ended.stderr)
    );
    cited_checks_have_passed(revision, &results);
    server.abort();
    let _ = behind.cancel().await;
}

/// Each line of the file is a check, and the sentences that it keeps.
fn cited_checks_have_passed(revision: &str, results: &Path) {
    let mut passed = HashMap::new();
    for scenario in fs::read_dir(results).unwrap() {
        let checks = fs::read(scenario.unwrap().path().join("checks.json")).unwrap();
        for check in serde_json::from_slice::<Vec<Value>>(&checks).unwrap() {
            let name = check["id"].as_str().unwrap().to_owned();
            *passed.entry(name).or_insert(true) &= check["status"] == "SUCCESS";
        }
    }
    let cited = fs::read_to_string(file(&format!("{revision}.checks"))).unwrap();
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
    keeps_to("2025-11-25", false).await;
}

//= https://modelcontextprotocol.io/specification/2026-07-28/basic/index
//# All implementations MUST support the base protocol, versioning, and the message patterns.
/// N2.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_gateway_keeps_to_the_revision_of_2026_07_28() {
    keeps_to("2026-07-28", true).await;
}
