use std::{
    borrow::Cow,
    future::pending,
    panic::{AssertUnwindSafe, catch_unwind},
};

use rmcp::{
    RoleServer, ServerHandler,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, CancelTaskParams, ContentBlock,
        CustomRequest, CustomResult, ErrorCode, ErrorData, GetTaskParams, GetTaskResult,
        ListToolsResult, MetaObject, PaginatedRequestParams, ResultType, ServerConfig,
        SubscriptionFilter, Tool, UpdateTaskParams,
    },
    service::{NotificationContext, RequestContext, SubscriptionContext},
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;
use tower_toolcall::{
    call::CallInfo,
    error::{ErrorKind, Execution, ToolError},
    router::Names,
};

use super::{
    handler::GatewayHandler,
    pages::page_of,
    request::{call_of, can_be_asked, relay},
    rounds::Round,
};
use crate::{
    McpAnswer, errors,
    events::name_collision,
    extras::{About, free},
    future::first,
    lines::TOO_LARGE,
};

impl ServerHandler for GatewayHandler {
    fn get_info(&self) -> ServerConfig {
        self.settings.info.clone()
    }

    async fn list_tools(
        &self,
        page: Option<PaginatedRequestParams>,
        cx: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let cursor = page.and_then(|page| page.cursor);
        let mut page = page_of(self.list()?, cursor.as_deref(), self.settings.page)?;
        if !can_be_asked(&cx) {
            self.sign(&mut page.meta);
        }
        Ok(page)
    }

    // rmcp asks for the schema where headers repeat arguments (`x-mcp-header`), to refuse what does
    // not agree.
    fn get_tool(&self, name: &str) -> Option<Tool> {
        // In rmcp a panic would leave the request without an answer.
        let tool = self.tool_of(name);
        let name = tool.as_deref().unwrap_or(name);
        catch_unwind(AssertUnwindSafe(|| self.tools.find(name))).ok()?
    }

    // rmcp leaves it to the handler to stop when its request is cancelled: it only says so.
    async fn call_tool(
        &self,
        mut params: CallToolRequestParams,
        cx: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        if let Some(tool) = self.tool_of(&params.name) {
            params.name = tool.into();
        }
        let (mut call, round) = call_of(params, &cx, &self.settings, &self.session)?;
        let info = call.info();
        if let Err(error) = call.check() {
            return self.answered(Err(error), &info, None);
        }
        let relayed = relay(&mut call, &cx);
        // rmcp's own token fires after an answer as well, which would stop what a tool leaves
        // running.
        let token = CancellationToken::new();
        let call = call.with_cancellation(token.clone());
        let token = token.drop_guard();
        let run = async {
            let run = self.stack.clone().oneshot(call);
            let result = match relayed {
                Some(relayed) => relayed.during(run).await,
                None => run.await,
            };
            // Dropped before, it fires: work that the tool has spawned ends, too.
            token.disarm();
            result
        };
        let run = self.drain.run(&info, run);
        let Some(result) = cx.ct.run_until_cancelled(run).await else {
            return Err(cancelled());
        };
        self.answered(result, &info, round.as_deref())
    }

    async fn get_task(
        &self,
        params: GetTaskParams,
        cx: RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        let seen = self.ask_task(&params.task_id, About::Get, &cx).await?;
        let seen = seen.ok_or_else(|| ErrorData::internal_error("the task has no state", None))?;
        self.relay_task(seen, params.task_id, &cx)
    }

    async fn update_task(
        &self,
        params: UpdateTaskParams,
        cx: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let about = About::Update(params.input_responses);
        self.ask_task(&params.task_id, about, &cx).await.map(drop)
    }

    async fn cancel_task(
        &self,
        params: CancelTaskParams,
        cx: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let asked = self.ask_task(&params.task_id, About::Cancel, &cx).await;
        asked.map(drop)
    }

    async fn on_custom_request(
        &self,
        request: CustomRequest,
        _: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        let CustomRequest { method, params, .. } = request;
        let reason = params.as_ref().and_then(|p| p["message"].as_str());
        Err(match reason.filter(|_| method == TOO_LARGE) {
            Some(reason) => ErrorData::invalid_request(reason.to_owned(), None),
            // rmcp could not read its parameters.
            None if method == "tools/call" => ErrorData::invalid_params(UNREADABLE, None),
            None => ErrorData::new(ErrorCode::METHOD_NOT_FOUND, method, None),
        })
    }

