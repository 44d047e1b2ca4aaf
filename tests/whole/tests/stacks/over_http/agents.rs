//! Systems A, B and C: those that run tools for an agent.

use futures_util::future::join_all;
use serde_json::json;

use super::{
    kit::{SLACK, Served, ms},
    upstream::Does,
};

/// A: T3, E3, E5, X1, X4: whatever happens, each call of a batch has its answer, in order; failures
/// do not block successes.
#[tokio::test]
async fn a_answers_every_call_of_a_batch_in_order() {
    let file = "[timeout]\ndefault = \"3s\"";
    let served = Served::start(file, &[]).await;
    served.upstream.does("import", Does::Hangs);
    served.upstream.does("other", Does::Says(500, None));
    served.upstream.does("t0", Does::Says(400, None));
    let start = tokio::time::Instant::now();
    let tools = [
        "docs__search",
        "docs__import",
        "docs__serch",
        "docs__other",
        "docs__t0",
        "docs__import",
        "docs__search",
    ];
    let answers = served.batch(&tools).await;
    assert!(start.elapsed() < ms(3000) + SLACK, "one after the other");
    let ids: Vec<_> = answers.iter().map(|answer| answer["id"].clone()).collect();
    assert_eq!(json!(ids), json!([0, 1, 2, 3, 4, 5, 6]));
    let codes: Vec<_> = answers
        .iter()
        .map(|answer| {
            answer["error"]["data"]["code"]
                .as_str()
                .unwrap_or("success")
        })
        .collect();
    let expected = [
        "success",
        "TOOL_TIMEOUT",
        "TOOL_NOT_FOUND",
        "UPSTREAM_ERROR",
        "TOOL_INVALID_INPUT",
        "TOOL_TIMEOUT",
        "success",
    ];
    assert_eq!(codes, expected);
    assert_eq!(answers[1]["error"]["message"], "Tool invocation timed out");
    assert_eq!(answers[1]["error"]["data"]["timeout_ms"], 3000);
    // R6: nobody says that they may run twice.
    assert_eq!(served.upstream.requests("other"), 1);
    assert_eq!(served.upstream.requests("import"), 2);
}

/// B, C: W8: of ten calls that hang none is refused.
#[tokio::test]
async fn b_and_c_make_every_call() {
    join_all(["agent_library", "agent_loop"].map(async |preset| {
        let vars = [
            ("TOOLCALL_PRESET", preset),
            ("TOOLCALL_TIMEOUT", "0.5"),
            ("TOOLCALL_RETRY_ATTEMPTS", "1"),
        ];
        let served = Served::start("", &vars).await;
        served.upstream.does("search", Does::Hangs);
        for _ in 0..10 {
            assert_eq!(served.code("search").await, -32000, "{preset}");
        }
        assert_eq!(served.upstream.requests("search"), 10);
        assert_eq!(served.breaker("search").await, "none");
    }))
    .await;
}

/// C: R1, R2, R3, R6: three attempts, after 1 and 2 times the base; a caller's mistake is made
/// once; what hangs is made again.
#[tokio::test]
async fn c_tries_three_times() {
    let vars = [
        ("TOOLCALL_PRESET", "agent_loop"),
        ("TOOLCALL_RETRY_ASSUME_REPLAY_SAFE", "yes"),
        ("TOOLCALL_TIMEOUT", "3"),
        ("TOOLCALL_RETRY_BASE", "100ms"),
    ];
    let served = Served::start("", &vars).await;
    let twice = [Does::Says(503, None), Does::HangsUp];
    served.upstream.does_first("search", &twice, Does::Answers);
    let (answer, took) = served.call("search").await;
    assert!(answer["result"].is_object(), "{answer}");
    assert_eq!(served.upstream.requests("search"), 3);
    assert!((ms(300)..ms(300) + SLACK).contains(&took), "{took:?}");

    for (tool, does, code, requests) in [
        ("t0", Does::Says(400, None), "TOOL_INVALID_INPUT", 1),
        ("t1", Does::Says(401, None), "TOOL_UNAVAILABLE", 1),
        ("t2", Does::Says(404, None), "TOOL_NOT_FOUND", 1),
        ("t3", Does::Says(502, None), "UPSTREAM_ERROR", 3),
        ("t4", Does::Hangs, "TOOL_TIMEOUT", 3),
    ] {
        served.upstream.does(tool, does);
        let (answer, _) = served.call(tool).await;
        let data = &answer["error"]["data"];
        assert_eq!(data["code"], code, "{answer}");
        assert_eq!(served.upstream.requests(tool), requests, "{tool}");
        if requests > 1 {
            assert_eq!(data["attempts"], requests, "{answer}");
        }
    }
}

/// C: L1: success on attempt 2, after the cooldown and not before; L2: a delay of the server's
/// wins.
#[tokio::test]
async fn c_waits_out_a_rate_limit() {
    let vars = [
        ("TOOLCALL_RATE_LIMIT_DEFAULT_COOLDOWN", "400ms"),
        ("TOOLCALL_RETRY_BASE", "10ms"),
    ];
    let served = Served::start("preset = \"agent_loop\"", &vars).await;
    for (tool, told, waits) in [("search", None, ms(400)), ("import", Some(1), ms(1000))] {
        let limited = [Does::Says(429, told)];
        served.upstream.does_first(tool, &limited, Does::Answers);
        let (answer, took) = served.call(tool).await;
        assert!(answer["result"].is_object(), "{answer}");
        assert_eq!(served.upstream.requests(tool), 2);
        assert!((waits..waits + SLACK).contains(&took), "{tool}: {took:?}");
    }
    // Longer than anybody waits: the error is there at once, with all of it.
    served.upstream.does("other", Does::Says(429, Some(4000)));
    let (answer, took) = served.call("other").await;
    let data = &answer["error"]["data"];
    assert_eq!(data["code"], "RATE_LIMITED");
    assert!(
        data["retry_after_seconds"].as_u64() >= Some(4000),
        "{answer}"
    );
    assert!(took < SLACK, "{took:?}");
}
