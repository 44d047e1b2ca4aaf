//! C8: what a breaker takes over from another process.

use tokio::time::advance;
use tower_toolcall::circuit_breaker::BreakerState;
use tower_toolcall::event::TransitionReason;

use super::{default_rig, ok, secs};

use BreakerState::{Closed, ForcedClosed, HalfOpen, Open};

/// C8.
#[tokio::test(start_paused = true)]
async fn an_adopted_opening_refuses_calls_and_ends_by_itself() {
    let rig = default_rig();
    let mut heard = rig.handle.subscribe();
    rig.breaker().adopt(secs(20));
    assert!(rig.ask(ok()).await.is_err());
    let opened = heard.next().await.unwrap().unwrap();
    assert_eq!((opened.to, opened.reason), (Open, TransitionReason::Shared));
    assert_eq!(opened.open_for, Some(secs(20)));
    let seen = rig.breaker().snapshot();
    assert_eq!((seen.adopted, seen.opened_total), (true, 0));
    advance(secs(20)).await;
    rig.ask(ok()).await.unwrap();
    let seen = rig.breaker().snapshot();
    assert_eq!((seen.state, seen.adopted), (Closed, false));
}

/// C8.
#[tokio::test(start_paused = true)]
async fn what_is_adopted_lasts_no_longer_than_the_settings_allow() {
    let rig = default_rig();
    rig.breaker().adopt(secs(1_000_000));
    assert_eq!(rig.breaker().snapshot().retry_after, Some(secs(60)));
    rig.breaker().adopt(secs(1_000_000));
    assert_eq!(rig.breaker().snapshot().retry_after, Some(secs(60)));
}

/// C8.
#[tokio::test(start_paused = true)]
async fn an_opening_of_another_process_never_shortens_ours() {
    let rig = default_rig();
    rig.fails(5).await;
    rig.breaker().adopt(secs(1));
    assert_eq!(rig.breaker().snapshot().retry_after, Some(secs(60)));
    assert!(!rig.breaker().snapshot().adopted);
}

/// C8.
#[tokio::test(start_paused = true)]
async fn a_closing_of_another_process_ends_adopted_and_own_openings() {
    let rig = default_rig();
    rig.breaker().adopt(secs(60));
    rig.breaker().adopt_state(Closed);
    assert_eq!(rig.breaker().state(), Closed);
    rig.fails(5).await;
    rig.breaker().adopt_state(Closed);
    rig.ask(ok()).await.unwrap();
}

/// C8: a closed breaker keeps what it has counted.
#[tokio::test(start_paused = true)]
async fn a_closing_of_another_process_leaves_a_closed_breaker_alone() {
    let rig = default_rig();
    rig.fails(4).await;
    rig.breaker().adopt_state(Closed);
    rig.breaker().adopt_state(Open);
    assert_eq!(rig.breaker().state(), Closed);
    rig.fails(1).await;
    assert_eq!(rig.breaker().state(), Open);
}

/// C8.
#[tokio::test(start_paused = true)]
async fn a_forced_state_of_another_process_is_taken_over_until_it_is_reset() {
    let rig = default_rig();
    let mut heard = rig.handle.subscribe();
    rig.breaker().adopt_state(ForcedClosed);
    assert_eq!(rig.breaker().state(), ForcedClosed);
    let forced = heard.next().await.unwrap().unwrap();
    assert_eq!(forced.reason, TransitionReason::Shared);
    rig.breaker().adopt_state(Closed);
    assert_eq!(rig.breaker().state(), Closed);
}

/// C8: a person's word stands above that of other processes.
#[tokio::test(start_paused = true)]
async fn an_opening_of_another_process_leaves_a_forced_state_alone() {
    let rig = default_rig();
    rig.breaker().force_closed();
    rig.breaker().adopt(secs(60));
    assert_eq!(rig.breaker().state(), ForcedClosed);
}

/// Trap 2: the result of a probe that began before the opening was adopted says nothing of the
/// period after it.
#[tokio::test(start_paused = true)]
async fn a_probe_is_stale_once_an_opening_is_adopted() {
    let rig = default_rig();
    rig.fails(5).await;
    advance(secs(60)).await;
    let probe = rig.breaker().admit().unwrap();
    assert_eq!(rig.breaker().state(), HalfOpen);
    rig.breaker().adopt(secs(30));
    probe.success();
    let seen = rig.breaker().snapshot();
    assert_eq!((seen.state, seen.stale_total), (Open, 1));
}

/// C8: a program that shares states finds a breaker by the text of its key, and makes none for
/// other texts.
#[tokio::test(start_paused = true)]
async fn a_breaker_is_found_by_the_text_of_its_key() {
    let (rig, other) = (default_rig(), default_rig());
    let mut heard = rig.handle.subscribe();
    rig.fails(5).await;
    let (text, opened) = heard.next_of_key().await.unwrap().unwrap();
    let text = text.unwrap();
    assert_eq!(rig.handle.key_text(&rig.breaker()), Some(text.clone()));
    assert_eq!(rig.handle.find_text(&text).unwrap().state(), opened.to);
    assert!(other.handle.find_text(&text).is_none());
    other.handle.breaker_of_text(&text).unwrap().adopt(secs(20));
    assert!(other.ask(ok()).await.is_err());
    for text in ["", "search", "#0000000000000007", &format!("{text}\u{1f}")] {
        assert!(other.handle.breaker_of_text(text).is_none(), "{text:?}");
    }
    assert_eq!(other.handle.len(), 1);
}
