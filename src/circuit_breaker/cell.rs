//! A state machine that many threads use at the same time.
//!
//! The common operations take no lock: the admission to a closed breaker, and a success that
//! changes nothing, are one load each. Everything else takes the mutex, which is never held across
//! an await. `word` is what the machine last published: its generation, and which operations need
//! no mutex.

#[cfg(toolcall_loom)]
use loom::sync::{Mutex, MutexGuard, atomic::AtomicU64};
#[cfg(not(toolcall_loom))]
use std::sync::{Mutex, MutexGuard, atomic::AtomicU64};
use std::{
    mem,
    sync::{
        Arc, PoisonError,
        atomic::Ordering::{Acquire, Release},
    },
    time::Duration,
};

use tokio::sync::{Notify, futures::OwnedNotified};

use super::{
    rules::Rules,
    snapshot::Refused,
    state::{Machine, Pass},
    window::Verdict,
};
use crate::{
    event::transition::{BreakerState, Transition},
    kit::registry::Eviction,
};

/// For so long after a weak failure, calls ask for the circuits of their principals.
const ASKS_PRINCIPALS: Duration = Duration::from_secs(3600);

/// Every call is admitted.
const ADMITS: u64 = 1;
/// One more success changes nothing, even a slow one.
const QUIET: u64 = 2;
/// Calls may have to ask for the circuits of their principals.
const ASKS: u64 = 4;

fn generation(word: u64) -> u32 {
    (word >> 32) as u32
}

pub(super) struct Cell {
    /// `generation << 32 | flags`.
    word: AtomicU64,
    /// Made when it first has something to remember: most tools never fail, and a name should not
    /// cost much. Without one the breaker is closed.
    kept: Mutex<Option<Box<Kept>>>,
}

/// The state behind the mutex.
pub(super) struct Kept {
    pub(super) machine: Machine,
    /// Until then, calls ask for the circuits of their principals.
    asks_until: Duration,
    /// Of a breaker: which circuits of principals are in force. Of such a circuit: for which it was
    /// made. Another number is of before a reset, or of before calls began to ask.
    pub(super) epoch: u64,
    /// Until then, the breaker is kept for a principal that may be refused.
    refuses_until: Duration,
    /// Wakes the calls that wait for the result of a probe.
    verdicts: Option<Arc<Notify>>,
    /// When a call came, or a person, for the last time.
    used: Duration,
}

impl Kept {
    fn new(state: BreakerState, rules: &Arc<Rules>) -> Self {
        Self {
            machine: Machine::new(state, rules),
            asks_until: Duration::ZERO,
            epoch: 0,
            refuses_until: Duration::ZERO,
            verdicts: None,
            used: Duration::ZERO,
        }
    }

    /// Which operations need no mutex.
    fn word(&self) -> u64 {
        let admits = u64::from(self.machine.admits()) * ADMITS;
        let quiet = u64::from(self.machine.ignores_successes()) * QUIET;
        let flags = [admits | quiet, ASKS][usize::from(self.asks().is_some())];
        u64::from(self.machine.generation) << 32 | flags
    }

    /// Returns the epoch of the circuits of principals that calls ask for, while they ask.
    pub(super) fn asks(&self) -> Option<u64> {
        (self.machine.now < self.asks_until).then_some(self.epoch)
    }

    /// A weak failure has counted for its principal alone. `open_for`: it has opened the circuit of
    /// the principal for so long.
    pub(super) fn was_weak(&mut self, open_for: Option<Duration>) {
        let until = self.machine.now.saturating_add(ASKS_PRINCIPALS);
        let refuses_until = open_for.map_or(Duration::ZERO, |time| until.saturating_add(time));
        self.refuses_until = self.refuses_until.max(refuses_until);
        self.asks_until = self.asks_until.max(refuses_until.max(until));
    }

    /// Lets refused principals in.
    pub(super) fn forget_principals(&mut self) {
        (self.asks_until, self.refuses_until) = (Duration::ZERO, Duration::ZERO);
    }

