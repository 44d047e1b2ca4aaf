//! A bounded map from the [keys](crate::Key) of calls to a layer's state.
//!
//! A model that invents tool names must not grow memory, so the number of keys is bounded. State
//! that protects a tool (an open breaker, a cooldown) must not be evicted, so each value says
//! whether [it may go](Evict::eviction).
//!
//! There is one map of all keys behind a lock, and in each [lane](crate::kit::lane) a map of the
//! keys that its threads have used. A call looks its key up in its own lane, under a read lock, and
//! takes the other lock only if the key is new there. It keeps the [entry](Entry) of its lane until
//! it has ended. So calls on several threads do not write to the same reference count, and a key is
//! in use while an entry of some lane has a second reference.
//!
//! When the map is full, a new key takes the place of an old key that was not used since the last
//! look and has no state to lose. If all old keys must stay, the new key shares one overflow entry.
//! An eviction removes the key from all lanes first. If it was in use or has to stay after all, it
//! remains in the map. So a value is not evicted while a call holds it, nor once it has to stay.
//!
//! Where names come from untrusted callers, a key is *known* once a call with it has succeeded, or
//! because it was declared ([`Registry::declare`]). Keys that are not known have half of the places
//! at most, and displace a known one only if that has no state to lose. So invented names with open
//! breakers take neither all places nor the state of a real one. If a key may be made of ids, a
//! call of a principal that was [not verified](crate::ToolCall::with_unverified_ids) makes nothing
//! known. A call that succeeds with the overflow entry makes its key known, and the next one has a
//! place.

use std::{
    collections::{HashMap, VecDeque},
    hash::{BuildHasherDefault, Hasher},
    sync::{
        Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
        atomic::{
            AtomicBool, AtomicU8,
            Ordering::{Acquire, Relaxed},
            fence,
        },
    },
};

use crate::{
    call::{CallInfo, MAX_NAME_BYTES, ToolCall},
    event::{Event, InertReason, Listener},
    key::Key,
    kit::{
        inert::Inert,
        lane::{here, lanes},
    },
    lock::lock,
    text::floor,
};

/// A value that says whether it may be evicted.
pub(crate) trait Evict {
    /// Set if keys are known from the start, and need no [proof](Entry::prove).
    const IS_KNOWN: bool = true;

    /// Returns what an eviction of the value costs. Called under the registry's locks: it must not
    /// take a lock that another thread may hold while it looks up an entry.
    fn eviction(&self) -> Eviction;
}

/// The cost of an eviction. Values are evicted in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Eviction {
    /// Nothing is lost.
    Free,
    /// Some state is lost, such as counted failures: it is evicted if no free value is left.
    Costly,
    /// The value protects a tool, as an open breaker does, or its key was declared.
    Forbidden,
}

/// The key is not known.
const UNKNOWN: u8 = 0;
const KNOWN: u8 = 1;
/// Known before its first call, and never evicted.
const DECLARED: u8 = 2;

/// How many keys are looked at for one to evict.
const LOOKS: usize = 64;

/// The rank that goes first: nothing [is lost](Evict::eviction), and not used since the last look.
const FIRST: (Eviction, bool) = (Eviction::Free, false);

/// How many keys that were proved in the overflow entry wait for a place at most.
const MOST_PROVED: usize = 64;

/// A key and its value, as the calls of one lane have it.
#[derive(Debug)]
pub(crate) struct Entry<V>(Arc<Node<V>>);

#[derive(Debug)]
struct Node<V> {
    hash: u64,
    /// The beginnings of the key's texts. The hash distinguishes keys.
    server: Option<Box<str>>,
    name: Option<Box<str>>,
    proofs: Arc<Proofs>,
    /// Set for the entry of the keys beyond the bound, which is never known.
    is_overflow: bool,
    /// Looked up again since it was added, or since the last look at it for an eviction.
    used: AtomicBool,
    /// One of the three constants.
    known: AtomicU8,
    value: V,
}

/// Decides which calls make keys known.
#[derive(Debug)]
struct Proofs {
    key: Key,
    /// The keys that were proved while there was no place for them, the oldest first.
    waiting: Mutex<VecDeque<u64>>,
}

impl Proofs {
    /// Returns whether a call can prove its key: its caller cannot have invented it.
    fn are_from(&self, call: &CallInfo) -> bool {
        !self.key.may_be_invented(call)
    }

