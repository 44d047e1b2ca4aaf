//! Environment variables (G1).

use serde_json::{Value, json};
use tower_toolcall::settings::{Preset, Settings, TokenAuth, VARIABLES};

use crate::kit::{changed, env, secs};

/// A value for each variable that is not the default, as it stands in a file then.
fn values() -> Vec<(&'static str, &'static str, Value)> {
    vec![
        ("TOOL_TIMEOUT", "45s", json!("45s")),
        ("TOOL_IDLE_TIMEOUT", "2s", json!("2s")),
        ("TOOL_SLOW_FRACTION", "0.5", json!(0.5)),
        ("TOOL_DEADLINE_BUDGET", "2m", json!("2m")),
        ("TOOL_DEADLINE_RESERVE", "1s", json!("1s")),
        ("TOOL_RETRY_ENABLED", "false", json!(false)),
        ("TOOL_RETRY_ATTEMPTS", "5", json!(5)),
        ("TOOL_RETRY_BASE", "100ms", json!("100ms")),
        ("TOOL_RETRY_FACTOR", "1.5", json!(1.5)),
        ("TOOL_RETRY_CAP", "1m 30s", json!("1m30s")),
        ("TOOL_RETRY_JITTER", "full", json!("full")),
        ("TOOL_RETRY_BUDGET_RATIO", "0.1", json!(0.1)),
        ("TOOL_RETRY_BUDGET_MINIMUM", "0", json!(0)),
        ("TOOL_RETRY_ASSUME_REPLAY_SAFE", "yes", json!(true)),
        ("TOOL_QUOTA_TOKENS", "100", json!(100)),
        ("TOOL_QUOTA_PERIOD", "1h", json!("1h")),
        ("TOOL_QUOTA_BURST", "10", json!(10)),
        ("TOOL_QUOTA_MAX_WAIT", "5s", json!("5s")),
        ("TOOL_QUOTA_FAIL_FAST", "yes", json!(true)),
        ("TOOL_QUOTA_KEY", "agent", json!("agent")),
        ("TOOL_QUOTA_MAX_KEYS", "10", json!(10)),
        ("TOOL_CONCURRENCY_MAX", "8", json!(8)),
        ("TOOL_CONCURRENCY_MAX_QUEUE", "0", json!(0)),
        ("TOOL_CONCURRENCY_KEY", "server", json!("server")),
        ("TOOL_CONCURRENCY_MAX_KEYS", "7", json!(7)),
        ("TOOL_RATE_LIMIT_ENABLED", "off", json!(false)),
        ("TOOL_RATE_LIMIT_DEFAULT_COOLDOWN", "5s", json!("5s")),
        ("TOOL_RATE_LIMIT_MAX_WAIT", "1m", json!("1m")),
        ("TOOL_RATE_LIMIT_MAX_COOLDOWN", "2m", json!("2m")),
        ("TOOL_RATE_LIMIT_TEXT_LIMITS", "true", json!(true)),
        ("TOOL_RATE_LIMIT_ATTEMPTS", "2", json!(2)),
        ("TOOL_RATE_LIMIT_FAIL_FAST", "1", json!(true)),
        ("TOOL_RATE_LIMIT_KEY", "server", json!("server")),
        ("TOOL_RATE_LIMIT_MAX_KEYS", "10", json!(10)),
        ("TOOL_CIRCUIT_BREAKER_ENABLED", "FALSE", json!(false)),
        ("TOOL_CIRCUIT_BREAKER_THRESHOLD", "3", json!(3)),
        ("TOOL_CIRCUIT_BREAKER_WINDOW", "300", json!("5m")),
        ("TOOL_CIRCUIT_BREAKER_SUCCESS_RESETS", "no", json!(false)),
        ("TOOL_CIRCUIT_BREAKER_RESET", "0.5", json!("500ms")),
        ("TOOL_CIRCUIT_BREAKER_PROBES", "2", json!(2)),
        (
            "TOOL_CIRCUIT_BREAKER_PROBE",
            "safe_calls",
            json!("safe_calls"),
        ),
        ("TOOL_CIRCUIT_BREAKER_SUCCESSES", "4", json!(4)),
        ("TOOL_CIRCUIT_BREAKER_FAILURE_RATE", "0.7", json!(0.7)),
        ("TOOL_CIRCUIT_BREAKER_SLOW_CALL_RATE", "0.9", json!(0.9)),
        ("TOOL_CIRCUIT_BREAKER_SLOW_CALL", "7s", json!("7s")),
        ("TOOL_CIRCUIT_BREAKER_MINIMUM_CALLS", "20", json!(20)),
        ("TOOL_CIRCUIT_BREAKER_WINDOW_CALLS", "50", json!(50)),
        ("TOOL_CIRCUIT_BREAKER_KEY", "tool_name", json!("tool_name")),
        ("TOOL_CIRCUIT_BREAKER_MAX_KEYS", "7", json!(7)),
        ("TOOL_CIRCUIT_BREAKER_REPORTED_FAILURES", "on", json!(true)),
        (
            "TOOL_CIRCUIT_BREAKER_WEAK_FAILURES",
            "ignored",
            json!("ignored"),
        ),
        ("TOOL_SEQUENCE_BUDGET", "2m", json!("2m")),
        ("TOOL_SEQUENCE_RESERVE", "0s", json!("0s")),
        ("TOOL_PARALLEL_LIMIT", "4", json!(4)),
        ("TOOL_PARALLEL_BUDGET", "1m", json!("1m")),
        ("TOOL_SANITIZE_MAX_STRING", "500", json!(500)),
        ("TOOL_SANITIZE_MAX_DEPTH", "8", json!(8)),
        ("TOOL_SANITIZE_MAX_NODES", "50", json!(50)),
        (
            "TOOL_SANITIZE_SENSITIVE_KEYS",
            "iban, bic",
            json!(["iban", "bic"]),
        ),
        (
            "TOOL_SANITIZE_HARMLESS_KEYS",
            "idempotency_key",
            json!(["idempotency_key"]),
        ),
        ("TOOL_HEALTH_ENABLED", "yes", json!(true)),
        ("TOOL_HEALTH_THRESHOLD", "1", json!(1)),
        ("TOOL_HEALTH_REFUSAL", "on", json!(true)),
        ("TOOL_HEALTH_PROBE_PERIOD", "1m", json!("1m")),
        ("TOOL_HEALTH_MAX_SERVERS", "7", json!(7)),
        ("TOOL_VALIDATE_ENABLED", "no", json!(false)),
        ("TOOL_REPEAT_GUARD_ENABLED", "yes", json!(true)),
        ("TOOL_REPEAT_GUARD_FAILURES", "5", json!(5)),
        ("TOOL_REPEAT_GUARD_WINDOW", "10m", json!("10m")),
        ("TOOL_REPEAT_GUARD_MAX_KEYS", "7", json!(7)),
        ("TOOL_FIT_ENABLED", "yes", json!(true)),
        ("TOOL_FIT_MAX_CHARS", "5000", json!(5000)),
        ("TOOL_POLICY_DENY", "rm, fs__*", json!(["rm", "fs__*"])),
        ("TOOL_POLICY_ASK", "pay_*", json!(["pay_*"])),
        ("TOOL_POLICY_ALLOW", "read_*", json!(["read_*"])),
        ("TOOL_POLICY_DENY_BY_DEFAULT", "yes", json!(true)),
        ("TOOL_POLICY_APPROVAL_TIMEOUT", "1m", json!("1m")),
        ("TOOL_ONCE_ENABLED", "yes", json!(true)),
        ("TOOL_ONCE_TTL", "1h", json!("1h")),
        ("TOOL_ONCE_REPEAT_WITHIN", "5m", json!("5m")),
        ("TOOL_ONCE_MAX_KEYS", "7", json!(7)),
        ("TOOL_ONCE_MAX_ANSWER", "1000", json!(1000)),
        ("TOOL_CACHE_TOOLS", "a, b", json!(["a", "b"])),
        ("TOOL_CACHE_TTL", "5m", json!("5m")),
        ("TOOL_CACHE_MAX_KEYS", "7", json!(7)),
        ("TOOL_CACHE_MAX_ANSWER", "1000", json!(1000)),
        ("TOOL_POLL_INTERVAL", "2s", json!("2s")),
        ("TOOL_POLL_FACTOR", "2", json!(2.0)),
        ("TOOL_POLL_CAP", "1m", json!("1m")),
        ("TOOL_POLL_POLLS", "5", json!(5)),
        ("TOOL_POLL_BUDGET", "30m", json!("30m")),
        ("TOOL_POLL_CANCEL", "no", json!(false)),
        ("TOOL_HTTP_MAX_BYTES", "65536", json!(65536)),
        ("TOOL_HTTP_EMPTY_UNDEFINED", "yes", json!(true)),
        ("TOOL_HTTP_BARE_IDEMPOTENCY_KEY", "on", json!(true)),
        (
            "TOOL_TOKEN_ENDPOINT",
            "https://id.example.com/token",
            json!("https://id.example.com/token"),
        ),
        (
            "TOOL_SHARED_URL",
            "redis://localhost",
            json!("redis://localhost"),
        ),
        ("TOOL_SHARED_NAMESPACE", "prod", json!("prod")),
        ("TOOL_SHARED_QUORUM", "3", json!(3)),
        ("TOOL_SHARED_GRACE", "1s", json!("1s")),
        ("TOOL_SHARED_RESYNC", "2s", json!("2s")),
        ("TOOL_TOKEN_CLIENT_ID", "gateway", json!("gateway")),
        (
            "TOOL_TOKEN_CLIENT_SECRET_FILE",
            "/run/secrets/gateway",
            json!("/run/secrets/gateway"),
        ),
        ("TOOL_TOKEN_AUTH", "Post", json!("post")),
        ("TOOL_TOKEN_LEEWAY", "10s", json!("10s")),
        ("TOOL_TOKEN_DEFAULT_LIFETIME", "1m", json!("1m")),
        ("TOOL_TOKEN_MAX_LIFETIME", "1h", json!("1h")),
        ("TOOL_TOKEN_MAX_KEYS", "100", json!(100)),
        ("TOOL_TOKEN_TIMEOUT", "2s", json!("2s")),
        ("TOOL_VALIDATE_REPAIR", "yes", json!(true)),
        ("TOOL_VALIDATE_STRICT", "on", json!(true)),
        ("TOOL_VALIDATE_HEADING", "No", json!("No")),
        ("TOOL_TRACE_ARGUMENTS", "no", json!(false)),
        ("TOOL_TRACE_OUTPUT", "1", json!(true)),
        ("TOOL_TRACE_ATTEMPTS", "on", json!(true)),
    ]
}

