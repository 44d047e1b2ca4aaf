//! Each layer alone.

use std::{
    convert::Infallible,
    pin::Pin,
    sync::Once,
    task::{Context, Poll},
    time::Duration,
};

use backon::{ExponentialBuilder, Retryable};
use http::{Request, Response, StatusCode};
use http_body_util::Empty;
use hyper::body::{Bytes, Frame};
use metrics_exporter_prometheus::PrometheusBuilder;
use opentelemetry::metrics::MeterProvider as _;
use opentelemetry_sdk::metrics::{InMemoryMetricExporter, SdkMeterProvider};
use tokio::{runtime, task};
use tower::{Service, ServiceBuilder, layer::util::Identity, service_fn};
use tower_layer::Layer as _;
use tower_toolcall::{
    ConfigError, Key, ToolCall,
    cache::CacheLayer,
    catch_panic::CatchPanicLayer,
    check::CheckLayer,
    circuit_breaker::{CircuitBreakerLayer, Rates, Trip},
    concurrency_limit::ConcurrencyLimitLayer,
    deadline::DeadlineLayer,
    fit::FitLayer,
    health::Health,
    metrics_facade::Facade,
    normalize::NormalizeLayer,
    once::{OnceBuilder, OnceLayer},
    otel::metrics::OtelMetrics,
    policy::{PolicyLayer, Rule},
    poll::PollLayer,
    quota::{Quota, QuotaBuilder, QuotaLayer},
    rate_limit::RateLimitBackoffLayer,
    repeat_guard::RepeatGuardLayer,
    result::{ToolResult, ToolResultLayer},
    retry::RetryLayer,
    sanitize::SanitizeLayer,
    timeout::TimeoutLayer,
    tool_metrics::{Metrics, MetricsBuilder, MetricsLayer},
    trace::TraceLayer,
    transport::TransportLayer,
};
use tower_toolcall_redis::{MemoryStore, SharedState};

use super::{
    AT_ONCE, By, Candidate, FIVE, Group, LARGE, NEW, WAITS, bare, candidate, layered, ours, peer,
    peers::{self, LONG, TIMEOUT},
    stacked,
};
use crate::kit::{
    drive::{Subject, executed, shared, unshared},
    tool::Tool,
};

pub fn groups() -> Vec<Group> {
    let group = |name, settings, candidates| Group {
        name,
        settings,
        candidates,
    };
    let usual = || vec![AT_ONCE, WAITS, NEW];
    let sizes = || vec![AT_ONCE, FIVE, LARGE, WAITS, NEW];
    vec![
        group("timeout", usual(), timeout()),
        group("deadline", usual(), deadline()),
        group("retry", sizes(), retry()),
        group("circuit breaker", usual(), circuit_breaker()),
        group("rate limit, nothing cools", usual(), rate_limit()),
        group("concurrency limit", usual(), concurrency_limit()),
        group("repeat guard", sizes(), repeat_guard()),
        group("once", sizes(), once()),
        group("cache", sizes(), cache()),
        group("trace, nobody listens", usual(), trace()),
        group("metrics", usual(), metrics()),
        group("catch_panic", usual(), catch_panic()),
        group("other layers", usual(), others()),
    ]
}

/// A layer for HTTP: the call is the body of a request. Not every answer is a success.
macro_rules! as_http {
    ($layer:expr, $tool:expr) => {
        shared(
            ServiceBuilder::new()
                .map_request(|call| Request::new(Body(call)))
                .map_response(|response: Response<_>| u64::from(response.status().is_success()))
                .layer($layer)
                .map_request(|request: Request<Body>| request.into_body().0)
                .map_response(|_: u64| Response::new(Empty::<Bytes>::new()))
                .service($tool),
        )
    };
}

/// A call as the body of a request.
struct Body(ToolCall);

impl hyper::body::Body for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Infallible>>> {
        Poll::Ready(None)
    }
}

pub const BARE_HTTP: &str = "bare, in HTTP's types";

pub fn bare_http() -> Candidate {
    bare_http_of::<0>(BARE_HTTP)
}

pub fn bare_http_of<const N: usize>(name: &'static str) -> Candidate {
    candidate::<N>(name, By::Bare, |tool| as_http!(Identity::new(), tool))
}

