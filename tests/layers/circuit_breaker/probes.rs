//! C3, C10, R6: which calls are probes.

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;
use http::StatusCode;
use tokio::{
    sync::Semaphore,
    time::{Instant, advance, timeout},
};
use tokio_test::{assert_pending, assert_ready, task};
use tower::{Layer, Service, ServiceExt, limit::ConcurrencyLimit};
use tower_toolcall::{
    Classify, ErrorKind, Execution, Outcome, ReplaySafety, ToolCall, ToolError,
    circuit_breaker::{
        BreakerState, CircuitBreakerBuilder, CircuitBreakerLayer, Probe, Rates, Trip,
    },
    flow::CallExt,
    outcome::ByError,
};
use tower_toolcall_test::{Script, Step};

use super::{Rig, default_rig, fails, kind, ok, secs, tool};
use crate::kit::call;

fn safe() -> ToolCall {
    call().with_replay_safety(ReplaySafety::Safe)
}

fn of_safe_calls() -> CircuitBreakerBuilder {
    CircuitBreakerLayer::builder().with_probe(Probe::SafeCalls)
}

/// R6: a call that must not run twice is refused, and leaves the place to one that may.
#[tokio::test(start_paused = true)]
async fn only_a_safe_call_is_the_probe() {
    let rig = Rig::new(of_safe_calls());
    rig.half_opens().await;
    let unsafe_call = call().with_replay_safety(ReplaySafety::Unsafe);
    for refused in [call(), unsafe_call] {
        let error = rig.send(refused).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::CircuitOpen);
        assert_eq!(error.retry_after(), Some(secs(1)));
    }
    assert_eq!(rig.breaker().snapshot().probes, 0);
    rig.tool.set_then(ok());
    rig.send(safe()).await.unwrap();
    assert_eq!(rig.breaker().state(), BreakerState::Closed);
    rig.send(call()).await.unwrap();
}

/// D11: the errors of 20 calls that meet a half-open breaker together, each with a time in seconds.
/// Calls have this deadline. The tool takes 3 s, and does so for the probe.
async fn batch(
    builder: CircuitBreakerBuilder,
    probe: Step<&'static str>,
    deadline: u64,
) -> Vec<(ErrorKind, u64)> {
    let rig = Rig::new(builder);
    rig.half_opens().await;
    let begun = Instant::now();
    let call = || safe().with_deadline(begun + secs(deadline));
    let probe = rig.starts(probe.after(secs(3)), call());
    rig.tool.set_then(ok().after(secs(3)));
    let others = (0..19).map(|_| async {
        let error = rig.send(call()).await.err()?;
        assert_eq!(error.execution(), Execution::NotStarted);
        Some((error.kind(), begun.elapsed().as_secs()))
    });
    let (_, ends) = tokio::join!(probe, join_all(others));
    let rejected = rig.breaker().snapshot().rejected_total;
    let errors: Vec<_> = ends.into_iter().flatten().collect();
    let refused = |(kind, _): &&(ErrorKind, u64)| *kind == ErrorKind::CircuitOpen;
    assert_eq!(rejected, errors.iter().filter(refused).count() as u64);
    errors
}

/// D11.
#[tokio::test(start_paused = true)]
async fn calls_may_wait_for_the_verdict_of_a_probe() {
    let waits = || CircuitBreakerLayer::builder().with_probe_wait(secs(10));
    let all = |kind, at| vec![(kind, at); 19];
    assert_eq!(batch(waits(), ok(), 60).await, []);
    assert_eq!(batch(waits().with_successes(2), ok(), 60).await, []);
    // Another outcome, another bound.
    assert_eq!(
        batch(waits(), fails(), 60).await,
        all(ErrorKind::CircuitOpen, 3)
    );
    assert_eq!(
        batch(waits(), ok(), 2).await,
        all(ErrorKind::DeadlineExceeded, 2)
    );
    let short = waits().with_probe_wait(secs(2));
    assert_eq!(batch(short, ok(), 60).await, all(ErrorKind::CircuitOpen, 2));
    let none = CircuitBreakerLayer::builder();
    assert_eq!(batch(none, ok(), 60).await, all(ErrorKind::CircuitOpen, 0));
}

