//! Random schedules of what three processes do, and of what becomes of their way to the store.

use std::env;

use tokio::time::sleep;
use tower_toolcall::{
    ToolCall,
    circuit_breaker::{BreakerSnapshot, BreakerState},
};

use BreakerState::{Closed, Disabled, ForcedClosed, ForcedOpen, HalfOpen, Open};

use super::{
    Process, millis, secs,
    store::{Link, Way},
};

/// Splitmix64.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }
}

fn limited() -> ToolCall {
    ToolCall::new("search").with_server("s")
}

/// One of them does something, or time passes.
async fn step(random: &mut Random, fleet: &[Process; 3]) {
    let process = &fleet[random.below(3) as usize];
    match random.below(18) {
        0..=2 => process.fails("search"),
        3 | 4 => _ = process.calls("search", true),
        5 | 6 => _ = process.calls("search", false),
        7 => match random.below(4) {
            0 => process.breaker("search").force_open(),
            1 => process.breaker("search").force_closed(),
            2 => process.breaker("search").disable(),
            _ => process.breaker("search").reset(),
        },
        8 | 9 => process.link.is(match random.below(6) {
            5 => Way::Full,
            0 => Way::Cut,
            1 => Way::Deaf,
            2 => Way::Slow(millis(random.below(2_000))),
            3 => Way::Mute,
            _ => Way::Good,
        }),
        10 => process.link.loses_everything(),
        16 => {
            let cooldown = secs(1 + random.below(200));
            process.limits.cool(&limited(), cooldown);
        }
        17 => process.limits.clear(&limited()),
        11 | 12 => sleep(millis(random.below(20))).await,
        13 | 14 => sleep(secs(random.below(5))).await,
        _ => sleep(secs(random.below(90))).await,
    }
}

async fn schedule(seed: u64) {
    let mut random = Random(seed);
    let link = Link::new();
    let fleet: [Process; 3] = std::array::from_fn(|_| Process::start(link.another()));
    for _ in 0..random.below(30) {
        step(&mut random, &fleet).await;
    }
    // Nothing is lost any more: they agree after two exchanges, of those that were told late.
    fleet.iter().for_each(|process| process.link.is(Way::Good));
    sleep(secs(4)).await;
    let seen = fleet
        .each_ref()
        .map(|process| process.breaker("search").snapshot());
    let is_forced = |state| matches!(state, ForcedOpen | ForcedClosed | Disabled);
    if seen.iter().any(|seen| is_forced(seen.state)) {
        let states = seen.each_ref().map(|seen| seen.state);
        assert!(
            states.iter().all(|state| *state == states[0]),
            "{seed}: {states:?}"
        );
    } else {
        let is_open = |seen: &BreakerSnapshot| {
            // Without the part of a grace.
            let left = seen.retry_after.unwrap_or_default();
            seen.state == Open && left > secs(10)
        };
        if seen.iter().any(is_open) {
            let refuses = |seen: &BreakerSnapshot| matches!(seen.state, Open | HalfOpen);
            assert!(seen.iter().all(refuses), "{seed}: {seen:?}");
        }
    }
    // What ends in these moments may have ended for some.
    let cools = fleet
        .each_ref()
        .map(|process| process.limits.remaining(&limited()).unwrap_or_default());
    let (most, least) = (cools.iter().max().unwrap(), cools.iter().min().unwrap());
    assert!(
        least.is_zero() == most.is_zero() || *most < secs(4),
        "{seed}: {cools:?}"
    );
    // Nor is any of them stuck: once calls succeed, all close.
    if is_forced(seen[0].state) {
        fleet[0].breaker("search").reset();
    }
    for _ in 0..4 {
        sleep(secs(150)).await;
        for process in &fleet {
            process.calls("search", true);
        }
    }
    let states = fleet.each_ref().map(|process| process.state("search"));
    assert_eq!(states, [Closed; 3], "{seed}");
    fleet.into_iter().for_each(Process::killed);
}

/// C8: whatever is lost, late, or written twice, the processes agree, and no breaker is stuck.
/// `SCHEDULES` is how many are tried.
#[test]
fn processes_agree_after_any_loss_and_no_breaker_is_stuck() {
    let count = env::var("SCHEDULES").map_or(100, |n| n.parse().unwrap());
    let from = env::var("FROM").map_or(0, |n| n.parse().unwrap());
    // One that failed once.
    for seed in (from..from + count).chain([39_319]) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(schedule(seed));
    }
}
