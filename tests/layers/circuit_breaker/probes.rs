//! C3, C10, R6: which calls are probes, and pings in their place.

use std::{
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
    time::Duration,
};

use futures_util::future::join_all;
use http::StatusCode;
use tokio::{
    sync::Semaphore,
    time::{Instant, advance, sleep, timeout},
};
use tokio_test::{assert_pending, assert_ready, task};
use tokio_util::sync::CancellationToken;
use tower::{Layer, Service, ServiceExt, limit::ConcurrencyLimit};
use tower_toolcall::{
    Classify, ErrorKind, Execution, Outcome, ReplaySafety, ToolCall, ToolError,
    circuit_breaker::{
        BreakerState, CircuitBreakerBuilder, CircuitBreakerLayer, Probe, Rates, Transition,
        TransitionReason, Trip,
    },
    outcome::ByError,
};
use tower_toolcall_test::{Script, Step};

use super::{Rig, default_rig, fails, kind, ok, secs, tool, transitions};
use crate::kit::call;

fn safe() -> ToolCall {
    call().with_replay_safety(ReplaySafety::Safe)
}

fn of_safe_calls() -> CircuitBreakerBuilder {
    CircuitBreakerLayer::builder().with_probe(Probe::safe_calls())
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
    assert_eq!(
        (error.kind(), begun.elapsed()),
        (ErrorKind::CircuitOpen, secs(10))
    );
    // After the verdict it waits for the service as any call.
    let mut waits = task::spawn(svc.clone().oneshot(call()));
    assert_pending!(waits.poll());
    probe.success();
    assert_pending!(waits.poll());
    advance(secs(20)).await;
    places.add_permits(1);
    waits.await.unwrap();
}

/// D11: a call that waits, pings, and waits again.
#[tokio::test(start_paused = true)]
async fn a_ping_does_not_restart_the_wait_for_a_verdict() {
    let probe = Pings::default().probe(Some(secs(1)), Ok(()));
    let builder = CircuitBreakerLayer::builder().with_probe_wait(secs(10));
    let rig = Rig::new(builder.with_probes(2).with_probe(probe));
    rig.half_opens().await;
    let [one, _other] = [(); 2].map(|()| rig.breaker().admit().unwrap());
    let begun = Instant::now();
    let leaves = async {
        sleep(secs(8)).await;
        drop(one);
    };
    let (refused, ()) = tokio::join!(rig.send(call()), leaves);
    assert_eq!(kind(refused), ErrorKind::CircuitOpen);
    assert_eq!(begun.elapsed(), secs(10));
}

