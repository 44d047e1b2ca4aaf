use std::{
    future::{Future as _, pending, poll_fn},
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
};

use rmcp::{
    RoleServer, ServerHandler,
    model::{
        CallToolRequestParams, CallToolResponse, ErrorData, ListToolsResult,
        PaginatedRequestParams, ServerConfig, SubscriptionFilter, Tool,
    },
    service::{NotificationContext, RequestContext, SubscriptionContext},
};
use tower::ServiceExt as _;

use super::{answer, handler::GatewayHandler, pages, request};
use crate::{call::ToolCall, error::ToolError};

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

    // rmcp asks for the schema where headers repeat arguments (`x-mcp-header`), to refuse what does not agree.
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
        #[cfg(feature = "cancel")]
        let (call, token) = with_token(call);
        let run = async {
            let run = self.run(call);
            let result = match relayed {
                Some(relayed) => relayed.during(run).await,
                None => run.await,
            };
            // Dropped before, it fires: work that the tool has spawned ends, too.
            #[cfg(feature = "cancel")]
            token.disarm();
            result
        };
        let run = self.drain.run(&info, run);
        let Some(result) = cx.ct.run_until_cancelled(run).await else {
            return Err(answer::cancelled());
        };
        answer::of(result, &info)
    }

    async fn on_initialized(&self, cx: NotificationContext<RoleServer>) {
        self.session.listen(self.changes.tell_session(cx.peer));
    }

    // rmcp takes away what the client has not asked for.
    fn accepted_subscription_filter(&self, _: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        Some(SubscriptionFilter::builder().tools_list_changed().build())
    }

    async fn listen(&self, cx: SubscriptionContext) -> Result<(), ErrorData> {
        let mut tells = pin!(async {
            if cx.accepted().tools_list_changed == Some(true) {
                self.changes.tell_listener(cx.sink()).await;
            }
            pending::<()>().await;
        });
        let mut closed = pin!(self.drain.closed());
        let until_closed = poll_fn(|cx| {
            // It never ends.
            let _ = tells.as_mut().poll(cx);
            closed.as_mut().poll(cx)
        });
        cx.request_context()
            .ct
            .run_until_cancelled(until_closed)
            .await;
        Ok(())
    }
}

impl GatewayHandler {
    async fn run(&self, call: ToolCall) -> Result<CallToolResponse, ToolError> {
        self.stack.clone().oneshot(call).await
    }

    /// The tools as they are now. In rmcp a panic would leave the request without an answer.
    fn list(&self) -> Result<Vec<Tool>, ErrorData> {
        let list = catch_unwind(AssertUnwindSafe(|| self.tools.list()));
        list.map_err(|_| ErrorData::internal_error("the list of tools cannot be had", None))
    }
}

/// A token of the call's own: rmcp's fires after an answer as well, which would stop what a tool leaves running.
#[cfg(feature = "cancel")]
fn with_token(call: ToolCall) -> (ToolCall, tokio_util::sync::DropGuard) {
    let token = tokio_util::sync::CancellationToken::new();
    let call = call.with_cancellation(token.clone());
    (call, token.drop_guard())
}
