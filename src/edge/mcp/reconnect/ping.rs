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

async fn ping(peer: Peer<RoleClient>, limit: Duration, leaf: WeakLeaf, live: Weak<Live>) {
    let request = ClientRequest::PingRequest(PingRequest::default());
    let pong = timeout(limit, peer.send_request(request)).await;
    let (Some(leaf), Some(live)) = (leaf.upgrade(), live.upgrade()) else {
        return;
    };
    live.end_ping();
    let lost = match pong {
        Ok(Ok(_)) => None,
        // An answer as well, most of the time.
        Ok(Err(error)) => Some(errors::from_service(error)).filter(is_loss),
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
