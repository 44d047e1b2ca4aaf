//! Each setting reaches its layer: built from settings and built by hand, they print the same (G1).

use std::time::Duration;

use tokio::time::Instant;
use tower::{Layer, ServiceExt, service_fn};
use tower_toolcall::{
    ErrorKind, Key, Keys, ToolCall, ToolError,
    backoff::{Backoff, Jitter},
    circuit_breaker::{CircuitBreakerLayer, Probe, Rates, Trip},
    concurrency_limit::ConcurrencyLimitLayer,
    deadline::DeadlineLayer,
    fit::FitLayer,
    health::Health,
    poll::PollLayer,
    quota::{Quota, QuotaLayer},
    rate_limit::RateLimitBackoffLayer,
    redact::Rules,
    repeat_guard::RepeatGuardLayer,
    retry::{RetryBudget, RetryPolicy},
    settings::{KeyBy, Settings},
    timeout::TimeoutLayer,
    trace::TraceLayer,
};
use tower_toolcall_test::Events;

use crate::kit::{call, changed, flaky, run, safe, secs, stack};

#[track_caller]
fn same(ours: &impl std::fmt::Debug, by_hand: &impl std::fmt::Debug) {
    assert_eq!(format!("{ours:?}"), format!("{by_hand:?}"));
}

#[test]
fn timeout() {
    let settings = changed(|s| {
        s.timeout.default = secs(9);
        s.timeout.idle_timeout = Some(secs(3));
        s.timeout.slow_fraction = 0.5;
        s.tools.entry("b".into()).or_default().timeout = Some(secs(5) / 2);
        s.tools.entry("a".into()).or_default().attempts = Some(1);
    });
    let by_hand = TimeoutLayer::new(secs(9))
        .with_slow_fraction(0.5)
        .and_then(|layer| layer.with_idle_timeout(secs(3)))
        .map(|layer| layer.with_tool("b", Duration::from_millis(2_500)));
    same(&settings.timeout_layer(), &by_hand);
}

#[test]
fn health() {
    let settings = changed(|s| {
        s.health.threshold = 1;
        s.health.refusal = true;
        s.health.probe_period = secs(5);
        s.health.max_servers = 7;
    });
    let by_hand = Health::builder()
        .with_threshold(1)
        .with_refusal(true)
        .with_probe_period(secs(5))
        .with_max_servers(7);
    same(&settings.health_builder(), &by_hand);
}

#[test]
fn quota() {
    let settings = changed(|s| {
        s.quota.units = Some(100);
        s.quota.period = secs(3600);
        s.quota.burst = Some(7);
        s.quota.max_wait = secs(9);
        s.quota.fail_fast = true;
        s.quota.key = KeyBy::Server;
        s.quota.max_keys = 5;
    });
    let quota = Quota::per_hour(100).unwrap().with_burst(7).unwrap();
    let by_hand = QuotaLayer::builder(quota)
        .with_max_wait(secs(9))
        .with_fail_fast()
        .with_keys(Keys::by(Key::Server).at_most(5));
    same(&settings.quota_builder().unwrap().unwrap(), &by_hand);
}

#[test]
fn concurrency_limit() {
    let settings = changed(|s| {
        s.concurrency.max = Some(3);
        s.concurrency.max_queue = 5;
        s.concurrency.key = KeyBy::ToolName;
        s.concurrency.max_keys = 7;
    });
    let by_hand = ConcurrencyLimitLayer::builder(3)
        .with_max_queue(5)
        .with_keys(Keys::by(Key::ToolName).at_most(7));
    same(&settings.concurrency_limit_builder().unwrap(), &by_hand);
}

#[test]
fn repeat_guard() {
    let settings = changed(|s| {
        s.repeat_guard.failures = 5;
        s.repeat_guard.window = secs(600);
        s.repeat_guard.max_keys = 7;
        let status = s.tools.entry("status".to_owned()).or_default();
        status.repeat_guard = Some(false);
    });
    let by_hand = RepeatGuardLayer::builder()
        .with_failures(5)
        .with_window(secs(600))
        .with_keys(Keys::default().at_most(7))
        .with_tool("status", false);
    same(&settings.repeat_guard_builder(), &by_hand);
}

#[test]
fn deadline() {
    let settings = changed(|s| {
        s.deadline.budget = Some(secs(90));
        s.deadline.reserve = secs(2);
    });
    let by_hand = DeadlineLayer::new(secs(90)).with_reserve(secs(2));
    same(&settings.deadline_layer(), &by_hand);
}

