use std::{
    fmt,
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use futures_util::{FutureExt as _, future::BoxFuture};
use rmcp::{
    ClientHandler, RoleClient,
    model::{ClientRequest, PingRequest},
    service::{Peer, RunningService, ServiceError},
};
use tokio::{
    runtime::Handle,
    time::{Instant, timeout},
};
use tower_toolcall::error::{ErrorKind, Outage, ToolError};

use super::{McpReconnect, shared::WeakLeaf};
use crate::{
    McpAnswer, McpService, bounds::GivenUp, catalog, errors, future::lock, service::has_session,
};

/// The result of the function of a [`McpReconnect`](super::McpReconnect): a connection, and the
/// service that calls through it.
///
/// A connection is made from rmcp's `RunningService`; or from a pair of what keeps the connection
/// up (that service, or something that holds it) and an [`McpService`] with settings of your own.
/// What keeps it up is dropped when the connection is replaced and its last call has ended.
pub struct McpConnection {
    service: McpService,
    /// Ends the connection, which ends as well if this is dropped. `None` once it was closed.
    close: Mutex<Option<BoxFuture<'static, ()>>>,
    given_up: GivenUp,
}

impl McpConnection {
    /// A connection that ends with this client.
    pub(crate) fn of_client<H: ClientHandler>(
        client: RunningService<RoleClient, H>,
        service: McpService,
    ) -> Self {
        let own = ClientHandler::get_info(client.service()).capabilities;
        let service = service.with_capabilities(own);
        let close = async move { drop(client.cancel().await) };
        let close = Mutex::new(Some(close.boxed()));
        Self {
            service,
            close,
            given_up: GivenUp::default(),
        }
    }

    /// Names the cause if the connection is given up.
    pub(crate) fn with_given_up(mut self, given_up: GivenUp) -> Self {
        self.given_up = given_up;
        self
    }
}

impl<H: ClientHandler> From<RunningService<RoleClient, H>> for McpConnection {
    fn from(client: RunningService<RoleClient, H>) -> Self {
        let service = McpService::new(client.peer().clone());
        Self::of_client(client, service)
    }
}

impl<K: Send + Sync + 'static> From<(K, McpService)> for McpConnection {
    fn from((keep, service): (K, McpService)) -> Self {
        let close = Mutex::new(Some(async move { drop(keep) }.boxed()));
        Self {
            service,
            close,
            given_up: GivenUp::default(),
        }
    }
}

impl fmt::Debug for McpConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpConnection")
            .field("service", &self.service)
            .finish_non_exhaustive()
    }
}

/// A connection in use. Its calls hold it, so a replaced connection ends with its last call.
#[derive(Debug)]
pub(super) struct Live {
    connection: McpConnection,
    /// When it was made.
    pub(super) since: Instant,
    /// Its outage, once it is lost.
    pub(super) outage: Outage,
    /// The server has answered a call.
    answered: AtomicBool,
    /// An answer to a ping is awaited.
    pinged: AtomicBool,
}

impl Live {
    pub(super) fn new(
        mut connection: McpConnection,
        server: &Arc<str>,
        since: Instant,
        outage: Outage,
    ) -> Self {
        if connection.service.server().is_none() {
            connection.service = connection.service.with_server(Arc::clone(server));
        }
        Self {
            connection,
            since,
            outage,
            answered: AtomicBool::new(false),
            pinged: AtomicBool::new(false),
        }
    }

    pub(super) fn service(&self) -> &McpService {
        &self.connection.service
    }

    /// Ends it, with the calls that it has.
    pub(super) async fn close(&self) {
        let close = lock(&self.connection.close).take();
        if let Some(close) = close {
            close.await;
        }
    }

    /// Returns `true` if its transport is open. A server over HTTP may be gone nevertheless.
    pub(super) fn is_open(&self) -> bool {
        !self.service().peer().is_transport_closed()
    }

    /// Returns why this program gave it up, if it did.
    pub(super) fn why_given_up(&self) -> Option<&str> {
        self.connection.given_up.why()
    }

