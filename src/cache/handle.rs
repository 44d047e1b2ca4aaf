use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use super::service::Key;
use crate::kit::{flights::Flights, inert::Inert, reuse::AnyAnswer};

/// What became of the calls of tools whose answers are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheCounts {
    /// Calls that found an answer.
    pub hits: u64,
    /// Calls that waited for another one, and have its answer or its error.
    pub shared: u64,
    /// Calls that were sent.
    pub misses: u64,
}

pub(super) struct Counts {
    pub(super) hits: AtomicU64,
    pub(super) shared: AtomicU64,
    pub(super) misses: AtomicU64,
    pub(super) inert: Inert,
}

impl Default for Counts {
    fn default() -> Self {
        Self {
            hits: AtomicU64::new(0),
            shared: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            inert: Inert::new("cache"),
        }
    }
}

/// A handle on the answers of a [`CacheLayer`](super::CacheLayer). Clones are the same.
#[derive(Clone)]
pub struct CacheHandle {
    flights: Arc<Flights<Key, AnyAnswer>>,
    counts: Arc<Counts>,
}

impl CacheHandle {
    pub(super) fn new(flights: Arc<Flights<Key, AnyAnswer>>, counts: Arc<Counts>) -> Self {
        Self { flights, counts }
    }

    /// What became of the calls so far.
    pub fn counts(&self) -> CacheCounts {
        CacheCounts {
            hits: self.counts.hits.load(Relaxed),
            shared: self.counts.shared.load(Relaxed),
            misses: self.counts.misses.load(Relaxed),
        }
    }

    /// Returns how many calls of tools whose answers are kept had no principal or were marked
    /// unsafe, so that theirs are not. The first one for each reason is the event `tool.inert`.
    pub fn inert(&self) -> u64 {
        self.counts.inert.calls()
    }

    /// How many answers are kept, with those that are being asked for, and those that are stale,
    /// until others come.
    pub fn len(&self) -> usize {
        self.flights.len()
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Forgets all answers. Those that are being asked for are not kept: calls that come from now
    /// on do not get them.
    pub fn clear(&self) {
        self.flights.forget_keys(|_| true);
    }

    /// Forgets the answers of one tool, for example after a call that has changed what it reads.
    /// The name is the flat one (`docs__search`) for calls that have a server, else the tool's own.
    /// A call that is under way is answered, and its answer is not kept.
    pub fn forget(&self, tool: &str) {
        self.flights.forget_keys(|key| key.is_of(tool));
    }
}

crate::text::debug_fields! { {} |this| CacheHandle { counts: this.counts(), len: this.len(), .. } }
