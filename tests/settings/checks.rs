//! What only the settings as a whole can show (rule 7 of the design).

use tower_toolcall::{
    backoff::Jitter,
    settings::{KeyBy, Preset, Settings},
};

use crate::kit::{changed, secs};

/// The name that the error gives, and its text has the rest.
#[track_caller]
fn refused(change: impl FnOnce(&mut Settings), key: &str, says: &[&str]) {
    let error = changed(change).check().unwrap_err();
    assert_eq!(error.field(), key, "{error}");
    for part in says {
        assert!(error.to_string().contains(part), "{part} in {error}");
    }
}

#[test]
fn every_preset_passes() {
    for preset in Preset::ALL {
        assert_eq!(Settings::preset(preset).check(), Ok(()));
    }
}

#[test]
fn a_window_shorter_than_the_timeout_that_it_watches() {
    let says = ["20s", "`timeout.default` (30s)", "lengthen"];
    refused(
        |s| s.circuit_breaker.window = Some(secs(20)),
        "circuit_breaker.window",
        &says,
    );
}

#[test]
fn a_window_shorter_than_one_tools_timeout() {
    let change = |s: &mut Settings| {
        s.circuit_breaker.window = Some(secs(60));
        s.tools.entry("import".into()).or_default().timeout_ms = Some(90_000);
    };
    let says = ["`tools.import.timeout_ms` (1m 30s)"];
    refused(change, "circuit_breaker.window", &says);
}

/// N4: a switched-off breaker watches nothing.
#[test]
fn the_window_of_a_breaker_that_is_off_may_be_short() {
    let settings = changed(|s| {
        s.circuit_breaker.enabled = false;
        s.circuit_breaker.window = Some(secs(20));
    });
    assert_eq!(settings.check(), Ok(()));
}

/// L1, R5: a wait that cannot fit is never begun.
#[test]
fn a_cooldown_that_does_not_end_within_the_budget() {
    let says = ["30s", "`deadline.budget`", "20s"];
    refused(
        |s| s.deadline.budget = Some(secs(20)),
        "rate_limit.cooldown",
        &says,
    );
}

/// T5: B's 30 s of a sequence and C's 30 s of cooldown do not fit.
#[test]
fn a_cooldown_that_does_not_end_within_a_sequence_or_a_batch() {
    let says = ["29s", "`sequence.budget`"];
    refused(
        |s| s.sequence.budget = Some(secs(30)),
        "rate_limit.cooldown",
        &says,
    );
    let says = ["29s 500ms", "`parallel.budget`"];
    refused(
        |s| s.parallel.budget = Some(secs(30)),
        "rate_limit.cooldown",
        &says,
    );
}

#[test]
fn a_cooldown_whose_jitter_does_not_fit() {
    refused(
        |s| s.deadline.budget = Some(secs(32)),
        "rate_limit.cooldown",
        &["32s"],
    );
    let settings = changed(|s| s.deadline.budget = Some(secs(33)));
    assert_eq!(settings.check(), Ok(()));
}

/// Who does not wait for it may have a long one.
#[test]
fn a_cooldown_that_nobody_waits_for() {
    let settings = changed(|s| {
        s.deadline.budget = Some(secs(20));
        s.rate_limit.fail_fast = true;
        s.retry.enabled = false;
    });
    assert_eq!(settings.check(), Ok(()));
}

#[test]
fn a_first_delay_that_does_not_end_within_the_budget() {
    let change = |s: &mut Settings| {
        s.deadline.budget = Some(secs(6));
        s.rate_limit.cooldown = secs(1);
        s.retry.base = secs(5); // and a quarter more
    };
    refused(change, "retry.base", &["5s", "6s", "`deadline.budget`"]);
    let settings = changed(|s| {
        change(s);
        s.retry.jitter = Jitter::None;
    });
    assert_eq!(settings.check(), Ok(()));
    let settings = changed(|s| {
        change(s);
        s.retry.attempts = 1;
    });
    assert_eq!(settings.check(), Ok(()));
}

