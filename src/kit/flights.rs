//! Values by key, each made by one caller at a time and kept while it is fresh.
//!
//! There is no task: a key has one permit, and its holder makes the value. If the holder is dropped, the next one takes over, unless it has
//! something to [leave behind](Flight::leave_behind); if the making fails, those who waited meanwhile share the failure, and later callers try
//! again; the key of what failed goes with the last of them. Each wait is the waiter's own to end.

use std::{
    collections::HashMap,
    future::Future,
    hash::{BuildHasher as _, Hash, RandomState},
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    sync::{AcquireError, OwnedSemaphorePermit, Semaphore},
    time::Instant,
};

use super::principal::Principal;
use crate::error::{ErrorKind, TimeoutLimit, ToolError};

/// Callers of different keys rarely meet at one lock.
#[cfg(any(feature = "token", test))]
const SHARDS: usize = 16;

/// Values that are stale are looked for so often, if keys are added.
const SWEEP: Duration = Duration::from_secs(60);

/// A store without room looks for stale values no more often than this.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// What a value is kept under.
pub(crate) trait FlightKey: Clone + Eq + Hash {
    /// Whose it is, where each owner has a share of the keys.
    fn owner(&self) -> Option<&Arc<str>> {
        None
    }

    /// Whether its owner was not verified. All such owners have half of the keys at most.
    fn is_unverified(&self) -> bool {
        self.owner()
            .is_some_and(|owner| Principal::is_unverified(owner))
    }

    /// An equal owner, which other keys have too.
    fn share_owner(&mut self, _: Arc<str>) {}

    /// Whether two that are equal are for the same value.
    fn is_same(&self, _: &Self) -> bool {
        true
    }
}

/// The values. At most so many keys as [`new`](Self::new) says.
pub(crate) struct Flights<K, V> {
    shards: Box<[Mutex<Shard<K, V>>]>,
    hasher: RandomState,
    limits: Limits,
}

/// How many keys a shard has.
#[derive(Clone, Copy)]
struct Limits {
    most: usize,
    /// Those of one owner.
    share: usize,
    /// Whether room is made by forgetting what is fresh.
    evicts: bool,
}

struct Shard<K, V> {
    slots: HashMap<K, Arc<Slot<V>>>,
    owned: Owned,
    swept: Option<Instant>,
}

/// The number of keys of each owner, and of those who were not verified.
#[derive(Default)]
struct Owned {
    keys: HashMap<Arc<str>, usize>,
    unverified: usize,
}

/// Why a key has no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoPlace {
    /// Nothing is stale, and nothing may be forgotten.
    Full,
    /// The share of the owner is used up.
    Share,
    /// That of all owners who were not verified is.
    Unverified,
    /// The key is in use for another value.
    Other,
}

struct Slot<V> {
    turn: Arc<Semaphore>,
    state: Mutex<State<V>>,
}

struct State<V> {
    value: Option<(V, Instant)>,
    /// Counts what was made, and what failed.
    round: u64,
    /// The failure that those who waited for this round share.
    failed: Option<(u64, ToolError)>,
    /// What was made last is for one caller: nobody waits for another one's.
    is_single: bool,
}

/// What was made of a key.
#[cfg(any(feature = "token", test))]
pub(crate) struct Made<V> {
    pub(crate) value: V,
    /// How long it is fresh; `None`: it is for the one who made it.
    pub(crate) until: Option<Instant>,
}

/// Why nothing was made.
pub(crate) struct Failed {
    pub(crate) error: ToolError,
    /// Whether that is so for the others who wait: a deadline of the one who tried is not.
    pub(crate) is_shared: bool,
}

/// Where a value comes from, or a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Kept,
    /// By another caller, who was waited for.
    Shared,
    #[cfg_attr(
        not(any(feature = "token", test)),
        expect(dead_code, reason = "only the token cache is told")
    )]
    Made,
}

/// What the state of a key is for a caller.
enum Seen<V> {
    Fresh(V),
    Failed(ToolError),
    Nothing { round: u64, is_single: bool },
}

