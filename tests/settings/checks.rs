//! What only the settings as a whole can show (rule 7 of the design).

use expect_test::{Expect, expect};
use tower_toolcall::settings::{Preset, Settings};

use crate::kit::changed;

/// The error of each change.
pub(crate) fn refused(changes: &[&dyn Fn(&mut Settings)]) -> String {
    let errors = changes
        .iter()
        .map(|change| changed(change).check().unwrap_err().to_string());
    errors.collect::<Vec<_>>().join("\n")
}

/// Compares what becomes of the settings of each line: an error, warnings, or that they are fine.
/// A line with `#` is a comment.
fn assert_outcomes(expected: &Expect) {
    let outcome = |line: &str| {
        let case = line.split(" => ").next().unwrap();
        let settings: Settings = toml::from_str(&case.replace("; ", "\n")).expect(case);
        let outcome = match settings.check() {
            Ok(()) if settings.warnings().is_empty() => "fine".to_owned(),
            Ok(()) => {
                let warnings = settings
                    .warnings()
                    .into_iter()
                    .map(|warning| warning.to_string());
                format!("warns: {}", warnings.collect::<Vec<_>>().join("; and "))
            }
            Err(error) => error.to_string(),
        };
        format!("{case} => {outcome}")
    };
    let lines = expected.data().lines().map(str::trim);
    let lines = lines
        .filter(|line| !line.is_empty())
        .map(|line| match line.starts_with('#') {
            true => line.to_owned(),
            false => outcome(line),
        });
    expected.assert_eq(&lines.collect::<Vec<_>>().join("\n"));
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

#[test]
fn every_preset_passes() {
    for preset in Preset::ALL {
        assert_eq!(Settings::preset(preset).check(), Ok(()));
        assert_eq!(Settings::preset(preset).warnings(), []);
    }
}

/// L1, L2, L3, R5, T5: only what can never work is refused, so chance is taken to add nothing; who
/// does not wait for a cooldown may have a long one; the retry layer waits only where no gate fails
/// fast. The reserve is kept once from a sequence.
#[test]
fn waits_that_never_end_in_time() {
    assert_outcomes(&expect![[r#"
        rate_limit.default_cooldown=40; deadline.budget=20 => invalid `rate_limit.default_cooldown`: 40s is too long for the 20s that `deadline.budget` leaves: no call would wait for its end; raise the budget, or shorten it
        rate_limit.default_cooldown=31; deadline.budget=31 => invalid `rate_limit.default_cooldown`: 31s is too long for the 31s that `deadline.budget` leaves: no call would wait for its end; raise the budget, or shorten it
        rate_limit.default_cooldown=31; deadline.budget=32 => fine
        rate_limit.default_cooldown=31; sequence.budget=30 => invalid `rate_limit.default_cooldown`: 31s is too long for the 29s500ms that `sequence.budget` leaves: no call would wait for its end; raise the budget, or shorten it
        rate_limit.default_cooldown=31; parallel.budget=30 => invalid `rate_limit.default_cooldown`: 31s is too long for the 29s500ms that `parallel.budget` leaves: no call would wait for its end; raise the budget, or shorten it
        rate_limit.default_cooldown=31; deadline.reserve=10; sequence.budget="31s500ms" => invalid `rate_limit.default_cooldown`: 31s is too long for the 31s that `sequence.budget` leaves: no call would wait for its end; raise the budget, or shorten it
        rate_limit.default_cooldown=31; deadline.reserve=10; sequence.budget="31s501ms" => fine
        # L2.
        rate_limit.default_cooldown=21; rate_limit.max_wait=20 => invalid `rate_limit.default_cooldown`: 21s is more than `rate_limit.max_wait` (20s): no call would wait until it ends; raise the other, or shorten it
        rate_limit.default_cooldown=20; rate_limit.max_wait=20 => fine
        # L3.
        rate_limit.default_cooldown=21; deadline.budget=20; rate_limit.fail_fast=true => fine
        rate_limit.default_cooldown=21; deadline.budget=20; rate_limit.fail_fast=true; retry.enabled=false => fine
        rate_limit.default_cooldown=21; deadline.budget=20; rate_limit.fail_fast=true; rate_limit.enabled=false => invalid `rate_limit.default_cooldown`: 21s is too long for the 20s that `deadline.budget` leaves: no call would wait for its end; raise the budget, or shorten it
        rate_limit.default_cooldown=21; deadline.budget=20; rate_limit.enabled=false => invalid `rate_limit.default_cooldown`: 21s is too long for the 20s that `deadline.budget` leaves: no call would wait for its end; raise the budget, or shorten it
        rate_limit.default_cooldown=21; deadline.budget=20; retry.enabled=false => invalid `rate_limit.default_cooldown`: 21s is too long for the 20s that `deadline.budget` leaves: no call would wait for its end; raise the budget, or shorten it
        rate_limit.default_cooldown=21; deadline.budget=20; retry.enabled=false; rate_limit.enabled=false => fine
        rate_limit.default_cooldown=21; rate_limit.max_wait=20; rate_limit.fail_fast=true => fine
        rate_limit.default_cooldown=21; rate_limit.max_wait=20; rate_limit.fail_fast=true; retry.enabled=false => fine
        rate_limit.default_cooldown=21; rate_limit.max_wait=20; rate_limit.fail_fast=true; rate_limit.enabled=false => invalid `rate_limit.default_cooldown`: 21s is more than `rate_limit.max_wait` (20s): no call would wait until it ends; raise the other, or shorten it
        rate_limit.default_cooldown=21; rate_limit.max_wait=20; rate_limit.enabled=false => invalid `rate_limit.default_cooldown`: 21s is more than `rate_limit.max_wait` (20s): no call would wait until it ends; raise the other, or shorten it
        rate_limit.default_cooldown=21; rate_limit.max_wait=20; retry.enabled=false => invalid `rate_limit.default_cooldown`: 21s is more than `rate_limit.max_wait` (20s): no call would wait until it ends; raise the other, or shorten it
        rate_limit.default_cooldown=21; rate_limit.max_wait=20; retry.enabled=false; rate_limit.enabled=false => fine
        # R5: what ends at the deadline itself is not begun. Of what chance decides, the shortest is taken.
        retry.base=6; deadline.budget=6; rate_limit.default_cooldown=1 => invalid `retry.base`: 6s is too long for the 6s that `deadline.budget` leaves: no call would wait for its end; raise the budget, or shorten it
        retry.base=6; deadline.budget=6; rate_limit.default_cooldown=1; retry.attempts=1 => fine
        retry.base=6; deadline.budget=6; rate_limit.default_cooldown=1; retry.attempts=1; tools.import.attempts=2 => invalid `retry.base`: 6s is too long for the 6s that `deadline.budget` leaves: no call would wait for its end; raise the budget, or shorten it
        retry.base=6; deadline.budget=6; rate_limit.default_cooldown=1; retry.jitter="none" => invalid `retry.base`: 6s is too long for the 6s that `deadline.budget` leaves: no call would wait for its end; raise the budget, or shorten it
        retry.base="5s999ms"; deadline.budget=6; rate_limit.default_cooldown=1; retry.jitter="none" => fine
        retry.base="5s999ms"; deadline.budget=6; rate_limit.default_cooldown=1; retry.jitter="upwards" => fine
        retry.base="11s999ms"; deadline.budget=6; rate_limit.default_cooldown=1; retry.jitter="equal" => fine
        retry.base=12; deadline.budget=6; rate_limit.default_cooldown=1; retry.jitter="equal" => invalid `retry.base`: 12s is too long for the 6s that `deadline.budget` leaves: no call would wait for its end; raise the budget, or shorten it
        retry.base=30; deadline.budget=6; rate_limit.default_cooldown=1; retry.jitter="full" => fine
        retry.base=40; retry.cap=35 => invalid `retry.cap`: 35s is less than `retry.base` (40s): raise it
        retry.base=40; retry.cap=35; retry.enabled=false => fine
        # X1: whoever waits or not.
        parallel.budget=9; deadline.reserve=10; retry.enabled=false; rate_limit.fail_fast=true => invalid `parallel.budget`: 9s is not more than `deadline.reserve` (10s): every call of a batch would be skipped; lengthen it
        parallel.budget=10; deadline.reserve=10; retry.enabled=false; rate_limit.fail_fast=true => invalid `parallel.budget`: 10s is not more than `deadline.reserve` (10s): every call of a batch would be skipped; lengthen it
        parallel.budget=11; deadline.reserve=10; retry.enabled=false; rate_limit.fail_fast=true => fine
        # T5: a reserve is kept only from a deadline that a call brings along, as one of a batch does.
        sequence.budget=60; sequence.reserve=61 => invalid `sequence.reserve`: 1m1s is not less than `sequence.budget` (1m): no call would have time; shorten it
        deadline.budget=60; deadline.reserve=60 => fine"#]]);
}

/// T5, T8, D11, N4, P18: what would never matter is a warning. An attempt outlasts neither the
/// budget of the call nor the longest timeout; of a window, two results that end so far apart are
/// never seen together, and one is enough for some.
#[test]
fn settings_that_never_matter() {
    assert_outcomes(&expect![[r#"
        circuit_breaker.window=20 => warns: invalid `circuit_breaker.window`: window (20s) must be longer than the longest timeout (`timeout.default`, 30s), or two timeouts never fall into one window
        circuit_breaker.window=20; circuit_breaker.enabled=false => fine
        circuit_breaker.window=60; tools.import.timeout=90 => warns: invalid `circuit_breaker.window`: window (1m) must be longer than the longest timeout (`tools.import.timeout`, 1m30s), or two timeouts never fall into one window
        circuit_breaker.window=30 => warns: invalid `circuit_breaker.window`: window (30s) must be longer than the longest timeout (`timeout.default`, 30s), or two timeouts never fall into one window
        circuit_breaker.window=31 => fine
        circuit_breaker.window=1; circuit_breaker.threshold=1 => fine
        circuit_breaker.window=30; circuit_breaker.failure_rate=0.5 => warns: invalid `circuit_breaker.window`: window (30s) must be longer than the longest timeout (`timeout.default`, 30s), or two timeouts never fall into one window
        circuit_breaker.window=30; circuit_breaker.failure_rate=0.5; circuit_breaker.minimum_calls=2 => warns: invalid `circuit_breaker.window`: window (30s) must be longer than the longest timeout (`timeout.default`, 30s), or two timeouts never fall into one window
        circuit_breaker.window=30; circuit_breaker.failure_rate=0.5; circuit_breaker.minimum_calls=1 => fine
        circuit_breaker.window=10; deadline.budget=10; rate_limit.default_cooldown=1 => warns: invalid `circuit_breaker.window`: window (10s) must be longer than the longest timeout (`deadline.budget`, 10s), or two timeouts never fall into one window
        circuit_breaker.window=11; deadline.budget=10; rate_limit.default_cooldown=1 => fine
        circuit_breaker.slow_call=31; circuit_breaker.slow_call_rate=0.5; circuit_breaker.window_calls=100 => warns: invalid `circuit_breaker.slow_call`: 31s is more than `timeout.default` (30s): no call is ever that slow; shorten it
        circuit_breaker.slow_call=31; circuit_breaker.slow_call_rate=0.5; circuit_breaker.window_calls=100; circuit_breaker.enabled=false => fine
        circuit_breaker.slow_call=11; circuit_breaker.slow_call_rate=0.5; circuit_breaker.window_calls=100; deadline.budget=10; rate_limit.default_cooldown=1 => warns: invalid `circuit_breaker.slow_call`: 11s is more than `deadline.budget` (10s): no call is ever that slow; shorten it
        timeout.idle_timeout=30 => warns: invalid `timeout.idle_timeout`: 30s is not less than `timeout.default` (30s): it would never matter; shorten it
        timeout.idle_timeout=10; deadline.budget=10; rate_limit.default_cooldown=1 => warns: invalid `timeout.idle_timeout`: 10s is not less than `deadline.budget` (10s): it would never matter; shorten it
        timeout.idle_timeout=9; deadline.budget=10; rate_limit.default_cooldown=1 => fine
        # D11: the limit is outside the breaker.
        circuit_breaker.probe_wait=10; concurrency.max=4 => warns: invalid `circuit_breaker.probe_wait`: calls wait up to 10s for a probe with a permit of `concurrency.max` (4), and other calls of its key wait behind them; shorten it
        circuit_breaker.probe_wait=10 => fine
        circuit_breaker.probe_wait=10; concurrency.max=4; circuit_breaker.enabled=false => fine
        # P18: a tool's setting of a layer that is off.
        tools.import.repeat_guard=true => warns: invalid `tools.import.repeat_guard`: `repeat_guard.enabled` is false, so it means nothing
        tools.import.repair=true; validate.enabled=false => warns: invalid `tools.import.repair`: `validate.enabled` is false, so it means nothing"#]]);
}

/// C2, C5, W4: one way to open, told clearly; failures that tools report need a key that names the
/// tool; a total without a window would open every breaker in the end.
#[test]
fn breakers_that_cannot_work() {
    assert_outcomes(&expect![[r#"
        circuit_breaker.failure_rate=0.5 => invalid `circuit_breaker.failure_rate`: needs `circuit_breaker.window` or `circuit_breaker.window_calls`
        circuit_breaker.failure_rate=0.5; circuit_breaker.window=60; circuit_breaker.window_calls=10 => invalid `circuit_breaker.window_calls`: `circuit_breaker.window` is set too; the rates are over one of them
        circuit_breaker.slow_call_rate=0.5; circuit_breaker.window_calls=10 => invalid `circuit_breaker.slow_call_rate`: needs `circuit_breaker.slow_call`
        circuit_breaker.minimum_calls=10 => invalid `circuit_breaker.minimum_calls`: neither `circuit_breaker.failure_rate` nor `circuit_breaker.slow_call_rate` is set, so it means nothing
        circuit_breaker.window_calls=10 => invalid `circuit_breaker.window_calls`: neither `circuit_breaker.failure_rate` nor `circuit_breaker.slow_call_rate` is set, so it means nothing
        circuit_breaker.failure_rate=0.5; circuit_breaker.window_calls=0 => invalid `circuit_breaker.window_calls`: the breaker could never open: it holds no call
        circuit_breaker.failure_rate=1.0; circuit_breaker.slow_call_rate=1.0; circuit_breaker.slow_call=30; circuit_breaker.window_calls=10 => fine
        circuit_breaker.success_resets=false => invalid `circuit_breaker.success_resets`: it is false, so failures would add up for ever: set `circuit_breaker.window` too
        circuit_breaker.key="server"; circuit_breaker.reported_failures=true => invalid `circuit_breaker.reported_failures`: each is of one tool, and by `circuit_breaker.key` the tools of a server share a breaker"#]]);
}

/// G1, X6: what a layer cannot work with is named by its setting, a tool's own with the tool, and
/// of a layer that is off as well.
#[test]
fn values_that_cannot_work() {
    assert_outcomes(&expect![[r#"
        timeout.default=0 => invalid `timeout.default`: it is zero: no call would have time
        timeout.default="365days" => fine
        timeout.idle_timeout=0 => invalid `timeout.idle_timeout`: it is zero
        deadline.budget=0 => invalid `deadline.budget`: it is zero: no call would have time
        sequence.budget=0 => invalid `sequence.budget`: it is zero: no call would have time
        parallel.budget=0 => invalid `parallel.budget`: it is zero: no call would have time
        rate_limit.default_cooldown=0 => invalid `rate_limit.default_cooldown`: it is zero: the limit would be met again immediately
        circuit_breaker.open_for=0 => invalid `circuit_breaker.open_for`: the breaker could never open: it is zero: no call is ever refused
        retry.cap=1 => fine
        once.ttl=0 => invalid `once.ttl`: it is zero: every call would run again
        once.max_keys=0 => invalid `once.max_keys`: 0 is not between 1 and 16777216
        # An eighth of the bytes has to have room for one answer.
        once.max_bytes=100000; once.max_answer=20000 => invalid `once.max_answer`: 20000 is more than the 12500 bytes that a principal has of `max_bytes`
        cache.tools=["search"] => invalid `cache.tools`: names tools, and `cache.ttl` is missing
        cache.tools=["search"]; cache.ttl=0 => invalid `cache.ttl`: it is zero: nothing would be kept
        cache.tools=["search"]; cache.ttl=60 => fine
        repeat_guard.failures=0 => invalid `repeat_guard.failures`: it is zero: no call would be let through
        repeat_guard.window=0 => invalid `repeat_guard.window`: it is zero: no call would be refused
        repeat_guard.window=86401 => invalid `repeat_guard.window`: 1day1s is longer than a day
        repeat_guard.max_keys=0 => invalid `repeat_guard.max_keys`: 0 is not between 1 and 16777216
        poll.interval=40 => fine
        poll.interval=40; poll.cap=35 => invalid `poll.cap`: 35s is shorter than `poll.interval` (40s)
        poll.interval=0 => invalid `poll.interval`: is zero
        poll.factor=0.5 => invalid `poll.factor`: 0.5 is not a number from 1 to 1000
        poll.polls=0 => invalid `poll.polls`: is not above 0
        poll.budget=0 => invalid `poll.budget`: it is zero: no call would have time
        fit.max_chars=999 => invalid `fit.max_chars`: is less than 1000: there would be little room beside the mark
        http.max_bytes=0 => invalid `http.max_bytes`: is not above 0
        token.timeout=0 => invalid `token.timeout`: it is zero: no call would have time
        token.leeway="2years" => invalid `token.leeway`: 2years is longer than a year
        health.threshold=0 => invalid `health.threshold`: it is zero: every server would be unavailable
        health.probe_period=0 => invalid `health.probe_period`: it is zero: every call would be a probe
        health.probe_period="400days" => invalid `health.probe_period`: 1year1month4days7h26m24s is longer than a year
        health.max_servers=0 => invalid `health.max_servers`: 0 is not between 1 and 16777216
        quota.units=0 => invalid `quota.units`: it is zero: no call would be admitted
        quota.units=1; quota.period=0 => invalid `quota.period`: it is zero: nothing would be limited
        quota.units=1; quota.period=31536001 => invalid `quota.period`: 11months30days3h50m25s is longer than a year
        quota.units=1; quota.burst=0 => invalid `quota.burst`: it is zero: no call would be admitted
        quota.units=1; quota.max_keys=0 => invalid `quota.max_keys`: 0 is not between 1 and 16777216
        quota.max_wait=31536001 => invalid `quota.max_wait`: 11months30days3h50m25s is longer than a year
        concurrency.max=0 => invalid `concurrency.max`: it is zero: every call would be refused
        concurrency.max=1; concurrency.max_keys=0 => invalid `concurrency.max_keys`: 0 is not between 1 and 16777216
        quota.units=5; quota.key="agent"; tools.import.quota_units=1 => invalid `tools.import.quota_units`: `quota.key` is not `tool`: tools share their units
        concurrency.key="server"; tools.import.concurrency=1 => invalid `tools.import.concurrency`: `concurrency.key` is not `tool`: tools share their limit
        tools.import.concurrency=0 => invalid `tools.import.concurrency`: it is zero: every call would be refused
        quota.units=5; quota.key="agent"; tools.import.quota_cost=6 => invalid `tools.import.quota_cost`: 6 is more than the 5 units of the largest burst
        tools.import.quota_cost=1 => invalid `tools.import.quota_cost`: without `quota.units` it means nothing
        tools.import.timeout=0 => invalid `tools.import.timeout`: it is zero: no call would have time
        tools.import.timeout="2years" => invalid `tools.import.timeout`: 2years is longer than a year
        tools.import.attempts=0 => invalid `tools.import.attempts`: it is zero: no call is made
        circuit_breaker.enabled=false; circuit_breaker.threshold=0 => invalid `circuit_breaker.threshold`: it is zero: the breaker would be open before the first failure
        retry.enabled=false; retry.attempts=0 => invalid `retry.attempts`: it is zero: no call is made
        rate_limit.enabled=false; rate_limit.max_keys=0 => invalid `rate_limit.max_keys`: 0 is not between 1 and 16777216"#]]);
}