/// Issue 48: the wait for a probe is a wait of the call, as that for a backoff is.
#[tokio::test(start_paused = true)]
async fn the_wait_for_a_probe_is_recorded() {
    // Also that of a call which meets its deadline meanwhile.
    for (deadline, waited) in [(60, 3), (2, 2)] {
        let rig = Rig::new(CircuitBreakerLayer::builder().with_probe_wait(secs(10)));
        rig.half_opens().await;
        let probe = rig.starts(ok().after(secs(3)), call());
        rig.tool.set_then(ok());
        let mut waits = call().with_deadline(Instant::now() + secs(deadline));
        let seen = waits.observe();
        let (_, answer) = tokio::join!(probe, rig.send(waits));
        assert_eq!(answer.is_ok(), deadline > 3);
        assert_eq!(seen.waited(), secs(waited));
    }
}

/// D11: a probe that is dropped has no verdict; a waiting call is the next one.
#[tokio::test(start_paused = true)]
async fn a_waiting_call_follows_a_probe_that_is_dropped() {
    let rig = Rig::new(CircuitBreakerLayer::builder().with_probe_wait(secs(10)));
    rig.half_opens().await;
    let probe = rig.hangs();
    rig.tool.set_then(ok());
    let mut waits = task::spawn(rig.send(safe()));
    assert_pending!(waits.poll());
    drop(probe);
    let begun = Instant::now();
    waits.await.unwrap();
    assert!(begun.elapsed() <= secs(1));
    assert_eq!(rig.breaker().state(), BreakerState::Closed);
}

/// D11: a probe that succeeds without closing the breaker, or that has no verdict, wakes the calls
/// of its key alone, also before their first poll.
#[tokio::test(start_paused = true)]
async fn an_end_of_a_probe_wakes_the_calls_that_wait() {
    for (succeeds, polled) in [(true, true), (false, true), (true, false)] {
        let waits = CircuitBreakerLayer::builder().with_probe_wait(secs(10));
        let rig = Rig::new(waits.with_successes(2));
        rig.half_opens().await;
        rig.tool.set_then(ok());
        let probe = rig.breaker().admit().unwrap();
        let mut svc = rig.svc.clone();
        let mut waits = task::spawn(svc.call(safe()));
        if polled {
            assert_pending!(waits.poll());
            rig.handle.breaker(&tool("other")).force_open();
            // Neither does a call that is refused.
            assert!(rig.breaker().admit().is_err());
            assert!(!waits.is_woken());
        }
        match succeeds {
            true => probe.success(),
            false => drop(probe),
        }
        assert_eq!(waits.is_woken(), polled);
        assert_ready!(waits.poll()).unwrap();
    }
}

/// D11: the inner service is not ready, and stays so.
#[tokio::test(start_paused = true)]
async fn a_wait_for_a_verdict_is_bounded_where_the_service_is_not_ready() {
    let builder = CircuitBreakerLayer::builder().with_probe_wait(secs(10));
    let layer = builder.build().unwrap();
    let places = Arc::new(Semaphore::new(0));
    let tool = Script::always(Step::ok("answer"));
    let svc = layer.layer(ConcurrencyLimit::with_semaphore(tool, places.clone()));
    let breaker = layer.handle().breaker(&call());
    let half_opens = || async {
        (0..5).for_each(|_| _ = breaker.record_failure());
        advance(secs(60)).await;
        breaker.admit().unwrap()
    };
    let probe = half_opens().await;
    let begun = Instant::now();
    let refused = timeout(secs(60), svc.clone().oneshot(call()))
        .await
        .unwrap();
    let error = refused.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::CircuitOpen);
    assert_eq!(begun.elapsed(), secs(10));
    // After the verdict it waits for the service as any call.
    let mut waits = task::spawn(svc.clone().oneshot(call()));
    assert_pending!(waits.poll());
    probe.success();
    assert_pending!(waits.poll());
    advance(secs(20)).await;
    places.add_permits(1);
    waits.await.unwrap();
}

