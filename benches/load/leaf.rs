//! What the stacks stand on: a tool in this process, or that of an MCP server.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use rmcp::{
    ErrorData, RoleClient, RoleServer, ServerHandler, ServiceExt as _,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ServerCapabilities,
        ServerConfig,
    },
    service::{RequestContext, RunningService},
    transport::{
        StreamableHttpClientTransport, StreamableHttpServerConfig, StreamableHttpService,
        streamable_http_server::session::local::LocalSessionManager,
    },
};
use tokio::{net::TcpListener, task::JoinHandle, time::timeout};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;
use tower_toolcall::BoxError;
use tower_toolcall_mcp::{McpAnswer, McpService};

use crate::candidates::stacks::Leaf;

pub(crate) const TOOL: &str = "search";

/// How often a tool has run.
static RUNS: AtomicU64 = AtomicU64::new(0);

pub(crate) fn runs() -> u64 {
    RUNS.load(Relaxed)
}

/// A tool whose runs are counted.
pub(crate) fn counted(tool: impl Leaf) -> impl Leaf {
    tool.map_response(|answers| {
        RUNS.fetch_add(1, Relaxed);
        answers
    })
}

#[derive(Clone)]
struct Search;

impl ServerHandler for Search {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }

    async fn call_tool(
        &self,
        call: CallToolRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        if call.name != TOOL {
            return Err(ErrorData::invalid_params("no such tool", None));
        }
        RUNS.fetch_add(1, Relaxed);
        Ok(CallToolResult::success(vec![ContentBlock::text("found")]).into())
    }
}

#[derive(Clone, Copy)]
pub(crate) enum Way {
    Stream,
    Http,
}

/// A server, and the connection to it.
pub(crate) struct Server {
    client: RunningService<RoleClient, ()>,
    server: JoinHandle<Result<(), BoxError>>,
    stop: CancellationToken,
}

pub(crate) async fn serve(way: Way) -> Result<Server, BoxError> {
    let stop = CancellationToken::new();
    let (client, server) = match way {
        Way::Stream => {
            let (theirs, ours) = tokio::io::duplex(64 * 1024);
            let server = tokio::spawn(async move {
                Search.serve(theirs).await?.waiting().await?;
                Ok(())
            });
            (().serve(ours).await?, server)
        }
        Way::Http => {
            let config =
                StreamableHttpServerConfig::default().with_cancellation_token(stop.child_token());
            let sessions = Arc::new(LocalSessionManager::default());
            let mcp = StreamableHttpService::new(|| Ok(Search), sessions, config);
            let app = axum::Router::new().nest_service("/mcp", mcp);
            let listener = TcpListener::bind("127.0.0.1:0").await?;
            let url = format!("http://{}/mcp", listener.local_addr()?);
            let stopped = stop.clone().cancelled_owned();
            let server = tokio::spawn(async move {
                let serve = axum::serve(listener, app).with_graceful_shutdown(stopped);
                Ok(serve.await?)
            });
            let transport = StreamableHttpClientTransport::from_uri(url);
            (().serve(transport).await?, server)
        }
    };
    Ok(Server {
        client,
        server,
        stop,
    })
}

impl Server {
    /// An answer is a 1 if it is the right one.
    pub(crate) fn leaf(&self) -> impl Leaf {
        McpService::new(self.client.peer().clone())
            .map_response(|answer| u64::from(is_right(&answer)))
            .map_err(BoxError::from)
    }

    pub(crate) async fn close(self) -> Result<(), BoxError> {
        self.client.cancel().await?;
        self.stop.cancel();
        timeout(Duration::from_secs(10), self.server).await??
    }
}

fn is_right(answer: &McpAnswer) -> bool {
    let Some(result) = answer.result() else {
        return false;
    };
    let text = result.content.first().and_then(|block| block.as_text());
    text.is_some_and(|text| text.text == "found")
}
