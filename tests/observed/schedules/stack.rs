//! The documented stack, with all of its layers.

use std::{sync::LazyLock, time::Duration};

use serde_json::json;
use tower::{ServiceBuilder, util::BoxCloneSyncService};
use tower_toolcall::{
    CallInfo, ErrorKind, Identity, ServiceBuilderExt as _, ToolCall, ToolError, ToolResult,
    cache::{CacheHandle, CacheLayer},
    circuit_breaker::{CircuitBreakerHandle, CircuitBreakerLayer, WeakFailures},
    concurrency_limit::{ConcurrencyLimitHandle, ConcurrencyLimitLayer},
    event::{Event, Listen},
    health::Health,
    identity::Resolve,
    once::OnceLayer,
    policy::PolicyLayer,
    quota::{Quota, QuotaHandle, QuotaLayer},
    rate_limit::{RateLimitBackoffLayer, RateLimitHandle},
    redact::Rules,
    result::Never,
    retry::{RetryBudget, RetryPolicy},
    tool_metrics::Metrics,
    trace::{End, TraceHooks, TraceLayer},
    validate::{Schema, Schemas},
};
use tracing::Span;

use super::{
    leaf::{NOT_READY, Tool},
    log::{Log, What},
    plan::{SERVER, TOOLS, number_of},
};

/// What the model knows of the settings.
pub(crate) const ATTEMPTS: u32 = 3;
pub(crate) const MIN_RETRIES: u32 = 4;
pub(crate) const AT_A_TIME: usize = 2;
pub(crate) const FAILURES: u32 = 5;
pub(crate) const OPEN_FOR: Duration = Duration::from_secs(60);
pub(crate) const TIMEOUT: Duration = Duration::from_secs(10);
pub(crate) const BUDGET: Duration = Duration::from_secs(100);
/// Tokens of a tool, and how often one comes back.
pub(crate) const BURST: u32 = 8;
pub(crate) const TOKEN_EVERY: Duration = Duration::from_millis(500);
/// What is longer is neither waited for nor shared.
pub(crate) const LONGEST_COOLDOWN: Duration = Duration::from_secs(300);

pub(crate) type Tools = BoxCloneSyncService<ToolCall, ToolResult<u64>, Never>;

pub(crate) struct Stack {
    pub(crate) tools: Tools,
    pub(crate) breakers: CircuitBreakerHandle,
    pub(crate) gates: RateLimitHandle,
    pub(crate) limits: ConcurrencyLimitHandle,
    pub(crate) quotas: QuotaHandle,
    pub(crate) cache: CacheHandle,
    pub(crate) metrics: Metrics,
    pub(crate) health: Health,
}

/// Knows all tools but `ghost`.
struct Names;

impl Resolve for Names {
    fn resolve(&self, call: &ToolCall) -> Result<Option<Identity>, ToolError> {
        match call.tool() {
            "ghost" => Err(ToolError::new(ErrorKind::NotFound, "no such tool")),
            name => Ok(Some(Identity::new(name).with_server(SERVER))),
        }
    }
}

/// One argument, a number.
static SCHEMAS: LazyLock<Schemas> = LazyLock::new(|| {
    let schema = json!({ "properties": { "n": { "type": "integer" } }, "required": ["n"] });
    let (schema, schemas) = (Schema::compile(&schema).unwrap(), Schemas::new());
    for tool in TOOLS {
        schemas.insert(Some(SERVER), tool, schema.clone());
    }
    schemas
});

struct Listener(Log);

impl Listen for Listener {
    fn on(&self, event: &Event<'_>) {
        let call = event.call().and_then(|call| number_of(call.id()));
        let tool = event.call().map_or("", |call| call.tool());
        match event {
            Event::Retry { .. } => self.0.add(call, tool, What::Retry),
            Event::RetryRefused { reason, .. } => {
                self.0.add(call, tool, What::RetryRefused(*reason));
            }
            Event::Transition { transition, .. } => {
                let what = What::Breaker {
                    from: transition.from.to_string(),
                    to: transition.to.to_string(),
                    reason: transition.reason.to_string(),
                };
                let tool = transition.tool.as_deref().unwrap_or_default();
                self.0.add(call, tool, what);
            }
            _ => {}
        }
    }
}

