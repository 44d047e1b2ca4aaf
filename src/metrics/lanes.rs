//! Counters that many threads write at the same time.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};

use super::{latency::Range, tally::Tally};
use crate::kit::lane::{lanes, thread_number};

/// A tally in as many parts as threads have met at it: a thread that finds a part locked goes to
/// the next, and makes it if it is not there. So no thread waits for another one, or for a reader,
/// and a tool whose calls never meet has one part.
pub(super) struct Lanes(Box<[OnceLock<Box<Mutex<Tally>>>]>);

impl Lanes {
    pub(super) fn new() -> Self {
        Self((0..lanes()).map(|_| OnceLock::new()).collect())
    }

    /// Writes to the first part that is free.
    #[inline]
    pub(super) fn write(&self, range: &Range, write: impl FnOnce(&mut Tally)) {
        // The usual case: no other thread was ever met.
        if let [first, second, ..] = &*self.0
            && second.get().is_none()
            && let Some(part) = first.get()
            && let Ok(mut part) = part.try_lock()
        {
            return write(&mut part);
        }
        write(&mut self.free_of_many(range));
    }

    #[inline(never)]
    fn free_of_many(&self, range: &Range) -> MutexGuard<'_, Tally> {
        let make = || Box::new(Mutex::new(Tally::new(range)));
        let part = |n: usize| self.0[n].get_or_init(make);
        let made = self.0.iter().map_while(OnceLock::get).count();
        let first = thread_number() % made.max(1);
        let mut parts = (first..made).chain(0..first).chain(made..self.0.len());
        let free = parts.find_map(|n| match part(n).try_lock() {
            Ok(part) => Some(part),
            Err(TryLockError::Poisoned(part)) => Some(part.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        });
        // Else more threads than the machine has are in the middle of a few instructions.
        free.unwrap_or_else(|| part(first).lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reads each part, one after the other.
    pub(super) fn read(&self, mut read: impl FnMut(&Tally)) {
        for part in self.0.iter().filter_map(OnceLock::get) {
            read(&part.lock().unwrap_or_else(PoisonError::into_inner));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    /// If the recorder waited for the reader, this would never end.
    #[test]
    fn a_recorder_does_not_wait_for_a_reader() {
        let (lanes, range) = (Lanes::new(), Range::default());
        let record = || lanes.write(&range, |tally| tally.counts.micros += 1);
        record();
        let mut reads = 0;
        lanes.read(|tally| {
            reads += 1;
            record();
            assert_eq!(tally.counts.micros, 1);
        });
        assert_eq!(reads, 2, "the second part was made meanwhile");
        let mut total = 0;
        lanes.read(|tally| total += tally.counts.micros);
        assert_eq!(total, 3);
    }

    #[test]
    fn a_tool_whose_calls_never_meet_has_one_part() {
        let (lanes, range) = (Lanes::new(), Range::default());
        for _ in 0..10 {
            let record = || lanes.write(&range, |tally| tally.counts.micros += 1);
            thread::scope(|scope| scope.spawn(record).join()).expect("it does not panic");
        }
        let mut parts = Vec::new();
        lanes.read(|tally| parts.push(tally.counts.micros));
        assert_eq!(parts, [10]);
    }
}
