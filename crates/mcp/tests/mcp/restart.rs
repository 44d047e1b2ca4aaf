//! A server over streamable HTTP that is stopped and started at the same address (X8). Real time.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    thread::JoinHandle,
    time::Duration,
};

use axum::{
    Json, Router,
    body::{Body, to_bytes},
    extract::Request,
    http::StatusCode,
    middleware::{self, Next},
    response::{IntoResponse as _, Response},
};
use rmcp::{
    ClientServiceExt as _, ServiceExt as _,
    transport::{
        StreamableHttpClientTransport, StreamableHttpServerConfig, StreamableHttpService,
        common::client_side_sse::NeverRetry,
        streamable_http_client::StreamableHttpClientTransportConfig,
        streamable_http_server::session::local::LocalSessionManager,
    },
};
use serde_json::{Value, json};
use tokio::{
    net::TcpListener,
    sync::oneshot,
    time::{Instant, sleep, timeout},
};
use tower::ServiceExt as _;
use tower_toolcall::{BoxError, ErrorKind, Execution, ToolCall, ToolError, backoff::Backoff};
use tower_toolcall_mcp::McpAnswer;
use tower_toolcall_mcp::McpReconnect;

use crate::server::{Server, modern};

/// What it answers where a request names a session that it does not know.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Unknown {
    /// As the specification has it.
    NotFound,
    /// As servers do that were made after the example of the TypeScript SDK.
    BadRequest,
    /// The same, without the request's id.
    BadRequestToNobody,
    /// So to each call: it never knows one.
    AnyBadRequest,
}

/// A server with a runtime of its own, which ends with all of its connections.
struct Web {
    server: Server,
    _stop: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl Web {
    async fn start(address: SocketAddr, unknown: Unknown) -> Self {
        let server = Server::default();
        let factory = server.clone();
        let mcp = StreamableHttpService::new(
            move || Ok(factory.clone()),
            Arc::new(LocalSessionManager::default()),
            StreamableHttpServerConfig::default(),
        );
        let answer = move |request, next| answer(request, next, unknown);
        let app = Router::new()
            .nest_service("/mcp", mcp)
            .layer(middleware::from_fn(answer));
        let listener = TcpListener::bind(address).await.unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            let listener = listener.into_std().unwrap();
            runtime.block_on(async {
                let listener = TcpListener::from_std(listener).unwrap();
                let served = async { axum::serve(listener, app).await.unwrap() };
                tokio::select! { () = served => {}, _ = stopped => {} }
            });
        });
        Self {
            server,
            _stop: stop,
            thread,
        }
    }

    fn stop(self) {
        drop(self._stop);
        self.thread.join().unwrap();
    }
}

async fn answer(request: Request, next: Next, unknown: Unknown) -> Response {
    let (parts, body) = request.into_parts();
    let body = to_bytes(body, usize::MAX).await.unwrap();
    let message = serde_json::from_slice(&body).unwrap_or(Value::Null);
    let response = next.run(Request::from_parts(parts, Body::from(body))).await;
    let refuses = match unknown {
        Unknown::NotFound => false,
        Unknown::AnyBadRequest => message["method"] == "tools/call",
        _ => response.status() == StatusCode::NOT_FOUND,
    };
    if !refuses {
        return response;
    }
    let id = match unknown {
        Unknown::BadRequestToNobody => Value::Null,
        _ => message["id"].clone(),
    };
    let error = json!({ "code": -32000, "message": "Bad Request: No valid session ID provided" });
    let body = json!({ "jsonrpc": "2.0", "error": error, "id": id });
    (StatusCode::BAD_REQUEST, Json(body)).into_response()
}

/// A leaf, and the servers that it calls.
struct Lab {
    address: SocketAddr,
    leaf: McpReconnect,
    /// How often it has connected.
    connected: Arc<AtomicUsize>,
}

