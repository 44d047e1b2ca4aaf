use std::{
    fmt,
    future::{Future, poll_fn},
    pin::{Pin, pin},
    sync::{Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
};

/// A boxed future, as tool services and clients of this crate return it.
///
/// Boxed, because the futures in it have no names.
#[must_use = "futures do nothing unless polled"]
pub struct Boxed<T>(Pin<Box<dyn Future<Output = T> + Send>>);

impl<T> Boxed<T> {
    pub(crate) fn new(fut: impl Future<Output = T> + Send + 'static) -> Self {
        Self(Box::pin(fut))
    }
}

impl<T> fmt::Debug for Boxed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Boxed").finish_non_exhaustive()
    }
}

impl<T> Future for Boxed<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        self.0.as_mut().poll(cx)
    }
}

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
