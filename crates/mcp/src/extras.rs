use std::{
    borrow::Cow,
    fmt,
    hash::Hasher,
    io,
    sync::{Arc, OnceLock},
    time::Duration,
};

use rmcp::{
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, CancelTaskParams,
        CancelTaskRequest, ClientCapabilities, ClientRequest, ContentBlock, CreateTaskResult,
        DetailedTask, GetTaskParams, GetTaskRequest, GetTaskResult, InputRequiredResult,
        InputResponses, JsonObject, ServerResult, TaskPayload, UpdateTaskParams, UpdateTaskRequest,
    },
    service::ServiceError,
};
use serde_json::{Map, Value, from_value};
use tower_toolcall::{
    call::{JobRef, ToolCall},
    error::ToolError,
    poll::{Job, Polled, Started},
};

use super::{IDEMPOTENCY_KEY_META, McpAnswer, errors};

/// The parts of a request to an MCP server beside name and arguments: put them into a call's
/// [extensions](ToolCall::extensions_mut), and [`McpService`](super::McpService) sends them.
///
/// With it a call answers a server that has asked for input:
///
/// ```
/// use rmcp::model::{CallToolResponse, InputResponses};
/// use tower_toolcall::ToolCall;
/// use tower_toolcall_mcp::{McpAnswer, McpExtras};
///
/// /// The same call once more, with what the server has asked for.
/// fn again(
///     mut call: ToolCall,
///     asked: &McpAnswer,
///     responses: InputResponses,
/// ) -> ToolCall {
///     if let CallToolResponse::InputRequired(asked) = &**asked {
///         let mut extras = McpExtras::new().with_input_responses(responses);
///         if let Some(state) = &asked.request_state {
///             extras = extras.with_request_state(state.clone());
///         }
///         call.extensions_mut().insert(extras);
///     }
///     call
/// }
/// ```
#[derive(Clone, Default)]
#[must_use]
pub struct McpExtras(Arc<Inner>);

#[derive(Clone, Default, PartialEq)]
struct Inner {
    input_responses: Option<InputResponses>,
    request_state: Option<String>,
    idempotency_key: Option<Arc<str>>,
    capabilities: Option<ClientCapabilities>,
    meta: JsonObject,
}

impl McpExtras {
    /// Makes a value without any of them.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the answers to what the server has asked for.
    pub fn with_input_responses(self, responses: InputResponses) -> Self {
        self.set(|e| e.input_responses = Some(responses))
    }

    /// Sets the state that the server has sent with its questions, unchanged.
    pub fn with_request_state(self, state: impl Into<String>) -> Self {
        self.set(|e| e.request_state = Some(state.into()))
    }

    /// Sets the [idempotency key](super::IDEMPOTENCY_KEY_META), instead of that of a retry layer:
    /// the caller repeats the call under the same one.
    pub fn with_idempotency_key(self, key: impl Into<Arc<str>>) -> Self {
        self.set(|e| e.idempotency_key = Some(key.into()))
    }

    /// Sets what the tool's server may ask for in answer to this call: servers of 2026-07-28 ask
    /// only for what a request declares. Default: what the connection's client has declared; for an
    /// [`McpServer`](super::McpServer) nothing.
    pub fn with_capabilities(self, can: ClientCapabilities) -> Self {
        self.set(|e| e.capabilities = Some(can))
    }

    /// Sets members of the request's `_meta`. What the client and this crate write there themselves
    /// takes precedence. Not redacted.
    pub fn with_meta(self, meta: JsonObject) -> Self {
        self.set(|e| e.meta = free(meta))
    }

    /// The extras of a client's request; `None` if it has none.
    #[cfg(feature = "server")]
    pub(super) fn received(
        input_responses: Option<InputResponses>,
        request_state: Option<String>,
        idempotency_key: Option<Arc<str>>,
        capabilities: Option<ClientCapabilities>,
        meta: JsonObject,
    ) -> Option<Self> {
        let extras = Inner {
            input_responses,
            request_state,
            idempotency_key,
            capabilities,
            meta: free(meta),
        };
        (extras != Inner::default()).then(|| Self(Arc::new(extras)))
    }

    pub(super) fn meta(&self) -> JsonObject {
        self.0.meta.clone()
    }

