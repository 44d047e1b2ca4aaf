//! Tasks of a real server in this process, waited for.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use rmcp::{
    ClientServiceExt as _, ErrorData, RoleServer, ServerHandler, ServiceExt as _,
    model::{
        CallToolRequestParams, CallToolResponse, CancelTaskParams, ClientCapabilities,
        ClientConfig, CreateTaskResult, DetailedTask, GetTaskParams, GetTaskResult, Implementation,
        InputRequests, ServerCapabilities, ServerConfig, Task, TaskPayload, TaskStatus,
    },
    service::RequestContext,
};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use tower::{Layer, ServiceBuilder, ServiceExt};
use tower_toolcall::{
    ErrorKind, ModelText as _, ServiceBuilderExt, ToolCall, flow::CallExt, poll::PollLayer,
    retry::RetryPolicy,
};
use tower_toolcall_mcp::{McpAnswer, McpService, McpTask};
use tower_toolcall_test::Events;

use crate::server::{Client, modern};

/// Its tasks end as their tool's name says, after so many questions.
#[derive(Clone, Default)]
struct Tasks {
    polls: u32,
    /// Methods that came in, in order.
    seen: Arc<Mutex<Vec<&'static str>>>,
}

fn task() -> Task {
    Task::new(
        "t-1",
        TaskStatus::Working,
        "2026-11-23T10:00:00Z",
        "2026-11-23T10:00:00Z",
    )
    .with_poll_interval_ms(2_000)
    .with_status_message("counting rows")
}

impl Tasks {
    fn saw(&self, method: &'static str) -> u32 {
        let mut seen = self.seen.lock().unwrap();
        seen.push(method);
        seen.iter().filter(|other| **other == method).count() as u32
    }
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
        self.saw("call");
        Ok(CallToolResponse::Task(CreateTaskResult::new(task())))
    }

    async fn get_task(
        &self,
        asked: GetTaskParams,
        _: RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        assert_eq!(asked.task_id, "t-1");
        let payload = match self.saw("get") {
            n if n < self.polls => TaskPayload::Working,
            _ => self.end(),
        };
        Ok(GetTaskResult::new(DetailedTask::new(task(), payload)))
    }

    async fn cancel_task(
        &self,
        asked: CancelTaskParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        assert_eq!(asked.task_id, "t-1");
        self.saw("cancel");
        Ok(())
    }
}

impl Tasks {
    fn end(&self) -> TaskPayload {
        let object = |value: Value| serde_json::from_value(value).unwrap();
        match self.polls {
            1 => TaskPayload::Failed {
                error: object(json!({ "code": -32603, "message": "no such table" })),
            },
            2 => TaskPayload::Cancelled,
            3 => TaskPayload::InputRequired {
                input_requests: InputRequests::default(),
            },
            4 => TaskPayload::Completed {
                result: object(json!({ "content": 5 })),
            },
            _ => TaskPayload::Completed {
                result: object(json!({ "content": [{ "type": "text", "text": "12 rows" }] })),
            },
        }
    }
}

async fn connect(server: Tasks) -> Client<ClientConfig> {
    let (theirs, ours) = tokio::io::duplex(64 * 1024);
    tokio::spawn(async move { server.serve(theirs).await.unwrap().waiting().await });
    let can = ClientCapabilities::builder().enable_tasks().build();
    let me = ClientConfig::new(can, Implementation::new("agent", "1"));
    me.serve_with_lifecycle(ours, modern()).await.unwrap()
}

fn call() -> ToolCall {
    ToolCall::new("count").with_server("db")
}

async fn answer(polls: u32) -> (McpAnswer, Vec<&'static str>) {
    let server = Tasks {
        polls,
        ..Tasks::default()
    };
    let client = connect(server.clone()).await;
    let stack = ServiceBuilder::new()
        .tool_poll(McpTask::new())
        .tool_retry(RetryPolicy::new())
        .tool_timeout(Duration::from_secs(10))
        .service(McpService::new(client.peer().clone()));
    let answer = stack.oneshot(call()).await.unwrap();
    (answer, server.seen.lock().unwrap().clone())
}

//= https://github.com/modelcontextprotocol/ext-tasks/blob/main/specification/draft/tasks.md#capability-negotiation
//# A client that has negotiated this extension MUST be prepared to handle either `CallToolResult`
//# or `CreateTaskResult` in response to any supported request it issues.
//= https://github.com/modelcontextprotocol/ext-tasks/blob/main/specification/draft/tasks.md#tasks
//# Clients SHOULD honor this value to avoid overwhelming the server.
//= https://github.com/modelcontextprotocol/ext-tasks/blob/main/specification/draft/tasks.md#task-polling
//# Clients SHOULD respect the `pollIntervalMs` provided in responses when determining polling
//# frequency.
//# Clients SHOULD continue polling until the task reaches a terminal status or until invoking
//# `tasks/cancel`.
/// H5: at the interval that the server asks for.
#[tokio::test(start_paused = true)]
async fn the_result_of_a_task_is_the_answer_of_the_call() {
    let since = Instant::now();
    let (answer, seen) = answer(5).await;
    assert_eq!(answer.model_text(), "12 rows");
    assert_eq!(seen, ["call", "get", "get", "get", "get", "get"]);
    // 2 s each, until the layer's own interval is longer: 2 + 2 + 2.25 + 3.375 + 5.0625.
    let took = since.elapsed().as_secs_f32();
    assert!((took - 14.687).abs() < 0.01, "{took} s");
}