/// Writes down how many attempts a span reports.
#[derive(Clone)]
struct Spans(Log);

impl TraceHooks<u64> for Spans {
    fn on_end(&self, call: &CallInfo, end: &End<'_, u64>, _: &Span) {
        let attempts = What::Attempts("span", end.attempts());
        self.0.add(number_of(call.id()), call.tool(), attempts);
    }
}

impl Stack {
    pub(crate) fn new(seed: u64, tool: &Tool, log: &Log) -> Self {
        let passes = |what: What| {
            let log = log.clone();
            move |call: ToolCall| {
                log.add(number_of(call.id()), call.tool(), what.clone());
                call
            }
        };
        let unready = {
            let log = log.clone();
            move |error: ToolError| {
                if error.message() == NOT_READY {
                    let tool = error.tool().unwrap_or_default();
                    log.add(number_of(error.call_id()), tool, What::Unready);
                }
                error
            }
        };
        let policy = RetryPolicy::new()
            .with_seed(seed)
            .with_budget(RetryBudget::new(0.2, MIN_RETRIES).unwrap())
            .with_listener(Listener(log.clone()));
        // The model knows one breaker for each tool, whoever calls.
        let breaker = CircuitBreakerLayer::builder()
            .with_weak_failures(WeakFailures::Shared)
            .with_abandoned_after(TIMEOUT)
            .with_listener(Listener(log.clone()))
            .build()
            .unwrap();
        let quota = Quota::new(1, TOKEN_EVERY).and_then(|quota| quota.with_burst(BURST));
        let quota = QuotaLayer::new(quota.unwrap());
        // The model knows no repeats but those of a key.
        let once = OnceLayer::builder().with_repeat_within(Duration::ZERO);
        let once = once.build().unwrap();
        let limit = ConcurrencyLimitLayer::builder(AT_A_TIME).with_max_queue(2);
        let limit = limit.build().unwrap();
        let gate = RateLimitBackoffLayer::builder().with_seed(seed);
        let gate = gate.build().unwrap();
        let cache = CacheLayer::new(Duration::from_secs(60), ["docs__read"]).unwrap();
        let (metrics, health) = (Metrics::new(), Health::new());
        let (breakers, gates, limits) = (breaker.handle(), gate.handle(), limit.handle());
        let (quotas, kept) = (quota.handle(), cache.handle());
        let tools = ServiceBuilder::new()
            .tool_sanitize(Rules::new())
            .tool_result()
            .tool_identity(Names)
            .layer(TraceLayer::new().with_hooks(Spans(log.clone())))
            .tool_metrics(&metrics)
            .tool_fit(100)
            .tool_max_bytes(100)
            .tool_repeat_guard()
            .tool_validate(&SCHEMAS)
            .tool_policy(PolicyLayer::new().deny("*forbidden").allow("*"))
            .layer(once)
            .tool_cache(cache)
            .layer(quota)
            .map_request(passes(What::PassedQuota))
            .tool_deadline(BUDGET)
            .tool_retry(policy)
            .tool_trace_attempts()
            .layer(gate)
            .map_request(passes(What::PassedGate))
            .tool_health(&health)
            .layer(limit)
            .map_err(unready)
            .layer(breaker)
            .tool_timeout(TIMEOUT)
            .tool_catch_panic()
            .service(tool.instance());
        Self {
            tools: BoxCloneSyncService::new(tools),
            breakers,
            gates,
            limits,
            quotas,
            cache: kept,
            metrics,
            health,
        }
    }
}