fn timeout() -> Vec<Candidate> {
    vec![
        bare(),
        bare_http(),
        ours("timeout", |tool| layered(TimeoutLayer::default(), tool)),
        ours("timeout, per tool", |tool| {
            let layer = TimeoutLayer::default().with_tool("search", Duration::from_secs(9));
            layered(layer, tool)
        }),
        peer("tower timeout", |tool| {
            layered(tower::timeout::TimeoutLayer::new(TIMEOUT), tool)
        }),
        peer("tower-http timeout", http_timeout::<0>).above(BARE_HTTP),
        peer("tower-resilience timeout", |tool| {
            layered(peers::resilience_timeout(), tool)
        }),
        peer("seatbelt timeout", |tool| {
            executed(peers::seatbelt_timeout().layer(tool))
        }),
        peer("seatbelt timeout, as tower's", |tool| {
            layered(peers::seatbelt_timeout(), tool)
        }),
    ]
}

pub fn http_timeout<const N: usize>(tool: Tool<N>) -> Box<dyn Subject> {
    let status = StatusCode::GATEWAY_TIMEOUT;
    let layer = tower_http::timeout::TimeoutLayer::with_status_code(status, TIMEOUT);
    as_http!(layer, tool)
}

fn deadline() -> Vec<Candidate> {
    vec![
        bare(),
        ours("deadline", |tool| {
            layered(DeadlineLayer::new(Duration::from_secs(60)), tool)
        }),
    ]
}

fn retry() -> Vec<Candidate> {
    vec![
        bare(),
        ours("retry", |tool| layered(RetryLayer::default(), tool)),
        peer("tower retry, with a budget", |tool| {
            layered(peers::tower_retry(true), tool)
        }),
        peer("tower-resilience retry, with a budget", |tool| {
            layered(peers::resilience_retry().build(), tool)
        }),
        peer("seatbelt retry, no budget", |tool| {
            executed(peers::seatbelt_retry(true).layer(tool))
        }),
        peer("seatbelt retry, no budget, as tower's", |tool| {
            layered(peers::seatbelt_retry(true), tool)
        }),
        peer("backon, no budget", |tool| {
            shared(service_fn(move |call: ToolCall| {
                let send = move || { tool }.call(call.clone());
                send.retry(ExponentialBuilder::default())
            }))
        }),
    ]
}

fn circuit_breaker() -> Vec<Candidate> {
    vec![
        bare(),
        ours("circuit_breaker", |tool| {
            layered(CircuitBreakerLayer::new(), tool)
        }),
        ours("circuit_breaker, shared between processes", |tool| {
            let layer = CircuitBreakerLayer::new();
            mirror(new_mirror().breakers("breakers", &layer.handle()));
            layered(layer, tool)
        }),
        ours("circuit_breaker, failures in a window", |tool| {
            let trip = Trip::consecutive_failures_within(5, Duration::from_secs(300));
            let builder = CircuitBreakerLayer::builder().with_trip(trip);
            layered(builder.build().expect("valid"), tool)
        }),
        ours("circuit_breaker, rate over calls", |tool| {
            layered(rate(Rates::over_calls(100)), tool)
        }),
        ours("circuit_breaker, rate over time", |tool| {
            layered(rate(Rates::over_time(Duration::from_secs(60))), tool)
        }),
        peer("recloser, rate over calls, one key", peers::recloser),
        peer("failsafe, one key", peers::failsafe),
        peer("tower-resilience breaker, one key", |tool| {
            layered(peers::resilience_breaker(), tool)
        }),
        peer("seatbelt breaker, rate over time, one key", |tool| {
            executed(peers::seatbelt_breaker().layer(tool))
        }),
        peer("seatbelt breaker, as tower's", |tool| {
            layered(peers::seatbelt_breaker(), tool)
        }),
    ]
}

fn new_mirror() -> SharedState<MemoryStore> {
    SharedState::new(MemoryStore::new())
}

/// A mirror that listens, and has met its store.
fn mirror(shared: Result<SharedState<MemoryStore>, ConfigError>) {
    let shared = shared.expect("valid");
    let handle = shared.handle();
    let runtime = runtime::Builder::new_current_thread().enable_time().build();
    let runtime = Box::leak(Box::new(runtime.expect("a runtime")));
    runtime.spawn(shared.run());
    runtime.block_on(async {
        while handle.snapshot().processes == 0 {
            task::yield_now().await;
        }
    });
}

