//! The generic cell rate algorithm (GCRA). Pure: time is an argument, in nanoseconds since any
//! fixed moment.
//!
//! A bucket of units is one number: the moment in which it is full again, if no more of them are
//! taken. A call that takes units moves this moment on by the time in which they come back. It may
//! be sent once that moment is at most the refill time of a whole bucket away, because then its
//! units are there. A waiting call takes its units immediately, so that its turn is known and comes
//! in any case.

use std::collections::BTreeMap;

use super::rate::Quota;

/// The rate at which units come back, and the most that there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rate {
    /// The time between two units.
    pub(super) interval: u64,
    /// The most units in one moment.
    pub(super) burst: u32,
}

/// The units of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Turn {
    /// From when on the call may be sent.
    pub(super) at: u64,
    /// When the bucket is full again after it.
    pub(super) full_at: u64,
    /// The time in which its units come back.
    pub(super) time: u64,
}

impl Rate {
    pub(super) fn of(quota: &Quota) -> Self {
        Self {
            interval: quota.interval(),
            burst: quota.burst(),
        }
    }

    /// Returns the time in which so many units come back. `None`: there are never so many.
    pub(super) fn time(&self, units: u32) -> Option<u64> {
        (units <= self.burst).then(|| self.interval.saturating_mul(units.into()))
    }

    fn capacity(&self) -> u64 {
        self.interval.saturating_mul(self.burst.into())
    }

    /// Returns the turn of a call that comes `now`, after all turns before: they leave a bucket
    /// that is full at `full_at`.
    pub(super) fn turn(&self, full_at: u64, now: u64, time: u64) -> Turn {
        let full_at = full_at.max(now).saturating_add(time);
        let at = full_at.saturating_sub(self.capacity());
        Turn { at, full_at, time }
    }

    /// Returns the first returned turn that a call can have, and its place in `free`: those that
    /// have not passed.
    pub(super) fn find(
        &self,
        free: &BTreeMap<u64, u64>,
        now: u64,
        time: u64,
    ) -> Option<(u64, Turn)> {
        let mut free = free.range(now.saturating_add(self.capacity())..);
        let (&place, &found) = free.find(|(_, found)| **found >= time)?;
        // As if its call had been two, of which this is the first.
        let full_at = place - (found - time);
        let at = full_at.saturating_sub(self.capacity());
        Some((place, Turn { at, full_at, time }))
    }

    /// Returns the whole units in such a bucket.
    pub(super) fn remaining(&self, full_at: u64, now: u64) -> u32 {
        let missing = full_at.saturating_sub(now).div_ceil(self.interval);
        self.burst - missing.min(self.burst.into()) as u32
    }
}
