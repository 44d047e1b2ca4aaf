//! hyper's own errors.

use std::error::Error as StdError;

use crate::error::{
    ToolError,
    recognise::{LATE, LOST, NOT_SENT},
};

pub(crate) fn cause(error: &(dyn StdError + 'static)) -> Option<ToolError> {
    if let Some(client) = error.downcast_ref::<hyper_util::client::legacy::Error>() {
        return client.is_connect().then(|| NOT_SENT.into());
    }
    let error = error.downcast_ref::<hyper::Error>()?;
    if error.is_timeout() {
        return Some(LATE.into());
    }
    let lost = error.is_canceled() || error.is_closed() || error.is_incomplete_message();
    lost.then(|| LOST.into())
}
