//! Where metrics go: Prometheus' text format over HTTP, the `metrics` facade, OpenTelemetry.

use std::{
    collections::BTreeMap,
    io::Write as _,
    process::{Command, Stdio},
    time::Duration,
};

use axum::{Router, routing::get};
use metrics_exporter_prometheus::PrometheusBuilder;
use opentelemetry::{KeyValue, metrics::MeterProvider as _};
use opentelemetry_sdk::metrics::{
    InMemoryMetricExporter, SdkMeterProvider,
    data::{AggregatedMetrics, MetricData},
};
use prometheus_parse::{Scrape, Value};
use tower::{Service, ServiceBuilder, ServiceExt, service_fn, util::BoxCloneSyncService};
use tower_toolcall::{
    BoxError, ErrorKind, ReplaySafety, ToolCall, ToolError,
    circuit_breaker::CircuitBreakerLayer,
    metrics_facade::Facade,
    otel::metrics::OtelMetrics,
    rate_limit::RateLimitBackoffLayer,
    retry::{RetryLayer, RetryPolicy},
    timeout::TimeoutLayer,
    tool_metrics::Metrics,
};

use crate::listening;

const CANARY: &str = "sk-proj-Zk3vQ8mW1xT5nB7cR2yL9dF4hJ6gP0sA";

async fn tool(call: ToolCall) -> Result<&'static str, BoxError> {
    let error = |kind| Err(ToolError::new(kind, "no").into());
    match call.tool() {
        "slow" => {
            tokio::time::sleep(Duration::from_millis(900)).await;
            Ok("answer")
        }
        "hangs" => std::future::pending().await,
        "busy" => error(ErrorKind::RateLimited),
        "broken" => error(ErrorKind::Upstream),
        "leaks" => {
            let code = format!("token={CANARY}");
            Err(ToolError::new(ErrorKind::Failed, "no")
                .with_code(code)
                .into())
        }
        name if name.starts_with("invented") => error(ErrorKind::NotFound),
        _ => Ok("answer"),
    }
}

/// The documented stack, with one listener everywhere, and a day at work.
async fn work(metrics: &Metrics) {
    let breaker = CircuitBreakerLayer::builder().with_listener(metrics.clone());
    let gate = RateLimitBackoffLayer::builder().with_listener(metrics.clone());
    let mut tools = BoxCloneSyncService::new(
        ServiceBuilder::new()
            .layer(metrics.layer())
            .layer(RetryLayer::new(
                RetryPolicy::default().with_listener(metrics.clone()),
            ))
            .layer(gate.build().unwrap())
            .layer(breaker.build().unwrap())
            .layer(TimeoutLayer::new(Duration::from_secs(1)).with_listener(metrics.clone()))
            .service(service_fn(tool)),
    );
    let call = |name: &str| {
        ToolCall::new(name)
            .with_server("docs")
            .with_replay_safety(ReplaySafety::Safe)
    };
    for name in [
        "search", "search", "slow", "busy", "broken", "broken", "broken", "leaks",
    ] {
        let _ = tools.ready().await.unwrap().call(call(name)).await;
    }
    let unsafe_call = call("hangs").with_replay_safety(ReplaySafety::Unsafe);
    tools
        .ready()
        .await
        .unwrap()
        .call(unsafe_call)
        .await
        .unwrap_err();
    drop(tools.ready().await.unwrap().call(call("search")));
    for n in 0..100 {
        let invented = call(&format!("invented_{n}"));
        tools
            .ready()
            .await
            .unwrap()
            .call(invented)
            .await
            .unwrap_err();
    }
    let odd =
        ToolCall::new("a \"quoted\\name\"\nin two lines").with_server(format!("key={CANARY}"));
    tools.ready().await.unwrap().call(odd).await.unwrap();
}

/// What a scrape says, by name and labels in a fixed order.
fn parse(text: &str) -> BTreeMap<String, f64> {
    let scrape = Scrape::parse(text.lines().map(|line| Ok(line.to_owned()))).unwrap();
    let samples = scrape.samples.into_iter().map(|sample| {
        let labels: BTreeMap<_, _> = sample.labels.iter().collect();
        let value = match sample.value {
            Value::Counter(n) | Value::Gauge(n) | Value::Untyped(n) => n,
            Value::Histogram(buckets) => {
                assert!(buckets.is_sorted_by_key(|b| b.count), "{buckets:?}");
                buckets.last().unwrap().count
            }
            Value::Summary(_) => 0.0,
        };
        (format!("{} {labels:?}", sample.metric), value)
    });
    samples.collect()
}

