//! What was asked for: C1 to C5, C9 and C10.

use std::time::Duration;

use tokio::time::advance;
use tokio_test::{assert_ready_err, assert_ready_ok};
use tower::{Layer, ServiceExt};
use tower_toolcall::{
    Classify, ErrorKind, Event, Execution, Key, Keys, Outcome, ToolCall, ToolError,
    circuit_breaker::{BreakerState, CircuitBreakerBuilder, CircuitBreakerLayer, Trip},
    outcome::{ByError, Count},
};

use super::{Events, Rig, Step, Tool, default_rig, fails, kind, ok, secs, tool};
use crate::kit::call;

/// Opens the breaker of a call's key.
async fn opens(rig: &Rig, call: ToolCall) {
    rig.tool.set_then(fails());
    for _ in 0..5 {
        assert_eq!(kind(rig.send(call.clone()).await), ErrorKind::Upstream);
    }
    rig.tool.set_then(ok());
    assert_eq!(kind(rig.send(call).await), ErrorKind::CircuitOpen);
}

/// C1: one bad tool never affects another, be it of the same server or of the same name.
#[tokio::test(start_paused = true)]
async fn one_bad_tool_never_affects_another() {
    let rig = default_rig();
    opens(&rig, tool("bad")).await;
    rig.send(tool("good")).await.unwrap();
    rig.send(ToolCall::new("bad")).await.unwrap();
    rig.send(ToolCall::new("bad").with_server("other"))
        .await
        .unwrap();
    assert_eq!(rig.handle.len(), 4);
}

/// C1: however long and alike their names are.
#[tokio::test(start_paused = true)]
async fn tools_with_long_names_do_not_share_a_breaker() {
    let rig = default_rig();
    let long = |end: &str| tool(&("n".repeat(1000) + end));
    opens(&rig, long("a")).await;
    rig.send(long("b")).await.unwrap();
    rig.send(long("")).await.unwrap();
    assert_eq!(rig.handle.len(), 3);
}

/// C1: a server's name and a tool's are two things, wherever the one ends.
#[tokio::test(start_paused = true)]
async fn the_parts_of_a_key_are_not_run_together() {
    let rig = default_rig();
    opens(&rig, ToolCall::new("bc").with_server("a")).await;
    rig.send(ToolCall::new("c").with_server("ab"))
        .await
        .unwrap();
    rig.send(ToolCall::new("abc")).await.unwrap();
}

/// C1: a breaker per server (system E).
#[tokio::test(start_paused = true)]
async fn a_server_key_stops_every_tool_of_the_server() {
    let rig = Rig::new(CircuitBreakerLayer::builder().with_keys(Key::Server));
    opens(&rig, tool("bad")).await;
    assert_eq!(kind(rig.send(tool("good")).await), ErrorKind::CircuitOpen);
    rig.send(ToolCall::new("bad").with_server("other"))
        .await
        .unwrap();
    rig.send(ToolCall::new("bad")).await.unwrap();
}

/// C1, E.1.4: calls without a server.
#[tokio::test(start_paused = true)]
async fn a_server_key_stops_one_tool_where_there_is_no_server() {
    let rig = Rig::new(CircuitBreakerLayer::builder().with_keys(Key::Server));
    opens(&rig, ToolCall::new("bad")).await;
    let refused = rig.send(ToolCall::new("bad")).await;
    assert_eq!(kind(refused), ErrorKind::CircuitOpen);
    rig.send(ToolCall::new("good")).await.unwrap();
    let breaker = rig.handle.breaker(&ToolCall::new("bad"));
    assert_eq!((breaker.server(), breaker.tool()), (None, Some("bad")));
}

