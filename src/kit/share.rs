//! A number of units that owners share: the keys of a store, or its bytes.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::principal::Principal;

/// Why there is no room for more units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoRoom {
    /// All units are in use.
    Full,
    /// The share of the owner is used up.
    Share,
    /// The half of all owners who were not verified is used up.
    Unverified,
}

/// Units: so many in all, a share of them for each owner, and half for all owners together who were not verified.
pub(crate) struct Units {
    most: u64,
    /// The most of one owner.
    pub(crate) share: u64,
    used: Mutex<Used>,
}

#[derive(Default)]
struct Used {
    all: u64,
    unverified: u64,
    owners: HashMap<Arc<str>, u64>,
}

/// Units in use. Its drop gives them back.
pub(crate) struct Room {
    of: Arc<Units>,
    /// The one text of the owner that all its rooms have.
    pub(crate) owner: Option<Arc<str>>,
    units: u64,
}

impl Units {
    pub(crate) fn new(most: u64, share: u64) -> Arc<Self> {
        let used = Mutex::default();
        Arc::new(Self { most, share, used })
    }

    fn lock(&self) -> MutexGuard<'_, Used> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes units, if there are so many.
    pub(crate) fn take(
        self: &Arc<Self>,
        owner: Option<&Arc<str>>,
        units: u64,
    ) -> Result<Room, NoRoom> {
        let mut used = self.lock();
        let known = owner.and_then(|owner| used.owners.get_key_value(owner));
        let own = known.map_or(0, |(_, own)| *own);
        let owner = known.map(|(owner, _)| owner).or(owner).cloned();
        let unverified = match is_unverified(owner.as_ref()) {
            true => used.unverified,
            false => 0,
        };
        for (used, most, why) in [
            (own, self.share, NoRoom::Share),
            (unverified, self.most.div_ceil(2), NoRoom::Unverified),
            (used.all, self.most, NoRoom::Full),
        ] {
            if units > most.saturating_sub(used) {
                return Err(why);
            }
        }
        used.count(owner.as_ref(), |of| *of += units);
        let of = Arc::clone(self);
        Ok(Room { of, owner, units })
    }
}

impl Used {
    fn count(&mut self, owner: Option<&Arc<str>>, change: impl Fn(&mut u64)) {
        change(&mut self.all);
        if is_unverified(owner) {
            change(&mut self.unverified);
        }
        if let Some(owner) = owner {
            let own = self.owners.entry(Arc::clone(owner)).or_default();
            change(own);
            if *own == 0 {
                self.owners.remove(owner);
            }
        }
    }
}

fn is_unverified(owner: Option<&Arc<str>>) -> bool {
    owner.is_some_and(|owner| Principal::is_unverified(owner))
}

impl Drop for Room {
    fn drop(&mut self) {
        let mut used = self.of.lock();
        used.count(self.owner.as_ref(), |of| *of -= self.units);
    }
}
