//! C6 and C7: who hears of transitions, and what can be done from outside.

use std::{
    future::Future,
    pin::pin,
    sync::{Arc, Mutex, OnceLock, mpsc},
    task::{Context, Waker},
    thread,
};

use tokio::time::advance;
use tower_toolcall::{
    ErrorKind, Event,
    circuit_breaker::{
        BreakerSnapshot, BreakerState, CircuitBreakerHandle, CircuitBreakerLayer, Transition,
        TransitionReason,
    },
};

use super::{Rig, default_rig, fails, kind, ok, secs, tool, transitions};
use crate::kit::call;

/// What C6 wants to know of a transition.
fn told(t: &Transition) -> (BreakerState, BreakerState, TransitionReason, u32) {
    assert_eq!(t.server.as_deref(), Some("docs"));
    assert_eq!(t.tool.as_deref(), Some("search"));
    (t.from, t.to, t.reason, t.generation)
}

use BreakerState::{Closed, Disabled, ForcedClosed, ForcedOpen, HalfOpen, Open};
use TransitionReason::{ConsecutiveFailures, Forced, PeriodElapsed, ProbeFailed, ProbesSucceeded};

/// What a breaker goes through here: trip, failed probe, recovery, and every demand.
async fn a_life(rig: &Rig) {
    rig.half_opens().await;
    rig.fails(1).await;
    advance(secs(60)).await;
    rig.ask(ok()).await.unwrap();
    let breaker = rig.breaker();
    breaker.force_open();
    breaker.force_closed();
    breaker.disable();
    breaker.reset();
}

const A_LIFE: [(BreakerState, BreakerState, TransitionReason, u32); 9] = [
    (Closed, Open, ConsecutiveFailures, 1),
    (Open, HalfOpen, PeriodElapsed, 2),
    (HalfOpen, Open, ProbeFailed, 3),
    (Open, HalfOpen, PeriodElapsed, 4),
    (HalfOpen, Closed, ProbesSucceeded, 5),
    (Closed, ForcedOpen, Forced, 6),
    (ForcedOpen, ForcedClosed, Forced, 7),
    (ForcedClosed, Disabled, Forced, 8),
    (Disabled, Closed, Forced, 9),
];

/// C6: every transition reaches the listener, in order, with who, why, and the call that brought it
/// about.
#[tokio::test(start_paused = true)]
async fn every_transition_reaches_the_listener() {
    let heard = transitions();
    let rig = Rig::new(CircuitBreakerLayer::builder().with_listener(heard.clone()));
    a_life(&rig).await;
    let heard = heard.take();
    let seen: Vec<_> = heard.iter().map(|(t, _)| told(t)).collect();
    assert_eq!(seen, A_LIFE);
    let calls: Vec<_> = heard.iter().map(|(_, id)| id.is_some()).collect();
    assert_eq!(calls, A_LIFE.map(|(_, _, reason, _)| reason != Forced));
    let (opened, id) = &heard[0];
    assert_eq!((opened.calls, opened.failures), (5, 5));
    assert_eq!(opened.open_for, Some(secs(60)));
    assert_eq!(id.as_deref(), Some("c1"));
    assert_eq!(heard[1].0.open_for, None);
}

/// C6: and the stream, from the subscription on.
#[tokio::test(start_paused = true)]
async fn every_transition_reaches_the_stream() {
    let rig = default_rig();
    let mut stream = rig.handle.subscribe();
    let mut second = rig.handle.subscribe();
    a_life(&rig).await;
    let mut late = rig.handle.subscribe();
    drop(rig);
    for expected in A_LIFE {
        for stream in [&mut stream, &mut second] {
            let transition = stream.next().await.unwrap().unwrap();
            assert_eq!(told(&transition), expected);
        }
    }
    // The layer, its services and its handles are gone.
    assert!(stream.next().await.is_none());
    assert!(late.next().await.is_none());
}

/// C6: a subscriber that falls behind is told how much it missed, and goes on with the oldest that
/// is kept.
#[tokio::test(start_paused = true)]
async fn a_subscriber_that_lags_is_told() {
    let rig = default_rig();
    let mut stream = rig.handle.subscribe();
    let breaker = rig.breaker();
    for _ in 0..150 {
        breaker.force_open();
        breaker.reset();
    }
    assert_eq!(stream.next().await.unwrap().unwrap_err().missed, 300 - 256);
    for generation in 45..=300 {
        let transition = stream.next().await.unwrap().unwrap();
        assert_eq!(transition.generation, generation);
    }
}

/// C6: the stream waits for the next transition, and a wait that is given up loses none.
#[tokio::test(start_paused = true)]
async fn the_stream_wakes_for_a_transition() {
    let rig = default_rig();
    let mut stream = rig.handle.subscribe();
    let mut noop = Context::from_waker(Waker::noop());
    assert!(pin!(stream.next()).poll(&mut noop).is_pending());
    let breaker = rig.breaker();
    let waiting = tokio::spawn(async move { stream.next().await });
    tokio::task::yield_now().await;
    breaker.force_open();
    let transition = waiting.await.unwrap().unwrap().unwrap();
    assert_eq!(transition.to, ForcedOpen);
}

