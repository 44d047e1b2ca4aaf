//! Settings in files (G1).

use std::time::Duration;

use expect_test::expect;
use serde_json::json;
use tower_toolcall::{
    AnyError, ConfigError,
    settings::{CircuitBreakerSettings, Preset, Settings},
};

use crate::kit::secs;

#[test]
fn toml_and_json_give_back_what_was_written() {
    for preset in Preset::ALL {
        let mut settings = Settings::preset(preset);
        settings.tools.entry("import".into()).or_default().timeout = Some(secs(45));
        let toml = toml::to_string(&settings).unwrap();
        assert_eq!(toml::from_str::<Settings>(&toml).unwrap(), settings);
        let json = serde_json::to_string(&settings).unwrap();
        assert_eq!(serde_json::from_str::<Settings>(&json).unwrap(), settings);
    }
}

#[test]
fn durations_are_written_with_their_units() {
    let mut settings = Settings::default();
    settings.timeout.default = secs(90);
    settings.deadline.reserve = Duration::from_millis(250);
    let json = json!(settings);
    assert_eq!(json["timeout"]["default"], "1m30s");
    assert_eq!(json["deadline"]["reserve"], "250ms");
}

/// G1: what is written is the preset and what was set over it, a preset's value that was taken away
/// too. It means the same when it is read.
#[test]
fn what_was_set_is_written_and_read_as_it_was() {
    let mut settings = Settings::gateway();
    settings.circuit_breaker.window = None;
    settings.deadline.budget = Some(secs(10));
    assert_eq!(
        json!(settings),
        json!({
            "preset": "gateway",
            "deadline": { "budget": "10s" },
            "circuit_breaker": { "window": "none" },
        })
    );
    let toml = toml::to_string(&settings).unwrap();
    let read: Settings = toml::from_str(&toml).unwrap();
    assert_eq!((&read, read.check()), (&settings, settings.check()));
    assert_eq!(read.circuit_breaker.window, None);
    assert_eq!(json!(Settings::default()), json!({}));
}

/// What was taken away is no obstacle to writing.
#[test]
fn what_a_variable_takes_away_is_written_and_read() {
    let vars = [
        ("TOOLCALL_CIRCUIT_BREAKER_SUCCESSES", "none"),
        ("TOOLCALL_PARALLEL_LIMIT", "none"),
        ("TOOLCALL_CIRCUIT_BREAKER_WINDOW", "none"),
        ("TOOLCALL_SANITIZE_SENSITIVE_KEYS", "none"),
    ];
    let settings = Settings::gateway().with_env_from(vars).unwrap();
    let toml = toml::to_string(&settings).unwrap();
    assert_eq!(toml::from_str::<Settings>(&toml).unwrap(), settings);
    let json = serde_json::to_string(&settings).unwrap();
    assert_eq!(serde_json::from_str::<Settings>(&json).unwrap(), settings);
}

/// Unlike all settings together: what is in force can be shown.
#[test]
fn a_section_alone_is_written_with_all_its_keys() {
    let breaker = Settings::gateway().circuit_breaker;
    let written = json!(breaker);
    assert_eq!(written["window"], "5m");
    assert_eq!(written["slow_call"], "none");
    assert_eq!(written["probes"], 1);
    let read: CircuitBreakerSettings = serde_json::from_value(written).unwrap();
    assert_eq!(read, breaker);
}

/// P15: a number without a unit is seconds, with a fraction too.
#[test]
fn a_number_in_a_file_is_seconds() {
    for (value, millis) in [
        ("30", 30_000),
        ("2.5", 2_500),
        ("\"30\"", 30_000),
        ("0.25", 250),
    ] {
        let file = format!("[timeout]\ndefault = {value}\nidle_timeout = {value}");
        let settings: Settings = toml::from_str(&file).unwrap();
        let expected = Duration::from_millis(millis);
        assert_eq!(settings.timeout.default, expected, "{value}");
        assert_eq!(settings.timeout.idle_timeout, Some(expected), "{value}");
    }
    let file = serde_json::json!({ "retry": { "base": 3, "cap": 4.5 } });
    let retry = serde_json::from_value::<Settings>(file).unwrap().retry;
    assert_eq!(retry.base, secs(3));
    assert_eq!(retry.cap, Duration::from_millis(4_500));
}

