use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
};

use serde::Serialize;

use super::fleet::Fleet;

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
    /// By this side, without the fleet's.
    dropped: AtomicU64,
    dropped_words: AtomicU64,
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

    pub(super) fn tell(&self, words: usize) {
        self.told.fetch_add(words as u64, Relaxed);
    }

    pub(super) fn adopt(&self) {
        self.adopted.fetch_add(1, Relaxed);
    }

    pub(super) fn drop_some(&self, words: u64) {
        self.dropped.fetch_add(words, Relaxed);
    }

    pub(super) fn see(&self, fleet: &Fleet) {
        self.processes.store(fleet.size(), Relaxed);
        self.dropped_words.store(fleet.dropped(), Relaxed);
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
            dropped_total: status.dropped.load(Relaxed) + status.dropped_words.load(Relaxed),
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
    /// How many processes there are, this one too, as of the last exchange; 0 before the first one.
    pub processes: usize,
    /// What was told of breakers and rate limits of this process.
    pub told_total: u64,
    /// What was taken over from others, also where a breaker was in that state already.
    pub adopted_total: u64,
    /// What could not be told or taken over: more than 10,000 keys, what is no word of ours, a
    /// layer with another name.
    pub dropped_total: u64,
    /// Exchanges that failed.
    pub failed_total: u64,
}
