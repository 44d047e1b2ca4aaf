//! The cause that calls have in common which fail with one lost connection.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::time::Instant;

use super::ToolError;
use crate::call::nanos;

/// The outage of a connection: one cause, however many calls fail with it.
///
/// A tool service puts it on the errors of calls that were lost with a connection, or that found
/// none ([`ToolError::with_outage`]). A [circuit breaker](crate::circuit_breaker) counts them as
/// one failure. A service that connects again makes a new value for each connection:
///
/// ```
/// use std::time::Duration;
/// use tower_toolcall::{ErrorKind, ToolError, error::Outage};
///
/// let outage = Outage::new();
/// let lost = || ToolError::new(ErrorKind::ConnectionFailed, "closed").with_outage(&outage);
/// assert_eq!(lost().outage(), lost().outage());
/// outage.retry_after(Duration::from_millis(500)); // until the next attempt
/// outage.end(); // the connection is back
/// ```
///
/// It is part of no serialised form, so that a peer cannot set it. An error that is
/// [inferred](crate::Evidence::Inferred) loses it.
#[derive(Clone)]
pub struct Outage(Arc<State>);

struct State {
    since: Instant,
    /// Nanoseconds after `since`; or one of the constants.
    retry: AtomicU64,
}

const OVER: u64 = 0;
const UNKNOWN: u64 = u64::MAX;

impl Outage {
    /// Returns the outage of a connection that was lost, or may be.
    pub fn new() -> Self {
        let (since, retry) = (Instant::now(), AtomicU64::new(UNKNOWN));
        Self(Arc::new(State { since, retry }))
    }

    /// Sets after which time, from now on, a call makes the next attempt to connect. A breaker that
    /// is open for this outage lets one call pass then, whatever its own period is. Default: not
    /// known, and the breaker's period holds.
    pub fn retry_after(&self, delay: Duration) {
        let at = nanos(self.0.since.elapsed().saturating_add(delay));
        self.0.retry.store(at.clamp(OVER + 1, UNKNOWN - 1), Relaxed);
    }

    /// Says that there is a connection again.
    pub fn end(&self) {
        self.0.retry.store(OVER, Relaxed);
    }

    pub(crate) fn is_over(&self) -> bool {
        self.0.retry.load(Relaxed) == OVER
    }

    /// Returns a number that changes with each attempt to connect.
    pub(crate) fn attempt(&self) -> u64 {
        self.0.retry.load(Relaxed)
    }

    /// Returns in how long a call makes the next attempt; `None` if that is not known.
    pub(crate) fn remaining(&self) -> Option<Duration> {
        match self.0.retry.load(Relaxed) {
            UNKNOWN => None,
            OVER => Some(Duration::ZERO),
            retry => Some(Duration::from_nanos(retry).saturating_sub(self.0.since.elapsed())),
        }
    }
}

impl Default for Outage {
    fn default() -> Self {
        Self::new()
    }
}

/// Compares identities.
impl PartialEq for Outage {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Outage {}

crate::text::debug_fields! { {} |this| Outage { remaining: this.remaining(), .. } }

impl ToolError {
    /// Says that the call failed with this outage. Calls that fail with one outage are one failure
    /// to a breaker.
    #[must_use]
    pub fn with_outage(self, outage: &Outage) -> Self {
        self.edit_more(|m| m.outage = Some(outage.clone()))
    }

    /// Returns the outage that the call failed with, if its tool service names one.
    pub fn outage(&self) -> Option<&Outage> {
        self.more()?.outage.as_ref()
    }
}
