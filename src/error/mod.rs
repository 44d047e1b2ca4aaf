//! The one error type, and how other errors become it.
//!
//! Every layer of this crate has `Error = ToolError` and takes any inner service with an error that
//! converts into it. A tool function returns [`AnyError`], where `?` and `"text".into()` work;
//! [`ToolError`], [`BoxError`] and, with the feature `anyhow`, `anyhow::Error` convert as well.
//!
//! The conversion walks the source chain and looks for our own error first. Then it looks for
//! errors known by type: tower's, tokio's, [`std::io::Error`], those of the enabled features
//! (hyper's, reqwest's, tonic's), and those that a tool service's crate has [registered](register).
//! It reads the text only as a last resort. An HTTP status of your own becomes an error by
//! [`ToolError::from_status`]. An error that cannot be classified is [`ErrorKind::Failed`].
//!
//! An error of `serde_json` for a *value* that does not fit a type (`from_value`) is
//! [`ErrorKind::InvalidInput`], because tools read their arguments so. An error of the standard
//! library for a text or a number that cannot be converted (`ParseIntError`) stays `Failed`, but no
//! breaker counts it. [`ToolCall::arguments_as`](crate::ToolCall::arguments_as) is better than
//! both: it names the field.
//!
//! # Which error type?
//!
//! A function that is a tool returns [`AnyError`]; if tower's own layers wrap it directly,
//! [`BoxError`], because they require a [`std::error::Error`]. A tool service that knows statuses,
//! delays and whether its request was sent returns its own error type:
//!
//! # Your own error type
//!
//! ```
//! use std::{fmt, io, time::Duration};
//! use tower_toolcall::{ErrorKind, Execution, ToolError};
//!
//! #[derive(Debug)]
//! enum ApiError {
//!     Connection(io::Error), // or your HTTP client's error
//!     Status { status: http::StatusCode, retry_after: Option<Duration> },
//!     NoSuchCity(String),
//! }
//!
//! impl From<ApiError> for ToolError {
//!     fn from(error: ApiError) -> Self {
//!         let text = error.to_string();
//!         match error {
//!             // Was it sent? Read from the error's type.
//!             ApiError::Connection(_) => ToolError::from_transport(error),
//!             ApiError::Status { status, retry_after } => {
//!                 let new = ToolError::from_status(status, text).with_source(error);
//!                 match retry_after {
//!                     Some(delay) => new.with_retry_after(delay),
//!                     None => new,
//!                 }
//!             }
//!             // The model's mistake: no breaker counts it. By its kind it would count as not
//!             // started; here the API has judged it.
//!             ApiError::NoSuchCity(_) => ToolError::new(ErrorKind::InvalidInput, text)
//!                 .with_execution(Execution::Completed),
//!         }
//!     }
//! }
//!
//! impl fmt::Display for ApiError {
//!     fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
//!         write!(f, "{self:?}")
//!     }
//! }
//!
//! impl std::error::Error for ApiError {
//!     fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
//!         match self {
//!             Self::Connection(error) => Some(error),
//!             _ => None,
//!         }
//!     }
//! }
//! # let refused = ToolError::from(ApiError::Connection(io::ErrorKind::ConnectionRefused.into()));
//! # assert_eq!(refused.execution(), Execution::NotStarted);
//! ```
//!
//! By [`with_source`](ToolError::with_source) a [classifier](crate::outcome) finds it again.
//!
//! # Details
//!
//! ## What an error proves
//!
//! The type or the text of a foreign error chooses the [kind](ErrorKind), the status and the delay.
//! The result is [inferred](Evidence::Inferred), and whether the tool ran is
//! [unknown](Execution::Unknown): a tool that fails with "connection refused" may have done its
//! work before. Only these prove that a tool did not run:
//!
//! - the refusal of a layer on this side: [`ToolError::refusal`]; tower's `Overloaded` through a
//!   [`NormalizeLayer`](crate::normalize::NormalizeLayer) (`Refusal`)
//! - of a tool service that is a transport, known by its type: [`transport`](crate::transport),
//!   [`ToolError::from_transport`] (`Reported`)
//! - made by the tool or the tool service: [`ToolError::new`], [`ToolError::from_status`],
//!   [`ToolError::with_execution`] (`Reported`)
//!
//! Our own error is unchanged if the tool returns it directly. If the tool wraps it in context of
//! its own, it describes one step of the tool's work. Its kind is kept, but it proves nothing about
//! the other steps.
//!
//! Lost connections of reqwest are known by type with the feature `reqwest`, those of hyper and
//! hyper-util with `hyper`. Without the feature they are inferred.
//!
//! An error does not say that a call may run twice. To allow that, use
//! [`ToolCall::with_replay_safety`](crate::ToolCall::with_replay_safety),
//! [`RetryPolicy::with_replay_safety`](crate::retry::RetryPolicy::with_replay_safety),
//! [`RetryPolicy::assume_replay_safe`](crate::retry::RetryPolicy::assume_replay_safe), or the
//! annotations of a trusted MCP server's `Catalog`.
//!
//! ## Other systems' codes
//!
//! - `TOOL_TIMEOUT`: `TOOL_EXECUTION_FAILED` (an agent loop's timeouts), `upstream_timeout` (an
//!   HTTP tool proxy)
//! - `CONNECTION_FAILED`: `MCP_CONNECTION_ERROR` (a TypeScript executor),
//!   `upstream_connection_error`
//! - `TOOL_EXECUTION_FAILED`: `TOOL_FAILED` (a TypeScript executor)
//! - `TOOL_INVALID_INPUT`: `validation_error`
//! - `TOKEN_EXCHANGE_FAILED`: `token_exchange_failed`
//! - `CIRCUIT_OPEN`: `circuit_open`
//! - `POLL_TIMEOUT`: `poll_timeout`
//! - `INTERNAL_ERROR`: `internal_error`
//!
//! Refusals of layers have further codes of their own: [`APPROVAL_UNANSWERED`], [`APPROVAL_FAILED`]
//! and [`APPROVAL_MISSING`] of [`policy`](crate::policy), [`QUOTA_IMPOSSIBLE`] of
//! [`quota`](crate::quota), [`TOOL_REPEATED`](crate::repeat_guard::TOOL_REPEATED) of the guard,
//! [`TOOL_KEY_REUSED`](crate::once::TOOL_KEY_REUSED) of `once`.
//!
//! [`ToolError::with_code`] sets a code on one error, [`NormalizeLayer::with_codes`] on all that
//! pass.
//!
//! [`NormalizeLayer::with_codes`]: crate::normalize::NormalizeLayer::with_codes

