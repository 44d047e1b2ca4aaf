use std::{sync::atomic::Ordering::Relaxed, time::Duration};

use tokio::time::Instant;

use super::{CallExt, Claim, ToolCall};

/// The trust in what a peer says over a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Trust {
    /// Any caller. What they say affects their own call alone.
    Untrusted,
    /// A peer under the same control: a proxy in front, another gateway of the same mesh.
    Trusted,
}

impl ToolCall {
    /// Sets the moment by which the call must have ended, retries and waits included.
    ///
    /// [`DeadlineLayer`](crate::deadline::DeadlineLayer) ends the call then, and
    /// [`TimeoutLayer`](crate::timeout::TimeoutLayer) shortens its timeout. Without these layers
    /// only the waits of a call end then, as for a permit, and nothing ends a call that runs.
    /// `at` is an instant of tokio's clock: [`tokio::time::Instant`].
    ///
    /// It replaces an earlier deadline. Layers use [`tighten`](super::CallExt::tighten), which
    /// cannot extend.
    pub fn with_deadline(mut self, at: Instant) -> Self {
        self.set_deadline(at);
        self
    }

    /// Returns the moment by which the call must have ended.
    #[inline]
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    #[inline]
    pub(super) fn set_deadline(&mut self, at: Instant) {
        self.deadline = Some(at);
        // It is another one.
        (self.deadline_trust, self.is_reserved) = (Trust::Trusted, false);
        self.withdraw(Claim::Drain);
    }

    /// Returns whether the call leaves its tool enough time to show that it works. False only if an
    /// untrusted caller's deadline is nearer than the shortest timeout: of the outer layers, and of
    /// the inner ones that earlier calls met (`below_ms`, 0 for none).
    pub(crate) fn may_probe(&self, below_ms: u32) -> bool {
        let leaves = |at: Instant| at.saturating_duration_since(Instant::now());
        let limits = [self.limit_ms, below_ms].into_iter().filter(|ms| *ms > 0);
        let limit_ms = limits.min().unwrap_or(0);
        let at = self.deadline.filter(|_| self.is_deadline_untrusted());
        at.is_none_or(|at| leaves(at) >= self.info().patience_within(limit_ms))
    }

    /// Returns the shortest timeout of the outer layers.
    pub(crate) fn outer_timeout(&self) -> Option<Duration> {
        (self.limit_ms > 0).then(|| Duration::from_millis(self.limit_ms.into()))
    }

    /// Lets those who judge the end of this call know the shortest timeout so far: see
    /// [`CallInfo::patience`].
    #[inline]
    pub(crate) fn share_limit(&self) {
        let shared = &self.data.ident.record.limit_ms;
        shared.store(self.limit_ms, Relaxed);
    }

    /// Moves the deadline earlier by `reserve`, but not before `now`.
    pub(crate) fn reserve(&mut self, reserve: Duration, now: Instant) {
        let Some(at) = self.deadline else { return };
        let reserve = reserve.min(self.data.max_reserve);
        self.deadline = Some(at.checked_sub(reserve).map_or(now, |at| at.max(now)));
        self.withdraw(Claim::Drain);
    }

    /// Returns whether the reserve is kept already. At most once per deadline: this call clears the
    /// flag.
    #[inline]
    pub(crate) fn take_reserved(&mut self) -> bool {
        std::mem::take(&mut self.is_reserved)
    }
}
