//! Values by key, each made by one caller at a time and kept while it is fresh.
//!
//! No task is involved: a key has one permit, and its holder makes the value. If the holder is
//! dropped, the next waiter takes over, unless the holder [leaves a value
//! behind](Flight::leave_behind). If the making fails, the waiters share the failure, the last of
//! them removes the key, and later callers try again. Each waiter ends its own wait.

use std::{
    collections::HashMap,
    future::Future,
    hash::Hash,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    sync::{AcquireError, OwnedSemaphorePermit, Semaphore},
    time::Instant,
};

use super::{
    principal::Principal,
    share::{NoRoom, Room, Units},
};
use crate::error::{ErrorKind, ToolError};
use crate::lock::lock;

/// Values that are stale are looked for so often, if keys are added.
const SWEEP: Duration = Duration::from_secs(60);

/// A store without room looks for stale values no more often than this.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// A key under which a value is kept.
pub trait FlightKey: Clone + Eq + Hash {
    /// Returns the owner, where each owner has a share of the keys.
    fn owner(&self) -> Option<&Arc<str>> {
        None
    }

    /// Returns `true` if the owner was not verified. All such owners have half of the keys at most.
    fn is_unverified(&self) -> bool {
        self.owner()
            .is_some_and(|owner| Principal::is_unverified(owner))
    }

    /// Returns an equal owner, which other keys have too.
    fn share_owner(&mut self, _: Arc<str>) {}

    /// Returns `true` if two equal keys are for the same value.
    fn is_same(&self, _: &Self) -> bool {
        true
    }
}

/// The values. At most so many keys as [`new`](Self::new) says.
pub(crate) struct Flights<K, V> {
    table: Mutex<Table<K, V>>,
    /// The bytes of values for which room is [reserved](Flight::reserve).
    bytes: Arc<Units>,
    /// Room for keys is made by forgetting fresh values.
    evicts: bool,
}

struct Table<K, V> {
    slots: HashMap<K, Place<V>>,
    keys: Arc<Units>,
    swept: Option<Instant>,
}

struct Place<V> {
    slot: Arc<Slot<V>>,
    /// Of one key.
    _room: Room,
}

/// Why a key has no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoPlace {
    /// Nothing is stale, and nothing may be forgotten.
    NoRoom(NoRoom),
    /// The key is in use for another value.
    Other,
}

struct Slot<V> {
    turn: Arc<Semaphore>,
    state: Mutex<State<V>>,
}

struct State<V> {
    value: Option<(V, Instant)>,
    /// That of the value.
    room: Option<Room>,
    /// Counts what was made, and what failed.
    round: u64,
    /// The failure, or the answer that is one, which those who waited for this round share, and the
    /// room of the answer.
    failed: Option<(u64, Result<V, ToolError>, Option<Room>)>,
    /// The last value is for one caller: no caller waits for another one's.
    is_single: bool,
}

/// A value that was made for a key.
pub(crate) struct Made<V> {
    pub(crate) value: V,
    /// How long it is fresh; `None`: it is for the one who made it.
    pub(crate) until: Option<Instant>,
}

/// Why nothing was made.
pub(crate) struct Failed {
    pub(crate) error: ToolError,
    /// The failure is for all who wait: a deadline of the caller who tried is not.
    pub(crate) is_shared: bool,
}

/// Where a value comes from, or a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Kept,
    /// By another caller, who was waited for.
    Shared,
    Made,
}

/// The state of a key for a caller.
enum Seen<V> {
    Fresh(V),
    Failed(Result<V, ToolError>),
    Nothing { round: u64, is_single: bool },
}

impl<V: Clone> Slot<V> {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            turn: Arc::new(Semaphore::new(1)),
            state: Mutex::new(State {
                value: None,
                room: None,
                round: 0,
                failed: None,
                is_single: false,
            }),
        })
    }

    /// Returns the state for a caller who has come in this round.
    fn see(&self, since: u64) -> Seen<V> {
        let state = lock(&self.state);
        match (&state.value, &state.failed) {
            (Some((value, until)), _) if *until > Instant::now() => Seen::Fresh(value.clone()),
            (_, Some((round, end, _))) if *round > since => Seen::Failed(end.clone()),
            _ => Seen::Nothing {
                round: state.round,
                is_single: state.is_single,
            },
        }
    }

    fn until(&self) -> Option<Instant> {
        lock(&self.state).value.as_ref().map(|(_, until)| *until)
    }

    fn is_fresh(&self, now: Instant) -> bool {
        self.until().is_some_and(|until| until > now)
    }

    /// Puts a value. Without a time it is only for its maker.
    fn put(&self, kept: Option<(V, Instant)>, room: Option<Room>) {
        let mut state = lock(&self.state);
        state.round += 1;
        state.failed = None;
        state.is_single = kept.is_none();
        let stale = kept.and_then(|kept| {
            state.room = room;
            state.value.replace(kept)
        });
        drop(state);
        drop(stale);
    }

    /// Gives back the room of the value. Returns the value, of which the rest stays.
    fn strip(&self, rest: impl FnOnce(&V) -> Option<V>) -> Option<V> {
        let mut state = lock(&self.state);
        state.room = None;
        let (value, until) = state.value.take()?;
        state.value = rest(&value).map(|rest| (rest, until));
        Some(value)
    }

    fn fail(&self, end: Result<V, ToolError>, room: Option<Room>) {
        let mut state = lock(&self.state);
        state.round += 1;
        let round = state.round;
        let before = state.failed.replace((round, end, room));
        drop(state);
        drop(before);
    }
}

