//! The presets' own numbers, by a file and by the environment; and settings that are refused.

use serde_json::Value;

use super::kit::{Served, refused};

/// Keys and their values of each preset. A: T1, R1, L1, C2, C3. B: 5 s / 30 s / 500 ms / 80 %; W8:
/// no breaker, nor has C one. P11: nothing is assumed to be safe. D: 60 s, 5/60/300, E: 30 s,
/// 5/30/3, per server; W3: one attempt.
const NUMBERS: [(&str, &str); 5] = [
    (
        "default",
        r#"
        timeout.default "30s"
        retry.attempts 3
        rate_limit.default_cooldown "30s"
        circuit_breaker.enabled true
        circuit_breaker.threshold 5
        circuit_breaker.window "none"
        circuit_breaker.open_for "1m""#,
    ),
    (
        "agent_library",
        r#"
        timeout.default "5s"
        timeout.slow_fraction 0.8
        sequence.budget "30s"
        sequence.reserve "500ms"
        parallel.budget "1m"
        retry.attempts 1
        circuit_breaker.enabled false"#,
    ),
    (
        "agent_loop",
        r#"
        timeout.default "30s"
        retry.attempts 3
        retry.base "1s"
        retry.cap "30s"
        retry.assume_replay_safe false
        rate_limit.default_cooldown "30s"
        circuit_breaker.enabled false"#,
    ),
    (
        "gateway",
        r#"
        timeout.default "1m"
        retry.attempts 1
        rate_limit.fail_fast true
        deadline.budget "none"
        circuit_breaker.threshold 5
        circuit_breaker.open_for "1m"
        circuit_breaker.window "5m"
        circuit_breaker.success_resets true
        circuit_breaker.probes 1
        circuit_breaker.key "tool""#,
    ),
    (
        "http_proxy",
        r#"
        timeout.default "30s"
        retry.attempts 1
        rate_limit.fail_fast true
        circuit_breaker.threshold 5
        circuit_breaker.open_for "30s"
        circuit_breaker.probes 3
        circuit_breaker.key "server""#,
    ),
];

/// In processes that know nothing but the preset's name, by a file or by the environment.
#[tokio::test]
async fn presets_have_their_numbers() {
    for (preset, expected) in NUMBERS {
        let by_env = Served::start("", &[("TOOLCALL_PRESET", preset)]).await;
        let by_file = Served::start(&format!("preset = \"{preset}\""), &[]).await;
        assert_ne!(by_env.process_id(), by_file.process_id());
        let settings = by_env.settings().await;
        assert_eq!(settings, by_file.settings().await);
        for line in expected.trim().lines() {
            let (key, value) = line.trim().split_once(' ').unwrap();
            let value: Value = serde_json::from_str(value).unwrap();
            let path = format!("/{}", key.replace('.', "/"));
            assert_eq!(settings.pointer(&path), Some(&value), "{preset}: {key}");
        }
    }
}

/// W7: preset, file, environment; TOOLCALL_PRESET goes under the file, and beats its preset.
#[tokio::test]
async fn the_order_is_preset_file_environment() {
    let file = "preset = \"gateway\"\n[timeout]\ndefault = \"7s\"\n[retry]\nattempts = 2";
    let vars = [
        ("TOOLCALL_PRESET", "agent_library"),
        ("TOOLCALL_RETRY_ATTEMPTS", "4"),
    ];
    let settings = Served::start(file, &vars).await.settings().await;
    assert_eq!(settings["preset"], "agent_library");
    assert_eq!(settings["timeout"]["default"], "7s");
    assert_eq!(settings["retry"]["attempts"], 4);
    assert_eq!(settings["sequence"]["budget"], "30s");
    assert_eq!(settings["circuit_breaker"]["window"], "none");
}

/// W6.
#[tokio::test]
async fn a_short_budget_alone_is_a_whole_file() {
    let served = Served::start("[deadline]\nbudget = \"10s\"", &[]).await;
    assert_eq!(served.code("search").await, 0);
}

/// D: G1.
#[test]
fn a_bad_environment_does_not_start_and_names_the_variable() {
    for (name, value) in [
        ("TOOLCALL_PRESET", "gatewya"),
        ("TOOL_TIMEOUT", "soon"),
        ("TOOL_TIMEOUT", "0"),
        ("TOOL_CIRCUIT_BREAKER_ENABLED", "maybe"),
        ("TOOL_CIRCUIT_BREAKER_THRESHOLD", "-1"),
        ("TOOL_CIRCUIT_BREAKER_WINDOW", "-30"),
        ("TOOL_CIRCUIT_BREAKER_RESET", "0"),
        ("TOOLCALL_CIRCUIT_BREAKER_TRESHOLD", "5"),
    ] {
        let said = refused("preset = \"gateway\"", &[(name, value)]);
        assert!(said.starts_with(&format!("invalid `{name}`")), "{said}");
    }
}
