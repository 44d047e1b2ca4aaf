//! Keys have the names of the methods that they stand for (G1).

use std::collections::BTreeSet;

use tower_toolcall::{
    backoff::Backoff,
    circuit_breaker::{CircuitBreakerBuilder, Rates},
    concurrency_limit::ConcurrencyLimitBuilder,
    deadline::DeadlineLayer,
    health::HealthBuilder,
    poll::PollLayer,
    quota::{Quota, QuotaBuilder},
    rate_limit::RateLimitBackoffBuilder,
    redact::Rules,
    repeat_guard::RepeatGuardBuilder,
    retry::RetryPolicy,
    settings::VARIABLES,
    timeout::TimeoutLayer,
    trace::TraceLayer,
};

/// The keys of methods: `timeout.slow_fraction` of `with_slow_fraction`. Compiles if there are such
/// methods.
macro_rules! keys {
    ($($section:literal: $(<$builder:ty>::{$($method:ident),*})+;)*) => {
        vec![$($($({
            let _ = <$builder>::$method;
            let method = stringify!($method);
            let key = method.strip_prefix("with_").unwrap_or(method);
            format!("{}.{key}", $section)
        },)*)*)*]
    };
}

/// Those that are an argument of a constructor or of another method, and words of a list.
const ARGUMENTS: [(&str, &str); 37] = [
    ("fit.max_chars", "FitLayer::new"),
    ("quota.key", "Keys::by"),
    ("quota.max_keys", "Keys::at_most"),
    ("concurrency.key", "Keys::by"),
    ("concurrency.max_keys", "Keys::at_most"),
    ("rate_limit.key", "Keys::by"),
    ("rate_limit.max_keys", "Keys::at_most"),
    ("circuit_breaker.key", "Keys::by"),
    ("circuit_breaker.max_keys", "Keys::at_most"),
    ("repeat_guard.max_keys", "Keys::at_most"),
    ("cache.tools", "CacheLayer::builder"),
    ("cache.ttl", "CacheLayer::builder"),
    ("timeout.default", "TimeoutLayer::new"),
    ("deadline.budget", "DeadlineLayer::new"),
    ("poll.factor", "Backoff::exponential"),
    ("poll.cap", "Backoff::with_cap"),
    ("shared.url", "RedisStore::new"),
    ("token.endpoint", "TokenEndpoint::new"),
    ("token.client_id", "ClientAuth::basic"),
    ("token.client_secret_file", "ClientAuth::basic"),
    ("token.auth", "ClientAuth::basic, post, public"),
    ("token.timeout", "TimeoutLayer::new"),
    ("quota.units", "Quota::new"),
    ("quota.period", "Quota::new"),
    ("concurrency.max", "ConcurrencyLimitLayer::new"),
    ("retry.base", "Backoff::exponential"),
    ("retry.factor", "Backoff::exponential"),
    ("retry.budget_ratio", "RetryBudget::new"),
    ("retry.budget_minimum", "RetryBudget::new"),
    ("retry.total_budget_ratio", "RetryPolicy::with_total_budget"),
    ("rate_limit.per_principal", "Key::per_principal"),
    ("circuit_breaker.threshold", "Trip::consecutive_failures"),
    (
        "circuit_breaker.window",
        "Trip::consecutive_failures_within, Rates::over_time",
    ),
    ("circuit_breaker.window_calls", "Rates::over_calls"),
    ("circuit_breaker.slow_call", "Rates::with_slow_call_rate"),
    ("sanitize.sensitive_keys", "Rules::with_sensitive_key"),
    ("sanitize.harmless_keys", "Rules::with_harmless_key"),
];

/// Those that choose between constructors, or whether a layer is there.
fn chooses(key: &str) -> bool {
    key.ends_with(".enabled") || ["circuit_breaker.success_resets", "poll.cancel"].contains(&key)
}

