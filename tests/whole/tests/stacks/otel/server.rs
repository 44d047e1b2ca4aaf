//! A real rmcp server that makes a span of its own for each call, as a child of the caller's.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use opentelemetry::baggage::BaggageExt;
use rmcp::{
    RoleClient, RoleServer, ServerHandler, ServiceExt,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ErrorData,
        ServerCapabilities, ServerConfig,
    },
    service::{RequestContext, RunningService},
};
use serde_json::{Map, Value, json};
use tokio::sync::Notify;
use tower_toolcall::otel;
use tracing::{Instrument, Span, field::Empty};

#[derive(Clone, Default)]
pub(crate) struct Server {
    /// The `_meta` of each request.
    pub(crate) metas: Arc<Mutex<Vec<Map<String, Value>>>>,
    /// A call has learned that nobody waits for it any more.
    pub(crate) cancelled: Arc<Notify>,
    flaky: Arc<AtomicUsize>,
}

pub(crate) type Client = RunningService<RoleClient, ()>;

impl Server {
    pub(crate) async fn connect(&self) -> Client {
        let (theirs, ours) = tokio::io::duplex(64 * 1024);
        let server = self.clone();
        tokio::spawn(async move {
            let serving = server.serve(theirs).await.unwrap();
            serving.waiting().await
        });
        ().serve(ours).await.unwrap()
    }

    async fn answer(&self, tool: &str) -> Result<CallToolResponse, ErrorData> {
        let text = |s: &str| vec![ContentBlock::text(s)];
        match tool {
            "echo" => Ok(CallToolResult::success(text("hello")).into()),
            "flaky" if self.flaky.fetch_add(1, Relaxed) == 0 => Err(ErrorData::internal_error(
                "upstream said 503 to Authorization: Bearer canary-error-0123456789",
                Some(json!({ "api_key": "canary-error-data" })),
            )),
            "flaky" => Ok(CallToolResult::structured(json!({
                "access_token": "canary-result-key",
                "note": "fetched https://bot:canary-result-url@example.com/",
                "sum": 3,
            }))
            .into()),
            "flagged" => {
                let own_words = "refused: password=canary-flagged-text";
                Ok(CallToolResult::error(text(own_words)).into())
            }
            "hang" => std::future::pending().await,
            _ => Err(ErrorData::invalid_params("tool not found", None)),
        }
    }
}

fn span(tool: &str, meta: &Map<String, Value>) -> Span {
    let span = tracing::info_span!(
        "tools/call",
        otel.name = format!("tools/call {tool}"),
        otel.kind = "server",
        mcp.method.name = "tools/call",
        session.id = Empty,
    );
    if let Some(parent) = otel::parent_from_meta(meta) {
        if let Some(session) = parent.baggage().get("session.id") {
            span.record("session.id", session.as_str());
        }
        otel::set_parent(&span, parent);
    }
    span
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }

    async fn call_tool(
        &self,
        call: CallToolRequestParams,
        cx: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        self.metas.lock().unwrap().push(cx.meta.0.0.clone());
        let answer = self
            .answer(&call.name)
            .instrument(span(&call.name, &cx.meta));
        // rmcp does not end a handler whose caller has gone.
        tokio::select! {
            answer = answer => answer,
            () = cx.ct.cancelled() => {
                self.cancelled.notify_one();
                Err(ErrorData::internal_error("cancelled", None))
            }
        }
    }
}
