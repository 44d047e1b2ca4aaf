use std::{
    collections::HashMap,
    convert::Infallible,
    fmt, io,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    task::{Context, Poll},
};

use bytes::{Buf as _, Bytes};
use futures_util::{FutureExt as _, Stream, StreamExt as _, future::BoxFuture};
use http::{Request, Response, StatusCode, header::CONTENT_TYPE};
use http_body::Body;
use http_body_util::{
    BodyExt as _, BodyStream, Full, StreamBody,
    combinators::{BoxBody, UnsyncBoxBody},
};
use rmcp::{
    model::{ClientJsonRpcMessage, ServerJsonRpcMessage},
    transport::streamable_http_server::session::{
        ServerSseMessage, SessionId, SessionManager,
        local::{
            LocalSessionManager, LocalSessionManagerError, SessionConfig, SessionError,
            SessionTransport,
        },
    },
};
use serde_json::json;
use tower_service::Service;
use tower_toolcall::{
    ConfigError,
    call::{MAX_VALUES, ValueCounter},
    error::BoxError,
};

use crate::{future::lock, refuse_if};

/// The sessions of a streamable HTTP server, in memory like rmcp's `LocalSessionManager`, but
/// bounded in number.
///
/// In the revisions before 2026-07-28 each `initialize` makes a session, which takes some 50 KiB
/// for as long as rmcp keeps it without requests: 5 minutes. rmcp sets no limit to their number.
///
/// At the limit a new session replaces an idle one, which has no request under way and no stream
/// open. Sessions without any request since `initialize` go first, the oldest first, if they take
/// an eighth of the places or more. Otherwise the session that has been idle for longest goes. Its
/// client is answered with 404 and then begins a new session, as the specification requires. A call
/// is not under way any more once its client has hung up. If no session is idle, the new one is
/// refused; rmcp answers with 500.
///
/// So memory is bounded, and clients that only begin sessions disturb no others. A client that
/// begins many sessions and uses each makes others begin again. If it opens a stream in each, it
/// keeps new clients out. Where that matters, put authentication or a limit of connections per peer
/// in front.
///
/// Sessions are in this process alone: rmcp's session and event stores are not used.
///
/// ```
/// use std::sync::Arc;
/// use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
/// use tower_toolcall_mcp::{GatewayHandler, McpBodies, McpSessions};
///
/// # fn serve(gateway: GatewayHandler) -> Result<(), tower_toolcall::ConfigError> {
/// let sessions = Arc::new(McpSessions::new(200)?);
/// let config = StreamableHttpServerConfig::default();
/// let mcp = StreamableHttpService::new(move || Ok(gateway.clone()), sessions, config);
/// let mcp = McpBodies::new(mcp);
/// # let _ = mcp; Ok(()) }
/// ```
pub struct McpSessions {
    sessions: Arc<LocalSessionManager>,
    max: usize,
    table: Arc<Mutex<Table>>,
}

/// The sessions and their use.
#[derive(Debug, Default)]
struct Table {
    sessions: HashMap<SessionId, Use>,
    /// Counts up with every use.
    now: u64,
}

#[derive(Debug, Default)]
struct Use {
    /// Streams that are open: of requests under way, and for what the server has to say.
    streams: usize,
    /// The client has sent something since `initialize`.
    has_spoken: bool,
    last: u64,
}

impl Table {
    /// Adds a session, if there is room. Returns the session that it replaces.
    fn admit(&mut self, id: &SessionId, max: usize) -> Result<Option<SessionId>, NoRoom> {
        let replaced = match self.sessions.len() < max {
            true => None,
            false => Some(self.least_used(max).ok_or(NoRoom)?),
        };
        if let Some(replaced) = &replaced {
            self.sessions.remove(replaced);
        }
        self.sessions.insert(SessionId::clone(id), Use::default());
        self.touch(id, |_| ());
        Ok(replaced)
    }

    fn least_used(&self, max: usize) -> Option<SessionId> {
        let idle = || self.sessions.iter().filter(|(_, u)| u.streams == 0);
        let new = idle().filter(|(_, u)| !u.has_spoken).count();
        // Clients that are about to speak need places, too.
        let prefers_new = new >= (max / 8).max(1);
        let (id, _) = idle().min_by_key(|(_, u)| (u.has_spoken == prefers_new, u.last))?;
        Some(SessionId::clone(id))
    }

