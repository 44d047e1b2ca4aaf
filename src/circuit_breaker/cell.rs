//! A state machine that many threads use at once.
//!
//! What happens most takes no lock: admission while closed is one load, a success that changes nothing is
//! one load, and a success that a window has to count is one compare-and-swap. Everything
//! else goes through the mutex, which is never held across an await.
//!
//! `word` is what the machine last published: its generation, and what may be done without it. `run` counts
//! the successes that the machine has not heard of yet; whoever is about to change the machine takes it up
//! first, and until the change is published nobody adds to it.

use std::time::Duration;

use super::{
    rules::Rules,
    state::{Change, Demand, Machine, Pass, Recorded, Verdict},
    sync::{AcqRel, Acquire, AtomicU64, Mutex, MutexGuard, Relaxed, Release, lock},
    window::{Quiet, Tally, nanos},
};
use crate::{event::transition::BreakerState, kit::registry::Keep};

/// Calls are admitted without a question.
const ADMITS: u64 = 1;
/// One more success changes nothing.
const QUIET: u64 = 2;
/// One more success changes nothing, if it is not a slow one.
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
    /// `epoch << 32 | successes that still have room`. The epoch changes whenever the mutex is taken.
    run: AtomicU64,
    /// When the open period ends, in nanoseconds; of the last one, if the breaker is not open.
    open_until: AtomicU64,
    /// When the present bucket of a window of time ends, likewise.
    bucket_end: AtomicU64,
    rejected: AtomicU64,
    stale: AtomicU64,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// Made when it first has something to remember: most tools never fail, and a name should not cost much.
    machine: Option<Box<Machine>>,
    begins_as: BreakerState,
    /// How many successes `run` had room for when it was published.
    room: u32,
}

impl Inner {
    fn new(begins_as: BreakerState) -> Self {
        Self {
            machine: None,
            begins_as,
            room: 0,
        }
    }

    fn machine(&mut self, rules: &Rules) -> &mut Machine {
        let begins_as = self.begins_as;
        self.machine
            .get_or_insert_with(|| Box::new(Machine::new(begins_as, rules)))
    }

    /// A look that leaves nothing behind.
    fn look<T>(&mut self, rules: &Rules, look: impl FnOnce(&mut Machine) -> T) -> T {
        match &mut self.machine {
            Some(machine) => look(machine),
            None => look(&mut Machine::new(self.begins_as, rules)),
        }
    }
}

/// Everything about a breaker at one moment.
#[derive(Debug)]
pub(crate) struct Look {
    pub(super) state: BreakerState,
    pub(super) generation: u32,
    pub(super) tally: Tally,
    pub(super) probes: usize,
    pub(super) retry_after: Option<Duration>,
    pub(crate) probe_at: Option<Duration>,
    pub(super) failures: u64,
    pub(super) opened: u64,
    pub(super) rejected: u64,
    pub(super) stale: u64,
}

impl Cell {
    pub(crate) fn new(state: BreakerState, rules: &Rules) -> Self {
        let cell = Self {
            word: AtomicU64::new(0),
            run: AtomicU64::new(0),
            open_until: AtomicU64::new(0),
            bucket_end: AtomicU64::new(0),
            rejected: AtomicU64::new(0),
            stale: AtomicU64::new(0),
            inner: Mutex::new(Inner::new(state)),
        };
        let machine = Machine::new(state, rules);
        let mut inner = cell.lock();
        inner.room = cell.publish(&machine, rules);
        // A window that counts successes is about to be asked.
        if machine.quiet(rules) != Quiet::Always {
            inner.machine = Some(Box::new(machine));
        }
        drop(inner);
        cell
    }

    /// Admits a call, or tells when to come back. The clock is read only if the breaker is not closed.
    #[inline]
    pub(crate) fn admit(
        &self,
        now: impl Fn() -> Duration,
        may_probe: impl Fn() -> bool,
        rules: &Rules,
    ) -> (Result<Pass, Duration>, Option<Change>) {
        match self.pass() {
            Some(pass) => (Ok(pass), None),
            None => self.admit_or_refuse(now(), may_probe(), rules),
        }
    }

