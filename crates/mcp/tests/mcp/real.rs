//! Unmodified servers of the official SDKs over HTTP, which `tests/run` installs. Real time.

use std::{
    path::Path,
    process::Stdio,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use futures_util::future::join_all;
use rmcp::{
    ClientLifecycleMode, ClientServiceExt as _, model::ProtocolVersion,
    transport::StreamableHttpClientTransport,
};
use serde_json::{Value, json};
use tokio::{
    net::TcpStream,
    process::{Child, Command},
    sync::RwLock,
    task::JoinSet,
    time::{Instant, sleep, timeout},
};
use tower::{Service, ServiceBuilder, ServiceExt as _};
use tower_toolcall::{
    BoxError, ErrorKind, ModelText as _, ReplaySafety, ToolCall, ToolError,
    circuit_breaker::{BreakerSnapshot, BreakerState, CircuitBreakerLayer},
    identity::IdentityLayer,
    retry::RetryLayer,
    timeout::TimeoutLayer,
};
use tower_toolcall_mcp::{McpAnswer, McpReconnect, McpServer};

use crate::outage;

/// The longest wait for anything. It only ends a test that hangs.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// A call that takes longer hangs: broken streams are taken up again for 1.5 s.
const HANGS: Duration = Duration::from_secs(10);

/// A server in a process of its own.
pub(crate) struct Server {
    command: fn(u16) -> Command,
    port: u16,
    process: Child,
}

pub(crate) fn installed(path: &str) -> String {
    let there = format!("{}/../../target/{path}", env!("CARGO_MANIFEST_DIR"));
    assert!(Path::new(&there).exists(), "run `tests/run --no-run` once");
    there
}

/// PyPI's SDK, without sessions.
fn python(port: u16) -> Command {
    let mut command = Command::new("python3");
    command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/mcp/headers.py"));
    command.env("PYTHONPATH", installed("mcp-servers-python"));
    command.arg(port.to_string());
    command
}

/// npm's SDK, without sessions.
fn typescript(port: u16) -> Command {
    let mut command = Command::new("node");
    command.arg(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/mcp/headers.mjs"
    ));
    command.arg(installed(
        "mcp-sdk/node_modules/@modelcontextprotocol/server",
    ));
    command.arg(port.to_string());
    command
}

/// npm's `server-everything`: the first SDK, with sessions. A strange one is refused with 400 and
/// `id: null`.
pub(crate) fn everything(port: u16) -> Command {
    let script = "mcp-servers/node_modules/@modelcontextprotocol/server-everything/dist/index.js";
    let mut command = Command::new("node");
    command.arg(installed(script)).arg("streamableHttp");
    command.env("PORT", port.to_string());
    command
}

impl Server {
    pub(crate) async fn start(command: fn(u16) -> Command) -> Self {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        let process = Self::run(command, port).await;
        Self {
            command,
            port,
            process,
        }
    }

