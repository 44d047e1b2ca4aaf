//! What a leaf does for a call after its answer, within the call's own limits. Real time.

use std::{
    future::pending,
    sync::{
        Arc,
        atomic::{
            AtomicBool, AtomicUsize,
            Ordering::{Relaxed, SeqCst},
        },
    },
    time::Duration,
};

use axum::{
    Json, Router,
    extract::{Request, State},
    http::StatusCode,
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::post,
};
use rmcp::{
    RoleServer, ServerHandler,
    model::{
        ErrorData, ListToolsResult, PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool,
    },
    service::RequestContext,
    transport::{
        StreamableHttpServerConfig, StreamableHttpService,
        streamable_http_server::session::local::LocalSessionManager,
    },
};
use serde_json::{Value, json};
use tokio::{
    net::TcpListener,
    sync::Notify,
    time::{Instant, timeout},
};
use tokio_util::sync::CancellationToken;
use tower::{ServiceBuilder, ServiceExt as _};
use tower_toolcall::{
    ErrorKind, ServiceBuilderExt as _, ToolCall, ToolError, circuit_breaker::CircuitBreakerLayer,
};
use tower_toolcall_mcp::McpServer;

const SOON: Duration = Duration::from_millis(300);

fn refusal(id: &Value, code: i32, message: &str) -> Response {
    let error = json!({ "code": code, "message": message });
    let body = json!({ "jsonrpc": "2.0", "id": id, "error": error });
    (StatusCode::BAD_REQUEST, Json(body)).into_response()
}

/// Hangs, once it has refused a call.
#[derive(Clone, Default)]
struct Hanging {
    hangs: Arc<AtomicBool>,
    /// A request that is not answered has come.
    asked: Arc<Notify>,
    calls: Arc<AtomicUsize>,
}

impl Hanging {
    async fn hang(&self) {
        if self.hangs.load(Relaxed) {
            self.asked.notify_one();
            pending().await
        }
    }
}

async fn serve(app: Router) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    url
}

/// A server with sessions.
async fn with_session() -> (Hanging, McpServer) {
    async fn answer(State(server): State<Hanging>, Json(message): Json<Value>) -> Response {
        let id = &message["id"];
        let result = |result: Value| {
            Json(json!({ "jsonrpc": "2.0", "id": id, "result": result })).into_response()
        };
        match message["method"].as_str().unwrap() {
            "server/discover" => refusal(id, -32601, "Method not found"),
            "initialize" => {
                let found = result(json!({
                    "protocolVersion": "2025-11-25",
                    "capabilities": { "tools": {} },
                    "serverInfo": { "name": "hanging", "version": "1" },
                }));
                ([("mcp-session-id", "1")], found).into_response()
            }
            "tools/call" => {
                server.hangs.store(true, Relaxed);
                server.calls.fetch_add(1, SeqCst);
                refusal(id, -32600, "Bad Request")
            }
            _ if id.is_null() => StatusCode::ACCEPTED.into_response(),
            _ => {
                server.hang().await;
                result(json!({ "tools": [{ "name": "echo", "inputSchema": {} }] }))
            }
        }
    }

    let server = Hanging::default();
    let app = Router::new().route("/mcp", post(answer));
    let url = serve(app.with_state(server.clone())).await;
    let web = McpServer::http("web", url);
    // No test waits for that.
    let slow = |connection: tower_toolcall_mcp::McpReconnect| {
        connection.with_ping(Duration::from_secs(300))
    };
    (server, web.with_connection(slow).unwrap())
}

/// A server of the newest revision, whose tool has a parameter in a header.
#[derive(Clone)]
struct Headed;

impl ServerHandler for Headed {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let owner = json!({ "type": "string", "x-mcp-header": "Owner" });
        let schema = json!({ "type": "object", "properties": { "owner": owner } });
        let tool = Tool::new("echo", "", Arc::new(schema.as_object().unwrap().clone()));
        Ok(ListToolsResult::with_all_items(vec![tool]))
    }
}

