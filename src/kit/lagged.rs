use std::fmt;

use tokio::sync::broadcast::error::RecvError;

/// A subscriber was too slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Lagged {
    /// The number of messages that it missed.
    pub missed: u64,
}

impl Lagged {
    /// Returns what a subscriber has received; `None` when there will be no more.
    pub(crate) fn or_closed<T>(received: Result<T, RecvError>) -> Option<Result<T, Self>> {
        match received {
            Ok(news) => Some(Ok(news)),
            Err(RecvError::Lagged(missed)) => Some(Err(Self { missed })),
            Err(RecvError::Closed) => None,
        }
    }
}

impl fmt::Display for Lagged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "missed {} messages", self.missed)
    }
}

impl std::error::Error for Lagged {}
