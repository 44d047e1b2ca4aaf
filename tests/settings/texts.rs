//! What errors call settings, and how they write their values (G1, rule 7).

use tower_toolcall::settings::Settings;

use crate::{
    checks::refused,
    kit::{changed, secs},
};

/// G1: both settings of a contradiction are named as the operator knows them.
#[test]
fn a_contradiction_between_variables_names_both() {
    let vars = [("TOOLCALL_RETRY_BASE", "60"), ("TOOLCALL_RETRY_CAP", "45")];
    let error = Settings::default().with_env_from(vars).unwrap_err();
    assert_eq!(error.field(), "TOOLCALL_RETRY_CAP");
    let says = "`TOOLCALL_RETRY_BASE` (1m)";
    assert!(error.to_string().contains(says), "{error}");
}

/// G1: the variable that does not fit a file is named, or the key in the file.
#[test]
fn a_contradiction_with_a_file_names_the_variable() {
    let file: Settings = toml::from_str("[retry]\ncap = \"45s\"").unwrap();
    let error = file
        .with_env_from([("TOOLCALL_RETRY_BASE", "60")])
        .unwrap_err();
    assert_eq!(error.field(), "retry.cap");
    let says = "`TOOLCALL_RETRY_BASE` (1m)";
    assert!(error.to_string().contains(says), "{error}");
}

/// P18: a warning names both settings as the operator knows them.
#[test]
fn a_warning_names_the_variables() {
    let vars = [
        ("TOOL_TIMEOUT", "60"),
        ("TOOLCALL_CIRCUIT_BREAKER_WINDOW", "45"),
    ];
    let settings = Settings::default().with_env_from(vars).unwrap();
    let warnings = settings.warnings();
    assert_eq!(warnings[0].field(), "TOOLCALL_CIRCUIT_BREAKER_WINDOW");
    assert_eq!(
        warnings[0].reason(),
        "window (45s) must be longer than the longest timeout (`TOOL_TIMEOUT`, 1m), \
         or two timeouts never fall into one window"
    );
}

/// So are those in the text of a section's own check.
#[test]
fn a_text_names_variables() {
    let vars = [
        ("TOOLCALL_CIRCUIT_BREAKER_FAILURE_RATE", "0.5"),
        ("TOOLCALL_CIRCUIT_BREAKER_WINDOW", "60"),
        ("TOOLCALL_CIRCUIT_BREAKER_WINDOW_CALLS", "100"),
    ];
    let error = Settings::default().with_env_from(vars).unwrap_err();
    assert_eq!(
        error.to_string(),
        "invalid `TOOLCALL_CIRCUIT_BREAKER_WINDOW_CALLS`: `TOOLCALL_CIRCUIT_BREAKER_WINDOW` is set too; \
         the rates are over one of them"
    );
}

/// A layer's own word for a setting is not the operator's.
#[test]
fn a_budget_of_no_retries() {
    let file = changed(|s| s.retry.budget_minimum = 0);
    let error = file.with_env_from([("TOOLCALL_RETRY_BUDGET_RATIO", "0")]);
    assert_eq!(
        error.unwrap_err().to_string(),
        "invalid `TOOLCALL_RETRY_BUDGET_RATIO`: it is zero, and so is `retry.budget_minimum`: \
         no call would be retried"
    );
}

/// What a file says is named with its variable; a variable by its own name alone.
#[test]
fn a_key_that_no_variable_set_comes_with_its_variable() {
    let budget = ("TOOLCALL_DEADLINE_BUDGET", "10s");
    let file = changed(|s| s.rate_limit.default_cooldown = secs(40));
    let error = file.with_env_from([budget]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "invalid `rate_limit.default_cooldown`: 40s is too long for the 10s that `TOOLCALL_DEADLINE_BUDGET` leaves: \
         no call would wait for its end; raise the budget, or shorten it (TOOLCALL_RATE_LIMIT_DEFAULT_COOLDOWN)"
    );
    let vars = [budget, ("TOOLCALL_RATE_LIMIT_DEFAULT_COOLDOWN", "10s")];
    let error = Settings::default().with_env_from(vars).unwrap_err();
    assert_eq!(error.field(), "TOOLCALL_RATE_LIMIT_DEFAULT_COOLDOWN");
    assert!(error.to_string().ends_with("or shorten it"), "{error}");
    // No variable sets what holds for a tool.
    let file = changed(|s| s.tools.entry("x".into()).or_default().timeout = Some(secs(0)));
    let error = file.with_env_from([("TOOLCALL_TIMEOUT", "5")]).unwrap_err();
    assert!(error.to_string().ends_with("would have time"), "{error}");
}

/// P18: a switch that makes a tool's setting mean nothing is a warning.
#[test]
fn a_tools_attempts_without_a_retry_layer() {
    let file = changed(|s| s.tools.entry("import".into()).or_default().attempts = Some(1));
    assert_eq!(file.warnings(), []);
    let off = [("TOOLCALL_RETRY_ENABLED", "false")];
    let warnings = file.with_env_from(off).unwrap().warnings();
    assert_eq!(warnings[0].field(), "tools.import.attempts");
    let says = "`TOOLCALL_RETRY_ENABLED` is false";
    assert!(warnings[0].reason().contains(says), "{warnings:?}");
}

/// A tool's name is written as in a file, and not at any length.
#[test]
fn the_name_of_a_tool_in_a_key() {
    let long = "x".repeat(70);
    let cut = format!("tools.\"{}...\".timeout", &long[..64]);
    for (name, key) in [
        ("a-b_1", "tools.a-b_1.timeout"),
        ("a.b", r#"tools."a.b".timeout"#),
        ("a b", r#"tools."a b".timeout"#),
        (r#"a"b"#, r#"tools."a\"b".timeout"#),
        (&long, &cut),
    ] {
        let zero =
            |s: &mut Settings| s.tools.entry(name.into()).or_default().timeout = Some(secs(0));
        refused(zero, key, &["zero"]);
    }
}

#[test]
fn a_tool_without_a_name() {
    let nameless = |s: &mut Settings| {
        s.tools.entry(String::new()).or_default();
    };
    refused(nameless, r#"tools."""#, &["name"]);
}

/// A duration looks as in a file, and has no space.
#[test]
fn durations_in_errors_are_written_as_in_files() {
    let long = secs(366 * 24 * 3600);
    let says = ["1year18h is longer than a year"];
    refused(|s| s.retry.base = long, "retry.base", &says);
    refused(|s| s.retry.cap = long, "retry.cap", &says);
    let reset = |s: &mut Settings| s.circuit_breaker.open_for = long;
    refused(reset, "circuit_breaker.open_for", &says);
    let window = |s: &mut Settings| s.circuit_breaker.window = Some(long);
    refused(window, "circuit_breaker.window", &says);
    let slow = |s: &mut Settings| {
        s.circuit_breaker.slow_call_rate = Some(0.5);
        s.circuit_breaker.slow_call = Some(long);
        s.circuit_breaker.window_calls = Some(100);
    };
    refused(slow, "circuit_breaker.slow_call", &says);
    let cooldown = |s: &mut Settings| s.rate_limit.default_cooldown = secs(25 * 3600);
    refused(
        cooldown,
        "rate_limit.default_cooldown",
        &["1day1h is longer than a day"],
    );
}
