//! A real rmcp server with one tool for each way a call can go.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use rmcp::{
    ClientHandler, ClientLifecycleMode, ClientServiceExt, RoleClient, RoleServer, ServerHandler,
    ServiceExt,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ErrorData,
        InputRequiredResult, JsonObject, ListToolsResult, PaginatedRequestParams,
        ProgressNotificationParam, ProtocolVersion, ServerCapabilities, ServerConfig, Tool,
        ToolAnnotations,
    },
    service::{RequestContext, RunningService},
};
use serde_json::{Value, json};
use tokio::{sync::Notify, time::sleep};

#[derive(Clone, Default)]
pub(crate) struct Server {
    /// Calls that were started.
    pub(crate) started: Arc<AtomicUsize>,
    /// Calls that learned that nobody waits for them any more.
    pub(crate) cancelled: Arc<AtomicUsize>,
    pub(crate) on_cancel: Arc<Notify>,
    pub(crate) pings: Arc<AtomicUsize>,
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }

    async fn ping(&self, _: RequestContext<RoleServer>) -> Result<(), ErrorData> {
        self.pings.fetch_add(1, SeqCst);
        Ok(())
    }

    async fn list_tools(
        &self,
        page: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let tool = |name: &'static str, annotations| {
            let mut tool = Tool::new(name, "", Arc::default());
            tool.annotations = Some(annotations);
            tool
        };
        // Two pages.
        let mut result = ListToolsResult::default();
        if page.and_then(|p| p.cursor).is_none() {
            result.tools = vec![tool("echo", ToolAnnotations::new().read_only(true))];
            result.next_cursor = Some("2".into());
        } else {
            result.tools = vec![tool("pay", ToolAnnotations::new().destructive(true))];
        }
        Ok(result)
    }

    async fn call_tool(
        &self,
        call: CallToolRequestParams,
        cx: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        self.started.fetch_add(1, SeqCst);
        let text = |s: &str| Ok(CallToolResult::success(vec![ContentBlock::text(s)]).into());
        let hangs = |arguments: &JsonObject| arguments.contains_key("hangs");
        let name = match call.arguments.as_ref().is_some_and(hangs) {
            true => "hang",
            false => &*call.name,
        };
        match name {
            "echo" => text(&Value::from(call.arguments.unwrap_or_default()).to_string()),
            "meta" => text(&Value::from(cx.meta.0.0).to_string()),
            "structured" => Ok(CallToolResult::structured(json!({ "sum": 3 })).into()),
            "flagged" => Ok(CallToolResult::error(vec![ContentBlock::text("no such city")]).into()),
            "hang" => {
                cx.ct.cancelled().await;
                self.cancelled.fetch_add(1, SeqCst);
                self.on_cancel.notify_one();
                text("cancelled")
            }
            "progress" => {
                let token = cx.meta.get_progress_token().expect("a progress token");
                for step in 1..=5 {
                    sleep(Duration::from_secs(2)).await;
                    let params = ProgressNotificationParam::new(token.clone(), f64::from(step));
                    let _ = cx.peer.notify_progress(params).await;
                }
                text("imported")
            }
            "large" => text(&"x".repeat(17 << 20)),
            "ask" => Ok(CallToolResponse::InputRequired(
                InputRequiredResult::from_request_state("state"),
            )),
            "invalid" => Err(ErrorData::invalid_params("missing field `city`", None)),
            "broken" => Err(ErrorData::internal_error("the database is on fire", None)),
            _ => Err(ErrorData::invalid_params("tool not found", None)),
        }
    }
}

pub(crate) type Client<H> = RunningService<RoleClient, H>;

/// A client of a server in this process.
pub(crate) async fn connect<H: ClientHandler>(server: Server, handler: H) -> Client<H> {
    let (theirs, ours) = tokio::io::duplex(64 * 1024);
    tokio::spawn(async move {
        server
            .serve(theirs)
            .await?
            .waiting()
            .await
            .map_err(anyhow::Error::from)
    });
    handler.serve(ours).await.unwrap()
}

/// The same, speaking the revision of 2026-07-28.
pub(crate) async fn connect_modern(server: Server) -> Client<()> {
    let (theirs, ours) = tokio::io::duplex(64 * 1024);
    tokio::spawn(async move {
        server
            .serve(theirs)
            .await?
            .waiting()
            .await
            .map_err(anyhow::Error::from)
    });
    ().serve_with_lifecycle(ours, modern()).await.unwrap()
}

pub(crate) fn modern() -> ClientLifecycleMode {
    ClientLifecycleMode::Discover {
        preferred_versions: vec![ProtocolVersion::V_2026_07_28],
    }
}
