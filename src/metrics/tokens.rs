//! Tokens that calls needed.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use super::{collect::Totals, latency::Range};
use crate::{error::ErrorKind, event::TokenOutcome};

/// The counters of all tokens together.
pub(super) struct Tokens {
    range: Range,
    totals: Mutex<TokenTotals>,
}

impl Tokens {
    pub(super) fn new(range: Range) -> Self {
        let totals = TokenTotals {
            outcomes: Default::default(),
            exchanges: Totals::new(&range),
        };
        Self {
            range,
            totals: Mutex::new(totals),
        }
    }

    pub(super) fn add(
        &self,
        outcome: TokenOutcome,
        exchange: Option<Duration>,
        failure: Option<ErrorKind>,
    ) {
        let totals = &mut *self.totals.lock().unwrap_or_else(PoisonError::into_inner);
        totals.outcomes[outcome as usize] += 1;
        let Totals {
            counts, latency, ..
        } = &mut totals.exchanges;
        if let Some(took) = exchange {
            counts.took(took, &self.range, latency);
        }
        if let Some(kind) = failure {
            totals.exchanges.code(kind.code(), 1);
        }
    }

    /// `None` if no call ever needed one.
    pub(super) fn collect(&self) -> Option<TokenTotals> {
        let totals = self.totals.lock().unwrap_or_else(PoisonError::into_inner);
        totals
            .outcomes
            .iter()
            .any(|n| *n > 0)
            .then(|| totals.clone())
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
