//! A load of mixed calls through the whole stack, and all the ways to look at it.
//!
//! ```text
//! cargo run -p example-observe            # until Ctrl-C
//! cargo run -p example-observe -- 10      # for ten seconds
//! ```
//!
//! - `http://127.0.0.1:9464/`: a page with live percentiles, outcomes and breakers
//! - `http://127.0.0.1:9464/metrics`: for Prometheus
//! - `http://127.0.0.1:9464/snapshot`: the same as JSON
//! - at the end, a table
//!
//! With `OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318` traces and metrics go to that collector
//! as well; for Langfuse and Jaeger see the docs of the module `otel`. `PORT` chooses another port;
//! 0 any free one.

mod export;
mod tools;

use std::{
    io::{self, Write as _},
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    Router,
    http::header::CONTENT_TYPE,
    response::{Html, IntoResponse},
    routing::get,
    serve::ListenerExt as _,
};
use serde_json::{Value, json};
use tokio::{
    net::TcpListener,
    time::{Instant, interval, sleep},
};
use tower::{Service, ServiceBuilder, service_fn};
use tower_toolcall::{
    ConfigError, ToolCall, ToolError,
    catch_panic::CatchPanicLayer,
    check::CheckLayer,
    circuit_breaker::CircuitBreakerLayer,
    deadline::DeadlineLayer,
    otel::LangfuseHooks,
    rate_limit::RateLimitBackoffLayer,
    retry::RetryLayer,
    timeout::TimeoutLayer,
    tool_metrics::{Metrics, Snapshot},
    trace::TraceLayer,
};

const AGENTS: usize = 40;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let seconds = match std::env::args().nth(1) {
        Some(arg) => Some(Duration::from_secs(arg.parse()?)),
        None => None,
    };
    let export = export::Export::from_env()?;
    let metrics = match &export {
        Some(export) => Metrics::builder().with_sink(export.sink()).build()?,
        None => Metrics::new(),
    };
    // Panicking is in the character of one of the tools; that it is caught is seen in the figures.
    std::panic::set_hook(Box::new(|_| ()));

    let stack = stack(metrics.clone())?;
    for _ in 0..AGENTS {
        tokio::spawn(tools::agent(stack.clone()));
    }
    let port = std::env::var("PORT").unwrap_or_else(|_| "9464".into());
    let listener = TcpListener::bind(format!("127.0.0.1:{port}")).await?;
    let at = listener.local_addr()?;
    // A closed stdout is not an error: the pages work without it.
    let _ = writeln!(io::stdout(), "{AGENTS} agents at work: http://{at}/");
    let listener = listener.tap_io(|tcp| drop(tcp.set_nodelay(true)));
    tokio::spawn(axum::serve(listener, pages(metrics.clone())).into_future());

    match seconds {
        Some(seconds) => sleep(seconds).await,
        None => tokio::signal::ctrl_c().await?,
    }
    let _ = writeln!(io::stdout(), "{}", metrics.snapshot());
    if let Some(export) = export {
        tokio::task::spawn_blocking(move || export.shutdown()).await??;
    }
    Ok(())
}

/// The documented order. What the layers have to tell, they tell the metrics.
fn stack(
    metrics: Metrics,
) -> Result<
    impl Service<ToolCall, Response = Value, Error = ToolError, Future: Send> + Clone + Send,
    ConfigError,
> {
    let start = Instant::now();
    let hooks = LangfuseHooks::default();
    let breakers = CircuitBreakerLayer::builder().with_open_for(Duration::from_secs(5));
    Ok(ServiceBuilder::new()
        .layer(TraceLayer::new().with_hooks(hooks).with_output(true))
        .layer(metrics.layer())
        .layer(CheckLayer::max_bytes(64 << 10))
        .layer(DeadlineLayer::new(Duration::from_secs(20)))
        .layer(RetryLayer::default())
        .layer(TraceLayer::attempts().with_hooks(hooks))
        .layer(RateLimitBackoffLayer::new())
        .layer(breakers.build()?)
        .layer(
            TimeoutLayer::new(Duration::from_secs(1)).with_tool("import", Duration::from_secs(2)),
        )
        .layer(CatchPanicLayer::new())
        .service(service_fn(move |call| tools::run(call, start))))
}

/// The page, and what it and others ask for.
fn pages(metrics: Metrics) -> Router {
    let recent = Arc::new(Mutex::new(metrics.snapshot()));
    tokio::spawn(every_second(metrics.clone(), recent.clone()));
    let prometheus = metrics.clone();
    Router::new()
        .route("/", get(|| async { Html(include_str!("page.html")) }))
        .route(
            "/metrics",
            get(move || async move {
                let kind = [(CONTENT_TYPE, "text/plain; version=0.0.4")];
                (kind, prometheus.prometheus()).into_response()
            }),
        )
        .route(
            "/snapshot",
            get(move || async move {
                let recent = recent.lock().expect("nobody panics with it").clone();
                let body = json!({ "total": metrics.snapshot(), "recent": recent });
                ([(CONTENT_TYPE, "application/json")], body.to_string()).into_response()
            }),
        )
}

/// What happened in the last second, for everybody who asks.
async fn every_second(metrics: Metrics, recent: Arc<Mutex<Snapshot>>) {
    let mut last = metrics.interval();
    let mut ticks = interval(Duration::from_secs(1));
    loop {
        ticks.tick().await;
        *recent.lock().expect("nobody panics with it") = last.snapshot();
    }
}
