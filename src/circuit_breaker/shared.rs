//! What a mirror between processes asks of breakers, beyond what everybody may.

use std::time::Duration;

use super::{breaker::Breaker, circuit::Circuit, handle::CircuitBreakerHandle};
use crate::{
    event::transition::{BreakerState, TransitionReason},
    key::Key,
};

impl CircuitBreakerHandle {
    /// The breaker of a key by its hash, if there is one.
    pub(crate) fn find_hash(&self, hash: u64) -> Option<Breaker> {
        self.circuits.find(hash).map(Breaker)
    }

    /// The breaker of a key by its hash and its texts, made if there is none yet.
    pub(crate) fn of_parts(
        &self,
        hash: u64,
        parts: (Option<&str>, Option<&str>),
    ) -> Option<Breaker> {
        let make = || Circuit::new(&self.shared);
        let breaker = Breaker(self.circuits.of_parts(hash, parts, make));
        (!breaker.circuit().is_overflow).then_some(breaker)
    }

    /// What its breakers are kept by.
    pub(crate) fn key(&self) -> &Key {
        self.circuits.key()
    }

    /// How long a probe is waited for at most.
    pub(crate) fn probe_time(&self) -> Duration {
        let rules = &self.shared.rules;
        rules.lease.min(rules.open_for)
    }
}

impl Breaker {
    /// What is left of its open period, without what other processes have added. `None`: it is not
    /// open by its own results.
    pub(crate) fn own_remaining(&self) -> Option<Duration> {
        let Circuit { cell, shared, .. } = self.circuit();
        cell.own_remaining(shared.now())
    }

    /// Forces a state that another process tells of.
    pub(crate) fn adopt_forced(&self, state: BreakerState) {
        self.take_over(|Circuit { cell, shared, .. }| {
            cell.force(state, TransitionReason::Shared, shared.now(), &shared.rules)
        });
    }
}
