//! MCP's tasks as jobs.

use std::{borrow::Cow, sync::Arc, time::Duration};

use rmcp::{
    model::{
        CallToolResponse, CallToolResult, CancelTaskParams, CancelTaskRequest, ClientRequest,
        ContentBlock, CreateTaskResult, DetailedTask, GetTaskParams, GetTaskRequest,
        InputRequiredResult, ServerResult, TaskPayload,
    },
    service::ServiceError,
};
use serde_json::{Map, Value, from_value};

use super::errors;
use crate::{
    call::{JobRef, ToolCall},
    error::ToolError,
    poll::{Job, Polled, Started},
};

const TASK_ID: &str = "taskId";

/// MCP's tasks (extension `io.modelcontextprotocol/tasks`, SEP-2663) as jobs, for a
/// [`PollLayer`](crate::poll::PollLayer): an answer that names a task becomes the result of that
/// task.
///
/// `tasks/get` is sent as often as the layer allows, and not earlier than the server's
/// `pollIntervalMs`. A task that ended with an error of JSON-RPC, or was cancelled, is an answer
/// with `isError`. One that asks for input ends the wait: the answer is the server's request, and
/// the task is [on the call's record](crate::Observation::job). A task for which nobody waits any
/// more is cancelled (`tasks/cancel`).
///
/// The client has to offer the extension when it connects. An [`McpServer`](super::McpServer) does
/// not, so the tool service is an [`McpReconnect`](super::McpReconnect) or an
/// [`McpService`](super::McpService):
///
/// ```no_run
/// use rmcp::{
///     model::{ClientCapabilities, ClientConfig, Implementation, ProtocolVersion},
///     service::{ClientLifecycleMode, ClientServiceExt as _},
/// };
/// use tower::ServiceBuilder;
/// use tower_toolcall::{BoxError, ServiceBuilderExt as _, mcp::{McpReconnect, McpTask}};
///
/// # async fn pipe() -> Result<tokio::io::DuplexStream, BoxError> { Ok(tokio::io::duplex(1024).0) }
/// # fn run() {
/// let jobs = McpReconnect::new("jobs", || async {
///     let can = ClientCapabilities::builder().enable_tasks().build();
///     let me = ClientConfig::new(can, Implementation::new("agent", "1.0.0"));
///     let newest = ClientLifecycleMode::Auto {
///         preferred_versions: vec![ProtocolVersion::LATEST],
///         legacy_version: None,
///     };
///     Ok::<_, BoxError>(me.serve_with_lifecycle(pipe().await?, newest).await?)
/// });
/// let stack = ServiceBuilder::new()
///     .tool_poll(McpTask::new())
///     .tool_timeout(std::time::Duration::from_secs(30)) // of each request
///     .tool(jobs);
/// # let _ = stack; }
/// ```
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct McpTask;

impl McpTask {
    /// The tasks of any server.
    pub fn new() -> Self {
        Self
    }
}

impl Job<CallToolResponse> for McpTask {
    fn started(
        &self,
        call: &ToolCall,
        answer: CallToolResponse,
    ) -> Result<Started<CallToolResponse>, ToolError> {
        let CallToolResponse::Task(CreateTaskResult { task, .. }) = answer else {
            return Ok(Started::Done(answer));
        };
        let after = task.poll_interval_ms.map(Duration::from_millis);
        let values = Map::from_iter([(TASK_ID.to_owned(), Value::String(task.task_id))]);
        Ok(Started::Running(JobRef::new(call, values)?, after))
    }

    fn ask(&self, call: &ToolCall, job: &JobRef) -> ToolCall {
        about(call, job, TaskRequest::Get)
    }

    fn read(
        &self,
        _: &ToolCall,
        answer: CallToolResponse,
    ) -> Result<Polled<CallToolResponse>, ToolError> {
        Ok(match answer {
            CallToolResponse::Task(CreateTaskResult { task, .. }) => Polled::Running {
                after: task.poll_interval_ms.map(Duration::from_millis),
                note: task.status_message.map(Cow::Owned),
            },
            CallToolResponse::InputRequired(_) => Polled::Paused(answer),
            answer => Polled::Done(answer),
        })
    }

    fn cancel(&self, call: &ToolCall, job: &JobRef) -> Option<ToolCall> {
        Some(about(call, job, TaskRequest::Cancel))
    }
}

fn about(call: &ToolCall, job: &JobRef, request: fn(Arc<str>) -> TaskRequest) -> ToolCall {
    let id = job.values().get(TASK_ID).and_then(Value::as_str);
    let mut call = call.follow_up();
    call.extensions_mut()
        .insert(request(id.unwrap_or_default().into()));
    call
}

/// The request of a call to a task, instead of a tool.
#[derive(Clone)]
pub(super) enum TaskRequest {
    Get(Arc<str>),
    Cancel(Arc<str>),
}

impl TaskRequest {
    pub(super) fn of(call: &ToolCall) -> Option<&Self> {
        call.extensions().get()
    }

    /// The answer that belongs to the request.
    pub(super) fn answer(&self, result: ServerResult) -> Result<CallToolResponse, ToolError> {
        match (self, result) {
            (Self::Get(_), ServerResult::GetTaskResult(result)) => answer_of(result.task),
            (Self::Cancel(_), ServerResult::TaskAckResult(_) | ServerResult::EmptyResult(_)) => {
                Ok(CallToolResult::success(Vec::new()).into())
            }
            _ => Err(errors::from_service(ServiceError::UnexpectedResponse)),
        }
    }

    pub(super) fn request(&self) -> ClientRequest {
        match self {
            Self::Get(id) => {
                let params = GetTaskParams::new(&**id);
                ClientRequest::GetTaskRequest(GetTaskRequest::new(params))
            }
            Self::Cancel(id) => {
                let params = CancelTaskParams::new(&**id);
                ClientRequest::CancelTaskRequest(CancelTaskRequest::new(params))
            }
        }
    }
}

/// A task's state as the answer of its tool. A task that failed is an answer too: the server that
/// was asked for it has not.
fn answer_of(task: DetailedTask) -> Result<CallToolResponse, ToolError> {
    Ok(match task.payload {
        TaskPayload::InputRequired { input_requests } => {
            let asked = InputRequiredResult::from_input_requests(input_requests);
            CallToolResponse::InputRequired(asked)
        }
        TaskPayload::Completed { result } => {
            let result = from_value::<CallToolResult>(Value::Object(result));
            match result {
                Ok(result) => result.into(),
                Err(_) => failed("the task's result is none of a tool"),
            }
        }
        TaskPayload::Failed { error } => {
            let why = error.get("message").and_then(Value::as_str);
            failed(why.unwrap_or("the task failed"))
        }
        TaskPayload::Cancelled => failed("the task was cancelled"),
        TaskPayload::Working => CallToolResponse::Task(CreateTaskResult::new(task.task)),
        _ => return Err(errors::from_service(ServiceError::UnexpectedResponse)),
    })
}

fn failed(why: &str) -> CallToolResponse {
    CallToolResult::error(vec![ContentBlock::text(why)]).into()
}
