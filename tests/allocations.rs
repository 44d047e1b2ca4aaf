//! The success path of each layer allocates nothing (rule 2): counted by a global allocator.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]

use std::{
    future::Future,
    pin::{Pin, pin},
    task::{Context, Poll, Waker},
    time::Duration,
};

use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;
use tower::{Service, ServiceBuilder};
use tower_layer::Layer;
#[cfg(feature = "settings")]
use tower_toolcall::settings;
use tower_toolcall::{
    BoxError, ErrorKind, Key, ToolCall, ToolError,
    backoff::Backoff,
    cache::CacheLayer,
    catch_panic::CatchPanicLayer,
    check::CheckLayer,
    circuit_breaker::{CircuitBreakerLayer, Rates, Trip},
    concurrency_limit::ConcurrencyLimitLayer,
    deadline::DeadlineLayer,
    fit::FitLayer,
    flow::CallExt,
    health::Health,
    normalize::NormalizeLayer,
    once::OnceLayer,
    policy::{Annotations, PolicyLayer, Rule},
    poll::PollLayer,
    quota::{Quota, QuotaLayer},
    rate_limit::RateLimitBackoffLayer,
    redact::Rules,
    repeat_guard::RepeatGuardLayer,
    result::ToolResultLayer,
    retry::{RetryBudget, RetryLayer, RetryPolicy},
    sanitize::SanitizeLayer,
    switch::Switch,
    timeout::TimeoutLayer,
    trace::TraceLayer,
    transport::TransportLayer,
};

/// A tool that answers at once, or after one `Pending`, and allocates nothing itself.
#[derive(Clone)]
struct Tool {
    waits: bool,
}

struct Answer {
    waits: bool,
}

impl Future for Answer {
    type Output = Result<usize, ToolError>;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        if std::mem::take(&mut self.waits) {
            Poll::Pending
        } else {
            Poll::Ready(Ok(1))
        }
    }
}

impl Service<ToolCall> for Tool {
    type Response = usize;
    type Error = ToolError;
    type Future = Answer;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ToolError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: ToolCall) -> Answer {
        Answer { waits: self.waits }
    }
}

fn drive<S>(svc: &mut S, call: ToolCall)
where
    S: Service<ToolCall, Response = usize, Error = ToolError>,
{
    let mut cx = Context::from_waker(Waker::noop());
    assert!(matches!(svc.poll_ready(&mut cx), Poll::Ready(Ok(()))));
    let mut response = pin!(svc.call(call));
    for _ in 0..2 {
        if let Poll::Ready(result) = response.as_mut().poll(&mut cx) {
            assert_eq!(result.unwrap(), 1, "the path that is measured must succeed");
            return;
        }
    }
    panic!("pending");
}

/// Allocations of a hundred calls through the layer, over what a hundred bare calls make.
fn allocations<L>(layer: &L, waits: bool, call: &ToolCall) -> u64
where
    L: Layer<Tool, Service: Service<ToolCall, Response = usize, Error = ToolError>>,
{
    let mut svc = layer.layer(Tool { waits });
    drive(&mut svc, call.clone()); // what is made once: tracing's call sites
    allocation_counter::measure(|| {
        for _ in 0..100 {
            drive(&mut svc, call.clone());
        }
    })
    .count_total
}

fn calls() -> Vec<ToolCall> {
    let plain = ToolCall::new("search");
    let five: Map<String, Value> = (0..5).map(|i| (format!("key{i}"), json!("v"))).collect();
    vec![
        plain.clone(),
        plain.clone().with_arguments(five),
        plain
            .with_json(json!({ "text": "x".repeat(64 << 10) }))
            .unwrap(),
    ]
}

macro_rules! allocates_nothing {
    ($($name:ident: $layer:expr;)*) => {$(
        #[tokio::test(start_paused = true)]
        async fn $name() {
            let layer = $layer;
            for call in calls() {
                assert_eq!(allocations(&layer, false, &call), 0, "answers at once");
                assert_eq!(allocations(&layer, true, &call), 0, "waits once");
            }
        }
    )*};
}

