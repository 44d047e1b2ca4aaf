//! Retries against a real rmcp server over streamable HTTP whose answers get lost: statuses, and
//! connections that end before the tool runs, after it has run, and within its answer. What ran is
//! counted at the server.
use std::{
    collections::HashMap,
    io,
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{
            AtomicU8, AtomicU32, AtomicU64,
            Ordering::{Relaxed, SeqCst},
        },
    },
    task::{Context, Poll},
    time::Duration,
};

use axum::{
    Router,
    body::{Body, to_bytes},
    extract::{ConnectInfo, Request, connect_info::Connected},
    http::{StatusCode, header::RETRY_AFTER},
    middleware::{self, Next},
    response::{IntoResponse, Response},
    serve::{IncomingStream, Listener},
};
use rmcp::{
    ClientLifecycleMode, ClientServiceExt as _, RoleClient, RoleServer, ServerHandler,
    ServiceExt as _,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ErrorData,
        ProtocolVersion, ServerCapabilities, ServerConfig,
    },
    service::{RequestContext, RunningService},
    transport::{
        StreamableHttpClientTransport, StreamableHttpServerConfig, StreamableHttpService,
        common::client_side_sse::NeverRetry,
        streamable_http_client::StreamableHttpClientTransportConfig,
        streamable_http_server::session::local::LocalSessionManager,
    },
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    sync::{Notify, oneshot},
    task::{JoinHandle, JoinSet},
    time::{Instant, sleep, timeout},
};
use tower::{Service, ServiceBuilder, ServiceExt as _};
use tower_toolcall::{
    ErrorKind, Event, Execution, ModelText as _, ReplaySafety, ToolCall, ToolError,
    backoff::Backoff,
    retry::{RetryBudget, RetryLayer, RetryPolicy, RetryRefusal},
    timeout::TimeoutLayer,
};
use tower_toolcall_mcp::McpAnswer;
use tower_toolcall_mcp::McpService;

const CALLERS: u64 = 32;

/// What happens to one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Fault {
    None,
    /// 429 with `Retry-After`, in seconds.
    Limited(u16),
    /// 503 with `Retry-After`, in seconds.
    Postponed(u16),
    /// 503 without.
    Unavailable,
    /// The connection ends before the tool runs.
    CutBefore,
    /// The tool runs, and the connection ends before the first byte of the answer.
    CutAfter,
    /// The same, in the middle of the answer.
    CutWithin,
    /// The tool runs, and the answer is this status.
    Lost(u16),
}

impl Fault {
    /// Says that the tool did not run, so that anything may be repeated (R6).
    fn turns_away(self) -> bool {
        matches!(self, Self::Limited(_) | Self::Postponed(_))
    }

    /// Leaves open whether the tool ran.
    fn is_ambiguous(self) -> bool {
        self != Self::None && !self.turns_away()
    }

    fn runs(self) -> bool {
        matches!(
            self,
            Self::None | Self::CutAfter | Self::CutWithin | Self::Lost(_)
        )
    }
}

