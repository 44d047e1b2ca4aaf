//! The documented stack, any subset of it, any order of it, and what wrong orders do (N2).

use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use tokio::{
    sync::Semaphore,
    time::{Instant, sleep, timeout},
};
use tower::{
    Layer, Service, ServiceBuilder, ServiceExt, limit::ConcurrencyLimit, service_fn,
    util::BoxCloneSyncService,
};
use tower_toolcall::{
    BoxError, ErrorKind, Identity, Key, ServiceBuilderExt, ToolCall, ToolError,
    backoff::{Backoff, Jitter},
    cache::CacheLayer,
    catch_panic::CatchPanicLayer,
    check::CheckLayer,
    circuit_breaker::CircuitBreakerLayer,
    concurrency_limit::ConcurrencyLimitLayer,
    deadline::DeadlineLayer,
    event::Event,
    fit::FitLayer,
    health::Health,
    identity::{IdentityLayer, Resolve},
    normalize::NormalizeLayer,
    once::OnceLayer,
    outcome::{ByError, Classify, classify_fn},
    policy::PolicyLayer,
    quota::{Quota, QuotaLayer},
    rate_limit::RateLimitBackoffLayer,
    redact::Rules,
    repeat_guard::RepeatGuardLayer,
    result::Status,
    retry::{RetryLayer, RetryPolicy},
    sanitize::SanitizeLayer,
    timeout::TimeoutLayer,
    trace::TraceLayer,
};
use tower_toolcall_test::{Events, Script, Step};
use tracing::level_filters::LevelFilter;

const fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn policy() -> RetryPolicy {
    let backoff = Backoff::default().with_jitter(Jitter::None);
    RetryPolicy::new()
        .with_backoff(backoff)
        .assume_replay_safe()
}

fn refusing() -> Health {
    Health::builder().with_refusal(true).build().unwrap()
}

fn quota() -> Quota {
    Quota::per_second(3).unwrap()
}

type Boxed = BoxCloneSyncService<ToolCall, u8, ToolError>;

type Wrap = fn(Boxed) -> Boxed;

/// The layers of the documented stack, from the outside in.
const LAYERS: &[(&str, Wrap)] = &[
    ("normalize", |s| boxed(NormalizeLayer::new(), s)),
    ("sanitize", |s| boxed(SanitizeLayer::new(Rules::new()), s)),
    ("identity", |s| boxed(IdentityLayer::new(OfDocs), s)),
    ("trace", |s| boxed(TraceLayer::new(), s)),
    ("fit", |s| boxed(FitLayer::new(100), s)),
    ("check", |s| boxed(CheckLayer::max_bytes(100), s)),
    ("repeat_guard", |s| boxed(watched(), s)),
    ("validate", |s| boxed(checked(), s)),
    ("policy", |s| {
        boxed(PolicyLayer::new().allow("*").deny_by_default(), s)
    }),
    // Calls without a key, and of another tool: what the others do is looked at.
    ("once", |s| {
        let once = OnceLayer::builder().with_repeat_within(Duration::ZERO);
        boxed(once.build().unwrap(), s)
    }),
    ("cache", |s| boxed(cache(), s)),
    ("quota", |s| boxed(QuotaLayer::new(quota()), s)),
    ("deadline", |s| boxed(DeadlineLayer::new(secs(100)), s)),
    ("retry", |s| boxed(RetryLayer::new(policy()), s)),
    ("attempts", |s| boxed(TraceLayer::attempts(), s)),
    ("rate_limit", |s| boxed(RateLimitBackoffLayer::new(), s)),
    ("health", |s| boxed(refusing().layer(), s)),
    ("limit", |s| boxed(ConcurrencyLimitLayer::new(1), s)),
    ("breaker", |s| boxed(CircuitBreakerLayer::new(), s)),
    ("timeout", |s| boxed(TimeoutLayer::new(secs(10)), s)),
    ("catch_panic", |s| boxed(CatchPanicLayer::new(), s)),
];

fn cache() -> CacheLayer {
    CacheLayer::new(secs(60), ["reads"]).unwrap()
}

/// All callers are one.
fn watched() -> RepeatGuardLayer {
    let guard = RepeatGuardLayer::builder().with_keys(Key::by(|_| "model"));
    guard.build().unwrap()
}