/// L2.
#[test]
fn a_cooldown_beyond_the_longest_wait() {
    let change = |s: &mut Settings| s.rate_limit.cooldown = secs(301);
    refused(
        change,
        "rate_limit.cooldown",
        &["5m 1s", "`rate_limit.max_wait` (5m)"],
    );
}

#[test]
fn a_cap_below_the_base() {
    let change = |s: &mut Settings| s.retry.base = secs(40);
    refused(change, "retry.cap", &["30s", "`retry.base` (40s)"]);
}

/// T8.
#[test]
fn an_idle_timeout_that_never_matters() {
    let says = ["30s", "`timeout.default` (30s)"];
    refused(|s| s.timeout.idle = Some(secs(30)), "timeout.idle", &says);
}

#[test]
fn a_slow_call_that_is_never_met() {
    let change = |s: &mut Settings| {
        s.circuit_breaker.slow_call_rate = Some(0.5);
        s.circuit_breaker.slow_call = Some(secs(31));
        s.circuit_breaker.window_calls = Some(100);
    };
    refused(
        change,
        "circuit_breaker.slow_call",
        &["31s", "`timeout.default` (30s)"],
    );
}

/// T5.
#[test]
fn a_reserve_that_leaves_nothing() {
    let change = |s: &mut Settings| {
        s.deadline.budget = Some(secs(60));
        s.deadline.reserve = secs(60);
    };
    refused(change, "deadline.reserve", &["1m", "`deadline.budget`"]);
    let change = |s: &mut Settings| {
        s.sequence.budget = Some(secs(60));
        s.sequence.reserve = secs(61);
    };
    refused(
        change,
        "sequence.reserve",
        &["1m 1s", "`sequence.budget` (1m)"],
    );
}

#[test]
fn times_of_zero() {
    let zero = secs(0);
    refused(|s| s.timeout.default = zero, "timeout.default", &["zero"]);
    refused(
        |s| s.deadline.budget = Some(zero),
        "deadline.budget",
        &["zero"],
    );
    refused(
        |s| s.sequence.budget = Some(zero),
        "sequence.budget",
        &["zero"],
    );
    refused(
        |s| s.parallel.budget = Some(zero),
        "parallel.budget",
        &["zero"],
    );
    refused(
        |s| s.rate_limit.cooldown = zero,
        "rate_limit.cooldown",
        &["zero"],
    );
    refused(
        |s| s.circuit_breaker.reset = zero,
        "circuit_breaker.reset",
        &["zero"],
    );
    refused(|s| s.timeout.idle = Some(zero), "timeout.idle", &["zero"]);
}

/// G1: a tool's own settings are named with the tool.
#[test]
fn one_tools_settings_are_named() {
    let timeout = |ms| {
        move |s: &mut Settings| s.tools.entry("import".into()).or_default().timeout_ms = Some(ms)
    };
    refused(timeout(0), "tools.import.timeout_ms", &["zero"]);
    refused(timeout(u64::MAX), "tools.import.timeout_ms", &["year"]);
    let attempts =
        |s: &mut Settings| s.tools.entry("import".into()).or_default().attempts = Some(0);
    refused(attempts, "tools.import.attempts", &["zero"]);
}

/// A layer's own check, under the setting's name; of a layer that is off as well.
#[test]
fn a_disabled_layer_is_checked_too() {
    let change = |s: &mut Settings| {
        s.circuit_breaker.enabled = false;
        s.circuit_breaker.threshold = 0;
    };
    refused(change, "circuit_breaker.threshold", &["zero"]);
    let change = |s: &mut Settings| {
        s.retry.enabled = false;
        s.retry.attempts = 0;
    };
    refused(change, "retry.attempts", &["zero"]);
    let change = |s: &mut Settings| {
        s.rate_limit.enabled = false;
        s.rate_limit.max_keys = 0;
    };
    refused(change, "rate_limit.max_keys", &["zero"]);
}