    async fn on_initialized(&self, cx: NotificationContext<RoleServer>) {
        let tell = move || {
            let peer = cx.peer.clone();
            async move { peer.notify_tool_list_changed().await }
        };
        self.session.listen(self.changes.each(tell));
    }

    // rmcp takes away what the client has not asked for.
    fn accepted_subscription_filter(&self, _: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        Some(SubscriptionFilter::builder().tools_list_changed().build())
    }

    async fn listen(&self, cx: SubscriptionContext) -> Result<(), ErrorData> {
        let tells = async {
            if cx.accepted().tools_list_changed == Some(true) {
                let tell = || cx.sink().notify_tool_list_changed();
                self.changes.each(tell).await;
            }
            pending::<()>().await;
        };
        let until_closed = first(self.drain.closed(), tells);
        let ct = &cx.request_context().ct;
        ct.run_until_cancelled(until_closed).await;
        Ok(())
    }
}

//= https://modelcontextprotocol.io/specification/2026-07-28/schema#error
//# The message SHOULD be limited to a concise single sentence.
const UNREADABLE: &str = "`params` is not an object with a string `name` and an object `arguments`";

impl GatewayHandler {
    /// The tools as they are now, under names that models' providers take. In rmcp a panic would
    /// leave the request without an answer.
    fn list(&self) -> Result<Vec<Tool>, ErrorData> {
        let list = catch_unwind(AssertUnwindSafe(|| self.tools.list()));
        let mut list =
            list.map_err(|_| ErrorData::internal_error("the list of tools cannot be had", None))?;
        let names = names_of(&list);
        names.collisions().for_each(name_collision);
        for tool in &mut list {
            let name = names.to_model(&tool.name);
            if name != tool.name {
                let name = name.into_owned().into();
                let own: Cow<'_, str> = std::mem::replace(&mut tool.name, name);
                tool.title.get_or_insert(own.into_owned());
            }
        }
        Ok(list)
    }

    /// Returns the tool that a client means by a name that was made for a model.
    fn tool_of(&self, name: &str) -> Option<String> {
        let is_made = Names::may_be_made(name);
        let find = || match self.tools.find(name) {
            Some(_) => None,
            None => Some(names_of(&self.tools.list()).to_tool(name).to_owned()),
        };
        catch_unwind(AssertUnwindSafe(|| is_made.then(find))).ok()??
    }
}

/// The key in a result's `_meta` under which a [`GatewayHandler`](super::GatewayHandler) gives
/// programs the error's code and the other facts that the model reads as text.
pub const ERROR_META: &str = "tower-toolcall/error";

/// In order, so that a collision ends in the same way each time.
fn names_of(tools: &[Tool]) -> Names {
    let mut tools: Vec<&str> = tools.iter().map(|tool| &*tool.name).collect();
    tools.sort_unstable();
    Names::new(tools)
}

impl GatewayHandler {
    /// Converts the stack's answer or error into a client's result.
    fn answered(
        &self,
        result: Result<McpAnswer, ToolError>,
        call: &CallInfo,
        round: Option<&Round>,
    ) -> Result<CallToolResponse, ErrorData> {
        let mut response = match result.map(McpAnswer::into_inner) {
            Ok(CallToolResponse::Task(mut created)) => {
                let tasks = self.settings.tasks.as_ref().and(round);
                match tasks.and_then(|round| round.hide(&mut created.task)) {
                    Some(()) => created.into(),
                    None => of_error(&task().for_call(call), round)?,
                }
            }
            Ok(CallToolResponse::InputRequired(mut asks)) => {
                if let Some(round) = round {
                    round.relay(&mut asks)?;
                }
                asks.into()
            }
            Ok(response) => response,
            Err(error) => {
                let asks = round.and_then(|round| round.answer(&error));
                asks.unwrap_or_else(|| of_error(&error.for_call(call), round))?
            }
        };
        let meta = match &mut response {
            CallToolResponse::Complete(result) => {
                // Servers of older revisions do not say it, clients of the newer one expect it;
                // rmcp takes it away for others.
                result.result_type.get_or_insert(ResultType::COMPLETE);
                &mut result.meta
            }
            CallToolResponse::InputRequired(asks) => &mut asks.meta,
            CallToolResponse::Task(created) => &mut created.meta,
            _ => return Ok(response),
        };
        match round {
            Some(_) => self.sign(meta),
            None => clean(meta),
        }
        Ok(response)
    }

