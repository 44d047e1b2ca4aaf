//! hyper's own errors.

use std::error::Error as StdError;

use crate::error::{
    KnownErrors, ToolError,
    recognise::{LATE, LOST, NOT_SENT, judged},
};

pub(crate) struct Errors;

impl KnownErrors for Errors {
    fn cause(&self, error: &(dyn StdError + 'static)) -> Option<ToolError> {
        if let Some(client) = error.downcast_ref::<hyper_util::client::legacy::Error>() {
            return client.is_connect().then(|| judged(NOT_SENT));
        }
        let error = error.downcast_ref::<hyper::Error>()?;
        if error.is_timeout() {
            return Some(judged(LATE));
        }
        let lost = error.is_canceled() || error.is_closed() || error.is_incomplete_message();
        lost.then(|| judged(LOST))
    }
}
