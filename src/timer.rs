//! A timer that costs nothing until a call has to wait.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use pin_project_lite::pin_project;
use tokio::{
    task::coop::unconstrained,
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
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        at: Option<Instant>,
    ) -> Poll<()> {
        let Some(at) = at else {
            return Poll::Pending;
        };
        let mut slot = self.project().sleep;
        match slot.as_mut().as_pin_mut() {
            None => slot.set(Some(sleep_until(at))),
            Some(sleep) if sleep.deadline() != at => sleep.reset(at),
            Some(_) => {}
        }
        let Some(sleep) = slot.as_pin_mut() else {
            return Poll::Pending;
        };
        // Unconstrained: a busy inner future uses up the task's budget, and a constrained timer would
        // then never fire.
        Pin::new(&mut unconstrained(sleep)).poll(cx)
    }
}

impl fmt::Debug for Timer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = self.sleep.as_ref().map(Sleep::deadline);
        f.debug_struct("Timer").field("at", &at).finish()
    }
}
