//! Messages that wait to be written.

use std::sync::Arc;

use tokio::{
    io::{AsyncWrite, AsyncWriteExt as _},
    sync::{
        OwnedSemaphorePermit, Semaphore,
        mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    },
};

use super::message::Line;

/// How many KiB of messages wait for whoever reads slowly; then the other side waits, too. A longer message waits alone.
const ROOM: u32 = 16 << 10;

/// Where messages go. Clones share it.
#[derive(Clone)]
pub(crate) struct Queue {
    to: UnboundedSender<Queued>,
    room: Arc<Semaphore>,
}

/// `None` is the last.
type Queued = (Option<Line>, OwnedSemaphorePermit);

/// Where they are taken out.
pub(crate) struct Waiting(UnboundedReceiver<Queued>);

/// A queue, and its other end.
pub(crate) fn queue() -> (Queue, Waiting) {
    let (to, waiting) = unbounded_channel();
    let room = Arc::new(Semaphore::new(ROOM as usize));
    (Queue { to, room }, Waiting(waiting))
}

impl Queue {
    /// Waits while there is no room. What nobody takes out any more is lost.
    pub(crate) async fn send(&self, line: Line) {
        self.put(Some(line)).await;
    }

    /// No message comes after those that were sent before.
    pub(crate) async fn close(&self) {
        self.put(None).await;
    }

    async fn put(&self, line: Option<Line>) {
        let room = Arc::clone(&self.room).acquire_many_owned(size(&line)).await;
        if let Ok(room) = room {
            let _ = self.to.send((line, room));
        }
    }

    /// Does not wait: if there is no room, the message is lost.
    pub(crate) fn try_send(&self, line: Line) {
        let line = Some(line);
        if let Ok(room) = Arc::clone(&self.room).try_acquire_many_owned(size(&line)) {
            let _ = self.to.send((line, room));
        }
    }

    /// Whether anything is not written yet.
    pub(crate) fn has_any(&self) -> bool {
        self.room.available_permits() < ROOM as usize
    }

    /// Until nobody takes messages out any more.
    pub(crate) async fn closed(&self) {
        self.to.closed().await;
    }
}

/// In KiB.
fn size(line: &Option<Line>) -> u32 {
    let bytes = line.as_ref().map_or(0, Line::len);
    u32::try_from(bytes / 1024 + 1).map_or(ROOM, |size| size.min(ROOM))
}

impl Waiting {
    /// Writes them one by one, to the last or until they cannot be written.
    pub(crate) async fn write(mut self, mut to: impl AsyncWrite + Unpin) -> std::io::Result<()> {
        while let Some((Some(mut line), _room)) = self.0.recv().await {
            line.push('\n');
            to.write_all(line.as_bytes()).await?;
            to.flush().await?;
        }
        Ok(())
    }
}
