//! What only the settings as a whole can show (rule 7 of the design).

use std::time::Duration;

use tower_toolcall::{
    backoff::Jitter,
    settings::{KeyBy, Preset, Settings, ToolSettings},
};

use crate::kit::{changed, secs};

/// The name that the error gives, and its text has the rest.
#[track_caller]
pub(crate) fn refused(change: impl FnOnce(&mut Settings), key: &str, says: &[&str]) {
    let error = changed(change).check().unwrap_err();
    assert_eq!(error.field(), key, "{error}");
    for part in says {
        assert!(error.to_string().contains(part), "{part} in {error}");
    }
}

/// The settings can work, and one warning has this name and text.
#[track_caller]
pub(crate) fn warned(change: impl FnOnce(&mut Settings), key: &str, says: &[&str]) {
    let settings = changed(change);
    assert_eq!(settings.check(), Ok(()));
    let warnings = settings.warnings();
    let [warning] = &*warnings else {
        panic!("{warnings:?}");
    };
    assert_eq!(warning.field(), key, "{warning}");
    for part in says {
        assert!(warning.reason().contains(part), "{part} in {warning}");
    }
}

/// P18: system D's environment, and one tool of 10 minutes.
#[test]
fn a_gateway_with_one_tool_of_ten_minutes_starts_and_warns() {
    let file = "preset = \"gateway\"\n[tools.import]\ntimeout_ms = 600000";
    let file: Settings = toml::from_str(file).unwrap();
    let environment = [
        ("TOOL_TIMEOUT", "60"),
        ("TOOL_CIRCUIT_BREAKER_ENABLED", "true"),
        ("TOOL_CIRCUIT_BREAKER_THRESHOLD", "5"),
        ("TOOL_CIRCUIT_BREAKER_RESET", "60"),
        ("TOOL_CIRCUIT_BREAKER_WINDOW", "300"),
    ];
    let settings = file.with_env_from(environment).unwrap();
    assert!(settings.stack().build().is_ok());
    assert_eq!(
        settings.warnings()[0].reason(),
        "window (5m) must be longer than the longest timeout (`tools.import.timeout`, 10m), \
         or two timeouts never fall into one window"
    );
}

/// P18: a tool's setting of a layer that is off.
#[test]
fn a_setting_of_a_layer_that_is_off_is_a_warning() {
    let of_tool = |change: fn(&mut ToolSettings)| {
        move |s: &mut Settings| {
            s.validate.enabled = false;
            change(s.tools.entry("import".into()).or_default());
        }
    };
    let says = ["`repeat_guard.enabled` is false"];
    let guard = of_tool(|tool| tool.repeat_guard = Some(true));
    warned(guard, "tools.import.repeat_guard", &says);
    let says = ["`validate.enabled` is false"];
    let repair = of_tool(|tool| tool.repair = Some(true));
    warned(repair, "tools.import.repair", &says);
}

#[test]
fn every_preset_passes() {
    for preset in Preset::ALL {
        assert_eq!(Settings::preset(preset).check(), Ok(()));
        assert_eq!(Settings::preset(preset).warnings(), []);
    }
}

#[test]
fn a_window_shorter_than_the_timeout_that_it_watches() {
    let says = ["window (20s)", "(`timeout.default`, 30s)"];
    warned(
        |s| s.circuit_breaker.window = Some(secs(20)),
        "circuit_breaker.window",
        &says,
    );
}

#[test]
fn a_window_shorter_than_one_tools_timeout() {
    let change = |s: &mut Settings| {
        s.circuit_breaker.window = Some(secs(60));
        s.tools.entry("import".into()).or_default().timeout = Some(secs(90));
    };
    let says = ["(`tools.import.timeout`, 1m30s)"];
    warned(change, "circuit_breaker.window", &says);
}

/// N4: a switched-off breaker watches nothing.
#[test]
fn the_window_of_a_breaker_that_is_off_may_be_short() {
    let settings = changed(|s| {
        s.circuit_breaker.enabled = false;
        s.circuit_breaker.window = Some(secs(20));
    });
    assert_eq!(settings.warnings(), []);
}

/// L1, R5: a wait that cannot fit is never begun.
#[test]
fn a_cooldown_that_does_not_end_within_the_budget() {
    let change = |s: &mut Settings| {
        s.rate_limit.default_cooldown = secs(40);
        s.deadline.budget = Some(secs(20));
    };
    let says = ["40s", "`deadline.budget`", "20s"];
    refused(change, "rate_limit.default_cooldown", &says);
}