/// Xorshift, seeded by the call and the attempt: the same in each run, whatever comes first.
fn roll(id: u64, attempt: usize) -> u64 {
    let mut dice = (id + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (attempt as u64) << 32;
    for _ in 0..4 {
        dice ^= dice << 13;
        dice ^= dice >> 7;
        dice ^= dice << 17;
    }
    dice >> 16
}

/// Of 100 requests 11 are turned away (fewer than the budget has retries), and 29 fail ambiguously.
fn mixed(id: u64, attempt: usize) -> Fault {
    match roll(id, attempt) % 100 {
        0..=5 => Fault::Limited(0),
        6..=10 => Fault::Postponed(0),
        11..=16 => Fault::Unavailable,
        17..=22 => Fault::CutBefore,
        23..=29 => Fault::CutAfter,
        30..=33 => Fault::CutWithin,
        34..=36 => Fault::Lost(500),
        37..=39 => Fault::Lost(502),
        _ => Fault::None,
    }
}

/// Half of the requests fail, and all of these ambiguously.
fn ambiguous(id: u64, attempt: usize) -> Fault {
    match roll(id, attempt) % 100 {
        0..=9 => Fault::Unavailable,
        10..=19 => Fault::CutBefore,
        20..=29 => Fault::CutAfter,
        30..=39 => Fault::CutWithin,
        40..=44 => Fault::Lost(500),
        45..=49 => Fault::Lost(502),
        _ => Fault::None,
    }
}

/// What a connection still lets through: nothing more, or the beginning of one answer. Zero: all.
const NOTHING: u8 = 1;
const BEGINNING: u8 = 2;

/// Where a connection is cut, for the one who serves its requests.
#[derive(Clone, Default)]
struct Cut(Arc<AtomicU8>);

/// The server's end of a connection. One that is cut is closed, every other one with a reset.
struct Wire {
    stream: TcpStream,
    cut: Cut,
    resets: bool,
}

impl AsyncRead for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.cut.0.load(SeqCst) {
            NOTHING => {
                if self.resets {
                    self.stream.set_zero_linger()?;
                }
                return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
            }
            BEGINNING => {
                let head = bytes.windows(4).position(|w| w == b"\r\n\r\n");
                // The head and a little of the body, whose first bytes are the length of its chunk.
                bytes = &bytes[..bytes.len().min(head.unwrap_or(0) + 12)];
            }
            _ => {}
        }
        let written = std::task::ready!(Pin::new(&mut self.stream).poll_write(cx, bytes))?;
        let _ = self
            .cut
            .0
            .compare_exchange(BEGINNING, NOTHING, SeqCst, SeqCst);
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

struct Wires {
    listener: TcpListener,
    accepted: u64,
}

impl Listener for Wires {
    type Io = Wire;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Wire, SocketAddr) {
        let (stream, address) = Listener::accept(&mut self.listener).await;
        stream.set_nodelay(true).unwrap();
        self.accepted += 1;
        let wire = Wire {
            stream,
            cut: Cut::default(),
            resets: self.accepted.is_multiple_of(2),
        };
        (wire, address)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

impl Connected<IncomingStream<'_, Wires>> for Cut {
    fn connect_info(stream: IncomingStream<'_, Wires>) -> Self {
        stream.io().cut.clone()
    }
}

/// The tools. `pay` has a side effect, `look` has none.
#[derive(Clone)]
struct Tools {
    /// How often `pay` has run, by id.
    paid: Arc<[AtomicU32]>,
}

impl ServerHandler for Tools {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }

    async fn call_tool(
        &self,
        call: CallToolRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let id = call.arguments.as_ref().and_then(|a| a["id"].as_u64());
        let id = id.expect("an id");
        let account = &self.paid[usize::try_from(id).unwrap()];
        match &*call.name {
            "pay" => account.fetch_add(1, SeqCst),
            "look" => account.load(SeqCst),
            _ => return Err(ErrorData::invalid_params("tool not found", None)),
        };
        let text = ContentBlock::text(format!("{} {id}", call.name));
        Ok(CallToolResult::success(vec![text]).into())
    }
}

/// What a request met, and when it came.
type Met = (Fault, Instant);

/// Stands before the server and injects the faults.
struct Front {
    plan: fn(u64, usize) -> Fault,
    /// The requests of each call.
    met: Mutex<HashMap<u64, Vec<Met>>>,
}

impl Front {
    async fn pass(&self, cut: Cut, request: Request, next: Next) -> Response {
        let (parts, body) = request.into_parts();
        let body = to_bytes(body, usize::MAX).await.unwrap();
        let message: Value = serde_json::from_slice(&body).unwrap_or_default();
        let request = Request::from_parts(parts, Body::from(body));
        if message["method"] != "tools/call" {
            return next.run(request).await;
        }
        let id = message["params"]["arguments"]["id"].as_u64().unwrap();
        let fault = {
            let mut met = self.met.lock().unwrap();
            let met = met.entry(id).or_default();
            let fault = (self.plan)(id, met.len() + 1);
            met.push((fault, Instant::now()));
            fault
        };
        // The stream of the answer has to end before it is certain that the tool has run.
        let run = async {
            let (parts, body) = next.run(request).await.into_parts();
            let body = to_bytes(body, usize::MAX).await.unwrap();
            Response::from_parts(parts, Body::from(body))
        };
        match fault {
            Fault::None => run.await,
            Fault::Limited(after) => told(StatusCode::TOO_MANY_REQUESTS, after),
            Fault::Postponed(after) => told(StatusCode::SERVICE_UNAVAILABLE, after),
            Fault::Unavailable => StatusCode::SERVICE_UNAVAILABLE.into_response(),
            Fault::CutBefore => {
                cut.0.store(NOTHING, SeqCst);
                StatusCode::OK.into_response()
            }
            Fault::CutAfter => {
                let response = run.await;
                cut.0.store(NOTHING, SeqCst);
                response
            }
            Fault::CutWithin => {
                let response = run.await;
                cut.0.store(BEGINNING, SeqCst);
                response
            }
            Fault::Lost(status) => {
                run.await;
                StatusCode::from_u16(status).unwrap().into_response()
            }
        }
    }