/// The result of a caller's turn.
pub(crate) enum Turn<V> {
    /// The turn is not needed: there is a value, or a failure.
    Landed(Result<V, ToolError>, Source),
    /// The value is this caller's to make.
    Mine,
}

type Acquire = dyn Future<Output = Result<OwnedSemaphorePermit, AcquireError>> + Send + Sync;

/// A key while a caller uses it. The last one takes away the key of what could not be made.
pub(crate) struct Flight<K: FlightKey, V: Clone> {
    flights: Arc<Flights<K, V>>,
    key: K,
    /// `None` once it was given back, which is done under the lock of the table, as references are
    /// made there.
    slot: Option<Arc<Slot<V>>>,
    /// The round in which the caller has come.
    since: Option<u64>,
    wait: Option<Pin<Box<Acquire>>>,
    turn: Option<OwnedSemaphorePermit>,
    left_behind: Option<Option<(V, Duration)>>,
    /// That of the value that it ends with.
    room: Option<Room>,
}

impl<K: FlightKey, V: Clone> Flight<K, V> {
    fn slot(&self) -> &Arc<Slot<V>> {
        self.slot.as_ref().expect("there until it is dropped")
    }

    /// Returns `true` if the value is this caller's to make. If not, [`poll_turn`](Self::poll_turn)
    /// has the value, or waits for it.
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
                Seen::Failed(end) => {
                    return Poll::Ready(Turn::Landed(end, Source::Shared));
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
            Seen::Failed(end) => Turn::Landed(end, Source::Shared),
            Seen::Nothing { is_single, .. } => {
                self.turn = turn.filter(|_| !is_single);
                Turn::Mine
            }
        })
    }

    /// Sets the value to store if the maker is dropped or panics. `None`: the waiters then do not
    /// wait for each other.
    pub(crate) fn leave_behind(&mut self, kept: Option<(V, Duration)>) {
        self.left_behind = Some(kept);
    }

    /// Returns `true` if there is room for a value of so many bytes. Values that are stale first
    /// make room if necessary: of each the `rest` stays.
    pub(crate) fn reserve(&mut self, bytes: u64, rest: impl Fn(&V) -> Option<V>) -> bool {
        while bytes <= self.flights.bytes.share {
            let why =
                match self
                    .flights
                    .bytes
                    .take(self.key.owner(), self.key.is_unverified(), bytes)
                {
                    Ok(room) => {
                        self.room = Some(room).filter(|_| bytes > 0);
                        return true;
                    }
                    Err(why) => why,
                };
            let table = lock(&self.flights.table);
            let goes = table.eighth(&self.key, why, |slot| lock(&slot.state).room.is_some());
            let gone: Vec<_> = goes.iter().map(|(_, slot)| slot.strip(&rest)).collect();
            drop(table);
            if gone.is_empty() {
                break;
            }
        }
        false
    }

    /// Ends the turn as if the call had not been made.
    pub(crate) fn end_unmade(&mut self) {
        self.left_behind = None;
    }

    /// Ends the turn with an error, or with an answer that is a failure: those who wait have it
    /// too, and later callers try again.
    pub(crate) fn fail(&mut self, end: Result<V, ToolError>) {
        self.left_behind = None;
        let room = self.room.take();
        self.slot().fail(end, room);
    }

    /// Ends the turn of the one who has made the value: it is kept, or is theirs alone.
    pub(crate) fn end(&mut self, kept: Option<(V, Instant)>) {
        self.left_behind = None;
        let room = self.room.take();
        self.slot().put(kept, room);
    }
}