    /// Starts the process, and waits until it can be connected to.
    async fn run(command: fn(u16) -> Command, port: u16) -> Child {
        let mut command = command(port);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let process = command.stderr(Stdio::null()).kill_on_drop(true);
        let process = process.spawn().unwrap();
        let listens = async {
            while TcpStream::connect(("127.0.0.1", port)).await.is_err() {
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(LIMIT, listens).await.expect("it does not start");
        process
    }

    async fn restart(&mut self) {
        self.process.kill().await.unwrap();
        self.process = Self::run(self.command, self.port).await;
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}/mcp", self.port)
    }
}

pub(crate) fn call(tool: &str, arguments: Value) -> ToolCall {
    ToolCall::new(tool).with_json(arguments).unwrap()
}

/// The stack without a breaker.
fn stack(
    server: McpServer,
) -> impl Service<ToolCall, Response = McpAnswer, Error = ToolError> + Clone {
    ServiceBuilder::new()
        .layer(IdentityLayer::new(server.clone()))
        .layer(RetryLayer::default())
        .layer(TimeoutLayer::new(LIMIT))
        .service(server)
}

//= https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/streamable-http#sending-messages
//# The client MUST include an `Accept` header listing both `application/json` and
//# `text/event-stream` as supported content types.
//# The client MUST include the request metadata headers on each POST request.
//= https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/streamable-http#standard-request-headers
//# These headers are REQUIRED for compliance.
//= https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/streamable-http#custom-headers-from-tool-parameters
//# While the use of `x-mcp-header` is optional for servers, clients MUST support this feature.
//# When a server's tool definition includes `x-mcp-header` annotations, conforming clients MUST
//# mirror the designated parameter values into HTTP headers.
//= https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/streamable-http#client-behavior
//# When constructing a `tools/call` request via HTTP transport, the client MUST:
//# Extract the values for any standard headers from the request body (e.g., `method`,
//# `params.name`, `params.uri`).
//# Append the `Mcp-Method` header and, if applicable, `Mcp-Name` header to the request.
//# Append a `Mcp-Param-{Name}: {Value}` header to the request.
//# If the server rejects a request with a `HeaderMismatch` error because required `Mcp-Param-*`
//# headers are missing or do not match the body, the client SHOULD call `tools/list` to check for
//# changes to the tool's `inputSchema`, then retry the original request with the appropriate
//# headers.
//= https://modelcontextprotocol.io/specification/2026-07-28/server/tools
//# Every request MUST include the required `_meta` fields; see `_meta`.
//= https://modelcontextprotocol.io/specification/2026-07-28/server/utilities/pagination
//# Every request MUST include the required `_meta` fields; see `_meta`.
/// M-1: GitHub's case, in front of both SDKs, through README's stack: the first call of a program,
/// and a client that has never listed the tools.
#[tokio::test]
async fn a_tool_with_a_header_is_called_without_a_list_before() {
    for command in [python, typescript] {
        let server = Server::start(command).await;
        let list = || call("repositories", json!({ "owner": "me" }));
        let github = || McpServer::http("github", server.url());
        let url = server.url();
        let unlisted = McpReconnect::new("github", move || {
            let transport = StreamableHttpClientTransport::from_uri(url.as_str());
            async move {
                let newest = ClientLifecycleMode::Discover {
                    preferred_versions: vec![ProtocolVersion::LATEST],
                };
                Ok::<_, BoxError>(().serve_with_lifecycle(transport, newest).await?)
            }
        });
        for tools in [
            outage::readme(github(), CircuitBreakerLayer::new()),
            outage::readme_of(github(), unlisted, CircuitBreakerLayer::new()),
        ] {
            let answer = tools.oneshot(list()).await.unwrap();
            assert_eq!(answer.model_text(), "those of me");
        }
    }
}

/// Whether there are calls while the server is restarted.
#[derive(Clone, Copy, PartialEq)]
enum Restart {
    UnderCalls,
    BetweenCalls,
}

/// 1,000 calls of 8 workers, while the server is killed and started again.
async fn thousand(command: fn(u16) -> Command, how: Restart, tool: &str, arguments: Value) {
    let mut server = Server::start(command).await;
    let tools = stack(McpServer::http("web", server.url()));
    let (answered, gate) = (AtomicUsize::new(0), RwLock::new(()));
    let successes = Mutex::new(Vec::new());
    let work = join_all((0..8).map(async |_| {
        while answered.load(SeqCst) < 1000 {
            let _gate = match how {
                Restart::UnderCalls => None,
                Restart::BetweenCalls => Some(gate.read().await),
            };
            let answer = tools.clone().oneshot(call(tool, arguments.clone()));
            match timeout(HANGS, answer).await.expect("a call hangs") {
                Ok(_) => {
                    answered.fetch_add(1, SeqCst);
                    successes.lock().unwrap().push(Instant::now());
                }
                Err(_) => sleep(Duration::from_millis(50)).await,
            }
        }
    }));
    let restarted = async {
        while answered.load(SeqCst) < 300 {
            sleep(Duration::from_millis(1)).await;
        }
        let _gate = match how {
            Restart::UnderCalls => None,
            Restart::BetweenCalls => Some(gate.write().await),
        };
        server.restart().await;
        Instant::now()
    };
    let both = timeout(LIMIT, async { tokio::join!(work, restarted) });
    let (_, up) = both.await.expect("no call succeeds any more");
    let successes = successes.into_inner().unwrap();
    let first = successes.iter().find(|at| **at > up);
    let after = *first.expect("the server was restarted too late") - up;
    assert!(after < Duration::from_millis(1500), "{after:?}");
}

/// Returns how long servers are away, in seconds. Each night they are for longer.
fn outages() -> Vec<u64> {
    let seconds = std::env::var("AWAY_SECS").unwrap_or_else(|_| "3".to_owned());
    seconds.split(',').map(|n| n.parse().unwrap()).collect()
}

/// Kills a server under 20 calls, starts it again some time later, and calls it meanwhile: through
/// README's stack and through the gateway's. It is back when a client can connect that has not met
/// it before.
async fn killed_for_a_while(
    server: McpServer,
    kill: impl AsyncFn(),
    start: impl AsyncFn(),
    client: impl Fn() -> McpServer,
) {
    let long = || {
        let arguments = json!({ "duration": 30, "steps": 3 });
        // Not made again: each of the 20 ends with the connection.
        call("trigger-long-running-operation", arguments).with_replay_safety(ReplaySafety::Unsafe)
    };
    let quick = || call("echo", json!({ "message": "hi" }));
    outage::connected(&server).await;
    for seconds in outages() {
        let layer = CircuitBreakerLayer::new();
        let breaker = layer.handle();
        for (tools, breaker) in [
            (outage::readme(server.clone(), layer), breaker),
            outage::gateway_and_breaker(server.clone()),
        ] {
            let mut calls = JoinSet::new();
            for _ in 0..20 {
                calls.spawn(tools.clone().oneshot(long()));
            }
            for _ in 0..3 {
                tools.clone().oneshot(quick()).await.unwrap();
            }
            let took = outage::first_success(&tools, quick, async || {
                kill().await;
                sleep(Duration::from_secs(seconds)).await;
                start().await;
                outage::connected(&client()).await;
            });
            let limit = LIMIT + Duration::from_secs(seconds);
            let took = timeout(limit, took).await.expect("no call succeeds");
            println!("{seconds} s away: first success after {took:?}");
            assert!(took < outage::SOON, "{seconds} s away: {took:?}");
            // One failure of a tool, however many of its calls the outage took.
            let seen = breaker.snapshot();
            let once = |b: &BreakerSnapshot| b.state == BreakerState::Closed && b.failed_total <= 1;
            assert!(!seen.is_empty() && seen.iter().all(once), "{seen:?}");
            for end in calls.join_all().await {
                assert_eq!(end.unwrap_err().kind(), ErrorKind::ConnectionFailed);
            }
        }
    }
}

/// D2, D3: over HTTP.
#[tokio::test]
async fn a_server_over_http_that_was_killed_is_used_again_soon() {
    let process = Server::start(everything).await;
    let (url, port) = (process.url(), process.port);
    let client = || McpServer::http("everything", url.as_str()).trust_annotations();
    let process = Mutex::new(process);
    let kill = async || process.lock().unwrap().process.start_kill().unwrap();
    let start = async || {
        let child = Server::run(everything, port).await;
        process.lock().unwrap().process = child;
    };
    killed_for_a_while(client(), kill, start, client).await;
}

/// npm's `server-everything` over stdio. It can be started while `may_start` exists.
#[cfg(unix)]
fn stdio(may_start: &Path, pid: &Path) -> McpServer {
    let script = "mcp-servers/node_modules/@modelcontextprotocol/server-everything/dist/index.js";
    let script = installed(script);
    let files = [may_start.to_owned(), pid.to_owned()];
    let server = McpServer::spawn("everything", move || {
        let mut command = Command::new("sh");
        let starts = r#"test -e "$0" || exit 1; echo $$ > "$1"; shift; exec node "$@""#;
        command.args(["-c", starts]).args(&files);
        command.args([script.as_str(), "stdio"]);
        command
    });
    server.trust_annotations()
}

/// D2, D3: over stdio.
#[cfg(unix)]
#[tokio::test]
async fn a_server_over_stdio_that_was_killed_is_used_again_soon() {
    let name = format!("mcp-killed-{}", std::process::id());
    let may_start = std::env::temp_dir().join(name);
    let [pid, others] = ["pid", "other"].map(|end| may_start.with_extension(end));
    std::fs::write(&may_start, "").unwrap();
    let kill = async || {
        std::fs::remove_file(&may_start).unwrap();
        let pid = std::fs::read_to_string(&pid).unwrap();
        let killed = Command::new("kill").args(["-9", pid.trim()]).status();
        assert!(killed.await.unwrap().success());
    };
    let start = async || std::fs::write(&may_start, "").unwrap();
    let server = stdio(&may_start, &pid);
    killed_for_a_while(server.clone(), kill, start, || stdio(&may_start, &others)).await;
    server.close().await;
    for file in [may_start, pid, others] {
        std::fs::remove_file(file).unwrap();
    }
}

#[tokio::test]
async fn no_call_hangs_while_a_server_with_sessions_is_restarted() {
    for how in [Restart::UnderCalls, Restart::BetweenCalls] {
        thousand(everything, how, "echo", json!({ "message": "hi" })).await;
    }
}

#[tokio::test]
async fn no_call_hangs_while_a_server_without_sessions_is_restarted() {
    for command in [python, typescript] {
        let arguments = json!({ "owner": "me" });
        thousand(command, Restart::UnderCalls, "repositories", arguments).await;
    }
}