    /// Waits for no other call: the next success adds a key that this one does not.
    fn add(&self, hash: u64) {
        if let Ok(mut waiting) = self.waiting.try_lock()
            && !waiting.contains(&hash)
        {
            waiting.push_back(hash);
            if waiting.len() > MOST_PROVED {
                waiting.pop_front();
            }
        }
    }

    /// Removes a key. Returns whether it was proved.
    fn take(&self, hash: u64) -> bool {
        let mut waiting = lock(&self.waiting);
        let at = waiting.iter().position(|known| *known == hash);
        at.and_then(|at| waiting.remove(at)).is_some()
    }
}

/// Returns the first [`MAX_NAME_BYTES`], and less in front of a character that they would split.
fn head(text: &str) -> Box<str> {
    text[..floor(text, MAX_NAME_BYTES)].into()
}

impl<V> Node<V> {
    fn is_known(&self) -> bool {
        self.known.load(Relaxed) >= KNOWN
    }

    /// Writes only if that is news.
    #[inline]
    fn mark_used(&self) {
        if !self.used.load(Relaxed) {
            self.used.store(true, Relaxed);
        }
    }

    fn eviction(&self) -> Eviction
    where
        V: Evict,
    {
        match self.known.load(Relaxed) {
            DECLARED => Eviction::Forbidden,
            _ => self.value.eviction(),
        }
    }
}

impl<V> Entry<V> {
    #[inline(always)]
    pub(crate) fn value(&self) -> &V {
        &self.0.value
    }

    /// Returns the key's hash, which distinguishes keys in this process.
    pub(crate) fn hash(&self) -> u64 {
        self.0.hash
    }

    /// Returns whether the keys beyond the bound share it.
    pub(crate) fn is_overflow(&self) -> bool {
        self.0.is_overflow
    }

    /// Returns whether such a tool is known to exist.
    #[inline]
    pub(crate) fn is_known(&self) -> bool {
        self.0.is_known()
    }

    /// Makes the key known, because a call with it has succeeded.
    #[inline]
    pub(crate) fn prove(&self, call: &CallInfo) {
        if !self.is_known() {
            self.prove_first(call);
        }
    }

    #[cold]
    fn prove_first(&self, call: &CallInfo) {
        let Node { proofs, .. } = &*self.0;
        match proofs.are_from(call) {
            true if self.0.is_overflow => proofs.add(proofs.key.hash(call)),
            true => self.know(KNOWN),
            false => {}
        }
    }

    /// Makes the key known. A declared key stays declared.
    fn know(&self, how: u8) {
        if !self.0.is_overflow {
            self.0.known.fetch_max(how, Relaxed);
        }
    }

    /// Returns the server part of the key, its first 256 bytes.
    pub(crate) fn server(&self) -> Option<&str> {
        self.0.server.as_deref()
    }

    /// Returns the tool's name, or the result of a key function, its first 256 bytes.
    pub(crate) fn name(&self) -> Option<&str> {
        self.0.name.as_deref()
    }
}

/// Spreads a hash over all bits, because a user's function may return small numbers.
#[derive(Debug, Default)]
pub(crate) struct Spreading(u64);

impl Hasher for Spreading {
    #[inline]
    fn finish(&self) -> u64 {
        self.0.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32)
    }

    #[inline]
    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("a hash is a number");
    }
}

pub(crate) type Table<T> = HashMap<u64, T, BuildHasherDefault<Spreading>>;

/// The keys that some threads have used. On a cache line of its own: its lock is written to by
/// each look-up.
#[derive(Debug)]
#[repr(align(64))]
struct Lane<V>(RwLock<Table<Arc<Entry<V>>>>);

impl<V> Lane<V> {
    #[inline]
    fn find(&self, hash: u64) -> Option<Arc<Entry<V>>> {
        let table = self.0.read().unwrap_or_else(PoisonError::into_inner);
        table.get(&hash).cloned()
    }

    fn write(&self) -> RwLockWriteGuard<'_, Table<Arc<Entry<V>>>> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns how many calls have a key.
    fn calls(&self, hash: u64) -> usize {
        let table = self.0.read().unwrap_or_else(PoisonError::into_inner);
        table.get(&hash).map_or(0, |it| Arc::strong_count(it) - 1)
    }

