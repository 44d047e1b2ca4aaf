use std::thread;

use proptest::prelude::*;

use super::*;

const SECOND: u64 = 1_000_000_000;

fn bucket(interval: u64, burst: u32) -> Bucket {
    Bucket::new(Rate { interval, burst })
}

fn taken(bucket: &Bucket, now: u64, calls: u32) -> u32 {
    (0..calls)
        .map(|_| u32::from(bucket.take(now, bucket.rate.interval)))
        .sum()
}

#[test]
fn a_new_bucket_is_full_and_an_old_one_is_no_fuller() {
    for now in [0, 1, 1000 * SECOND, u64::MAX / 2] {
        let bucket = bucket(SECOND, 5);
        assert_eq!(taken(&bucket, now, 100), 5);
        assert_eq!(bucket.remaining(now), 0);
    }
}

#[test]
fn units_come_back_one_by_one() {
    let bucket = bucket(SECOND, 5);
    taken(&bucket, 0, 5);
    assert_eq!(taken(&bucket, SECOND - 1, 5), 0);
    assert_eq!(taken(&bucket, SECOND, 5), 1);
    assert_eq!(taken(&bucket, 3 * SECOND, 5), 2);
    assert_eq!(bucket.remaining(7 * SECOND - 1), 3);
    assert_eq!(bucket.remaining(7 * SECOND), 4);
}

#[test]
fn more_than_a_bucket_holds_is_never_there() {
    let rate = bucket(SECOND, 5).rate;
    assert_eq!(rate.time(5), Some(5 * SECOND));
    assert_eq!(rate.time(6), None);
    assert_eq!(rate.time(0), Some(0));
}

#[test]
fn turns_come_in_the_order_of_calls() {
    let bucket = bucket(SECOND, 1);
    taken(&bucket, 0, 1);
    let at: Vec<_> = (0..3)
        .map(|_| bucket.reserve(0, u64::MAX, SECOND).unwrap().at)
        .collect();
    assert_eq!(at, [SECOND, 2 * SECOND, 3 * SECOND]);
    // While others wait nobody passes them.
    assert!(!bucket.take(2 * SECOND, SECOND));
}

#[test]
fn a_turn_that_would_come_too_late_is_not_taken() {
    let bucket = bucket(SECOND, 1);
    taken(&bucket, 0, 1);
    assert_eq!(bucket.too_late(0, SECOND - 1, SECOND), Some(SECOND));
    assert_eq!(bucket.reserve(0, SECOND - 1, SECOND), Err(SECOND));
    assert_eq!(bucket.too_late(0, SECOND, SECOND), None);
    assert!(bucket.reserve(0, SECOND, SECOND).is_ok());
}

/// In whatever order: a batch that is cancelled costs those who come later nothing.
#[test]
fn turns_that_all_come_back_are_as_if_they_had_never_been() {
    for order in [[0, 1, 2, 3], [3, 2, 1, 0], [1, 3, 0, 2]] {
        let bucket = bucket(SECOND, 1);
        taken(&bucket, 0, 1);
        let before = bucket.full_at();
        let turns: Vec<_> = (0..4)
            .map(|_| bucket.reserve(0, u64::MAX, SECOND).unwrap())
            .collect();
        for i in order {
            bucket.give_back(0, turns[i]);
        }
        assert_eq!(bucket.full_at(), before);
        assert!(bucket.free.lock().unwrap().is_empty());
    }
}

#[test]
fn a_returned_turn_before_others_is_for_the_next_calls() {
    let bucket = bucket(SECOND, 3);
    taken(&bucket, 0, 3);
    let large = bucket.reserve(0, u64::MAX, 3 * SECOND).unwrap();
    let last = bucket.reserve(0, u64::MAX, SECOND).unwrap();
    assert_eq!((large.at, last.at), (3 * SECOND, 4 * SECOND));
    bucket.give_back(0, large);
    // Three units, of which the first is there after a second.
    assert_eq!(bucket.too_late(0, SECOND - 1, SECOND), Some(SECOND));
    assert_eq!(bucket.reserve(0, SECOND - 1, SECOND), Err(SECOND));
    let at: Vec<_> = (0..4)
        .map(|_| bucket.reserve(0, u64::MAX, SECOND).unwrap().at)
        .collect();
    assert_eq!(at, [SECOND, 2 * SECOND, 3 * SECOND, 5 * SECOND]);
}

#[test]
fn a_turn_that_has_come_is_lost_if_calls_wait_behind_it() {
    let bucket = bucket(SECOND, 1);
    taken(&bucket, 0, 1);
    let first = bucket.reserve(0, u64::MAX, SECOND).unwrap();
    bucket.reserve(0, u64::MAX, SECOND).unwrap();
    bucket.give_back(SECOND + 1, first);
    let next = bucket.reserve(SECOND + 1, u64::MAX, SECOND);
    assert_eq!(next.unwrap().at, 3 * SECOND);
}

#[test]
fn given_back_turns_are_bounded() {
    let bucket = bucket(SECOND, 1);
    let turns: Vec<_> = (0..5000)
        .map(|_| bucket.reserve(0, u64::MAX, SECOND).unwrap())
        .collect();
    for turn in &turns[1..4999] {
        bucket.give_back(0, *turn);
    }
    assert_eq!(bucket.free.lock().unwrap().len(), 1024);
}

