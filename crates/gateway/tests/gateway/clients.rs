//! Unmodified clients of third parties.

use std::{collections::HashMap, process::Stdio};

use serde_json::{Value, json};
use tokio::{process::Command, time::timeout};
use tower_toolcall::settings::Settings;

use crate::{
    kit::{LIMIT, Running, beside},
    upstream::installed,
};

/// Runs a client to its end; what it saw, by step.
async fn run(command: &mut Command) -> HashMap<String, Value> {
    let child = command.stdin(Stdio::null()).kill_on_drop(true).output();
    let output = timeout(2 * LIMIT, child).await.expect("the client hangs");
    let output = output.unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}\n{said}");
    let steps = text.lines().map(|line| {
        let step: Value = serde_json::from_str(line).unwrap();
        (step["step"].as_str().unwrap().to_owned(), step)
    });
    steps.collect()
}

async fn python(gateway: &Running, mode: &str) -> HashMap<String, Value> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/gateway/client.py");
    let mut command = Command::new("python3");
    command.env("PYTHONPATH", installed("mcp-servers-python").unwrap());
    run(command.args([script, &gateway.url("/mcp"), mode])).await
}

async fn node(gateway: &Running) -> HashMap<String, Value> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/gateway/client.mjs");
    let sdk = installed("mcp-servers/node_modules/@modelcontextprotocol/sdk").unwrap();
    let mut command = Command::new("node");
    run(command.arg(script).arg(sdk).arg(gateway.url("/mcp"))).await
}

/// X9: tools of all servers, errors as MCP has them, progress, cancellation.
fn check(saw: &HashMap<String, Value>) {
    println!("{saw:#?}");
    let names = saw["tools"]["names"].as_array().unwrap();
    for name in ["count_words", "everything__echo", "time__convert_time"] {
        assert!(names.contains(&json!(name)), "no {name} in {names:?}");
    }
    assert_eq!(
        saw["npm"]["result"]["content"],
        json!([{ "type": "text", "text": "Echo: hello" }])
    );
    let time = saw["pypi"]["result"]["content"][0]["text"]
        .as_str()
        .unwrap();
    assert!(time.contains("Europe/Oslo"), "{time}");
    assert_eq!(
        saw["local"]["result"]["structuredContent"],
        json!({ "words": 3 })
    );

    assert_eq!(saw["unknown"]["code"], -32602);
    let said = saw["unknown"]["message"].as_str().unwrap();
    assert!(said.contains("Did you mean 'everything__echo'"), "{said}");
    for step in ["bad arguments", "bad local arguments"] {
        assert_eq!(saw[step]["result"]["isError"], true, "{step}");
    }

    assert_ne!(saw["long"]["result"]["isError"], true);
    let reports = saw["progress"]["reports"].as_array().unwrap();
    assert!(!reports.is_empty(), "no progress");
    let progress = |report: &Value| report[0].as_f64().unwrap();
    assert!(
        reports.is_sorted_by(|a, b| progress(a) < progress(b)),
        "{reports:?}"
    );
    assert_eq!(
        saw["after"]["result"]["content"][0]["text"],
        "Echo: still here"
    );
}

//= https://modelcontextprotocol.io/specification/2025-11-25/basic/lifecycle#version-negotiation
//# If the server supports the requested protocol version, it MUST respond with the same version.
//= https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#custom-transports
//# Implementers who choose to support custom transports MUST ensure they preserve the JSON-RPC
//# message format and lifecycle requirements defined by MCP.
//= https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/index#messages
//# A binding MUST deliver client-sent requests and notifications to the server, and server-sent
//# responses and notifications to the client.
//= https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/index#custom-transports
//# Implementers who choose to support custom transports MUST preserve the JSON-RPC message format,
//# the message patterns, and the per-request metadata model.
//= https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/streamable-http
//# The server MUST provide a single HTTP endpoint path (hereafter referred to as the MCP endpoint)
//# that supports POST.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn third_parties_clients_work_with_it() {
    let _beside = beside().await;
    let gateway = Running::start(Settings::gateway()).await;
    let newest = python(&gateway, "auto").await;
    assert_eq!(newest["connected"]["version"], "2026-07-28");
    check(&newest);
    let legacy = python(&gateway, "legacy").await;
    assert_eq!(legacy["connected"]["version"], "2025-11-25");
    check(&legacy);
    let npm = node(&gateway).await;
    check(&npm);
    gateway.stopped().await;
}
