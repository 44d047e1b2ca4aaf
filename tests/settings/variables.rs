//! Environment variables (G1).

use expect_test::expect;
use serde_json::{Value, json};
use tower_toolcall::settings::{Preset, Settings, TokenAuth, VARIABLES};

use crate::kit::{changed, env, secs};

/// A value for each variable that is not the default, as it stands in a file then.
fn values() -> Vec<(&'static str, &'static str, Value)> {
    vec![
        ("TOOLCALL_TIMEOUT", "45s", json!("45s")),
        ("TOOLCALL_IDLE_TIMEOUT", "2s", json!("2s")),
        ("TOOLCALL_SLOW_FRACTION", "0.5", json!(0.5)),
        ("TOOLCALL_DEADLINE_BUDGET", "2m", json!("2m")),
        ("TOOLCALL_DEADLINE_RESERVE", "1s", json!("1s")),
        ("TOOLCALL_RETRY_ENABLED", "false", json!(false)),
        ("TOOLCALL_RETRY_ATTEMPTS", "5", json!(5)),
        ("TOOLCALL_RETRY_BASE", "100ms", json!("100ms")),
        ("TOOLCALL_RETRY_FACTOR", "1.5", json!(1.5)),
        ("TOOLCALL_RETRY_CAP", "1m 30s", json!("1m30s")),
        ("TOOLCALL_RETRY_JITTER", "full", json!("full")),
        ("TOOLCALL_RETRY_BUDGET_RATIO", "0.1", json!(0.1)),
        ("TOOLCALL_RETRY_BUDGET_MINIMUM", "0", json!(0)),
        ("TOOLCALL_RETRY_ASSUME_REPLAY_SAFE", "yes", json!(true)),
        ("TOOLCALL_QUOTA_TOKENS", "100", json!(100)),
        ("TOOLCALL_QUOTA_PERIOD", "1h", json!("1h")),
        ("TOOLCALL_QUOTA_BURST", "10", json!(10)),
        ("TOOLCALL_QUOTA_MAX_WAIT", "5s", json!("5s")),
        ("TOOLCALL_QUOTA_FAIL_FAST", "yes", json!(true)),
        ("TOOLCALL_QUOTA_KEY", "agent", json!("agent")),
        ("TOOLCALL_QUOTA_MAX_KEYS", "10", json!(10)),
        ("TOOLCALL_CONCURRENCY_MAX", "8", json!(8)),
        ("TOOLCALL_CONCURRENCY_MAX_QUEUE", "0", json!(0)),
        ("TOOLCALL_CONCURRENCY_KEY", "server", json!("server")),
        ("TOOLCALL_CONCURRENCY_MAX_KEYS", "7", json!(7)),
        ("TOOLCALL_RATE_LIMIT_ENABLED", "off", json!(false)),
        ("TOOLCALL_RATE_LIMIT_DEFAULT_COOLDOWN", "5s", json!("5s")),
        ("TOOLCALL_RATE_LIMIT_MAX_WAIT", "1m", json!("1m")),
        ("TOOLCALL_RATE_LIMIT_MAX_COOLDOWN", "2m", json!("2m")),
        ("TOOLCALL_RATE_LIMIT_TEXT_LIMITS", "true", json!(true)),
        ("TOOLCALL_RATE_LIMIT_ATTEMPTS", "2", json!(2)),
        ("TOOLCALL_RATE_LIMIT_FAIL_FAST", "1", json!(true)),
        ("TOOLCALL_RATE_LIMIT_KEY", "server", json!("server")),
        ("TOOLCALL_RATE_LIMIT_PER_PRINCIPAL", "true", json!(true)),
        ("TOOLCALL_RETRY_TOTAL_BUDGET_RATIO", "0.5", json!(0.5)),
        ("TOOLCALL_RATE_LIMIT_MAX_KEYS", "10", json!(10)),
        ("TOOLCALL_CIRCUIT_BREAKER_ENABLED", "FALSE", json!(false)),
        ("TOOLCALL_CIRCUIT_BREAKER_THRESHOLD", "3", json!(3)),
        ("TOOLCALL_CIRCUIT_BREAKER_WINDOW", "300", json!("5m")),
        (
            "TOOLCALL_CIRCUIT_BREAKER_SUCCESS_RESETS",
            "no",
            json!(false),
        ),
        ("TOOLCALL_CIRCUIT_BREAKER_RESET", "0.5", json!("500ms")),
        ("TOOLCALL_CIRCUIT_BREAKER_PROBES", "2", json!(2)),
        (
            "TOOLCALL_CIRCUIT_BREAKER_PROBE",
            "safe_calls",
            json!("safe_calls"),
        ),
        ("TOOLCALL_CIRCUIT_BREAKER_SUCCESSES", "4", json!(4)),
        ("TOOLCALL_CIRCUIT_BREAKER_PROBE_WAIT", "9s", json!("9s")),
        ("TOOLCALL_CIRCUIT_BREAKER_FAILURE_RATE", "0.7", json!(0.7)),
        ("TOOLCALL_CIRCUIT_BREAKER_SLOW_CALL_RATE", "0.9", json!(0.9)),
        ("TOOLCALL_CIRCUIT_BREAKER_SLOW_CALL", "7s", json!("7s")),
        ("TOOLCALL_CIRCUIT_BREAKER_MINIMUM_CALLS", "20", json!(20)),
        ("TOOLCALL_CIRCUIT_BREAKER_WINDOW_CALLS", "50", json!(50)),
        (
            "TOOLCALL_CIRCUIT_BREAKER_KEY",
            "tool_name",
            json!("tool_name"),
        ),
        ("TOOLCALL_CIRCUIT_BREAKER_MAX_KEYS", "7", json!(7)),
        (
            "TOOLCALL_CIRCUIT_BREAKER_REPORTED_FAILURES",
            "on",
            json!(true),
        ),
        (
            "TOOLCALL_CIRCUIT_BREAKER_WEAK_FAILURES",
            "ignored",
            json!("ignored"),
        ),
        ("TOOLCALL_SEQUENCE_BUDGET", "2m", json!("2m")),
        ("TOOLCALL_SEQUENCE_RESERVE", "0s", json!("0s")),
        ("TOOLCALL_PARALLEL_LIMIT", "4", json!(4)),
        ("TOOLCALL_PARALLEL_BUDGET", "1m", json!("1m")),
        ("TOOLCALL_SANITIZE_MAX_STRING", "500", json!(500)),
        ("TOOLCALL_SANITIZE_MAX_DEPTH", "8", json!(8)),
        ("TOOLCALL_SANITIZE_MAX_NODES", "50", json!(50)),
        (
            "TOOLCALL_SANITIZE_SENSITIVE_KEYS",
            "iban, bic",
            json!(["iban", "bic"]),
        ),
        (
            "TOOLCALL_SANITIZE_HARMLESS_KEYS",
            "idempotency_key",
            json!(["idempotency_key"]),
        ),
        ("TOOLCALL_HEALTH_ENABLED", "yes", json!(true)),
        ("TOOLCALL_HEALTH_THRESHOLD", "1", json!(1)),
        ("TOOLCALL_HEALTH_REFUSAL", "on", json!(true)),
        ("TOOLCALL_HEALTH_PROBE_PERIOD", "1m", json!("1m")),
        ("TOOLCALL_HEALTH_MAX_SERVERS", "7", json!(7)),
        ("TOOLCALL_VALIDATE_ENABLED", "no", json!(false)),
        ("TOOLCALL_REPEAT_GUARD_ENABLED", "yes", json!(true)),
        ("TOOLCALL_REPEAT_GUARD_FAILURES", "5", json!(5)),
        ("TOOLCALL_REPEAT_GUARD_WINDOW", "10m", json!("10m")),
        ("TOOLCALL_REPEAT_GUARD_MAX_KEYS", "7", json!(7)),
        ("TOOLCALL_FIT_ENABLED", "yes", json!(true)),
        ("TOOLCALL_FIT_MAX_CHARS", "5000", json!(5000)),
        ("TOOLCALL_POLICY_DENY", "rm, fs__*", json!(["rm", "fs__*"])),
        ("TOOLCALL_POLICY_ASK", "pay_*", json!(["pay_*"])),
        ("TOOLCALL_POLICY_ALLOW", "read_*", json!(["read_*"])),
        ("TOOLCALL_POLICY_DENY_BY_DEFAULT", "yes", json!(true)),
        ("TOOLCALL_POLICY_APPROVAL_TIMEOUT", "1m", json!("1m")),
        ("TOOLCALL_ONCE_ENABLED", "yes", json!(true)),
        ("TOOLCALL_ONCE_TTL", "1h", json!("1h")),
        ("TOOLCALL_ONCE_REPEAT_WITHIN", "5m", json!("5m")),
        ("TOOLCALL_ONCE_MAX_KEYS", "7", json!(7)),
        ("TOOLCALL_ONCE_MAX_ANSWER", "1000", json!(1000)),
        ("TOOLCALL_ONCE_MAX_BYTES", "1000000", json!(1_000_000)),
        ("TOOLCALL_CACHE_TOOLS", "a, b", json!(["a", "b"])),
        ("TOOLCALL_CACHE_TTL", "5m", json!("5m")),
        ("TOOLCALL_CACHE_MAX_KEYS", "7", json!(7)),
        ("TOOLCALL_CACHE_MAX_ANSWER", "1000", json!(1000)),
        ("TOOLCALL_CACHE_MAX_BYTES", "1000000", json!(1_000_000)),
        ("TOOLCALL_POLL_INTERVAL", "2s", json!("2s")),
        ("TOOLCALL_POLL_FACTOR", "2", json!(2.0)),
        ("TOOLCALL_POLL_CAP", "1m", json!("1m")),
        ("TOOLCALL_POLL_POLLS", "5", json!(5)),
        ("TOOLCALL_POLL_BUDGET", "30m", json!("30m")),
        ("TOOLCALL_POLL_CANCEL", "no", json!(false)),
        ("TOOLCALL_HTTP_MAX_BYTES", "65536", json!(65536)),
        ("TOOLCALL_HTTP_EMPTY_UNDEFINED", "yes", json!(true)),
        ("TOOLCALL_HTTP_BARE_IDEMPOTENCY_KEY", "on", json!(true)),
        (
            "TOOLCALL_TOKEN_ENDPOINT",
            "https://id.example.com/token",
            json!("https://id.example.com/token"),
        ),
        (
            "TOOLCALL_SHARED_URL",
            "redis://localhost",
            json!("redis://localhost"),
        ),
        ("TOOLCALL_SHARED_NAMESPACE", "prod", json!("prod")),
        ("TOOLCALL_SHARED_GRACE", "1s", json!("1s")),
        ("TOOLCALL_SHARED_RESYNC", "2s", json!("2s")),
        ("TOOLCALL_TOKEN_CLIENT_ID", "gateway", json!("gateway")),
        (
            "TOOLCALL_TOKEN_CLIENT_SECRET_FILE",
            "/run/secrets/gateway",
            json!("/run/secrets/gateway"),
        ),
        ("TOOLCALL_TOKEN_AUTH", "Post", json!("post")),
        ("TOOLCALL_TOKEN_LEEWAY", "10s", json!("10s")),
        ("TOOLCALL_TOKEN_DEFAULT_LIFETIME", "1m", json!("1m")),
        ("TOOLCALL_TOKEN_MAX_LIFETIME", "1h", json!("1h")),
        ("TOOLCALL_TOKEN_MAX_KEYS", "100", json!(100)),
        ("TOOLCALL_TOKEN_TIMEOUT", "2s", json!("2s")),
        ("TOOLCALL_VALIDATE_REPAIR", "yes", json!(true)),
        ("TOOLCALL_VALIDATE_STRICT", "on", json!(true)),
        ("TOOLCALL_VALIDATE_HEADING", "No", json!("No")),
        ("TOOLCALL_TRACE_ARGUMENTS", "no", json!(false)),
        ("TOOLCALL_TRACE_OUTPUT", "1", json!(true)),
        ("TOOLCALL_TRACE_ATTEMPTS", "on", json!(true)),
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
        } else if *name == "TOOLCALL_TOKEN_ENDPOINT" {
            changed(|s| {
                s.token.client_id = Some("gateway".into());
                s.token.auth = TokenAuth::Public;
            })
        } else if *name == "TOOLCALL_CACHE_TOOLS" {
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

/// P15: a number without a unit is seconds, of each variable that is a duration.
#[test]
fn a_plain_number_is_seconds() {
    let millis = |text| {
        env("TOOLCALL_TIMEOUT", text)
            .unwrap()
            .timeout
            .default
            .as_millis()
    };
    assert_eq!(
        [millis("2.5"), millis("45s"), millis("45")],
        [2_500, 45_000, 45_000]
    );
    let retry = env("TOOLCALL_RETRY_BASE", "3").unwrap().retry;
    assert_eq!(retry.base, secs(3));
    for variable in VARIABLES {
        let is_duration = env(variable.name(), "7s").is_ok() && env(variable.name(), "x7").is_err();
        assert!(!is_duration || env(variable.name(), "7") == env(variable.name(), "7s"));
    }
    let error = env("TOOLCALL_RETRY_BASE", "-3").unwrap_err().to_string();
    expect!["invalid `TOOLCALL_RETRY_BASE`: `-3` is negative: a duration is at least 0"]
        .assert_eq(&error);
}

/// P15: the five names of a gateway (system D) are aliases, and no other name without the prefix is
/// one.
#[test]
fn the_five_variables_of_the_gateway_are_aliases() {
    let aliases = [
        ("TOOL_TIMEOUT", "7"),
        ("TOOL_CIRCUIT_BREAKER_ENABLED", "false"),
        ("TOOL_CIRCUIT_BREAKER_THRESHOLD", "7"),
        ("TOOL_CIRCUIT_BREAKER_RESET", "7"),
        ("TOOL_CIRCUIT_BREAKER_WINDOW", "777"),
    ];
    for (alias, value) in aliases {
        let name = alias.replace("TOOL_", "TOOLCALL_");
        let settings = env(alias, value).unwrap();
        assert_eq!(settings, env(&name, value).unwrap(), "{alias}");
        assert_ne!(settings, Settings::default(), "{alias}");
        let variable = VARIABLES.iter().find(|v| v.alias() == Some(alias));
        assert_eq!(variable.unwrap().name(), name);
        // Its error names what was set.
        assert_eq!(env(alias, "x").unwrap_err().field(), alias);
    }
    assert_eq!(VARIABLES.iter().filter_map(|v| v.alias()).count(), 5);
}

/// P15: a variable and its alias are one setting.
#[test]
fn an_alias_with_another_value_is_an_error() {
    let both = |name, alias| {
        let vars = [("TOOLCALL_TIMEOUT", name), ("TOOL_TIMEOUT", alias)];
        Settings::default().with_env_from(vars)
    };
    assert_eq!(both("60", "1m").unwrap().timeout.default, secs(60));
    assert_eq!(both("60", " ").unwrap().timeout.default, secs(60));
    let vars = [
        ("TOOL_CIRCUIT_BREAKER_ENABLED", "yes"),
        ("TOOLCALL_CIRCUIT_BREAKER_ENABLED", "off"),
    ];
    let errors = [both("60", "45"), Settings::default().with_env_from(vars)];
    expect![[r#"
        invalid `TOOLCALL_TIMEOUT`: `60` differs from `TOOL_TIMEOUT`, which is `45`
        invalid `TOOLCALL_CIRCUIT_BREAKER_ENABLED`: `off` differs from `TOOL_CIRCUIT_BREAKER_ENABLED`, which is `yes`"#]].assert_eq(&errors.map(|error| error.unwrap_err().to_string()).join("\n"));
}

/// Issue 48.6: a variable that is given twice with different values is not taken in silence.
#[test]
fn a_variable_with_two_values_is_an_error() {
    let both = |one, other| {
        let vars = [
            ("TOOLCALL_RETRY_ATTEMPTS", one),
            ("TOOLCALL_RETRY_ATTEMPTS", other),
        ];
        Settings::default().with_env_from(vars)
    };
    assert_eq!(both("2", "2").unwrap().retry.attempts, 2);
    assert_eq!(both("2", " ").unwrap().retry.attempts, 2);
    expect!["invalid `TOOLCALL_RETRY_ATTEMPTS`: `2` differs from `TOOLCALL_RETRY_ATTEMPTS`, which is `4`"]
        .assert_eq(&both("2", "4").unwrap_err().to_string());
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
    let settings = file
        .with_env_from([("TOOLCALL_RETRY_ATTEMPTS", "2")])
        .unwrap();
    assert_eq!((settings.retry.attempts, settings.retry.base), (2, secs(3)));
}

#[test]
fn none_takes_away_what_a_preset_sets() {
    let gateway = Settings::gateway();
    let settings = gateway
        .with_env_from([("TOOLCALL_CIRCUIT_BREAKER_WINDOW", "none")])
        .unwrap();
    assert_eq!(settings.circuit_breaker.window, None);
}

/// Where there is always a value, there is nothing to take away.
#[test]
fn none_is_no_value_of_other_settings() {
    let names = [
        "TOOLCALL_PRESET",
        "TOOLCALL_TIMEOUT",
        "TOOLCALL_RETRY_ATTEMPTS",
        "TOOLCALL_RETRY_FACTOR",
        "TOOLCALL_RETRY_ENABLED",
    ];
    let errors = names.map(|name| env(name, "none").unwrap_err().to_string());
    expect![[r#"
        invalid `TOOLCALL_PRESET`: unknown value `none`; expected one of `default`, `agent_library`, `agent_loop`, `gateway`, `http_proxy`
        invalid `TOOLCALL_TIMEOUT`: `none` is not a duration such as 30s, 500ms or 1m30s, or a number of seconds
        invalid `TOOLCALL_RETRY_ATTEMPTS`: `none` is not a whole number from 0 to 4,294,967,295
        invalid `TOOLCALL_RETRY_FACTOR`: `none` is not a number
        invalid `TOOLCALL_RETRY_ENABLED`: `none` is neither true nor false"#]].assert_eq(&errors.join("\n"));
}

/// The same for lists, however it is written.
#[test]
fn none_empties_a_list_of_a_file() {
    let file = changed(|s| s.sanitize.sensitive_keys = vec!["iban".into()]);
    for none in ["none", "None", "NONE"] {
        let vars = [
            ("TOOLCALL_SANITIZE_SENSITIVE_KEYS", none),
            ("TOOLCALL_RETRY_JITTER", none),
            ("TOOLCALL_IDLE_TIMEOUT", none),
        ];
        let settings = file.clone().with_env_from(vars).unwrap();
        assert!(settings.sanitize.sensitive_keys.is_empty());
        assert_eq!(json!(settings.retry.jitter), "none");
    }
}

/// G3: the preset is the base, wherever it stands in the environment.
#[test]
fn a_preset_comes_first() {
    let mut vars = [
        ("TOOLCALL_TIMEOUT", "7"),
        ("TOOLCALL_PRESET", "agent_library"),
    ];
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
        ("TOOLCALL_CIRCUIT_BREAKER_RESET", "9"),
        ("TOOLCALL_PRESET", "gateway"),
    ];
    let settings = file.with_env_from(vars).unwrap();
    let mut expected = Settings::gateway();
    expected.timeout.default = secs(7);
    expected.tools.entry("import".into()).or_default().timeout = Some(secs(45));
    expected.circuit_breaker.open_for = secs(9);
    assert_eq!(settings, expected);
}

/// W7: what the file says holds, also where it says a preset's own value: that of the crate, or of
/// the file's preset.
#[test]
fn a_file_keeps_what_it_says_under_another_preset() {
    for file in [
        "[timeout]\ndefault = \"30s\"",
        "preset = \"gateway\"\n[timeout]\ndefault = \"60s\"",
    ] {
        let file: Settings = toml::from_str(file).unwrap();
        let said = file.timeout.default;
        let settings = file.with_env_from([("TOOLCALL_PRESET", "agent_library")]);
        let settings = settings.unwrap();
        assert_eq!(settings.timeout.default, said);
        assert_eq!(settings.sequence.budget, Some(secs(30)));
        assert_eq!(settings.circuit_breaker.window, None);
    }
}

/// W7: `TOOLCALL_PRESET` takes the place of the preset that a file, or the program, begins with.
#[test]
fn a_preset_of_the_environment_beats_that_of_the_program() {
    for preset in Preset::ALL {
        let vars = [("TOOLCALL_PRESET", preset.name())];
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
    let first = env("TOOLCALL_TIMEOUT", "30").unwrap();
    let settings = first
        .with_env_from([("TOOLCALL_PRESET", "gateway")])
        .unwrap();
    assert_eq!(settings.timeout.default, secs(30));
}

#[test]
fn each_preset_has_a_name_for_the_variable() {
    for preset in Preset::ALL {
        assert_eq!(
            env("TOOLCALL_PRESET", preset.name()).unwrap(),
            Settings::preset(preset)
        );
        assert_eq!(preset.name().parse::<Preset>().unwrap(), preset);
        assert_eq!(json!(preset), preset.name());
    }
}

/// P15: an unknown name with our prefix is an error that names the nearest.
#[test]
fn an_unknown_variable_with_our_prefix_is_an_error() {
    let names = [
        "TOOLCALL_RETRY_ATEMPTS",
        "TOOLCALL_CIRCUIT_BREAKER_TRESHOLD",
        "TOOLCALL_TIMOUT",
        "TOOLCALL_POLICY_DENNY",
        "TOOLCALL_TOKEN_CLIENT_SECRT",
        "TOOLCALL_",
        "TOOLCALL_FROBNICATE_EVERYTHING_NOW",
    ];
    let errors = names.map(|name| env(name, "1").unwrap_err().to_string());
    expect![[r#"
        invalid `TOOLCALL_RETRY_ATEMPTS`: unknown variable; did you mean `TOOLCALL_RETRY_ATTEMPTS`?
        invalid `TOOLCALL_CIRCUIT_BREAKER_TRESHOLD`: unknown variable; did you mean `TOOLCALL_CIRCUIT_BREAKER_THRESHOLD`, `TOOLCALL_CIRCUIT_BREAKER_RESET` or `TOOLCALL_CIRCUIT_BREAKER_ENABLED`?
        invalid `TOOLCALL_TIMOUT`: unknown variable; did you mean `TOOLCALL_TIMEOUT`?
        invalid `TOOLCALL_POLICY_DENNY`: unknown variable; did you mean `TOOLCALL_POLICY_DENY`?
        invalid `TOOLCALL_TOKEN_CLIENT_SECRT`: unknown variable; did you mean `TOOLCALL_TOKEN_CLIENT_SECRET`, `TOOLCALL_TOKEN_CLIENT_ID` or `TOOLCALL_TOKEN_CLIENT_SECRET_FILE`?
        invalid `TOOLCALL_`: unknown variable; `settings::VARIABLES` lists all
        invalid `TOOLCALL_FROBNICATE_EVERYTHING_NOW`: unknown variable; `settings::VARIABLES` lists all"#]].assert_eq(&errors.join("\n"));
}

/// The one that is no setting.
#[test]
fn a_clients_secret_is_no_unknown_variable() {
    assert!(env("TOOLCALL_TOKEN_CLIENT_SECRET", "hunter2").is_ok());
    assert!(
        VARIABLES
            .iter()
            .all(|v| v.name() != "TOOLCALL_TOKEN_CLIENT_SECRET")
    );
}

/// P15: names without our prefix belong to other programs.
#[test]
fn variables_of_other_programs_are_ignored() {
    for name in [
        "TOOL_CACHE_DIR",
        "TOOL_HTTP_PROXY",
        "TOOL_HOME",
        "TOOL_RETRY_ATTEMPTS",
        "RETRY_ATTEMPTS",
        "toolcall_timeout",
        "PATH",
        "",
    ] {
        assert_eq!(
            env(name, "nonsense").unwrap(),
            Settings::default(),
            "{name}"
        );
    }
}

/// The real environment, in which nothing of ours is set when tests run.
#[test]
fn the_environment_can_be_read() {
    if std::env::vars_os().all(|(name, _)| !name.to_string_lossy().starts_with("TOOL")) {
        assert_eq!(Settings::from_env().unwrap(), Settings::default());
    }
}

/// Stumble A4: a start reports each variable that cannot be read, and then all checks that fail.
#[test]
fn all_errors_are_reported_together() {
    let error = |vars: &[(&str, &str)]| {
        let error = Settings::default().with_env_from(vars.iter().copied());
        error.unwrap_err().to_string()
    };
    expect![[r#"
        invalid `TOOLCALL_RETRY_ATTEMPTS`: `x` is not a whole number from 0 to 4,294,967,295; and invalid `TOOLCALL_SLOW_FRACTON`: unknown variable; did you mean `TOOLCALL_SLOW_FRACTION`?; and invalid `TOOLCALL_TIMEOUT`: `soon` is not a duration such as 30s, 500ms or 1m30s, or a number of seconds"#]]
    .assert_eq(&error(&[
        ("TOOLCALL_TIMEOUT", "soon"),
        ("TOOLCALL_SLOW_FRACTON", "0.5"),
        ("TOOLCALL_RETRY_ATTEMPTS", "x"),
        ("TOOLCALL_FIT_ENABLED", "yes"),
    ]));
    // A name in the reason of another error hides neither.
    let both = error(&[("TOOLCALL_TIMEOUT", "soon"), ("TOOLCALL_TIMEOUT_MS", "500")]);
    assert!(both.contains("`TOOLCALL_TIMEOUT`: `soon` is not"), "{both}");
    assert!(
        both.contains("; and invalid `TOOLCALL_TIMEOUT_MS`"),
        "{both}"
    );
    let checks = error(&[
        ("TOOLCALL_TIMEOUT", "0s"),
        ("TOOLCALL_RETRY_FACTOR", "0.5"),
        ("TOOLCALL_FIT_MAX_CHARS", "1"),
        ("TOOLCALL_SEQUENCE_BUDGET", "1s"),
        ("TOOLCALL_SEQUENCE_RESERVE", "2s"),
    ]);
    for name in [
        "TIMEOUT",
        "RETRY_FACTOR",
        "FIT_MAX_CHARS",
        "SEQUENCE_RESERVE",
    ] {
        assert_eq!(
            checks
                .matches(&format!("invalid `TOOLCALL_{name}`"))
                .count(),
            1,
            "{checks}"
        );
    }
    // The same of a file.
    let file = "[timeout]\ndefault = 0\n[http]\nmax_bytes = 0\n[tools.x]\naudience = \"\"";
    let settings: Settings = toml::from_str(file).unwrap();
    let error = settings.check().unwrap_err().to_string();
    for key in ["timeout.default", "http.max_bytes", "tools.x.audience"] {
        assert!(error.contains(&format!("invalid `{key}`")), "{error}");
    }
}

/// The text of many errors has a bound.
#[test]
fn many_errors_are_one_text_of_bounded_length() {
    let names: Vec<_> = (0..500).map(|n| format!("TOOLCALL_NOTHING_{n}")).collect();
    let variables = names.iter().map(|name| (name.as_str(), "x"));
    let error = Settings::default().with_env_from(variables).unwrap_err();
    assert!(error.reason().len() <= 4_000, "{error}");
    assert!(error.reason().contains("TOOLCALL_NOTHING_1`"), "{error}");
    assert!(error.reason().ends_with(" more"), "{error}");
}

/// Stumble A4: a name with a unit is one without it, and a unit in the value.
#[test]
fn a_name_with_a_unit_suggests_the_unit_of_the_value() {
    for (name, meant) in [
        ("TOOLCALL_TIMEOUT_MS", "`TOOLCALL_TIMEOUT`"),
        (
            "TOOLCALL_DEADLINE_BUDGET_SECONDS",
            "`TOOLCALL_DEADLINE_BUDGET`",
        ),
    ] {
        let error = env(name, "500").unwrap_err().to_string();
        assert!(
            error.contains(meant) && error.contains("`500ms`"),
            "{error}"
        );
    }
    let file = toml::from_str::<Settings>("[poll]\ninterval_secs = 2");
    let error = file.unwrap_err().to_string();
    assert!(
        error.contains("`interval`?") && error.contains("`30s`"),
        "{error}"
    );
}
