//! Tasks of a tool's server, under handles of the gateway.

use std::sync::{Arc, Mutex};

use rmcp::{
    ClientServiceExt as _, RoleClient, RoleServer, ServerHandler,
    model::{
        CallToolRequestParams, CallToolResponse, CancelTaskParams, ClientConfig, CreateTaskResult,
        DetailedTask, ErrorData, GetTaskParams, GetTaskResult, RequestStateCodec,
        ServerCapabilities, ServerConfig, Task, TaskPayload, TaskStatus, UpdateTaskParams,
    },
    service::{RequestContext, RunningService, ServiceError},
    transport::StreamableHttpClientTransport,
};
use serde_json::{Value, json};
use tower::ServiceBuilder;
use tower_toolcall::{ServiceBuilderExt as _, policy::PolicyLayer};
use tower_toolcall_mcp::{GatewayHandler, McpNotifications, McpService};

use super::kit::{discover, http, stream};

/// A server whose task asks for a name, and ends with it.
#[derive(Clone, Default)]
struct Tasks {
    /// What came in, in order.
    seen: Arc<Mutex<Vec<String>>>,
    name: Arc<Mutex<Option<Value>>>,
}

impl Tasks {
    fn saw(&self, what: &str, id: &str) {
        self.seen.lock().unwrap().push(format!("{what} {id}"));
    }

    fn seen(&self) -> Vec<String> {
        std::mem::take(&mut self.seen.lock().unwrap())
    }
}

fn task() -> Task {
    let at = "2026-11-29T10:00:00Z";
    let task = Task::new("job 7", TaskStatus::Working, at, at);
    task.with_ttl_ms(60_000).with_poll_interval_ms(5)
}

impl ServerHandler for Tasks {
    fn get_info(&self) -> ServerConfig {
        let can = ServerCapabilities::builder().enable_tools().enable_tasks();
        ServerConfig::new(can.build())
    }

    async fn call_tool(
        &self,
        _: CallToolRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        self.saw("call", "");
        Ok(CallToolResponse::Task(CreateTaskResult::new(task())))
    }

    async fn get_task(
        &self,
        asked: GetTaskParams,
        _: RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        self.saw("get", &asked.task_id);
        let payload = match self.name.lock().unwrap().clone() {
            None => {
                let schema = json!({ "type": "object", "properties": {} });
                let params =
                    json!({ "mode": "form", "message": "Who?", "requestedSchema": schema });
                let form = json!({ "method": "elicitation/create", "params": params });
                let input_requests = serde_json::from_value(json!({ "who": form })).unwrap();
                TaskPayload::InputRequired { input_requests }
            }
            Some(name) => {
                let related =
                    json!({ "io.modelcontextprotocol/related-task": { "taskId": "job 7" } });
                let result = json!({ "content": [], "structuredContent": name, "_meta": related });
                let result = result.as_object().cloned().unwrap();
                TaskPayload::Completed { result }
            }
        };
        Ok(GetTaskResult::new(DetailedTask::new(task(), payload)))
    }

    async fn update_task(
        &self,
        asked: UpdateTaskParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.saw("update", &asked.task_id);
        *self.name.lock().unwrap() = asked.input_responses.get("who").cloned();
        Ok(())
    }

    async fn cancel_task(
        &self,
        asked: CancelTaskParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.saw("cancel", &asked.task_id);
        Ok(())
    }
}

type Client = RunningService<RoleClient, ClientConfig>;

/// A gateway whose stack allows `import` alone, and what keeps its connection up.
async fn gateway(server: &Tasks) -> (GatewayHandler, impl Send + use<>, McpService) {
    let notifications = McpNotifications::new();
    let behind = notifications.serve_with_lifecycle(stream(server.clone()), discover());
    let behind = behind.await.unwrap();
    let leaf = McpService::new(behind.peer().clone());
    let policy = PolicyLayer::new().allow("import").deny_by_default();
    let stack = ServiceBuilder::new()
        .tool_policy(policy)
        .service(leaf.clone());
    (GatewayHandler::new(stack, Vec::new), behind, leaf)
}

fn with(can: Value) -> ClientConfig {
    let mut info = ClientConfig::default();
    info.capabilities = serde_json::from_value(can).unwrap();
    info
}

fn tasks() -> Value {
    json!({ "extensions": { "io.modelcontextprotocol/tasks": {} }, "elicitation": {} })
}

async fn over_stream(gateway: GatewayHandler, can: Value) -> Client {
    let client = with(can).serve_with_lifecycle(stream(gateway), discover());
    client.await.unwrap()
}