    pub(super) fn admit(
        &mut self,
        may_probe: impl Fn() -> bool,
    ) -> Result<(Pass, Option<Transition>), Refused> {
        match self.machine.refuses(may_probe) {
            Some(refused) => Err(refused),
            None => Ok(self.machine.admit()),
        }
    }

    /// Returns the next end of a probe, and when to look again even without one, if a call would be
    /// refused until a probe has ended.
    pub(super) fn next_verdict(&mut self, may_probe: bool) -> Option<(OwnedNotified, Duration)> {
        let refused = self.machine.refuses(|| may_probe);
        let rest = refused.filter(|refused| refused.is_half_open)?.retry_after;
        let verdicts = Arc::clone(self.verdicts.get_or_insert_default());
        Some((verdicts.notified_owned(), rest))
    }

    /// Begins anew, unless it is of this epoch already.
    pub(super) fn begin(&mut self, epoch: u64, rules: &Arc<Rules>) {
        if self.epoch != epoch {
            let now = self.machine.now;
            let verdicts = self.verdicts.take();
            *self = Self {
                epoch,
                verdicts,
                ..Self::new(BreakerState::Closed, rules)
            };
            self.machine.at(now).has_news = true;
        }
    }

    /// Returns whether this breaker may be evicted.
    pub(super) fn eviction(&mut self) -> Eviction {
        let of_principals = match self.machine.now {
            now if now < self.refuses_until => Eviction::Forbidden,
            now if now < self.asks_until => Eviction::Costly,
            _ => Eviction::Free,
        };
        self.machine.eviction(self.used).max(of_principals)
    }
}

impl Cell {
    pub(super) fn new(state: BreakerState, rules: &Arc<Rules>) -> Self {
        let kept = Kept::new(state, rules);
        let word = AtomicU64::new(kept.word());
        let kept = (state != BreakerState::Closed).then(|| Box::new(kept));
        Self {
            word,
            kept: Mutex::new(kept),
        }
    }

    /// Returns the pass of a call, if every call is admitted.
    #[inline]
    pub(super) fn pass(&self) -> Option<Pass> {
        let word = self.word.load(Acquire);
        (word & ADMITS != 0).then(|| Pass::of(generation(word)))
    }

    /// Returns the epoch of the circuits of principals that calls ask for. One load while they do
    /// not ask.
    pub(super) fn asks(&self, now: impl FnOnce() -> Duration) -> Option<u64> {
        let may_ask = self.word.load(Acquire) & ASKS != 0;
        self.peek(may_ask.then(now)?, |kept| kept.asks())?
    }

    /// Returns whether this end of an admitted call changes nothing.
    #[inline]
    pub(super) fn ignores(&self, pass: Pass, verdict: Option<Verdict>) -> bool {
        let flag = match verdict {
            None | Some(Verdict::ANSWERS) => ADMITS,
            Some(Verdict::SUCCESS) => QUIET,
            Some(_) => return false,
        };
        let word = self.word.load(Acquire);
        generation(word) == pass.generation && word & flag != 0
    }

    /// Looks at the state, if there is one. No change is published that lets more calls pass.
    pub(super) fn peek<T>(&self, now: Duration, look: impl FnOnce(&mut Kept) -> T) -> Option<T> {
        let mut kept = self.lock();
        let kept = kept.as_deref_mut()?;
        kept.machine.at(now);
        Some(look(kept))
    }

    /// Locks the state. No code that may panic runs under the mutex.
    fn lock(&self) -> MutexGuard<'_, Option<Box<Kept>>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state, and wakes the calls that wait for the result of a probe.
    pub(super) fn with<T>(
        &self,
        rules: &Arc<Rules>,
        now: Duration,
        work: impl FnOnce(&mut Kept) -> T,
    ) -> T {
        let mut kept = self.lock();
        let new = || Box::new(Kept::new(BreakerState::Closed, rules));
        let state = kept.get_or_insert_with(new);
        state.used = state.machine.at(now).now;
        let result = work(state);
        let has_news = mem::take(&mut state.machine.has_news);
        let verdicts = state.verdicts.clone().filter(|_| has_news);
        self.word.store(state.word(), Release);
        drop(kept);
        if let Some(verdicts) = verdicts {
            verdicts.notify_waiters();
        }
        result
    }
}
