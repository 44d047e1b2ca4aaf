//! A state machine that many threads use at once.
//!
//! The common operations take no lock: admission while closed is one load, a success that changes
//! nothing is one load, and a success that a window has to count is one compare-and-swap.
//! Everything else takes the mutex, which is never held across an await.
//!
//! `word` is what the machine last published: its generation, and which operations need no mutex.
//! `run` counts the successes that are not in the machine yet. A thread that is about to change the
//! machine adds them to it first, and until the change is published no thread counts another.

use std::{sync::Arc, time::Duration};

use tokio::sync::futures::OwnedNotified;

use super::{
    rules::Rules,
    snapshot::BreakerSnapshot,
    state::{Machine, Opened, Pass, Recorded},
    sync::{AcqRel, Acquire, AtomicU64, Mutex, MutexGuard, Relaxed, Release, lock},
    window::{Verdict, nanos},
};
use crate::{
    error::Outage,
    event::transition::{BreakerState, OpenCause, Transition, TransitionReason},
    kit::registry::Keep,
};

/// Every call is admitted.
const ADMITS: u64 = 1;
/// One more success changes nothing.
const QUIET: u64 = 2;
/// One more success changes nothing, unless it is a slow one.
const QUIET_IF_FAST: u64 = 32;
/// A success is counted in `run`.
const RUN: u64 = 4;
/// As `RUN`, before the moment in `bucket_end`.
const TIMED: u64 = 8;
/// Calls are refused before the moment in `open_until`.
const OPEN: u64 = 16;

/// The epoch's bits of `run`.
const EPOCH: u64 = !(u32::MAX as u64);

fn generation(word: u64) -> u32 {
    (word >> 32) as u32
}

#[derive(Debug)]
pub(crate) struct Cell {
    /// `generation << 32 | flags`.
    word: AtomicU64,
    /// `epoch << 32 | successes that still have room`. The epoch changes whenever the mutex is
    /// taken.
    run: AtomicU64,
    /// When the open period ends, in nanoseconds; of the last one, if the breaker is not open.
    open_until: AtomicU64,
    /// When the current bucket of a window of time ends, in nanoseconds.
    bucket_end: AtomicU64,
    /// Why it has opened last, as [`OpenCause::to_bits`] has it; 0 if it never has.
    cause: AtomicU64,
    /// Refusals that callers got.
    pub(super) rejected: AtomicU64,
    stale: AtomicU64,
    /// Made when it first has something to remember: most tools never fail, and a name should not
    /// cost much. Without one the breaker is closed.
    machine: Mutex<Option<Box<Machine>>>,
}

impl Cell {
    pub(crate) fn new(state: BreakerState, rules: &Rules) -> Self {
        let cell = Self {
            word: AtomicU64::new(0),
            run: AtomicU64::new(0),
            open_until: AtomicU64::new(0),
            bucket_end: AtomicU64::new(0),
            cause: AtomicU64::new(0),
            rejected: AtomicU64::new(0),
            stale: AtomicU64::new(0),
            machine: Mutex::new(None),
        };
        let mut machine = Machine::new(state, rules);
        cell.publish(&mut machine, rules);
        // A window that counts successes needs its machine with the first call.
        if state != BreakerState::Closed || machine.room(rules).is_some() {
            *cell.lock() = Some(Box::new(machine));
        }
        cell
    }

    /// Admits a call, or returns when to come back. The clock is read only if the breaker is not
    /// closed.
    #[inline]
    pub(crate) fn admit(
        &self,
        now: impl Fn() -> Duration,
        may_probe: impl Fn() -> bool,
        rules: &Rules,
    ) -> (Result<Pass, Duration>, Option<Transition>) {
        match self.pass() {
            Some(pass) => (Ok(pass), None),
            None => self.admit_or_refuse(now(), may_probe(), rules),
        }
    }

