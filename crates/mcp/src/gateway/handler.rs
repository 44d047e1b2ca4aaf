use std::{fmt, future::Future, num::NonZeroUsize, sync::Arc};

use rmcp::model::{
    Implementation, JsonObject, RequestStateCodec, ServerCapabilities, ServerConfig,
    TASKS_EXTENSION_ID, Tool,
};
use tokio::{
    sync::watch,
    time::{Instant, timeout_at},
};
use tower::{ServiceExt as _, service_fn, util::BoxCloneSyncService};
use tower_layer::Layer as _;
use tower_service::Service;
use tower_toolcall::{
    ConfigError,
    call::{Identity, ToolCall, Trust},
    catch_panic::CatchPanicLayer,
    circuit_breaker::CircuitBreakerHandle,
    error::ToolError,
    health::Health,
    identity::{IdentityLayer, Resolve},
};

use super::{drain::Drain, rounds::States, session::Session};
use crate::{McpAnswer, McpTools};

pub(super) type Stack = BoxCloneSyncService<ToolCall, McpAnswer, ToolError>;

/// How many tools a page of the list has, unless it is set.
const PAGE: NonZeroUsize = NonZeroUsize::new(1000).expect("not zero");

/// An MCP server that runs its tools through a stack: an rmcp `ServerHandler`, for every transport
/// and both lifecycles of rmcp.
///
/// A client's `tools/call` becomes a [`ToolCall`]; the answer of the stack goes back unchanged,
/// also with `isError: true`. With a [`Router`](tower_toolcall::router::Router) over
/// [`McpService`](crate::McpService)s innermost, it is a gateway to other servers. For one server
/// the list of tools is [`McpServer::tools`](crate::McpServer::tools):
/// `GatewayHandler::new(stack, server.tools().clone())`.
///
/// # Example
///
/// ```toml
/// axum = "0.8"
/// [dependencies.rmcp]
/// version = "3.11"
/// features = ["client", "server", "transport-child-process", "transport-streamable-http-server"]
/// # A clone: the crates are not published yet.
/// tower-toolcall = { path = "../tower-toolcall", features = ["settings"] }
/// tower-toolcall-mcp = { path = "../tower-toolcall/crates/mcp", features = ["server-http"] }
/// ```
///
#[cfg_attr(feature = "server-http", doc = "```no_run")]
#[cfg_attr(not(feature = "server-http"), doc = "```ignore")]
/// use std::{sync::Arc, time::Duration};
/// use axum::serve::ListenerExt as _;
/// use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
/// use tokio::time::{sleep, timeout};
/// use tower::ServiceBuilder;
/// use tower_toolcall::{BoxError, ServiceBuilderExt};
/// use tower_toolcall_mcp::{
///     self as mcp, GatewayHandler, McpBodies, McpReconnect, McpSessions, McpTools,
/// };
///
/// # async fn run(docs: McpReconnect, list: McpTools) -> Result<(), BoxError> {
/// // A connection to a server, and its list of tools: see `McpReconnect`.
/// let docs = docs.with_ping(Duration::from_secs(5))?; // replaces a hanging connection
/// let router = mcp::router().server("docs", docs, list.clone()).build()?;
/// let stack = ServiceBuilder::new()
///     .tool_circuit_breaker()
///     .tool_timeout(Duration::from_secs(30))
///     .service(router.clone());
/// let gateway = GatewayHandler::new(stack, router);
/// gateway.follow(&list); // notifies clients of a new list
///
/// let config = StreamableHttpServerConfig::default()
///     .with_allowed_hosts(["localhost", "127.0.0.1", "[::1]", "tools.example.com"])
///     .with_allowed_origins(["https://tools.example.com:443"]);
/// let sessions = Arc::new(McpSessions::new(1000)?);
/// let (each, end) = (gateway.clone(), config.cancellation_token.clone());
/// let mcp = StreamableHttpService::new(move || Ok(each.clone()), sessions, config);
/// let listener = tokio::net::TcpListener::bind("127.0.0.1:8080").await?;
/// // Without it each answer waits 40 ms for the client to acknowledge its first part.
/// let listener = listener.tap_io(|tcp| drop(tcp.set_nodelay(true)));
/// let app = axum::Router::new().nest_service("/mcp", McpBodies::new(mcp));
/// let serve = axum::serve(listener, app).with_graceful_shutdown(async move {
///     let _ = tokio::signal::ctrl_c().await;
///     if timeout(Duration::from_secs(10), gateway.drain()).await.is_err() {
///         println!("cut short: {:?}", gateway.cut_short().await);
///     }
///     sleep(Duration::from_secs(1)).await; // the last answers are on their way
///     end.cancel();
/// });
/// serve.await?;
/// # Ok(()) }
/// ```
///
/// With the layers of a file (`settings` of the collection, `preset = "gateway"`) the stack is
///
/// ```
/// # use tower::ServiceBuilder;
/// # use tower_toolcall::{BoxError, router::Router, settings::Settings};
/// # use tower_toolcall_mcp::{McpAnswer, McpClassifier};
/// # fn stack(settings: Settings, router: Router<McpAnswer>) -> Result<(), BoxError> {
/// let layers = settings.stack().with_classifier(McpClassifier::new()).build()?;
/// let stack = ServiceBuilder::new().layer(layers).service(router.clone());
/// # let _ = stack; Ok(()) }
/// ```
///
/// # In production
///
/// The needs of a gateway over HTTP beside its stack, as in the example above; the
/// crate `toolcall-gateway` has all of it, with JSON-RPC and plain HTTP beside MCP.
///
/// - **clients that begin sessions without end**: `McpSessions` (feature `server-http`), at most
///   1,000 by default. rmcp's `LocalSessionManager` has no limit: 20,000 sessions take 1 GB
/// - **bodies of many small values, which take 100 times their bytes**: `McpBodies` (feature
///   `server-http`): at most [`MAX_VALUES`](tower_toolcall::MAX_VALUES) values. Over stdio:
///   [`McpLines`](crate::McpLines)
/// - **many calls together, each with a large body**: a bound of calls in flight in front of both
///   routes, before bodies are read, as `toolcall-gateway` has it (`--calls`): a call takes up to
///   13 MB beside its strings
/// - **heads and bodies that never end**: time limits, and a limit of connections, as
///   `toolcall-gateway` has them. `axum::serve` has none
/// - **a client over stdio that sends requests and reads no answer**:
///   [`McpBounded`](crate::McpBounded)
/// - **a server that is stopped or stuck**:
///   [`McpReconnect::with_ping`](crate::McpReconnect::with_ping): after a call that timed out the
///   server has to answer a ping, or else it is replaced
/// - **pages of foreign sites in a user's browser (DNS rebinding)**: rmcp's `with_allowed_hosts`,
///   by default those of the loopback interface, and `with_allowed_origins`, or
///   `enforce_origin_validation` for none: by default rmcp allows all. Other routes of the same
///   server, for metrics for example, need it as well: see `tower_toolcall::serve`
/// - **a shutdown in the middle of calls**: [`drain`](Self::drain): no new calls, and time for
///   those that run; then [`cut_short`](Self::cut_short): an answer for each that is left, and its
///   name for the operator. Routes beside MCP's share it if they are made of [`stack`](Self::stack)
///
/// Without sessions at all (rmcp's `with_legacy_session_mode(false)`) clients of the revisions
/// before 2026-07-28 are not told of a new list, and cancel a call only by hanging up.
///
/// # Calls
///
/// - `name`, `arguments`: the tool and its arguments, within [`ToolCall::check`]; the name is
///   [resolved](ListTools::resolve). A tool with a name that some models' providers refuse is
///   listed under another one, which [`Names`](tower_toolcall::router::Names) makes, with its own
///   as the title; both can be called
/// - **the request's id**: the end of the call's [id](ToolCall::id), which is unique in the
///   process, if it is fit for logs
/// - **headers, over HTTP**: what [`with_request_headers`](ToolCall::with_request_headers) takes
///   up; a deadline [by setting](Self::take_deadlines) only
/// - **its session, or the connection over stdio**: the [session id](ToolCall::session_id), `s` and
///   a number of this process; [not verified](ToolCall::with_unverified_ids)
/// - **its extensions, over HTTP**: what
///   [`with_request_extensions`](ToolCall::with_request_extensions) takes up: a verified caller,
///   the peer's address
/// - `_meta.traceparent` (feature `otel`): the parent of the call's span, before the header
/// - `_meta.progressToken`: the progress of an `McpService` [with
///   progress](crate::McpService::with_progress) reaches the client under this token: the newest,
///   growing, at most ten times a second, and nothing after the answer
/// - `inputResponses`, `requestState`: [`McpExtras`](crate::McpExtras)
/// - **the idempotency key in `_meta`**: nothing, unless that is [set](Self::take_idempotency_keys)
/// - **the rest of `_meta`, but for the protocol's own members**: `_meta` of the request to the
///   tool's server
///
/// A client that cancels its request, or hangs up where that means the same, has its call dropped
/// at once, which cancels it at the tool's server; the call's token fires as well. Over a stream
/// that ends rmcp waits up to 5 s for answers first.
///
/// rmcp bounds neither the calls of a client nor the time that they take: that is what layers are
/// for. It logs requests and answers in full at DEBUG, and at INFO has a span for each session, of
/// which all spans in it become children: filter it (`rmcp=off`).
///
/// # Questions
///
/// A client of 2026-07-28 declares with each call what it can be asked: forms, URLs, samples,
/// roots. The gateway declares the same to a tool's server of that revision, and passes on what the
/// server asks, with its state. A question that the client has not declared ends the call with
/// -32021, and is not sent. Approvals of the stack are asked in the same way: see
/// [`McpElicitation`](crate::McpElicitation). For clients of earlier revisions a server's question
/// is an error.
///
/// # Errors
///
/// - **a JSON-RPC error of the tool's server**: the same, with its data; -32603 for -32020 to
///   -32099, which are the protocol's own and about the gateway's own connection
/// - **-32021 of the tool's server, for a capability that the client has not declared**: the same
/// - **one that says that the gateway's connection or session there is lost, or that the server was
///   late**: as any other
/// - [`NotFound`](tower_toolcall::ErrorKind::NotFound) without a status: there is no such tool:
///   -32602, with [`model_message`](ToolError::model_message), which says what is near
/// - **any other, a panic too**: a result with `isError: true` and `model_message`
/// - **the client has cancelled**: none
///
/// With the text for the model go, for programs, the members of [`ToolError::to_http`]'s body:
/// code, `retryable`, `execution`, `retry_after_seconds`, ...; in the result's `_meta` under
/// [`ERROR_META`](super::ERROR_META), in the error's `data`. Nothing else of an error goes out.
///
/// # What it does not do
///
/// Tools alone: no resources, prompts, completion, whose methods are unknown (-32601). A server of
/// 2025-11-25 that asks for input gets an error, because its connection has many callers. Tasks
/// that a server starts are passed on only if [configured](Self::with_tasks): otherwise the model
/// reads that the tool may still run. There is no authentication; the program `toolcall-gateway`
/// has it.
///
/// # Panics
///
/// A panic in the stack is an answer. One in the list of tools is an error, -32603.
///
/// # Clone
///
/// Each session has a clone of its own, as rmcp's transports ask for it. Clones share the stack,
/// the count of the calls in flight, and the news that the list has changed.
#[derive(Clone)]
#[must_use]
pub struct GatewayHandler {
    pub(super) stack: Stack,
    pub(super) tools: Arc<dyn ListTools>,
    pub(super) settings: Arc<Settings>,
    pub(super) changes: Changes,
    pub(super) drain: Drain,
    pub(super) session: Session,
}

