//! A tool that answers 5 MB, before a model that can read 2,000 characters of it.
//!
//! ```text
//! cargo run -p tower-toolcall-mcp --example fit
//! ```
//!
//! The tool is that of a real MCP server in this process. What the model reads is printed as it is;
//! then it does what that says, and reads a part of the whole, which was kept.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use rmcp::{
    ServerHandler, ServiceExt as _,
    model::{CallToolResult, ContentBlock, ServerCapabilities, ServerConfig},
    tool, tool_handler, tool_router,
};
use serde::Deserialize;
use serde_json::json;
use tokio::time::Instant;
use tower::{BoxError, ServiceBuilder, ServiceExt as _, service_fn};
use tower_toolcall::{
    ModelText as _, ServiceBuilderExt as _, ToolCall, ToolError, check::CheckLayer, fit::FitLayer,
};
use tower_toolcall_mcp::{McpAnswer, McpServer};

/// What is kept, by its name. A real one has a bound and forgets.
type Store = Arc<Mutex<HashMap<String, String>>>;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let server = McpServer::new("ci", || async {
        let (theirs, ours) = tokio::io::duplex(64 * 1024);
        tokio::spawn(async move { anyhow::Ok(Server.serve(theirs).await?.waiting().await?) });
        anyhow::Ok(ours)
    });
    server.connect().await?;

    // The server's tools, and one of our own that reads what was kept.
    let store = Store::default();
    let (mcp, kept) = (server.clone(), store.clone());
    let leaf = service_fn(move |call: ToolCall| {
        let (mcp, kept) = (mcp.clone(), kept.clone());
        async move {
            match call.tool() {
                "read" => read(&kept, &call),
                _ => mcp.oneshot(call).await,
            }
        }
    });

    // Read it from the outside in: no answer of more than 16 MB, and none of more than 2,000
    // characters for the model.
    let keeper = store.clone();
    let tools = ServiceBuilder::new()
        .tool_trace()
        .layer(
            FitLayer::new(2_000)
                .with_advice("ask for some `lines` of it by the tool `read`")
                .with_keep(move |call, whole| {
                    let name = format!("{}-{}", call.tool(), call.id()?);
                    keeper.lock().ok()?.insert(name.clone(), whole.to_owned());
                    Some(name)
                }),
        )
        .layer(CheckLayer::max_bytes(16 << 20))
        .tool_timeout(Duration::from_secs(10))
        .tool_catch_panic()
        .tool(leaf);

    let lines = json!({ "name": "build_log-1", "lines": [47_998, 48_002] });
    for (what, id, tool, arguments) in [
        ("a tool that answers 5 MB", "1", "build_log", json!({})),
        ("a part of the whole", "2", "read", lines),
        ("a short answer", "3", "status", json!({})),
        (
            "a result that is 5 MB of structured content alone",
            "4",
            "graph",
            json!({}),
        ),
    ] {
        let call = ToolCall::new(tool).with_id(id).with_json(arguments)?;
        println!("== {what}: {tool} {}", call.sanitized());
        let start = Instant::now();
        match tools.clone().oneshot(call).await {
            Ok(answer) => show(&answer),
            Err(error) => println!("{}", error.model_message()),
        }
        println!("-- after {} ms\n", start.elapsed().as_millis());
    }
    for (name, whole) in store.lock().expect("no panic").iter() {
        println!("kept: {name}, {} bytes", whole.len());
    }
    server.close().await;
    Ok(())
}

/// Prints what the model reads.
fn show(answer: &McpAnswer) {
    let text = answer.model_text();
    println!("{text}");
    println!("-- {} characters", text.chars().count());
    if let Some(result) = answer.result() {
        let structured = result.structured_content.is_some();
        println!("-- structured content: {structured}");
    }
}

#[derive(Deserialize)]
struct Part {
    name: String,
    #[serde(default = "first_fifty")]
    lines: (usize, usize),
}

fn first_fifty() -> (usize, usize) {
    (1, 50)
}

/// Some lines of what was kept.
fn read(store: &Store, call: &ToolCall) -> Result<McpAnswer, ToolError> {
    let Part { name, lines } = call.arguments_as()?;
    let (from, to) = lines;
    let store = store.lock().expect("no panic");
    let Some(whole) = store.get(&*name) else {
        return Err(ToolError::from_box(BoxError::from(
            "nothing is kept by that name",
        )));
    };
    let before = from.saturating_sub(1);
    let lines = whole.lines().skip(before);
    let lines: Vec<_> = lines.take(to.saturating_sub(before)).collect();
    let text = ContentBlock::text(lines.join("\n"));
    Ok(CallToolResult::success(vec![text]).into())
}

#[derive(Clone, Debug)]
struct Server;

#[tool_router]
impl Server {
    #[tool(description = "The log of the last build")]
    async fn build_log(&self) -> CallToolResult {
        let line = |n| match n {
            48_000 => "error[E0382]: borrow of moved value: `naïve`\n".to_owned(),
            n => format!(
                "   Compiling part-{n} v0.1.0 (/src/crates/part-{n}): 12 °C, {} units, no warnings, nothing to tell\n",
                n % 7
            ),
        };
        let log: String = (1..=50_000).map(line).collect();
        // As Python servers do it: the same text twice.
        let mut result = CallToolResult::success(vec![ContentBlock::text(&log)]);
        result.structured_content = Some(json!({ "result": log }));
        result
    }

    #[tool(description = "Whether the last build has passed")]
    async fn status(&self) -> String {
        "failed: 1 error in 50,000 lines of log".to_owned()
    }

    #[tool(description = "The graph of all parts")]
    async fn graph(&self) -> CallToolResult {
        let mut result = CallToolResult::success(vec![ContentBlock::text("see the graph")]);
        result.structured_content = Some(json!({ "nodes": vec!["part"; 700_000] }));
        result
    }
}

#[tool_handler]
impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }
}
