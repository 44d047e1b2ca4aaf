//! Local tools and two MCP servers behind one router; one of the servers changes its tools.
//!
//! ```text
//! cargo run -p tower-toolcall-mcp --example router
//! ```
//!
//! Shown is what a model would see: the names that it may call, and the answer to each of its
//! calls, mistakes included.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use rmcp::{
    RoleServer, ServerHandler, ServiceExt as _,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ErrorData,
        ListToolsResult, PaginatedRequestParams, ServerCapabilities, ServerConfig,
        SubscriptionFilter, Tool,
    },
    service::{RequestContext, SubscriptionContext},
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tower::{ServiceBuilder, ServiceExt as _};
use tower_toolcall::{
    AnyError, BoxError, ModelText as _, ToolCall, catch_panic::CatchPanicLayer, router::tool_fn,
    timeout::TimeoutLayer,
};
use tower_toolcall_mcp::{self as mcp, McpServer};

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
    let docs_tools = Tools::new(&["search", "fetch"]);
    let docs = docs_tools.connect("docs").await?;
    let web = Tools::new(&["search"]).connect("web").await?;

    let router = mcp::router()
        // Its schema is that of `Weather`, for clients and models.
        .typed_tool("weather", "Forecasts the weather of a city", weather)
        .tool("slow", ServiceBuilder::new().layer(hasty).service(slow))
        .server("docs", docs.clone(), docs.tools().clone())
        .server("web", web.clone(), web.tools().clone())
        .build()?;
    println!("tools   {}", router.names().join(", "));
    let definition = router.definition("weather").ok_or("not found")?;
    println!("weather takes {}\n", definition.schema()["required"]);

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
    docs_tools.change(&["fetch", "summarize"], &docs).await?;
    println!("tools   {}\n", router.names().join(", "));
    run("docs__search", json!({ "q": "tower" })).await?;
    run("docs__summarize", json!({})).await?;
    Ok(())
}

/// A server in this process.
#[derive(Clone)]
struct Tools(Arc<Mutex<Vec<&'static str>>>, Arc<Notify>);

impl Tools {
    fn new(names: &[&'static str]) -> Self {
        Self(Arc::new(Mutex::new(names.to_vec())), Arc::default())
    }

    /// The service that calls them, and makes a lost connection again.
    async fn connect(&self, name: &'static str) -> Result<McpServer, BoxError> {
        let tools = self.clone();
        let server = McpServer::new(name, move || {
            let (theirs, ours) = tokio::io::duplex(64 * 1024);
            let tools = tools.clone();
            tokio::spawn(async move { anyhow::Ok(tools.serve(theirs).await?.waiting().await?) });
            async { Ok::<_, BoxError>(ours) }
        });
        server.connect().await?;
        Ok(server)
    }

    /// Other tools from now on. The client is notified, and reads the list again, at most once a
    /// second.
    async fn change(&self, names: &[&'static str], client: &McpServer) -> Result<(), BoxError> {
        let (sender, mut changed) = tokio::sync::mpsc::channel(1);
        client.tools().on_change(move || {
            let _ = sender.try_send(());
        });
        *self.0.lock().map_err(|_| "poisoned")? = names.to_vec();
        self.1.notify_one();
        changed.recv().await.ok_or("the list is gone")?;
        Ok(())
    }
}

impl ServerHandler for Tools {
    fn get_info(&self) -> ServerConfig {
        let can = ServerCapabilities::builder().enable_tools();
        ServerConfig::new(can.enable_tool_list_changed().build())
    }

    fn accepted_subscription_filter(
        &self,
        asked: &SubscriptionFilter,
    ) -> Option<SubscriptionFilter> {
        Some(asked.clone())
    }

    async fn listen(&self, cx: SubscriptionContext) -> Result<(), ErrorData> {
        loop {
            self.1.notified().await;
            let _ = cx.sink().notify_tool_list_changed().await;
        }
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
