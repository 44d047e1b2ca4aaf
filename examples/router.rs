//! Local tools and two MCP servers behind one router; one of the servers changes its tools.
//!
//! ```text
//! cargo run --features mcp,schemars --example router
//! ```
//!
//! Shown is what a model would see: the names that it may call, and the answer to each of its calls, mistakes included.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use rmcp::{
    RoleServer, ServerHandler, ServiceExt as _,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ErrorData,
        ListToolsResult, PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool,
    },
    service::{RequestContext, RunningService},
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use tower::{ServiceBuilder, ServiceExt as _};
use tower_toolcall::{
    AnyError, BoxError, ModelText as _, ToolCall,
    catch_panic::CatchPanicLayer,
    mcp::{McpNotifications, McpService},
    router::{Router, tool_fn},
    timeout::TimeoutLayer,
};

#[derive(Deserialize, JsonSchema)]
struct Weather {
    city: String,
    days: u8,
    #[serde(default)]
    unit: Unit,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Unit {
    #[default]
    Celsius,
    Fahrenheit,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    let weather = |w: Weather| async move {
        Ok::<_, AnyError>(format!(
            "{}: {} days of rain, in {:?}",
            w.city, w.days, w.unit
        ))
    };
    let slow = tool_fn(|(): ()| async {
        tokio::time::sleep(Duration::from_secs(60)).await;
        Ok::<_, AnyError>("at last")
    });
    let hasty = TimeoutLayer::new(Duration::from_millis(200));
    let docs = Server::start(&["search", "fetch"]).await?;
    let web = Server::start(&["search"]).await?;

    let router = Router::mcp()
        // Its schema is that of `Weather`, for clients and models.
        .typed_tool("weather", "Forecasts the weather of a city", weather)
        .tool("slow", ServiceBuilder::new().layer(hasty).service(slow))
        .server("docs", docs.service(), docs.listens.tools().clone())
        .server("web", web.service(), web.listens.tools().clone())
        .build()?;
    println!("tools   {}", router.names().join(", "));
    let schema = json!(router.definitions()[0].schema()["required"]);
    println!("weather takes {schema}\n");

    let stack = ServiceBuilder::new()
        .layer(router.identity())
        .layer(CatchPanicLayer::new())
        .service(router.clone());
    let run = async |name: &str, arguments: Value| -> Result<(), BoxError> {
        println!("call    {name} {arguments}");
        let call = ToolCall::new(name).with_json(arguments)?;
        match stack.clone().oneshot(call).await {
            Ok(answer) => println!("model   {}\n", answer.model_text()),
            Err(error) => println!("model   {}\n", error.model_message()),
        }
        Ok(())
    };

    run("weather", json!({ "city": "Oslo", "days": 3 })).await?;
    run("weather", json!({ "city": "Oslo", "days": "three" })).await?;
    run(
        "weather",
        json!({ "city": "Oslo", "days": 3, "unit": "kelvin" }),
    )
    .await?;
    run("slow", json!({})).await?;
    run("docs__search", json!({ "q": "tower" })).await?;
    run("search", json!({ "q": "tower" })).await?;

    println!("        the server `docs` gets `summarize`, and loses `search`\n");
    docs.change(&["fetch", "summarize"]).await?;
    println!("tools   {}\n", router.names().join(", "));
    run("docs__search", json!({ "q": "tower" })).await?;
    run("docs__summarize", json!({})).await?;
    Ok(())
}

/// A server in this process, and the connection to it.
struct Server {
    tools: Tools,
    end: RunningService<RoleServer, Tools>,
    client: RunningService<rmcp::RoleClient, McpNotifications>,
    listens: McpNotifications,
}

impl Server {
    async fn start(names: &[&'static str]) -> Result<Self, BoxError> {
        let tools = Tools(Arc::new(Mutex::new(names.to_vec())));
        let listens = McpNotifications::new();
        let (theirs, ours) = tokio::io::duplex(64 * 1024);
        let (end, client) = tokio::join!(tools.clone().serve(theirs), listens.clone().serve(ours));
        let (end, client) = (end?, client?);
        listens.tools().refresh(client.peer()).await?;
        Ok(Self {
            tools,
            end,
            client,
            listens,
        })
    }

    fn service(&self) -> McpService {
        McpService::new(self.client.peer().clone())
    }

    /// Other tools from now on; the client is told, and asks.
    async fn change(&self, names: &[&'static str]) -> Result<(), BoxError> {
        *self.tools.0.lock().map_err(|_| "poisoned")? = names.to_vec();
        self.end.peer().notify_tool_list_changed().await?;
        // The client asks again at its leisure, at most once a second.
        let followed = async {
            let has = |name: &&str| self.listens.tools().catalog().get(name).is_some();
            while !names.iter().all(has) {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), followed).await?;
        Ok(())
    }
}

#[derive(Clone)]
struct Tools(Arc<Mutex<Vec<&'static str>>>);

impl ServerHandler for Tools {
    fn get_info(&self) -> ServerConfig {
        let can = ServerCapabilities::builder().enable_tools();
        ServerConfig::new(can.enable_tool_list_changed().build())
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let names = self.0.lock().map(|names| names.clone()).unwrap_or_default();
        let tool = |name| Tool::new(name, "", Arc::default());
        let tools = names.into_iter().map(tool).collect();
        Ok(ListToolsResult::with_all_items(tools))
    }

    async fn call_tool(
        &self,
        call: CallToolRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let text = format!("{} says hello", call.name);
        Ok(CallToolResult::success(vec![ContentBlock::text(text)]).into())
    }
}
