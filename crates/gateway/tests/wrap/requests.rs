//! What clients may send that is hard to read, or comes at the wrong time.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::kit::{Client, file, own, quiet, refusal, text, wrapped};

/// Arguments that are not an object.
const NO_OBJECTS: [&str; 3] = ["[1]", r#""text""#, "7"];

/// Arguments that are JSON, and that serde_json does not make an object of.
fn unreadable() -> Vec<String> {
    let deep = format!(r#"{{"a":{}1{}}}"#, "[".repeat(200), "]".repeat(200));
    let odd = ["null", r#"{"a":"\ud83d"}"#, r#"{"a":1e999}"#];
    odd.into_iter().map(str::to_owned).chain([deep]).collect()
}

fn raw_call(id: u64, name: &str, arguments: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{name}","_meta":null,"arguments":{arguments}}}}}"#
    )
}

/// A model chooses arguments; it does not choose to go around a policy with them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tool_is_denied_whatever_its_arguments_are() {
    let config = file("denied.toml", "[policy]\ndeny = ['die']\n");
    let mut client = Client::wrap(&["--config", &config], &own(&[])).await;
    let no_objects = NO_OBJECTS.map(str::to_owned);
    for (id, arguments) in (1..).zip(unreadable().into_iter().chain(no_objects)) {
        client.write(&raw_call(id, "die", &arguments)).await;
        let answer: Value = serde_json::from_str(&client.answer_to(id).await).unwrap();
        assert_eq!(refusal(&answer).0, "TOOL_UNAVAILABLE", "{arguments}");
    }
    client.has_not_said(r#""name":"die""#);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn arguments_that_are_hard_to_read_reach_the_server_as_they_came() {
    let mut client = Client::wrap(&[], &own(&[])).await;
    for (id, arguments) in (1..).zip(unreadable()) {
        let call = raw_call(id, "pid", &arguments);
        client.write(&call).await;
        assert!(client.answer_to(id).await.contains("content"));
        client.until_said(&format!("got {call}\n")).await;
    }
}

/// 20b: the model chose them, so the tool has not failed, and no quota is spent. The second case is
/// a text.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn arguments_that_are_not_an_object_are_refused_before_they_cost_quota() {
    let config = file(
        "quota.toml",
        "[quota]\nunits = 1\nperiod = '1h'\nfail_fast = true\n",
    );
    let mut client = Client::wrap(&["--config", &config], &own(&[])).await;
    for (id, arguments) in (1..).zip(NO_OBJECTS) {
        client.write(&raw_call(id, "echo", arguments)).await;
        let answer: Value = serde_json::from_str(&client.answer_to(id).await).unwrap();
        let (code, text) = refusal(&answer);
        assert_eq!(code, "TOOL_INVALID_INPUT", "{arguments}");
        assert!(text.contains("the arguments are not an object"), "{text}");
    }
    client.has_not_said("got {\"jsonrpc\":\"2.0\",\"id\":1,");
    assert_eq!(text(&client.call("echo", json!({})).await), "{}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn secrets_in_arguments_that_are_hard_to_read_are_not_in_the_trace() {
    let mut client = Client::wrap(&[], &quiet()).await;
    let arguments = r#"{"api_key":"hunter2hunter2","message":"\ud83d"}"#;
    client.write(&raw_call(1, "echo", arguments)).await;
    client.answer_to(1).await;
    client.until_said("tool.success").await;
    assert!(client.said().contains("arguments="), "{}", client.said());
    client.has_not_said("hunter2");
}

/// The code of the error, the id of the answer, and what was sent.
const WRONG: &str = r##"
# M13: what is no JSON has a code of its own.
-32700 null to nobody
-32700 null {"jsonrpc":"2.0","id":1,"method":"tools/call",
-32700 null [{"jsonrpc":"2.0","id":1,"method":"ping"}
-32700 null {'id':1}
-32600 null [["to nobody"]]
-32600 null {"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/call",$params}
-32600 null {"jsonrpc":"2.0","id":null,"method":"tools/call",$params}
-32600 null {"jsonrpc":"2.0","method":"tools\/call",$params}
-32602 2 {"jsonrpc":"2.0","id":2,"method":"tools/call"}
-32602 3 {"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"Name":"echo","arguments":{"to":"nobody"}}}
-32602 4 {"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"pid","name":"echo","arguments":{"to":"nobody"}}}
-32602 5 {"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"\ud83d","arguments":{"to":"nobody"}}}
# serde makes a message of an array, and a server a batch.
-32600 null [[{"jsonrpc":"2.0","id":6,"method":"tools/call",$params},"x",null,null,null]]
-32600 null []
# 20b: a server of the SDKs would not answer it.
-32600 11 {"id":11,"method":"tools/call",$params}
-32600 "12" {"jsonrpc":"1.0","id":"12","method":"ping"}
-32600 null {"method":"nobody"}
-32600 13 {"jsonrpc":2.0,"id":13,"method":"ping"}
-32600 14 {"jsonrpc":["nobody"],"id":14,"method":"ping"}
# 20b: an id is a text or a number.
-32600 null {"jsonrpc":"2.0","id":{"to":"nobody"},"method":"ping"}
-32600 null {"jsonrpc":"2.0","id":true,"method":"ping"}
-32600 null {"jsonrpc":"2.0","id":[7],"method":"tools/call",$params}
-32600 null [$many0]
# Go's `encoding/json` takes either for `method`, and the second one for `params`.
-32600 null {"jsonrpc":"2.0","id":7,"method":"ping","Method":"tools/call",$params}
-32600 null {"jsonrpc":"2.0","id":8,"method":"tools/call","params":{"name":"pid"},$folded}
-32602 9 {"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"pid","NAME":"echo","arguments":{"to":"nobody"}}}
-32602 10 {"jsonrpc":"2.0","id":10,"method":"tools/call","params":["echo",{"to":"nobody"},null]}
"##;

//= https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/stdio
//# The client MUST NOT write anything to the server's `stdin` that is not a valid MCP message.
/// A server might find a call in it that no layer has seen.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_message_is_answered_and_reaches_nobody() {
    let mut client = Client::wrap(&[], &own(&[])).await;
    let params = r#""params":{"name":"echo","arguments":{"to":"nobody"}}"#;
    let folded = params.replace("params", "param\u{17f}");
    for row in WRONG.lines().filter(|row| row.starts_with('-')) {
        let [code, id, line] = row.splitn(3, ' ').collect::<Vec<_>>()[..] else {
            panic!("{row}")
        };
        let line = line.replace("$params", params).replace("$folded", &folded);
        let line = line.replace("$many", &"0,".repeat(10_000));
        client.write(&line).await;
        let (_, answer) = client.next().await.unwrap();
        let found = format!("{} {}", answer["error"]["code"], answer["id"]);
        assert_eq!(found, format!("{code} {id}"), "{line}");
    }
    assert_eq!(text(&client.call("echo", json!({})).await), "{}");
    client.has_not_said("nobody");
}

//= https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/stdio
//# Messages are delimited by newlines, and MUST NOT contain embedded newlines.
/// `\r` is white space in JSON, and the end of a line to Python, Java and C#.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_line_of_the_client_is_one_line_of_the_server() {
    let config = file("return.toml", "[policy]\ndeny = ['die']\n");
    let mut client = Client::wrap(&["--config", &config], &own(&[])).await;
    let call = raw_call(2, "die", "{}");
    let ping = format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\",\"params\":{{\"x\":\r{call}\r}}}}"
    );
    client.write(&ping).await;
    assert_eq!(client.answer_to(1).await, "{}");
    client.until_said(&ping.replace('\r', " ")).await;
}

/// As clients of MCP 2025-03-26 could send it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_messages_of_a_batch_are_taken_one_by_one() {
    let config = file("batch.toml", "[policy]\ndeny = ['die']\n");
    let mut client = Client::wrap(&["--config", &config], &own(&[])).await;
    let (ping, call) = (
        r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#,
        raw_call(2, "die", "{}"),
    );
    client.write(&format!("[ {ping}, {call} ]")).await;
    let mut answers = [
        client.next().await.unwrap().1,
        client.next().await.unwrap().1,
    ];
    answers.sort_by_key(|answer| answer["id"].as_u64());
    assert_eq!(answers[0]["result"], json!({}));
    assert_eq!(refusal(&answers[1]["result"]).0, "TOOL_UNAVAILABLE");
}

//= https://modelcontextprotocol.io/specification/2026-07-28/basic/index#requests
//# The request ID MUST NOT match the ID of any other request the sender has issued and not yet
//# received a response for.
/// Neither is it lost, nor do the layers take it for a failure of the tool.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_id_of_an_open_request_is_refused() {
    let mut client = Client::wrap(&[], &own(&[])).await;
    for (id, method) in [(1, "tools/call"), (2, "resources/read")] {
        let params = json!({ "name": "hang", "uri": "x:" });
        client
            .send(json!({ "id": id, "method": method, "params": params }))
            .await;
        for _ in 0..6 {
            client.write(&raw_call(id, "echo", "{}")).await;
            let refused = client.answer_to(id).await;
            assert!(
                refused.contains("id is that of another request"),
                "{refused}"
            );
        }
    }
    assert_eq!(text(&client.call("echo", json!({})).await), "{}");
    for id in [1, 2] {
        let params = json!({ "requestId": id, "reason": format!("enough of {id}") });
        client.cancel(params).await;
        client
            .until_said(&format!(r#""reason":"enough of {id}""#))
            .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_more_requests_are_open_than_ten_thousand() {
    let mut client = Client::wrap(&["--no-trace"], &own(&[])).await;
    let mut last = 0;
    for _ in 0..=10_000 {
        last = client.ask("resources/read", json!({ "uri": "x:" })).await;
    }
    assert!(client.answer_to(last).await.contains("too many"));
    // One less is open.
    let params = json!({ "requestId": last - 1 });
    client.cancel(params).await;
    assert_eq!(client.answer("ping", json!({})).await, "{}");
}

/// Nor of more than 256 MiB, whatever the server does with them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_more_is_open_than_one_longest_message() {
    let mut client = Client::wrap(&["--no-trace"], &quiet()).await;
    let long = "x".repeat(63 << 20);
    for _ in 0..4 {
        client.ask("resources/read", json!({ "uri": long })).await;
    }
    let more = client
        .answer("resources/read", json!({ "uri": long }))
        .await;
    assert!(more.contains("too many"), "{}", &more[..100]);
    assert_eq!(client.answer("ping", json!({})).await, "{}");
}

/// A process that is started meanwhile does not get it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_waits_for_a_process_can_be_cancelled() {
    let mut client = Client::wrap(&[], &own(&[&file("slow", ""), "--slow"])).await;
    client.refused("die").await;
    for (method, params) in [
        ("resources/read", json!({ "uri": "cancelled:" })),
        (
            "tools/call",
            json!({ "name": "echo", "arguments": { "x": "cancelled:" } }),
        ),
    ] {
        let id = client.ask(method, params).await;
        client.cancel(json!({ "requestId": id })).await;
    }
    let since = Instant::now();
    assert_eq!(client.answer("ping", json!({})).await, "{}");
    assert!(since.elapsed() > Duration::from_secs(1), "it had to wait");
    let said = client.said();
    let mut got = said.lines().filter(|line| line.starts_with("got "));
    assert!(got.all(|line| !line.contains("cancelled:")), "{said}");
}

/// What was asked by a process that has ended is not what the next one asks, although both call it
/// 1.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_answer_is_not_one_for_the_new_process() {
    let mut client = Client::wrap(&[], &own(&[])).await;
    client.ask_tool("think", json!({})).await;
    assert_eq!(client.next().await.unwrap().1["id"], 1);
    client.refused("die").await;
    let id = client.ask_tool("think", json!({})).await;
    let question = loop {
        let (_, message) = client.next().await.unwrap();
        if message["method"] == "elicitation/create" {
            break message;
        }
    };
    client
        .send(json!({ "id": 1, "result": { "action": "accept" } }))
        .await;
    client
        .send(json!({ "id": question["id"], "result": { "action": "decline" } }))
        .await;
    let thought: Value = serde_json::from_str(&client.answer_to(id).await).unwrap();
    assert_eq!(text(&thought), r#"{"action": "decline"}"#);

    // It knows its own id, and the client that which it was asked by.
    client.ask_tool("think", json!({})).await;
    let asked = client.next().await.unwrap().1["id"].clone();
    client.call("unthink", json!({})).await;
    let unasked = client.others.last().unwrap();
    assert_eq!(unasked["method"], "notifications/cancelled");
    assert_eq!(unasked["params"]["requestId"], asked);
}

/// A client of the revision 2026-07-28 may have found out by it that there is no session.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_server_has_refused_is_not_asked_of_the_next_process() {
    let mut client = Client::start(&wrapped(&[], &own(&[])));
    client
        .answer("initialize", json!({ "protocolVersion": "refused" }))
        .await;
    client
        .answer("resources/subscribe", json!({ "uri": "refused:" }))
        .await;
    client.refused("die").await;
    assert_eq!(text(&client.call("echo", json!({})).await), "{}");
    let said = client.said();
    assert_eq!(said.matches("refused").count(), 2, "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subscription_without_an_answer_stops_no_restart() {
    let mut client = Client::wrap(&[], &own(&[])).await;
    client
        .ask("resources/subscribe", json!({ "uri": "mute:" }))
        .await;
    client
        .answer("tools/list", json!({ "cursor": "page 2" }))
        .await;
    client.refused("die").await;
    assert_eq!(text(&client.call("echo", json!({})).await), "{}");
    // Its pages may be others.
    sleep(Duration::from_millis(200)).await;
    assert_eq!(
        client.said().matches("page 2").count(),
        1,
        "{}",
        client.said()
    );
}

/// S-9c: a message is looked at without a copy of each of its members. As many as a copy needs to
/// be seen beside the program itself, and no more: a machine with a high load has to read them,
/// too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_members_cost_bounded_work() {
    let members: String = (0..400_000).map(|n| format!(r#""k{n}":0,"#)).collect();
    let id = format!(r#"{{"jsonrpc":"2.0","method":"ping","id":{{{members}"k":0}}}}"#);
    let message = format!(r#"{{{members}"id":1}}"#);
    let call = raw_call(2, "hang", &format!(r#"{{{members}"k":0}}"#));
    let batch = format!("[{}0]", "0,".repeat(2_500_000));
    for (line, code) in [(id, -32600), (message, -32600), (batch, -32600), (call, 0)] {
        let mut client = Client::wrap(&["--no-trace"], &quiet()).await;
        client.write(&line).await;
        match code {
            0 => assert_eq!(client.answer("ping", json!({})).await, "{}"),
            code => assert_eq!(client.next().await.unwrap().1["error"]["code"], code),
        }
        let status = format!("/proc/{}/status", client.child.id().unwrap());
        let status = std::fs::read_to_string(status).unwrap();
        let peak = status.lines().find(|line| line.starts_with("VmHWM:"));
        let kib = peak.and_then(|line| line.split_whitespace().nth(1));
        let mib = kib.unwrap().parse::<usize>().unwrap() >> 10;
        let limit = 32 + 5 * (line.len() >> 20);
        assert!(mib < limit, "{mib} MiB, {}", &line[..40]);
    }
}
