//! client -> gateway -> stack -> server, in all ways.

use std::{sync::Arc, time::Duration};

use http::{HeaderName, HeaderValue};
use rmcp::{
    ClientHandler, ClientLifecycleMode, ClientServiceExt as _, RoleClient, ServerHandler,
    ServiceExt as _,
    model::{
        CallToolRequestParams, CallToolResponse, ErrorData, ProgressNotificationParam,
        ProtocolVersion,
    },
    service::{NotificationContext, RunningService, ServiceError},
    transport::{
        IntoTransport, StreamableHttpClientTransport, StreamableHttpServerConfig,
        StreamableHttpService,
        streamable_http_client::StreamableHttpClientTransportConfig,
        streamable_http_server::session::{SessionManager, local::LocalSessionManager},
    },
};
use serde_json::{Value, json};
use tokio::{
    net::TcpListener,
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    task::AbortHandle,
    time::timeout,
};
use tower::{ServiceBuilder, util::BoxCloneSyncService};
use tower_toolcall::{
    ServiceBuilderExt as _, ToolCall, ToolError,
    backoff::Backoff,
    circuit_breaker::{CircuitBreakerLayer, Trip},
    retry::RetryPolicy,
    router::Router,
    timeout::TimeoutLayer,
};
use tower_toolcall_mcp::{self as mcp, GatewayHandler, McpAnswer, McpNotifications, McpService};

use super::upstream::Upstream;

/// How a client speaks with a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Stream,
    StreamModern,
    Http,
    HttpModern,
}

pub(crate) const WAYS: [Way; 4] = [Way::Stream, Way::StreamModern, Way::Http, Way::HttpModern];

/// Their time may be paused: no socket is waited for.
pub(crate) const STREAMS: [Way; 2] = [Way::Stream, Way::StreamModern];
pub(crate) const HTTP: [Way; 2] = [Way::Http, Way::HttpModern];

/// Goes with every request over HTTP.
pub(crate) const REQUEST_ID: HeaderValue = HeaderValue::from_static("r-17");

impl Way {
    pub(crate) fn is_modern(self) -> bool {
        matches!(self, Self::StreamModern | Self::HttpModern)
    }
}

/// A client, and what keeps its server up.
pub(crate) struct Connected {
    pub(crate) client: RunningService<RoleClient, Listener>,
    pub(crate) heard: Heard,
    server: Server,
}

/// Of HTTP; the one at the end of a stream ends with it.
pub(crate) struct Server(Option<AbortHandle>);

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(server) = &self.0 {
            server.abort();
        }
    }
}

impl Connected {
    pub(crate) fn apart(self) -> (RunningService<RoleClient, Listener>, Server) {
        (self.client, self.server)
    }

    pub(crate) async fn call(
        &self,
        tool: &'static str,
        arguments: Value,
    ) -> Result<CallToolResponse, ServiceError> {
        let peer = self.client.peer().clone();
        request(peer, tool, arguments).await
    }

    /// The answer as it is written; a JSON-RPC error too.
    pub(crate) async fn body(&self, tool: &'static str, arguments: Value) -> Value {
        match self.call(tool, arguments).await {
            Ok(CallToolResponse::Complete(result)) => json!(result),
            Ok(CallToolResponse::InputRequired(result)) => json!(result),
            Ok(other) => panic!("{other:?}"),
            Err(ServiceError::McpError(error)) => json!(error),
            Err(error) => panic!("{error}"),
        }
    }

    pub(crate) async fn error(&self, tool: &'static str) -> ErrorData {
        match self.call(tool, json!({})).await {
            Err(ServiceError::McpError(error)) => error,
            other => panic!("{other:?}"),
        }
    }
}

pub(crate) async fn request(
    peer: rmcp::Peer<RoleClient>,
    tool: &'static str,
    arguments: Value,
) -> Result<CallToolResponse, ServiceError> {
    let mut params = CallToolRequestParams::new(tool);
    params.arguments = arguments.as_object().cloned();
    let answer = timeout(Duration::from_secs(60), peer.call_tool_once(params)).await;
    answer.expect("an answer")
}

/// A client handler that tells what it hears.
#[derive(Clone)]
pub(crate) struct Listener {
    progress: UnboundedSender<ProgressNotificationParam>,
    changes: UnboundedSender<()>,
}

pub(crate) struct Heard {
    pub(crate) progress: UnboundedReceiver<ProgressNotificationParam>,
    pub(crate) changes: UnboundedReceiver<()>,
}

fn listener() -> (Listener, Heard) {
    let (progress, heard_progress) = unbounded_channel();
    let (changes, heard_changes) = unbounded_channel();
    let heard = Heard {
        progress: heard_progress,
        changes: heard_changes,
    };
    (Listener { progress, changes }, heard)
}

impl ClientHandler for Listener {
    async fn on_progress(
        &self,
        params: ProgressNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        let _ = self.progress.send(params);
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        let _ = self.changes.send(());
    }
}

