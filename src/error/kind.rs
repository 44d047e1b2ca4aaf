use std::fmt;

use http::StatusCode;
use serde::{Deserialize, Serialize};
use tracing::Level;

use crate::outcome::Count;

/// The knowledge of whether the tool ran, which decides whether a retry is safe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Execution {
    /// The call never reached the tool. Repeating it is always safe.
    NotStarted,
    /// Not known. Repeating the call is safe only for a tool that may run twice.
    Unknown,
    /// The tool ran to its end.
    Completed,
}

/// How an error is known, and so how far other layers may act on it.
///
/// An [inferred](Self::Inferred) error never proves that the tool did not run: it repeats no call
/// that is not declared safe. It starts no shared cooldown, and marks no server as unavailable. A
/// circuit breaker counts it for the call's principal only; calls without a principal share one
/// count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Evidence {
    /// A layer on this side refused the call: it was never sent. See
    /// [`ToolError::refusal`](super::ToolError::refusal).
    Refusal,
    /// The tool or the tool service reported it: it made the [`ToolError`](super::ToolError)
    /// itself, or saw a status or a type of its client's errors on its own connection.
    Reported,
    /// A layer read it from a foreign error, by type or by text, or it is the error of another
    /// call. The tool may have met it in the middle of its work.
    Inferred,
}

/// The kind of a failed tool call. The tables show what follows from it: what
/// the caller may do, how it counts, its code, and the codes of three protocols.
///
/// | kind | [retryable] | [ran] | [breaker] |
/// |---|---|---|---|
/// | `Timeout` | yes | unknown | failure |
/// | `DeadlineExceeded` | no | no | neutral |
/// | `RateLimited` | yes | no | neutral |
/// | `CircuitOpen` | later | no | neutral |
/// | `Overloaded` | yes | no | neutral |
/// | `ConnectionFailed` | yes | unknown or no | failure |
/// | `Upstream` | yes | unknown | failure |
/// | `Denied` | no | no | neutral |
/// | `NotFound` | no | no | neutral |
/// | `InvalidInput` | no | no | neutral |
/// | `Failed` | no | unknown | of the tool |
/// | `Reported` | no | yes | neutral |
/// | `Cancelled` | no | unknown | neutral |
/// | `TokenExchange` | as its cause | no | neutral |
/// | `PollTimeout` | yes, same call | unknown | neutral |
/// | `Panicked`, `Internal` | no | unknown | failure |
///
/// | kind | [code] | JSON-RPC | HTTP | gRPC |
/// |---|---|---|---|---|
/// | `Timeout` | `TOOL_TIMEOUT` | -32000 | 504 | 4 |
/// | `DeadlineExceeded` | `TOOL_DEADLINE_EXCEEDED` | -32000 | 504 | 4 |
/// | `RateLimited` | `RATE_LIMITED` | -32603 | 429 | 8 |
/// | `CircuitOpen` | `CIRCUIT_OPEN` | -32001 | 503 | 14 |
/// | `Overloaded` | `OVERLOADED` | -32603 | 503 | 14 |
/// | `ConnectionFailed` | `CONNECTION_FAILED` | -32603 | 502 | 14 |
/// | `Upstream` | `UPSTREAM_ERROR` | -32603 | 502 | 14 |
/// | `Denied` | `TOOL_UNAVAILABLE` | -32603 | 403 | 7 |
/// | `NotFound` | `TOOL_NOT_FOUND` | -32602 | 404 | 5 |
/// | `InvalidInput` | `TOOL_INVALID_INPUT` | -32602 | 400 | 3 |
/// | `Failed` | `TOOL_EXECUTION_FAILED` | -32603 | 502 | 2 |
/// | `Reported` | `TOOL_EXECUTION_FAILED` | -32603 | 502 | 2 |
/// | `Cancelled` | `CANCELLED` | -32603 | 499 | 1 |
/// | `TokenExchange` | `TOKEN_EXCHANGE_FAILED` | -32603 | 502 | 14 |
/// | `PollTimeout` | `POLL_TIMEOUT` | -32603 | 504 | 4 |
/// | `Panicked`, `Internal` | `INTERNAL_ERROR` | -32603 | 500 | 13 |
///
/// [code]: Self::code
/// [retryable]: Self::is_retryable
/// [ran]: Self::execution
/// [breaker]: Self::count
///
/// The JSON-RPC numbers are for JSON-RPC gateways. To MCP peers -32000 and -32001 mean
/// ConnectionClosed and RequestTimeout: an MCP server answers with `isError` results instead.
///
/// The code `TOOL_TIMEOUT` is not the environment variable of that name, which sets how long tools
/// may take.
///
/// Retryable is advice to the caller: the same call may succeed later. An error of a call marked
/// unsafe that may have run [is not retryable](super::ToolError::is_retryable), whatever its kind.
/// Recoverable means that the agent can go on without the tool's answer: all but `NotFound`,
/// `Cancelled` and `Internal`. An error of kind `NotFound` that has an upstream's status is about
/// what the tool looked for, not about the tool: it [is
/// recoverable](super::ToolError::is_recoverable).
///
/// The column "ran" holds for errors that this crate, the tool or the tool service made. An
/// error that was [inferred](Evidence::Inferred) never proves that the tool did not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ErrorKind {
    /// The call was started and did not end in time.
    Timeout,
    /// The time budget was spent before the call could start. It did not run.
    DeadlineExceeded,
    /// The server, or a limit in front of it, asks the caller to wait.
    RateLimited,
    /// A circuit breaker refused the call.
    CircuitOpen,
    /// A limiter or load shedder refused the call.
    Overloaded,
    /// The server could not be reached, or the connection was lost.
    ConnectionFailed,
    /// The server failed: HTTP 5xx and the like.
    Upstream,
    /// Not allowed: HTTP 401, 403 and the like.
    Denied,
    /// The tool does not exist.
    NotFound,
    /// The arguments are wrong: HTTP 400, 422, a failed validation.
    InvalidInput,
    /// The tool failed in a way that no other kind describes.
    Failed,
    /// The tool ran and reported an error (`isError`), or its result did not pass a check.
    Reported,
    /// The caller gave up: its token fired, or it dropped the call. What a peer calls a
    /// cancellation is [`Upstream`](Self::Upstream).
    Cancelled,
    /// No token for the tool could be had.
    TokenExchange,
    /// A long job did not end within its polls or its time. It may still run: the same call goes on
    /// waiting for it ([`ToolError::job`](super::ToolError::job)).
    PollTimeout,
    /// The tool panicked.
    Panicked,
    /// A defect on our side.
    Internal,
}

