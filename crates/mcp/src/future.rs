use std::{
    future::{Future, poll_fn},
    pin::pin,
    sync::{Mutex, MutexGuard, PoisonError},
    task::Poll,
};

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
    let (mut call, mut other) = (pin!(call), pin!(other));
    poll_fn(|cx| match call.as_mut().poll(cx) {
        Poll::Ready(answer) => Poll::Ready(Ok(answer)),
        Poll::Pending => other.as_mut().poll(cx).map(Err),
    })
    .await
}