/// Refuses the headers of each call; hangs afterwards if it should.
async fn with_headers(hangs: bool) -> (Hanging, McpServer) {
    let mcp = StreamableHttpService::new(
        || Ok(Headed),
        Arc::new(LocalSessionManager::default()),
        StreamableHttpServerConfig::default(),
    );
    let server = Hanging::default();
    let refuse = {
        let server = server.clone();
        move |request: Request, next: Next| {
            let server = server.clone();
            async move {
                let method = request.headers().get("mcp-method").cloned();
                if method.is_none_or(|method| method != "tools/call") {
                    server.hang().await;
                    return next.run(request).await;
                }
                server.hangs.store(hangs, Relaxed);
                server.calls.fetch_add(1, SeqCst);
                refusal(&json!(1), -32020, "Mcp-Param-Owner is missing")
            }
        }
    };
    let app = Router::new()
        .nest_service("/mcp", mcp)
        .layer(middleware::from_fn(refuse));
    let web = McpServer::http("web", serve(app).await);
    web.connect().await.unwrap();
    (server, web)
}

async fn ended<T>(call: impl Future<Output = Result<T, ToolError>>) -> ToolError {
    let ended = timeout(Duration::from_secs(20), call).await;
    ended.expect("it waits longer than its call").err().unwrap()
}

/// 46: the ping after an answer, and the list after one, end at the call's deadline. The error is
/// the server's answer.
#[tokio::test]
async fn what_follows_an_answer_ends_at_the_deadline() {
    for (server, web, kind) in [
        {
            let (server, web) = with_session().await;
            (server, web, ErrorKind::InvalidInput)
        },
        {
            let (server, web) = with_headers(true).await;
            (server, web, ErrorKind::Failed)
        },
    ] {
        let call = ToolCall::new("echo").with_deadline(Instant::now() + SOON);
        let error = ended(web.clone().oneshot(call)).await;
        assert_eq!(error.kind(), kind, "{error}");
        // A call that was cut says nothing of the connection.
        assert!(web.connection().is_connected());
        assert_eq!(server.calls.load(SeqCst), 1);
    }
}

/// 46: the same, if the caller cancels meanwhile.
#[tokio::test]
async fn what_follows_an_answer_ends_when_the_caller_cancels() {
    for (server, web) in [with_session().await, with_headers(true).await] {
        let token = CancellationToken::new();
        let call = ToolCall::new("echo").with_cancellation(token.clone());
        let cancel = async {
            server.asked.notified().await;
            token.cancel();
        };
        let (error, ()) = tokio::join!(ended(web.clone().oneshot(call)), cancel);
        assert_ne!(error.kind(), ErrorKind::ConnectionFailed, "{error}");
        assert!(web.connection().is_connected());
    }
}

/// 46: a server that has answered in time is not the cause of a timeout.
#[tokio::test]
async fn a_cut_at_the_deadline_opens_no_breaker() {
    let (server, web) = with_session().await;
    let breaker = CircuitBreakerLayer::builder().with_trip(1).build().unwrap();
    let tools = ServiceBuilder::new()
        .tool_deadline(SOON)
        .layer(breaker)
        .service(web);
    for calls in 1..=2 {
        let error = ended(tools.clone().oneshot(ToolCall::new("echo"))).await;
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        assert_eq!(server.calls.load(SeqCst), calls);
    }
}

/// 46: a call is kept for a repetition only as far as it costs little.
#[tokio::test]
async fn a_call_with_large_arguments_is_not_kept_for_a_repetition() {
    for (length, calls) in [(1_000, 2), (100_000, 1)] {
        let (server, web) = with_headers(false).await;
        let arguments = json!({ "owner": "x".repeat(length) });
        let call = ToolCall::new("echo").with_json(arguments).unwrap();
        let error = ended(web.oneshot(call)).await;
        assert_eq!(error.kind(), ErrorKind::Failed);
        assert_eq!(server.calls.load(SeqCst), calls, "{length}");
    }
}
