use std::sync::atomic::{AtomicU16, Ordering::Relaxed};

use super::ToolCall;

/// A task that a layer does for a call, so that no layer below it does the same again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Claim {
    /// The claimant repeats this call. Retriers and rate-limit layers below do not.
    Retry,
    /// The claimant waits out rate limits for this call. Layers below do not.
    RateLimit,
    /// The claimant tells a health registry of this call and its server. Those below do not. A call
    /// that is given another server is not claimed any more.
    Health,
    /// The claimant ends the call at its deadline, and when its caller cancels, and waits for the
    /// tool to stop. Layers below do not drop the call for either. A deadline that is set below is
    /// not claimed.
    Drain,
    /// The claimant bounds how many calls wait, as a batch does. A concurrency limit below lets the
    /// call wait, also if its queue is full.
    Queue,
}

impl Claim {
    pub(super) const fn bit(self) -> u16 {
        match self {
            Self::Retry => 1,
            Self::RateLimit => 2,
            Self::Health => 4,
            Self::Drain => 4096,
            Self::Queue => 8192,
        }
    }
}

/// All attempts share the recording, which was begun by the layer that repeats the call.
pub(super) const KEYED: u16 = 8;
/// An earlier attempt may have run.
pub(super) const AMBIGUOUS: u16 = 16;
/// The deadline leaves its owner time to finish: the next layer need not keep a reserve.
pub(super) const RESERVED: u16 = 32;
/// The call has reached its server.
pub(super) const DELIVERED: u16 = 64;
/// The deadline was set by a caller who is not trusted.
pub(super) const UNTRUSTED: u16 = 128;
/// The names are an identity.
pub(super) const RESOLVED: u16 = 256;
/// A table knew the replay safety.
pub(super) const LISTED_REPLAY: u16 = 512;
/// A table knew the timeout.
pub(super) const LISTED_TIMEOUT: u16 = 1024;

/// The job that the call carries was started by an earlier attempt at it.
pub(super) const OWN_JOB: u16 = 2048;

/// What also holds for a [follow-up](ToolCall::follow_up): of the deadline and of the names.
pub(super) const KEPT_BY_FOLLOW_UPS: u16 = DELIVERED | RESERVED | UNTRUSTED | RESOLVED;

/// The flags of a call, a bit each: its claims, and the constants of this module.
#[derive(Debug, Default)]
pub(super) struct Marks(AtomicU16);

impl Marks {
    #[inline]
    pub(super) fn has(&self, mark: u16) -> bool {
        self.0.load(Relaxed) & mark != 0
    }

    /// Adds a mark, and tells whether it was there.
    #[inline]
    pub(super) fn add(&self, mark: u16) -> bool {
        // A load and a store: no other thread has this call.
        let before = self.0.load(Relaxed);
        self.0.store(before | mark, Relaxed);
        before & mark != 0
    }

    #[inline]
    pub(super) fn set(&mut self, mark: u16) {
        *self.0.get_mut() |= mark;
    }

    #[inline]
    pub(super) fn clear(&mut self, marks: u16) {
        *self.0.get_mut() &= !marks;
    }

    pub(super) fn retain(&mut self, marks: u16) {
        *self.0.get_mut() &= marks;
    }
}

impl Clone for Marks {
    #[inline]
    fn clone(&self) -> Self {
        Self(AtomicU16::new(self.0.load(Relaxed)))
    }
}

impl ToolCall {
    /// Claims the call, and tells whether it had been claimed before.
    ///
    /// Takes `&self`, because tower's `Policy::clone_request` sees the first attempt only so. A
    /// clone carries the claims made before it.
    #[inline]
    pub fn claim(&self, claim: Claim) -> bool {
        self.marks.add(claim.bit())
    }

    /// Returns whether a layer above has made this claim.
    #[inline]
    pub fn is_claimed(&self, claim: Claim) -> bool {
        self.marks.has(claim.bit())
    }

    /// A copy without this claim: for retriers such as tower's, which keep a copy of each attempt
    /// and claim it when they send it.
    #[must_use]
    pub fn unclaimed(&self, claim: Claim) -> Self {
        let mut copy = self.clone();
        copy.marks.clear(claim.bit());
        copy
    }

    /// Notes that an attempt may have run, so that layers above do not take the refusal of a later
    /// one for proof that the tool did not.
    pub fn set_ambiguous(&self) {
        self.marks.0.fetch_or(AMBIGUOUS, Relaxed);
    }

    /// Returns whether an earlier attempt may have run.
    pub fn is_ambiguous(&self) -> bool {
        self.marks.has(AMBIGUOUS)
    }
}