allocates_nothing! {
    timeout: TimeoutLayer::default();
    timeout_per_tool: TimeoutLayer::default().with_tool("search", Duration::from_secs(1));
    timeout_from_a_function: TimeoutLayer::default().with_timeout_fn(|_| Some(Duration::from_secs(1)));
    deadline: DeadlineLayer::new(Duration::from_secs(60));
    circuit_breaker: CircuitBreakerLayer::new();
    circuit_breaker_with_failures_in_a_window: trips(Trip::consecutive_failures_within(5, Duration::from_secs(300)));
    circuit_breaker_with_rates_over_calls: rates(Rates::over_calls(100));
    circuit_breaker_with_rates_over_time: rates(Rates::over_time(Duration::from_secs(60)));
    concurrency_limit: ConcurrencyLimitLayer::new(1);
    quota: QuotaLayer::new(Quota::per_second(1_000).unwrap());
    quota_with_a_key_and_a_cost: QuotaLayer::builder(Quota::per_second(10_000).unwrap())
        .with_keys(Key::by(|call| call.agent_id().unwrap_or("")))
        .with_cost(|_| 3)
        .build()
        .unwrap();
    rate_limit: RateLimitBackoffLayer::new();
    health: Health::new().layer();
    health_that_refuses: Health::builder().with_refusal(true).build().unwrap().layer();
    repeat_guard: RepeatGuardLayer::builder().with_keys(Key::by(|call| call.tool())).build().unwrap();
    repeat_guard_of_calls_without_a_principal: RepeatGuardLayer::new();
    once_of_calls_without_a_key: OnceLayer::builder()
        .with_repeat_within(Duration::ZERO)
        .build()
        .unwrap();
    cache_of_other_tools: CacheLayer::new(Duration::from_secs(60), ["fetch"]).unwrap();
    retry: RetryLayer::default();
    catch_panic: CatchPanicLayer::new();
    policy: PolicyLayer::new()
        .deny("delete_*")
        .rule(Rule::deny("*").for_agent("intern-*"))
        .rule(Rule::deny("*").may_destroy())
        .rule(Rule::allow("s*ch").when(|call| call.id().is_none()))
        .deny_by_default()
        .with_annotations(|_: &ToolCall| Some(Annotations::default().with_read_only(true)));
    poll_without_a_job: PollLayer::new(());
    normalize: NormalizeLayer::new();
    transport: TransportLayer::new();
    retry_that_is_off: Switch::<RetryLayer>::off();
    trace_without_a_subscriber: TraceLayer::new();
    trace_of_attempts_without_a_subscriber: TraceLayer::attempts();
    check: CheckLayer::max_bytes(100);
    fit: FitLayer::new(100);
    fit_with_words_of_its_own: FitLayer::new(100).with_advice("ask for fewer rows").with_keep(|_, _| None);
    sanitize_by_the_built_in_rules: SanitizeLayer::default();
    stack: ServiceBuilder::new()
        .layer(TraceLayer::new())
        .layer(DeadlineLayer::new(Duration::from_secs(60)))
        .layer(TimeoutLayer::default())
        .layer(CatchPanicLayer::new())
        .into_inner();
}

/// Its two names are looked at.
#[tokio::test]
async fn policy_for_a_tool_of_a_server() {
    let layer = PolicyLayer::new().deny("docs__delete").allow("docs__s*");
    let call = ToolCall::new("search").with_server("docs");
    assert_eq!(allocations(&layer.deny_by_default(), true, &call), 0);
}

#[cfg(feature = "settings")]
allocates_nothing! {
    stack_of_the_default_settings: settings::Settings::default().stack().build().unwrap();
    stack_of_the_agent_library: settings::Settings::agent_library().stack().build().unwrap();
    stack_of_the_agent_loop: settings::Settings::agent_loop().stack().build().unwrap();
    stack_of_the_gateway: settings::Settings::gateway().stack().build().unwrap();
    stack_of_the_http_proxy: settings::Settings::http_proxy().stack().build().unwrap();
}

#[cfg(feature = "settings")]
allocates_nothing! {
    stack_of_settings_with_hooks: settings::Settings::default()
        .stack()
        .with_hooks(())
        .build()
        .unwrap();
}

#[cfg(feature = "settings")]
allocates_nothing! {
    stack_of_settings_with_quota_and_concurrency_limit: {
        let mut settings = settings::Settings::default();
        settings.quota.units = Some(10_000);
        settings.concurrency.max = Some(1);
        settings.stack().build().unwrap()
    };
}

