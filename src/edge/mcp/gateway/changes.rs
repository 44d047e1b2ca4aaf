use std::{future::Future, sync::Arc};

use tokio::sync::watch;

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