impl<V: Clone> Slot<V> {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            turn: Arc::new(Semaphore::new(1)),
            state: Mutex::new(State {
                value: None,
                round: 0,
                failed: None,
                is_single: false,
            }),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State<V>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// For a caller who has come in this round.
    fn see(&self, since: u64) -> Seen<V> {
        let state = self.lock();
        match (&state.value, &state.failed) {
            (Some((value, until)), _) if *until > Instant::now() => Seen::Fresh(value.clone()),
            (_, Some((round, error))) if *round > since => Seen::Failed(error.clone()),
            _ => Seen::Nothing {
                round: state.round,
                is_single: state.is_single,
            },
        }
    }

    fn until(&self) -> Option<Instant> {
        self.lock().value.as_ref().map(|(_, until)| *until)
    }

    fn is_fresh(&self, now: Instant) -> bool {
        self.until().is_some_and(|until| until > now)
    }

    /// Without a time it is for the one who has made it.
    fn put(&self, kept: Option<(V, Instant)>) {
        let mut state = self.lock();
        state.round += 1;
        state.failed = None;
        state.is_single = kept.is_none();
        let stale = kept.and_then(|kept| state.value.replace(kept));
        drop(state);
        drop(stale);
    }

    fn fail(&self, error: ToolError) {
        let mut state = self.lock();
        state.round += 1;
        state.failed = Some((state.round, error));
    }
}

/// What becomes of a caller's turn.
pub(crate) enum Turn<V> {
    /// It is not needed: there is a value, or a failure.
    Landed(Result<V, ToolError>, Source),
    /// The value is this caller's to make.
    Mine,
}

type Acquire = dyn Future<Output = Result<OwnedSemaphorePermit, AcquireError>> + Send + Sync;

/// A key while a caller uses it. The last one takes away the key of what could not be made.
pub(crate) struct Flight<K: FlightKey, V: Clone> {
    flights: Arc<Flights<K, V>>,
    key: K,
    /// `None` once it was given back, which is done under the lock of its shard, as references are made there.
    slot: Option<Arc<Slot<V>>>,
    /// The round in which the caller has come.
    since: Option<u64>,
    wait: Option<Pin<Box<Acquire>>>,
    turn: Option<OwnedSemaphorePermit>,
    left_behind: Option<Option<(V, Duration)>>,
}

impl<K: FlightKey, V: Clone> Flight<K, V> {
    fn slot(&self) -> &Arc<Slot<V>> {
        self.slot.as_ref().expect("there until it is dropped")
    }

    /// Whether the value is this caller's to make, now. If not, [`poll_turn`](Self::poll_turn) has, or waits for, what is.
    pub(crate) fn try_turn(&mut self) -> bool {
        let slot = self.slot();
        let Seen::Nothing { round, is_single } = slot.see(u64::MAX) else {
            return false;
        };
        let turn = Arc::clone(&slot.turn).try_acquire_owned().ok();
        let is_mine = turn.is_some() && matches!(slot.see(round), Seen::Nothing { .. });
        self.since = Some(round);
        self.turn = turn.filter(|_| is_mine && !is_single);
        is_mine || is_single
    }

    /// Waits for the value of another caller, or for the turn to make one.
    pub(crate) fn poll_turn(&mut self, cx: &mut Context<'_>) -> Poll<Turn<V>> {
        let slot = Arc::clone(&self.slot().turn);
        let since = match self.since {
            Some(round) => round,
            None => match self.slot().see(u64::MAX) {
                Seen::Fresh(value) => return Poll::Ready(Turn::Landed(Ok(value), Source::Kept)),
                Seen::Failed(error) => {
                    return Poll::Ready(Turn::Landed(Err(error), Source::Shared));
                }
                Seen::Nothing { round, is_single } => {
                    self.since = Some(round);
                    if is_single {
                        return Poll::Ready(Turn::Mine);
                    }
                    round
                }
            },
        };
        let wait = self
            .wait
            .get_or_insert_with(|| Box::pin(slot.acquire_owned()));
        let turn = ready!(wait.as_mut().poll(cx)).ok();
        self.wait = None;
        Poll::Ready(match self.slot().see(since) {
            Seen::Fresh(value) => Turn::Landed(Ok(value), Source::Shared),
            Seen::Failed(error) => Turn::Landed(Err(error), Source::Shared),
            Seen::Nothing { is_single, .. } => {
                self.turn = turn.filter(|_| !is_single);
                Turn::Mine
            }
        })
    }

