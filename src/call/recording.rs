use std::sync::Arc;

use super::{IdempotencyKey, Record, ToolCall, claim::KEYED};

impl ToolCall {
    /// Begins attempt `n`; another layer has made those before it.
    pub(crate) fn begin_attempt(&mut self, n: u32) {
        self.attempt = u16::try_from(n).unwrap_or(u16::MAX);
        self.record(|r| r.begin_attempt(self.attempt.into()));
    }

    /// Begins the recording of a call to which the caller of this may make so many attempts: they
    /// share it, and with it the idempotency key.
    ///
    /// Tells whether it is a new one; then it is the caller's to [end](Self::end_recording).
    #[inline]
    pub(crate) fn begin_repeated(&mut self, attempts: u32) -> bool {
        *self.claims.get_mut() |= KEYED;
        let is_new = self.start_recording();
        self.data.ident.record.set_max_attempts(attempts);
        is_new
    }

    /// Ends a recording that was begun for this call. Like an observation's end, but the call
    /// itself keeps the record.
    #[inline]
    pub(crate) fn end_recording(&self) {
        self.data.ident.record.end(self.recording);
    }

    /// Returns one key for all attempts at this call, and another for each other call.
    ///
    /// A tool service sends it, so that a server can distinguish a repetition from a new call.
    /// `None` unless an outer [`RetryLayer`](crate::retry::RetryLayer) may repeat the call; tower's
    /// retry layer sets none.
    pub fn idempotency_key(&self) -> Option<IdempotencyKey> {
        self.has(KEYED)
            .then(|| self.data.ident.record.idempotency_key(self.recording))
    }

    /// Starts a recording, unless the call has one. One that is over belongs to an earlier call
    /// that this one was cloned from. Returns whether it is a new one.
    #[inline]
    pub(super) fn start_recording(&mut self) -> bool {
        let record = &self.data.ident.record;
        if self.recording != 0 && record.is_current(self.recording) {
            return false;
        }
        self.recording = match record.start() {
            Some(recording) => recording,
            None => self.start_fresh_recording(),
        };
        // The record may be new, or may have the limit of an earlier call.
        self.share_limit();
        true
    }

    /// A clone of this call is being observed: this one gets a record of its own.
    #[cold]
    fn start_fresh_recording(&mut self) -> u32 {
        let fresh = Arc::new(Record::default());
        let recording = fresh.start().expect("a fresh record is free");
        self.data_mut().ident_mut().record = fresh;
        recording
    }

    /// Writes to the record, if an observer has begun one.
    #[inline]
    pub fn record(&self, write: impl FnOnce(&Record)) {
        self.data.ident.record(self.recording, write);
    }
}