#[test]
fn once_and_cache() {
    use tower_toolcall::{cache::CacheLayer, once::OnceLayer};

    let settings = changed(|_| ());
    assert!(settings.once_layer().unwrap().is_none());
    assert!(settings.cache_layer().unwrap().is_none());
    let settings = changed(|s| {
        (s.once.ttl, s.once.repeat_within) = (secs(60), secs(5));
        (s.once.max_keys, s.once.max_answer, s.once.max_bytes) = (7, 8, 900);
        s.cache.tools = vec!["search".into()];
        s.cache.ttl = Some(secs(60));
        (s.cache.max_keys, s.cache.max_answer, s.cache.max_bytes) = (7, 8, 900);
    });
    let by_hand = OnceLayer::builder()
        .with_ttl(secs(60))
        .with_repeat_within(secs(5))
        .with_max_keys(7)
        .with_max_answer(8)
        .with_max_bytes(900);
    same(&settings.once_builder(), &by_hand);
    let by_hand = CacheLayer::builder(secs(60), ["search"])
        .with_max_keys(7)
        .with_max_answer(8)
        .with_max_bytes(900);
    same(&settings.cache_builder().unwrap().unwrap(), &by_hand);
}

#[test]
fn fit() {
    assert!(changed(|_| ()).fit_layer().is_none());
    let settings = changed(|s| {
        s.fit.enabled = true;
        s.fit.max_chars = 5_000;
    });
    same(&settings.fit_layer().unwrap(), &FitLayer::new(5_000));
}

#[test]
fn poll() {
    let settings = changed(|s| {
        s.poll.interval = secs(2);
        s.poll.factor = 2.0;
        s.poll.cap = secs(20);
        s.poll.polls = 5;
        s.poll.budget = Some(secs(300));
        s.poll.cancel = false;
    });
    let interval = Backoff::exponential(secs(2), 2.0).unwrap();
    let by_hand = PollLayer::new(())
        .with_interval(interval.with_cap(secs(20)).with_jitter(Jitter::None))
        .unwrap()
        .with_polls(5)
        .unwrap()
        .with_budget(secs(300))
        .unwrap()
        .without_cancel();
    same(&settings.poll_layer(()).unwrap(), &by_hand);
}

#[test]
fn retry() {
    let settings = changed(|s| {
        s.retry.attempts = 4;
        s.retry.base = secs(2);
        s.retry.factor = 3.0;
        s.retry.cap = secs(20);
        s.retry.jitter = Jitter::Equal;
        s.retry.budget_ratio = 0.5;
        s.retry.budget_minimum = 1;
        s.retry.total_budget_ratio = Some(0.25);
        s.rate_limit.max_wait = secs(60);
    });
    let backoff = Backoff::exponential(secs(2), 3.0).unwrap();
    let by_hand = RetryPolicy::new()
        .with_attempts(4)
        .unwrap()
        .with_backoff(backoff.with_cap(secs(20)).with_jitter(Jitter::Equal))
        .with_budget(RetryBudget::new(0.5, 1).unwrap())
        .with_total_budget(RetryBudget::new(0.25, 1).unwrap())
        .with_max_delay(secs(60));
    same(&settings.retry_policy().unwrap(), &by_hand);
}

#[test]
fn rate_limit() {
    let settings = changed(|s| {
        s.rate_limit.default_cooldown = secs(7);
        s.rate_limit.max_wait = secs(70);
        s.rate_limit.attempts = 2;
        s.rate_limit.fail_fast = true;
        s.rate_limit.key = KeyBy::Server;
    });
    let by_hand = RateLimitBackoffLayer::builder()
        .with_default_cooldown(secs(7))
        .with_max_wait(secs(70))
        .with_attempts(2)
        .with_fail_fast()
        .with_keys(Key::Server);
    same(&settings.rate_limit_builder(), &by_hand);
}

/// D13: the jitter of retries is that of cooldowns too.
#[test]
fn the_jitter_of_retries_reaches_the_rate_limit() {
    let settings = changed(|s| s.retry.jitter = Jitter::None);
    let by_hand = RateLimitBackoffLayer::builder().with_jitter(Jitter::None);
    same(&settings.rate_limit_builder(), &by_hand);
    let without = Settings::default().rate_limit_builder();
    assert_ne!(format!("{without:?}"), format!("{by_hand:?}"));
}

/// D14: with tokens of users each user has a limit of its own, unless the settings say otherwise.
#[test]
fn a_limit_is_per_principal_where_tokens_are_exchanged() {
    let endpoint = Some("https://id.example.com/token".to_owned());
    for (endpoint, set, per_principal) in [
        (None, None, false),
        (None, Some(true), true),
        (endpoint.clone(), None, true),
        (endpoint, Some(false), false),
    ] {
        let settings = changed(|s| {
            s.token.endpoint = endpoint;
            s.rate_limit.per_principal = set;
        });
        let key = match per_principal {
            true => Key::Tool.per_principal(),
            false => Key::Tool,
        };
        let by_hand = RateLimitBackoffLayer::builder().with_keys(key);
        same(&settings.rate_limit_builder(), &by_hand);
    }
}