/// T5.
#[test]
fn a_cooldown_that_does_not_end_within_a_sequence_or_a_batch() {
    let sequence = |s: &mut Settings| {
        s.rate_limit.default_cooldown = secs(31);
        s.sequence.budget = Some(secs(30));
    };
    let says = ["29s500ms", "`sequence.budget`"];
    refused(sequence, "rate_limit.default_cooldown", &says);
    let batch = |s: &mut Settings| {
        s.rate_limit.default_cooldown = secs(31);
        s.parallel.budget = Some(secs(30));
    };
    let says = ["29s500ms", "`parallel.budget`"];
    refused(batch, "rate_limit.default_cooldown", &says);
}

/// Only what can never work is refused: chance may add nothing.
#[test]
fn a_cooldown_that_fits_only_without_its_jitter() {
    let budget = |secs_| {
        move |s: &mut Settings| {
            s.rate_limit.default_cooldown = secs(31);
            s.deadline.budget = Some(secs(secs_));
        }
    };
    let says = ["31s is too long for the 31s that `deadline.budget` leaves"];
    refused(budget(31), "rate_limit.default_cooldown", &says);
    assert_eq!(changed(budget(32)).check(), Ok(()));
}

/// L3: who does not wait for it may have a long one; the retry layer waits only where no gate fails fast.
#[test]
fn a_cooldown_that_nobody_waits_for() {
    for (retry, gate, fail_fast, passes) in [
        (true, true, true, true),
        (false, true, true, true),
        (true, false, true, false),
        (true, false, false, false),
        (false, true, false, false),
        (false, false, false, true),
    ] {
        let what = (retry, gate, fail_fast);
        let mut settings = changed(|s| {
            s.deadline.budget = Some(secs(20));
            s.rate_limit.default_cooldown = secs(21);
            s.retry.enabled = retry;
            s.rate_limit.enabled = gate;
            s.rate_limit.fail_fast = fail_fast;
        });
        assert_eq!(settings.check().is_ok(), passes, "{what:?}");
        settings.deadline.budget = None;
        settings.rate_limit.max_wait = secs(20);
        assert_eq!(settings.check().is_ok(), passes, "{what:?}");
    }
}

#[test]
fn a_first_delay_that_does_not_end_within_the_budget() {
    let change = |s: &mut Settings| {
        s.deadline.budget = Some(secs(6));
        s.rate_limit.default_cooldown = secs(1);
        s.retry.base = secs(6);
    };
    let says = ["6s is too long for the 6s that `deadline.budget` leaves"];
    refused(change, "retry.base", &says);
    let settings = changed(|s| {
        change(s);
        s.retry.attempts = 1;
    });
    assert_eq!(settings.check(), Ok(()));
    // One tool that is sent again is enough.
    let one = |s: &mut Settings| {
        change(s);
        s.retry.attempts = 1;
        s.tools.entry("find".into()).or_default().attempts = Some(2);
    };
    refused(one, "retry.base", &says);
}

/// Of what chance decides, the shortest is taken.
#[test]
fn a_first_delay_that_may_end_within_the_budget() {
    let passes = |jitter, base| {
        let settings = changed(|s| {
            s.deadline.budget = Some(secs(6));
            s.rate_limit.default_cooldown = secs(1);
            s.retry.jitter = jitter;
            s.retry.base = std::time::Duration::from_millis(base);
        });
        settings.check().is_ok()
    };
    for (jitter, longest) in [
        (Jitter::None, 5_999),
        (Jitter::Upwards, 5_999),
        (Jitter::Equal, 11_999),
    ] {
        assert!(passes(jitter, longest), "{jitter:?}");
        assert!(!passes(jitter, longest + 1), "{jitter:?}");
    }
    assert!(passes(Jitter::Full, 30_000));
}

/// L2.
#[test]
fn a_cooldown_beyond_the_longest_wait() {
    let cooldown = |cooldown| {
        move |s: &mut Settings| {
            s.rate_limit.default_cooldown = secs(cooldown);
            s.rate_limit.max_wait = secs(20);
        }
    };
    let says = ["21s is more than `rate_limit.max_wait` (20s)"];
    refused(cooldown(21), "rate_limit.default_cooldown", &says);
    assert_eq!(changed(cooldown(20)).check(), Ok(()));
}