    fn touch(&mut self, id: &SessionId, change: impl FnOnce(&mut Use)) {
        self.now += 1;
        if let Some(used) = self.sessions.get_mut(id) {
            used.last = self.now;
            change(used);
        }
    }
}

/// No session is idle.
struct NoRoom;

/// A stream of a session. Dropped, it is closed.
struct Open {
    table: Arc<Mutex<Table>>,
    id: SessionId,
}

impl Drop for Open {
    fn drop(&mut self) {
        lock(&self.table).touch(&self.id, |used| used.streams -= 1);
    }
}

impl McpSessions {
    /// Allows at most `max` sessions at a time. [`Default`] has 1,000.
    ///
    /// # Errors
    ///
    /// If it is zero.
    pub fn new(max: usize) -> Result<Self, ConfigError> {
        let reason = "it is zero: no client could begin a session";
        refuse_if(max == 0, "max", reason)?;
        Ok(Self {
            max,
            ..Self::default()
        })
    }

    /// Sets rmcp's configuration of each session, such as how long it is kept without requests.
    #[must_use]
    pub fn with_config(mut self, config: SessionConfig) -> Self {
        let mut sessions = LocalSessionManager::default();
        sessions.session_config = config;
        self.sessions = Arc::new(sessions);
        self
    }

    /// Returns how many sessions there are.
    pub fn count(&self) -> usize {
        lock(&self.table).sessions.len()
    }

    /// Opens a stream. All but that of `initialize` show that the client speaks.
    fn open(&self, id: &SessionId, has_spoken: bool) -> Open {
        lock(&self.table).touch(id, |used| {
            used.streams += 1;
            used.has_spoken |= has_spoken;
        });
        Open {
            table: Arc::clone(&self.table),
            id: SessionId::clone(id),
        }
    }

    /// Closes a session in a task of its own: a client that reads slowly may hold that up.
    fn close(&self, id: SessionId) {
        let sessions = Arc::clone(&self.sessions);
        tokio::spawn(async move { sessions.close_session(&id).await });
    }
}

impl Default for McpSessions {
    fn default() -> Self {
        Self {
            sessions: Arc::default(),
            max: 1000,
            table: Arc::default(),
        }
    }
}

impl fmt::Debug for McpSessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpSessions")
            .field("count", &self.count())
            .field("max", &self.max)
            .finish_non_exhaustive()
    }
}

impl SessionManager for McpSessions {
    type Error = LocalSessionManagerError;
    type Transport = SessionTransport;

    async fn create_session(&self) -> Result<(SessionId, SessionTransport), Self::Error> {
        let (id, transport) = self.sessions.create_session().await?;
        let admitted = lock(&self.table).admit(&id, self.max);
        match admitted {
            Ok(replaced) => {
                replaced.into_iter().for_each(|id| self.close(id));
                Ok((id, transport))
            }
            Err(NoRoom) => {
                self.close(id);
                let full = format!("all {} sessions are in use", self.max);
                Err(SessionError::from(io::Error::other(full)).into())
            }
        }
    }