/// C1: a breaker per tool name, where that is unique (system D).
#[tokio::test(start_paused = true)]
async fn a_tool_name_key_does_not_look_at_the_server() {
    let rig = Rig::new(CircuitBreakerLayer::builder().with_keys(Key::ToolName));
    opens(&rig, tool("bad")).await;
    let elsewhere = ToolCall::new("bad").with_server("other");
    assert_eq!(kind(rig.send(elsewhere).await), ErrorKind::CircuitOpen);
    rig.send(tool("good")).await.unwrap();
}

/// C1: a breaker per whatever the user wants.
#[tokio::test(start_paused = true)]
async fn an_own_function_picks_the_key() {
    let per_agent = Key::by(|call| call.agent_id().unwrap_or("nobody"));
    let rig = Rig::new(CircuitBreakerLayer::builder().with_keys(per_agent));
    opens(&rig, tool("a").with_agent_id("anna")).await;
    let same = rig.send(tool("b").with_agent_id("anna")).await;
    assert_eq!(kind(same), ErrorKind::CircuitOpen);
    rig.send(tool("a").with_agent_id("bert")).await.unwrap();
    rig.send(tool("a")).await.unwrap();
}

/// C2: 5 failures in a row open the breaker, however slowly they come.
#[tokio::test(start_paused = true)]
async fn five_failures_in_a_row_open_the_breaker_however_slowly_they_come() {
    let rig = default_rig();
    for n in 1..=5 {
        assert_eq!(rig.breaker().state(), BreakerState::Closed);
        rig.fails(1).await;
        assert_eq!(rig.breaker().snapshot().failures, n);
        if n < 5 {
            advance(secs(24 * 3600)).await;
        }
    }
    assert_eq!(rig.breaker().state(), BreakerState::Open);
    assert!(!rig.reaches(ok()).await);
}

/// C2: a success in between resets the count.
#[tokio::test(start_paused = true)]
async fn a_success_resets_the_run_of_failures() {
    let rig = default_rig();
    for _ in 0..10 {
        rig.fails(4).await;
        rig.ask(ok()).await.unwrap();
        assert_eq!(rig.breaker().snapshot().failures, 0);
    }
    assert_eq!(rig.breaker().state(), BreakerState::Closed);
}

/// C3: open for 60 s, and closed by 1 successful probe.
#[tokio::test(start_paused = true)]
async fn the_default_is_open_for_a_minute_and_closes_after_one_probe() {
    let rig = default_rig();
    rig.fails(5).await;
    advance(Duration::from_millis(59_999)).await;
    assert!(!rig.reaches(ok()).await);
    advance(Duration::from_millis(1)).await;
    assert!(rig.reaches(ok()).await);
    assert_eq!(rig.breaker().state(), BreakerState::Closed);
}

/// C3: one failed probe reopens the breaker for another whole period.
#[tokio::test(start_paused = true)]
async fn one_failed_probe_reopens_the_breaker() {
    let rig = default_rig();
    rig.half_opens().await;
    for _ in 0..3 {
        rig.fails(1).await;
        assert_eq!(rig.breaker().snapshot().retry_after, Some(secs(60)));
        advance(secs(59)).await;
        assert!(!rig.reaches(ok()).await);
        advance(secs(1)).await;
    }
    assert_eq!(rig.breaker().snapshot().opened_total, 4);
}

/// C3: while the probe runs, other calls are rejected.
#[tokio::test(start_paused = true)]
async fn other_calls_are_rejected_while_the_probe_runs() {
    let rig = default_rig();
    rig.half_opens().await;
    let mut probe = rig.starts(ok().after(secs(10)), call());
    assert_eq!(rig.breaker().state(), BreakerState::HalfOpen);
    for _ in 0..10 {
        assert_eq!(kind(rig.ask(fails()).await), ErrorKind::CircuitOpen);
    }
    advance(secs(10)).await;
    assert_ready_ok!(probe.poll());
    rig.ask(ok()).await.unwrap();
}