#[cfg(feature = "settings")]
allocates_nothing! {
    stack_of_settings_with_metrics: settings::Settings::default()
        .stack()
        .with_metrics(&tower_toolcall::tool_metrics::Metrics::new())
        .build()
        .unwrap();
}

// Arguments that fit: none, five, and 64 KiB of them.
#[cfg(feature = "validate")]
allocates_nothing! {
    validate: {
        use tower_toolcall::validate::{Schema, Schemas, ValidateLayer};

        let schema = json!({
            "type": "object",
            "properties": {
                "text": { "type": "string", "pattern": "^x" },
                "key0": { "enum": ["u", "v"] },
                "key1": { "anyOf": [{ "type": "integer" }, { "$ref": "#/definitions/text" }] },
            },
            "definitions": { "text": { "type": "string" } },
            "additionalProperties": { "type": "string" },
        });
        let schemas = Schemas::new();
        schemas.insert(None, "search", Schema::compile(&schema).unwrap());
        ValidateLayer::new(&schemas).repair().with_tool("other", Default::default())
    };
}

allocates_nothing! {
    metrics: tower_toolcall::tool_metrics::Metrics::new().layer();
    documented_stack_with_metrics: ServiceBuilder::new()
        .layer(TraceLayer::new())
        .layer(tower_toolcall::tool_metrics::Metrics::new().layer())
        .layer(DeadlineLayer::new(Duration::from_secs(60)))
        .layer(RetryLayer::default())
        .layer(RateLimitBackoffLayer::new())
        .layer(CircuitBreakerLayer::new())
        .layer(TimeoutLayer::default())
        .layer(CatchPanicLayer::new())
        .into_inner();
}

/// Handles and attributes are made once per tool.
#[cfg(feature = "metrics")]
#[tokio::test(start_paused = true)]
async fn metrics_through_the_facade() {
    use tower_toolcall::{metrics_facade::Facade, tool_metrics::Metrics};

    let sink = Metrics::builder().with_sink(Facade::new());
    let layer = sink.build().unwrap().layer();
    // What an exporter does with a sample is its own business.
    metrics::with_local_recorder(&metrics::NoopRecorder, || {
        for call in calls() {
            assert_eq!(allocations(&layer, true, &call), 0);
        }
    });
}

/// A call that has its identity's names is as it was; of one that is spelled otherwise the names
/// are copied.
#[test]
fn identity() {
    use tower_toolcall::{
        Identity,
        identity::{IdentityLayer, Resolve},
    };

    struct Search(Identity);
    impl Resolve for Search {
        fn resolve(&self, _: &ToolCall) -> Result<Option<Identity>, ToolError> {
            Ok(Some(self.0.clone()))
        }
    }
    let count = |identity: Identity, keep: bool, call: ToolCall| {
        let mut svc = IdentityLayer::new(Search(identity)).layer(Tool { waits: true });
        let _kept = keep.then(|| call.clone());
        allocation_counter::measure(|| drive(&mut svc, call)).count_total
    };
    let docs = || Identity::new("search").with_server("docs");
    for call in calls() {
        for keep in [false, true] {
            assert_eq!(count(Identity::new("search"), keep, call.clone()), 0);
            let named = call.clone().with_server("docs");
            assert_eq!(count(docs(), keep, named), 0);
        }
        let args = call.arguments().clone();
        let flat = || ToolCall::new("docs__search").with_arguments(args.clone());
        assert_eq!(count(docs(), false, flat()), 1);
        assert_eq!(count(docs(), true, flat()), 2);
    }
    // Of a call that fails the error as well, which gets the caller's names in its place.
    let error = || "no such page".into();
    let find = Identity::new("find").with_server("docs");
    let fails = IdentityLayer::new(Search(find)).layer(failing(error));
    assert_eq!(allocations_of_errors(fails, error, 1), 3);
}

/// A router allocates the future of a local tool, and for a server's tool the other names as well.
mod router {
    use super::*;
    use tower_toolcall::router::{Router, RouterBuilder, tool_fn};

