//! Servers over HTTP that answer as the specification does not ask for.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use axum::{
    Json, Router,
    extract::{Request, State},
    http::{HeaderMap, StatusCode},
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::post,
};
use rmcp::{
    RoleServer, ServerHandler,
    model::{
        CallToolResponse, ErrorData, ListToolsResult, PaginatedRequestParams, ServerCapabilities,
        ServerConfig, Tool,
    },
    service::RequestContext,
    transport::{
        StreamableHttpServerConfig, StreamableHttpService,
        streamable_http_server::session::local::LocalSessionManager,
    },
};
use serde_json::{Value, json};
use tokio::{net::TcpListener, time::timeout};
use tower::{ServiceBuilder, ServiceExt as _};
use tower_toolcall::{
    ErrorKind, Execution, ReplaySafety, ToolCall, ToolError, mcp::McpServer, retry::RetryLayer,
};

type Answer = Arc<dyn Fn(&Value) -> Response + Send + Sync>;

/// A server of the revision 2025-11-25 that can forget its session.
#[derive(Clone)]
struct Loose {
    /// The number of the session that it knows.
    session: Arc<AtomicUsize>,
    /// The answer to a request of another session.
    stranger: Answer,
    /// The answer to a call, if it is not a result.
    call: Arc<Mutex<Option<Answer>>>,
    /// The calls that were sent, answered or not.
    sent: Arc<AtomicUsize>,
}

fn error(status: u16, id: Value, code: i32, message: &str) -> Response {
    let error = json!({ "code": code, "message": message });
    let body = json!({ "jsonrpc": "2.0", "id": id, "error": error });
    (StatusCode::from_u16(status).unwrap(), Json(body)).into_response()
}

fn text(status: u16, text: &'static str) -> Response {
    (StatusCode::from_u16(status).unwrap(), text).into_response()
}

async fn serve(
    stranger: impl Fn(&Value) -> Response + Send + Sync + 'static,
) -> (Loose, McpServer) {
    let server = Loose {
        session: Arc::default(),
        stranger: Arc::new(stranger),
        call: Arc::default(),
        sent: Arc::default(),
    };
    let app = Router::new()
        .route("/mcp", post(answer))
        .with_state(server.clone());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    (server, McpServer::http("web", url))
}

async fn answer(
    State(server): State<Loose>,
    headers: HeaderMap,
    Json(message): Json<Value>,
) -> Response {
    let id = message["id"].clone();
    let result = |result: Value| {
        let body = json!({ "jsonrpc": "2.0", "id": id, "result": result });
        Json(body).into_response()
    };
    let method = message["method"].as_str().unwrap_or_default();
    if method == "server/discover" {
        return error(200, id, -32601, "Method not found");
    }
    if method == "tools/call" {
        server.sent.fetch_add(1, SeqCst);
    }
    if method == "initialize" {
        let session = server.session.fetch_add(1, SeqCst) + 1;
        let found = result(json!({
            "protocolVersion": "2025-11-25",
            "capabilities": { "tools": {} },
            "serverInfo": { "name": "loose", "version": "1" },
        }));
        return ([("mcp-session-id", session.to_string())], found).into_response();
    }
    let session = headers.get("mcp-session-id").map(|s| s.to_str().unwrap());
    if session != Some(&server.session.load(SeqCst).to_string()) {
        return (server.stranger)(&id);
    }
    match method {
        "ping" => result(json!({})),
        "tools/list" => result(json!({ "tools": [{ "name": "echo", "inputSchema": {} }] })),
        "tools/call" => match server.call.lock().unwrap().clone() {
            Some(answer) => answer(&id),
            None => result(json!({ "content": [] })),
        },
        _ => StatusCode::ACCEPTED.into_response(),
    }
}

impl Loose {
    /// Knows no session, as after a restart.
    fn forget(&self) {
        self.session.fetch_add(100, SeqCst);
    }
}

async fn call(server: &McpServer) -> Result<CallToolResponse, ToolError> {
    let call = server.clone().oneshot(ToolCall::new("echo"));
    let ended = timeout(Duration::from_secs(20), call).await;
    ended.expect("it hangs")
}

/// M-5: also an id that is not that of the request, which Python's SDK has.
#[tokio::test]
async fn an_answer_without_the_requests_id_is_the_answer_to_the_request() {
    for (status, id, code, kind) in [
        (400, Value::Null, -32000, ErrorKind::Failed),
        (410, Value::Null, -32000, ErrorKind::Failed),
        (500, Value::Null, -32603, ErrorKind::Upstream),
        (400, json!("server-error"), -32600, ErrorKind::InvalidInput),
        (200, json!(4711), -32603, ErrorKind::Upstream),
    ] {
        let (loose, server) = serve(|_| text(404, "no")).await;
        server.connect().await.unwrap();
        let answer = move |_: &Value| error(status, id.clone(), code, "no luck");
        *loose.call.lock().unwrap() = Some(Arc::new(answer));
        let error = call(&server).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{status} {code}: {error}");
        assert_eq!(error.execution(), Execution::Unknown);
        assert!(error.message().contains("no luck"), "{error}");
        // The session is as good as before.
        *loose.call.lock().unwrap() = None;
        call(&server).await.unwrap();
        assert_eq!(loose.session.load(SeqCst), 1, "{status} {code}");
    }
}