    /// From now on this is kept for so long if the caller has the turn and is dropped, or panics, before he has ended it. With nothing, those
    /// who wait do not wait for each other.
    pub(crate) fn leave_behind(&mut self, kept: Option<(V, Duration)>) {
        self.left_behind = Some(kept);
    }

    /// Ends the turn of the one who was to make the value: it is kept, or is his alone, or could not be made.
    pub(crate) fn end(&mut self, made: Result<Option<(V, Instant)>, Failed>) {
        self.left_behind = None;
        match made {
            Ok(kept) => self.slot().put(kept),
            Err(failed) if failed.is_shared => self.slot().fail(failed.error),
            Err(_) => {}
        }
    }
}

impl<K: FlightKey, V: Clone> Drop for Flight<K, V> {
    fn drop(&mut self) {
        if let Some(kept) = self.left_behind.take().filter(|_| self.turn.is_some()) {
            let until = |(value, time)| (value, Instant::now() + time);
            self.slot().put(kept.map(until));
        }
        // The next one has its turn, if there is one.
        (self.wait, self.turn) = (None, None);
        let mut shard = self.flights.shard(&self.key);
        let Some(slot) = self.slot.take() else { return };
        let gone = match shard.has(&self.key, &slot) {
            false => Some(slot),
            true => {
                // The table's and this one.
                let is_last = Arc::strong_count(&slot) == 2;
                let is_single = slot.lock().is_single;
                let goes = is_last && !is_single && !slot.is_fresh(Instant::now());
                drop(slot);
                goes.then(|| shard.remove(&self.key)).flatten()
            }
        };
        drop(shard);
        drop(gone);
    }
}

impl<K: FlightKey, V: Clone> Flights<K, V> {
    /// For at most `most` keys, and at least one. Beyond these what is fresh is forgotten.
    #[cfg(any(feature = "token", test))]
    pub(crate) fn new(most: usize) -> Self {
        let shards = match most {
            0..1024 => 1,
            _ => SHARDS,
        };
        let most = (most / shards).max(1);
        let limits = Limits {
            most,
            share: most,
            evicts: true,
        };
        Self::sharded(shards, limits)
    }

    /// The same for at most `share` keys of one owner.
    pub(crate) fn shared_out(most: usize, share: usize, evicts: bool) -> Self {
        // Shares are counted in one place.
        let limits = Limits {
            most,
            share,
            evicts,
        };
        Self::sharded(1, limits)
    }

    fn sharded(shards: usize, limits: Limits) -> Self {
        let shard = |_| {
            Mutex::new(Shard {
                slots: HashMap::new(),
                owned: Owned::default(),
                swept: None,
            })
        };
        Self {
            shards: (0..shards).map(shard).collect(),
            hasher: RandomState::new(),
            limits,
        }
    }

    /// Begins to use a key.
    pub(crate) fn enter(self: &Arc<Self>, key: K) -> Result<Flight<K, V>, NoPlace> {
        let slot = self.slot(&key)?;
        Ok(Flight {
            flights: Arc::clone(self),
            key,
            slot: Some(slot),
            since: None,
            wait: None,
            turn: None,
            left_behind: None,
        })
    }

    /// The value, if there is a fresh one.
    #[cfg(any(feature = "token", test))]
    pub(crate) fn get(&self, key: &K) -> Option<V> {
        match self.shard(key).slots.get(key)?.see(u64::MAX) {
            Seen::Fresh(value) => Some(value),
            Seen::Failed(_) | Seen::Nothing { .. } => None,
        }
    }

