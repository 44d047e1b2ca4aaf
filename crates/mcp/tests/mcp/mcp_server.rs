//! `McpServer`: client, list and connection in one, to real servers in this process and over HTTP.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use rmcp::{
    RoleServer, ServerHandler, ServiceExt as _,
    model::{
        ErrorData, ListToolsResult, PaginatedRequestParams, ProtocolVersion, ServerCapabilities,
        ServerConfig, SubscriptionFilter, Tool,
    },
    service::{NotificationContext, RequestContext, SubscriptionContext},
    transport::{Transport as _, async_rw::AsyncRwTransport},
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    sync::Notify,
    time::{sleep, timeout},
};
use tower::{Service, ServiceBuilder, ServiceExt};
use tower_toolcall::{
    AnyError, ErrorKind, Event, Execution, ToolCall, ToolError,
    circuit_breaker::CircuitBreakerLayer,
    identity::IdentityLayer,
    policy::PolicyLayer,
    retry::{RetryLayer, RetryPolicy},
};
use tower_toolcall_mcp::{Catalog, McpAnswer, McpBounded, McpServer};
use tower_toolcall_test::Events;

use crate::server::Server;

/// A server over pipes in this process.
fn in_process(handler: impl ServerHandler + Clone) -> McpServer {
    McpServer::new("docs", move || {
        let (theirs, ours) = tokio::io::duplex(64 * 1024);
        let handler = handler.clone();
        tokio::spawn(async move { handler.serve(theirs).await.unwrap().waiting().await });
        async { Ok::<_, AnyError>(ours) }
    })
}

fn stack(
    server: &McpServer,
    policy: RetryPolicy,
) -> impl Service<ToolCall, Response = McpAnswer, Error = ToolError> + Clone {
    ServiceBuilder::new()
        .layer(IdentityLayer::new(server.clone()))
        .layer(RetryLayer::new(policy))
        .layer(CircuitBreakerLayer::new())
        .service(server.clone())
}

fn version(server: &McpServer) -> ProtocolVersion {
    let service = server.connection().service().unwrap();
    service.peer().peer_info().unwrap().protocol_version.clone()
}

/// M4.
#[tokio::test]
async fn the_newest_revision_of_both_sides_is_spoken() {
    let server = in_process(Server::default());
    server.connect().await.unwrap();
    assert_eq!(version(&server), ProtocolVersion::LATEST);
    server.oneshot(ToolCall::new("echo")).await.unwrap();
}

/// S10: the list of a server suggests names as a router does, also without a router. The third
/// call has a wrong server only.
#[tokio::test]
async fn the_list_of_a_server_suggests_the_nearest_name() {
    let server = in_process(Server::default());
    server.connect().await.unwrap();
    let stack = stack(&server, RetryPolicy::new());
    for (call, text) in [
        (
            ToolCall::new("ecko"),
            "Tool 'ecko' does not exist. Did you mean 'echo'?",
        ),
        (
            ToolCall::new("ehco").with_server("docs"),
            "Tool 'ehco' does not exist. Did you mean 'echo'?",
        ),
        (
            ToolCall::new("echo").with_server("dogs"),
            "Tool 'echo' does not exist at server 'dogs'. Call it without a server.",
        ),
        (
            ToolCall::new("xyzzy"),
            "Tool 'xyzzy' does not exist. Call only tools that you were given.",
        ),
    ] {
        let error = stack.clone().oneshot(call).await.unwrap_err();
        assert_eq!(error.model_message(), text);
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert!(error.is_own_refusal());
    }
}

/// P6: an `McpServer` is a table of all its tools.
#[tokio::test]
async fn a_name_that_the_server_does_not_have_is_a_configuration_error() {
    let server = in_process(Server::default());
    let policy = PolicyLayer::new().deny("ecko");
    assert!(policy.tool_names().check(&server).is_ok(), "not listed yet");
    server.connect().await.unwrap();
    let error = policy.tool_names().check(&server).unwrap_err();
    assert!(error.to_string().contains("did you mean `"), "{error}");
}