/// C10: a breaker whose calls are never safe is not open for ever.
#[tokio::test(start_paused = true)]
async fn after_another_period_without_a_safe_call_any_call_is_the_probe() {
    let rig = Rig::new(of_safe_calls());
    rig.half_opens().await;
    advance(secs(60) - Duration::from_millis(1)).await;
    assert_eq!(kind(rig.send(call()).await), ErrorKind::CircuitOpen);
    advance(Duration::from_millis(1)).await;
    rig.tool.set_then(ok());
    rig.send(call()).await.unwrap();
    assert_eq!(rig.breaker().state(), BreakerState::Closed);
}

/// Safe calls without a verdict, such as limited ones, do not open the place to others.
#[tokio::test(start_paused = true)]
async fn many_safe_calls_without_a_verdict_leave_others_refused() {
    let rig = Rig::new(of_safe_calls());
    rig.half_opens().await;
    rig.tool.set_then(Step::fail(ErrorKind::RateLimited));
    for _ in 0..10 {
        assert_eq!(kind(rig.send(safe()).await), ErrorKind::RateLimited);
    }
    assert_eq!(kind(rig.send(call()).await), ErrorKind::CircuitOpen);
    advance(secs(60)).await;
    assert_eq!(kind(rig.send(call()).await), ErrorKind::RateLimited);
}

pub(super) fn unavailable(retry_after: u64) -> ToolError {
    let error = ToolError::from_status(StatusCode::SERVICE_UNAVAILABLE, "back soon");
    error.with_retry_after(secs(retry_after))
}

/// D5: a failing server that says when it is back is probed then, and no earlier.
#[tokio::test(start_paused = true)]
async fn an_announced_delay_makes_the_open_period_longer() {
    let reported = ToolError::new(ErrorKind::Upstream, "down").with_retry_after(secs(90));
    for (error, opens_for) in [
        (unavailable(120), 120),
        (unavailable(10), 60),
        (unavailable(3600), 300),
        (reported, 90),
        (
            ToolError::from_box("503: retry after 120 seconds".into()),
            60,
        ),
    ] {
        let rig = default_rig();
        for _ in 0..5 {
            rig.ask(Step::error(error.clone())).await.unwrap_err();
        }
        let refused = rig.ask(ok()).await.unwrap_err();
        assert_eq!(refused.retry_after(), Some(secs(opens_for)), "{error}");
        advance(secs(opens_for) - Duration::from_millis(1)).await;
        assert!(!rig.reaches(ok()).await, "{error}");
        advance(Duration::from_millis(1)).await;
        assert!(rig.reaches(ok()).await, "{error}");
        assert_eq!(rig.breaker().state(), BreakerState::Closed);
    }
}

/// D5: the delay counts from its own answer: one before the breaker opened, of a probe, and one
/// that comes late.
#[tokio::test(start_paused = true)]
async fn an_announced_delay_counts_from_its_answer() {
    let rig = default_rig();
    let late = Step::error(unavailable(200)).after(secs(20));
    let mut late = rig.starts(late, call());
    rig.ask(Step::error(unavailable(100))).await.unwrap_err();
    advance(secs(10)).await;
    rig.fails(4).await;
    let refused = rig.ask(ok()).await.unwrap_err();
    assert_eq!(refused.retry_after(), Some(secs(90)));
    advance(secs(10)).await;
    tokio_test::assert_ready_err!(late.poll());
    let refused = rig.ask(ok()).await.unwrap_err();
    assert_eq!(refused.retry_after(), Some(secs(200)));
    advance(secs(200)).await;
    rig.ask(Step::error(unavailable(150))).await.unwrap_err();
    let refused = rig.ask(ok()).await.unwrap_err();
    assert_eq!(refused.retry_after(), Some(secs(150)));
    // Once the tool is well, all that is forgotten.
    advance(secs(150)).await;
    rig.ask(ok()).await.unwrap();
    rig.fails(5).await;
    let refused = rig.ask(ok()).await.unwrap_err();
    assert_eq!(refused.retry_after(), Some(secs(60)));
}

/// The answer of a tool that is well, to a call that asks for the wrong thing.
fn answered() -> [ToolError; 4] {
    [
        ToolError::from_status(StatusCode::NOT_FOUND, "no such page"),
        ToolError::from_status(StatusCode::CONFLICT, "it has changed"),
        ToolError::new(ErrorKind::InvalidInput, "no such city"),
        ToolError::new(ErrorKind::Reported, "the file is empty"),
    ]
}