    fn count(name: &str, call: impl Fn(ToolCall) -> ToolCall) -> [u64; 2] {
        let tool = Tool { waits: true };
        let router: Router<usize> = RouterBuilder::new()
            .tool("search", tool.clone())
            .server("docs", tool, ["search"])
            .build()
            .unwrap();
        let mut svc = router;
        let mut measure = |keep: bool| {
            let call = named(name, &call(calls().remove(1)));
            let _kept = keep.then(|| call.clone());
            allocation_counter::measure(|| drive(&mut svc, call)).count_total
        };
        [measure(false), measure(true)]
    }

    /// A new call with the same arguments and server.
    fn named(name: &str, old: &ToolCall) -> ToolCall {
        let call = ToolCall::new(name).with_arguments(old.arguments().clone());
        match old.server() {
            Some(server) => call.with_server(server),
            None => call,
        }
    }

    #[test]
    fn a_local_tool_is_one_allocation() {
        assert_eq!(count("search", |call| call), [1, 1]);
    }

    /// The names; and the rest of the call's head, if its caller keeps a clone. Not the arguments.
    #[test]
    fn a_servers_tool_is_two_or_three() {
        assert_eq!(count("docs__search", |call| call), [2, 3]);
        assert_eq!(count("search", |call| call.with_server("docs")), [1, 1]);
    }

    /// X6: when its server is known.
    #[test]
    fn a_watched_server_costs_nothing_more() {
        let health = Health::builder().with_refusal(true).build().unwrap();
        let mut svc: Router<usize> = RouterBuilder::new()
            .server("docs", Tool { waits: true }, ["search"])
            .with_health(&health)
            .build()
            .unwrap();
        let [_, second] = [(); 2].map(|()| {
            let call = named("docs__search", &calls().remove(1));
            allocation_counter::measure(|| drive(&mut svc, call)).count_total
        });
        assert_eq!(second, 2);
    }

    /// Reading arguments costs what they need themselves.
    #[test]
    fn typed_arguments_cost_nothing_more() {
        #[derive(serde::Deserialize)]
        struct Numbers {
            a: usize,
            b: Option<f64>,
        }
        let tool = tool_fn(|n: Numbers| {
            std::future::ready(Ok::<_, ToolError>(n.a + usize::from(n.b.is_none())))
        });
        let mut svc: Router<usize> = RouterBuilder::new().tool("n", tool).build().unwrap();
        let call = ToolCall::new("n").with_json(json!({ "a": 1, "b": 2.5 }));
        let call = call.unwrap();
        let counted = allocation_counter::measure(|| drive(&mut svc, call));
        assert_eq!(counted.count_total, 1);
    }
}

/// The same with the SDK of OpenTelemetry.
#[cfg(feature = "otel")]
#[tokio::test(start_paused = true)]
async fn metrics_as_opentelemetry() {
    use opentelemetry::metrics::MeterProvider as _;
    use opentelemetry_sdk::metrics::{InMemoryMetricExporter, SdkMeterProvider};
    use tower_toolcall::{otel::metrics::OtelMetrics, tool_metrics::Metrics};

    let provider = SdkMeterProvider::builder()
        .with_periodic_exporter(InMemoryMetricExporter::default())
        .build();
    let sink = OtelMetrics::new(&provider.meter("test"));
    let layer = Metrics::builder().with_sink(sink).build().unwrap().layer();
    for call in calls() {
        allocations(&layer, true, &call);
        assert_eq!(allocations(&layer, true, &call), 0);
    }
}

/// Own rules are put on the call itself, unless somebody keeps a clone of it.
#[tokio::test(start_paused = true)]
async fn sanitize_by_own_rules() {
    let rules = Rules::new().with_sensitive_key("iban").unwrap();
    let mut svc = SanitizeLayer::new(rules).layer(Tool { waits: true });
    for arguments in [json!({}), json!({ "text": "x".repeat(64 << 10) })] {
        let call = ToolCall::new("search").with_json(arguments).unwrap();
        let counted = allocation_counter::measure(|| drive(&mut svc, call));
        assert_eq!(counted.count_total, 0);
    }
}