    /// The requests of a call.
    fn met(&self, id: u64) -> Vec<Met> {
        self.met
            .lock()
            .unwrap()
            .get(&id)
            .cloned()
            .unwrap_or_default()
    }

    fn requests(&self) -> u64 {
        self.met
            .lock()
            .unwrap()
            .values()
            .map(|met| met.len() as u64)
            .sum()
    }
}

fn told(status: StatusCode, after: u16) -> Response {
    (status, [(RETRY_AFTER, after.to_string())]).into_response()
}

/// A running server.
struct Running {
    address: SocketAddr,
    front: Arc<Front>,
    tools: Tools,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

impl Running {
    async fn start(calls: u64, plan: fn(u64, usize) -> Fault) -> Self {
        let tools = Tools {
            paid: (0..calls).map(|_| AtomicU32::new(0)).collect(),
        };
        let front = Arc::new(Front {
            plan,
            met: Mutex::default(),
        });
        Self::listen("127.0.0.1:0".parse().unwrap(), tools, front).await
    }

    async fn listen(address: SocketAddr, tools: Tools, front: Arc<Front>) -> Self {
        let factory = tools.clone();
        let mcp = StreamableHttpService::new(
            move || Ok(factory.clone()),
            Arc::new(LocalSessionManager::default()),
            StreamableHttpServerConfig::default(),
        );
        let gate = Arc::clone(&front);
        let inject = move |ConnectInfo(cut): ConnectInfo<Cut>, request: Request, next: Next| {
            let gate = Arc::clone(&gate);
            async move { gate.pass(cut, request, next).await }
        };
        let app = Router::new()
            .nest_service("/mcp", mcp)
            .layer(middleware::from_fn(inject))
            .into_make_service_with_connect_info::<Cut>();
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let wires = Wires {
            listener,
            accepted: 0,
        };
        let (stop, stopped) = oneshot::channel();
        let server = axum::serve(wires, app).with_graceful_shutdown(async {
            let _ = stopped.await;
        });
        Self {
            address,
            front,
            tools,
            stop: Some(stop),
            task: tokio::spawn(async { server.await.unwrap() }),
        }
    }

    /// Ends when the last connection is closed.
    async fn stop(&mut self) {
        self.stop.take().unwrap().send(()).unwrap();
        (&mut self.task).await.unwrap();
    }

    fn paid(&self, id: u64) -> u32 {
        self.tools.paid[usize::try_from(id).unwrap()].load(SeqCst)
    }