/// C6: a transition can be written down and read again.
#[tokio::test(start_paused = true)]
async fn a_transition_goes_through_json() {
    let heard = transitions();
    let rig = Rig::new(CircuitBreakerLayer::builder().with_listener(heard.clone()));
    rig.fails(5).await;
    let (transition, _) = heard.take().remove(0);
    let json = serde_json::to_value(&transition).unwrap();
    assert_eq!(json["to"], "open");
    assert_eq!(json["reason"], "consecutive_failures");
    assert_eq!(
        serde_json::from_value::<Transition>(json).unwrap(),
        transition
    );
}

/// C6: a listener is told while no lock is held: it may look at the breaker that changed, and at
/// all.
#[tokio::test(start_paused = true)]
async fn a_listener_may_use_the_handle() {
    let slot: Arc<Mutex<Option<CircuitBreakerHandle>>> = Arc::default();
    let seen: Arc<Mutex<Vec<BreakerState>>> = Arc::default();
    let (handle, states) = (slot.clone(), seen.clone());
    let builder = CircuitBreakerLayer::builder().with_listener(move |event: &Event<'_>| {
        if let Event::Transition { transition, .. } = event {
            let guard = handle.lock().unwrap();
            let handle = guard.as_ref().unwrap();
            assert_eq!(handle.snapshot()[0].state, transition.to);
            states.lock().unwrap().push(handle.breakers()[0].state());
        }
    });
    let rig = Rig::new(builder);
    *slot.lock().unwrap() = Some(rig.handle.clone());
    rig.half_opens().await;
    rig.ask(ok()).await.unwrap();
    assert_eq!(*seen.lock().unwrap(), [Open, HalfOpen, Closed]);
}

/// C6, C7: a listener is told of a forced state while no lock is held: it may force all breakers.
#[test]
fn a_listener_may_force_all_breakers() {
    let slot: Arc<OnceLock<CircuitBreakerHandle>> = Arc::default();
    let known = slot.clone();
    let builder = CircuitBreakerLayer::builder().with_listener(move |event: &Event<'_>| {
        if let Event::Transition { transition, .. } = event
            && transition.to == BreakerState::Disabled
        {
            known.get().unwrap().reset_all();
        }
    });
    let handle = builder.build().unwrap().handle();
    let breakers = ["search", "fetch"].map(|name| handle.breaker(&tool(name)));
    slot.set(handle.clone()).unwrap();
    let (done, is_done) = mpsc::channel();
    // On a thread of its own, so that a lock that is never free fails the test.
    thread::spawn(move || {
        handle.disable_all();
        let _ = done.send(());
    });
    is_done.recv_timeout(secs(30)).unwrap();
    assert_eq!(breakers.map(|breaker| breaker.state()), [Closed, Closed]);
}

/// C7: the handle lists every breaker with its state and counters, in the order of server and tool.
#[tokio::test(start_paused = true)]
async fn the_handle_lists_every_breaker() {
    let rig = default_rig();
    assert!(rig.handle.is_empty());
    rig.tool.set_then(fails());
    for (name, times) in [("b", 6), ("a", 2), ("c", 1)] {
        for _ in 0..times {
            let _ = rig.send(tool(name)).await;
        }
    }
    let listed: Vec<_> = rig
        .handle
        .snapshot()
        .into_iter()
        .map(|s| (s.tool.unwrap(), s.state, s.failures, s.rejected_total))
        .collect();
    let expected = [("a", Closed, 2, 0), ("b", Open, 5, 1), ("c", Closed, 1, 0)];
    let expected = expected.map(|(tool, state, f, r)| (tool.to_owned(), state, f, r));
    assert_eq!(listed, expected);
    assert_eq!(rig.handle.len(), 3);
}

/// C7: a snapshot goes to JSON and back.
#[tokio::test(start_paused = true)]
async fn a_snapshot_goes_through_json() {
    let rig = default_rig();
    rig.fails(5).await;
    advance(secs(1)).await;
    rig.ask(fails()).await.unwrap_err();
    rig.send(tool("other")).await.unwrap_err();
    let snapshot = rig.handle.snapshot();
    let json = serde_json::to_string(&snapshot).unwrap();
    let back: Vec<BreakerSnapshot> = serde_json::from_str(&json).unwrap();
    assert_eq!(back, snapshot);
    let search = &serde_json::to_value(&snapshot).unwrap()[1];
    assert_eq!(search["server"], "docs");
    assert_eq!(search["tool"], "search");
    assert_eq!(search["state"], "open");
    assert_eq!(search["retry_after_ms"], 59_000);
    assert_eq!(search["rejected_total"], 1);
}