/// D11: the caller cancels while the call waits.
#[tokio::test(start_paused = true)]
async fn a_wait_for_a_verdict_ends_when_the_caller_cancels() {
    let rig = Rig::new(CircuitBreakerLayer::builder().with_probe_wait(secs(10)));
    rig.half_opens().await;
    let _probe = rig.hangs();
    let token = CancellationToken::new();
    let mut waits = task::spawn(rig.send(safe().with_cancellation(token.clone())));
    assert_pending!(waits.poll());
    token.cancel();
    let error = assert_ready!(waits.poll()).unwrap_err();
    assert_eq!(
        (error.kind(), error.execution()),
        (ErrorKind::Cancelled, Execution::NotStarted)
    );
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

/// A ping that answers what the test says, after a while.
#[derive(Clone, Default)]
struct Pings {
    sent: Arc<AtomicU32>,
    running: Arc<AtomicU32>,
}

/// Counts the pings that are under way.
struct Running(Arc<AtomicU32>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

impl Pings {
    /// Each takes so long; `None`: for ever.
    fn probe(&self, takes: Option<Duration>, answer: Result<(), ErrorKind>) -> Probe {
        let pings = self.clone();
        Probe::ping(secs(5), move |call| {
            assert_eq!((call.server(), call.tool()), (Some("docs"), "search"));
            pings.sent.fetch_add(1, SeqCst);
            pings.running.fetch_add(1, SeqCst);
            let running = Running(pings.running.clone());
            async move {
                let _running = running;
                match takes {
                    Some(Duration::ZERO) => {}
                    Some(takes) => sleep(takes).await,
                    None => pending().await,
                }
                answer
            }
        })
    }

    fn rig(&self, takes: Option<Duration>, answer: Result<(), ErrorKind>) -> Rig {
        let probe = self.probe(takes, answer);
        Rig::new(CircuitBreakerLayer::builder().with_probe(probe))
    }

    fn counts(&self) -> (u32, u32) {
        (self.sent.load(SeqCst), self.running.load(SeqCst))
    }
}

const FAILS: Result<(), ErrorKind> = Err(ErrorKind::ConnectionFailed);

/// C3: the call that would be the probe is sent once its ping has succeeded, and closes nothing
/// itself.
#[tokio::test(start_paused = true)]
async fn a_ping_that_succeeds_closes_the_breaker_before_the_call() {
    for takes in [Duration::ZERO, secs(2)] {
        let pings = Pings::default();
        let rig = pings.rig(Some(takes), Ok(()));
        rig.half_opens().await;
        let (before, start) = (rig.tool.count(), Instant::now());
        // As any call of a closed breaker: one failure.
        assert_eq!(kind(rig.ask(fails()).await), ErrorKind::Upstream);
        assert_eq!((rig.tool.count(), start.elapsed()), (before + 1, takes));
        assert_eq!(pings.counts(), (1, 0));
        assert_eq!(rig.breaker().state(), BreakerState::Closed);
        assert_eq!(rig.breaker().snapshot().failures, 1);
    }
}

/// C3: its failure is that of a probe, and no call has reached the tool.
#[tokio::test(start_paused = true)]
async fn a_ping_that_fails_or_is_late_opens_the_breaker_again() {
    for (takes, answer, expected) in [(Some(secs(2)), FAILS, 2), (None, Ok(()), 5)] {
        let pings = Pings::default();
        let seen = transitions();
        let probe = pings.probe(takes, answer);
        let builder = CircuitBreakerLayer::builder().with_listener(seen.clone());
        let rig = Rig::new(builder.with_probe(probe));
        rig.half_opens().await;
        let (before, start) = (rig.tool.count(), Instant::now());
        let error = rig.send(call().with_id("c9")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::CircuitOpen);
        assert_eq!(error.execution(), Execution::NotStarted);
        assert_eq!(error.retry_after(), Some(secs(60)));
        assert_eq!(
            (rig.tool.count(), start.elapsed()),
            (before, secs(expected))
        );
        assert_eq!(pings.counts(), (1, 0));
        let last: (Transition, _) = seen.take().pop().unwrap();
        assert_eq!(last.0.reason, TransitionReason::ProbeFailed);
        assert_eq!(last.1.as_deref(), Some("c9"));
    }
}

/// C3: one ping at a time; other calls are refused meanwhile.
#[tokio::test(start_paused = true)]
async fn there_is_one_ping_at_a_time() {
    let pings = Pings::default();
    let rig = pings.rig(Some(secs(2)), Ok(()));
    rig.half_opens().await;
    let mut first = task::spawn(rig.svc.clone().oneshot(call()));
    assert_pending!(first.poll());
    for _ in 0..3 {
        assert_eq!(kind(rig.send(call()).await), ErrorKind::CircuitOpen);
    }
    assert_eq!(pings.counts(), (1, 1));
    rig.tool.set_then(ok());
    first.await.unwrap();
    rig.send(call()).await.unwrap();
}

/// C10: a call that is dropped takes its ping with it, and the next one pings, however often.
#[tokio::test(start_paused = true)]
async fn a_dropped_ping_is_passed_on() {
    let pings = Pings::default();
    let rig = pings.rig(Some(secs(2)), Ok(()));
    rig.half_opens().await;
    for n in 1..=4 {
        let mut dropped = task::spawn(rig.svc.clone().oneshot(call()));
        assert_pending!(dropped.poll());
        assert_eq!(pings.counts(), (n, 1));
        drop(dropped);
        assert_eq!(pings.counts(), (n, 0));
        assert_eq!(rig.breaker().snapshot().probes, 0);
    }
    rig.tool.set_then(ok());
    rig.send(call()).await.unwrap();
    assert_eq!(
        (pings.counts(), rig.breaker().state()),
        ((5, 0), BreakerState::Closed)
    );
}

/// T5: the deadline of the call bounds its wait; that the caller was in a hurry is no verdict.
#[tokio::test(start_paused = true)]
async fn a_ping_ends_at_the_deadline_of_its_call() {
    let pings = Pings::default();
    let rig = pings.rig(None, Ok(()));
    rig.half_opens().await;
    let start = Instant::now();
    let error = rig
        .send(call().with_deadline(start + secs(1)))
        .await
        .unwrap_err();
    assert_eq!(
        (error.kind(), start.elapsed()),
        (ErrorKind::DeadlineExceeded, secs(1))
    );
    assert_eq!(error.execution(), Execution::NotStarted);
    assert_eq!(rig.breaker().snapshot().probes, 0);
    assert_eq!(rig.breaker().state(), BreakerState::HalfOpen);
}

/// C3: as many pings as probes have to succeed, all by the one call.
#[tokio::test(start_paused = true)]
async fn a_call_pings_until_the_breaker_is_closed() {
    let pings = Pings::default();
    let probe = pings.probe(Some(secs(1)), Ok(()));
    let rig = Rig::new(
        CircuitBreakerLayer::builder()
            .with_probes(3)
            .with_probe(probe),
    );
    rig.half_opens().await;
    rig.ask(ok()).await.unwrap();
    assert_eq!(
        (pings.counts(), rig.breaker().state()),
        ((3, 0), BreakerState::Closed)
    );
}

/// Rule 3d: nothing sleeps on a reservation.
#[tokio::test(start_paused = true)]
async fn a_call_that_pings_holds_no_place_of_the_service_below() {
    let pings = Pings::default();
    let layer = CircuitBreakerLayer::builder()
        .with_probe(pings.probe(Some(secs(2)), Ok(())))
        .build()
        .unwrap();
    let places = Arc::new(Semaphore::new(1));
    let tool = Script::always(Step::ok("answer"));
    let limited = ConcurrencyLimit::with_semaphore(tool.clone(), Arc::clone(&places));
    let svc = layer.layer(limited);
    let breaker = layer.handle().breaker(&call());
    for waits in [false, true] {
        for _ in 0..5 {
            breaker.record_failure();
        }
        advance(secs(60)).await;
        let held = waits.then(|| Arc::clone(&places).try_acquire_owned().unwrap());
        let mut running = task::spawn(svc.clone().oneshot(call()));
        assert_pending!(running.poll());
        drop(held);
        if waits {
            assert!(running.is_woken());
            assert_pending!(running.poll());
        }
        assert_eq!((pings.counts().1, places.available_permits()), (1, 1));
        advance(secs(2)).await;
        assert_ready!(running.poll()).unwrap();
    }
    assert_eq!(tool.count(), 2);
}

/// C10: a ping that panics, when it is made or later, gives its place back and says nothing of the
/// tool.
#[tokio::test(start_paused = true)]
async fn a_ping_that_panics_leaves_its_place() {
    for at_once in [true, false] {
        let ping = Probe::ping(secs(5), move |_| {
            assert!(!at_once, "made");
            async { panic!("run") as Result<(), ErrorKind> }
        });
        let rig = Rig::new(CircuitBreakerLayer::builder().with_probe(ping));
        rig.half_opens().await;
        for _ in 0..5 {
            let call = tokio::spawn(rig.svc.clone().oneshot(call()));
            assert!(call.await.unwrap_err().is_panic());
            assert_eq!(rig.breaker().snapshot().probes, 0);
            assert_eq!(rig.breaker().state(), BreakerState::HalfOpen);
        }
        rig.tool.set_then(ok());
        rig.send(call()).await.unwrap();
        assert_eq!(rig.breaker().state(), BreakerState::Closed);
    }
}

/// A ping that is asked for and could never succeed, or be the only one.
#[test]
fn a_ping_needs_a_time_that_it_can_keep() {
    for limit in [Duration::ZERO, secs(121)] {
        let ping = Probe::ping(limit, |_| async { Ok::<_, ErrorKind>(()) });
        let error = CircuitBreakerLayer::builder()
            .with_probe(ping)
            .build()
            .unwrap_err();
        assert!(error.to_string().contains("probe"), "{error}");
    }
}
