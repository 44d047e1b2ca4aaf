use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use serde::Serialize;

/// How the exchange goes.
#[derive(Debug, Default)]
pub(super) struct Status(Mutex<SharedSnapshot>);

impl Status {
    pub(super) fn lock(&self) -> MutexGuard<'_, SharedSnapshot> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reports how the exchange with the other processes goes. Cheap to clone.
#[derive(Clone)]
pub struct SharedHandle(pub(super) Arc<Status>);

impl SharedHandle {
    /// Returns the counters at this moment.
    pub fn snapshot(&self) -> SharedSnapshot {
        self.0.lock().clone()
    }
}

impl fmt::Debug for SharedHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.snapshot().fmt(f)
    }
}

/// How the exchange with the other processes goes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct SharedSnapshot {
    /// The last exchange with the store succeeded; `None` before the first one.
    pub is_up: Option<bool>,
    /// The number of processes, including this one, at the last exchange, at most 1,000; 0 before
    /// the first one.
    pub processes: usize,
    /// Changes of breakers and rate limits of this process that the store has.
    pub told_total: u64,
    /// Changes taken over from other processes, even if a breaker was in that state already.
    pub adopted_total: u64,
    /// Changes that were not shared or taken over: those of more than 10,000 keys, those of layers
    /// with another name, those that are not in our format, those for which the store has no room.
    pub dropped_total: u64,
    /// Exchanges that failed.
    pub failed_total: u64,
}