//= https://modelcontextprotocol.io/specification/2026-07-28/server/tools#tool-names
//# Tool names SHOULD be unique within a server.
/// M-9: prompt caches miss if the order changes.
#[test]
fn tools_are_listed_in_the_servers_order() {
    let tool = |n: usize| Tool::new(format!("t{}", n * 37 % 100), "", Arc::default());
    let names = |catalog: &Catalog| -> Vec<_> {
        let names = catalog.tools().map(|tool| tool.name.to_string());
        names.collect()
    };
    let listed: Vec<_> = (0..100).map(|n| format!("t{}", n * 37 % 100)).collect();
    let catalog = Catalog::new((0..100).map(tool));
    assert_eq!(names(&catalog), listed);
    assert_eq!(names(&catalog.trust_annotations(true)), listed);
    // A name that comes twice keeps its place, with the last definition.
    let twice = [tool(0), tool(1), Tool::new("t0", "newer", Arc::default())];
    let catalog = Catalog::new(twice);
    assert_eq!(names(&catalog), ["t0", "t37"]);
    assert_eq!(
        catalog.get("t0").unwrap().description.as_deref(),
        Some("newer")
    );
}

/// A server whose list grows, and that answers `server/discover` if it is modern.
#[derive(Clone)]
struct Growing {
    is_modern: bool,
    tools: Arc<AtomicUsize>,
    /// How long a list may be kept, in milliseconds.
    ttl: Option<u64>,
    grown: Arc<Notify>,
}

impl ServerHandler for Growing {
    fn get_info(&self) -> ServerConfig {
        let tools = ServerCapabilities::builder()
            .enable_tools()
            .enable_tool_list_changed();
        ServerConfig::new(tools.build())
    }

    async fn discover(
        &self,
        cx: RequestContext<RoleServer>,
    ) -> Result<rmcp::model::DiscoverResult, ErrorData> {
        if !self.is_modern {
            return Err(ErrorData::invalid_request("not initialized", None));
        }
        let mut found = Server::default().discover(cx).await?;
        found.capabilities = self.get_info().capabilities;
        Ok(found)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let tools = 0..self.tools.load(SeqCst);
        if tools.is_empty() {
            return Err(ErrorData::internal_error("the list is lost", None));
        }
        let tools = tools.map(|n| Tool::new(format!("tool-{n}"), "", Arc::default()));
        let mut list = ListToolsResult::with_all_items(tools.collect());
        list.ttl_ms = self.ttl;
        Ok(list)
    }

    fn accepted_subscription_filter(
        &self,
        asked: &SubscriptionFilter,
    ) -> Option<SubscriptionFilter> {
        Some(asked.clone())
    }

    async fn listen(&self, cx: SubscriptionContext) -> Result<(), ErrorData> {
        self.grown.notified().await;
        let _ = cx.sink().notify_tool_list_changed().await;
        cx.cancelled().await;
        Ok(())
    }

    async fn on_initialized(&self, cx: NotificationContext<RoleServer>) {
        self.grown.notified().await;
        let _ = cx.peer.notify_tool_list_changed().await;
    }
}

//= https://modelcontextprotocol.io/specification/2025-11-25/basic/lifecycle#operation
//# Both parties MUST:
//# Respect the negotiated protocol version
/// P1, M4: by the subscription of the newest revision, and by the notification of earlier ones.
#[tokio::test]
async fn the_list_follows_the_server_in_each_revision() {
    for is_modern in [true, false] {
        let growing = Growing {
            is_modern,
            tools: Arc::new(AtomicUsize::new(1)),
            ttl: None,
            grown: Arc::default(),
        };
        let server = in_process(growing.clone());
        server.connect().await.unwrap();
        assert_eq!(version(&server).has_initialize(), !is_modern);
        assert_eq!(server.tools().catalog().len(), 1);

        let news = Arc::new(Notify::new());
        let tell = Arc::clone(&news);
        server.tools().on_change(move || tell.notify_one());
        growing.tools.store(2, SeqCst);
        growing.grown.notify_one();
        let told = timeout(Duration::from_secs(60), news.notified()).await;
        told.expect("the list is read again");
        assert_eq!(server.tools().catalog().len(), 2);
    }
}

