//! Finding out what a foreign error means: by type through the source chain, by text last.

use std::{
    any::Any,
    char,
    error::Error as StdError,
    io, mem, net, num,
    panic::{self, AssertUnwindSafe},
    str,
    sync::OnceLock,
};

use super::{
    BoxError, ErrorKind, Execution, Inner, Message, Source, ToolError,
    known::{known, without_address},
    text,
};
use crate::{
    hint,
    redact::Rules,
    text::{Bounded, with_buffer},
};

/// How many links of a source chain are looked at: a chain may be a circle.
const MAX_LINKS: usize = 32;

/// How much text of a foreign error is looked at, in bytes.
pub(super) const MAX_BYTES: usize = 4096;

/// Converts a foreign error. An error known by its type proves something about the call only if it
/// was met `on_wire`, on the tool service's own connection.
pub(super) fn read(error: BoxError, on_wire: bool) -> ToolError {
    let error = match error.downcast::<ToolError>() {
        Ok(ours) => return *ours,
        Err(other) => other,
    };
    if let Some(ours) = ours_below(&*error) {
        return ours;
    }
    let found = match known_by_type(&*error) {
        Some(known) if says_no_more(&*error) => known,
        known => with_buffer(|text| {
            describe(&*error, text);
            let known = known.or_else(|| (!on_wire && is_of_arguments(&*error)).then(invalid));
            let known = known.or_else(|| ToolError::from_text(text));
            let found =
                known.unwrap_or_else(|| ToolError::new(ErrorKind::Failed, "").into_inferred());
            found.delayed_by_text(text)
        }),
    };
    found.edit(|e| {
        if !on_wire {
            e.infer();
            e.execution = Execution::Unknown;
        }
        e.message = Message::OfSource(OnceLock::new());
        e.source = Source::Own(error);
    })
}