impl Lab {
    async fn new(
        is_modern: bool,
        config: impl Fn(&mut StreamableHttpClientTransportConfig) + Send + Sync + 'static,
    ) -> Self {
        let free = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = free.local_addr().unwrap();
        let connected = Arc::new(AtomicUsize::new(0));
        let (count, config) = (Arc::clone(&connected), Arc::new(config));
        let leaf = McpReconnect::new("web", move || {
            let (count, config) = (Arc::clone(&count), Arc::clone(&config));
            async move {
                let mut settings =
                    StreamableHttpClientTransportConfig::with_uri(format!("http://{address}/mcp"));
                config(&mut settings);
                let transport = StreamableHttpClientTransport::from_config(settings);
                let client = if is_modern {
                    ().serve_with_lifecycle(transport, modern()).await?
                } else {
                    ().serve(transport).await?
                };
                count.fetch_add(1, SeqCst);
                Ok::<_, BoxError>(client)
            }
        });
        let backoff = Backoff::fixed(Duration::from_millis(20)).unwrap();
        Self {
            address,
            leaf: leaf.with_backoff(backoff),
            connected,
        }
    }

    async fn start(&self, unknown: Unknown) -> Web {
        Web::start(self.address, unknown).await
    }

    async fn call(&self, tool: &str) -> Result<McpAnswer, ToolError> {
        let call = self.leaf.clone().oneshot(ToolCall::new(tool));
        timeout(Duration::from_secs(60), call)
            .await
            .expect("it hangs")
    }

    /// Calls until there is an answer. Returns how many calls failed.
    async fn comes_back(&self) -> usize {
        for failed in 0..50 {
            match self.call("echo").await {
                Ok(_) => return failed,
                Err(error) => sleep(error.retry_after().unwrap_or_default()).await,
            }
        }
        panic!("it does not come back")
    }
}

#[tokio::test]
async fn a_server_that_is_gone_and_comes_back_is_connected_to_again() {
    for is_modern in [true, false] {
        let lab = Lab::new(is_modern, |_| {}).await;
        let web = lab.start(Unknown::NotFound).await;
        lab.call("echo").await.unwrap();
        web.stop();
        for _ in 0..3 {
            let error = lab.call("echo").await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ConnectionFailed, "{error}");
            assert_eq!(error.execution(), Execution::NotStarted, "{error}");
            assert!(!lab.leaf.is_connected());
        }
        let web = lab.start(Unknown::NotFound).await;
        assert!(lab.comes_back().await <= 1);
        assert_eq!(lab.connected.load(SeqCst), 2);
        web.stop();
    }
}

/// Nobody has called meanwhile, so its sessions are gone without a word. rmcp makes a new one where
/// there were any.
#[tokio::test]
async fn a_server_that_was_restarted_between_calls_answers_the_next_one() {
    for is_modern in [true, false] {
        let lab = Lab::new(is_modern, |_| {}).await;
        let web = lab.start(Unknown::NotFound).await;
        lab.call("echo").await.unwrap();
        web.stop();
        let web = lab.start(Unknown::NotFound).await;
        lab.call("echo").await.unwrap();
        assert_eq!(web.server.started.load(SeqCst), 1);
        web.stop();
    }
}

//= https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#session-management
//# When a client receives HTTP 404 in response to a request containing an `MCP-Session-Id`, it MUST
//# start a new session by sending a new `InitializeRequest` without a session ID attached.
/// Not by rmcp: then the function that connects is called, and can read the new list of tools.
#[tokio::test]
async fn an_expired_session_is_a_lost_connection_if_rmcp_does_not_renew_it() {
    let lab = Lab::new(false, |config| config.reinit_on_expired_session = false).await;
    is_lost_once(&lab, Unknown::NotFound, Execution::NotStarted).await;
}

/// Which the specification does not allow. So rmcp does not renew the session.
#[tokio::test]
async fn a_session_that_is_refused_with_a_400_is_a_lost_connection() {
    let lab = Lab::new(false, |_| {}).await;
    is_lost_once(&lab, Unknown::BadRequest, Execution::Unknown).await;
}

