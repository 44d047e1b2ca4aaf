//! The default settings are the layers' own (N4, G1).

use tower_toolcall::{
    circuit_breaker::CircuitBreakerLayer,
    concurrency_limit::ConcurrencyLimitLayer,
    deadline::DeadlineLayer,
    health::Health,
    quota::{Quota, QuotaLayer},
    rate_limit::RateLimitBackoffLayer,
    redact::Rules,
    repeat_guard::RepeatGuardLayer,
    retry::RetryPolicy,
    settings::Settings,
    timeout::TimeoutLayer,
    trace::TraceLayer,
};

/// All settings of both, as they print themselves.
macro_rules! same {
    ($($name:ident: $ours:expr, $theirs:expr;)*) => {$(
        #[test]
        fn $name() {
            let settings = Settings::default();
            assert_eq!(format!("{:?}", $ours(&settings)), format!("{:?}", $theirs));
        }
    )*};
}

same! {
    timeout: |s: &Settings| s.timeout_layer().unwrap(), TimeoutLayer::default();
    deadline: Settings::deadline_layer, DeadlineLayer::inherited();
    retry: |s: &Settings| s.retry_policy().unwrap(), RetryPolicy::new();
    rate_limit: Settings::rate_limit_builder, RateLimitBackoffLayer::builder();
    circuit_breaker: |s: &Settings| s.circuit_breaker_builder().unwrap(), CircuitBreakerLayer::builder();
    repeat_guard: Settings::repeat_guard_builder, RepeatGuardLayer::builder();
    once: Settings::once_builder, tower_toolcall::once::OnceLayer::builder();
    health: Settings::health_builder, Health::builder();
    trace: Settings::trace_layer, TraceLayer::new();
}

/// Off by default; switched on by one number.
#[test]
fn quota_and_concurrency_limit() {
    let mut settings = Settings::default();
    assert!(settings.quota_builder().unwrap().is_none());
    assert!(settings.concurrency_limit_builder().is_none());
    (settings.quota.units, settings.concurrency.max) = (Some(60), Some(8));
    let quota = QuotaLayer::builder(Quota::per_minute(60).unwrap());
    let limit = ConcurrencyLimitLayer::builder(8);
    let ours = settings.quota_builder().unwrap().unwrap();
    assert_eq!(format!("{ours:?}"), format!("{quota:?}"));
    let ours = settings.concurrency_limit_builder().unwrap();
    assert_eq!(format!("{ours:?}"), format!("{limit:?}"));
}

/// Nothing is allocated for a call by the built-in rules.
#[test]
fn sanitize() {
    assert_eq!(Settings::default().redaction_rules().unwrap(), Rules::new());
}

#[test]
fn an_empty_file_is_the_default() {
    assert_eq!(toml::from_str::<Settings>("").unwrap(), Settings::default());
    assert_eq!(
        serde_json::from_str::<Settings>("{}").unwrap(),
        Settings::default()
    );
}

/// G3, C1, C2, C3, W4: the breakers of systems D and E, which `traces` of `tests/layers` replays.
#[test]
fn presets_have_the_breakers_of_their_systems() {
    use std::time::Duration;
    use tower_toolcall::{
        Key,
        circuit_breaker::{CircuitBreakerLayer, Trip},
    };

    let secs = Duration::from_secs;
    let builder = CircuitBreakerLayer::builder();
    let gateway = builder
        .clone()
        .with_trip(Trip::consecutive_failures_within(5, secs(300)));
    let http_proxy = builder
        .with_keys(Key::Server)
        .with_open_for(secs(30))
        .with_probes(3);

    let ours = |settings: Settings| format!("{:?}", settings.circuit_breaker_builder().unwrap());
    assert_eq!(ours(Settings::gateway()), format!("{gateway:?}"));
    assert_eq!(ours(Settings::http_proxy()), format!("{http_proxy:?}"));
}

/// A probe keeps its place at least for twice the longest timeout.
#[test]
fn the_lease_of_a_probe_follows_the_timeouts() {
    let mut settings = Settings::default();
    let breaker = |s: &Settings| format!("{:?}", s.circuit_breaker_builder().unwrap());
    assert!(breaker(&settings).contains("lease: 120s"));
    settings.tools.entry("import".into()).or_default().timeout =
        Some(std::time::Duration::from_secs(100));
    assert!(breaker(&settings).contains("lease: 200s"));
}