#[derive(Clone)]
pub(super) struct Settings {
    pub(super) info: ServerConfig,
    pub(super) page: NonZeroUsize,
    pub(super) takes_idempotency_keys: bool,
    pub(super) deadlines: Option<Trust>,
    pub(super) states: States,
    /// Answers requests for tasks.
    pub(super) tasks: Option<Stack>,
}

impl GatewayHandler {
    /// Makes a server of a stack that may fail, and of the tools that `tools` lists, for example a
    /// [`Router`](tower_toolcall::router::Router): it is asked for each list, so it may answer
    /// differently each time.
    ///
    /// The list's [knowledge](ListTools::resolve) is put around the stack as an [identity
    /// layer](tower_toolcall::identity): a tool that is not in it is refused before the stack, and
    /// layers have the same key for a tool however it is spelled. A function knows nothing of that:
    /// there the stack decides what can be called, under the client's names.
    ///
    /// The stack has no [`ToolResultLayer`](tower_toolcall::result): results are no answers for a
    /// client, so it does not compile here.
    pub fn new<S>(stack: S, tools: impl ListTools) -> Self
    where
        S: Service<ToolCall, Error: Into<ToolError>, Future: Send> + Clone + Send + Sync + 'static,
        S: Service<ToolCall, Response = McpAnswer>,
    {
        crate::register();
        let (stack, tools): (_, Arc<dyn ListTools>) = (stack.map_err(Into::into), Arc::new(tools));
        let can = ServerCapabilities::builder().enable_tools();
        let mut info = ServerConfig::new(can.enable_tool_list_changed().build());
        info.server_info = Implementation::new(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"));
        Self {
            stack: guarded(stack, &tools),
            tools,
            settings: Arc::new(Settings {
                info,
                page: PAGE,
                takes_idempotency_keys: false,
                deadlines: None,
                states: States::default(),
                tasks: None,
            }),
            changes: Changes::default(),
            drain: Drain::default(),
            session: Session::default(),
        }
    }

    /// Sets the name and version that clients read. Default: those of this crate.
    pub fn with_implementation(self, implementation: Implementation) -> Self {
        self.set(|s| s.info.server_info = implementation)
    }

    /// Sets instructions for clients on the use of the tools. Default: none.
    pub fn with_instructions(self, text: impl Into<String>) -> Self {
        self.set(|s| s.info.instructions = Some(text.into()))
    }

    /// Sets how many tools a page of the list has at most. Default 1,000; a page ends earlier where
    /// its tools have more than 8 MiB of JSON.
    ///
    /// # Errors
    ///
    /// If it is zero.
    pub fn with_page_size(self, tools: usize) -> Result<Self, ConfigError> {
        let reason = "it is zero: no page would have a tool";
        let page = NonZeroUsize::new(tools).ok_or(ConfigError::new("page_size", reason))?;
        Ok(self.set(|s| s.page = page))
    }

    /// Sets whether a client's [idempotency key](crate::IDEMPOTENCY_KEY_META) is sent to the tool's
    /// server, instead of the key that a [`RetryLayer`](tower_toolcall::retry) of the stack makes.
    /// Default: no.
    ///
    /// Then the server recognises a repeated call, even if the client has reconnected since. The
    /// server sees one client, the gateway: two clients with the same key may get each other's
    /// answers. So only where all clients are trusted, and make keys that cannot be guessed.
    pub fn take_idempotency_keys(self, taken: bool) -> Self {
        self.set(|s| s.takes_idempotency_keys = taken)
    }

    /// Takes deadlines: a request over HTTP may say how long its call has, by the header that
    /// [`with_request_deadline`](ToolCall::with_request_deadline) reads, which says what `trust`
    /// means. Default: none is taken.
    pub fn take_deadlines(self, trust: Trust) -> Self {
        self.set(|s| s.deadlines = Some(trust))
    }

    /// Sets the keys that seal the `requestState` of questions to clients of 2026-07-28, which ask
    /// for [approvals](crate::McpElicitation). Default: a random key, which clones share.
    ///
    /// With the same keys in several processes, or after a restart, one accepts the states of
    /// another. Each process accepts a state once. Clients can read states, and cannot change them.
    ///
    /// A state holds for an hour at most. So long the gateway remembers those that were used: at
    /// most 1,000 of a caller, of 1,000 verified callers, and of 1,000 others. Beyond that, answers
    /// are refused. Callers that the request does not tell apart are one. An approval may be used
    /// again if its call was not sent, because of a quota for instance.
    ///
    /// ```
    /// use rmcp::model::RequestStateCodec;
    /// use tower_toolcall_mcp::GatewayHandler;
    ///
    /// # fn run(gateway: GatewayHandler, key: Vec<u8>) -> Result<(), Box<dyn std::error::Error>> {
    /// let gateway = gateway.with_request_states(RequestStateCodec::try_new(key)?);
    /// # Ok(()) }
    /// ```
    pub fn with_request_states(self, codec: RequestStateCodec) -> Self {
        self.set(|s| s.states = States::new(codec))
    }

    /// Passes on tasks (extension `io.modelcontextprotocol/tasks`) of tools' servers to clients of
    /// 2026-07-28 that declare them. Default: none is passed on; the model reads that the tool may
    /// still run.
    ///
    /// `tools` sends `tasks/get`, `tasks/update` and `tasks/cancel` to the server of a task: the
    /// innermost service, such as the router, perhaps with a timeout. The layers of the stack see
    /// the call that starts a task, and not these requests. A client gets a sealed handle as the id
    /// of a task, which holds for that caller alone and as long as the server keeps the task. The
    /// gateway keeps nothing. With [the same keys](Self::with_request_states) another process knows
    /// it too. A [`PollLayer`](tower_toolcall::poll::PollLayer) in the stack waits for tasks
    /// instead.
    pub fn with_tasks<S>(self, tools: S) -> Self
    where
        S: Service<ToolCall, Error: Into<ToolError>, Future: Send> + Clone + Send + Sync + 'static,
        S: Service<ToolCall, Response = McpAnswer>,
    {
        let tools = guarded(tools.map_err(Into::into), &self.tools);
        self.set(|s| {
            let extensions = s.info.capabilities.extensions.get_or_insert_default();
            extensions.insert(TASKS_EXTENSION_ID.to_owned(), JsonObject::new());
            s.tasks = Some(tools);
        })
    }

    fn set(mut self, change: impl FnOnce(&mut Settings)) -> Self {
        change(Arc::make_mut(&mut self.settings));
        self
    }

    /// Notifies all clients that the list of tools has changed: those of the older revisions that
    /// have initialised their session, and those of 2026-07-28 that listen. Does not wait; several
    /// changes in a row may be one message.
    pub fn tools_changed(&self) {
        self.changes.tell();
    }

    /// Calls [`tools_changed`](Self::tools_changed) whenever the list of this server changes. Call
    /// it for each of a router's servers.
    pub fn follow(&self, tools: &McpTools) {
        let changes = self.changes.clone();
        tools.on_change(move || changes.tell());
    }

    /// Calls [`tools_changed`](Self::tools_changed) whenever a registry that
    /// [refuses](tower_toolcall::health::HealthBuilder::with_refusal) calls marks a server as up or
    /// down, and when a probe is due, because the lists of a router [with
    /// health](tower_toolcall::router::RouterBuilder::with_health) change then. Run it beside the
    /// gateway: it ends only with the registry. Dropping it ends the notifications.
    pub fn follow_health(&self, health: &Health) -> impl Future<Output = ()> + Send + use<> {
        let (changes, mut servers) = (self.changes.clone(), health.subscribe_all());
        async move {
            loop {
                let now = Instant::now();
                let next = {
                    let servers = servers.borrow_and_update();
                    let probes = servers.iter().filter_map(|server| server.probe_at);
                    probes.filter(|at| *at > now).min()
                };
                let changed = match next {
                    Some(at) => timeout_at(at, servers.changed()).await.unwrap_or(Ok(())),
                    None => servers.changed().await,
                };
                if changed.is_err() {
                    return;
                }
                changes.tell();
            }
        }
    }

    /// Calls [`tools_changed`](Self::tools_changed) whenever a breaker opens or no longer refuses
    /// all calls. The list of a router that [withholds](tower_toolcall::router::Router::withhold)
    /// such tools changes then. A list of your own should leave out the tools for which
    /// [`CircuitBreakerHandle::is_refusing`] is true. Run it beside the gateway; it does not end by
    /// itself. Dropping it ends the notifications.
    pub fn follow_breakers(
        &self,
        breakers: &CircuitBreakerHandle,
    ) -> impl Future<Output = ()> + Send + use<> {
        let (changes, breakers) = (self.changes.clone(), breakers.clone());
        let mut transitions = breakers.subscribe();
        let mut told = Instant::now();
        async move {
            loop {
                // It may be over by now: of a period that ends while this is at something else,
                // clients are told too.
                let transition = match breakers.next_period_end(told) {
                    Some(at) => timeout_at(at, transitions.next()).await.ok(),
                    None => Some(transitions.next().await),
                };
                match transition {
                    Some(None) => return,
                    Some(Some(Ok(turn))) if !turn.from.is_open() && !turn.to.is_open() => {}
                    // A period is over, or some transitions were missed.
                    None | Some(Some(_)) => {
                        told = Instant::now();
                        changes.tell();
                    }
                }
            }
        }
    }

    /// Returns the stack as clients of this server reach it, for other ways in, such as
    /// `tower_toolcall::serve::Routes`: calls through it count as those of MCP
    /// clients do. They are refused once the server closes, waited for, and cut short.
    pub fn stack(
        &self,
    ) -> impl Service<ToolCall, Response = McpAnswer, Error = ToolError, Future: Send>
    + Clone
    + Send
    + Sync
    + use<> {
        let (stack, drain) = (self.stack.clone(), self.drain.clone());
        service_fn(move |call: ToolCall| {
            let (stack, drain) = (stack.clone(), drain.clone());
            async move {
                let info = call.info();
                drain.run(&info, stack.oneshot(call)).await
            }
        })
    }

    /// Returns how many calls run, of all sessions and through [`stack`](Self::stack).
    pub fn in_flight(&self) -> usize {
        self.drain.running()
    }

    /// Takes no more calls, and waits until none runs. From now on a call is an error with the code
    /// `SERVER_CLOSING`, not started; streams of changes of the list end.
    ///
    /// The wait is as long as the calls take: put a timeout around it, and then
    /// [`cut_short`](Self::cut_short) the remaining calls. Close the sessions last.
    /// `RunningService::cancel` sends the last answers first; the cancellation token of a
    /// streamable HTTP server cuts those that are still on their way, so give them a moment, as in
    /// the [example](Self#example).
    ///
    /// # Cancel safety
    ///
    /// Dropped, the server is closed all the same.
    pub async fn drain(&self) {
        self.drain.close();
        self.drain.drained().await;
    }

    /// Takes no more calls, and ends the running ones. Each is dropped, which cancels it at the
    /// tool's server, and answered immediately with the error `SERVER_CLOSING`: the tool may have
    /// run. Returns the names of their tools, sorted, one for each call: `server__tool` where the
    /// server is known. Only one `cut_short` returns the name of a call.
    ///
    /// The wait ends when no call is left. It is short, unless a tool blocks its thread, or a
    /// caller keeps a future of [`stack`](Self::stack) without polling it: add a timeout for these
    /// cases.
    ///
    /// # Cancel safety
    ///
    /// Dropped, the calls are cut short all the same, and the next `cut_short` returns their names.
    pub async fn cut_short(&self) -> Vec<String> {
        self.drain.cut_short().await
    }
}

/// A stack that knows the tools of a list, and answers where it panics.
fn guarded<S>(stack: S, tools: &Arc<dyn ListTools>) -> Stack
where
    S: Service<ToolCall, Response = McpAnswer, Error = ToolError, Future: Send>,
    S: Clone + Send + Sync + 'static,
{
    let stack = IdentityLayer::new(Listed(Arc::clone(tools))).layer(stack);
    Stack::new(CatchPanicLayer::new().layer(stack))
}

impl fmt::Debug for GatewayHandler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GatewayHandler")
            .field("name", &self.settings.info.server_info.name)
            .field("in_flight", &self.in_flight())
            .finish_non_exhaustive()
    }
}