    /// The value, or what `make` makes, if no other caller does so meanwhile. Dropped while it makes one, it leaves that to the
    /// next who waits.
    #[cfg(any(feature = "token", test))]
    pub(crate) async fn get_or_make<F>(
        self: &Arc<Self>,
        key: &K,
        make: impl FnOnce() -> F,
    ) -> (Result<V, ToolError>, Source)
    where
        F: Future<Output = Result<Made<V>, Failed>>,
    {
        let Ok(mut flight) = self.enter(key.clone()) else {
            unreachable!("what is fresh makes room")
        };
        let turn = std::future::poll_fn(|cx| flight.poll_turn(cx)).await;
        if let Turn::Landed(result, source) = turn {
            return (result, source);
        }
        let result = match make().await {
            Ok(Made { value, until }) => {
                flight.end(Ok(until.map(|until| (value.clone(), until))));
                Ok(value)
            }
            Err(failed) => {
                let error = failed.error.clone();
                flight.end(Err(failed));
                Err(error)
            }
        };
        (result, Source::Made)
    }

    /// Forgets a value, unless there is another one by now than that which `is` knows.
    #[cfg(any(feature = "token", test))]
    pub(crate) fn forget(&self, key: &K, is: impl FnOnce(&V) -> bool) {
        if let Some(slot) = self.shard(key).slots.get(key) {
            slot.lock().value.take_if(|(value, _)| is(value));
        }
    }

    /// Forgets these keys. A value that is being made for one of them is not kept.
    pub(crate) fn forget_keys(&self, these: impl Fn(&K) -> bool) {
        for shard in &self.shards {
            let gone = lock(shard).retain(|key, _| !these(key));
            drop(gone);
        }
    }

    /// Forgets all values.
    #[cfg(feature = "token")]
    pub(crate) fn clear(&self) {
        for shard in &self.shards {
            let mut shard = lock(shard);
            shard
                .slots
                .values()
                .for_each(|slot| slot.lock().value = None);
            shard.retain(|_, slot| Arc::strong_count(slot) > 1);
        }
    }

    /// The number of keys.
    pub(crate) fn len(&self) -> usize {
        let len = |shard: &Mutex<Shard<K, V>>| lock(shard).slots.len();
        self.shards.iter().map(len).sum()
    }

    fn shard(&self, key: &K) -> MutexGuard<'_, Shard<K, V>> {
        let hash = self.hasher.hash_one(key) as usize;
        lock(&self.shards[hash % self.shards.len()])
    }

    /// The slot of a key. If there is no room, although what is fresh may be forgotten, it is one for this caller alone.
    fn slot(&self, key: &K) -> Result<Arc<Slot<V>>, NoPlace> {
        // Declared before the lock is taken, so dropped after it is given back.
        let mut gone = Vec::new();
        let mut shard = self.shard(key);
        if let Some((known, slot)) = shard.slots.get_key_value(key) {
            let is_free = Arc::strong_count(slot) == 1 && !slot.is_fresh(Instant::now());
            if known.is_same(key) {
                return Ok(Arc::clone(slot));
            } else if !is_free {
                return Err(NoPlace::Other);
            }
            gone.extend(shard.remove(key));
        }
        let place = shard.make_room(key, self.limits, Instant::now(), &mut gone);
        let slot = Slot::new();
        match place {
            Ok(()) => shard.insert(key, Arc::clone(&slot)),
            Err(_) if self.limits.evicts => {}
            Err(why) => return Err(why),
        }
        Ok(slot)
    }
}

fn lock<T>(shard: &Mutex<T>) -> MutexGuard<'_, T> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

/// All references are made, and given back, under the lock of the shard.
fn is_in_use<V>(slot: &Arc<Slot<V>>) -> bool {
    Arc::strong_count(slot) > 1
}

impl<K: FlightKey, V: Clone> Shard<K, V> {
    fn has(&self, key: &K, slot: &Arc<Slot<V>>) -> bool {
        let kept = self.slots.get(key);
        kept.is_some_and(|kept| Arc::ptr_eq(kept, slot))
    }

    fn insert(&mut self, key: &K, slot: Arc<Slot<V>>) {
        let mut key = key.clone();
        if let Some(owner) = key.owner().cloned() {
            let known = self.owned.keys.get_key_value(&owner);
            let owner = known.map_or(owner, |(known, _)| Arc::clone(known));
            key.share_owner(Arc::clone(&owner));
            *self.owned.keys.entry(owner).or_insert(0) += 1;
            self.owned.unverified += usize::from(key.is_unverified());
        }
        self.slots.insert(key, slot);
    }

