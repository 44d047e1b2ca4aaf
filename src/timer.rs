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
        match self.at() {
            None => self.as_mut().make(at),
            known if known != at => self.as_mut().move_to(at),
            Some(_) => {}
        }
        self.poll(cx)
    }

    /// The moment for which it is made, if there is one.
    #[inline]
    pub(crate) fn at(&self) -> Option<Instant> {
        self.sleep.as_ref().map(Sleep::deadline)
    }

    /// Makes it for a moment, or for none. It wakes nobody until it is polled.
    #[inline]
    pub(crate) fn make(self: Pin<&mut Self>, at: Option<Instant>) {
        self.project().sleep.set(at.map(sleep_until));
    }

    /// The same for one that was made: it stays with its runtime.
    pub(crate) fn move_to(self: Pin<&mut Self>, at: Option<Instant>) {
        let mut sleep = self.project().sleep;
        match (sleep.as_mut().as_pin_mut(), at) {
            (Some(sleep), Some(at)) => sleep.reset(at),
            (_, at) => sleep.set(at.map(sleep_until)),
        }
    }

    /// Ready once its moment has come; never if there is none.
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

#[cfg(test)]
mod tests {
    use std::{pin::pin, task::Waker, time::Duration};

    use tokio::{runtime::Builder, time::sleep};

    use super::*;

    /// As with a call that is polled by another thread than it began on.
    #[test]
    fn a_timer_that_is_moved_stays_with_its_runtime() {
        let runtime = Builder::new_current_thread().enable_time().build().unwrap();
        let mut timer = pin!(Timer::default());
        let cx = &mut Context::from_waker(Waker::noop());
        let now = Instant::now();
        let soon = now + Duration::from_millis(2);
        {
            let _entered = runtime.enter();
            assert!(
                timer
                    .as_mut()
                    .poll_at(cx, Some(now + Duration::from_secs(60)))
                    .is_pending()
            );
        }
        assert!(timer.as_mut().poll_at(cx, Some(soon)).is_pending());
        runtime.block_on(async { sleep(Duration::from_millis(4)).await });
        assert!(timer.as_mut().poll_at(cx, Some(soon)).is_ready());
    }
}
