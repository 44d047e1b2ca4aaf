//! This program's own stderr, which whoever has started it may have closed, or may never read.

use std::{
    io::{self, Write},
    sync::mpsc::{Receiver, SyncSender, channel, sync_channel},
    thread,
};

/// How many texts wait to be written; more are lost.
const WAITING: usize = 1000;

/// What is written to it is written by a thread. Clones share that.
#[derive(Clone)]
pub(crate) struct Stderr(SyncSender<Vec<u8>>);

impl Stderr {
    /// What is returned with it ends when all is written.
    pub(crate) fn start() -> (Self, Receiver<()>) {
        let (to, texts) = sync_channel::<Vec<u8>>(WAITING);
        let (writes, written) = channel();
        thread::spawn(move || {
            for text in texts.iter().take_while(|text| !text.is_empty()) {
                // That it cannot be written can be told to nobody.
                let _ = io::stderr().write_all(&text);
            }
            drop(writes);
        });
        (Self(to), written)
    }

    /// No text comes after those that were written before.
    pub(crate) fn close(&self) {
        let _ = self.0.try_send(Vec::new());
    }
}

impl Write for Stderr {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        let _ = self.0.try_send(text.to_vec());
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
