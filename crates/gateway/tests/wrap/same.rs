//! What passes as it is.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;

use crate::kit::{Client, everything, own, signal, text, time, wrapped};

/// Requests with answers that are the same each time.
fn requests(of_time: bool) -> Vec<(&'static str, Value)> {
    let call = |name: &str, arguments: Value| {
        (
            "tools/call",
            json!({ "name": name, "arguments": arguments }),
        )
    };
    let mut all = vec![
        ("ping", json!({})),
        ("tools/list", json!({})),
        ("resources/list", json!({})),
        ("resources/templates/list", json!({})),
        ("prompts/list", json!({})),
        ("no/such/method", json!({})),
        call("no such tool", json!({})),
    ];
    if of_time {
        let convert =
            json!({ "source_timezone": "Europe/Oslo", "time": "12:00", "target_timezone": "UTC" });
        all.extend([
            call("convert_time", convert),
            call("convert_time", json!({ "time": 12 })),
        ]);
        return all;
    }
    let reference = json!({ "type": "ref/prompt", "name": "completable-prompt" });
    let completion =
        json!({ "ref": reference, "argument": { "name": "department", "value": "E" } });
    all.extend([
        (
            "resources/read",
            json!({ "uri": "demo://resource/dynamic/text/1" }),
        ),
        (
            "resources/read",
            json!({ "uri": "demo://no/such/resource" }),
        ),
        (
            "resources/subscribe",
            json!({ "uri": "demo://resource/dynamic/text/1" }),
        ),
        (
            "resources/unsubscribe",
            json!({ "uri": "demo://resource/dynamic/text/1" }),
        ),
        (
            "prompts/get",
            json!({ "name": "args-prompt", "arguments": { "city": "Oslo" } }),
        ),
        ("prompts/get", json!({ "name": "no such prompt" })),
        ("completion/complete", completion),
        ("logging/setLevel", json!({ "level": "debug" })),
        call("echo", json!({ "message": "hello \u{2028} \"world\"" })),
        call("echo", json!({ "massage": "hello" })),
        call("get-sum", json!({ "a": 1, "b": 2.5 })),
        call("get-structured-content", json!({ "location": "Chicago" })),
        call(
            "get-annotated-message",
            json!({ "messageType": "error", "includeImage": true }),
        ),
        call("get-tiny-image", json!({})),
        call("get-resource-links", json!({ "count": 3 })),
        call(
            "get-resource-reference",
            json!({ "resourceType": "Text", "resourceId": 1 }),
        ),
        call("get-env", json!({})),
    ]);
    all
}

/// The answers, without the moments in them.
async fn answers(client: &mut Client, of_time: bool) -> Vec<String> {
    let mut answers = vec![client.initialize().await];
    for (method, params) in requests(of_time) {
        let answer = client.answer(method, params.clone()).await;
        answers.push(format!("{method} {params} {answer}"));
    }
    answers
}

/// A resource that is made when it is asked for has the time in it.
fn without_time(answer: &str) -> String {
    match answer
        .find(" created at ")
        .or_else(|| answer.find(" was created"))
    {
        Some(at) => answer[..at].to_owned(),
        None => answer.to_owned(),
    }
}

/// Part 4 of issue 27: what a client asks of a server it is answered byte by byte as without the
/// word in front. Arguments that are not an object are refused before: `requests`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_answer_is_that_of_the_bare_server() {
    for (command, of_time) in [(everything(), false), (time(), true)] {
        let mut bare = Client::start(&command);
        let bare = answers(&mut bare, of_time).await;
        let mut between = Client::start(&wrapped(&[], &command));
        let between = answers(&mut between, of_time).await;
        assert_eq!(bare.len(), between.len());
        for (bare, between) in bare.iter().zip(&between) {
            assert_eq!(without_time(bare), without_time(between));
        }
        let all = between.concat();
        assert!(of_time || all.contains("passed on"), "the environment");
    }
}

/// Sampling, elicitation and roots: the server asks, and what it makes of the answers is the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_server_asks_the_client() {
    let mut saw = Vec::new();
    for command in [everything(), wrapped(&[], &everything())] {
        let mut client = Client::start(&command);
        client.initialize().await;
        saw.push(asked(&mut client).await);
    }
    assert_eq!(saw[0], saw[1]);
    let methods = ["roots/list", "sampling/createMessage", "elicitation/create"];
    for method in methods {
        assert!(saw[1].concat().contains(method), "no {method} in {saw:?}");
    }
}

