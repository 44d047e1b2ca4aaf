//! A timer that costs nothing until a call has to wait, and little then.
//!
//! Most calls have their answer long before their time is up. So they do not each have a timer of the runtime, which is
//! made under a lock of all its threads and taken out again under the same: the calls that began to wait on one thread
//! share one, an [alarm](alarm::Alarm). It is set for the earliest of them, and left alone when that call is over: what it then wakes is
//! nobody, and it is set for the next.

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
pub(crate) struct Timer {
    at: Option<Instant>,
    place: Option<Place>,
}

impl Timer {
    /// Ready once `at` has come; never if there is none. A later call may move it.
    #[inline]
    pub(crate) fn poll_at(&mut self, cx: &mut Context<'_>, at: Option<Instant>) -> Poll<()> {
        if self.at != at {
            self.set(at);
        }
        self.poll(cx)
    }

    /// The moment for which it is set, if there is one.
    #[inline]
    pub(crate) fn at(&self) -> Option<Instant> {
        self.at
    }

    /// Sets it for a moment, or for none. It wakes nobody until it is polled again.
    #[inline]
    pub(crate) fn set(&mut self, at: Option<Instant>) {
        self.at = at;
        if let Some(place) = &self.place {
            place.rest();
        }
    }

    /// Ready once its moment has come; never if there is none.
    ///
    /// It does not count towards the task's budget: a busy inner future uses that up, and the timer would never fire.
    #[inline]
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(at) = self.at else {
            return Poll::Pending;
        };
        let Some(place) = &self.place else {
            return self.wait(at, cx.waker());
        };
        match place.look(cx.waker()) {
            Seen::Waiting => Poll::Pending,
            Seen::Rung => Poll::Ready(()),
            Seen::Resting => place.wait_again(at, cx.waker()),
            // The runtime is gone, but not the call: whoever polls it has another.
            Seen::Adrift => self.wait(at, cx.waker()),
        }
    }

    #[inline(never)]
    fn wait(&mut self, at: Instant, waker: &Waker) -> Poll<()> {
        let (place, is_first) = Place::take(at, waker.clone());
        let place = self.place.insert(place);
        match is_first {
            true => place.wind(waker),
            false => Poll::Pending,
        }
    }
}

impl fmt::Debug for Timer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Timer").field("at", &self.at).finish()
    }
}

#[cfg(test)]
mod tests;
