//! The documented stack around tools that do what their names say, and what a client sees of it.

use std::{
    future::{Future, pending},
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use serde_json::{Value, json};
use tokio::{net::TcpListener, task::JoinHandle, time::sleep};
use tower::{Service, ServiceBuilder, service_fn, util::BoxCloneSyncService};
use tower_toolcall::{
    BoxError, ErrorKind, ServiceBuilderExt, ToolCall, ToolError,
    backoff::{Backoff, Jitter},
    circuit_breaker::CircuitBreakerLayer,
    retry::RetryPolicy,
    timeout::TimeoutLayer,
    tool_metrics::Metrics,
};

pub(crate) type Stack = BoxCloneSyncService<ToolCall, Value, ToolError>;

pub(crate) const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// How many calls run at a time; what is more is shed.
pub(crate) const LIMIT: usize = 4;

/// Tools, and what they have seen.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tools {
    begun: Arc<AtomicUsize>,
    running: Arc<AtomicUsize>,
    broken: Arc<AtomicUsize>,
}

impl Tools {
    /// How many calls a tool has begun.
    pub(crate) fn begun(&self) -> usize {
        self.begun.load(SeqCst)
    }

    pub(crate) fn break_down(&self, broken: bool) {
        self.broken.store(broken.into(), SeqCst);
    }

    /// Waits until so many calls run.
    pub(crate) async fn until_running(&self, n: usize) {
        let reached = async {
            while self.running.load(SeqCst) != n {
                sleep(ms(2)).await;
            }
        };
        let in_time = tokio::time::timeout(Duration::from_secs(60), reached).await;
        in_time.unwrap_or_else(|_| panic!("{} calls run, not {n}", self.running.load(SeqCst)));
    }

    async fn run(self, call: ToolCall) -> Result<Value, BoxError> {
        self.begun.fetch_add(1, SeqCst);
        self.running.fetch_add(1, SeqCst);
        let _running = Running(self.running.clone());
        match call.tool() {
            "ok" => Ok(json!({
                "arguments": call.arguments(),
                "server": call.server(),
                "id": call.id(),
                "has_deadline": call.deadline().is_some(),
            })),
            "text" => Ok(json!("12 degrees")),
            "missing" => Err("Unknown tool: missing".into()),
            "strict" => Err("HTTP 422: no such city".into()),
            "down" => Err("503 Service Unavailable: db.internal:5432".into()),
            "flaky" if self.broken.load(SeqCst) > 0 => Err("503 Service Unavailable".into()),
            "flaky" => Ok(json!("up again")),
            "limited" => {
                let error = ToolError::new(ErrorKind::RateLimited, "slow down, db.internal");
                Err(error.with_retry_after(ms(60_700)).into())
            }
            "panic" => panic!("boom at db.internal"),
            "slow" | "slower" | "hang" => pending().await,
            other => Err(format!("no tool {other}").into()),
        }
    }
}

struct Running(Arc<AtomicUsize>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

/// The bare tools.
pub(crate) fn leaf(
    tools: &Tools,
) -> impl Service<ToolCall, Response = Value, Error = BoxError, Future: Send> + Clone + Send + Sync + use<>
{
    let tools = tools.clone();
    service_fn(move |call| tools.clone().run(call))
}

/// The whole stack: `slow` has 100 ms, `slower` 200 ms, all others 20 s; a breaker stays open for
/// `open_for`.
pub(crate) fn stack(tools: &Tools, open_for: Duration) -> Stack {
    let retry = RetryPolicy::new().with_attempts(2).unwrap();
    let backoff = Backoff::fixed(ms(5)).unwrap().with_jitter(Jitter::None);
    let breaker = CircuitBreakerLayer::builder().with_open_for(open_for);
    let timeouts = TimeoutLayer::new(Duration::from_secs(20))
        .with_tool("slow", ms(100))
        .with_tool("slower", ms(200));
    let stack = ServiceBuilder::new()
        .tool_trace()
        .tool_metrics(&Metrics::new())
        // Later than a test waits for a call to be dropped, earlier than the limit of `limited`.
        .tool_deadline(Duration::from_secs(30))
        .tool_retry(retry.with_backoff(backoff))
        .tool_rate_limit()
        .layer(breaker.build().unwrap())
        .layer(timeouts)
        .tool_catch_panic()
        .load_shed()
        .concurrency_limit(LIMIT)
        .service(leaf(tools));
    Stack::new(stack)
}

/// A server that is stopped with the test.
pub(crate) struct Server {
    pub(crate) at: SocketAddr,
    pub(crate) tools: Tools,
    task: JoinHandle<()>,
}

impl Server {
    pub(crate) async fn start<F: Future<Output = ()> + Send + 'static>(
        tools: Tools,
        serve: impl FnOnce(TcpListener) -> F,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let task = tokio::spawn(serve(listener));
        Self { at, tools, task }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.at)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// What a client gets over HTTP.
#[derive(Debug, PartialEq)]
pub(crate) struct Seen {
    pub(crate) status: u16,
    pub(crate) content_type: Option<String>,
    pub(crate) retry_after: Option<String>,
    pub(crate) body: Value,
}

pub(crate) fn post(url: &str, body: impl Into<reqwest::Body>) -> reqwest::RequestBuilder {
    reqwest::Client::new()
        .post(url)
        .header("content-type", "application/json")
        .body(body)
}

pub(crate) async fn seen(request: reqwest::RequestBuilder) -> Seen {
    let response = request.send().await.unwrap();
    let header = |name| Some(response.headers().get(name)?.to_str().unwrap().to_owned());
    Seen {
        status: response.status().as_u16(),
        content_type: header("content-type"),
        retry_after: header("retry-after"),
        body: match &*response.bytes().await.unwrap() {
            b"" => Value::Null,
            json => serde_json::from_slice(json).unwrap(),
        },
    }
}

pub(crate) async fn serve_axum(listener: TcpListener, app: axum::Router) {
    axum::serve(listener, app).await.unwrap();
}

/// The routes of the crate, to these tools in this stack, for callers who know the servers.
pub(crate) async fn axum_of(tools: Tools, stack: Stack) -> Server {
    let app = tower_toolcall::serve::Routes::new(stack)
        .trust_servers()
        .into_router();
    Server::start(tools, |listener| serve_axum(listener, app)).await
}

/// The routes of the crate, to the whole stack.
pub(crate) async fn axum(open_for: Duration) -> Server {
    let tools = Tools::default();
    axum_of(tools.clone(), stack(&tools, open_for)).await
}