/// A success as a [`ToolResult`] is no allocation either.
#[tokio::test(start_paused = true)]
async fn result() {
    let mut svc = ToolResultLayer::new().layer(Tool { waits: true });
    let mut cx = Context::from_waker(Waker::noop());
    for call in calls() {
        let mut run = || {
            assert!(svc.poll_ready(&mut cx).is_ready());
            let mut response = pin!(svc.call(call.clone()));
            assert!(response.as_mut().poll(&mut cx).is_pending());
            let Poll::Ready(Ok(result)) = response.as_mut().poll(&mut cx) else {
                panic!("pending");
            };
            assert!(result.is_success());
        };
        run();
        assert_eq!(allocation_counter::measure(run).count_total, 0);
    }
}

/// A call whose tool is not ready yet when it comes allocates its wait, and nothing else.
#[tokio::test(start_paused = true)]
async fn rate_limit_of_a_tool_that_is_not_ready() {
    #[derive(Clone)]
    struct NotYet(bool);
    impl Service<ToolCall> for NotYet {
        type Response = usize;
        type Error = ToolError;
        type Future = Answer;
        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ToolError>> {
            match std::mem::take(&mut self.0) {
                true => Poll::Pending,
                false => Poll::Ready(Ok(())),
            }
        }
        fn call(&mut self, _: ToolCall) -> Answer {
            Answer { waits: false }
        }
    }
    let layer = RateLimitBackoffLayer::new();
    let call = ToolCall::new("search");
    drive(&mut layer.layer(NotYet(true)), call.clone());
    let mut svc = layer.layer(NotYet(true));
    let counted = allocation_counter::measure(|| drive(&mut svc, call));
    assert_eq!(counted.count_total, 1);
}

fn rates(rates: Rates) -> CircuitBreakerLayer {
    let rates = rates
        .with_failure_rate(0.5)
        .with_slow_call_rate(0.9, Duration::from_secs(1));
    trips(rates)
}

fn trips(trip: impl Into<Trip>) -> CircuitBreakerLayer {
    let builder = CircuitBreakerLayer::builder().with_trip(trip);
    builder.build().unwrap()
}

/// A rejection costs its error, and nothing else.
#[tokio::test(start_paused = true)]
async fn a_rejection_allocates_only_the_error() {
    let layer = CircuitBreakerLayer::new();
    layer.handle().breaker(&calls()[0]).force_open();
    let mut svc = layer.layer(Tool { waits: false });
    let mut cx = Context::from_waker(Waker::noop());
    let mut refused = |call: ToolCall| {
        assert!(svc.poll_ready(&mut cx).is_ready());
        let mut response = pin!(svc.call(call));
        let Poll::Ready(Err(error)) = response.as_mut().poll(&mut cx) else {
            panic!("the breaker is open");
        };
        assert_eq!(error.kind(), ErrorKind::CircuitOpen);
    };
    let call = &calls()[0];
    refused(call.clone());
    let counted = allocation_counter::measure(|| refused(call.clone()));
    assert_eq!(counted.count_total, 1);
}

/// A tool that fails, without an allocation but for its errors.
fn failing(
    error: fn() -> BoxError,
) -> impl Service<ToolCall, Response = usize, Error = BoxError, Future: Send> + Clone {
    tower::service_fn(move |_: ToolCall| std::future::ready(Err(error())))
}

/// Allocations of a call that fails at this many attempts, above those of the tool's own errors.
fn allocations_of_errors(
    mut svc: impl Service<ToolCall, Response = usize, Error = ToolError>,
    error: fn() -> BoxError,
    attempts: u64,
) -> u64 {
    let call = ToolCall::new("search").with_server("docs").with_id("1");
    let call = call.with_cancellation(CancellationToken::new());
    let mut cx = Context::from_waker(Waker::noop());
    let mut fail = || {
        assert!(svc.poll_ready(&mut cx).is_ready());
        let mut response = pin!(svc.call(call.clone()));
        let polled = response.as_mut().poll(&mut cx);
        assert!(matches!(polled, Poll::Ready(Err(_))));
    };
    fail(); // what is made once: buffers of the thread
    let count = |measured: &mut dyn FnMut()| allocation_counter::measure(measured).count_total;
    count(&mut fail) - attempts * count(&mut || drop(error()))
}

