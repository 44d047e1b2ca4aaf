//! The primitives of the cell: std's, or loom's while its model is checked.

#[cfg(toolcall_loom)]
use loom::sync;
#[cfg(not(toolcall_loom))]
use std::sync;

pub(super) use std::sync::atomic::Ordering::{Acquire, Release};
pub(super) use sync::{Mutex, MutexGuard, atomic::AtomicU64};

/// No code that may panic runs under the mutex.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}
