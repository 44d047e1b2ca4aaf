//! Tasks of tools' servers, under handles of the gateway.

use std::sync::{Arc, OnceLock};

use rmcp::{
    RoleServer,
    model::{ErrorData, GetTaskResult, RequestStateCodec, SealOptions, Task, TaskPayload},
    service::RequestContext,
};
use serde_json::Value;
use tower::ServiceExt as _;

use super::{
    handler::GatewayHandler,
    request::{caller, received},
    server::{answer_to, cancelled},
};
use crate::{
    McpExtras,
    capabilities::{check, relayed},
    extras::{About, TaskRequest, free},
};

/// The longest id of a server's task, in bytes: in a handle it is a header of each request.
const MAX_ID: usize = 1024;

/// Puts a handle into a task: the tool of the call and the server's own id, sealed for the caller.
/// `None` if the id is too long.
pub(super) fn hide(
    task: &mut Task,
    codec: &RequestStateCodec,
    caller: &str,
    tool: &str,
) -> Option<()> {
    let options = SealOptions::new().associated_data(caller.as_bytes());
    let id = Some(&task.task_id).filter(|id| id.len() <= MAX_ID)?;
    task.task_id = codec.seal_json_with(&(tool, id), &options).ok()?;
    Some(())
}

impl GatewayHandler {
    /// Asks the server of a task. Returns what `tasks/get` has answered.
    pub(super) async fn ask_task(
        &self,
        handle: &str,
        about: About,
        cx: &RequestContext<RoleServer>,
    ) -> Result<Option<GetTaskResult>, ErrorData> {
        //= https://github.com/modelcontextprotocol/ext-tasks/blob/main/specification/draft/tasks.md#protocol-errors
        //# Servers MUST return standard JSON-RPC errors for the following protocol error cases:
        //# Servers SHOULD return this error for `tasks/update` and `tasks/cancel`.
        let unknown =
            || ErrorData::invalid_params("the task is unknown, or of another client", None);
        let received = |tool: String| received(tool, cx, &self.settings, &self.session);
        let codec = &self.settings.states.codec;
        let caller = caller(&received(String::new()), cx);
        let opened = codec.open_json_with(handle, caller.as_bytes());
        let (tool, id): (String, String) = opened.map_err(|_| unknown())?;
        let tools = self.settings.tasks.clone().ok_or_else(unknown)?;
        let seen = Arc::new(OnceLock::new());
        let mut call = received(tool);
        let info = call.info();
        let can = relayed(cx.client_capabilities().unwrap_or_default(), true);
        let request = TaskRequest::new(id, about, Some(Arc::clone(&seen)));
        call.extensions_mut()
            .insert(McpExtras::new().with_capabilities(can));
        call.extensions_mut().insert(request);
        let run = self.drain.run(&info, tools.oneshot(call));
        let result = cx.ct.run_until_cancelled(run).await.ok_or_else(cancelled)?;
        match result {
            Ok(_) => Ok(seen.get().cloned()),
            Err(error) => Err(answer_to(&error.for_call(&info))),
        }
    }

    /// Makes the state of a server's task one of ours.
    pub(super) fn relay_task(
        &self,
        mut result: GetTaskResult,
        handle: String,
        cx: &RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        match &mut result.task.payload {
            TaskPayload::InputRequired { input_requests } => {
                let can = cx.client_capabilities().unwrap_or_default();
                check(input_requests, &can)?;
            }
            TaskPayload::Completed { result } => {
                if let Some(Value::Object(meta)) = result.get_mut("_meta") {
                    *meta = free(std::mem::take(meta));
                }
            }
            _ => {}
        }
        result.task.task.task_id = handle;
        self.sign(&mut result.meta);
        Ok(result)
    }
}