    pub(super) fn has_answered(&self) -> bool {
        self.answered.load(Relaxed)
    }

    /// Takes note of how a call ended.
    pub(super) fn saw(&self, result: &Result<McpAnswer, ToolError>) {
        let answer = match result {
            Ok(_) => true,
            Err(error) => errors::protocol_code(error).is_some() && !is_loss(error),
        };
        if answer && !self.has_answered() {
            self.answered.store(true, Relaxed);
        }
    }
}

/// Returns `true` if a call's error means that the connection cannot be used any more.
pub(super) fn is_loss(error: &ToolError) -> bool {
    match std::error::Error::source(error).and_then(|e| e.downcast_ref()) {
        Some(ServiceError::TransportClosed) => true,
        Some(ServiceError::McpError(answer)) => errors::is_connection_refused(answer),
        // Over HTTP it may be a status: then the connection is as good as before.
        Some(ServiceError::TransportSend(_)) => error.kind() == ErrorKind::ConnectionFailed,
        _ => false,
    }
}

/// How long an answer to a ping is awaited after an error, if no ping is set.
const LIMIT: Duration = Duration::from_secs(1);

const METHOD_NOT_FOUND: i32 = -32601;

/// A call that has been sent. Dropped before it is answered, it has the server pinged.
pub(super) struct Unanswered<'a> {
    pub(super) leaf: &'a McpReconnect,
    /// `None` once it is answered.
    pub(super) live: Option<&'a Arc<Live>>,
}

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        let (Some(live), Some(limit)) = (self.live, self.leaf.settings.ping) else {
            return;
        };
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        let current = self.leaf.current();
        let is_current = current.is_some_and(|current| Arc::ptr_eq(&current, live));
        // One at a time. It holds nothing up, and ends at its limit.
        if is_current && !live.pinged.swap(true, Relaxed) {
            let peer = live.service().peer().clone();
            runtime.spawn(ping(
                peer,
                limit,
                self.leaf.downgrade(),
                Arc::downgrade(live),
            ));
        }
    }
}

/// Pings the server. Returns an error if the connection is of no use any more.
async fn refuses(peer: &Peer<RoleClient>) -> Option<ToolError> {
    let request = ClientRequest::PingRequest(PingRequest::default());
    let refusal = errors::from_service(peer.send_request(request).await.err()?);
    if is_loss(&refusal) {
        return Some(refusal);
    }
    // It may have no pings. Without a session each of its errors is an answer.
    if has_session(peer) != Some(true) || errors::protocol_code(&refusal) == Some(METHOD_NOT_FOUND)
    {
        return None;
    }
    let listed = catalog::page(peer, None).await;
    listed.err().map(errors::from_service)
}

/// Returns whether an error of a call is that of a session that the server does not know any more.
/// There are many words for that, so what counts is that it refuses other requests as well.
pub(super) async fn has_lost_session(
    peer: &Peer<RoleClient>,
    error: &ToolError,
    limit: Option<Duration>,
) -> bool {
    if !errors::is_of_lost_session(error, limit.is_some()) || has_session(peer) != Some(true) {
        return false;
    }
    match timeout(limit.unwrap_or(LIMIT), refuses(peer)).await {
        Ok(refusal) => refusal.is_some(),
        // A process may be busy. Over HTTP only a status is certain to be an answer of its own.
        Err(_) => limit.is_some() || error.status().is_some(),
    }
}

async fn ping(peer: Peer<RoleClient>, limit: Duration, leaf: WeakLeaf, live: Weak<Live>) {
    let lost = timeout(limit, refuses(&peer)).await;
    let (Some(leaf), Some(live)) = (McpReconnect::upgrade(&leaf), live.upgrade()) else {
        return;
    };
    live.pinged.store(false, Relaxed);
    let lost = match lost {
        Ok(lost) => lost,
        Err(_) => Some(ToolError::new(
            ErrorKind::ConnectionFailed,
            format!(
                "the MCP server has not answered a ping within {}ms",
                limit.as_millis()
            ),
        )),
    };
    if let Some(error) = lost {
        leaf.lose(&live, &error);
    }
}