async fn over_http(url: String) -> Client {
    let transport = StreamableHttpClientTransport::from_uri(url);
    let client = with(tasks()).serve_with_lifecycle(transport, discover());
    client.await.unwrap()
}

async fn start(client: &Client) -> Result<Task, ErrorData> {
    let params = CallToolRequestParams::new("import");
    match client.peer().call_tool_once(params).await {
        Ok(CallToolResponse::Task(created)) => Ok(created.task),
        Err(ServiceError::McpError(error)) => Err(error),
        other => panic!("{other:?}"),
    }
}

async fn get(client: &Client, id: &str) -> Result<Value, ErrorData> {
    match client.peer().get_task(GetTaskParams::new(id)).await {
        Ok(result) => Ok(json!(result)),
        Err(ServiceError::McpError(error)) => Err(error),
        other => panic!("{other:?}"),
    }
}

//= https://github.com/modelcontextprotocol/ext-tasks/blob/main/specification/draft/tasks.md#polymorphic-results
//# Servers MUST set `resultType` to `"task"` when returning a `CreateTaskResult` so that clients
//# can distinguish it from a standard result.
//= https://github.com/modelcontextprotocol/ext-tasks/blob/main/specification/draft/tasks.md#task-creation
//# A server MUST NOT return `CreateTaskResult` until the task is durably created — that is, until a
//# `tasks/get` for the returned `taskId` would resolve.
//= https://github.com/modelcontextprotocol/ext-tasks/blob/main/specification/draft/tasks.md#response
//# Upon receiving a `tasks/get` request, the server MUST check the status of the task and respond
//# accordingly:
//# If the status is `input_required`, the server MUST return a `Task` object with status
//# `input_required` and an `inputRequests` field defined in Multi Round-Trip Requests.
//# If the status is `completed`, the server MUST return a `Task` object with status `completed` and
//# a `result` field containing the final result of the task.
//# On success, the server MUST acknowledge the request with an empty result.
//= https://github.com/modelcontextprotocol/ext-tasks/blob/main/specification/draft/tasks.md#streamable-http-routing-headers
//# When `tasks/get`, `tasks/update`, or `tasks/cancel` is sent over the Streamable HTTP transport,
//# the client MUST set the `Mcp-Name` header to the value of `params.taskId`.
/// M3, MCP's extension of tasks: created, asked about, answered, ended and cancelled.
#[tokio::test]
async fn a_task_goes_through_under_a_handle_of_the_gateway() {
    for is_http in [false, true] {
        let server = Tasks::default();
        let (gateway, _behind, leaf) = gateway(&server).await;
        let gateway = gateway.with_tasks(leaf);
        let (url, _listener) = http(gateway.clone()).await;
        let client = match is_http {
            true => over_http(url).await,
            false => over_stream(gateway, tasks()).await,
        };
        let created = start(&client).await.unwrap();
        let id = &*created.task_id;
        assert!(!id.contains("job"), "{id}");
        assert_eq!(
            (created.ttl_ms, created.poll_interval_ms),
            (Some(60_000), Some(5))
        );

        let asked = get(&client, id).await.unwrap();
        assert_eq!(
            (&asked["status"], &asked["taskId"]),
            (&json!("input_required"), &json!(id))
        );
        let said = [("who".to_owned(), json!("Ada"))].into();
        let update = UpdateTaskParams::new(id, said);
        client.peer().update_task(update).await.unwrap();
        let done = get(&client, id).await.unwrap();
        assert_eq!(
            (&done["status"], &done["taskId"]),
            (&json!("completed"), &json!(id))
        );
        assert_eq!(done["result"]["structuredContent"], "Ada");
        assert_eq!(done["result"]["_meta"], json!({}), "{done}");
        let named = &done["_meta"]["io.modelcontextprotocol/serverInfo"]["name"];
        assert_eq!(named, "tower-toolcall-mcp");
        let cancel = CancelTaskParams::new(id);
        client.peer().cancel_task(cancel).await.unwrap();
        let seen = [
            "call ",
            "get job 7",
            "update job 7",
            "get job 7",
            "cancel job 7",
        ];
        assert_eq!(server.seen(), seen);
    }
}

