use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use rmcp::{
    ClientHandler, RoleClient,
    model::CallToolResponse,
    service::{RunningService, ServiceError},
};
use tokio::time::Instant;

use super::super::{McpService, errors};
use crate::error::{ErrorKind, Outage, ToolError};

/// The result of the function of a [`McpReconnect`](super::McpReconnect): a connection, and the
/// service that calls through it.
///
/// A connection is made from rmcp's `RunningService`; or from a pair of what keeps the connection
/// up (that service, or something that holds it) and an [`McpService`] with settings of your own.
/// What keeps it up is dropped when the connection is replaced and its last call has ended.
pub struct McpConnection {
    service: McpService,
    /// Dropped, it ends the connection. `None` once it was closed.
    keep: Mutex<Option<Box<dyn Upkeep>>>,
}

/// The owner of a connection, which keeps it up.
trait Upkeep: Send {
    /// Ends the connection, and waits for its end as far as it can.
    fn close(self: Box<Self>) -> Pin<Box<dyn Future<Output = ()> + Send>>;
}

impl<H: ClientHandler> Upkeep for RunningService<RoleClient, H> {
    fn close(self: Box<Self>) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(async move { drop(self.cancel().await) })
    }
}

/// Something of the user's, which is only dropped.
struct Foreign<K>(K);

impl<K: Send> Upkeep for Foreign<K> {
    fn close(self: Box<Self>) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(std::future::ready(()))
    }
}

impl McpConnection {
    fn new(service: McpService, keep: impl Upkeep + 'static) -> Self {
        Self {
            service,
            keep: Mutex::new(Some(Box::new(keep))),
        }
    }

    /// A connection that ends with this client.
    pub(in crate::edge::mcp) fn of_client<H: ClientHandler>(
        client: RunningService<RoleClient, H>,
        service: McpService,
    ) -> Self {
        Self::new(service, client)
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
        Self::new(service, Foreign(keep))
    }
}

crate::text::debug_fields! { {} |this| McpConnection { service: this.service, .. } }

/// A connection in use. Its calls hold it, so one that is replaced ends with the last of them.
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
        let keep = self.connection.keep.lock();
        let keep = keep.unwrap_or_else(PoisonError::into_inner).take();
        if let Some(keep) = keep {
            keep.close().await;
        }
    }

    /// Returns `true` if its transport is open. A server over HTTP may be gone nevertheless.
    pub(super) fn is_open(&self) -> bool {
        !self.service().peer().is_transport_closed()
    }

    /// Returns whether there is no other ping.
    pub(super) fn begin_ping(&self) -> bool {
        !self.pinged.swap(true, Relaxed)
    }

    pub(super) fn end_ping(&self) {
        self.pinged.store(false, Relaxed);
    }

    pub(super) fn has_answered(&self) -> bool {
        self.answered.load(Relaxed)
    }

    /// Takes note of how a call ended.
    pub(super) fn saw(&self, result: &Result<CallToolResponse, ToolError>) {
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