/// A foreign error becomes ours with one allocation, through any number of layers. Its text is
/// printed when somebody asks for it.
#[tokio::test(start_paused = true)]
async fn a_foreign_error_is_one_allocation() {
    let errors: &[fn() -> BoxError] = &[
        || "no such page".into(),
        || "Connection reset by peer".into(),
        || "upstream responded with HTTP 503".into(),
        || std::io::Error::from(std::io::ErrorKind::ConnectionRefused).into(),
        || std::io::Error::other("the disk is full").into(),
    ];
    for &error in errors {
        let one = TimeoutLayer::default().layer(failing(error));
        assert_eq!(allocations_of_errors(one, error, 1), 1, "{}", error());
        let stack = ServiceBuilder::new()
            .layer(TraceLayer::new())
            .layer(DeadlineLayer::new(Duration::from_secs(60)))
            .layer(RetryLayer::default())
            .layer(
                CircuitBreakerLayer::builder()
                    .with_trip(never())
                    .build()
                    .unwrap(),
            )
            .layer(TimeoutLayer::default())
            .layer(CatchPanicLayer::new())
            .service(failing(error));
        assert_eq!(allocations_of_errors(stack, error, 1), 1, "{}", error());
    }
}

fn never() -> Trip {
    Trip::consecutive_failures(u32::MAX)
}

/// An attempt that fails costs its error. Between attempts without a delay nothing is boxed, if the
/// service is ready.
#[tokio::test(start_paused = true)]
async fn three_attempts_that_fail_are_three_allocations() {
    let refused = || std::io::Error::from(std::io::ErrorKind::ConnectionRefused).into();
    let policy = RetryPolicy::new()
        .with_backoff(Backoff::fixed(Duration::ZERO).unwrap())
        .with_budget(RetryBudget::new(1000.0, 10).unwrap())
        .assume_replay_safe();
    let svc = RetryLayer::new(policy).layer(failing(refused));
    assert_eq!(allocations_of_errors(svc, refused, 3), 3);
}

/// C9: a hundred thousand invented names against the default bound of ten thousand.
#[tokio::test(start_paused = true)]
async fn memory_stays_bounded_whatever_names_are_invented() {
    let layer = CircuitBreakerLayer::new();
    let mut svc = layer.layer(Tool { waits: false });
    let mut last = 0;
    let mut held = 0;
    for round in 0..10 {
        let counted = allocation_counter::measure(|| {
            for i in 0..10_000 {
                drive(&mut svc, ToolCall::new(format!("invented-{round}-{i}")));
            }
        });
        held += counted.bytes_current;
        // The tables grow once more when evicted names have used up their room.
        if round == 4 {
            last = held;
        }
    }
    let keys = layer.handle().len();
    println!(
        "{keys} keys of 100,000 are kept: {} bytes each",
        held / keys as i64
    );
    assert!(keys <= 10_000);
    assert!(held <= last + last / 10, "{last} bytes, then {held}");
    assert!(held < 10_000 * 600, "{held} bytes");
}

/// The record of a call costs no allocation inside a layer, clones sent one after the other
/// included.
#[tokio::test(start_paused = true)]
async fn observing_a_call_allocates_nothing() {
    #[derive(Clone)]
    struct Observe<S>(S);
    impl<S: Service<ToolCall>> Service<ToolCall> for Observe<S> {
        type Response = S::Response;
        type Error = S::Error;
        type Future = S::Future;
        fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
            self.0.poll_ready(cx)
        }
        fn call(&mut self, mut call: ToolCall) -> S::Future {
            let seen = call.observe();
            let future = self.0.call(call);
            assert_eq!(seen.timeout(), Some(Duration::from_secs(30)));
            future
        }
    }
    let layer = ServiceBuilder::new()
        .layer(tower::layer::layer_fn(Observe))
        .layer(TimeoutLayer::default())
        .into_inner();
    for call in calls() {
        assert_eq!(allocations(&layer, true, &call), 0);
    }
}

/// A handle on a call's names, which every layer keeps, does not make the tool copy the arguments.
#[tokio::test(start_paused = true)]
async fn a_tool_takes_its_arguments_without_a_copy() {
    let tool = tower::service_fn(|mut call: ToolCall| async move {
        let arguments = call.take_arguments();
        std::mem::forget(arguments); // what it costs to drop them is not the question
        Ok::<_, ToolError>(1)
    });
    let mut stack = ServiceBuilder::new()
        .layer(TraceLayer::new())
        .layer(DeadlineLayer::new(Duration::from_secs(60)))
        .layer(TimeoutLayer::default())
        .layer(CatchPanicLayer::new())
        .service(tool);
    let five = || calls().remove(1);
    drive(&mut stack, five());
    let call = five();
    let counted = allocation_counter::measure(|| drive(&mut stack, call));
    assert_eq!(counted.count_total, 0);
}

