//! The gateway itself.

use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use axum::middleware::from_fn_with_state;
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
    sync::mpsc::UnboundedReceiver,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use tower_toolcall::{
    AnyError,
    router::{Json, RouterBuilder, tool_fn},
    serve::Routes,
    validate::Schemas,
};
use tower_toolcall_mcp::{
    self as mcp, Catalog, GatewayHandler, McpAnswer, McpBodies, McpServer, McpSessions,
};

use super::{
    auth::{self, Callers},
    current::{Live, Plan},
    hosts::{self, Hosts},
    in_flight::{self, Calls},
    listen,
    options::Options,
    pages,
};

/// How long the last answers have to go out when no call runs any more.
pub(crate) const LAST_ANSWERS: Duration = Duration::from_secs(1);

pub(crate) struct Gateway {
    pub(crate) options: Options,
    live: Live,
    handler: GatewayHandler,
}

impl Gateway {
    /// Starts the servers. One that does not start does not keep the others from it.
    pub(crate) async fn start(options: Options, plan: Plan) -> anyhow::Result<Self> {
        let live = Live::new(plan)?;
        // MCP and plain HTTP share one stack: breakers, budgets, metrics, and the end.
        let handler = GatewayHandler::new(live.clone(), live.clone());
        live.connect(&handler).await;
        Ok(Self {
            options,
            live,
            handler,
        })
    }

    pub(crate) fn upstreams(&self) -> Vec<McpServer> {
        let now = self.live.now();
        now.servers
            .iter()
            .map(|(_, server)| server.clone())
            .collect()
    }

    pub(crate) fn tools(&self) -> Vec<String> {
        self.live.now().router.names()
    }

    /// Returns the parts that a reload replaces, and the handler that notifies clients.
    pub(crate) fn reloaded(&self) -> (Live, GatewayHandler) {
        (self.live.clone(), self.handler.clone())
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
        let app = self.app(&draining, sessions.child_token())?;
        let closed = CancellationToken::new();
        let serve = listen::serve(listener, app, self.options.head, closed.clone());
        let mut serve = pin!(serve);
        let ends = async {
            signals.recv().await;
            self.live.close();
            // `/health` answers 503 while calls end.
            draining.store(true, SeqCst);
            drained(&self.handler, self.options.grace, &mut signals).await
        };
        let cut = tokio::select! {
            () = &mut serve => return Ok(Vec::new()),
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

    /// The routes, with the bounds and checks of requests.
    fn app(
        &self,
        draining: &Arc<AtomicBool>,
        end_of_sessions: CancellationToken,
    ) -> anyhow::Result<axum::Router> {
        let (options, live) = (&self.options, &self.live);
        let handler = self.handler.clone();
        let mcp = StreamableHttpService::new(
            move || Ok(handler.clone()),
            Arc::new(McpSessions::new(options.sessions)?),
            StreamableHttpServerConfig::default()
                .with_allowed_hosts(options.hosts())
                .with_cancellation_token(end_of_sessions),
        );
        let hosts = Hosts {
            hosts: options.hosts().into(),
            origins: options.origins.clone().into(),
        };
        let calls = Calls::new(options.calls, options.body);
        let callers = Callers::new(live.clone())?;
        let routes = Routes::new(self.handler.stack()).with_identity(live.clone());
        let app = routes
            .into_router()
            .nest_service("/mcp", McpBodies::new(mcp))
            .layer(from_fn_with_state(calls, in_flight::bound))
            .merge(pages::for_operators(live.clone(), Arc::clone(draining)))
            .layer(from_fn_with_state(callers, auth::check))
            .merge(auth::metadata(live.clone()))
            .layer(from_fn_with_state(hosts, hosts::check));
        // Probes name the address of a container.
        Ok(pages::for_probes(live.clone(), Arc::clone(draining)).merge(app))
    }
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

/// Adds the tool that a program to try has.
pub(crate) fn local_tool(
    router: RouterBuilder<McpAnswer>,
    schemas: &Schemas,
) -> RouterBuilder<McpAnswer> {
    Catalog::new([definition()]).put_schemas(schemas);
    router.described_tool(mcp::definition(definition()), tool_fn(count_words))
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