/// The first and the last line of each file's error: its place, and what is wrong.
fn errors(files: &[&str]) -> String {
    let errors = files.iter().map(|file| {
        let error = toml::from_str::<Settings>(file).unwrap_err().to_string();
        let lines: Vec<_> = error.lines().collect();
        format!("{}: {}", lines[0], lines[lines.len() - 1])
    });
    errors.collect::<Vec<_>>().join("\n")
}

/// P15: the line is in the error, and what is wrong with the number.
#[test]
fn a_number_that_is_not_a_duration_is_an_error_that_says_why() {
    let values = ["-30", "-0.5", "nan", "inf", "1e30", "true"];
    let files = values.map(|value| format!("[timeout]\ndefault = {value}"));
    expect![[r#"
        TOML parse error at line 2, column 11: `default`: `-30` is negative: a duration is at least 0
        TOML parse error at line 2, column 11: `default`: `-0.5` is negative: a duration is at least 0
        TOML parse error at line 2, column 11: `default`: `NaN` is not a number of seconds
        TOML parse error at line 2, column 11: `default`: `inf` is too large for a number of seconds
        TOML parse error at line 2, column 11: `default`: `1000000000000000000000000000000` is too large for a number of seconds
        TOML parse error at line 2, column 11: `default`: `true` is not a duration such as "30s", or a number of seconds"#]].assert_eq(&errors(&files.each_ref().map(String::as_str)));
}

/// P15: an unknown key is an error with its line and the nearest keys.
#[test]
fn an_unknown_key_suggests_the_nearest() {
    expect![[r#"
        TOML parse error at line 1, column 2: unknown key `timeouts`; did you mean `timeout`?
        TOML parse error at line 2, column 1: unknown key `defalt`; did you mean `default`?
        TOML parse error at line 2, column 1: unknown key `treshold`; did you mean `threshold`?
        TOML parse error at line 2, column 1: unknown key `timout`; did you mean `timeout`?
        TOML parse error at line 2, column 1: unknown key `quota_unit`; did you mean `quota_units` or `quota_cost`?
        TOML parse error at line 2, column 1: unknown key `unknown`; expected one of `enabled`, `max_chars`"#]].assert_eq(&errors(&[
        "[timeouts]\ndefault = \"30s\"",
        "[timeout]\ndefalt = \"30s\"",
        "[circuit_breaker]\ntreshold = 5",
        "[tools.import]\ntimout = 5",
        "[tools.import]\nquota_unit = 5",
        "[fit]\nunknown = 1",
    ]));
    let file = serde_json::json!({ "once": { "tll": 5 } });
    let error = serde_json::from_value::<Settings>(file).unwrap_err();
    expect!["unknown key `tll`; did you mean `ttl`?"].assert_eq(&error.to_string());
}

/// P15: so does an unknown value of a key with a few values.
#[test]
fn an_unknown_value_suggests_the_nearest() {
    expect![[r#"
        TOML parse error at line 1, column 10: `preset`: unknown value `gatewya`; did you mean `gateway`?
        TOML parse error at line 2, column 10: `jitter`: unknown value `upward`; did you mean `upwards`?
        TOML parse error at line 2, column 9: `probe`: unknown value `safe_call`; did you mean `safe_calls` or `any_call`?
        TOML parse error at line 2, column 7: `key`: unknown value `session`; expected one of `tool`, `tool_name`, `server`, `agent`"#]].assert_eq(&errors(&[
        "preset = \"gatewya\"",
        "[retry]\njitter = \"upward\"",
        "[circuit_breaker]\nprobe = \"safe_call\"",
        "[quota]\nkey = \"session\"",
    ]));
    let error = "agent_lop".parse::<Preset>().unwrap_err().to_string();
    expect!["invalid `preset`: unknown value `agent_lop`; did you mean `agent_loop`?"]
        .assert_eq(&error);
}