/// C3: system E's breaker is open for 30 s, admits 3 probes and closes after 3 successes.
#[tokio::test(start_paused = true)]
async fn the_preset_of_a_http_proxy_needs_three_successful_probes() {
    let rig = Rig::new(
        CircuitBreakerLayer::builder()
            .with_keys(Key::Server)
            .with_open_for(secs(30))
            .with_probes(3),
    );
    rig.fails(5).await;
    assert_eq!(rig.breaker().snapshot().retry_after, Some(secs(30)));
    advance(secs(30)).await;
    let act = ok().after(secs(1));
    let mut probes = [(); 3].map(|()| rig.starts(act.clone(), call()));
    assert!(!rig.reaches(act).await);
    advance(secs(1)).await;
    for (n, probe) in probes.iter_mut().enumerate() {
        assert_eq!(rig.breaker().state(), BreakerState::HalfOpen, "{n}");
        assert_ready_ok!(probe.poll());
    }
    assert_eq!(rig.breaker().state(), BreakerState::Closed);
    // The key is the server.
    let breaker = rig.breaker();
    assert_eq!((breaker.server(), breaker.tool()), (Some("docs"), None));
}

/// C3: of several probes one failure is enough, and the others decide nothing any more.
#[tokio::test(start_paused = true)]
async fn one_failure_of_several_probes_reopens_the_breaker() {
    let rig = Rig::new(CircuitBreakerLayer::builder().with_probes(3));
    rig.half_opens().await;
    let mut good = rig.starts(ok().after(secs(1)), call());
    let mut late = rig.starts(ok().after(secs(1)), call());
    rig.fails(1).await;
    assert_eq!(rig.breaker().state(), BreakerState::Open);
    advance(secs(1)).await;
    assert_ready_ok!(good.poll());
    assert_ready_ok!(late.poll());
    assert_eq!(rig.breaker().state(), BreakerState::Open);
    assert_eq!(rig.breaker().snapshot().retry_after, Some(secs(59)));
}

/// C3: no more probes are started than are needed to close.
#[tokio::test(start_paused = true)]
async fn successes_and_running_probes_together_are_as_many_as_are_needed() {
    let rig = Rig::new(CircuitBreakerLayer::builder().with_probes(3));
    rig.half_opens().await;
    rig.ask(ok()).await.unwrap();
    let _running = [rig.hangs(), rig.hangs()];
    assert!(!rig.reaches(ok()).await);
}

/// C3: fewer probes at a time than successes needed: they come one after the other.
#[tokio::test(start_paused = true)]
async fn probes_one_at_a_time_can_close_after_several_successes() {
    let rig = Rig::new(CircuitBreakerLayer::builder().with_successes(3));
    rig.half_opens().await;
    for _ in 0..2 {
        rig.ask(ok()).await.unwrap();
        assert_eq!(rig.breaker().state(), BreakerState::HalfOpen);
    }
    let running = rig.hangs();
    assert!(!rig.reaches(ok()).await);
    drop(running);
    rig.ask(ok()).await.unwrap();
    assert_eq!(rig.breaker().state(), BreakerState::Closed);
}

/// C3: the open period can grow with each failed probe, up to a maximum, and is short again after
/// recovery.
#[tokio::test(start_paused = true)]
async fn the_open_period_grows_with_failed_probes() {
    let rig = Rig::new(CircuitBreakerLayer::builder().with_growth(2.0, secs(200)));
    rig.fails(5).await;
    for period in [60, 120, 200, 200] {
        assert_eq!(rig.breaker().snapshot().retry_after, Some(secs(period)));
        advance(secs(period)).await;
        rig.fails(1).await;
    }
    advance(secs(200)).await;
    rig.ask(ok()).await.unwrap();
    rig.fails(5).await;
    assert_eq!(rig.breaker().snapshot().retry_after, Some(secs(60)));
}

