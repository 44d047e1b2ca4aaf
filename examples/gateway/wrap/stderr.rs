//! This program's own stderr, which whoever has started it may have closed, or may never read.

use std::{
    io::{self, Write},
    sync::mpsc::{Sender, SyncSender, channel, sync_channel},
    thread,
    time::Duration,
};

/// How many texts wait to be written; more are lost.
const WAITING: usize = 1000;

/// What is written to it is written by a thread. Clones share that.
#[derive(Clone)]
pub(crate) struct Stderr(SyncSender<Said>);

enum Said {
    Text(Vec<u8>),
    /// Answers when all is written that was said before.
    Last(Sender<()>),
}

impl Stderr {
    pub(crate) fn start() -> Self {
        let (to, all) = sync_channel(WAITING);
        thread::spawn(move || {
            for said in all {
                // That it cannot be written can be told to nobody.
                let _ = match said {
                    Said::Text(text) => io::stderr().write_all(&text).ok(),
                    Said::Last(done) => done.send(()).ok(),
                };
            }
        });
        Self(to)
    }

    /// Waits until all is written.
    pub(crate) fn finish(&self, limit: Duration) {
        let (done, last) = channel();
        if self.0.try_send(Said::Last(done)).is_ok() {
            let _ = last.recv_timeout(limit);
        }
    }
}

impl Write for Stderr {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        let _ = self.0.try_send(Said::Text(text.to_vec()));
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