#[test]
fn answers_that_are_kept_for_no_time() {
    refused(|s| s.once.ttl = secs(0), "once.ttl", &["zero"]);
    refused(|s| s.once.max_keys = 0, "once.max_keys", &["1 to"]);
    // An eighth of the bytes has to have room for one answer.
    let small = |s: &mut Settings| s.once.max_bytes = 100_000;
    refused(small, "once.max_answer", &["65536", "12500", "max_bytes"]);
    let tools = |ttl| {
        move |s: &mut Settings| {
            s.cache.tools = vec!["search".into()];
            s.cache.ttl = ttl;
        }
    };
    refused(tools(None), "cache.tools", &["cache.ttl", "missing"]);
    refused(tools(Some(secs(0))), "cache.ttl", &["zero"]);
    assert_eq!(changed(tools(Some(secs(60)))).check(), Ok(()));
}

#[test]
fn a_guard_that_refuses_all_or_nothing() {
    refused(
        |s| s.repeat_guard.failures = 0,
        "repeat_guard.failures",
        &["zero"],
    );
    refused(
        |s| s.repeat_guard.window = secs(0),
        "repeat_guard.window",
        &["zero"],
    );
    refused(
        |s| s.repeat_guard.max_keys = 0,
        "repeat_guard.max_keys",
        &["zero"],
    );
    let long = |s: &mut Settings| s.repeat_guard.window = secs(86_401);
    refused(long, "repeat_guard.window", &["a day"]);
}

#[test]
fn jobs_that_are_never_asked_for() {
    let cap = |s: &mut Settings| {
        s.poll.interval = secs(40);
        s.poll.cap = secs(35);
    };
    refused(cap, "poll.cap", &["35s", "`poll.interval` (40s)"]);
    assert_eq!(changed(|s| s.poll.interval = secs(40)).check(), Ok(()));
    refused(|s| s.fit.max_chars = 999, "fit.max_chars", &["1000"]);
    refused(|s| s.poll.interval = secs(0), "poll.interval", &["zero"]);
    refused(|s| s.poll.factor = 0.5, "poll.factor", &["0.5"]);
    refused(|s| s.poll.polls = 0, "poll.polls", &[]);
    refused(|s| s.poll.budget = Some(secs(0)), "poll.budget", &["zero"]);
    refused(|s| s.http.max_bytes = 0, "http.max_bytes", &["above 0"]);
    refused(|s| s.token.timeout = secs(0), "token.timeout", &["zero"]);
    let long = |s: &mut Settings| s.token.leeway = secs(u64::MAX);
    refused(long, "token.leeway", &["a year"]);
}

#[test]
fn a_cap_below_the_base() {
    let change = |s: &mut Settings| {
        s.retry.base = secs(40);
        s.retry.cap = secs(35);
    };
    refused(change, "retry.cap", &["35s", "`retry.base` (40s)"]);
    let settings = changed(|s| {
        change(s);
        s.retry.enabled = false;
    });
    assert_eq!(settings.check(), Ok(()));
}

/// T8.
#[test]
fn an_idle_timeout_that_never_matters() {
    let says = ["30s", "`timeout.default` (30s)"];
    warned(
        |s| s.timeout.idle_timeout = Some(secs(30)),
        "timeout.idle_timeout",
        &says,
    );
}

#[test]
fn a_slow_call_that_is_never_met() {
    let change = |s: &mut Settings| {
        s.circuit_breaker.slow_call_rate = Some(0.5);
        s.circuit_breaker.slow_call = Some(secs(31));
        s.circuit_breaker.window_calls = Some(100);
    };
    warned(
        change,
        "circuit_breaker.slow_call",
        &["31s", "`timeout.default` (30s)"],
    );
    // A breaker that is off meets none anyway.
    let settings = changed(|s| {
        change(s);
        s.circuit_breaker.enabled = false;
    });
    assert_eq!(settings.warnings(), []);
}

