//! The client, at this program's own stdin and stdout.

use std::time::Duration;

use tokio::{
    io::{AsyncWriteExt as _, stdout},
    sync::mpsc,
    task::JoinHandle,
    time::timeout,
};

use super::message::Line;

/// How many messages wait for a client that reads slowly; then its server waits.
const QUEUE: usize = 64;

/// Where messages to the client go; an empty one is the last. Clones share it.
#[derive(Clone)]
pub(crate) struct Client(mpsc::Sender<Line>);

/// Writes them, and nothing else does: stdout has whole messages.
pub(crate) struct Writer(JoinHandle<()>);

impl Client {
    pub(crate) fn new() -> (Self, Writer) {
        let (sender, mut lines) = mpsc::channel::<Line>(QUEUE);
        let write = async move {
            let mut out = stdout();
            while let Some(mut line) = lines.recv().await.filter(|line| !line.is_empty()) {
                line.push(b'\n');
                let written = async {
                    out.write_all(&line).await?;
                    out.flush().await
                };
                // Then the client is gone.
                if written.await.is_err() {
                    break;
                }
            }
        };
        (Self(sender), Writer(tokio::spawn(write)))
    }

    /// Waits while the client does not read. A client that is gone gets nothing.
    pub(crate) async fn send(&self, line: Line) {
        let _ = self.0.send(line).await;
    }

    /// Until the client reads no more.
    pub(crate) async fn gone(&self) {
        self.0.closed().await;
    }
}

impl Writer {
    /// Waits until all is written that was sent before.
    pub(crate) async fn finish(self, client: &Client, limit: Duration) {
        let written = async {
            client.send(Line::new()).await;
            let _ = self.0.await;
        };
        let _ = timeout(limit, written).await;
    }
}
