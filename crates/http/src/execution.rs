//! How a call ended, in the words of an executor of HTTP tools.

use std::{error::Error as StdError, fmt, time::Duration};

use http::StatusCode;
use serde::Serialize;
use serde_json::{Map, Value};
#[cfg(feature = "axum")]
use tower_toolcall::call::CallInfo;
use tower_toolcall::{ErrorKind, ToolError, error, result::ToolResult};

use super::HttpAnswer;
#[cfg(feature = "axum")]
use super::answer::{KeptHeaders, to_json};

/// The status of the last answer to a call, of a job's polls the last 2xx, which an HTTP tool
/// leaves on the call's [record](tower_toolcall::Record::extension), for
/// [`TraceHooks`](tower_toolcall::trace::TraceHooks) and other observers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpstreamStatus(pub StatusCode);

/// The answer for an agent to a call that an upstream has answered in any way, or that has a
/// running job.
///
/// ```
/// use tower::{ServiceBuilder, ServiceExt};
/// use tower_toolcall::{ServiceBuilderExt, ToolCall};
/// use tower_toolcall_http::{ExecutionResult, HttpTool};
/// # use http_body_util::Full;
/// # use bytes::Bytes;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tower_toolcall::BoxError> {
/// # let client = tower::service_fn(|_: http::Request<Bytes>| async {
/// #     let body = Full::<Bytes>::from(r#"{"error": "closed"}"#);
/// #     Ok::<_, std::io::Error>(http::Response::builder().status(409).body(body).unwrap())
/// # });
/// let tool = HttpTool::new(http::Method::POST, "https://api.pizzeria.com/orders")?;
/// let stack = ServiceBuilder::new().tool_result().tool(tool.client::<_, Bytes>(client));
///
/// let Ok(result) = stack.oneshot(ToolCall::new("order")).await;
/// // An `ExecutionError`, if the upstream was not asked, or has not answered.
/// let result = ExecutionResult::try_from(&result)?;
/// let json = serde_json::to_value(&result)?;
/// assert_eq!(
///     (&json["tool_id"], &json["status"], &json["upstream_status"]),
///     (&"order".into(), &"failed".into(), &409.into())
/// );
/// assert_eq!(json["result"]["error"], "closed");
/// # Ok(()) }
/// ```
#[derive(Clone, Serialize)]
#[non_exhaustive]
pub struct ExecutionResult {
    /// The tool's name.
    pub tool_id: String,
    /// How it ended.
    pub status: ExecutionStatus,
    /// The upstream's body, real and as it is: JSON, or a text.
    pub result: Value,
    /// How long the call took, with all waits and attempts.
    pub execution_time_ms: u64,
    /// The status of the upstream's last answer, if there was one.
    pub upstream_status: Option<u16>,
    /// The headers that the tool keeps.
    pub metadata: Map<String, Value>,
}

/// How a call ended that an upstream has answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ExecutionStatus {
    /// With a 2xx, or its job is done.
    Completed,
    /// Its job still runs, and the call's time is over. It must not be started again.
    Pending,
    /// With another status, or its job has failed, or could not be asked for.
    Failed,
}

/// The answer for an agent to a call that no upstream has answered.
///
/// Its texts are those for callers outside: the message has nothing internal, and names of
/// arguments that do not fit, but no value.
#[derive(Clone, Serialize)]
#[non_exhaustive]
pub struct ExecutionError {
    /// The text for the agent.
    pub message: String,
    /// The error's own [code](ToolError::with_code), if one was set, else
    ///
    /// | code | kinds |
    /// |---|---|
    /// | `validation_error` | `InvalidInput`; `NotFound`, as a refusal |
    /// | `token_exchange_failed` | `TokenExchange`; `Denied`, as a refusal |
    /// | `upstream_timeout` | `Timeout`, `DeadlineExceeded` |
    /// | `upstream_connection_error` | `ConnectionFailed`, `Upstream` |
    /// | `circuit_open` | `CircuitOpen`; `RateLimited` and `Overloaded`, as refusals |
    /// | `poll_timeout` | `PollTimeout` |
    /// | `internal_error` | all others |
    pub error_code: String,
    /// The tool's name.
    pub tool_id: String,
    /// The status of the server that failed, if one was asked: the upstream, or the identity
    /// provider.
    pub upstream_status: Option<u16>,
    /// Its body: redacted, and cut at 500 characters.
    pub upstream_body: Option<String>,
    /// A repeated call may succeed later. False if its job may still run, because the call would
    /// start another job.
    pub is_retryable: bool,
    /// The knowledge of whether the tool ran.
    pub execution: error::Execution,
    /// The error's details, redacted, and `retry_after_seconds`.
    pub details: Map<String, Value>,
}

impl std::fmt::Debug for ExecutionResult {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ExecutionResult")
            .field("status", &self.status)
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for ExecutionError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ExecutionError")
            .field("error_code", &self.error_code)
            .field("message", &self.message)
            .finish_non_exhaustive()
    }
}