/// The same from us and from the facade's exporter.
fn assert_figures(scraped: &BTreeMap<String, f64>) {
    let of = |name: &str, tool: &str, more: &str| {
        let mut labels = BTreeMap::from([("server", "docs"), ("tool", tool)]);
        labels.extend(more.split_once('='));
        let key = format!("{name} {labels:?}");
        *scraped
            .get(&key)
            .unwrap_or_else(|| panic!("no {key} in {scraped:#?}"))
    };
    assert_eq!(
        of("tool_executions_total", "search", "outcome=success"),
        2.0
    );
    assert_eq!(
        of("tool_executions_total", "search", "outcome=cancelled"),
        1.0
    );
    assert_eq!(of("tool_executions_total", "hangs", "outcome=timeout"), 1.0);
    assert_eq!(of("tool_execution_duration_ms_count", "search", ""), 3.0);
    assert!((900.0..905.0).contains(&of("tool_execution_duration_ms_sum", "slow", "")));
    assert_eq!(of("tool_attempts_total", "search", ""), 3.0);
    assert_eq!(
        of("tool_execution_errors_total", "hangs", "code=TOOL_TIMEOUT"),
        1.0
    );
    assert_eq!(of("tool_timeout_total", "hangs", ""), 1.0);
    assert_eq!(of("tool_slow_total", "slow", ""), 1.0);
    assert_eq!(
        of("tool_retries_refused_total", "hangs", "reason=unsafe"),
        1.0
    );
    assert!(of("tool_retries_total", "broken", "") >= 3.0);
    assert!(of("tool_rate_limited_total", "busy", "") >= 1.0);
    assert_eq!(of("tool_in_flight", "search", ""), 0.0);
    assert_eq!(of("circuit_breaker_open_total", "broken", ""), 1.0);
    assert_eq!(of("circuit_breaker_state", "broken", ""), 2.0);
    assert!(of("circuit_breaker_rejected_total", "broken", "") >= 1.0);
    let other = BTreeMap::from([("outcome", "error"), ("server", ""), ("tool", "_other")]);
    assert_eq!(scraped[&format!("tool_executions_total {other:?}")], 100.0);
}

fn assert_no_secret(text: &str) {
    assert!(!text.contains(&CANARY[8..]), "{text}");
    assert!(!text.contains("invented"), "{text}");
}

/// O3: the names, by a real parser, over real HTTP.
#[tokio::test(start_paused = true)]
async fn a_scrape_over_http_is_what_prometheus_reads() {
    listening();
    let metrics = Metrics::new();
    work(&metrics).await;
    tokio::time::resume();
    let (shown, listener) = (
        metrics.clone(),
        tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap(),
    );
    let url = format!("http://{}/metrics", listener.local_addr().unwrap());
    let app = Router::new().route("/metrics", get(|| async move { shown.prometheus() }));
    let server = tokio::spawn(async move { axum::serve(listener, app).await });
    let scrape = || async { reqwest::get(&url).await.unwrap().text().await.unwrap() };
    let text = scrape().await;
    assert_no_secret(&text);
    let first = parse(&text);
    assert_figures(&first);

    // Counters only ever grow, whatever is read or reset.
    metrics.reset();
    let _ = metrics.interval().snapshot();
    tokio::time::pause();
    work(&metrics).await;
    tokio::time::resume();
    let second = parse(&scrape().await);
    server.abort();
    for (key, before) in first {
        let grew = second[&key] >= before;
        assert!(grew || key.starts_with("circuit_breaker_state"), "{key}");
    }
}

#[test]
fn every_line_is_a_comment_or_a_sample_and_each_series_is_there_once() {
    listening();
    let metrics = Metrics::new();
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.enable_all().start_paused(true).build().unwrap();
    runtime.block_on(work(&metrics));
    let text = metrics.prometheus();
    let mut seen = std::collections::BTreeSet::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (series, value) = line.rsplit_once(' ').unwrap();
        assert!(value.parse::<f64>().is_ok(), "{line}");
        assert!(seen.insert(series.to_owned()), "twice: {series}");
    }
    let quoted = r#"tool="a \"quoted\\name\" in two lines""#;
    assert!(text.contains(quoted), "{text}");
}

/// O3: Prometheus' own linter has nothing to say but of the one name that another system has
/// chosen.
#[test]
fn promtool_finds_nothing_but_an_abbreviated_unit() {
    listening();
    let metrics = Metrics::new();
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.enable_all().start_paused(true).build().unwrap();
    runtime.block_on(work(&metrics));
    assert_eq!(
        promtool(&metrics.prometheus()),
        ["tool_execution_duration_ms metric names should not contain abbreviated units"]
    );
    // It is the real one.
    assert_eq!(promtool("a 1\n"), ["a no help text"]);
}

