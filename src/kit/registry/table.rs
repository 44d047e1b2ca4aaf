//! Hash tables to which keys are only ever added.

use std::sync::{
    Arc, OnceLock, Weak,
    atomic::{
        AtomicUsize,
        Ordering::{Acquire, Relaxed, Release},
    },
};

use super::{Entry, MOST_KEYS};

/// How many keys the first table of a map has room for.
pub(super) const FIRST_TABLE: usize = 32;

/// What a table has for a key.
pub(super) trait Place {
    fn hash(&self) -> u64;
}

/// An insert-only hash table with open addressing, at most half full.
#[derive(Debug)]
pub(super) struct Table<P> {
    slots: Box<[OnceLock<P>]>,
}

impl<P: Place> Table<P> {
    /// `capacity` entries and as many empty slots, at least.
    pub(super) fn new(capacity: usize) -> Self {
        let slots = (2 * capacity).next_power_of_two();
        Self {
            slots: (0..slots).map(|_| OnceLock::new()).collect(),
        }
    }

    pub(super) fn capacity(&self) -> usize {
        self.slots.len() / 2
    }

    #[inline(always)]
    pub(super) fn find(&self, hash: u64) -> Option<&P> {
        let mask = self.slots.len() - 1;
        // The low bits choose the slot; the table is never full, so the search ends.
        let mut at = hash as usize & mask;
        while let Some(place) = self.slots[at].get() {
            if place.hash() == hash {
                return Some(place);
            }
            at = (at + 1) & mask;
        }
        None
    }

    /// Puts in what is of a key that is not there. For the one writer.
    pub(super) fn insert(&self, place: P) {
        let mask = self.slots.len() - 1;
        let mut at = place.hash() as usize & mask;
        while self.slots[at].get().is_some() {
            at = (at + 1) & mask;
        }
        let _ = self.slots[at].set(place);
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &P> {
        self.slots.iter().filter_map(OnceLock::get)
    }
}

/// An entry as a table keeps it, which counts its tables.
#[derive(Debug)]
pub(super) struct Kept<V>(Arc<Entry<V>>);

impl<V> Kept<V> {
    pub(super) fn new(entry: &Arc<Entry<V>>) -> Self {
        entry.tables.fetch_add(1, Relaxed);
        Self(Arc::clone(entry))
    }

    #[inline(always)]
    pub(super) fn entry(&self) -> &Arc<Entry<V>> {
        &self.0
    }
}

impl<V> Place for Kept<V> {
    #[inline(always)]
    fn hash(&self) -> u64 {
        self.0.hash
    }
}

impl<V> Drop for Kept<V> {
    fn drop(&mut self) {
        // Before the entry's count goes down: in between it seems to be in use, which is harmless.
        self.0.tables.fetch_sub(1, Release);
    }
}

/// An entry that others keep.
#[derive(Debug)]
struct Seen<V> {
    hash: u64,
    entry: Weak<Entry<V>>,
}

impl<V> Place for Seen<V> {
    #[inline(always)]
    fn hash(&self) -> u64 {
        self.hash
    }
}

/// The keys of a map that has forgotten none yet, for look-ups without a lock: a table for each
/// size that the map has had, all of which stay as long as the map. They keep no value: of what is
/// forgotten later, nothing is left but its memory.
#[derive(Debug)]
pub(super) struct Unforgotten<V> {
    tables: [OnceLock<Table<Seen<V>>>; SIZES],
    /// The place of the present table; none of the places once a key was forgotten.
    present: AtomicUsize,
}

/// From [`FIRST_TABLE`] to [`MOST_KEYS`], each twice as large as the one before.
const SIZES: usize = (MOST_KEYS / FIRST_TABLE).ilog2() as usize + 1;

impl<V> Unforgotten<V> {
    pub(super) fn new(capacity: usize) -> Self {
        let new = Self {
            tables: [const { OnceLock::new() }; SIZES],
            present: AtomicUsize::new(0),
        };
        let _ = new.tables[0].set(Table::new(capacity));
        new
    }

    #[inline]
    fn table(&self) -> Option<&Table<Seen<V>>> {
        self.tables.get(self.present.load(Acquire))?.get()
    }

    /// A key's entry, for a call to keep, if nobody has it now but one table of the map.
    #[inline]
    pub(super) fn keep(&self, hash: u64) -> Option<Arc<Entry<V>>> {
        let entry = &self.table()?.find(hash)?.entry;
        // Who looks up a key of others does not write to their count.
        (entry.strong_count() == 1).then(|| entry.upgrade())?
    }

    /// The map has another key. For the one writer, as all that follows.
    pub(super) fn insert(&self, entry: &Arc<Entry<V>>) {
        if let Some(table) = self.table() {
            table.insert(Seen {
                hash: entry.hash,
                entry: Arc::downgrade(entry),
            });
        }
    }

    /// The map has grown, and has these keys.
    pub(super) fn grow<'a>(&self, capacity: usize, keys: impl Iterator<Item = &'a Arc<Entry<V>>>)
    where
        V: 'a,
    {
        let next = self.present.load(Relaxed).saturating_add(1);
        let Some(place) = self.tables.get(next) else {
            return self.close();
        };
        let _ = place.set(Table::new(capacity));
        self.present.store(next, Release);
        keys.for_each(|entry| self.insert(entry));
    }

    /// A key is forgotten.
    pub(super) fn close(&self) {
        self.present.store(usize::MAX, Release);
    }
}