#[test]
fn a_key_has_the_name_of_its_method() {
    let mut keys = keys! {
        "timeout": <TimeoutLayer>::{with_idle_timeout, with_slow_fraction};
        "deadline": <DeadlineLayer>::{with_reserve};
        "retry": <RetryPolicy>::{with_attempts, assume_replay_safe} <Backoff>::{with_cap, with_jitter};
        "quota": <Quota>::{with_burst} <QuotaBuilder>::{with_max_wait, with_fail_fast};
        "concurrency": <ConcurrencyLimitBuilder>::{with_max_queue};
        "rate_limit": <RateLimitBackoffBuilder>::{
            with_default_cooldown, with_max_wait, with_max_cooldown, with_text_limits, with_attempts,
            with_fail_fast
        };
        "repeat_guard": <RepeatGuardBuilder>::{with_failures, with_window};
        "once": <tower_toolcall::once::OnceBuilder>::{with_ttl, with_repeat_within, with_max_keys, with_max_answer, with_max_bytes};
        "cache": <tower_toolcall::cache::CacheBuilder>::{with_max_keys, with_max_answer, with_max_bytes};
        "health": <HealthBuilder>::{with_threshold, with_refusal, with_probe_period, with_max_servers};
        "circuit_breaker":
            <CircuitBreakerBuilder>::{
                with_open_for, with_probe, with_probe_wait, with_probes, with_successes, with_reported_failures,
                with_weak_failures
            }
            <Rates>::{with_failure_rate, with_slow_call_rate, with_minimum_calls};
        "policy": <tower_toolcall::policy::PolicyLayer>::{
            deny, ask, allow, deny_by_default, with_approval_timeout
        };
        "poll": <PollLayer<()>>::{with_interval, with_polls, with_budget};
        "sequence": <tower_toolcall::batch::Sequence<()>>::{with_budget, with_reserve};
        "parallel": <tower_toolcall::batch::Parallel<()>>::{with_limit, with_budget};
        "sanitize": <Rules>::{with_max_string, with_max_depth, with_max_nodes};
        "trace": <TraceLayer>::{with_arguments, with_output, attempts};
    };
    #[cfg(feature = "validate")]
    keys.extend(keys! {
        "validate": <tower_toolcall::validate::ValidateLayer>::{repair, strict, with_heading};
    });
    keys.extend(keys! {
        "token": <tower_toolcall::token::TokenLayer<()>>::{
            with_leeway, with_default_lifetime, with_max_lifetime, with_max_keys
        };
    });
    let is_built = |key: &str| {
        // The keys of `[http]` and `[shared]` are methods of other crates.
        !key.starts_with("http.") && !key.starts_with("shared.")
    };
    keys.extend(
        ARGUMENTS
            .map(|(key, _)| key.to_owned())
            .into_iter()
            .filter(|key| is_built(key)),
    );
    let named: BTreeSet<_> = VARIABLES
        .iter()
        .map(|variable| variable.key())
        .filter(|key| *key != "preset" && !chooses(key))
        .filter(|key| cfg!(feature = "validate") || !key.starts_with("validate."))
        .filter(|key| is_built(key))
        .collect();
    assert_eq!(
        keys.iter().map(String::as_str).collect::<BTreeSet<_>>(),
        named
    );
}

/// A variable's name is its key, except the names that gateways have already.
#[test]
fn a_variable_has_the_name_of_its_key() {
    let others: Vec<_> = VARIABLES
        .iter()
        .filter(|v| v.name() != format!("TOOLCALL_{}", v.key().replace('.', "_").to_uppercase()))
        .map(|v| (v.name(), v.key()))
        .collect();
    let expected = [
        ("TOOLCALL_TIMEOUT", "timeout.default"),
        ("TOOLCALL_IDLE_TIMEOUT", "timeout.idle_timeout"),
        ("TOOLCALL_SLOW_FRACTION", "timeout.slow_fraction"),
        ("TOOLCALL_CIRCUIT_BREAKER_RESET", "circuit_breaker.open_for"),
    ];
    assert_eq!(others, expected);
}
