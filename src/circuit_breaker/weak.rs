//! The circuits of principals: what the weak failures of one principal at one key lead to.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use serde::{Deserialize, Serialize};

use super::{
    rules::Rules,
    state::{Machine, Pass, Recorded},
    window::Verdict,
};
use crate::{
    call::CallInfo,
    event::transition::{BreakerState, OpenCause, Transition},
    kit::share::{Room, Units},
};

/// What a weak failure counts for: one whose kind was only [inferred](crate::Evidence::Inferred),
/// or that could not be classified. See [`Outcome::is_weak`](crate::Outcome::is_weak).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum WeakFailures {
    /// It counts for all callers, as any other failure.
    Shared,
    /// It counts for the principal of the call; for all callers if the call has none. The default.
    #[default]
    PerPrincipal,
    /// It does not count.
    Ignored,
}

/// A principal for whom a breaker refuses calls. See
/// [`Breaker::principals`](super::Breaker::principals).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PrincipalRefused {
    /// The kind of its id and the id, redacted and cut; of a token only a hash.
    pub principal: String,
    /// How long a call of it should wait.
    pub retry_after: Duration,
}

/// Looks for a place no more often than this while nearly every place is in use.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// A principal that has not ended a call for so long is forgotten, unless it is refused: its key
/// then costs no lock.
const IDLE: Duration = Duration::from_secs(3600);

/// Idle principals are looked for so often.
const SWEEP: Duration = Duration::from_secs(60);

/// The circuits of principals, of all keys of a layer. A principal without a failure in its window
/// has none.
pub(super) struct Principals {
    kept: Mutex<Kept>,
    places: Arc<Units>,
}

#[derive(Default)]
struct Kept {
    /// By the hash of the key and that of the principal.
    circuits: BTreeMap<(u64, u64), Own>,
    /// When it was found that nearly all places are in use: for principals that were verified, and
    /// for others.
    full_since: [Option<Duration>; 2],
    swept: Duration,
}

struct Own {
    machine: Box<Machine>,
    name: Box<str>,
    last: Duration,
    room: Room,
}

/// A key, and whether principals have circuits there: then calls look for theirs.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) key: u64,
    pub(super) mark: &'a AtomicBool,
}

