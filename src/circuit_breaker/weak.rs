//! The circuits of principals: what the weak failures of one principal at one key lead to.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    mem,
    sync::Arc,
    time::Duration,
};

use serde::{Deserialize, Serialize};

use super::{
    cell::Kept,
    circuit::Shared,
    rules::Rules,
    state::{Machine, Pass},
    window::Verdict,
};
use crate::{
    call::CallInfo,
    event::transition::{BreakerState, Transition},
    kit::{
        registry::{Eviction, WeakRegistry},
        share::{NoRoom, Room, Units},
    },
    lock::lock,
};

/// The use of a weak failure: its kind was only [inferred](crate::Evidence::Inferred), or it could
/// not be classified. See [`Outcome::is_weak`](crate::Outcome::is_weak).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum WeakFailures {
    /// Counts for all callers, as any other failure.
    Shared,
    /// Counts for the principal of the call; for all callers if the call has none. The default.
    #[default]
    PerPrincipal,
    /// Does not count.
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

/// Looks for a place no more often than this.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// A principal that has not ended a call for so long is forgotten, unless it is refused: its key
/// then costs no lock.
const IDLE: Duration = Duration::from_secs(3600);

/// Idle principals are looked for so often.
const SWEEP: Duration = Duration::from_secs(60);

/// The bits of an epoch.
const EPOCHS: u32 = u32::MAX >> 2;

/// The circuits of the principals at one key. A principal without a failure in its window has none.
#[derive(Default)]
pub(super) struct Principals {
    /// By the hash of the principal.
    circuits: BTreeMap<u64, Own>,
    swept: Duration,
    /// The generation of a circuit that is made now, in 30 bits: none that was forgotten had a
    /// later one, so that calls which it admitted decide nothing.
    pub(super) epoch: u32,
    /// News for calls that wait, as in [`Machine`].
    pub(super) has_news: bool,
}

struct Own {
    machine: Machine,
    name: Box<str>,
    last: Duration,
    room: Room,
}

impl Principals {
    pub(super) fn is_empty(&self) -> bool {
        self.circuits.is_empty()
    }

    /// Forgets all. The results of calls that are in flight do not count.
    pub(super) fn forget(&mut self) {
        self.retain(|_| false);
        self.epoch = (self.epoch + 1) & EPOCHS;
        self.has_news = true;
    }

    fn retain(&mut self, mut keeps: impl FnMut(&mut Own) -> bool) {
        let epoch = &mut self.epoch;
        self.circuits.retain(|_, own| {
            let keeps = keeps(own);
            if !keeps {
                *epoch = own.machine.generation.max(*epoch) & EPOCHS;
            }
            keeps
        });
    }

    /// Returns the pass of a call without a circuit for its principal.
    pub(super) fn first(&self) -> Pass {
        Pass::of(self.epoch)
    }

    /// Returns the circuit of a call's principal, if it has one.
    pub(super) fn of(&mut self, call: &CallInfo, now: Duration) -> Option<&mut Machine> {
        if self.is_empty() {
            return None;
        }
        if now >= SWEEP.saturating_add(self.swept) {
            self.swept = now;
            self.retain(|own| now < IDLE.saturating_add(own.last) || own.is_refused(now));
        }
        let own = self.circuits.get_mut(&call.principal_hash()?)?;
        Some(own.machine.at(now))
    }

