//! What only the settings as a whole can show (rule 7 of the design).

use std::time::Duration;

use expect_test::expect;
use tower_toolcall::{
    backoff::Jitter,
    settings::{KeyBy, Preset, Settings, ToolSettings},
};

use crate::kit::{changed, secs};

/// The error of each change.
pub(crate) fn refused(changes: &[&dyn Fn(&mut Settings)]) -> String {
    let errors = changes
        .iter()
        .map(|change| changed(change).check().unwrap_err().to_string());
    errors.collect::<Vec<_>>().join("\n")
}

/// The warning of each change, with which settings can work.
fn warned(changes: &[&dyn Fn(&mut Settings)]) -> String {
    let warnings = changes.iter().map(|change| {
        let settings = changed(change);
        assert_eq!(settings.check(), Ok(()));
        let warnings = settings.warnings();
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        warnings[0].to_string()
    });
    warnings.collect::<Vec<_>>().join("\n")
}

/// The settings of a tool.
fn import(s: &mut Settings) -> &mut ToolSettings {
    s.tools.entry("import".into()).or_default()
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
    expect!["invalid `TOOL_CIRCUIT_BREAKER_WINDOW`: window (5m) must be longer than the longest timeout (`tools.import.timeout`, 10m), or two timeouts never fall into one window"].assert_eq(&settings.warnings()[0].to_string());
}