//= https://modelcontextprotocol.io/specification/2026-07-28/server/utilities/caching#interaction-with-pagination
//# Clients that require a consistent snapshot of the full list SHOULD re-fetch from the beginning
//# (without a cursor).
/// rmcp's client keeps answers with `ttlMs`, and gives an old one for an error.
#[tokio::test]
async fn a_refresh_asks_the_server_however_long_its_list_may_be_kept() {
    let growing = Growing {
        is_modern: true,
        tools: Arc::new(AtomicUsize::new(1)),
        ttl: Some(60_000),
        grown: Arc::default(),
    };
    let server = in_process(growing.clone());
    server.connect().await.unwrap();
    let service = server.connection().service().unwrap();
    growing.tools.store(2, SeqCst);
    server.tools().refresh(service.peer()).await.unwrap();
    assert_eq!(server.tools().catalog().len(), 2);

    growing.tools.store(0, SeqCst);
    let error = server.tools().refresh(service.peer()).await.unwrap_err();
    assert!(error.message().contains("the list is lost"), "{error}");
    assert_eq!(server.tools().catalog().len(), 2, "the old list stands");
}

/// A server that takes so long to start, and the messages that it was sent. `answer` returns what
/// it writes for a request; what has no id is an answer.
fn by_hand(
    after: Duration,
    answer: impl Fn(&Value) -> Vec<Value> + Clone + Send + 'static + Sync,
) -> (McpServer, Arc<Mutex<Vec<Value>>>) {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&asked);
    let server = McpServer::new("slow", move || {
        let (theirs, ours) = tokio::io::duplex(64 * 1024);
        let (seen, answer) = (Arc::clone(&seen), answer.clone());
        tokio::spawn(async move {
            sleep(after).await;
            let (read, mut write) = tokio::io::split(theirs);
            let mut lines = BufReader::new(read).lines();
            while let Some(line) = lines.next_line().await.unwrap() {
                let request: Value = serde_json::from_str(&line).unwrap();
                seen.lock().unwrap().push(request.clone());
                if request["id"].is_null() || request["method"].is_null() {
                    continue;
                }
                for mut message in answer(&request) {
                    message["jsonrpc"] = "2.0".into();
                    if message["id"].is_null() {
                        message["id"] = request["id"].clone();
                    }
                    let line = format!("{message}\n");
                    write.write_all(line.as_bytes()).await.unwrap();
                }
            }
        });
        async { Ok::<_, AnyError>(ours) }
    });
    (server, asked)
}

/// A server that takes 20 s to start.
fn slow(answer: fn(&str) -> Value) -> (McpServer, Arc<Mutex<Vec<Value>>>) {
    by_hand(Duration::from_secs(20), move |request| {
        vec![answer(request["method"].as_str().unwrap())]
    })
}

fn methods(asked: &Mutex<Vec<Value>>) -> Vec<String> {
    let asked = asked.lock().unwrap();
    let methods = asked.iter().filter_map(|it| it["method"].as_str());
    methods.map(str::to_owned).collect()
}

/// The answers of a server with a handshake, that speaks `spoken` whatever it is asked for.
fn with_handshake(method: &str, spoken: &str) -> Value {
    match method {
        "initialize" => json!({ "result": {
            "protocolVersion": spoken,
            "capabilities": { "tools": {} },
            "serverInfo": { "name": "old", "version": "1" },
        }}),
        "tools/list" => json!({ "result": { "tools": [] } }),
        _ => json!({ "error": { "code": -32601, "message": "Method not found" } }),
    }
}

//= https://modelcontextprotocol.io/specification/2025-11-25/basic/lifecycle#initialization
//# The initialization phase MUST be the first interaction between client and server.
//# After successful initialization, the client MUST send an `initialized` notification to indicate
//# it is ready to begin normal operations:
//# The client SHOULD NOT send requests other than pings before the server has responded to the
//# `initialize` request.
/// ver2: `server/discover` names revisions with a handshake alone, in its result or in its error.
#[tokio::test]
async fn a_server_that_names_earlier_revisions_is_connected_to_by_a_handshake() {
    let named = json!(["2024-11-05", "2025-06-18", "2031-01-01"]);
    let result = json!({ "result": {
        "resultType": "complete", "supportedVersions": named, "capabilities": {}, "ttlMs": 0,
        "cacheScope": "private",
    }});
    let data = json!({ "supported": named, "requested": "2026-07-28" });
    let error = json!({ "error": { "code": -32022, "message": "no", "data": data } });
    for discovered in [result, error] {
        let (server, asked) = by_hand(Duration::ZERO, move |request| {
            vec![match request["method"].as_str().unwrap() {
                "server/discover" => discovered.clone(),
                method => with_handshake(method, "2025-06-18"),
            }]
        });
        server.connect().await.unwrap();
        assert_eq!(version(&server), ProtocolVersion::V_2025_06_18);
        let begin = ["server/discover", "initialize", "notifications/initialized"];
        assert_eq!(methods(&asked)[..3], begin, "on one connection");
        let asked = asked.lock().unwrap();
        assert_eq!(asked[1]["params"]["protocolVersion"], "2025-06-18");
    }
}

