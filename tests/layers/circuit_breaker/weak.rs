//! Weak failures: what one caller's arguments may have caused is felt by that caller alone.

use std::{io, time::Duration};

use tokio::time::{Instant, advance, timeout};
use tokio_test::task;
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_toolcall::{
    AnyError, ErrorKind, Event, Execution, Keys, ReplaySafety, ToolCall, ToolError,
    circuit_breaker::{
        BreakerState, CircuitBreakerBuilder, CircuitBreakerLayer, Probe, Rates, TransitionReason,
        WeakFailures,
    },
    timeout::TimeoutLayer,
};
use tower_toolcall_test::{Events, Step};

use super::{Answer, Rig, default_rig, fails, kind, ok, secs, tool};
use crate::kit::call;

/// A failure whose kind is only inferred from a text.
fn boom() -> Step<&'static str> {
    Step::error(ToolError::from_box("boom".into()))
}

fn of(agent: &str) -> ToolCall {
    call().with_agent_id(agent)
}

fn invented(session: usize) -> ToolCall {
    let call = call().with_session_id(format!("s{session}"));
    call.with_unverified_ids()
}

impl Rig {
    /// Makes a call of this agent, and the tool does so.
    async fn ask_as(&self, agent: &str, does: Step<&'static str>) -> Answer {
        self.tool.set_then(does);
        self.send(of(agent)).await
    }

    /// Fails weakly for this agent until it is refused.
    async fn shuts_out(&self, agent: &str) {
        for _ in 0..5 {
            assert_ne!(
                kind(self.ask_as(agent, boom()).await),
                ErrorKind::CircuitOpen
            );
        }
        assert_eq!(kind(self.ask_as(agent, ok()).await), ErrorKind::CircuitOpen);
    }
}

/// S-3, P3: errors that an argument causes. The same caller is refused, another one is not.
#[tokio::test(start_paused = true)]
async fn five_errors_that_an_argument_causes_refuse_the_tool_to_their_caller_alone() {
    type Fails = fn() -> AnyError;
    let errors: [Fails; 7] = [
        || "error sending request for url (http://nowhere.invalid/)".into(),
        || "No such file or directory (os error 2)".into(),
        || "boom".into(),
        || "operation timed out".into(),
        || "503 Service Unavailable".into(),
        || io::Error::from(io::ErrorKind::ConnectionRefused).into(),
        || ToolError::new(ErrorKind::Failed, "no such row").into(),
    ];
    for fails in errors {
        let tool = service_fn(move |call: ToolCall| async move {
            match call.agent_id() {
                Some("bob") => Ok("answer"),
                _ => Err(fails()),
            }
        });
        let svc = CircuitBreakerLayer::new().layer(tool);
        for _ in 0..5 {
            let error = svc.clone().oneshot(of("alice")).await.unwrap_err();
            assert_ne!(error.kind(), ErrorKind::CircuitOpen);
        }
        let refused = svc.clone().oneshot(of("alice")).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::CircuitOpen, "{:?}", fails());
        assert_eq!(refused.retry_after(), Some(secs(60)));
        let details = serde_json::to_value(refused.details()).unwrap();
        assert_eq!(details["refused_for"], "principal");
        assert_eq!(svc.clone().oneshot(of("bob")).await.unwrap(), "answer");
        // Nor to those who do not say who they are.
        let error = svc.oneshot(call()).await.unwrap_err();
        assert_ne!(error.kind(), ErrorKind::CircuitOpen);
    }
}

/// C5: a dead tool is found by what the tool service or our own clock has seen, for all callers.
#[tokio::test(start_paused = true)]
async fn strong_failures_of_one_caller_open_the_breaker_for_all() {
    let statuses = [500, 502, 503, 504].map(|n| http::StatusCode::from_u16(n).unwrap());
    let mut errors: Vec<_> = statuses
        .iter()
        .map(|status| ToolError::from_status(*status, ""))
        .collect();
    errors.push(ToolError::new(ErrorKind::ConnectionFailed, "lost"));
    errors.push(ToolError::new(ErrorKind::Timeout, "late"));
    for error in errors {
        let rig = default_rig();
        for _ in 0..5 {
            let _ = rig.ask_as("alice", Step::error(error.clone())).await;
        }
        assert_eq!(kind(rig.ask_as("bob", ok()).await), ErrorKind::CircuitOpen);
    }
    let hangs = service_fn(|_: ToolCall| std::future::pending::<Result<&str, AnyError>>());
    let layer = CircuitBreakerLayer::new();
    let svc = layer.layer(TimeoutLayer::new(secs(1)).layer(hangs));
    for _ in 0..5 {
        let error = svc.clone().oneshot(of("alice")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout);
    }
    let error = svc.oneshot(of("bob")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::CircuitOpen);
}