#[test]
fn circuit_breaker() {
    let settings = changed(|s| {
        s.circuit_breaker.threshold = 3;
        s.circuit_breaker.window = Some(secs(45));
        s.circuit_breaker.open_for = secs(10);
        s.circuit_breaker.probes = 2;
        s.circuit_breaker.probe = Probe::SafeCalls;
        s.circuit_breaker.successes = Some(4);
        s.circuit_breaker.key = KeyBy::ToolName;
        s.circuit_breaker.max_keys = 12;
    });
    let by_hand = CircuitBreakerLayer::builder()
        .with_trip(Trip::consecutive_failures_within(3, secs(45)))
        .with_open_for(secs(10))
        .with_probes(2)
        .with_probe(Probe::SafeCalls)
        .with_successes(4)
        .with_keys(Keys::by(Key::ToolName).at_most(12));
    same(&settings.circuit_breaker_builder().unwrap(), &by_hand);
}

/// D11.
#[test]
fn a_wait_for_probes_reaches_the_breaker() {
    let settings = changed(|s| s.circuit_breaker.probe_wait = Some(secs(8)));
    let by_hand = CircuitBreakerLayer::builder().with_probe_wait(secs(8));
    same(&settings.circuit_breaker_builder().unwrap(), &by_hand);
    let without = Settings::default().circuit_breaker_builder().unwrap();
    assert_ne!(format!("{without:?}"), format!("{by_hand:?}"));
}

/// W4: the other rule has to be asked for.
#[test]
fn circuit_breaker_with_a_total() {
    let settings = changed(|s| {
        s.circuit_breaker.window = Some(secs(45));
        s.circuit_breaker.success_resets = false;
    });
    let by_hand =
        CircuitBreakerLayer::builder().with_trip(Trip::total_failures_within(5, secs(45)));
    same(&settings.circuit_breaker_builder().unwrap(), &by_hand);
}

/// C2.
#[test]
fn circuit_breaker_with_rates() {
    let mut settings = changed(|s| {
        s.circuit_breaker.failure_rate = Some(0.5);
        s.circuit_breaker.slow_call_rate = Some(0.9);
        s.circuit_breaker.slow_call = Some(secs(8));
        s.circuit_breaker.minimum_calls = Some(20);
        s.circuit_breaker.window_calls = Some(200);
    });
    let by_hand = |rates: Rates| {
        let rates = rates
            .with_failure_rate(0.5)
            .with_slow_call_rate(0.9, secs(8))
            .with_minimum_calls(20);
        CircuitBreakerLayer::builder().with_trip(rates)
    };
    let calls = by_hand(Rates::over_calls(200));
    same(&settings.circuit_breaker_builder().unwrap(), &calls);
    settings.circuit_breaker.window_calls = None;
    settings.circuit_breaker.window = Some(secs(60));
    let time = by_hand(Rates::over_time(secs(60)));
    same(&settings.circuit_breaker_builder().unwrap(), &time);
}

#[test]
fn sanitize() {
    let settings = changed(|s| {
        s.sanitize.max_string = 20;
        s.sanitize.max_depth = 3;
        s.sanitize.max_nodes = 30;
        s.sanitize.sensitive_keys = vec!["iban".into()];
        s.sanitize.harmless_keys = vec!["passport".into()];
    });
    let by_hand = Rules::new()
        .with_max_string(20)
        .and_then(|rules| rules.with_max_depth(3))
        .and_then(|rules| rules.with_max_nodes(30))
        .and_then(|rules| rules.with_sensitive_key("iban"))
        .and_then(|rules| rules.with_harmless_key("passport"));
    same(&settings.redaction_rules(), &by_hand);
}

#[test]
fn trace() {
    let settings = changed(|s| {
        s.trace.arguments = false;
        s.trace.output = true;
    });
    let by_hand = TraceLayer::new().with_arguments(false).with_output(true);
    same(&settings.trace_layer(), &by_hand);
}

/// S2: a harmless word beats a sensitive one, a built-in one too.
#[test]
fn a_harmless_word_is_shown() {
    let settings = changed(|s| s.sanitize.harmless_keys = vec!["idempotency_key".into()]);
    let rules = settings.redaction_rules().unwrap();
    let judged = ["idempotency_key", "api_key"].map(|key| rules.is_sensitive_key(key));
    assert_eq!(judged, [false, true]);
}

/// L1: the retry layer has the cooldown too, so that the two cannot differ.
#[tokio::test(start_paused = true)]
async fn the_cooldown_is_the_retry_layers_as_well() {
    let layer = stack(&changed(|s| {
        s.rate_limit.enabled = false;
        s.rate_limit.default_cooldown = secs(7);
    }));
    let tool = flaky(ErrorKind::RateLimited, 1);
    let start = Instant::now();
    assert_eq!(run(&layer, &tool, call()).await, Ok("done"));
    assert!((secs(7)..=secs(8)).contains(&start.elapsed()));
}

