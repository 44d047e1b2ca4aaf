//! A timer that costs nothing until a call has to wait, and little then.
//!
//! Most calls have their answer long before their time is up. So they do not each have a timer of the runtime, which is
//! made under a lock of all its threads and taken out again under the same: the calls that began to wait on one thread
//! share one, an [alarm](alarm::Alarm). It is set for the earliest of them, and left alone when that call is over: what
//! it then wakes is nobody, and it is set for the next.
//!
//! A test with a paused clock can see that: the clock advances to a timer that is set when nothing is left to do, also
//! if something is awaited from another thread, and also if the call for which it was set is over.

mod alarm;
mod queue;

use std::{
    fmt,
    task::{Context, Poll, Waker},
};

use tokio::time::Instant;

use self::{alarm::Place, queue::Seen};

/// Ready once a moment has come. It costs nothing until it is polled, which is after the first `Pending` of what it bounds.
#[derive(Default)]
pub(crate) struct Timer(Option<Place>);

impl Timer {
    /// Ready once `at` has come; never if there is none. It is not asked again while the timer waits for it.
    ///
    /// This does not count towards the task's budget: a busy inner future uses that up, and the timer would never fire.
    #[inline]
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        at: impl FnOnce() -> Option<Instant>,
    ) -> Poll<()> {
        if let Some(place) = &self.0 {
            match place.look(cx.waker()) {
                Seen::Waiting => return Poll::Pending,
                Seen::Rung => return Poll::Ready(()),
                // The runtime is gone, but not the call: whoever polls it has another.
                Seen::Adrift => {}
            }
        }
        match at() {
            Some(at) => self.wait(at, cx.waker()),
            None => Poll::Pending,
        }
    }

    /// The moment is another one. It wakes nobody until it is polled again, on whichever runtime that is.
    #[cold]
    pub(crate) fn reset(&mut self) {
        self.0 = None;
    }

    #[inline(never)]
    fn wait(&mut self, at: Instant, waker: &Waker) -> Poll<()> {
        let (place, is_first) = Place::take(at, waker.clone());
        let place = self.0.insert(place);
        if !is_first {
            return Poll::Pending;
        }
        match place.wind(waker) {
            Seen::Waiting => Poll::Pending,
            Seen::Rung => Poll::Ready(()),
            // As tokio's own.
            Seen::Adrift => panic!("the tokio runtime of this call is being shut down"),
        }
    }
}

impl fmt::Debug for Timer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let waits = self.0.is_some();
        f.debug_struct("Timer").field("waits", &waits).finish()
    }
}

#[cfg(test)]
mod tests;