impl<K: FlightKey, V: Clone> Drop for Flight<K, V> {
    fn drop(&mut self) {
        if let Some(kept) = self.left_behind.take().filter(|_| self.turn.is_some()) {
            let until = |(value, time)| (value, Instant::now() + time);
            self.slot().put(kept.map(until), None);
        }
        // The next one has its turn, if there is one.
        (self.wait, self.turn) = (None, None);
        let mut table = lock(&self.flights.table);
        let Some(slot) = self.slot.take() else { return };
        let gone = match table.has(&self.key, &slot) {
            false => Some(slot),
            true => {
                // The table's and this one.
                let is_last = Arc::strong_count(&slot) == 2;
                let is_single = lock(&slot.state).is_single;
                let goes = is_last && !is_single && !slot.is_fresh(Instant::now());
                drop(slot);
                goes.then(|| table.remove(&self.key)).flatten()
            }
        };
        drop(table);
        drop(gone);
    }
}

impl<K: FlightKey, V: Clone> Flights<K, V> {
    /// Makes a store of at most `most` keys, and at least one. Beyond these it evicts fresh values.
    pub(crate) fn new(most: usize) -> Self {
        let most = most.max(1) as u64;
        Self::shared_out(Units::new(most, most), Units::new(u64::MAX, u64::MAX), true)
    }

    /// Makes a store with so many keys and bytes.
    pub(crate) fn shared_out(keys: Arc<Units>, bytes: Arc<Units>, evicts: bool) -> Self {
        let table = Mutex::new(Table {
            slots: HashMap::new(),
            keys,
            swept: None,
        });
        Self {
            table,
            bytes,
            evicts,
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
            room: None,
        })
    }

    /// The value, if there is a fresh one.
    pub(crate) fn get(&self, key: &K) -> Option<V> {
        match lock(&self.table).slots.get(key)?.slot.see(u64::MAX) {
            Seen::Fresh(value) => Some(value),
            Seen::Failed(_) | Seen::Nothing { .. } => None,
        }
    }

    /// Returns the value, or what `make` makes, if no other caller does so meanwhile. Dropped while
    /// it makes one, it leaves that to the next who waits.
    pub(crate) async fn get_or_make<F>(
        self: &Arc<Self>,
        key: &K,
        make: impl FnOnce() -> F,
    ) -> (Result<V, ToolError>, Source)
    where
        F: Future<Output = Result<Made<V>, Failed>>,
    {
        let Ok(mut flight) = self.enter(key.clone()) else {
            unreachable!("fresh values are evicted")
        };
        let turn = std::future::poll_fn(|cx| flight.poll_turn(cx)).await;
        if let Turn::Landed(result, source) = turn {
            return (result, source);
        }
        let result = match make().await {
            Ok(Made { value, until }) => {
                flight.end(until.map(|until| (value.clone(), until)));
                Ok(value)
            }
            Err(Failed { error, is_shared }) => {
                if is_shared {
                    flight.fail(Err(error.clone()));
                }
                Err(error)
            }
        };
        (result, Source::Made)
    }

    /// Forgets a value, unless there is another one by now than that which `is` knows.
    pub(crate) fn forget(&self, key: &K, is: impl FnOnce(&V) -> bool) {
        if let Some(place) = lock(&self.table).slots.get(key) {
            lock(&place.slot.state)
                .value
                .take_if(|(value, _)| is(value));
        }
    }

    /// Forgets these keys. A value that is being made for one of them is not kept.
    pub(crate) fn forget_keys(&self, these: impl Fn(&K) -> bool) {
        let gone = lock(&self.table).retain(|key, _| !these(key));
        drop(gone);
    }

    /// Forgets all values.
    pub(crate) fn clear(&self) {
        let mut table = lock(&self.table);
        let slots = table.slots.values();
        slots.for_each(|place| lock(&place.slot.state).value = None);
        table.retain(|_, slot| Arc::strong_count(slot) > 1);
    }

    /// Returns the number of keys.
    pub(crate) fn len(&self) -> usize {
        lock(&self.table).slots.len()
    }

    /// Returns the slot of a key. If nothing can be evicted, not even fresh values, the slot is for
    /// this caller alone.
    fn slot(&self, key: &K) -> Result<Arc<Slot<V>>, NoPlace> {
        // Declared before the lock is taken, so dropped after it is given back.
        let mut gone = Vec::new();
        let mut table = lock(&self.table);
        if let Some((known, Place { slot, .. })) = table.slots.get_key_value(key) {
            let is_free = Arc::strong_count(slot) == 1 && !slot.is_fresh(Instant::now());
            if known.is_same(key) {
                return Ok(Arc::clone(slot));
            } else if !is_free {
                return Err(NoPlace::Other);
            }
            gone.extend(table.remove(key));
        }
        let room = table.make_room(key, self.evicts, Instant::now(), &mut gone);
        let slot = Slot::new();
        match room {
            Ok(room) => table.insert(key, Arc::clone(&slot), room),
            Err(_) if self.evicts => {}
            Err(why) => return Err(NoPlace::NoRoom(why)),
        }
        Ok(slot)
    }
}