//= https://modelcontextprotocol.io/specification/2025-11-25/basic/lifecycle#version-negotiation
//# In the `initialize` request, the client MUST send a protocol version it supports.
//# This SHOULD be the latest version supported by the client.
/// o-life10: a revision without a handshake is not asked for in a handshake.
#[tokio::test]
async fn a_handshake_asks_for_the_newest_revision_that_has_one() {
    let (server, asked) = by_hand(Duration::ZERO, |request| {
        vec![with_handshake(
            request["method"].as_str().unwrap(),
            "2025-11-25",
        )]
    });
    server.connect().await.unwrap();
    let asked = asked.lock().unwrap();
    assert_eq!(asked[1]["params"]["protocolVersion"], "2025-11-25");
}

//= https://modelcontextprotocol.io/specification/2025-11-25/schema#initializeresult
//# If the client cannot support this version, it MUST disconnect.
//= https://modelcontextprotocol.io/specification/2025-11-25/basic/lifecycle#version-negotiation
//# If the client does not support the version in the server's response, it SHOULD disconnect.
//= https://modelcontextprotocol.io/specification/2025-11-25/basic/lifecycle#error-handling
//# Implementations SHOULD be prepared to handle these error cases:
//# Protocol version mismatch
/// o-life15, ver2.
#[tokio::test]
async fn a_server_of_unknown_revisions_is_refused_with_both_lists() {
    for (method, answer) in [
        ("initialize", with_handshake("initialize", "2031-01-01")),
        (
            "server/discover",
            json!({ "error": { "code": -32022, "message": "no", "data": {
                "supported": ["2031-01-01"], "requested": "2026-07-28",
            }}}),
        ),
    ] {
        let (server, _) = by_hand(Duration::ZERO, move |request| {
            let asked = request["method"].as_str().unwrap();
            vec![match asked == method {
                true => answer.clone(),
                false => with_handshake(asked, ""),
            }]
        });
        let error = server.connect().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionFailed);
        let valid = "2024-11-05, 2025-03-26, 2025-06-18, 2025-11-25, 2026-07-28";
        let lists = format!("it has 2031-01-01; valid are {valid}");
        assert!(error.message().contains(&lists), "{error}");
        assert!(!server.connection().is_connected());
    }
}

//= https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/stdio#sending-messages
//# The client MUST NOT write JSON-RPC responses.
//= https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/streamable-http#sending-messages
//# The client MUST NOT send JSON-RPC responses.
/// stdio6, http11: a server of 2026-07-28 sends no requests, so none is answered.
#[tokio::test]
async fn a_request_of_a_server_without_a_handshake_is_not_answered() {
    let (server, asked) = by_hand(Duration::ZERO, |request| {
        match request["method"].as_str().unwrap() {
            "tools/call" => {
                let id = format!("s{}", request["id"]);
                let asks = json!({ "id": id, "method": "ping" });
                let done = json!({ "result": { "resultType": "complete", "content": [] } });
                vec![asks, done]
            }
            method => vec![modern(method)],
        }
    });
    // Those that were read count no more.
    let server = server.with_max_requests(2);
    for _ in 0..3 {
        let call = server.clone().oneshot(ToolCall::new("echo"));
        call.await.unwrap();
    }
    let asked = asked.lock().unwrap();
    let answers: Vec<_> = asked.iter().filter(|it| it["method"].is_null()).collect();
    assert!(answers.is_empty(), "{answers:?}");
}