/// Each tool takes no arguments, whoever names its server.
fn checked() -> tower_toolcall::validate::ValidateLayer {
    use std::sync::LazyLock;
    use tower_toolcall::validate::{Schema, Schemas, ValidateLayer};

    static SCHEMAS: LazyLock<Schemas> = LazyLock::new(|| {
        let schema = Schema::compile(&serde_json::json!({ "maxProperties": 0 })).unwrap();
        let schemas = Schemas::new();
        for tool in ["answers", "waits", "unknown", "flickers", "hangs", "panics"] {
            for server in [None, Some("docs")] {
                schemas.insert(server, tool, schema.clone());
            }
        }
        schemas
    });
    ValidateLayer::new(&SCHEMAS).strict()
}

/// A table that has every tool, at one server.
struct OfDocs;

impl Resolve for OfDocs {
    fn resolve(&self, call: &ToolCall) -> Result<Option<Identity>, ToolError> {
        Ok(Some(Identity::new(call.tool()).with_server("docs")))
    }
}

fn boxed<L>(layer: L, inner: Boxed) -> Boxed
where
    L: Layer<Boxed>,
    L::Service: Service<ToolCall, Response = u8, Error = ToolError, Future: Send>
        + Clone
        + Send
        + Sync
        + 'static,
{
    BoxCloneSyncService::new(layer.layer(inner))
}

/// A tool behind a limit of two calls, which tells of permits that are not given back.
#[derive(Clone)]
struct Tool {
    begun: Arc<AtomicUsize>,
    alive: Arc<AtomicUsize>,
    permits: Arc<Semaphore>,
}

struct Alive(Arc<AtomicUsize>);

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

impl Tool {
    fn new() -> Self {
        Self {
            begun: Arc::default(),
            alive: Arc::default(),
            permits: Arc::new(Semaphore::new(2)),
        }
    }

    fn service(&self) -> Boxed {
        let Self { begun, alive, .. } = self.clone();
        let tool = service_fn(move |call: ToolCall| {
            let n = begun.fetch_add(1, SeqCst);
            alive.fetch_add(1, SeqCst);
            let alive = Alive(alive.clone());
            async move {
                let _alive = alive;
                match call.tool() {
                    "waits" => sleep(secs(1)).await,
                    "hangs" => std::future::pending().await,
                    "panics" => panic!("boom"),
                    "unknown" => return Err(ToolError::new(ErrorKind::NotFound, "no such tool")),
                    "flickers" if n == 0 => {
                        return Err(ToolError::new(ErrorKind::Upstream, "503"));
                    }
                    _ => {}
                }
                Ok(7)
            }
        });
        BoxCloneSyncService::new(ConcurrencyLimit::with_semaphore(
            tool,
            Arc::clone(&self.permits),
        ))
    }

    fn begun(&self) -> usize {
        self.begun.load(SeqCst)
    }

    fn is_quiet(&self) -> bool {
        self.alive.load(SeqCst) == 0 && self.permits.available_permits() == 2
    }
}

/// What a stack of these layers, from the outside in, has to do in any order.
async fn works(layers: &[usize]) {
    let names: Vec<_> = layers.iter().map(|i| LAYERS[*i].0).collect();
    let has = |name| names.contains(&name);
    let stack = |tool: &Tool| {
        let inward = layers.iter().rev();
        inward.fold(tool.service(), |service, i| LAYERS[*i].1(service))
    };
    let call = |name: &str| ToolCall::new(name).with_id("call_1");
    for name in ["answers", "waits", "unknown", "flickers", "hangs", "panics"] {
        if name == "panics" && !has("catch_panic") {
            continue;
        }
        let tool = Tool::new();
        let result = timeout(secs(50), stack(&tool).oneshot(call(name))).await;
        let kind = |kind| matches!(&result, Ok(Err(error)) if error.kind() == kind);
        let as_told = match name {
            "unknown" => kind(ErrorKind::NotFound) && tool.begun() == 1,
            "flickers" if has("retry") => matches!(result, Ok(Ok(7))) && tool.begun() == 2,
            "flickers" => kind(ErrorKind::Upstream) && tool.begun() == 1,
            "hangs" if has("timeout") => kind(ErrorKind::Timeout),
            "hangs" => result.is_err(),
            "panics" => kind(ErrorKind::Panicked) && tool.begun() == 1,
            _ => matches!(result, Ok(Ok(7))) && tool.begun() == 1,
        };
        assert!(
            as_told,
            "{names:?}: {name}: {result:?} after {} calls",
            tool.begun()
        );
        assert!(tool.is_quiet(), "{names:?}: {name}");
        if let Ok(Err(error)) = result
            && names.iter().any(|name| *name != "sanitize")
        {
            let of = (error.tool(), error.call_id());
            assert_eq!(of, (Some(name), Some("call_1")), "{names:?}");
        }
    }
}

