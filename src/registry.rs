//! A bounded map from the [keys](crate::Key) of calls to a layer's state.
//!
//! A model that invents tool names must not be able to grow memory, so the number of keys is
//! bounded; and what protects a tool (an open breaker, a cooldown) must not be the thing that is
//! forgotten, so every value says whether it may be.
//!
//! Looking up a known key takes no lock, writes nothing and does not allocate: entries are only ever
//! added to a table, and each service instance keeps the table it saw last, revalidated by one load.
//! When a table is full, a new one takes what wants to stay, as far as that frees an eighth of the places:
//! what must not be forgotten or has a call in flight, always; then what should not, then what was used
//! again since the last sweep. If what must stay fills the table, unknown keys share one overflow entry.
//!
//! An instance that makes no calls for a while keeps the table it saw last alive. So old tables are
//! counted: while [`MAX_OLD_TABLES`] of them live, nothing is swept, and unknown keys share the
//! overflow entry. So at most five times the bound of entries live: the present table's, three old
//! ones', and those of tables that were outgrown before the first sweep. A clone starts without a
//! table.
//!
//! Whoever looks a key up for a call keeps the entry until the call has ended; that is how a call in flight
//! is seen. A call that looks a key up in the very moment
//! in which it is evicted works on the evicted entry; nothing is lost but that call's mark on a state that
//! was clean.

use std::sync::{
    Arc, Mutex, OnceLock, PoisonError, Weak,
    atomic::{
        AtomicBool, AtomicU64, AtomicUsize,
        Ordering::{Acquire, Relaxed, Release},
    },
};

use crate::{
    call::{CallInfo, MAX_NAME_BYTES},
    event::{Event, Listener},
    key::{Key, KeyRef},
};

/// The default bound on the number of keys.
pub(crate) const DEFAULT_MAX_KEYS: usize = 10_000;

/// How many tables that were swept may be kept alive by idle instances.
const MAX_OLD_TABLES: usize = 3;

/// A value that can tell how much harm it would do to forget it.
pub(crate) trait Evict {
    fn keep(&self) -> Keep;
}

/// What has to stay when a table is swept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keep {
    /// An open breaker.
    Always,
    /// A breaker that has counted failures: unless there are too many.
    IfPossible,
    /// A state that is as good as new: only if it is used, and there are not too many.
    IfUsed,
}

/// The tier of what is idle and as good as new.
const FORGOTTEN: usize = 4;

/// One key and its value.
#[derive(Debug)]
pub(crate) struct Entry<V> {
    hash: u64,
    /// Both parts of the key, one after the other. Of a long one only the beginning is kept; its length
    /// and the hash tell it from others. Nobody can choose a name for its hash.
    text: Box<str>,
    /// Where the second part begins.
    split: usize,
    lengths: [usize; 2],
    /// Looked up again since it was added, or since the last sweep.
    used: AtomicBool,
    /// How many tables hold it. Whoever else does has a call in flight.
    tables: AtomicUsize,
    pub(crate) value: V,
}

