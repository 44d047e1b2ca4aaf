//! A bucket of units that many calls use at the same time.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use super::gcra::{Rate, Turn};
use crate::lock::lock;

/// How many returned turns are kept at most; the earliest are lost.
const MOST_FREE: usize = 1024;

/// Nothing but the number is shared through it, so the order of other reads and writes does not
/// matter.
#[derive(Debug)]
pub(super) struct Bucket {
    pub(super) rate: Rate,
    /// When it is full again.
    full_at: AtomicU64,
    /// Turns that were given back before others that were not: the time of their units, by when the
    /// bucket is full after them. Calls that wait take them.
    free: Mutex<BTreeMap<u64, u64>>,
}

impl Bucket {
    /// Returns a full one.
    pub(super) fn new(rate: Rate) -> Self {
        Self {
            rate,
            full_at: AtomicU64::default(),
            free: Mutex::default(),
        }
    }

    /// Returns the whole units in it.
    pub(super) fn remaining(&self, now: u64) -> u32 {
        self.rate.remaining(self.full_at(), now)
    }

    pub(super) fn full_at(&self) -> u64 {
        self.full_at.load(Relaxed)
    }

    /// Takes units for a call that is sent now, if there are enough.
    pub(super) fn take(&self, now: u64, time: u64) -> bool {
        self.append(now, now, time).is_ok()
    }

    /// Takes units for a call that may be sent at `latest`. If they are not there by then, the
    /// error is when they are.
    pub(super) fn reserve(&self, now: u64, latest: u64, time: u64) -> Result<Turn, u64> {
        let mut free = lock(&self.free);
        let found = self.rate.find(&free, now, time);
        let Some((place, turn)) = found.filter(|(_, turn)| turn.at <= latest) else {
            let turn = self.append(now, latest, time);
            return turn.map_err(|at| found.map_or(at, |(_, turn)| turn.at));
        };
        // The rest of the place stays.
        if let Some(rest) = free.remove(&place).filter(|found| *found > time) {
            free.insert(place, rest - time);
        }
        Ok(turn)
    }

    /// Takes a turn after all others.
    fn append(&self, now: u64, latest: u64, time: u64) -> Result<Turn, u64> {
        let mut known = self.full_at();
        loop {
            let turn = self.rate.turn(known, now, time);
            if turn.at > latest {
                return Err(turn.at);
            }
            let (full_at, changed) = (&self.full_at, turn.full_at);
            match full_at.compare_exchange_weak(known, changed, Relaxed, Relaxed) {
                Ok(_) => return Ok(turn),
                Err(other) => known = other,
            }
        }
    }

    /// Returns when the units would be there, if that is after `latest`. Takes none.
    pub(super) fn too_late(&self, now: u64, latest: u64, time: u64) -> Option<u64> {
        let found = self.rate.find(&lock(&self.free), now, time);
        let last = || self.rate.turn(self.full_at(), now, time);
        let at = found.map_or_else(last, |(_, turn)| turn).at;
        (at > latest).then_some(at)
    }

    /// Gives back the turn of a call that is not sent. If there are turns after it, it is for the
    /// next call that waits: others keep theirs.
    pub(super) fn give_back(&self, now: u64, turn: Turn) {
        let mut free = lock(&self.free);
        *free = free.split_off(&now);
        free.insert(turn.full_at, turn.time);
        while let Some(last) = free.last_entry()
            && let (full_at, time) = (*last.key(), *last.get())
            && let Ok(_) = self
                .full_at
                .compare_exchange(full_at, full_at - time, Relaxed, Relaxed)
        {
            last.remove();
        }
        if free.len() > MOST_FREE {
            free.pop_first();
        }
    }
}

#[cfg(test)]
mod tests;
