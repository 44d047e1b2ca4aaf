use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use super::{exchange::Kept, subject::TokenRequest};
use crate::{event::TokenOutcome, kit::flights::Flights};

/// The outcomes of the calls that needed a token.
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
pub(super) struct Counts([AtomicU64; TokenOutcome::ALL.len()]);

impl Counts {
    pub(super) fn add(&self, outcome: TokenOutcome) {
        self.0[outcome as usize].fetch_add(1, Relaxed);
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

    /// Returns the outcomes of the calls so far.
    pub fn counts(&self) -> TokenCounts {
        let read = |outcome: TokenOutcome| self.counts.0[outcome as usize].load(Relaxed);
        TokenCounts {
            hits: read(TokenOutcome::Hit),
            exchanged: read(TokenOutcome::Exchanged),
            shared: read(TokenOutcome::Shared),
            failed: read(TokenOutcome::Failed),
        }
    }

    /// How many tokens are kept, with those that are being asked for, and those that have ended,
    /// until others come.
    pub fn len(&self) -> usize {
        self.flights.len()
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Forgets all tokens, those that are being asked for apart.
    pub fn clear(&self) {
        self.flights.clear();
    }
}

crate::text::debug_fields! { {} |this| TokenHandle { counts: this.counts(), len: this.len(), .. } }