    /// Removes a key. Returns whether no call has it.
    fn remove(&self, hash: u64) -> bool {
        let mut table = self.write();
        let is_idle = table.get(&hash).is_none_or(|it| Arc::strong_count(it) == 1);
        if is_idle {
            table.remove(&hash);
        }
        is_idle
    }
}

#[derive(Debug)]
struct Main<V> {
    nodes: Table<Arc<Node<V>>>,
    /// All of them: the unknown ones, of which some may have become known since, and the known
    /// ones. Those are first that were added, or looked at, longest ago.
    queues: [VecDeque<Arc<Node<V>>>; 2],
}

#[derive(Debug)]
struct Shared<V> {
    lanes: Box<[Lane<V>]>,
    main: RwLock<Main<V>>,
    overflow: Arc<Entry<V>>,
    proofs: Arc<Proofs>,
    /// The hash that a key function gives for an empty text, if that counts as no key.
    no_key: Option<u64>,
    max: usize,
    listener: Listener,
    inert: Inert,
}

/// The map. Clones share it.
#[derive(Debug)]
pub(crate) struct Registry<V>(Arc<Shared<V>>);

impl<V> Clone for Registry<V> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<V: Evict> Registry<V> {
    /// Makes a map of at most `max` keys, at least 1. `overflow` is shared by the keys beyond.
    /// Calls without a key are reported for `layer`.
    pub(crate) fn new(
        layer: &'static str,
        key: Key,
        max: usize,
        overflow: V,
        listener: Listener,
    ) -> Self {
        let no_key = key.of_none();
        let proofs = Arc::new(Proofs {
            key,
            waiting: Mutex::default(),
        });
        let overflow = Node {
            hash: 0,
            server: None,
            name: None,
            proofs: Arc::clone(&proofs),
            is_overflow: true,
            used: AtomicBool::new(false),
            known: AtomicU8::new(UNKNOWN),
            value: overflow,
        };
        let lane = |_| Lane(RwLock::default());
        Self(Arc::new(Shared {
            lanes: (0..lanes()).map(lane).collect(),
            main: RwLock::new(Main {
                nodes: Table::default(),
                queues: Default::default(),
            }),
            overflow: Arc::new(Entry(Arc::new(overflow))),
            proofs,
            no_key,
            max: max.max(1),
            listener,
            inert: Inert::new(layer),
        }))
    }

    /// Returns the count of the calls that have no key.
    pub(crate) fn inert(&self) -> &Inert {
        &self.0.inert
    }

    /// Returns what its keys are made of.
    pub(crate) fn key(&self) -> &Key {
        &self.0.proofs.key
    }

    /// Returns the entry of the call's key, made by `make` if it is new. The call holds it until it
    /// has ended.
    #[inline]
    pub(crate) fn entry(&self, call: &CallInfo, make: impl FnOnce() -> V) -> Arc<Entry<V>> {
        let hash = self.key().hash(call);
        if self.0.no_key == Some(hash) {
            self.lacks_key(call);
        }
        self.entry_of_hash(hash, call, make)
    }

    /// Returns the same entry for a call that needs its handle for nothing else.
    pub(crate) fn entry_for(&self, call: &ToolCall, make: impl FnOnce() -> V) -> Arc<Entry<V>> {
        if let Key::Tool = self.key()
            && let Some(entry) = self.lane().find(call.tool_hash())
        {
            entry.0.mark_used();
            return entry;
        }
        self.entry(&call.info(), make)
    }

    /// Returns that entry, if the call has a key.
    pub(crate) fn entry_if_keyed(
        &self,
        call: &CallInfo,
        make: impl FnOnce() -> V,
    ) -> Option<Arc<Entry<V>>> {
        let hash = self.key().hash(call);
        (self.0.no_key != Some(hash)).then(|| self.entry_of_hash(hash, call, make))
    }

    #[inline]
    fn entry_of_hash(&self, hash: u64, call: &CallInfo, make: impl FnOnce() -> V) -> Arc<Entry<V>> {
        match self.lane().find(hash) {
            Some(entry) => {
                entry.0.mark_used();
                entry
            }
            None => self.insert(hash, call, make),
        }
    }

    #[cold]
    fn lacks_key(&self, call: &CallInfo) {
        let help = "set on calls the field that the key function reads";
        let Shared {
            inert, listener, ..
        } = &*self.0;
        inert.pass(listener, call, InertReason::NoKey, help);
    }

