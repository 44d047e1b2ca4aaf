//! Many calls of real servers that do their work and then fail in all kinds of ways: one that must
//! not run twice never does.
//!
//! 2,000 calls of each by default;
//! `EVIDENCE_CALLS=50000 cargo test --release -p whole-stacks --test stacks soak` makes 100,000.

use std::{
    collections::HashMap,
    convert::Infallible,
    env, io,
    net::SocketAddr,
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures_util::{StreamExt as _, stream};
use http::{Request, Response, StatusCode, header::RETRY_AFTER};
use http_body_util::{BodyExt as _, Full};
use hyper::{
    body::{Bytes, Incoming},
    server::conn::http1,
    service::service_fn as http_fn,
};
use hyper_util::{
    client::legacy::Client,
    rt::{TokioExecutor, TokioIo},
};
use rmcp::{
    ServiceExt as _,
    transport::{ConfigureCommandExt as _, TokioChildProcess},
};
use serde_json::{Value, json};
use tokio::{net::TcpListener, time::sleep};
use tower::{Service, ServiceBuilder, ServiceExt as _, service_fn};
use tower_toolcall::{
    BoxError, Key, ReplaySafety, ServiceBuilderExt as _, ToolCall, ToolError,
    backoff::Backoff,
    circuit_breaker::{CircuitBreakerLayer, Trip},
    flow::CallExt,
    hint,
    rate_limit::RateLimitBackoffLayer,
    retry::RetryPolicy,
    transport::transport,
};
use tower_toolcall_mcp::McpService;

use super::texts::TEXTS;

fn calls() -> usize {
    let set = env::var("EVIDENCE_CALLS").ok();
    set.map_or(600, |set| set.parse().unwrap())
}

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// The nth of a kind, spread so that kinds meet each other in all ways.
fn pick<T: Copy>(of: &[T], n: usize, salt: usize) -> T {
    let spread = (n + salt).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33;
    of[spread % of.len()]
}

/// The call, and what its key begins with: what may run twice, what must not, and what nobody said
/// of.
fn nth(n: usize, arguments: Value) -> ToolCall {
    use ReplaySafety::{Safe, Unknown, Unsafe};
    let (kind, safety) = [("unknown", Unknown), ("unsafe", Unsafe), ("safe", Safe)][n % 3];
    let key = format!("{kind}-{n}");
    let mut arguments = arguments;
    arguments["key"] = json!(key);
    let call = ToolCall::new("work")
        .with_id(key)
        .with_replay_safety(safety);
    call.with_json(arguments).unwrap()
}

/// The documented stack, in a hurry; a gate for each call, as a shared one would let few calls
/// pass.
fn stack<S>(
    leaf: S,
) -> impl Service<ToolCall, Response = S::Response, Error = ToolError, Future: Send> + Clone + Send
where
    S: Service<ToolCall, Error = ToolError, Future: Send, Response: Send> + Clone + Send + 'static,
{
    let policy = RetryPolicy::new()
        .with_backoff(Backoff::exponential(ms(1), 2.0).unwrap())
        .with_rate_limit_delay(ms(2))
        .with_max_delay(ms(20))
        .without_budget();
    let gate = RateLimitBackoffLayer::builder()
        .with_keys(Key::by(|call| call.id().unwrap_or_default()))
        .with_default_cooldown(ms(2))
        .with_max_wait(ms(20));
    let breaker = CircuitBreakerLayer::builder()
        .with_trip(Trip::consecutive_failures(20))
        .with_open_for(ms(2));
    ServiceBuilder::new()
        .tool_deadline(Duration::from_secs(20))
        .tool_retry(policy)
        .layer(gate.build().unwrap())
        .layer(breaker.build().unwrap())
        .tool_timeout(Duration::from_secs(1))
        .tool_catch_panic()
        .service(leaf)
}

/// Sends them all, 32 at a time, and tells how many were sent more than once.
async fn send_all<S>(stack: S, call: impl Fn(usize) -> ToolCall) -> usize
where
    S: Service<ToolCall, Error = ToolError> + Clone,
{
    let sent = stream::iter(0..calls()).map(|n| {
        let (stack, mut call) = (stack.clone(), call(n));
        async move {
            let seen = call.observe();
            let _ = stack.oneshot(call).await;
            seen.attempts() > 1
        }
    });
    let repeated = sent.buffer_unordered(32);
    repeated
        .filter(|again| std::future::ready(*again))
        .count()
        .await
}

/// What ran more than once. Some did of those that may.
fn judge(twice: &[String], repeated: usize) {
    let bad: Vec<_> = twice
        .iter()
        .filter(|key| !key.starts_with("safe-"))
        .collect();
    println!(
        "{} calls: {repeated} repeated; {} ran twice that may, {} that must not",
        calls(),
        twice.len() - bad.len(),
        bad.len()
    );
    assert!(bad.is_empty(), "ran twice: {bad:?}");
    assert!(!twice.is_empty() && repeated >= twice.len());
}

/// V1: an MCP server on the official Python SDK, over stdio.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_tool_of_an_mcp_server_runs_twice_that_must_not() {
    let packages = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/mcp-servers-python");
    assert!(packages.is_dir(), "`tests/run` installs the MCP SDK");
    let script = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/stacks/evidence/server.py"
    );
    let command = tokio::process::Command::new("python3").configure(|command| {
        command.arg(script).env("PYTHONPATH", packages);
    });
    let client = ().serve(TokioChildProcess::new(command).unwrap()).await.unwrap();
    let service = McpService::new(client.peer().clone());
    let texts: Vec<_> = TEXTS.lines().collect();
    let repeated = send_all(stack(service.clone()), |n| {
        let fault = match n % 64 {
            0 => "slow",
            _ => pick(&["none", "raise", "protocol", "protocol"], n, 1),
        };
        let code = pick(&[429, 503, -32603, -32000, -32602, 404, -32800, 1], n, 2);
        let text = pick(&texts, n, 3);
        nth(n, json!({ "fault": fault, "text": text, "code": code }))
    })
    .await;
    let mut service = service;
    let runs = service.call(ToolCall::new("runs")).await.unwrap();
    let runs = runs.result().unwrap().structured_content.clone().unwrap();
    // On a busy machine the breaker opens after timeouts, and refuses some.
    assert!(runs["keys"].as_u64() > Some(calls() as u64 / 2));
    let twice: Vec<String> = serde_json::from_value(runs["twice"].clone()).unwrap();
    judge(&twice, repeated);
    client.cancel().await.unwrap();
}