    /// The pass of a call, if every call is admitted. One load.
    #[inline]
    pub(crate) fn pass(&self) -> Option<Pass> {
        let word = self.word.load(Acquire);
        (word & ADMITS != 0).then(|| Pass {
            generation: generation(word),
            ticket: 0,
        })
    }

    #[cold]
    fn admit_or_refuse(
        &self,
        now: Duration,
        may_probe: bool,
        rules: &Rules,
    ) -> (Result<Pass, Duration>, Option<Transition>) {
        match self.open_for(now) {
            Some(remaining) => (Err(remaining), None),
            None => self.with(rules, |machine| machine.admit(now, may_probe, rules)),
        }
    }

    /// Returns when to come back, if a call would be refused. Admits nothing.
    #[inline]
    pub(crate) fn refuses(&self, now: impl Fn() -> Duration, rules: &Rules) -> Option<Duration> {
        if self.word.load(Acquire) & ADMITS != 0 {
            return None;
        }
        let now = now();
        let look = || self.lock().as_ref()?.look(now, rules).err();
        self.open_for(now).or_else(look)
    }

    /// Returns the next end of a probe, and when to look again even without one, if a half-open
    /// breaker would refuse a call.
    pub(super) fn next_verdict(
        &self,
        now: Duration,
        may_probe: bool,
        rules: &Rules,
    ) -> Option<(OwnedNotified, Duration)> {
        let mut kept = self.lock();
        let machine = kept.as_mut();
        let machine = machine.filter(|machine| machine.state() == BreakerState::HalfOpen)?;
        let rest = machine.look_for(now, may_probe, rules).err()?;
        // Under the mutex, so that a verdict after this look ends the wait.
        let verdicts = machine.verdicts.get_or_insert_default();
        Some((Arc::clone(verdicts).notified_owned(), rest))
    }

    /// Wakes the calls that wait for the verdict of a probe.
    pub(super) fn wake(&self) {
        let verdicts = self.lock().as_ref().and_then(|m| m.verdicts.clone());
        if let Some(verdicts) = verdicts {
            verdicts.notify_waiters();
        }
    }

    /// Returns how long an open breaker stays open.
    pub(super) fn rest(&self, now: Duration, rules: &Rules) -> Option<Duration> {
        let kept = self.lock();
        let machine = kept.as_deref()?;
        let is_open = machine.state() == BreakerState::Open;
        is_open.then(|| machine.look(now, rules).err())?
    }

    /// Returns how long it stays open, if that is known without the mutex.
    fn open_for(&self, now: Duration) -> Option<Duration> {
        let word = self.word.load(Acquire);
        // Of this open period, or of one that has begun since: either is an answer.
        let until = self.open_until.load(Acquire);
        let open = word & OPEN != 0 && nanos(now) < until;
        open.then(|| Duration::from_nanos(until).saturating_sub(now))
    }

    /// Returns whether a success changes nothing, even a slow one.
    #[inline]
    pub(super) fn is_quiet(&self, pass: Pass) -> bool {
        let word = self.word.load(Acquire);
        generation(word) == pass.generation && word & QUIET != 0
    }

    /// Takes the end of an admitted call, and the outage that it failed with; without a verdict it
    /// only gives back a probe's place. A success reads the clock only if the window is one of
    /// time.
    pub(crate) fn record(
        &self,
        pass: Pass,
        verdict: Option<Verdict>,
        outage: Option<&Outage>,
        now: impl Fn() -> Duration,
        rules: &Rules,
    ) -> Recorded {
        let word = self.word.load(Acquire);
        let mut known = None;
        if generation(word) == pass.generation {
            let timed = word & TIMED != 0;
            let done = match verdict {
                None | Some(Verdict::ANSWERS) => word & ADMITS != 0,
                Some(Verdict::SUCCESS) if word & (QUIET | QUIET_IF_FAST) != 0 => true,
                Some(Verdict::SUCCESS) if word & RUN != 0 && timed => {
                    self.count(word, Some(*known.insert(now())))
                }
                Some(Verdict::SUCCESS) if word & RUN != 0 => self.count(word, None),
                Some(_) => false,
            };
            if done {
                return Recorded::Counted(None);
            }
        }
        // The clock is read once at most: above or here.
        let now = known.unwrap_or_else(now);
        let recorded = self.with(rules, |machine| {
            machine.record(pass, verdict, outage, now, rules)
        });
        if recorded == Recorded::Stale && verdict.is_some_and(|verdict| !verdict.answers) {
            self.stale.fetch_add(1, Relaxed);
        }
        recorded
    }

