//! The contract, kept by each layer.

use std::time::Duration;

#[cfg(feature = "settings")]
use tower_toolcall::settings::{Place, Settings};
use tower_toolcall::tool_metrics::Metrics;
use tower_toolcall::{
    Identity, Key, ToolCall, ToolError,
    cache::CacheLayer,
    catch_panic::CatchPanicLayer,
    check::{CheckLayer, check_fn},
    circuit_breaker::{CircuitBreakerLayer, Rates},
    concurrency_limit::ConcurrencyLimitLayer,
    deadline::DeadlineLayer,
    fit::FitLayer,
    health::Health,
    identity::{IdentityLayer, Resolve},
    middleware,
    normalize::NormalizeLayer,
    once::OnceLayer,
    policy::{Approval, PolicyLayer, Rule},
    poll::PollLayer,
    quota::{Quota, QuotaLayer},
    rate_limit::RateLimitBackoffLayer,
    redact::Rules,
    repeat_guard::RepeatGuardLayer,
    retry::RetryLayer,
    sanitize::SanitizeLayer,
    timeout::TimeoutLayer,
    trace::TraceLayer,
    transport::TransportLayer,
};
use tower_toolcall_test::{Capture, FaultLayer, Faults};

use crate::kit::contract;

/// A table that knows the one tool of these tests, by its own name or by another one.
enum Calls {
    AsTheyAre,
    Renamed,
}

impl Resolve for Calls {
    fn resolve(&self, call: &ToolCall) -> Result<Option<Identity>, ToolError> {
        let identity = match self {
            Self::AsTheyAre => Identity::new(call.tool()),
            // What callers see of it are their own names, and this is not seen.
            Self::Renamed => Identity::new(call.tool()).with_separator("."),
        };
        Ok(Some(identity.with_server("docs")))
    }
}

