//! Servers over HTTP that answer as the specification does not ask for.

use std::{
    io,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use axum::{
    Json, Router,
    body::Body,
    extract::{Request, State},
    http::{HeaderMap, HeaderName, StatusCode},
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::post,
};
use futures_util::{StreamExt as _, future, stream};
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
use tokio::{net::TcpListener, time::timeout};
use tower::{ServiceBuilder, ServiceExt as _};
use tower_toolcall::{ErrorKind, Execution, ReplaySafety, ToolCall, ToolError, retry::RetryLayer};
use tower_toolcall_mcp::McpAnswer;
use tower_toolcall_mcp::McpServer;

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

fn with_header(answer: Response, name: &'static str, value: &'static str) -> Response {
    ([(HeaderName::from_static(name), value)], answer).into_response()
}

fn challenge(status: u16) -> Response {
    with_header(text(status, ""), "www-authenticate", "Bearer")
}

/// An answer as an event.
fn event(message: &Value) -> Response {
    let event = format!("data: {message}\n\n");
    ([("content-type", "text/event-stream")], event).into_response()
}

async fn at(app: Router) -> McpServer {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    McpServer::http("web", url)
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
    (server, at(app).await)
}

/// Answers with 404 to a session that it does not know.
async fn connected() -> (Loose, McpServer) {
    let (loose, server) = serve(|_| text(404, "no")).await;
    server.connect().await.unwrap();
    (loose, server)
}

/// As [`error`], with the id of the request.
fn refuses(status: u16, code: i32, message: &'static str) -> Answer {
    Arc::new(move |id| error(status, id.clone(), code, message))
}

fn no_id(status: u16, code: i32, message: &'static str) -> Answer {
    says(move || error(status, Value::Null, code, message))
}

fn says(answer: impl Fn() -> Response + Send + Sync + 'static) -> Answer {
    Arc::new(move |_| answer())
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
        "tools/list" => result(json!({
            "tools": [{ "name": "echo", "inputSchema": {} }],
            // It may be kept, but not as evidence of the session.
            "ttlMs": 60_000,
            "cacheScope": "private",
        })),
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

    fn answers(&self, answer: impl Fn(&Value) -> Response + Send + Sync + 'static) {
        *self.call.lock().unwrap() = Some(Arc::new(answer));
    }
}

async fn call(server: &McpServer) -> Result<McpAnswer, ToolError> {
    let call = server.clone().oneshot(ToolCall::new("echo"));
    let ended = timeout(Duration::from_secs(20), call).await;
    ended.expect("it hangs")
}

//= https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#session-management
//# If an `MCP-Session-Id` is returned by the server during initialization, clients using the
//# Streamable HTTP transport MUST include it in the `MCP-Session-Id` header on all of their
//# subsequent HTTP requests.
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
        let (loose, server) = connected().await;
        let answer = move |_: &Value| error(status, id.clone(), code, "no luck");
        loose.answers(answer);
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

//= https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#sending-messages-to-the-server
//# The client MUST support both these cases.
//= https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/streamable-http#sending-messages
//# The client MUST support both.
/// M-5: the same in a stream of events, whose other events stay as they are.
#[tokio::test]
async fn an_event_without_the_requests_id_is_the_answer_to_the_request() {
    let refusal = json!({ "code": -32603, "message": "no luck" });
    for id in [Value::Null, json!("server-error"), json!(4711)] {
        let (loose, server) = connected().await;
        let body = json!({ "jsonrpc": "2.0", "id": id, "error": refusal });
        loose.answers(move |_| event(&body));
        let error = call(&server).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Upstream, "{id}: {error}");
        assert!(error.message().contains("no luck"), "{error}");
        // A result, after a notification.
        let found = json!({ "jsonrpc": "2.0", "id": id, "result": { "content": [] } });
        let note = json!({ "level": "info", "data": { "id": 7, "error": "none" } });
        let note = json!({ "jsonrpc": "2.0", "method": "notifications/message", "params": note });
        let both = format!("data: {note}\n\ndata: {found}\n\n");
        let answer = move |_: &Value| {
            let both = both.clone();
            ([("content-type", "text/event-stream")], both).into_response()
        };
        loose.answers(answer);
        call(&server).await.unwrap();
        assert_eq!(loose.session.load(SeqCst), 1);
    }
}

