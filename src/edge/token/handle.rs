use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use super::{exchange::Kept, subject::TokenRequest};
use crate::{
    error::ToolError,
    kit::flights::{Flights, Source},
};

/// What became of the calls that needed a token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TokenCounts {
    /// Calls that found one.
    pub hits: u64,
    /// Calls that got one from the identity provider.
    pub exchanged: u64,
    /// Calls that waited for another one's.
    pub shared: u64,
    /// Calls that got none from the identity provider; not those that were given up before.
    pub failed: u64,
}

#[derive(Default)]
pub(super) struct Counts {
    hits: AtomicU64,
    exchanged: AtomicU64,
    shared: AtomicU64,
    failed: AtomicU64,
}

impl Counts {
    pub(super) fn add(&self, result: Result<Source, &ToolError>) {
        let count = match result {
            Ok(Source::Kept) => &self.hits,
            Ok(Source::Made) => &self.exchanged,
            Ok(Source::Shared) => &self.shared,
            Err(_) => &self.failed,
        };
        count.fetch_add(1, Relaxed);
    }
}

/// A handle on the tokens of a [`TokenLayer`](super::TokenLayer). Clones are the same.
#[derive(Clone)]
pub struct TokenHandle {
    flights: Arc<Flights<TokenRequest, Kept>>,
    counts: Arc<Counts>,
}

impl TokenHandle {
    pub(super) fn new(flights: Arc<Flights<TokenRequest, Kept>>, counts: Arc<Counts>) -> Self {
        Self { flights, counts }
    }

    /// What became of the calls so far.
    pub fn counts(&self) -> TokenCounts {
        let read = |count: &AtomicU64| count.load(Relaxed);
        TokenCounts {
            hits: read(&self.counts.hits),
            exchanged: read(&self.counts.exchanged),
            shared: read(&self.counts.shared),
            failed: read(&self.counts.failed),
        }
    }

    /// How many tokens are kept, with those that have ended or were asked for in vain, until others come.
    pub fn len(&self) -> usize {
        self.flights.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Forgets all tokens, those that are being asked for apart.
    pub fn clear(&self) {
        self.flights.clear();
    }
}

crate::text::debug_fields! { {} |this| TokenHandle { counts: this.counts(), len: this.len(), .. } }