/// T5: an attempt outlasts neither the budget of the call nor the longest timeout.
#[test]
fn the_longest_attempt_is_the_budget_if_that_is_shorter() {
    let short = |s: &mut Settings| {
        s.deadline.budget = Some(secs(10));
        s.rate_limit.default_cooldown = secs(1);
    };
    let says = ["`deadline.budget`", "10s"];
    let idle = |s: &mut Settings| {
        short(s);
        s.timeout.idle_timeout = Some(secs(10));
    };
    warned(idle, "timeout.idle_timeout", &says);
    let window = |s: &mut Settings| {
        short(s);
        s.circuit_breaker.window = Some(secs(10));
    };
    warned(window, "circuit_breaker.window", &says);
    let slow = |s: &mut Settings| {
        short(s);
        s.circuit_breaker.slow_call_rate = Some(0.5);
        s.circuit_breaker.slow_call = Some(secs(11));
        s.circuit_breaker.window_calls = Some(100);
    };
    warned(slow, "circuit_breaker.slow_call", &says);
    let settings = changed(|s| {
        short(s);
        s.timeout.idle_timeout = Some(secs(9));
        s.circuit_breaker.window = Some(secs(11));
    });
    assert_eq!(settings.warnings(), []);
}

/// Two results that end so far apart are never seen together; one is enough for some.
#[test]
fn a_window_as_long_as_the_timeout() {
    let window = |s: &mut Settings| s.circuit_breaker.window = Some(secs(30));
    let says = ["must be longer than the longest timeout (`timeout.default`, 30s)"];
    warned(window, "circuit_breaker.window", &says);
    let rates = |minimum| {
        move |s: &mut Settings| {
            window(s);
            s.circuit_breaker.failure_rate = Some(0.5);
            s.circuit_breaker.minimum_calls = minimum;
        }
    };
    warned(rates(None), "circuit_breaker.window", &says);
    warned(rates(Some(2)), "circuit_breaker.window", &says);
    assert_eq!(changed(rates(Some(1))).warnings(), []);
    let settings = changed(|s| {
        s.circuit_breaker.window = Some(secs(1));
        s.circuit_breaker.threshold = 1;
    });
    assert_eq!(settings.warnings(), []);
}

/// T5.
#[test]
fn a_reserve_that_leaves_nothing() {
    let change = |s: &mut Settings| {
        s.sequence.budget = Some(secs(60));
        s.sequence.reserve = secs(61);
    };
    refused(
        change,
        "sequence.reserve",
        &["1m1s", "`sequence.budget` (1m)"],
    );
}

/// T5: it is kept only from a deadline that a call brings along, as one of a batch does.
#[test]
fn a_reserve_is_not_kept_from_the_layers_own_budget() {
    let settings = changed(|s| {
        s.deadline.budget = Some(secs(60));
        s.deadline.reserve = secs(60);
    });
    assert_eq!(settings.check(), Ok(()));
}

/// X1: whoever waits or not.
#[test]
fn a_batch_that_ends_within_the_reserve() {
    let batch = |budget| {
        move |s: &mut Settings| {
            s.parallel.budget = Some(secs(budget));
            s.deadline.reserve = secs(10);
            s.retry.enabled = false;
            s.rate_limit.fail_fast = true;
        }
    };
    for budget in [9, 10] {
        let says = ["`deadline.reserve` (10s)", "every call", "lengthen"];
        refused(batch(budget), "parallel.budget", &says);
    }
    assert_eq!(changed(batch(11)).check(), Ok(()));
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
        |s| s.rate_limit.default_cooldown = zero,
        "rate_limit.default_cooldown",
        &["zero"],
    );
    refused(
        |s| s.circuit_breaker.open_for = zero,
        "circuit_breaker.open_for",
        &["zero"],
    );
    refused(
        |s| s.timeout.idle_timeout = Some(zero),
        "timeout.idle_timeout",
        &["zero"],
    );
}

/// X6.
#[test]
fn what_the_registry_of_servers_cannot_work_with_is_named() {
    let threshold = |s: &mut Settings| s.health.threshold = 0;
    refused(threshold, "health.threshold", &["zero"]);
    let period = |s: &mut Settings| s.health.probe_period = secs(0);
    refused(period, "health.probe_period", &["zero"]);
    let period = |s: &mut Settings| s.health.probe_period = secs(400 * 24 * 3600);
    refused(period, "health.probe_period", &["year"]);
    let servers = |s: &mut Settings| s.health.max_servers = 0;
    refused(servers, "health.max_servers", &["between 1 and"]);
}