// First, so that the page of the type begins with its constructors.
mod tool_error;

mod any;
pub(crate) mod code;
#[cfg(feature = "hints")]
mod from_http;
mod inner;
mod kind;
mod known;
mod message;
mod outage;
pub(crate) mod recognise;
mod response;
mod text;
mod wire;
mod with;

// Last, so that the page of the type ends with what only layers need.
mod for_call;

use std::error::Error as StdError;

use serde::{Deserialize, Serialize};

pub use self::{
    any::AnyError,
    code::{APPROVAL_FAILED, APPROVAL_MISSING, APPROVAL_UNANSWERED, OAUTH_ERROR, QUOTA_IMPOSSIBLE},
    kind::{ErrorKind, Evidence, Execution},
    known::{KnownErrors, register, without_address},
    outage::Outage,
    recognise::known_by_type,
    tool_error::ToolError,
};
pub(crate) use self::{inner::NORMALIZE, known::is_refusal, message::Words};
use self::{
    inner::{Inner, Message, Source, TimeoutData},
    tool_error::safe,
};

/// Any error, as tower and most tool functions have it.
pub type BoxError = Box<dyn StdError + Send + Sync>;

/// The longest developer message and the longest upstream body that an error keeps, in characters;
/// a mark follows where something was cut.
pub const MAX_TEXT: usize = 500;

/// Which limit ended a call that timed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum TimeoutLimit {
    /// The timeout of one attempt.
    Timeout,
    /// The deadline of the whole call, or of what it is part of.
    Deadline,
    /// The idle timeout: no progress was reported for so long.
    Idle,
    /// A deadline of an untrusted caller that was shorter than the tool's own timeout. Circuit
    /// breakers and health registries do not count it.
    Caller,
}

#[cfg(test)]
mod tests;
