//! A bucket of units as many calls use it at once.

use std::sync::{
    Mutex, MutexGuard, PoisonError,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use super::gcra::{Free, Rate, Turn};

/// Nothing but the number is shared through it, so the order of other reads and writes does not
/// matter.
#[derive(Debug, Default)]
pub(super) struct Bucket {
    /// When it is full again.
    full_at: AtomicU64,
    free: Mutex<Free>,
}

impl Bucket {
    pub(super) fn full_at(&self) -> u64 {
        self.full_at.load(Relaxed)
    }

    /// Takes units for a call that is sent now, if there are enough.
    pub(super) fn take(&self, rate: &Rate, now: u64, time: u64) -> bool {
        self.append(rate, now, now, time).is_ok()
    }

    /// Takes units for a call that may be sent at `latest`. If they are not there by then, the
    /// error is when they are.
    pub(super) fn reserve(
        &self,
        rate: &Rate,
        now: u64,
        latest: u64,
        time: u64,
    ) -> Result<Turn, u64> {
        let mut free = self.lock();
        match free.find(rate, now, time) {
            Some(turn) if turn.at <= latest => {
                free.take(turn);
                Ok(turn)
            }
            found => {
                let turn = self.append(rate, now, latest, time);
                turn.map_err(|at| found.map_or(at, |turn| turn.at))
            }
        }
    }

    /// When the units would be there, if that is after `latest`. Takes none.
    pub(super) fn too_late(&self, rate: &Rate, now: u64, latest: u64, time: u64) -> Option<u64> {
        let found = self.lock().find(rate, now, time);
        let turn = found.unwrap_or_else(|| rate.turn(self.full_at(), now, time));
        (turn.at > latest).then_some(turn.at)
    }

    /// A turn after all others.
    fn append(&self, rate: &Rate, now: u64, latest: u64, time: u64) -> Result<Turn, u64> {
        let mut known = self.full_at();
        loop {
            let turn = rate.turn(known, now, time);
            if turn.at > latest {
                return Err(turn.at);
            }
            match self
                .full_at
                .compare_exchange_weak(known, turn.full_at, Relaxed, Relaxed)
            {
                Ok(_) => return Ok(turn),
                Err(other) => known = other,
            }
        }
    }

    /// Gives back the turn of a call that is not sent.
    pub(super) fn give_back(&self, rate: &Rate, now: u64, turn: Turn) {
        let mut free = self.lock();
        free.put(turn);
        // Turns after which there is none are as if they had never been. Before others they are for
        // other calls.
        while let Some((full_at, time)) = free.last()
            && let Ok(_) = self
                .full_at
                .compare_exchange(full_at, full_at - time, Relaxed, Relaxed)
        {
            free.pop_last();
        }
        free.forget_past(rate, now);
    }

    fn lock(&self) -> MutexGuard<'_, Free> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