/// H-1, K-6: the delay stands in a header, in the JSON or in the words of the answer. The rows have
/// status, body and header; the first one is GitHub's secondary limit.
#[tokio::test]
async fn a_limit_is_read_wherever_the_answer_names_it() {
    let rows = r#"
403|slow down|retry-after: 7|RateLimited NotStarted Some(7s)
403|no|x-ratelimit-remaining: 0|RateLimited NotStarted None
403|rpc {"code": -32000, "message": "no"}|retry-after-ms: 1500|RateLimited NotStarted Some(1.5s)
403|not for you|x-other: 1|Denied NotStarted None
429||x-ms-retry-after-ms: 1500|RateLimited NotStarted Some(1.5s)
429|try again in 20s|retry-after: 7|RateLimited NotStarted Some(7s)
429|try again in 20s|x-other: 1|RateLimited NotStarted Some(20s)
429|{"retry_after": 12}|x-other: 1|RateLimited NotStarted Some(12s)
429|rpc {"code": -32000, "message": "", "data": {"retryAfter": 3}}|x-other: 1|RateLimited NotStarted Some(3s)
503|busy|retry-after-ms: 250|Upstream NotStarted Some(250ms)
503|rpc {"code": -32603, "message": "busy"}|retry-after: 9|Upstream NotStarted Some(9s)
503|try again in 20s|x-other: 1|Upstream Unknown Some(20s)"#;
    let (loose, server) = connected().await;
    for row in rows.lines().skip(1) {
        let [status, words, header, expected] = row.split('|').collect::<Vec<_>>()[..] else {
            panic!("{row}")
        };
        let (name, value) = header.split_once(": ").unwrap();
        let status = StatusCode::from_u16(status.parse().unwrap()).unwrap();
        loose.answers(move |id| {
            let answer = match words.strip_prefix("rpc ") {
                Some(error) => {
                    let error: Value = serde_json::from_str(error).unwrap();
                    Json(json!({ "jsonrpc": "2.0", "id": id, "error": error })).into_response()
                }
                None => words.into_response(),
            };
            with_header((status, answer).into_response(), name, value)
        });
        let error = call(&server).await.unwrap_err();
        let found = (error.kind(), error.execution(), error.retry_after());
        assert_eq!(
            format!("{:?} {:?} {:?}", found.0, found.1, found.2),
            expected,
            "{row}: {error}"
        );
        assert!(error.status().is_some(), "{row}: {error}");
    }
    assert_eq!(loose.session.load(SeqCst), 1);
}

/// H-1: an endless body of a limit holds no call.
#[tokio::test]
async fn of_the_body_of_a_limit_a_bounded_part_is_read() {
    let (loose, server) = connected().await;
    for media_type in ["text/plain", "application/json"] {
        let kib = Arc::new(AtomicUsize::new(0));
        let sent = Arc::clone(&kib);
        let answer = move |_: &Value| {
            let sent = Arc::clone(&sent);
            let body = stream::repeat_with(move || {
                sent.fetch_add(1, SeqCst);
                Ok::<_, io::Error>("x".repeat(1024))
            });
            let answer = (StatusCode::TOO_MANY_REQUESTS, Body::from_stream(body));
            with_header(answer.into_response(), "content-type", media_type)
        };
        loose.answers(answer);
        let error = call(&server).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::RateLimited);
        // Some of it waits in buffers of sockets.
        let kib = kib.load(SeqCst);
        assert!(kib < 12 << 10, "{media_type}: {kib}");
    }
}