impl Principals {
    /// For at most `max` circuits; half of them for principals that were not verified.
    pub(super) fn new(max: usize) -> Self {
        Self {
            kept: Mutex::default(),
            places: Units::new(max as u64, max as u64),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether a new breaker has to look for circuits: its key may have had another
    /// breaker, which was forgotten.
    pub(super) fn are_there(&self) -> bool {
        !self.lock().circuits.is_empty()
    }

    /// Admits a call as far as its principal is concerned, or returns when to come back, and why.
    pub(super) fn admit(
        &self,
        place: Place<'_>,
        call: &CallInfo,
        may_probe: bool,
        now: Duration,
        rules: &Rules,
    ) -> Result<Pass, (Duration, Option<OpenCause>)> {
        self.with(place, call, now, rules, |machine| {
            let (admission, _) = machine.admit(now, may_probe, rules);
            admission.map_err(|retry_after| (retry_after, machine.cause()))
        })
        .unwrap_or(Ok(Pass::FIRST))
    }

    /// When a call should come back that would be refused, and why. Changes nothing.
    pub(super) fn refuses(
        &self,
        place: Place<'_>,
        call: &CallInfo,
        may_probe: bool,
        now: Duration,
        rules: &Rules,
    ) -> Option<(Duration, Option<OpenCause>)> {
        self.with(place, call, now, rules, |machine| {
            let retry_after = machine.look_for(now, may_probe, rules).err()?;
            Some((retry_after, machine.cause()))
        })?
    }

    fn with<T>(
        &self,
        place: Place<'_>,
        call: &CallInfo,
        now: Duration,
        rules: &Rules,
        work: impl FnOnce(&mut Machine) -> T,
    ) -> Option<T> {
        let principal = call.principal_hash();
        let mut kept = self.lock();
        kept.forget_idle(now, rules);
        if kept.of_key(place.key).next().is_none() {
            place.mark.store(false, Relaxed);
            return None;
        }
        let own = kept.circuits.get_mut(&(place.key, principal?))?;
        Some(work(&mut own.machine))
    }

    /// Takes the end of a call; without a verdict it only gives back a probe's place. Returns the
    /// transition that it caused.
    pub(super) fn record(
        &self,
        place: Place<'_>,
        call: &CallInfo,
        (pass, verdict): (Pass, Option<Verdict>),
        now: Duration,
        rules: &Rules,
    ) -> Option<Transition> {
        let key = (place.key, call.principal_hash()?);
        let mut kept = self.lock();
        if !kept.circuits.contains_key(&key) {
            let is_first = verdict == Some(Verdict::FAILURE) && pass == Pass::FIRST;
            if !is_first {
                return None;
            }
            let room = kept.make_room(call.has_unverified_principal(), &self.places, now, rules)?;
            kept.circuits.insert(key, Own::new(call, room, rules));
            place.mark.store(true, Relaxed);
        }
        let own = kept.circuits.get_mut(&key)?;
        own.last = own.last.max(now);
        let recorded = own.machine.record(pass, verdict, None, now, rules);
        if own.machine.is_as_new(now) {
            kept.circuits.remove(&key);
        }
        match recorded {
            Recorded::Counted(transition) => transition,
            Recorded::Stale => None,
        }
    }

    /// Forgets the circuits of a key.
    pub(super) fn forget(&self, place: Place<'_>) {
        let mut kept = self.lock();
        let gone: Vec<_> = kept.of_key(place.key).map(|(key, _)| *key).collect();
        gone.iter().for_each(|key| drop(kept.circuits.remove(key)));
        place.mark.store(false, Relaxed);
    }

    /// The principals that are refused at a key, in the order of their names.
    pub(super) fn refused(&self, key: u64, now: Duration, rules: &Rules) -> Vec<PrincipalRefused> {
        let kept = self.lock();
        let refused = kept.of_key(key).filter_map(|(_, own)| {
            Some(PrincipalRefused {
                principal: own.name.clone().into(),
                retry_after: own.machine.look(now, rules).err()?,
            })
        });
        let mut refused: Vec<_> = refused.collect();
        refused.sort_by(|a, b| a.principal.cmp(&b.principal));
        refused
    }
}

impl Own {
    fn new(call: &CallInfo, room: Room, rules: &Rules) -> Self {
        let name = call.whose().map(|whose| whose.to_string());
        Self {
            machine: Box::new(Machine::new(BreakerState::Closed, rules)),
            name: name.unwrap_or_default().into(),
            last: Duration::ZERO,
            room,
        }
    }
}

impl Kept {
    fn of_key(&self, key: u64) -> impl Iterator<Item = (&(u64, u64), &Own)> {
        self.circuits.range((key, 0)..=(key, u64::MAX))
    }

    fn forget_idle(&mut self, now: Duration, rules: &Rules) {
        if now >= SWEEP.saturating_add(self.swept) {
            self.swept = now;
            let is_idle = |own: &Own| now >= IDLE.saturating_add(own.last);
            self.circuits
                .retain(|_, own| !is_idle(own) || own.machine.look(now, rules).is_err());
        }
    }

    /// A place for one more. If there is none, the eighth of those goes that have not been used for
    /// the longest time and refuse nothing; for a principal that was not verified, only others that
    /// were not.
    fn make_room(
        &mut self,
        is_unverified: bool,
        places: &Arc<Units>,
        now: Duration,
        rules: &Rules,
    ) -> Option<Room> {
        let take = || places.take(None, is_unverified, 1).ok();
        let is_known_full = |since| now < LOOK_AGAIN.saturating_add(since);
        let kind = usize::from(is_unverified);
        let room = take();
        if room.is_some() || self.full_since[kind].is_some_and(is_known_full) {
            return room;
        }
        let may_go = |own: &Own| {
            (own.room.is_unverified || !is_unverified) && own.machine.look(now, rules).is_ok()
        };
        let idle = self.circuits.values().filter(|own| may_go(own));
        let mut idle: Vec<Duration> = idle.map(|own| own.last).collect();
        idle.sort_unstable();
        let before = self.circuits.len();
        if let Some(&last) = idle.get(idle.len() / 8) {
            self.circuits
                .retain(|_, own| !may_go(own) || own.last > last);
        }
        let room = take();
        // A look at all circuits that frees few places must not follow another for each of them.
        let freed = before - self.circuits.len();
        let frees_few = (freed as u64) < places.share / 64;
        self.full_since[kind] = (room.is_none() || frees_few).then_some(now);
        room
    }
}

impl fmt::Debug for Principals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Principals")
            .field("circuits", &self.lock().circuits.len())
            .finish_non_exhaustive()
    }
}
