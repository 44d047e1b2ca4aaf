//! The contract, kept by each layer.

use std::time::Duration;

use tower::{ServiceBuilder, service_fn};
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

const SECOND: Duration = Duration::from_secs(1);

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

/// A call of a caller of its own.
macro_rules! of_a_caller {
    ($layer:expr, $with:expr) => {{
        use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

        static CALLS: AtomicU32 = AtomicU32::new(0);
        let with: fn(ToolCall) -> ToolCall = |call| {
            let call = call.with_agent_id(CALLS.fetch_add(1, Relaxed).to_string());
            $with(call)
        };
        ServiceBuilder::new()
            .map_request(with)
            .layer($layer)
            .into_inner()
    }};
}

/// The stack of settings, without a second attempt, which would hide what becomes of the first.
#[cfg(feature = "settings")]
macro_rules! stack {
    (|$settings:ident| $($change:expr)?) => {{
        let mut $settings = Settings::default();
        $settings.retry.attempts = 1;
        $($change;)?
        $settings.stack().build().unwrap()
    }};
}

/// What each layer does with readiness, and with panics below it.
macro_rules! contracts {
    ($($(#[$attr:meta])* $name:ident: $readiness:ident, $panics:ident, $layer:expr;)*) => {
        $($(#[$attr])* contract!($name, $layer, Readiness::$readiness, Panics::$panics);)*
    };
}

contracts! {
    timeout: Passes, Pass, TimeoutLayer::default();
    timeout_in_idle_mode: Passes, Pass, TimeoutLayer::default().with_idle_timeout(SECOND).unwrap();
    timeout_with_drain: Passes, Pass, TimeoutLayer::default().with_drain(SECOND).unwrap();
    policy: Eager, Pass, PolicyLayer::new().allow("search").deny_by_default();
    policy_that_approves: Eager, Pass,
        PolicyLayer::new().rule(Rule::ask("*").of_server("docs")).with_approver(
            service_fn(|approval: Approval| async move { Ok::<_, ToolError>(approval.approve()) }),
        );
    poll: Passes, Pass, PollLayer::new(());
    deadline: Eager, Pass, DeadlineLayer::new(60 * SECOND);
    deadline_inherited: Eager, Pass, DeadlineLayer::inherited();
    deadline_with_drain: Eager, Pass, DeadlineLayer::new(60 * SECOND).with_drain(SECOND).unwrap();
    circuit_breaker: Eager, Pass, CircuitBreakerLayer::new();
    circuit_breaker_with_rates: Eager, Pass, {
        let rates = Rates::over_time(60 * SECOND).with_failure_rate(0.5);
        CircuitBreakerLayer::builder().with_trip(rates).build().unwrap()
    };
    identity: Passes, Pass, IdentityLayer::new(Calls::Renamed);
    identity_of_calls_that_have_it_already: Passes, Pass, IdentityLayer::new(Calls::AsTheyAre);
    retry: Passes, Pass, RetryLayer::default();
    rate_limit: Eager, Pass, RateLimitBackoffLayer::new();
    concurrency_limit: Eager, Pass, ConcurrencyLimitLayer::new(2);
    // One call at a time: each has the permit of the one before it.
    concurrency_limit_of_one: Eager, Pass, ConcurrencyLimitLayer::new(1);
    quota: Eager, Pass, QuotaLayer::new(Quota::per_second(10).unwrap());
    // Each call after the first waits for its turn.
    quota_of_one: Eager, Pass, QuotaLayer::new(Quota::per_second(1).unwrap());
    catch_panic: Passes, BecomeErrors, CatchPanicLayer::new();
    normalize: Passes, Pass, NormalizeLayer::new();
    from_fn: Passes, Pass, middleware::from_fn(|call, mut next| async move { next.run(call).await });
    transport: Passes, Pass, TransportLayer::new();
    health: Eager, Pass, Health::new().layer();
    health_that_refuses: Eager, Pass, Health::builder().with_refusal(true).build().unwrap().layer();
    repeat_guard: Eager, Pass, {
        let by_server = Key::by(|call| call.server().unwrap_or_default());
        RepeatGuardLayer::builder().with_keys(by_server).build().unwrap()
    };
    repeat_guard_of_calls_without_a_principal: Eager, Pass, RepeatGuardLayer::new();
    once: Eager, Pass, of_a_caller!(OnceLayer::new(), |call: ToolCall| call.with_once_key("k"));
    once_of_calls_without_a_key: Eager, Pass,
        OnceLayer::builder().with_repeat_within(Duration::ZERO).build().unwrap();
    cache: Eager, Pass,
        of_a_caller!(CacheLayer::new(60 * SECOND, ["docs__search"]).unwrap(), |call| call);
    cache_of_other_tools: Eager, Pass, CacheLayer::new(60 * SECOND, ["fetch"]).unwrap();
    trace: Passes, Pass, TraceLayer::new();
    trace_of_attempts: Passes, Pass, TraceLayer::attempts();
    // It leaves errors as they are.
    sanitize: Passes, Pass, {
        let sanitize = SanitizeLayer::new(Rules::new().with_sensitive_key("iban").unwrap());
        ServiceBuilder::new().layer(sanitize).layer(NormalizeLayer::new()).into_inner()
    };
    check: Passes, Pass, CheckLayer::new(check_fn(|_, _: &&'static str| Ok(())));
    // It is not for text that cannot be changed.
    fit: Passes, Pass, {
        let seen: fn(String) -> &'static str = |text| if text == "answer" { "answer" } else { "cut" };
        let owned: fn(&str) -> String = str::to_owned;
        let above = ServiceBuilder::new().map_response(seen).layer(FitLayer::new(6));
        above.map_response(owned).into_inner()
    };
    capture: Eager, Pass, Capture::new().layer();
    fault: Eager, Pass, FaultLayer::new(1, Faults::new());
    result: Eager, Pass, crate::result::TakenApart;
    #[cfg(feature = "validate")]
    validate: Eager, Pass, {
        use tower_toolcall::validate::{Schema, Schemas, ValidateLayer};

        let schemas = Schemas::new();
        let schema = Schema::compile(&serde_json::json!({ "type": "object" }));
        schemas.insert(Some("docs"), "search", schema.unwrap());
        ValidateLayer::new(&schemas)
    };
    // A call that needs no token: tests/whole/tests/stacks/token has others.
    token: Eager, Pass, {
        use tower_toolcall::token::{Token, TokenLayer};

        TokenLayer::new(service_fn(|_| async { Ok::<_, ToolError>(Token::new("t0k3n")) }))
    };
    metrics: Passes, Pass, Metrics::new().layer();
    #[cfg(feature = "settings")]
    stack_of_settings: Eager, BecomeErrors, stack!(|settings|);
    #[cfg(feature = "settings")]
    stack_of_settings_with_quota_and_concurrency_limit: Eager, BecomeErrors, stack!(|settings| {
        settings.quota.units = Some(60);
        settings.concurrency.max = Some(1);
    });
    #[cfg(feature = "settings")]
    stack_of_settings_with_own_layers: Eager, BecomeErrors, {
        let mut settings = Settings::default();
        settings.retry.attempts = 1;
        let nothing = tower::layer::util::Identity::new;
        let stack = settings.stack().with_layer(Place::Outside, nothing());
        let stack = stack.with_layer(Place::Allowed, nothing());
        let stack = stack.with_layer(Place::Call, nothing());
        stack.with_layer(Place::Attempt, nothing()).build().unwrap()
    };
    #[cfg(feature = "settings")]
    stack_of_settings_with_a_repeat_guard: Eager, BecomeErrors,
        stack!(|settings| settings.repeat_guard.enabled = true);
    #[cfg(feature = "settings")]
    stack_of_settings_with_layers_switched_off: Eager, BecomeErrors, stack!(|settings| {
        settings.retry.enabled = false;
        settings.rate_limit.enabled = false;
        settings.circuit_breaker.enabled = false;
    });
}

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
