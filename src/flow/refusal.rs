//! The refusal of a call when it arrived.

use crate::{call::ToolCall, error::ToolError};

/// A call that is not sent, and its error. If it is dropped before it is polled, the call stays
/// [held](crate::CallInfo::hold), so that observers know that it was not sent.
#[derive(Debug)]
pub(super) struct Refusal(Option<(ToolError, ToolCall)>);

impl Refusal {
    /// The error has the names of the call.
    pub(super) fn new(error: ToolError, call: ToolCall) -> Self {
        Self(Some((error, call)))
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
    fn drop(&mut self) {
        if let Some((_, call)) = self.0.take() {
            drop(call.info().hold());
        }
    }
}
