//! A status that came in.

use std::{error::Error as StdError, time::Duration};

use ::tonic::{Code, ConnectError, Status, TimeoutExpired};
use http::HeaderMap;
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
    error::{ErrorKind, Execution, ToolError, cause_by_type},
    hint::{self, Hint},
};

const NANOS: i128 = 1_000_000_000;

/// What an error of tonic means; `None` for an error of another crate. See [the table](crate::tonic#an-error-from-a-status).
pub fn recognise(error: &(dyn StdError + 'static)) -> Option<ToolError> {
    if let Some(status) = error.downcast_ref::<Status>() {
        return Some(of_status(status));
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
        let ours = status
            .source()
            .and_then(|source| source.downcast_ref::<Self>());
        match ours {
            Some(ours) => ours.clone(),
            None => of_status(&status).with_source(status),
        }
    }
}

fn of_status(status: &Status) -> ToolError {
    let message = format!("gRPC {:?}: {}", status.code(), status.message());
    // What came over the wire has no source; what this side met has one.
    if let Some(cause) = status.source().and_then(cause_by_type) {
        return ToolError::new(cause.kind(), message).with_execution(cause.execution());
    }
    let info = status.get_details_error_info();
    let ours = info.filter(|info| info.domain == DOMAIN);
    let delay = delay(status);
    match ours.and_then(|info| told_by_peer(status.code(), &info, &message)) {
        Some(error) => error.hinted(delay),
        None => foreign(status, message, delay),
    }
}

/// What a peer without this crate says.
fn foreign(status: &Status, message: String, delay: Option<Duration>) -> ToolError {
    let mut error = by_code(status, message).hinted(delay);
    if delay.is_some() && status.code() == Code::Unavailable {
        error = error.with_execution(Execution::NotStarted);
    }
    match pushback(status.metadata().as_ref()) {
        Some(hint) if delay.is_none() && hint.retry == Some(false) => error.with_retryable(false),
        _ => error,
    }
}

fn by_code(status: &Status, message: String) -> ToolError {
    let code = status.code();
    let kind = match code {
        Code::Cancelled if status.message() == "Timeout expired" => ErrorKind::Timeout,
        // It may be the request or the answer.
        Code::ResourceExhausted | Code::OutOfRange if is_about_size(status.message()) => {
            let error = ToolError::new(ErrorKind::InvalidInput, message);
            return error.with_execution(Execution::Unknown);
        }
        _ => ErrorKind::from_grpc_code(code.into()).unwrap_or(ErrorKind::Failed),
    };
    ToolError::new(kind, message)
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

/// The error as a peer with this crate had it. `None` if it contradicts the status.
fn told_by_peer(code: Code, info: &ErrorInfo, message: &str) -> Option<ToolError> {
    let fact = |key: &str| info.metadata.get(key).map(String::as_str);
    let kind: ErrorKind = named(fact("kind")?)?;
    if Code::from_i32(kind.grpc_code()) != code {
        return None;
    }
    let mut error = ToolError::new(kind, message.to_owned());
    if info.reason != kind.code() {
        error = error.with_code(info.reason.clone());
    }
    if let Some(execution) = fact("execution").and_then(named) {
        error = error.with_execution(execution);
    }
    if let Some(retryable) = fact("retryable").and_then(|text| text.parse().ok()) {
        error = error.with_retryable(retryable);
    }
    if let Some(attempts) = fact("attempts").and_then(|text| text.parse().ok()) {
        error = error.with_attempts(attempts);
    }
    Some(error)
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

/// The delay of `google.rpc.RetryInfo`; a negative one is over. Not as `tonic-types` reads it: a peer's
/// `i64::MIN` seconds make `prost-types` 0.14 overflow.
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

fn pushback(headers: &HeaderMap) -> Option<Hint> {
    the_only(headers, PUSHBACK).map(hint::from_grpc_pushback)
}
