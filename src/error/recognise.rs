//! Finding out what a foreign error means: by type through the source chain, by text last.

use std::{error::Error as StdError, io};

use super::{BoxError, ErrorKind, Execution, Inner, ToolError, text};
use crate::{foreign, hint, redact::Rules, text::Bounded};

/// How many links of a source chain are looked at: a chain may be a circle.
const MAX_LINKS: usize = 32;

/// How much text of a foreign error is looked at, in bytes.
pub(super) const MAX_BYTES: usize = 4096;

/// What a foreign error means. `believed` decides how much an error that is known by its type proves of the call.
pub(super) fn read(error: BoxError, believed: fn(ToolError) -> ToolError) -> ToolError {
    let error = match error.downcast::<ToolError>() {
        Ok(ours) => return *ours,
        Err(other) => other,
    };
    if let Some(ours) = ours_below(&*error) {
        return ours;
    }
    let message = describe(&*error);
    let known = match cause_by_type(&*error) {
        Some(known) => believed(known).named(&message),
        None => ToolError::from_text(&message)
            .unwrap_or_else(|| ToolError::new(ErrorKind::Failed, message.clone()).into_inferred()),
    };
    known.delayed_by_text(&message).with_source(error)
}

/// Our own error below foreign ones: the verdict is ours. Where the tool put context above it, it was one step of
/// several, so that it proves nothing of the others.
fn ours_below(error: &(dyn StdError + 'static)) -> Option<ToolError> {
    let mut bare = true;
    for link in links(error) {
        if let Some(ours) = link.downcast_ref::<ToolError>() {
            let ours = ours.clone();
            return Some(if bare { ours } else { ours.edit(Inner::infer) });
        }
        bare &= foreign::is_transparent(link);
    }
    None
}

impl ToolError {
    /// What a text means; `None` if it is not clear.
    pub(crate) fn from_text(message: &str) -> Option<Self> {
        let (head, _) = crate::text::prefix(message, MAX_BYTES);
        let (kind, status) = text::classify(head)?;
        let error = Self::new(kind, message.to_owned()).into_inferred();
        Some(match status {
            Some(status) => error.with_status(status),
            None => error,
        })
    }

    /// Takes over the delay that a text asks for, if no other is known. It is no more than that.
    pub(crate) fn delayed_by_text(self, text: &str) -> Self {
        if self.retry_after().is_some() {
            return self;
        }
        match hint::from_text(text).and_then(|hint| hint.delay) {
            Some(delay) => self.edit(|e| e.retry_after = Some(delay)),
            None => self,
        }
    }

    /// Replaces the error's text, redacted.
    pub(crate) fn named(self, message: &str) -> Self {
        let text = super::safe(&Rules::default(), message);
        self.edit(|e| e.message = text.into())
    }
}

/// The error and its causes. [`io::Error`] hides the error that it wraps from its own chain, so
/// that one is visited as well.
fn links<'a>(
    error: &'a (dyn StdError + 'static),
) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    let links = std::iter::successors(Some(error), |&e| {
        let hidden = e.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        hidden.map(|e| e as _).or_else(|| e.source())
    });
    links.take(MAX_LINKS)
}

/// The texts of the chain, joined by `: `, without those that are part of the text so far.
fn describe(error: &(dyn StdError + 'static)) -> String {
    let mut text = String::new();
    for link in links(error) {
        let part = Bounded::print(MAX_BYTES.saturating_sub(text.len()), &link);
        if text.is_empty() {
            text = part;
        } else if !text.contains(&*part) {
            text.extend([": ", &part]);
        }
    }
    links(error).fold(text, foreign::without_address)
}

/// The first link that is known by its type, as a leaf that is a transport met it on its own wire.
pub(crate) fn cause_by_type(error: &(dyn StdError + 'static)) -> Option<ToolError> {
    let own = |link| from_runtime(link).map(ToolError::from);
    links(error).find_map(|link| own(link).or_else(|| foreign::cause(link)))
}

pub(crate) type Verdict = (ErrorKind, Execution);

pub(crate) const LOST: Verdict = (ErrorKind::ConnectionFailed, Execution::Unknown);

pub(crate) const NOT_SENT: Verdict = (ErrorKind::ConnectionFailed, Execution::NotStarted);

pub(crate) const LATE: Verdict = (ErrorKind::Timeout, Execution::Unknown);

pub(crate) const BROKEN: Verdict = (ErrorKind::Upstream, Execution::Unknown);

/// An error without a message.
impl From<Verdict> for ToolError {
    fn from((kind, execution): Verdict) -> Self {
        Self::new(kind, "").with_execution(execution)
    }
}

fn from_runtime(error: &(dyn StdError + 'static)) -> Option<Verdict> {
    if let Some(io) = error.downcast_ref::<io::Error>() {
        return from_io(io.kind());
    }
    if error.is::<tokio::time::error::Elapsed>() {
        return Some(LATE);
    }
    let join = error.downcast_ref::<tokio::task::JoinError>()?;
    Some(match join.is_panic() {
        true => (ErrorKind::Panicked, Execution::Unknown),
        // A task of the tool's own: its caller did not give up.
        false => BROKEN,
    })
}

fn from_io(kind: io::ErrorKind) -> Option<Verdict> {
    use io::ErrorKind as Io;
    Some(match kind {
        Io::ConnectionRefused | Io::AddrNotAvailable => NOT_SENT,
        // All of these are met on connections that were up, too.
        Io::ConnectionReset
        | Io::ConnectionAborted
        | Io::BrokenPipe
        | Io::UnexpectedEof
        | Io::NotConnected
        | Io::HostUnreachable
        | Io::NetworkUnreachable
        | Io::NetworkDown => LOST,
        Io::TimedOut => LATE,
        Io::PermissionDenied => (ErrorKind::Denied, Execution::Unknown),
        _ => return None,
    })
}
