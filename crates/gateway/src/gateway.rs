//! The gateway itself.

use std::{
    future::IntoFuture as _,
    net::SocketAddr,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use axum::{middleware::from_fn_with_state, serve::ListenerExt as _};
use futures_util::future::join_all;
use rmcp::{
    handler::server::tool::schema_for_type,
    model::{Tool, ToolAnnotations},
    transport::{StreamableHttpServerConfig, StreamableHttpService},
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::{
    net::TcpListener,
    sync::{Semaphore, mpsc::UnboundedReceiver},
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use tower::ServiceBuilder;
use tower_toolcall::{
    AnyError,
    health::Health,
    router::{Json, Router, tool_fn},
    serve::Routes,
    settings::Settings,
    tool_metrics::Metrics,
    validate::Schemas,
};
use tower_toolcall_mcp::{
    self as mcp, Catalog, GatewayHandler, McpAnswer, McpBodies, McpClassifier, McpServer,
    McpSessions,
};
use tracing::warn;

use super::{
    hosts, in_flight,
    options::Options,
    pages::pages,
    upstream::{self, Server, upstream},
};

/// How long the last answers have to go out when no call runs any more.
pub(crate) const LAST_ANSWERS: Duration = Duration::from_secs(1);

/// How long the gateway waits for each server when it starts.
const FIRST: Duration = Duration::from_secs(10);

pub(crate) struct Gateway {
    pub(crate) options: Options,
    upstreams: Vec<McpServer>,
    /// The tasks that keep trying to start servers, and those that notify clients of changes.
    beside: JoinSet<()>,
    router: Router<McpAnswer>,
    handler: GatewayHandler,
    routes: Routes,
    health: Health,
    metrics: Metrics,
}

impl Gateway {
    /// Starts the servers of the options. If there are none, starts those of the tests, with a
    /// local tool.
    pub(crate) async fn start(settings: Settings, options: Options) -> anyhow::Result<Self> {
        let is_demo = options.servers.is_empty();
        let servers = match is_demo {
            true => Server::installed()?,
            false => options.servers.clone(),
        };
        let gateway = Self::of(settings, servers, is_demo).await?;
        Ok(Self { options, ..gateway })
    }

    /// Starts the servers. One that does not start does not keep the others from it.
    pub(crate) async fn of(
        settings: Settings,
        servers: Vec<Server>,
        has_local_tool: bool,
    ) -> anyhow::Result<Self> {
        // Arguments that do not fit a tool's schema are refused, and not sent.
        let schemas = Schemas::new();
        let mut router = mcp::router();
        if has_local_tool {
            Catalog::new([definition()]).put_schemas(&schemas);
            router = router.described_tool(mcp::definition(definition()), tool_fn(count_words));
        }
        let upstreams = servers.into_iter().map(|s| upstream(s, &schemas));
        let upstreams = upstreams.collect::<Result<Vec<_>, _>>()?;
        let mut beside = connect(&upstreams).await;

        let metrics = Metrics::new();
        let health = settings.health_builder().build()?;
        for server in &upstreams {
            router = router.server(&**server.name(), server.clone(), server.tools().clone());
        }
        let router = router.with_health(&health).build()?;
        let layers = settings
            .stack()
            .with_classifier(McpClassifier::new())
            .with_metrics(&metrics)
            .with_identity(router.clone())
            .with_schemas(&schemas)
            .build()?;
        let stack = ServiceBuilder::new().layer(layers).service(router.clone());
        // MCP and plain HTTP share one stack: breakers, budgets, metrics, and the end.
        let handler = GatewayHandler::new(stack, router.clone());
        let routes = Routes::new(handler.stack());
        for server in &upstreams {
            handler.follow(server.tools());
        }
        beside.spawn(handler.follow_health(&health));
        Ok(Self {
            options: Options::default(),
            upstreams,
            beside,
            routes: routes.with_identity(router.clone()),
            router,
            handler,
            health,
            metrics,
        })
    }

    pub(crate) fn upstreams(&self) -> &[McpServer] {
        &self.upstreams
    }

    pub(crate) fn tools(&self) -> Vec<String> {
        self.router.names()
    }

    /// Serves until the first signal, and then until the calls in flight have ended. Calls that
    /// run at the end of that time, or at the second signal, are cut short: returns their tools,
    /// one for each call.
    pub(crate) async fn serve(
        self,
        listener: TcpListener,
        mut signals: UnboundedReceiver<()>,
    ) -> anyhow::Result<Vec<String>> {
        let draining = Arc::new(AtomicBool::new(false));
        let sessions = CancellationToken::new();
        let handler = self.handler.clone();
        let mcp = StreamableHttpService::new(
            move || Ok(handler.clone()),
            Arc::new(McpSessions::new(self.options.sessions)?),
            StreamableHttpServerConfig::default()
                .with_allowed_hosts(self.options.hosts())
                .with_cancellation_token(sessions.child_token()),
        );
        let calls = Arc::new(Semaphore::new(self.options.calls as usize));
        let hosts: Arc<[String]> = self.options.hosts().into();
        let pages = pages(
            self.upstreams,
            self.health,
            self.metrics,
            Arc::clone(&draining),
        );
        let app = self
            .routes
            .into_router()
            .nest_service("/mcp", McpBodies::new(mcp))
            .layer(from_fn_with_state(calls, in_flight::bound))
            .merge(pages)
            .layer(from_fn_with_state(hosts, hosts::check))
            // With the address, so that a client with failing arguments opens no breaker for
            // others.
            .into_make_service_with_connect_info::<SocketAddr>();

        // Otherwise the second part of each answer waits 40 ms until the client acknowledges the
        // first.
        let listener = listener.tap_io(|tcp| drop(tcp.set_nodelay(true)));
        let closed = CancellationToken::new();
        let serve =
            axum::serve(listener, app).with_graceful_shutdown(closed.clone().cancelled_owned());
        let mut serve = pin!(serve.into_future());
        let ends = async {
            signals.recv().await;
            drop(self.beside);
            // `/health` answers 503 while calls end.
            draining.store(true, SeqCst);
            drained(&self.handler, self.options.grace, &mut signals).await
        };
        let cut = tokio::select! {
            served = &mut serve => return Ok(served.map(|()| Vec::new())?),
            cut = ends => cut,
        };
        // No connection is taken any more, and all answers are being written.
        closed.cancel();
        let served = timeout(LAST_ANSWERS, &mut serve).await;
        // MCP sessions and their streams do not end by themselves.
        sessions.cancel();
        if served.is_err() {
            let _ = timeout(LAST_ANSWERS, serve).await;
        }
        Ok(cut)
    }
}

/// Connects to all servers, for a time. Returns the tasks that go on with those that are not there.
async fn connect(upstreams: &[McpServer]) -> JoinSet<()> {
    let mut beside = JoinSet::new();
    let first = upstreams.iter().map(|it| timeout(FIRST, it.connect()));
    for (server, connected) in upstreams.iter().zip(join_all(first).await) {
        match connected {
            Ok(Ok(_)) => continue,
            Ok(Err(error)) => warn!("{} is not there yet: {error}", server.name()),
            Err(_) => warn!("{} is not there yet", server.name()),
        }
        beside.spawn(upstream::connect(server.clone()));
    }
    beside
}

/// Waits until no call runs. Cuts calls short after `grace` seconds, or at a signal, and returns
/// their tools.
async fn drained(
    handler: &GatewayHandler,
    grace: u64,
    signals: &mut UnboundedReceiver<()>,
) -> Vec<String> {
    let over = async {
        tokio::select! {
            () = sleep(Duration::from_secs(grace)) => {}
            _ = signals.recv() => {}
        }
    };
    tokio::select! {
        () = handler.drain() => Vec::new(),
        () = over => timeout(LAST_ANSWERS, handler.cut_short()).await.unwrap_or_default(),
    }
}

#[derive(Deserialize, JsonSchema)]
struct Text {
    text: String,
}

/// The local tool.
async fn count_words(Text { text }: Text) -> Result<Json<Value>, AnyError> {
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