    pub(super) fn capabilities(&self) -> Option<&ClientCapabilities> {
        self.0.capabilities.as_ref()
    }

    pub(super) fn of(call: &ToolCall) -> Option<&Self> {
        call.extensions().get()
    }

    pub(super) fn idempotency_key(&self) -> Option<&str> {
        self.0.idempotency_key.as_deref()
    }

    //= https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/mrtr#client-requirements-basic-workflow
    //# If the `InputRequiredResult` does not contain a `requestState` field, the client MUST NOT
    //# include one in the retry.
    //# They MUST NOT be used for any other request that the client may be sending in parallel.
    pub(super) fn fill(&self, params: &mut CallToolRequestParams) {
        params.input_responses.clone_from(&self.0.input_responses);
        params.request_state.clone_from(&self.0.request_state);
    }

    /// Hashes what answers a question of the server. Returns `false` if there is nothing.
    pub(super) fn hash_input(&self, hasher: &mut dyn Hasher) -> bool {
        let input = (&self.0.input_responses, &self.0.request_state);
        // What cannot be written as JSON is hashed up to there.
        _ = serde_json::to_writer(Hashed(hasher), &input);
        input != (&None, &None)
    }

    fn set(mut self, change: impl FnOnce(&mut Inner)) -> Self {
        change(Arc::make_mut(&mut self.0));
        self
    }
}

/// Writes into a hasher.
struct Hashed<'a>(&'a mut dyn Hasher);

impl io::Write for Hashed<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The members that are not the protocol's on one connection, nor written by this crate.
pub(super) fn free(mut meta: JsonObject) -> JsonObject {
    meta.retain(|key, _| {
        !key.starts_with("io.modelcontextprotocol/")
            && !["progressToken", IDEMPOTENCY_KEY_META].contains(&key.as_str())
    });
    meta
}

impl fmt::Debug for McpExtras {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpExtras").finish_non_exhaustive()
    }
}

const TASK_ID: &str = "taskId";

/// MCP's tasks (extension `io.modelcontextprotocol/tasks`, SEP-2663) as jobs, for a
/// [`PollLayer`](tower_toolcall::poll::PollLayer): an answer that names a task becomes the result
/// of that task.
///
/// `tasks/get` is sent as often as the layer allows, and not earlier than the server's
/// `pollIntervalMs`. A task that ended with an error of JSON-RPC, or was cancelled, is an answer
/// with `isError`. One that asks for input ends the wait: the answer is the server's request, and
/// the task is [on the call's record](tower_toolcall::Observation::job). A task that no caller
/// waits for any more is cancelled (`tasks/cancel`).
///
/// The client has to offer the extension when it connects, or a call by
/// [`McpExtras::with_capabilities`]. An [`McpServer`](super::McpServer) does not offer it, so here
/// the tool service is an [`McpReconnect`](super::McpReconnect):
///
/// ```no_run
/// use rmcp::{
///     model::{ClientCapabilities, ClientConfig, Implementation, ProtocolVersion},
///     service::{ClientLifecycleMode, ClientServiceExt as _},
/// };
/// use tower::ServiceBuilder;
/// use tower_toolcall::{BoxError, ServiceBuilderExt as _};
/// use tower_toolcall_mcp::{McpReconnect, McpTask};
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
    /// Makes the job for tasks of any server.
    pub fn new() -> Self {
        crate::register();
        Self
    }
}

impl Job<McpAnswer> for McpTask {
    fn started(&self, call: &ToolCall, answer: McpAnswer) -> Result<Started<McpAnswer>, ToolError> {
        let task = match answer.into_inner() {
            CallToolResponse::Task(CreateTaskResult { task, .. }) => task,
            answer => return Ok(Started::Done(answer.into())),
        };
        let after = task.poll_interval_ms.map(Duration::from_millis);
        let values = Map::from_iter([(TASK_ID.to_owned(), Value::String(task.task_id))]);
        Ok(Started::Running(JobRef::new(call, values)?, after))
    }

    fn ask(&self, call: &ToolCall, job: &JobRef) -> ToolCall {
        about(call, job, false)
    }

