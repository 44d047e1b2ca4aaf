//! A timer that costs nothing until a call has to wait.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use pin_project_lite::pin_project;
use tokio::{
    task::coop::{Unconstrained, unconstrained},
    time::{Instant, Sleep, sleep_until},
};

pin_project! {
    /// Made at the first `Pending` of what it bounds, and polled after it. Unconstrained: a busy
    /// inner future uses up the task's budget, and a constrained timer would then never fire.
    #[derive(Default)]
    pub(crate) struct Timer {
        #[pin]
        sleep: Option<Unconstrained<Sleep>>,
        at: Option<Instant>,
    }
}

impl fmt::Debug for Timer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Timer").field("at", &self.at).finish()
    }
}

impl Timer {
    /// Ready once `at` has come; never if there is none. A later call may move it.
    pub(crate) fn poll_at(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        at: Option<Instant>,
    ) -> Poll<()> {
        let Some(at) = at else {
            return Poll::Pending;
        };
        let mut this = self.project();
        if *this.at != Some(at) {
            *this.at = Some(at);
            this.sleep.set(Some(unconstrained(sleep_until(at))));
        }
        match this.sleep.as_pin_mut() {
            Some(sleep) => sleep.poll(cx),
            None => Poll::Pending,
        }
    }
}