    async fn initialize_session(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<ServerJsonRpcMessage, Self::Error> {
        let _open = self.open(id, false);
        self.sessions.initialize_session(id, message).await
    }

    async fn has_session(&self, id: &SessionId) -> Result<bool, Self::Error> {
        Ok(lock(&self.table).sessions.contains_key(id))
    }

    async fn close_session(&self, id: &SessionId) -> Result<(), Self::Error> {
        lock(&self.table).sessions.remove(id);
        self.sessions.close_session(id).await
    }

    async fn create_stream(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        let open = self.open(id, true);
        let stream = self.sessions.create_stream(id, message).await?;
        Ok(kept_open(stream, open))
    }

    async fn accept_message(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<(), Self::Error> {
        let _open = self.open(id, true);
        self.sessions.accept_message(id, message).await
    }

    async fn create_standalone_stream(
        &self,
        id: &SessionId,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        let open = self.open(id, true);
        let stream = self.sessions.create_standalone_stream(id).await?;
        Ok(kept_open(stream, open))
    }

    async fn resume(
        &self,
        id: &SessionId,
        last_event_id: String,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        let open = self.open(id, true);
        let stream = self.sessions.resume(id, last_event_id).await?;
        Ok(kept_open(stream, open))
    }
}

fn kept_open<S>(stream: S, open: Open) -> impl Stream<Item = S::Item> + Send + Sync + 'static
where
    S: Stream + Send + Sync + 'static,
{
    stream.inspect(move |_| {
        let _until_dropped = &open;
    })
}

/// Bounds the values in the bodies of requests to rmcp's `StreamableHttpService`.
///
/// rmcp bounds the bytes of a body, 4 MiB by default. Many small values take 100 times as much once
/// they are parsed. This service counts them while the body arrives: a body with more than
/// [`MAX_VALUES`](tower_toolcall::MAX_VALUES) values is refused with 413 and a JSON-RPC error
/// (-32600), and is neither read to its end nor parsed.
///
/// ```
/// use std::sync::Arc;
/// use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
/// use tower_toolcall_mcp::{GatewayHandler, McpBodies, McpSessions};
///
/// # fn serve(gateway: GatewayHandler) {
/// let sessions = Arc::new(McpSessions::default());
/// let config = StreamableHttpServerConfig::default();
/// let mcp = StreamableHttpService::new(move || Ok(gateway.clone()), sessions, config);
/// let app: axum::Router = axum::Router::new().nest_service("/mcp", McpBodies::new(mcp));
/// # let _ = app; }
/// ```
#[derive(Clone)]
pub struct McpBodies<S>(S);

impl<S> McpBodies<S> {
    /// Wraps rmcp's service.
    pub fn new(mcp: S) -> Self {
        Self(mcp)
    }
}

impl<S> fmt::Debug for McpBodies<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpBodies").finish_non_exhaustive()
    }
}

type Answer = Response<BoxBody<Bytes, Infallible>>;

impl<S, B> Service<Request<B>> for McpBodies<S>
where
    S: Service<
            Request<UnsyncBoxBody<Bytes, BoxError>>,
            Response = Answer,
            Error: 'static,
            Future: Send + 'static,
        >,
    B: Body<Data: Send, Error: Into<BoxError>> + Send + 'static,
{
    type Response = Answer;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<Answer, S::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let is_refused = Arc::new(AtomicBool::new(false));
        let answer = self
            .0
            .call(request.map(|body| counted(body, Arc::clone(&is_refused))));
        // rmcp answers every error of a body with 500.
        Box::pin(answer.map(move |answer| match is_refused.load(Relaxed) {
            true => Ok(refusal()),
            false => answer,
        }))
    }
}

fn too_many() -> String {
    format!("the body has more than {MAX_VALUES} values")
}

/// Counts the values of a body, which fails when it has too many.
fn counted<B>(body: B, is_refused: Arc<AtomicBool>) -> UnsyncBoxBody<Bytes, BoxError>
where
    B: Body<Data: Send, Error: Into<BoxError>> + Send + 'static,
{
    let mut counter = ValueCounter::default();
    let frames = BodyStream::new(body).map(move |frame| {
        let frame = frame.map_err(Into::into)?;
        let frame = frame.map_data(|mut data| data.copy_to_bytes(data.remaining()));
        if frame.data_ref().map_or(0, |data| counter.add(data)) > MAX_VALUES {
            is_refused.store(true, Relaxed);
            return Err(too_many().into());
        }
        Ok(frame)
    });
    StreamBody::new(frames).boxed_unsync()
}

fn refusal() -> Answer {
    let error = json!({ "code": -32600, "message": too_many() });
    let body = json!({ "jsonrpc": "2.0", "id": null, "error": error }).to_string();
    let mut answer = Response::new(Full::from(body).boxed());
    *answer.status_mut() = StatusCode::PAYLOAD_TOO_LARGE;
    let json = http::HeaderValue::from_static("application/json");
    answer.headers_mut().insert(CONTENT_TYPE, json);
    answer
}
