//! A layer that can do nothing for a call says so once for each reason, and counts the calls.

use std::{sync::Arc, time::Duration};

use tower::{Layer, Service};
use tower_toolcall::{
    BoxError, ErrorKind, Key, ReplaySafety, ToolCall, ToolError,
    cache::CacheLayer,
    circuit_breaker::CircuitBreakerLayer,
    concurrency_limit::ConcurrencyLimitLayer,
    event::{Event, InertReason},
    normalize::NormalizeLayer,
    once::OnceLayer,
    policy::{PolicyLayer, Rule},
    quota::{Quota, QuotaLayer},
    rate_limit::RateLimitBackoffLayer,
    repeat_guard::RepeatGuardLayer,
    retry::{RetryLayer, RetryPolicy},
};
use tower_toolcall_test::{Events, Script, Step};

type Tool = Script<&'static str>;

fn call() -> ToolCall {
    ToolCall::new("pay")
}

/// Sends two calls. Returns what listeners received of them: the layer, the reason, and whether it
/// is emitted.
async fn received<L>(layer: &L, call: ToolCall) -> Vec<(&'static str, InertReason, bool)>
where
    L: Layer<Tool>,
    L::Service: Service<ToolCall, Response = &'static str, Error = ToolError>,
{
    let events = Events::pick(|event| match event {
        Event::Inert {
            layer,
            reason,
            is_first,
            help,
            ..
        } => {
            assert!(help.len() > 40, "{help}");
            // Users' row 6: functions and HTTP tools are declared by the policy.
            let names_rule = help.contains("with_replay_safety`");
            assert_eq!(*reason == InertReason::NotMarkedSafe, names_rule, "{help}");
            assert_eq!(event.name(), is_first.then_some("tool.inert"));
            Some((*layer, *reason, *is_first))
        }
        _ => None,
    });
    for n in 0..2 {
        let tool = Tool::new([Step::status(502)]);
        let call = call.clone().with_id(n.to_string());
        let _ = events.run(layer.layer(tool), call).await;
    }
    events.take()
}

fn both(layer: &'static str, reason: InertReason) -> [(&'static str, InertReason, bool); 2] {
    [(layer, reason, true), (layer, reason, false)]
}

/// P5.
#[tokio::test(start_paused = true)]
async fn layers_that_compare_the_calls_of_a_principal() {
    let expected = |layer| both(layer, InertReason::NoPrincipal);
    let once = OnceLayer::new();
    assert_eq!(received(&once, call()).await, expected("once"));
    assert_eq!(once.inert(), 2);
    let cache = CacheLayer::new(Duration::from_secs(60), ["pay"]).unwrap();
    assert_eq!(received(&cache, call()).await, expected("cache"));
    assert_eq!(cache.handle().inert(), 2);
    let guard = RepeatGuardLayer::new();
    assert_eq!(received(&guard, call()).await, expected("repeat_guard"));
    assert_eq!(guard.inert(), 2);
}

/// P5: a key per principal has none for a call that has neither the key nor a principal.
#[tokio::test(start_paused = true)]
async fn keys_per_principal_that_a_call_does_not_have() {
    for key in [Key::Session, Key::by(|call| call.trace_id().unwrap_or(""))] {
        let key = key.per_principal();
        let guard = RepeatGuardLayer::builder().with_keys(key.clone());
        let guard = guard.build().unwrap();
        let expected = both("repeat_guard", InertReason::NoPrincipal);
        assert_eq!(received(&guard, call()).await, expected, "{key:?}");
        assert_eq!(guard.inert(), 2);
        let of_agent = call().with_agent_id("a1");
        assert_eq!(received(&guard, of_agent).await, [], "{key:?}");

        let quota = QuotaLayer::builder(Quota::per_minute(60).unwrap()).with_keys(key);
        let expected = both("quota", InertReason::NoKey);
        assert_eq!(received(&quota.build().unwrap(), call()).await, expected);
    }
}

/// P5: a function that names no principal is the same as none.
#[tokio::test(start_paused = true)]
async fn a_function_that_names_no_principal() {
    let once = OnceLayer::builder().with_principal(|call| call.trace_id());
    let once = once.build().unwrap();
    let called = received(&once, call().with_agent_id("a1")).await;
    assert_eq!(called, both("once", InertReason::NoPrincipal));
}

/// P5.
#[tokio::test(start_paused = true)]
async fn a_cache_of_a_tool_that_is_marked_unsafe() {
    let cache = CacheLayer::new(Duration::from_secs(60), ["pay"]).unwrap();
    let marked = call()
        .with_session_id("s")
        .with_replay_safety(ReplaySafety::Unsafe);
    let expected = both("cache", InertReason::MarkedUnsafe);
    assert_eq!(received(&cache, marked).await, expected);
    // For each reason there is a first call.
    let expected = both("cache", InertReason::NoPrincipal);
    assert_eq!(received(&cache, call()).await, expected);
    assert_eq!(cache.handle().inert(), 4);
}