/// Settings among which those of rates mean something.
fn rates() -> Settings {
    changed(|s| {
        s.circuit_breaker.failure_rate = Some(0.5);
        s.circuit_breaker.slow_call_rate = Some(0.5);
        s.circuit_breaker.slow_call = Some(secs(10));
        s.circuit_breaker.window_calls = Some(100);
    })
}

/// The keys whose values differ.
fn differences(a: &Settings, b: &Settings) -> Vec<(String, Value)> {
    let (a, b) = (json!(a), json!(b));
    let sections = b.as_object().unwrap().iter();
    sections
        .flat_map(|(section, keys)| {
            let was = &a[section];
            let keys = keys.as_object().unwrap().iter();
            keys.filter(move |(key, value)| was[key] != **value)
                .map(move |(key, value)| (format!("{section}.{key}"), value.clone()))
        })
        .collect()
}

#[test]
fn each_variable_sets_its_key_and_nothing_else() {
    let values = values();
    for variable in VARIABLES.iter().filter(|v| v.key() != "preset") {
        let row = values.iter().find(|(name, ..)| *name == variable.name());
        let (name, text, expected) =
            row.unwrap_or_else(|| panic!("{} is not tried", variable.name()));
        let of_rates = ["_RATE", "_SLOW_CALL", "_CALLS"]
            .iter()
            .any(|end| name.ends_with(end));
        let base = if of_rates {
            rates()
        } else if name.ends_with("_SUCCESS_RESETS") {
            changed(|s| s.circuit_breaker.window = Some(secs(300)))
        } else if *name == "TOOL_TOKEN_ENDPOINT" {
            changed(|s| {
                s.token.client_id = Some("gateway".into());
                s.token.auth = TokenAuth::Public;
            })
        } else if *name == "TOOL_CACHE_TOOLS" {
            changed(|s| s.cache.ttl = Some(secs(60)))
        } else {
            Settings::default()
        };
        let settings = base.clone().with_env_from([(name, text)]).unwrap();
        let differences = differences(&base, &settings);
        assert_eq!(
            differences,
            [(variable.key().to_owned(), expected.clone())],
            "{name}"
        );
    }
}

