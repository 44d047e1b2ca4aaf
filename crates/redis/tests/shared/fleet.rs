//! What the processes of a fleet know of each other's breakers.

use tokio::time::{advance, sleep};
use tower_toolcall::{
    Key,
    circuit_breaker::{BreakerState, CircuitBreakerLayer},
    rate_limit::RateLimitBackoffLayer,
};
use tower_toolcall_redis::{MemoryStore, SharedState};

use BreakerState::{Closed, Disabled, ForcedOpen, Open};

use super::{
    Process, fleet, millis, secs, settle,
    store::{Link, Way},
};

/// C8.
#[tokio::test(start_paused = true)]
async fn an_opening_in_one_process_stops_the_others() {
    let [a, b] = fleet().await;
    a.fails("search");
    settle().await;
    assert!(b.breaker("search").snapshot().adopted);
    assert!(!b.calls("search", true));
    // Another tool is another key.
    assert!(b.calls("fetch", true));
    // A's period, and a part of the grace.
    let left = b.left("search");
    assert!(left > secs(59) && left <= secs(65), "{left:?}");
}

/// C8: refusals are no failures, and what was taken over is not told again.
#[tokio::test(start_paused = true)]
async fn what_was_taken_over_is_not_told_again() {
    let [a, b] = fleet().await;
    a.fails("search");
    settle().await;
    for _ in 0..20 {
        assert!(!b.calls("search", false));
    }
    settle().await;
    assert_eq!(b.shared.snapshot().told_total, 0);
    assert_eq!(b.shared.snapshot().adopted_total, 1);
    assert_eq!(a.shared.snapshot().adopted_total, 0);
}

/// C8: an opening ends by itself, whatever became of who has told it.
#[tokio::test(start_paused = true)]
async fn an_opening_ends_although_its_process_and_the_store_are_gone() {
    let [a, b] = fleet().await;
    a.fails("search");
    settle().await;
    b.link.is(Way::Cut);
    a.killed();
    sleep(secs(70)).await;
    assert!(b.calls("search", true));
    assert_eq!(b.state("search"), Closed);
}

/// C8: the success of one probe is that of all, also of those with failures of their own.
#[tokio::test(start_paused = true)]
async fn a_probe_that_succeeds_closes_all() {
    let [a, b, c] = fleet().await;
    a.fails("search");
    b.fails("search");
    settle().await;
    sleep(secs(66)).await;
    assert!(c.calls("search", true));
    settle().await;
    let states = [&a, &b, &c].map(|process| process.state("search"));
    assert_eq!(states, [Closed, Closed, Closed]);
}

/// C8.
#[tokio::test(start_paused = true)]
async fn a_probe_that_fails_keeps_all_open() {
    let [a, b] = fleet().await;
    a.fails("search");
    settle().await;
    sleep(secs(66)).await;
    assert!(b.calls("search", false));
    settle().await;
    assert!(!a.calls("search", true));
    assert!(a.left("search") > secs(59));
}

/// C8: processes do not probe together.
#[tokio::test(start_paused = true)]
async fn processes_take_an_opening_over_for_different_times() {
    let [a, others @ ..] = fleet::<9>().await;
    a.fails("search");
    settle().await;
    let mut left = others.map(|process| process.left("search"));
    left.sort_unstable();
    assert!(left[7] - left[0] > secs(1), "{left:?}");
    assert!(left.windows(2).all(|pair| pair[0] < pair[1]), "{left:?}");
}

/// C8: also processes that have seen the failures themselves, in the same moment.
#[tokio::test(start_paused = true)]
async fn processes_that_open_at_once_probe_one_after_another() {
    let fleet = fleet::<9>().await;
    for process in &fleet {
        process.fails("search");
    }
    settle().await;
    let mut left = fleet.map(|process| process.left("search"));
    left.sort_unstable();
    assert!(left[0] <= secs(60) && left[8] > secs(60), "{left:?}");
    assert!(left.windows(2).all(|pair| pair[0] < pair[1]), "{left:?}");
    assert!(left[8] - left[1] > secs(1), "{left:?}");
}

