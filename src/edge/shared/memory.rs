//! A store for processes that are one.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{sync::watch, time::Instant};

use super::store::{Entry, Exchange, MAX_ENTRIES, MAX_STEP, News, Record, Store};
use crate::{error::AnyError, kit::backoff::Random};

/// The most registers that it keeps.
const MAX_KEPT: usize = 100_000;

/// A [`Store`] in memory: for tests, and for several stacks of one process. Clones share it.
///
/// At most 100,000 registers are kept; more are refused.
#[derive(Clone)]
pub struct MemoryStore {
    registers: Arc<Mutex<Registers>>,
    written: watch::Sender<()>,
    heard: watch::Receiver<()>,
}

struct Registers {
    id: String,
    seq: u64,
    kept: HashMap<String, Kept>,
    peers: HashMap<String, Instant>,
}

struct Kept {
    seq: u64,
    version: u64,
    value: String,
    until: Instant,
}

impl Registers {
    /// Returns whether it was written; else the register, if there is one, is to be read.
    fn write(&mut self, entry: &Entry, until: Instant) -> bool {
        let is_written = match self.kept.get(&entry.key) {
            Some(kept) => kept.version < entry.version || kept.version - entry.version > MAX_STEP,
            None => self.kept.len() < MAX_KEPT,
        };
        if is_written {
            self.seq += 1;
            let kept = Kept {
                seq: self.seq,
                version: entry.version,
                value: entry.value.clone(),
                until,
            };
            self.kept.insert(entry.key.clone(), kept);
        }
        is_written
    }

    fn record(&self, key: &str, now: Instant) -> Option<Record> {
        self.kept.get(key).map(|kept| Record {
            key: key.to_owned(),
            version: kept.version,
            value: kept.value.clone(),
            left: kept.until - now,
        })
    }

    fn exchange(&mut self, exchange: &Exchange<'_>, now: Instant) -> News {
        self.kept.retain(|_, kept| kept.until > now);
        self.peers.retain(|_, until| *until > now);
        let after = |d: Duration| now.checked_add(d).unwrap_or(now);
        let peer = exchange.peer.to_owned();
        self.peers.insert(peer, after(exchange.present_for));
        let mut records = Vec::new();
        for entry in exchange.entries {
            if !self.write(entry, after(entry.lasts)) {
                records.extend(self.record(&entry.key, now));
            }
        }
        let since = match *exchange.store == *self.id {
            true => exchange.since,
            false => 0,
        };
        let new = self.kept.iter().filter(|(_, kept)| kept.seq > since);
        let mut new: Vec<_> = new.map(|(key, kept)| (kept.seq, key)).collect();
        new.sort_unstable();
        let more = new.len() > MAX_ENTRIES;
        new.truncate(MAX_ENTRIES);
        records.extend(new.iter().filter_map(|(_, key)| self.record(key, now)));
        News {
            store: self.id.clone(),
            seq: match new.last() {
                Some(last) if more => last.0,
                _ => self.seq,
            },
            more,
            processes: self.peers.len(),
            records,
        }
    }
}

impl MemoryStore {
    /// An empty one.
    pub fn new() -> Self {
        let (written, heard) = watch::channel(());
        let registers = Registers {
            id: format!("{:016x}", Random::default().next()),
            seq: 0,
            kept: HashMap::new(),
            peers: HashMap::new(),
        };
        Self {
            registers: Arc::new(Mutex::new(registers)),
            written,
            heard,
        }
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

crate::text::opaque_debug!({} MemoryStore);

impl Store for MemoryStore {
    async fn exchange(&mut self, exchange: Exchange<'_>) -> Result<News, AnyError> {
        let registers = self.registers.lock();
        let mut registers = registers.unwrap_or_else(PoisonError::into_inner);
        let news = registers.exchange(&exchange, Instant::now());
        drop(registers);
        if !exchange.entries.is_empty() {
            self.written.send_replace(());
        }
        Ok(news)
    }

    async fn changed(&mut self) {
        // The sender is in `self`: it cannot be gone.
        let _ = self.heard.changed().await;
    }
}
