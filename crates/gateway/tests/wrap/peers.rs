//! Peers that read slowly, or not at all, or are careless.

use std::{process::Stdio, time::Duration};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    process::{Child, Command},
    time::{Instant, sleep, timeout},
};

use crate::kit::{Client, LIMIT, file, own, quiet, text, wrapped};

/// 3,000 calls, and the metrics at the end, while nobody reads stderr; its exit code.
async fn calls_with(stderr: impl FnOnce(&mut Child)) -> Option<i32> {
    let command = wrapped(&[], &quiet());
    let mut program = Command::new(&command[0]);
    program.args(&command[1..]).kill_on_drop(true);
    program
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut program = program.spawn().unwrap();
    stderr(&mut program);
    let mut stdin = program.stdin.take().unwrap();
    let stdout = program.stdout.take().unwrap();
    tokio::spawn(async move {
        for id in 0..3000 {
            let params = json!({ "name": "echo", "arguments": { "message": "x".repeat(100) } });
            let call =
                json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params });
            stdin
                .write_all(format!("{call}\n").as_bytes())
                .await
                .unwrap();
        }
    });
    let mut lines = BufReader::new(stdout).lines();
    let answers = async {
        let mut answers = 0;
        while let Some(line) = lines.next_line().await.unwrap() {
            answers += i32::from(line.contains("xxx"));
        }
        answers
    };
    assert_eq!(timeout(LIMIT, answers).await, Ok(3000));
    timeout(LIMIT, program.wait())
        .await
        .unwrap()
        .unwrap()
        .code()
}

//= https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/stdio
//# The client MAY capture, forward, or ignore the server's `stderr` output and SHOULD NOT assume
//# `stderr` output indicates error conditions.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_go_on_while_nobody_reads_stderr() {
    assert_eq!(calls_with(|_| {}).await, Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_go_on_when_stderr_is_closed() {
    assert_eq!(calls_with(|program| program.stderr = None).await, Some(0));
}

/// Its answer to a ping stands behind what the client has not read.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_is_not_ended_for_a_client_that_does_not_read() {
    let config = file("slow-client.toml", "[timeout]\ndefault = '1s'\n");
    let mut client = Client::wrap(&["--config", &config], &own(&[])).await;
    let before = text(&client.call("pid", json!({})).await).to_owned();
    // 20 MB.
    client.call("flood", json!({})).await;
    client.ask_tool("hang", json!({})).await;
    sleep(Duration::from_secs(13)).await;
    assert_eq!(text(&client.call("pid", json!({})).await), before);
}

/// It is not read while its answers are not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_wait_with_the_server_for_a_client_that_does_not_read() {
    let mut client = Client::wrap(&["--no-trace"], &quiet()).await;
    for _ in 0..40 {
        client.ask_tool("big", json!({})).await;
    }
    let pid = client.child.id().unwrap();
    for _ in 0..50 {
        sleep(Duration::from_millis(100)).await;
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let resident = status.lines().find(|line| line.starts_with("VmRSS:"));
        let kib = resident.and_then(|line| line.split_whitespace().nth(1));
        assert!(kib.unwrap().parse::<u32>().unwrap() < 120 << 10, "{status}");
    }
    for _ in 0..40 {
        client.next().await.unwrap();
    }
}

/// That it writes is no sign that it reads.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_says_much_and_answers_nothing_is_ended() {
    let config = file("babble.toml", "[timeout]\ndefault = '1s'\n");
    let mut client = Client::wrap(&["--config", &config], &own(&[])).await;
    client.ask_tool("babble", json!({})).await;
    let since = Instant::now();
    while !client.said().contains("does not answer a ping") {
        assert!(since.elapsed() < LIMIT, "{}", client.said());
        client.next().await.unwrap();
    }
}

/// As in `echo .. | gateway wrap -- .. | less`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_cut_off_for_a_client_that_reads_late() {
    let mut client = Client::wrap(&[], &own(&[])).await;
    let id = client.ask_tool("big", json!({})).await;
    client.close();
    sleep(Duration::from_secs(4)).await;
    assert!(client.answer_to(id).await.len() > 5_000_000);
    assert_eq!(client.ended().await.code(), Some(0));
}

/// As the TypeScript SDK does, which takes the id for a number.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_with_the_id_as_text_is_passed_on() {
    let mut client = Client::wrap(&[], &own(&[])).await;
    assert_eq!(text(&client.call("loose", json!({})).await), "as a string");
    let id = client.ask("prompts/list", json!({})).await;
    let (_, answer) = client.next().await.unwrap();
    assert_eq!(answer["id"], id.to_string(), "as it came");
}

/// Some write `1.0` for 1, which JavaScript does not see, and a number as the version.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_with_the_id_as_another_number_is_passed_on() {
    let mut client = Client::wrap(&[], &own(&[])).await;
    let params = json!({ "name": "round", "arguments": {} });
    client
        .send(json!({ "id": 1.0, "method": "tools/call", "params": params }))
        .await;
    assert!(client.answer_to(1).await.contains("without a fraction"));
}

//= https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/index#messages
//# JSON-RPC messages MUST be UTF-8 encoded.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_utf_8_is_replaced() {
    let mut client = Client::wrap(&[], &own(&[])).await;
    assert_eq!(text(&client.call("latin", json!({})).await), "\u{fffd}");
}

/// It gives nothing 1.5 s to end that has ended already. A busy machine may delay some of its ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_ends_immediately_when_its_server_has_ended() {
    let mut ends = Vec::new();
    while ends.iter().all(|took| *took > Duration::from_secs(1)) {
        assert!(ends.len() < 10, "{ends:?}");
        let mut client = Client::wrap(&[], &own(&[])).await;
        client.refused("die").await;
        client.until_said("has ended (exit status: 3)").await;
        let since = Instant::now();
        client.close();
        assert_eq!(client.ended().await.code(), Some(3));
        ends.push(since.elapsed());
    }
}

/// Both sides stop reading while they write: the one that is between them does not wait for either.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_asks_too_much_is_told_so() {
    let mut client = Client::wrap(&[], &own(&[])).await;
    let ids: Vec<_> = [
        client.ask_tool("think", json!({})).await,
        client.ask_tool("think", json!({})).await,
    ]
    .into();
    let (_, question) = client.next().await.unwrap();
    assert_eq!(question["id"], 1);
    client.until_said("the id is that of another request").await;
    client
        .send(json!({ "id": 1, "result": { "action": "accept" } }))
        .await;
    let (_, answer) = client.next().await.unwrap();
    let Value::Number(id) = &answer["id"] else {
        panic!("{answer}")
    };
    assert!(ids.contains(&id.as_u64().unwrap()));
}
