//! The keys of all keyed layers.

use tower::{Layer, ServiceExt};
use tower_toolcall::{
    ConfigError, ErrorKind, Identity, Key, Keys, ToolCall, ToolError,
    circuit_breaker::{
        CircuitBreakerBuilder, CircuitBreakerHandle, CircuitBreakerLayer, WeakFailures,
    },
    concurrency_limit::ConcurrencyLimitLayer,
    flow::CallExt,
    quota::{Quota, QuotaLayer},
    rate_limit::RateLimitBackoffLayer,
    repeat_guard::RepeatGuardLayer,
};
use tower_toolcall_test::{Script, Step};

fn quota() -> Quota {
    Quota::per_minute(60).unwrap()
}

/// Builds every keyed layer with these keys. Returns their errors.
fn built(keys: &Keys) -> [Option<ConfigError>; 5] {
    let keys = || keys.clone();
    let breaker = CircuitBreakerLayer::builder().with_keys(keys()).build();
    let limit = RateLimitBackoffLayer::builder().with_keys(keys()).build();
    let quota = QuotaLayer::builder(quota()).with_keys(keys()).build();
    let calls = ConcurrencyLimitLayer::builder(1).with_keys(keys()).build();
    let guard = RepeatGuardLayer::builder().with_keys(keys()).build();
    let (breaker, limit, quota) = (breaker.err(), limit.err(), quota.err());
    [breaker, limit, quota, calls.err(), guard.err()]
}

#[track_caller]
fn refused(keys: &Keys, field: &str, reason: &str) {
    for error in built(keys) {
        let error = error.unwrap();
        assert_eq!(error.field(), field);
        assert!(error.reason().contains(reason), "{error}");
    }
}

/// C9, rule 7.
#[test]
fn a_bound_has_limits() {
    let at_most = |max| Keys::by(Key::Tool).at_most(max);
    refused(&at_most(0), "max_keys", "0 is not between 1 and 16777216");
    let beyond = "16777217 is not between";
    refused(&at_most((1 << 24) + 1), "max_keys", beyond);
    let least = at_most(1).known(["pay"]);
    assert_eq!(built(&least), [const { None }; 5]);
}

/// C9: the tool of a flat name has a place by each of its names.
#[test]
fn known_keys_fit_into_the_bound() {
    let keys = Keys::by(Key::Tool)
        .known(["docs__search", "pay"])
        .at_most(2);
    refused(&keys, "max_keys", "2 is less than the 3 keys");
}

/// Z3: a name alone is not the key of any principal's calls; a call with its principal is.
#[test]
fn names_are_not_known_keys_of_principals() {
    for key in [Key::Server, Key::Tool, Key::hashed(|_| 7)] {
        let keys = Keys::by(key.per_principal());
        refused(&keys.clone().known(["docs"]), "known_keys", "per principal");
        let call = ToolCall::new("search").with_agent_id("a1");
        assert_eq!(built(&keys.known_calls([call])), [const { None }; 5]);
    }
}

/// C5: as without principals, failures in words count for keys of single tools only.
#[tokio::test(start_paused = true)]
async fn failures_of_a_tool_count_for_its_keys_per_principal() {
    let by = Key::by(|call| call.tool());
    let keys = [Key::Tool, Key::ToolName, Key::Server, by];
    for (key, failed) in keys.into_iter().zip([1, 1, 0, 0]) {
        let keys = key.per_principal();
        let layer = CircuitBreakerLayer::builder().with_keys(keys.clone());
        let layer = layer.with_weak_failures(WeakFailures::Shared).build();
        let layer = layer.unwrap();
        let call = ToolCall::new("pay").with_server("s").with_agent_id("a1");
        let tool = Script::<&str>::always(Step::error(ToolError::new(ErrorKind::Failed, "odd")));
        layer.layer(tool).oneshot(call.clone()).await.unwrap_err();
        let seen = layer.handle().breaker(&call).snapshot();
        assert_eq!(seen.failed_total, failed, "{keys:?}");
    }
}