    /// Returns the entry of the call's key, made by `make` if it is new, and marks the key as
    /// known. For handles. It is not evicted while the entry is held.
    pub(crate) fn get_known(&self, call: &CallInfo, make: impl FnOnce() -> V) -> Arc<Entry<V>> {
        let hash = self.key().hash(call);
        let entry = self.find(hash).unwrap_or_else(|| {
            let parts = self.key().parts(call);
            self.insert_as(true, hash, parts, make)
        });
        if self.0.proofs.are_from(call) {
            entry.know(KNOWN);
        }
        entry
    }

    /// Makes a key known before its first call. It is never evicted.
    pub(crate) fn declare(&self, call: &CallInfo, make: impl FnOnce() -> V) {
        self.get_known(call, make).know(DECLARED);
    }

    /// Returns the entry that the keys beyond the bound share.
    pub(crate) fn overflow(&self) -> &Entry<V> {
        &self.0.overflow
    }

    /// Returns how many calls have the key of an entry, or keep the overflow entry.
    pub(crate) fn calls(&self, entry: &Entry<V>) -> usize {
        let calls = match entry.0.is_overflow {
            // One is the registry's.
            true => Arc::strong_count(&self.0.overflow) - 1,
            false => self
                .0
                .lanes
                .iter()
                .map(|lane| lane.calls(entry.0.hash))
                .sum(),
        };
        // What a call has done before it dropped its entry is seen.
        fence(Acquire);
        calls
    }

    /// Returns the entry of the call's key, if there is one. That does not count as a use.
    pub(crate) fn peek(&self, call: &CallInfo) -> Option<Arc<Entry<V>>> {
        self.find(self.key().hash(call))
    }

    pub(crate) fn find(&self, hash: u64) -> Option<Arc<Entry<V>>> {
        self.lane().find(hash).or_else(|| {
            let node = self.read().nodes.get(&hash).cloned();
            Some(self.share(node?))
        })
    }

    /// Returns every entry but the overflow one, in the order of server and name.
    pub(crate) fn entries(&self) -> Vec<Arc<Entry<V>>> {
        let entry = |node| Arc::new(Entry(Arc::clone(node)));
        let mut entries: Vec<_> = self.read().nodes.values().map(entry).collect();
        entries.sort_by(|a, b| (a.server(), a.name()).cmp(&(b.server(), b.name())));
        entries
    }

    /// Returns the number of keys.
    pub(crate) fn len(&self) -> usize {
        self.read().nodes.len()
    }

    #[inline]
    fn lane(&self) -> &Lane<V> {
        here(&self.0.lanes)
    }

    fn read(&self) -> RwLockReadGuard<'_, Main<V>> {
        self.0.main.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the entry of a node in this lane. The node cannot be evicted, because it is held.
    fn share(&self, node: Arc<Node<V>>) -> Arc<Entry<V>> {
        let mut lane = self.lane().write();
        let entry = lane.entry(node.hash);
        Arc::clone(entry.or_insert_with(|| Arc::new(Entry(node))))
    }

    #[cold]
    fn insert(&self, hash: u64, call: &CallInfo, make: impl FnOnce() -> V) -> Arc<Entry<V>> {
        let proofs = &self.0.proofs;
        let is_known = proofs.are_from(call) && (V::IS_KNOWN || proofs.take(hash));
        // A key function may look at the keys itself, or wait for a thread that does: no lock is
        // held.
        self.insert_as(is_known, hash, self.key().parts(call), make)
    }

    /// Returns the entry of a key, which is added unless another thread was faster.
    fn insert_as(
        &self,
        is_known: bool,
        hash: u64,
        (server, name): (Option<&str>, Option<&str>),
        make: impl FnOnce() -> V,
    ) -> Arc<Entry<V>> {
        let main = self.0.main.write();
        let mut main = main.unwrap_or_else(PoisonError::into_inner);
        if let Some(node) = main.nodes.get(&hash).cloned() {
            drop(main);
            node.mark_used();
            return self.share(node);
        }
        let Ok(evicted) = self.make_room(&mut main, is_known) else {
            return Arc::clone(&self.0.overflow);
        };
        let node = Arc::new(Node {
            hash,
            server: server.map(head),
            name: name.map(head),
            proofs: Arc::clone(&self.0.proofs),
            is_overflow: false,
            used: AtomicBool::new(false),
            known: AtomicU8::new(if is_known { KNOWN } else { UNKNOWN }),
            value: make(),
        });
        main.queues[usize::from(is_known)].push_back(Arc::clone(&node));
        let kept = main.nodes.len();
        main.nodes.insert(hash, Arc::clone(&node));
        // A listener may look at the keys itself, and so may a value that is dropped.
        drop(main);
        if evicted.is_some() {
            self.0.listener.tell(&Event::Evicted { keys: 1, kept });
        }
        self.share(node)
    }

