//! Tokens that calls needed.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use super::{
    collect::Totals,
    labels::Labels,
    latency::Range,
    row::{Row, Shared},
};
use crate::{error::ErrorKind, event::TokenOutcome, kit::lane::Spread};

/// The counters of all tokens together.
pub(super) struct Tokens {
    outcomes: [AtomicU64; TokenOutcome::ALL.len()],
    /// How long exchanges took, and the codes of failures.
    exchanges: Spread<Row>,
}

impl Tokens {
    pub(super) fn new(shared: &Arc<Shared>) -> Self {
        Self {
            outcomes: Default::default(),
            exchanges: Spread::new(Row::new(Labels::other(), shared, None)),
        }
    }

    pub(super) fn add(
        &self,
        outcome: TokenOutcome,
        exchange: Option<Duration>,
        failure: Option<ErrorKind>,
    ) {
        self.outcomes[outcome as usize].fetch_add(1, Relaxed);
        if exchange.is_some() || failure.is_some() {
            self.exchanges.note(exchange, failure.map(ErrorKind::code));
        }
    }

    /// `None` if no call ever needed one.
    pub(super) fn collect(&self, range: &Range) -> Option<TokenTotals> {
        let outcomes = self.outcomes.each_ref().map(|count| count.load(Relaxed));
        if outcomes == [0; TokenOutcome::ALL.len()] {
            return None;
        }
        let mut exchanges = Totals::new(range);
        exchanges.read(&self.exchanges);
        Some(TokenTotals {
            outcomes,
            exchanges,
        })
    }
}

/// Their values at one moment.
#[derive(Clone, Debug)]
pub(super) struct TokenTotals {
    outcomes: [u64; TokenOutcome::ALL.len()],
    pub(super) exchanges: Totals,
}

impl TokenTotals {
    pub(super) fn of(&self, outcome: TokenOutcome) -> u64 {
        self.outcomes[outcome as usize]
    }

    pub(super) fn subtract(&mut self, earlier: &Self) {
        for (count, earlier) in self.outcomes.iter_mut().zip(earlier.outcomes) {
            *count -= earlier;
        }
        self.exchanges.subtract(&earlier.exchanges);
    }
}
