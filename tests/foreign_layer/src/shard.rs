//! A leaf with an error and an answer of its own types.

use std::{
    error::Error,
    fmt,
    future::{Ready, ready},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll},
    time::Duration,
};

use tower::Service;
use tower_toolcall::{
    BoxError, ErrorKind, ToolCall, ToolError,
    error::{KnownErrors, recognise},
};

/// A shard of a database refused a query.
#[derive(Debug)]
#[non_exhaustive]
pub enum ShardError {
    /// It serves others for so many seconds.
    Busy(u64),
    /// It answered for another one, whose error this is.
    Relayed(BoxError),
}

/// Shows codes, and the address.
impl fmt::Display for ShardError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Busy(_) => f.write_str("E42 at shard://user:hunter2@10.0.0.7"),
            Self::Relayed(_) => f.write_str("E7 at shard://user:hunter2@10.0.0.7"),
        }
    }
}

impl Error for ShardError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Busy(_) => None,
            Self::Relayed(error) => Some(&**error),
        }
    }
}

struct Errors;

impl KnownErrors for Errors {
    fn cause(&self, error: &(dyn Error + 'static)) -> Option<ToolError> {
        let ShardError::Busy(seconds) = error.downcast_ref()? else {
            return None;
        };
        let busy = ToolError::new(ErrorKind::Overloaded, "the shard is busy");
        Some(busy.with_retry_after(Duration::from_secs(*seconds)))
    }

    fn is_transparent(&self, error: &(dyn Error + 'static)) -> bool {
        matches!(error.downcast_ref(), Some(ShardError::Relayed(_)))
    }

    fn text(&self, error: &(dyn Error + 'static)) -> Option<String> {
        let error: &ShardError = error.downcast_ref()?;
        Some(match error {
            ShardError::Busy(_) => format!("the shard is busy: {error}"),
            ShardError::Relayed(_) => format!("relayed: {error}"),
        })
    }

    fn without_address(&self, text: String, error: &(dyn Error + 'static)) -> String {
        match error.is::<ShardError>() {
            true => text.replace("shard://user:hunter2@10.0.0.7", "the shard"),
            false => text,
        }
    }
}

/// Answers queries; each query for `busy` fails.
#[derive(Clone, Debug)]
pub struct Shards {
    asked: Arc<AtomicU64>,
}

impl Shards {
    /// Returns a leaf, and makes its types known.
    #[expect(clippy::new_without_default, reason = "it changes the process")]
    pub fn new() -> Self {
        recognise(&Errors);
        Self {
            asked: Arc::default(),
        }
    }

    /// Returns how many queries there were.
    pub fn asked(&self) -> u64 {
        self.asked.load(Relaxed)
    }
}

impl Service<ToolCall> for Shards {
    type Response = u64;
    type Error = BoxError;
    type Future = Ready<Result<u64, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, call: ToolCall) -> Self::Future {
        let asked = self.asked.fetch_add(1, Relaxed) + 1;
        ready(match call.tool() {
            "busy" => Err(ShardError::Busy(7).into()),
            _ => Ok(asked),
        })
    }
}