/// A breaker whose window is full and not clean.
fn rate(rates: Rates) -> CircuitBreakerLayer {
    let layer = CircuitBreakerLayer::builder().with_trip(rates.with_failure_rate(0.5));
    let layer = layer.build().expect("valid");
    let breaker = layer
        .handle()
        .breaker(&ToolCall::new("search").with_server("docs"));
    for n in 0..100 {
        if n % 10 == 0 {
            breaker.record_failure();
        } else {
            breaker.record_success();
        }
    }
    layer
}

fn rate_limit() -> Vec<Candidate> {
    vec![
        bare(),
        ours("rate_limit, nothing cools", |tool| {
            layered(RateLimitBackoffLayer::new(), tool)
        }),
        ours(
            "rate_limit, nothing cools, shared between processes",
            |tool| {
                let layer = RateLimitBackoffLayer::new();
                mirror(new_mirror().rate_limits("limits", &layer.handle()));
                layered(layer, tool)
            },
        ),
        ours("quota", |tool| {
            layered(quota().build().expect("valid"), tool)
        }),
        peer("tower rate limit, one key, not shared", |tool| {
            let layer = tower::limit::RateLimitLayer::new(u64::MAX, LONG);
            unshared(ServiceBuilder::new().layer(layer).service(tool))
        }),
        peer("tower-resilience rate limit, one key", |tool| {
            layered(peers::resilience_limit(usize::MAX), tool)
        }),
        peer("governor, one key", peers::governor),
    ]
}

/// More tokens than are used here.
pub fn quota() -> QuotaBuilder {
    let quota = Quota::per_second(1_000_000).and_then(|quota| quota.with_burst(u32::MAX));
    QuotaLayer::builder(quota.expect("valid"))
}

fn concurrency_limit() -> Vec<Candidate> {
    vec![
        bare(),
        ours("concurrency_limit", |tool| {
            layered(ConcurrencyLimitLayer::new(1 << 20), tool)
        }),
        peer("tower concurrency limit, one key", tower_limit::<0>),
        peer("tower-resilience bulkhead, one key", |tool| {
            layered(peers::resilience_bulkhead(), tool)
        }),
    ]
}

fn repeat_guard() -> Vec<Candidate> {
    vec![
        bare(),
        ours("repeat_guard", |tool| {
            // Calls that are not all the same: no event.
            let builder = RepeatGuardLayer::builder().with_failures(u32::MAX);
            let builder = builder.with_keys(Key::by(|call| call.server().unwrap_or_default()));
            layered(builder.build().expect("valid"), tool)
        }),
        ours("repeat_guard, a call of nobody", |tool| {
            layered(RepeatGuardLayer::new(), tool)
        }),
    ]
}

const BARE_KEYED: &str = "bare, with a key";

/// Each call gets a key: that of its tool, so that no two lanes have the same.
fn keyed(call: ToolCall) -> ToolCall {
    let key = call.tool().to_owned();
    call.with_once_key(key)
}

fn once_keyed(builder: OnceBuilder, tool: Tool) -> Box<dyn Subject> {
    let layer = builder.shared().build().expect("valid");
    stacked(ServiceBuilder::new().map_request(keyed).layer(layer), tool)
}

fn once() -> Vec<Candidate> {
    vec![
        bare(),
        ours("once, a call without a key", |tool| {
            let builder = OnceLayer::builder().with_repeat_within(Duration::ZERO);
            layered(builder.build().expect("valid"), tool)
        }),
        candidate::<0>(BARE_KEYED, By::Bare, |tool| {
            stacked(ServiceBuilder::new().map_request(keyed), tool)
        }),
        // What is kept is stale at once, and its key is free for the next.
        ours("once, a new key", |tool| {
            let builder = OnceLayer::builder().with_ttl(Duration::from_nanos(1));
            once_keyed(builder, tool)
        })
        .above(BARE_KEYED),
        ours("once, an answer that is kept", |tool| {
            once_keyed(OnceLayer::builder(), tool)
        })
        .above(BARE_KEYED),
    ]
}

