//! The gateway itself.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use rmcp::{
    handler::server::tool::schema_for_type,
    model::{CallToolResponse, Tool, ToolAnnotations},
    transport::streamable_http_server::{
        StreamableHttpServerConfig, StreamableHttpService, session::local::LocalSessionManager,
    },
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::{net::TcpListener, time::timeout};
use tokio_util::sync::CancellationToken;
use tower::{ServiceBuilder, ServiceExt as _};
use tower_toolcall::{
    BoxError,
    axum::Routes,
    health::Health,
    mcp::{GatewayHandler, McpClassifier, McpJson},
    metrics::Metrics,
    router::{Json, Router, tool_fn},
    settings::Settings,
};

use super::{
    pages::pages,
    upstream::{Program, Upstream},
};

/// How long calls have to end when the gateway stops.
const DRAIN: Duration = Duration::from_secs(10);

pub(crate) struct Gateway {
    upstreams: [Upstream; 2],
    router: Router<CallToolResponse>,
    handler: GatewayHandler,
    routes: Routes,
    health: Health,
    metrics: Metrics,
}

impl Gateway {
    /// Starts the servers. One that does not start is no obstacle: the next call tries again.
    pub(crate) async fn start(settings: Settings) -> anyhow::Result<Self> {
        let everything = Upstream::new("everything", Program::everything()?);
        let time = Upstream::new("time", Program::time()?);
        for server in [&everything, &time] {
            if let Err(error) = server.service.connect().await {
                eprintln!("{} is not there: {error}", server.name);
            }
        }

        let (health, metrics) = (Health::new(), Metrics::new());
        let router = Router::mcp()
            .mcp_tool(definition(), tool_fn(count_words))
            .server(
                everything.name,
                everything.service.clone(),
                everything.tools.clone(),
            )
            .server(time.name, time.service.clone(), time.tools.clone())
            .with_health(&health)
            .build()?;
        let replay_safety = router.clone();
        let layers = settings
            .stack()
            .with_classifier(McpClassifier::new())
            .with_metrics(&metrics)
            .with_replay_safety(move |call| replay_safety.replay_safety(call))
            .build()?;
        let stack = ServiceBuilder::new().layer(layers).service(router.clone());
        // One stack, two ways in: they share breakers, budgets and figures.
        let list = router.clone();
        let handler = GatewayHandler::new(stack.clone(), move || list.mcp_tools());
        for server in [&everything, &time] {
            handler.follow(&server.tools);
        }
        Ok(Self {
            upstreams: [everything, time],
            router,
            handler,
            routes: Routes::new(stack.map_response(McpJson)),
            health,
            metrics,
        })
    }

    pub(crate) fn upstreams(&self) -> &[Upstream] {
        &self.upstreams
    }

    pub(crate) fn tools(&self) -> Vec<String> {
        self.router.names()
    }

    /// Serves until `stop`, and then until the calls in flight have ended.
    pub(crate) async fn serve(
        self,
        listener: TcpListener,
        stop: impl Future<Output = ()> + Send + 'static,
    ) -> io::Result<()> {
        let draining = Arc::new(AtomicBool::new(false));
        let sessions = CancellationToken::new();
        let handler = self.handler.clone();
        let mcp = StreamableHttpService::new(
            move || Ok(handler.clone()),
            Arc::new(LocalSessionManager::default()),
            StreamableHttpServerConfig::default().with_cancellation_token(sessions.child_token()),
        );
        let app = self
            .routes
            .into_router()
            .nest_service("/mcp", mcp)
            .merge(pages(self.health, self.metrics, Arc::clone(&draining)));

        let stopped = CancellationToken::new();
        let drain = async {
            stop.await;
            draining.store(true, SeqCst);
            stopped.cancel();
            if timeout(DRAIN, self.handler.drain()).await.is_err() {
                eprintln!("{} calls are cut off", self.handler.in_flight());
            }
            // The streams of MCP sessions would never end by themselves.
            sessions.cancel();
        };
        let serve =
            axum::serve(listener, app).with_graceful_shutdown(stopped.clone().cancelled_owned());
        let ((), served) = tokio::join!(drain, serve.into_future());
        served
    }
}

#[derive(Deserialize, JsonSchema)]
struct Text {
    text: String,
}

/// The local tool.
async fn count_words(Text { text }: Text) -> Result<Json<Value>, BoxError> {
    Ok(Json(json!({ "words": text.split_whitespace().count() })))
}

fn definition() -> Tool {
    Tool::new(
        "count_words",
        "Counts the words of a text.",
        schema_for_type::<Text>(),
    )
    .with_annotations(ToolAnnotations::new().read_only(true))
}
