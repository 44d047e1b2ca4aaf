//! A timer that costs nothing until a call has to wait, and little then.
//!
//! Most calls have their answer long before their time is up. So they do not each have a timer of
//! the runtime, which would be added and removed under a lock shared by all threads: the calls that
//! began to wait on one thread share one, an [alarm](alarm::Alarm). It is set for the earliest of
//! them, and stays set when that call is over: it then wakes no task and is set for the next.
//!
//! This is visible in tests with a paused clock: when nothing is left to do, the clock advances to
//! a timer that is set, even if the test awaits something from another thread, and even if the call
//! for which it was set is over.

mod alarm;
mod queue;

use std::task::{Context, Poll, Waker};

use tokio::time::Instant;

use self::{alarm::Place, queue::Seen};
use super::cold::Cold;

/// Ready once a moment has come. It costs nothing until it is polled, which is after the first
/// `Pending` of what it bounds.
#[derive(Default)]
pub(crate) struct Timer(Cold<Place>);

impl Timer {
    /// Ready once the moment `at` has come; never if it is `None`. `at` is not called again while
    /// the timer waits for it.
    ///
    /// This does not count towards the task's budget: a busy inner future uses that up, and the
    /// timer would never fire.
    #[inline]
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        at: impl FnOnce() -> Option<Instant>,
    ) -> Poll<()> {
        if let Some(place) = &*self.0.0 {
            match place.look(cx.waker()) {
                Seen::Waiting => return Poll::Pending,
                Seen::Rung => return Poll::Ready(()),
                // The runtime of the timer is gone; the call is now polled on another one.
                Seen::Adrift => {}
            }
        }
        match at() {
            Some(at) => self.wait(at, cx.waker()),
            None => Poll::Pending,
        }
    }

    /// Forgets the moment. It wakes no task until it is polled again, on whichever runtime that is.
    #[cold]
    pub(crate) fn reset(&mut self) {
        self.0 = Cold::default();
    }

    #[inline(never)]
    fn wait(&mut self, at: Instant, waker: &Waker) -> Poll<()> {
        let (place, is_first) = Place::take(at, waker.clone());
        let place = self.0.0.insert(place);
        if !is_first {
            return Poll::Pending;
        }
        match place.wind(waker) {
            Seen::Waiting => Poll::Pending,
            Seen::Rung => Poll::Ready(()),
            // As tokio's own timers do.
            Seen::Adrift => panic!("the tokio runtime of this call is being shut down"),
        }
    }
}

crate::text::debug_fields! { {} |this| Timer { waits: this.0.0.is_some() } }

#[cfg(test)]
mod tests;
