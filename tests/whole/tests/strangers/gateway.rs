//! The gateway: local tools and an MCP server's behind the documented stack, open to everybody.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use axum::Router as App;
use rmcp::{
    RoleServer, ServerHandler, ServiceExt as _,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ErrorData,
        ServerCapabilities, ServerConfig,
    },
    service::RequestContext,
    transport::streamable_http_server::{
        StreamableHttpServerConfig, StreamableHttpService, session::local::LocalSessionManager,
    },
};
use serde::Deserialize;
use tokio::{net::TcpListener, task::AbortHandle, time::sleep};
use tower::ServiceBuilder;
use tower_toolcall::{
    BoxError, Key, ServiceBuilderExt as _, ToolCall, Trust,
    cache::CacheLayer,
    circuit_breaker::{BreakerState, CircuitBreakerHandle, CircuitBreakerLayer},
    concurrency_limit::{ConcurrencyLimitHandle, ConcurrencyLimitLayer},
    fit::FitLayer,
    health::Health,
    middleware::from_fn,
    once::OnceLayer,
    policy::PolicyLayer,
    quota::{Quota, QuotaLayer},
    rate_limit::{RateLimitBackoffLayer, RateLimitHandle},
    repeat_guard::RepeatGuardLayer,
    retry::RetryPolicy,
    router::tool_fn,
    serve::Routes,
    tool_metrics::{Metrics, OTHER},
};
use tower_toolcall_mcp::{self as mcp, GatewayHandler, McpBodies, McpService};

/// The tools, as callers name them. Only `report` fails, as its caller asks it to.
pub(crate) const TOOLS: [&str; 6] = [
    "docs__echo",
    "docs__flag",
    "docs__nap",
    "report",
    "search",
    "slow",
];

#[derive(Deserialize)]
struct Query {
    query: String,
}

async fn search(asked: Query) -> Result<String, BoxError> {
    sleep(Duration::from_millis(2)).await;
    Ok(format!("found {}", asked.query))
}

async fn slow(_: ()) -> Result<&'static str, BoxError> {
    sleep(Duration::from_millis(60)).await;
    Ok("done")
}

async fn report(asked: Query) -> Result<&'static str, BoxError> {
    Err(asked.query.into())
}

/// An MCP server whose tools work, or say in their own words that they did not.
struct Docs;

impl ServerHandler for Docs {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }

    async fn call_tool(
        &self,
        params: CallToolRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let arguments = params.arguments.unwrap_or_default();
        let text = arguments.get("query").and_then(|q| q.as_str());
        let text = vec![ContentBlock::text(text.unwrap_or_default())];
        Ok(match &*params.name {
            "flag" => CallToolResult::error(text).into(),
            "nap" => {
                sleep(Duration::from_millis(60)).await;
                CallToolResult::success(text).into()
            }
            _ => CallToolResult::success(text).into(),
        })
    }
}

