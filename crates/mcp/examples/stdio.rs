//! The tools of an MCP server that is a child process:
//! `cargo run -p tower-toolcall-mcp --example stdio`.
//!
//! The server is this program once more, unless its command line is given:
//! `-- npx -y @modelcontextprotocol/server-everything`.

use std::{env, time::Duration};

use rmcp::{ServiceExt as _, handler::server::wrapper::Parameters, tool, tool_router};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use tower::{ServiceBuilder, ServiceExt as _};
use tower_toolcall::{AnyError, ModelText as _, ServiceBuilderExt, ToolCall};
use tower_toolcall_mcp::McpServer;

struct Server;

#[derive(Deserialize, JsonSchema)]
struct Said {
    message: String,
}

#[tool_router(server_handler)]
impl Server {
    #[tool(description = "Says it again")]
    async fn echo(&self, Parameters(said): Parameters<Said>) -> String {
        format!("Echo: {}", said.message)
    }
}

#[tokio::main]
async fn main() -> Result<(), AnyError> {
    let mut words: Vec<_> = env::args_os().skip(1).collect();
    if words == ["serve"] {
        Server
            .serve((tokio::io::stdin(), tokio::io::stdout()))
            .await?
            .waiting()
            .await?;
        return Ok(());
    }
    if words.is_empty() {
        words = vec![env::current_exe()?.into(), "serve".into()];
    }
    let program = words.remove(0);
    let server = McpServer::command("child", program, words);
    server.connect().await?;
    let stack = ServiceBuilder::new()
        .tool_identity(server.clone())
        .tool_circuit_breaker()
        .tool_timeout(Duration::from_secs(10))
        .tool(server.clone());

    for tool in ["echo", "ecko"] {
        let call = ToolCall::new(tool).with_json(json!({ "message": "hello" }))?;
        match stack.clone().oneshot(call).await {
            Ok(answer) => println!("{tool}: {}", answer.model_text()),
            Err(error) => println!("{tool}: {}: {}", error.code(), error.model_message()),
        }
    }
    server.close().await;
    Ok(())
}