    fn remove(&mut self, key: &K) -> Option<Arc<Slot<V>>> {
        let gone = self.slots.remove(key)?;
        disown(&mut self.owned, key);
        Some(gone)
    }

    /// What is not kept. It is to be dropped without the lock: it may be large, and have a drop of its own.
    fn retain(&mut self, keep: impl Fn(&K, &Arc<Slot<V>>) -> bool) -> Vec<Arc<Slot<V>>> {
        let (owned, mut gone) = (&mut self.owned, Vec::new());
        self.slots.retain(|key, slot| {
            let is_kept = keep(key, slot);
            if !is_kept {
                disown(owned, key);
                gone.push(Arc::clone(slot));
            }
            is_kept
        });
        gone
    }

    /// Why there is no room for another key.
    fn no_room(&self, key: &K, limits: Limits) -> Option<NoPlace> {
        let owned = key.owner().and_then(|owner| self.owned.keys.get(owner));
        if owned.is_some_and(|keys| *keys >= limits.share) {
            return Some(NoPlace::Share);
        }
        if key.is_unverified() && self.owned.unverified >= limits.most.div_ceil(2) {
            return Some(NoPlace::Unverified);
        }
        (self.slots.len() >= limits.most).then_some(NoPlace::Full)
    }

    /// Forgets what is neither fresh nor in use; and, if that leaves no room and it may be, the eighth that will be stale first: of all, or of the
    /// owner who has no room.
    fn make_room(
        &mut self,
        key: &K,
        limits: Limits,
        now: Instant,
        gone: &mut Vec<Arc<Slot<V>>>,
    ) -> Result<(), NoPlace> {
        let is_due = |time| self.swept.is_none_or(|at| now - at >= time);
        let no_room = self.no_room(key, limits);
        if is_due(SWEEP) || no_room.is_some() && (limits.evicts || is_due(LOOK_AGAIN)) {
            self.swept = Some(now);
            gone.extend(self.retain(|_, slot| is_in_use(slot) || slot.is_fresh(now)));
        }
        let Some(why) = self.no_room(key, limits) else {
            return Ok(());
        };
        if !limits.evicts {
            return Err(why);
        }
        let is_one = |other: &K| match why {
            NoPlace::Share => other.owner() == key.owner(),
            // Nothing of a verified owner goes for one who is not.
            _ => !key.is_unverified() || other.is_unverified(),
        };
        let idle = self.slots.iter();
        let idle = idle.filter(|(other, slot)| is_one(other) && !is_in_use(slot));
        let mut ends: Vec<Instant> = idle.filter_map(|(_, slot)| slot.until()).collect();
        ends.sort_unstable();
        let eighth = match why {
            NoPlace::Share => limits.share / 8,
            _ => limits.most / 8,
        };
        if let Some(&last) = ends.get(eighth.min(ends.len().saturating_sub(1))) {
            let goes = |slot: &Slot<V>| slot.until().is_some_and(|until| until <= last);
            gone.extend(
                self.retain(|other, slot| !is_one(other) || is_in_use(slot) || !goes(slot)),
            );
        }
        self.no_room(key, limits).map_or(Ok(()), Err)
    }
}

/// A key of this owner is gone.
fn disown<K: FlightKey>(owned: &mut Owned, key: &K) {
    let Some(owner) = key.owner() else { return };
    if let Some(keys) = owned.keys.get_mut(owner) {
        *keys -= 1;
        if *keys == 0 {
            owned.keys.remove(owner);
        }
        owned.unverified -= usize::from(key.is_unverified());
    }
}

/// Whether the call's own time or caller has ended it: that says nothing to others.
pub(crate) fn is_for_one(error: &ToolError) -> bool {
    let deadline = [TimeoutLimit::Deadline, TimeoutLimit::Caller];
    match error.kind() {
        ErrorKind::Cancelled | ErrorKind::DeadlineExceeded => true,
        _ => error
            .timeout_limit()
            .is_some_and(|limit| deadline.contains(&limit)),
    }
}

crate::text::opaque_debug!({K: FlightKey, V: Clone} Flight<K, V>);
crate::text::opaque_debug!({K, V} Flights<K, V>);

#[cfg(test)]
mod tests;