contract!(
    timeout,
    TimeoutLayer::default(),
    Readiness::Passes,
    Panics::Pass
);
contract!(
    timeout_in_idle_mode,
    TimeoutLayer::default()
        .with_idle_timeout(Duration::from_secs(1))
        .unwrap(),
    Readiness::Passes,
    Panics::Pass
);
contract!(
    timeout_with_drain,
    TimeoutLayer::default()
        .with_drain(Duration::from_secs(1))
        .unwrap(),
    Readiness::Passes,
    Panics::Pass
);
contract!(
    policy,
    PolicyLayer::new().allow("search").deny_by_default(),
    Readiness::Eager,
    Panics::Pass
);
contract!(
    policy_that_approves,
    PolicyLayer::new()
        .rule(Rule::ask("*").of_server("docs"))
        .with_approver(tower::service_fn(|approval: Approval| async move {
            Ok::<_, ToolError>(approval.approve())
        })),
    Readiness::Eager,
    Panics::Pass
);
contract!(poll, PollLayer::new(()), Readiness::Passes, Panics::Pass);
contract!(
    deadline,
    DeadlineLayer::new(Duration::from_secs(60)),
    Readiness::Eager,
    Panics::Pass
);
contract!(
    deadline_inherited,
    DeadlineLayer::inherited(),
    Readiness::Eager,
    Panics::Pass
);
contract!(
    deadline_with_drain,
    DeadlineLayer::new(Duration::from_secs(60))
        .with_drain(Duration::from_secs(1))
        .unwrap(),
    Readiness::Eager,
    Panics::Pass
);
contract!(
    circuit_breaker,
    CircuitBreakerLayer::new(),
    Readiness::Eager,
    Panics::Pass
);
contract!(
    circuit_breaker_with_rates,
    CircuitBreakerLayer::builder()
        .with_trip(Rates::over_time(Duration::from_secs(60)).with_failure_rate(0.5))
        .build()
        .unwrap(),
    Readiness::Eager,
    Panics::Pass
);
contract!(
    identity,
    IdentityLayer::new(Calls::Renamed),
    Readiness::Passes,
    Panics::Pass
);
contract!(
    identity_of_calls_that_have_it_already,
    IdentityLayer::new(Calls::AsTheyAre),
    Readiness::Passes,
    Panics::Pass
);
contract!(
    retry,
    RetryLayer::default(),
    Readiness::Passes,
    Panics::Pass
);
contract!(
    rate_limit,
    RateLimitBackoffLayer::new(),
    Readiness::Eager,
    Panics::Pass
);
contract!(
    concurrency_limit,
    ConcurrencyLimitLayer::new(2),
    Readiness::Eager,
    Panics::Pass
);
// One call at a time: each has the permit of the one before it.
contract!(
    concurrency_limit_of_one,
    ConcurrencyLimitLayer::new(1),
    Readiness::Eager,
    Panics::Pass
);
contract!(
    quota,
    QuotaLayer::new(Quota::per_second(10).unwrap()),
    Readiness::Eager,
    Panics::Pass
);
// Each call after the first waits for its turn.
contract!(
    quota_of_one,
    QuotaLayer::new(Quota::per_second(1).unwrap()),
    Readiness::Eager,
    Panics::Pass
);
contract!(
    catch_panic,
    CatchPanicLayer::new(),
    Readiness::Passes,
    Panics::BecomeErrors
);
contract!(
    normalize,
    NormalizeLayer::new(),
    Readiness::Passes,
    Panics::Pass
);
contract!(
    from_fn,
    middleware::from_fn(|call, mut next| async move { next.run(call).await }),
    Readiness::Passes,
    Panics::Pass
);
contract!(
    transport,
    TransportLayer::new(),
    Readiness::Passes,
    Panics::Pass
);
contract!(
    health,
    Health::new().layer(),
    Readiness::Eager,
    Panics::Pass
);
contract!(
    health_that_refuses,
    Health::builder()
        .with_refusal(true)
        .build()
        .unwrap()
        .layer(),
    Readiness::Eager,
    Panics::Pass
);
contract!(
    repeat_guard,
    RepeatGuardLayer::builder()
        .with_keys(Key::by(|call| call.server().unwrap_or_default()))
        .build()
        .unwrap(),
    Readiness::Eager,
    Panics::Pass
);
contract!(
    repeat_guard_of_calls_without_a_principal,
    RepeatGuardLayer::new(),
    Readiness::Eager,
    Panics::Pass
);
// Each call has a principal of its own.
contract!(
    once,
    {
        use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

        static CALLS: AtomicU32 = AtomicU32::new(0);
        tower::ServiceBuilder::new()
            .map_request(
                (|call: ToolCall| {
                    let n = CALLS.fetch_add(1, Relaxed);
                    call.with_agent_id(n.to_string()).with_once_key("k")
                }) as fn(ToolCall) -> ToolCall,
            )
            .layer(OnceLayer::new())
            .into_inner()
    },
    Readiness::Eager,
    Panics::Pass
);
contract!(
    once_of_calls_without_a_key,
    OnceLayer::builder()
        .with_repeat_within(Duration::ZERO)
        .build()
        .unwrap(),
    Readiness::Eager,
    Panics::Pass
);
contract!(
    cache,
    {
        use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

        static CALLS: AtomicU32 = AtomicU32::new(0);
        tower::ServiceBuilder::new()
            .map_request(
                (|call: ToolCall| {
                    let n = CALLS.fetch_add(1, Relaxed);
                    call.with_agent_id(n.to_string())
                }) as fn(ToolCall) -> ToolCall,
            )
            .layer(CacheLayer::new(Duration::from_secs(60), ["docs__search"]).unwrap())
            .into_inner()
    },
    Readiness::Eager,
    Panics::Pass
);
contract!(
    cache_of_other_tools,
    CacheLayer::new(Duration::from_secs(60), ["fetch"]).unwrap(),
    Readiness::Eager,
    Panics::Pass
);
contract!(trace, TraceLayer::new(), Readiness::Passes, Panics::Pass);
contract!(
    trace_of_attempts,
    TraceLayer::attempts(),
    Readiness::Passes,
    Panics::Pass
);
contract!(
    sanitize,
    // It leaves errors as they are.
    tower::ServiceBuilder::new()
        .layer(SanitizeLayer::new(
            Rules::new().with_sensitive_key("iban").unwrap()
        ))
        .layer(NormalizeLayer::new())
        .into_inner(),
    Readiness::Passes,
    Panics::Pass
);
contract!(
    check,
    CheckLayer::new(check_fn(|_, _: &&'static str| Ok(()))),
    Readiness::Passes,
    Panics::Pass
);
// It is not for text that cannot be changed.
contract!(
    fit,
    tower::ServiceBuilder::new()
        .map_response(
            (|answer| if answer == "answer" { "answer" } else { "cut" })
                as fn(String) -> &'static str
        )
        .layer(FitLayer::new(6))
        .map_response(str::to_owned as fn(&str) -> String)
        .into_inner(),
    Readiness::Passes,
    Panics::Pass
);
contract!(
    capture,
    Capture::new().layer(),
    Readiness::Eager,
    Panics::Pass
);
contract!(
    fault,
    FaultLayer::new(1, Faults::new()),
    Readiness::Eager,
    Panics::Pass
);
contract!(
    result,
    crate::result::TakenApart,
    Readiness::Eager,
    Panics::Pass
);
#[cfg(feature = "validate")]
contract!(
    validate,
    {
        use tower_toolcall::validate::{Schema, Schemas, ValidateLayer};

        let schemas = Schemas::new();
        let schema = Schema::compile(&serde_json::json!({ "type": "object" }));
        schemas.insert(Some("docs"), "search", schema.unwrap());
        ValidateLayer::new(&schemas)
    },
    Readiness::Eager,
    Panics::Pass
);
// A call that needs no token: with one, tests/token.
contract!(
    token,
    {
        use tower::service_fn;
        use tower_toolcall::token::{Token, TokenLayer};

        TokenLayer::new(service_fn(|_| async {
            Ok::<_, ToolError>(Token::new("t0k3n"))
        }))
    },
    Readiness::Eager,
    Panics::Pass
);
contract!(
    metrics,
    Metrics::new().layer(),
    Readiness::Passes,
    Panics::Pass
);
#[cfg(feature = "settings")]
contract!(
    stack_of_settings,
    {
        // A second attempt would hide what becomes of the first.
        let mut settings = Settings::default();
        settings.retry.attempts = 1;
        settings.stack().build().unwrap()
    },
    Readiness::Eager,
    Panics::BecomeErrors
);
#[cfg(feature = "settings")]
contract!(
    stack_of_settings_with_quota_and_concurrency_limit,
    {
        let mut settings = Settings::default();
        settings.retry.attempts = 1;
        settings.quota.tokens = Some(60);
        settings.concurrency.max = Some(1);
        settings.stack().build().unwrap()
    },
    Readiness::Eager,
    Panics::BecomeErrors
);
#[cfg(feature = "settings")]
contract!(
    stack_of_settings_with_own_layers,
    {
        let mut settings = Settings::default();
        settings.retry.attempts = 1;
        settings
            .stack()
            .with_layer(Place::Outside, tower::layer::util::Identity::new())
            .with_layer(Place::Allowed, tower::layer::util::Identity::new())
            .with_layer(Place::Call, tower::layer::util::Identity::new())
            .with_layer(Place::Attempt, tower::layer::util::Identity::new())
            .build()
            .unwrap()
    },
    Readiness::Eager,
    Panics::BecomeErrors
);
#[cfg(feature = "settings")]
contract!(
    stack_of_settings_with_a_repeat_guard,
    {
        let mut settings = Settings::default();
        settings.retry.attempts = 1;
        settings.repeat_guard.enabled = true;
        settings.stack().build().unwrap()
    },
    Readiness::Eager,
    Panics::BecomeErrors
);
#[cfg(feature = "settings")]
contract!(
    stack_of_settings_with_layers_switched_off,
    {
        let mut settings = Settings::default();
        settings.retry.enabled = false;
        settings.rate_limit.enabled = false;
        settings.circuit_breaker.enabled = false;
        settings.stack().build().unwrap()
    },
    Readiness::Eager,
    Panics::BecomeErrors
);

/// A layer that is off is exactly transparent.
macro_rules! off {
    ($($(#[$attr:meta])* $name:ident: $layer:ty;)*) => {
        mod off {
            use super::*;
            $(
                $(#[$attr])*
                #[tokio::test(start_paused = true)]
                async fn $name() {
                    crate::kit::is_transparent::<$layer>().await;
                }
            )*
        }
    };
}

off! {
    sanitize: SanitizeLayer;
    identity: IdentityLayer;
    trace: TraceLayer;
    metrics: tower_toolcall::tool_metrics::MetricsLayer;
    check: CheckLayer<tower_toolcall::check::MaxBytes>;
    repeat_guard: RepeatGuardLayer;
    #[cfg(feature = "validate")]
    validate: tower_toolcall::validate::ValidateLayer;
    policy: PolicyLayer;
    once: OnceLayer;
    cache: CacheLayer;
    quota: QuotaLayer;
    deadline: DeadlineLayer;
    poll: PollLayer<()>;
    retry: RetryLayer;
    rate_limit: RateLimitBackoffLayer;
    health: tower_toolcall::health::HealthLayer;
    concurrency_limit: ConcurrencyLimitLayer;
    circuit_breaker: CircuitBreakerLayer;
    timeout: TimeoutLayer;
    catch_panic: CatchPanicLayer;
    normalize: NormalizeLayer;
    transport: TransportLayer;
}
