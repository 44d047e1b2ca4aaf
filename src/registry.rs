//! A bounded map from the [keys](crate::Key) of calls to a layer's state.
//!
//! A model that invents tool names must not be able to grow memory, so the number of keys is
//! bounded; and what protects a tool (an open breaker, a cooldown) must not be the thing that is
//! forgotten, so every value says whether it may be.
//!
//! Looking up a known key takes no lock, writes nothing and does not allocate: entries are only ever
//! added to a table, and each service instance keeps the table it saw last, revalidated by one load.
//! When a table is full, a new one takes what is needed still: what was used again since the last
//! sweep or may not be forgotten, and if that is nearly everything, only the latter. If even that
//! fills the table, unknown keys share one overflow entry; so do keys longer than any sensible name.
//!
//! A call that looks a key up in the very moment in which it is evicted works on the evicted entry.
//! Nothing is lost but that call's mark on a state that was clean.

use std::sync::{
    Arc, Mutex, OnceLock, PoisonError,
    atomic::{
        AtomicBool, AtomicU64,
        Ordering::{Acquire, Relaxed, Release},
    },
};

use crate::{
    call::{CallInfo, MAX_NAME_BYTES},
    key::{Key, KeyRef},
};

/// The default bound on the number of keys.
pub(crate) const DEFAULT_MAX_KEYS: usize = 10_000;

/// A value that can tell whether it may be forgotten.
pub(crate) trait Evict {
    /// False while forgetting would do harm: an open breaker, a call in flight.
    fn may_evict(&self) -> bool;
}

/// One key and its value.
#[derive(Debug)]
pub(crate) struct Entry<V> {
    hash: u64,
    server: Option<Box<str>>,
    name: Option<Box<str>>,
    /// Looked up again since it was added, or since the last sweep.
    used: AtomicBool,
    pub(crate) value: V,
}

impl<V> Entry<V> {
    fn new(key: &KeyRef<'_>, value: V) -> Arc<Self> {
        Arc::new(Self {
            hash: key.hash,
            server: key.server.map(Into::into),
            name: key.name.map(Into::into),
            used: AtomicBool::new(false),
            value,
        })
    }

    fn is(&self, key: &KeyRef<'_>) -> bool {
        self.hash == key.hash
            && self.server.as_deref() == key.server
            && self.name.as_deref() == key.name
    }

    /// The server part of the key.
    pub(crate) fn server(&self) -> Option<&str> {
        self.server.as_deref()
    }

    /// The tool's name, or what a key function picked.
    pub(crate) fn name(&self) -> Option<&str> {
        self.name.as_deref()
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

    /// The place of the key's entry, or the empty one where it would be.
    fn find(&self, key: &KeyRef<'_>) -> Result<usize, usize> {
        let mask = self.slots.len() - 1;
        // The low bits choose the slot; the table is never full, so the search ends.
        let mut at = key.hash as usize & mask;
        loop {
            match self.slots[at].get() {
                Some(entry) if entry.is(key) => return Ok(at),
                Some(_) => at = (at + 1) & mask,
                None => return Err(at),
            }
        }
    }

    /// Puts an entry in whose key is not there. For the one writer.
    fn insert(&self, entry: Arc<Entry<V>>) {
        let key = KeyRef {
            server: entry.server.as_deref(),
            name: entry.name.as_deref(),
            hash: entry.hash,
        };
        if let Err(at) = self.find(&key) {
            let _ = self.slots[at].set(Arc::clone(&entry));
        }
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

#[derive(Debug)]
struct Shared<V> {
    writer: Mutex<Writer<V>>,
    /// Counts tables: tells an instance that its table is an old one.
    generation: AtomicU64,
    overflow: Arc<Entry<V>>,
    key: Key,
    max: usize,
}

#[derive(Debug)]
struct Writer<V> {
    table: Arc<Table<V>>,
    len: usize,
    /// Unknown keys to send to the overflow entry before the next sweep is worth its while.
    patience: usize,
}

/// The map, as a service instance holds it. Clones share the keys.
#[derive(Debug)]
pub(crate) struct Registry<V> {
    shared: Arc<Shared<V>>,
    table: Arc<Table<V>>,
    generation: u64,
}

impl<V> Clone for Registry<V> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            table: Arc::clone(&self.table),
            generation: self.generation,
        }
    }
}