/// C2: one way to open, told clearly.
#[test]
fn rates_say_what_they_are_a_share_of() {
    refused(
        |s| s.circuit_breaker.failure_rate = Some(0.5),
        "circuit_breaker.failure_rate",
        &["share of"],
    );
    let both = |s: &mut Settings| {
        s.circuit_breaker.failure_rate = Some(0.5);
        s.circuit_breaker.window = Some(secs(60));
        s.circuit_breaker.window_calls = Some(10);
    };
    refused(both, "circuit_breaker.window_calls", &["`window`"]);
    refused(
        |s| {
            s.circuit_breaker.slow_call_rate = Some(0.5);
            s.circuit_breaker.window_calls = Some(10);
        },
        "circuit_breaker.slow_call_rate",
        &["`slow_call`"],
    );
    refused(
        |s| s.circuit_breaker.minimum_calls = Some(10),
        "circuit_breaker.minimum_calls",
        &["means nothing"],
    );
    refused(
        |s| s.circuit_breaker.window_calls = Some(10),
        "circuit_breaker.window_calls",
        &["means nothing"],
    );
    let few = |s: &mut Settings| {
        s.circuit_breaker.failure_rate = Some(0.5);
        s.circuit_breaker.window_calls = Some(0);
    };
    refused(few, "circuit_breaker.window_calls", &["no call"]);
}

/// C5.
#[test]
fn reported_failures_need_a_key_that_names_the_tool() {
    let change = |s: &mut Settings| {
        s.circuit_breaker.key = KeyBy::Server;
        s.circuit_breaker.reported_failures = true;
    };
    refused(change, "circuit_breaker.reported_failures", &[]);
}

/// G1: both settings of a contradiction are named as the operator knows them.
#[test]
fn a_contradiction_between_variables_names_both() {
    let vars = [
        ("TOOL_TIMEOUT", "60"),
        ("TOOL_CIRCUIT_BREAKER_WINDOW", "45"),
    ];
    let error = Settings::default().with_env_from(vars).unwrap_err();
    assert_eq!(error.field(), "TOOL_CIRCUIT_BREAKER_WINDOW");
    assert!(error.to_string().contains("`TOOL_TIMEOUT` (1m)"), "{error}");
}

/// G1: the variable that does not fit a file is named, or the key in the file.
#[test]
fn a_contradiction_with_a_file_names_the_variable() {
    let file: Settings = toml::from_str("[circuit_breaker]\nwindow = \"45s\"").unwrap();
    let error = file.with_env_from([("TOOL_TIMEOUT", "60")]).unwrap_err();
    assert_eq!(error.field(), "circuit_breaker.window");
    assert!(error.to_string().contains("`TOOL_TIMEOUT` (1m)"), "{error}");
}

/// What is just enough passes.
#[test]
fn the_limits_themselves() {
    let passes = |change: fn(&mut Settings)| assert_eq!(changed(change).check(), Ok(()));
    passes(|s| s.circuit_breaker.window = Some(secs(30)));
    passes(|s| s.retry.cap = secs(1));
    passes(|s| s.timeout.default = secs(365 * 24 * 3600));
    passes(|s| {
        s.circuit_breaker.failure_rate = Some(1.0);
        s.circuit_breaker.slow_call_rate = Some(1.0);
        s.circuit_breaker.slow_call = Some(secs(30));
        s.circuit_breaker.window_calls = Some(10);
    });
}

/// R5: what ends at the deadline itself is not begun.
#[test]
fn a_first_delay_that_ends_with_the_budget() {
    let change = |s: &mut Settings| {
        s.deadline.budget = Some(secs(5));
        s.rate_limit.cooldown = secs(1);
        s.retry.base = secs(5);
        s.retry.jitter = Jitter::None;
    };
    refused(change, "retry.base", &["5s"]);
}

/// T5: the reserve is kept once from a sequence, whatever the deadline layer keeps from its callers.
#[test]
fn one_reserve_is_taken_from_a_sequence() {
    let with_budget = |millis| {
        move |s: &mut Settings| {
            s.sequence.budget = Some(std::time::Duration::from_millis(millis));
            s.deadline.reserve = secs(10);
        }
    };
    refused(with_budget(32_500), "rate_limit.cooldown", &["32s"]);
    assert_eq!(changed(with_budget(32_501)).check(), Ok(()));
}