    /// Counts a success without the mutex; false if the machine has to record it.
    fn count(&self, word: u64, now: Option<Duration>) -> bool {
        let mut run = self.run.load(Acquire);
        loop {
            let room = run as u32;
            let timely = now.is_none_or(|now| nanos(now) < self.bucket_end.load(Acquire));
            // If the word is unchanged, the machine was not at work between the two loads; if it
            // is from here on, the epoch is another one, and the swap fails.
            if room == 0 || !timely || self.word.load(Acquire) != word {
                return false;
            }
            match self
                .run
                .compare_exchange_weak(run, run - 1, AcqRel, Acquire)
            {
                Ok(_) => return true,
                Err(present) => run = present,
            }
        }
    }

    /// Forces the state: closed, which is a reset, forced open, or disabled.
    pub(crate) fn force(
        &self,
        state: BreakerState,
        reason: TransitionReason,
        now: Duration,
        rules: &Rules,
    ) -> Option<Transition> {
        self.with(rules, |machine| machine.force(state, reason, now, rules))
    }

    /// Takes over another process' opening, for `period` from now on.
    pub(super) fn adopt(
        &self,
        period: Duration,
        now: Duration,
        rules: &Rules,
    ) -> Option<Transition> {
        self.with(rules, |machine| machine.adopt(period, now))
    }

    /// A failing server says when it is back.
    pub(super) fn announced(&self, delay: Duration, now: Duration, rules: &Rules) {
        self.with(rules, |machine| machine.announced(delay, now));
    }

    /// The pass of a result that comes `now` without an admission.
    pub(super) fn present(&self, now: Duration, rules: &Rules) -> (Pass, Option<Transition>) {
        self.with(rules, |machine| {
            let transition = machine.end_period(now);
            let (generation, ticket) = (machine.generation(), 0);
            (Pass { generation, ticket }, transition)
        })
    }

    /// State and counters, without the key. Makes no machine.
    pub(crate) fn snapshot(&self, now: Duration, rules: &Rules) -> BreakerSnapshot {
        let snapshot = match &mut *self.lock() {
            Some(machine) => self.with_locked(machine, rules, |m| m.snapshot(now, rules)),
            None => Machine::new(BreakerState::Closed, rules).snapshot(now, rules),
        };
        BreakerSnapshot {
            rejected_total: self.rejected.load(Relaxed),
            stale_total: self.stale.load(Relaxed),
            ..snapshot
        }
    }

    /// The last opening; `None` if there was none.
    pub(super) fn last_opening(&self) -> Option<Opened> {
        self.lock().as_ref()?.last_opening()
    }

    /// Why it has opened last. One load: of the opening that a refusal has seen, or of one since.
    pub(super) fn cause(&self) -> Option<OpenCause> {
        OpenCause::from_bits(self.cause.load(Acquire))
    }

    /// The outage that it is open or half-open for, while that goes on.
    pub(super) fn outage(&self) -> Option<Outage> {
        self.lock().as_ref()?.outage()
    }

    /// How much harm it would do to forget this breaker.
    pub(super) fn keep(&self, now: Duration) -> Keep {
        let machine = self.lock();
        machine.as_ref().map_or(Keep::IfUsed, |m| m.keep(now))
    }

    pub(super) fn with<T>(&self, rules: &Rules, work: impl FnOnce(&mut Machine) -> T) -> T {
        let mut machine = self.lock();
        let new = || Box::new(Machine::new(BreakerState::Closed, rules));
        self.with_locked(machine.get_or_insert_with(new), rules, work)
    }

