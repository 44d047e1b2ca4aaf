//! A timer that costs nothing until a call has to wait.

use std::{
    fmt,
    future::Future,
    pin::{Pin, pin},
    task::{Context, Poll},
};

use pin_project_lite::pin_project;
use tokio::{
    task::coop,
    time::{Instant, Sleep, sleep_until},
};

pin_project! {
    /// Made at the first `Pending` of what it bounds, and polled after it.
    #[derive(Default)]
    pub(crate) struct Timer {
        #[pin]
        sleep: Option<Sleep>,
    }
}

impl Timer {
    /// Ready once `at` has come; never if there is none. A later call may move it.
    #[inline]
    pub(crate) fn poll_at(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        at: Option<Instant>,
    ) -> Poll<()> {
        if self.at() != at {
            self.as_mut().set(at);
        }
        self.poll(cx)
    }

    /// The moment for which it is made, if there is one.
    #[inline]
    pub(crate) fn at(&self) -> Option<Instant> {
        self.sleep.as_ref().map(Sleep::deadline)
    }

    #[inline]
    pub(crate) fn set(self: Pin<&mut Self>, at: Option<Instant>) {
        let mut sleep = self.project().sleep;
        match at {
            Some(at) => sleep.set(Some(sleep_until(at))),
            None => sleep.set(None),
        }
    }

    #[inline]
    pub(crate) fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Some(sleep) = self.project().sleep.as_pin_mut() else {
            return Poll::Pending;
        };
        // A busy inner future uses up the task's budget: then the timer does without, or it would never fire.
        match coop::has_budget_remaining() {
            true => sleep.poll(cx),
            false => pin!(coop::unconstrained(sleep)).poll(cx),
        }
    }
}

impl fmt::Debug for Timer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Timer").field("at", &self.at()).finish()
    }
}