#[tokio::test(start_paused = true)]
async fn weak_failures_of_calls_without_a_principal_are_shared() {
    let rig = default_rig();
    for _ in 0..5 {
        let _ = rig.ask(boom()).await;
    }
    assert_eq!(rig.breaker().state(), BreakerState::Open);
    assert_eq!(kind(rig.ask_as("bob", ok()).await), ErrorKind::CircuitOpen);
}

#[tokio::test(start_paused = true)]
async fn weak_failures_are_shared_or_ignored_if_configured() {
    for (setting, refuses) in [
        (WeakFailures::Shared, [true, true]),
        (WeakFailures::PerPrincipal, [true, false]),
        (WeakFailures::Ignored, [false, false]),
    ] {
        let rig = Rig::new(CircuitBreakerLayer::builder().with_weak_failures(setting));
        for _ in 0..5 {
            let _ = rig.ask_as("alice", boom()).await;
        }
        for (agent, refused) in ["alice", "bob"].into_iter().zip(refuses) {
            let answer = rig.ask_as(agent, ok()).await;
            assert_eq!(answer.is_err(), refused, "{setting:?} {agent}");
        }
    }
    let ignored = CircuitBreakerLayer::builder().with_weak_failures(WeakFailures::Ignored);
    let rig = Rig::new(ignored);
    for _ in 0..5 {
        let _ = rig.ask(boom()).await;
    }
    assert_eq!(rig.breaker().state(), BreakerState::Closed);
}

