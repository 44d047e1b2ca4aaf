//! Where a call is on its way: held back, sent, or between two attempts.

use std::sync::atomic::{
    AtomicU32,
    Ordering::{Relaxed, SeqCst},
};

use super::{CallInfo, Observation, Record, ToolCall};

/// The state of the attempt that runs: four flags, and above them the number of futures that hold
/// the call back, in steps of [`ONE_HOLDER`]. Written also without an observer.
///
/// Flags and number are one word because they change together: a hold sets [`HELD`] and counts
/// itself, while [`forget`](Self::forget) on another thread asks for both. A call that is not held
/// reads the word once and writes nothing.
///
/// - [`HELD`] is set by `CallInfo::hold`, and cleared by `release`, and the next attempt
/// - [`IN_FUNCTION`] is set by `CallInfo::enter_function`, and cleared by `release`, and the next
///   attempt
/// - [`BETWEEN`] is set by `CallInfo::end_attempt`, and cleared by the next attempt
/// - [`AGAIN`] is set by `CallInfo::end_attempt` of an attempt that may have run; a copy, and
///   cleared by the next recording
#[derive(Debug, Default)]
pub(super) struct Way(AtomicU32);

/// A layer holds the call back: this attempt was not sent.
const HELD: u32 = 1;
/// The attempt before has ended, and the next one has no number yet.
const BETWEEN: u32 = 2;
/// The call was copied, or an attempt before may have run.
const AGAIN: u32 = 4;
/// A function has the call. It was not sent, unless the function sends it elsewhere.
const IN_FUNCTION: u32 = 8;
/// One more future that holds the call back.
const ONE_HOLDER: u32 = 16;
/// The attempt was not sent, as far as is known.
const UNSENT: u32 = HELD | IN_FUNCTION;

impl Way {
    #[inline]
    fn has(&self, bits: u32) -> bool {
        self.0.load(Relaxed) & bits != 0
    }

    /// Forgets where an earlier call was. Returns false if another clone holds this record. A hold
    /// that begins at the same moment sees that the record is in use.
    #[inline]
    pub(super) fn forget(&self) -> bool {
        let forget = |way| (way & HELD == 0 || way < ONE_HOLDER).then_some(way & !(ONE_HOLDER - 1));
        self.0.load(SeqCst) == 0 || self.0.fetch_update(SeqCst, SeqCst, forget).is_ok()
    }

    #[inline]
    pub(super) fn begin_attempt(&self) {
        if self.has(UNSENT | BETWEEN) {
            self.0.fetch_and(!(UNSENT | BETWEEN), Relaxed);
        }
    }

    pub(super) fn set_copied(&self) {
        self.0.fetch_or(AGAIN, Relaxed);
    }
}

impl Record {
    #[inline]
    fn release(&self, recording: u32) {
        if self.way.has(UNSENT) && self.is_free_for(recording) {
            self.way.0.fetch_and(!UNSENT, Relaxed);
        }
    }
}

impl ToolCall {
    /// Marks that the call is sent to the inner service. An earlier attempt, or an earlier call
    /// with the same record, may have left it [held](CallInfo::hold).
    #[inline]
    pub(crate) fn release(&self) {
        self.data.ident.record.release(self.recording);
    }
}

impl CallInfo {
    #[inline]
    fn way(&self) -> &Way {
        &self.observed().way
    }

    /// Returns whether its recording may write, or no other one runs.
    fn is_free(&self) -> bool {
        self.observed().is_free_for(self.recording)
    }

    /// Marks that a layer holds the call back, until it [releases](Hold::release) it: an observer
    /// that sees the future dropped meanwhile knows that the call was not sent. Clones that run at
    /// the same time share the mark, unless a clone has a recording of its own.
    pub(crate) fn hold(self) -> Hold {
        if !self.is_free() {
            return Hold(None);
        }
        let hold = |way| Some((way | HELD) + ONE_HOLDER);
        let hold = self.way().0.fetch_update(SeqCst, Relaxed, hold);
        if self.is_free() {
            return Hold(Some(self));
        }
        // The recording of a clone has begun meanwhile.
        let before = hold.unwrap_or_else(|way| way);
        let undo = |way| Some(undone(way, before));
        let _ = self.way().0.fetch_update(Relaxed, Relaxed, undo);
        Hold(None)
    }

    /// Marks that a function has the call: it was not sent, as far as is known, until it is
    /// [released](Self::release). Unlike a held call it may be at work.
    pub(crate) fn enter_function(&self) {
        if self.is_free() {
            self.way().0.fetch_or(IN_FUNCTION, Relaxed);
        }
    }

    /// Marks that the call is sent to the inner service.
    pub(crate) fn release(&self) {
        self.observed().release(self.recording);
    }

    /// Marks that an attempt has ended, and another one follows.
    pub(crate) fn end_attempt(&self, may_have_run: bool) {
        if self.is_free() {
            let again = if may_have_run { AGAIN } else { 0 };
            self.way().0.fetch_or(BETWEEN | again, Relaxed);
        }
    }

    /// Returns whether a layer holds the call back: no attempt runs.
    #[inline]
    pub(crate) fn is_held(&self) -> bool {
        self.way().has(HELD)
    }

    /// Returns whether a layer holds the call back, or a function has not sent it yet.
    #[inline]
    pub(crate) fn is_unsent(&self) -> bool {
        self.way().has(UNSENT)
    }

    /// Returns whether no attempt has run and none will: the only copy was held back, and the
    /// future that held it is gone. Not so of a function, which may have sent the call elsewhere.
    /// Needs an observer.
    pub(crate) fn is_lost_unsent(&self) -> bool {
        self.recording != 0 && self.way().0.load(Relaxed) & !BETWEEN == HELD
    }
}

impl Observation {
    /// Returns whether the attempt with the last number was not sent.
    pub(super) fn is_last_unsent(&self) -> bool {
        self.call().is_unsent() && !self.call().way().has(BETWEEN)
    }
}

/// Takes back a hold that `before` was the state of. The mark of another holder stays.
fn undone(way: u32, before: u32) -> u32 {
    let rest = way - ONE_HOLDER;
    // Only a hold that began meanwhile can have set the mark again.
    match before & HELD == 0 && rest / ONE_HOLDER <= before / ONE_HOLDER {
        true => rest & !HELD,
        false => rest,
    }
}

/// A call that a layer holds back.
#[derive(Debug, Default)]
pub(crate) struct Hold(Option<CallInfo>);

impl Hold {
    /// Marks that the call is sent. Without this it stays held, also after the drop.
    pub(crate) fn release(&self) {
        if let Some(call) = &self.0 {
            call.release();
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if let Some(call) = &self.0 {
            call.way().0.fetch_sub(ONE_HOLDER, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Issue 48, D7: the recording of a clone begins, and is held, while a hold is taken back.
    #[test]
    fn a_hold_that_is_taken_back_leaves_the_mark_of_another_one() {
        let hold = |way: u32| (way | HELD) + ONE_HOLDER;
        assert_eq!(undone(hold(0), 0), 0);
        assert_eq!(undone(hold(hold(0)), 0), hold(0));
        assert_eq!(undone(hold(HELD), HELD), HELD);
        // The other one is sent, and not dropped yet.
        assert_eq!(undone(hold(ONE_HOLDER), ONE_HOLDER), ONE_HOLDER);
    }
}