struct Row {
    code: &'static str,
    error_type: &'static str,
    retryable: bool,
    execution: Execution,
    count: Count,
    level: Level,
    json_rpc: i32,
    http: u16,
    grpc: i32,
}

/// In the order of the kinds.
#[rustfmt::skip]
const ROWS: [(ErrorKind, Row); 17] = {
    use Count::{Failure, Neutral, ToolFailure};
    use ErrorKind as K;
    use Execution::{Completed, NotStarted, Unknown};
    const INFO: Level = Level::INFO;
    const WARN: Level = Level::WARN;
    const ERROR: Level = Level::ERROR;
    const fn r(kind: K, code: &'static str, error_type: &'static str, retryable: bool, execution: Execution, (count, level): (Count, Level), (json_rpc, http, grpc): (i32, u16, i32)) -> (K, Row) {
        (kind, Row { code, error_type, retryable, execution, count, level, json_rpc, http, grpc })
    }
    [
        r(K::Timeout,          "TOOL_TIMEOUT",           "timeout",           true,  Unknown,    (Failure, WARN),      (-32000, 504, 4)),
        r(K::DeadlineExceeded, "TOOL_DEADLINE_EXCEEDED", "deadline_exceeded", false, NotStarted, (Neutral, WARN),      (-32000, 504, 4)),
        r(K::RateLimited,      "RATE_LIMITED",           "rate_limited",      true,  NotStarted, (Neutral, WARN),      (-32603, 429, 8)),
        r(K::CircuitOpen,      "CIRCUIT_OPEN",           "circuit_open",      true,  NotStarted, (Neutral, INFO),      (-32001, 503, 14)),
        r(K::Overloaded,       "OVERLOADED",             "overloaded",        true,  NotStarted, (Neutral, WARN),      (-32603, 503, 14)),
        r(K::ConnectionFailed, "CONNECTION_FAILED",      "connection_failed", true,  Unknown,    (Failure, ERROR),     (-32603, 502, 14)),
        r(K::Upstream,         "UPSTREAM_ERROR",         "upstream",          true,  Unknown,    (Failure, ERROR),     (-32603, 502, 14)),
        r(K::Denied,           "TOOL_UNAVAILABLE",       "denied",            false, NotStarted, (Neutral, INFO),      (-32603, 403, 7)),
        r(K::NotFound,         "TOOL_NOT_FOUND",         "not_found",         false, NotStarted, (Neutral, INFO),      (-32602, 404, 5)),
        r(K::InvalidInput,     "TOOL_INVALID_INPUT",     "invalid_arguments", false, NotStarted, (Neutral, INFO),      (-32602, 400, 3)),
        r(K::Failed,           "TOOL_EXECUTION_FAILED",  "failed",            false, Unknown,    (ToolFailure, ERROR), (-32603, 502, 2)),
        r(K::Reported,         "TOOL_EXECUTION_FAILED",  "tool_error",        false, Completed,  (Neutral, WARN),      (-32603, 502, 2)),
        r(K::Cancelled,        "CANCELLED",              "cancelled",         false, Unknown,    (Neutral, INFO),      (-32603, 499, 1)),
        r(K::TokenExchange,    "TOKEN_EXCHANGE_FAILED",  "token_exchange",    false, NotStarted, (Neutral, ERROR),     (-32603, 502, 14)),
        r(K::PollTimeout,      "POLL_TIMEOUT",           "poll_timeout",      true,  Unknown,    (Neutral, WARN),      (-32603, 504, 4)),
        r(K::Panicked,         "INTERNAL_ERROR",         "panicked",          false, Unknown,    (Failure, ERROR),     (-32603, 500, 13)),
        r(K::Internal,         "INTERNAL_ERROR",         "internal",          false, Unknown,    (Failure, ERROR),     (-32603, 500, 13)),
    ]
};