type Runs = Arc<Mutex<HashMap<String, usize>>>;

/// Does the work, unless it turns the request away before; then it fails as it is asked to.
async fn work(runs: Runs, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, io::Error> {
    let body = request
        .into_body()
        .collect()
        .await
        .map_err(io::Error::other)?;
    let asked: Value = serde_json::from_slice(&body.to_bytes())?;
    let fault = asked["fault"].as_str().unwrap_or_default();
    let text = asked["text"].as_str().unwrap_or_default().to_owned();
    let answer = |status: u16, text: String| {
        let mut response = Response::new(Full::from(text));
        *response.status_mut() = StatusCode::from_u16(status).unwrap();
        response
    };
    if fault == "limited" {
        return Ok(answer(429, text));
    }
    if fault == "busy" {
        let mut response = answer(503, text);
        response.headers_mut().insert(RETRY_AFTER, 0.into());
        return Ok(response);
    }
    let key = asked["key"].as_str().unwrap_or_default().to_owned();
    *runs.lock().unwrap().entry(key).or_default() += 1;
    match fault {
        // The connection is closed without an answer.
        "reset" => Err(io::ErrorKind::ConnectionReset.into()),
        "slow" => {
            sleep(ms(1500)).await;
            Ok(answer(200, text))
        }
        "status" => Ok(answer(asked["status"].as_u64().unwrap() as u16, text)),
        "told" => Ok(answer(200, format!("error: {text}"))),
        _ => Ok(answer(200, text)),
    }
}

async fn serve(listener: TcpListener, runs: Runs) -> Infallible {
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let runs = Arc::clone(&runs);
        let service = http_fn(move |request| work(Arc::clone(&runs), request));
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
    }
}

/// A user's HTTP client as a leaf.
fn leaf(
    to: SocketAddr,
    nobody: SocketAddr,
) -> impl Service<ToolCall, Response = String, Error = ToolError, Future: Send> + Clone + Send {
    let client = Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
    transport(service_fn(move |call: ToolCall| {
        let client = client.clone();
        let to = if call.arguments()["fault"] == "refused" {
            nobody
        } else {
            to
        };
        async move {
            let body = serde_json::to_vec(call.arguments())?;
            let request = Request::post(format!("http://{to}/")).body(Full::from(body))?;
            let response = client.request(request).await?;
            let (head, body) = response.into_parts();
            let body = body.collect().await?.to_bytes();
            let text = String::from_utf8_lossy(&body).into_owned();
            if !head.status.is_success() {
                let error = ToolError::from_status(head.status, text);
                #[allow(clippy::disallowed_methods, reason = "to read an HTTP date")]
                let now = std::time::SystemTime::now();
                let hint = hint::from_headers(&head.headers, now);
                return Err(match hint.and_then(|hint| hint.delay) {
                    Some(delay) => error.with_retry_after(delay).into(),
                    None => error.into(),
                });
            }
            match text.strip_prefix("error: ") {
                Some(text) => Err(BoxError::from(text)),
                None => Ok(text),
            }
        }
    }))
}

/// V1: a real HTTP server, and a user's client behind `transport`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_http_tool_runs_twice_that_must_not() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let to = listener.local_addr().unwrap();
    let nobody = {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        listener.local_addr().unwrap()
    };
    let runs = Runs::default();
    let server = tokio::spawn(serve(listener, Arc::clone(&runs)));
    let texts: Vec<_> = TEXTS.lines().collect();
    let faults = [
        "none", "status", "status", "told", "told", "reset", "limited", "busy", "refused",
    ];
    let repeated = send_all(stack(leaf(to, nobody)), |n| {
        let fault = if n % 64 == 0 {
            "slow"
        } else {
            pick(&faults, n, 1)
        };
        let status = pick(&[400, 401, 404, 408, 409, 422, 500, 502, 503, 504], n, 2);
        nth(
            n,
            json!({ "fault": fault, "text": pick(&texts, n, 3), "status": status }),
        )
    })
    .await;
    server.abort();
    let runs = runs.lock().unwrap();
    let twice: Vec<_> = runs
        .iter()
        .filter(|(_, n)| **n > 1)
        .map(|(key, _)| key.clone())
        .collect();
    judge(&twice, repeated);
}