/// D10: an answer that proves the tool alive closes the breaker, although it counts neither way
/// while closed.
#[tokio::test(start_paused = true)]
async fn a_probe_that_the_tool_answers_closes_the_breaker() {
    for error in answered() {
        let rig = default_rig();
        rig.half_opens().await;
        rig.ask(Step::error(error.clone())).await.unwrap_err();
        assert_eq!(rig.breaker().state(), BreakerState::Closed, "{error}");
        // One failure does not open it again.
        rig.ask(fails()).await.unwrap_err();
        assert_eq!(rig.breaker().state(), BreakerState::Closed, "{error}");
    }
}

/// D10: an answer to a wrong call closes, but proves less than a success: the open period stays as
/// long as it was.
#[tokio::test(start_paused = true)]
async fn a_breaker_that_an_error_closes_keeps_the_length_of_its_open_period() {
    for trip in [
        Trip::consecutive_failures(5),
        Rates::over_calls(5)
            .with_minimum_calls(5)
            .with_failure_rate(1.0)
            .into(),
    ] {
        for error in answered() {
            let builder = CircuitBreakerLayer::builder().with_trip(trip.clone());
            let rig = Rig::new(builder.with_growth(2.0, secs(1000)));
            let opens_for = || rig.breaker().snapshot().retry_after.unwrap();
            let answer = Step::error(error);
            rig.half_opens().await;
            rig.fails(1).await;
            for _ in 0..2 {
                assert_eq!(opens_for(), secs(120));
                advance(secs(120)).await;
                rig.ask(answer.clone()).await.unwrap_err();
                assert_eq!(rig.breaker().state(), BreakerState::Closed);
                rig.fails(5).await;
            }
            assert_eq!(opens_for(), secs(120));
            advance(secs(120)).await;
            rig.ask(answer).await.unwrap_err();
            rig.ask(ok()).await.unwrap();
            rig.fails(5).await;
            assert_eq!(opens_for(), secs(60), "a success ends it");
        }
    }
}

/// D10: an answer that is an error in the tool's own words (`isError`) is a success of the probe
/// too, after five probes without a verdict as well.
#[tokio::test(start_paused = true)]
async fn a_reported_error_closes_a_half_open_breaker() {
    let says = |answer: Result<&&str, &ToolError>| match answer {
        Ok(_) => Outcome::reported(),
        error => ByError.classify(error),
    };
    for undecided in [0, 7] {
        let layer = CircuitBreakerLayer::builder().classify_fn(says);
        let layer = layer.build().unwrap();
        let tool = Script::always(fails());
        let (svc, breaker) = (layer.layer(tool.clone()), layer.handle().breaker(&call()));
        for _ in 0..5 {
            svc.clone().oneshot(call()).await.unwrap_err();
        }
        advance(secs(60)).await;
        tool.set_then(Step::fail(ErrorKind::RateLimited));
        for _ in 0..undecided {
            svc.clone().oneshot(call()).await.unwrap_err();
            assert_eq!(breaker.state(), BreakerState::HalfOpen);
        }
        tool.set_then(ok());
        svc.clone().oneshot(call()).await.unwrap();
        assert_eq!(breaker.state(), BreakerState::Closed);
    }
}

/// D10: what was refused before it reached the tool, or is known by a text alone, proves nothing.
#[tokio::test(start_paused = true)]
async fn an_error_that_does_not_come_from_the_tool_leaves_the_breaker_half_open() {
    for error in [
        ToolError::from_status(StatusCode::UNAUTHORIZED, "no"),
        ToolError::from_status(StatusCode::TOO_MANY_REQUESTS, "slow down"),
        ToolError::refusal(ErrorKind::InvalidInput, "no"),
        ToolError::new(ErrorKind::Cancelled, "no"),
        ToolError::from_box("404 Not Found".into()),
    ] {
        let rig = default_rig();
        rig.half_opens().await;
        rig.ask(Step::error(error.clone())).await.unwrap_err();
        assert_eq!(rig.breaker().state(), BreakerState::HalfOpen, "{error}");
        assert_eq!(rig.breaker().snapshot().probes, 0, "{error}");
    }
}