pub(crate) async fn connect<S: ServerHandler + Clone>(way: Way, server: S) -> Connected {
    match way {
        Way::Stream | Way::StreamModern => speak(way, stream(server)).await,
        Way::Http | Way::HttpModern => {
            let (url, server) = http(server).await;
            let client = connect_to(way, url, []).await;
            let server = Server(Some(server));
            Connected { server, ..client }
        }
    }
}

/// To a server over HTTP that is there; with these headers on every request.
pub(crate) async fn connect_to(
    way: Way,
    url: String,
    headers: impl IntoIterator<Item = (&'static str, &'static str)>,
) -> Connected {
    let mut config = StreamableHttpClientTransportConfig::with_uri(url);
    let id = (HeaderName::from_static("x-request-id"), REQUEST_ID);
    let more = headers.into_iter().map(|(name, value)| {
        let name = HeaderName::from_static(name);
        (name, HeaderValue::from_static(value))
    });
    config.custom_headers.extend([id].into_iter().chain(more));
    speak(way, StreamableHttpClientTransport::from_config(config)).await
}

async fn speak<T, E, A>(way: Way, transport: T) -> Connected
where
    T: IntoTransport<RoleClient, E, A>,
    E: std::error::Error + Send + Sync + 'static,
{
    let (handler, heard) = listener();
    let client = match way.is_modern() {
        true => handler.serve_with_lifecycle(transport, discover()).await,
        false => handler.serve(transport).await,
    };
    Connected {
        client: client.unwrap(),
        heard,
        server: Server(None),
    }
}

/// Serves one end of a pipe.
pub(crate) fn stream<S: ServerHandler>(server: S) -> tokio::io::DuplexStream {
    let (theirs, ours) = tokio::io::duplex(64 * 1024);
    tokio::spawn(async move {
        let running = server.serve(theirs).await?;
        running.waiting().await.map_err(anyhow::Error::from)
    });
    ours
}

pub(crate) async fn http<S: ServerHandler + Clone>(server: S) -> (String, AbortHandle) {
    http_with(server, StreamableHttpServerConfig::default()).await
}

pub(crate) async fn http_with<S: ServerHandler + Clone>(
    server: S,
    config: StreamableHttpServerConfig,
) -> (String, AbortHandle) {
    http_in(server, config, Arc::new(LocalSessionManager::default())).await
}

pub(crate) async fn http_in<S: ServerHandler + Clone, M: SessionManager>(
    server: S,
    config: StreamableHttpServerConfig,
    sessions: Arc<M>,
) -> (String, AbortHandle) {
    let mcp = StreamableHttpService::new(move || Ok(server.clone()), sessions, config);
    let app = axum::Router::new().nest_service("/mcp", mcp);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let server = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    (url, server.abort_handle())
}

pub(crate) type Stack = BoxCloneSyncService<ToolCall, McpAnswer, ToolError>;

/// A gateway to a server, and what keeps the connection between them up.
pub(crate) struct Gateway {
    pub(crate) handler: GatewayHandler,
    pub(crate) upstream: Upstream,
    pub(crate) behind: RunningService<RoleClient, McpNotifications>,
    pub(crate) tools: McpNotifications,
}

/// A gateway with a small stack: timeouts after 300 ms, two attempts at what may run twice, a
/// breaker after 3 failures.
pub(crate) async fn gateway() -> Gateway {
    gateway_with(true, |router| {
        GatewayHandler::new(small_stack(router.clone()), router)
    })
    .await
}

pub(crate) fn small_stack(router: Router<McpAnswer>) -> Stack {
    let policy = RetryPolicy::new()
        .with_attempts(2)
        .unwrap()
        .with_backoff(Backoff::fixed(Duration::from_millis(1)).unwrap());
    let breaker = CircuitBreakerLayer::builder().with_trip(Trip::consecutive_failures(3));
    let stack = ServiceBuilder::new()
        .tool_retry(policy)
        .layer(breaker.build().unwrap())
        .layer(TimeoutLayer::new(Duration::from_millis(300)))
        .service(router);
    Stack::new(stack)
}

/// A gateway whose stack waits for ever.
pub(crate) async fn patient() -> Gateway {
    gateway_with(true, |router| GatewayHandler::new(router.clone(), router)).await
}

/// The gateway speaks the newer revision with its server, or the older one.
pub(crate) async fn gateway_with(
    modern: bool,
    make: impl FnOnce(Router<McpAnswer>) -> GatewayHandler,
) -> Gateway {
    let upstream = Upstream::default();
    let tools = McpNotifications::new();
    let ours = stream(upstream.clone());
    let behind = match modern {
        true => tools.clone().serve_with_lifecycle(ours, discover()).await,
        false => tools.clone().serve(ours).await,
    };
    let behind = behind.unwrap();
    tools.tools().refresh(behind.peer()).await.unwrap();
    let leaf = McpService::new(behind.peer().clone()).with_progress(tools.progress().clone());
    let router = mcp::router().server("docs", leaf, tools.tools().clone());
    Gateway {
        handler: make(router.build().unwrap()),
        upstream,
        behind,
        tools,
    }
}

pub(crate) fn discover() -> ClientLifecycleMode {
    ClientLifecycleMode::Discover {
        preferred_versions: vec![ProtocolVersion::V_2026_07_28],
    }
}
