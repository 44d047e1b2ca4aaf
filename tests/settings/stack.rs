//! The stack that is built (G2).

use std::convert::Infallible;

use expect_test::expect;
use serde_json::json;
use static_assertions::assert_impl_all;
use tokio::time::{Instant, advance, sleep};
use tower::{Layer, ServiceBuilder, ServiceExt, service_fn, util::BoxCloneSyncService};
use tower_toolcall::{
    BoxError, ErrorKind, ToolCall, ToolError,
    outcome::ByError,
    policy::Approval,
    settings::{KeyBy, Preset, Settings, Stack, StackBuilder, StackLayer},
};
use tower_toolcall_test::{Events, Script, Step};

use crate::kit::{call, changed, flaky, run, safe, secs, stack};

type Svc = BoxCloneSyncService<ToolCall, (), ToolError>;

assert_impl_all!(Settings: Send, Sync, Unpin, Clone);
assert_impl_all!(Preset: Send, Sync, Copy);
assert_impl_all!(StackBuilder: Send, Sync, Clone);
assert_impl_all!(StackLayer<ByError>: Send, Sync, Unpin, Clone);
assert_impl_all!(Stack<Svc>: Send, Sync, Unpin, Clone);

#[tokio::test]
async fn around_a_function_that_cannot_fail() {
    let tool = service_fn(|_: ToolCall| async { Ok::<_, Infallible>(7) });
    assert_eq!(
        stack(&Settings::default())
            .layer(tool)
            .oneshot(call())
            .await
            .unwrap(),
        7
    );
}

#[tokio::test]
async fn boxed_around_a_boxed_one_and_in_another_task() {
    let tool = service_fn(|_: ToolCall| async { Ok::<_, BoxError>(7) });
    let boxed: BoxCloneSyncService<ToolCall, i32, ToolError> =
        BoxCloneSyncService::new(stack(&Settings::default()).layer(tool));
    let tools = ServiceBuilder::new()
        .layer(stack(&Settings::gateway()))
        .service(boxed);
    let task = tokio::spawn(tools.oneshot(call()));
    assert_eq!(task.await.unwrap().unwrap(), 7);
}

/// Trap 25.
#[tokio::test(start_paused = true)]
async fn services_of_one_layer_value_share_their_breakers() {
    let layer = stack(&Settings::default());
    let tool = flaky(ErrorKind::Upstream, 5);
    for _ in 0..5 {
        let _ = run(&layer.clone(), &tool, call()).await;
    }
    assert_eq!(
        run(&layer, &tool, call()).await,
        Err(ErrorKind::CircuitOpen)
    );
    assert_eq!(
        run(&stack(&Settings::default()), &tool, call()).await,
        Ok("done")
    );
}

/// L3: and their gates.
#[tokio::test(start_paused = true)]
async fn services_of_one_layer_value_share_their_cooldowns() {
    let layer = stack(&changed(|s| {
        s.retry.enabled = false;
        s.rate_limit.fail_fast = true;
    }));
    let tool = flaky(ErrorKind::RateLimited, 1);
    for _ in 0..2 {
        assert_eq!(
            run(&layer.clone(), &tool, call()).await,
            Err(ErrorKind::RateLimited)
        );
    }
    assert_eq!(tool.count(), 1);
}

/// C7.
#[tokio::test]
async fn the_handle_forces_the_breakers_of_the_stack() {
    let layer = stack(&Settings::default());
    layer.circuit_breaker().breaker(&call()).force_open();
    let tool = flaky(ErrorKind::Upstream, 0);
    assert_eq!(
        run(&layer, &tool, call()).await,
        Err(ErrorKind::CircuitOpen)
    );
}

