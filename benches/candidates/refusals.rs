//! What it costs when a layer refuses a call, or passes an error on.

use std::time::Duration;

use tower::{Service, ServiceBuilder, service_fn};
use tower_layer::Layer;
use tower_toolcall::{
    CallInfo, Key, ToolCall,
    backoff::Backoff,
    catch_panic::CatchPanicLayer,
    check::{CheckLayer, check_fn},
    circuit_breaker::{CircuitBreakerLayer, Trip},
    concurrency_limit::ConcurrencyLimitLayer,
    deadline::DeadlineLayer,
    health::Health,
    normalize::NormalizeLayer,
    quota::{Quota, QuotaLayer},
    rate_limit::RateLimitBackoffLayer,
    repeat_guard::RepeatGuardLayer,
    result::{ToolResult, ToolResultLayer},
    retry::{RetryBudget, RetryLayer, RetryPolicy},
    sanitize::SanitizeLayer,
    timeout::TimeoutLayer,
    tool_metrics::Metrics,
    trace::TraceLayer,
};

use super::{
    AT_ONCE, By, Candidate, Group, bare, candidate, layered,
    layers::{BARE_HTTP, bare_http, http_catch_panic},
    ours, peer,
    peers::{self, LONG, TIMEOUT},
    stacked, stacks,
};
use crate::kit::{
    drive::{executed, expiring, shared},
    tool::{Deep, Does, Stalled},
};

pub fn groups() -> Vec<Group> {
    let group = |name, candidates| Group {
        name,
        settings: vec![AT_ONCE],
        candidates,
    };
    vec![
        group("refusal: open breaker", open()),
        group("refusal: open breaker in a stack", open_in_stack()),
        group("refusal: rate limit", limited()),
        group("refusal: others", refusals()),
        group("refusal: the answer", checks()),
        group("error of the tool: a text", foreign()),
        group("error of the tool: one of ours", own()),
        group("error of the tool: three attempts", exhausted()),
        group("panic of the tool", panics()),
        group("timer that expires", expiries()),
    ]
}

fn open() -> Vec<Candidate> {
    let refused = |candidate: Candidate| candidate.refuses(Does::Fail);
    vec![
        bare(),
        refused(ours("circuit_breaker, open", |tool| {
            layered(CircuitBreakerLayer::new(), tool)
        })),
        refused(peer("recloser, open", peers::recloser)),
        refused(peer("failsafe, open", peers::failsafe)),
        refused(peer("tower-resilience breaker, open", |tool| {
            layered(peers::resilience_breaker(), tool)
        })),
        refused(peer("seatbelt breaker, open", |tool| {
            executed(peers::seatbelt_breakers().layer(tool))
        })),
    ]
}

fn open_in_stack() -> Vec<Candidate> {
    let refused = |candidate: Candidate| candidate.refuses(Does::Fail);
    vec![
        bare(),
        refused(ours("stack of three, open", stacks::three)),
        refused(peer(
            "tower-resilience, stack of three, open",
            stacks::resilience_three,
        )),
        refused(ours("stack of eight, open", stacks::eight)),
        refused(ours("documented stack, open", stacks::documented)),
    ]
}

fn limited() -> Vec<Candidate> {
    vec![
        bare(),
        ours("rate_limit, cooling, refused at once", |tool| {
            let builder = RateLimitBackoffLayer::builder()
                .with_fail_fast()
                .with_default_cooldown(LONG);
            layered(builder.build().expect("valid"), tool)
        })
        .refuses(Does::Limit),
        ours("quota, used up", |tool| {
            let quota = Quota::new(1, LONG).expect("valid");
            let builder = QuotaLayer::builder(quota).with_fail_fast();
            layered(builder.build().expect("valid"), tool)
        })
        .refuses(Does::Limit),
        peer("governor, used up", peers::governor_of_one).refuses(Does::Limit),
        peer("tower-resilience rate limit, used up", |tool| {
            layered(peers::resilience_limit(1), tool)
        })
        .refuses(Does::Limit),
    ]
}

fn refusals() -> Vec<Candidate> {
    vec![
        bare(),
        ours("deadline, nothing is left", |tool| {
            layered(DeadlineLayer::new(Duration::ZERO), tool)
        })
        .refuses(Does::Fail),
        ours("concurrency_limit, full", |tool| {
            layered(ConcurrencyLimitLayer::new(0), tool)
        })
        .refuses(Does::Fail),
        ours("repeat_guard, refused", |tool| {
            let builder = RepeatGuardLayer::builder().with_window(LONG);
            let builder = builder.with_keys(Key::by(|call| call.server().unwrap_or_default()));
            layered(builder.build().expect("valid"), tool)
        })
        .refuses(Does::Fail),
        ours("health, unavailable", |tool| {
            let health = Health::builder().with_refusal(true).with_probe_period(LONG);
            layered(health.build().expect("valid").layer(), tool)
        })
        .refuses(Does::Disconnect),
    ]
}

const BARE_FAILS: &str = "bare, fails";
const BARE_REFUSES: &str = "bare, cannot be reached, three times";
const BARE_DENIES: &str = "bare, fails with an error of ours";

fn failing(candidate: Candidate) -> Candidate {
    candidate.fails(Does::Fail).above(BARE_FAILS)
}

fn bare_fails() -> Candidate {
    candidate::<0>(BARE_FAILS, By::Bare, |tool| shared(tool)).fails(Does::Fail)
}