/// N2: each subset of two layers at most, and of nearly all; of the many others five hundred,
/// evenly spread. With `SUBSETS`, each of three, and so many others.
#[tokio::test(start_paused = true)]
async fn any_subset_of_the_documented_stack_works() {
    silence_panics();
    let others = std::env::var("SUBSETS").ok().map(|n| n.parse().unwrap());
    let few = if others.is_some() { 3 } else { 2 };
    let subsets = 1_u32 << LAYERS.len();
    // Odd: each layer is in half of these subsets.
    let others = others.unwrap_or(500);
    let step = (subsets / others) | 1;
    for subset in 0..subsets {
        let count = subset.count_ones() as usize;
        if subset % step != 0 && (few + 1..LAYERS.len() - few).contains(&count) {
            continue;
        }
        let layers: Vec<_> = (0..LAYERS.len()).filter(|i| subset >> i & 1 == 1).collect();
        works(&layers).await;
    }
}

/// N2: a thousand orders of a thousand subsets.
#[tokio::test(start_paused = true)]
async fn any_order_works() {
    silence_panics();
    let mut seen = HashSet::new();
    let mut random = 1_u64;
    while seen.len() < 1_000 {
        let mut layers: Vec<_> = (0..LAYERS.len()).collect();
        for i in (1..layers.len()).rev() {
            layers.swap(i, below(&mut random, i + 1));
        }
        layers.truncate(2 + below(&mut random, LAYERS.len() - 1));
        if seen.insert(layers.clone()) {
            works(&layers).await;
        }
    }
}

/// Knuth's linear congruential generator: the same orders in each run.
fn below(random: &mut u64, n: usize) -> usize {
    *random = random
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    (*random >> 33) as usize % n
}

/// Thousands of panics are meant here, and need not be printed.
fn silence_panics() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let print = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if panic.payload().downcast_ref::<&str>() != Some(&"boom") {
                print(panic);
            }
        }));
    });
}

/// G2, N2: the documented stack itself, as it is read in the docs; each layer does its part.
#[tokio::test(start_paused = true)]
async fn the_documented_stack_does_what_its_layers_say() {
    silence_panics();
    let (tool, health) = (Tool::new(), Health::new());
    let tools = ServiceBuilder::new()
        .tool_sanitize(Rules::new())
        .tool_result()
        .tool_identity(OfDocs)
        .tool_trace()
        .tool_fit(100)
        .tool_check(tower_toolcall::check::check_fn(|_, n: &u8| match n {
            7 => Ok(()),
            _ => Err("not a seven".into()),
        }))
        .tool_max_bytes(100)
        .tool_repeat_guard()
        .tool_once()
        .tool_cache(cache())
        .tool_quota(quota())
        .tool_deadline(secs(100))
        .tool_retry(policy())
        .tool_trace_attempts()
        .tool_rate_limit()
        .tool_health(&health)
        .tool_concurrency_limit(1)
        .tool_circuit_breaker()
        .tool_timeout(secs(10))
        .tool_catch_panic()
        .service(tool.service());
    for (name, status, attempts, took) in [
        ("answers", Status::Success, 1, secs(0)),
        ("unknown", Status::Error, 1, secs(0)),
        ("panics", Status::Error, 1, secs(0)),
        // Three attempts of 10 s, and delays of 1 s and 2 s.
        ("hangs", Status::Timeout, 3, secs(33)),
    ] {
        let result = tools.clone().oneshot(ToolCall::new(name)).await.unwrap();
        assert_eq!(
            (result.status(), result.attempts()),
            (status, attempts),
            "{name}"
        );
        assert_eq!(result.duration().as_secs(), took.as_secs(), "{name}");
    }
    assert_eq!(health.snapshot()[0].failures, 3);
    assert!(tool.is_quiet());
}