/// G1: system D's variables are seconds, with a unit or without.
#[test]
fn the_variables_of_the_gateway_take_plain_seconds() {
    assert_eq!(
        env("TOOL_TIMEOUT", "2.5").unwrap().timeout.default,
        secs(5) / 2
    );
    assert_eq!(
        env("TOOL_TIMEOUT", "45s").unwrap().timeout.default,
        secs(45)
    );
    let window = env("TOOL_CIRCUIT_BREAKER_WINDOW", "300").unwrap();
    assert_eq!(window.circuit_breaker.window, Some(secs(300)));
    let reset = env("TOOL_CIRCUIT_BREAKER_RESET", "30").unwrap();
    assert_eq!(reset.circuit_breaker.open_for, secs(30));
}

/// G1: unset is the crate's default.
#[test]
fn a_blank_variable_changes_nothing() {
    for variable in VARIABLES {
        assert_eq!(env(variable.name(), "  ").unwrap(), Settings::default());
    }
}

#[test]
fn variables_beat_a_file() {
    let file: Settings = toml::from_str("[retry]\nattempts = 5\nbase = \"3s\"").unwrap();
    let settings = file.with_env_from([("TOOL_RETRY_ATTEMPTS", "2")]).unwrap();
    assert_eq!((settings.retry.attempts, settings.retry.base), (2, secs(3)));
}