/// Returns whether a caller uses the slot. References are only made, and given back, under the lock
/// of the table.
fn is_in_use<V>(slot: &Arc<Slot<V>>) -> bool {
    Arc::strong_count(slot) > 1
}

impl<K: FlightKey, V: Clone> Table<K, V> {
    fn has(&self, key: &K, slot: &Arc<Slot<V>>) -> bool {
        let kept = self.slots.get(key);
        kept.is_some_and(|kept| Arc::ptr_eq(&kept.slot, slot))
    }

    fn insert(&mut self, key: &K, slot: Arc<Slot<V>>, room: Room) {
        let mut key = key.clone();
        if let Some(owner) = &room.owner {
            key.share_owner(Arc::clone(owner));
        }
        self.slots.insert(key, Place { slot, _room: room });
    }

    fn remove(&mut self, key: &K) -> Option<Arc<Slot<V>>> {
        Some(self.slots.remove(key)?.slot)
    }

    /// Removes and returns the slots that are not kept. They are to be dropped without the lock: a
    /// value may be large, and have a drop of its own.
    fn retain(&mut self, keep: impl Fn(&K, &Arc<Slot<V>>) -> bool) -> Vec<Arc<Slot<V>>> {
        let mut gone = Vec::new();
        self.slots.retain(|key, Place { slot, .. }| {
            let is_kept = keep(key, slot);
            if !is_kept {
                gone.push(Arc::clone(slot));
            }
            is_kept
        });
        gone
    }

    /// Makes room for another key. Evicts values that are neither fresh nor in use. If that is not
    /// enough and `evicts` is set, it evicts the eighth that will be stale first: of all, or of the
    /// owner without room.
    fn make_room(
        &mut self,
        key: &K,
        evicts: bool,
        now: Instant,
        gone: &mut Vec<Arc<Slot<V>>>,
    ) -> Result<Room, NoRoom> {
        let units = Arc::clone(&self.keys);
        let take = || units.take(key.owner(), key.is_unverified(), 1);
        let is_due = |time| self.swept.is_none_or(|at| now - at >= time);
        let room = take();
        if is_due(SWEEP) || room.is_err() && (evicts || is_due(LOOK_AGAIN)) {
            self.swept = Some(now);
            gone.extend(self.retain(|_, slot| is_in_use(slot) || slot.is_fresh(now)));
        }
        let why = match room.or_else(|_| take()) {
            Err(why) if evicts => why,
            room => return room,
        };
        let goes = self.eighth(key, why, |_| true);
        let goes: Vec<K> = goes.into_iter().map(|(key, _)| key.clone()).collect();
        gone.extend(goes.iter().filter_map(|key| self.remove(key)));
        take()
    }

    /// Returns the eighth that will be stale first of the values that hold something, are not in
    /// use, and go before the key has no room.
    fn eighth(
        &self,
        key: &K,
        why: NoRoom,
        holds: impl Fn(&Slot<V>) -> bool,
    ) -> Vec<(&K, &Arc<Slot<V>>)> {
        let may_go = |other: &K| match why {
            NoRoom::Share => other.owner() == key.owner(),
            // Nothing of a verified owner goes for one who is not.
            _ => !key.is_unverified() || other.is_unverified(),
        };
        let idle = self.slots.iter().map(|(other, place)| (other, &place.slot));
        let idle = idle.filter(|(other, slot)| may_go(other) && !is_in_use(slot) && holds(slot));
        let mut idle: Vec<_> = idle.collect();
        idle.sort_by_cached_key(|(_, slot)| slot.until());
        idle.truncate(idle.len().div_ceil(8));
        idle
    }
}

/// Returns `true` if the call's own time or caller has ended it: that says nothing to others.
pub(crate) fn is_for_one(error: &ToolError) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Cancelled | ErrorKind::DeadlineExceeded
    ) || error.is_of_deadline()
}

crate::text::debug_fields! { {K: FlightKey, V: Clone} |_| Flight<K, V> { .. } }
crate::text::debug_fields! { {K, V} |_| Flights<K, V> { .. } }

#[cfg(test)]
mod tests;
