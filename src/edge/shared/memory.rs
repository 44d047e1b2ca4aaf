//! A store for processes that are one.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{sync::watch, time::Instant};

use super::store::{Exchange, MAX_ENTRIES, MAX_PEERS, News, Record, Store};
use crate::{error::AnyError, kit::backoff::Random};

/// The most entries that it keeps.
const MAX_KEPT: usize = 100_000;

/// A [`Store`] in memory: for tests, and for several stacks of one process. Clones share it.
///
/// It keeps 100,000 entries, and refuses more.
#[derive(Clone)]
pub struct MemoryStore {
    log: Arc<Mutex<Log>>,
    written: watch::Sender<()>,
    heard: watch::Receiver<()>,
}

struct Log {
    id: String,
    seq: u64,
    entries: BTreeMap<u64, Kept>,
    latest: HashMap<(String, String), u64>,
    over: BTreeSet<(Instant, u64)>,
    peers: BTreeMap<String, Instant>,
}

struct Kept {
    peer: String,
    key: String,
    value: String,
    until: Instant,
}

impl Log {
    fn remove(&mut self, seq: u64) {
        if let Some(kept) = self.entries.remove(&seq) {
            self.over.remove(&(kept.until, seq));
            self.latest.remove(&(kept.peer, kept.key));
        }
    }

    fn forget_what_is_over(&mut self, now: Instant) {
        while let Some(&(until, seq)) = self.over.first()
            && until <= now
        {
            self.remove(seq);
        }
        self.peers.retain(|_, until| *until > now);
    }

    fn read(&self, since: u64, now: Instant) -> News {
        let mut records = self.entries.range(since.saturating_add(1)..);
        let record = |(seq, kept): (&u64, &Kept)| Record {
            seq: *seq,
            peer: kept.peer.clone(),
            key: kept.key.clone(),
            value: kept.value.clone(),
            left: kept.until - now,
        };
        let read: Vec<_> = records.by_ref().take(MAX_ENTRIES).map(record).collect();
        let more = records.next().is_some();
        News {
            store: self.id.clone(),
            seq: match read.last() {
                Some(last) if more => last.seq,
                _ => self.seq,
            },
            more,
            peers: self.peers.keys().take(MAX_PEERS).cloned().collect(),
            records: read,
            refused: 0,
        }
    }
}

impl MemoryStore {
    /// An empty one.
    pub fn new() -> Self {
        let (written, heard) = watch::channel(());
        let log = Log {
            id: format!("{:016x}", Random::default().next()),
            seq: 0,
            entries: BTreeMap::new(),
            latest: HashMap::new(),
            over: BTreeSet::new(),
            peers: BTreeMap::new(),
        };
        Self {
            log: Arc::new(Mutex::new(log)),
            written,
            heard,
        }
    }

    fn run(&self, exchange: Exchange<'_>) -> News {
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        log.forget_what_is_over(now);
        let after = |d: Duration| now.checked_add(d).unwrap_or(now);
        log.peers
            .insert(exchange.peer.to_owned(), after(exchange.present_for));
        let mut refused = 0;
        for entry in exchange.entries {
            let name = (exchange.peer.to_owned(), entry.key.clone());
            match log.latest.get(&name) {
                Some(&before) => log.remove(before),
                None if log.entries.len() >= MAX_KEPT => {
                    refused += 1;
                    continue;
                }
                None => {}
            }
            log.seq += 1;
            let (seq, until) = (log.seq, after(entry.lasts));
            log.over.insert((until, seq));
            let kept = Kept {
                peer: exchange.peer.to_owned(),
                key: entry.key.clone(),
                value: entry.value.clone(),
                until,
            };
            log.entries.insert(seq, kept);
            log.latest.insert(name, seq);
        }
        let since = match *exchange.store == *log.id {
            true => exchange.since,
            false => 0,
        };
        let news = log.read(since, now);
        drop(log);
        if !exchange.entries.is_empty() {
            self.written.send_replace(());
        }
        News { refused, ..news }
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
        Ok(self.run(exchange))
    }

    async fn changed(&mut self) {
        // The sender is in `self`: it cannot be gone.
        let _ = self.heard.changed().await;
    }
}