/// An error of the tool that is flagged in its answer is no better known than a text.
#[tokio::test(start_paused = true)]
async fn reported_failures_that_count_are_weak() {
    use tower_toolcall::{Outcome, outcome::classify_fn};

    let layer = CircuitBreakerLayer::builder()
        .with_reported_failures(true)
        .with_classifier(classify_fn(|_: Result<&&str, &ToolError>| {
            Outcome::reported()
        }))
        .build()
        .unwrap();
    let svc = layer.layer(super::Tool::always(ok()));
    for _ in 0..5 {
        svc.clone().oneshot(of("alice")).await.unwrap();
    }
    svc.clone().oneshot(of("alice")).await.unwrap_err();
    svc.oneshot(of("bob")).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_success_of_the_principal_resets_its_failures() {
    let rig = default_rig();
    for _ in 0..4 {
        for _ in 0..4 {
            let _ = rig.ask_as("alice", boom()).await;
        }
        rig.ask_as("alice", ok()).await.unwrap();
    }
}

/// Trap 1: after the period one call of the principal is the probe, and a dropped one gives its
/// place back.
#[tokio::test(start_paused = true)]
async fn a_principal_is_let_in_again_by_a_probe_of_its_own() {
    let rig = default_rig();
    rig.shuts_out("alice").await;
    advance(secs(60)).await;
    let probe = rig.starts(Step::hang(), of("alice"));
    assert_eq!(
        kind(rig.ask_as("alice", ok()).await),
        ErrorKind::CircuitOpen
    );
    drop(probe);
    let _ = rig.ask_as("alice", boom()).await;
    let refused = rig.ask_as("alice", ok()).await.unwrap_err();
    assert_eq!(refused.retry_after(), Some(secs(60)));
    advance(secs(60)).await;
    rig.ask_as("alice", ok()).await.unwrap();
    assert!(rig.breaker().principals().is_empty());
    rig.ask_as("alice", boom()).await.unwrap_err();
    rig.ask_as("alice", ok()).await.unwrap();
}

/// Traps 2 and 22: calls that were in flight when the principal's circuit opened decide nothing
/// later.
#[tokio::test(start_paused = true)]
async fn late_weak_failures_do_not_decide_the_probe_of_the_principal() {
    let rig = default_rig();
    let mut late = task::spawn({
        rig.tool.set_then(boom().after(secs(70)));
        rig.svc.clone().oneshot(of("alice"))
    });
    assert!(late.poll().is_pending());
    rig.shuts_out("alice").await;
    advance(secs(61)).await;
    let mut probe = task::spawn({
        rig.tool.set_then(ok().after(secs(30)));
        rig.svc.clone().oneshot(of("alice"))
    });
    assert!(probe.poll().is_pending());
    advance(secs(10)).await;
    assert!(late.poll().is_ready());
    advance(secs(20)).await;
    assert!(probe.poll().is_ready());
    rig.ask_as("alice", ok()).await.unwrap();
}

/// Traps 2 and 22: nor do they count once the principal is let in again, by its probe or by a
/// reset.
#[tokio::test(start_paused = true)]
async fn late_weak_failures_do_not_open_the_circuit_of_the_principal_again() {
    for is_reset in [false, true] {
        let rig = default_rig();
        let late = (0..5).map(|_| rig.starts(boom().after(secs(70)), of("alice")));
        let late: Vec<_> = late.collect();
        if is_reset {
            rig.breaker().reset();
        } else {
            rig.shuts_out("alice").await;
            advance(secs(60)).await;
            rig.ask_as("alice", ok()).await.unwrap();
        }
        for late in late {
            late.await.unwrap_err();
        }
        rig.ask_as("alice", ok()).await.unwrap();
        rig.shuts_out("alice").await;
    }
}

/// Trap 2: a reset lets a principal in for good. A call of before, or a failure of another
/// principal, does not bring the refusals back.
#[tokio::test(start_paused = true)]
async fn a_weak_failure_after_a_reset_brings_no_refusal_back() {
    let rig = default_rig();
    let late = rig.starts(boom().after(secs(5)), of("alice"));
    rig.shuts_out("alice").await;
    rig.breaker().reset();
    late.await.unwrap_err();
    rig.ask_as("alice", ok()).await.unwrap();
    rig.ask_as("bob", boom()).await.unwrap_err();
    rig.ask_as("alice", ok()).await.unwrap();
    assert!(rig.breaker().principals().is_empty());
}

/// Failures of a principal are forgotten with those of its key, although another principal fails
/// before it does.
#[tokio::test(start_paused = true)]
async fn failures_of_before_an_hour_without_any_do_not_count() {
    let rig = default_rig();
    for _ in 0..4 {
        rig.ask_as("alice", boom()).await.unwrap_err();
    }
    advance(secs(7200)).await;
    rig.ask_as("bob", boom()).await.unwrap_err();
    rig.ask_as("alice", boom()).await.unwrap_err();
    rig.ask_as("alice", ok()).await.unwrap();
}

/// D11: the calls of a principal that is refused wait for the verdict of its own probe.
#[tokio::test(start_paused = true)]
async fn calls_may_wait_for_the_verdict_of_a_probe_of_their_principal() {
    let refused = (ErrorKind::CircuitOpen, 3);
    let late = (ErrorKind::DeadlineExceeded, 2);
    for (probe, deadline, expected) in [
        (Some(ok()), 60, None),
        (Some(boom()), 60, Some(refused)),
        (Some(ok()), 2, Some(late)),
        // Dropped: the call that waits is the next probe.
        (None, 60, None),
    ] {
        let rig = Rig::new(CircuitBreakerLayer::builder().with_probe_wait(secs(10)));
        rig.shuts_out("alice").await;
        advance(secs(60)).await;
        let begun = Instant::now();
        let does = probe.clone().unwrap_or_else(Step::hang);
        let running = rig.starts(does.after(secs(3)), of("alice"));
        rig.tool.set_then(ok());
        let ends = async {
            match probe {
                Some(_) => _ = running.await,
                None => _ = timeout(secs(3), running).await,
            }
        };
        let waits = async {
            let call = of("alice").with_deadline(begun + secs(deadline));
            let error = rig.send(call).await.err()?;
            assert_eq!(error.execution(), Execution::NotStarted);
            Some((error.kind(), begun.elapsed().as_secs()))
        };
        assert_eq!(tokio::join!(ends, waits).1, expected);
        // Other principals do not wait.
        rig.ask_as("bob", ok()).await.unwrap();
    }
}

/// P3: a weak failure of a probe neither opens the breaker again, nor keeps others out.
#[tokio::test(start_paused = true)]
async fn a_weak_failure_of_a_probe_decides_nothing_for_others() {
    let rig = default_rig();
    rig.half_opens().await;
    for _ in 0..7 {
        let _ = rig.ask_as("alice", boom()).await;
        assert_eq!(rig.breaker().state(), BreakerState::HalfOpen);
        assert!(!rig.breaker().is_open());
    }
    rig.ask_as("bob", ok()).await.unwrap();
    assert_eq!(rig.breaker().state(), BreakerState::Closed);
    // And so do strong ones, for all.
    rig.half_opens().await;
    let _ = rig.ask_as("carol", boom()).await;
    let _ = rig.ask_as("carol", fails()).await;
    assert_eq!(rig.breaker().state(), BreakerState::Open);
}

/// A service that is not ready has not seen the call: its error is nobody's argument.
#[tokio::test(start_paused = true)]
async fn a_failure_to_become_ready_counts_for_all() {
    use std::task::{Context, Poll};

    #[derive(Clone)]
    struct NeverReady;
    impl Service<ToolCall> for NeverReady {
        type Response = &'static str;
        type Error = AnyError;
        type Future = std::future::Ready<Result<&'static str, AnyError>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), AnyError>> {
            Poll::Ready(Err("503 Service Unavailable".into()))
        }
        fn call(&mut self, _: ToolCall) -> Self::Future {
            unreachable!("it is never ready")
        }
    }
    let svc = CircuitBreakerLayer::new().layer(NeverReady);
    for _ in 0..5 {
        let _ = svc.clone().oneshot(of("alice")).await;
    }
    let error = svc.oneshot(of("bob")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::CircuitOpen);
}

