//! The contract of layers that refuse calls, and of those that let them wait.

use tokio::time::sleep;
use tower::{Layer, ServiceExt, service_fn};
use tower_toolcall::{
    ErrorKind::*,
    Identity, ToolCall, ToolError,
    circuit_breaker::CircuitBreakerLayer,
    concurrency_limit::ConcurrencyLimitLayer,
    health::Health,
    identity::{IdentityLayer, Resolve},
    policy::PolicyLayer,
    quota::{Quota, QuotaBuilder, QuotaLayer},
    rate_limit::RateLimitBackoffLayer,
    repeat_guard::RepeatGuardLayer,
    token::{Target, Token, TokenLayer},
};
use tower_toolcall_test::{Script, Step};

use crate::kit::{self, Probe, held_call as call, secs};

fn answers_after(n: u64) -> Probe {
    Script::always(Step::ok("answer").after(secs(n)))
}

/// Starts a call that takes a second in a layer of its own.
async fn keeps_busy<L>(layer: &L)
where
    L: Layer<Probe, Service: kit::Stack + 'static>,
    <L::Service as tower::Service<ToolCall>>::Future: 'static,
{
    tokio::spawn(layer.layer(answers_after(1)).oneshot(call()));
    tokio::task::yield_now().await;
}

/// A quota of one call per second, which is used up.
async fn used_up(builder: impl FnOnce(QuotaBuilder) -> QuotaBuilder) -> QuotaLayer {
    let builder = builder(QuotaLayer::builder(Quota::per_second(1).unwrap()));
    let layer = builder.build().unwrap();
    let answer = layer.layer(answers_after(0)).oneshot(call()).await;
    answer.unwrap();
    layer
}

/// A breaker whose next call is the probe.
async fn half_open() -> CircuitBreakerLayer {
    let builder = CircuitBreakerLayer::builder().with_probe_wait(secs(10));
    let layer = builder.build().unwrap();
    while !layer.handle().breaker(&call()).record_failure() {}
    sleep(secs(60)).await;
    layer
}

/// Knows no tool.
struct Nothing;

impl Resolve for Nothing {
    fn resolve(&self, _: &ToolCall) -> Result<Option<Identity>, ToolError> {
        Err(ToolError::refusal(NotFound, "no such tool"))
    }
}

/// The contract of layers that refuse a call, or let it wait for a second.
macro_rules! held {
    (
        refuses { $($(#[$attr:meta])* $refuses:ident: $layer:expr, $kind:ident;)* }
        waits { $($waits:ident: $waiting:expr $(, $seen:ident)?;)* }
    ) => {
        mod refuses {
            $(
                $(#[$attr])*
                mod $refuses {
                    use super::super::*;

                    $crate::kit::contract! { @tests
                        a_refusal_gives_the_reservation_back($layer, kit::held_call());
                        a_refusal_waits_for_no_readiness($layer, $kind);
                        a_refusal_is_repeated_by_none_and_counted_against_nobody($layer, $kind);
                    }
                }
            )*
        }
        mod waits {
            $(
                mod $waits {
                    use super::super::*;

                    $crate::kit::contract! { @tests
                        a_wait_ends_when_the_caller_cancels($waiting);
                        a_wait_that_is_given_up_costs_others_nothing($waiting);
                        a_wait_holds_no_reservation($waiting);
                        $($seen($waiting);)?
                    }
                }
            )*
        }
    };
}

held! {
    refuses {
        concurrency_limit: ConcurrencyLimitLayer::new(0), Overloaded;
        quota: used_up(QuotaBuilder::with_fail_fast).await, RateLimited;
        quota_that_never_allows_it: {
            let quota = QuotaLayer::builder(Quota::per_second(1).unwrap());
            quota.with_cost(|_| 2).build().unwrap()
        }, InvalidInput;
        rate_limit: {
            let layer = RateLimitBackoffLayer::builder().with_fail_fast().build().unwrap();
            layer.handle().cool(&call(), secs(60));
            layer
        }, RateLimited;
        circuit_breaker: {
            let layer = CircuitBreakerLayer::new();
            layer.handle().breaker(&call()).force_open();
            layer
        }, CircuitOpen;
        circuit_breaker_that_is_half_open: {
            let layer = CircuitBreakerLayer::new();
            while !layer.handle().breaker(&call()).record_failure() {}
            sleep(secs(60)).await;
            std::mem::forget(layer.handle().breaker(&call()).admit().unwrap());
            layer
        }, CircuitOpen;
        repeat_guard: {
            let layer = RepeatGuardLayer::new();
            let fails = Script::<()>::always(Step::fail(NotFound));
            for _ in 0..3 {
                layer.layer(fails.clone()).oneshot(call()).await.unwrap_err();
            }
            layer
        }, InvalidInput;
        health: {
            let layer = Health::builder().with_refusal(true).build().unwrap().layer();
            let fails = Script::<()>::always(Step::fail(ConnectionFailed));
            for _ in 0..3 {
                layer.layer(fails.clone()).oneshot(call()).await.unwrap_err();
            }
            layer
        }, ConnectionFailed;
        policy: PolicyLayer::new().deny("search"), Denied;
        identity: IdentityLayer::new(Nothing), NotFound;
        #[cfg(feature = "validate")]
        validate: {
            use tower_toolcall::validate::{Schema, Schemas, ValidateLayer};

            let schemas = Schemas::new();
            let schema = serde_json::json!({ "required": ["query"] });
            schemas.insert(Some("docs"), "search", Schema::compile(&schema).unwrap());
            ValidateLayer::new(&schemas)
        }, InvalidInput;
        token: {
            let tokens = service_fn(|_| async { Ok::<_, ToolError>(Token::new("t0k3n")) });
            TokenLayer::new(tokens).with_server("docs", Target::audience("docs"))
        }, Denied;
    }
    waits {
        concurrency_limit: {
            let layer = ConcurrencyLimitLayer::new(1);
            keeps_busy(&layer).await;
            layer
        }, the_time_of_a_wait_is_seen_above;
        quota: used_up(|quota| quota).await, the_time_of_a_wait_is_seen_above;
        rate_limit: {
            let layer = RateLimitBackoffLayer::new();
            layer.handle().cool(&call(), secs(1));
            layer
        }, the_time_of_a_wait_is_seen_above;
        circuit_breaker_that_is_half_open: {
            let layer = half_open().await;
            keeps_busy(&layer).await;
            layer
        };
    }
}
