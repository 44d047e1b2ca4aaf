//! A number of units that owners share: the keys of a store, or its bytes.

use crate::lock::lock;
use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

/// Why more units do not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoRoom {
    /// All units are in use.
    Full,
    /// The share of the owner is used up.
    Share,
    /// The half of all owners who were not verified is used up.
    Unverified,
}

/// Units: so many in all, a share of them for each owner, and half for all owners together who were
/// not verified.
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
    pub(crate) is_unverified: bool,
    units: u64,
}

impl Units {
    pub(crate) fn new(most: u64, share: u64) -> Arc<Self> {
        let used = Mutex::default();
        Arc::new(Self { most, share, used })
    }

    /// Takes units, if enough are free. Units without an owner count only in the whole.
    pub(crate) fn take(
        self: &Arc<Self>,
        owner: Option<&Arc<str>>,
        is_unverified: bool,
        units: u64,
    ) -> Result<Room, NoRoom> {
        let mut used = lock(&self.used);
        let known = owner.and_then(|owner| used.owners.get_key_value(owner));
        let own = known.map_or(0, |(_, own)| *own);
        let owner = known.map(|(owner, _)| owner).or(owner).cloned();
        let unverified = if is_unverified { used.unverified } else { 0 };
        for (used, most, why) in [
            (own, self.share, NoRoom::Share),
            (unverified, self.most.div_ceil(2), NoRoom::Unverified),
            (used.all, self.most, NoRoom::Full),
        ] {
            if units > most.saturating_sub(used) {
                return Err(why);
            }
        }
        let room = Room {
            of: Arc::clone(self),
            owner,
            is_unverified,
            units,
        };
        used.count(&room, |of| *of += units);
        Ok(room)
    }
}

impl Used {
    fn count(&mut self, room: &Room, change: impl Fn(&mut u64)) {
        change(&mut self.all);
        if room.is_unverified {
            change(&mut self.unverified);
        }
        if let Some(owner) = &room.owner {
            let own = self.owners.entry(Arc::clone(owner)).or_default();
            change(own);
            if *own == 0 {
                self.owners.remove(owner);
            }
        }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        lock(&self.of.used).count(self, |of| *of -= self.units);
    }
}