#[tokio::test(start_paused = true)]
async fn the_handle_lists_for_whom_a_breaker_refuses() {
    let rig = default_rig();
    assert_eq!(rig.breaker().snapshot().principals_refused, 0);
    let token = "tok-0123456789abcdef";
    let subject = call().with_subject_token(token);
    for _ in 0..5 {
        rig.tool.set_then(boom());
        let _ = rig.send(subject.clone()).await;
        let _ = rig.ask_as("alice", boom()).await;
        rig.tool.set_then(boom());
        let _ = rig.send(call().with_session_id("s1")).await;
    }
    let refused = rig.breaker().principals();
    let names: Vec<_> = refused.iter().map(|r| r.principal.as_str()).collect();
    assert_eq!(names[..2], ["agent alice", "session s1"]);
    assert!(names[2].starts_with("subject #") && !names[2].contains("tok"));
    assert!(refused.iter().all(|r| r.retry_after == secs(60)));
    let snapshot = rig.breaker().snapshot();
    assert_eq!(snapshot.state, BreakerState::Closed);
    assert_eq!(snapshot.principals_refused, 3);
    rig.breaker().reset();
    assert_eq!(rig.breaker().snapshot().principals_refused, 0);
    rig.ask_as("alice", ok()).await.unwrap();
}

/// P3, S-3
#[tokio::test(start_paused = true)]
async fn calls_that_are_refused_to_a_principal_are_counted_apart() {
    let rig = default_rig();
    let counts = || {
        let seen = rig.breaker().snapshot();
        (seen.principals_rejected_total, seen.rejected_total)
    };
    rig.shuts_out("alice").await;
    assert_eq!(counts(), (1, 1));
    let _ = rig.ask_as("alice", ok()).await;
    rig.ask_as("bob", ok()).await.unwrap();
    rig.breaker().force_open();
    let _ = rig.ask_as("bob", ok()).await;
    assert_eq!(counts(), (2, 3));
}