    fn read(&self, _: &ToolCall, answer: McpAnswer) -> Result<Polled<McpAnswer>, ToolError> {
        Ok(match answer.into_inner() {
            CallToolResponse::Task(CreateTaskResult { task, .. }) => Polled::Running {
                after: task.poll_interval_ms.map(Duration::from_millis),
                note: task.status_message.map(Cow::Owned),
            },
            CallToolResponse::InputRequired(asked) => Polled::Paused(asked.into()),
            answer => Polled::Done(answer.into()),
        })
    }

    fn cancel(&self, call: &ToolCall, job: &JobRef) -> Option<ToolCall> {
        Some(about(call, job, true))
    }
}

fn about(call: &ToolCall, job: &JobRef, cancels: bool) -> ToolCall {
    let id = job.values().get(TASK_ID).and_then(Value::as_str);
    let about = if cancels { About::Cancel } else { About::Get };
    let mut call = call.follow_up();
    let request = TaskRequest::new(id.unwrap_or_default(), about, None);
    call.extensions_mut().insert(request);
    call
}

/// A method of tasks.
#[derive(Clone)]
pub(super) enum About {
    Get,
    Cancel,
    #[cfg_attr(
        not(feature = "server"),
        expect(dead_code, reason = "clients of a gateway do it")
    )]
    Update(InputResponses),
}

/// The request of a call to a task, instead of a tool.
#[derive(Clone)]
pub(super) struct TaskRequest {
    id: Arc<str>,
    about: About,
    /// Takes the state of the task, for a gateway.
    seen: Option<Arc<OnceLock<GetTaskResult>>>,
}

impl TaskRequest {
    pub(super) fn new(
        id: impl Into<Arc<str>>,
        about: About,
        seen: Option<Arc<OnceLock<GetTaskResult>>>,
    ) -> Self {
        let id = id.into();
        Self { id, about, seen }
    }

    pub(super) fn of(call: &ToolCall) -> Option<&Self> {
        call.extensions().get()
    }

    /// The answer that belongs to the request.
    pub(super) fn answer(&self, result: ServerResult) -> Result<McpAnswer, ToolError> {
        match (&self.about, result) {
            (About::Get, ServerResult::GetTaskResult(result)) => match &self.seen {
                Some(seen) => {
                    let _ = seen.set(result);
                    Ok(CallToolResult::success(Vec::new()).into())
                }
                None => answer_of(result.task),
            },
            (
                About::Cancel | About::Update(_),
                ServerResult::TaskAckResult(_) | ServerResult::EmptyResult(_),
            ) => Ok(CallToolResult::success(Vec::new()).into()),
            _ => Err(errors::from_service(ServiceError::UnexpectedResponse)),
        }
    }

    pub(super) fn request(&self) -> ClientRequest {
        let id = &*self.id;
        match &self.about {
            About::Get => {
                ClientRequest::GetTaskRequest(GetTaskRequest::new(GetTaskParams::new(id)))
            }
            About::Cancel => {
                ClientRequest::CancelTaskRequest(CancelTaskRequest::new(CancelTaskParams::new(id)))
            }
            About::Update(said) => ClientRequest::UpdateTaskRequest(UpdateTaskRequest::new(
                UpdateTaskParams::new(id, said.clone()),
            )),
        }
    }
}

/// A task's state as the answer of its tool. A task that failed is an answer too: the server that
/// was asked for it has not.
fn answer_of(task: DetailedTask) -> Result<McpAnswer, ToolError> {
    Ok(match task.payload {
        TaskPayload::InputRequired { input_requests } => {
            InputRequiredResult::from_input_requests(input_requests).into()
        }
        TaskPayload::Completed { result } => {
            let result = from_value::<CallToolResult>(Value::Object(result));
            match result {
                Ok(result) => result.into(),
                Err(_) => failed("the task's result is not that of a tool"),
            }
        }
        TaskPayload::Failed { error } => {
            let why = error.get("message").and_then(Value::as_str);
            failed(why.unwrap_or("the task failed"))
        }
        TaskPayload::Cancelled => failed("the task was cancelled"),
        TaskPayload::Working => CallToolResponse::Task(CreateTaskResult::new(task.task)).into(),
        _ => return Err(errors::from_service(ServiceError::UnexpectedResponse)),
    })
}

fn failed(why: &str) -> McpAnswer {
    CallToolResult::error(vec![ContentBlock::text(why)]).into()
}
