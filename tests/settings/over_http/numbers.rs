//! The presets' own numbers, by a file and by the environment; and settings that are refused.

use serde_json::{Value, json};

use super::kit::{Served, refused};

/// Keys and their values, in a process that knows nothing but the preset's name.
async fn numbers(preset: &str, expected: &[(&str, Value)]) {
    let by_env = Served::start("", &[("TOOLCALL_PRESET", preset)]).await;
    let by_file = Served::start(&format!("preset = \"{preset}\""), &[]).await;
    assert_ne!(by_env.process_id(), by_file.process_id());
    let settings = by_env.settings().await;
    assert_eq!(settings, by_file.settings().await);
    for (key, value) in expected {
        let path = format!("/{}", key.replace('.', "/"));
        assert_eq!(settings.pointer(&path), Some(value), "{preset}: {key}");
    }
}

/// A: T1, R1, L1, C2, C3.
#[tokio::test]
async fn a_has_the_defaults() {
    let expected = [
        ("timeout.default", json!("30s")),
        ("retry.attempts", json!(3)),
        ("rate_limit.default_cooldown", json!("30s")),
        ("circuit_breaker.enabled", json!(true)),
        ("circuit_breaker.threshold", json!(5)),
        ("circuit_breaker.window", json!("none")),
        ("circuit_breaker.open_for", json!("1m")),
    ];
    numbers("default", &expected).await;
}

/// B: 5 s / 30 s / 500 ms / 80 %; W8: no breaker.
#[tokio::test]
async fn b_has_its_numbers() {
    let expected = [
        ("timeout.default", json!("5s")),
        ("timeout.slow_fraction", json!(0.8)),
        ("sequence.budget", json!("30s")),
        ("sequence.reserve", json!("500ms")),
        ("parallel.budget", json!("1m")),
        ("retry.attempts", json!(1)),
        ("circuit_breaker.enabled", json!(false)),
    ];
    numbers("agent_library", &expected).await;
}

/// C: 30 s, 3 attempts, 30 s; W8: no breaker. P11: nothing is assumed to be safe.
#[tokio::test]
async fn c_has_its_numbers() {
    let expected = [
        ("timeout.default", json!("30s")),
        ("retry.attempts", json!(3)),
        ("retry.base", json!("1s")),
        ("retry.cap", json!("30s")),
        ("retry.assume_replay_safe", json!(false)),
        ("rate_limit.default_cooldown", json!("30s")),
        ("circuit_breaker.enabled", json!(false)),
    ];
    numbers("agent_loop", &expected).await;
}

/// D: 60 s, 5/60/300; W3: one attempt.
#[tokio::test]
async fn d_has_its_numbers() {
    let expected = [
        ("timeout.default", json!("1m")),
        ("retry.attempts", json!(1)),
        ("rate_limit.fail_fast", json!(true)),
        ("deadline.budget", json!("none")),
        ("circuit_breaker.threshold", json!(5)),
        ("circuit_breaker.open_for", json!("1m")),
        ("circuit_breaker.window", json!("5m")),
        ("circuit_breaker.success_resets", json!(true)),
        ("circuit_breaker.probes", json!(1)),
        ("circuit_breaker.key", json!("tool")),
    ];
    numbers("gateway", &expected).await;
}

/// E: 30 s, 5/30/3, per server; W3: one attempt.
#[tokio::test]
async fn e_has_its_numbers() {
    let expected = [
        ("timeout.default", json!("30s")),
        ("retry.attempts", json!(1)),
        ("rate_limit.fail_fast", json!(true)),
        ("circuit_breaker.threshold", json!(5)),
        ("circuit_breaker.open_for", json!("30s")),
        ("circuit_breaker.probes", json!(3)),
        ("circuit_breaker.key", json!("server")),
    ];
    numbers("http_proxy", &expected).await;
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