/// A rejection as C4 wants it.
#[track_caller]
fn is_a_rejection(error: &ToolError, retry_after: Option<Duration>) {
    assert_eq!(error.kind(), ErrorKind::CircuitOpen);
    assert_eq!(error.message(), "Circuit breaker open");
    assert_eq!(error.code(), "CIRCUIT_OPEN");
    assert_eq!(error.execution(), Execution::NotStarted);
    assert_eq!(
        (error.tool(), error.server(), error.call_id()),
        (Some("search"), Some("docs"), Some("c1"))
    );
    assert!(error.retry_after().is_some_and(|d| d > Duration::ZERO));
    assert!(error.retry_after_seconds().is_some_and(|s| s >= 1));
    if retry_after.is_some() {
        assert_eq!(error.retry_after(), retry_after);
    }
}

/// C4: a rejection by an open breaker says everything, and when to come back.
#[tokio::test(start_paused = true)]
async fn a_rejection_says_what_and_when() {
    let rig = default_rig();
    rig.fails(5).await;
    advance(secs(13)).await;
    let error = rig.ask(ok()).await.unwrap_err();
    is_a_rejection(&error, Some(secs(47)));
    assert_eq!(error.to_json_rpc()["code"], -32001);
    assert_eq!(error.to_json_rpc()["message"], "Circuit breaker open");
    assert_eq!(error.to_json_rpc()["data"]["retry_after_seconds"], 47);
}

/// C4: at the last moment of the period too there is time left to wait.
#[tokio::test(start_paused = true)]
async fn a_rejection_in_the_last_millisecond_has_a_delay() {
    let rig = default_rig();
    rig.fails(5).await;
    advance(Duration::from_millis(59_999)).await;
    let error = rig.ask(ok()).await.unwrap_err();
    is_a_rejection(&error, Some(Duration::from_millis(1)));
}

/// C4: so is a rejection by a half-open breaker that is full.
#[tokio::test(start_paused = true)]
async fn a_rejection_by_a_full_half_open_breaker_has_a_delay() {
    let rig = default_rig();
    rig.half_opens().await;
    let _probe = rig.hangs();
    is_a_rejection(&rig.ask(ok()).await.unwrap_err(), None);
    assert!(rig.breaker().snapshot().retry_after.is_some());
}

/// C4: and one by a breaker that somebody has forced open.
#[tokio::test(start_paused = true)]
async fn a_rejection_by_a_forced_breaker_has_a_delay() {
    let rig = default_rig();
    rig.breaker().force_open();
    is_a_rejection(&rig.ask(ok()).await.unwrap_err(), None);
    advance(secs(1_000_000)).await;
    is_a_rejection(&rig.ask(ok()).await.unwrap_err(), None);
}

/// C4: and one that a breaker driven by hand gives; it knows the key, not the call.
#[tokio::test(start_paused = true)]
async fn a_rejection_by_hand_is_the_same() {
    let rig = default_rig();
    rig.breaker().force_open();
    let error = rig.breaker().admit().unwrap_err();
    assert_eq!(error.message(), "Circuit breaker open");
    assert_eq!(
        (error.tool(), error.server()),
        (Some("search"), Some("docs"))
    );
    assert!(error.retry_after().is_some());
}

/// C4: rejections are counted, apart from failures, and change nothing.
#[tokio::test(start_paused = true)]
async fn rejections_are_counted_apart() {
    let rig = default_rig();
    rig.fails(5).await;
    let before = rig.breaker().snapshot();
    for _ in 0..7 {
        rig.ask(fails()).await.unwrap_err();
    }
    let after = rig.breaker().snapshot();
    assert_eq!((after.rejected_total, after.failed_total), (7, 5));
    assert_eq!(
        (after.calls, after.failures),
        (before.calls, before.failures)
    );
    assert_eq!(after.retry_after, before.retry_after);
}

/// Whether five such errors open the breaker.
async fn counts(builder: CircuitBreakerBuilder, kind: ErrorKind) -> bool {
    let rig = Rig::new(builder);
    for _ in 0..5 {
        rig.ask(Step::fail(kind)).await.unwrap_err();
    }
    let after = rig.breaker().snapshot();
    assert_eq!(
        after.failed_total,
        if after.state == BreakerState::Open {
            5
        } else {
            0
        }
    );
    after.state == BreakerState::Open
}