    /// Makes room for one more key. Returns the evicted node; an error if nothing can be evicted.
    fn make_room(&self, main: &mut Main<V>, is_known: bool) -> Result<Option<Arc<Node<V>>>, ()> {
        let max = self.0.max;
        let may_grow = |main: &Main<V>| is_known || main.queues[0].len() < max.div_ceil(2);
        let has_room = |main: &Main<V>| may_grow(main) && main.nodes.len() < max;
        if has_room(main) {
            return Ok(None);
        }
        let evicted = self.evict(main, false, Eviction::Costly);
        // The queue has lost those that have become known.
        if evicted.is_some() || has_room(main) {
            return Ok(evicted);
        }
        // A key that is not known takes the place of a known one only if nothing is lost with that.
        let most = [Eviction::Free, Eviction::Costly][usize::from(is_known)];
        let evicted = may_grow(main).then(|| self.evict(main, true, most));
        evicted.flatten().map(Some).ok_or(())
    }

    /// Evicts a key that costs at most `most`. Those that were looked at and stay
    /// are the youngest of their queue now.
    fn evict(&self, main: &mut Main<V>, of_known: bool, most: Eviction) -> Option<Arc<Node<V>>> {
        let queue = usize::from(of_known);
        let (mut stay, mut evicted) = (Vec::new(), None);
        while evicted.is_none()
            && stay.len() < LOOKS
            && let Some(node) = main.queues[queue].pop_front()
        {
            if node.is_known() != of_known {
                main.queues[1].push_back(node);
                continue;
            }
            let rank = (node.eviction(), node.used.swap(false, Relaxed));
            match rank == FIRST && self.removes(main, &node, most) {
                true => evicted = Some(node),
                false => stay.push((rank, node)),
            }
        }
        stay.sort_by_key(|(rank, _)| *rank);
        // Enough of the others may have become known.
        let (max, unknown) = (self.0.max, main.queues[0].len() + stay.len());
        let has_room = !of_known && unknown < max.div_ceil(2) && main.nodes.len() < max;
        if evicted.is_none() && !has_room {
            let goes = |(rank, node): &(_, _)| *rank > FIRST && self.removes(main, node, most);
            let at = stay.iter().position(goes);
            evicted = at.map(|at| stay.remove(at).1);
        }
        main.queues[queue].extend(stay.into_iter().map(|(_, node)| node));
        evicted
    }

    /// Removes a node, unless a call has it or its eviction is more than `most`. Calls that look
    /// it up meanwhile wait for `main`, because no lane has it any more.
    fn removes(&self, main: &mut Main<V>, node: &Arc<Node<V>>, most: Eviction) -> bool {
        if node.eviction() > most {
            return false;
        }
        let is_idle = self.0.lanes.iter().all(|lane| lane.remove(node.hash))
            // Those are this reference and that of the map.
            && Arc::strong_count(node) == 2;
        // What a call has done with the value before it dropped it is seen.
        fence(Acquire);
        let goes = is_idle && node.eviction() <= most;
        if goes {
            main.nodes.remove(&node.hash);
        }
        goes
    }

    /// Returns the entry of a key by its hash and its texts, as another process reports it, made
    /// by `make` if it is new. That does not make the key known. It is not evicted while the entry
    /// is held.
    pub(crate) fn of_parts(
        &self,
        hash: u64,
        parts: (Option<&str>, Option<&str>),
        make: impl FnOnce() -> V,
    ) -> Arc<Entry<V>> {
        let insert = || self.insert_as(V::IS_KNOWN, hash, parts, make);
        self.find(hash).unwrap_or_else(insert)
    }
}

#[cfg(test)]
mod tests;