/// Cloning a call is one reference count, whatever its arguments weigh.
#[test]
fn cloning_a_call_allocates_nothing() {
    for call in calls() {
        let counted = allocation_counter::measure(|| drop(call.clone()));
        assert_eq!(counted.count_total, 0);
    }
}

/// A refusal is one allocation: the error.
#[tokio::test(start_paused = true)]
async fn a_refusal_allocates_the_error_and_nothing_else() {
    let mut svc = DeadlineLayer::new(Duration::ZERO).layer(Tool { waits: false });
    let call = ToolCall::new("search").with_server("docs");
    let mut cx = Context::from_waker(Waker::noop());
    let counted = allocation_counter::measure(|| {
        assert!(svc.poll_ready(&mut cx).is_ready());
        let mut response = pin!(svc.call(call.clone()));
        assert!(matches!(
            response.as_mut().poll(&mut cx),
            Poll::Ready(Err(_))
        ));
    });
    assert_eq!(counted.count_total, 1);
}

/// X1: ten thousand calls side by side cost one allocation each, for the place in which they run,
/// and a few for the lists: nothing that grows with more than their number.
#[tokio::test(start_paused = true)]
async fn a_batch_allocates_its_own_storage_and_nothing_for_the_calls() {
    use tower_toolcall::batch::Parallel;

    let stack = ServiceBuilder::new()
        .layer(DeadlineLayer::inherited())
        .layer(RetryLayer::default())
        .layer(CircuitBreakerLayer::new())
        .layer(TimeoutLayer::default())
        .layer(CatchPanicLayer::new());
    let counted = |n: usize, waits: bool| {
        let parallel = Parallel::new(stack.clone().service(Tool { waits }));
        let calls: Vec<_> = (0..n)
            .map(|n| ToolCall::new("search").with_id(format!("call_{n}")))
            .collect();
        allocation_counter::measure(|| {
            // Without a break for others; some calls are begun with each poll.
            let mut running = pin!(tokio::task::coop::unconstrained(parallel.run(calls)));
            let mut cx = Context::from_waker(Waker::noop());
            for _ in 0..n / 32 {
                let polled = running.as_mut().poll(&mut cx);
                assert_eq!(polled.is_pending(), waits);
                if polled.is_ready() {
                    break;
                }
            }
        })
    };
    for waits in [false, true] {
        let (few, many) = (counted(1_000, waits), counted(10_000, waits));
        assert!(few.count_total <= 1_000 + 60, "{}", few.count_total);
        assert!(many.count_total <= 10_000 + 60, "{}", many.count_total);
        let each = |bytes: u64, calls| bytes as f64 / f64::from(calls);
        let (of_few, of_many) = (each(few.bytes_max, 1_000), each(many.bytes_max, 10_000));
        println!("{of_few:.0} bytes for each of 1,000 calls, {of_many:.0} of 10,000");
        assert!(of_many < of_few * 1.2, "{of_few} bytes, then {of_many}");
    }
}

/// Several calls of one tool at once: what counts them in each lane is made once.
#[tokio::test(start_paused = true)]
async fn calls_of_a_tool_of_which_others_are_in_flight_allocate_nothing() {
    let call = ToolCall::new("search");
    let breaker = CircuitBreakerLayer::new();
    let limit = RateLimitBackoffLayer::new();
    let mut slow = limit.layer(breaker.layer(Tool { waits: true }));
    let mut fast = limit.layer(breaker.layer(Tool { waits: false }));
    let mut cx = Context::from_waker(Waker::noop());
    assert!(slow.poll_ready(&mut cx).is_ready());
    let mut in_flight = pin!(slow.call(call.clone()));
    assert!(in_flight.as_mut().poll(&mut cx).is_pending());
    drive(&mut fast, call.clone());
    let counted = allocation_counter::measure(|| {
        for _ in 0..100 {
            drive(&mut fast, call.clone());
        }
    });
    assert_eq!(counted.count_total, 0);
    assert!(in_flight.as_mut().poll(&mut cx).is_ready());
}