/// G2: each method hands on what it is given.
#[tokio::test(start_paused = true)]
async fn each_method_hands_its_argument_on() {
    let tool = || {
        service_fn(|call: ToolCall| async move {
            let shown = call.sanitized().to_string();
            Ok::<_, BoxError>(shown)
        })
    };
    let call = || {
        ToolCall::new("t")
            .with_json(serde_json::json!({ "iban": "DE02" }))
            .unwrap()
    };
    let rules = Rules::new().with_sensitive_key("iban").unwrap();
    let sanitized = ServiceBuilder::new().tool_sanitize(rules).service(tool());
    assert_eq!(
        sanitized.oneshot(call()).await.unwrap(),
        r#"{"iban":"[REDACTED]"}"#
    );

    // The answer has 21 bytes as JSON.
    for (max, passes) in [(21, true), (20, false)] {
        let limited = ServiceBuilder::new().tool_max_bytes(max).service(tool());
        assert_eq!(limited.oneshot(call()).await.is_ok(), passes, "{max}");
    }
    let short = ServiceBuilder::new().tool_fit(10).service(tool());
    assert_eq!(short.oneshot(call()).await.unwrap(), "[... 15 of");

    let towers = ServiceBuilder::new()
        .tool_normalize()
        .load_shed()
        .concurrency_limit(1)
        .service(service_fn(|_: ToolCall| {
            std::future::pending::<Result<(), BoxError>>()
        }));
    let mut first = tokio_test::task::spawn(towers.clone().oneshot(call()));
    tokio_test::assert_pending!(first.poll());
    assert_eq!(
        towers.oneshot(call()).await.unwrap_err().kind(),
        ErrorKind::Overloaded
    );
}

#[tokio::test]
async fn schemas_have_a_method_too() {
    use tower_toolcall::validate::{Schema, Schemas};

    let schemas = Schemas::new();
    let schema = Schema::compile(&serde_json::json!({ "required": ["city"] }));
    schemas.insert(None, "answers", schema.unwrap());
    let tool = Tool::new();
    let tools = ServiceBuilder::new()
        .tool_validate(&schemas)
        .service(tool.service());
    let error = tools.oneshot(ToolCall::new("answers")).await.unwrap_err();
    assert_eq!((error.kind(), tool.begun()), (ErrorKind::InvalidInput, 0));
}