/// What `promtool check metrics` says of a text.
fn promtool(text: &str) -> Vec<String> {
    let installed = concat!(env!("CARGO_MANIFEST_DIR"), "/target/promtool/promtool");
    let program = match std::path::Path::new(installed).exists() {
        true => installed,
        false => "promtool",
    };
    let mut child = Command::new(program)
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect(
            "promtool is not installed: run `tests/run --no-run` once; it puts it under target/",
        );
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(text.as_bytes()).unwrap();
    drop(stdin);
    let said = child.wait_with_output().unwrap();
    let said = String::from_utf8(said.stderr).unwrap();
    said.lines().map(str::to_owned).collect()
}

#[test]
fn the_facade_records_the_same_under_the_same_names() {
    listening();
    let recorder = PrometheusBuilder::new().build_recorder();
    let handle = recorder.handle();
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.enable_all().start_paused(true).build().unwrap();
    metrics::with_local_recorder(&recorder, || {
        let metrics = Metrics::builder().with_sink(Facade::new()).build().unwrap();
        runtime.block_on(work(&metrics));
    });
    let text = handle.render();
    assert_no_secret(&text);
    assert_figures(&parse(&text));
    assert!(text.contains("# HELP tool_in_flight Calls in flight."));
}

/// Every point of a metric: its attributes, and a value or a count.
fn points(data: &AggregatedMetrics) -> Vec<(BTreeMap<String, String>, f64)> {
    fn of<'a>(attributes: impl Iterator<Item = &'a KeyValue>) -> BTreeMap<String, String> {
        attributes
            .map(|kv| (kv.key.to_string(), kv.value.to_string()))
            .collect()
    }
    match data {
        AggregatedMetrics::F64(MetricData::Histogram(h)) => h
            .data_points()
            .map(|p| (of(p.attributes()), p.count() as f64))
            .collect(),
        AggregatedMetrics::U64(MetricData::Sum(s)) => s
            .data_points()
            .map(|p| (of(p.attributes()), p.value() as f64))
            .collect(),
        AggregatedMetrics::I64(MetricData::Sum(s)) => s
            .data_points()
            .map(|p| (of(p.attributes()), p.value() as f64))
            .collect(),
        AggregatedMetrics::U64(MetricData::Gauge(g)) => g
            .data_points()
            .map(|p| (of(p.attributes()), p.value() as f64))
            .collect(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn opentelemetry_gets_the_conventional_histograms_and_the_rest() {
    listening();
    let exporter = InMemoryMetricExporter::default();
    let provider = SdkMeterProvider::builder()
        .with_periodic_exporter(exporter.clone())
        .build();
    let otel = OtelMetrics::new(&provider.meter("test"));
    let metrics = Metrics::builder().with_sink(otel).build().unwrap();
    work(&metrics).await;
    provider.force_flush().unwrap();
    let received = exporter.get_finished_metrics().unwrap();
    assert_no_secret(&format!("{received:?}"));

    let all: BTreeMap<_, _> = received[0]
        .scope_metrics()
        .flat_map(|scope| scope.metrics())
        .map(|metric| (metric.name(), metric))
        .collect();
    let value = |name: &str, wanted: &[(&str, &str)]| {
        let points = points(all[name].data());
        let is = |attributes: &BTreeMap<String, String>| {
            let wanted = wanted.iter().map(|(k, v)| (k.to_string(), v.to_string()));
            *attributes
                == wanted
                    .chain([("tool.server".into(), "docs".into())])
                    .collect()
        };
        let found = points.iter().find(|(attributes, _)| is(attributes));
        found.unwrap_or_else(|| panic!("{name}: {points:#?}")).1
    };
    let tool = |name| ("gen_ai.tool.name", name);
    let timeout = ("error.type", "timeout");
    let mcp = [
        ("mcp.method.name", "tools/call"),
        ("gen_ai.operation.name", "execute_tool"),
    ];

    let execute = "gen_ai.execute_tool.duration";
    assert_eq!(value(execute, &[tool("search"), mcp[1]]), 2.0);
    assert_eq!(value(execute, &[tool("hangs"), timeout, mcp[1]]), 1.0);
    let operation = "mcp.client.operation.duration";
    assert_eq!(value(operation, &[tool("search"), mcp[0], mcp[1]]), 2.0);
    assert_eq!(
        value(operation, &[tool("hangs"), timeout, mcp[0], mcp[1]]),
        1.0
    );
    assert_eq!(
        value(
            "tool.executions",
            &[tool("hangs"), ("tool.outcome", "timeout")]
        ),
        1.0
    );
    assert_eq!(value("tool.attempts", &[tool("search")]), 3.0);
    assert_eq!(value("tool.slow", &[tool("slow")]), 1.0);
    let code = ("tool.error_code", "TOOL_TIMEOUT");
    assert_eq!(value("tool.errors", &[tool("hangs"), code, timeout]), 1.0);
    let refused = [tool("hangs"), ("tool.reason", "unsafe")];
    assert_eq!(value("tool.retries.refused", &refused), 1.0);
    assert!(value("tool.retries", &[tool("broken")]) >= 3.0);
    assert!(value("tool.rate_limited", &[tool("busy")]) >= 1.0);
    assert_eq!(value("tool.in_flight", &[tool("search")]), 0.0);
    assert_eq!(value("circuit_breaker.openings", &[tool("broken")]), 1.0);
    assert_eq!(value("circuit_breaker.state", &[tool("broken")]), 2.0);

    for (name, first, last) in [(execute, 0.01, 81.92), (operation, 0.01, 300.0)] {
        assert_eq!(all[name].unit(), "s");
        let AggregatedMetrics::F64(MetricData::Histogram(h)) = all[name].data() else {
            panic!("{name} is no histogram");
        };
        let bounds: Vec<_> = h.data_points().next().unwrap().bounds().collect();
        assert_eq!((bounds.len(), bounds[0], bounds[13]), (14, first, last));
    }
}

/// Names that look different and are labels alike, and the in-flight count that a first call has.
#[tokio::test(start_paused = true)]
async fn a_first_call_in_flight_is_no_series_of_its_own() {
    listening();
    let metrics = Metrics::new();
    let mut tools = ServiceBuilder::new()
        .layer(metrics.layer())
        .service(service_fn(tool));
    let response = tools.call(ToolCall::new("invented"));
    assert_eq!(
        metrics.snapshot().tool(None, "invented").unwrap().in_flight,
        1
    );
    let text = metrics.prometheus();
    assert_no_secret(&text);
    assert!(text.contains("tool_in_flight{server=\"\",tool=\"_other\"} 1\n"));
    response.await.unwrap_err();
    assert!(
        metrics
            .prometheus()
            .contains("tool_in_flight{server=\"\",tool=\"_other\"} 0\n")
    );
}

/// W13.
#[tokio::test(start_paused = true)]
async fn opentelemetry_gets_the_conventions_units_and_the_names_of_other_systems_if_asked() {
    listening();
    for aliases in [false, true] {
        let exporter = InMemoryMetricExporter::default();
        let provider = SdkMeterProvider::builder()
            .with_periodic_exporter(exporter.clone())
            .build();
        let meter = provider.meter("test");
        let otel = match aliases {
            true => OtelMetrics::new(&meter).with_aliases(&meter),
            false => OtelMetrics::new(&meter),
        };
        let metrics = Metrics::builder().with_sink(otel).build().unwrap();
        work(&metrics).await;
        provider.force_flush().unwrap();
        let received = exporter.get_finished_metrics().unwrap();
        let all: BTreeMap<_, _> = received[0]
            .scope_metrics()
            .flat_map(|scope| scope.metrics())
            .map(|metric| (metric.name(), metric))
            .collect();
        for name in ["tool.executions", "tool.errors", "tool.in_flight"] {
            assert_eq!(all[name].unit(), "{call}", "{name}");
        }
        assert_eq!(all["tool.attempts"].unit(), "{attempt}");
        let theirs = [
            "tool_executions_total",
            "tool_execution_duration_ms",
            "tool_execution_errors",
            "tool_timeout_total",
            "circuit_breaker_open_total",
            "circuit_breaker_state",
        ];
        for name in theirs {
            assert_eq!(all.contains_key(name), aliases, "{name}");
        }
        if aliases {
            assert_eq!(all["tool_execution_duration_ms"].unit(), "ms");
            let errors = points(all["tool_execution_errors"].data());
            let of = |(of, _): &&(BTreeMap<String, String>, f64)| of["tool"] == "hangs";
            let (of, n) = errors.iter().find(of).unwrap();
            assert_eq!((&*of["error_code"], *n), ("TOOL_TIMEOUT", 1.0));
        }
    }
}

/// W13.
#[tokio::test(start_paused = true)]
async fn prometheus_has_the_errors_by_the_name_of_another_system_if_asked() {
    listening();
    for aliases in [false, true] {
        let metrics = Metrics::builder().with_aliases(aliases).build().unwrap();
        work(&metrics).await;
        let line =
            "tool_execution_errors{server=\"docs\",tool=\"hangs\",error_code=\"TOOL_TIMEOUT\"} 1\n";
        assert_eq!(metrics.prometheus().contains(line), aliases);
    }
}
