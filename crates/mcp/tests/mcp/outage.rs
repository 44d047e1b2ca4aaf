//! A server that is lost and comes back, below a breaker: one outage is one failure (D2, D3).

use std::{
    io,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use axum::{
    Router,
    body::{Body, to_bytes},
    extract::Request,
    http::StatusCode,
    middleware::{self, Next},
    response::IntoResponse as _,
};
use futures_util::future::join_all;
use rmcp::ServiceExt as _;
use rmcp::transport::{
    StreamableHttpServerConfig, StreamableHttpService,
    streamable_http_server::session::local::LocalSessionManager,
};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::{
    io::DuplexStream,
    task::AbortHandle,
    time::{Instant, sleep, timeout},
};
use tower::{Layer as _, Service, ServiceBuilder, ServiceExt as _, util::BoxCloneSyncService};
use tower_toolcall::{
    AnyError, ErrorKind, ServiceBuilderExt as _, ToolCall, ToolError,
    circuit_breaker::{BreakerState, CircuitBreakerHandle, CircuitBreakerLayer},
    health::{Availability, Health},
    identity::Resolve,
    redact::Rules,
    retry::RetryPolicy,
    settings::Settings,
};
use tower_toolcall_mcp::McpAnswer;
use tower_toolcall_mcp::McpServer;

use crate::server::Server;

pub(crate) type Tools = BoxCloneSyncService<ToolCall, McpAnswer, ToolError>;

/// The longest time from the return of a server to the first success.
pub(crate) const SOON: Duration = Duration::from_millis(1500);

/// README's stack.
pub(crate) fn readme(server: McpServer, breaker: CircuitBreakerLayer) -> Tools {
    readme_of(server.clone(), server, breaker)
}

/// The same with names from elsewhere.
pub(crate) fn readme_of<S>(names: impl Resolve, server: S, breaker: CircuitBreakerLayer) -> Tools
where
    S: Service<ToolCall, Response = McpAnswer, Error = ToolError, Future: Send>
        + Clone
        + Send
        + Sync
        + 'static,
{
    let stack = ServiceBuilder::new()
        .tool_sanitize(Rules::new())
        .tool_identity(names)
        .tool_trace()
        .tool_deadline(Duration::from_secs(60))
        .tool_retry(RetryPolicy::new())
        .tool_rate_limit()
        .layer(breaker)
        .tool_timeout(Duration::from_secs(10))
        .tool(server);
    BoxCloneSyncService::new(stack)
}

/// The stack of the gateway's preset.
fn gateway(server: McpServer) -> Tools {
    gateway_and_breaker(server).0
}

pub(crate) fn gateway_and_breaker(server: McpServer) -> (Tools, CircuitBreakerHandle) {
    let layers = Settings::gateway().stack().with_identity(server.clone());
    let layers = layers.build().unwrap();
    let breaker = layers.circuit_breaker();
    (BoxCloneSyncService::new(layers.layer(server)), breaker)
}

/// How a server answers attempts to connect.
#[derive(Clone, Copy, PartialEq)]
enum How {
    Works,
    Refuses,
    NeverAnswers,
}

/// A server in this process that can go away.
#[derive(Clone)]
struct Lab {
    how: Arc<Mutex<How>>,
    attempts: Arc<AtomicUsize>,
    wires: Arc<Mutex<Vec<AbortHandle>>>,
    server: Server,
}

impl Lab {
    fn new() -> Self {
        Self {
            how: Arc::new(Mutex::new(How::Works)),
            attempts: Arc::default(),
            wires: Arc::default(),
            server: Server::default(),
        }
    }

    fn mcp(&self) -> McpServer {
        let lab = self.clone();
        McpServer::new("docs", move || {
            let lab = lab.clone();
            async move { lab.wire().await }
        })
    }

    async fn wire(&self) -> Result<DuplexStream, AnyError> {
        self.attempts.fetch_add(1, SeqCst);
        let how = *self.how.lock().unwrap();
        match how {
            How::Works => {}
            How::Refuses => return Err(io::Error::from(io::ErrorKind::ConnectionRefused).into()),
            How::NeverAnswers => std::future::pending().await,
        }
        let (mut near, ours) = tokio::io::duplex(64 * 1024);
        let (theirs, mut far) = tokio::io::duplex(64 * 1024);
        let server = self.server.clone();
        tokio::spawn(async move { server.serve(theirs).await.unwrap().waiting().await });
        let wire = tokio::spawn(async move {
            let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
        });
        self.wires.lock().unwrap().push(wire.abort_handle());
        Ok(ours)
    }

    fn set(&self, how: How) {
        *self.how.lock().unwrap() = how;
    }

    fn stop(&self, how: How) {
        self.set(how);
        self.cut();
    }

    /// Ends all connections.
    fn cut(&self) {
        self.wires.lock().unwrap().drain(..).for_each(|w| w.abort());
    }

    /// Cuts all connections when so many more calls have started.
    async fn cut_after(&self, calls: usize) {
        let all = self.server.started.load(SeqCst) + calls;
        while self.server.started.load(SeqCst) < all {
            sleep(Duration::from_millis(1)).await;
        }
        self.cut();
    }
}

fn echo() -> ToolCall {
    ToolCall::new("echo")
}

fn tripping(failures: u32) -> CircuitBreakerLayer {
    let builder = CircuitBreakerLayer::builder().with_trip(failures);
    builder.build().unwrap()
}

fn failed(breakers: &CircuitBreakerHandle) -> Vec<(BreakerState, u64)> {
    let all = breakers.snapshot();
    all.iter().map(|b| (b.state, b.failed_total)).collect()
}

/// Connects. On a busy machine a server may start too slowly for the first attempt.
pub(crate) async fn connected(server: &McpServer) {
    while server.connect().await.is_err() {
        sleep(Duration::from_millis(50)).await;
    }
}

/// Four callers call every 100 ms. Returns how long after the end of `outage` the first success
/// came.
pub(crate) async fn first_success(
    tools: &Tools,
    call: impl Fn() -> ToolCall,
    outage: impl AsyncFnOnce(),
) -> Duration {
    let successes = Mutex::new(Vec::new());
    let callers = join_all((0..4).map(async |_| {
        loop {
            if tools.clone().oneshot(call()).await.is_ok() {
                successes.lock().unwrap().push(Instant::now());
            }
            sleep(Duration::from_millis(100)).await;
        }
    }));
    let measured = async {
        outage().await;
        let back = Instant::now();
        loop {
            let after = |at: &&Instant| **at > back;
            if let Some(first) = successes.lock().unwrap().iter().find(after) {
                return *first - back;
            }
            sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::select! {
        _ = callers => unreachable!("they never end"),
        took = measured => took,
    }
}

/// D2: in README's stack and in the gateway's.
#[tokio::test(start_paused = true)]
async fn a_server_that_was_away_is_used_again_soon() {
    for seconds in [3, 10, 60] {
        let lab = Lab::new();
        let [readme_server, gateway_server] = [lab.mcp(), lab.mcp()];
        for tools in [
            readme(readme_server, CircuitBreakerLayer::new()),
            gateway(gateway_server),
        ] {
            tools.clone().oneshot(echo()).await.unwrap();
            lab.stop(How::Refuses);
            let attempts = lab.attempts.load(SeqCst);
            let took = first_success(&tools, echo, async || {
                sleep(Duration::from_secs(seconds)).await;
                lab.set(How::Works);
            })
            .await;
            assert!(took < SOON, "{seconds} s away: {took:?}");
            let attempts = lab.attempts.load(SeqCst) - attempts;
            assert!(attempts < 200, "{seconds} s away: {attempts} attempts");
        }
    }
}

/// D3: 20 calls in flight, of a service that connects again and of one that does not.
#[tokio::test(start_paused = true)]
async fn calls_lost_with_one_connection_are_one_failure() {
    for connects_again in [true, false] {
        let (lab, breaker) = (Lab::new(), CircuitBreakerLayer::new());
        let server = lab.mcp();
        server.connect().await.unwrap();
        let leaf = match connects_again {
            true => BoxCloneSyncService::new(server.clone()),
            false => BoxCloneSyncService::new(server.connection().service().unwrap()),
        };
        let tools = breaker.layer(leaf);
        let calls = join_all((0..20).map(|_| tools.clone().oneshot(ToolCall::new("hang"))));
        let (ends, ()) = tokio::join!(calls, lab.cut_after(20));
        for end in ends {
            assert_eq!(end.unwrap_err().kind(), ErrorKind::ConnectionFailed);
        }
        assert_eq!(failed(&breaker.handle()), [(BreakerState::Closed, 1)]);
    }
}

/// D3: each lost connection of a server that dies of each call is a failure.
#[tokio::test(start_paused = true)]
async fn a_tool_that_kills_its_server_opens_its_breaker() {
    let lab = Lab::new();
    let tools = CircuitBreakerLayer::new().layer(lab.mcp());
    // Five calls, and a probe.
    for _ in 0..6 {
        while tools.clone().oneshot(echo()).await.is_err() {
            sleep(Duration::from_millis(50)).await;
        }
        let call = tools.clone().oneshot(ToolCall::new("hang"));
        let (end, ()) = tokio::join!(call, lab.cut_after(1));
        assert_eq!(end.unwrap_err().kind(), ErrorKind::ConnectionFailed);
    }
    let refused = tools.clone().oneshot(ToolCall::new("hang")).await;
    let error = refused.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::CircuitOpen);
    assert_eq!(error.retry_after_seconds(), Some(60));
    tools.oneshot(echo()).await.unwrap();
}

/// D2: the breaker is open for the lost connection, and probes when there is another one.
#[tokio::test(start_paused = true)]
async fn a_breaker_that_is_open_for_a_lost_connection_probes_when_it_is_back() {
    for (seconds, soon) in [(0, SOON), (10, SOON), (120, 2 * SOON)] {
        let (lab, breaker) = (Lab::new(), tripping(1));
        let server = lab.mcp();
        server.connect().await.unwrap();
        let tools = readme(server, breaker.clone());
        tools.clone().oneshot(echo()).await.unwrap();
        lab.stop(How::Refuses);
        let took = first_success(&tools, echo, async || {
            while failed(&breaker.handle())[0].0 == BreakerState::Closed {
                sleep(Duration::from_millis(1)).await;
            }
            sleep(Duration::from_secs(seconds)).await;
            lab.set(How::Works);
        })
        .await;
        // The delay between attempts is 1 to 1.25 % of an outage.
        assert!(took < soon, "{seconds} s away: {took:?}");
        let seen = failed(&breaker.handle());
        assert_eq!(seen, [(BreakerState::Closed, 1)]);
    }
}

/// D2: while the server is away one call at a time tries, when an attempt to connect may be made.
#[tokio::test(start_paused = true)]
async fn a_breaker_that_is_open_for_a_lost_connection_refuses_calls_until_the_next_attempt() {
    let (lab, breaker) = (Lab::new(), tripping(1));
    let tools = breaker.layer(lab.mcp());
    tools.clone().oneshot(echo()).await.unwrap();
    lab.stop(How::Refuses);
    let start = Instant::now();
    let mut refused = 0;
    while start.elapsed() < Duration::from_secs(30) {
        let ends = join_all((0..10).map(|_| tools.clone().oneshot(echo()))).await;
        for end in ends {
            let error = end.unwrap_err();
            if error.kind() == ErrorKind::CircuitOpen {
                refused += 1;
                assert!(
                    error.retry_after() <= Some(Duration::from_secs(1)),
                    "{error:?}"
                );
            }
        }
        sleep(Duration::from_millis(50)).await;
    }
    let attempts = lab.attempts.load(SeqCst);
    assert!((20..120).contains(&attempts), "{attempts}");
    assert!(refused > 5000, "{refused}");
    let seen = breaker.handle().snapshot().remove(0);
    assert_eq!((seen.failed_total, seen.opened_total), (1, 1));
}

/// D3: one breaker for two servers, whose connections are lost together.
#[tokio::test(start_paused = true)]
async fn lost_connections_of_two_servers_are_two_failures() {
    let (lab, breaker) = (Lab::new(), CircuitBreakerLayer::new());
    let stacks = [(); 2].map(|()| breaker.layer(lab.mcp()));
    let calls = (0..20).map(|n| stacks[n % 2].clone().oneshot(ToolCall::new("hang")));
    let (ends, ()) = tokio::join!(join_all(calls), lab.cut_after(20));
    assert!(ends.iter().all(Result::is_err));
    assert_eq!(failed(&breaker.handle()), [(BreakerState::Closed, 2)]);
}

/// D2: a server that accepts and never answers is no outage.
#[tokio::test(start_paused = true)]
async fn a_server_that_never_answers_opens_the_breaker() {
    // One that is connected and hangs, and one that never answers the first request.
    for how in [How::Works, How::NeverAnswers] {
        let lab = Lab::new();
        lab.set(how);
        for tools in [
            readme(lab.mcp(), CircuitBreakerLayer::new()),
            gateway(lab.mcp()),
        ] {
            opens_for_long(tools).await;
        }
    }
}

/// Makes calls that hang until the breaker is open, for longer than after a lost connection.
async fn opens_for_long(tools: Tools) {
    let opens = async {
        loop {
            let call = echo().with_json(json!({ "hangs": true })).unwrap();
            let error = tools.clone().oneshot(call).await.unwrap_err();
            if error.kind() == ErrorKind::CircuitOpen {
                break error.retry_after();
            }
            sleep(Duration::from_millis(50)).await;
        }
    };
    let limit = Duration::from_secs(3600);
    let opened = timeout(limit, opens).await.expect("it does not open");
    assert!(opened > Some(Duration::from_secs(20)), "{opened:?}");
}

/// D2: nor is a socket that accepts connections and never answers.
#[tokio::test(start_paused = true)]
async fn a_socket_that_never_answers_opens_the_breaker() {
    for is_readme in [true, false] {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        let (accepted, seen) = std::sync::mpsc::channel();
        std::thread::spawn(move || listener.incoming().try_for_each(|held| accepted.send(held)));
        let server = McpServer::http("docs", url.as_str());
        opens_for_long(match is_readme {
            true => readme(server, CircuitBreakerLayer::new()),
            false => gateway(server),
        })
        .await;
        let held = seen.recv_timeout(Duration::from_secs(20));
        held.expect("no connection was made").unwrap();
    }
}

/// D2: attempts that time out open a breaker again that was open for the lost connection.
#[tokio::test(start_paused = true)]
async fn a_lost_server_that_never_answers_again_opens_the_breaker() {
    let (lab, breaker) = (Lab::new(), tripping(1));
    let tools = breaker.layer(lab.mcp());
    tools.clone().oneshot(echo()).await.unwrap();
    lab.stop(How::Refuses);
    let seen = || breaker.handle().snapshot().remove(0);
    let opens = async {
        while seen().retry_after < Some(Duration::from_secs(50)) {
            tools.clone().oneshot(echo()).await.unwrap_err();
            lab.set(How::NeverAnswers);
            sleep(Duration::from_millis(50)).await;
        }
    };
    let limit = Duration::from_secs(600);
    timeout(limit, opens).await.expect("it does not open");
    assert_eq!(seen().opened_total, 2);
}

/// D2: a server that has never worked is started less and less often.
#[tokio::test(start_paused = true)]
async fn attempts_to_start_a_server_that_never_worked_get_rare() {
    // One that cannot be started, and one that goes before it has answered a call.
    for how in [How::Refuses, How::Works] {
        let lab = Lab::new();
        lab.set(how);
        let (server, start) = (lab.mcp(), Instant::now());
        while start.elapsed() < Duration::from_secs(60) {
            let call = server.clone().oneshot(ToolCall::new("hang"));
            match how {
                How::Works => drop(timeout(Duration::from_millis(20), call).await),
                _ => drop(call.await),
            }
            lab.cut();
            sleep(Duration::from_millis(50)).await;
        }
        let attempts = lab.attempts.load(SeqCst);
        assert!((5..12).contains(&attempts), "{attempts}");
    }
}

/// D2: nor is one that answers with 500, to each request or to calls only.
#[tokio::test]
async fn a_server_that_answers_500_opens_the_breaker() {
    for to_calls_only in [false, true] {
        let fails = move |request: Request, next: Next| async move {
            let (parts, body) = request.into_parts();
            let body = to_bytes(body, usize::MAX).await.unwrap();
            let message = serde_json::from_slice(&body).unwrap_or(Value::Null);
            match to_calls_only && message["method"] != "tools/call" {
                true => next.run(Request::from_parts(parts, Body::from(body))).await,
                false => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
            }
        };
        let mcp = StreamableHttpService::new(
            || Ok(Server::default()),
            Arc::new(LocalSessionManager::default()),
            StreamableHttpServerConfig::default(),
        );
        let app = Router::new().nest_service("/mcp", mcp);
        let app = app.layer(middleware::from_fn(fails));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, app).await });
        let server = || McpServer::http("docs", url.as_str());
        for tools in [
            readme(server(), CircuitBreakerLayer::new()),
            gateway(server()),
        ] {
            let opens = async {
                while tools.clone().oneshot(echo()).await.unwrap_err().kind()
                    != ErrorKind::CircuitOpen
                {
                    sleep(Duration::from_millis(10)).await;
                }
            };
            let limit = Duration::from_secs(60);
            timeout(limit, opens).await.expect("it does not open");
        }
    }
}

