use std::{
    ffi::OsString,
    future::Future,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use futures_util::TryFutureExt as _;
#[cfg(feature = "http")]
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::{
    RoleClient,
    model::{ProtocolVersion, SubscriptionFilter},
    service::{
        ClientInitializeError::NoCompatibleProtocolVersion, ClientLifecycleMode,
        ClientServiceExt as _, Peer,
    },
    transport::{IntoTransport, Transport},
};
use tokio::process::Command;
use tower_service::Service;
use tower_toolcall::{
    ConfigError,
    call::{Identity, ReplaySafety, ToolCall},
    error::{AnyError, BoxError, ErrorKind, ToolError},
    identity::Resolve,
    policy::{Annotate, Annotations},
};

use super::{
    Catalog, McpAnswer, McpBounded, McpConnection, McpNotifications, McpReconnect, McpService,
    McpTools, ResponseFuture,
    bounds::Limits,
    child::{Child, Started},
    probe::{Probed, no_common_revision},
    service::has_session,
};
#[cfg(feature = "http")]
use super::{McpHttpClient, http_client};

/// A package runner may have to download the server first.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(60);

/// How long a server over HTTP may take to answer a ping.
#[cfg(feature = "http")]
const PING: Duration = Duration::from_secs(5);

/// One MCP server: its tools as a service, the list of them, and a connection that is made again
/// when it is lost.
///
/// ```no_run
/// use std::time::Duration;
/// use tower::{ServiceBuilder, ServiceExt as _};
/// use tower_toolcall::{
///     BoxError, ToolCall, identity::IdentityLayer, retry::RetryLayer, timeout::TimeoutLayer,
/// };
/// use tower_toolcall_mcp::McpServer;
///
/// # async fn run() -> Result<(), BoxError> {
/// let docs = McpServer::command("docs", "npx", ["-y", "docs-server"]).trust_annotations();
/// docs.connect().await?; // starts the process, and reads the list of tools
///
/// let stack = ServiceBuilder::new()
///     .layer(IdentityLayer::new(docs.clone()))
///     .layer(RetryLayer::default()) // repeats calls of tools that only read
///     .layer(TimeoutLayer::default())
///     .service(docs.clone());
/// let answer = stack.oneshot(ToolCall::new("search")).await?;
///
/// docs.close().await;
/// # let _ = answer; Ok(()) }
/// ```
///
/// The server puts together an [`McpReconnect`], an [`McpTools`] and an [`McpNotifications`]:
///
/// - **Revision.** Negotiates the newest revision of the protocol that both sides know. A server
///   that names unknown revisions alone is an error, with both lists.
/// - **Bounds.** Answers are bounded in values before they are parsed
///   ([`with_max_values`](Self::with_max_values)), and so are the server's own requests
///   ([`with_max_requests`](Self::with_max_requests)).
/// - **Connection.** Reconnects as [`McpReconnect`] does, within 60 s for each attempt. Set the
///   rest by [`with_connection`](Self::with_connection).
/// - **List.** Reads the list of tools with each connection, and follows the changes that the
///   server reports. A connection without a list counts as failed.
/// - **Identity.** Resolves names ([`IdentityLayer`](tower_toolcall::identity::IdentityLayer)) and
///   annotations ([`PolicyLayer`](tower_toolcall::policy::PolicyLayer)) by that list. Before the
///   first connection any name passes, and nothing is known of its tool: [`connect`](Self::connect)
///   first.
/// - **Progress.** Passes the server's progress to idle timeouts.
///
/// Clones share everything. The last clone ends the connection when it is dropped.
#[derive(Clone, Debug)]
pub struct McpServer {
    calls: McpReconnect,
    tools: McpTools,
    started: Started,
    limits: Limits,
}

impl McpServer {
    /// Returns a server that is a child process of this program: `program` with these arguments.
    /// `server` is its name in errors and events. The process is started with the connection, and
    /// started again when it has ended.
    ///
    /// stdin and stdout are pipes. A message of more than 16 MiB or 200,000 values is an error of
    /// its call: see [`McpLines`](super::McpLines). stderr is that of this program, as it is: what
    /// the process writes there is neither redacted nor escaped, because it has this program's
    /// rights anyway, and its last words must not be lost when it crashes.
    ///
    /// # Process
    ///
    /// On Unix the process leads a process group of its own, because `npx` or `uvx` run the server
    /// as a child of theirs. Ctrl-C in a terminal does not reach it. Its stdin is closed when the
    /// connection ends. A process that has not ended after 3 s gets a SIGTERM with its group, and
    /// is killed 3 s later. If the runtime shuts down meanwhile, the group gets the SIGTERM
    /// immediately. On other systems the process alone is killed. [`process_id`](Self::process_id)
    /// returns its id.
    pub fn command<A: Into<OsString>>(
        server: impl Into<Arc<str>>,
        program: impl Into<OsString>,
        arguments: impl IntoIterator<Item = A>,
    ) -> Self {
        let program = program.into();
        let arguments: Vec<OsString> = arguments.into_iter().map(Into::into).collect();
        Self::spawn(server, move || {
            let mut command = Command::new(&program);
            command.args(&arguments);
            command
        })
    }

    /// Returns a server that is a child process, as [`command`](Self::command) does, for a command
    /// with an environment, a directory or an stderr of its own. Each start calls `command`. What
    /// it sets for stdin and stdout does not hold.
    pub fn spawn(
        server: impl Into<Arc<str>>,
        command: impl Fn() -> Command + Send + Sync + 'static,
    ) -> Self {
        let started = Started::default();
        let starts = started.clone();
        let server = Self::connected_by(server.into(), move |list, limits| {
            let process = Child::start(command(), starts.clone(), limits.values());
            let starts = starts.clone();
            let connected = async move { connected(list, &limits, process?).await };
            connected.map_err(move |error| {
                let ended = |why| ToolError::new(ErrorKind::ConnectionFailed, why).into();
                starts.take_end().map_or(error, ended)
            })
        });
        Self { started, ..server }
    }

    /// Returns a server that is reached by any transport of rmcp's. Each connection calls
    /// `transport`.
    ///
    /// An error of `transport` is read by its type. To use a `From<YourError> for ToolError`,
    /// return `Result<_, ToolError>`, to which `?` converts.
    ///
    /// For streamable HTTP see `McpServer::http` (feature `http`), and the
    /// [notes](McpReconnect#over-http) of [`McpReconnect`].
    pub fn new<F, Fut, T, E, TransportError, Adapter>(
        server: impl Into<Arc<str>>,
        transport: F,
    ) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<T, E>> + Send + 'static,
        T: IntoTransport<RoleClient, TransportError, Adapter>,
        E: Into<AnyError>,
        TransportError: std::error::Error + Send + Sync + 'static,
        Adapter: 'static,
    {
        Self::connected_by(server.into(), move |list, limits| {
            let transport = transport();
            async move {
                let transport = transport.await.map_err(|e| e.into().into_inner())?;
                connected(list, &limits, transport.into_transport()).await
            }
        })
    }

    fn connected_by<F, Fut>(server: Arc<str>, connect: F) -> Self
    where
        F: Fn(McpTools, Limits) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<McpConnection, BoxError>> + Send + 'static,
    {
        let tools = McpTools::new(Catalog::default().with_server(Arc::clone(&server)));
        let limits = Limits::default();
        let (list, bounds) = (tools.clone(), limits.clone());
        let connect = move || connect(list.clone(), bounds.clone());
        let mut calls = McpReconnect::new(server, connect);
        calls.settings.connect_timeout = CONNECT_TIMEOUT;
        Self {
            calls,
            tools,
            started: Started::default(),
            limits,
        }
    }

    /// Returns a server that is reached by streamable HTTP at this address.
    ///
    /// ```
    /// use tower_toolcall_mcp::McpServer;
    ///
    /// let web = McpServer::http("web", "http://localhost:8000/mcp");
    /// # let _ = web;
    /// ```
    ///
    /// The settings are for a server that may be restarted, or may answer loosely:
    ///
    /// - [`McpHttpClient`](crate::McpHttpClient) sends the requests, 1,024 at a time.
    /// - A stream of answers that breaks is taken up again four times within 1.5 s, and then the
    ///   call fails.
    /// - A server that answers no [ping](McpReconnect::with_ping) within 5 s is connected to again.
    ///
    /// An address with `https` needs a TLS feature of reqwest's in your program.
    #[cfg(feature = "http")]
    pub fn http(server: impl Into<Arc<str>>, uri: impl Into<Arc<str>>) -> Self {
        Self::http_with(server, StreamableHttpClientTransportConfig::with_uri(uri))
    }

    /// Returns a server as [`http`](Self::http) does, with headers, authorization and limits of
    /// sizes by `config`. Its `retry_config` and `max_concurrent_requests` do not hold.
    #[cfg(feature = "http")]
    pub fn http_with(
        server: impl Into<Arc<str>>,
        config: StreamableHttpClientTransportConfig,
    ) -> Self {
        let client = McpHttpClient::default();
        let mut server = Self::connected_by(server.into(), move |list, limits| {
            let client = client.clone().with_max_values(limits.values());
            let transport = http_client::transport(client, &config);
            async move { connected(list, &limits, transport).await }
        });
        // No connection shows the end of a server over HTTP.
        server.calls.settings.ping = Some(PING);
        server
    }

    /// Believes what the server says of its own tools: calls of a tool that only reads, or is
    /// idempotent, may be repeated. Default: not believed, so no call that may have run is
    /// repeated.
    ///
    /// Schemas of its tools are compiled as trusted ones, in 1 s together; of other servers, those
    /// that refer to themselves are not enforced.
    ///
    /// To start a server yourself is a good reason to trust it.
    #[must_use]
    pub fn trust_annotations(self) -> Self {
        self.tools
            .configure(|catalog| catalog.trust_annotations(true));
        self
    }

    /// Says whether calls of a tool may be repeated, whatever the server says.
    #[must_use]
    pub fn with_replay_safety(self, tool: impl Into<String>, replay: ReplaySafety) -> Self {
        let tool = tool.into();
        self.tools
            .configure(|catalog| catalog.with_replay_safety(tool.clone(), replay));
        self
    }

    /// Sets how many values a message of the server may have: 200,000 by default, which take up to
    /// 100 MB. A larger answer is an error of its call, and is not parsed. For the next connection;
    /// without effect on a server with a transport [of your own](Self::new), which may have
    /// [`McpLines`](super::McpLines).
    #[must_use]
    pub fn with_max_values(self, max: usize) -> Self {
        self.limits.set_values(max);
        self
    }

    /// Sets how many requests of the server may wait for their answers: 1,000 by default. Beyond
    /// that the connection is given up, as [`McpBounded`] does it. For the next connection.
    #[must_use]
    pub fn with_max_requests(self, max: usize) -> Self {
        self.limits.set_requests(max);
        self
    }

    /// Changes the settings of the connection.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_toolcall_mcp::McpServer;
    ///
    /// # fn main() -> Result<(), tower_toolcall::ConfigError> {
    /// let docs = McpServer::command("docs", "docs-server", ["--stdio"])
    ///     .with_connection(|connection| connection.with_ping(Duration::from_secs(10)))?;
    /// # let _ = docs; Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// Those of the settings.
    pub fn with_connection(
        mut self,
        change: impl FnOnce(McpReconnect) -> Result<McpReconnect, ConfigError>,
    ) -> Result<Self, ConfigError> {
        self.calls = change(self.calls)?;
        Ok(self)
    }

    /// Returns the server's name.
    pub fn name(&self) -> &Arc<str> {
        self.calls.server()
    }

    /// Returns the id of the process that was started last, whether it is connected or not. `None`
    /// before the first start, when the process is known to have ended, and for a server that is
    /// not a child process.
    pub fn process_id(&self) -> Option<u32> {
        self.started.id()
    }

    /// Returns the connection.
    pub fn connection(&self) -> &McpReconnect {
        &self.calls
    }

    /// Returns the list of tools. For a `Router`, and for the tools that a model
    /// is given.
    pub fn tools(&self) -> &McpTools {
        &self.tools
    }

    /// Keeps the schemas of its tools in `schemas`, as [`McpTools::with_schemas`] does, for a
    /// [`ValidateLayer`](tower_toolcall::validate::ValidateLayer).
    ///
    /// ```
    /// use tower::ServiceBuilder;
    /// use tower_toolcall::{ServiceBuilderExt, validate::{Schemas, ValidateLayer}};
    /// use tower_toolcall_mcp::McpServer;
    ///
    /// let schemas = Schemas::new();
    /// let server = McpServer::command("docs", "docs-server", [""; 0]).with_schemas(&schemas);
    /// let tools = ServiceBuilder::new()
    ///     .tool_identity(server.clone())
    ///     .layer(ValidateLayer::new(&schemas))
    ///     .tool(server);
    /// # let _ = tools;
    /// ```
    #[cfg(feature = "validate")]
    #[cfg_attr(docsrs, doc(cfg(feature = "validate")))]
    #[must_use]
    pub fn with_schemas(self, schemas: &tower_toolcall::validate::Schemas) -> Self {
        let _ = self.tools.clone().with_schemas(schemas);
        self
    }

    /// Connects and reads the list of tools, if not connected.
    ///
    /// # Errors
    ///
    /// Those of a call without a connection.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not stop the attempt.
    pub async fn connect(&self) -> Result<(), ToolError> {
        self.calls.connect().await
    }

    /// Ends the connection, as [`McpReconnect::close`] does, and waits until the server's process
    /// has ended: 6 s at most. A later call starts it again.
    ///
    /// # Cancel safety
    ///
    /// Dropped, it leaves the connection to end by itself.
    pub async fn close(&self) {
        self.calls.close().await;
    }
}

/// Connects and reads the list of tools.
async fn connected(
    list: McpTools,
    limits: &Limits,
    transport: impl Transport<RoleClient> + 'static,
) -> Result<McpConnection, BoxError> {
    let handler = || McpNotifications::new().with_tools(list.clone());
    let newest = vec![ProtocolVersion::LATEST];
    let any = ClientLifecycleMode::Auto {
        preferred_versions: newest.clone(),
        legacy_version: Some(ProtocolVersion::LATEST_WITH_INITIALIZE),
    };
    let discover = ClientLifecycleMode::Discover {
        preferred_versions: newest,
    };
    let bounded = McpBounded::new(transport).with_max_requests(limits.requests());
    let given_up = bounded.given_up();
    let (probed, mut given_back) = Probed::new(bounded);
    let served = handler().serve_with_lifecycle(probed, any).await;
    let served = match (served, given_back.try_recv()) {
        (Err(_), Ok(transport)) => {
            let (probed, _) = Probed::new(transport);
            handler().serve_with_lifecycle(probed, discover).await
        }
        (served, _) => served,
    };
    let client = match served {
        Err(NoCompatibleProtocolVersion {
            server_supported, ..
        }) => return Err(no_common_revision(server_supported)),
        served => served?,
    };
    let spoken = client.peer().peer_info();
    let spoken = spoken.map(|server| server.protocol_version.clone());
    if let Some(unknown) = spoken.filter(|it| !ProtocolVersion::KNOWN_VERSIONS.contains(it)) {
        return Err(no_common_revision(vec![unknown]));
    }
    //= https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/subscriptions#graceful-closure
    //# On stdio, if the connection is terminated and then re-established, the client MUST re-send
    //# `subscriptions/listen` to re-establish its subscriptions — the server holds no subscription
    //# state across reconnections.
    let listens = follow(client.service().tools(), client.peer()).await;
    client.service().tools().refresh(client.peer()).await?;
    if let Some(listens) = listens {
        tokio::spawn(listens);
    }
    let progress = client.service().progress().clone();
    let service = McpService::new(client.peer().clone()).with_progress(progress);
    Ok(McpConnection::of_client(client, service).with_given_up(given_up))
}

//= https://modelcontextprotocol.io/specification/2026-07-28/schema#requestmetaobject
//# Servers SHOULD NOT use it to change their behavior, and SHOULD NOT rely on it for security
//# decisions.
//= https://modelcontextprotocol.io/specification/2026-07-28/schema#resultmetaobject
//# Clients SHOULD NOT use it to change their behavior, and SHOULD NOT rely on it for security
//# decisions.
//= https://modelcontextprotocol.io/specification/2026-07-28/basic/index#_meta
//# Implementations SHOULD NOT use them to change the behavior of the client or server, and SHOULD
//# NOT rely on them for security decisions.
//= https://modelcontextprotocol.io/specification/2026-07-28/server/discover#discoverresult
//# Clients SHOULD NOT use it to change their behavior, and SHOULD NOT rely on it for security
//# decisions.
/// In revisions from 2026-07-28 on changes of the list are reported to clients that ask for them.
/// The returned future passes them on, and ends with the connection.
async fn follow(
    tools: &McpTools,
    peer: &Peer<RoleClient>,
) -> Option<impl Future<Output = ()> + Send + use<>> {
    let server = peer.peer_info()?;
    let changes = server.capabilities.tools.as_ref()?.list_changed == Some(true);
    if has_session(peer) != Some(false) || !changes {
        return None;
    }
    let filter = SubscriptionFilter::builder().tools_list_changed().build();
    let mut changes = match peer.listen(filter).await {
        Ok(changes) => changes,
        Err(error) => {
            tools.is_stale(&super::errors::from_service(error));
            return None;
        }
    };
    let (tools, peer) = (tools.clone(), peer.clone());
    Some(async move {
        while let Ok(Some(_)) = changes.next().await {
            tools.changed(&peer).await;
        }
    })
}

impl Service<ToolCall> for McpServer {
    type Response = McpAnswer;
    type Error = ToolError;
    type Future = ResponseFuture;

    /// Always ready.
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ToolError>> {
        self.calls.poll_ready(cx)
    }

    fn call(&mut self, call: ToolCall) -> Self::Future {
        self.calls.call(call)
    }
}

/// By the list of tools.
impl Resolve for McpServer {
    fn resolve(&self, call: &ToolCall) -> Result<Option<Identity>, ToolError> {
        self.tools.resolve(call)
    }

    fn identities(&self) -> Option<Vec<Identity>> {
        self.tools.identities()
    }
}

/// By the list of tools.
impl Annotate for McpServer {
    fn annotations(&self, call: &ToolCall) -> Option<Annotations> {
        self.tools.annotations(call)
    }
}