/// L2: and the longest wait.
#[tokio::test(start_paused = true)]
async fn a_server_that_asks_for_more_than_the_longest_wait_is_not_obeyed() {
    let layer = stack(&changed(|s| s.rate_limit.max_wait = secs(60)));
    for (told, done) in [(50, true), (70, false)] {
        let tool = service_fn(move |call: ToolCall| async move {
            let limit = ToolError::new(ErrorKind::RateLimited, "429");
            match call.attempt() {
                1 => Err(limit.with_retry_after(secs(told))),
                _ => Ok(()),
            }
        });
        let call = ToolCall::new(format!("limited for {told} s"));
        assert_eq!(layer.layer(tool).oneshot(call).await.is_ok(), done);
    }
}

/// The first of the calls of a server that meets a limit holds back all.
#[tokio::test(start_paused = true)]
async fn the_key_of_the_rate_limit_is_the_gates() {
    let settings = |key| {
        changed(|s| {
            s.rate_limit.key = key;
            s.rate_limit.fail_fast = true;
            s.retry.enabled = false;
        })
    };
    for (key, done) in [(KeyBy::Tool, true), (KeyBy::Server, false)] {
        let layer = stack(&settings(key));
        let tool = flaky(ErrorKind::RateLimited, 1);
        assert!(run(&layer, &tool, call()).await.is_err());
        let other = ToolCall::new("other").with_server("docs");
        assert_eq!(run(&layer, &tool, other).await.is_ok(), done);
    }
}

/// T5, X1: of a batch that ends within the reserve the check says that no call would start. So it
/// is.
#[tokio::test(start_paused = true)]
async fn a_batch_is_skipped_whose_budget_is_the_reserve() {
    use tower_toolcall::{batch::Parallel, result::Status};

    let tools =
        stack(&changed(|s| s.deadline.reserve = secs(2))).layer(flaky(ErrorKind::Upstream, 0));
    for (budget, status) in [(2, Status::Skipped), (3, Status::Success)] {
        let batch = Parallel::new(tools.clone()).with_budget(secs(budget));
        assert_eq!(batch.run([call()]).await[0].status(), status);
    }
}

/// L3: nobody waits, the retry layer neither: a call of a cooling key is refused at once, and no
/// retry is spent on it.
#[tokio::test(start_paused = true)]
async fn who_fails_fast_does_not_wait_in_the_retry_layer() {
    let events = Events::new();
    let settings = changed(|s| {
        s.rate_limit.fail_fast = true;
        s.retry.budget_ratio = 0.0;
        s.retry.budget_minimum = 1;
    });
    let layer = settings
        .stack()
        .with_listener(events.clone())
        .build()
        .unwrap();
    let limited = flaky(ErrorKind::RateLimited, 1);
    let start = Instant::now();
    // V15: the second one is refused, and not sent.
    for sent in [Some(1), None] {
        let error = layer.layer(limited.clone()).oneshot(safe()).await;
        let error = error.unwrap_err();
        let told = error.retry_after().unwrap();
        assert!((secs(30)..=secs(31)).contains(&told), "{told:?}");
        assert_eq!(error.kind(), ErrorKind::RateLimited);
        assert_eq!(error.attempts(), sent);
    }
    assert_eq!((start.elapsed(), limited.count()), (secs(0), 1));
    events.assert(["tool.rate_limited"]);
    let flaky = flaky(ErrorKind::Upstream, 1);
    let other = ToolCall::new("other").with_replay_safety(safe().replay_safety());
    assert_eq!(run(&layer, &flaky, other).await, Ok("done"));
}

/// Without the layer that would refuse them, the retry layer waits as ever.
#[tokio::test(start_paused = true)]
async fn who_would_fail_fast_and_is_off_leaves_limits_to_the_retry_layer() {
    let layer = stack(&changed(|s| {
        s.rate_limit.enabled = false;
        s.rate_limit.fail_fast = true;
    }));
    let tool = flaky(ErrorKind::RateLimited, 1);
    assert_eq!(run(&layer, &tool, call()).await, Ok("done"));
}

/// T5: the reserve is kept of a deadline that a call brings along.
#[tokio::test(start_paused = true)]
async fn a_call_whose_reserve_is_all_that_is_left_is_not_started() {
    let settings = |reserve| changed(|s: &mut Settings| s.deadline.reserve = secs(reserve));
    for (reserve, done) in [(1, true), (3, false)] {
        let call = call().with_deadline(Instant::now() + secs(2));
        let tool = flaky(ErrorKind::Upstream, 0);
        let result = run(&stack(&settings(reserve)), &tool, call).await;
        assert_eq!(result.is_ok(), done);
    }
}