/// T5: the deadline is above all that waits.
#[tokio::test(start_paused = true)]
async fn the_budget_bounds_all_attempts_together() {
    let layer = stack(&changed(|s| {
        s.timeout.default = secs(4);
        s.deadline.budget = Some(secs(7));
        s.rate_limit.default_cooldown = secs(1);
    }));
    let tool = service_fn(|_: ToolCall| std::future::pending::<Result<(), BoxError>>());
    let start = Instant::now();
    let error = layer.layer(tool).oneshot(safe()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert_eq!(start.elapsed(), secs(7));
}

/// The breaker is below the retry layer: it sees each attempt.
#[tokio::test(start_paused = true)]
async fn every_attempt_counts_for_the_breaker() {
    let layer = stack(&changed(|s| s.circuit_breaker.threshold = 3));
    let tool = flaky(ErrorKind::Upstream, 3);
    assert_eq!(run(&layer, &tool, safe()).await, Err(ErrorKind::Upstream));
    assert_eq!(
        run(&layer, &tool, safe()).await,
        Err(ErrorKind::CircuitOpen)
    );
    assert_eq!(tool.count(), 3);
}

/// The timeout is below the breaker, which sees it as an error.
#[tokio::test(start_paused = true)]
async fn timeouts_open_the_breaker() {
    let layer = stack(&Settings::default());
    let tool = service_fn(|_: ToolCall| std::future::pending::<Result<(), BoxError>>());
    let mut kinds = Vec::new();
    for _ in 0..6 {
        let error = layer.layer(tool).oneshot(call()).await.unwrap_err();
        kinds.push(error.kind());
    }
    assert_eq!(kinds[..5], [ErrorKind::Timeout; 5]);
    assert_eq!(kinds[5], ErrorKind::CircuitOpen);
}

/// C5: the rate limit is above the breaker: a probe that meets a limit gives its place back while
/// it waits.
#[tokio::test(start_paused = true)]
async fn a_wait_for_a_cooldown_holds_no_probes_place() {
    let layer = stack(&changed(|s| {
        s.circuit_breaker.threshold = 1;
        s.circuit_breaker.key = KeyBy::Server;
    }));
    let tool = flaky(ErrorKind::Upstream, 1);
    let _ = run(&layer, &tool, call()).await;
    advance(secs(60)).await;

    let limited = flaky(ErrorKind::RateLimited, 1);
    let probe = tokio::spawn(layer.layer(limited).oneshot(call()));
    sleep(secs(1)).await;
    let other = ToolCall::new("other").with_server("docs");
    assert_eq!(run(&layer, &tool, other).await, Ok("done"));
    assert_eq!(probe.await.unwrap().unwrap(), "done");
}

/// Trap 20: innermost is what catches panics, so that they count for the breaker.
#[tokio::test(start_paused = true)]
async fn a_panic_is_an_error_that_the_breaker_sees() {
    let layer = stack(&Settings::default());
    async fn tool(_: ToolCall) -> Result<(), BoxError> {
        panic!("the tool panics")
    }
    for _ in 0..5 {
        let error = layer
            .layer(service_fn(tool))
            .oneshot(call())
            .await
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Panicked);
    }
    let error = layer
        .layer(service_fn(tool))
        .oneshot(call())
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::CircuitOpen);
}

