//! What metrics cost: `cargo test --release --all-features --test metrics_speed -- --nocapture --ignored --test-threads 1`.
#![cfg(all(feature = "metrics-facade", feature = "otel"))]
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]

use std::{
    future::{Future, Ready, ready},
    hint::black_box,
    pin::pin,
    sync::{
        Barrier,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};

use metrics_exporter_prometheus::PrometheusBuilder;
use opentelemetry::{KeyValue, metrics::MeterProvider as _};
use opentelemetry_sdk::metrics::{InMemoryMetricExporter, SdkMeterProvider};
use tokio::time::Instant;
use tower::Service;
use tower_layer::Layer;
use tower_toolcall::{ToolCall, ToolError, metrics::Metrics};

const CALLS: usize = 200_000;

#[derive(Clone)]
struct Tool;

impl Service<ToolCall> for Tool {
    type Response = u64;
    type Error = ToolError;
    type Future = Ready<Result<u64, ToolError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ToolError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, call: ToolCall) -> Self::Future {
        black_box(call);
        ready(Ok(1))
    }
}

fn drive<S: Service<ToolCall, Response = u64>>(svc: &mut S, call: &ToolCall) {
    let mut cx = Context::from_waker(Waker::noop());
    assert!(svc.poll_ready(&mut cx).is_ready());
    assert!(pin!(svc.call(call.clone())).poll(&mut cx).is_ready());
}

/// Wall time of `threads` at once, in nanoseconds for each call of one thread; the best of some rounds.
fn on_threads(threads: usize, work: impl Fn(usize) + Sync) -> f64 {
    let round = || {
        let barrier = Barrier::new(threads);
        let timed = |thread| {
            barrier.wait();
            let start = Instant::now();
            work(thread);
            start.elapsed()
        };
        std::thread::scope(|scope| {
            let timed = &timed;
            let threads: Vec<_> = (0..threads)
                .map(|n| scope.spawn(move || timed(n)))
                .collect();
            let times = threads.into_iter().map(|t| t.join().unwrap());
            times.max().unwrap()
        })
    };
    let best = (0..12).map(|_| round()).min().unwrap();
    best.as_nanos() as f64 / CALLS as f64
}

fn calls<S>(svc: &S, tool: &str)
where
    S: Service<ToolCall, Response = u64> + Clone,
{
    // A call of its own for each thread: what is measured is what the layer shares.
    let (mut svc, call) = (svc.clone(), ToolCall::new(tool).with_server("docs"));
    for _ in 0..CALLS {
        drive(&mut svc, &call);
    }
}

#[test]
#[ignore = "prints times, asserts nothing: cargo test --release -- --ignored --nocapture"]
fn nanoseconds_for_each_call() {
    let metrics = Metrics::new();
    let layered = metrics.layer().layer(Tool);
    for threads in [1, 2] {
        let bare = on_threads(threads, |_| calls(&Tool, "one"));
        let one = on_threads(threads, |_| calls(&layered, "one"));
        let own = on_threads(threads, |n| calls(&layered, &format!("tool_{n}")));
        println!(
            "{threads} threads: bare {bare:.0}, with metrics {one:.0} on one tool, {own:.0} on one each"
        );
    }
    println!("{}", metrics.snapshot());
}

/// One histogram sample as they are usually taken: a look-up by labels each time; and with a handle.
#[test]
#[ignore = "prints times, asserts nothing: cargo test --release -- --ignored --nocapture"]
fn nanoseconds_for_each_sample_of_others() {
    let recorder = PrometheusBuilder::new().set_buckets(&[1.0, 10.0, 100.0]);
    let recorder = recorder.unwrap().build_recorder();
    metrics::set_global_recorder(recorder).unwrap();
    let provider = SdkMeterProvider::builder()
        .with_periodic_exporter(InMemoryMetricExporter::default())
        .build();
    let otel = provider.meter("test").f64_histogram("seconds").build();
    let attributes = [
        KeyValue::new("tool", "search"),
        KeyValue::new("server", "docs"),
    ];
    let handle = metrics::histogram!("handle", "tool" => "search", "server" => "docs");
    for threads in [1, 2] {
        let facade = on_threads(threads, |_| {
            for n in 0..CALLS {
                let histogram = metrics::histogram!("ms", "tool" => "search", "server" => "docs");
                histogram.record(black_box(n as f64));
            }
        });
        let handle = on_threads(threads, |_| {
            (0..CALLS).for_each(|n| handle.record(black_box(n as f64)));
        });
        let otel = on_threads(threads, |_| {
            (0..CALLS).for_each(|n| otel.record(black_box(n as f64), &attributes));
        });
        println!(
            "{threads} threads: metrics facade and exporter {facade:.0}, with a handle {handle:.0}; \
             OpenTelemetry {otel:.0}"
        );
    }
}

/// The longest time that a call took meanwhile tells whether anybody waited.
#[test]
#[ignore = "prints times, asserts nothing: cargo test --release -- --ignored --nocapture"]
fn a_snapshot_of_a_thousand_tools() {
    let metrics = Metrics::new();
    let layered = metrics.layer().layer(Tool);
    let names: Vec<_> = (0..1_000)
        .map(|n| ToolCall::new(format!("tool_{n}")).with_server("docs"))
        .collect();
    // From a millisecond to half a minute: histograms of the usual size.
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let mut svc = layered.clone();
        for (n, call) in names.iter().enumerate() {
            for ms in [1, 7, 50, 300, 2_000, 30_000] {
                let response = svc.call(call.clone());
                tokio::time::advance(Duration::from_millis(ms + n as u64 % 13)).await;
                response.await.unwrap();
            }
        }
    });
    let done = AtomicBool::new(false);
    let record = || {
        let mut svc = layered.clone();
        let (mut longest, mut n) = (Duration::ZERO, 0_u64);
        while !done.load(Relaxed) {
            for call in &names {
                let start = Instant::now();
                drive(&mut svc, call);
                longest = longest.max(start.elapsed());
                n += 1;
            }
        }
        (n, longest)
    };
    let timed = |what: &str, work: &dyn Fn() -> usize| {
        let mut times: Vec<_> = (0..20)
            .map(|_| {
                let start = Instant::now();
                black_box(work());
                start.elapsed()
            })
            .collect();
        times.sort();
        println!("{what}: median {:.1?}, worst {:.1?}", times[10], times[19]);
    };
    std::thread::scope(|scope| {
        let recorder = scope.spawn(record);
        timed("snapshot", &|| metrics.snapshot().tools.len());
        timed("export", &|| metrics.export().tools.len());
        timed("prometheus", &|| metrics.prometheus().len());
        let interval = std::sync::Mutex::new(metrics.interval());
        timed("interval", &|| {
            interval.lock().unwrap().snapshot().tools.len()
        });
        done.store(true, Relaxed);
        let (calls, longest) = recorder.join().unwrap();
        println!("meanwhile {calls} calls were recorded; the longest took {longest:.1?}");
    });
}
