use std::{
    fmt,
    future::{Future, pending, poll_fn},
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use futures_util::FutureExt as _;
use rmcp::service::ServiceError;
use tokio::{
    task::coop::unconstrained,
    time::{Instant, sleep_until},
};
use tower_service::Service;
use tower_toolcall::{
    ConfigError,
    backoff::Backoff,
    call::{CallInfo, ToolCall},
    error::{AnyError, ErrorKind, ToolError},
    flow::WaitLimit,
};

use super::{
    McpConnection,
    connection::{Live, Unanswered, has_lost_session, is_loss},
    shared::{Shared, interrupted},
};
use crate::{
    McpAnswer, McpService, ResponseFuture, errors::named, future::first, refuse_if, service::within,
};

/// The tools of one MCP server, over a connection that is made on demand and again after a loss.
///
/// `connect` makes a connection: it spawns the server's process, or opens an HTTP client, and
/// returns rmcp's running client, or a pair of that and an [`McpService`] with its own settings.
///
/// ```no_run
/// use rmcp::{
///     model::ProtocolVersion,
///     service::{ClientLifecycleMode, ClientServiceExt as _},
/// };
/// use tower::ServiceExt as _;
/// use tower_toolcall::{AnyError, ToolCall};
/// use tower_toolcall_mcp::McpReconnect;
///
/// # async fn pipe() -> Result<tokio::io::DuplexStream, AnyError> { Ok(tokio::io::duplex(1024).0) }
/// # async fn run() -> Result<(), AnyError> {
/// let docs = McpReconnect::new("docs", || async {
///     let transport = pipe().await?; // any transport of rmcp's, and any client handler
///     // The newest revision that both sides speak; `serve` alone speaks an earlier one.
///     let newest = ClientLifecycleMode::Auto {
///         preferred_versions: vec![ProtocolVersion::LATEST],
///         legacy_version: None,
///     };
///     Ok::<_, AnyError>(().serve_with_lifecycle(transport, newest).await?)
/// });
/// docs.connect().await?; // or leave it to the first call
/// let answer = docs.oneshot(ToolCall::new("search")).await?;
/// # Ok(()) }
/// ```
///
/// [`McpServer`](crate::McpServer) is such a service with progress, a list of tools and the newest
/// revision. To add these to your own client, give it an
/// [`McpNotifications`](crate::McpNotifications) for each connection, all with one
/// [`McpTools`](crate::McpTools).
///
/// - **One at a time.** However many calls need the connection, one attempt is made, in its own
///   task. It continues if the waiting calls are dropped or not polled; it ends with the last clone
///   of the service.
/// - **Waiting.** A call waits for the attempt, 5 s by default, within its deadline and until its
///   caller cancels; see [`with_max_wait`](Self::with_max_wait) and
///   [`with_fail_fast`](Self::with_fail_fast).
/// - **Backoff.** After a failed attempt the next one waits 250 ms, then 1 % longer each time, up
///   to 30 s: about 1 % of the time that the server has been away. Until the server has answered
///   its first call, the time doubles instead. Only calls begin attempts. During the wait calls
///   fail immediately, with [`retry_after`](ToolError::retry_after). A server may ask for a longer
///   wait, up to an hour. A connection that is lost before it has answered a call counts as a
///   failed attempt at the time when it was made.
/// - **Loss.** A connection is lost when its transport is closed, or a call fails for its
///   transport, or the server does not know the session. Only calls and
///   [`with_ping`](Self::with_ping) notice it. The next call makes a new connection. The old one is
///   dropped with its last call, and with it the server's process.
/// - **Outages.** A lost connection and the failed attempts after it are one
///   [`Outage`](tower_toolcall::error::Outage), which their errors name. A breaker counts it once,
///   and lets a call pass when the next attempt is due. An attempt that times out, or that the
///   server answers with its own error, counts as a failure by itself. The statuses 502 to 504 do
///   not count as the server's own, because a proxy sends them.
///
/// # Over HTTP
///
/// Over HTTP no connection can be watched; the next call notices that a server is gone.
/// `McpServer::http` (feature `http`) has the settings for that. A transport of your own needs
/// them:
///
/// - `McpHttpClient` (feature `http`) instead of reqwest's client. Otherwise a call waits forever
///   for an answer that does not name its request, and rmcp repeats a call after a status of 404,
///   inside all layers.
/// - A bounded `retry_config`. In revisions before 2026-07-28 a call that is under way when the
///   server goes waits forever otherwise.
/// - [`with_ping`](Self::with_ping), with any limit.
///
/// A session is also lost if the server refuses a call with an error of its own, and then a ping
/// fails: it has no answer, or the server refuses it and a list of tools too. The call waits for
/// the ping, 1 s or the limit of pings at most, and fails as a lost connection. If its deadline
/// passes before, or its caller cancels, it fails with the server's answer, and a task waits for
/// the ping. If the session was refused by a status of 404, or by another status with a text, the
/// call has not started. After a JSON-RPC error that is unknown.
///
/// ```no_run
/// # #[cfg(feature = "http")]
/// # fn leaf() -> Result<(), tower_toolcall::ConfigError> {
/// use std::{sync::Arc, time::Duration};
/// use rmcp::transport::{
///     StreamableHttpClientTransport, common::client_side_sse::NeverRetry,
///     streamable_http_client::StreamableHttpClientTransportConfig,
/// };
/// use tower_toolcall::AnyError;
/// use tower_toolcall_mcp::{McpHttpClient, McpServer};
///
/// let web = McpServer::new("web", || {
///     let uri = "http://localhost:8000/mcp";
///     let mut config = StreamableHttpClientTransportConfig::with_uri(uri);
///     config.retry_config = Arc::new(NeverRetry::default());
///     let client = McpHttpClient::default();
///     let transport = StreamableHttpClientTransport::with_client(client, config);
///     async { Ok::<_, AnyError>(transport) }
/// })
/// .with_connection(|connection| connection.with_ping(Duration::from_secs(5)))?;
/// # let _ = web; Ok(()) }
/// ```
///
/// A server that [hangs](Self::with_ping) is replaced quickly, unless `connect` waits for the old
/// connection, for example for a list of tools. The old process ends when its connection is
/// dropped.
///
/// # Retries
///
/// The service never repeats a call. A call that was under way fails, and may have run. An outer
/// [`RetryLayer`](tower_toolcall::retry::RetryLayer) may repeat it: it waits for `retry_after` and
/// finds the new connection.
///
/// Events: `tool.connected`, `tool.disconnected`, `tool.connect_failed`; see
/// [`event`](tower_toolcall::event). The service is always ready.
///
/// # Errors
///
/// The errors of [`McpService`]. Without a connection
/// [`ConnectionFailed`](tower_toolcall::ErrorKind::ConnectionFailed), not started;
/// [`Denied`](tower_toolcall::ErrorKind::Denied),
/// [`RateLimited`](tower_toolcall::ErrorKind::RateLimited) or
/// [`TokenExchange`](tower_toolcall::ErrorKind::TokenExchange) if that is the cause. The source is
/// the error of `connect`, as a [`ToolError`]. If a call's deadline passes while it waits, the
/// error is [`DeadlineExceeded`](tower_toolcall::ErrorKind::DeadlineExceeded).
///
/// # Cancel safety
///
/// Dropping a call cancels it at the server, if it was sent. `connect` is dropped at its timeout,
/// and with the last clone.
///
/// # Panics
///
/// Calls must be polled in a tokio runtime. The attempt and rmcp's own tasks run there: keep it
/// running. A panic of `connect` counts as a failed attempt.
///
/// # Clone
///
/// Clones share the connection and its history. Each clone has its own settings; an attempt uses
/// those of the clone that began it.
#[derive(Clone)]
pub struct McpReconnect {
    pub(super) shared: Arc<Shared>,
    pub(crate) settings: Settings,
}

impl McpReconnect {
    /// Creates the tools of the server that `connect` connects to. Errors and events show the name.
    pub fn new<F, Fut, C, E>(server: impl Into<Arc<str>>, connect: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<C, E>> + Send + 'static,
        C: Into<McpConnection>,
        E: Into<AnyError>,
    {
        let connect = Arc::new(move || {
            let connecting = connect();
            async move { connecting.await.map(Into::into).map_err(Into::into) }.boxed()
        });
        Self {
            shared: Arc::new(Shared::new(server.into(), connect)),
            settings: Settings::default(),
        }
    }

    /// Connects, if not connected: for example at the start of a program.
    ///
    /// # Errors
    ///
    /// Those of a call without a connection.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not stop the attempt.
    pub async fn connect(&self) -> Result<(), ToolError> {
        let connected = self.establish(true).await.map(drop);
        connected.map_err(|error| error.with_server(Arc::clone(&self.shared.server)))
    }

    /// Ends the connection, and waits until rmcp has closed its transport; a server in a child
    /// process has ended then. Calls under way fail. A later call connects again, and so does an
    /// attempt that is under way.
    ///
    /// A connection that was made from a pair is only dropped.
    ///
    /// # Cancel safety
    ///
    /// Dropped, it leaves the connection to end by itself.
    pub async fn close(&self) {
        if let Some(live) = self.release() {
            live.close().await;
        }
    }

    /// Returns `true` if there is a connection that is not known to be lost.
    pub fn is_connected(&self) -> bool {
        self.current().is_some()
    }

    /// Returns the service of the connection that there is now. It does not keep the connection up,
    /// nor does it find another one.
    pub fn service(&self) -> Option<McpService> {
        self.current().map(|live| live.service().clone())
    }

    pub(crate) fn server(&self) -> &Arc<str> {
        &self.shared.server
    }

    async fn run(self, call: ToolCall) -> Result<McpAnswer, ToolError> {
        let info = call.info();
        let mut limit = WaitLimit::of(&call);
        let connected = match self.usable() {
            Some(live) => Ok(live),
            None => self.wait(&mut limit).await,
        };
        limit.release();
        let live = connected.map_err(|e| named(e, &info, Some(&self.shared.server)))?;
        let mut unanswered = Unanswered {
            leaf: &self,
            live: Some(&live),
        };
        let mut result = live.service().clone().answer(call).await;
        let mut is_known = true;
        if let Err(error) = &mut result {
            let (peer, ping) = (live.service().peer(), self.settings.ping);
            let is_lost = within(&mut limit, has_lost_session(peer, error, ping));
            match is_lost.await {
                Some(true) => *error = lost_session(error, &info, &self.shared.server),
                is_lost => is_known = is_lost.is_some(),
            }
        }
        // The ping of a call that is over is left to a task.
        if is_known {
            unanswered.live = None;
        }
        live.saw(&result);
        match result {
            Err(error) if is_loss(&error) => {
                let error = match live.why_given_up() {
                    Some(why) => {
                        let kind = ErrorKind::ConnectionFailed;
                        closed(kind, why.to_owned(), &error, &info, &self.shared.server)
                    }
                    None => error,
                };
                self.lose(&live, &error);
                let error = error.with_outage(&live.outage);
                // No earlier than that is there another connection.
                Err(match self.window() {
                    Some(wait) if error.retry_after().is_none() => error.with_own_delay(wait),
                    _ => error,
                })
            }
            result => result,
        }
    }

    /// Waits for a connection as long as the call may.
    async fn wait(&self, limit: &mut WaitLimit) -> Result<Arc<Live>, ToolError> {
        // No attempt for a call that is over.
        limit.check()?;
        let max = self.settings.max_wait;
        let latest = max.and_then(|max| Instant::now().checked_add(max));
        let over = async {
            match latest {
                Some(at) => unconstrained(sleep_until(at)).await,
                None => pending().await,
            }
        };
        let over = first(poll_fn(|cx| limit.poll(cx)), over);
        match first(self.establish(max.is_some()), over).await {
            Ok(connected) => connected,
            Err(Ok(error)) => Err(error),
            Err(Err(())) => Err(self.busy()),
        }
    }

    /// Waits for the attempt that goes on, or begins one, if it may be made.
    async fn establish(&self, waits: bool) -> Result<Arc<Live>, ToolError> {
        let (mut ended, is_new) = loop {
            if let Some(live) = self.usable() {
                return Ok(live);
            }
            if let Some(attempt) = self.join()? {
                break attempt;
            }
        };
        if !waits && !is_new {
            return Err(self.busy());
        }
        let result = match ended.wait_for(Option::is_some).await {
            Ok(result) => result.clone(),
            Err(_) => None,
        };
        match result {
            Some(Ok(())) => self.usable().ok_or_else(|| self.lost()),
            Some(Err(error)) => Err(self.failed(error)),
            // The task was dropped before it had begun.
            None => self
                .usable()
                .ok_or_else(|| interrupted(&self.shared.server)),
        }
    }
}

/// Makes the error of a call from the answer of a server that does not know the session any more.
fn lost_session(answer: &ToolError, call: &CallInfo, server: &Arc<str>) -> ToolError {
    let kind = match answer.kind() {
        ErrorKind::Denied => ErrorKind::Denied,
        _ => ErrorKind::ConnectionFailed,
    };
    let why = answer.message();
    let message = format!("the MCP server does not know the session any more: {why}");
    closed(kind, message, answer, call, server)
}

/// Makes the error of a call on a connection that is of no use any more.
fn closed(
    kind: ErrorKind,
    message: String,
    error: &ToolError,
    call: &CallInfo,
    server: &Arc<str>,
) -> ToolError {
    let closed = ToolError::new(kind, message)
        .with_execution(error.execution())
        .with_source(ServiceError::TransportClosed);
    named(closed, call, Some(server))
}

impl Service<ToolCall> for McpReconnect {
    type Response = McpAnswer;
    type Error = ToolError;
    type Future = ResponseFuture;

    /// Always ready.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ToolError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, call: ToolCall) -> Self::Future {
        self.clone().run(call).boxed()
    }
}

impl fmt::Debug for McpReconnect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpReconnect")
            .field("server", &self.shared.server)
            .field("connected", &self.is_connected())
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    pub(super) backoff: Backoff,
    /// That of a server that has never answered a call.
    pub(super) start_backoff: Backoff,
    pub(crate) connect_timeout: Duration,
    /// `None`: only the call that begins the attempt waits for it.
    pub(super) max_wait: Option<Duration>,
    pub(crate) ping: Option<Duration>,
}