/// S2.
#[tokio::test]
async fn the_rules_are_on_the_call() {
    let layer = stack(&changed(|s| {
        s.sanitize.sensitive_keys = vec!["iban".into()]
    }));
    let tool =
        service_fn(
            |call: ToolCall| async move { Ok::<_, Infallible>(call.sanitized().to_string()) },
        );
    let call = call().with_json(json!({ "iban": "DE02" })).unwrap();
    let shown = layer.layer(tool).oneshot(call).await.unwrap();
    assert_eq!(shown, r#"{"iban":"[REDACTED]"}"#);
}

#[tokio::test(start_paused = true)]
async fn a_policy_of_a_file_stands_between_validation_and_deadline() {
    let settings = changed(|s| {
        s.policy.deny = vec!["rm".into()];
        s.policy.ask = vec!["pay".into()];
        s.policy.allow = vec!["read_*".into()];
        s.policy.deny_by_default = true;
        s.deadline.budget = Some(secs(10));
        s.timeout.default = secs(5);
    });
    let error = settings.stack().build().unwrap_err();
    assert_eq!(error.field(), "policy.ask");

    let approver = service_fn(|approval: Approval| async move {
        tokio::time::sleep(secs(60)).await;
        Ok::<_, Infallible>(approval.approve())
    });
    let layer = settings.stack().with_approver(approver).build().unwrap();
    let tools = layer.layer(service_fn(|_: ToolCall| async { Ok::<_, Infallible>(1) }));
    for (tool, expected) in [
        ("rm", Err(ErrorKind::Denied)),
        ("pay", Ok(1)),
        ("read_file", Ok(1)),
        ("else", Err(ErrorKind::Denied)),
    ] {
        let result = tools.clone().oneshot(ToolCall::new(tool)).await;
        assert_eq!(result.map_err(|e| e.kind()), expected, "{tool}");
    }
}

#[test]
fn a_pattern_of_a_file_that_can_never_decide_is_refused() {
    let settings = changed(|s| {
        s.policy.deny = vec!["fs_*".into()];
        s.policy.allow = vec!["fs_read".into()];
    });
    expect!["invalid `policy.allow`: `allow fs_read` can never decide: `deny fs_*` comes first and covers it"].assert_eq(&settings.check().unwrap_err().to_string());
}

/// T6, R4, C6: everybody who listens hears of each layer.
#[tokio::test(start_paused = true)]
async fn all_listeners_hear_of_all_layers() {
    let events: [Events; 2] = Default::default();
    let mut settings = Settings::agent_loop();
    settings.circuit_breaker.enabled = true;
    settings.circuit_breaker.threshold = 1;
    let builder = settings.stack().with_listener(events[0].clone());
    let builder = builder.with_listener(events[1].clone());
    let layer = builder.build().unwrap();

    // It opens the breaker, is to be repeated, and refused then: the tool's own error is the
    // result.
    let tool = flaky(ErrorKind::Upstream, 1);
    assert_eq!(
        run(
            &layer,
            &tool,
            call().with_replay_safety(safe().replay_safety())
        )
        .await,
        Err(ErrorKind::Upstream)
    );
    events[0].assert(["tool.breaker", "tool.retry"]);

    // Slow, and a rate limit.
    let slow = service_fn(|_: ToolCall| async {
        sleep(secs(29)).await;
        Ok::<_, Infallible>(())
    });
    layer
        .layer(slow)
        .oneshot(ToolCall::new("slow"))
        .await
        .unwrap();
    let limited = flaky(ErrorKind::RateLimited, 1);
    assert_eq!(
        run(&layer, &limited, ToolCall::new("limited")).await,
        Ok("done")
    );
    let told = events[0].take();
    assert!(told.contains(&"tool.slow") && told.contains(&"tool.rate_limited"));
    assert_eq!(told, events[1].take());
}

/// T4: of a call that is dropped unfinished too.
#[tokio::test(start_paused = true)]
async fn a_dropped_call_is_told_to_listeners() {
    let events = Events::new();
    let builder = Settings::default().stack().with_listener(events.clone());
    let tools = builder
        .build()
        .unwrap()
        .layer(Script::<()>::always(Step::hang()));
    let running = tokio::time::timeout(secs(1), tools.oneshot(call()));
    assert!(running.await.is_err());
    events.assert(["tool.cancelled"]);
}

#[tokio::test(start_paused = true)]
async fn metrics_count_calls_and_hear_of_what_happens_below() {
    use tower_toolcall::tool_metrics::Metrics;

    let metrics = Metrics::new();
    let builder = Settings::agent_loop().stack().with_metrics(&metrics);
    let layer = builder
        .with_listener(|_: &tower_toolcall::Event<'_>| {})
        .build()
        .unwrap();
    let tool = flaky(ErrorKind::Upstream, 2);
    assert_eq!(run(&layer, &tool, safe()).await, Ok("done"));
    let total = metrics.snapshot().total;
    assert_eq!(total.calls, 1);
    assert_eq!(total.attempts, 3);
    assert_eq!(total.retries, Some(2));
}

#[test]
fn debug_names_no_argument_and_no_closure() {
    let layer = stack(&Settings::gateway());
    assert!(format!("{layer:?}").starts_with("StackLayer"));
    let builder = Settings::default().stack();
    assert!(format!("{builder:?}").starts_with("StackBuilder"));
}