/// C7: a reset closes one breaker and leaves the others, or all are reset at once.
#[tokio::test(start_paused = true)]
async fn a_reset_closes_one_breaker() {
    let rig = default_rig();
    rig.fails(5).await;
    let other = rig.handle.breaker(&tool("other"));
    while !other.record_failure() {}
    rig.breaker().reset();
    assert!(!rig.breaker().is_open());
    assert!(other.is_open());
    rig.fails(4).await;
    assert!(!rig.breaker().is_open());
    rig.breaker().force_open();
    rig.handle.reset_all();
    assert!(rig.handle.breakers().iter().all(|b| b.state() == Closed));
}

/// C7: all are disabled at once, those of tools that come later included, until all are reset.
#[tokio::test(start_paused = true)]
async fn all_breakers_are_disabled_at_once_later_tools_included() {
    let rig = default_rig();
    rig.fails(5).await;
    rig.handle.disable_all();
    rig.fails(20).await;
    for _ in 0..20 {
        assert_eq!(kind(rig.send(tool("later")).await), ErrorKind::Upstream);
    }
    assert!(rig.handle.breakers().iter().all(|b| b.state() == Disabled));
    rig.handle.reset_all();
    rig.fails(5).await;
    for name in ["search", "later", "latest"] {
        for _ in 0..5 {
            let _ = rig.send(tool(name)).await;
        }
        assert_eq!(kind(rig.send(tool(name)).await), ErrorKind::CircuitOpen);
    }
}

/// C7: what is recorded by hand reaches the layer's calls, and theirs the hand.
#[tokio::test(start_paused = true)]
async fn the_hand_and_the_layer_share_a_breaker() {
    let rig = default_rig();
    rig.fails(4).await;
    assert!(rig.breaker().record_failure());
    assert!(!rig.reaches(ok()).await);
    assert!(rig.breaker().admit().is_err());
}

/// C7: an open breaker whose period is over would not refuse a call, so it is not open.
#[tokio::test(start_paused = true)]
async fn is_open_says_whether_a_call_would_be_refused() {
    let rig = default_rig();
    assert!(!rig.breaker().is_open());
    rig.fails(5).await;
    assert!(rig.breaker().is_open());
    advance(secs(60)).await;
    assert!(!rig.breaker().is_open());
    assert_eq!(rig.breaker().snapshot().retry_after, None);
    let _probe = rig.hangs();
    assert!(rig.breaker().is_open());
}

/// C4: why it has opened last, on the errors of the calls that it refuses.
#[tokio::test(start_paused = true)]
async fn the_cause_of_the_last_opening_is_known() {
    let rig = default_rig();
    rig.fails(5).await;
    let details =
        |error: tower_toolcall::ToolError| serde_json::to_value(error.details().unwrap()).unwrap();
    let error = rig.ask(ok()).await.unwrap_err();
    let expected =
        serde_json::json!({ "opened_by": "consecutive_failures", "failures": 5, "calls": 5 });
    assert_eq!(details(error.clone()), expected);
    // Others' details are added to them.
    let mut more = expected;
    more["shard"] = 3.into();
    assert_eq!(details(error.with_detail("shard", 3)), more);
    assert_eq!(details(rig.breaker().admit().unwrap_err())["failures"], 5);

    // The next one replaces it.
    advance(secs(60)).await;
    rig.fails(1).await;
    let error = rig.ask(ok()).await.unwrap_err();
    assert_eq!(details(error)["opened_by"], "probe_failed");
}

/// C7, C8: what did not open by its own results has a cause too.
#[tokio::test(start_paused = true)]
async fn a_forced_and_an_adopted_opening_have_their_cause() {
    let rig = default_rig();
    rig.fails(2).await;
    rig.breaker().force_open();
    let refused = async || {
        let error = rig.ask(ok()).await.unwrap_err();
        serde_json::to_value(error.details().unwrap()).unwrap()
    };
    let details = refused().await;
    assert_eq!(
        (&details["opened_by"], &details["failures"]),
        (&"forced".into(), &2.into())
    );
    rig.breaker().reset();
    rig.breaker().adopt(secs(5));
    let details = refused().await;
    assert_eq!(
        (&details["opened_by"], &details["failures"]),
        (&"shared".into(), &0.into())
    );
}

/// X6: a list may ask which tools are refused, and changes nothing by that.
#[tokio::test(start_paused = true)]
async fn asking_whether_calls_are_refused_changes_nothing() {
    let rig = default_rig();
    assert!(!rig.handle.is_refusing(&call()));
    assert!(rig.handle.is_empty());
    rig.fails(5).await;
    let before = rig.breaker().snapshot();
    assert!(rig.handle.is_refusing(&call()));
    assert_eq!(rig.breaker().snapshot(), before);
    advance(secs(60)).await;
    assert!(!rig.handle.is_refusing(&call()), "a probe may run");
    assert_eq!(rig.breaker().state(), Open);
    // While a probe runs others are refused, but the tool is on trial.
    let _probe = rig.hangs();
    assert!(rig.breaker().is_open());
    assert!(!rig.handle.is_refusing(&call()));
    rig.breaker().force_open();
    assert!(rig.handle.is_refusing(&call()));
    assert_eq!(rig.handle.len(), 1);
}
