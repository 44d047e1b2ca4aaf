//! Cancels a job after its call was dropped.

use std::time::Duration;

use tokio::{
    runtime::Handle,
    sync::Semaphore,
    time::{Instant, timeout},
};
use tower::ServiceExt as _;
use tower_service::Service;

use crate::call::ToolCall;

/// How long a job's cancellation may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// The most cancellations that run at the same time, in this process; others are not sent.
const AT_ONCE: usize = 100;

static PLACES: Semaphore = Semaphore::const_new(AT_ONCE);

/// An action for the drop of a call; returns whether it was possible.
#[derive(Default)]
pub(super) struct Abandoned(Option<Box<dyn FnOnce() -> bool + Send + Sync>>);

impl Abandoned {
    /// Sends this call to a service that `fresh` gives, in its own task, because no caller is left
    /// to poll it. `leave` is called first, if there is such a task.
    pub(super) fn then<S>(
        call: ToolCall,
        leave: impl FnOnce() + Send + Sync + 'static,
        fresh: impl FnOnce() -> S + Send + Sync + 'static,
    ) -> Self
    where
        S: Service<ToolCall> + Send + 'static,
        S::Future: Send,
    {
        Self(Some(Box::new(move || {
            let (Ok(runtime), Ok(place)) = (Handle::try_current(), PLACES.try_acquire()) else {
                return false;
            };
            leave();
            let until = Instant::now().checked_add(PATIENCE);
            let call = call.left_behind(until);
            runtime.spawn(async move {
                // A clone of the user's: a panic of it ends this task alone.
                let sent = fresh().oneshot(call);
                let _ = timeout(PATIENCE, sent).await;
                drop(place);
            });
            true
        })))
    }

    /// Does it now; whether there was something to do, and it could be done.
    pub(super) fn act(&mut self) -> bool {
        self.0.take().is_some_and(|act| act())
    }

    /// There is nothing to do any more.
    pub(super) fn forget(&mut self) {
        self.0 = None;
    }
}

impl Drop for Abandoned {
    fn drop(&mut self) {
        self.act();
    }
}