/// C8: by the version that it knew.
#[tokio::test(start_paused = true)]
async fn a_closing_leaves_an_opening_that_it_did_not_know() {
    let [a, b] = fleet().await;
    a.fails("search");
    settle().await;
    b.link.is(Way::Cut);
    sleep(secs(70)).await;
    assert!(b.calls("search", true));
    assert!(a.calls("search", false));
    settle().await;
    b.link.is(Way::Good);
    sleep(secs(2)).await;
    assert_eq!([a.state("search"), b.state("search")], [Open, Open]);
}

/// C8.
#[tokio::test(start_paused = true)]
async fn two_that_close_at_once_leave_all_closed() {
    let [a, b, c] = fleet().await;
    a.fails("search");
    b.fails("search");
    settle().await;
    assert_eq!(c.state("search"), Open);
    sleep(secs(80)).await;
    assert!(a.calls("search", true));
    assert!(b.calls("search", true));
    settle().await;
    let states = [&a, &b, &c].map(|process| process.state("search"));
    assert_eq!(states, [Closed, Closed, Closed]);
}

/// C8.
#[tokio::test(start_paused = true)]
async fn a_forced_state_is_forced_everywhere_until_it_is_reset() {
    let [a, b] = fleet().await;
    a.breaker("search").force_open();
    settle().await;
    assert_eq!(b.state("search"), ForcedOpen);
    // By whoever.
    b.breaker("search").reset();
    settle().await;
    assert_eq!(a.state("search"), Closed);
    assert_eq!(
        (
            a.shared.snapshot().told_total,
            b.shared.snapshot().told_total
        ),
        (1, 1)
    );
}

/// C8: more than a listener is given to keep.
#[tokio::test(start_paused = true)]
async fn a_thousand_that_are_forced_at_once_are_told() {
    let [a, b] = fleet().await;
    for n in 0..1_000 {
        a.breaker(&format!("tool{n}"));
    }
    a.breakers.disable_all();
    settle().await;
    assert!((0..1_000).all(|n| b.state(&format!("tool{n}")) == Disabled));
    a.breakers.reset_all();
    settle().await;
    assert!((0..1_000).all(|n| b.state(&format!("tool{n}")) == Closed));
}

/// C8.
#[tokio::test(start_paused = true)]
async fn a_thousand_that_open_at_once_are_taken_over_at_once() {
    let [a, b] = fleet().await;
    (0..1_000).for_each(|n| a.fails(&format!("tool{n}")));
    settle().await;
    assert!((0..1_000).all(|n| b.state(&format!("tool{n}")) == Open));
}

/// C8: lost hints.
#[tokio::test(start_paused = true)]
async fn without_hints_it_is_known_after_a_second() {
    let [a, b] = fleet().await;
    b.link.is(Way::Mute);
    sleep(secs(2)).await;
    a.fails("search");
    sleep(millis(1_001)).await;
    assert_eq!(b.state("search"), Open);
}

/// C8: the loss of the store costs nothing that is known here, and is visible.
#[tokio::test(start_paused = true)]
async fn while_the_store_is_gone_each_process_goes_on_alone() {
    let [a, b] = fleet().await;
    a.fails("first");
    settle().await;
    a.link.is(Way::Cut);
    b.link.is(Way::Cut);
    a.fails("second");
    sleep(secs(3)).await;
    let seen = a.shared.snapshot();
    assert_eq!(seen.is_up, Some(false));
    assert!((3..=5).contains(&seen.failed_total), "{seen:?}");
    assert_eq!([a.state("second"), b.state("second")], [Open, Closed]);
    assert_eq!(b.state("first"), Open);
    a.link.is(Way::Good);
    b.link.is(Way::Good);
    sleep(secs(2)).await;
    assert_eq!(b.state("second"), Open);
    assert_eq!(a.shared.snapshot().is_up, Some(true));
    // What is left of it, not all of it again.
    assert!(b.left("second") <= secs(62), "{:?}", b.left("second"));
}