/// P18: a tool's setting of a layer that is off.
#[test]
fn a_setting_of_a_layer_that_is_off_is_a_warning() {
    let repair = |s: &mut Settings| {
        s.validate.enabled = false;
        import(s).repair = Some(true);
    };
    expect![[r#"
        invalid `tools.import.repeat_guard`: `repeat_guard.enabled` is false, so it means nothing
        invalid `tools.import.repair`: `validate.enabled` is false, so it means nothing"#]]
    .assert_eq(&warned(&[
        &|s| import(s).repeat_guard = Some(true),
        &repair,
    ]));
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
    let default = |s: &mut Settings| s.circuit_breaker.window = Some(secs(20));
    let one_tool = |s: &mut Settings| {
        s.circuit_breaker.window = Some(secs(60));
        import(s).timeout = Some(secs(90));
    };
    expect![[r#"
        invalid `circuit_breaker.window`: window (20s) must be longer than the longest timeout (`timeout.default`, 30s), or two timeouts never fall into one window
        invalid `circuit_breaker.window`: window (1m) must be longer than the longest timeout (`tools.import.timeout`, 1m30s), or two timeouts never fall into one window"#]].assert_eq(&warned(&[&default, &one_tool]));
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
    expect!["invalid `rate_limit.default_cooldown`: 40s is too long for the 20s that `deadline.budget` leaves: no call would wait for its end; raise the budget, or shorten it"].assert_eq(&refused(&[&change]));
}

/// T5.
#[test]
fn a_cooldown_that_does_not_end_within_a_sequence_or_a_batch() {
    let sequence = |s: &mut Settings| {
        s.rate_limit.default_cooldown = secs(31);
        s.sequence.budget = Some(secs(30));
    };
    let batch = |s: &mut Settings| {
        s.rate_limit.default_cooldown = secs(31);
        s.parallel.budget = Some(secs(30));
    };
    expect![[r#"
        invalid `rate_limit.default_cooldown`: 31s is too long for the 29s500ms that `sequence.budget` leaves: no call would wait for its end; raise the budget, or shorten it
        invalid `rate_limit.default_cooldown`: 31s is too long for the 29s500ms that `parallel.budget` leaves: no call would wait for its end; raise the budget, or shorten it"#]].assert_eq(&refused(&[&sequence, &batch]));
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
    expect!["invalid `rate_limit.default_cooldown`: 31s is too long for the 31s that `deadline.budget` leaves: no call would wait for its end; raise the budget, or shorten it"].assert_eq(&refused(&[&budget(31)]));
    assert_eq!(changed(budget(32)).check(), Ok(()));
}

/// L3: who does not wait for it may have a long one; the retry layer waits only where no gate fails
/// fast.
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
    let settings = changed(|s| {
        change(s);
        s.retry.attempts = 1;
    });
    assert_eq!(settings.check(), Ok(()));
    // One tool that is sent again is enough.
    let one = |s: &mut Settings| {
        change(s);
        s.retry.attempts = 1;
        import(s).attempts = Some(2);
    };
    expect![[r#"
        invalid `retry.base`: 6s is too long for the 6s that `deadline.budget` leaves: no call would wait for its end; raise the budget, or shorten it
        invalid `retry.base`: 6s is too long for the 6s that `deadline.budget` leaves: no call would wait for its end; raise the budget, or shorten it"#]].assert_eq(&refused(&[&change, &one]));
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
    expect!["invalid `rate_limit.default_cooldown`: 21s is more than `rate_limit.max_wait` (20s): no call would wait until it ends; raise the other, or shorten it"].assert_eq(&refused(&[&cooldown(21)]));
    assert_eq!(changed(cooldown(20)).check(), Ok(()));
}

#[test]
fn answers_that_are_kept_for_no_time() {
    let tools = |ttl| {
        move |s: &mut Settings| {
            s.cache.tools = vec!["search".into()];
            s.cache.ttl = ttl;
        }
    };
    let changes: [&dyn Fn(&mut Settings); 5] = [
        &|s| s.once.ttl = secs(0),
        &|s| s.once.max_keys = 0,
        // An eighth of the bytes has to have room for one answer.
        &|s| (s.once.max_bytes, s.once.max_answer) = (100_000, 20_000),
        &tools(None),
        &tools(Some(secs(0))),
    ];
    expect![[r#"
        invalid `once.ttl`: it is zero: every call would run again
        invalid `once.max_keys`: 0 is not between 1 and 16777216
        invalid `once.max_answer`: 20000 is more than the 12500 bytes that a principal has of `max_bytes`
        invalid `cache.tools`: names tools, and `cache.ttl` is missing
        invalid `cache.ttl`: it is zero: nothing would be kept"#]].assert_eq(&refused(&changes));
    assert_eq!(changed(tools(Some(secs(60)))).check(), Ok(()));
}

#[test]
fn a_guard_that_refuses_all_or_nothing() {
    let changes: [&dyn Fn(&mut Settings); 4] = [
        &|s| s.repeat_guard.failures = 0,
        &|s| s.repeat_guard.window = secs(0),
        &|s| s.repeat_guard.window = secs(86_401),
        &|s| s.repeat_guard.max_keys = 0,
    ];
    expect![[r#"
        invalid `repeat_guard.failures`: it is zero: no call would be let through
        invalid `repeat_guard.window`: it is zero: no call would be refused
        invalid `repeat_guard.window`: 1day1s is longer than a day
        invalid `repeat_guard.max_keys`: 0 is not between 1 and 16777216"#]]
    .assert_eq(&refused(&changes));
}

#[test]
fn jobs_that_are_never_asked_for() {
    assert_eq!(changed(|s| s.poll.interval = secs(40)).check(), Ok(()));
    let changes: [&dyn Fn(&mut Settings); 9] = [
        &|s| (s.poll.interval, s.poll.cap) = (secs(40), secs(35)),
        &|s| s.fit.max_chars = 999,
        &|s| s.poll.interval = secs(0),
        &|s| s.poll.factor = 0.5,
        &|s| s.poll.polls = 0,
        &|s| s.poll.budget = Some(secs(0)),
        &|s| s.http.max_bytes = 0,
        &|s| s.token.timeout = secs(0),
        &|s| s.token.leeway = secs(u64::MAX),
    ];
    expect![[r#"
        invalid `poll.cap`: 35s is shorter than `poll.interval` (40s)
        invalid `fit.max_chars`: is less than 1000: there would be little room beside the mark
        invalid `poll.interval`: is zero
        invalid `poll.factor`: 0.5 is not a number from 1 to 1000
        invalid `poll.polls`: is not above 0
        invalid `poll.budget`: it is zero: no call would have time
        invalid `http.max_bytes`: is not above 0
        invalid `token.timeout`: it is zero: no call would have time
        invalid `token.leeway`: 584542046090years7months15days17h5m3s is longer than a year"#]]
    .assert_eq(&refused(&changes));
}

#[test]
fn a_cap_below_the_base() {
    let change = |s: &mut Settings| {
        s.retry.base = secs(40);
        s.retry.cap = secs(35);
    };
    expect!["invalid `retry.cap`: 35s is less than `retry.base` (40s): raise it"]
        .assert_eq(&refused(&[&change]));
    let settings = changed(|s| {
        change(s);
        s.retry.enabled = false;
    });
    assert_eq!(settings.check(), Ok(()));
}

/// T8.
#[test]
fn an_idle_timeout_that_never_matters() {
    expect!["invalid `timeout.idle_timeout`: 30s is not less than `timeout.default` (30s): it would never matter; shorten it"].assert_eq(&warned(&[&|s| s.timeout.idle_timeout = Some(secs(30))]));
}

#[test]
fn a_slow_call_that_is_never_met() {
    let change = |s: &mut Settings| {
        s.circuit_breaker.slow_call_rate = Some(0.5);
        s.circuit_breaker.slow_call = Some(secs(31));
        s.circuit_breaker.window_calls = Some(100);
    };
    expect!["invalid `circuit_breaker.slow_call`: 31s is more than `timeout.default` (30s): no call is ever that slow; shorten it"].assert_eq(&warned(&[&change]));
    // A breaker that is off meets none anyway.
    let settings = changed(|s| {
        change(s);
        s.circuit_breaker.enabled = false;
    });
    assert_eq!(settings.warnings(), []);
}

/// D11: the limit is outside the breaker.
#[test]
fn a_wait_for_a_probe_with_a_permit() {
    let both = |s: &mut Settings| {
        s.circuit_breaker.probe_wait = Some(secs(10));
        s.concurrency.max = Some(4);
    };
    expect!["invalid `circuit_breaker.probe_wait`: calls wait up to 10s for a probe with a permit of `concurrency.max` (4), and other calls of its key wait behind them; shorten it"].assert_eq(&warned(&[&both]));
    for lifts in [
        (|s| s.concurrency.max = None) as fn(&mut Settings),
        |s| s.circuit_breaker.probe_wait = None,
        |s| s.circuit_breaker.enabled = false,
    ] {
        let settings = changed(|s| {
            both(s);
            lifts(s);
        });
        assert_eq!(settings.warnings(), []);
    }
}

/// T5: an attempt outlasts neither the budget of the call nor the longest timeout.
#[test]
fn the_longest_attempt_is_the_budget_if_that_is_shorter() {
    let short = |s: &mut Settings| {
        s.deadline.budget = Some(secs(10));
        s.rate_limit.default_cooldown = secs(1);
    };
    let idle = |s: &mut Settings| {
        short(s);
        s.timeout.idle_timeout = Some(secs(10));
    };
    let window = |s: &mut Settings| {
        short(s);
        s.circuit_breaker.window = Some(secs(10));
    };
    let slow = |s: &mut Settings| {
        short(s);
        s.circuit_breaker.slow_call_rate = Some(0.5);
        s.circuit_breaker.slow_call = Some(secs(11));
        s.circuit_breaker.window_calls = Some(100);
    };
    expect![[r#"
        invalid `timeout.idle_timeout`: 10s is not less than `deadline.budget` (10s): it would never matter; shorten it
        invalid `circuit_breaker.window`: window (10s) must be longer than the longest timeout (`deadline.budget`, 10s), or two timeouts never fall into one window
        invalid `circuit_breaker.slow_call`: 11s is more than `deadline.budget` (10s): no call is ever that slow; shorten it"#]].assert_eq(&warned(&[&idle, &window, &slow]));
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
    let rates = |minimum| {
        move |s: &mut Settings| {
            window(s);
            s.circuit_breaker.failure_rate = Some(0.5);
            s.circuit_breaker.minimum_calls = minimum;
        }
    };
    expect![[r#"
        invalid `circuit_breaker.window`: window (30s) must be longer than the longest timeout (`timeout.default`, 30s), or two timeouts never fall into one window
        invalid `circuit_breaker.window`: window (30s) must be longer than the longest timeout (`timeout.default`, 30s), or two timeouts never fall into one window
        invalid `circuit_breaker.window`: window (30s) must be longer than the longest timeout (`timeout.default`, 30s), or two timeouts never fall into one window"#]].assert_eq(&warned(&[&window, &rates(None), &rates(Some(2))]));
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
    expect!["invalid `sequence.reserve`: 1m1s is not less than `sequence.budget` (1m): no call would have time; shorten it"].assert_eq(&refused(&[&change]));
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
    expect![[r#"
        invalid `parallel.budget`: 9s is not more than `deadline.reserve` (10s): every call of a batch would be skipped; lengthen it
        invalid `parallel.budget`: 10s is not more than `deadline.reserve` (10s): every call of a batch would be skipped; lengthen it"#]].assert_eq(&refused(&[&batch(9), &batch(10)]));
    assert_eq!(changed(batch(11)).check(), Ok(()));
}

#[test]
fn times_of_zero() {
    let zero = secs(0);
    let changes: [&dyn Fn(&mut Settings); 7] = [
        &|s| s.timeout.default = zero,
        &|s| s.deadline.budget = Some(zero),
        &|s| s.sequence.budget = Some(zero),
        &|s| s.parallel.budget = Some(zero),
        &|s| s.rate_limit.default_cooldown = zero,
        &|s| s.circuit_breaker.open_for = zero,
        &|s| s.timeout.idle_timeout = Some(zero),
    ];
    expect![[r#"
        invalid `timeout.default`: it is zero: no call would have time
        invalid `deadline.budget`: it is zero: no call would have time
        invalid `sequence.budget`: it is zero: no call would have time
        invalid `parallel.budget`: it is zero: no call would have time
        invalid `rate_limit.default_cooldown`: it is zero: the limit would be met again immediately
        invalid `circuit_breaker.open_for`: the breaker could never open: it is zero: no call is ever refused
        invalid `timeout.idle_timeout`: it is zero"#]].assert_eq(&refused(&changes));
}

/// X6.
#[test]
fn what_the_registry_of_servers_cannot_work_with_is_named() {
    let changes: [&dyn Fn(&mut Settings); 4] = [
        &|s| s.health.threshold = 0,
        &|s| s.health.probe_period = secs(0),
        &|s| s.health.probe_period = secs(400 * 24 * 3600),
        &|s| s.health.max_servers = 0,
    ];
    expect![[r#"
        invalid `health.threshold`: it is zero: every server would be unavailable
        invalid `health.probe_period`: it is zero: every call would be a probe
        invalid `health.probe_period`: 1year1month4days7h26m24s is longer than a year
        invalid `health.max_servers`: 0 is not between 1 and 16777216"#]]
    .assert_eq(&refused(&changes));
}

#[test]
fn what_quota_and_concurrency_limit_cannot_work_with_is_named() {
    let year = 365 * 24 * 3600;
    let quota = |change: fn(&mut Settings)| {
        move |s: &mut Settings| {
            s.quota.tokens = Some(1);
            change(s);
        }
    };
    let own = |change: fn(&mut ToolSettings)| {
        move |s: &mut Settings| {
            s.quota.tokens = Some(5);
            s.quota.key = KeyBy::Agent;
            s.concurrency.key = KeyBy::Server;
            change(import(s));
        }
    };
    let changes: [&dyn Fn(&mut Settings); 13] = [
        &|s| s.quota.tokens = Some(0),
        &quota(|s| s.quota.period = secs(0)),
        &|s| (s.quota.tokens, s.quota.period) = (Some(1), secs(year + 1)),
        &quota(|s| s.quota.burst = Some(0)),
        &quota(|s| s.quota.max_keys = 0),
        &|s| s.quota.max_wait = secs(year + 1),
        &|s| s.concurrency.max = Some(0),
        &|s| (s.concurrency.max, s.concurrency.max_keys) = (Some(1), 0),
        &own(|tool| tool.quota_tokens = Some(1)),
        &own(|tool| tool.concurrency = Some(1)),
        &own(|tool| tool.concurrency = Some(0)),
        &own(|tool| tool.quota_cost = Some(6)),
        &|s| import(s).quota_cost = Some(1),
    ];
    expect![[r#"
        invalid `quota.tokens`: it is zero: no call would be admitted
        invalid `quota.period`: it is zero: nothing would be limited
        invalid `quota.period`: 11months30days3h50m25s is longer than a year
        invalid `quota.burst`: it is zero: no call would be admitted
        invalid `quota.max_keys`: 0 is not between 1 and 16777216
        invalid `quota.max_wait`: 11months30days3h50m25s is longer than a year
        invalid `concurrency.max`: it is zero: every call would be refused
        invalid `concurrency.max_keys`: 0 is not between 1 and 16777216
        invalid `tools.import.quota_tokens`: `quota.key` is not `tool`: tools share their units
        invalid `tools.import.concurrency`: `concurrency.key` is not `tool`: tools share their limit
        invalid `tools.import.concurrency`: it is zero: every call would be refused
        invalid `tools.import.quota_cost`: 6 is more than the 5 units of the largest burst
        invalid `tools.import.quota_cost`: without `quota.tokens` it means nothing"#]]
    .assert_eq(&refused(&changes));
}

/// G1: a tool's own settings are named with the tool.
#[test]
fn one_tools_settings_are_named() {
    let changes: [&dyn Fn(&mut Settings); 3] = [
        &|s| import(s).timeout = Some(secs(0)),
        &|s| import(s).timeout = Some(Duration::MAX),
        &|s| import(s).attempts = Some(0),
    ];
    expect![[r#"
        invalid `tools.import.timeout`: it is zero: no call would have time
        invalid `tools.import.timeout`: 584542046090years7months15days17h5m3s999ms999us999ns is longer than a year
        invalid `tools.import.attempts`: it is zero: no call is made"#]].assert_eq(&refused(&changes));
}

/// A layer's own check, under the setting's name; of a layer that is off as well.
#[test]
fn a_disabled_layer_is_checked_too() {
    let changes: [&dyn Fn(&mut Settings); 3] = [
        &|s| (s.circuit_breaker.enabled, s.circuit_breaker.threshold) = (false, 0),
        &|s| (s.retry.enabled, s.retry.attempts) = (false, 0),
        &|s| (s.rate_limit.enabled, s.rate_limit.max_keys) = (false, 0),
    ];
    expect![[r#"
        invalid `circuit_breaker.threshold`: it is zero: the breaker would be open before the first failure
        invalid `retry.attempts`: it is zero: no call is made
        invalid `rate_limit.max_keys`: 0 is not between 1 and 16777216"#]].assert_eq(&refused(&changes));
}

/// C2: one way to open, told clearly.
#[test]
fn rates_say_what_they_are_a_share_of() {
    let both = |s: &mut Settings| {
        s.circuit_breaker.failure_rate = Some(0.5);
        s.circuit_breaker.window = Some(secs(60));
        s.circuit_breaker.window_calls = Some(10);
    };
    let slow = |s: &mut Settings| {
        s.circuit_breaker.slow_call_rate = Some(0.5);
        s.circuit_breaker.window_calls = Some(10);
    };
    let few = |s: &mut Settings| {
        s.circuit_breaker.failure_rate = Some(0.5);
        s.circuit_breaker.window_calls = Some(0);
    };
    let changes: [&dyn Fn(&mut Settings); 6] = [
        &|s| s.circuit_breaker.failure_rate = Some(0.5),
        &both,
        &slow,
        &|s| s.circuit_breaker.minimum_calls = Some(10),
        &|s| s.circuit_breaker.window_calls = Some(10),
        &few,
    ];
    expect![[r#"
        invalid `circuit_breaker.failure_rate`: needs `circuit_breaker.window` or `circuit_breaker.window_calls`
        invalid `circuit_breaker.window_calls`: `circuit_breaker.window` is set too; the rates are over one of them
        invalid `circuit_breaker.slow_call_rate`: needs `circuit_breaker.slow_call`
        invalid `circuit_breaker.minimum_calls`: neither `circuit_breaker.failure_rate` nor `circuit_breaker.slow_call_rate` is set, so it means nothing
        invalid `circuit_breaker.window_calls`: neither `circuit_breaker.failure_rate` nor `circuit_breaker.slow_call_rate` is set, so it means nothing
        invalid `circuit_breaker.window_calls`: the breaker could never open: it holds no call"#]].assert_eq(&refused(&changes));
}

/// W4: a total without a window would open every breaker in the end.
#[test]
fn a_total_needs_a_window() {
    expect!["invalid `circuit_breaker.success_resets`: it is false, so failures would add up for ever: set `circuit_breaker.window` too"].assert_eq(&refused(&[&|s| s.circuit_breaker.success_resets = false]));
}

/// C5.
#[test]
fn reported_failures_need_a_key_that_names_the_tool() {
    let change = |s: &mut Settings| {
        s.circuit_breaker.key = KeyBy::Server;
        s.circuit_breaker.reported_failures = true;
    };
    expect!["invalid `circuit_breaker.reported_failures`: each is of one tool, and by `circuit_breaker.key` the tools of a server share a breaker"].assert_eq(&refused(&[&change]));
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
    expect!["invalid `retry.base`: 5s is too long for the 5s that `deadline.budget` leaves: no call would wait for its end; raise the budget, or shorten it"].assert_eq(&refused(&[&change]));
}

/// T5: the reserve is kept once from a sequence, whatever the deadline layer keeps from its
/// callers.
#[test]
fn one_reserve_is_taken_from_a_sequence() {
    let with_budget = |millis| {
        move |s: &mut Settings| {
            s.sequence.budget = Some(std::time::Duration::from_millis(millis));
            s.rate_limit.default_cooldown = secs(31);
            s.deadline.reserve = secs(10);
        }
    };
    expect!["invalid `rate_limit.default_cooldown`: 31s is too long for the 31s that `sequence.budget` leaves: no call would wait for its end; raise the budget, or shorten it"].assert_eq(&refused(&[&with_budget(31_500)]));
    assert_eq!(changed(with_budget(31_501)).check(), Ok(()));
}
