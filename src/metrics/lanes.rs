//! Counters that many threads write at the same time.

use std::sync::{
    Mutex, MutexGuard, OnceLock, PoisonError, TryLockError,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use super::{latency::Range, tally::Tally};
use crate::kit::lane::{lanes, thread_number};

/// A tally in as many parts as threads have met at it: a thread that finds a part locked goes to the next, and makes it
/// if it is not there. So no thread waits for another one, or for a reader, and a tool
/// whose calls never meet has one part.
pub(super) struct Lanes {
    parts: Box<[OnceLock<Box<Mutex<Tally>>>]>,
    /// How many parts are in use, at least 1.
    open: AtomicUsize,
}

impl Lanes {
    pub(super) fn new() -> Self {
        Self {
            parts: (0..lanes()).map(|_| OnceLock::new()).collect(),
            open: AtomicUsize::new(1),
        }
    }

    /// Writes to the first part that is free.
    #[inline]
    pub(super) fn write(&self, range: &Range, write: impl FnOnce(&mut Tally)) {
        // The usual case: no other thread was ever met.
        if self.open.load(Relaxed) == 1
            && let Some(part) = self.parts[0].get()
            && let Ok(mut part) = part.try_lock()
        {
            return write(&mut part);
        }
        write(&mut self.free_of_many(range));
    }

    #[inline(never)]
    fn free_of_many(&self, range: &Range) -> MutexGuard<'_, Tally> {
        let number = thread_number();
        loop {
            let open = self.open.load(Relaxed);
            for n in number..number + open {
                match self.part(n % open, range).try_lock() {
                    Ok(part) => return part,
                    Err(TryLockError::Poisoned(part)) => return part.into_inner(),
                    Err(TryLockError::WouldBlock) => {}
                }
            }
            if open == self.parts.len() {
                // More threads than the machine has are in the middle of a few instructions.
                let part = self.part(number % open, range).lock();
                return part.unwrap_or_else(PoisonError::into_inner);
            }
            // An error says that another thread has opened it.
            let _ = self.open.compare_exchange(open, open + 1, Relaxed, Relaxed);
        }
    }

    fn part(&self, n: usize, range: &Range) -> &Mutex<Tally> {
        self.parts[n].get_or_init(|| Box::new(Mutex::new(Tally::new(range))))
    }

    /// Reads each part, one after the other.
    pub(super) fn read(&self, mut read: impl FnMut(&Tally)) {
        for part in self.parts.iter().filter_map(OnceLock::get) {
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
