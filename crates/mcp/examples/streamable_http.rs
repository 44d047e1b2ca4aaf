//! The tools of an MCP server over streamable HTTP:
//! `cargo run -p tower-toolcall-mcp --features http --example streamable_http`.
//!
//! The server is in this process, and dies at the end, unless the address of another one is given:
//! `-- http://127.0.0.1:3000/mcp`.

use std::{env, sync::Arc, time::Duration};

use axum::serve::ListenerExt as _;
use rmcp::{
    tool, tool_router,
    transport::{
        StreamableHttpClientTransport, StreamableHttpServerConfig, StreamableHttpService,
        streamable_http_server::session::local::LocalSessionManager,
    },
};
use tokio::{net::TcpListener, time::sleep};
use tower::{ServiceBuilder, ServiceExt as _};
use tower_toolcall::{AnyError, ModelText as _, ServiceBuilderExt, ToolCall, retry::RetryPolicy};
use tower_toolcall_mcp::McpServer;

struct Server;

#[tool_router(server_handler)]
impl Server {
    #[tool(description = "Answers")]
    async fn ping(&self) -> String {
        "pong".to_owned()
    }

    #[tool(description = "Never answers")]
    async fn hang(&self) -> String {
        std::future::pending().await
    }
}

#[tokio::main]
async fn main() -> Result<(), AnyError> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let own = format!("http://{}/mcp", listener.local_addr()?);
    let sessions = Arc::new(LocalSessionManager::default());
    let config = StreamableHttpServerConfig::default();
    let mcp = StreamableHttpService::new(|| Ok(Server), sessions, config);
    let app = axum::Router::new().nest_service("/mcp", mcp);
    // Without it each answer waits 40 ms for an acknowledgement.
    let listener = listener.tap_io(|tcp| drop(tcp.set_nodelay(true)));
    let server = tokio::spawn(async move { axum::serve(listener, app).await });

    let url = env::args().nth(1).unwrap_or(own);
    let web = McpServer::new("web", move || {
        let transport = StreamableHttpClientTransport::from_uri(url.as_str());
        async { Ok::<_, AnyError>(transport) }
    });
    let web = web.trust_annotations(); // it is this program's own
    web.connect().await?;
    let stack = ServiceBuilder::new()
        .tool_identity(web.clone())
        .tool_deadline(Duration::from_secs(5))
        .tool_retry(RetryPolicy::new()) // only what did not run, or may run twice
        .tool_timeout(Duration::from_millis(300))
        .tool(web);

    for tool in ["ping", "hang", "ping"] {
        if tool == "ping" && server.is_finished() {
            println!("the server is gone");
        }
        match stack.clone().oneshot(ToolCall::new(tool)).await {
            Ok(answer) => println!("{tool}: {}", answer.model_text()),
            Err(error) => println!("{tool}: {}: {}", error.code(), error.model_message()),
        }
        if tool == "hang" {
            server.abort();
            sleep(Duration::from_millis(50)).await;
        }
    }
    Ok(())
}
