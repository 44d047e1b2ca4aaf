//! The circuits of principals: what the weak failures of one principal at one key lead to.

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Mutex, MutexGuard, PoisonError,
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
};

/// What a weak failure counts for: one whose kind was only [inferred](crate::Evidence::Inferred), or that could not be
/// classified. See [`Outcome::is_weak`](crate::Outcome::is_weak).
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

/// A principal for whom a breaker refuses calls. See [`Breaker::principals`](super::Breaker::principals).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PrincipalRefused {
    /// The kind of its id and the id, redacted and cut; of a token only a hash.
    pub principal: String,
    /// How long a call of it should wait.
    pub retry_after: Duration,
}

/// Looks for a place no more often than this while every place is in use.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// The circuits of principals, of all keys of a layer. A principal without a failure in its window has none.
pub(super) struct Principals {
    kept: Mutex<Kept>,
    max: usize,
}

#[derive(Default)]
struct Kept {
    /// By the hashes of key and principal.
    circuits: HashMap<(u64, u64), Own>,
    /// How many there are of a key.
    of_key: HashMap<u64, usize>,
    /// Those of principals that were not verified.
    unverified: usize,
    /// When it was found that all places are in use.
    full_since: Option<Duration>,
}

struct Own {
    machine: Box<Machine>,
    name: Box<str>,
    is_unverified: bool,
    last: Duration,
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
        let kept = Mutex::default();
        Self { kept, max }
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
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
        self.with(place, call, |machine| {
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
        now: Duration,
        rules: &Rules,
    ) -> Option<(Duration, Option<OpenCause>)> {
        self.with(place, call, |machine| {
            let retry_after = machine.look(now, rules).err()?;
            Some((retry_after, machine.cause()))
        })?
    }

    fn with<T>(
        &self,
        place: Place<'_>,
        call: &CallInfo,
        work: impl FnOnce(&mut Machine) -> T,
    ) -> Option<T> {
        let principal = call.principal_hash()?;
        let mut kept = self.lock();
        // Those of the key may have made room for others.
        if !kept.of_key.contains_key(&place.key) {
            place.mark.store(false, Relaxed);
            return None;
        }
        let own = kept.circuits.get_mut(&(place.key, principal))?;
        Some(work(&mut own.machine))
    }

    /// Takes the end of a call; without a verdict it only gives back a probe's place. Returns the transition that it caused.
    pub(super) fn record(
        &self,
        place: Place<'_>,
        call: &CallInfo,
        (pass, verdict): (Pass, Option<Verdict>),
        now: Duration,
        rules: &Rules,
    ) -> Option<Transition> {
        let id = (place.key, call.principal_hash()?);
        let mut kept = self.lock();
        if !kept.circuits.contains_key(&id) {
            let is_first = verdict == Some(Verdict::FAILURE) && pass == Pass::FIRST;
            let is_unverified = call.has_unverified_principal();
            if !is_first || !kept.make_room(is_unverified, self.max, now, rules) {
                return None;
            }
            kept.insert(id, Own::new(call, is_unverified, rules));
            place.mark.store(true, Relaxed);
        }
        let own = kept.circuits.get_mut(&id)?;
        own.last = own.last.max(now);
        let recorded = own.machine.record(pass, verdict, now, rules);
        if own.machine.is_as_new(now) {
            kept.remove(&id);
        }
        match recorded {
            Recorded::Counted(transition) => transition,
            Recorded::Stale => None,
        }
    }

    /// Forgets the circuits of a key.
    pub(super) fn forget(&self, place: Place<'_>) {
        let mut kept = self.lock();
        kept.retain(|(key, _), _| *key != place.key);
        place.mark.store(false, Relaxed);
    }

    /// The principals that are refused at a key, in the order of their names.
    pub(super) fn refused(&self, key: u64, now: Duration, rules: &Rules) -> Vec<PrincipalRefused> {
        let kept = self.lock();
        if !kept.of_key.contains_key(&key) {
            return Vec::new();
        }
        let of_key = kept.circuits.iter().filter(|((of, _), _)| *of == key);
        let refused = of_key.filter_map(|(_, own)| {
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
    fn new(call: &CallInfo, is_unverified: bool, rules: &Rules) -> Self {
        let name = call.whose().map(|whose| whose.to_string());
        Self {
            machine: Box::new(Machine::new(BreakerState::Closed, rules)),
            name: name.unwrap_or_default().into(),
            is_unverified,
            last: Duration::ZERO,
        }
    }
}

impl Kept {
    fn insert(&mut self, id: (u64, u64), own: Own) {
        *self.of_key.entry(id.0).or_default() += 1;
        self.unverified += usize::from(own.is_unverified);
        self.circuits.insert(id, own);
    }

    fn remove(&mut self, id: &(u64, u64)) {
        if let Some(own) = self.circuits.remove(id) {
            self.leave(id.0, &own);
        }
    }

    fn retain(&mut self, mut stays: impl FnMut(&(u64, u64), &Own) -> bool) {
        let gone: Vec<_> = self
            .circuits
            .extract_if(|id, own| !stays(id, own))
            .collect();
        for ((key, _), own) in &gone {
            self.leave(*key, own);
        }
    }

    /// A circuit of this key is gone.
    fn leave(&mut self, key: u64, own: &Own) {
        self.unverified -= usize::from(own.is_unverified);
        if let Some(count) = self.of_key.get_mut(&key) {
            *count -= 1;
            if *count == 0 {
                self.of_key.remove(&key);
            }
        }
    }

    /// Whether one more fits. If there is no place, the eighth of those goes that have not been used for the longest time and
    /// refuse nothing; for a principal that was not verified, only others that were not.
    fn make_room(&mut self, is_unverified: bool, max: usize, now: Duration, rules: &Rules) -> bool {
        let half = max.div_ceil(2);
        let fits =
            |kept: &Self| kept.circuits.len() < max && !(is_unverified && kept.unverified >= half);
        if fits(self) {
            return true;
        }
        let is_known_full = |since| now < LOOK_AGAIN.saturating_add(since);
        if self.full_since.is_some_and(is_known_full) {
            return false;
        }
        let may_go = |own: &Own| {
            (own.is_unverified || !is_unverified) && own.machine.look(now, rules).is_ok()
        };
        let idle = self.circuits.values().filter(|own| may_go(own));
        let mut idle: Vec<Duration> = idle.map(|own| own.last).collect();
        idle.sort_unstable();
        if let Some(&last) = idle.get(idle.len() / 8) {
            self.retain(|_, own| !may_go(own) || own.last > last);
        }
        let fits = fits(self);
        self.full_since = (!fits).then_some(now);
        fits
    }
}

impl fmt::Debug for Principals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Principals")
            .field("circuits", &self.lock().circuits.len())
            .field("max", &self.max)
            .finish_non_exhaustive()
    }
}