    fn with_locked<T>(
        &self,
        machine: &mut Machine,
        rules: &Rules,
        work: impl FnOnce(&mut Machine) -> T,
    ) -> T {
        // No room: a thread that has a success to count waits for the mutex now.
        let run = self.run.fetch_and(EPOCH, AcqRel);
        machine.add_successes(machine.room - run as u32);
        let result = work(machine);
        self.publish(machine, rules);
        result
    }

    /// Publishes which operations need no machine. Under the mutex.
    fn publish(&self, machine: &mut Machine, rules: &Rules) {
        let (quiet, room, bucket_end) = match machine.room(rules) {
            None if rules.times_calls() => (QUIET_IF_FAST, 0, None),
            None => (QUIET, 0, None),
            Some((0, _)) => (0, 0, None),
            Some((room, None)) => (RUN, room, None),
            Some((room, end)) => (RUN | TIMED, room, end),
        };
        let entry = match machine.state() {
            BreakerState::Closed | BreakerState::ForcedClosed | BreakerState::Disabled => ADMITS,
            // The moment at which a lost connection is back is not known: the machine is asked.
            BreakerState::Open if machine.is_lost() => 0,
            BreakerState::Open => OPEN,
            BreakerState::HalfOpen | BreakerState::ForcedOpen => 0,
        };
        if let Some(end) = bucket_end {
            self.bucket_end.store(nanos(end), Release);
        }
        if let (OPEN, Some(until)) = (entry, machine.probe_at(Duration::ZERO)) {
            self.open_until.store(nanos(until), Release);
        }
        // As `open_until`: known before the word says that calls are refused.
        if let (0 | OPEN, Some(opened)) = (entry, machine.last_opening()) {
            self.cause.store(opened.cause.to_bits(), Release);
        }
        let generation = u64::from(machine.generation());
        self.word.store(generation << 32 | quiet | entry, Release);
        // Only the holder of the mutex changes the epoch.
        let epoch = (self.run.load(Relaxed) & EPOCH).wrapping_add(1 << 32);
        self.run.store(epoch | u64::from(room), Release);
        machine.room = room;
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Option<Box<Machine>>> {
        lock(&self.machine)
    }
}

#[cfg(all(test, not(toolcall_loom)))]
mod tests {
    use super::*;

    const NOW: Duration = Duration::ZERO;

    fn call(cell: &Cell, verdict: Option<Verdict>, rules: &Rules) {
        let (admission, _) = cell.admit(|| NOW, || true, rules);
        cell.record(admission.expect("closed"), verdict, None, || NOW, rules);
    }

    #[test]
    fn a_tool_that_never_failed_costs_no_machine_even_if_it_is_looked_at() {
        let rules = Rules::default();
        let cell = Cell::new(BreakerState::Closed, &rules);
        call(&cell, Some(Verdict::SUCCESS), &rules);
        call(&cell, None, &rules);
        let seen = cell.snapshot(NOW, &rules);
        assert_eq!((seen.state, seen.failed_total), (BreakerState::Closed, 0));
        assert_eq!(cell.keep(NOW), Keep::IfUsed);
        assert!(cell.lock().is_none());
        call(&cell, Some(Verdict::FAILURE), &rules);
        assert_eq!(cell.snapshot(NOW, &rules).failed_total, 1);
        assert_eq!(cell.keep(NOW), Keep::IfPossible);
    }

    #[test]
    fn a_breaker_that_begins_disabled_stays_so() {
        let rules = Rules::default();
        let cell = Cell::new(BreakerState::Disabled, &rules);
        assert_eq!(cell.keep(NOW), Keep::Always);
        for _ in 0..20 {
            call(&cell, Some(Verdict::FAILURE), &rules);
        }
        assert_eq!(cell.snapshot(NOW, &rules).state, BreakerState::Disabled);
    }
}