pub(crate) struct Gateway {
    pub(crate) address: SocketAddr,
    breakers: CircuitBreakerHandle,
    gates: RateLimitHandle,
    limits: ConcurrencyLimitHandle,
    health: Health,
    metrics: Metrics,
    tasks: Vec<AbortHandle>,
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

/// By what is asked for, as no call has a token here: strangers never ask for what the others do.
fn whose(call: &ToolCall) -> Option<&str> {
    match call.arguments().get("query")?.as_str()? {
        "tower" => Some("innocent"),
        _ => Some("stranger"),
    }
}

impl Gateway {
    /// That keeps so many keys of calls, for so long.
    pub(crate) async fn start(keys: usize, ttl: Duration) -> Self {
        let (near, far) = tokio::io::duplex(1 << 16);
        let server = tokio::spawn(async move {
            let running = Docs.serve(far).await.unwrap();
            let _ = running.waiting().await;
        });
        let client = ().serve(near).await.unwrap();
        let docs = McpService::new(client.peer().clone());
        let client = tokio::spawn(async move {
            let _ = client.waiting().await;
        });

        let health = Health::builder().with_refusal(true).build().unwrap();
        let router = mcp::router()
            .tool("search", tool_fn(search))
            .tool("slow", tool_fn(slow))
            .tool("report", tool_fn(report))
            .server("docs", docs, ["echo", "flag", "nap"])
            .with_health(&health)
            .build()
            .unwrap();
        let (breaker, gate) = (CircuitBreakerLayer::new(), RateLimitBackoffLayer::new());
        let (breakers, gates, metrics) = (breaker.handle(), gate.handle(), Metrics::new());
        // More than strangers can use of a tool that others use as well.
        let quota = QuotaLayer::new(Quota::per_second(1_000_000).unwrap());
        let limit = ConcurrencyLimitLayer::new(1000);
        let limits = limit.handle();
        // The worst case: strangers can make calls as anybody.
        let guard = RepeatGuardLayer::builder().with_keys(Key::by(|_| "everybody"));
        // Strangers have another principal than who is to be served, and may use up its share of
        // the keys.
        let once = OnceLayer::builder()
            .with_principal(whose)
            .with_ttl(ttl)
            .with_max_keys(keys);
        let cache = CacheLayer::builder(Duration::from_millis(50), ["docs__echo"]);
        let count = AtomicU64::new(0);
        let keyed = from_fn(move |call: ToolCall, mut next| {
            let call = call.with_once_key(count.fetch_add(1, Relaxed).to_string());
            async move { next.run(call).await }
        });
        let stack = ServiceBuilder::new()
            .tool_identity(router.clone())
            .tool_metrics(&metrics)
            .layer(guard.build().unwrap())
            .layer(
                PolicyLayer::new()
                    .deny("invented*")
                    .allow("*")
                    .deny_by_default(),
            )
            .layer(FitLayer::new(40_000))
            .layer(keyed)
            .layer(once.build().unwrap())
            .layer(cache.with_principal(whose).build().unwrap())
            .layer(quota)
            .tool_deadline(Duration::from_secs(5))
            .tool_retry(RetryPolicy::new())
            .layer(gate)
            .layer(limit)
            .layer(breaker)
            .tool_timeout(Duration::from_secs(2))
            .tool_catch_panic()
            .service(router.clone());

        let handler = GatewayHandler::new(stack.clone(), router.clone());
        let handler = handler.take_deadlines(Trust::Untrusted);
        let mcp = StreamableHttpService::new(
            move || Ok(handler.clone()),
            Arc::new(LocalSessionManager::default()),
            StreamableHttpServerConfig::default(),
        );
        let app: App = Routes::new(stack)
            .with_identity(router)
            .with_deadlines(Trust::Untrusted)
            .into_router()
            .nest_service("/mcp", McpBodies::new(mcp));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let served = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self {
            address,
            breakers,
            gates,
            limits,
            health,
            metrics,
            tasks: vec![
                server.abort_handle(),
                client.abort_handle(),
                served.abort_handle(),
            ],
        }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Whatever has become of calls: no permit is out when none runs any more.
    pub(crate) async fn is_idle(&self) {
        for _ in 0..1200 {
            if self.limits.loads().is_empty() {
                return;
            }
            sleep(Duration::from_millis(50)).await;
        }
        panic!("{:?}", self.limits.loads());
    }

    /// There is nothing but tools that exist, and only the one that fails is stopped.
    pub(crate) fn is_unmoved(&self) {
        assert!(
            self.breakers.len() <= TOOLS.len(),
            "{:?}",
            self.breakers.snapshot()
        );
        for breaker in self.breakers.snapshot() {
            if breaker.tool.as_deref() != Some("report") {
                assert_eq!(breaker.state, BreakerState::Closed, "{breaker:?}");
                assert_eq!(breaker.failed_total, 0, "{breaker:?}");
            }
        }
        assert!(
            self.gates.cooldowns().is_empty(),
            "{:?}",
            self.gates.cooldowns()
        );
        let servers = self.health.snapshot();
        assert_eq!(servers.len(), 1);
        assert_eq!(servers[0].failures, 0, "{servers:?}");
        // What has no row of its own is counted together.
        let rows = self.metrics.snapshot().tools;
        let (invented, tools): (Vec<_>, Vec<_>) = rows.iter().partition(|row| row.tool == OTHER);
        assert!(tools.len() <= TOOLS.len(), "{} rows", tools.len());
        assert!(invented[0].stats.rejected > 100, "{invented:?}");
    }
}