    async fn client(&self, revision: Revision) -> RunningService<RoleClient, ()> {
        let url = format!("http://{}/mcp", self.address);
        // As many as there are callers; and a stream that broke off is not waited for.
        let mut config = StreamableHttpClientTransportConfig::with_uri(url)
            .max_concurrent_requests(usize::try_from(CALLERS).unwrap());
        config.retry_config = Arc::new(NeverRetry::default());
        let transport = StreamableHttpClientTransport::from_config(config);
        match revision {
            Revision::Of2025 => ().serve(transport).await.unwrap(),
            Revision::Of2026 => {
                let modern = ClientLifecycleMode::Discover {
                    preferred_versions: vec![ProtocolVersion::V_2026_07_28],
                };
                ().serve_with_lifecycle(transport, modern).await.unwrap()
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The protocol's, with sessions and without.
#[derive(Clone, Copy, Debug)]
enum Revision {
    Of2025,
    Of2026,
}

type Answer = Result<McpAnswer, ToolError>;

/// The default policy, but for its delays.
fn policy() -> RetryPolicy {
    RetryPolicy::new().with_backoff(Backoff::exponential(Duration::from_millis(1), 2.0).unwrap())
}

fn stack(
    client: &RunningService<RoleClient, ()>,
    policy: RetryPolicy,
) -> impl Service<ToolCall, Response = McpAnswer, Error = ToolError, Future: Send> + Clone + Send + 'static
{
    ServiceBuilder::new()
        .layer(RetryLayer::new(policy))
        // Nothing here takes so long: a call that hangs shows as one that failed with a timeout.
        .layer(TimeoutLayer::new(Duration::from_secs(10)))
        .service(McpService::new(client.peer().clone()))
}

fn call(tool: &str, id: u64) -> ToolCall {
    ToolCall::new(tool).with_json(json!({ "id": id })).unwrap()
}

/// Makes the calls 0 to `calls`, some at a time. An `Ok` is the answer to its own call.
async fn run_all<S>(stack: S, calls: u64, make: fn(u64) -> ToolCall) -> Vec<Result<(), ToolError>>
where
    S: Service<ToolCall, Response = McpAnswer, Error = ToolError, Future: Send>
        + Clone
        + Send
        + 'static,
{
    let next = Arc::new(AtomicU64::new(0));
    let mut callers = JoinSet::new();
    for _ in 0..CALLERS {
        let (stack, next) = (stack.clone(), Arc::clone(&next));
        callers.spawn(async move {
            let mut answers = Vec::new();
            loop {
                let id = next.fetch_add(1, Relaxed);
                if id >= calls {
                    return answers;
                }
                let call = make(id);
                let expected = format!("{} {id}", call.tool());
                let answer: Answer = stack.clone().oneshot(call).await;
                let answer = answer.map(|a| assert_eq!(a.model_text(), expected));
                answers.push((id, answer));
            }
        });
    }
    let mut answers: Vec<_> = callers.join_all().await.into_iter().flatten().collect();
    answers.sort_by_key(|(id, _)| *id);
    answers.into_iter().map(|(_, answer)| answer).collect()
}

/// How often each reason for a refusal was heard.
type Refusals = Arc<Mutex<HashMap<RetryRefusal, u64>>>;

fn refusals() -> (Refusals, impl Fn(&Event<'_>) + Send + Sync + 'static) {
    let heard = Refusals::default();
    let hear = Arc::clone(&heard);
    let listen = move |event: &Event<'_>| {
        if let Event::RetryRefused { reason, .. } = event {
            *hear.lock().unwrap().entry(*reason).or_default() += 1;
        }
    };
    (heard, listen)
}

/// `pay` under faults of all kinds and the default policy.
async fn at_most_once(calls: u64, revision: Revision) {
    let start = Instant::now();
    let server = Running::start(calls, mixed).await;
    let client = server.client(revision).await;
    let (refused, listen) = refusals();
    let stack = stack(&client, policy().with_listener(listen));
    let answers = run_all(stack, calls, |id| call("pay", id)).await;

    let mut hit = HashMap::<Fault, u64>::new();
    let (mut succeeded, mut unsafe_, mut repeated, mut mended) = (0, 0, 0, 0);
    for (id, answer) in (0..).zip(&answers) {
        let met: Vec<Fault> = server.front.met(id).iter().map(|(f, _)| *f).collect();
        let (last, before) = met.split_last().expect("each call was sent");
        for fault in &met {
            *hit.entry(*fault).or_default() += 1;
        }

        // Trap 7: at most once; and once, if the caller was told so.
        let paid = server.paid(id);
        assert!(paid <= 1, "{id} ran {paid} times: {met:?}");
        let ran = met.iter().filter(|f| f.runs()).count();
        assert_eq!(paid as usize, ran, "{id}: {met:?}");
        assert_eq!(answer.is_ok(), *last == Fault::None, "{id}: {met:?}");
        assert!(answer.is_err() || paid == 1, "{id}: {met:?}");
        // R6: nothing is sent again after a failure that leaves open whether it ran.
        assert!(before.iter().all(|f| f.turns_away()), "{id}: {met:?}");
        assert!(met.len() <= 3, "{id}: {met:?}");

        match answer {
            Ok(()) => succeeded += 1,
            Err(error) => {
                // R3.
                assert_eq!(error.attempts().map(|n| n as usize), Some(met.len()));
                let expected = match last {
                    Fault::Limited(_) => (ErrorKind::RateLimited, Execution::NotStarted),
                    Fault::Postponed(_) => (ErrorKind::Upstream, Execution::NotStarted),
                    Fault::Unavailable | Fault::Lost(_) => {
                        (ErrorKind::Upstream, Execution::Unknown)
                    }
                    _ => (ErrorKind::ConnectionFailed, Execution::Unknown),
                };
                let found = (error.kind(), error.execution());
                assert_eq!(found, expected, "{id}: {met:?}: {error:?}");
            }
        }
        unsafe_ += u64::from(last.is_ambiguous() && met.len() < 3);
        repeated += u64::from(!before.is_empty());
        mended += u64::from(!before.is_empty() && answer.is_ok());
    }
    let requests = server.front.requests();
    println!(
        "{revision:?}: {calls} calls, {requests} requests, {succeeded} succeeded; {repeated} \
         repeated, of these {mended} succeeded; refused {:?}; {hit:?}; {:?}",
        refused.lock().unwrap(),
        start.elapsed()
    );

    // R2, trap 8: what was turned away is sent again. A tenth of the calls is; 60 of 100 requests
    // pass.
    assert!(repeated > calls / 20, "{repeated}");
    assert!(mended > repeated / 2, "{mended} of {repeated}");
    // Each kind of fault was there.
    assert_eq!(hit.len(), 9, "{hit:?}");
    assert!(hit.values().all(|n| *n > calls / 50), "{hit:?}");
    // R6: each refusal is told.
    let told = refused
        .lock()
        .unwrap()
        .get(&RetryRefusal::NotMarkedSafe)
        .copied();
    assert_eq!(told, Some(unsafe_));
    // R7: the budget is on; it has a minimum of 2 in 20 s.
    assert!(requests <= calls + calls / 5 + 20, "{requests}");
}

/// Returns how many calls are made: `FAULT_CALLS`, else 1,000.
fn calls() -> u64 {
    std::env::var("FAULT_CALLS").map_or(1_000, |n| n.parse().unwrap())
}

/// R2, R6, R7, trap 7: a tool that nobody knows to be safe has run at most once, whatever happens
/// to its requests and its answers, and what was turned away is repeated all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_thousands_of_calls_an_unsafe_tool_runs_at_most_once_each() {
    at_most_once(calls(), Revision::Of2026).await;
}

/// The same with sessions.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_a_session_an_unsafe_tool_runs_at_most_once_each() {
    at_most_once(calls() / 2, Revision::Of2025).await;
}

/// Calls `look`, which is known to be safe, under ambiguous faults alone. Returns how many calls
/// succeeded and how many requests there were.
async fn look(calls: u64, policy: RetryPolicy) -> (u64, u64) {
    let server = Running::start(calls, ambiguous).await;
    let client = server.client(Revision::Of2026).await;
    let make = |id| call("look", id).with_replay_safety(ReplaySafety::Safe);
    let answers = run_all(stack(&client, policy), calls, make).await;
    for (id, answer) in (0..).zip(&answers) {
        let met = server.front.met(id);
        let (last, before) = met.split_last().expect("each call was sent");
        assert!(before.iter().all(|(f, _)| f.is_ambiguous()), "{met:?}");
        assert_eq!(answer.is_ok(), last.0 == Fault::None, "{met:?}");
    }
    let succeeded = answers.iter().filter(|a| a.is_ok()).count() as u64;
    (succeeded, server.front.requests())
}

/// R2, R6: a tool that is declared safe is repeated after an ambiguous failure, up to three
/// attempts, and so more calls succeed than with one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_safe_tool_is_repeated_after_ambiguous_failures() {
    const CALLS: u64 = 1_000;
    // What the dice say.
    let (mut first, mut any, mut requests) = (0, 0, 0);
    for id in 0..CALLS {
        let passes = (1..=3).find(|n| ambiguous(id, *n) == Fault::None);
        first += u64::from(passes == Some(1));
        any += u64::from(passes.is_some());
        requests += passes.unwrap_or(3) as u64;
    }
    // Half of them, and all but an eighth.
    assert!(first.abs_diff(CALLS / 2) < CALLS / 20, "{first}");
    assert!(any.abs_diff(CALLS * 7 / 8) < CALLS / 20, "{any}");

    // The budget would hold back many of the retries.
    let once = policy().with_attempts(1).unwrap();
    assert_eq!(look(CALLS, once).await, (first, CALLS));
    let free = policy().without_budget();
    assert_eq!(look(CALLS, free).await, (any, requests));
}

/// R7: with the default budget, an outage costs the server a fifth of the calls.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_an_outage_the_retries_are_a_fifth_of_the_calls() {
    const CALLS: u64 = 1_000;
    let server = Running::start(CALLS, |_, _| Fault::Limited(0)).await;
    let client = server.client(Revision::Of2026).await;
    let (refused, listen) = refusals();
    let policy = policy().with_listener(listen);
    let answers = run_all(stack(&client, policy), CALLS, |id| call("pay", id)).await;
    assert!(answers.iter().all(Result::is_err));
    assert!((0..CALLS).all(|id| server.paid(id) == 0));
    let requests = server.front.requests();
    assert!(requests <= CALLS + CALLS / 5 + 10, "{requests}");
    assert!(requests >= CALLS + CALLS / 10, "{requests}");
    let told = refused.lock().unwrap().get(&RetryRefusal::Budget).copied();
    assert!(told > Some(CALLS / 2), "{told:?}");
}

/// R2, R6, trap 10: `Retry-After: 1` is waited out, by a rate limit and by a 503.
#[tokio::test]
async fn the_second_attempt_does_not_come_before_retry_after() {
    let plan = |id, attempt| match (attempt, id % 2) {
        (1, 0) => Fault::Limited(1),
        (1, _) => Fault::Postponed(1),
        _ => Fault::None,
    };
    // All at once, and each has its second attempt.
    const CALLS: u64 = 8;
    let server = Running::start(CALLS, plan).await;
    let client = server.client(Revision::Of2026).await;
    let policy = policy().with_budget(RetryBudget::new(1.0, 8).unwrap());
    let answers = run_all(stack(&client, policy), CALLS, |id| call("pay", id)).await;
    for (id, answer) in (0..).zip(answers) {
        answer.unwrap();
        let met = server.front.met(id);
        let [(_, first), (_, second)] = met[..] else {
            panic!("{met:?}");
        };
        // A tenth more by chance at most, and what a busy machine adds.
        let waited = second - first;
        assert!(waited >= Duration::from_secs(1), "{waited:?}");
        assert!(waited < Duration::from_secs(20), "{waited:?}");
        assert_eq!(server.paid(id), 1);
    }
}

/// R2, R6: a request that could not connect was not sent, so that the call is made again, unsafe or
/// not, and succeeds when the server is back.
#[tokio::test]
async fn a_refused_connection_is_tried_again() {
    let mut server = Running::start(2, |_, _| Fault::None).await;
    let client = server.client(Revision::Of2026).await;
    let failed = Arc::new(Notify::new());
    let tell = Arc::clone(&failed);
    let policy = RetryPolicy::new()
        .with_backoff(Backoff::fixed(Duration::from_millis(500)).unwrap())
        .with_listener(move |event: &Event<'_>| {
            if let Event::Retry { error, .. } = event {
                let error = error.expect("it failed");
                assert_eq!(error.kind(), ErrorKind::ConnectionFailed);
                tell.notify_one();
            }
        });
    let stack = stack(&client, policy);
    stack.clone().oneshot(call("pay", 0)).await.unwrap();

    server.stop().await;
    // The client learns that its connection is closed.
    sleep(Duration::from_millis(100)).await;
    let pays = tokio::spawn(stack.oneshot(call("pay", 1)));
    let heard = timeout(Duration::from_secs(60), failed.notified()).await;
    heard.expect("the call is repeated");
    let (address, tools, front) = (server.address, server.tools.clone(), server.front.clone());
    let server = Running::listen(address, tools, front).await;
    assert_eq!(pays.await.unwrap().unwrap().model_text(), "pay 1");
    // The refused attempt never came.
    assert_eq!(server.front.met(1).len(), 1);
    assert_eq!(server.paid(1), 1);
}