/// H-1: a stalled body of a refusal holds no call, and what has arrived of it is read.
#[tokio::test]
async fn the_rest_of_a_refusal_that_does_not_arrive_is_not_waited_for() {
    use ErrorKind::{RateLimited as Limited, Upstream};
    let (json, soon) = ("application/json", "try again in 9s");
    let rows = [
        (429, json, "{", Limited, 7),
        (429, "text/plain", soon, Limited, 7),
        (503, json, soon, Upstream, 9),
    ];
    let checked = rows.map(async |(status, media_type, begun, kind, delay)| {
        let (loose, server) = connected().await;
        let answer = move |_: &Value| {
            let begun = stream::iter([Ok::<_, io::Error>(begun)]).chain(stream::pending());
            let status = StatusCode::from_u16(status).unwrap();
            let answer = (status, Body::from_stream(begun)).into_response();
            let answer = with_header(answer, "content-type", media_type);
            match status.as_u16() {
                429 => with_header(answer, "retry-after", "7"),
                _ => answer,
            }
        };
        loose.answers(answer);
        let error = call(&server).await.unwrap_err();
        let found = (error.kind(), error.retry_after());
        assert_eq!(found, (kind, Some(Duration::from_secs(delay))), "{error}");
    });
    future::join_all(checked).await;
}

/// A tool may have run whose answer is cut, or is a page of a proxy's that is marked as JSON. 46:
/// other arguments do not change what is redirected. Nor does a repetition.
#[tokio::test]
async fn a_model_reads_one_order_of_an_answer_that_is_unusable() {
    let json =
        |body| says(move || with_header(text(200, body), "content-type", "application/json"));
    let moved = |status| says(move || with_header(text(status, ""), "location", "http://other/"));
    let (loose, server) = connected().await;
    for answer in [
        json(r#"{"jsonrpc":"2.0","id":"#),
        json("<html>Welcome</html>"),
        moved(301),
        moved(302),
        moved(308),
    ] {
        *loose.call.lock().unwrap() = Some(answer);
        let text = call(&server).await.unwrap_err().model_message();
        assert!(text.contains("its answer is unusable"), "{text}");
        assert!(!text.contains("change it"), "{text}");
    }
}

/// A session that is not known: the text is as long as that of other refusals.
#[tokio::test]
async fn of_a_long_refusal_of_a_session_the_beginning_is_read() {
    let (loose, server) = connected().await;
    let long = format!("no such session{}", " x".repeat(400));
    let answer = move |_: &Value| (StatusCode::BAD_REQUEST, long.clone()).into_response();
    loose.answers(answer);
    let error = call(&server).await.unwrap_err();
    assert_eq!(error.execution(), Execution::NotStarted);
    let message = error.message();
    assert!(
        message.contains("HTTP 400 Bad Request: no such session"),
        "{message}"
    );
    assert!(message.chars().count() < 300, "{message}");
}

/// M-5: the answer to the first request of a connection.
#[tokio::test]
async fn a_refusal_without_an_id_ends_the_attempt_to_connect() {
    let app = Router::new().route(
        "/mcp",
        post(|| async { error(500, Value::Null, -32603, "not today") }),
    );
    let server = at(app).await;
    let ended = timeout(Duration::from_secs(5), server.connect()).await;
    let error = ended.expect("it hangs").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionFailed);
    assert_eq!(error.execution(), Execution::NotStarted);
}

/// M-5: without any answer, and with a message that is not one. The tool may have run.
#[tokio::test]
async fn a_request_that_has_no_answer_ends_its_call() {
    let note = json!({ "jsonrpc": "2.0", "method": "notifications/message", "params": {} });
    let ping = json!({ "jsonrpc": "2.0", "id": 7, "method": "ping" });
    let answers: [Answer; 4] = [
        says(|| StatusCode::ACCEPTED.into_response()),
        says(|| StatusCode::NO_CONTENT.into_response()),
        says(move || Json(note.clone()).into_response()),
        says(move || Json(ping.clone()).into_response()),
    ];
    let checked = answers.map(async |answer| {
        let (loose, server) = connected().await;
        *loose.call.lock().unwrap() = Some(answer);
        let error = call(&server).await.unwrap_err();
        assert_eq!(error.execution(), Execution::Unknown, "{error}");
        let text = error.model_message();
        assert!(text.contains("its answer is unusable"), "{text}");
        *loose.call.lock().unwrap() = None;
        call(&server).await.unwrap();
        assert_eq!(loose.session.load(SeqCst), 1);
    });
    future::join_all(checked).await;
}

