//! Issue 22: nothing is changed in silence.

use std::time::Duration;

use expect_test::expect;
use tower_toolcall::settings::{Preset, Settings, VARIABLES};

use crate::kit::changed;

/// Each change names the value that gave way, and the setting that it gave way to.
#[test]
fn a_text_says_what_runs_and_why() {
    let file: Settings = toml::from_str(
        r#"
        preset = "gateway"
        [rate_limit]
        default_cooldown = "10m"
        [retry]
        base = "1m"
        [tools.import]
        timeout = "2m"
        attempts = 2
        "#,
    )
    .unwrap();
    let settings = file
        .with_env_from([("TOOLCALL_CIRCUIT_BREAKER_THRESHOLD", "4")])
        .unwrap();
    expect![[r#"
        preset: gateway
        validate (if the program adds it): on
        repeat_guard: off, `repeat_guard.enabled` is false
        fit (if the program adds it): off, `fit.enabled` is false
        policy: off, `policy.deny` is []
        once (if the program adds it): off, `once.enabled` is false
        cache (if the program adds it): off, `cache.tools` is []
        poll (if the program adds it): on, interval = 1s, factor = 1.5, cap = 30s, polls = 60, cancel = true
        http (if the program adds it): on, max_bytes = 1048576
        shared (if the program adds it): off, `shared.url` is none
        token (if the program adds it): off, `token.endpoint` is none
        timeout: on, default = 1m [gateway], slow_fraction = 0.8
        deadline: on, reserve = 500ms
        quota: off, `quota.units` is none
        retry: on, attempts = 1 [gateway], base = 1m [set], factor = 2.0, cap = 1m [30s gave way to `retry.base`], jitter = upwards, budget_ratio = 0.2, budget_minimum = 10
        rate_limit: on, default_cooldown = 10m [set], max_wait = 10m [5m gave way to `rate_limit.default_cooldown`], max_cooldown = 10m [5m gave way to `rate_limit.default_cooldown`], attempts = 3, fail_fast = true [gateway], key = tool, max_keys = 10000
        health: off, `health.enabled` is false
        concurrency: off, `concurrency.max` is none
        circuit_breaker: on, threshold = 4 [TOOLCALL_CIRCUIT_BREAKER_THRESHOLD], window = 8m [5m gave way to `tools.import.timeout`], success_resets = true, open_for = 1m, probes = 1, probe = any_call, key = tool, max_keys = 10000, weak_failures = per_principal
        sequence (if the program adds it): on, reserve = 500ms
        parallel (if the program adds it): on
        sanitize: on, max_string = 200, max_depth = 16, max_nodes = 1000
        trace: on, arguments = true
        tools.import: attempts = 2, timeout = 2m
    "#]].assert_eq(&settings.explain());
}

/// A layer that is off says which setting would switch it on.
#[test]
fn a_text_says_why_a_layer_is_off() {
    let settings = changed(|s| {
        s.retry.attempts = 1;
        s.rate_limit.enabled = false;
        s.circuit_breaker.enabled = false;
    });
    let text = settings.explain();
    let off = text.lines().filter(|line| line.contains("off, "));
    let off: Vec<_> = off.collect();
    expect![[r#"
        repeat_guard: off, `repeat_guard.enabled` is false
        fit (if the program adds it): off, `fit.enabled` is false
        policy: off, `policy.deny` is []
        once (if the program adds it): off, `once.enabled` is false
        cache (if the program adds it): off, `cache.tools` is []
        shared (if the program adds it): off, `shared.url` is none
        token (if the program adds it): off, `token.endpoint` is none
        quota: off, `quota.units` is none
        retry: off, `retry.attempts` is 1 [set]
        rate_limit: off, `rate_limit.enabled` is false [set]
        health: off, `health.enabled` is false
        concurrency: off, `concurrency.max` is none
        circuit_breaker: off, `circuit_breaker.enabled` is false [set]"#]]
    .assert_eq(&off.join("\n"));
}

#[test]
fn a_default_that_gives_way_is_named_with_its_reason() {
    for (text, line) in [
        (
            "poll.interval = '1m'",
            "cap = 1m [30s gave way to `poll.interval`]",
        ),
        (
            "retry.base = '2m'",
            "cap = 2m [30s gave way to `retry.base`]",
        ),
        (
            "rate_limit.max_cooldown = '5s'",
            "default_cooldown = 5s [30s gave way to `rate_limit.max_cooldown`]",
        ),
        (
            "parallel.budget = '100ms'",
            "reserve = 10ms [500ms gave way to `parallel.budget`]",
        ),
        (
            "sequence.budget = '100ms'",
            "reserve = 10ms [500ms gave way to `sequence.budget`]",
        ),
        (
            "once.enabled = true\nonce.max_bytes = 80000",
            "max_answer = 10000 [65536 gave way to `once.max_bytes`]",
        ),
        (
            "cache.tools = ['x']\ncache.ttl = '1m'\ncache.max_bytes = 8",
            "max_answer = 1 [65536 gave way to `cache.max_bytes`]",
        ),
        (
            "preset = 'gateway'\ntools.slow.timeout = '10m'",
            "window = 50m [5m gave way to `tools.slow.timeout`]",
        ),
        (
            "preset = 'gateway'\n[circuit_breaker]\nwindow_calls = 9\nfailure_rate = 0.5",
            "window = none [5m gave way to `circuit_breaker.window_calls`]",
        ),
    ] {
        let settings: Settings = toml::from_str(text).unwrap();
        assert_eq!(settings.check(), Ok(()), "{text}");
        let explained = settings.explain();
        assert!(explained.contains(line), "{line} in {explained}");
        assert_eq!(explained.matches("gave way").count(), 1, "{explained}");
    }
}

#[test]
fn each_section_has_one_line_and_no_default_gives_way_unasked() {
    for preset in Preset::ALL {
        let text = Settings::preset(preset).explain();
        assert!(
            !text.contains("gave way") && !text.contains("[set]"),
            "{text}"
        );
        for variable in VARIABLES {
            let section = variable.key().split('.').next().unwrap();
            let begins = |line: &&str| line.split([':', ' ']).next() == Some(section);
            assert_eq!(text.lines().filter(begins).count(), 1, "{section}: {text}");
        }
    }
}

/// 20b: a value that was set or derived is shown, although it is blank. The last case is derived.
#[test]
fn a_blank_value_in_force_is_shown() {
    for (file, shown) in [
        ("retry.jitter = 'none'", "jitter = none [set]"),
        (
            "trace.arguments = false",
            "\ntrace: on, arguments = false [set]",
        ),
        ("poll.cancel = false", "cancel = false [set]"),
        ("circuit_breaker.window = 'none'", "window = none [set]"),
        (
            "[token]\nendpoint = 'https://id.example.com'\nclient_id = 'a'\nauth = 'public'",
            "per_principal = true [none gave way to `token.endpoint`]",
        ),
    ] {
        let settings: Settings = toml::from_str(file).unwrap();
        let text = settings.explain();
        assert!(text.contains(shown), "{shown} in {text}");
    }
}

/// 20b: what is named set the value. The second case is a default that gave way to a threshold.
#[test]
fn a_value_has_the_origin_that_set_it() {
    let file: Settings = toml::from_str("retry.attempts = 2").unwrap();
    let vars = [("TOOLCALL_TIMEOUT", "5s"), ("TOOLCALL_RETRY_BASE", "2s")];
    let mut settings = file.with_env_from(vars).unwrap();
    settings.timeout.default = Duration::from_secs(7);
    let text = settings.explain();
    assert!(text.contains("default = 7s [set]"), "{text}");
    assert!(text.contains("base = 2s [TOOLCALL_RETRY_BASE]"), "{text}");

    let file = "preset = 'gateway'\ncircuit_breaker.threshold = 20";
    let text = toml::from_str::<Settings>(file).unwrap().explain();
    let line = "gave way to `circuit_breaker.threshold`]";
    assert!(text.contains(line), "{text}");
}

/// S2: a file's name and an address may be the secret itself, by mistake.
#[test]
fn a_text_has_no_secret() {
    let file = r#"
        shared.url = "redis://user:s3cr3t@store.example.com?key=s3cr3t"
        [token]
        endpoint = "https://id.example.com/s3cr3t"
        client_id = "gateway"
        client_secret_file = "s3cr3t"
    "#;
    let settings: Settings = toml::from_str(file).unwrap();
    let vars = [("TOOLCALL_TOKEN_CLIENT_SECRET", "s3cr3t")];
    let text = settings.with_env_from(vars).unwrap().explain();
    assert!(
        text.contains("redis://store.example.com") && !text.contains("s3cr3t"),
        "{text}"
    );
}
