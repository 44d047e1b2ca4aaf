//! What a server does wrong.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::kit::{Client, everything, file, is_alive, own, refusal, text};

async fn pid(client: &mut Client) -> String {
    text(&client.call("pid", json!({})).await).to_owned()
}

/// Each of its open requests has one answer, which says so; the next one starts it again, and the
/// session goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_dies_is_started_again() {
    let runs = file("runs", "");
    let mut client = Client::wrap(&[], &own(&[&runs])).await;
    client.answer("tools/list", json!({})).await;
    client.ask_tool("think", json!({})).await;
    let (_, question) = client.next().await.unwrap();
    assert_eq!(question["method"], "elicitation/create");
    let read = client.ask("resources/read", json!({ "uri": "x:" })).await;
    let call = client.ask_tool("die", json!({})).await;

    let mut answers = std::collections::BTreeMap::new();
    while answers.len() < 4 {
        let (_, message) = client.next().await.unwrap();
        let about = match &message["id"] {
            Value::Null => message["method"].to_string(),
            id => id.to_string(),
        };
        assert!(answers.insert(about, message).is_none(), "twice");
    }
    let ended = "the MCP server has ended (exit status: 3)";
    let (code, said) = refusal(&answers[&call.to_string()]["result"]);
    assert_eq!(code, "CONNECTION_FAILED");
    assert!(said.contains("has ended (exit status: 3)"), "{said}");
    assert!(
        said.contains("may have run") && said.contains("starts the server again"),
        "{said}"
    );
    let message = answers[&read.to_string()]["error"]["message"]
        .as_str()
        .unwrap();
    assert_eq!(message, format!("{ended} before it answered"));
    // It does not wait for the client's user any more.
    assert_eq!(
        answers[r#""notifications/cancelled""#]["params"],
        json!({ "reason": ended, "requestId": 1 })
    );

    // An answer to the old process is not one for the new one.
    client
        .send(json!({ "id": 1, "result": { "action": "accept" } }))
        .await;
    assert_eq!(
        text(&client.call("echo", json!({ "n": 1 })).await),
        r#"{"n": 1}"#
    );
    client.until_said(r#""arguments":{"n":1}"#).await;
    let said = client.said();
    assert_eq!(
        said.matches(r#"got {"id":101,"jsonrpc":"2.0","method":"initialize""#)
            .count(),
        2,
        "{said}"
    );
    assert_eq!(
        said.matches("notifications/initialized").count(),
        2,
        "{said}"
    );
    assert!(!said.contains(r#""action":"accept""#), "{said}");
    // It has one tool more.
    let changed = |m: &Value| m["method"] == "notifications/tools/list_changed";
    while !client.others.iter().any(changed) {
        let (_, message) = client.next().await.unwrap();
        client.others.push(message);
    }
    assert!(
        client
            .answer("tools/list", json!({}))
            .await
            .contains("tool_1")
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_process_knows_what_the_client_has_asked_for() {
    let mut client = Client::wrap(&[], &own(&[])).await;
    for (method, params) in [
        ("logging/setLevel", json!({ "level": "info" })),
        ("logging/setLevel", json!({ "level": "debug" })),
        ("resources/subscribe", json!({ "uri": "a:" })),
        ("resources/subscribe", json!({ "uri": "b:" })),
        ("resources/unsubscribe", json!({ "uri": "a:" })),
    ] {
        client.answer(method, params).await;
    }
    client.refused("die").await;
    client.call("echo", json!({ "n": 1 })).await;
    client.until_said(r#""arguments":{"n":1}"#).await;
    let said = client.said();
    let again = said
        .lines()
        .filter(|line| line.contains(r#"got {"id":"wrap-"#));
    let again: Vec<_> = again
        .filter_map(|line| line.split_once(r#"","jsonrpc":"2.0","#))
        .collect();
    let again: Vec<_> = again.iter().map(|(_, request)| *request).collect();
    assert_eq!(
        again,
        [
            r#""method":"logging/setLevel","params":{"level":"debug"}}"#,
            r#""method":"resources/subscribe","params":{"uri":"b:"}}"#,
        ]
    );
}

/// One of many, and by somebody else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_third_partys_server_that_is_killed_is_started_again() {
    let mut client = Client::wrap(&[], &everything()).await;
    let long = json!({ "duration": 30, "steps": 30 });
    let id = client
        .ask_tool("trigger-long-running-operation", long)
        .await;
    // Its stdin is that of the process that `wrap` has started.
    let own = client.child.id().unwrap();
    let children = std::fs::read_to_string(format!("/proc/{own}/task/{own}/children")).unwrap();
    let killed = std::process::Command::new("kill")
        .args(["-9", children.trim()])
        .status();
    assert!(killed.unwrap().success());
    let answer: Value = serde_json::from_str(&client.answer_to(id).await).unwrap();
    let (_, said) = refusal(&answer);
    assert!(said.contains("signal: 9"), "{said}");
    assert_eq!(
        text(&client.call("echo", json!({ "message": "x" })).await),
        "Echo: x"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_without_an_answer_is_ended_and_the_server_told() {
    let config = file("timeout.toml", "[timeout]\ndefault = '1s'\n");
    let mut client = Client::wrap(&["--config", &config], &own(&[])).await;
    let (code, said) = client.refused("hang").await;
    assert_eq!(code, "TOOL_TIMEOUT");
    assert!(
        said.contains("timed out and may still be running"),
        "{said}"
    );
    client.until_said(r#""method":"notifications/cancelled","params":{"reason":"the call has run out of time","requestId":102}"#).await;
    // It answers a ping, so it stays.
    client.until_said(r#""method":"ping""#).await;
    let before = pid(&mut client).await;
    assert_eq!(pid(&mut client).await, before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_stopped_is_replaced() {
    let config = file("stopped.toml", "[timeout]\ndefault = '1s'\n");
    let mut client = Client::wrap(&["--config", &config], &own(&[])).await;
    let before = pid(&mut client).await;
    assert_eq!(client.refused("stop").await.0, "TOOL_TIMEOUT");
    client.until_said("does not answer a ping").await;
    client.until_said("has ended (signal: 9").await;
    assert_ne!(pid(&mut client).await, before);
    assert!(!is_alive(&before));
}

/// D3: calls that end with one process open no breaker.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_that_were_lost_with_the_server_are_one_failure() {
    let mut client = Client::wrap(&[], &own(&[])).await;
    client.call("echo", json!({})).await;
    for _ in 0..10 {
        client.ask_tool("hang", json!({})).await;
    }
    client.ask_tool("die", json!({})).await;
    for _ in 0..11 {
        let (_, answer) = client.next().await.unwrap();
        assert_eq!(refusal(&answer["result"]).0, "CONNECTION_FAILED");
    }
    assert_eq!(text(&client.call("echo", json!({})).await), "{}");
    client.has_not_said("tool.breaker");
}

/// Progress, and a question to the client, are signs of life.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_goes_on_while_there_is_progress_or_the_client_is_asked() {
    let config = file(
        "idle.toml",
        "[timeout]\ndefault = '20s'\nidle_timeout = '1500ms'\n",
    );
    let mut client = Client::wrap(&["--config", &config], &own(&[])).await;
    let params = json!({ "name": "steps", "_meta": { "progressToken": 7 } });
    let done: Value = serde_json::from_str(&client.answer("tools/call", params).await).unwrap();
    assert_eq!(text(&done), "done");

    let id = client.ask_tool("think", json!({})).await;
    assert_eq!(
        client.next().await.unwrap().1["method"],
        "elicitation/create"
    );
    tokio::time::sleep(Duration::from_secs(3)).await;
    client
        .send(json!({ "id": 1, "result": { "action": "accept" } }))
        .await;
    let thought: Value = serde_json::from_str(&client.answer_to(id).await).unwrap();
    assert_eq!(text(&thought), r#"{"action": "accept"}"#);

    assert_eq!(client.refused("hang").await.0, "TOOL_TIMEOUT");
}

//= https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/stdio
//# The server MUST NOT write anything to its `stdout` that is not a valid MCP message.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_message_is_said_and_reaches_nobody() {
    let mut client = Client::wrap(&[], &own(&[])).await;
    assert_eq!(
        text(&client.call("garbage", json!({})).await),
        "after garbage"
    );
    client
        .until_said("has written a line to its stdout that is not a message: Listening; password=")
        .await;
    client.has_not_said("hunter2");
}

/// In what `wrap` says. What the server says is its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn secrets_are_not_in_the_trace() {
    let mut client = Client::wrap(&[], &everything()).await;
    let secret = "sk-live-51Habcdefghijklmnopqrstuv";
    let message = format!("curl -H 'Authorization: Bearer {secret}'");
    let result = client
        .call("echo", json!({ "message": message, "api_key": secret }))
        .await;
    assert!(text(&result).contains(secret), "answers are as they are");
    client.until_said("tool.success").await;
    let said = client.said();
    assert!(
        said.contains("arguments={") && said.contains("[REDACTED]"),
        "{said}"
    );
    assert!(!said.contains(secret), "{said}");
}

/// One that never was of use is not tried again and again: the program ends as it does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_does_not_start_ends_the_program() {
    let command = ["sh", "-c", "echo no such database >&2; exit 41"].map(str::to_owned);
    let mut client = Client::start(&crate::kit::wrapped(&[], &command));
    client.ask("initialize", json!({})).await;
    assert_eq!(client.ended().await.code(), Some(41));
    assert!(
        client.said().contains("no such database"),
        "{}",
        client.said()
    );
}

/// One that dies whenever it is started again is left alone in between.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_dies_again_and_again_is_left_alone_for_longer() {
    let runs = file("crashes", "");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/wrap/server.py");
    // The first process works.
    let script = format!("test -s {runs} && exit 9; exec python3 {script} {runs}");
    let command = ["sh".to_owned(), "-c".to_owned(), script];
    let mut client = Client::wrap(&["--no-breaker"], &command).await;
    assert_eq!(client.refused("die").await.0, "CONNECTION_FAILED");
    let since = Instant::now();
    let mut early = 0;
    while since.elapsed() < Duration::from_secs(4) {
        let (code, said) = client.refused("echo").await;
        assert_eq!(code, "CONNECTION_FAILED", "{said}");
        early += 1;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let tries = client.said().matches("has ended (exit status: 9)").count();
    assert!(
        (2..=4).contains(&tries) && early > 50,
        "{tries} of {early}\n{}",
        client.said()
    );
}

/// M13: clients drop a server whose progress comes after the answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn progress_after_a_timeout_is_not_passed_on() {
    let config = file("late.toml", "[timeout]\ndefault = '1s'\n");
    let mut client = Client::wrap(&["--config", &config], &own(&[])).await;
    let late = json!({ "name": "late", "_meta": { "progressToken": 7 } });
    let answer = client.answer("tools/call", late).await;
    assert!(answer.contains("TOOL_TIMEOUT"), "{answer}");
    until_late(&mut client).await;
    let is_progress = |message: &&Value| message["method"] == "notifications/progress";
    assert_eq!(client.others.iter().find(is_progress), None);

    // Another call has the same token, as some clients count them anew.
    let config = json!({ "name": "steps", "_meta": { "progressToken": 7 } });
    client.ask("tools/call", config).await;
    let (_, progress) = client.next().await.unwrap();
    assert_eq!(progress["params"]["progressToken"], "7");
}

/// M13: the client has cancelled the call, and does not know the token any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn progress_of_a_cancelled_call_is_not_passed_on() {
    let mut client = Client::wrap(&[], &own(&[])).await;
    let late = json!({ "name": "late", "_meta": { "progressToken": "x" } });
    let id = client.ask("tools/call", late).await;
    let params = json!({ "requestId": id });
    client.cancel(params).await;
    until_late(&mut client).await;
    assert!(client.others.is_empty(), "{:?}", client.others);
}

/// Waits until the server has said all that it has to say of a late call.
async fn until_late(client: &mut Client) {
    loop {
        let (_, message) = client.next().await.unwrap();
        if message["params"]["data"] == "late" {
            return;
        }
        client.others.push(message);
    }
}

/// M13: a person's time to answer is not the tool's, whatever the timeouts are.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_time_of_a_question_does_not_count() {
    let config = file("question.toml", "[timeout]\ndefault = '2s'\n");
    let mut client = Client::wrap(&["--config", &config], &own(&[])).await;
    let id = client.ask_tool("think", json!({})).await;
    let (_, question) = client.next().await.unwrap();
    assert_eq!(question["method"], "elicitation/create");
    tokio::time::sleep(Duration::from_secs(4)).await;
    client
        .send(json!({ "id": 1, "result": { "action": "accept" } }))
        .await;
    let thought: Value = serde_json::from_str(&client.answer_to(id).await).unwrap();
    assert_eq!(text(&thought), r#"{"action": "accept"}"#);

    // The server takes its question back: the clock goes on.
    let id = client.ask_tool("think", json!({})).await;
    client.call("unthink", json!({})).await;
    let answer = client.answer_to(id).await;
    assert!(answer.contains("TOOL_TIMEOUT"), "{answer}");
}

/// M13: as programs of Windows write it, before the first message of either side.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_byte_order_mark_is_not_part_of_a_message() {
    let mut client = Client::start(&crate::kit::wrapped(&[], &own(&["--mark"])));
    let params = r#"{"protocolVersion":"2025-11-25","capabilities":{}}"#;
    let first = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"initialize","params":{params}}}"#);
    client.write(&format!("\u{feff}{first}")).await;
    let answer = client.answer_to(1).await;
    assert!(answer.contains("serverInfo"), "{answer}");
    // The server, which reads JSON strictly, has it without the mark.
    client.until_said(&format!("got {first}")).await;
}

/// S-9c: what is no message is shown, and does nothing to the terminal.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn escape_sequences_of_a_server_are_not_obeyed() {
    let mut client = Client::wrap(&[], &own(&[])).await;
    assert_eq!(
        text(&client.call("escape", json!({})).await),
        "after escape"
    );
    client
        .until_said(r"\u{1b}]0;owned\u{7}\u{1b}[2J\u{202e}not a message")
        .await;
    let said = client.said();
    let ours = said.lines().filter(|line| line.contains("not a message"));
    for line in ours {
        assert!(!line.contains(char::is_control), "{line:?}");
    }
}

/// S-9c: nor do those in the name of a tool, here and in the table at the end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn escape_sequences_in_names_are_not_obeyed() {
    let mut client = Client::wrap(&[], &crate::kit::quiet()).await;
    client
        .call("\u{1b}[2J\nx status=ok", json!({ "\u{1b}[2J": "\u{9b}2J" }))
        .await;
    client.close();
    client.ended().await;
    client.until_said("total of").await;
    let said = client.said();
    let is_hostile = |c: char| c.is_control() && c != '\n';
    assert!(!said.contains(is_hostile), "{said:?}");
    assert!(!said.contains(" status=ok "), "{said}");
}