/// X11: the principal is part of the key once, however often that is asked for.
#[tokio::test(start_paused = true)]
async fn principals_have_keys_of_their_own_also_if_asked_for_twice() {
    let keys = Key::Tool.per_principal().per_principal();
    let layer = CircuitBreakerLayer::builder().with_keys(keys).build();
    let breakers = layer.unwrap().handle();
    let of = |agent: &'static str| ToolCall::new("pay").with_agent_id(agent);
    breakers.breaker(&of("a1")).force_open();
    assert!(breakers.find(&of("a2")).is_none());
}

/// Z3: a known key that does nothing is an error.
#[test]
fn known_calls_have_keys() {
    let session = Key::by(|call| call.session_id().unwrap_or_default());
    let keys = Keys::by(session).known(["pay"]);
    refused(&keys, "known_keys", "has no key");
    let keys = Keys::by(Key::Session);
    refused(&keys.clone().known(["pay"]), "known_keys", "has no key");
    let call = ToolCall::new("pay").with_session_id("s1");
    assert_eq!(built(&keys.known_calls([call])), [const { None }; 5]);
}

fn breakers(builder: CircuitBreakerBuilder) -> CircuitBreakerHandle {
    builder.build().unwrap().handle()
}

#[test]
fn names_are_of_tools_or_of_servers() {
    let of_tools = Keys::by(Key::Tool).known(["docs__search"]);
    let handle = breakers(CircuitBreakerLayer::builder().with_keys(of_tools));
    let search = Identity::new("search").with_server("docs");
    let resolved = ToolCall::new("any").resolved(&search);
    assert!(handle.find(&resolved).is_some());
    assert!(handle.find(&ToolCall::new("docs__search")).is_some());
    assert!(handle.find(&ToolCall::new("search")).is_none());

    let of_servers = Keys::by(Key::Server).known(["docs"]);
    let handle = breakers(CircuitBreakerLayer::builder().with_keys(of_servers));
    assert!(handle.find(&resolved).is_some());
    assert!(handle.find(&ToolCall::new("docs")).is_none());
}

/// The key, a server, remains.
#[test]
fn parts_that_are_not_set_stay() {
    let preset = CircuitBreakerLayer::builder()
        .with_keys(Key::Server)
        .with_keys(Keys::default().known(["docs"]));
    let bounded = preset.clone().with_keys(Keys::default().at_most(1));
    let handle = breakers(bounded);
    let of_docs = ToolCall::new("any").with_server("docs");
    assert!(handle.find(&of_docs).is_some());
    let error = preset
        .with_keys(Key::Tool)
        .with_keys(Keys::default().at_most(0));
    assert_eq!(error.build().unwrap_err().field(), "max_keys");
}

/// X11: ids that were not verified are none of the real ones.
#[tokio::test(start_paused = true)]
async fn sessions_agents_and_unverified_ids_are_different_keys() {
    let layer = QuotaLayer::builder(quota()).with_keys(Key::Session).build();
    let layer = layer.unwrap();
    let quotas = layer.handle();
    let call = || ToolCall::new("pay");
    let svc = layer.layer(Script::always(Step::ok("paid")));
    svc.oneshot(call().with_session_id("a")).await.unwrap();
    for (call, remaining) in [
        (call().with_session_id("a").with_agent_id("any"), 59),
        (call().with_session_id("b"), 60),
        (call().with_agent_id("a"), 60),
        (call().with_session_id("a").with_unverified_ids(), 60),
    ] {
        assert_eq!(quotas.remaining(&call), remaining, "{call:?}");
    }
}

/// C9: ten thousand keys by default.
#[test]
fn ten_thousand_keys_are_kept_by_default() {
    let kept = |keys: Keys| {
        let layer = CircuitBreakerLayer::builder().with_keys(keys);
        let breakers = layer.build().unwrap().handle();
        for n in 0..12_000 {
            let call = ToolCall::new(format!("invented-{n}"));
            breakers.breaker(&call).record_failure();
        }
        breakers.snapshot().len()
    };
    assert_eq!(kept(Keys::by(Key::Tool)), 10_000);
    assert_eq!(kept(Keys::by(Key::Tool).at_most(10_002)), 10_002);
}
