//! Instructions per call that each layer adds to a bare service, counted by callgrind.
//!
//! ```text
//! cargo bench --all-features --bench instructions              # compare with the committed baseline
//! cargo bench --all-features --bench instructions -- --update  # write a new baseline
//! ```
//!
//! Unlike time, instructions repeat, so a growth of 3 % is news: the run prints what grew and fails. They
//! repeat for one compiler only: with another than the baseline's the figures are printed and nothing
//! is held against them.
//! Callgrind cannot see into the kernel's clock read; add about 40 for each. Needs valgrind.
//!
//! The peers stand beside ours: tower's own layers, on the same request.

#![allow(missing_docs, unreachable_pub)]

use std::{
    collections::BTreeMap,
    env, fs,
    future::Future,
    hint::black_box,
    path::Path,
    pin::{Pin, pin},
    process::{Command, ExitCode},
    task::{Context, Poll, Waker},
    time::Duration,
};

use metrics_exporter_prometheus::PrometheusBuilder;
use opentelemetry::metrics::MeterProvider as _;
use opentelemetry_sdk::metrics::{InMemoryMetricExporter, SdkMeterProvider};
use tower::{Service, ServiceBuilder};
use tower_toolcall::{
    BoxError, ToolCall,
    catch_panic::CatchPanicLayer,
    check::CheckLayer,
    circuit_breaker::{CircuitBreakerBuilder, CircuitBreakerLayer, Rates},
    deadline::DeadlineLayer,
    health::Health,
    metrics::{Metrics, MetricsBuilder, MetricsLayer, facade::Facade, otel::Otel},
    normalize::NormalizeLayer,
    rate_limit::RateLimitBackoffLayer,
    result::{ToolResult, ToolResultLayer},
    retry::RetryLayer,
    sanitize::SanitizeLayer,
    timeout::TimeoutLayer,
    trace::TraceLayer,
};

/// Growth above both is refused: in percent, and in instructions (a tiny layer may gain one or two
/// from another version of libc).
const LIMIT_PERCENT: f64 = 3.0;
const LIMIT_INSTRUCTIONS: f64 = 4.0;

const CALLS: u64 = 1000;

/// A tool that answers at once, or after one `Pending`.
#[derive(Clone)]
struct Tool {
    waits: bool,
}

struct Answer {
    waits: bool,
}

impl Future for Answer {
    type Output = Result<u64, BoxError>;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        if std::mem::take(&mut self.waits) {
            Poll::Pending
        } else {
            Poll::Ready(Ok(1))
        }
    }
}

impl Service<ToolCall> for Tool {
    type Response = u64;
    type Error = BoxError;
    type Future = Answer;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, call: ToolCall) -> Answer {
        black_box(call);
        Answer { waits: self.waits }
    }
}

/// What callgrind counts: everything from here to the return.
#[inline(never)]
fn counted_loop<S>(svc: &mut S, template: &ToolCall, calls: u64) -> u64
where
    S: Service<ToolCall, Response = u64>,
{
    let mut cx = Context::from_waker(Waker::noop());
    let mut sum = 0;
    for _ in 0..calls {
        assert!(matches!(svc.poll_ready(&mut cx), Poll::Ready(Ok(()))));
        let mut response = pin!(svc.call(template.clone()));
        loop {
            match response.as_mut().poll(&mut cx) {
                Poll::Ready(Ok(answer)) => break sum += answer,
                Poll::Ready(Err(_)) => panic!("the path that is measured must succeed"),
                Poll::Pending => {}
            }
        }
    }
    sum
}

struct Case {
    name: &'static str,
    run: fn(waits: bool, calls: u64),
    /// Bytes of the service and of its future.
    sizes: (usize, usize),
}

fn run<S>(mut svc: S, calls: u64)
where
    S: Service<ToolCall, Response = u64>,
{
    assert_eq!(black_box(counted_loop(&mut svc, &template(), calls)), calls);
}

macro_rules! cases {
    ($($name:literal => $layer:expr;)*) => {
        vec![$(Case {
            name: $name,
            run: |waits, calls| {
                run(ServiceBuilder::new().layer($layer).service(Tool { waits }), calls);
            },
            sizes: {
                let svc = ServiceBuilder::new().layer($layer).service(Tool { waits: false });
                sizes(svc)
            },
        }),*]
    };
}

