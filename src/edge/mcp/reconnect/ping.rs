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
    connection::{Live, is_loss},
    settings::Settings,
    shared::Shared,
};
use crate::{
    edge::mcp::errors,
    error::{ErrorKind, ToolError},
};

/// A call that has been sent. Dropped before it is answered, it has the server asked whether it is there at all.
pub(super) struct Unanswered<'a> {
    pub(super) shared: &'a Arc<Shared>,
    /// `None` once it is answered.
    pub(super) live: Option<&'a Arc<Live>>,
    pub(super) settings: &'a Settings,
}

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        let (Some(live), Some(limit)) = (self.live, self.settings.ping) else {
            return;
        };
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        // One at a time. It holds nothing up, and ends at its limit.
        if live.is_up() && live.begin_ping() {
            let (peer, settings) = (live.service().peer().clone(), *self.settings);
            let (shared, live) = (Arc::downgrade(self.shared), Arc::downgrade(live));
            runtime.spawn(ping(peer, limit, shared, live, settings));
        }
    }
}

async fn ping(
    peer: Peer<RoleClient>,
    limit: Duration,
    shared: Weak<Shared>,
    live: Weak<Live>,
    settings: Settings,
) {
    let request = ClientRequest::PingRequest(PingRequest::default());
    let pong = timeout(limit, peer.send_request(request)).await;
    let (Some(shared), Some(live)) = (shared.upgrade(), live.upgrade()) else {
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
        shared.lose(&live, &settings, &error);
    }
}