/// What is made of an error that has to be recognised by its text.
fn foreign() -> Vec<Candidate> {
    vec![
        bare_fails(),
        failing(ours("timeout, of a text", |tool| {
            layered(TimeoutLayer::default(), tool)
        })),
        failing(ours("stack of six, of a text", |tool| {
            let never = Trip::consecutive_failures(u32::MAX);
            let breaker = CircuitBreakerLayer::builder().with_trip(never).build();
            shared(stacks::six_with(breaker.expect("valid"), Deep(tool)))
        })),
        failing(peer("tower timeout, of a text", |tool| {
            layered(tower::timeout::TimeoutLayer::new(TIMEOUT), tool)
        })),
        failing(peer("seatbelt timeout, of a text", |tool| {
            executed(peers::seatbelt_timeout().layer(tool))
        })),
        failing(ours("retry, not repeated", |tool| {
            layered(RetryLayer::default(), tool)
        })),
        failing(peer("tower retry, not repeated", |tool| {
            layered(peers::tower_retry(false), tool)
        })),
        failing(peer("tower-resilience retry, not repeated", |tool| {
            layered(peers::resilience_retry().retry_on(|_| false).build(), tool)
        })),
        failing(peer("seatbelt retry, not repeated", |tool| {
            executed(peers::seatbelt_retry(false).layer(tool))
        })),
    ]
}

/// Three attempts without a delay between them, which no budget refuses.
fn exhausted() -> Vec<Candidate> {
    let thrice = |candidate: Candidate| candidate.fails_after(3, Does::Refuse).above(BARE_REFUSES);
    vec![
        candidate::<0>(BARE_REFUSES, By::Bare, |tool| {
            shared(service_fn(move |call: ToolCall| {
                let mut tool = tool;
                async move {
                    let _ = tool.call(call.clone()).await;
                    let _ = tool.call(call.clone()).await;
                    tool.call(call).await
                }
            }))
        })
        .fails_after(3, Does::Refuse),
        thrice(ours("retry, three attempts", |tool| {
            let policy = RetryPolicy::new()
                .with_backoff(Backoff::fixed(Duration::ZERO).expect("valid"))
                .with_budget(RetryBudget::new(1000.0, 10).expect("valid"))
                .assume_replay_safe();
            layered(RetryLayer::new(policy), tool)
        })),
        thrice(peer("tower retry, three attempts", |tool| {
            layered(peers::tower_retry_thrice(), tool)
        })),
        thrice(peer("seatbelt retry, three attempts", |tool| {
            executed(peers::seatbelt_retry_thrice().layer(tool))
        })),
    ]
}

fn own() -> Vec<Candidate> {
    let denied = |candidate: Candidate| candidate.fails(Does::Deny).above(BARE_DENIES);
    vec![
        candidate::<0>(BARE_DENIES, By::Bare, |tool| shared(tool)).fails(Does::Deny),
        denied(ours("timeout, error", |tool| {
            layered(TimeoutLayer::default(), tool)
        })),
        denied(ours("normalize, error", |tool| {
            layered(NormalizeLayer::new(), tool)
        })),
        denied(ours("retry, error", |tool| {
            layered(RetryLayer::default(), tool)
        })),
        denied(ours("circuit_breaker, error", |tool| {
            layered(CircuitBreakerLayer::new(), tool)
        })),
        denied(ours("trace, error", |tool| {
            layered(TraceLayer::new(), tool)
        })),
        denied(ours("metrics, error", |tool| {
            layered(Metrics::new().layer(), tool)
        })),
        denied(ours("sanitize, error", |tool| {
            layered(SanitizeLayer::default(), tool)
        })),
        denied(ours("result, error", |tool| {
            let stack = ServiceBuilder::new()
                .map_response(|result: ToolResult<u64>| result.into_data().unwrap_or(0))
                .layer(ToolResultLayer::new());
            stacked(stack, tool)
        })),
        denied(ours("stack of eight, error", stacks::eight)),
    ]
}

fn checks() -> Vec<Candidate> {
    vec![
        bare(),
        ours("check, refused", |tool| {
            let check = check_fn(|_: &CallInfo, _: &u64| Err("too much".into()));
            layered(CheckLayer::new(check), tool)
        })
        .errs(),
    ]
}

fn panics() -> Vec<Candidate> {
    vec![
        bare(),
        ours("catch_panic; the tool panics", |tool| {
            layered(CatchPanicLayer::new(), tool)
        })
        .fails(Does::Panic),
        bare_http(),
        peer("tower-http catch_panic; the tool panics", http_catch_panic)
            .fails(Does::Panic)
            .above(BARE_HTTP),
    ]
}

/// A second of a clock that jumps to it.
fn expiries() -> Vec<Candidate> {
    const SECOND: Duration = Duration::from_secs(1);
    const BARE_SLEEP: &str = "bare, sleeps";
    let expires = |candidate: Candidate| candidate.errs().above(BARE_SLEEP);
    vec![
        candidate::<0>(BARE_SLEEP, By::Bare, |_| {
            expiring(service_fn(|_| async {
                tokio::time::sleep(SECOND).await;
                Err(())
            }))
        })
        .errs(),
        expires(ours("timeout, expires", |_| {
            expiring(TimeoutLayer::new(SECOND).layer(Stalled))
        })),
        expires(ours("deadline, expires", |_| {
            expiring(DeadlineLayer::new(SECOND).layer(Stalled))
        })),
        expires(peer("tower timeout, expires", |_| {
            expiring(tower::timeout::Timeout::new(Stalled, SECOND))
        })),
    ]
}
