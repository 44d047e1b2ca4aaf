//! Environment variables (G1).

use expect_test::expect;
use serde_json::{Value, json};
use tower_toolcall::settings::{Preset, Settings, TokenAuth, VARIABLES};

use crate::kit::{changed, env, secs};

/// A value for each variable that is not the default, and as it stands in a file then.
const VALUES: &str = r#"
    TIMEOUT | 45s | "45s"
    IDLE_TIMEOUT | 2s | "2s"
    SLOW_FRACTION | 0.5 | 0.5
    DEADLINE_BUDGET | 2m | "2m"
    DEADLINE_RESERVE | 1s | "1s"
    RETRY_ENABLED | false | false
    RETRY_ATTEMPTS | 5 | 5
    RETRY_BASE | 100ms | "100ms"
    RETRY_FACTOR | 1.5 | 1.5
    RETRY_CAP | 1m 30s | "1m30s"
    RETRY_JITTER | full | "full"
    RETRY_BUDGET_RATIO | 0.1 | 0.1
    RETRY_BUDGET_MINIMUM | 0 | 0
    RETRY_ASSUME_REPLAY_SAFE | yes | true
    QUOTA_UNITS | 100 | 100
    QUOTA_PERIOD | 1h | "1h"
    QUOTA_BURST | 10 | 10
    QUOTA_MAX_WAIT | 5s | "5s"
    QUOTA_FAIL_FAST | yes | true
    QUOTA_KEY | agent | "agent"
    QUOTA_MAX_KEYS | 10 | 10
    CONCURRENCY_MAX | 8 | 8
    CONCURRENCY_MAX_QUEUE | 0 | 0
    CONCURRENCY_KEY | server | "server"
    CONCURRENCY_MAX_KEYS | 7 | 7
    RATE_LIMIT_ENABLED | off | false
    RATE_LIMIT_DEFAULT_COOLDOWN | 5s | "5s"
    RATE_LIMIT_MAX_WAIT | 1m | "1m"
    RATE_LIMIT_MAX_COOLDOWN | 2m | "2m"
    RATE_LIMIT_TEXT_LIMITS | true | true
    RATE_LIMIT_ATTEMPTS | 2 | 2
    RATE_LIMIT_FAIL_FAST | 1 | true
    RATE_LIMIT_KEY | server | "server"
    RATE_LIMIT_PER_PRINCIPAL | true | true
    RETRY_TOTAL_BUDGET_RATIO | 0.5 | 0.5
    RATE_LIMIT_MAX_KEYS | 10 | 10
    CIRCUIT_BREAKER_ENABLED | FALSE | false
    CIRCUIT_BREAKER_THRESHOLD | 3 | 3
    CIRCUIT_BREAKER_WINDOW | 300 | "5m"
    CIRCUIT_BREAKER_SUCCESS_RESETS | no | false
    CIRCUIT_BREAKER_RESET | 0.5 | "500ms"
    CIRCUIT_BREAKER_PROBES | 2 | 2
    CIRCUIT_BREAKER_PROBE | safe_calls | "safe_calls"
    CIRCUIT_BREAKER_SUCCESSES | 4 | 4
    CIRCUIT_BREAKER_PROBE_WAIT | 9s | "9s"
    CIRCUIT_BREAKER_FAILURE_RATE | 0.7 | 0.7
    CIRCUIT_BREAKER_SLOW_CALL_RATE | 0.9 | 0.9
    CIRCUIT_BREAKER_SLOW_CALL | 7s | "7s"
    CIRCUIT_BREAKER_MINIMUM_CALLS | 20 | 20
    CIRCUIT_BREAKER_WINDOW_CALLS | 50 | 50
    CIRCUIT_BREAKER_KEY | tool_name | "tool_name"
    CIRCUIT_BREAKER_MAX_KEYS | 7 | 7
    CIRCUIT_BREAKER_REPORTED_FAILURES | on | true
    CIRCUIT_BREAKER_WEAK_FAILURES | ignored | "ignored"
    SEQUENCE_BUDGET | 2m | "2m"
    SEQUENCE_RESERVE | 0s | "0s"
    PARALLEL_LIMIT | 4 | 4
    PARALLEL_BUDGET | 1m | "1m"
    SANITIZE_MAX_STRING | 500 | 500
    SANITIZE_MAX_DEPTH | 8 | 8
    SANITIZE_MAX_NODES | 50 | 50
    SANITIZE_SENSITIVE_KEYS | iban, bic | ["iban", "bic"]
    SANITIZE_HARMLESS_KEYS | idempotency_key | ["idempotency_key"]
    HEALTH_ENABLED | yes | true
    HEALTH_THRESHOLD | 1 | 1
    HEALTH_REFUSAL | on | true
    HEALTH_PROBE_PERIOD | 1m | "1m"
    HEALTH_MAX_SERVERS | 7 | 7
    VALIDATE_ENABLED | no | false
    REPEAT_GUARD_ENABLED | yes | true
    REPEAT_GUARD_FAILURES | 5 | 5
    REPEAT_GUARD_WINDOW | 10m | "10m"
    REPEAT_GUARD_MAX_KEYS | 7 | 7
    FIT_ENABLED | yes | true
    FIT_MAX_CHARS | 5000 | 5000
    POLICY_DENY | rm, fs__* | ["rm", "fs__*"]
    POLICY_ASK | pay_* | ["pay_*"]
    POLICY_ALLOW | read_* | ["read_*"]
    POLICY_DENY_BY_DEFAULT | yes | true
    POLICY_APPROVAL_TIMEOUT | 1m | "1m"
    ONCE_ENABLED | yes | true
    ONCE_TTL | 1h | "1h"
    ONCE_REPEAT_WITHIN | 5m | "5m"
    ONCE_MAX_KEYS | 7 | 7
    ONCE_MAX_ANSWER | 1000 | 1000
    ONCE_MAX_BYTES | 1000000 | 1000000
    CACHE_TOOLS | a, b | ["a", "b"]
    CACHE_TTL | 5m | "5m"
    CACHE_MAX_KEYS | 7 | 7
    CACHE_MAX_ANSWER | 1000 | 1000
    CACHE_MAX_BYTES | 1000000 | 1000000
    POLL_INTERVAL | 2s | "2s"
    POLL_FACTOR | 2 | 2.0
    POLL_CAP | 1m | "1m"
    POLL_POLLS | 5 | 5
    POLL_BUDGET | 30m | "30m"
    POLL_CANCEL | no | false
    HTTP_MAX_BYTES | 65536 | 65536
    HTTP_EMPTY_UNDEFINED | yes | true
    HTTP_BARE_IDEMPOTENCY_KEY | on | true
    TOKEN_ENDPOINT | https://id.example.com/token | "https://id.example.com/token"
    SHARED_URL | redis://localhost | "redis://localhost"
    SHARED_NAMESPACE | prod | "prod"
    SHARED_GRACE | 1s | "1s"
    SHARED_RESYNC | 2s | "2s"
    TOKEN_CLIENT_ID | gateway | "gateway"
    TOKEN_CLIENT_SECRET_FILE | /run/secrets/gateway | "/run/secrets/gateway"
    TOKEN_AUTH | Post | "post"
    TOKEN_LEEWAY | 10s | "10s"
    TOKEN_DEFAULT_LIFETIME | 1m | "1m"
    TOKEN_MAX_LIFETIME | 1h | "1h"
    TOKEN_MAX_KEYS | 100 | 100
    TOKEN_TIMEOUT | 2s | "2s"
    VALIDATE_REPAIR | yes | true
    VALIDATE_STRICT | on | true
    VALIDATE_HEADING | No | "No"
    TRACE_ARGUMENTS | no | false
    TRACE_OUTPUT | 1 | true
    TRACE_ATTEMPTS | on | true
"#;

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
    let rows = VALUES.trim().lines().map(|line| {
        let [name, text, value] = [0, 1, 2].map(|n| line.split('|').nth(n).unwrap().trim());
        let value: Value = serde_json::from_str(value).unwrap();
        (format!("TOOLCALL_{name}"), text, value)
    });
    let values: Vec<_> = rows.collect();
    for variable in VARIABLES.iter().filter(|v| v.key() != "preset") {
        let row = values.iter().find(|(name, ..)| name == variable.name());
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
        let settings = base
            .clone()
            .with_env_from([(name.as_str(), *text)])
            .unwrap();
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
