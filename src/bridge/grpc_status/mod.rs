//! gRPC, with [tonic](https://docs.rs/tonic): an error as a status and back, and the metadata of
//! requests.
//!
//! `cargo run -p example-servers --bin tonic_server` in the repository is a whole program with its
//! message types, without `protoc`.
//!
//! A method runs the stack and lets `?` make a
//! [`Status`](https://docs.rs/tonic/latest/tonic/struct.Status.html) of its error:
//!
//! ```
//! use tonic::{Request, Response, Status};
//! use tower::{Service, ServiceExt};
//! use tower_toolcall::{ToolCall, ToolError};
//!
//! /// A method of a service; `stack` is a clone that shares state with the others.
//! async fn call<S>(stack: S, request: Request<String>) -> Result<Response<String>, Status>
//! where
//!     S: Service<ToolCall, Response = String, Error = ToolError>,
//! {
//!     let call = ToolCall::new("search").with_grpc_metadata(request.metadata());
//!     let call = call.with_json_str(request.get_ref())?;
//!     call.check()?;
//!     let info = call.info();
//!     let answer = stack.oneshot(call).await.map_err(|error| error.for_call(&info))?;
//!     Ok(Response::new(answer))
//! }
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let limited = tower::service_fn(|_| async {
//!     let error = ToolError::from_box("429 Too Many Requests".into());
//!     Err(error.with_retry_after(std::time::Duration::from_secs(2)))
//! });
//! let status = call(limited, Request::new("{}".into())).await.unwrap_err();
//! assert_eq!(status.code(), tonic::Code::ResourceExhausted);
//! assert_eq!(status.metadata().get("grpc-retry-pushback-ms").unwrap(), "2000");
//! # }
//! ```
//!
//! Limits belong into the stack, not into tonic's own layers, which do not know these errors: a
//! `Server::timeout` answers `CANCELLED`, and a `TimeoutLayer` of tower's answers `INTERNAL`.
//! tonic's server also enforces `grpc-timeout` by itself, with `CANCELLED`. With
//! [`with_grpc_deadline`](crate::ToolCall::with_grpc_deadline) it is the call's deadline too, and a
//! [`DeadlineLayer`](crate::deadline) ends the call earlier by its reserve, so that the stack's own
//! answer is there first. The reserve is a tenth of a short `grpc-timeout`: below 100 ms that is
//! less than 10 ms, and tonic's answer may be first. Without it no deadline is taken. Its argument
//! says whether the client is trusted, because a circuit breaker ignores deadlines of untrusted
//! callers.
//!
//! The names of tools and servers in a request are the client's: resolve them by an [identity
//! layer](crate::identity).
//!
//! [`with_request_extensions`](crate::ToolCall::with_request_extensions) sets the principal of a
//! call: it takes the [`VerifiedCaller`](crate::VerifiedCaller) that an interceptor has put into
//! the request's extensions. If there is none, set the peer's address as the session id, as [not
//! verified](crate::ToolCall::with_unverified_ids).
//!
//! # A status from an error
//!
//! - **code**: the [kind's](crate::ErrorKind::grpc_code)
//! - **message**: the [user's](crate::ToolError::user_message), never the one for developers
//! - `google.rpc.ErrorInfo` in the details: reason: the code; domain: [`DOMAIN`]; `kind`,
//!   `execution`, and of [the facts over HTTP](crate::ToolError::to_http) those that have no other
//!   place here
//! - `google.rpc.RetryInfo` in the details: the delay, where one is known
//! - `grpc-retry-pushback-ms` in the metadata: the same in milliseconds, rounded up; `-1`, do not
//!   repeat, if that is more than the 32 bits which gRPC has for it
//! - `source()`: the error; it stays in the process
//!
//! # Errors, cancellation
//!
//! These conversions never fail, whatever a peer writes. But tonic's own client (0.14) panics if
//! `grpc-status-details-bin` is not base64: put a [`CatchPanicLayer`](crate::catch_panic) around
//! tools that call untrusted peers.
//!
//! If a client cancels or disconnects, its method's future is dropped, and with it the call.
//!
//! # Details
//!
//! ## An error from a status
//!
//! For tools that speak gRPC. `From` and the search through source chains ([`recognise`]) convert:
//!
//! - **made from a [`ToolError`](crate::ToolError) in this process**: the same error
//! - **made from an error by a peer that uses this crate**: that kind and its code; its `Cancelled`
//!   is `Upstream`
//! - **with a cause met on this side: no connection, an `io::Error`, a timeout**: the cause's
//! - `CANCELLED`, "Timeout expired", which is tonic's timeout: `Timeout`
//! - `CANCELLED` with a cause met on this side: the connection is gone: `ConnectionFailed`
//! - `CANCELLED` of the peer's: `Upstream`: this side did not ask for it
//! - `RESOURCE_EXHAUSTED`, `OUT_OF_RANGE` for a message that is too large: `InvalidInput`
//! - **any other**: [by its code](crate::ErrorKind::from_grpc_code); `NOT_FOUND` has the status
//!   404, as the tool is there
//!
//! Whether the tool ran is unknown, whatever the code and the delay. A tool may have met the status
//! in the middle of its work, and a server may answer `RESOURCE_EXHAUSTED` or `UNAVAILABLE` after
//! its own work. Two wrappers of the tool service prove more:
//!
//! - No connection was made
//!   ([`ConnectError`](https://docs.rs/tonic/latest/tonic/struct.ConnectError.html)): not started
//!   with `transport`, not started with [`from_trusted_peer`].
//! - The peer refused the stream (HTTP/2 `REFUSED_STREAM`): not started with `transport`, not
//!   started with [`from_trusted_peer`].
//! - With `execution` in an `ErrorInfo` of [`DOMAIN`]: unknown with `transport`, as it says with
//!   [`from_trusted_peer`].
//! - Any other: unknown with `transport`, unknown with [`from_trusted_peer`].
//!
//! The delay is `RetryInfo`'s, or else `grpc-retry-pushback-ms`, or else that of the message. A
//! pushback that forbids the repeat (a negative or unreadable value, or several of them) makes the
//! error not retryable, unless `RetryInfo` names a delay. What a peer writes into them is a value
//! or nothing.

use std::{collections::HashMap, error::Error as StdError, sync::Arc, time::Duration};

use ::tonic::{Code, ConnectError, Status, TimeoutExpired, metadata::MetadataMap};
use http::{HeaderMap, StatusCode};
use prost::Message as _;
use serde::{
    Deserialize,
    de::{
        IntoDeserializer as _,
        value::{Error, StrDeserializer},
    },
};
use serde_json::{Value, json};
use tokio::time::Instant;
use tonic_types::{ErrorDetails, ErrorInfo, RetryInfo, StatusExt as _, pb};

use super::headers::{digits, the_only};
use crate::{
    call::{CallExt, ToolCall, Trust},
    error::{ErrorKind, Execution, KnownErrors, ToolError, known_by_type},
    hint::{self, Hint},
};

const NANOS: i128 = 1_000_000_000;

/// Recognises an error of tonic; `None` for an error of another crate. See [the
/// table](crate::grpc_status#an-error-from-a-status). Whether the tool ran is unknown, as for
/// [every foreign error](crate::error).
pub fn recognise(error: &(dyn StdError + 'static)) -> Option<ToolError> {
    on_wire(error).map(ToolError::into_inferred)
}

/// Recognises an error that a tool service met on its own connection.
fn on_wire(error: &(dyn StdError + 'static)) -> Option<ToolError> {
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

/// See [the table](crate::grpc_status#an-error-from-a-status).
impl From<Status> for ToolError {
    fn from(status: Status) -> Self {
        Self::from_box(status.into())
    }
}

pub(crate) struct Errors;

impl KnownErrors for Errors {
    fn cause(&self, error: &(dyn StdError + 'static)) -> Option<ToolError> {
        on_wire(error)
    }

    /// Returns whether the status was made from our own error, so that this error decides.
    fn is_transparent(&self, error: &(dyn StdError + 'static)) -> bool {
        let source = error.downcast_ref::<Status>().and_then(StdError::source);
        source.is_some_and(|source| source.is::<ToolError>())
    }

    /// Returns the text of a status in a chain of errors: tonic's own shows a cause as Rust writes
    /// it.
    fn text(&self, error: &(dyn StdError + 'static)) -> Option<String> {
        error.downcast_ref().map(text)
    }
}

/// Returns the reason for which a peer with this crate refused arguments, which is for the model,
/// or else code and message.
fn text(status: &Status) -> String {
    let reason = || info(status)?.metadata.remove("reason");
    let is_of_arguments = status.code() == Code::InvalidArgument;
    let reason = is_of_arguments.then(reason).flatten();
    reason.unwrap_or_else(|| format!("gRPC {:?}: {}", status.code(), status.message()))
}

/// Returns the error of a status from a peer that is trusted, such as a gateway or your own mesh:
/// it is also believed whether the tool ran, and its error is
/// [reported](crate::Evidence::Reported).
///
/// For tool services only, which get the status as the answer to the call itself. Any other status
/// is read as `From<Status>` does, with nothing of it believed that a
/// [`transport`](crate::transport) does not believe.
///
/// ```
/// use tonic::Status;
/// use tower_toolcall::{ErrorKind, Execution, ToolError, grpc_status::from_trusted_peer};
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

fn of_status(status: &Status, read: ReadInfo) -> ToolError {
    let message = text(status);
    // A status from the connection has no source; an error met on this side has one.
    if let Some(cause) = status.source().and_then(known_by_type) {
        return cause.with_message(&message);
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
    let too_large = [
        "length too large",
        "larger than max",
        "exceeds maximum size",
    ];
    let mut texts = too_large
        .map(|words| format!("message {words}"))
        .into_iter();
    texts.any(|text| message.contains(&text))
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

/// Converts the status of a trusted peer, with its claim of whether the tool ran.
fn from_trusted(code: Code, info: &ErrorInfo, message: String) -> Option<ToolError> {
    let error = from_peer(code, info, message)?;
    let execution = info.metadata.get("execution");
    Some(match execution.and_then(|name| named(name)) {
        Some(execution) => error.with_execution(execution),
        None => error,
    })
}

/// Returns the value of a name.
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

/// Returns how long the client waits, as the request's `grpc-timeout` has it: at most eight digits
/// and a unit.
///
/// ```
/// use std::time::Duration;
/// use tonic::metadata::MetadataMap;
///
/// let mut metadata = MetadataMap::new();
/// metadata.insert("grpc-timeout", "1500m".parse()?);
/// assert_eq!(tower_toolcall::grpc_status::timeout(&metadata), Some(Duration::from_millis(1500)));
/// # Ok::<_, tower_toolcall::BoxError>(())
/// ```
pub fn timeout(metadata: &MetadataMap) -> Option<Duration> {
    let value = the_only(metadata.as_ref(), "grpc-timeout")?;
    let (unit, number) = (value.chars().next_back()?, value.get(..value.len() - 1)?);
    let n = Some(number).filter(|n| n.len() <= 8).and_then(digits)?;
    Some(match unit {
        'H' => Duration::from_secs(n * 3600),
        'M' => Duration::from_secs(n * 60),
        'S' => Duration::from_secs(n),
        'm' => Duration::from_millis(n),
        'u' => Duration::from_micros(n),
        'n' => Duration::from_nanos(n),
        _ => return None,
    })
}

impl ToolCall {
    /// Takes up what the metadata of a gRPC request says of the call: what
    /// [`with_request_headers`](Self::with_request_headers) does, so no deadline.
    pub fn with_grpc_metadata(self, metadata: &MetadataMap) -> Self {
        self.with_request_headers(metadata.as_ref())
    }

    /// Takes up how long the client waits: `grpc-timeout` becomes the call's deadline, if that is
    /// earlier than the one it has, and what [`with_request_deadline`](Self::with_request_deadline)
    /// reads, which says what `trust` means.
    pub fn with_grpc_deadline(self, metadata: &MetadataMap, trust: Trust) -> Self {
        let mut call = self.with_request_deadline(metadata.as_ref(), trust);
        if let Some(at) = timeout(metadata).and_then(|t| Instant::now().checked_add(t)) {
            call.tighten_remote(at, trust);
        }
        call
    }
}

/// The domain of the `google.rpc.ErrorInfo` that this crate writes.
pub const DOMAIN: &str = "tower-toolcall";

const PUSHBACK: &str = "grpc-retry-pushback-ms";

/// See [the table](crate::grpc_status#a-status-from-an-error).
impl From<ToolError> for Status {
    fn from(error: ToolError) -> Self {
        let mut details = ErrorDetails::new();
        details.set_error_info(error.code(), DOMAIN, facts(&error));
        let mut metadata = MetadataMap::new();
        if let Some(delay) = error.retry_after() {
            details.set_retry_info(Some(delay));
            metadata.insert(PUSHBACK, pushback_of(delay).into());
        }
        let mut status = Self::with_error_details_and_metadata(
            Code::from_i32(error.kind().grpc_code()),
            error.public_message(),
            details,
            metadata,
        );
        status.set_source(Arc::new(error));
        status
    }
}

/// A signed number of 32 bits: a longer delay cannot be expressed, so it forbids the repeat.
fn pushback_of(delay: Duration) -> i32 {
    i32::try_from(delay.as_nanos().div_ceil(1_000_000)).unwrap_or(-1)
}

/// The facts that the receiver may know, as text, except what has a place of its own.
fn facts(error: &ToolError) -> HashMap<String, String> {
    let mut facts = error.public_body();
    for elsewhere in ["code", "message", "retry_after_seconds"] {
        facts.remove(elsewhere);
    }
    facts.insert("kind".to_owned(), json!(error.kind()));
    let text = |value| match value {
        Value::Null => None,
        Value::String(text) => Some(text),
        other => Some(other.to_string()),
    };
    let facts = facts.into_iter();
    facts
        .filter_map(|(key, value)| Some((key, text(value)?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rule 8: a value, or nothing.
    #[test]
    fn a_timeout_is_eight_digits_and_a_unit() {
        for (value, nanos) in [
            ("1H", Some(3_600_000_000_000)),
            ("2M", Some(120_000_000_000)),
            ("3S", Some(3_000_000_000)),
            ("4m", Some(4_000_000)),
            ("5u", Some(5_000)),
            ("6n", Some(6)),
            ("0S", Some(0)),
            ("99999999H", Some(359_999_996_400_000_000_000)),
            ("100000000n", None),
            ("1s", None),
            ("1", None),
            ("S", None),
            ("", None),
            ("-1S", None),
            ("+1S", None),
            ("1.5S", None),
            ("1 S", None),
        ] {
            let mut metadata = MetadataMap::new();
            metadata.insert("grpc-timeout", value.parse().unwrap());
            assert_eq!(timeout(&metadata).map(|d| d.as_nanos()), nanos, "{value}");
        }
    }
}
