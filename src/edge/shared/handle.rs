use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
};

use serde::Serialize;

const UNKNOWN: u8 = 0;
const UP: u8 = 1;
const DOWN: u8 = 2;

/// How the exchange goes.
#[derive(Debug, Default)]
pub(super) struct Status {
    store: AtomicU8,
    processes: AtomicUsize,
    told: AtomicU64,
    adopted: AtomicU64,
    dropped: AtomicU64,
    failed: AtomicU64,
}

impl Status {
    /// Returns whether that is news.
    pub(super) fn set_up(&self, is_up: bool) -> bool {
        if !is_up {
            self.failed.fetch_add(1, Relaxed);
        }
        let state = if is_up { UP } else { DOWN };
        self.store.swap(state, Relaxed) != state
    }

    pub(super) fn is_up_or_unknown(&self) -> bool {
        self.store.load(Relaxed) != DOWN
    }

    pub(super) fn tell(&self) {
        self.told.fetch_add(1, Relaxed);
    }

    pub(super) fn adopt(&self) {
        self.adopted.fetch_add(1, Relaxed);
    }

    pub(super) fn drop_some(&self, registers: u64) {
        self.dropped.fetch_add(registers, Relaxed);
    }

    pub(super) fn see(&self, processes: usize) {
        self.processes.store(processes, Relaxed);
    }
}

/// Tells how the exchange with the other processes goes. Cheap to clone.
#[derive(Clone)]
pub struct SharedHandle(pub(super) Arc<Status>);

impl SharedHandle {
    /// The counters at this moment.
    pub fn snapshot(&self) -> SharedSnapshot {
        let status = &self.0;
        SharedSnapshot {
            is_up: match status.store.load(Relaxed) {
                UNKNOWN => None,
                state => Some(state == UP),
            },
            processes: status.processes.load(Relaxed),
            told_total: status.told.load(Relaxed),
            adopted_total: status.adopted.load(Relaxed),
            dropped_total: status.dropped.load(Relaxed),
            failed_total: status.failed.load(Relaxed),
        }
    }
}

impl fmt::Debug for SharedHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.snapshot().fmt(f)
    }
}

/// How the exchange with the other processes goes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct SharedSnapshot {
    /// Whether the last exchange with the store succeeded; `None` before the first one.
    pub is_up: Option<bool>,
    /// How many processes there are, this one too, as of the last exchange, at most 1,000; 0 before
    /// the first one.
    pub processes: usize,
    /// Changes of breakers and rate limits of this process that the store has.
    pub told_total: u64,
    /// Changes taken over from others, also where a breaker was in that state already.
    pub adopted_total: u64,
    /// Changes that were not told or taken over: those of more than 10,000 keys, those of layers
    /// with another name, those that are not in our format, those for which the store has no room.
    pub dropped_total: u64,
    /// Exchanges that failed.
    pub failed_total: u64,
}
