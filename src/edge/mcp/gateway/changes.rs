use std::sync::Arc;

use rmcp::service::{Peer, RoleServer, SubscriptionSink};
use tokio::sync::watch;

/// The news that the list of tools has changed. However many changes a slow client misses, it is told once.
#[derive(Clone, Default)]
pub(super) struct Changes(Arc<watch::Sender<()>>);

impl Changes {
    pub(super) fn tell(&self) {
        self.0.send_modify(|()| ());
    }

    /// Tells the client of a session, until it is gone.
    pub(super) fn tell_session(
        &self,
        peer: Peer<RoleServer>,
    ) -> impl Future<Output = ()> + Send + 'static {
        let mut changes = self.0.subscribe();
        async move {
            while changes.changed().await.is_ok() && peer.notify_tool_list_changed().await.is_ok() {
            }
        }
    }

    /// Tells a client that listens, until it does not any more.
    pub(super) async fn tell_listener(&self, sink: &SubscriptionSink) {
        let mut changes = self.0.subscribe();
        while changes.changed().await.is_ok() && sink.notify_tool_list_changed().await.is_ok() {}
    }
}