/// C5: timeouts, transport errors, 5xx, panics, and what nobody can classify count; mistakes of the
/// caller, rate limits, cancellations, slow jobs and what never ran do not.
#[tokio::test(start_paused = true)]
async fn what_counts_is_what_tells_of_the_tool() {
    use ErrorKind::*;
    let expected = [
        Timeout,
        ConnectionFailed,
        Upstream,
        Failed,
        Panicked,
        Internal,
    ];
    for &kind in ErrorKind::ALL {
        let counted = counts(CircuitBreakerLayer::builder(), kind).await;
        assert_eq!(counted, expected.contains(&kind), "{kind:?}");
    }
}

/// C5: for a whole server's breaker, what nobody can classify tells of the tool alone.
#[tokio::test(start_paused = true)]
async fn for_a_server_an_unclassified_error_does_not_count() {
    use ErrorKind::*;
    let expected = [Timeout, ConnectionFailed, Upstream, Panicked, Internal];
    for &kind in ErrorKind::ALL {
        let builder = CircuitBreakerLayer::builder().with_keys(Key::Server);
        let counted = counts(builder, kind).await;
        assert_eq!(counted, expected.contains(&kind), "{kind:?}");
    }
}

/// C5: errors in the tool's own words count if that is asked for.
#[tokio::test(start_paused = true)]
async fn reported_errors_count_if_that_is_asked_for() {
    let with = |count| CircuitBreakerLayer::builder().with_reported_failures(count);
    assert!(counts(with(true), ErrorKind::Reported).await);
    assert!(!counts(with(false), ErrorKind::Reported).await);
    assert!(!counts(with(true), ErrorKind::InvalidInput).await);
    assert!(!counts(CircuitBreakerLayer::builder(), ErrorKind::Reported).await);
}