/// S-4: requests of a server that wait for their answers are bounded, those that are answered are
/// not.
#[tokio::test]
async fn a_server_may_ask_as_often_as_it_reads_the_answers() {
    let (server, asked) = by_hand(Duration::ZERO, |request| {
        match request["method"].as_str().unwrap() {
            "tools/call" => {
                let n = request["params"]["arguments"]["n"].as_u64().unwrap();
                let ids = n * 10..(n + 1) * 10;
                let mut messages: Vec<_> = ids
                    .map(|id| json!({ "id": format!("s{id}"), "method": "ping" }))
                    .collect();
                messages.push(json!({ "result": { "content": [] } }));
                messages
            }
            method => vec![with_handshake(method, "2025-11-25")],
        }
    });
    let server = server.with_max_requests(15);
    for n in 0..10 {
        let arguments = json!({ "n": n }).as_object().unwrap().clone();
        let call = ToolCall::new("echo").with_arguments(arguments);
        server.clone().oneshot(call).await.unwrap();
        let answered = |all: &Vec<Value>| all.iter().filter(|it| it["method"].is_null()).count();
        while answered(&asked.lock().unwrap()) < 10 * (n + 1) {
            tokio::task::yield_now().await;
        }
    }
    let server = server.with_max_requests(5);
    server.close().await;
    let arguments = json!({ "n": 0 }).as_object().unwrap().clone();
    let call = ToolCall::new("echo").with_arguments(arguments);
    let error = server.oneshot(call).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionFailed);
    let why = "more than 5 requests without an answer";
    assert!(error.message().contains(why), "{error}");
}

/// S-4: a peer cannot fill the memory with ids, and no id hides a request that runs.
#[tokio::test]
async fn an_id_that_is_long_or_in_use_ends_the_connection() {
    let (short, long) = ("i".repeat(256), "i".repeat(257));
    for (ids, taken) in [([&*short, "1"], 2), ([&*long, "1"], 0), (["1", "1"], 1)] {
        let (mut theirs, ours) = tokio::io::duplex(1 << 10);
        let (read, write) = tokio::io::split(ours);
        let transport = AsyncRwTransport::<RoleServer, _, _>::new(read, write);
        let mut bounded = McpBounded::new(transport);
        for id in ids {
            let ping = json!({ "jsonrpc": "2.0", "id": id, "method": "ping" });
            theirs
                .write_all(format!("{ping}\n").as_bytes())
                .await
                .unwrap();
        }
        drop(theirs);
        let mut received = 0;
        while bounded.receive().await.is_some() {
            received += 1;
        }
        assert_eq!(received, taken, "{ids:?}");
    }
}

fn modern(method: &str) -> Value {
    match method {
        "server/discover" => json!({ "result": {
            "resultType": "complete",
            "supportedVersions": ["2026-07-28"],
            "capabilities": { "tools": {} },
            "ttlMs": 0,
            "cacheScope": "private",
        }}),
        "tools/list" => json!({ "result": {
            "resultType": "complete",
            "tools": [{ "name": "echo", "inputSchema": { "type": "object" } }],
        }}),
        _ => json!({ "error": { "code": -32022, "message": "no handshake" } }),
    }
}

//= https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/stdio#backward-compatibility
//# A client that supports both modern (per-request-metadata) MCP versions and a legacy version that
//# requires an `initialize` handshake SHOULD probe with `server/discover` before sending any other
//# request, setting its preferred modern version in `_meta`.
//= https://modelcontextprotocol.io/specification/2026-07-28/server/discover#when-to-call
//# A client that supports both modern (per-request `_meta`) and legacy (`initialize` handshake)
//# servers SHOULD send `server/discover` first; see stdio: Backward Compatibility for the fallback
//# rules.
/// rmcp gives `server/discover` 10 s, and then sends `initialize`.
#[tokio::test(start_paused = true)]
async fn a_server_without_a_handshake_may_start_slowly() {
    let (server, asked) = slow(modern);
    server.connect().await.unwrap();
    assert_eq!(version(&server), ProtocolVersion::LATEST);
    assert_eq!(server.tools().catalog().len(), 1);
    let begin = [
        "server/discover",
        "initialize",
        "server/discover",
        "tools/list",
    ];
    assert_eq!(methods(&asked), begin, "on one connection");
}

#[tokio::test(start_paused = true)]
async fn a_slow_server_that_refuses_both_lifecycles_is_an_error() {
    let other = |_: &str| json!({ "error": { "code": -32022, "message": "of another age" } });
    let (server, _) = slow(other);
    let error = server.connect().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionFailed);
    assert!(error.to_string().contains("of another age"), "{error}");
}

/// P14: a call after the end starts the server again.
#[tokio::test]
async fn a_closed_server_is_connected_to_by_the_next_call() {
    let server = in_process(Server::default());
    server.connect().await.unwrap();
    server.close().await;
    assert!(!server.connection().is_connected());
    server.close().await;
    server.clone().oneshot(ToolCall::new("echo")).await.unwrap();
    assert!(server.connection().is_connected());
}