/// The first [`MAX_NAME_BYTES`], and less in front of a character that they would split.
fn head(text: &str) -> &str {
    let mut end = text.len().min(MAX_NAME_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// The length of a part that a key does not have.
const NONE: usize = usize::MAX;

#[inline(always)]
fn length(part: Option<&str>) -> usize {
    part.map_or(NONE, str::len)
}

#[inline(always)]
fn starts_with(part: Option<&str>, known: &[u8]) -> bool {
    part.unwrap_or_default().as_bytes().starts_with(known)
}

impl<V> Entry<V> {
    fn new(key: &KeyRef<'_>, value: V) -> Arc<Self> {
        let [server, name] = [key.server, key.name].map(|part| head(part.unwrap_or_default()));
        Arc::new(Self {
            hash: key.hash,
            text: [server, name].concat().into(),
            split: server.len(),
            lengths: [key.server, key.name].map(length),
            used: AtomicBool::new(false),
            tables: AtomicUsize::new(0),
            value,
        })
    }

    /// Writes only if that is news.
    #[inline]
    fn mark_used(&self) {
        if !self.used.load(Relaxed) {
            self.used.store(true, Relaxed);
        }
    }

    /// Its place among those that want to stay when a table is swept.
    fn tier(this: &Arc<Self>) -> usize
    where
        V: Evict,
    {
        let used = this.used.load(Relaxed);
        let in_flight = Arc::strong_count(this) > this.tables.load(Acquire);
        match this.value.keep() {
            _ if in_flight => 0,
            Keep::Always => 0,
            Keep::IfPossible if used => 1,
            Keep::IfPossible => 2,
            Keep::IfUsed if used => 3,
            Keep::IfUsed => FORGOTTEN,
        }
    }

    #[inline(always)]
    fn is(&self, key: &KeyRef<'_>) -> bool {
        if self.hash != key.hash
            || self.lengths[0] != length(key.server)
            || self.lengths[1] != length(key.name)
        {
            return false;
        }
        let (server, name) = self.text.as_bytes().split_at(self.split);
        starts_with(key.server, server) && starts_with(key.name, name)
    }

    /// The server part of the key, its first 256 bytes.
    pub(crate) fn server(&self) -> Option<&str> {
        (self.lengths[0] != NONE).then(|| &self.text[..self.split])
    }

    /// The tool's name, or what a key function picked, its first 256 bytes.
    pub(crate) fn name(&self) -> Option<&str> {
        (self.lengths[1] != NONE).then(|| &self.text[self.split..])
    }
}

/// An insert-only hash table with open addressing, at most half full.
#[derive(Debug)]
struct Table<V> {
    slots: Box<[OnceLock<Arc<Entry<V>>>]>,
}

impl<V> Table<V> {
    /// `capacity` entries and as many empty slots, at least.
    fn new(capacity: usize) -> Self {
        let slots = (2 * capacity).next_power_of_two();
        Self {
            slots: (0..slots).map(|_| OnceLock::new()).collect(),
        }
    }

    fn capacity(&self) -> usize {
        self.slots.len() / 2
    }

    /// The place of the key's entry.
    #[inline(always)]
    fn find(&self, key: &KeyRef<'_>) -> Option<usize> {
        let mask = self.slots.len() - 1;
        // The low bits choose the slot; the table is never full, so the search ends.
        let mut at = key.hash as usize & mask;
        while let Some(entry) = self.slots[at].get() {
            if entry.is(key) {
                return Some(at);
            }
            at = (at + 1) & mask;
        }
        None
    }

    /// Puts an entry in whose key is not there. For the one writer.
    fn insert(&self, entry: Arc<Entry<V>>) {
        let mask = self.slots.len() - 1;
        entry.tables.fetch_add(1, Relaxed);
        let mut at = entry.hash as usize & mask;
        while self.slots[at].get().is_some() {
            at = (at + 1) & mask;
        }
        let _ = self.slots[at].set(entry);
    }

    fn entry(&self, at: usize) -> &Arc<Entry<V>> {
        self.slots[at]
            .get()
            .expect("found there, and never removed")
    }

    fn entries(&self) -> impl Iterator<Item = &Arc<Entry<V>>> {
        self.slots.iter().filter_map(OnceLock::get)
    }
}

impl<V> Drop for Table<V> {
    fn drop(&mut self) {
        for entry in self.entries() {
            // Before the entry's count goes down: in between it seems to be in use, which is harmless.
            entry.tables.fetch_sub(1, Release);
        }
    }
}

#[derive(Debug)]
struct Shared<V> {
    writer: Mutex<Writer<V>>,
    /// Counts tables: tells an instance that its table is an old one.
    generation: AtomicU64,
    /// What an instance has seen before its first look-up.
    nothing: Arc<Table<V>>,
    overflow: Arc<Entry<V>>,
    key: Key,
    max: usize,
    listener: Listener,
}

#[derive(Debug)]
struct Writer<V> {
    table: Arc<Table<V>>,
    len: usize,
    /// Tables that were swept and that somebody may hold still.
    old: Vec<Weak<Table<V>>>,
    /// Unknown keys to send to the overflow entry before the next sweep is tried.
    patience: usize,
}

/// The map, as a service instance holds it. Clones share the keys.
#[derive(Debug)]
pub(crate) struct Registry<V> {
    shared: Arc<Shared<V>>,
    /// The table seen last; before the first look-up an empty one, of no generation.
    seen: Arc<Table<V>>,
    generation: u64,
}

/// The generation of no table.
const UNSEEN: u64 = u64::MAX;

impl<V> Registry<V> {
    fn unseen(shared: Arc<Shared<V>>) -> Self {
        Self {
            seen: Arc::clone(&shared.nothing),
            generation: UNSEEN,
            shared,
        }
    }
}

impl<V> Clone for Registry<V> {
    fn clone(&self) -> Self {
        Self::unseen(Arc::clone(&self.shared))
    }
}

impl<V: Evict + Default> Default for Registry<V> {
    fn default() -> Self {
        Self::new(
            Key::default(),
            DEFAULT_MAX_KEYS,
            V::default(),
            Listener::default(),
        )
    }
}

impl<V: Evict> Registry<V> {
    /// A map of at most `max` keys, at least 1. `overflow` is shared by the keys beyond.
    pub(crate) fn new(key: Key, max: usize, overflow: V, listener: Listener) -> Self {
        let max = max.max(1);
        let nobody = KeyRef {
            server: None,
            name: None,
            hash: 0,
        };
        Self::unseen(Arc::new(Shared {
            writer: Mutex::new(Writer {
                table: Arc::new(Table::new(max.min(32))),
                len: 0,
                old: Vec::new(),
                patience: 0,
            }),
            generation: AtomicU64::new(0),
            nothing: Arc::new(Table::new(1)),
            overflow: Entry::new(&nobody, overflow),
            key,
            max,
            listener,
        }))
    }

    /// The entry of the call's key, made by `make` if it is new. Lives as long as somebody holds it.
    #[inline]
    pub(crate) fn get(&mut self, call: &CallInfo, make: impl FnOnce() -> V) -> &Arc<Entry<V>> {
        let key = self.shared.key.of(call);
        if self.generation == self.shared.generation.load(Acquire)
            && let Some(at) = self.seen.find(&key)
        {
            let entry = self.seen.entry(at);
            entry.mark_used();
            return entry;
        }
        self.get_or_insert(&key, make)
    }

    #[cold]
    fn get_or_insert(&mut self, key: &KeyRef<'_>, make: impl FnOnce() -> V) -> &Arc<Entry<V>> {
        let mut make = Some(make);
        // Once, unless the key is evicted between its insertion and the second look.
        for _ in 0..3 {
            self.refresh();
            // One table for the look and for the entry: a place means nothing in another one.
            if let Some(at) = self.seen.find(key) {
                let entry = self.seen.entry(at);
                if make.is_some() {
                    entry.mark_used();
                }
                return entry;
            }
            if !self.insert(key, &mut make) {
                break;
            }
        }
        &self.shared.overflow
    }

    /// Every entry but the overflow one, in no order.
    pub(crate) fn entries(&self) -> Vec<Arc<Entry<V>>> {
        let writer = self.lock();
        writer.table.entries().cloned().collect()
    }

    /// The number of keys.
    pub(crate) fn len(&self) -> usize {
        self.lock().len
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Writer<V>> {
        let writer = &self.shared.writer;
        writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn refresh(&mut self) {
        let writer = self.lock();
        // Under the lock, where it is counted up: the two belong together.
        let generation = self.shared.generation.load(Acquire);
        let table = Arc::clone(&writer.table);
        drop(writer);
        (self.seen, self.generation) = (table, generation);
    }

    /// Adds a key, unless it is known by now; false if there is no place for it.
    fn insert(&self, key: &KeyRef<'_>, make: &mut Option<impl FnOnce() -> V>) -> bool {
        let mut writer = self.lock();
        if writer.table.find(key).is_some() {
            return true;
        }
        let before = writer.len;
        if !self.make_room(&mut writer) {
            return false;
        }
        let Some(make) = make.take() else {
            return false;
        };
        let kept = writer.len;
        writer.table.insert(Entry::new(key, make()));
        writer.len += 1;
        // A listener may look at the keys itself.
        drop(writer);
        if kept < before {
            let keys = before - kept;
            self.shared.listener.tell(&Event::Evicted { keys, kept });
        }
        true
    }

    fn make_room(&self, writer: &mut Writer<V>) -> bool {
        let max = self.shared.max;
        if writer.len < max.min(writer.table.capacity()) {
            return true;
        }
        if writer.len < max {
            let room = (2 * writer.table.capacity()).min(max);
            self.publish(writer, Table::new(room), |_| true);
            return true;
        }
        if writer.patience > 0 {
            writer.patience -= 1;
            return false;
        }
        writer.old.retain(|old| old.strong_count() > 0);
        let mut tiers = [0; FORGOTTEN + 1];
        for entry in writer.table.entries() {
            tiers[Entry::tier(entry)] += 1;
        }
        // A sweep looks at every key. One that frees nothing, or cannot be made, is not tried again
        // at once; one that keeps more than it must has to free an eighth.
        if tiers[0] == max || writer.old.len() >= MAX_OLD_TABLES {
            writer.patience = max / 64;
            return false;
        }
        let room = max - max.div_ceil(8);
        let fits = |last: &usize| tiers[..=*last].iter().sum::<usize>() <= room;
        let last = (0..FORGOTTEN).rev().find(fits).unwrap_or(0);
        let old = Arc::downgrade(&writer.table);
        self.publish(writer, Table::new(max), |e| {
            let stays = Entry::tier(e) <= last;
            e.used.store(false, Relaxed);
            stays
        });
        writer.old.push(old);
        // A sweep that freed little is not made again for the next few keys.
        let few = max / 64;
        if max - writer.len < few {
            writer.patience = few;
        }
        writer.len < max
    }

    /// Replaces the table by one that has the entries to keep.
    fn publish(
        &self,
        writer: &mut Writer<V>,
        next: Table<V>,
        keep: impl Fn(&Arc<Entry<V>>) -> bool,
    ) {
        writer.len = 0;
        for entry in writer.table.entries() {
            if keep(entry) {
                next.insert(Arc::clone(entry));
                writer.len += 1;
            }
        }
        writer.table = Arc::new(next);
        self.shared.generation.fetch_add(1, Release);
    }
}

#[cfg(test)]
mod tests;
