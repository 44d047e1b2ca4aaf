//! The refusal of a call when it arrived.

use crate::{call::CallInfo, error::ToolError};

/// The error of a call that is not sent. If it is dropped before it is polled, the call stays
/// [held](CallInfo::hold), so that observers know that it was not sent.
#[derive(Debug)]
pub(super) struct Refusal {
    error: Option<ToolError>,
    call: CallInfo,
}

impl Refusal {
    pub(super) fn new(error: ToolError, call: CallInfo) -> Self {
        let error = Some(error.for_call(&call));
        Self { error, call }
    }

    /// Returns whether the error was not taken yet.
    pub(super) fn is_open(&self) -> bool {
        self.error.is_some()
    }

    /// Returns the error of the call.
    pub(super) fn take(&mut self) -> ToolError {
        self.error.take().expect("polled after completion")
    }
}

impl Drop for Refusal {
    fn drop(&mut self) {
        if self.is_open() {
            drop(self.call.clone().hold());
        }
    }
}