impl Default for Settings {
    fn default() -> Self {
        // As each delay is 1 % longer, it is about 1 % of the outage.
        let growing = |factor| Backoff::exponential(Duration::from_millis(250), factor);
        Self {
            backoff: growing(1.01).unwrap_or_default(),
            start_backoff: growing(2.0).unwrap_or_default(),
            connect_timeout: Duration::from_secs(10),
            max_wait: Some(Duration::from_secs(5)),
            ping: None,
        }
    }
}

impl McpReconnect {
    /// Sets the time between a failed attempt and the next one. Default: 250 ms, 1 % longer each
    /// time up to 30 s, plus a random quarter at most. That is about 1 % of the time that the
    /// server has been away. Until the server has answered its first call, the default doubles each
    /// time. At most an hour.
    #[must_use]
    pub fn with_backoff(mut self, backoff: Backoff) -> Self {
        self.settings.backoff = backoff;
        self.settings.start_backoff = backoff;
        self
    }

    /// Sets how long an attempt may take. Default: 10 s.
    ///
    /// # Errors
    ///
    /// If it is zero.
    pub fn with_connect_timeout(mut self, timeout: Duration) -> Result<Self, ConfigError> {
        let reason = "it is zero: no attempt could succeed";
        refuse_if(timeout.is_zero(), "connect_timeout", reason)?;
        self.settings.connect_timeout = timeout;
        Ok(self)
    }

    /// Sets how long a call waits for a connection, if its deadline leaves it as much. Default: 5
    /// s.
    #[must_use]
    pub fn with_max_wait(mut self, max: Duration) -> Self {
        self.settings.max_wait = Some(max);
        self
    }

    /// Makes calls fail immediately while an attempt is under way. Only the call that begins the
    /// attempt waits for its end, within its own deadline.
    #[must_use]
    pub fn with_fail_fast(mut self) -> Self {
        self.settings.max_wait = None;
        self
    }

    /// Sends MCP's `ping` when a call is dropped before its answer, for example by an outer
    /// timeout. If no answer comes within `limit`, the connection is lost. Default: no pings.
    ///
    /// Over HTTP use it with any `limit`: see [Over HTTP](Self#over-http). A child process that
    /// works for longer than `limit` without answering anything is ended in the middle of its work.
    ///
    /// # Errors
    ///
    /// If the limit is zero.
    pub fn with_ping(mut self, limit: Duration) -> Result<Self, ConfigError> {
        let reason = "it is zero: no server could answer";
        refuse_if(limit.is_zero(), "ping", reason)?;
        self.settings.ping = Some(limit);
        Ok(self)
    }
}
