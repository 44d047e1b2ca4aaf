//! Finding out what a foreign error means: by type through the source chain, by text last (E2).

use std::{error::Error as StdError, io, time::Duration};

use super::{BoxError, ErrorKind, Execution, ToolError, text};
use crate::{
    hint::{self, Hint},
    redact::Rules,
    text::Bounded,
};

/// How many links of a source chain are looked at: a chain may be a circle.
const MAX_LINKS: usize = 32;

/// How much text of a foreign error is looked at, in bytes.
const MAX_BYTES: usize = 4096;

pub(super) fn from_box(error: BoxError) -> ToolError {
    let error = match error.downcast::<ToolError>() {
        Ok(ours) => return *ours,
        Err(other) => other,
    };
    // Our own error under foreign ones: the verdict is ours. Where somebody put context above it, it
    // was one step of several, so that it proves nothing of the others.
    if let Some(ours) = links(&*error).find_map(|e| e.downcast_ref::<ToolError>()) {
        let ours = ours.clone();
        return match ours.execution() {
            Execution::NotStarted if !is_transparent(&*error) => {
                ours.with_execution(Execution::Unknown)
            }
            _ => ours,
        };
    }
    let message = describe(&*error);
    let known = links(&*error)
        .enumerate()
        .find_map(|(depth, e)| Some((depth, by_type(e)?)));
    match known {
        Some((depth, known)) => {
            let known = known.named(message);
            // Somebody met it on the way and put it into an error of theirs.
            match known.execution() {
                Execution::NotStarted if depth > 0 && !is_transparent(&*error) => {
                    known.with_execution(Execution::Unknown)
                }
                _ => known,
            }
        }
        None => match text::classify(&message) {
            Some((kind, execution)) => {
                let told = told(kind, || hint::from_text(&message));
                let error = ToolError::new(kind, message).hinted(told);
                error.with_execution(execution)
            }
            None => ToolError::new(ErrorKind::Failed, message),
        },
    }
    .with_source(error)
}

/// How long a peer asks to wait, if it does so with such an error.
pub(crate) fn told(kind: ErrorKind, read: impl FnOnce() -> Option<Hint>) -> Option<Duration> {
    let asks = matches!(kind, ErrorKind::RateLimited | ErrorKind::Upstream);
    asks.then(read)??.delay
}

impl ToolError {
    /// Takes a hint over, if there is one.
    pub(crate) fn hinted(self, told: Option<Duration>) -> Self {
        match told {
            Some(delay) => self.with_retry_after(delay),
            None => self,
        }
    }

    /// What a text means, for edges that get errors as text; `None` if it is not clear.
    #[cfg(feature = "mcp")]
    pub(crate) fn from_text(message: &str) -> Option<Self> {
        let (head, _) = crate::text::prefix(message, MAX_BYTES);
        let (kind, execution) = text::classify(head)?;
        Some(Self::new(kind, message.to_owned()).with_execution(execution))
    }

    /// Puts the whole chain's text in the place of one link's.
    fn named(self, message: String) -> Self {
        let text = super::safe(&Rules::default(), &message);
        self.edit(|e| e.message = text.into())
    }
}