async fn asked(client: &mut Client) -> Vec<String> {
    let mut saw = Vec::new();
    for (name, arguments) in [
        (
            "trigger-sampling-request",
            json!({ "prompt": "Hi", "maxTokens": 10 }),
        ),
        ("trigger-elicitation-request", json!({})),
        ("get-roots-list", json!({})),
    ] {
        let id = client.ask_tool(name, arguments).await;
        loop {
            let (line, message) = client.next().await.unwrap();
            let result = match message["method"].as_str() {
                Some("sampling/createMessage") => json!({
                    "role": "assistant", "model": "none", "content": { "type": "text", "text": "Hello" },
                }),
                Some("elicitation/create") => json!({ "action": "decline" }),
                Some("roots/list") => json!({ "roots": [{ "uri": "file:///tmp", "name": "tmp" }] }),
                Some(_) => continue,
                None if message["id"] == id => {
                    saw.push(message["result"].to_string());
                    break;
                }
                None => panic!("{line}"),
            };
            saw.push(line);
            client
                .send(json!({ "id": message["id"], "result": result }))
                .await;
        }
    }
    saw.sort(); // roots are asked for when the server likes
    saw
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn progress_and_changes_of_lists_reach_the_client() {
    let mut client = Client::wrap(&[], &everything()).await;
    let params = json!({
        "name": "trigger-long-running-operation", "arguments": { "duration": 1, "steps": 4 },
        "_meta": { "progressToken": "mine" },
    });
    client.answer("tools/call", params).await;
    let of = |method: &str| {
        client
            .others
            .iter()
            .filter(|m| m["method"] == method)
            .count()
    };
    assert!(of("notifications/progress") >= 3, "{:?}", client.others);
    assert!(
        client
            .others
            .iter()
            .any(|m| m["params"]["progressToken"] == "mine")
    );
    assert!(
        of("notifications/tools/list_changed") >= 1,
        "{:?}",
        client.others
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancellation_reaches_the_server_in_the_clients_words() {
    let mut client = Client::wrap(&[], &own(&[])).await;
    let call = client.ask_tool("hang", json!({})).await;
    let read = client.ask("resources/read", json!({ "uri": "x:" })).await;
    for id in [call, read] {
        let params = json!({ "requestId": id, "reason": format!("enough of {id}") });
        client.cancel(params).await;
    }
    assert_eq!(
        text(&client.call("echo", json!({ "a": 1 })).await),
        r#"{"a": 1}"#
    );
    for id in [call, read] {
        client.until_said(&format!("enough of {id}")).await;
    }
    let told = client.said();
    let told = told
        .lines()
        .filter(|line| line.starts_with("got") && line.contains("notifications/cancelled"));
    assert_eq!(told.count(), 2, "{}", client.said());
    assert!(client.others.is_empty(), "{:?}", client.others);
    client.until_said("tool.cancelled").await;
}

/// The server has them as they were sent, although some go through the stack and some do not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_keep_their_order_and_every_byte() {
    let mut client = Client::wrap(&["--no-trace"], &own(&[])).await;
    let mut sent = Vec::new();
    for id in 0..100 {
        let call = format!(
            r#"{{ "method":"tools/call", "id": "call {id}","jsonrpc":"2.0", "params":{{"name":"echo","_meta":{{"z":1.10}}, "arguments":{{"b":1e2,"a":{id}}}}}}}"#
        );
        let notified =
            format!(r#"{{"jsonrpc":"2.0","method":"notifications/own","params":{{"n":{id}}}}}"#);
        let asked = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#);
        sent.extend([call, notified, asked]);
    }
    for line in &sent {
        client.write(line).await;
    }
    for _ in 0..200 {
        client.next().await.unwrap();
    }
    client.until_said(&sent[299]).await;
    let said = client.said();
    let got: Vec<_> = said
        .lines()
        .filter_map(|line| line.strip_prefix("got "))
        .collect();
    assert_eq!(got[2..], sent);
}

/// Also when it has much to do at once: its process was stopped, and all that was due meanwhile is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_keep_their_order_while_many_requests_are_open() {
    let mut client = Client::wrap(&["--no-trace"], &own(&[])).await;
    for _ in 0..2000 {
        client.ask("resources/read", json!({ "uri": "x:" })).await;
    }
    assert_eq!(client.answer("ping", json!({})).await, "{}");
    for _ in 0..10 {
        client.ask_tool("later", json!({})).await;
    }
    sleep(Duration::from_millis(100)).await;
    let pid = client.child.id().unwrap();
    signal("-STOP", pid);
    let mut sent = Vec::new();
    for id in 0..10 {
        sent.push(format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#));
        sent.push(r#"{"jsonrpc":"2.0","method":"notifications/own"}"#.to_owned());
    }
    for line in &sent {
        client.write(line).await;
    }
    sleep(Duration::from_millis(1500)).await;
    signal("-CONT", pid);
    let mut answered = Vec::new();
    while answered.len() < 20 {
        let (_, message) = client.next().await.unwrap();
        if message["method"] == "notifications/after" {
            assert!(answered.contains(&message["params"]["id"]), "{message}");
        } else {
            answered.push(message["id"].clone());
        }
    }
    // It has them in this order, so the last one is this.
    client.answer("ping", json!({})).await;
    client
        .until_said(&format!(r#""id":{},"#, client.next_id))
        .await;
    let said = client.said();
    let got: Vec<_> = said
        .lines()
        .filter_map(|line| line.strip_prefix("got "))
        .collect();
    assert_eq!(got[got.len() - 21..got.len() - 1], sent);
}