/// D3: of a registry of health as well.
#[tokio::test(start_paused = true)]
async fn calls_lost_with_one_connection_make_no_server_unavailable() {
    let (lab, health) = (Lab::new(), Health::new());
    let tools = health.layer().layer(lab.mcp());
    let hang = || ToolCall::new("hang").with_server("docs");
    let calls = join_all((0..20).map(|_| tools.clone().oneshot(hang())));
    tokio::join!(calls, lab.cut_after(20));
    lab.set(How::Refuses);
    let seen = health.server("docs").unwrap();
    assert_eq!((seen.state, seen.failures), (Availability::Degraded, 1));

    // A server that stays away is unavailable.
    for _ in 0..10 {
        tools.clone().oneshot(hang()).await.unwrap_err();
        sleep(Duration::from_secs(1)).await;
    }
    let seen = health.server("docs").unwrap();
    assert_eq!(seen.state, Availability::Unavailable);
}

/// D2: a registry that refuses calls probes when the connection is back.
#[tokio::test(start_paused = true)]
async fn a_server_that_was_refused_is_used_again_soon() {
    for seconds in [3, 10, 60] {
        let (lab, health) = (Lab::new(), Health::builder().with_refusal(true));
        let health = health.build().unwrap();
        let tools = BoxCloneSyncService::new(health.layer().layer(lab.mcp()));
        let call = || echo().with_server("docs");
        tools.clone().oneshot(call()).await.unwrap();
        lab.stop(How::Refuses);
        let took = first_success(&tools, call, async || {
            sleep(Duration::from_secs(seconds)).await;
            let seen = health.server("docs").unwrap();
            assert_eq!(seen.state, Availability::Unavailable);
            lab.set(How::Works);
        })
        .await;
        assert!(took < SOON, "{seconds} s away: {took:?}");
    }
}