/// Wrappers that add nothing: tower's `Buffer`, which shares its service's error, tonic's `Status` that was made
/// of one, and [`io::Error`].
fn is_transparent(error: &(dyn StdError + 'static)) -> bool {
    #[cfg(feature = "tower")]
    if error.is::<tower::buffer::error::ServiceError>() {
        return true;
    }
    #[cfg(feature = "tonic")]
    if error.is::<tonic::Status>() {
        return error
            .source()
            .is_some_and(|source| source.is::<ToolError>());
    }
    error.is::<io::Error>()
}

/// The error and its causes. [`io::Error`] hides the error that it wraps from its own chain, so
/// that one is visited as well.
fn links<'a>(
    error: &'a (dyn StdError + 'static),
) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    std::iter::successors(Some(error), |&e| {
        let hidden = e
            .downcast_ref::<io::Error>()
            .and_then(|e| e.get_ref())
            .map(|e| e as &(dyn StdError + 'static));
        hidden.or_else(|| e.source())
    })
    .take(MAX_LINKS)
}

/// The chain's text: each link that says something new, joined by `: `.
fn describe(error: &(dyn StdError + 'static)) -> String {
    let mut text = String::new();
    for link in links(error) {
        let room = MAX_BYTES.saturating_sub(text.len());
        if room == 0 {
            break;
        }
        let part = Bounded::print(room, &link);
        if text.is_empty() {
            text = part;
        } else if !text.contains(&*part) {
            text.push_str(": ");
            text.push_str(&part);
        }
    }
    // An address may be a secret as a whole.
    #[cfg(feature = "mcp-http")]
    for link in links(error) {
        text = crate::edge::mcp::without_address(text, link);
    }
    text
}

/// One link, known by its type.
fn by_type(error: &(dyn StdError + 'static)) -> Option<ToolError> {
    let found = |kind, execution| Some(ToolError::new(kind, "").with_execution(execution));
    if let Some(io) = error.downcast_ref::<io::Error>() {
        let (kind, execution) = from_io(io.kind())?;
        return found(kind, execution);
    }
    if error.is::<tokio::time::error::Elapsed>() {
        return found(ErrorKind::Timeout, Execution::Unknown);
    }
    if let Some(join) = error.downcast_ref::<tokio::task::JoinError>() {
        let kind = if join.is_panic() {
            ErrorKind::Panicked
        } else {
            ErrorKind::Cancelled
        };
        return found(kind, Execution::Unknown);
    }
    #[cfg(feature = "tower")]
    if let Some((kind, execution)) = from_tower(error) {
        return found(kind, execution);
    }
    #[cfg(feature = "mcp")]
    if let Some(known) = crate::edge::mcp::recognise(error) {
        return Some(known);
    }
    #[cfg(feature = "tonic")]
    if let Some(known) = crate::edge::tonic::recognise(error) {
        return Some(known);
    }
    None
}

/// The first link that is known by its type, of an error that is a cause itself.
#[cfg(feature = "tonic")]
pub(crate) fn cause_by_type(cause: &(dyn StdError + 'static)) -> Option<ToolError> {
    links(cause).find_map(by_type)
}

fn from_io(kind: io::ErrorKind) -> Option<(ErrorKind, Execution)> {
    use io::ErrorKind as Io;
    Some(match kind {
        Io::ConnectionRefused | Io::AddrNotAvailable => {
            (ErrorKind::ConnectionFailed, Execution::NotStarted)
        }
        // All of these are met on connections that were up, too.
        Io::ConnectionReset
        | Io::ConnectionAborted
        | Io::BrokenPipe
        | Io::UnexpectedEof
        | Io::NotConnected
        | Io::HostUnreachable
        | Io::NetworkUnreachable
        | Io::NetworkDown => (ErrorKind::ConnectionFailed, Execution::Unknown),
        Io::TimedOut => (ErrorKind::Timeout, Execution::Unknown),
        Io::PermissionDenied => (ErrorKind::Denied, Execution::Unknown),
        _ => return None,
    })
}

#[cfg(feature = "tower")]
fn from_tower(error: &(dyn StdError + 'static)) -> Option<(ErrorKind, Execution)> {
    use tower::{buffer, load_shed, timeout};
    if error.is::<timeout::error::Elapsed>() {
        return Some((ErrorKind::Timeout, Execution::Unknown));
    }
    if error.is::<load_shed::error::Overloaded>() {
        return Some((ErrorKind::Overloaded, Execution::NotStarted));
    }
    // The worker is gone for good: whether it had taken this call, nobody knows.
    if error.is::<buffer::error::Closed>() {
        return Some((ErrorKind::ConnectionFailed, Execution::Unknown));
    }
    None
}