#[tokio::test(start_paused = true)]
async fn a_breaker_that_lets_all_calls_pass_counts_for_no_principal() {
    let rig = default_rig();
    rig.breaker().force_closed();
    for _ in 0..10 {
        let _ = rig.ask_as("alice", boom()).await;
    }
    rig.ask_as("alice", ok()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_listener_is_told_of_whom_a_breaker_refuses() {
    let events = Events::pick(|event| match event {
        Event::PrincipalTransition {
            transition,
            principal,
            ..
        } => Some((String::from(*principal), transition.to, transition.reason)),
        _ => None,
    });
    let rig = Rig::new(CircuitBreakerLayer::builder().with_listener(events.clone()));
    rig.shuts_out("alice").await;
    let opened = (
        "agent alice".to_owned(),
        BreakerState::Open,
        TransitionReason::ConsecutiveFailures,
    );
    assert_eq!(events.take(), [opened]);
}

fn at_most(keys: usize) -> CircuitBreakerBuilder {
    CircuitBreakerLayer::builder().with_keys(Keys::default().at_most(keys))
}

/// Rule 6: ids are free to invent.
#[tokio::test(start_paused = true)]
async fn invented_ids_cannot_push_out_a_verified_principal() {
    let rig = Rig::new(at_most(8));
    for agent in ["a", "b", "c", "d"] {
        for _ in 0..4 {
            let _ = rig.ask_as(agent, boom()).await;
        }
    }
    for session in 0..1000 {
        for _ in 0..5 {
            rig.tool.set_then(boom());
            let _ = rig.send(invented(session)).await;
        }
        advance(Duration::from_millis(100)).await;
    }
    assert!(rig.breaker().snapshot().principals_refused <= 4);
    // The fifth failure, as nothing was forgotten.
    for agent in ["a", "b", "c", "d"] {
        let _ = rig.ask_as(agent, boom()).await;
        let refused = rig.ask_as(agent, ok()).await;
        assert_eq!(kind(refused), ErrorKind::CircuitOpen, "{agent}");
    }
}

/// Rule 6: principals at one tool hold no places that those of another tool need.
#[tokio::test(start_paused = true)]
async fn principals_of_a_tool_that_is_called_no_more_give_their_places_back() {
    let of_one = |n: usize| tool("other").with_agent_id(format!("a{n}"));
    type Of = fn(ToolCall) -> ToolCall;
    let verified: Of = |call| call;
    for (places, of) in [(8, verified), (4, ToolCall::with_unverified_ids)] {
        let rig = Rig::new(at_most(8));
        for n in 0..places {
            rig.tool.set_then(boom());
            let _ = rig.send(of(of_one(n))).await;
        }
        advance(secs(2)).await;
        for _ in 0..5 {
            rig.tool.set_then(boom());
            let _ = rig.send(of(call().with_agent_id("alice"))).await;
        }
        let refused = rig.send(of(call().with_agent_id("alice"))).await;
        assert_eq!(kind(refused), ErrorKind::CircuitOpen, "{places}");
    }
}

/// Rule 6: nor do those take them that are refused there.
#[tokio::test(start_paused = true)]
async fn a_principal_that_is_refused_keeps_its_place_whatever_happens_at_other_tools() {
    let rig = Rig::new(at_most(2));
    rig.ask(ok()).await.unwrap();
    rig.shuts_out("alice").await;
    for n in 0..20 {
        rig.tool.set_then(boom());
        let _ = rig.send(tool("other").with_agent_id(format!("a{n}"))).await;
        advance(secs(2)).await;
    }
    assert_eq!(
        kind(rig.ask_as("alice", ok()).await),
        ErrorKind::CircuitOpen
    );
}

/// C8: a person's word of another process reaches the principals that are refused here.
#[tokio::test(start_paused = true)]
async fn a_state_that_is_taken_over_ends_the_refusals_of_principals() {
    for state in [
        BreakerState::ForcedClosed,
        BreakerState::Disabled,
        BreakerState::Closed,
    ] {
        let rig = default_rig();
        rig.shuts_out("alice").await;
        rig.breaker().adopt_state(state);
        rig.ask_as("alice", ok()).await.unwrap();
    }
}

/// Trap 1: a listener that panics costs no place of a probe, of the principal either.
#[tokio::test(start_paused = true)]
async fn a_panic_of_a_listener_leaves_the_places_of_both_probes() {
    let builder = CircuitBreakerLayer::builder().with_listener(|event: &Event<'_>| {
        if let Event::Transition { transition, .. } = event {
            assert_ne!(transition.to, BreakerState::HalfOpen, "meant to panic");
        }
    });
    let rig = Rig::new(builder);
    rig.shuts_out("alice").await;
    rig.half_opens().await;
    let panics = tokio::spawn(rig.svc.clone().oneshot(of("alice"))).await;
    assert!(panics.unwrap_err().is_panic());
    rig.ask_as("alice", ok()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_invented_id_is_not_the_verified_one_of_the_same_text() {
    let rig = default_rig();
    for _ in 0..5 {
        rig.tool.set_then(boom());
        let _ = rig.send(invented(1)).await;
    }
    rig.tool.set_then(ok());
    assert_eq!(kind(rig.send(invented(1)).await), ErrorKind::CircuitOpen);
    rig.send(call().with_session_id("s1")).await.unwrap();
}

/// Trap 3: a call that its principal's circuit refuses is no probe without a verdict for the
/// others.
#[tokio::test(start_paused = true)]
async fn calls_that_are_refused_to_a_principal_are_no_probes() {
    let builder = CircuitBreakerLayer::builder().with_probe(Probe::SafeCalls);
    let rig = Rig::new(builder);
    for _ in 0..4 {
        let _ = rig.ask_as("alice", boom()).await;
    }
    rig.half_opens().await;
    rig.tool.set_then(boom());
    let safe = of("alice").with_replay_safety(ReplaySafety::Safe);
    let _ = rig.send(safe).await;
    // The breaker now admits any call as a probe, the circuit of the principal only safe ones.
    advance(secs(65)).await;
    for _ in 0..5 {
        let refused = rig.ask_as("alice", ok()).await;
        assert_eq!(kind(refused), ErrorKind::CircuitOpen);
    }
    let _probe = rig.starts(Step::hang(), of("bob"));
    assert_eq!(
        kind(rig.ask_as("carol", ok()).await),
        ErrorKind::CircuitOpen
    );
}

/// C5: how long a call takes is known by our own clock.
#[tokio::test(start_paused = true)]
async fn weak_failures_that_are_slow_are_slow_calls_for_all() {
    for count in [WeakFailures::PerPrincipal, WeakFailures::Ignored] {
        let rates = Rates::over_calls(4).with_slow_call_rate(0.5, secs(10));
        let builder = CircuitBreakerLayer::builder().with_trip(rates);
        let rig = Rig::new(builder.with_weak_failures(count));
        for agent in ["alice", "bob", "carol", "dora"] {
            let _ = rig.ask_as(agent, boom().after(secs(20))).await;
        }
        let opened = rig.breaker().snapshot();
        assert_eq!(opened.reason, Some(TransitionReason::SlowCallRate));
        assert_eq!((opened.failures, opened.slow_calls), (0, 4));
        assert_eq!(kind(rig.ask_as("eve", ok()).await), ErrorKind::CircuitOpen);
    }
}

/// Rule 6: a principal that is refused stays so when other tools need its breaker's place.
#[tokio::test(start_paused = true)]
async fn a_principal_is_refused_although_other_tools_need_the_place() {
    let rig = Rig::new(at_most(2));
    let search = |name: &str| tool(name).with_agent_id("alice");
    for _ in 0..5 {
        rig.tool.set_then(boom());
        let _ = rig.send(search("broken")).await;
    }
    rig.tool.set_then(ok());
    for name in ["b", "c", "b", "c", "d", "e"] {
        rig.send(search(name)).await.unwrap();
    }
    assert_eq!(
        kind(rig.send(search("broken")).await),
        ErrorKind::CircuitOpen
    );
}

/// Failures that lie an hour apart are not counted together, so that one failure does not cost the
/// tool's calls a lock for ever.
#[tokio::test(start_paused = true)]
async fn a_principal_that_has_not_called_for_an_hour_is_forgotten() {
    let rig = default_rig();
    for _ in 0..4 {
        let _ = rig.ask_as("alice", boom()).await;
    }
    advance(secs(3599)).await;
    rig.ask_as("bob", ok()).await.unwrap();
    let _ = rig.ask_as("alice", boom()).await;
    assert_eq!(rig.breaker().principals().len(), 1);
    rig.breaker().reset();
    for _ in 0..4 {
        let _ = rig.ask_as("alice", boom()).await;
    }
    advance(secs(3600)).await;
    let _ = rig.ask_as("alice", boom()).await;
    assert!(rig.breaker().principals().is_empty());
}

/// Rule 6: a flood of invented ids, all of them refused, does not keep verified principals from a
/// place.
#[tokio::test(start_paused = true)]
async fn a_flood_of_invented_ids_leaves_the_others_places_to_take() {
    let rig = Rig::new(at_most(4));
    for session in 0..2 {
        for _ in 0..5 {
            rig.tool.set_then(boom());
            let _ = rig.send(invented(session)).await;
        }
    }
    for agent in ["a", "b"] {
        let _ = rig.ask_as(agent, boom()).await;
    }
    // No place, for no invented id.
    rig.tool.set_then(boom());
    let _ = rig.send(invented(2)).await;
    rig.shuts_out("c").await;
}

/// D10: a principal's own circuit closes as well with an answer that proves the tool alive.
#[tokio::test(start_paused = true)]
async fn a_principal_is_let_in_again_by_an_answer_to_its_probe() {
    let rig = default_rig();
    rig.shuts_out("alice").await;
    advance(secs(60)).await;
    let not_found = Step::fail(ErrorKind::NotFound);
    rig.ask_as("alice", not_found).await.unwrap_err();
    assert!(rig.breaker().principals().is_empty());
    rig.ask_as("alice", boom()).await.unwrap_err();
    rig.ask_as("alice", ok()).await.unwrap();
}
