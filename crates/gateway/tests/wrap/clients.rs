//! Unmodified clients of third parties, in front of third parties' servers: they see the same with
//! `wrap` in their configuration and without.

use std::process::Stdio;

use futures_util::future::join_all;
use serde_json::Value;
use tokio::{process::Command, time::timeout};

use crate::kit::{LIMIT, everything, installed, time, wrapped};

async fn run(client: &[String], server: &[String]) -> Vec<Value> {
    let mut command = Command::new(&client[0]);
    command.args(&client[1..]).args(server);
    command.env("PYTHONPATH", installed("mcp-servers-python"));
    let output = command.stdin(Stdio::null()).kill_on_drop(true).output();
    let output = timeout(2 * LIMIT, output).await;
    let output = output.expect("the client hangs").unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}\n{said}");
    let lines = text.lines().map(serde_json::from_str);
    lines.collect::<Result<_, _>>().unwrap()
}

fn python(mode: &str) -> Vec<String> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/wrap/client.py");
    ["python3", script, mode].map(str::to_owned).into()
}

fn node() -> Vec<String> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/wrap/client.mjs");
    let sdk = installed("mcp-servers/node_modules/@modelcontextprotocol/sdk");
    vec!["node".into(), script.into(), sdk]
}

/// Part 4 of issue 27: npm's and PyPI's servers under npm's and PyPI's clients.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_see_no_difference() {
    for (name, client, servers) in [
        (
            "PyPI's, 2026-07-28",
            python("auto"),
            vec![everything(), time()],
        ),
        ("PyPI's, 2025-11-25", python("legacy"), vec![time()]),
        ("npm's", node(), vec![everything(), time()]),
    ] {
        let runs = servers.into_iter().map(async |server| {
            let between = wrapped(&[], &server);
            let (bare, between) = tokio::join!(run(&client, &server), run(&client, &between));
            assert_eq!(bare, between, "{name}");
            assert!(bare.len() > 5, "{name}: {bare:?}");
        });
        join_all(runs).await;
    }
}