/// Stumble A4: the error of a value of another type is in plain words, and names its key.
#[test]
fn a_value_of_another_type_is_told_in_plain_words() {
    let of_json = |file: &str| {
        serde_json::from_str::<Settings>(file)
            .unwrap_err()
            .to_string()
    };
    expect![[r#"
        `x` is not a whole number from 0 to 4,294,967,295 for `attempts` at line 1 column 28
        `max_keys`: `-1` is not a whole number of at least 0 at line 1 column 27
        `limit`: `0` is not a whole number of at least 1 at line 1 column 26
        invalid type: boolean `true`, expected a number for `slow_fraction` at line 1 column 36
        `rm` is not a list for `deny` at line 1 column 26
        `retry`: `5` is not a table at line 1 column 12
        `no` is not a boolean for `replay_safe` at line 1 column 39"#]]
    .assert_eq(
        &[
            r#"{ "retry": { "attempts": "x" } }"#,
            r#"{ "quota": { "max_keys": -1 } }"#,
            r#"{ "parallel": { "limit": 0 } }"#,
            r#"{ "timeout": { "slow_fraction": true } }"#,
            r#"{ "policy": { "deny": "rm" } }"#,
            r#"{ "retry": 5 }"#,
            r#"{ "tools": { "x": { "replay_safe": "no" } } }"#,
        ]
        .map(of_json)
        .join("\n"),
    );
}

/// A token in the wrong line of a file is not shown, whatever the format says of it.
#[test]
fn a_token_of_the_wrong_type_is_not_shown() {
    let token = format!("ghp_{}", "a1B2c3D4e5F6".repeat(3));
    for token in [
        &token[..40],
        &token,
        "a \", expected ghp_a1B2c3D4e5F6a1B2c3D4e5F6a1B2c3D4",
    ] {
        for (section, key) in [
            ("retry", "attempts"),
            ("retry", "enabled"),
            ("timeout", "slow_fraction"),
            ("policy", "deny"),
            ("timeout", "default"),
        ] {
            let file = json!({ section: { key: token } });
            let of_text = serde_json::from_str::<Settings>(&file.to_string()).unwrap_err();
            let of_value = serde_json::from_value::<Settings>(file).unwrap_err();
            for error in [of_text, of_value] {
                assert!(!error.to_string().contains("a1B2c3"), "{error}");
                assert!(error.to_string().contains(key), "{error}");
            }
        }
    }
}

/// A section alone suggests as well.
#[test]
fn an_unknown_key_of_a_section_alone_suggests_the_nearest() {
    let file = serde_json::json!({ "treshold": 5 });
    let error = serde_json::from_value::<CircuitBreakerSettings>(file).unwrap_err();
    expect!["unknown key `treshold`; did you mean `threshold`?"].assert_eq(&error.to_string());
}

#[test]
fn absurd_values_are_errors() {
    for file in [
        "[timeout]\ndefault = \"30 parsecs\"",
        "[timeout]\ndefault = 1e30",
        "[timeout]\ndefault = nan",
        "[timeout]\ndefault = \"-5s\"",
        "[timeout]\ndefault = \"9999999999999999999999999999999999999999s\"",
        "[retry]\nattempts = -1",
        "[retry]\njitter = \"some\"",
        "[parallel]\nlimit = 0",
        "[tools.import]\ntimeout_ms = -1",
        "[tools.import]\ntimeout_ms = 1.5",
    ] {
        assert!(toml::from_str::<Settings>(file).is_err(), "{file}");
    }
}

#[test]
fn numbers_that_are_none_fail_the_check() {
    for (file, key) in [
        ("[retry]\nfactor = nan", "retry.factor"),
        ("[retry]\nattempts = 70000", "retry.attempts"),
        ("[retry]\nfactor = 1e30", "retry.factor"),
        ("[retry]\nbudget_ratio = inf", "retry.budget_ratio"),
        ("[timeout]\nslow_fraction = -0.5", "timeout.slow_fraction"),
        ("[timeout]\ndefault = \"2years\"", "timeout.default"),
        (
            "[circuit_breaker]\nopen_for = \"2years\"",
            "circuit_breaker.open_for",
        ),
    ] {
        let settings: Settings = toml::from_str(file).unwrap();
        assert_eq!(settings.check().unwrap_err().field(), key);
        assert_eq!(settings.stack().build().unwrap_err().field(), key);
    }
}

/// W7: a file begins with the preset that it names.
#[test]
fn a_file_names_its_preset() {
    for preset in Preset::ALL {
        let file = format!("preset = \"{preset}\"");
        let settings: Settings = toml::from_str(&file).unwrap();
        assert_eq!(settings, Settings::preset(preset));
        let file = format!("{file}\n[circuit_breaker]\nopen_for = \"7s\"");
        let settings: Settings = toml::from_str(&file).unwrap();
        let mut expected = Settings::preset(preset);
        expected.circuit_breaker.open_for = secs(7);
        assert_eq!(settings, expected);
    }
}

/// W7: wherever in the file the preset stands, as in JSON.
#[test]
fn a_preset_at_the_end_of_a_file_comes_first() {
    let file = r#"{ "timeout": { "default": "30s" }, "preset": "gateway" }"#;
    let settings: Settings = serde_json::from_str(file).unwrap();
    assert_eq!(settings.timeout.default, secs(30));
    assert_eq!(settings.circuit_breaker.window, Some(secs(300)));
}

/// G1, P15: a tool's timeout is a duration, or `timeout_ms`, as in gateways; not both.
#[test]
fn tools_have_their_own_settings() {
    let import = |text: &str| {
        let file = format!("[tools.import]\n{text}\nattempts = 1\nreplay_safe = false");
        toml::from_str::<Settings>(&file)
    };
    for timeout in ["timeout = \"45s\"", "timeout = 45", "timeout_ms = 45000"] {
        let settings = import(timeout).unwrap();
        let tool = &settings.tools["import"];
        assert_eq!(tool.timeout, Some(secs(45)));
        assert_eq!(tool.attempts, Some(1));
        assert_eq!(tool.replay_safe, Some(false));
        assert_eq!(settings.timeout.default, secs(30));
    }
    let wrong = ["timeout = \"45 s.\"", "timeout_ms = \"45s\""];
    let files = wrong.map(|timeout| format!("[tools.import]\n{timeout}"));
    expect![[r#"
        TOML parse error at line 2, column 11: `timeout`: `45 s.` is not a duration such as 30s, 500ms or 1m30s, or a number of seconds
        TOML parse error at line 2, column 14: `timeout_ms`: `45s` is not a whole number of at least 0"#]].assert_eq(&errors(&files.each_ref().map(String::as_str)));
    let both: Settings =
        toml::from_str("[tools.import]\ntimeout = \"45s\"\ntimeout_ms = 45000").unwrap();
    expect!["invalid `tools.import.timeout_ms`: `tools.import.timeout` is set too"]
        .assert_eq(&both.check().unwrap_err().to_string());
}

/// G1: in JSON, `null` is as if the key were missing, of a key of any type.
#[test]
fn a_null_changes_nothing() {
    let keys = ["window", "successes", "failure_rate", "window_calls"];
    for key in keys {
        let file = serde_json::json!({ "preset": "gateway", "circuit_breaker": { key: null } });
        let settings: Settings = serde_json::from_value(file).unwrap();
        assert_eq!(settings, Settings::gateway(), "{key}");
    }
}

/// S7: a program whose `main` returns the error shows the place in lines of its own, for a wrong
/// key and for a wrong file.
#[test]
fn an_error_of_a_file_is_printed_in_lines() {
    for file in ["[retry]\natempts = 3\n", "[retry]\nattempts = = 3\n"] {
        let read = || -> Result<Settings, AnyError> { Ok(toml::from_str(file)?) };
        let printed = format!("{:?}", read().unwrap_err());
        let lines: Vec<_> = printed.lines().collect();
        assert!(lines.len() > 3 && lines[0].contains("line 2"), "{printed}");
        assert!(lines.iter().any(|line| line.contains('^')), "{printed}");
    }
}

/// S7: a setting that cannot work is printed as it reads, whatever the type of the error.
#[test]
fn a_wrong_setting_is_printed_as_it_reads() {
    let error = ConfigError::new("retry.attempts", "is not above 0");
    let boxed: Box<dyn std::error::Error> = error.clone().into();
    expect!["invalid `retry.attempts`: is not above 0"].assert_eq(&format!("{boxed:?}"));
    assert_eq!(format!("{:?}", AnyError::from(error)), format!("{boxed:?}"));
}
