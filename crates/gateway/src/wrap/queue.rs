//! Messages that wait to be written.

use std::{io, sync::Arc};

use tokio::{
    io::{AsyncWrite, AsyncWriteExt as _},
    sync::{
        OwnedSemaphorePermit, Semaphore,
        mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    },
};

use super::message::Line;

/// The most KiB of messages that wait for a slow reader; then the writer waits, too. A longer
/// message waits alone.
const ROOM: u32 = 16 << 10;

/// Where messages go. Clones share it.
#[derive(Clone)]
pub(crate) struct Queue {
    to: UnboundedSender<Queued>,
    room: Arc<Semaphore>,
}

/// An empty message is the last.
type Queued = (Line, OwnedSemaphorePermit);

/// Where they are taken out.
pub(crate) type Waiting = UnboundedReceiver<Queued>;

/// A queue, and its other end.
pub(crate) fn queue() -> (Queue, Waiting) {
    let (to, waiting) = unbounded_channel();
    let room = Arc::new(Semaphore::new(ROOM as usize));
    (Queue { to, room }, waiting)
}

impl Queue {
    /// Sends a message after waiting for room. It is lost if the receiver has stopped.
    pub(crate) async fn send(&self, line: Line) {
        let room = Arc::clone(&self.room).acquire_many_owned(kib(&line, ROOM));
        if let Ok(room) = room.await {
            let _ = self.to.send((line, room));
        }
    }

    /// Sends a message without waiting: without room it is lost.
    pub(crate) fn try_send(&self, line: Line) {
        if let Ok(room) = Arc::clone(&self.room).try_acquire_many_owned(kib(&line, ROOM)) {
            let _ = self.to.send((line, room));
        }
    }

    /// Ends the queue after the messages that were sent before.
    pub(crate) async fn close(&self) {
        self.send(Line::new()).await;
    }

    /// Waits until there is room for more than has been sent.
    pub(crate) async fn room(&self) {
        let _ = self.room.acquire().await;
    }

    /// Waits until the receiver stops.
    pub(crate) async fn closed(&self) {
        self.to.closed().await;
    }
}

/// Returns how many KiB of a room a message takes.
pub(crate) fn kib(line: &Line, room: u32) -> u32 {
    u32::try_from(line.len() / 1024 + 1).map_or(room, |size| size.min(room))
}

/// Writes them one by one, to the last or until they cannot be written.
pub(crate) async fn write(mut waiting: Waiting, mut to: impl AsyncWrite + Unpin) -> io::Result<()> {
    while let Some((mut line, _room)) = waiting.recv().await
        && !line.is_empty()
    {
        line.push('\n');
        to.write_all(line.as_bytes()).await?;
        to.flush().await?;
    }
    Ok(())
}
