//! What errors call settings, and how they write their values (G1, rule 7).

use expect_test::expect;
use tower_toolcall::settings::Settings;

use crate::{
    checks::refused,
    kit::{changed, secs},
};

/// G1: both settings of a contradiction are named as the operator knows them: by variable, or by
/// the key in the file, which comes with its variable.
#[test]
fn a_contradiction_names_both_settings_as_the_operator_knows_them() {
    let cap = changed(|s| s.retry.cap = secs(45));
    let budget = ("TOOLCALL_DEADLINE_BUDGET", "10s");
    let base = ("TOOLCALL_RETRY_BASE", "60");
    let cooldown = changed(|s| s.rate_limit.default_cooldown = secs(40));
    // No variable sets what holds for a tool.
    let tool = changed(|s| s.tools.entry("x".into()).or_default().timeout = Some(secs(0)));
    let rates = [
        ("TOOLCALL_CIRCUIT_BREAKER_FAILURE_RATE", "0.5"),
        ("TOOLCALL_CIRCUIT_BREAKER_WINDOW", "60"),
        ("TOOLCALL_CIRCUIT_BREAKER_WINDOW_CALLS", "100"),
    ];
    let errors = [
        Settings::default().with_env_from([base, ("TOOLCALL_RETRY_CAP", "45")]),
        cap.with_env_from([base]),
        Settings::default().with_env_from(rates),
        // A layer's own word for a setting is not the operator's.
        changed(|s| s.retry.budget_minimum = 0)
            .with_env_from([("TOOLCALL_RETRY_BUDGET_RATIO", "0")]),
        cooldown.with_env_from([budget]),
        Settings::default()
            .with_env_from([budget, ("TOOLCALL_RATE_LIMIT_DEFAULT_COOLDOWN", "10s")]),
        tool.with_env_from([("TOOLCALL_TIMEOUT", "5")]),
    ];
    let errors = errors.map(|error| error.unwrap_err().to_string());
    expect![[r#"
        invalid `TOOLCALL_RETRY_CAP`: 45s is less than `TOOLCALL_RETRY_BASE` (1m): raise it
        invalid `retry.cap`: 45s is less than `TOOLCALL_RETRY_BASE` (1m): raise it (TOOLCALL_RETRY_CAP)
        invalid `TOOLCALL_CIRCUIT_BREAKER_WINDOW_CALLS`: `TOOLCALL_CIRCUIT_BREAKER_WINDOW` is set too; the rates are over one of them
        invalid `TOOLCALL_RETRY_BUDGET_RATIO`: it is zero, and so is `retry.budget_minimum`: no call would be retried
        invalid `rate_limit.default_cooldown`: 40s is too long for the 10s that `TOOLCALL_DEADLINE_BUDGET` leaves: no call would wait for its end; raise the budget, or shorten it (TOOLCALL_RATE_LIMIT_DEFAULT_COOLDOWN)
        invalid `TOOLCALL_RATE_LIMIT_DEFAULT_COOLDOWN`: 10s is too long for the 10s that `TOOLCALL_DEADLINE_BUDGET` leaves: no call would wait for its end; raise the budget, or shorten it
        invalid `tools.x.timeout`: it is zero: no call would have time"#]].assert_eq(&errors.join("\n"));
}

/// P18: a warning names both settings as the operator knows them, be it a switch of a layer.
#[test]
fn a_warning_names_the_variables() {
    let window = [
        ("TOOL_TIMEOUT", "60"),
        ("TOOLCALL_CIRCUIT_BREAKER_WINDOW", "45"),
    ];
    let file = changed(|s| s.tools.entry("import".into()).or_default().attempts = Some(1));
    assert_eq!(file.warnings(), []);
    let warnings = [
        Settings::default().with_env_from(window),
        file.with_env_from([("TOOLCALL_RETRY_ENABLED", "false")]),
    ];
    let warnings = warnings.map(|settings| settings.unwrap().warnings()[0].to_string());
    expect![[r#"
        invalid `TOOLCALL_CIRCUIT_BREAKER_WINDOW`: window (45s) must be longer than the longest timeout (`TOOL_TIMEOUT`, 1m), or two timeouts never fall into one window
        invalid `tools.import.attempts`: `TOOLCALL_RETRY_ENABLED` is false, so it means nothing"#]].assert_eq(&warnings.join("\n"));
}

/// 46: a start reports the errors of each tool.
#[test]
fn errors_of_several_tools_are_reported_together() {
    let changes: [&dyn Fn(&mut Settings); 2] = [
        &|s| {
            s.tools.entry("a".into()).or_default().concurrency = Some(0);
            s.tools.entry("b".into()).or_default().concurrency = Some(0);
        },
        &|s| {
            s.tools.entry("a".into()).or_default().quota_units = Some(1);
            s.tools.entry("b".into()).or_default().quota_cost = Some(1);
        },
    ];
    expect![[r#"
        invalid `tools.a.concurrency`: it is zero: every call would be refused; and invalid `tools.b.concurrency`: it is zero: every call would be refused
        invalid `tools.a.quota_units`: without `quota.units` it means nothing; and invalid `tools.b.quota_cost`: without `quota.units` it means nothing"#]].assert_eq(&refused(&changes));
}

/// A tool's name is written as in a file, and not at any length.
#[test]
fn the_name_of_a_tool_in_a_key() {
    let zero = |name: &str| {
        let name = name.to_owned();
        move |s: &mut Settings| s.tools.entry(name.clone()).or_default().timeout = Some(secs(0))
    };
    let changes: [&dyn Fn(&mut Settings); 6] = [
        &zero("a-b_1"),
        &zero("a.b"),
        &zero("a b"),
        &zero(r#"a"b"#),
        &zero(&"x".repeat(70)),
        &zero(""),
    ];
    expect![[r#"
        invalid `tools.a-b_1.timeout`: it is zero: no call would have time
        invalid `tools."a.b".timeout`: it is zero: no call would have time
        invalid `tools."a b".timeout`: it is zero: no call would have time
        invalid `tools."a\"b".timeout`: it is zero: no call would have time
        invalid `tools."xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx...".timeout`: it is zero: no call would have time
        invalid `tools.""`: a tool has a name; and invalid `tools."".timeout`: it is zero: no call would have time"#]].assert_eq(&refused(&changes));
}

/// A duration looks as in a file, and has no space.
#[test]
fn durations_in_errors_are_written_as_in_files() {
    let long = secs(366 * 24 * 3600);
    let slow = |s: &mut Settings| {
        s.circuit_breaker.slow_call_rate = Some(0.5);
        s.circuit_breaker.slow_call = Some(long);
        s.circuit_breaker.window_calls = Some(100);
    };
    let changes: [&dyn Fn(&mut Settings); 6] = [
        &|s| s.retry.base = long,
        &|s| s.retry.cap = long,
        &|s| s.circuit_breaker.open_for = long,
        &|s| s.circuit_breaker.window = Some(long),
        &slow,
        &|s| s.rate_limit.default_cooldown = secs(25 * 3600),
    ];
    expect![[r#"
        invalid `retry.base`: 1year18h is longer than a year
        invalid `retry.cap`: 1year18h is longer than a year
        invalid `circuit_breaker.open_for`: 1year18h is longer than a year
        invalid `circuit_breaker.window`: 1year18h is longer than a year
        invalid `circuit_breaker.slow_call`: 1year18h is longer than a year
        invalid `rate_limit.default_cooldown`: 1day1h is longer than a day"#]]
    .assert_eq(&refused(&changes));
}