    /// The pass of a call that is admitted without a question: while closed that is one load.
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
    ) -> (Result<Pass, Duration>, Option<Change>) {
        let (admission, change) = match self.open_for(now) {
            Some(remaining) => (Err(remaining), None),
            None => self.with(rules, |machine| machine.admit(now, may_probe, rules)),
        };
        if admission.is_err() {
            self.rejected.fetch_add(1, Relaxed);
        }
        (admission, change)
    }

    /// A look without an admission: when to come back, if a call would be refused. Counts a refusal.
    #[inline]
    pub(crate) fn refuses(&self, now: impl Fn() -> Duration, rules: &Rules) -> Option<Duration> {
        if self.word.load(Acquire) & ADMITS != 0 {
            return None;
        }
        let now = now();
        let refusal = self
            .open_for(now)
            .or_else(|| self.lock().look(rules, |m| m.look(now, rules).err()))?;
        self.rejected.fetch_add(1, Relaxed);
        Some(refusal)
    }

    /// How long the breaker is open still, if that can be told without the mutex.
    fn open_for(&self, now: Duration) -> Option<Duration> {
        let word = self.word.load(Acquire);
        // Of this open period, or of one that began meanwhile: either is an answer.
        let until = self.open_until.load(Acquire);
        let open = word & OPEN != 0 && nanos(now) < until;
        open.then(|| Duration::from_nanos(until).saturating_sub(now))
    }

    /// Whether a success changes nothing, be it a slow one.
    #[inline]
    pub(super) fn is_quiet(&self, pass: Pass) -> bool {
        let word = self.word.load(Acquire);
        generation(word) == pass.generation && word & QUIET != 0
    }

    /// Takes the end of an admitted call. A success reads the clock only if the window is one of time.
    pub(crate) fn record(
        &self,
        pass: Pass,
        verdict: Verdict,
        now: impl Fn() -> Duration,
        rules: &Rules,
    ) -> Recorded {
        let word = self.word.load(Acquire);
        let mut known = None;
        if generation(word) == pass.generation {
            let timed = word & TIMED != 0;
            let done = match verdict {
                Verdict::Neutral => word & ADMITS != 0,
                Verdict::SUCCESS if word & (QUIET | QUIET_IF_FAST) != 0 => true,
                Verdict::SUCCESS if word & RUN != 0 && timed => {
                    self.count(word, Some(*known.insert(now())))
                }
                Verdict::SUCCESS if word & RUN != 0 => self.count(word, None),
                Verdict::Result(_) => false,
            };
            if done {
                return Recorded::Counted(None);
            }
        }
        // The clock was read above, or is now: once at most.
        let now = known.unwrap_or_else(now);
        let recorded = self.with(rules, |machine| machine.record(pass, verdict, now, rules));
        if recorded == Recorded::Stale && verdict != Verdict::Neutral {
            self.stale.fetch_add(1, Relaxed);
        }
        recorded
    }

    /// Counts a success without the mutex; false if the machine has to hear of it.
    fn count(&self, word: u64, now: Option<Duration>) -> bool {
        let mut run = self.run.load(Acquire);
        loop {
            let room = run as u32;
            let timely = now.is_none_or(|now| nanos(now) < self.bucket_end.load(Acquire));
            // If the word is there still, the machine was not at work between the two loads; and if
            // it is from here on, the epoch is another one, and the swap fails.
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

    pub(crate) fn force(&self, demand: Demand, now: Duration, rules: &Rules) -> Option<Change> {
        self.with(rules, |machine| machine.force(demand, now, rules))
    }

    /// The generation in which a result counts that comes `now` without an admission.
    pub(super) fn present(&self, now: Duration, rules: &Rules) -> (Pass, Option<Change>) {
        self.with(rules, |machine| {
            let change = machine.end_period(now);
            let generation = machine.generation();
            (
                Pass {
                    generation,
                    ticket: 0,
                },
                change,
            )
        })
    }

    pub(crate) fn look(&self, now: Duration, rules: &Rules) -> Look {
        let look = |machine: &mut Machine| Look {
            state: machine.state(),
            generation: machine.generation(),
            tally: machine.tally(now),
            probes: machine.probes(now),
            retry_after: machine.look(now, rules).err(),
            probe_at: machine.probe_at(),
            failures: machine.failures(),
            opened: machine.opened(),
            rejected: self.rejected.load(Relaxed),
            stale: self.stale.load(Relaxed),
        };
        let mut inner = self.lock();
        match inner.machine {
            Some(_) => self.with_locked(&mut inner, rules, look),
            None => inner.look(rules, look),
        }
    }

    /// How much harm it would do to forget this breaker.
    pub(super) fn keep(&self, now: Duration, rules: &Rules) -> Keep {
        self.lock().look(rules, |machine| machine.keep(now))
    }

    fn with<T>(&self, rules: &Rules, work: impl FnOnce(&mut Machine) -> T) -> T {
        self.with_locked(&mut self.lock(), rules, work)
    }

    fn with_locked<T>(
        &self,
        inner: &mut Inner,
        rules: &Rules,
        work: impl FnOnce(&mut Machine) -> T,
    ) -> T {
        // No room: whoever has a success to count waits for the mutex now.
        let run = self.run.fetch_and(EPOCH, AcqRel);
        let successes = inner.room - run as u32;
        let machine = inner.machine(rules);
        machine.add_successes(successes);
        let result = work(machine);
        inner.room = self.publish(machine, rules);
        result
    }

    /// Publishes what may be done without the machine, and returns how many successes there is room for. Under the mutex.
    fn publish(&self, machine: &Machine, rules: &Rules) -> u32 {
        let (quiet, room, bucket_end) = match machine.quiet(rules) {
            Quiet::No => (0, 0, None),
            Quiet::Always if rules.times_calls() => (QUIET_IF_FAST, 0, None),
            Quiet::Always => (QUIET, 0, None),
            Quiet::Run { room, until: None } => (RUN, room, None),
            Quiet::Run { room, until } => (RUN | TIMED, room, until),
        };
        let entry = match machine.state() {
            BreakerState::Closed | BreakerState::ForcedClosed | BreakerState::Disabled => ADMITS,
            BreakerState::Open => OPEN,
            BreakerState::HalfOpen | BreakerState::ForcedOpen => 0,
        };
        if let Some(end) = bucket_end {
            self.bucket_end.store(nanos(end), Release);
        }
        if let (OPEN, Some(until)) = (entry, machine.probe_at()) {
            self.open_until.store(nanos(until), Release);
        }
        let generation = u64::from(machine.generation());
        self.word.store(generation << 32 | quiet | entry, Release);
        // Only who holds the mutex changes the epoch.
        let epoch = (self.run.load(Relaxed) & EPOCH).wrapping_add(1 << 32);
        self.run.store(epoch | u64::from(room), Release);
        room
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        lock(&self.inner)
    }
}

#[cfg(all(test, not(toolcall_loom)))]
mod tests {
    use super::*;

    const NOW: Duration = Duration::ZERO;

    fn call(cell: &Cell, verdict: Verdict, rules: &Rules) {
        let (admission, _) = cell.admit(|| NOW, || true, rules);
        cell.record(admission.expect("closed"), verdict, || NOW, rules);
    }

    #[test]
    fn a_tool_that_never_failed_costs_no_machine_even_if_it_is_looked_at() {
        let rules = Rules::default();
        let cell = Cell::new(BreakerState::Closed, &rules);
        call(&cell, Verdict::SUCCESS, &rules);
        call(&cell, Verdict::Neutral, &rules);
        let look = cell.look(NOW, &rules);
        assert_eq!((look.state, look.failures), (BreakerState::Closed, 0));
        assert_eq!(cell.keep(NOW, &rules), Keep::IfUsed);
        assert!(cell.lock().machine.is_none());
        call(&cell, Verdict::FAILURE, &rules);
        assert_eq!(cell.look(NOW, &rules).failures, 1);
        assert_eq!(cell.keep(NOW, &rules), Keep::IfPossible);
    }

    #[test]
    fn a_breaker_that_begins_disabled_stays_so() {
        let rules = Rules::default();
        let cell = Cell::new(BreakerState::Disabled, &rules);
        assert_eq!(cell.keep(NOW, &rules), Keep::Always);
        for _ in 0..20 {
            call(&cell, Verdict::FAILURE, &rules);
        }
        assert_eq!(cell.look(NOW, &rules).state, BreakerState::Disabled);
    }
}