impl fmt::Display for ExecutionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.error_code, self.message)
    }
}

impl StdError for ExecutionError {}

impl TryFrom<&ToolResult<HttpAnswer>> for ExecutionResult {
    type Error = ExecutionError;

    fn try_from(result: &ToolResult<HttpAnswer>) -> Result<Self, ExecutionError> {
        let (tool, took) = (result.tool(), result.duration());
        match (result.error(), result.data()) {
            (Some(error), _) => {
                Self::of_error(tool, took, error).ok_or_else(|| ExecutionError::new(tool, error))
            }
            (None, Some(answer)) => Ok(Self::of(tool, took, ExecutionStatus::Completed, answer)),
            (None, None) => unreachable!("a success has data"),
        }
    }
}

fn code_of_kind(error: &ToolError) -> &'static str {
    use ErrorKind as Kind;
    match (error.kind(), error.is_own_refusal()) {
        (Kind::InvalidInput, _) | (Kind::NotFound, true) => "validation_error",
        (Kind::TokenExchange, _) | (Kind::Denied, true) => "token_exchange_failed",
        (Kind::Timeout | Kind::DeadlineExceeded, _) => "upstream_timeout",
        (Kind::ConnectionFailed | Kind::Upstream, _) => "upstream_connection_error",
        (Kind::CircuitOpen, _) | (Kind::RateLimited | Kind::Overloaded, true) => "circuit_open",
        (Kind::PollTimeout, _) => "poll_timeout",
        _ => "internal_error",
    }
}

fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl ExecutionResult {
    fn new(tool: &str, took: Duration, status: ExecutionStatus, result: Value) -> Self {
        Self {
            tool_id: tool.to_owned(),
            status,
            result,
            execution_time_ms: ms(took),
            upstream_status: None,
            metadata: Map::new(),
        }
    }

    fn of(tool: &str, took: Duration, status: ExecutionStatus, answer: &HttpAnswer) -> Self {
        let mut result = Self::new(tool, took, status, answer.clone().into_json());
        result.upstream_status = Some(answer.upstream_status().as_u16());
        result.metadata = answer.kept_headers();
        result
    }

    /// Returns the result of a success with an answer that is JSON already.
    #[cfg(feature = "axum")]
    pub(crate) fn completed(call: &CallInfo, took: Duration, answer: Value) -> Self {
        let mut result = Self::new(call.tool(), took, ExecutionStatus::Completed, answer);
        call.record(|r| {
            let status = r.extension();
            result.upstream_status = status.map(|UpstreamStatus(status)| status.as_u16());
            let kept = r.extension().map(|KeptHeaders(kept)| to_json(&kept));
            result.metadata = kept.unwrap_or_default();
        });
        result
    }

    /// Returns the result behind an error: an upstream's answer, or a job that still runs.
    pub(crate) fn of_error(tool: &str, took: Duration, error: &ToolError) -> Option<Self> {
        if let Some(answer) = HttpAnswer::of_error(error) {
            return Some(Self::of(tool, took, ExecutionStatus::Failed, answer));
        }
        error
            .is_pending()
            .then(|| Self::new(tool, took, ExecutionStatus::Pending, Value::Null))
    }
}

#[cfg(feature = "otel")]
impl ExecutionStatus {
    pub(crate) fn of_error(error: &ToolError) -> Self {
        match error.is_pending() {
            true => Self::Pending,
            false => Self::Failed,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Pending => "pending",
            Self::Failed => "failed",
        }
    }
}

impl ExecutionError {
    /// Returns the [code](Self::error_code) of an error's kind, unless the error was given one of
    /// its own. With `StackBuilder::with_codes(ExecutionError::code_of)` metrics and spans have
    /// these codes too.
    pub fn code_of(error: &ToolError) -> Option<&'static str> {
        (error.code() == error.kind().code()).then(|| code_of_kind(error))
    }

    pub(crate) fn new(tool: &str, error: &ToolError) -> Self {
        let message = match error.kind() {
            // Made of the schema's words.
            ErrorKind::InvalidInput if error.is_own_refusal() => error.message().to_owned(),
            _ => error.public_message(),
        };
        let code = Self::code_of(error).unwrap_or_else(|| error.code());
        // They are redacted.
        let mut details = match error.details().map(serde_json::to_value) {
            Some(Ok(Value::Object(details))) => details,
            _ => Map::new(),
        };
        if let Some(seconds) = error.retry_after_seconds() {
            details.insert("retry_after_seconds".to_owned(), seconds.into());
        }
        Self {
            message,
            error_code: code.to_owned(),
            tool_id: tool.to_owned(),
            upstream_status: error.status().map(|status| status.as_u16()),
            upstream_body: error.body().map(str::to_owned),
            // A further call would start another job: this one's goes over no wire.
            is_retryable: error.is_retryable() && error.job().is_none(),
            execution: error.execution(),
            details,
        }
    }
}
