//! What persons force and reset, and what becomes of it when much happens at once, or the store is
//! away.

use tokio::time::sleep;
use tower_toolcall::Keys;
use tower_toolcall::circuit_breaker::{BreakerState, CircuitBreakerLayer};

use BreakerState::{Closed, Disabled, ForcedOpen, Open};

use super::{Process, fleet, secs, settle, store::Way};

/// C8: more resets at once than a subscriber is given to keep.
#[tokio::test(start_paused = true)]
async fn a_thousand_openings_that_are_reset_at_once_end_everywhere() {
    let [a, b, c] = fleet().await;
    let tools: Vec<_> = (0..1_000).map(|n| format!("tool{n}")).collect();
    tools.iter().for_each(|tool| a.fails(tool));
    settle().await;
    assert!(tools.iter().all(|tool| c.state(tool) == Open));
    // B has only taken them over.
    b.breakers.reset_all();
    sleep(secs(2)).await;
    for process in [&a, &b, &c] {
        let open = tools.iter().filter(|tool| process.state(tool) != Closed);
        assert_eq!(open.count(), 0);
    }
}

/// C8: by the process that has opened them.
#[tokio::test(start_paused = true)]
async fn a_thousand_own_openings_that_are_reset_at_once_end_everywhere() {
    let [a, b] = fleet().await;
    let tools: Vec<_> = (0..1_000).map(|n| format!("tool{n}")).collect();
    for tool in &tools {
        a.fails(tool);
        b.fails(tool);
    }
    settle().await;
    a.breakers.reset_all();
    sleep(secs(2)).await;
    assert!(tools.iter().all(|tool| b.state(tool) == Closed));
}

/// C8: what a person says after the fleet's last word holds, although nothing of that word was
/// known yet.
#[tokio::test(start_paused = true)]
async fn what_is_forced_before_the_store_was_read_holds() {
    let [a] = fleet().await;
    a.breaker("search").force_open();
    settle().await;
    a.breaker("search").reset();
    settle().await;
    // Disabled before its mirror runs, by its configuration.
    let layer = CircuitBreakerLayer::new();
    let call = tower_toolcall::ToolCall::new("search").with_server("s");
    layer.handle().breaker(&call).disable();
    let b = Process::with(a.link.another(), &layer);
    settle().await;
    assert_eq!([a.state("search"), b.state("search")], [Disabled, Disabled]);
}

/// C8.
#[tokio::test(start_paused = true)]
async fn what_is_forced_while_the_store_is_away_holds_when_it_is_back() {
    let [a, b] = fleet().await;
    a.breaker("search").force_open();
    settle().await;
    a.breaker("search").reset();
    settle().await;
    b.link.is(Way::Cut);
    sleep(secs(5)).await;
    b.breaker("search").force_open();
    // Meanwhile another person, who knows nothing of that.
    a.breaker("search").disable();
    sleep(secs(600)).await;
    b.link.is(Way::Good);
    sleep(secs(3)).await;
    assert_eq!(
        [a.state("search"), b.state("search")],
        [ForcedOpen, ForcedOpen]
    );
}

/// C8: an opening after a reset, and its end by a period or a probe, do not hide the reset from a
/// process that was away.
#[tokio::test(start_paused = true)]
async fn a_reset_is_heard_later_although_an_opening_followed_it() {
    for (away, probes) in [(100, false), (66, true)] {
        let [a, b] = fleet().await;
        a.breaker("search").disable();
        settle().await;
        b.link.is(Way::Cut);
        a.breaker("search").reset();
        a.fails("search");
        sleep(secs(away)).await;
        assert!(!probes || a.calls("search", true));
        settle().await;
        assert_eq!(b.state("search"), Disabled);
        b.link.is(Way::Good);
        sleep(secs(2)).await;
        assert_eq!(b.state("search"), Closed);
    }
}

/// C8: a state that found no place is no reset, and gets its place as soon as there is one.
#[tokio::test(start_paused = true)]
async fn a_forced_state_that_finds_no_place_is_not_taken_for_a_reset() {
    let [a] = fleet().await;
    let layer = CircuitBreakerLayer::builder()
        .with_keys(Keys::default().at_most(2))
        .build();
    let b = Process::with(a.link.another(), &layer.unwrap());
    settle().await;
    b.breaker("first").force_closed();
    b.breaker("second").force_closed();
    settle().await;
    a.breaker("search").force_open();
    sleep(secs(2)).await;
    b.breaker("first").reset();
    // More than a subscriber keeps.
    for _ in 0..200 {
        b.breaker("second").force_open();
        b.breaker("second").force_closed();
    }
    sleep(secs(5)).await;
    assert_eq!(a.state("search"), ForcedOpen);
    assert_eq!(b.state("search"), ForcedOpen);
}