/// Wrong: each attempt of a call that was answered with a failure is checked, and one that cannot
/// be sent waits for its turn.
#[tokio::test(start_paused = true)]
async fn validate_below_the_rate_limit_waits_to_refuse() {
    use tower_toolcall::validate::{Schema, Schemas};

    let schemas = Schemas::new();
    let schema = Schema::compile(&serde_json::json!({ "maxProperties": 0 }));
    schemas.insert(None, "t", schema.unwrap());
    let wrong = || {
        let arguments = serde_json::json!({ "a": 1 });
        ToolCall::new("t").with_json(arguments).unwrap()
    };
    for (outside, waits) in [(true, secs(0)), (false, secs(20))] {
        let (_, tool) = fails(1, "429 Too Many Requests", secs(0));
        let stack = match outside {
            true => {
                let builder = ServiceBuilder::new()
                    .tool_validate(&schemas)
                    .tool_rate_limit();
                BoxCloneSyncService::new(builder.service(tool))
            }
            false => {
                let builder = ServiceBuilder::new()
                    .tool_rate_limit()
                    .tool_validate(&schemas);
                BoxCloneSyncService::new(builder.service(tool))
            }
        };
        // The first call closes the gate, and waits.
        let first = tokio::spawn(stack.clone().oneshot(ToolCall::new("t")));
        sleep(secs(1)).await;
        let begun = Instant::now();
        let error = stack.oneshot(wrong()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(begun.elapsed() >= waits && (waits > secs(0) || begun.elapsed() == waits));
        first.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn metrics_have_a_method_too() {
    let metrics = tower_toolcall::tool_metrics::Metrics::new();
    let tools = ServiceBuilder::new()
        .tool_metrics(&metrics)
        .service(Tool::new().service());
    tools.oneshot(ToolCall::new("answers")).await.unwrap();
    assert_eq!(metrics.snapshot().total.calls, 1);
}

/// A tool that fails so often before it answers, and takes so long for each.
fn fails(times: usize, with: &'static str, takes: Duration) -> (Arc<AtomicUsize>, Boxed) {
    let requests = Arc::new(AtomicUsize::new(0));
    let count = requests.clone();
    let tool = service_fn(move |_: ToolCall| {
        let n = count.fetch_add(1, SeqCst);
        async move {
            sleep(takes).await;
            if n < times {
                // The tool's own word.
                let kind = ToolError::from_box(with.into()).kind();
                return Err(ToolError::new(kind, with));
            }
            Ok(7)
        }
    });
    (requests, BoxCloneSyncService::new(tool))
}

/// Wrong: the timeout is that of an attempt, and here it has to do for all of them and the delays.
#[tokio::test(start_paused = true)]
async fn a_timeout_above_retry_ends_the_call_in_the_middle_of_a_delay() {
    let call = || ToolCall::new("t");
    let (requests, tool) = fails(2, "503 Service Unavailable", secs(1));
    let right = ServiceBuilder::new()
        .tool_retry(policy())
        .tool_timeout(secs(3))
        .service(tool);
    assert_eq!(right.oneshot(call()).await.unwrap(), 7);
    assert_eq!(requests.load(SeqCst), 3);

    let (requests, tool) = fails(2, "503 Service Unavailable", secs(1));
    let wrong = ServiceBuilder::new()
        .tool_timeout(secs(3))
        .tool_retry(policy())
        .service(tool);
    let error = wrong.oneshot(call()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert_eq!(requests.load(SeqCst), 2);
}

/// Wrong: above the retrier a breaker counts calls, so a dead tool gets three times the requests
/// before it opens.
#[tokio::test(start_paused = true)]
async fn a_breaker_above_retry_opens_late() {
    async fn requests_until_open<S>(mut stack: S, requests: &AtomicUsize) -> usize
    where
        S: Service<ToolCall, Response = u8, Error = ToolError>,
    {
        loop {
            let call = stack.ready().await.unwrap().call(ToolCall::new("t"));
            if call.await.unwrap_err().kind() == ErrorKind::CircuitOpen {
                return requests.load(SeqCst);
            }
        }
    }
    let policy = || policy().without_budget();
    let (requests, tool) = fails(usize::MAX, "503 Service Unavailable", secs(1));
    let right = ServiceBuilder::new()
        .tool_retry(policy())
        .tool_circuit_breaker()
        .service(tool);
    assert_eq!(requests_until_open(right, &requests).await, 5);

    let (requests, tool) = fails(usize::MAX, "503 Service Unavailable", secs(1));
    let wrong = ServiceBuilder::new()
        .tool_circuit_breaker()
        .tool_retry(policy())
        .service(tool);
    assert_eq!(requests_until_open(wrong, &requests).await, 15);
}

/// Wrong: below the breaker the probe waits for the cooldown in its place, and all others are
/// refused as long.
#[tokio::test(start_paused = true)]
async fn a_rate_limit_below_the_breaker_waits_in_the_place_of_the_probe() {
    async fn second_call(
        wrap: fn(CircuitBreakerLayer, Boxed) -> Boxed,
    ) -> (Result<u8, ToolError>, Duration) {
        let (_, tool) = fails(1, "429 Too Many Requests", secs(0));
        let breaker = CircuitBreakerLayer::new();
        let handle = breaker.handle();
        let stack = wrap(breaker, tool);
        // It is half-open, the probe meets a rate limit, and waits.
        let circuit = handle.breaker(&ToolCall::new("t"));
        circuit.force_open();
        circuit.reset();
        for _ in 0..5 {
            circuit.record_failure();
        }
        sleep(secs(60)).await;
        let probe = tokio::spawn(stack.clone().oneshot(ToolCall::new("t")));
        sleep(secs(2)).await;
        let start = Instant::now();
        let second = stack.oneshot(ToolCall::new("t")).await;
        let took = start.elapsed();
        assert_eq!(probe.await.unwrap().unwrap(), 7);
        (second, took)
    }
    let (right, took) = second_call(|breaker, tool| {
        let stack = ServiceBuilder::new().tool_rate_limit().layer(breaker);
        BoxCloneSyncService::new(stack.service(tool))
    })
    .await;
    assert_eq!(right.unwrap(), 7);
    assert!(took > secs(20), "it waited for its turn");

    let (wrong, took) = second_call(|breaker, tool| {
        let stack = ServiceBuilder::new().layer(breaker).tool_rate_limit();
        BoxCloneSyncService::new(stack.service(tool))
    })
    .await;
    assert_eq!(wrong.unwrap_err().kind(), ErrorKind::CircuitOpen);
    assert_eq!(took, secs(0));
}

/// Wrong: a panic that nobody has caught below them is none of the layers' business.
#[tokio::test(start_paused = true)]
async fn catch_panic_outermost_leaves_the_layers_below_without_an_error() {
    silence_panics();
    let seen = Arc::new(AtomicUsize::new(0));
    let stack = |outermost: bool| {
        let seen = seen.clone();
        let codes = NormalizeLayer::new().with_codes(move |_: &ToolError| {
            seen.fetch_add(1, SeqCst);
            None
        });
        let service = Tool::new().service();
        match outermost {
            true => boxed(CatchPanicLayer::new(), boxed(codes, service)),
            false => boxed(codes, boxed(CatchPanicLayer::new(), service)),
        }
    };
    for (outermost, errors_seen) in [(false, 1), (true, 0)] {
        seen.store(0, SeqCst);
        let error = stack(outermost)
            .oneshot(ToolCall::new("panics"))
            .await
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Panicked);
        assert_eq!(seen.load(SeqCst), errors_seen);
    }
}

/// Wrong: the time in the queue counts as the tool's.
#[tokio::test(start_paused = true)]
async fn a_concurrency_limit_below_the_timeout_lets_calls_time_out_that_were_never_sent() {
    for (inside, fails) in [(false, 0), (true, 2)] {
        let tool = Tool::new();
        let stack = match inside {
            false => {
                let builder = ServiceBuilder::new().tool_concurrency_limit(1);
                BoxCloneSyncService::new(builder.tool_timeout(secs(2)).service(tool.service()))
            }
            true => {
                let builder = ServiceBuilder::new().tool_timeout(secs(2));
                BoxCloneSyncService::new(builder.tool_concurrency_limit(1).service(tool.service()))
            }
        };
        // A second each, one after the other.
        let calls = (0..4).map(|_| tokio::spawn(stack.clone().oneshot(ToolCall::new("waits"))));
        let mut failed = 0;
        for call in calls.collect::<Vec<_>>() {
            failed += usize::from(call.await.unwrap().is_err());
        }
        assert_eq!((failed, tool.begun()), (fails, 4 - fails));
    }
}

/// Wrong: each attempt costs, and waits for its turn.
#[tokio::test(start_paused = true)]
async fn a_quota_below_retry_takes_tokens_for_each_attempt() {
    for (below, left) in [(false, 9), (true, 7)] {
        let (_, tool) = fails(2, "503 Service Unavailable", secs(0));
        // None comes back meanwhile.
        let layer = QuotaLayer::new(Quota::per_day(10).unwrap());
        let retry = RetryLayer::new(policy());
        let stack = match below {
            false => BoxCloneSyncService::new(layer.layer(retry.layer(tool))),
            true => BoxCloneSyncService::new(retry.layer(layer.layer(tool))),
        };
        stack.oneshot(ToolCall::new("t")).await.unwrap();
        assert_eq!(layer.handle().remaining(&ToolCall::new("t")), left);
    }
}

/// Without a subscriber a trace layer tells its listener of calls that are dropped, and asks its
/// classifier.
#[tokio::test(start_paused = true)]
async fn a_trace_layer_without_a_subscriber_has_its_listener_and_its_classifier() {
    // With one that another test has set this would be a test of something else.
    assert_eq!(LevelFilter::current(), LevelFilter::OFF);
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let classifier = classify_fn(move |result: Result<&(), &ToolError>| {
        count.fetch_add(1, SeqCst);
        ByError.classify(result)
    });
    let layer = TraceLayer::new().with_classifier(classifier);
    let call = || ToolCall::new("t");
    let answer = layer.layer(service_fn(|_: ToolCall| async { Ok::<_, BoxError>(()) }));
    answer.oneshot(call()).await.unwrap();
    assert_eq!(asked.load(SeqCst), 1);

    let cancelled = Events::pick(|event| match *event {
        Event::Cancelled { call, elapsed, .. } => Some((call.tool().to_owned(), elapsed)),
        _ => None,
    });
    let layer = layer.with_listener(cancelled.clone());
    let never = Script::<()>::always(Step::hang());
    let mut response = tokio_test::task::spawn(layer.layer(never).oneshot(call()));
    tokio_test::assert_pending!(response.poll());
    tokio::time::advance(secs(2)).await;
    drop(response);
    cancelled.assert([("t".to_owned(), secs(2))]);
}