#[test]
fn what_quota_and_concurrency_limit_cannot_work_with_is_named() {
    let tokens = |s: &mut Settings| s.quota.tokens = Some(0);
    refused(tokens, "quota.tokens", &["zero"]);
    let quota = |change: fn(&mut Settings)| {
        move |s: &mut Settings| {
            s.quota.tokens = Some(1);
            change(s);
        }
    };
    refused(
        quota(|s| s.quota.period = secs(0)),
        "quota.period",
        &["zero"],
    );
    let year = 365 * 24 * 3600;
    let period =
        move |s: &mut Settings| (s.quota.tokens, s.quota.period) = (Some(1), secs(year + 1));
    refused(period, "quota.period", &["year"]);
    refused(quota(|s| s.quota.burst = Some(0)), "quota.burst", &["zero"]);
    refused(quota(|s| s.quota.max_keys = 0), "quota.max_keys", &["zero"]);
    let wait = move |s: &mut Settings| s.quota.max_wait = secs(year + 1);
    refused(wait, "quota.max_wait", &["year"]);
    let max = |s: &mut Settings| s.concurrency.max = Some(0);
    refused(
        max,
        "concurrency.max",
        &["zero: every call would be refused"],
    );
    let own = |change: fn(&mut ToolSettings)| {
        move |s: &mut Settings| {
            s.quota.tokens = Some(5);
            s.quota.key = KeyBy::Agent;
            s.concurrency.key = KeyBy::Server;
            change(s.tools.entry("import".into()).or_default());
        }
    };
    let agent = own(|tool| tool.quota_tokens = Some(1));
    refused(agent, "tools.import.quota_tokens", &["`quota.key`"]);
    let server = own(|tool| tool.concurrency = Some(1));
    refused(server, "tools.import.concurrency", &["`concurrency.key`"]);
    let zero = own(|tool| tool.concurrency = Some(0));
    refused(zero, "tools.import.concurrency", &["zero"]);
    let dear = own(|tool| tool.quota_cost = Some(6));
    refused(dear, "tools.import.quota_cost", &["6", "5 tokens"]);
    let cost = |s: &mut Settings| {
        let tool = s.tools.entry("import".into()).or_default();
        tool.quota_cost = Some(1);
    };
    refused(cost, "tools.import.quota_cost", &["`quota.tokens`"]);
    let keys = |s: &mut Settings| (s.concurrency.max, s.concurrency.max_keys) = (Some(1), 0);
    refused(keys, "concurrency.max_keys", &["zero"]);
}

/// G1: a tool's own settings are named with the tool.
#[test]
fn one_tools_settings_are_named() {
    let timeout = |time| {
        move |s: &mut Settings| s.tools.entry("import".into()).or_default().timeout = Some(time)
    };
    refused(timeout(secs(0)), "tools.import.timeout", &["zero"]);
    refused(timeout(Duration::MAX), "tools.import.timeout", &["year"]);
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
    let says = ["`circuit_breaker.window` is set too"];
    refused(both, "circuit_breaker.window_calls", &says);
    refused(
        |s| {
            s.circuit_breaker.slow_call_rate = Some(0.5);
            s.circuit_breaker.window_calls = Some(10);
        },
        "circuit_breaker.slow_call_rate",
        &["`circuit_breaker.slow_call`"],
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

/// W4: a total without a window would open every breaker in the end.
#[test]
fn a_total_needs_a_window() {
    let change = |s: &mut Settings| s.circuit_breaker.success_resets = false;
    let says = ["set `circuit_breaker.window` too"];
    refused(change, "circuit_breaker.success_resets", &says);
}

/// C5.
#[test]
fn reported_failures_need_a_key_that_names_the_tool() {
    let change = |s: &mut Settings| {
        s.circuit_breaker.key = KeyBy::Server;
        s.circuit_breaker.reported_failures = true;
    };
    let says = ["`circuit_breaker.key`"];
    refused(change, "circuit_breaker.reported_failures", &says);
}

/// What is just enough passes.
#[test]
fn the_limits_themselves() {
    let passes = |change: fn(&mut Settings)| assert_eq!(changed(change).check(), Ok(()));
    passes(|s| s.circuit_breaker.window = Some(secs(31)));
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
        s.rate_limit.default_cooldown = secs(1);
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
            s.rate_limit.default_cooldown = secs(31);
            s.deadline.reserve = secs(10);
        }
    };
    refused(with_budget(31_500), "rate_limit.default_cooldown", &["31s"]);
    assert_eq!(changed(with_budget(31_501)).check(), Ok(()));
}