/// One call fails after a restart, and the next one has another connection.
async fn is_lost_once(lab: &Lab, unknown: Unknown, execution: Execution) {
    let web = lab.start(unknown).await;
    lab.call("echo").await.unwrap();
    web.stop();
    let web = lab.start(unknown).await;
    let error = lab.call("echo").await.unwrap_err();
    assert_eq!(
        (error.kind(), error.execution()),
        (ErrorKind::ConnectionFailed, execution)
    );
    lab.call("echo").await.unwrap();
    assert_eq!(
        (lab.connected.load(SeqCst), web.server.started.load(SeqCst)),
        (2, 1)
    );
    web.stop();
}

/// That is no answer, so it is no better than an attempt that failed.
#[tokio::test]
async fn a_server_that_refuses_each_session_is_not_connected_to_in_a_loop() {
    let mut lab = Lab::new(false, |_| {}).await;
    let backoff = Backoff::fixed(Duration::from_secs(60)).unwrap();
    lab.leaf = lab.leaf.with_backoff(backoff);
    let web = lab.start(Unknown::AnyBadRequest).await;
    for _ in 0..5 {
        let error = lab.call("echo").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionFailed, "{error}");
        assert!(error.retry_after() > Some(Duration::from_secs(30)));
    }
    assert_eq!(lab.connected.load(SeqCst), 1);
    web.stop();
}

/// As it is by npm's `server-everything`. rmcp throws such an answer away, and the call would wait
/// for ever.
#[tokio::test]
async fn a_session_that_is_refused_without_an_answer_is_noticed_by_a_ping() {
    let mut lab = Lab::new(false, |_| {}).await;
    lab.leaf = lab.leaf.with_ping(Duration::from_millis(200)).unwrap();
    let web = lab.start(Unknown::BadRequestToNobody).await;
    lab.call("echo").await.unwrap();
    web.stop();
    let web = lab.start(Unknown::BadRequestToNobody).await;
    let call = timeout(Duration::from_millis(300), lab.call("echo"));
    assert!(call.await.is_err(), "rmcp has an answer: no ping is needed");
    let start = Instant::now();
    while lab.leaf.is_connected() {
        assert!(start.elapsed() < Duration::from_secs(60), "nobody notices");
        sleep(Duration::from_millis(5)).await;
    }
    lab.call("echo").await.unwrap();
    assert_eq!(lab.connected.load(SeqCst), 2);
    web.stop();
}

/// Over HTTP it is answered, or refused, in either revision.
#[tokio::test]
async fn a_ping_does_no_harm() {
    for is_modern in [true, false] {
        let mut lab = Lab::new(is_modern, |_| {}).await;
        lab.leaf = lab.leaf.with_ping(Duration::from_millis(200)).unwrap();
        let web = lab.start(Unknown::NotFound).await;
        lab.call("echo").await.unwrap();
        let call = timeout(Duration::from_millis(100), lab.call("hang"));
        assert!(call.await.is_err());
        sleep(Duration::from_millis(400)).await;
        assert!(lab.leaf.is_connected());
        lab.call("echo").await.unwrap();
        assert_eq!(lab.connected.load(SeqCst), 1);
        web.stop();
    }
}

/// With the setting that the docs ask for, where the revision has streams that are taken up again.
#[tokio::test]
async fn a_call_in_flight_ends_with_its_server() {
    for is_modern in [true, false] {
        let lab = Lab::new(is_modern, |config| {
            config.retry_config = Arc::new(NeverRetry::default())
        })
        .await;
        let web = lab.start(Unknown::NotFound).await;
        let server = web.server.clone();
        let stops = async move {
            while server.started.load(SeqCst) == 0 {
                sleep(Duration::from_millis(5)).await;
            }
            web.stop();
        };
        let (answer, ()) = tokio::join!(lab.call("hang"), stops);
        let error = answer.unwrap_err();
        assert_eq!(
            (error.kind(), error.execution()),
            (ErrorKind::ConnectionFailed, Execution::Unknown)
        );
        let web = lab.start(Unknown::NotFound).await;
        lab.comes_back().await;
        assert_eq!(lab.connected.load(SeqCst), 2);
        web.stop();
    }
}