#[test]
fn nothing_overflows() {
    let bucket = bucket(u64::MAX / 3, 2);
    let rate = bucket.rate;
    for now in [0, u64::MAX / 2, u64::MAX] {
        bucket.take(now, rate.time(2).unwrap());
        if let Ok(turn) = bucket.reserve(now, u64::MAX, rate.time(2).unwrap()) {
            bucket.give_back(now, turn);
        }
        assert!(bucket.remaining(now) <= 2);
    }
}

#[test]
fn threads_share_the_units() {
    let bucket = bucket(SECOND, 10_000);
    let taken: u32 = thread::scope(|scope| {
        let work = |_| scope.spawn(|| taken(&bucket, 0, 4000));
        let threads: Vec<_> = (0..4).map(work).collect();
        threads.into_iter().map(|t| t.join().unwrap()).sum()
    });
    assert_eq!(taken, 10_000);
}

/// A call, and what happens before it.
#[derive(Clone, Debug)]
struct Step {
    /// The time since the call before.
    after: u64,
    /// How many units the call costs.
    cost: u32,
    /// How long it would wait at most.
    patience: u64,
    /// Which of the calls that wait gives up before this one comes.
    gives_up: Option<prop::sample::Index>,
    /// Whether this one is not sent when its turn comes: it goes on waiting until it gives up.
    is_stuck: bool,
}

fn steps(gives_up: bool) -> impl Strategy<Value = Vec<Step>> {
    let step = (
        prop_oneof![Just(0), 0..3000u64, 0..60_000u64],
        0..8u32,
        prop_oneof![Just(0), 0..20_000u64, Just(u64::MAX)],
        prop::option::of(any::<prop::sample::Index>()),
        prop::bool::weighted(0.2),
    );
    let step = step.prop_map(move |(after, cost, patience, who, is_stuck)| Step {
        after,
        cost,
        patience,
        gives_up: who.filter(|_| gives_up),
        is_stuck: is_stuck && gives_up,
    });
    prop::collection::vec(step, 1..80)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Against a bucket that counts what is in it: a call is sent in the first nanosecond in which
    /// its units are there, and not before; and one is refused only if they are not there in time.
    #[test]
    fn each_call_has_its_turn_when_its_units_are_there(
        steps in steps(false),
        interval in 1_000..3_000u64,
        burst in 1..10u32,
    ) {
        let bucket = bucket(interval, burst);
        let capacity = i128::from(interval) * i128::from(burst);
        let (mut now, mut level) = (0u64, capacity);
        for step in steps {
            now += step.after;
            level = capacity.min(level + i128::from(step.after));
            let Some(time) = bucket.rate.time(step.cost) else {
                prop_assert!(step.cost > burst);
                continue;
            };
            let there = now + u64::try_from((i128::from(time) - level).max(0)).unwrap();
            let latest = now.saturating_add(step.patience);
            prop_assert_eq!(bucket.too_late(now, latest, time), (there > latest).then_some(there));
            match bucket.reserve(now, latest, time) {
                Ok(turn) => {
                    prop_assert!(there <= latest);
                    prop_assert_eq!(turn.at.max(now), there);
                    level -= i128::from(time);
                }
                Err(at) => prop_assert!(at == there && at > latest),
            }
            let units = level.max(0) / i128::from(interval);
            prop_assert_eq!(i128::from(bucket.remaining(now)), units);
        }
    }

    /// Calls that give up, at any time: in no span of time more units are used than a bucket holds
    /// and come back meanwhile. And a turn that was given back is free only while there are turns
    /// after it.
    #[test]
    fn no_more_is_sent_than_is_granted(
        steps in steps(true),
        interval in 1_000..3_000u64,
        burst in 1..10u32,
    ) {
        let bucket = bucket(interval, burst);
        let capacity = interval * u64::from(burst);
        let mut now = 0;
        let mut sent: Vec<(u64, u64)> = Vec::new();
        let mut waiting: Vec<(Turn, bool)> = Vec::new();
        for step in steps {
            now += step.after;
            waiting.retain(|(turn, is_stuck)| {
                let is_sent = turn.at <= now && !is_stuck;
                if is_sent {
                    sent.push((turn.at, turn.time));
                }
                !is_sent
            });
            if let Some(who) = step.gives_up
                && !waiting.is_empty()
            {
                let (turn, _) = waiting.remove(who.index(waiting.len()));
                bucket.give_back(now, turn);
            }
            let Some(time) = bucket.rate.time(step.cost).filter(|time| *time > 0) else { continue };
            if bucket.take(now, time) {
                sent.push((now, time));
            } else if let Ok(turn) = bucket.reserve(now, now.saturating_add(step.patience), time) {
                prop_assert!(turn.at.saturating_sub(now) <= step.patience);
                match turn.at <= now {
                    true => sent.push((now, time)),
                    false => waiting.push((turn, step.is_stuck)),
                }
            }
        }
        for (turn, _) in waiting {
            bucket.give_back(now, turn);
        }
        sent.sort_unstable();
        for (i, (from, _)) in sent.iter().enumerate() {
            let mut time = 0;
            for (to, units) in &sent[i..] {
                time += units;
                prop_assert!(time <= capacity + (to - from), "{from}..{to}: {time}");
            }
        }
        let free = bucket.free.lock().unwrap();
        prop_assert!(free.keys().last() != Some(&bucket.full_at()));
    }
}