fn sizes<S: Service<ToolCall>>(_: S) -> (usize, usize) {
    (size_of::<S>(), size_of::<S::Future>())
}

/// A breaker whose window is full and not clean.
fn rate(rates: Rates) -> CircuitBreakerLayer {
    let layer = CircuitBreakerLayer::builder().with_trip(rates.with_failure_rate(0.5));
    let layer = layer.build().expect("valid");
    let breaker = layer.handle().breaker(&template());
    for n in 0..100 {
        if n % 10 == 0 {
            breaker.record_failure();
        } else {
            breaker.record_success();
        }
    }
    layer
}

fn counted(builder: MetricsBuilder) -> MetricsLayer {
    builder.build().expect("valid").layer()
}

/// The SDK, with a reader that is never asked.
fn otel() -> Otel {
    let provider = SdkMeterProvider::builder()
        .with_periodic_exporter(InMemoryMetricExporter::default())
        .build();
    Otel::new(&provider.meter("bench"))
}

/// tower's own budget, in the simplest policy.
#[derive(Clone, Default)]
struct Budgeted(std::sync::Arc<tower::retry::budget::TpsBudget>);

impl<Res> tower::retry::Policy<ToolCall, Res, BoxError> for Budgeted {
    type Future = std::future::Ready<()>;

    fn retry(
        &mut self,
        _: &mut ToolCall,
        result: &mut Result<Res, BoxError>,
    ) -> Option<Self::Future> {
        use tower::retry::budget::Budget;
        match result {
            Ok(_) => {
                self.0.deposit();
                None
            }
            Err(_) => self.0.withdraw().then(|| std::future::ready(())),
        }
    }

    fn clone_request(&mut self, call: &ToolCall) -> Option<ToolCall> {
        Some(call.clone())
    }
}

fn template() -> ToolCall {
    ToolCall::new("search").with_server("docs")
}

