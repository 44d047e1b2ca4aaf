//! All layers, over tools in this process and those of an MCP server.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use rmcp::{
    ErrorData, RoleServer, ServerHandler, ServiceExt as _,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ServerCapabilities,
        ServerConfig,
    },
    service::RequestContext,
};
use serde_json::json;
use tokio::{task::AbortHandle, time::sleep};
use tower::{ServiceBuilder, ServiceExt as _, service_fn, util::BoxCloneSyncService};
use tower_toolcall::{
    BoxError, ErrorKind, Identity, Keys, ModelText as _, ServiceBuilderExt as _, ToolCall,
    ToolError, ToolResult,
    cache::{CacheHandle, CacheLayer},
    circuit_breaker::{CircuitBreakerHandle, CircuitBreakerLayer},
    concurrency_limit::ConcurrencyLimitLayer,
    health::Health,
    identity::Resolve,
    once::OnceLayer,
    policy::PolicyLayer,
    quota::{Quota, QuotaLayer},
    rate_limit::{RateLimitBackoffLayer, RateLimitHandle},
    redact::Rules,
    result::Never,
    retry::RetryPolicy,
    tool_metrics::Metrics,
    validate::{Schema, Schemas},
};
use tower_toolcall_mcp::{McpReconnect, McpService};

use crate::load::{mixed, works};

pub(crate) const TOOLS: u64 = 10_000;

pub(crate) type Answer = ToolResult<String>;
pub(crate) type Tools = BoxCloneSyncService<ToolCall, Answer, Never>;

pub(crate) struct Stack {
    pub(crate) tools: Tools,
    pub(crate) server: Server,
    pub(crate) metrics: Metrics,
    breakers: CircuitBreakerHandle,
    gates: RateLimitHandle,
    cache: CacheHandle,
    once: OnceLayer,
}

/// The number of a tool that exists.
fn number(name: &str) -> Option<u64> {
    name.strip_prefix("tool")?.parse().ok()
}

struct Names;

impl Resolve for Names {
    fn resolve(&self, call: &ToolCall) -> Result<Option<Identity>, ToolError> {
        match number(call.tool()) {
            Some(n) if n % 100 == 0 => Ok(Some(Identity::new(call.tool()).with_server("mcp"))),
            Some(_) => Ok(Some(Identity::new(call.tool()).with_server("local"))),
            None => Err(ToolError::new(ErrorKind::NotFound, "no such tool")),
        }
    }
}

impl Stack {
    pub(crate) fn new() -> Result<Self, BoxError> {
        let server = Server::new();
        let schemas = Schemas::new();
        let schema = Schema::compile(&json!({
            "type": "object",
            "properties": { "n": { "type": "integer" }, "text": { "type": "string" } },
            "required": ["n"],
        }))?;
        for n in 0..TOOLS {
            let at = if n % 100 == 0 { "mcp" } else { "local" };
            schemas.insert(Some(at), &format!("tool{n}"), schema.clone());
        }
        // Few digits: a histogram grows with the latencies that it has seen, and some tools meet
        // the longest ones late.
        let metrics = Metrics::builder()
            .with_max_tools(2 * TOOLS as usize)
            .with_latency(Duration::from_millis(1), Duration::from_secs(10), 1)
            .build()?;
        let breaker = CircuitBreakerLayer::builder()
            .with_keys(Keys::default().at_most(2 * TOOLS as usize))
            .with_open_for(Duration::from_secs(2))
            .build()?;
        let gate = RateLimitBackoffLayer::new();
        let cached = (0..TOOLS).step_by(50).map(|n| format!("local__tool{n}"));
        let cache = CacheLayer::new(Duration::from_secs(1), cached)?;
        let once = OnceLayer::builder()
            .with_repeat_within(Duration::ZERO)
            .with_ttl(Duration::from_secs(5))
            .build()?;
        let (breakers, gates, kept) = (breaker.handle(), gate.handle(), cache.handle());
        let quota = Quota::per_second(1_000)?;
        let tools = ServiceBuilder::new()
            .tool_sanitize(Rules::new())
            .tool_result()
            .tool_identity(Names)
            .tool_trace()
            .tool_metrics(&metrics)
            .tool_fit(1_000)
            .tool_max_bytes(10_000)
            .tool_repeat_guard()
            .tool_validate(&schemas)
            .tool_policy(PolicyLayer::new().deny("*forbidden*").allow("*"))
            .layer(once.clone())
            .tool_cache(cache)
            .layer(QuotaLayer::new(quota))
            .tool_deadline(Duration::from_secs(5))
            .tool_retry(RetryPolicy::new())
            .tool_trace_attempts()
            .layer(gate)
            .tool_health(&Health::new())
            .layer(ConcurrencyLimitLayer::new(100))
            .layer(breaker)
            .tool_timeout(Duration::from_millis(200))
            .tool_catch_panic()
            .service(leaf(server.service.clone()));
        Ok(Self {
            tools: BoxCloneSyncService::new(tools),
            server,
            metrics,
            breakers,
            gates,
            cache: kept,
            once,
        })
    }

