use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex. A panic of the thread that held it leaves the value whole, because no foreign
/// code runs under our locks.
#[inline]
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