//= https://github.com/modelcontextprotocol/ext-tasks/blob/main/specification/draft/tasks.md#response
//# Servers SHOULD return a JSON-RPC error if the `taskId` does not correspond to a known task.
//= https://github.com/modelcontextprotocol/ext-tasks/blob/main/specification/draft/tasks.md#protocol-errors
//# Servers MUST return standard JSON-RPC errors for the following protocol error cases:
//# Invalid or nonexistent `taskId`: `-32602` (Invalid params)
//# Servers MUST return this error for `tasks/get`.
//# Servers SHOULD provide informative error messages to describe the cause of errors.
//= https://github.com/modelcontextprotocol/ext-tasks/blob/main/specification/draft/tasks.md#security-considerations
//# Servers MUST generate them with sufficient entropy that a third party cannot enumerate or guess
//# them.
//# Servers MUST perform authentication and authorization checks on each task-related request to
//# ensure that the client has permission to access a task.
/// M3: a task is its caller's, and only what the gateway has given names one.
#[tokio::test]
async fn a_task_cannot_be_read_by_another_caller() {
    let server = Tasks::default();
    let (gateway, _behind, leaf) = gateway(&server).await;
    let gateway = gateway.with_tasks(leaf.clone());
    let client = over_stream(gateway.clone(), tasks()).await;
    let id = start(&client).await.unwrap().task_id;
    let stranger = over_stream(gateway.clone(), tasks()).await;
    let other_key = RequestStateCodec::try_new([1; 32]).unwrap();
    let elsewhere = over_stream(gateway.with_request_states(other_key), tasks()).await;
    let its_own = start(&elsewhere).await.unwrap().task_id;
    server.seen();
    let altered = id.clone() + "A";
    for (client, id) in [
        (&stranger, &*id),
        (&elsewhere, &*id),
        (&client, &*its_own),
        (&client, &*altered),
        (&client, "job 7"),
    ] {
        let error = get(client, id).await.unwrap_err();
        assert_eq!(
            (error.code.0, &*error.message),
            (-32602, "the task is unknown, or of another client")
        );
        let update = UpdateTaskParams::new(id, Default::default());
        assert!(client.peer().update_task(update).await.is_err());
        let cancel = CancelTaskParams::new(id);
        assert!(client.peer().cancel_task(cancel).await.is_err());
    }
    assert_eq!(server.seen(), [""; 0]);
    assert!(get(&client, &id).await.is_ok());
}

/// M3: a handle needs no memory of the gateway.
#[tokio::test]
async fn a_gateway_that_was_restarted_knows_the_tasks_of_the_one_before() {
    let server = Tasks::default();
    let (gateway, _behind, leaf) = gateway(&server).await;
    let codec = || RequestStateCodec::try_new([7; 32]).unwrap();
    let gateway = gateway.with_tasks(leaf);
    let (url, before) = http(gateway.clone().with_request_states(codec())).await;
    let id = start(&over_http(url).await).await.unwrap().task_id;
    before.abort();
    let (url, _after) = http(gateway.with_request_states(codec())).await;
    let state = get(&over_http(url).await, &id).await.unwrap();
    assert_eq!(state["status"], "input_required");
}

//= https://github.com/modelcontextprotocol/ext-tasks/blob/main/specification/draft/tasks.md#capability-negotiation
//# If a server is unable to service a request to a client that does not declare this extension
//# capability without returning `CreateTaskResult`, the server MUST return an error with the code
//# `-32021` (Missing Required Client Capability), indicating the required extension in the error
//# response:
//= https://github.com/modelcontextprotocol/ext-tasks/blob/main/specification/draft/tasks.md#protocol-errors
//# Servers MUST return standard JSON-RPC errors for the following protocol error cases:
//# Missing required client capabilities: `-32021` (Missing Required Client Capability)
/// MCP task1, task4: a client that has declared no tasks gets none, and reads what it lacks; nor
/// is a server told of tasks that a gateway does not pass on.
#[tokio::test]
async fn a_client_without_tasks_gets_none() {
    let server = Tasks::default();
    let (gateway, _behind, leaf) = gateway(&server).await;
    let client = over_stream(gateway.clone().with_tasks(leaf), json!({})).await;
    let error = start(&client).await.unwrap_err();
    let lacks = json!({ "extensions": { "io.modelcontextprotocol/tasks": {} } });
    assert_eq!(error.code.0, -32021);
    assert_eq!(error.data.unwrap()["requiredCapabilities"], lacks);
    let client = over_stream(gateway, tasks()).await;
    assert_eq!(start(&client).await.unwrap_err().code.0, -32603);
    let error = get(&client, "job 7").await.unwrap_err();
    assert_eq!(error.code.0, -32601);
}

/// mrtr14: what a task asks for is cut to what the client has declared.
#[tokio::test]
async fn a_task_asks_only_for_what_the_client_has_declared() {
    let server = Tasks::default();
    let (gateway, _behind, leaf) = gateway(&server).await;
    let can = json!({ "extensions": { "io.modelcontextprotocol/tasks": {} } });
    let client = over_stream(gateway.with_tasks(leaf), can).await;
    let id = start(&client).await.unwrap().task_id;
    let error = get(&client, &id).await.unwrap_err();
    assert_eq!(error.code.0, -32021);
}