const fn row(kind: ErrorKind) -> &'static Row {
    &ROWS[kind as usize].1
}

impl ErrorKind {
    /// Every kind, in the table's order.
    pub const ALL: &'static [Self] = &{
        let mut all = [Self::Timeout; ROWS.len()];
        let mut at = 0;
        while at < all.len() {
            all[at] = ROWS[at].0;
            assert!(all[at] as usize == at);
            at += 1;
        }
        all
    };

    /// Returns the stable code, as results and logs carry it.
    pub const fn code(self) -> &'static str {
        row(self).code
    }

    /// Returns whether the same call may succeed later. Advice to the caller.
    pub const fn is_retryable(self) -> bool {
        row(self).retryable
    }

    /// Returns whether the agent can go on without this tool's answer.
    pub const fn is_recoverable(self) -> bool {
        !matches!(self, Self::NotFound | Self::Cancelled | Self::Internal)
    }

    /// Returns what the kind alone proves about whether the tool ran.
    pub const fn execution(self) -> Execution {
        row(self).execution
    }

    /// Returns how a circuit breaker counts it.
    pub const fn count(self) -> Count {
        row(self).count
    }

    /// The level of the event of a call that ended with such an error.
    pub(crate) const fn level(self) -> Level {
        row(self).level
    }

    /// Returns the code of a JSON-RPC error object; see the [type](Self) for who may send it.
    pub const fn json_rpc_code(self) -> i32 {
        row(self).json_rpc
    }

    /// Returns the HTTP status for a plain endpoint. 499 is nginx's "client closed request".
    pub fn http_status(self) -> StatusCode {
        StatusCode::from_u16(row(self).http).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    /// Returns the gRPC status code, as a number.
    pub const fn grpc_code(self) -> i32 {
        row(self).grpc
    }

    /// Returns the kind of a peer's HTTP status, or `None` if the status is not an error.
    ///
    /// 400 and 422 are wrong input, and so are the other statuses that reject what was sent (413,
    /// 414, 415); 401, 403, 407 and 451 are denials; 404 and 410 mean not found; 408 is a timeout;
    /// 429 is a rate limit; 5xx is the server's failure, and so is 499, because this side did not
    /// ask for that cancellation. Any other 3xx and 4xx is [`Self::Failed`].
    ///
    /// The rest of an answer may say that a 403 is a rate limit: see `ToolError::from_http`
    /// (feature `hints`).
    pub const fn from_http_status(status: u16) -> Option<Self> {
        Some(match status {
            400 | 413 | 414 | 415 | 422 => Self::InvalidInput,
            401 | 403 | 407 | 451 => Self::Denied,
            404 | 410 => Self::NotFound,
            408 => Self::Timeout,
            429 => Self::RateLimited,
            499..=599 => Self::Upstream,
            300..=498 => Self::Failed,
            _ => return None,
        })
    }

    /// Returns the kind of a peer's gRPC status code, or `None` for `OK` and unknown numbers.
    ///
    /// `CANCELLED` is the peer's failure, because a caller that cancels does not wait for the
    /// answer.
    pub const fn from_grpc_code(code: i32) -> Option<Self> {
        Some(match code {
            3 | 9 | 11 => Self::InvalidInput,
            4 => Self::Timeout,
            5 | 12 => Self::NotFound,
            7 | 16 => Self::Denied,
            8 => Self::RateLimited,
            1 | 13..=15 => Self::Upstream,
            2 | 6 | 10 => Self::Failed,
            _ => return None,
        })
    }

    /// Returns the low-cardinality value of OpenTelemetry's `error.type`.
    pub const fn error_type(self) -> &'static str {
        row(self).error_type
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}
