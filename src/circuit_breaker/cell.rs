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
    state::{Admission, Machine, Pass},
    weak::Principals,
    window::Verdict,
};
use crate::{
    call::CallInfo,
    event::transition::{BreakerState, Transition},
    kit::{
        registry::Eviction,
        share::{NoRoom, Units},
    },
};

/// Every call is admitted.
const ADMITS: u64 = 1;
/// One more success changes nothing, even a slow one.
const QUIET: u64 = 2;

fn generation(word: u64) -> u32 {
    (word >> 32) as u32
}

pub(super) struct Cell {
    /// `generation << 32 | epoch << 2 | flags`.
    word: AtomicU64,
    /// Made when it first has something to remember: most tools never fail, and a name should not
    /// cost much. Without one the breaker is closed.
    kept: Mutex<Option<Box<Kept>>>,
}

/// The state behind the mutex.
pub(super) struct Kept {
    pub(super) machine: Machine,
    /// The circuits of principals with weak failures.
    pub(super) principals: Principals,
    /// Wakes the calls that wait for the result of a probe.
    verdicts: Option<Arc<Notify>>,
    /// When a call came, or a person, for the last time.
    used: Duration,
}

impl Kept {
    fn new(state: BreakerState, rules: &Arc<Rules>) -> Self {
        Self {
            machine: Machine::new(state, rules),
            principals: Principals::default(),
            verdicts: None,
            used: Duration::ZERO,
        }
    }

    /// Which operations need no mutex.
    fn word(&self) -> u64 {
        let is_shared = self.principals.is_empty();
        let flag = |is_set: bool, flag: u64| u64::from(is_shared && is_set) * flag;
        let admits = flag(self.machine.admits(), ADMITS);
        let quiet = flag(self.machine.ignores_successes(), QUIET);
        let epoch = u64::from(self.principals.epoch) << 2;
        u64::from(self.machine.generation) << 32 | epoch | admits | quiet
    }

    /// Returns why a call would be refused. A call by hand has no principal.
    pub(super) fn refuses(
        &mut self,
        call: Option<&CallInfo>,
        may_probe: impl Fn() -> bool,
    ) -> Option<Refused> {
        let own = call.and_then(|call| self.principals.of(call, self.machine.now));
        let own = own.and_then(|own| own.refuses(&may_probe));
        own.map(|own| Refused {
            of_principal: true,
            ..own
        })
        .or_else(|| self.machine.refuses(&may_probe))
    }

    pub(super) fn admit(
        &mut self,
        call: Option<&CallInfo>,
        may_probe: impl Fn() -> bool,
    ) -> Result<(Admission, Option<Transition>), Refused> {
        if let Some(refused) = self.refuses(call, may_probe) {
            return Err(refused);
        }
        let (pass, transition) = self.machine.admit();
        let own = match call.and_then(|call| self.principals.of(call, self.machine.now)) {
            Some(own) => own.admit().0,
            None => self.principals.first(),
        };
        Ok((Admission { pass, own }, transition))
    }

    /// Returns the next end of a probe, and when to look again even without one, if a call would be
    /// refused until a probe has ended.
    pub(super) fn next_verdict(
        &mut self,
        call: &CallInfo,
        may_probe: bool,
    ) -> Option<(OwnedNotified, Duration)> {
        let refused = self.refuses(Some(call), || may_probe);
        let rest = refused.filter(|refused| refused.is_half_open)?.retry_after;
        let verdicts = Arc::clone(self.verdicts.get_or_insert_default());
        Some((verdicts.notified_owned(), rest))
    }

    /// Records the end of a call for its principal alone. Fails if all places for principals are
    /// taken.
    pub(super) fn record_own(
        &mut self,
        call: &CallInfo,
        end: (Pass, Option<Verdict>),
        places: &Arc<Units>,
    ) -> Result<Option<Transition>, NoRoom> {
        let (now, rules) = (self.machine.now, &self.machine.rules);
        self.principals.record(call, end, now, rules, places)
    }

    /// Returns whether this breaker may be evicted.
    pub(super) fn eviction(&mut self) -> Eviction {
        let of_principals = self.principals.eviction(self.machine.now);
        self.machine.eviction(self.used).max(of_principals)
    }

    /// Returns the calls to wake, if something has changed that they wait for.
    fn news(&mut self) -> Option<Arc<Notify>> {
        let of_all = mem::take(&mut self.machine.has_news);
        let of_principal = mem::take(&mut self.principals.has_news);
        self.verdicts.clone().filter(|_| of_all || of_principal)
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

    /// Returns the passes of a call, if every call is admitted.
    #[inline]
    pub(super) fn pass(&self) -> Option<Admission> {
        let word = self.word.load(Acquire);
        (word & ADMITS != 0).then(|| Admission {
            pass: Pass::of(generation(word)),
            own: Pass::of(word as u32 >> 2),
        })
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
        let verdicts = state.news();
        self.word.store(state.word(), Release);
        drop(kept);
        if let Some(verdicts) = verdicts {
            verdicts.notify_waiters();
        }
        result
    }
}