    /// Names the gateway as the server that a result is from.
    pub(super) fn sign(&self, meta: &mut Option<MetaObject>) {
        clean(meta);
        let me = json!(self.settings.info.server_info);
        let meta = meta.get_or_insert_default();
        meta.0.insert(SERVER_INFO.to_owned(), me);
    }
}

/// Takes away what a tool's server says of the protocol.
fn clean(meta: &mut Option<MetaObject>) {
    let theirs = meta.take().map(|theirs| MetaObject(free(theirs.0)));
    *meta = theirs.filter(|theirs| !theirs.0.is_empty());
}

/// The client may not read it.
pub(super) fn cancelled() -> ErrorData {
    ErrorData::internal_error("the request was cancelled", None)
}

/// The member of a result's `_meta` that names the server.
const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";

/// The error for a task that a client could not ask the gateway for.
fn task() -> ToolError {
    ToolError::new(
        ErrorKind::PollTimeout,
        "the tool has started a task, which a gateway cannot pass on",
    )
    .with_code("TASK_NOT_PASSED_ON")
    .with_execution(Execution::Unknown)
    .with_retryable(false)
}

fn of_error(error: &ToolError, round: Option<&Round>) -> Result<CallToolResponse, ErrorData> {
    let theirs = errors::protocol_error(error);
    if let Some(theirs) = theirs.filter(|theirs| !is_lost(theirs.code, error.kind())) {
        return Err(passed_on(theirs, error, round));
    }
    let text = error.public_model_message();
    let facts = Value::Object(error.public_body());
    // A status describes what the tool looked for, not the tool.
    if error.kind() == ErrorKind::NotFound && error.status().is_none() {
        return Err(ErrorData::invalid_params(text, Some(facts)));
    }
    let mut result = CallToolResult::error(vec![ContentBlock::text(text)]);
    let mut meta = MetaObject::default();
    meta.0.insert(ERROR_META.to_owned(), facts);
    result.meta = Some(meta);
    Ok(result.into())
}

/// Returns the error of a request that has no result for a model.
pub(super) fn answer_to(error: &ToolError) -> ErrorData {
    match errors::protocol_error(error) {
        Some(theirs) if !is_lost(theirs.code, error.kind()) => passed_on(theirs, error, None),
        _ => {
            let facts = Some(Value::Object(error.public_body()));
            ErrorData::internal_error(error.public_model_message(), facts)
        }
    }
}

/// Returns `true` for the words of a lost connection, an unknown session or a late answer. Clients
/// would take the gateway's for their own: to SDKs the first two codes say so, regardless of the
/// sender.
fn is_lost(code: ErrorCode, kind: ErrorKind) -> bool {
    let is_theirs_too = matches!(code.0, -32000 | -32001 | -32600);
    is_theirs_too && matches!(kind, ErrorKind::ConnectionFailed | ErrorKind::Timeout)
}

/// The user has to open a URL: of the revision of 2025-11-25 alone.
const URL_REQUIRED: i32 = -32042;

/// The JSON-RPC error of the tool's server, as a client gets it.
fn passed_on(theirs: &ErrorData, error: &ToolError, round: Option<&Round>) -> ErrorData {
    let is_theirs = match theirs.code {
        ErrorCode::MISSING_REQUIRED_CLIENT_CAPABILITY => {
            round.is_some_and(|round| round.lacks(theirs))
        }
        ErrorCode(URL_REQUIRED) => round.is_none(),
        // The protocol's own: they tell of the gateway's connection to that server, which a client
        // would take for its own, or nothing that is defined.
        ErrorCode(code) => !(-32099..=-32020).contains(&code),
    };
    match is_theirs {
        true => theirs.clone(),
        false => {
            let text = "the tool's server refused the gateway's request";
            ErrorData::internal_error(text, Some(Value::Object(error.public_body())))
        }
    }
}