/// P5.
#[cfg(feature = "validate")]
#[tokio::test(start_paused = true)]
async fn a_check_of_arguments_without_a_schema() {
    use tower_toolcall::validate::{Schemas, ValidateLayer, Validation};

    let validate = ValidateLayer::new(&Schemas::new());
    let expected = both("validate", InertReason::NoSchema);
    assert_eq!(received(&validate, call()).await, expected);
    assert_eq!(validate.inert(), 2);
    let off = ValidateLayer::new(&Schemas::new()).with_tool("pay", Validation::Off);
    assert_eq!(received(&off, call()).await, []);
}

/// P5: a retry that would have repeated a call, if it were known to be safe.
#[tokio::test(start_paused = true)]
async fn a_retry_of_a_tool_that_is_not_marked_safe() {
    let policy = RetryPolicy::new();
    let retry = RetryLayer::new(policy.clone());
    let expected = both("retry", InertReason::NotMarkedSafe);
    assert_eq!(received(&retry, call()).await, expected);
    assert_eq!(policy.inert(), 2);
    // What is declared is no reason to warn.
    for safety in [ReplaySafety::Safe, ReplaySafety::Unsafe] {
        let declared = call().with_replay_safety(safety);
        assert_eq!(received(&retry, declared).await, [], "{safety:?}");
    }
}

/// Users' row 8: for a refusal of tower's `load_shed` the advice is the layer that is missing, and
/// not a declaration.
#[tokio::test(start_paused = true)]
async fn a_retry_of_a_shed_call_without_normalize() {
    let full = || {
        let busy = tower::service_fn(|_: ToolCall| async { Ok::<(), BoxError>(()) });
        tower::load_shed::LoadShed::new(tower::limit::ConcurrencyLimit::with_semaphore(
            busy,
            Arc::new(tokio::sync::Semaphore::new(0)),
        ))
    };
    let advice = Events::pick(|event| match event {
        Event::Inert { help, .. } => Some(*help),
        _ => None,
    });
    let retry = RetryLayer::default();
    let (shed, _) = advice.run(retry.layer(full()), call()).await;
    shed.unwrap_err();
    let given = advice.take();
    assert!(
        given[0].contains("set `normalize` directly outside tower's `load_shed`"),
        "{given:?}"
    );
    // With it there is nothing to advise, nor is there for a tool that is itself overloaded.
    let normalized = NormalizeLayer::new().layer(full());
    let (shed, _) = advice.run(retry.layer(normalized), call()).await;
    shed.unwrap_err();
    assert!(advice.take().is_empty());
    let overloaded = Tool::always(Step::fail(ErrorKind::Overloaded));
    let _ = advice
        .run(RetryLayer::default().layer(overloaded), call())
        .await;
    assert!(advice.take().iter().all(|help| !help.contains("normalize")));
}

/// P5: a rule for agents does not hold back a call without an agent.
#[tokio::test(start_paused = true)]
async fn a_policy_for_agents() {
    let policy = PolicyLayer::new().rule(Rule::deny("*").for_agent("intern-*"));
    let expected = both("policy", InertReason::NoAgent);
    assert_eq!(received(&policy, call()).await, expected);
    assert_eq!(policy.inert(), 2);
    let boss = call().with_agent_id("boss");
    assert_eq!(received(&policy, boss).await, []);
    let allows = PolicyLayer::new()
        .rule(Rule::allow("*").for_agent("boss"))
        .deny_by_default();
    assert_eq!(received(&allows, call()).await, []);
}

/// P5: calls without a key share one state.
#[tokio::test(start_paused = true)]
async fn layers_with_a_key_by_session() {
    let key = || Key::by(|call| call.session_id().unwrap_or(""));
    let expected = |layer| both(layer, InertReason::NoKey);
    let with = call().with_session_id("s");
    macro_rules! check {
        ($name:literal, $builder:expr) => {
            let layer = $builder.with_keys(key()).build().unwrap();
            assert_eq!(received(&layer, with.clone()).await, []);
            assert_eq!(received(&layer, call()).await, expected($name));
            assert_eq!(layer.handle().inert(), 2);
        };
    }
    check!("quota", QuotaLayer::builder(Quota::per_minute(60).unwrap()));
    check!("circuit_breaker", CircuitBreakerLayer::builder());
    check!("rate_limit", RateLimitBackoffLayer::builder());
    check!("concurrency_limit", ConcurrencyLimitLayer::builder(8));
}

/// P5: nothing is reported where there is nothing to do.
#[tokio::test(start_paused = true)]
async fn layers_that_are_told_what_they_need() {
    let once = OnceLayer::builder().shared().build().unwrap();
    assert_eq!(received(&once, call()).await, []);
    let safe = call().with_replay_safety(ReplaySafety::Safe);
    assert_eq!(received(&OnceLayer::new(), safe).await, []);
    let cache = CacheLayer::builder(Duration::from_secs(60), ["pay"]);
    let cache = cache.shared().build().unwrap();
    assert_eq!(received(&cache, call()).await, []);
    assert_eq!(received(&cache, ToolCall::new("other")).await, []);
}