/// P2: validation errors of a server that reports them as protocol errors.
#[tokio::test]
async fn arguments_that_do_not_fit_open_no_breaker() {
    let server = in_process(Server::default());
    let tools = ServiceBuilder::new()
        .layer(RetryLayer::default())
        .layer(CircuitBreakerLayer::new())
        .service(server);
    for _ in 0..6 {
        let error = tools.clone().oneshot(ToolCall::new("invalid")).await;
        assert_eq!(error.unwrap_err().kind(), ErrorKind::InvalidInput);
    }
}

/// P13: the pause between two attempts to connect is not the server's.
#[tokio::test(start_paused = true)]
async fn a_retry_after_a_failed_connection_is_not_hinted() {
    let server = McpServer::new("gone", || async {
        Err::<tokio::io::DuplexStream, _>("the server is gone")
    });
    let hints = Events::pick(|event| match event {
        Event::Retry { hinted, .. } => Some(*hinted),
        _ => None,
    });
    let policy = RetryPolicy::new().with_listener(hints.clone());
    let error = stack(&server, policy).oneshot(ToolCall::new("echo")).await;
    let error = error.unwrap_err();
    assert_eq!(error.execution(), Execution::NotStarted);
    assert_eq!(hints.take().first(), Some(&false));
}

mod over_http {
    use axum::{
        Router,
        body::{Body, to_bytes},
        extract::Request,
        http::StatusCode,
        middleware::{self, Next},
        response::IntoResponse as _,
    };
    use rmcp::transport::{
        StreamableHttpClientTransport, StreamableHttpServerConfig, StreamableHttpService,
        streamable_http_server::session::local::LocalSessionManager,
    };
    use tokio::net::TcpListener;

    use super::*;

    /// A server that answers the first call with a 503, and how many calls it was sent.
    async fn unavailable() -> (McpServer, Arc<AtomicUsize>) {
        let mcp = StreamableHttpService::new(
            || Ok(Server::default()),
            Arc::new(LocalSessionManager::default()),
            StreamableHttpServerConfig::default(),
        );
        let sent = Arc::new(AtomicUsize::new(0));
        let calls = Arc::clone(&sent);
        let fail = move |request: Request, next: Next| {
            let calls = Arc::clone(&calls);
            async move {
                let (head, body) = request.into_parts();
                let body = to_bytes(body, usize::MAX).await.unwrap();
                let is_call = body.windows(10).any(|part| part == b"tools/call");
                if is_call && calls.fetch_add(1, SeqCst) == 0 {
                    return StatusCode::SERVICE_UNAVAILABLE.into_response();
                }
                next.run(Request::from_parts(head, Body::from(body))).await
            }
        };
        let app = Router::new()
            .nest_service("/mcp", mcp)
            .layer(middleware::from_fn(fail));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        let server = McpServer::new("web", move || {
            let transport = StreamableHttpClientTransport::from_uri(url.as_str());
            async { Ok::<_, AnyError>(transport) }
        });
        (server, sent)
    }

    /// P1.
    #[tokio::test]
    async fn a_tool_that_only_reads_is_called_again_after_a_503() {
        let (server, sent) = unavailable().await;
        let server = server.trust_annotations();
        server.connect().await.unwrap();
        assert_eq!(version(&server), ProtocolVersion::LATEST);
        let tools = stack(&server, RetryPolicy::new());
        tools.oneshot(ToolCall::new("echo")).await.unwrap();
        assert_eq!(sent.load(SeqCst), 2);
    }

    /// P1: unsafe is what was declared so, and nothing else.
    #[tokio::test]
    async fn other_calls_are_sent_once_and_say_why() {
        for (trusts, tool, reason) in [
            (true, "pay", "unsafe: "),
            (false, "pay", "not_marked_safe: "),
            (false, "echo", "not_marked_safe: "),
        ] {
            let (server, sent) = unavailable().await;
            let server = match trusts {
                true => server.trust_annotations(),
                false => server,
            };
            server.connect().await.unwrap();
            let tools = stack(&server, RetryPolicy::new());
            let error = tools.oneshot(ToolCall::new(tool)).await.unwrap_err();
            let details = error.details().unwrap().to_string();
            assert!(details.contains(reason), "{tool}: {details}");
            assert_eq!(sent.load(SeqCst), 1, "{tool}");
        }
    }
}