//= https://modelcontextprotocol.io/specification/2026-07-28/basic/authorization/authorization-server-discovery#protected-resource-metadata-discovery-requirements
//# MCP clients MUST be able to parse `WWW-Authenticate` headers and respond appropriately to `HTTP
//# 401 Unauthorized` responses from the MCP server.
/// M-6: each call fails once, and the next one has a new session.
#[tokio::test]
async fn a_lost_session_is_known_in_any_words() {
    use ErrorKind::{ConnectionFailed as Lost, Denied};
    use Execution::{NotStarted, Unknown};
    let words: [(Answer, ErrorKind, Execution); 15] = [
        (refuses(400, -32603, "Internal error"), Lost, Unknown),
        (refuses(400, -32001, "Session timed out"), Lost, Unknown),
        (refuses(500, -32603, "Session not found"), Lost, Unknown),
        (refuses(400, 500, "Session not found"), Lost, Unknown),
        (refuses(400, -32600, "who are you?"), Lost, Unknown),
        (no_id(400, -32000, "Server not initialized"), Lost, Unknown),
        (refuses(400, -32602, "Invalid session"), Lost, Unknown),
        (no_id(410, -32001, "gone"), Lost, Unknown),
        (refuses(422, 4711, "expected initialize"), Lost, Unknown),
        (says(|| text(400, "unknown client")), Lost, NotStarted),
        (says(|| text(404, "no")), Lost, NotStarted),
        (says(|| text(408, "session timed out")), Lost, Unknown),
        (says(|| text(410, "")), Lost, NotStarted),
        (says(|| challenge(401)), Denied, NotStarted),
        (says(|| challenge(403)), Denied, NotStarted),
    ];
    for (nth, (stranger, kind, execution)) in words.into_iter().enumerate() {
        let (loose, server) = serve(move |id| stranger(id)).await;
        server.connect().await.unwrap();
        call(&server).await.unwrap();
        loose.forget();
        let error = call(&server).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{nth}: {error}");
        assert_eq!(error.execution(), execution, "{nth}: {error}");
        assert!(!server.connection().is_connected(), "{nth}");
        call(&server).await.unwrap();
    }
}

/// M-6: the server knows the session, whatever it says to a call.
#[tokio::test]
async fn a_refused_call_is_not_a_lost_session_if_the_server_answers_a_ping() {
    let (loose, server) = connected().await;
    for status in [400, 401, 403, 408, 409, 410] {
        let json = refuses(status, -32600, "Bad Request");
        for answer in [json, says(move || challenge(status))] {
            *loose.call.lock().unwrap() = Some(answer);
            call(&server).await.unwrap_err();
        }
    }
    assert_eq!(loose.session.load(SeqCst), 1);
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

/// One tool, which has a parameter in a header or not. Each list has the next definition of it, and
/// says that it may be kept for a minute.
#[derive(Clone)]
struct Headed(Arc<Mutex<Vec<Value>>>);

impl ServerHandler for Headed {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let mut parameters = self.0.lock().unwrap();
        let parameter = match parameters.len() {
            1 => parameters[0].clone(),
            _ => parameters.remove(0),
        };
        let schema = json!({ "type": "object", "properties": { "owner": parameter } });
        let tool = Tool::new("echo", "", Arc::new(schema.as_object().unwrap().clone()));
        let mut list = ListToolsResult::with_all_items(vec![tool]);
        list.ttl_ms = Some(60_000);
        Ok(list)
    }
}

/// M-1: the second answer is the call's, and a list that explains nothing repeats nothing.
#[tokio::test]
async fn a_call_whose_headers_are_refused_is_sent_again_once_if_its_tool_has_any() {
    let plain = json!({ "type": "string" });
    let headed = json!({ "type": "string", "x-mcp-header": "Owner" });
    for (parameters, sent) in [
        (vec![headed.clone()], 2),
        (vec![plain.clone()], 1),
        (vec![plain, headed], 2),
    ] {
        let tools = Headed(Arc::new(Mutex::new(parameters)));
        let mcp = StreamableHttpService::new(
            move || Ok(tools.clone()),
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
        let server = at(app).await;
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
