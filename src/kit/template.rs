//! A service that further attempts at a call are made on.

use std::sync::{Mutex, PoisonError};

/// A call keeps one count on it, whatever the depth of the stack below. A mutex, because `S` need not be
/// `Sync`; it is taken by a call that is sent again, and only then.
#[derive(Debug)]
pub(crate) struct Template<S>(Mutex<S>);

impl<S: Clone> Template<S> {
    pub(crate) fn new(svc: S) -> Self {
        Self(Mutex::new(svc))
    }

    /// An instance of its own, not ready yet.
    pub(crate) fn fresh(&self) -> S {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}