    /// How much the layers keep, all of it bounded.
    pub(crate) fn kept(&self) -> String {
        format!(
            "kept: {} breakers, {} cooldowns, {} answers, {} keys of once, {} rows of metrics",
            self.breakers.len(),
            self.gates.cooldowns().len(),
            self.cache.len(),
            self.once.len(),
            self.metrics.snapshot().tools.len(),
        )
    }
}

fn leaf(server: McpReconnect) -> BoxCloneSyncService<ToolCall, String, ToolError> {
    let leaf = service_fn(move |call: ToolCall| {
        let server = server.clone();
        async move {
            match call.server() {
                Some("mcp") => {
                    let answer = server.oneshot(call).await?;
                    Ok(answer.model_text().into_owned())
                }
                _ => local(call).await,
            }
        }
    });
    BoxCloneSyncService::new(leaf)
}

/// One call in twenty meets a fault.
async fn local(call: ToolCall) -> Result<String, ToolError> {
    let n = call.id().and_then(|id| id.parse().ok()).unwrap_or(0);
    let random = mixed(n ^ 0xfa_017 ^ u64::from(call.attempt()));
    works(random).await;
    match random / 64 % 400 {
        0..=7 => Err(ToolError::from_box("503 Service Unavailable".into())),
        8 | 9 => Err(ToolError::new(ErrorKind::RateLimited, "429")
            .with_retry_after(Duration::from_millis(50))),
        10..=12 => Err(ToolError::from_box("no such city".into())),
        13 | 14 => std::future::pending().await,
        15 | 16 => panic!("boom"),
        17..=19 => {
            sleep(Duration::from_millis(150)).await;
            Ok("late".to_owned())
        }
        20 => Ok("a long answer\n".repeat(200)),
        _ => Ok(format!("the answer to {n}")),
    }
}

/// An MCP server over a pipe, which may be killed.
#[derive(Clone)]
pub(crate) struct Server {
    pub(crate) service: McpReconnect,
    running: Arc<Mutex<Option<AbortHandle>>>,
}

struct Echo;

impl ServerHandler for Echo {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }

    async fn call_tool(
        &self,
        call: CallToolRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        works(call.name.len() as u64 * 7).await;
        Ok(CallToolResult::success(vec![ContentBlock::text("found")]).into())
    }
}

impl Server {
    fn new() -> Self {
        let running = Arc::new(Mutex::new(None::<AbortHandle>));
        let slot = Arc::clone(&running);
        let service = McpReconnect::new("mcp", move || {
            let slot = Arc::clone(&slot);
            async move {
                let (theirs, ours) = tokio::io::duplex(64 * 1024);
                let server = tokio::spawn(async move {
                    if let Ok(running) = Echo.serve(theirs).await {
                        let _ = running.waiting().await;
                    }
                });
                *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(server.abort_handle());
                let client = ().serve(ours).await?;
                let service = McpService::new(client.peer().clone());
                Ok::<_, BoxError>((client, service))
            }
        });
        Self { service, running }
    }

    pub(crate) async fn connected(&self) -> Result<(), BoxError> {
        Ok(self.service.connect().await.map(drop)?)
    }

    /// It dies again and again, without a word.
    pub(crate) async fn killed(self, every: Duration) {
        loop {
            sleep(every).await;
            let running = self
                .running
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take();
            if let Some(server) = running {
                server.abort();
            }
        }
    }
}