/// Returns whether a JSON value did not fit a type, as after `serde_json::from_value`. Tools read
/// their arguments so; an answer of a server is read from text, and its error has a line.
fn is_of_arguments(error: &(dyn StdError + 'static)) -> bool {
    let unfit = |e: &serde_json::Error| e.is_data() && e.line() == 0;
    links(error).any(|link| link.downcast_ref().is_some_and(unfit))
}

fn invalid() -> ToolError {
    ToolError::made(ErrorKind::InvalidInput, "".into(), |_| {})
}

/// Returns whether a text or a number could not be converted: that says nothing of a tool's health.
pub(crate) fn is_of_a_value(error: &(dyn StdError + 'static)) -> bool {
    links(error).any(|link| {
        link.is::<num::ParseIntError>()
            || link.is::<num::ParseFloatError>()
            || link.is::<num::TryFromIntError>()
            || link.is::<str::ParseBoolError>()
            || link.is::<char::ParseCharError>()
            || link.is::<net::AddrParseError>()
    })
}

/// Returns whether the text of an error says no more than its type: it is the operating system's or
/// tokio's own.
fn says_no_more(error: &(dyn StdError + 'static)) -> bool {
    let io = error.downcast_ref::<io::Error>();
    io.is_some_and(|io| io.get_ref().is_none()) || error.is::<tokio::time::error::Elapsed>()
}

/// Returns the text of an error and its causes.
pub(crate) fn text_of(error: &(dyn StdError + 'static)) -> String {
    let mut text = String::new();
    describe(error, &mut text);
    text
}

/// The message of a foreign error, by the built-in rules. A panic in the error's own code ends
/// here: who asks for a message does not expect one.
pub(super) fn message_of(error: &(dyn StdError + Send + Sync + 'static)) -> String {
    let print = || super::safe(&Rules::default(), &text_of(error));
    let printed = panic::catch_unwind(AssertUnwindSafe(print));
    printed.unwrap_or_else(|payload| {
        forget(payload);
        "the text of this error panicked".to_owned()
    })
}

/// Drops the payload of a panic, which may panic itself.
pub(crate) fn forget(payload: Box<dyn Any + Send>) {
    if let Err(another) = panic::catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        mem::forget(another);
    }
}

/// Returns our own error out of a chain of foreign ones. If the tool added context, the error was
/// one step of several and proves nothing about the others.
fn ours_below(error: &(dyn StdError + 'static)) -> Option<ToolError> {
    let mut bare = true;
    for link in links(error) {
        if let Some(ours) = link.downcast_ref::<ToolError>() {
            let ours = ours.clone();
            return Some(if bare { ours } else { ours.edit(Inner::infer) });
        }
        bare &= known().any(|known| known.is_transparent(link));
    }
    None
}

impl ToolError {
    /// Returns the error that a text means, without a message; `None` if the text is not clear. For
    /// tool services with a protocol in which errors are words.
    ///
    /// It is [inferred](super::Evidence::Inferred): the text proves nothing about the call. Of a
    /// longer text 4 KiB are read.
    pub fn from_text(text: &str) -> Option<Self> {
        let (head, _) = crate::text::prefix(text, MAX_BYTES);
        let (kind, status) = text::classify(head)?;
        Some(Self::made(kind, "".into(), |e| e.status = status).into_inferred())
    }

    /// Takes over the delay that a text [asks for](hint::from_text), if no other is known. Unlike
    /// [`with_retry_after`](Self::with_retry_after) it changes nothing else.
    #[must_use]
    pub fn delayed_by_text(self, text: &str) -> Self {
        if self.retry_after().is_some() {
            return self;
        }
        match hint::from_text(text).and_then(|hint| hint.delay) {
            Some(delay) => self.edit(|e| e.retry_after = Some(delay)),
            None => self,
        }
    }

    /// Replaces the message for developers, redacted and cut as that of [`new`](Self::new).
    #[must_use]
    pub fn with_message(self, message: &str) -> Self {
        let text = super::safe(&self.0.rules, message);
        self.edit(|e| e.message = Message::Text(text.into()))
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

/// Writes the texts of the chain, joined by `: `, without those that are part of the text so far.
fn describe(error: &(dyn StdError + 'static), text: &mut String) {
    for link in links(error) {
        let so_far = text.len();
        if so_far > 0 {
            text.push_str(": ");
        }
        let start = text.len();
        let left = MAX_BYTES.saturating_sub(so_far);
        match known().find_map(|known| known.text(link)) {
            Some(shown) => Bounded::append(text, left, &shown),
            None => Bounded::append(text, left, &link),
        }
        if so_far > 0 && text[..so_far].contains(&text[start..]) {
            text.truncate(so_far);
        }
    }
    *text = links(error).fold(mem::take(text), without_address);
}

/// Converts the first link of an error's chain that has a known type. The result is as strong as if
/// a tool service had met it on its own connection. `None` if no type is known.
///
/// For [`KnownErrors::cause`](super::KnownErrors::cause) of an error that wraps one of another
/// crate. The message may be empty: the caller has the texts of the chain.
pub fn known_by_type(error: &(dyn StdError + 'static)) -> Option<ToolError> {
    let own = |link| from_runtime(link).map(judged);
    let foreign = |link| known().find_map(|known| known.cause(link));
    links(error).find_map(|link| own(link).or_else(|| foreign(link)))
}

pub(crate) type Meaning = (ErrorKind, Execution);

pub(crate) const LOST: Meaning = (ErrorKind::ConnectionFailed, Execution::Unknown);

pub(crate) const NOT_SENT: Meaning = (ErrorKind::ConnectionFailed, Execution::NotStarted);

pub(crate) const LATE: Meaning = (ErrorKind::Timeout, Execution::Unknown);

pub(crate) const BROKEN: Meaning = (ErrorKind::Upstream, Execution::Unknown);

/// An error without a message.
pub(crate) fn judged((kind, execution): Meaning) -> ToolError {
    ToolError::made(kind, "".into(), |e| e.execution = execution)
}

fn from_runtime(error: &(dyn StdError + 'static)) -> Option<Meaning> {
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

fn from_io(kind: io::ErrorKind) -> Option<Meaning> {
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
