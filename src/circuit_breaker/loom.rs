//! The cell under every interleaving of up to three threads, with at most three preemptions:
//!
//! ```text
//! cargo rustc --all-features --lib --profile test -- --cfg toolcall_loom -C opt-level=1
//! target/debug/deps/tower_toolcall-<hash> circuit_breaker::loom
//! ```

use std::{sync::Arc as Plain, time::Duration};

use loom::{sync::Arc, thread};

use super::{
    cell::{Cell, Kept},
    rules::{Rates, Rules, Trip},
    snapshot::BreakerSnapshot,
    state::Pass,
    window::Verdict,
};
use crate::event::transition::{BreakerState as State, Transition, TransitionReason as Reason};

const START: Duration = Duration::ZERO;

fn check(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

/// A cell with its rules, as threads share it.
struct Shared {
    cell: Cell,
    rules: Plain<Rules>,
}

impl Shared {
    fn new(trip: impl Into<Trip>) -> Arc<Self> {
        let rules = Plain::new(Rules {
            trip: trip.into().0,
            ..Rules::default()
        });
        let cell = Cell::new(State::Closed, &rules);
        Arc::new(Self { cell, rules })
    }

    fn admit(&self, now: Duration) -> (Option<Pass>, Option<Transition>) {
        match self.cell.pass() {
            Some(pass) => (Some(pass), None),
            None => match self.at(now, |kept| kept.admit(|| true)) {
                Ok((pass, change)) => (Some(pass), change),
                Err(_) => (None, None),
            },
        }
    }

    fn record(&self, pass: Pass, verdict: Option<Verdict>, now: Duration) -> Option<Transition> {
        if self.cell.ignores(pass, verdict) {
            return None;
        }
        self.at(now, |kept| kept.machine.record(pass, verdict, None))
    }

    fn at<T>(&self, now: Duration, work: impl FnOnce(&mut Kept) -> T) -> T {
        self.cell.with(&self.rules, now, work)
    }

    /// Resets it.
    fn reset(&self) {
        self.at(START, |kept| {
            kept.machine.force(State::Closed, Reason::Forced)
        });
    }

    fn look(&self, now: Duration) -> BreakerSnapshot {
        self.at(now, |kept| kept.machine.snapshot())
    }

    /// An admitted call with its result. True if it opened the breaker.
    fn call(&self, verdict: Verdict) -> bool {
        let (Some(pass), _) = self.admit(START) else {
            return false;
        };
        let change = self.record(pass, Some(verdict), START);
        change.is_some_and(|change| change.to == State::Open)
    }
}

fn threads<T: 'static>(
    shared: &Arc<Shared>,
    work: [fn(&Shared) -> T; 2],
    own: impl FnOnce(&Shared) -> T,
) -> [T; 3] {
    let spawned = work.map(|work| {
        let shared = Arc::clone(shared);
        thread::spawn(move || work(&shared))
    });
    let own = own(shared);
    let [a, b] = spawned.map(|thread| thread.join().expect("no panic"));
    [a, b, own]
}

/// Trap 2: three failures at once against a limit of two: one opens the breaker, and one at most is
/// stale or refused.
#[test]
fn one_of_the_failures_opens_the_breaker() {
    check(|| {
        let shared = Shared::new(Trip::consecutive_failures(2));
        let fail = |shared: &Shared| shared.call(Verdict::FAILURE);
        let opened = threads(&shared, [fail, fail], fail);
        assert_eq!(opened.iter().filter(|opened| **opened).count(), 1);
        let look = shared.look(START);
        assert_eq!((look.state, look.generation), (State::Open, 1));
        assert!(matches!(look.failed_total + look.stale_total, 2 | 3));
    });
}

/// W4: a success between failures in a window resets their count; one that comes after them does,
/// too.
#[test]
fn a_success_resets_the_failures_of_a_window() {
    const WINDOW: Duration = Duration::from_secs(300);
    check(|| {
        let shared = Shared::new(Trip::consecutive_failures_within(3, WINDOW));
        assert!(!shared.call(Verdict::FAILURE));
        let work: [fn(&Shared) -> bool; 2] = [
            |shared| shared.call(Verdict::SUCCESS),
            |shared| shared.call(Verdict::FAILURE),
        ];
        let opened = threads(&shared, work, |shared| shared.call(Verdict::SUCCESS));
        assert_eq!(opened, [false; 3]);
        // The failure came after the last of the successes, or not.
        assert!(shared.look(START).failures <= 1);
    });
}

/// Trap 1: of several calls, one becomes the probe, and its place is given back.
#[test]
fn one_of_the_calls_becomes_the_probe() {
    check(|| {
        let shared = Shared::new(Trip::consecutive_failures(1));
        assert!(shared.call(Verdict::FAILURE));
        let later = |shared: &Shared| shared.admit(START + shared.rules.open_for);
        let [a, b, c] = threads(&shared, [later, later], later);
        let admitted: Vec<Pass> = [a.0, b.0, c.0].into_iter().flatten().collect();
        let changes = [a.1, b.1, c.1].into_iter().flatten().count();
        assert_eq!((admitted.len(), changes), (1, 1));
        let now = START + shared.rules.open_for;
        shared.record(admitted[0], None, now);
        assert!(shared.admit(now).0.is_some());
    });
}