/// C8: an answer that got lost.
#[tokio::test(start_paused = true)]
async fn an_opening_that_was_told_twice_is_one() {
    let [a, b] = fleet().await;
    a.link.is(Way::Deaf);
    a.fails("search");
    sleep(secs(3)).await;
    a.link.is(Way::Good);
    sleep(secs(3)).await;
    assert_eq!(b.state("search"), Open);
    assert_eq!(a.shared.snapshot().told_total, 1);
    assert_eq!(b.shared.snapshot().adopted_total, 1);
}

/// C8: a store keeps nothing for longer than a week.
#[tokio::test(start_paused = true)]
async fn an_opening_of_more_than_a_week_is_told_once() {
    let layer = CircuitBreakerLayer::builder().with_open_for(secs(8 * 24 * 3600));
    let a = Process::with(Link::new(), &layer.build().unwrap());
    settle().await;
    a.fails("search");
    sleep(secs(5)).await;
    let seen = a.shared.snapshot();
    assert_eq!((seen.told_total, seen.dropped_total), (1, 0));
}

/// C8.
#[tokio::test(start_paused = true)]
async fn a_store_that_comes_back_empty_is_told_what_holds() {
    let [a, b] = fleet().await;
    a.fails("search");
    a.breaker("admin").force_open();
    settle().await;
    a.link.loses_everything();
    sleep(secs(2)).await;
    assert_eq!([b.state("search"), b.state("admin")], [Open, ForcedOpen]);
    let late = Process::start(a.link.another());
    sleep(secs(1)).await;
    assert_eq!(
        [late.state("search"), late.state("admin")],
        [Open, ForcedOpen]
    );
}

/// C8.
#[tokio::test(start_paused = true)]
async fn a_new_process_knows_what_the_others_know() {
    let [a] = fleet().await;
    a.fails("search");
    settle().await;
    advance(secs(20)).await;
    let late = Process::start(a.link.another());
    settle().await;
    assert_eq!(late.state("search"), Open);
    let left = late.left("search");
    assert!(left > secs(39) && left <= secs(45), "{left:?}");
}

/// C8: what had been open before anybody listened.
#[tokio::test(start_paused = true)]
async fn what_was_open_before_is_told_too() {
    let [a] = fleet().await;
    let layer = CircuitBreakerLayer::new();
    let handle = layer.handle();
    let call = tower_toolcall::ToolCall::new("search").with_server("s");
    for _ in 0..5 {
        handle.breaker(&call).record_failure();
    }
    let shared = SharedState::new(a.link.another());
    tokio::spawn(shared.breakers("tools", &handle).unwrap().run());
    settle().await;
    assert_eq!(a.state("search"), Open);
}

/// C8: a slow store holds nobody back, and an answer that does not come is not waited for.
#[tokio::test(start_paused = true)]
async fn a_slow_store_is_given_up_after_a_second() {
    let [a, b] = fleet().await;
    a.link.is(Way::Slow(secs(3600)));
    a.fails("search");
    sleep(millis(1_500)).await;
    assert_eq!(a.shared.snapshot().is_up, Some(false));
    assert!(!a.calls("search", true));
    // It was written all the same.
    assert_eq!(b.state("search"), Open);
}

/// C8: an opening of its own that a process missed among many is told, if it is longer than what
/// the others know.
#[tokio::test(start_paused = true)]
async fn a_longer_opening_that_was_missed_is_told() {
    let [a] = fleet().await;
    let long = || CircuitBreakerLayer::builder().with_open_for(secs(300));
    let [b, c] = [(); 2].map(|()| Process::with(a.link.another(), &long().build().unwrap()));
    settle().await;
    b.breakers.disable_all();
    assert_eq!(b.state("search"), Disabled);
    a.fails("search");
    settle().await;
    b.breakers.reset_all();
    b.fails("search");
    // More than a subscriber is given to keep.
    for _ in 0..200 {
        b.breaker("other").force_open();
        b.breaker("other").reset();
    }
    sleep(secs(2)).await;
    assert!(b.left("search") > secs(290));
    assert!(c.left("search") > secs(290), "{:?}", c.left("search"));
}

