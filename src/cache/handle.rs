use std::sync::{Arc, atomic::Ordering::Relaxed};

use super::layer::Rules;

/// Counts of the calls of cached tools.
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

/// A handle on the answers of a [`CacheLayer`](super::CacheLayer). Clones are the same.
#[derive(Clone)]
pub struct CacheHandle(pub(super) Arc<Rules>);

impl CacheHandle {
    /// Returns the counts so far.
    pub fn counts(&self) -> CacheCounts {
        CacheCounts {
            hits: self.0.hits.load(Relaxed),
            shared: self.0.shared.load(Relaxed),
            misses: self.0.misses.load(Relaxed),
        }
    }

    /// Returns how many calls of cached tools were not cached, because they had no principal or
    /// were marked unsafe. The first one for each reason is the event `tool.inert`.
    pub fn inert(&self) -> u64 {
        self.0.inert.calls()
    }

    /// Returns how many answers are kept, with those that are being asked for, and those that are
    /// stale, until others come.
    pub fn len(&self) -> usize {
        self.0.flights.len()
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Forgets all answers. Those that are being asked for are not kept: calls that come from now
    /// on do not get them.
    pub fn clear(&self) {
        self.0.flights.forget_keys(|_| true);
    }

    /// Forgets the answers of one tool, for example after a call that has changed what it reads.
    /// The name is the flat one (`docs__search`) for calls that have a server, else the tool's own.
    /// A call that is under way is answered, and its answer is not kept.
    pub fn forget(&self, tool: &str) {
        self.0.flights.forget_keys(|key| key.is_of(tool));
    }
}

crate::text::debug_fields! { {} |this| CacheHandle { counts: this.counts(), len: this.len(), .. } }
