use std::{sync::atomic::Ordering::Relaxed, time::Duration};

use tokio::time::Instant;

use super::{Claim, ToolCall};

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
    /// It replaces an earlier deadline. Layers use [`tighten`](Self::tighten), which cannot extend.
    pub fn with_deadline(mut self, at: Instant) -> Self {
        self.set_deadline(at);
        self
    }

    /// The moment by which the call must have ended.
    #[inline]
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Moves the deadline to `at` unless it is earlier already: an outer deadline always wins.
    ///
    /// For deadlines that are set in this process. For those of a peer:
    /// [`tighten_from_wire`](Self::tighten_from_wire).
    #[inline]
    pub fn tighten(&mut self, at: Instant) {
        if self.deadline.is_none_or(|outer| at < outer) {
            self.set_deadline(at);
        }
    }

    /// Tightens the deadline to `at`, which came over a connection.
    ///
    /// A call that this deadline ends, by `trust`:
    ///
    /// - [`Untrusted`](Trust::Untrusted): does not count in circuit breakers and health registries
    ///   if the deadline was shorter than the tool's own timeout; a breaker does not choose such a
    ///   call as its probe
    /// - [`Trusted`](Trust::Trusted): has timed out, and circuit breakers count it
    ///
    /// The earliest of several deadlines decides. The
    /// [reserve](crate::deadline::DeadlineLayer::with_reserve) of inner layers is at most a tenth
    /// of the time that is left now, because a peer may wait for less than the reserve. The same
    /// limit holds for an earlier deadline that this process sets later.
    pub fn tighten_from_wire(&mut self, at: Instant, trust: Trust) {
        if self.deadline.is_none_or(|outer| at < outer) {
            let left = at.saturating_duration_since(Instant::now());
            self.data_mut().max_reserve = left / 10;
            self.set_deadline(at);
            self.deadline_trust = trust;
        }
    }

    /// Returns whether the [deadline](Self::deadline) was set by a caller who is not trusted: see
    /// [`tighten_from_wire`](Self::tighten_from_wire).
    #[inline]
    pub fn is_deadline_untrusted(&self) -> bool {
        self.deadline_trust == Trust::Untrusted
    }

    #[inline]
    fn set_deadline(&mut self, at: Instant) {
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

    /// Notes that a layer ends the call after this time. Of several the shortest holds. Circuit
    /// breakers below judge by it whether a call that is dropped has timed out.
    #[inline]
    pub fn limit(&mut self, timeout: Duration) {
        const MAX_SECS: u64 = u32::MAX as u64 / 1000 - 1;
        let secs = timeout.as_secs().min(MAX_SECS) as u32;
        let ms = (secs * 1000 + timeout.subsec_millis()).max(1);
        // None is 0, which is not less.
        self.limit_ms = self.limit_ms.wrapping_sub(1).min(ms - 1) + 1;
        self.share_limit();
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

    /// Notes that a reserve has been kept from the deadline, so that the next
    /// [`DeadlineLayer`](crate::deadline::DeadlineLayer) keeps none. For executors that set the
    /// deadlines of calls themselves.
    pub fn set_reserved(&mut self) {
        self.is_reserved = true;
    }

    /// Returns whether the reserve is kept already. At most once per deadline: this call clears the
    /// flag.
    #[inline]
    pub(crate) fn take_reserved(&mut self) -> bool {
        std::mem::take(&mut self.is_reserved)
    }
}
