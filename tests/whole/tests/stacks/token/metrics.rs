//! The figures of tokens: in the snapshot, for Prometheus, through the facade and for
//! OpenTelemetry.

use metrics_exporter_prometheus::PrometheusBuilder;
use opentelemetry::metrics::MeterProvider as _;
use opentelemetry_sdk::metrics::{
    InMemoryMetricExporter, SdkMeterProvider,
    data::{AggregatedMetrics, MetricData},
};
use tower::{Layer, ServiceBuilder, ServiceExt};
use tower_toolcall::{
    ErrorKind, ToolCall, ToolError,
    metrics_facade::Facade,
    otel::metrics::OtelMetrics,
    retry::RetryLayer,
    token::Token,
    tool_metrics::{Metrics, Snapshot},
};

use super::kit::{Provider, SECOND, Upstream, call};

/// One exchange of 1 s that a second call waits for, three hits, a refusal of 1 s, and a timeout
/// that a retry mends.
async fn work(metrics: &Metrics) {
    let fails = |kind| Err(ToolError::new(kind, "no: alice"));
    let token = || Ok(Token::new("t0k3n").with_lifetime(300 * SECOND));
    let provider = Provider::answering([
        token(),
        fails(ErrorKind::TokenExchange),
        fails(ErrorKind::Timeout),
        token(),
    ]);
    let stack = ServiceBuilder::new()
        .layer(metrics.layer())
        .layer(RetryLayer::default())
        .service(provider.layer().layer(Upstream::default().service()));
    let send = |subject: &str| stack.clone().oneshot(call(subject));
    let (first, second) = tokio::join!(send("alice"), send("alice"));
    first.and(second).unwrap();
    for _ in 0..3 {
        send("alice").await.unwrap();
    }
    send("bob").await.unwrap_err();
    send("carol").await.unwrap();
    // Needs none.
    let other = ToolCall::new("weather");
    stack.clone().oneshot(other).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_snapshot_has_hits_exchanges_and_failures() {
    let metrics = Metrics::new();
    assert_eq!(metrics.snapshot().tokens, None);
    work(&metrics).await;
    let tokens = metrics.snapshot().tokens.unwrap();
    let counts = (tokens.hits, tokens.exchanged, tokens.shared, tokens.failed);
    assert_eq!(counts, (3, 2, 1, 2));
    let failures: Vec<_> = tokens.failures.iter().collect();
    let expected = [
        (&"TOKEN_EXCHANGE_FAILED".to_owned(), &1),
        (&"TOOL_TIMEOUT".to_owned(), &1),
    ];
    assert_eq!(failures, expected);
    assert_eq!(tokens.exchange.count, 4);
    assert_eq!(tokens.exchange.sum, 4 * SECOND);
    let table = metrics.snapshot().to_string();
    let line =
        "tokens: 3 hits, 2 exchanged, 1 shared, 2 failed, exchanges p50 1004 ms, p99 1004 ms\n";
    assert!(table.ends_with(line), "{table}");
}

#[tokio::test(start_paused = true)]
async fn intervals_resets_and_json() {
    let metrics = Metrics::new();
    let mut interval = metrics.interval();
    work(&metrics).await;
    let one = metrics.export();
    let text = serde_json::to_string(&one).unwrap();
    assert_eq!(serde_json::from_str::<Snapshot>(&text).unwrap(), one);
    let tokens = one.tokens.unwrap();
    assert_eq!(tokens.hits, 3);
    assert_eq!(tokens.failed, 2);
    assert_eq!(tokens.exchange.count, 4);
    assert_eq!(tokens.failures["TOOL_TIMEOUT"], 1);

    assert_eq!(interval.snapshot().tokens.unwrap().hits, 3);
    let quiet = interval.snapshot().tokens.unwrap();
    assert_eq!((quiet.hits, quiet.exchange.count), (0, 0));
    assert!(quiet.failures.is_empty());
    metrics.reset();
    assert_eq!(metrics.snapshot().tokens.unwrap().exchanged, 0);
    assert!(
        metrics
            .prometheus()
            .contains("token_exchange_total{outcome=\"exchanged\"} 2\n")
    );
}

#[tokio::test(start_paused = true)]
async fn prometheus_has_them_without_the_names_of_anybody() {
    let metrics = Metrics::new();
    assert!(!metrics.prometheus().contains("token_"));
    work(&metrics).await;
    let text = metrics.prometheus();
    let ours = |line: &&str| line.starts_with("token_");
    let lines: Vec<_> = text.lines().filter(ours).collect();
    for line in [
        "token_exchange_total{outcome=\"hit\"} 3",
        "token_exchange_total{outcome=\"exchanged\"} 2",
        "token_exchange_total{outcome=\"shared\"} 1",
        "token_exchange_total{outcome=\"failed\"} 2",
        "token_exchange_failures_total{code=\"TOKEN_EXCHANGE_FAILED\"} 1",
        "token_exchange_failures_total{code=\"TOOL_TIMEOUT\"} 1",
        "token_exchange_duration_ms_bucket{le=\"500\"} 0",
        "token_exchange_duration_ms_bucket{le=\"2000\"} 4",
        "token_exchange_duration_ms_bucket{le=\"+Inf\"} 4",
        "token_exchange_duration_ms_sum 4000",
        "token_exchange_duration_ms_count 4",
    ] {
        assert!(lines.contains(&line), "{line} in {text}");
    }
    assert!(text.contains("# TYPE token_exchange_duration_ms histogram\n"));
    for name in ["alice", "bob", "t0k3n", "orders"] {
        assert!(!text.contains(name), "{name} in {text}");
    }
    let samples = text.lines().map(|line| Ok(line.to_owned()));
    prometheus_parse::Scrape::parse(samples).unwrap();
}

#[test]
fn the_facade_has_the_same() {
    let recorder = PrometheusBuilder::new()
        .set_buckets(&[500.0, 1000.0])
        .unwrap()
        .build_recorder();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    metrics::with_local_recorder(&recorder, || {
        let metrics = Metrics::builder().with_sink(Facade::new()).build().unwrap();
        runtime.block_on(work(&metrics));
    });
    let text = recorder.handle().render();
    for line in [
        "token_exchange_total{outcome=\"hit\"} 3",
        "token_exchange_total{outcome=\"failed\"} 2",
        "token_exchange_failures_total{code=\"TOOL_TIMEOUT\"} 1",
        "token_exchange_duration_ms_bucket{le=\"1000\"} 4",
    ] {
        assert!(text.contains(&format!("{line}\n")), "{line} in {text}");
    }
}

/// The sum of what was counted, and the attribute of each point.
fn otel(exporter: &InMemoryMetricExporter, name: &str) -> Vec<(String, f64)> {
    let all = exporter.get_finished_metrics().unwrap();
    let scopes = all.last().unwrap().scope_metrics();
    let metric = scopes
        .flat_map(|scope| scope.metrics())
        .find(|m| m.name() == name);
    let shown = |kv: &opentelemetry::KeyValue| format!("{}={}", kv.key, kv.value);
    let mut points: Vec<_> = match metric.map(|metric| metric.data()) {
        Some(AggregatedMetrics::U64(MetricData::Sum(sum))) => sum
            .data_points()
            .map(|p| {
                (
                    p.attributes().map(shown).collect::<String>(),
                    p.value() as f64,
                )
            })
            .collect(),
        Some(AggregatedMetrics::F64(MetricData::Histogram(all))) => all
            .data_points()
            .map(|p| (p.attributes().map(shown).collect::<String>(), p.sum()))
            .collect(),
        _ => Vec::new(),
    };
    points.sort_by(|a, b| a.0.cmp(&b.0));
    points
}

#[tokio::test(start_paused = true)]
async fn opentelemetry_has_the_same() {
    let exporter = InMemoryMetricExporter::default();
    let provider = SdkMeterProvider::builder()
        .with_periodic_exporter(exporter.clone())
        .build();
    let meter = provider.meter("test");
    let sink = OtelMetrics::new(&meter).with_aliases(&meter);
    let metrics = Metrics::builder().with_sink(sink).build().unwrap();
    work(&metrics).await;
    provider.force_flush().unwrap();
    let of = |name| otel(&exporter, name);
    let outcomes = ["exchanged", "failed", "hit", "shared"].map(|o| format!("token.outcome={o}"));
    let expected: Vec<_> = outcomes.into_iter().zip([2.0, 2.0, 3.0, 1.0]).collect();
    assert_eq!(of("token.exchanges"), expected);
    let failures = ["timeout", "token_exchange"].map(|e| (format!("error.type={e}"), 1.0));
    assert_eq!(of("token.exchange.failures"), failures);
    assert_eq!(of("token.exchange.duration"), [(String::new(), 4.0)]);
    assert_eq!(of("token_exchange_duration_ms"), [(String::new(), 4000.0)]);
}

/// What the exchange's own breaker refuses has asked nobody.
#[tokio::test(start_paused = true)]
async fn a_refused_exchange_is_not_timed() {
    let metrics = Metrics::new();
    let open = || Err(ToolError::refusal(ErrorKind::CircuitOpen, "open"));
    let provider = Provider::answering([open(), open()]);
    let stack = metrics
        .layer()
        .layer(provider.layer().layer(Upstream::default().service()));
    let send = || stack.clone().oneshot(call("alice"));
    let (first, second) = tokio::join!(send(), send());
    assert!(first.is_err() && second.is_err());
    let tokens = metrics.snapshot().tokens.unwrap();
    assert_eq!((tokens.failed, tokens.exchange.count), (2, 0));
    assert_eq!(tokens.failures["CIRCUIT_OPEN"], 2);
    assert!(
        metrics
            .prometheus()
            .contains("token_exchange_duration_ms_count 0\n")
    );
}