/// C5: so do answers that a classifier flags, although the stack sees an `Ok`.
#[tokio::test(start_paused = true)]
async fn flagged_answers_count_if_that_is_asked_for() {
    for (asked, state) in [(true, BreakerState::Open), (false, BreakerState::Closed)] {
        let layer = CircuitBreakerLayer::builder()
            .with_reported_failures(asked)
            .classify_fn(|_: Result<&&'static str, &ToolError>| Outcome::reported())
            .build()
            .unwrap();
        let svc = layer.layer(Tool::always(ok()));
        for _ in 0..5 {
            svc.clone().oneshot(call()).await.unwrap();
        }
        assert_eq!(layer.handle().breaker(&call()).state(), state);
    }
}

/// V6: a caller's mistake does not, even if reported errors count.
#[tokio::test(start_paused = true)]
async fn mistakes_of_callers_never_count() {
    let layer = CircuitBreakerLayer::builder()
        .with_reported_failures(true)
        .classify_fn(|_: Result<&&'static str, &ToolError>| Outcome::mistake())
        .build()
        .unwrap();
    let svc = layer.layer(Tool::always(ok()));
    for _ in 0..20 {
        svc.clone().oneshot(call()).await.unwrap();
    }
    let seen = layer.handle().breaker(&call()).snapshot();
    assert_eq!((seen.state, seen.failed_total), (BreakerState::Closed, 0));
}

/// C5: what counts is the classifier's verdict, whatever the result is.
#[tokio::test(start_paused = true)]
async fn the_classifier_decides_what_counts() {
    let layer = CircuitBreakerLayer::builder()
        .classify_fn(|result: Result<&&'static str, &ToolError>| match result {
            Ok(_) => Outcome::failure(),
            Err(_) => Outcome::success(),
        })
        .build()
        .unwrap();
    let tool = Tool::always(fails());
    let svc = layer.layer(tool.clone());
    for _ in 0..10 {
        svc.clone().oneshot(call()).await.unwrap_err();
    }
    tool.set_then(ok());
    for _ in 0..5 {
        svc.clone().oneshot(call()).await.unwrap();
    }
    assert_eq!(kind(svc.oneshot(call()).await), ErrorKind::CircuitOpen);
}

/// C5: a breaker per server outside, one per tool inside: each counts what tells of its own.
#[tokio::test(start_paused = true)]
async fn a_server_breaker_works_outside_a_tool_breaker() {
    let server = CircuitBreakerLayer::builder()
        .with_keys(Key::Server)
        .with_trip(Trip::consecutive_failures(10))
        .build()
        .unwrap();
    let tools = CircuitBreakerLayer::new();
    let backend = Tool::always(Step::fail(ErrorKind::Failed));
    let stack = server.layer(tools.layer(backend.clone()));
    let send = |name: &str| stack.clone().oneshot(tool(name));

    for _ in 0..20 {
        let _ = send("a").await;
    }
    // The tool is stopped, its server is not.
    assert!(tools.handle().breaker(&tool("a")).is_open());
    assert!(!server.handle().breaker(&tool("a")).is_open());
    // Two more tools lose their transport: now it is the server.
    backend.set_then(Step::fail(ErrorKind::ConnectionFailed));
    for name in ["b", "c"] {
        for _ in 0..5 {
            assert_eq!(kind(send(name).await), ErrorKind::ConnectionFailed);
        }
    }
    let before = backend.count();
    assert_eq!(kind(send("d").await), ErrorKind::CircuitOpen);
    assert_eq!(backend.count(), before);
    assert_eq!(
        tools.handle().breaker(&tool("d")).snapshot().rejected_total,
        0
    );
}

/// C9: invented names do not grow the map, and an open breaker is never the one forgotten.
#[tokio::test(start_paused = true)]
async fn invented_names_neither_grow_the_map_nor_push_out_an_open_breaker() {
    let heard = Events::pick(|event| match event {
        Event::Transition { .. } => Some((1, 0)),
        Event::Evicted { keys, kept, .. } => {
            assert!(*kept <= 100);
            Some((0, *keys))
        }
        _ => None,
    });
    let builder = CircuitBreakerLayer::builder()
        .with_keys(Keys::default().at_most(100))
        .with_listener(heard.clone());
    let rig = Rig::new(builder);
    opens(&rig, tool("bad")).await;
    rig.handle.breaker(&tool("stopped by hand")).force_open();
    rig.tool.set_then(ok());
    for n in 0..10_000 {
        rig.send(tool(&format!("invented {n}"))).await.unwrap();
        assert!(rig.handle.len() <= 100);
    }
    for name in ["bad", "stopped by hand"] {
        assert_eq!(kind(rig.send(tool(name)).await), ErrorKind::CircuitOpen);
    }
    let heard = heard.take();
    let evicted: usize = heard.iter().map(|(_, keys)| keys).sum();
    assert!(evicted >= 9_000, "{evicted}");
    assert_eq!(heard.iter().map(|(opened, _)| opened).sum::<i32>(), 2);
}

/// C9: a half-open breaker is not forgotten either: it would be closed without a probe.
#[tokio::test(start_paused = true)]
async fn invented_names_do_not_push_out_a_half_open_breaker() {
    let rig = Rig::new(CircuitBreakerLayer::builder().with_keys(Keys::default().at_most(100)));
    rig.half_opens().await;
    let _probe = rig.hangs();
    rig.tool.set_then(ok());
    for n in 0..1_000 {
        rig.send(tool(&format!("invented {n}"))).await.unwrap();
    }
    assert!(!rig.reaches(ok()).await);
}

/// A rig whose map is full of open breakers.
async fn full() -> Rig {
    let bad = (0..10).map(|n| tool(&format!("bad {n}")));
    let keys = Keys::default().at_most(10).known_calls(bad.clone());
    let rig = Rig::new(CircuitBreakerLayer::builder().with_keys(keys));
    for tool in bad {
        opens(&rig, tool).await;
    }
    rig
}

/// C9: if there is no place left, calls of unknown keys pass, and do not stop each other.
#[tokio::test(start_paused = true)]
async fn calls_of_unknown_keys_pass_when_all_breakers_are_open() {
    let rig = full().await;
    rig.tool.set_then(fails());
    for _ in 0..20 {
        assert_eq!(kind(rig.send(tool("new")).await), ErrorKind::Upstream);
    }
    rig.tool.set_then(ok());
    rig.send(tool("other")).await.unwrap();
    assert_eq!(rig.handle.len(), 10);
    for n in 0..10 {
        let known = rig.send(tool(&format!("bad {n}"))).await;
        assert_eq!(kind(known), ErrorKind::CircuitOpen);
    }
}

/// C1, C9: to force one of the unknown keys open stops none of the others.
#[tokio::test(start_paused = true)]
async fn forcing_an_unknown_key_open_does_not_stop_the_others() {
    let rig = full().await;
    rig.handle.breaker(&tool("new")).force_open();
    rig.send(tool("other")).await.unwrap();
}

/// C1, C9: nor does a reset of one make them share a breaker.
#[tokio::test(start_paused = true)]
async fn resetting_an_unknown_key_does_not_make_the_others_share_a_breaker() {
    let rig = full().await;
    rig.handle.breaker(&tool("new")).reset();
    rig.tool.set_then(fails());
    for _ in 0..20 {
        let _ = rig.send(tool("new")).await;
    }
    rig.tool.set_then(ok());
    rig.send(tool("other")).await.unwrap();
}

/// C9: a key with a call in flight is not forgotten, so that the call's failure counts.
#[tokio::test(start_paused = true)]
async fn a_key_with_a_call_in_flight_is_kept() {
    let rig = Rig::new(CircuitBreakerLayer::builder().with_keys(Keys::default().at_most(10)));
    let act = Step::fail(ErrorKind::Upstream).after(secs(1));
    let mut calls = [(); 5].map(|()| rig.starts(act.clone(), call()));
    rig.tool.set_then(ok());
    for n in 0..1_000 {
        rig.send(tool(&format!("invented {n}"))).await.unwrap();
    }
    advance(secs(1)).await;
    for running in &mut calls {
        assert_ready_err!(running.poll());
    }
    assert_eq!(rig.breaker().state(), BreakerState::Open);
}

/// C10, C3: whatever becomes of its probes, a breaker is never stuck: when the tool works again, it
/// closes.
#[tokio::test(start_paused = true)]
async fn a_breaker_always_recovers() {
    let rig = Rig::new(CircuitBreakerLayer::builder().with_probes(2));
    rig.half_opens().await;
    let mut random = 7_u32;
    let mut kept = Vec::new();
    for _ in 0..500 {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        rig.tool.set_then(match random >> 29 {
            0 => ok(),
            1 => fails(),
            2 => Step::fail(ErrorKind::RateLimited),
            3 => ok().after(secs(50)),
            4 => Step::fail(ErrorKind::Timeout).after(secs(200)),
            _ => Step::hang(),
        });
        let mut running = tokio_test::task::spawn(rig.svc.clone().oneshot(call()));
        if running.poll().is_pending() && random & 0x100 == 0 {
            kept.push(running);
        }
        kept.retain_mut(|running| running.poll().is_pending());
        if kept.len() > 20 {
            drop(kept.remove(random as usize % 20));
        }
        advance(secs(u64::from(random >> 16) % 40)).await;
        assert!(rig.breaker().snapshot().probes <= 2);
    }
    // The tool works again; what hangs, hangs for ever.
    rig.tool.set_then(ok());
    for _ in 0..10 {
        advance(secs(120)).await;
        let _ = rig.send(call()).await;
    }
    assert_eq!(rig.breaker().state(), BreakerState::Closed);
    std::mem::forget(kept);
}

/// C2, C9: a dead tool that is called now and then is stopped, whatever names are invented in
/// between.
#[tokio::test(start_paused = true)]
async fn invented_names_do_not_make_a_breaker_forget_failures() {
    let layer = CircuitBreakerLayer::builder()
        .with_keys(Keys::default().at_most(100))
        .build()
        .unwrap();
    let handle = layer.handle();
    for n in 1..=5 {
        let opened = handle.breaker(&call()).record_failure();
        assert_eq!(opened, n == 5);
        for i in 0..300 {
            handle
                .breaker(&ToolCall::new(format!("invented-{n}-{i}")))
                .record_success();
        }
    }
}

/// C9: a tool that nobody has called for an hour after its open period may be forgotten, so that
/// old trouble does not fill the registry for ever.
#[tokio::test(start_paused = true)]
async fn breakers_that_have_been_open_for_long_make_room_in_the_end() {
    let layer = CircuitBreakerLayer::builder()
        .with_keys(Keys::default().at_most(100))
        .build()
        .unwrap();
    let handle = layer.handle();
    let open = |name: String| {
        let breaker = handle.breaker(&ToolCall::new(name));
        (0..5).any(|_| breaker.record_failure())
    };
    assert!((0..100).all(|i| open(format!("old-{i}"))));
    assert!(!open("new".into()));
    advance(secs(3600)).await;
    assert!(!open("new".into()));
    advance(secs(60)).await;
    assert!(open("new".into()));
}

/// C5, trap 5: with a key of one's own an error that nobody can classify counts only if a
/// classifier says so.
#[tokio::test(start_paused = true)]
async fn unclassified_errors_count_for_an_own_key_only_if_a_classifier_says_so() {
    for count in [Count::ToolFailure, Count::Failure] {
        let layer = CircuitBreakerLayer::builder()
            .with_keys(Key::by(|call| call.server().unwrap_or("")))
            .classify_fn(move |result: Result<&(), &ToolError>| {
                ByError.classify(result).with_count(count)
            })
            .build()
            .unwrap();
        let tool = tower::service_fn(|_: ToolCall| async {
            Err::<(), tower_toolcall::BoxError>("odd".into())
        });
        let error = layer.layer(tool).oneshot(call()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Failed);
        let seen = layer.handle().breaker(&call()).snapshot();
        assert_eq!(seen.failed_total == 1, count == Count::Failure, "{count:?}");
    }
}

/// C6: whoever forces a breaker open sees how many failures it had counted.
#[tokio::test(start_paused = true)]
async fn a_breaker_that_is_forced_open_keeps_its_counts() {
    let breaker = CircuitBreakerLayer::new().handle().breaker(&call());
    (0..3).for_each(|_| assert!(!breaker.record_failure()));
    breaker.force_open();
    assert_eq!(breaker.snapshot().failures, 3);
}

/// C7: results of calls that were in flight at a reset do not count, from whatever state.
#[tokio::test(start_paused = true)]
async fn a_reset_makes_calls_in_flight_stale() {
    let breaker = CircuitBreakerLayer::new().handle().breaker(&call());
    let permits: Vec<_> = (0..5).map(|_| breaker.admit().unwrap()).collect();
    breaker.reset();
    assert!(permits.into_iter().all(|permit| !permit.failure()));
    let seen = breaker.snapshot();
    assert_eq!((seen.failures, seen.stale_total), (0, 5));
}

/// C9: asking for a breaker does not make one.
#[tokio::test(start_paused = true)]
async fn a_look_makes_no_breaker() {
    let handle = CircuitBreakerLayer::new().handle();
    assert!(handle.find(&call()).is_none());
    assert!(handle.is_empty());
    handle.breaker(&call()).force_open();
    assert!(handle.find(&call()).unwrap().is_open());
}