/// C8: names that were cut might be two tools.
#[tokio::test(start_paused = true)]
async fn a_name_that_is_too_long_is_not_shared() {
    let [a, b] = fleet().await;
    let long = "x".repeat(300);
    a.fails(&long);
    settle().await;
    assert_eq!(b.state(&long), Closed);
    assert_eq!(a.shared.snapshot().told_total, 0);
}

/// C8.
#[tokio::test(start_paused = true)]
async fn layers_are_told_apart_by_their_names() {
    let [a] = fleet().await;
    let layer = CircuitBreakerLayer::new();
    let shared = SharedState::new(a.link.another());
    let shared = shared.breakers("other", &layer.handle()).unwrap();
    let handle = shared.handle();
    tokio::spawn(shared.run());
    a.fails("search");
    settle().await;
    assert!(layer.handle().is_empty());
    assert_eq!(handle.snapshot().dropped_total, 1);
}

/// C8: what is no register is dropped and counted.
#[tokio::test(start_paused = true)]
async fn nonsense_in_the_store_is_counted() {
    let [a, b] = fleet().await;
    b.link.is(Way::Garbled);
    assert_eq!(b.shared.snapshot().dropped_total, 0);
    a.fails("search");
    settle().await;
    assert_eq!(b.shared.snapshot().dropped_total, 1);
    assert_eq!(b.state("search"), Closed);
}

/// C8: what a function makes may be a secret.
#[tokio::test]
async fn keys_of_a_function_are_shared_by_an_explicit_word_only() {
    for key in [Key::by(|call| call.tool()), Key::hashed(|_| 7)] {
        let layer = CircuitBreakerLayer::builder()
            .with_keys(key)
            .build()
            .unwrap();
        let new = || SharedState::new(MemoryStore::new());
        let error = new().breakers("tools", &layer.handle()).unwrap_err();
        assert_eq!(error.field(), "layer");
        let _ = new().public_breakers("tools", &layer.handle()).unwrap();
    }
}

/// C8: ids of callers stay in their process, and the error does not advise what would share
/// nothing.
#[tokio::test]
async fn keys_of_sessions_and_principals_are_not_shared() {
    let by = Key::by(|call| call.tool()).per_principal();
    for key in [Key::Session, Key::Tool.per_principal(), by] {
        let breaker = CircuitBreakerLayer::builder().with_keys(key.clone());
        let breaker = breaker.build().unwrap().handle();
        let limit = RateLimitBackoffLayer::builder().with_keys(key);
        let limit = limit.build().unwrap().handle();
        let new = || SharedState::new(MemoryStore::new());
        for refused in [
            new().breakers("tools", &breaker),
            new().public_breakers("tools", &breaker),
            new().rate_limits("limits", &limit),
            new().public_rate_limits("limits", &limit),
        ] {
            let error = refused.unwrap_err();
            assert_eq!(error.field(), "layer");
            assert!(error.reason().contains("ids of callers"), "{error}");
        }
    }
}

/// C8.
#[tokio::test]
async fn settings_that_cannot_work_are_refused() {
    let new = || SharedState::new(MemoryStore::new());
    let handle = CircuitBreakerLayer::new().handle();
    for name in ["", "a\nb", &"x".repeat(65)] {
        assert_eq!(new().breakers(name, &handle).unwrap_err().field(), "layer");
    }
    let twice = new().breakers("a", &handle).unwrap().breakers("a", &handle);
    assert_eq!(twice.unwrap_err().field(), "layer");
    assert_eq!(new().with_grace(secs(3_601)).unwrap_err().field(), "grace");
    assert_eq!(new().with_resync(millis(9)).unwrap_err().field(), "resync");
}