/// C8: what strangers make servers say leaves room for what a person says.
#[tokio::test(start_paused = true)]
async fn a_person_is_heard_although_ten_thousand_keys_are_known() {
    let [a, b] = fleet().await;
    for n in 0..10_000 {
        let call = tower_toolcall::ToolCall::new(format!("tool{n}"));
        a.limits.cool(&call, secs(200));
    }
    sleep(secs(5)).await;
    a.breaker("search").force_open();
    sleep(secs(2)).await;
    assert_eq!(b.state("search"), ForcedOpen);
    // Nor do limits take the places of openings.
    a.fails("fetch");
    sleep(secs(2)).await;
    assert_eq!(b.state("fetch"), Open);
}

/// C8: nor do the resets of many breakers, which are remembered for days.
#[tokio::test(start_paused = true)]
async fn limits_are_shared_although_ten_thousand_breakers_were_reset() {
    let [a, b] = fleet().await;
    for n in 0..10_000 {
        a.breaker(&format!("tool{n}"));
    }
    a.breakers.disable_all();
    sleep(secs(5)).await;
    a.breakers.reset_all();
    sleep(secs(5)).await;
    let call = tower_toolcall::ToolCall::new("search");
    a.limits.cool(&call, secs(60));
    sleep(secs(2)).await;
    assert!(b.limits.remaining(&call).is_some());
}

/// C8: a reset that a subscriber missed stands, although the breaker has opened since.
#[tokio::test(start_paused = true)]
async fn a_reset_that_was_missed_is_not_undone_by_an_opening_after_it() {
    let [a, b] = fleet().await;
    // More than a subscriber keeps.
    let tools: Vec<_> = (0..300).map(|n| format!("tool{n}")).collect();
    tools.iter().for_each(|tool| a.breaker(tool).force_open());
    sleep(secs(2)).await;
    a.breakers.reset_all();
    a.fails("tool0");
    sleep(secs(2)).await;
    assert_eq!([a.state("tool0"), b.state("tool0")], [Open, Open]);
    sleep(secs(70)).await;
    assert!(a.calls("tool0", true) && b.calls("tool0", true));
}

/// C8: a store that had no room.
#[tokio::test(start_paused = true)]
async fn what_was_refused_is_told_when_there_is_room() {
    let [a, b] = fleet().await;
    a.link.is(Way::Full);
    a.breaker("search").force_open();
    sleep(secs(20)).await;
    assert_eq!(b.state("search"), Closed);
    a.link.is(Way::Good);
    sleep(secs(2)).await;
    assert_eq!(b.state("search"), ForcedOpen);
}

/// C8: what ended processes have told takes no place for ever.
#[tokio::test(start_paused = true)]
async fn processes_that_come_and_go_are_heard_however_many_there_were() {
    let [a] = fleet().await;
    for n in 0..70 {
        let guest = Process::start(a.link.another());
        sleep(secs(2)).await;
        guest.fails("search");
        settle().await;
        assert_eq!(a.state("search"), Open, "{n}");
        guest.killed();
        sleep(secs(300)).await;
        a.calls("other", true);
    }
    assert_eq!(a.shared.snapshot().dropped_total, 0);
}

/// C8: what others have added to an own period is not told as ours.
#[tokio::test(start_paused = true)]
async fn openings_do_not_prolong_each_other() {
    let [a, b] = fleet().await;
    a.fails("search");
    b.fails("search");
    settle().await;
    let longest = a.left("search").max(b.left("search"));
    for _ in 0..4 {
        for process in [&a, &b] {
            for _ in 0..200 {
                process.breaker("other").force_open();
                process.breaker("other").reset();
            }
            sleep(secs(2)).await;
        }
        sleep(secs(9)).await;
    }
    let left = a.left("search").max(b.left("search"));
    assert!(
        left + secs(52) <= longest + secs(10),
        "{left:?} of {longest:?}"
    );
}

/// C8.
#[tokio::test(start_paused = true)]
async fn words_that_change_nothing_make_no_breakers() {
    let [a, b] = fleet().await;
    a.fails("search");
    settle().await;
    sleep(secs(70)).await;
    let late = Process::start(b.link.another());
    settle().await;
    assert!(a.calls("search", true));
    a.breaker("other").force_open();
    a.breaker("other").reset();
    settle().await;
    assert!(late.breakers.is_empty());
    assert_eq!(late.shared.snapshot().dropped_total, 0);
}

/// C8: breakers that a program makes disabled have no register.
#[tokio::test(start_paused = true)]
async fn the_openings_and_closings_of_others_leave_what_is_disabled_here() {
    for was_reset in [false, true] {
        let [a] = fleet().await;
        if was_reset {
            a.breaker("search").force_open();
            a.breaker("search").reset();
            settle().await;
        }
        let b = Process::start(a.link.another());
        settle().await;
        b.breakers.disable_all();
        assert_eq!(b.state("search"), Disabled);
        a.fails("search");
        settle().await;
        assert_eq!(b.state("search"), Disabled, "open, {was_reset}");
        sleep(secs(66)).await;
        assert!(a.calls("search", true));
        settle().await;
        assert_eq!(b.state("search"), Disabled, "closed, {was_reset}");
    }
}