    /// Records the end of a call; without a `verdict` it only gives back a probe's place. Returns
    /// the transition that it caused. Fails if all places for principals are taken.
    pub(super) fn record(
        &mut self,
        call: &CallInfo,
        (pass, verdict): (Pass, Option<Verdict>),
        now: Duration,
        rules: &Arc<Rules>,
        places: &Arc<Units>,
    ) -> Result<Option<Transition>, NoRoom> {
        let is_first = verdict == Some(Verdict::FAILURE) && pass == self.first();
        if self.is_empty() && !is_first {
            return Ok(None);
        }
        let Some(principal) = call.principal_hash() else {
            return Ok(None);
        };
        let own = match self.circuits.entry(principal) {
            Entry::Occupied(own) => own.into_mut(),
            Entry::Vacant(_) if !is_first => return Ok(None),
            Entry::Vacant(place) => {
                let room = places.take(None, call.has_unverified_principal(), 1)?;
                let name = call.whose().map(|whose| whose.to_string());
                let mut machine = Machine::new(BreakerState::Closed, rules);
                machine.generation = self.epoch;
                place.insert(Own {
                    machine,
                    name: name.unwrap_or_default().into(),
                    last: now,
                    room,
                })
            }
        };
        own.last = own.last.max(now);
        let transition = own.machine.at(now).record(pass, verdict, None);
        self.has_news |= mem::take(&mut own.machine.has_news);
        if own.machine.is_as_new() {
            self.epoch = own.machine.generation.max(self.epoch) & EPOCHS;
            self.circuits.remove(&principal);
        }
        Ok(transition)
    }

    /// Returns whether they may be evicted with their breaker.
    pub(super) fn eviction(&mut self, now: Duration) -> Eviction {
        let eviction = |own: &mut Own| own.machine.at(now).eviction(own.last).max(Eviction::Costly);
        let eviction = self.circuits.values_mut().map(eviction).max();
        eviction.unwrap_or(Eviction::Free)
    }

    /// The principals that are refused, in the order of their names.
    pub(super) fn refused(&mut self, now: Duration) -> Vec<PrincipalRefused> {
        let refused = self.circuits.values_mut().filter_map(|own| {
            Some(PrincipalRefused {
                principal: own.name.clone().into(),
                retry_after: own.machine.at(now).look().err()?,
            })
        });
        let mut refused: Vec<_> = refused.collect();
        refused.sort_by(|a, b| a.principal.cmp(&b.principal));
        refused
    }

    /// Returns the last uses of the principals that may be evicted: they refuse nothing and, if
    /// `is_unverified`, were not verified either.
    fn idle(&mut self, is_unverified: bool, now: Duration) -> Vec<Duration> {
        let own = self.circuits.values_mut();
        let idle = own.filter_map(|own| own.may_go(is_unverified, now).then_some(own.last));
        idle.collect()
    }
}

impl Shared {
    /// Forgets the eighth of all principals that were not used for the longest time, of those that
    /// are [idle](Principals::idle). Returns `false` if none is idle, or if the last look is less
    /// than [`LOOK_AGAIN`] ago. Takes the locks of all breakers, one after the other.
    pub(super) fn makes_room(&self, is_unverified: bool) -> bool {
        let now = self.now();
        {
            let mut looked = lock(&self.looked);
            let looked = &mut looked[usize::from(is_unverified)];
            if looked.is_some_and(|looked| now < LOOK_AGAIN.saturating_add(looked)) {
                return false;
            }
            *looked = Some(now);
        }
        let circuits = self.circuits.get().and_then(WeakRegistry::upgrade);
        let mut circuits = circuits.map_or_else(Vec::new, |circuits| circuits.entries());
        let mut idle = Vec::new();
        circuits.retain(|circuit| {
            let look = |kept: &mut Kept| kept.principals.idle(is_unverified, now);
            let here = circuit.value().peek(look).unwrap_or_default();
            idle.extend_from_slice(&here);
            !here.is_empty()
        });
        idle.sort_unstable();
        let Some(last) = idle.get(idle.len() / 8) else {
            return false;
        };
        for circuit in circuits {
            circuit.value().with(|kept| {
                let principals = &mut kept.principals;
                principals.retain(|own| own.last > *last || !own.may_go(is_unverified, now));
            });
        }
        true
    }
}

impl Own {
    fn is_refused(&mut self, now: Duration) -> bool {
        self.machine.at(now).look().is_err()
    }

    fn may_go(&mut self, is_unverified: bool, now: Duration) -> bool {
        (self.room.is_unverified || !is_unverified) && !self.is_refused(now)
    }
}
