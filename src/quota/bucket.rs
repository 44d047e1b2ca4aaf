//! A bucket of units that many calls use at the same time.

use std::{collections::BTreeMap, sync::Mutex};

use super::gcra::{Rate, Turn};
use crate::lock::lock;

/// How many returned turns are kept at most; the earliest are lost.
const MOST_FREE: usize = 1024;

#[derive(Debug)]
pub(super) struct Bucket {
    pub(super) rate: Rate,
    turns: Mutex<Turns>,
}

#[derive(Debug, Default)]
struct Turns {
    /// When the bucket is full again.
    full_at: u64,
    /// Turns that were given back before others that were not: the time of their units, by when the
    /// bucket is full after them. Later calls take them.
    free: BTreeMap<u64, u64>,
}

impl Bucket {
    /// A full one.
    pub(super) fn new(rate: Rate) -> Self {
        let turns = Mutex::default();
        Self { rate, turns }
    }

    /// The whole units in it.
    pub(super) fn remaining(&self, now: u64) -> u32 {
        self.rate.remaining(self.full_at(), now)
    }

    pub(super) fn full_at(&self) -> u64 {
        lock(&self.turns).full_at
    }

    /// Takes units for a call that is sent now, if there are enough.
    pub(super) fn take(&self, now: u64, time: u64) -> bool {
        self.reserve(now, now, time).is_ok()
    }

    /// Takes units for a call that may be sent at `latest`. If they are not there by then, the
    /// error is when they are.
    pub(super) fn reserve(&self, now: u64, latest: u64, time: u64) -> Result<Turn, u64> {
        let mut turns = lock(&self.turns);
        let (place, turn) = self.first(&turns, now, time);
        if turn.at > latest {
            return Err(turn.at);
        }
        let Some(place) = place else {
            turns.full_at = turn.full_at;
            return Ok(turn);
        };
        // The rest of the place stays.
        if let Some(rest) = turns.free.remove(&place).filter(|found| *found > time) {
            turns.free.insert(place, rest - time);
        }
        Ok(turn)
    }

    /// Returns the first turn that a call can have: the place of a returned one, or none if it
    /// comes after all others.
    fn first(&self, turns: &Turns, now: u64, time: u64) -> (Option<u64>, Turn) {
        match self.rate.find(&turns.free, now, time) {
            Some((place, turn)) => (Some(place), turn),
            None => (None, self.rate.turn(turns.full_at, now, time)),
        }
    }

    /// When the units would be there, if that is after `latest`. Takes none.
    pub(super) fn too_late(&self, now: u64, latest: u64, time: u64) -> Option<u64> {
        let (_, turn) = self.first(&lock(&self.turns), now, time);
        (turn.at > latest).then_some(turn.at)
    }

    /// Gives back the turn of a call that is not sent. If there are turns after it, it is for the
    /// next call that waits: others keep theirs.
    pub(super) fn give_back(&self, now: u64, turn: Turn) {
        let Turns { full_at, free } = &mut *lock(&self.turns);
        *free = free.split_off(&now);
        free.insert(turn.full_at, turn.time);
        while let Some(time) = free.remove(full_at) {
            *full_at -= time;
        }
        if free.len() > MOST_FREE {
            free.pop_first();
        }
    }
}

#[cfg(test)]
mod tests;
