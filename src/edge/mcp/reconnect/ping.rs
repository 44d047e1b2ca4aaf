use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use rmcp::{
    RoleClient,
    model::{ClientRequest, PingRequest},
    service::Peer,
};
use tokio::{runtime::Handle, time::timeout};

use super::{
    McpReconnect,
    connection::{Live, is_loss},
    shared::WeakLeaf,
};
use crate::{
    edge::mcp::errors,
    error::{ErrorKind, ToolError},
};

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
        if is_current && live.begin_ping() {
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
    if !has_session(peer) || errors::protocol_code(&refusal) == Some(METHOD_NOT_FOUND) {
        return None;
    }
    peer.list_tools(None).await.err().map(errors::from_service)
}

fn has_session(peer: &Peer<RoleClient>) -> bool {
    let server = peer.peer_info();
    server.is_some_and(|server| server.protocol_version.has_initialize())
}

/// Returns whether an error of a call is that of a session that the server does not know any more.
/// There are many words for that, so what counts is that it refuses other requests as well.
pub(super) async fn has_lost_session(
    peer: &Peer<RoleClient>,
    error: &ToolError,
    limit: Option<Duration>,
) -> bool {
    if !errors::is_of_lost_session(error) || !has_session(peer) {
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
    let (Some(leaf), Some(live)) = (leaf.upgrade(), live.upgrade()) else {
        return;
    };
    live.end_ping();
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
