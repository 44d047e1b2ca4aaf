//! A store for processes that are one.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{sync::watch, time::Instant};

use tower_toolcall::AnyError;

use super::{
    random::random,
    store::{Entry, Exchange, MAX_ENTRIES, MAX_STEP, News, Record, Store},
};

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
    entry: Entry,
    until: Instant,
}

impl Kept {
    fn record(&self, now: Instant) -> Record {
        Record {
            key: self.entry.key.clone(),
            version: self.entry.version,
            value: self.entry.value.clone(),
            left: self.until - now,
        }
    }
}

impl Registers {
    fn exchange(&mut self, exchange: &Exchange<'_>, now: Instant) -> News {
        self.kept.retain(|_, kept| kept.until > now);
        self.peers.retain(|_, until| *until > now);
        let after = |d: Duration| now.checked_add(d).unwrap_or(now);
        let peer = exchange.peer.to_owned();
        self.peers.insert(peer, after(exchange.present_for));
        let mut records = Vec::new();
        for entry in exchange.entries {
            let is_ahead = |kept: &&Kept| {
                let ahead = kept.entry.version.checked_sub(entry.version);
                ahead.is_some_and(|ahead| ahead <= MAX_STEP)
            };
            let known = self.kept.get(&entry.key);
            if let Some(kept) = known.filter(is_ahead) {
                records.push(kept.record(now));
            } else if known.is_some() || self.kept.len() < MAX_KEPT {
                self.seq += 1;
                let kept = Kept {
                    seq: self.seq,
                    entry: entry.clone(),
                    until: after(entry.lasts),
                };
                self.kept.insert(entry.key.clone(), kept);
            }
        }
        let is_known = *exchange.store == *self.id;
        let since = if is_known { exchange.since } else { 0 };
        let mut new: Vec<_> = self.kept.values().filter(|kept| kept.seq > since).collect();
        new.sort_unstable_by_key(|kept| kept.seq);
        let more = new.len() > MAX_ENTRIES;
        new.truncate(MAX_ENTRIES);
        records.extend(new.iter().map(|kept| kept.record(now)));
        News {
            store: self.id.clone(),
            seq: match new.last() {
                Some(last) if more => last.seq,
                _ => self.seq,
            },
            more,
            processes: self.peers.len(),
            records,
        }
    }
}

impl MemoryStore {
    /// Makes an empty store.
    pub fn new() -> Self {
        let (written, heard) = watch::channel(());
        let registers = Registers {
            id: format!("{:016x}", random()),
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

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").finish_non_exhaustive()
    }
}

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
