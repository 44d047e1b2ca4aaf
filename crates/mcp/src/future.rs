use std::{
    future::Future,
    pin::pin,
    sync::{Mutex, MutexGuard, PoisonError},
};

use futures_util::future::{Either, select};

/// Locks a mutex, also after a panic of a thread that held it: no foreign code runs while the data
/// is inconsistent.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs both until one ends: `Ok` if that is `call`, which is polled before `other`.
pub(crate) async fn first<A, B>(
    call: impl Future<Output = A>,
    other: impl Future<Output = B>,
) -> Result<A, B> {
    match select(pin!(call), pin!(other)).await {
        Either::Left((answer, _)) => Ok(answer),
        Either::Right((other, _)) => Err(other),
    }
}
