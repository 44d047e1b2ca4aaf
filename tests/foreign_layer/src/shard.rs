//! A leaf with an error and an answer of its own types.

use std::{
    error::Error,
    fmt,
    future::{Ready, ready},
    hash::Hasher,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use tower::Service;
use tower_toolcall::{
    BoxError, ErrorKind, ToolCall, ToolError,
    answer::{self, Kept, KnownAnswer, hash_json},
    error::{self, KnownErrors},
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

/// The answer to a query.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Found {
    /// The pages.
    pub pages: Vec<String>,
    /// The number of the query.
    pub query: u64,
    /// What the shards have to know before they answer.
    pub question: Option<String>,
}

impl KnownAnswer for Found {
    fn asks_for_input(&self) -> bool {
        self.question.is_some()
    }

    /// The number of a query is not news.
    fn hash_into(&self, hasher: &mut dyn Hasher) -> bool {
        hash_json(&self.pages, hasher)
    }

    fn keep(&self, max: u64) -> Option<Kept<Self>> {
        Some(Kept::json(self, max))
    }
}

/// Answers queries by the tool's name: `busy` fails, `ask` asks a question, `latest` finds another
/// page each time, and all others one page.
#[derive(Clone, Debug)]
pub struct Shards {
    asked: Arc<AtomicU64>,
}

impl Shards {
    /// Returns a leaf, and makes its types known.
    #[expect(clippy::new_without_default, reason = "it changes the process")]
    pub fn new() -> Self {
        error::register(&Errors);
        answer::register::<Found>();
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
    type Response = Found;
    type Error = BoxError;
    type Future = Ready<Result<Found, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, call: ToolCall) -> Self::Future {
        let query = self.asked.fetch_add(1, Relaxed) + 1;
        let question = (call.tool() == "ask").then(|| "which shard?".to_owned());
        let pages = match call.tool() {
            "busy" => return ready(Err(ShardError::Busy(7).into())),
            "latest" => vec![format!("page {query}")],
            _ => vec!["page 1".to_owned()],
        };
        ready(Ok(Found {
            pages,
            query,
            question,
        }))
    }
}
