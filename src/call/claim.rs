use std::sync::atomic::Ordering::Relaxed;

use super::ToolCall;

/// A task that a layer does for a call, so that no inner layer repeats it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Claim {
    /// The claimant retries this call. Inner retriers and rate-limit layers do not.
    Retry,
    /// The claimant waits out rate limits for this call. Inner layers do not.
    RateLimit,
    /// The claimant reports this call and its server to a health registry. Inner layers do not. The
    /// claim ends when the call is given another server.
    Health,
    /// The claimant ends the call at its deadline, and when its caller cancels, and waits for the
    /// tool to stop. Inner layers do not drop the call for either. A deadline that an inner layer
    /// sets is not claimed.
    Drain,
    /// The claimant bounds how many calls wait, as a batch does. An inner concurrency limit lets
    /// the call wait, even if its queue is full.
    Queue,
}

impl Claim {
    pub(super) const fn bit(self) -> u8 {
        let bit = 1 << self as u8;
        debug_assert!(bit < KEYED, "each claim has a bit of its own");
        bit
    }
}

// The claims of an attempt share a byte with the facts that layers note which repeat a call.

/// All attempts share the recording, which was begun by the layer that repeats the call.
pub(super) const KEYED: u8 = 1 << 5;
/// An earlier attempt may have run.
const AMBIGUOUS: u8 = 1 << 6;

impl ToolCall {
    /// Claims a call that no other thread can see, as [`claim`](super::CallExt::claim) does.
    pub(crate) fn take_claim(&mut self, claim: Claim) -> bool {
        let before = *self.claims.get_mut();
        *self.claims.get_mut() = before | claim.bit();
        before & claim.bit() != 0
    }

    pub(super) fn withdraw(&mut self, claim: Claim) {
        *self.claims.get_mut() &= !claim.bit();
    }

    #[inline]
    pub(super) fn has(&self, bit: u8) -> bool {
        self.claims.load(Relaxed) & bit != 0
    }

    /// Notes that an earlier attempt may have run. If this attempt is refused, that does not prove
    /// that the tool never ran.
    pub(crate) fn set_ambiguous(&self) {
        self.claims.fetch_or(AMBIGUOUS, Relaxed);
    }

    /// Returns whether an earlier attempt may have run.
    pub(crate) fn is_ambiguous(&self) -> bool {
        self.has(AMBIGUOUS)
    }
}