/// The source of the list of tools that a [`GatewayHandler`](super::GatewayHandler) gives its
/// clients: a `Router` of MCP servers, the [`McpTools`] of one server, or a function that returns
/// it.
///
/// ```
/// use rmcp::model::{JsonObject, Tool};
/// use tower_toolcall_mcp::ListTools;
///
/// let list = || vec![Tool::new("search", "finds things", JsonObject::new())];
/// assert!(list.find("search").is_some());
/// ```
pub trait ListTools: Send + Sync + 'static {
    /// The tools as they are now, in any order.
    fn list(&self) -> Vec<Tool>;

    /// The one of this name. Asked for with each call over HTTP of a client of 2026-07-28, so a
    /// long list should not be walked for it, as it is where this is left out.
    fn find(&self, name: &str) -> Option<Tool> {
        self.list().into_iter().find(|tool| tool.name == name)
    }

    /// Resolves the identity of the tool that a call names, as [`Resolve::resolve`] does. By
    /// default the list resolves nothing: calls pass under the client's names, without a server.
    ///
    /// # Errors
    ///
    /// The refusal of a tool that does not exist.
    fn resolve(&self, _call: &ToolCall) -> Result<Option<Identity>, ToolError> {
        Ok(None)
    }
}

/// A list as the table of an identity layer.
pub(super) struct Listed(pub(super) Arc<dyn ListTools>);

