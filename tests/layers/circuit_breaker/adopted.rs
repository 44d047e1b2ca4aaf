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
    assert_eq!(heard.next().await.unwrap().unwrap().to, HalfOpen);
    assert_eq!(heard.next().await.unwrap().unwrap().to, Closed);
    rig.breaker().adopt_state(ForcedClosed);
    let forced = heard.next().await.unwrap().unwrap();
    assert_eq!(forced.to, ForcedClosed);
    assert_eq!(forced.reason, TransitionReason::Shared);
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