/// M-5: the answer to the first request of a connection.
#[tokio::test]
async fn a_refusal_without_an_id_ends_the_attempt_to_connect() {
    let app = Router::new().route(
        "/mcp",
        post(|| async { error(500, Value::Null, -32603, "not today") }),
    );
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    let server = McpServer::http("web", url);
    let ended = timeout(Duration::from_secs(5), server.connect()).await;
    let error = ended.expect("it hangs").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionFailed);
    assert_eq!(error.execution(), Execution::NotStarted);
}

/// M-6: each call fails once, and the next one has a new session.
#[tokio::test]
async fn a_lost_session_is_known_in_any_words() {
    type Words = fn(&Value) -> Response;
    let unknown = Execution::Unknown;
    let words: [(Words, Execution); 8] = [
        (|id| error(400, id.clone(), -32600, "who are you?"), unknown),
        (
            |_| error(400, Value::Null, -32000, "Server not initialized"),
            unknown,
        ),
        (
            |id| error(400, id.clone(), -32602, "Invalid session"),
            unknown,
        ),
        (|_| error(410, Value::Null, -32001, "gone"), unknown),
        (
            |id| error(422, id.clone(), 4711, "expected initialize request"),
            unknown,
        ),
        (|_| text(400, "unknown client"), Execution::NotStarted),
        (|_| text(410, ""), Execution::NotStarted),
        (|_| text(404, "no"), Execution::NotStarted),
    ];
    for (nth, (stranger, execution)) in words.into_iter().enumerate() {
        let (loose, server) = serve(stranger).await;
        server.connect().await.unwrap();
        call(&server).await.unwrap();
        loose.forget();
        let error = call(&server).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionFailed, "{nth}: {error}");
        assert_eq!(error.execution(), execution, "{nth}: {error}");
        assert!(!server.connection().is_connected(), "{nth}");
        call(&server).await.unwrap();
    }
}

/// M-6: the server knows the session, whatever it says to a call.
#[tokio::test]
async fn a_refused_call_is_not_a_lost_session_if_the_server_answers_a_ping() {
    for status in [400, 403, 409, 410] {
        let (loose, server) = serve(|_| text(404, "no")).await;
        server.connect().await.unwrap();
        let answer = move |id: &Value| error(status, id.clone(), -32600, "Bad Request");
        *loose.call.lock().unwrap() = Some(Arc::new(answer));
        for _ in 0..3 {
            call(&server).await.unwrap_err();
        }
        assert_eq!(loose.session.load(SeqCst), 1, "{status}");
    }
}

/// A 404 of an endpoint with sessions: the retry layer sends the call again, and nothing below it.
#[tokio::test]
async fn a_call_that_met_a_404_is_sent_again_by_the_retry_layer_alone() {
    let (loose, server) = serve(|_| text(404, "no")).await;
    call(&server).await.unwrap();
    loose.forget();
    let error = call(&server).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionFailed);
    assert_eq!(error.execution(), Execution::NotStarted);
    assert_eq!(loose.sent.load(SeqCst), 2);

    call(&server).await.unwrap();
    loose.forget();
    let tools = ServiceBuilder::new()
        .layer(RetryLayer::default())
        .service(server);
    // Not started, so also a call that must not run twice.
    let call = ToolCall::new("echo").with_replay_safety(ReplaySafety::Unsafe);
    tools.oneshot(call).await.unwrap();
    assert_eq!(loose.sent.load(SeqCst), 5);
}

/// One tool, which has a parameter in a header or not.
#[derive(Clone)]
struct Headed(Value);

impl ServerHandler for Headed {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let schema = json!({ "type": "object", "properties": { "owner": self.0 } });
        let tool = Tool::new("echo", "", Arc::new(schema.as_object().unwrap().clone()));
        Ok(ListToolsResult::with_all_items(vec![tool]))
    }
}

/// M-1: the second answer is the call's, and a list that explains nothing repeats nothing.
#[tokio::test]
async fn a_call_whose_headers_are_refused_is_sent_again_once_if_its_tool_has_any() {
    let plain = json!({ "type": "string" });
    let headed = json!({ "type": "string", "x-mcp-header": "Owner" });
    for (parameter, sent) in [(headed, 2), (plain, 1)] {
        let mcp = StreamableHttpService::new(
            move || Ok(Headed(parameter.clone())),
            Arc::new(LocalSessionManager::default()),
            StreamableHttpServerConfig::default(),
        );
        let calls = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&calls);
        let refuse = move |request: Request, next: Next| {
            let count = Arc::clone(&count);
            async move {
                let method = request.headers().get("mcp-method").cloned();
                if method.is_none_or(|method| method != "tools/call") {
                    return next.run(request).await;
                }
                count.fetch_add(1, SeqCst);
                error(400, json!(1), -32020, "Mcp-Param-Owner is missing")
            }
        };
        let app = Router::new()
            .nest_service("/mcp", mcp)
            .layer(middleware::from_fn(refuse));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });

        let server = McpServer::http("web", url);
        let tools = ServiceBuilder::new()
            .layer(RetryLayer::default())
            .service(server.trust_annotations());
        let error = tools.oneshot(ToolCall::new("echo")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Failed);
        assert!(
            error
                .model_message()
                .contains("Other arguments will not help")
        );
        assert_eq!(calls.load(SeqCst), sent);
    }
}
