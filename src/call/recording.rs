use std::sync::Arc;

use super::{IdempotencyKey, Observation, Record, ToolCall, claim::KEYED};

impl ToolCall {
    /// Counts another attempt. For layers that repeat calls.
    pub fn next_attempt(&mut self) {
        self.begin_attempt(self.attempt().saturating_add(1));
    }

    /// Begins attempt `n`; another layer has made those before it.
    pub(crate) fn begin_attempt(&mut self, n: u32) {
        self.attempt = u16::try_from(n).unwrap_or(u16::MAX);
        self.record(|r| r.begin_attempt(self.attempt.into()));
    }

    /// Observes the call as the layer that repeats it, at most `attempts` times: all attempts share
    /// one record, which ends with the answer of this, and one [idempotency
    /// key](Self::idempotency_key). Each further one is a clone of the call after
    /// [`next_attempt`](Self::next_attempt).
    pub fn observe_attempts(&mut self, attempts: u32) -> Observation {
        let is_new = self.begin_repeated(attempts);
        Observation::new(self.info(), is_new, self.attempt)
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

    /// One key for all attempts at this call, and another for each other call.
    ///
    /// For leaves, to send along, so that a server can tell a repetition from a new call. `None`
    /// unless a [`RetryLayer`](crate::retry::RetryLayer) above may repeat it; tower's retry layer
    /// cannot give one.
    pub fn idempotency_key(&self) -> Option<IdempotencyKey> {
        self.has(KEYED)
            .then(|| self.data.ident.record.idempotency_key(self.recording))
    }

    /// Observes the call: returns what the inner layers have [recorded](super::CallInfo::record),
    /// for as long as the observer keeps it.
    ///
    /// The outermost observer starts the record, and inner ones read the same record. Observing
    /// allocates only if clones of one call are sent at the same time, or if a
    /// [function](crate::middleware) observes the call before it sends it on.
    #[inline]
    pub fn observe(&mut self) -> Observation {
        let is_new = self.start_recording();
        Observation::new(self.info(), is_new, self.attempt)
    }

    /// Starts a recording, unless the call has one. One that is over belongs to an earlier call
    /// that this one was cloned from. Returns whether it is a new one.
    #[inline]
    fn start_recording(&mut self) -> bool {
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

    /// Makes it a call of its own: observers of the call that it was cloned from see nothing of it.
    pub fn detach(&mut self) {
        self.recording = 0;
    }

    /// Writes to the record, if an observer has begun one.
    #[inline]
    pub fn record(&self, write: impl FnOnce(&Record)) {
        self.data.ident.record(self.recording, write);
    }
}
