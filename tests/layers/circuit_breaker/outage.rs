//! D2, D3: failures with one outage, which a tool service of any author names.

use tokio::time::{Instant, advance};
use tower_toolcall::{
    ErrorKind, ToolError,
    circuit_breaker::{BreakerState, CircuitBreakerLayer},
    error::Outage,
};
use tower_toolcall_test::Step;

use super::{Rig, default_rig, fails, kind, ok, secs};
use crate::kit::call;

fn lost(outage: &Outage) -> Step<&'static str> {
    Step::error(ToolError::new(ErrorKind::ConnectionFailed, "closed").with_outage(outage))
}

fn of_one_failure() -> Rig {
    Rig::new(CircuitBreakerLayer::builder().with_trip(1))
}

#[tokio::test(start_paused = true)]
async fn failures_with_one_outage_count_once() {
    let (rig, outages) = (default_rig(), [(); 4].map(|()| Outage::new()));
    for n in 0..80 {
        let answer = rig.ask(lost(&outages[n % 4])).await;
        assert_eq!(kind(answer), ErrorKind::ConnectionFailed);
    }
    let seen = rig.breaker().snapshot();
    assert_eq!((seen.state, seen.failed_total), (BreakerState::Closed, 4));
    rig.ask(lost(&Outage::new())).await.unwrap_err();
    assert!(rig.breaker().is_open());
}

#[tokio::test(start_paused = true)]
async fn an_outage_without_an_end_has_the_open_period() {
    let (rig, outage) = (of_one_failure(), Outage::new());
    rig.ask(lost(&outage)).await.unwrap_err();
    assert_eq!(rig.breaker().snapshot().retry_after, Some(secs(60)));
    advance(secs(60)).await;
    assert!(rig.reaches(lost(&outage)).await, "it is not the probe");
    assert_eq!(rig.breaker().snapshot().retry_after, Some(secs(60)));
}

/// X6: lists that leave out refused tools change when the tool service connects again.
#[tokio::test(start_paused = true)]
async fn an_outage_that_is_over_has_no_later_end() {
    let (rig, outage) = (of_one_failure(), Outage::new());
    let begun = Instant::now();
    outage.retry_after(secs(2));
    rig.ask(lost(&outage)).await.unwrap_err();
    assert_eq!(rig.handle.next_period_end(begun), Some(begun + secs(2)));
    outage.end();
    assert_eq!(rig.handle.next_period_end(begun), None);
}

#[tokio::test(start_paused = true)]
async fn a_probe_passes_when_the_outage_ends_or_an_attempt_is_made() {
    let (rig, outage) = (of_one_failure(), Outage::new());
    outage.retry_after(secs(2));
    rig.ask(lost(&outage)).await.unwrap_err();
    for _ in 0..3 {
        assert!(!rig.reaches(ok()).await);
        assert_eq!(rig.breaker().snapshot().retry_after, Some(secs(2)));
        advance(secs(2)).await;
        let probe = rig.starts(Step::hang(), call());
        assert!(!rig.reaches(ok()).await, "there are two probes");
        drop(probe);
        assert!(rig.reaches(lost(&outage)).await);
        outage.retry_after(secs(2));
    }
    outage.end();
    rig.ask(ok()).await.unwrap();
    let seen = rig.breaker().snapshot();
    assert_eq!((seen.state, seen.failed_total), (BreakerState::Closed, 1));
}

#[tokio::test(start_paused = true)]
async fn a_probe_that_loses_the_next_connection_opens_for_the_period() {
    let (rig, [first, second]) = (of_one_failure(), [(); 2].map(|()| Outage::new()));
    for outage in [first, second] {
        outage.retry_after(secs(0));
        rig.ask(lost(&outage)).await.unwrap_err();
        outage.end();
    }
    assert_eq!(rig.breaker().snapshot().retry_after, Some(secs(60)));
}

/// D2: a probe that fails by another cause is a failure, although the outage goes on.
#[tokio::test(start_paused = true)]
async fn a_probe_that_fails_by_another_cause_opens_for_the_period() {
    for another in [
        fails(),
        Step::fail(ErrorKind::Timeout),
        Step::fail(ErrorKind::ConnectionFailed),
        lost(&Outage::new()),
    ] {
        let (rig, outage) = (of_one_failure(), Outage::new());
        outage.retry_after(secs(2));
        rig.ask(lost(&outage)).await.unwrap_err();
        advance(secs(2)).await;
        assert!(rig.reaches(another).await);
        assert_eq!(rig.breaker().snapshot().retry_after, Some(secs(60)));
        // The next probe finds the outage again.
        advance(secs(60)).await;
        outage.retry_after(secs(3));
        assert!(rig.reaches(lost(&outage)).await);
        assert_eq!(rig.breaker().snapshot().retry_after, Some(secs(3)));
    }
}

/// An error that a tool met in the middle of its work names no outage.
#[test]
fn an_inferred_error_has_no_outage() {
    let error = ToolError::new(ErrorKind::ConnectionFailed, "closed");
    let error = error.with_outage(&Outage::new());
    assert!(error.outage().is_some());
    let below = anyhow::Error::from(error).context("while it charged the card");
    assert!(ToolError::from_box(below.into()).outage().is_none());
}
