//! Errors of HTTP/2.

use std::error::Error as StdError;

use crate::error::{
    KnownErrors, ToolError,
    recognise::{BROKEN, LOST, NOT_SENT, judged},
};

pub(crate) struct Errors;

impl KnownErrors for Errors {
    fn cause(&self, error: &(dyn StdError + 'static)) -> Option<ToolError> {
        let error = error.downcast_ref::<h2::Error>()?;
        if error.is_io() || error.is_go_away() {
            return Some(judged(LOST));
        }
        let verdict = match error.reason()? {
            // The peer has not looked at the request (RFC 9113, section 8.7).
            h2::Reason::REFUSED_STREAM if !error.is_library() => NOT_SENT,
            _ => BROKEN,
        };
        Some(judged(verdict))
    }
}