fn cases() -> Vec<Case> {
    cases! {
        "bare" => tower::layer::util::Identity::new();
        "timeout" => TimeoutLayer::default();
        "timeout, per tool" => TimeoutLayer::default().with_tool("search", Duration::from_secs(9));
        "deadline" => DeadlineLayer::new(Duration::from_secs(60));
        "retry" => RetryLayer::default();
        "rate_limit, nothing cools" => RateLimitBackoffLayer::new();
        "circuit_breaker" => CircuitBreakerLayer::new();
        "circuit_breaker, failures in a window" => CircuitBreakerBuilder::gateway().build().expect("valid");
        "circuit_breaker, rate over calls" => rate(Rates::over_calls(100));
        "circuit_breaker, rate over time" => rate(Rates::over_time(Duration::from_secs(60)));
        "health" => Health::new().layer();
        "health, that refuses" => Health::builder().with_refusal(true).build().expect("valid").layer();
        "catch_panic" => CatchPanicLayer::new();
        "normalize" => NormalizeLayer::new();
        "trace, nobody listens" => TraceLayer::new();
        "result, taken apart again" => ServiceBuilder::new()
            .map_response(|result: ToolResult<u64>| result.into_result().expect("a success"))
            .layer(ToolResultLayer::new());
        "metrics" => Metrics::new().layer();
        "metrics, through the facade as well" => counted(Metrics::builder().with_sink(Facade::new()));
        "metrics, as OpenTelemetry as well" => counted(Metrics::builder().with_sink(otel()));
        "sanitize, built-in rules" => SanitizeLayer::default();
        "check, an answer of one byte" => CheckLayer::max_bytes(100);
        "stack of four" => ServiceBuilder::new()
            .layer(TraceLayer::new())
            .layer(DeadlineLayer::new(Duration::from_secs(60)))
            .layer(TimeoutLayer::default())
            .layer(CatchPanicLayer::new());
        "peer: tower retry, with a budget" => tower::retry::RetryLayer::new(Budgeted::default());
        "peer: tower timeout" => tower::timeout::TimeoutLayer::new(Duration::from_secs(30));
    }
}

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    let value = |flag: &str| {
        let at = args.iter().position(|a| a == flag)?;
        args.get(at + 1).cloned()
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime");
    let _entered = runtime.enter();
    let recorder = PrometheusBuilder::new().build_recorder();
    metrics::set_global_recorder(recorder).expect("the first one");

    if let Some(name) = value("--case") {
        let waits = args.iter().any(|a| a == "--waits");
        let case = cases().into_iter().find(|c| c.name == name);
        let calls = value("--calls").and_then(|n| n.parse().ok());
        (case.expect("a known case").run)(waits, calls.expect("a number of calls"));
        return ExitCode::SUCCESS;
    }
    let update = args.iter().any(|a| a == "--update");
    match compare(update) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Counts every case, prints the table, and tells whether nothing grew.
fn compare(update: bool) -> Result<bool, BoxError> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/instructions.txt");
    let known = read(&file);
    let compiler = compiler()?;
    let same_compiler = fs::read_to_string(&file)
        .unwrap_or_default()
        .contains(&compiler);
    let mut now = BTreeMap::new();
    let mut grown = Vec::new();
    println!("instructions per call above the bare service, and bytes");
    println!(
        "{:30} {:>9} {:>9} {:>9} {:>9}",
        "", "now", "baseline", "service", "future"
    );
    for waits in [false, true] {
        let bare = count("bare", waits)?;
        for case in cases() {
            if case.name == "bare" {
                continue;
            }
            let name = match waits {
                false => case.name.to_owned(),
                true => format!("{}; waits once", case.name),
            };
            let own = count(case.name, waits)? - bare;
            let before = known.get(&name).copied();
            let (service, future) = case.sizes;
            let shown = before.map_or("new".to_owned(), |b| format!("{b:.0}"));
            println!("{name:30} {own:9.0} {shown:>9} {service:9} {future:9}");
            if let Some(before) = before
                && own - before > LIMIT_INSTRUCTIONS
                && own > before * (1.0 + LIMIT_PERCENT / 100.0)
                && !name.starts_with("peer")
            {
                grown.push(format!(
                    "{name}: {before:.0} -> {own:.0} (+{:.1} %)",
                    (own / before - 1.0) * 100.0
                ));
            }
            now.insert(name, own);
        }
    }
    if update {
        let lines: String = now.iter().map(|(n, i)| format!("{i:8.1}  {n}\n")).collect();
        fs::write(&file, format!("# {compiler}\n{lines}"))?;
        println!("baseline written");
        return Ok(true);
    }
    if let Some(gone) = known.keys().find(|name| !now.contains_key(*name)) {
        return Err(format!("the baseline has '{gone}', which is not measured any more").into());
    }
    if let Some(new) = now.keys().find(|name| !known.contains_key(*name)) {
        return Err(format!("'{new}' has no baseline: run with --update").into());
    }
    for line in &grown {
        eprintln!("grew: {line}");
    }
    if !same_compiler {
        println!("the baseline is of another compiler than {compiler}: nothing is held against it");
        return Ok(true);
    }
    Ok(grown.is_empty())
}

fn compiler() -> Result<String, BoxError> {
    let rustc = env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    let output = Command::new(rustc).arg("--version").output()?;
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

fn read(file: &Path) -> BTreeMap<String, f64> {
    let text = fs::read_to_string(file).unwrap_or_default();
    text.lines()
        .filter_map(|line| {
            let (count, name) = line.trim().split_once("  ")?;
            Some((name.trim().to_owned(), count.parse().ok()?))
        })
        .collect()
}

/// Instructions of one call of a case, the loop's own included. The difference of two runs: what is
/// made once (tracing's call sites, thread locals) is in both.
fn count(case: &str, waits: bool) -> Result<f64, BoxError> {
    let more = collected(case, waits, 2 * CALLS)? - collected(case, waits, CALLS)?;
    Ok(more / CALLS as f64)
}

fn collected(case: &str, waits: bool, calls: u64) -> Result<f64, BoxError> {
    let mut command = Command::new("valgrind");
    command
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .args(["--collect-atstart=no", "--toggle-collect=*counted_loop*"])
        .arg(env::current_exe()?)
        .args(["--case", case, "--calls", &calls.to_string()]);
    if waits {
        command.arg("--waits");
    }
    let output = command.output().map_err(|e| {
        format!("cannot run valgrind ({e}): install it, it counts the instructions")
    })?;
    let text = String::from_utf8_lossy(&output.stderr);
    let collected = text
        .lines()
        .find_map(|line| line.split_once("Collected :"))
        .and_then(|(_, n)| n.trim().parse::<f64>().ok())
        .filter(|n| *n > 0.0 && output.status.success());
    collected.ok_or_else(|| format!("callgrind failed on '{case}':\n{text}").into())
}
