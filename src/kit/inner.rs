//! An inner future that is dropped with its answer.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

/// Polls `fut`, and drops it in the moment in which it is ready: its permits and connections are free then, not when
/// somebody drops the future around it.
#[inline]
pub(crate) fn poll<F: Future>(
    mut fut: Pin<&mut Option<F>>,
    cx: &mut Context<'_>,
) -> Poll<F::Output> {
    let running = fut.as_mut().as_pin_mut();
    let output = ready!(running.expect("polled after completion").poll(cx));
    fut.set(None);
    Poll::Ready(output)
}