#[test]
fn none_takes_away_what_a_preset_sets() {
    let gateway = Settings::gateway();
    let settings = gateway
        .with_env_from([("TOOL_CIRCUIT_BREAKER_WINDOW", "none")])
        .unwrap();
    assert_eq!(settings.circuit_breaker.window, None);
}

/// Where there is always a value, there is nothing to take away.
#[test]
fn none_is_no_value_of_other_settings() {
    for name in [
        "TOOL_PRESET",
        "TOOL_TIMEOUT",
        "TOOL_RETRY_ATTEMPTS",
        "TOOL_RETRY_FACTOR",
        "TOOL_RETRY_ENABLED",
    ] {
        let error = env(name, "none").unwrap_err();
        assert_eq!(error.field(), name);
        assert!(error.reason().starts_with("`none` is "), "{error}");
    }
}

/// The same for lists, however it is written.
#[test]
fn none_empties_a_list_of_a_file() {
    let file = changed(|s| s.sanitize.sensitive_keys = vec!["iban".into()]);
    for none in ["none", "None", "NONE"] {
        let vars = [
            ("TOOL_SANITIZE_SENSITIVE_KEYS", none),
            ("TOOL_RETRY_JITTER", none),
            ("TOOL_IDLE_TIMEOUT", none),
        ];
        let settings = file.clone().with_env_from(vars).unwrap();
        assert!(settings.sanitize.sensitive_keys.is_empty());
        assert_eq!(json!(settings.retry.jitter), "none");
    }
}

/// G3: the preset is the base, wherever it stands in the environment.
#[test]
fn a_preset_comes_first() {
    let mut vars = [("TOOL_TIMEOUT", "7"), ("TOOL_PRESET", "agent_library")];
    for _ in 0..2 {
        let settings = Settings::default().with_env_from(vars).unwrap();
        assert_eq!(settings.timeout.default, secs(7));
        assert_eq!(settings.sequence.budget, Some(secs(30)));
        vars.reverse();
    }
}

/// W7: the preset is the base, then comes the file, then the other variables.
#[test]
fn a_preset_of_the_environment_goes_under_a_file() {
    let file = "[timeout]\ndefault = \"7s\"\n[tools.import]\ntimeout = \"45s\"";
    let file: Settings = toml::from_str(file).unwrap();
    let vars = [
        ("TOOL_CIRCUIT_BREAKER_RESET", "9"),
        ("TOOL_PRESET", "gateway"),
    ];
    let settings = file.with_env_from(vars).unwrap();
    let mut expected = Settings::gateway();
    expected.timeout.default = secs(7);
    expected.tools.entry("import".into()).or_default().timeout = Some(secs(45));
    expected.circuit_breaker.open_for = secs(9);
    assert_eq!(settings, expected);
}

