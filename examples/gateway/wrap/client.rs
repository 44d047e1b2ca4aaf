//! The client, at this program's own stdin and stdout.

use std::time::Duration;

use tokio::{io::stdout, task::JoinHandle, time::timeout};

use super::queue::{Queue, queue};

/// Writes what is sent to the client, and nothing else does: stdout has whole messages.
pub(crate) struct Writer {
    client: Queue,
    writes: JoinHandle<()>,
}

impl Writer {
    pub(crate) fn start() -> (Queue, Self) {
        let (client, waiting) = queue();
        // If it ends before the last message, the client is gone.
        let writes = tokio::spawn(async { drop(waiting.write(stdout()).await) });
        (client.clone(), Self { client, writes })
    }

    /// Waits until all is written that was sent before.
    pub(crate) async fn finish(self, limit: Duration) {
        let written = async {
            self.client.close().await;
            let _ = self.writes.await;
        };
        let _ = timeout(limit, written).await;
    }
}
