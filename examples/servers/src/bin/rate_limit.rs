//! 200 callers at once against a real HTTP server that grants 50 requests per second and 20 at
//! once, without the layer and with it.
//!
//! ```text
//! cargo run -p example-servers --bin rate_limit
//! ```
//!
//! The server keeps a token bucket and answers 429 with `Retry-After` when it is empty. Without the
//! layer each caller obeys `Retry-After` for itself, and all come back together.

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::{Duration, SystemTime},
};

use axum::{
    Router,
    extract::State,
    http::{StatusCode, header::RETRY_AFTER},
    response::{IntoResponse, Response},
    serve::ListenerExt as _,
};
use tokio::{task::JoinSet, time::Instant};
use tower::{Service, ServiceBuilder, ServiceExt, service_fn};
use tower_toolcall::{
    BoxError, ErrorKind, ToolCall, ToolError, hint, rate_limit::RateLimitBackoffLayer,
};

const CALLERS: u32 = 200;
const RATE: f64 = 50.0;
const BURST: f64 = 20.0;

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    println!(
        "{CALLERS} callers at once; the server grants {RATE} requests per second, {BURST} at once"
    );

    let (at, bucket) = serve().await?;
    let tool = http_tool(at)?;
    let without = service_fn(move |call: ToolCall| {
        let tool = tool.clone();
        async move {
            loop {
                match tool.clone().oneshot(call.clone()).await {
                    Err(e) if e.kind() == ErrorKind::RateLimited => {
                        tokio::time::sleep(e.retry_after().unwrap_or(Duration::from_secs(1))).await;
                    }
                    result => break result,
                }
            }
        }
    });
    let alone = run("each caller for itself", without, &bucket).await?;

    let (at, bucket) = serve().await?;
    let layer = RateLimitBackoffLayer::builder().with_attempts(10).build()?;
    let with = ServiceBuilder::new().layer(layer).service(http_tool(at)?);
    let together = run("with RateLimitBackoffLayer", with, &bucket).await?;

    println!(
        "\nrequests that were wasted: {} without the layer, {} with it",
        alone.refused, together.refused
    );
    if together.refused >= alone.refused {
        return Err("the layer did not help".into());
    }
    Ok(())
}

/// What the server has seen.
struct Seen {
    refused: u32,
}

async fn run<S>(name: &str, tools: S, bucket: &Bucket) -> Result<Seen, BoxError>
where
    S: Service<ToolCall, Response = String, Error = ToolError> + Clone + Send + 'static,
    S::Future: Send,
{
    println!("\n{name}\n  second  granted  refused");
    let start = Instant::now();
    let mut callers = JoinSet::new();
    for _ in 0..CALLERS {
        let call = ToolCall::new("search").with_server("docs");
        callers.spawn(tools.clone().oneshot(call));
    }
    let mut ticks =
        tokio::time::interval_at(start + Duration::from_secs(1), Duration::from_secs(1));
    let (mut second, mut total) = (0, (0, 0));
    let mut report = || {
        second += 1;
        let (granted, refused) = bucket.take_counts();
        total = (total.0 + granted, total.1 + refused);
        println!("  {second:>6}  {granted:>7}  {refused:>7}");
    };
    loop {
        tokio::select! {
            _ = ticks.tick() => report(),
            caller = callers.join_next() => match caller {
                Some(result) => { result??; }
                None => break,
            },
        }
    }
    report();
    let (granted, refused) = total;
    println!(
        "  all done after {:.1} s: {} requests, {refused} of them refused",
        start.elapsed().as_secs_f64(),
        granted + refused
    );
    Ok(Seen { refused })
}

/// An HTTP tool, as one would write it.
fn http_tool(
    at: SocketAddr,
) -> Result<
    impl Service<ToolCall, Response = String, Error = ToolError, Future: Send> + Clone + Send + 'static,
    BoxError,
> {
    let client = reqwest::Client::builder().no_proxy().build()?;
    Ok(service_fn(move |_: ToolCall| {
        let request = client.get(format!("http://{at}/search"));
        async move {
            let response = request
                .send()
                .await
                .map_err(|e| ToolError::from_box(e.into()))?;
            if response.status().is_success() {
                return response
                    .text()
                    .await
                    .map_err(|e| ToolError::from_box(e.into()));
            }
            let error = ToolError::from_status(response.status(), "the server refused the request");
            #[expect(
                clippy::disallowed_methods,
                reason = "HTTP dates are of the wall clock"
            )]
            let told = hint::from_headers(response.headers(), SystemTime::now());
            Err(match told.and_then(|told| told.delay) {
                Some(delay) => error.with_retry_after(delay),
                None => error,
            })
        }
    }))
}

/// A token bucket, as servers keep one for each client.
#[derive(Clone)]
struct Bucket(Arc<Tokens>);

struct Tokens {
    left: Mutex<(f64, Instant)>,
    granted: AtomicU32,
    refused: AtomicU32,
}

impl Bucket {
    fn take(&self) -> bool {
        let mut left = self
            .0
            .left
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let now = Instant::now();
        let (tokens, since) = *left;
        let tokens = (tokens + (now - since).as_secs_f64() * RATE).min(BURST);
        let granted = tokens >= 1.0;
        *left = (if granted { tokens - 1.0 } else { tokens }, now);
        let count = if granted {
            &self.0.granted
        } else {
            &self.0.refused
        };
        count.fetch_add(1, Relaxed);
        granted
    }

    fn take_counts(&self) -> (u32, u32) {
        (
            self.0.granted.swap(0, Relaxed),
            self.0.refused.swap(0, Relaxed),
        )
    }
}

async fn serve() -> Result<(SocketAddr, Bucket), BoxError> {
    let bucket = Bucket(Arc::new(Tokens {
        left: Mutex::new((BURST, Instant::now())),
        granted: AtomicU32::new(0),
        refused: AtomicU32::new(0),
    }));
    let app = Router::new()
        .route("/search", axum::routing::get(answer))
        .with_state(bucket.clone());
    let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let at = listener.local_addr()?;
    let listener = listener.tap_io(|tcp| drop(tcp.set_nodelay(true)));
    tokio::spawn(async move { axum::serve(listener, app).await });
    Ok((at, bucket))
}

async fn answer(State(bucket): State<Bucket>) -> Response {
    if bucket.take() {
        "three results".into_response()
    } else {
        (StatusCode::TOO_MANY_REQUESTS, [(RETRY_AFTER, "1")]).into_response()
    }
}