fn cache() -> Vec<Candidate> {
    vec![
        bare(),
        ours("cache, a hit", |tool| {
            let builder = CacheLayer::builder(Duration::from_secs(60), ["docs__search"]);
            layered(builder.shared().build().expect("valid"), tool)
        }),
        ours("cache, a tool that is not named", |tool| {
            let layer = CacheLayer::new(Duration::from_secs(60), ["docs__fetch"]);
            layered(layer.expect("valid"), tool)
        }),
    ]
}

pub fn tower_limit<const N: usize>(tool: Tool<N>) -> Box<dyn Subject> {
    layered(
        tower::limit::GlobalConcurrencyLimitLayer::new(1 << 20),
        tool,
    )
}

fn trace() -> Vec<Candidate> {
    vec![
        bare(),
        bare_http(),
        ours("trace, nobody listens", |tool| {
            layered(TraceLayer::new(), tool)
        }),
        ours("trace, nobody listens, and metrics", |tool| {
            let stack = ServiceBuilder::new()
                .layer(TraceLayer::new())
                .layer(Metrics::new().layer());
            stacked(stack, tool)
        }),
        peer("tower-http trace, records nothing", http_trace).above(BARE_HTTP),
    ]
}

pub fn http_trace<const N: usize>(tool: Tool<N>) -> Box<dyn Subject> {
    as_http!(tower_http::trace::TraceLayer::new_for_http(), tool)
}

fn metrics() -> Vec<Candidate> {
    vec![
        bare(),
        ours("metrics", |tool| layered(Metrics::new().layer(), tool)),
        ours("metrics, through the facade as well", |tool| {
            static RECORDER: Once = Once::new();
            RECORDER.call_once(|| {
                let recorder = PrometheusBuilder::new().build_recorder();
                metrics::set_global_recorder(recorder).expect("the first one");
            });
            layered(with_sink(Metrics::builder().with_sink(Facade::new())), tool)
        }),
        ours("metrics, as OpenTelemetry as well", |tool| {
            layered(with_sink(Metrics::builder().with_sink(otel())), tool)
        }),
    ]
}

fn with_sink(builder: MetricsBuilder) -> MetricsLayer {
    builder.build().expect("valid").layer()
}

/// The SDK, with a reader that is never asked.
fn otel() -> OtelMetrics {
    let provider = SdkMeterProvider::builder()
        .with_periodic_exporter(InMemoryMetricExporter::default())
        .build();
    OtelMetrics::new(&provider.meter("bench"))
}

fn catch_panic() -> Vec<Candidate> {
    vec![
        bare(),
        bare_http(),
        ours("catch_panic", |tool| layered(CatchPanicLayer::new(), tool)),
        peer("tower-http catch_panic", http_catch_panic).above(BARE_HTTP),
    ]
}

pub fn http_catch_panic(tool: Tool) -> Box<dyn Subject> {
    as_http!(tower_http::catch_panic::CatchPanicLayer::new(), tool)
}

fn others() -> Vec<Candidate> {
    vec![
        bare(),
        ours("normalize", |tool| layered(NormalizeLayer::new(), tool)),
        ours("transport", |tool| layered(TransportLayer::new(), tool)),
        ours("result, taken apart again", |tool| {
            let stack = ServiceBuilder::new()
                .map_response(|result: ToolResult<u64>| result.into_result().unwrap_or(0))
                .layer(ToolResultLayer::new());
            stacked(stack, tool)
        }),
        ours("sanitize, built-in rules", |tool| {
            layered(SanitizeLayer::default(), tool)
        }),
        ours("check, an answer of one byte", |tool| {
            layered(CheckLayer::max_bytes(100), tool)
        }),
        ours("policy, the fourth of five rules allows", |tool| {
            let policy = PolicyLayer::new()
                .deny("delete_*")
                .ask("pay_*")
                .rule(Rule::deny("*").of_server("billing"))
                .allow("sea*")
                .allow("*")
                .deny_by_default();
            layered(policy, tool)
        }),
        ours("fit, an answer of a number", |tool| {
            layered(FitLayer::new(40_000), tool)
        }),
        ours("health", |tool| layered(Health::new().layer(), tool)),
        ours("poll, an answer without a job", |tool| {
            layered(PollLayer::new(()), tool)
        }),
    ]
}
