//! `anyhow::Error` as the error of a tool.

use crate::error::ToolError;

/// As [`ToolError::from_box`] has it, whatever context stands above the error.
impl From<anyhow::Error> for ToolError {
    fn from(error: anyhow::Error) -> Self {
        // `into()` would hide the type of the outermost error.
        Self::from_box(error.reallocate_into_boxed_dyn_error_without_backtrace())
    }
}

#[cfg(test)]
mod tests {
    use std::{io, time::Duration};

    use anyhow::Context as _;

    use super::*;
    use crate::error::{ErrorKind, Execution};

    /// F-1.
    #[test]
    fn an_error_in_anyhow_is_what_it_is_without() {
        let limited = || {
            ToolError::new(ErrorKind::RateLimited, "not yet")
                .with_retry_after(Duration::from_secs(7))
        };
        let error = ToolError::from(anyhow::Error::from(limited()));
        assert_eq!(error.kind(), ErrorKind::RateLimited);
        assert_eq!(error.retry_after(), Some(Duration::from_secs(7)));
        assert_eq!(error.execution(), Execution::NotStarted);

        let timed_out = || io::Error::from(io::ErrorKind::TimedOut);
        let plain = ToolError::from(anyhow::Error::from(timed_out()));
        let below = ToolError::from(Err::<(), _>(timed_out()).context("reading").unwrap_err());
        assert_eq!([plain.kind(), below.kind()], [ErrorKind::Timeout; 2]);
    }
}
