//! Flags and the file: each thing can be turned off.

use std::time::Duration;

use serde_json::json;
use tokio::process::Command;

use crate::kit::{Client, GATEWAY, file, own, text, wrapped};

/// The same calls with a flag and without.
async fn both(config: &str, flag: &str) -> [Client; 2] {
    let config = file(&format!("{flag}.toml"), config);
    [
        Client::wrap(&["--config", &config], &own(&[])).await,
        Client::wrap(&["--config", &config, flag], &own(&[])).await,
    ]
}

/// It has no answer after the time in which it would have been ended.
async fn hangs(client: &mut Client) {
    let id = client.ask_tool("hang", json!({})).await;
    let answer = tokio::time::timeout(Duration::from_secs(2), client.answer_to(id)).await;
    assert!(answer.is_err(), "{answer:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_timeout() {
    let config = "[timeout]\ndefault = '1s'\n[tools.hang]\ntimeout = '1s'\n";
    let [mut with, mut without] = both(config, "--no-timeout").await;
    assert_eq!(with.refused("hang").await.0, "TOOL_TIMEOUT");
    hangs(&mut without).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_deadline() {
    let [mut with, mut without] = both("[deadline]\nbudget = '1s'\n", "--no-deadline").await;
    assert_eq!(with.refused("hang").await.0, "TOOL_TIMEOUT");
    hangs(&mut without).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_breaker() {
    let [mut with, mut without] = both("", "--no-breaker").await;
    for client in [&mut with, &mut without] {
        for _ in 0..6 {
            // As it says it, key by key; and its own errors for the model are no failures.
            let id = client.ask_tool("denied", json!({})).await;
            assert!(client.answer_to(id).await.contains("isError"));
        }
        for _ in 0..5 {
            let id = client.ask_tool("fail", json!({})).await;
            let error = client.answer_to(id).await;
            assert_eq!(
                error,
                r#"{"code": -32603, "message": "out of order", "data": {"b": 1, "a": 2}}"#
            );
        }
    }
    let (code, said) = with.refused("fail").await;
    assert_eq!(code, "CIRCUIT_OPEN", "{said}");
    with.until_said("tool.breaker").await;
    assert_eq!(text(&with.call("echo", json!({})).await), "{}");
    assert_eq!(without.call("fail", json!({})).await["code"], -32603);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_restart() {
    let mut client = Client::wrap(&["--no-restart"], &own(&[])).await;
    assert_eq!(client.refused("die").await.0, "CONNECTION_FAILED");
    assert!(client.next().await.is_none());
    assert_eq!(client.ended().await.code(), Some(3));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_trace_and_no_metrics() {
    for (flags, lines) in [
        (&[][..], [true, true]),
        (&["--no-trace"], [false, true]),
        (&["--no-metrics"], [true, false]),
    ] {
        let mut client = Client::wrap(flags, &own(&[])).await;
        client.call("echo", json!({})).await;
        client.close();
        assert!(client.ended().await.success());
        tokio::time::sleep(Duration::from_millis(100)).await;
        let said = client.said();
        let has = [
            said.contains("tool.success"),
            said.contains("\ntotal of 1 in "),
        ];
        assert_eq!(has, lines, "{flags:?} {said}");
    }
    let mut client = Client::wrap(&["--no-trace", "--no-metrics"], &own(&[])).await;
    client.call("echo", json!({})).await;
    client.close();
    client.ended().await;
    let said = client.said();
    assert!(
        said.lines().all(|line| line.starts_with("got ")),
        "nothing of its own: {said}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metrics_are_served_where_it_is_asked_for() {
    // A port that is free now.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let at = free.local_addr().unwrap().to_string();
    drop(free);
    let mut client = Client::wrap(&["--metrics", &at], &own(&[])).await;
    client.call("echo", json!({})).await;
    let page = reqwest::get(format!("http://{at}/metrics")).await.unwrap();
    let page = page.text().await.unwrap();
    assert!(
        page.contains(r#"tool_executions_total{server="",tool="echo",outcome="success"} 1"#),
        "{page}"
    );
    let foreign = reqwest::Client::new().get(format!("http://{at}/metrics"));
    let foreign = foreign.header("host", "evil.example").send().await.unwrap();
    assert_eq!(foreign.status(), 403);
}

/// A repeated request has another id, and is else as it came.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_is_repeated_only_where_the_file_says_so() {
    let config = "
        [timeout]
        default = '500ms'
        [retry]
        attempts = 2
        base = '100ms'
        [tools.hang]
        replay_safe = true
    ";
    let config = file("retry.toml", config);
    let mut client = Client::wrap(&["--config", &config], &own(&[])).await;
    assert_eq!(client.refused("hang").await.0, "TOOL_TIMEOUT");
    client
        .until_said(r#""params":{"reason":"the call has run out of time","requestId":"wrap-"#)
        .await;
    let said = client.said();
    let sent = said
        .lines()
        .filter(|line| line.contains(r#""name":"hang""#));
    assert_eq!(sent.count(), 2, "{said}");

    let mut client = Client::wrap(&[], &own(&[])).await;
    client.refused("die").await;
    client.until_said(r#""name":"die""#).await;
    let said = client.said();
    assert_eq!(said.matches(r#""name":"die""#).count(), 1, "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tool_can_be_denied() {
    let config = file("policy.toml", "[policy]\ndeny = ['d*']\n");
    let mut client = Client::wrap(&["--config", &config], &own(&[])).await;
    let (code, said) = client.refused("die").await;
    assert_eq!(code, "TOOL_UNAVAILABLE");
    assert!(said.contains("denied"), "{said}");
    assert_eq!(text(&client.call("echo", json!({})).await), "{}");
}

/// What is wrong is named, before anything is started.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_wrong_is_named() {
    let config = |name: &str, text: &str| ["--config".to_owned(), file(name, text)];
    let [flag, unknown] = config("unknown.toml", "[timeout]\ndefalt = '1s'\n");
    let [_, section] = config("section.toml", "[cache]\nttl = '1s'\n");
    let [_, zero] = config("zero.toml", "[timeout]\ndefault = '0s'\n");
    for (flags, named) in [
        (vec!["--no-retries"], "--no-retries"),
        (vec!["--metrics", "nowhere"], "nowhere"),
        (
            vec!["--metrics", "127.0.0.1:0", "--no-metrics"],
            "--no-metrics",
        ),
        (vec![&flag, "/no/such/file.toml"], "/no/such/file.toml"),
        (vec![&flag, &unknown], "defalt"),
        (vec![&flag, &section], "[cache]"),
        (vec![&flag, &zero], "timeout.default"),
    ] {
        let command = wrapped(&flags, &["false".to_owned()]);
        let output = Command::new(&command[0])
            .args(&command[1..])
            .output()
            .await
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(named) && output.stdout.is_empty(), "{said}");
    }
    let secret = "--token=sk-live-51Habcdefghijklmnopqrstuv";
    for (arguments, code, named) in [
        (&["wrap", "--"][..], 2, "<COMMAND>..."),
        (&["wrap", "node"], 2, "node"),
        (&["wrap", secret, "--", "node"], 2, "'--token"),
        (&["wrap", "--", "/no/such/program"], 127, "/no/such/program"),
    ] {
        let output = Command::new(GATEWAY)
            .args(arguments)
            .output()
            .await
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert!(said.contains(named) && !said.contains("51Habc"), "{said}");
    }
}
