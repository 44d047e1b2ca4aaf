//! What a mirror between processes asks of breakers, beyond what everybody may.

use super::{breaker::Breaker, circuit::Circuit, handle::CircuitBreakerHandle};
use crate::key::Key;

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
}
