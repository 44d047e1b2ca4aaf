//! The gateway itself.

use std::{
    future::IntoFuture as _,
    io,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use axum::{
    extract::Request,
    middleware::{Next, from_fn},
    response::IntoResponse as _,
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
use tokio::{
    net::TcpListener,
    task::JoinSet,
    time::{Instant, timeout, timeout_at},
};
use tokio_util::sync::CancellationToken;
use tower::{ServiceBuilder, ServiceExt as _};
use tower_toolcall::{
    BoxError, ErrorKind, ToolError,
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
pub(crate) const DRAIN: Duration = Duration::from_secs(10);

/// How long answers have to go out, beside.
const LAST_ANSWERS: Duration = Duration::from_secs(1);

pub(crate) struct Gateway {
    upstreams: [Upstream; 2],
    /// Who goes on trying to start a server, and who tells clients that one has come or gone.
    beside: JoinSet<()>,
    router: Router<CallToolResponse>,
    handler: GatewayHandler,
    routes: Routes,
    health: Health,
    metrics: Metrics,
}

impl Gateway {
    pub(crate) async fn start(settings: Settings) -> anyhow::Result<Self> {
        Self::of(settings, Program::everything()?, Program::time()?).await
    }

    /// Starts the servers. One that does not start is no obstacle.
    pub(crate) async fn of(
        settings: Settings,
        everything: Program,
        time: Program,
    ) -> anyhow::Result<Self> {
        let everything = Upstream::new("everything", everything);
        let time = Upstream::new("time", time);
        let mut beside = JoinSet::new();
        for server in [&everything, &time] {
            if let Err(error) = server.service.connect().await {
                eprintln!("{} is not there yet: {error}", server.name);
                beside.spawn(server.clone().connect());
            }
        }

        let metrics = Metrics::new();
        let health = settings.health_builder().build()?;
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
        let layers = settings
            .stack()
            .with_classifier(McpClassifier::new())
            .with_metrics(&metrics)
            .with_identity(router.clone())
            .build()?;
        let stack = ServiceBuilder::new().layer(layers).service(router.clone());
        // One stack, two ways in: they share breakers, budgets and figures.
        let handler = GatewayHandler::new(stack.clone(), router.clone());
        for server in [&everything, &time] {
            handler.follow(&server.tools);
        }
        beside.spawn(handler.follow_health(&health));
        Ok(Self {
            upstreams: [everything, time],
            beside,
            routes: Routes::new(stack.map_response(McpJson)).with_identity(router.clone()),
            router,
            handler,
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

    /// Serves until `stop`, and then until the calls in flight have ended, or are cut off.
    pub(crate) async fn serve(
        self,
        listener: TcpListener,
        stop: impl Future<Output = ()>,
    ) -> io::Result<()> {
        let draining = Arc::new(AtomicBool::new(false));
        let sessions = CancellationToken::new();
        let handler = self.handler.clone();
        let mcp = StreamableHttpService::new(
            move || Ok(handler.clone()),
            Arc::new(LocalSessionManager::default()),
            StreamableHttpServerConfig::default().with_cancellation_token(sessions.child_token()),
        );
        let closing = Arc::clone(&draining);
        // The handler does the same for MCP.
        let turn_away = from_fn(move |request: Request, next: Next| {
            let closing = closing.load(SeqCst);
            async move {
                match closing {
                    true => ToolError::new(ErrorKind::Overloaded, "closing").into_response(),
                    false => next.run(request).await,
                }
            }
        });
        let app = self
            .routes
            .into_router()
            .layer(turn_away)
            .nest_service("/mcp", mcp)
            .merge(pages(
                self.upstreams,
                self.health,
                self.metrics,
                Arc::clone(&draining),
            ));

        let closed = CancellationToken::new();
        let serve =
            axum::serve(listener, app).with_graceful_shutdown(closed.clone().cancelled_owned());
        let mut serve = pin!(serve.into_future());
        let stopped = async {
            stop.await;
            Instant::now() + DRAIN
        };
        let end = tokio::select! {
            served = &mut serve => return served,
            end = stopped => end,
        };
        drop(self.beside);
        // While MCP's calls end, whoever looks is told so.
        draining.store(true, SeqCst);
        tokio::select! {
            served = &mut serve => return served,
            _ = timeout_at(end, self.handler.drain()) => {}
        }
        // From here on nobody comes in, and what is being answered, over plain HTTP too, is answered to its end.
        closed.cancel();
        if let Ok(served) = timeout(LAST_ANSWERS, &mut serve).await {
            return served;
        }
        // The streams of MCP sessions never end by themselves. What is still being answered on them is cut off.
        sessions.cancel();
        let served = timeout_at(end + LAST_ANSWERS, serve).await;
        served.unwrap_or_else(|_| {
            eprintln!("some calls are cut off");
            Ok(())
        })
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
