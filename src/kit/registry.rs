//! A bounded map from the [keys](crate::Key) of calls to a layer's state.
//!
//! A model that invents tool names must not be able to grow memory, so the number of keys is
//! bounded; and what protects a tool (an open breaker, a cooldown) must not be the thing that is
//! forgotten, so every value says whether it may be.
//!
//! Looking up a known key does not allocate, unless it becomes hot. It takes no lock as long as no
//! key was forgotten and nobody else has a call of this key in flight, or had one beside another.
//! Else it waits for nobody but for a table that is being replaced, or a thread of the same lane
//! that makes a key hot: entries are only ever added to a table, and each thread reads the present
//! one under a read lock of its own lane. When a table is full, a new one takes what wants to stay,
//! as far as that frees an eighth of the places: what must not be forgotten or has a call in
//! flight, always; then what should not, then what was used again since the last sweep. If what
//! must stay fills the table, new keys share one overflow entry.
//!
//! Where names come from strangers, a key is *known* once a call with it has succeeded, or because
//! it was declared ([`Registry::declare`]). Keys that are not known go first, and have half of the
//! places at most, so that invented names that fail, and whose breakers are open, cannot take the
//! places of real ones. Of a key that may be made of ids, a call of a principal that was [not
//! verified](crate::ToolCall::with_unverified_ids) makes nothing known. A call that succeeds with
//! the overflow entry makes its key known, and the next one has a place.
//!
//! Whoever looks a key up for a call keeps the entry until the call has ended; that is how a call
//! in flight is seen. A call that looks a key up in the very moment in which it is evicted works on
//! the evicted entry; nothing is lost but that call's mark on a state that was not worth keeping.
//!
//! If a call keeps an entry that others keep too, it becomes hot in the lane of that call: another
//! entry there stands for it, on which the calls of the lane are counted, so that threads do not
//! all write to one count. It stays hot, in flight or not, until its place is another key's, the
//! table grows, or a sweep begins: that drops all of them first, so that of the hot keys only those
//! that calls have are in flight. A lane has 16 at most.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
    atomic::{
        AtomicBool, AtomicU8, AtomicUsize,
        Ordering::{Acquire, Relaxed},
        fence,
    },
};

use crate::{
    call::{CallInfo, MAX_NAME_BYTES},
    event::{Event, InertReason, Listener},
    key::{DEFAULT_MAX_KEYS, Key, MOST_KEYS},
    kit::{
        inert::Inert,
        lane::{here, lanes},
    },
};

mod hot;
mod table;
use hot::Hot;
use table::{FIRST_TABLE, Kept, Table, Unforgotten};

/// A value that can tell how much harm it would do to forget it.
pub(crate) trait Evict {
    /// Whether a key is known from the start, so that nothing has to [prove](Entry::prove) it.
    const IS_KNOWN: bool = true;

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

/// What is known of a key.
const UNKNOWN: u8 = 0;
/// The key may be made of ids: only a caller who was verified can make it known.
const UNVERIFIED: u8 = 1;
const KNOWN: u8 = 2;
/// Known before its first call, and never forgotten.
const DECLARED: u8 = 3;

/// How many tiers there are: see [`Entry::tier`].
const TIERS: usize = 8;

/// How many keys that were proved in the overflow entry wait for a place at most.
const MOST_PROVED: usize = 64;

/// One key and its value.
#[derive(Debug)]
pub(crate) struct Entry<V> {
    hash: u64,
    /// Where the second part of its text begins.
    split: u16,
    has_server: bool,
    has_name: bool,
    /// Looked up again since it was added, or since the last sweep.
    used: AtomicBool,
    /// Whether there is such a tool: one of the three constants. The overflow entry is never known.
    known: AtomicU8,
    /// How many tables hold it. Whoever else does has a call in flight, or is a lane in which it is
    /// hot.
    tables: AtomicUsize,
    body: Body<V>,
}

#[derive(Debug)]
enum Body<V> {
    Own(Own<V>),
    Other(Other<V>),
}

/// In a type of its own, so that it takes no room in a body.
#[derive(Debug)]
enum Other<V> {
    /// It stands for another one, for the calls of one lane: their references are counted here.
    Of(Arc<Entry<V>>),
    /// It is that of the keys beyond the bound.
    Overflow(Box<(Own<V>, Arc<Beyond>)>),
}

#[derive(Debug)]
struct Own<V> {
    /// What the key is called: both parts, one after the other, of a long one only the beginning.
    /// The hash tells it from others.
    text: Box<str>,
    value: V,
}

/// The keys that were proved while there was no place for them.
#[derive(Debug)]
struct Beyond {
    key: Key,
    proved: Mutex<Vec<u64>>,
}

impl Beyond {
    fn lock(&self) -> MutexGuard<'_, Vec<u64>> {
        self.proved.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn prove(&self, call: &CallInfo) {
        if is_unverified(&self.key, call) {
            return;
        }
        let hash = self.key.hash(call);
        let mut proved = self.lock();
        if proved.contains(&hash) {
            return;
        }
        // The oldest gives way: it may never be called again.
        if proved.len() == MOST_PROVED {
            proved.remove(0);
        }
        proved.push(hash);
    }