/// Trap 2: what was admitted before the trip does not decide the probe.
#[test]
fn a_late_result_is_counted_before_the_trip_or_stale() {
    check(|| {
        let shared = Shared::new(Trip::consecutive_failures(1));
        let (pass, _) = shared.admit(START);
        let pass = pass.expect("closed");
        let thread = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || shared.record(pass, Some(Verdict::SUCCESS), START))
        };
        assert!(shared.call(Verdict::FAILURE));
        let now = START + shared.rules.open_for;
        let (probe, change) = shared.admit(now);
        assert!(probe.is_some() && change.is_some());
        thread.join().expect("no panic");
        let look = shared.look(now);
        assert_eq!((look.state, look.probes), (State::HalfOpen, 1));
    });
}

/// The result that completes the minimum opens the breaker, whichever it is.
#[test]
fn the_minimum_is_noticed_whichever_result_completes_it() {
    check(|| {
        let rates = Rates::over_calls(3)
            .with_failure_rate(0.3)
            .with_minimum_calls(3);
        let shared = Shared::new(rates);
        let work: [fn(&Shared) -> bool; 2] = [
            |shared| shared.call(Verdict::SUCCESS),
            |shared| shared.call(Verdict::FAILURE),
        ];
        let opened = threads(&shared, work, |shared| shared.call(Verdict::SUCCESS));
        assert_eq!(opened.iter().filter(|opened| **opened).count(), 1);
        assert_eq!(shared.look(START).state, State::Open);
    });
}

/// Trap 2: a success that was admitted before a reset is not in the window after it, although
/// nothing else has changed.
#[test]
fn a_reset_forgets_the_success_that_is_counted_at_the_same_time() {
    let windows = [
        Rates::over_calls(8),
        Rates::over_time(Duration::from_secs(32)),
    ];
    for rates in windows.map(|rates| rates.with_failure_rate(1.0)) {
        check(move || {
            let shared = Shared::new(rates.clone());
            // Without it there is no window yet.
            shared.call(Verdict::SUCCESS);
            let thread = {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    let (pass, _) = shared.admit(START);
                    let pass = pass.expect("closed");
                    shared.record(pass, Some(Verdict::SUCCESS), START);
                    pass
                })
            };
            shared.reset();
            let pass = thread.join().expect("no panic");
            let look = shared.look(START);
            let after = pass.generation == look.generation;
            assert_eq!(look.calls, u32::from(after));
            assert!(!(after && look.stale_total > 0));
        });
    }
}

#[test]
fn a_reset_forgets_the_failures_before_it() {
    check(|| {
        let shared = Shared::new(Trip::consecutive_failures(2));
        assert!(!shared.call(Verdict::FAILURE));
        let thread = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || shared.call(Verdict::FAILURE))
        };
        shared.reset();
        thread.join().expect("no panic");
        // Open, then reset; or reset, then the first failure.
        let look = shared.look(START);
        assert_eq!(look.state, State::Closed);
        assert!(look.failures <= 1);
    });
}

/// A refusal has the end of the open period, whatever is published meanwhile.
#[test]
fn a_refusal_tells_of_its_own_period() {
    check(|| {
        let rates = Rates::over_time(Duration::from_secs(32_000))
            .with_failure_rate(1.0)
            .with_minimum_calls(1);
        let shared = Shared::new(rates);
        assert!(shared.call(Verdict::FAILURE));
        let thread = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || shared.at(START, |kept| kept.admit(|| true)))
        };
        shared.reset();
        if let Err(refused) = thread.join().expect("no panic") {
            assert!(refused.retry_after <= shared.rules.open_for, "{refused:?}");
        }
    });
}

/// An opening of another process is taken over beside one of our own: one of the two opens the
/// breaker, and what was admitted before is stale.
#[test]
fn an_adopted_opening_and_an_own_one_open_it_once() {
    check(|| {
        let shared = Shared::new(Trip::consecutive_failures(1));
        let (early, _) = shared.admit(START);
        let thread = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || shared.call(Verdict::FAILURE))
        };
        let period = shared.rules.open_for;
        let adopted = shared.at(START, |kept| kept.machine.adopt(period).is_some());
        let opened = thread.join().expect("no panic");
        assert!(adopted != opened, "{adopted} {opened}");
        assert_eq!(shared.look(START).adopted, adopted);
        assert!(shared.admit(START).0.is_none());
        shared.record(early.expect("closed"), Some(Verdict::SUCCESS), START);
        assert!(shared.look(START).stale_total > 0);
    });
}