impl<V: Evict + Default> Default for Registry<V> {
    fn default() -> Self {
        Self::new(Key::default(), DEFAULT_MAX_KEYS, V::default())
    }
}

impl<V: Evict> Registry<V> {
    /// A map of at most `max` keys, at least 1. `overflow` is shared by the keys beyond.
    pub(crate) fn new(key: Key, max: usize, overflow: V) -> Self {
        let max = max.max(1);
        let table = Arc::new(Table::new(max.min(32)));
        let nobody = KeyRef {
            server: None,
            name: None,
            hash: 0,
        };
        Self {
            shared: Arc::new(Shared {
                writer: Mutex::new(Writer {
                    table: Arc::clone(&table),
                    len: 0,
                    patience: 0,
                }),
                generation: AtomicU64::new(0),
                overflow: Entry::new(&nobody, overflow),
                key,
                max,
            }),
            table,
            generation: 0,
        }
    }

    /// The entry of the call's key, made by `make` if it is new. Lives as long as somebody holds it.
    pub(crate) fn get(&mut self, call: &CallInfo, make: impl FnOnce() -> V) -> &Arc<Entry<V>> {
        let key = &self.shared.key.of(call);
        if self.shared.generation.load(Acquire) != self.generation {
            self.refresh();
        }
        let at = match self.table.find(key) {
            Ok(at) => at,
            Err(_) if self.insert(key, make) => match self.table.find(key) {
                Ok(at) => return self.table.entry(at),
                Err(_) => return &self.shared.overflow,
            },
            Err(_) => return &self.shared.overflow,
        };
        let entry = self.table.entry(at);
        if !entry.used.load(Relaxed) {
            entry.used.store(true, Relaxed);
        }
        entry
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

    #[cold]
    fn refresh(&mut self) {
        let (table, generation) = {
            let writer = self.lock();
            let generation = self.shared.generation.load(Acquire);
            (Arc::clone(&writer.table), generation)
        };
        (self.table, self.generation) = (table, generation);
    }

    /// Adds a key, unless there is no place for it.
    #[cold]
    fn insert(&mut self, key: &KeyRef<'_>, make: impl FnOnce() -> V) -> bool {
        let too_long = |s: Option<&str>| s.is_some_and(|s| s.len() > MAX_NAME_BYTES);
        if too_long(key.name) || too_long(key.server) {
            return false;
        }
        let added = {
            let mut writer = self.lock();
            if writer.table.find(key).is_ok() {
                true
            } else if self.make_room(&mut writer) {
                writer.table.insert(Entry::new(key, make()));
                writer.len += 1;
                true
            } else {
                false
            }
        };
        if self.shared.generation.load(Acquire) != self.generation {
            self.refresh();
        }
        added
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
        // A sweep looks at every key, so it has to be rare: each frees an eighth at least, or is
        // not tried again for as many unknown keys.
        let worth = max.div_ceil(8);
        let kept = |e: &Entry<V>| e.used.load(Relaxed) || !e.value.may_evict();
        let enough = writer.table.entries().filter(|e| kept(e)).count() <= max - worth;
        self.publish(writer, Table::new(max), |e| {
            let used = e.used.swap(false, Relaxed);
            used && enough || !e.value.may_evict()
        });
        if writer.len > max - worth {
            writer.patience = worth;
        }
        writer.len < max
    }

    /// Replaces the table by one that has the entries to keep.
    fn publish(&self, writer: &mut Writer<V>, next: Table<V>, keep: impl Fn(&Entry<V>) -> bool) {
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
mod tests {
    use super::*;
    use crate::{Key, ToolCall};
    use std::sync::atomic::AtomicUsize;

    /// May be evicted unless told otherwise.
    #[derive(Debug, Default)]
    struct State {
        open: AtomicBool,
        calls: AtomicUsize,
    }

    impl Evict for State {
        fn may_evict(&self) -> bool {
            !self.open.load(Relaxed)
        }
    }

    fn look(registry: &mut Registry<State>, name: &str) -> Arc<Entry<State>> {
        let call = ToolCall::new(name).info();
        Arc::clone(registry.get(&call, State::default))
    }

    fn registry(max: usize) -> Registry<State> {
        Registry::new(Key::Tool, max, State::default())
    }

    #[test]
    fn the_same_key_finds_the_same_entry_and_clones_share_it() {
        let mut a = registry(10);
        let mut b = a.clone();
        let entry = look(&mut a, "x");
        assert!(Arc::ptr_eq(&entry, &look(&mut b, "x")));
        assert!(!Arc::ptr_eq(&entry, &look(&mut b, "y")));
        assert_eq!(
            (a.len(), entry.name(), entry.server()),
            (2, Some("x"), None)
        );
    }

    #[test]
    fn the_default_bound_is_ten_thousand_keys() {
        let mut registry = Registry::<State>::default();
        for i in 0..11_000 {
            let entry = look(&mut registry, &format!("{i}"));
            entry.value.open.store(true, Relaxed);
        }
        assert_eq!(registry.len(), 10_000);
    }

    #[test]
    fn a_hundred_thousand_invented_names_never_exceed_the_bound() {
        let mut registry = registry(1000);
        let open = look(&mut registry, "open");
        open.value.open.store(true, Relaxed);
        for i in 0..100_000 {
            look(&mut registry, &format!("invented-{i}"));
            assert!(registry.len() <= 1000);
        }
        assert!(Arc::ptr_eq(&open, &look(&mut registry, "open")));
    }

    #[test]
    fn a_key_that_is_used_outlives_keys_that_are_not() {
        let mut registry = registry(100);
        let used = look(&mut registry, "used");
        for i in 0..10_000 {
            look(&mut registry, &format!("invented-{i}"));
            assert!(Arc::ptr_eq(&used, &look(&mut registry, "used")), "{i}");
        }
    }

    #[test]
    fn an_idle_key_is_evicted_and_starts_afresh() {
        let mut registry = registry(100);
        let idle = look(&mut registry, "idle");
        for i in 0..1000 {
            look(&mut registry, &format!("invented-{i}"));
        }
        assert!(!Arc::ptr_eq(&idle, &look(&mut registry, "idle")));
    }

    #[test]
    fn when_nothing_may_be_evicted_new_keys_share_the_overflow_entry() {
        let mut registry = registry(100);
        for i in 0..100 {
            let entry = look(&mut registry, &format!("open-{i}"));
            entry.value.open.store(true, Relaxed);
        }
        let (a, b) = (look(&mut registry, "a"), look(&mut registry, "b"));
        assert!(Arc::ptr_eq(&a, &b));
        assert!(Arc::ptr_eq(&a, &registry.shared.overflow));
        assert_eq!(registry.len(), 100);
        assert_eq!(registry.entries().len(), 100);
    }

    #[test]
    fn a_key_finds_a_place_again_once_others_may_be_evicted() {
        let mut registry = registry(8);
        let open: Vec<_> = (0..8)
            .map(|i| look(&mut registry, &format!("{i}")))
            .collect();
        open.iter().for_each(|e| e.value.open.store(true, Relaxed));
        assert_eq!(look(&mut registry, "new").name(), None);
        open.iter().for_each(|e| e.value.open.store(false, Relaxed));
        assert!((0..3).any(|_| look(&mut registry, "new").name() == Some("new")));
    }

    #[test]
    fn a_name_of_a_megabyte_is_not_kept() {
        let mut registry = registry(10);
        look(&mut registry, &"x".repeat(1 << 20));
        assert_eq!(registry.len(), 0);
    }

    #[test]
    fn an_instance_that_has_not_looked_since_sees_the_present_table() {
        let mut a = registry(64);
        let mut idle = a.clone();
        let entry = look(&mut a, "x");
        for i in 0..10_000 {
            look(&mut a, &format!("invented-{i}"));
            look(&mut a, "x");
        }
        assert!(Arc::ptr_eq(&entry, &look(&mut idle, "x")));
    }

    #[test]
    fn threads_that_add_the_same_keys_at_once_agree_on_them() {
        let shared = registry(1000);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                let mut mine = shared.clone();
                scope.spawn(move || {
                    for i in 0..500 {
                        let entry = look(&mut mine, &format!("{i}"));
                        entry.value.calls.fetch_add(1, Relaxed);
                    }
                });
            }
        });
        assert_eq!(shared.len(), 500);
        for entry in shared.entries() {
            assert_eq!(entry.value.calls.load(Relaxed), 4);
        }
    }
}