    /// Returns whether a key was proved. It is not asked for again.
    fn take(&self, hash: u64) -> bool {
        let mut proved = self.lock();
        let at = proved.iter().position(|known| *known == hash);
        at.map(|at| proved.remove(at)).is_some()
    }
}

/// Returns whether the key of a call may be one that its caller has invented.
fn is_unverified(key: &Key, call: &CallInfo) -> bool {
    key.is_of_ids() && call.has_unverified_principal()
}

impl<V> Other<V> {
    /// Never of one that stands for another itself.
    #[cold]
    fn own(&self) -> &Own<V> {
        match self {
            Self::Of(entry) => entry.own(),
            Self::Overflow(overflow) => &overflow.0,
        }
    }
}

/// The first [`MAX_NAME_BYTES`], and less in front of a character that they would split.
fn head(text: &str) -> &str {
    let mut end = text.len().min(MAX_NAME_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

impl<V> Entry<V> {
    fn new(hash: u64, parts: (Option<&str>, Option<&str>), value: V, known: u8) -> Arc<Self> {
        Self::make(hash, parts, value, |own| (known, Body::Own(own)))
    }

    fn overflow(value: V, beyond: &Arc<Beyond>) -> Arc<Self> {
        let beyond = Arc::clone(beyond);
        let body = |own| {
            (
                UNKNOWN,
                Body::Other(Other::Overflow(Box::new((own, beyond)))),
            )
        };
        Self::make(0, (None, None), value, body)
    }

    fn make(
        hash: u64,
        (server, name): (Option<&str>, Option<&str>),
        value: V,
        body: impl FnOnce(Own<V>) -> (u8, Body<V>),
    ) -> Arc<Self> {
        let parts = [server, name].map(|part| head(part.unwrap_or_default()));
        let text = parts.concat().into();
        let (known, body) = body(Own { text, value });
        Arc::new(Self {
            hash,
            // 256 at most.
            split: parts[0].len() as u16,
            has_server: server.is_some(),
            has_name: name.is_some(),
            used: AtomicBool::new(false),
            known: AtomicU8::new(known),
            tables: AtomicUsize::new(0),
            body,
        })
    }

    /// One that stands for an entry.
    fn of(entry: &Arc<Self>) -> Arc<Self> {
        Arc::new(Self {
            used: AtomicBool::new(false),
            known: AtomicU8::new(entry.known.load(Relaxed)),
            tables: AtomicUsize::new(0),
            body: Body::Other(Other::Of(Arc::clone(entry))),
            ..**entry
        })
    }

    /// Returns whether it stands for this entry.
    fn is_of(&self, entry: &Arc<Self>) -> bool {
        matches!(&self.body, Body::Other(Other::Of(own)) if Arc::ptr_eq(own, entry))
    }

    #[inline(always)]
    fn own(&self) -> &Own<V> {
        match &self.body {
            Body::Own(own) => own,
            Body::Other(other) => other.own(),
        }
    }

    #[inline(always)]
    pub(crate) fn value(&self) -> &V {
        &self.own().value
    }

    /// What tells its key from others, in this process.
    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    /// Returns whether such a tool is known to be there.
    #[inline]
    pub(crate) fn is_known(&self) -> bool {
        self.known.load(Relaxed) >= KNOWN
    }

    /// A call with this key has succeeded: there is such a tool.
    #[inline]
    pub(crate) fn prove(&self, call: &CallInfo) {
        if !self.is_known() {
            self.prove_first(call);
        }
    }

    #[cold]
    fn prove_first(&self, call: &CallInfo) {
        if self.known.load(Relaxed) == UNVERIFIED && call.has_unverified_principal() {
            return;
        }
        match &self.body {
            Body::Other(Other::Overflow(overflow)) => return overflow.1.prove(call),
            Body::Other(Other::Of(entry)) => entry.know(),
            Body::Own(_) => {}
        }
        self.know();
    }

    /// Marks the key as known. A declared one stays declared.
    fn know(&self) {
        self.known.fetch_max(KNOWN, Relaxed);
    }

    /// Writes only if that is news.
    #[inline]
    fn mark_used(&self) {
        if !self.used.load(Relaxed) {
            self.used.store(true, Relaxed);
        }
    }

    /// Returns whether anybody has it but tables: a call, or a lane in which it is hot.
    fn is_in_flight(this: &Arc<Self>) -> bool {
        let holders = Arc::strong_count(this);
        // A table lets go of its count first: whoever sees fewer holders sees fewer tables.
        fence(Acquire);
        holders > this.tables.load(Relaxed)
    }

    /// Its place among those that want to stay when a table is swept: 0 if it must, and the last
    /// ones go first.
    fn tier(this: &Arc<Self>) -> usize
    where
        V: Evict,
    {
        let used = this.used.load(Relaxed);
        let in_flight = Self::is_in_flight(this);
        match (this.value().keep(), this.is_known()) {
            _ if in_flight || this.known.load(Relaxed) == DECLARED => 0,
            (Keep::Always, _) => 0,
            (Keep::IfPossible, true) if used => 1,
            (Keep::IfPossible, true) => 2,
            (Keep::IfUsed, true) if used => 3,
            (Keep::IfPossible, false) if used => 4,
            (Keep::IfPossible, false) => 5,
            (Keep::IfUsed, true) => 6,
            (Keep::IfUsed, false) => 7,
        }
    }

    /// The server part of the key, its first 256 bytes.
    pub(crate) fn server(&self) -> Option<&str> {
        let split = usize::from(self.split);
        self.has_server.then(|| &self.own().text[..split])
    }

    /// The tool's name, or what a key function picked, its first 256 bytes.
    pub(crate) fn name(&self) -> Option<&str> {
        let split = usize::from(self.split);
        self.has_name.then(|| &self.own().text[split..])
    }
}

/// What some threads look up in. On a cache line of its own: its lock is written to by each
/// look-up.
#[derive(Debug)]
#[repr(align(64))]
struct Lane<V>(RwLock<Local<V>>);

#[derive(Debug)]
struct Local<V> {
    /// The present one.
    table: Arc<Table<Kept<V>>>,
    hot: Hot<V>,
}

impl<V> Local<V> {
    fn new(table: &Arc<Table<Kept<V>>>) -> Self {
        Self {
            table: Arc::clone(table),
            hot: Hot::new(),
        }
    }

    #[inline(always)]
    fn find(&self, hash: u64) -> Option<&Arc<Entry<V>>> {
        self.table.find(hash).map(Kept::entry)
    }
}

impl<V> Lane<V> {
    #[inline]
    fn read(&self) -> RwLockReadGuard<'_, Local<V>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Local<V>> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
struct Shared<V> {
    unforgotten: Unforgotten<V>,
    lanes: Box<[Lane<V>]>,
    writer: Mutex<Writer<V>>,
    overflow: Arc<Entry<V>>,
    beyond: Arc<Beyond>,
    key: Key,
    /// The hash of the empty text, if that is no key.
    no_key: Option<u64>,
    max: usize,
    listener: Listener,
    inert: Inert,
}

#[derive(Debug)]
struct Writer<V> {
    /// The present one.
    table: Arc<Table<Kept<V>>>,
    /// Keys in it.
    len: usize,
    /// Those of them that are not known, but for some that may have become so.
    unknown: usize,
    /// New keys to send to the overflow entry before the next sweep is tried.
    patience: usize,
    /// The same of keys that are not known.
    unknown_patience: usize,
}

impl<V> Writer<V> {
    fn find(&self, hash: u64) -> Option<&Arc<Entry<V>>> {
        self.table.find(hash).map(Kept::entry)
    }

    /// How many new keys go to the overflow entry before the next sweep: known ones do not wait for
    /// the others' sake.
    fn patience(&mut self, is_known: bool) -> &mut usize {
        match is_known {
            true => &mut self.patience,
            false => &mut self.unknown_patience,
        }
    }

    fn entries(&self) -> impl Iterator<Item = &Arc<Entry<V>>> {
        self.table.iter().map(Kept::entry)
    }
}

/// The map. Clones share it.
#[derive(Debug)]
pub(crate) struct Registry<V>(Arc<Shared<V>>);

impl<V> Clone for Registry<V> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
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
        let first = max.min(FIRST_TABLE);
        let table = Arc::new(Table::new(first));
        let lane = |_| Lane(RwLock::new(Local::new(&table)));
        let beyond = Arc::new(Beyond {
            key: key.clone(),
            proved: Mutex::default(),
        });
        Self(Arc::new(Shared {
            unforgotten: Unforgotten::new(first),
            lanes: (0..lanes()).map(lane).collect(),
            writer: Mutex::new(Writer {
                table,
                len: 0,
                unknown: 0,
                patience: 0,
                unknown_patience: 0,
            }),
            overflow: Entry::overflow(overflow, &beyond),
            beyond,
            no_key: key.of_none(),
            key,
            max,
            listener,
            inert: Inert::new("metrics"),
        }))
    }

    /// Sets the layer whose calls are counted if they have no key.
    pub(crate) fn of_layer(mut self, layer: &'static str) -> Self {
        if let Some(shared) = Arc::get_mut(&mut self.0) {
            shared.inert = Inert::new(layer);
        }
        self
    }

    /// Returns the count of the calls that have no key.
    pub(crate) fn inert(&self) -> &Inert {
        &self.0.inert
    }

    /// The entry of the call's key, made by `make` if it is new, for code that names a key itself:
    /// it is known.
    pub(crate) fn get_known(&self, call: &CallInfo, make: impl FnOnce() -> V) -> Arc<Entry<V>> {
        let hash = self.0.key.hash(call);
        let entry = self.find(hash).unwrap_or_else(|| {
            let parts = self.0.key.parts(call);
            self.insert_as(KNOWN, hash, parts, make)
        });
        if let Body::Own(_) = entry.body {
            entry.prove(call);
        }
        entry
    }

    /// A look at the entry of the call's key, made by `make` if it is new, for a value that knows
    /// itself whether it is in use.
    #[cfg(any(test, feature = "metrics"))]
    #[inline]
    pub(crate) fn with<T>(
        &self,
        call: &CallInfo,
        make: impl FnOnce() -> V,
        look: impl FnOnce(&Arc<Entry<V>>) -> T,
    ) -> T {
        let hash = self.0.key.hash(call);
        let local = self.lane().read();
        if let Some(entry) = local.find(hash) {
            entry.mark_used();
            return look(entry);
        }
        // Whoever replaces the table waits for its readers.
        drop(local);
        look(&self.insert(hash, call, make))
    }

    /// That entry for a call to keep until it has ended. It may be another one that stands for it
    /// in this lane.
    #[inline]
    pub(crate) fn keep(&self, call: &CallInfo, make: impl FnOnce() -> V) -> Arc<Entry<V>> {
        let hash = self.0.key.hash(call);
        if self.0.no_key == Some(hash) {
            self.lacks_key(call);
        }
        self.keep_hash(hash, call, make)
    }

    /// That entry, if the call has a key.
    pub(crate) fn keep_if_any(
        &self,
        call: &CallInfo,
        make: impl FnOnce() -> V,
    ) -> Option<Arc<Entry<V>>> {
        let hash = self.0.key.hash(call);
        (self.0.no_key != Some(hash)).then(|| self.keep_hash(hash, call, make))
    }

    fn keep_hash(&self, hash: u64, call: &CallInfo, make: impl FnOnce() -> V) -> Arc<Entry<V>> {
        if let Some(entry) = self.0.unforgotten.keep(hash) {
            entry.mark_used();
            return entry;
        }
        self.keep_under_lock(hash, call, make)
    }

    /// Returns what its keys are of.
    pub(crate) fn key(&self) -> &Key {
        &self.0.key
    }

    #[cold]
    fn lacks_key(&self, call: &CallInfo) {
        let help = "set on calls the field that the key function reads";
        let Shared {
            inert, listener, ..
        } = &*self.0;
        inert.pass(listener, call, InertReason::NoKey, help);
    }

    /// The same if that entry is new, or others keep it too, or keys were forgotten.
    #[inline(never)]
    fn keep_under_lock(
        &self,
        hash: u64,
        call: &CallInfo,
        make: impl FnOnce() -> V,
    ) -> Arc<Entry<V>> {
        let local = self.lane().read();
        if let Some(entry) = local.find(hash) {
            entry.mark_used();
            // Nobody else has it: there is but its table.
            if Arc::strong_count(entry) == 1 {
                return Arc::clone(entry);
            }
            return match local.hot.keep(entry) {
                Some(entry) => entry,
                None => self.keep_shared(local, hash),
            };
        }
        drop(local);
        self.insert(hash, call, make)
    }

    /// The same of an entry that is not hot in this lane: it becomes so if somebody else has it in
    /// flight.
    #[cold]
    fn keep_shared(&self, local: RwLockReadGuard<'_, Local<V>>, hash: u64) -> Arc<Entry<V>> {
        let entry = local.find(hash).expect("found under this lock");
        let becomes_hot = Entry::is_in_flight(entry) && local.hot.has_place_for(entry);
        let entry = Arc::clone(entry);
        drop(local);
        // Who looks up does not wait for others that do.
        if becomes_hot
            && let Ok(mut local) = self.lane().0.try_write()
            // A sweep may have dropped it meanwhile.
            && let Some(known) = local.find(hash)
            && Arc::ptr_eq(known, &entry)
        {
            return local.hot.put(&entry);
        }
        entry
    }

    /// The same while no key is forgotten, for a look that makes the value one to keep.
    pub(crate) fn with_kept<T>(
        &self,
        call: &CallInfo,
        make: impl Fn() -> V,
        look: impl FnOnce(&Arc<Entry<V>>) -> T,
    ) -> T {
        let hash = self.0.key.hash(call);
        self.look_at(hash, || self.get_known(call, &make), look)
    }

    fn look_at<T>(
        &self,
        hash: u64,
        get: impl Fn() -> Arc<Entry<V>>,
        look: impl FnOnce(&Arc<Entry<V>>) -> T,
    ) -> T {
        loop {
            let entry = get();
            let writer = self.lock();
            // A sweep that was under way may have dropped it.
            if let Some(entry) = writer.find(hash) {
                return look(entry);
            }
            if Arc::ptr_eq(&entry, &self.0.overflow) {
                return look(&entry);
            }
        }
    }

    /// Returns the entry that the keys beyond the bound share.
    #[cfg(feature = "metrics")]
    pub(crate) fn overflow(&self) -> &Arc<Entry<V>> {
        &self.0.overflow
    }

    /// The entry of the call's key, if it is known. That it was asked for keeps no key.
    pub(crate) fn peek(&self, call: &CallInfo) -> Option<Arc<Entry<V>>> {
        self.find(self.0.key.hash(call))
    }

    pub(crate) fn find(&self, hash: u64) -> Option<Arc<Entry<V>>> {
        self.lane().read().find(hash).cloned()
    }

    /// Every entry but the overflow one, in no order.
    pub(crate) fn entries(&self) -> Vec<Arc<Entry<V>>> {
        // Nobody is adding one meanwhile.
        self.lock().entries().cloned().collect()
    }

    /// The number of keys.
    pub(crate) fn len(&self) -> usize {
        self.lock().len
    }

    #[inline]
    fn lane(&self) -> &Lane<V> {
        here(&self.0.lanes)
    }

    fn lock(&self) -> MutexGuard<'_, Writer<V>> {
        let writer = self.0.writer.lock();
        writer.unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a key, unless somebody was faster.
    #[cold]
    fn insert(&self, hash: u64, call: &CallInfo, make: impl FnOnce() -> V) -> Arc<Entry<V>> {
        let known = match &self.0.key {
            key if is_unverified(key, call) => UNVERIFIED,
            _ if V::IS_KNOWN || self.0.beyond.take(hash) => KNOWN,
            key if key.is_of_ids() => UNVERIFIED,
            _ => UNKNOWN,
        };
        // A key function may look at the keys itself, or wait for somebody who does: no lock is
        // held.
        self.insert_as(known, hash, self.0.key.parts(call), make)
    }

    /// Makes a key known before its first call. It is never forgotten.
    pub(crate) fn declare(&self, call: &CallInfo, make: impl FnOnce() -> V) {
        let entry = self.get_known(call, make);
        if let Body::Own(_) = entry.body {
            entry.known.store(DECLARED, Relaxed);
        }
    }

    fn insert_as(
        &self,
        known: u8,
        hash: u64,
        parts: (Option<&str>, Option<&str>),
        make: impl FnOnce() -> V,
    ) -> Arc<Entry<V>> {
        let is_known = known >= KNOWN;
        let mut writer = self.lock();
        if let Some(entry) = writer.find(hash) {
            return Arc::clone(entry);
        }
        let before = writer.len;
        let fits = (is_known || self.makes_room_for_unknown(&mut writer))
            && self.make_room(&mut writer, is_known);
        let kept = writer.len;
        let entry = match fits {
            true => Entry::new(hash, parts, make(), known),
            false => Arc::clone(&self.0.overflow),
        };
        if fits {
            writer.table.insert(Kept::new(&entry));
            self.0.unforgotten.insert(&entry);
            writer.len += 1;
            writer.unknown += usize::from(!is_known);
        }
        // A listener may look at the keys itself.
        drop(writer);
        if kept < before {
            let keys = before - kept;
            self.0.listener.tell(&Event::Evicted { keys, kept });
        }
        entry
    }

    /// Returns whether one more key fits that is not known.
    fn makes_room_for_unknown(&self, writer: &mut Writer<V>) -> bool {
        let most = self.0.max.div_ceil(2);
        if writer.unknown < most {
            return true;
        }
        let unknown = |entry: &&Arc<Entry<V>>| !entry.is_known();
        writer.unknown = writer.entries().filter(unknown).count();
        if writer.unknown < most {
            return true;
        }
        if writer.unknown_patience > 0 {
            writer.unknown_patience -= 1;
            return false;
        }
        // No known key goes for one that is not.
        writer.unknown_patience = self.sweep(writer, writer.unknown, most, &[7, 5, 4]);
        writer.unknown < most
    }

    fn make_room(&self, writer: &mut Writer<V>, is_known: bool) -> bool {
        let (max, capacity) = (self.0.max, writer.table.capacity());
        if writer.len < max.min(capacity) {
            return true;
        }
        if writer.len < max {
            let room = (2 * capacity).min(max);
            self.publish(writer, Table::new(room), |_| true);
            self.0.unforgotten.grow(room, writer.entries());
            return true;
        }
        let patience = writer.patience(is_known);
        if *patience > 0 {
            *patience -= 1;
            return false;
        }
        // For a key that is not known, no known one goes that has a state to lose.
        let tiers: &[usize] = match is_known {
            true => &[7, 6, 5, 4, 3, 2, 1],
            false => &[7, 6, 5, 4, 3],
        };
        *writer.patience(is_known) = self.sweep(writer, writer.len, max, tiers);
        writer.len < max
    }

    /// Forgets the first of these tiers, and as many of the others as it takes to free an eighth of
    /// `most` places, of which `taken` are. How many keys to send to the overflow entry before the
    /// next one: a sweep looks at every key.
    fn sweep(&self, writer: &mut Writer<V>, taken: usize, most: usize, tiers: &[usize]) -> usize {
        // Kept to the end: nobody drops it while a lane is locked.
        let table = Arc::clone(&writer.table);
        // A key is not kept because it is hot; one with a call in flight is.
        for lane in &self.0.lanes {
            if !lane.read().hot.is_empty() {
                lane.write().hot = Hot::new();
            }
        }
        let mut sizes = [0; TIERS];
        for entry in table.iter().map(Kept::entry) {
            sizes[Entry::tier(entry)] += 1;
        }
        let (mut left, mut goes) = (taken, [false; TIERS]);
        for &tier in tiers {
            goes[tier] = true;
            left = left.saturating_sub(sizes[tier]);
            if left <= most - most.div_ceil(8) {
                break;
            }
        }
        if left < taken {
            self.0.unforgotten.close();
            self.publish(writer, Table::new(table.capacity()), |e| {
                let stays = !goes[Entry::tier(e)];
                e.used.store(false, Relaxed);
                stays
            });
        }
        // One that frees little is not tried again at once.
        let few = most / 64;
        match taken - left <= few {
            true => few,
            false => 0,
        }
    }

    /// Replaces the table by one that has the entries to keep.
    fn publish(
        &self,
        writer: &mut Writer<V>,
        next: Table<Kept<V>>,
        keep: impl Fn(&Arc<Entry<V>>) -> bool,
    ) {
        (writer.len, writer.unknown) = (0, 0);
        for entry in writer.table.iter().map(Kept::entry) {
            if keep(entry) {
                next.insert(Kept::new(entry));
                writer.len += 1;
                writer.unknown += usize::from(!entry.is_known());
            }
        }
        writer.table = Arc::new(next);
        for lane in &self.0.lanes {
            // No value is dropped here: all entries are in the table before, which the caller
            // keeps.
            *lane.write() = Local::new(&writer.table);
        }
    }
}

#[cfg(feature = "shared")]
impl<V: Evict> Registry<V> {
    /// The entry of a key by its hash and its texts, as another process tells of it. That it was
    /// asked for does not prove it.
    pub(crate) fn of_parts(
        &self,
        hash: u64,
        parts: (Option<&str>, Option<&str>),
        make: impl FnOnce() -> V,
    ) -> Arc<Entry<V>> {
        let entry = self.find(hash);
        entry.unwrap_or_else(|| {
            self.insert_as(if V::IS_KNOWN { KNOWN } else { UNKNOWN }, hash, parts, make)
        })
    }

    /// The same while no key is forgotten, for a look that makes the value one to keep.
    pub(crate) fn with_parts<T>(
        &self,
        hash: u64,
        parts: (Option<&str>, Option<&str>),
        make: impl Fn() -> V,
        look: impl FnOnce(&Arc<Entry<V>>) -> T,
    ) -> T {
        self.look_at(hash, || self.of_parts(hash, parts, &make), look)
    }
}

#[cfg(test)]
mod tests;
