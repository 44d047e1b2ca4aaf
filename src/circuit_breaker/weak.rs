//! The circuits of principals: what the weak failures of one principal at one key lead to.
//!
//! They are kept by key and principal, beside the breakers. For an hour after a weak failure at a
//! key, its calls ask for the circuit of their principal as well. While they do not ask, a circuit
//! misses successes. A breaker therefore begins an epoch when its calls begin to ask, which is also
//! the first weak failure after a reset. Circuits of an earlier epoch begin anew.

use std::{collections::HashMap, sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::{
    cell::{Cell, Kept},
    circuit::{Circuit, Shared},
    rules::Rules,
    snapshot::Refused,
};
use crate::{
    call::CallInfo,
    event::transition::BreakerState,
    kit::registry::{Entry, Evict, Eviction},
};

/// The use of a weak failure: its kind was only [inferred](crate::Evidence::Inferred), or it could
/// not be classified. See [`Outcome::is_weak`](crate::Outcome::is_weak).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum WeakFailures {
    /// Counts for all callers, as any other failure.
    Shared,
    /// Counts for the principal of the call; for all callers if the call has none. The default.
    #[default]
    PerPrincipal,
    /// Does not count.
    Ignored,
}

/// A principal for whom a breaker refuses calls. See
/// [`Breaker::principals`](super::Breaker::principals).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PrincipalRefused {
    /// The kind of its id and the id, redacted and cut; of a token only a hash.
    pub principal: String,
    /// How long a call of it should wait.
    pub retry_after: Duration,
}

/// Refused principals, by the hash of the breaker's key and the epoch of their circuits.
pub(super) type Refusals = HashMap<(u64, u64), Vec<PrincipalRefused>>;

/// The circuit of one principal at one key.
pub(super) struct Principal {
    cell: Cell,
    /// The hash of the breaker's key.
    key: u64,
    name: Box<str>,
    origin: Instant,
}

impl Principal {
    /// Makes the entry of all principals without a place, which is not used.
    pub(super) fn new(rules: &Arc<Rules>, origin: Instant) -> Self {
        Self {
            cell: Cell::new(BreakerState::Closed, rules),
            key: 0,
            name: Box::default(),
            origin,
        }
    }
}

impl Evict for Principal {
    fn eviction(&self) -> Eviction {
        let eviction = self.cell.peek(self.origin.elapsed(), Kept::eviction);
        eviction.unwrap_or(Eviction::Free)
    }
}

/// The circuit of a call's principal.
pub(super) struct Own<'a>(Arc<Entry<Principal>>, &'a Shared);

impl Own<'_> {
    pub(super) fn with<T>(&self, work: impl FnOnce(&mut Kept) -> T) -> T {
        let Self(entry, shared) = self;
        let cell = &entry.value().cell;
        cell.with(shared.rules(), shared.now(), work)
    }

    /// Returns why it would refuse the call.
    pub(super) fn refuses(&self, may_probe: impl Fn() -> bool) -> Option<Refused> {
        let refused = self.with(|kept| kept.machine.refuses(may_probe));
        refused.map(Refused::by_principal)
    }
}

impl Circuit {
    /// Returns the circuit of a call's principal, if it has one and calls ask for it.
    pub(super) fn own(&self, call: Option<&CallInfo>) -> Option<Own<'_>> {
        let epoch = self.cell.asks(|| self.shared.now())?;
        let own = Own(self.shared.principals.peek(call?)?, &self.shared);
        let of = own
            .0
            .value()
            .cell
            .peek(self.shared.now(), |kept| kept.epoch);
        (of == Some(epoch)).then_some(own)
    }

    /// Returns the circuit of a call's principal, made if there is none of this epoch. `None` if no
    /// place is left.
    pub(super) fn make_own(&self, call: &CallInfo, key: u64, epoch: u64) -> Option<Own<'_>> {
        let shared = &*self.shared;
        let make = || Principal {
            key,
            name: call
                .whose()
                .map_or_else(Box::default, |whose| whose.to_string().into()),
            ..Principal::new(shared.rules(), shared.origin)
        };
        let entry = shared.principals.entry(call, make);
        let own = (!entry.is_overflow()).then(|| Own(entry, shared))?;
        own.with(|kept| kept.begin(epoch, shared.rules()));
        Some(own)
    }
}

impl Shared {
    /// Returns the principals that are refused where calls ask for them.
    pub(super) fn refused(&self) -> Refusals {
        let mut all = Refusals::new();
        for entry in self.principals.entries() {
            let Principal {
                cell, key, name, ..
            } = entry.value();
            let look = |kept: &mut Kept| Some((kept.epoch, kept.machine.look().err()?));
            if let Some((epoch, retry_after)) = cell.peek(self.now(), look).flatten() {
                let principal = name.clone().into();
                all.entry((*key, epoch))
                    .or_default()
                    .push(PrincipalRefused {
                        principal,
                        retry_after,
                    });
            }
        }
        all
    }
}