impl Resolve for Listed {
    fn resolve(&self, call: &ToolCall) -> Result<Option<Identity>, ToolError> {
        self.0.resolve(call)
    }
}

impl<F: Fn() -> Vec<Tool> + Send + Sync + 'static> ListTools for F {
    fn list(&self) -> Vec<Tool> {
        self()
    }
}

impl ListTools for McpTools {
    fn list(&self) -> Vec<Tool> {
        self.catalog().tools().cloned().collect()
    }

    fn find(&self, name: &str) -> Option<Tool> {
        self.catalog().get(name).cloned()
    }

    fn resolve(&self, call: &ToolCall) -> Result<Option<Identity>, ToolError> {
        Resolve::resolve(self, call)
    }
}

/// The news that the list of tools has changed. A slow client that misses several changes gets one
/// message.
#[derive(Clone, Default)]
pub(super) struct Changes(Arc<watch::Sender<()>>);

impl Changes {
    pub(super) fn tell(&self) {
        self.0.send_modify(|()| ());
    }

    /// Calls `notify` for each change from now on, until it fails.
    pub(super) fn each<F, Fut, E>(&self, notify: F) -> impl Future<Output = ()> + use<F, Fut, E>
    where
        F: Fn() -> Fut,
        Fut: Future<Output = Result<(), E>>,
    {
        let mut changes = self.0.subscribe();
        async move { while changes.changed().await.is_ok() && notify().await.is_ok() {} }
    }
}
