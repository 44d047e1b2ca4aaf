//! The refusal of a call when it arrived.

use crate::{
    call::{CallInfo, ToolCall},
    error::ToolError,
};

/// The error of a call that is not sent. If it is dropped before it is polled, the call stays
/// [held](CallInfo::hold), so that observers know that it was not sent.
#[derive(Debug, Default)]
pub(crate) struct Refusal(Option<(ToolError, CallInfo)>);

impl Refusal {
    /// Adds the names of the call to its error.
    pub(super) fn new(error: ToolError, call: &ToolCall) -> Self {
        let info = call.info();
        Self(Some((error.for_call(&info), info)))
    }

    /// Returns whether the error was not taken yet.
    pub(super) fn is_open(&self) -> bool {
        self.0.is_some()
    }

    /// Returns the error of the call.
    pub(super) fn take(&mut self) -> ToolError {
        self.0.take().expect("polled after completion").0
    }
}

impl Drop for Refusal {
    #[inline]
    fn drop(&mut self) {
        #[cold]
        fn hold(refusal: Option<(ToolError, CallInfo)>) {
            drop(refusal.map(|(_, info)| info.hold()));
        }
        // Taken only then: nothing is written for a refusal that is not there.
        if self.0.is_some() {
            hold(self.0.take());
        }
    }
}
