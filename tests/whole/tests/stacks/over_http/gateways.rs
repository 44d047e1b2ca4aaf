//! Systems D and E: those that stand between clients and tools.

use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::{
    kit::{SLACK, Served, ms},
    upstream::Does,
};

/// W3: D, and E: whatever the upstream answers, a call is made once and answered within
/// `TOOL_TIMEOUT`, and no later call waits either.
#[tokio::test]
async fn a_call_is_answered_within_its_timeout() {
    let upstreams = [
        ("t0", Does::Hangs, -32000),
        ("t1", Does::Says(429, Some(290)), -32603),
        ("t2", Does::Says(429, None), -32603),
        ("t3", Does::Says(503, Some(20)), -32603),
        ("t4", Does::Says(500, None), -32603),
        ("t5", Does::HangsUp, -32603),
        ("t6", Does::SaysNonsense, -32603),
        ("t7", Does::AnswersIn(5000), -32000),
        ("t8", Does::Says(302, None), -32603),
    ];
    // Most of the time is that of timeouts: the presets and the tools share it.
    join_all(["gateway", "http_proxy"].map(async |preset| {
        // E's breaker is the server's, and would open.
        let vars = [
            ("TOOLCALL_PRESET", preset),
            ("TOOL_TIMEOUT", "2"),
            ("TOOL_CIRCUIT_BREAKER_THRESHOLD", "100"),
        ];
        let served = Served::start("", &vars).await;
        join_all(upstreams.map(async |(tool, does, code)| {
            served.upstream.does(tool, does);
            for _ in 0..2 {
                let (answer, took) = served.call(tool).await;
                assert_eq!(answer["error"]["code"], code, "{does:?}: {answer}");
                assert!(took < ms(2000) + SLACK, "{preset}, {does:?}: {took:?}");
            }
            // L3, D5: while a key is cooling its calls are refused, after a 503 with a delay as
            // well.
            let cools = matches!(does, Does::Says(429, _) | Does::Says(503, Some(_)));
            let requests = if cools { 1 } else { 2 };
            assert_eq!(served.upstream.requests(tool), requests, "{does:?}");
        }))
        .await;
        let (answer, _) = served.call("t1").await;
        let data = &answer["error"]["data"];
        assert_eq!(data["code"], "RATE_LIMITED");
        let seconds = data["retry_after_seconds"].as_u64().unwrap();
        assert!((250..=320).contains(&seconds), "{answer}");
    }))
    .await;
}

/// D: T2, T3, E5: the error object, field by field; a tool's own timeout beats the default.
#[tokio::test]
async fn d_answers_a_timeout_with_its_error_object() {
    let file = "preset = \"gateway\"\n[tools.import]\ntimeout_ms = 700";
    let served = Served::start(file, &[("TOOL_TIMEOUT", "0.3")]).await;
    for (tool, millis) in [("search", 300), ("import", 700)] {
        served.upstream.does(tool, Does::Hangs);
        let (answer, took) = served.call(tool).await;
        let expected = json!({
            "code": -32000,
            "message": "Tool invocation timed out",
            "data": {
                "code": "TOOL_TIMEOUT",
                "tool_id": format!("docs__{tool}"),
                "server": "docs",
                "timeout_ms": millis,
                "retryable": true,
                "execution": "unknown",
            },
        });
        assert_eq!(answer["error"], expected);
        assert!((ms(millis)..ms(millis) + SLACK).contains(&took), "{took:?}");
    }
}

/// D: C1, C2, C3, C4, E5, E6: five failures open the breaker of that tool alone, timeouts and, as
/// set, `isError` among them; it answers at once and tells when to come back; after a probe it is
/// closed.
#[tokio::test]
async fn d_stops_a_broken_tool_and_takes_it_back() {
    let vars = [
        ("TOOLCALL_PRESET", "gateway"),
        ("TOOLCALL_CIRCUIT_BREAKER_REPORTED_FAILURES", "true"),
        ("TOOL_TIMEOUT", "3"),
        ("TOOL_CIRCUIT_BREAKER_RESET", "2"),
    ];
    let served = Served::start("", &vars).await;
    let broken = [
        Does::Says(500, None),
        Does::Reports,
        Does::Hangs,
        Does::HangsUp,
        Does::Says(502, None),
    ];
    served.upstream.does_first("search", &broken, Does::Answers);
    for does in broken {
        assert_ne!(served.breaker("search").await, "open", "{does:?}");
        let (answer, _) = served.call("search").await;
        // The tool's own words reach the model.
        let reported = answer["result"]["isError"] == true;
        assert_eq!(reported, matches!(does, Does::Reports), "{answer}");
    }
    assert_eq!(served.breaker("search").await, "open");
    let (answer, took) = served.call("search").await;
    assert_eq!(answer["error"]["code"], -32001);
    assert_eq!(answer["error"]["message"], "Circuit breaker open");
    let data = &answer["error"]["data"];
    assert_eq!(data["code"], "CIRCUIT_OPEN");
    let seconds = data["retry_after_seconds"].as_u64().unwrap();
    assert!((1..=2).contains(&seconds) && took < SLACK, "{answer}");
    assert_eq!(served.upstream.requests("search"), 5);
    // C1: one bad tool never affects another.
    assert_eq!(served.code("import").await, 0);

    sleep(ms(2100)).await;
    assert_eq!(served.code("search").await, 0);
    assert_eq!(served.breaker("search").await, "closed");
    assert_eq!(served.upstream.requests("search"), 6);
}

/// D: G1: threshold and switch of the environment.
#[tokio::test]
async fn d_is_set_up_by_its_environment() {
    for (name, value, open_after) in [
        ("TOOL_CIRCUIT_BREAKER_THRESHOLD", "2", Some(2)),
        ("TOOL_CIRCUIT_BREAKER_ENABLED", "false", None),
    ] {
        let vars = [("TOOLCALL_PRESET", "gateway"), (name, value)];
        let served = Served::start("", &vars).await;
        served.upstream.does("search", Does::Says(500, None));
        let mut codes = Vec::new();
        for _ in 0..8 {
            codes.push(served.code("search").await);
        }
        let first = codes.iter().position(|code| *code == -32001);
        assert_eq!(first, open_after, "{codes:?}");
    }
}

/// E: C1, C2, C3: two tools of a source open its breaker together; after the period three probes
/// close it.
#[tokio::test]
async fn e_stops_a_source_and_takes_it_back_after_three_probes() {
    let vars = [
        ("TOOLCALL_PRESET", "http_proxy"),
        ("TOOL_CIRCUIT_BREAKER_RESET", "1"),
    ];
    let served = Served::start("", &vars).await;
    for tool in ["search", "import"] {
        served.upstream.does(tool, Does::Says(502, None));
    }
    for tool in ["search", "import", "search", "import", "search"] {
        assert_eq!(served.code(tool).await, -32603);
    }
    let (answer, _) = served.call("other").await;
    assert_eq!(
        answer["error"]["data"]["retry_after_seconds"], 1,
        "{answer}"
    );
    sleep(ms(1100)).await;
    for tool in ["search", "import"] {
        served.upstream.does(tool, Does::Answers);
    }
    for tool in ["search", "import", "search"] {
        assert_ne!(served.breaker("all").await, "closed");
        let (answer, _) = served.call(tool).await;
        assert_ne!(answer["result"], Value::Null, "{answer}");
    }
    assert_eq!(served.breaker("all").await, "closed");
}