#[tokio::test(start_paused = true)]
async fn a_task_that_failed_is_an_answer_in_the_tools_words() {
    for (polls, text) in [
        (1, "no such table"),
        (2, "the task was cancelled"),
        (4, "the task's result is not that of a tool"),
    ] {
        let (answer, seen) = answer(polls).await;
        let is_error = answer.result().unwrap().is_error;
        assert_eq!((is_error, &*answer.model_text()), (Some(true), text));
        assert_eq!(seen.len(), 1 + polls as usize);
    }
}

#[tokio::test(start_paused = true)]
async fn observers_know_that_a_task_has_failed() {
    let server = Tasks {
        polls: 1,
        ..Tasks::default()
    };
    let client = connect(server).await;
    let stack = PollLayer::new(McpTask::new()).layer(McpService::new(client.peer().clone()));
    let (result, record) = Events::new().run(stack, call()).await;
    assert!(result.is_ok());
    record.assert(|record| record.is_reported);
}

/// It is still there for whoever has the input.
#[tokio::test(start_paused = true)]
async fn a_task_that_asks_for_input_ends_the_wait_and_stays_on_the_record() {
    let server = Tasks {
        polls: 3,
        ..Tasks::default()
    };
    let client = connect(server.clone()).await;
    let stack = PollLayer::new(McpTask::new()).layer(McpService::new(client.peer().clone()));
    let mut call = call();
    let observation = call.observe();
    let answer = stack.oneshot(call).await.unwrap();
    assert!(
        matches!(*answer, CallToolResponse::InputRequired(_)),
        "{answer:?}"
    );
    assert_eq!(observation.job().unwrap().values()["taskId"], "t-1");
    sleep(Duration::from_secs(1)).await;
    assert!(!server.seen.lock().unwrap().contains(&"cancel"));
}

//= https://modelcontextprotocol.io/specification/2025-11-25/basic/utilities/cancellation#behavior-requirements
//# For task-augmented requests, the `tasks/cancel` request MUST be used instead of the
//# `notifications/cancelled` notification.
//= https://github.com/modelcontextprotocol/ext-tasks/blob/main/specification/draft/tasks.md#task-cancellation
//# The `notifications/cancelled` notification MUST NOT be used for task cancellation.
#[tokio::test(start_paused = true)]
async fn a_dropped_call_cancels_its_task() {
    let server = Tasks {
        polls: 100,
        ..Tasks::default()
    };
    let client = connect(server.clone()).await;
    let stack = PollLayer::new(McpTask::new()).layer(McpService::new(client.peer().clone()));
    let dropped = tokio::time::timeout(Duration::from_secs(3), stack.oneshot(call()));
    assert!(dropped.await.is_err());
    sleep(Duration::from_secs(1)).await;
    assert_eq!(*server.seen.lock().unwrap(), ["call", "get", "cancel"]);
}

//= https://github.com/modelcontextprotocol/ext-tasks/blob/main/specification/draft/tasks.md#task-polling
//# Clients SHOULD persist task IDs to durable storage so that polling can resume after a crash or
//# restart.
/// H5: what is left of the task's own words is in the error, and its job resumes it over another
/// connection.
#[tokio::test(start_paused = true)]
async fn a_task_that_takes_too_long_is_resumed_with_its_job() {
    let server = Tasks {
        polls: 5,
        ..Tasks::default()
    };
    let client = connect(server.clone()).await;
    let layer = PollLayer::new(McpTask::new()).with_polls(2).unwrap();
    let stack = layer.layer(McpService::new(client.peer().clone()));
    let error = stack.oneshot(call()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PollTimeout);
    assert!(error.message().ends_with("counting rows"), "{error}");

    let other = connect(server.clone()).await;
    let stack = PollLayer::new(McpTask::new()).layer(McpService::new(other.peer().clone()));
    let again = call().with_job(error.job().unwrap().clone());
    assert_eq!(stack.oneshot(again).await.unwrap().model_text(), "12 rows");
    let seen = server.seen.lock().unwrap();
    assert_eq!(seen.iter().filter(|method| **method == "call").count(), 1);
}

/// Without the layer it would start another one.
#[tokio::test(start_paused = true)]
async fn a_leaf_refuses_a_call_with_a_job() {
    let server = Tasks::default();
    let client = connect(server.clone()).await;
    let leaf = McpService::new(client.peer().clone());
    let job = tower_toolcall::call::JobRef::new(&call(), Default::default()).unwrap();
    let error = leaf.oneshot(call().with_job(job)).await.unwrap_err();
    assert!(error.is_own_refusal());
    assert!(server.seen.lock().unwrap().is_empty());
}