/// W7: what the file says holds, also where it says a preset's own value: that of the crate, or of the file's preset.
#[test]
fn a_file_keeps_what_it_says_under_another_preset() {
    for file in [
        "[timeout]\ndefault = \"30s\"",
        "preset = \"gateway\"\n[timeout]\ndefault = \"60s\"",
    ] {
        let file: Settings = toml::from_str(file).unwrap();
        let said = file.timeout.default;
        let settings = file.with_env_from([("TOOL_PRESET", "agent_library")]);
        let settings = settings.unwrap();
        assert_eq!(settings.timeout.default, said);
        assert_eq!(settings.sequence.budget, Some(secs(30)));
        assert_eq!(settings.circuit_breaker.window, None);
    }
}

/// W7: `TOOL_PRESET` takes the place of the preset that a file, or the program, begins with.
#[test]
fn a_preset_of_the_environment_beats_that_of_the_program() {
    for preset in Preset::ALL {
        let vars = [("TOOL_PRESET", preset.name())];
        let settings = Settings::gateway().with_env_from(vars).unwrap();
        assert_eq!(settings, Settings::preset(preset));
        let mut program = Settings::gateway();
        program.timeout.default = secs(7);
        let settings = program.with_env_from(vars).unwrap();
        let mut expected = Settings::preset(preset);
        expected.timeout.default = secs(7);
        assert_eq!(settings, expected);
    }
}

/// W7: the base changes once, and what variables have set stays when they are read again.
#[test]
fn variables_that_were_read_stay_under_another_preset() {
    let first = env("TOOL_TIMEOUT", "30").unwrap();
    let settings = first.with_env_from([("TOOL_PRESET", "gateway")]).unwrap();
    assert_eq!(settings.timeout.default, secs(30));
}

#[test]
fn each_preset_has_a_name_for_the_variable() {
    for preset in Preset::ALL {
        assert_eq!(
            env("TOOL_PRESET", preset.name()).unwrap(),
            Settings::preset(preset)
        );
        assert_eq!(preset.name().parse::<Preset>().unwrap(), preset);
        assert_eq!(json!(preset), preset.name());
    }
}

/// G1: a slip in a name is not silent.
#[test]
fn an_unknown_variable_of_our_sections_is_an_error() {
    for name in [
        "TOOL_RETRY_ATEMPTS",
        "TOOL_RATE_LIMIT_COOL_DOWN",
        "TOOL_CIRCUIT_BREAKER_TRESHOLD",
        "TOOL_SEQUENCE_LIMIT",
        "TOOL_HEALTH_TRESHOLD",
        "TOOL_PARALLEL_RESERVE",
        "TOOL_SANITIZE_KEYS",
        "TOOL_DEADLINE_",
        "TOOL_TIMEOUT_MS",
        "TOOL_TRACE_SPANS",
        "TOOL_TOKEN_SECRET",
    ] {
        assert_eq!(env(name, "1").unwrap_err().field(), name);
    }
}

/// The one that is no setting.
#[test]
fn a_clients_secret_is_no_unknown_variable() {
    assert!(env("TOOL_TOKEN_CLIENT_SECRET", "hunter2").is_ok());
    assert!(
        VARIABLES
            .iter()
            .all(|v| v.name() != "TOOL_TOKEN_CLIENT_SECRET")
    );
}

#[test]
fn other_variables_are_somebody_elses() {
    for name in ["TOOL_HOME", "RETRY_ATTEMPTS", "tool_timeout", "PATH", ""] {
        assert_eq!(env(name, "nonsense").unwrap(), Settings::default());
    }
}

/// The real environment, in which nothing of ours is set when tests run.
#[test]
fn the_environment_can_be_read() {
    if std::env::vars_os().all(|(name, _)| !name.to_string_lossy().starts_with("TOOL_")) {
        assert_eq!(Settings::from_env().unwrap(), Settings::default());
    }
}

/// The help says of which variables a plain number is seconds.
#[test]
fn a_plain_number_is_seconds_where_the_help_says_so() {
    for variable in VARIABLES {
        let says = variable.help().contains("a plain number is seconds");
        let reason = env(variable.name(), "7").err();
        let asks_for_a_unit = reason.is_some_and(|e| e.reason().contains("has no unit"));
        assert!(!(says && asks_for_a_unit), "{variable:?}");
        let is_duration = env(variable.name(), "7s").is_ok() && env(variable.name(), "x7").is_err();
        assert!(!is_duration || says != asks_for_a_unit, "{variable:?}");
    }
}
