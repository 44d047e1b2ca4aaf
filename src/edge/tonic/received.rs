//! A status that came in.

use std::{error::Error as StdError, time::Duration};

use ::tonic::{Code, ConnectError, Status, TimeoutExpired};
use http::{HeaderMap, StatusCode};
use prost::Message as _;
use serde::{
    Deserialize,
    de::{
        IntoDeserializer as _,
        value::{Error, StrDeserializer},
    },
};
use tonic_types::{ErrorInfo, RetryInfo, StatusExt as _, pb};

use super::sent::{DOMAIN, PUSHBACK};
use crate::{
    edge::headers::the_only,
    error::{ErrorKind, Execution, ToolError, recognise::cause_by_type},
    hint::{self, Hint},
};

const NANOS: i128 = 1_000_000_000;

/// Recognises an error of tonic; `None` for an error of another crate. See [the
/// table](crate::tonic#an-error-from-a-status). Whether the tool ran is unknown, as for [every
/// foreign error](crate::error).
pub fn recognise(error: &(dyn StdError + 'static)) -> Option<ToolError> {
    on_wire(error).map(ToolError::into_inferred)
}

/// Recognises an error that a tool service met on its own connection.
pub(crate) fn on_wire(error: &(dyn StdError + 'static)) -> Option<ToolError> {
    if let Some(status) = error.downcast_ref::<Status>() {
        return Some(of_status(status, from_peer));
    }
    let (kind, execution) = if error.is::<ConnectError>() {
        (ErrorKind::ConnectionFailed, Execution::NotStarted)
    } else if error.is::<TimeoutExpired>() {
        (ErrorKind::Timeout, Execution::Unknown)
    } else {
        return None;
    };
    Some(ToolError::new(kind, error.to_string()).with_execution(execution))
}

/// See [the table](crate::tonic#an-error-from-a-status).
impl From<Status> for ToolError {
    fn from(status: Status) -> Self {
        Self::from_box(status.into())
    }
}

/// Returns the text of a status in a chain of errors: tonic's own shows a cause as Rust writes it.
pub(crate) fn shown(error: &(dyn StdError + 'static)) -> Option<String> {
    error.downcast_ref().map(text)
}

/// Returns the reason for which a peer with this crate refused arguments, which is for the model,
/// or else code and message.
fn text(status: &Status) -> String {
    let reason = || info(status)?.metadata.remove("reason");
    let is_of_arguments = status.code() == Code::InvalidArgument;
    let reason = is_of_arguments.then(reason).flatten();
    reason.unwrap_or_else(|| format!("gRPC {:?}: {}", status.code(), status.message()))
}

/// The error of a status from a peer that is trusted, such as a gateway or a mesh of one's own: it
/// is also believed whether the tool ran, and what it says is [the tool service's
/// word](crate::Evidence::Word).
///
/// For tool services only, which get the status as the answer to the call itself. Any other status
/// is read as `From<Status>` does, with nothing of it believed that a
/// [`transport`](crate::transport) does not believe.
///
/// ```
/// use tonic::Status;
/// use tower_toolcall::{ErrorKind, Execution, ToolError, tonic::from_trusted_peer};
///
/// // As it arrives: the details alone cross the wire.
/// let sent = Status::from(ToolError::new(ErrorKind::CircuitOpen, "5 failures in a row"));
/// let arrived =
///     || Status::with_details(sent.code(), sent.message(), sent.details().to_vec().into());
///
/// assert_eq!(from_trusted_peer(arrived()).execution(), Execution::NotStarted);
/// assert_eq!(ToolError::from(arrived()).execution(), Execution::Unknown);
/// ```
pub fn from_trusted_peer(status: Status) -> ToolError {
    match ours(&status) {
        Some(ours) => ours.clone(),
        None => of_status(&status, from_trusted).with_source(status),
    }
}

/// The error that a status of this process was made of.
fn ours(status: &Status) -> Option<&ToolError> {
    status.source()?.downcast_ref()
}

/// Reads the error that a peer with this crate reports.
type ReadInfo = fn(Code, &ErrorInfo, String) -> Option<ToolError>;

/// A status that was made of our own error shares its verdict.
pub(crate) fn is_transparent(error: &(dyn StdError + 'static)) -> bool {
    let source = error.downcast_ref::<Status>().and_then(StdError::source);
    source.is_some_and(|source| source.is::<ToolError>())
}

fn of_status(status: &Status, read: ReadInfo) -> ToolError {
    let message = text(status);
    // What came over the wire has no source; what this side met has one.
    if let Some(cause) = status.source().and_then(cause_by_type) {
        return cause.named(&message);
    }
    let told = info(status).and_then(|info| read(status.code(), &info, message.clone()));
    let error = told.unwrap_or_else(|| foreign(status, message));
    error
        .hinted(delay(status))
        .delayed_by_text(status.message())
}

/// The details of a peer with this crate.
fn info(status: &Status) -> Option<ErrorInfo> {
    let info = status.get_details_error_info();
    info.filter(|info| info.domain == DOMAIN)
}

/// The error of a peer without this crate.
fn foreign(status: &Status, message: String) -> ToolError {
    let error = ToolError::new(by_code(status), message).with_execution(Execution::Unknown);
    let error = match status.code() {
        // What was asked for, not the method: gRPC's own table makes a 404 of it.
        Code::NotFound => error.with_status(StatusCode::NOT_FOUND),
        Code::AlreadyExists => error.with_status(StatusCode::CONFLICT),
        _ => error,
    };
    match pushback(status.metadata().as_ref()) {
        Some(hint) if retry_info(status).is_none() && hint.retry == Some(false) => {
            error.with_retryable(false)
        }
        _ => error,
    }
}

fn by_code(status: &Status) -> ErrorKind {
    match status.code() {
        Code::Cancelled if status.message() == "Timeout expired" => ErrorKind::Timeout,
        // Cancelled on this side, by a client without its connection.
        Code::Cancelled if status.source().is_some() => ErrorKind::ConnectionFailed,
        // It may be the request or the answer.
        Code::ResourceExhausted | Code::OutOfRange if is_about_size(status.message()) => {
            ErrorKind::InvalidInput
        }
        code => ErrorKind::from_grpc_code(code.into()).unwrap_or(ErrorKind::Failed),
    }
}

/// As tonic, grpc-go, grpc-java and the C core say it.
fn is_about_size(message: &str) -> bool {
    let message = message.to_ascii_lowercase();
    [
        "message length too large",
        "message larger than max",
        "message exceeds maximum size",
    ]
    .iter()
    .any(|words| message.contains(words))
}

/// The error as a peer with this crate had it, without whether its tool ran. `None` if it
/// contradicts the status.
fn from_peer(code: Code, info: &ErrorInfo, message: String) -> Option<ToolError> {
    let fact = |key: &str| info.metadata.get(key).map(String::as_str);
    let theirs: ErrorKind = named(fact("kind")?)?;
    if Code::from_i32(theirs.grpc_code()) != code {
        return None;
    }
    // It was met there, not here: this peer has answered.
    let kind = match theirs {
        ErrorKind::Cancelled | ErrorKind::ConnectionFailed => ErrorKind::Upstream,
        kind => kind,
    };
    let mut error = ToolError::new(kind, message).with_execution(Execution::Unknown);
    if kind == ErrorKind::Timeout {
        // As an HTTP server says so.
        error = error.with_status(StatusCode::GATEWAY_TIMEOUT);
    }
    if info.reason != theirs.code() {
        error = error.with_code(info.reason.clone());
    }
    if let Some(retryable) = fact("retryable").and_then(|text| text.parse().ok()) {
        error = error.with_retryable(retryable);
    }
    Some(error)
}

/// The same, with whether its tool ran.
fn from_trusted(code: Code, info: &ErrorInfo, message: String) -> Option<ToolError> {
    let error = from_peer(code, info, message)?;
    let execution = info.metadata.get("execution");
    Some(match execution.and_then(|name| named(name)) {
        Some(execution) => error.with_execution(execution),
        None => error,
    })
}

/// A value that its name stands for.
fn named<'a, T: Deserialize<'a>>(name: &'a str) -> Option<T> {
    let name: StrDeserializer<'a, Error> = name.into_deserializer();
    T::deserialize(name).ok()
}

/// When to come back, if the peer says so.
fn delay(status: &Status) -> Option<Duration> {
    retry_info(status).or_else(|| pushback(status.metadata().as_ref())?.delay)
}

/// The delay of `google.rpc.RetryInfo`; a negative one is over. Not as `tonic-types` reads it: a
/// peer's `i64::MIN` seconds make `prost-types` 0.14 overflow.
fn retry_info(status: &Status) -> Option<Duration> {
    let details = pb::Status::decode(status.details()).ok()?.details;
    let info = details
        .iter()
        .find(|any| any.type_url == RetryInfo::TYPE_URL)?;
    let delay = pb::RetryInfo::decode(&*info.value).ok()?.retry_delay?;
    let nanos = i128::from(delay.seconds) * NANOS + i128::from(delay.nanos);
    let seconds = u64::try_from((nanos / NANOS).max(0)).ok()?;
    let rest = u32::try_from((nanos % NANOS).max(0)).ok()?;
    Some(Duration::new(seconds, rest))
}

/// An unreadable value, or several values, forbid a repeat: as in grpc-go.
fn pushback(headers: &HeaderMap) -> Option<Hint> {
    let is_there = headers.contains_key(PUSHBACK);
    let value = the_only(headers, PUSHBACK).unwrap_or_default();
    is_there.then(|| hint::from_grpc_pushback(value))
}
