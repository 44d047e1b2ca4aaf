use std::{
    future::pending,
    panic::{AssertUnwindSafe, catch_unwind},
};

use rmcp::{
    RoleServer, ServerHandler,
    model::{
        CallToolRequestParams, CallToolResponse, CustomRequest, CustomResult, ErrorCode, ErrorData,
        ListToolsResult, PaginatedRequestParams, ServerConfig, SubscriptionFilter, Tool,
    },
    service::{NotificationContext, RequestContext, SubscriptionContext},
};
use tower::ServiceExt as _;

use super::{answer, first::first, handler::GatewayHandler, pages, request};
use crate::{call::ToolCall, edge::mcp::lines::TOO_LARGE};

impl ServerHandler for GatewayHandler {
    fn get_info(&self) -> ServerConfig {
        self.settings.info.clone()
    }

    async fn list_tools(
        &self,
        page: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let cursor = page.and_then(|page| page.cursor);
        pages::page(self.list()?, cursor.as_deref(), self.settings.page)
    }

    // rmcp asks for the schema where headers repeat arguments (`x-mcp-header`), to refuse what does
    // not agree.
    fn get_tool(&self, name: &str) -> Option<Tool> {
        // In rmcp a panic would leave the request without an answer.
        catch_unwind(AssertUnwindSafe(|| self.tools.find(name))).ok()?
    }

    // rmcp leaves it to the handler to stop when its request is cancelled: it only says so.
    async fn call_tool(
        &self,
        params: CallToolRequestParams,
        cx: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let mut call = request::call(params, &cx, &self.settings, &self.session);
        let info = call.info();
        if let Err(error) = call.check() {
            return answer::of(Err(error), &info);
        }
        let relayed = request::relay(&mut call, &cx);
        let (call, token) = with_token(call);
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
            return Err(answer::cancelled());
        };
        answer::of(result, &info)
    }

    async fn on_custom_request(
        &self,
        request: CustomRequest,
        _: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        let CustomRequest { method, params, .. } = request;
        let reason = params
            .as_ref()
            .and_then(|params| params["message"].as_str());
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

const UNREADABLE: &str = "`params` is not an object with a string `name` and an object `arguments`";

impl GatewayHandler {
    /// The tools as they are now. In rmcp a panic would leave the request without an answer.
    fn list(&self) -> Result<Vec<Tool>, ErrorData> {
        let list = catch_unwind(AssertUnwindSafe(|| {
            let mut tools = self.tools.list();
            if !self.settings.withheld.is_empty() {
                tools.retain(|tool| !self.is_withheld(&tool.name));
            }
            tools
        }));
        list.map_err(|_| ErrorData::internal_error("the list of tools cannot be had", None))
    }
}

impl GatewayHandler {
    /// Returns `true` if a tool is left out of the list because its breaker is open.
    fn is_withheld(&self, name: &str) -> bool {
        let call = ToolCall::new(name);
        let call = match self.tools.resolve(&call) {
            Ok(Some(identity)) => call.renamed(&identity),
            _ => call,
        };
        let mut breakers = self.settings.withheld.iter();
        breakers.any(|breakers| breakers.is_refusing(&call))
    }
}

/// A token of the call's own: rmcp's fires after an answer as well, which would stop what a tool
/// leaves running.
fn with_token(call: ToolCall) -> (ToolCall, tokio_util::sync::DropGuard) {
    let token = tokio_util::sync::CancellationToken::new();
    let call = call.with_cancellation(token.clone());
    (call, token.drop_guard())
}
