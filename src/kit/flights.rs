//! Values by key, each made by one caller at a time and kept while it is fresh.
//!
//! There is no task: a key has one permit, and whoever has it makes the value. If he is dropped, the next one takes over; if the making
//! fails, those who waited meanwhile share the failure, and later callers try again; the key of what failed goes with the last of them. Each
//! wait is the waiter's own to end.

use std::{
    collections::HashMap,
    future::Future,
    hash::{BuildHasher as _, Hash, RandomState},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{sync::Semaphore, time::Instant};

use crate::error::ToolError;

/// Callers of different keys rarely meet at one lock.
const SHARDS: usize = 16;

/// Values that are stale are looked for so often, if keys are added.
const SWEEP: Duration = Duration::from_secs(60);

/// The values. At most so many keys as [`new`](Self::new) says.
pub(crate) struct Flights<K, V> {
    shards: Box<[Mutex<Shard<K, V>>]>,
    hasher: RandomState,
    /// The keys of a shard.
    most: usize,
}

struct Shard<K, V> {
    slots: HashMap<K, Arc<Slot<V>>>,
    swept: Option<Instant>,
}

struct Slot<V> {
    turn: Semaphore,
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
            turn: Semaphore::new(1),
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

    fn put(&self, made: &Made<V>) {
        let mut state = self.lock();
        state.round += 1;
        state.failed = None;
        state.is_single = made.until.is_none();
        if let Some(until) = made.until {
            state.value = Some((made.value.clone(), until));
        }
    }

    fn fail(&self, error: ToolError) {
        let mut state = self.lock();
        state.round += 1;
        state.failed = Some((state.round, error));
    }
}

/// The slot of a key while a caller uses it. The last one takes away the key of what could not be made.
struct InUse<'f, K, V>
where
    K: Clone + Eq + Hash,
    V: Clone,
{
    flights: &'f Flights<K, V>,
    key: &'f K,
    /// `None` once it was given back, which is done under the lock of its shard, as references are made there.
    slot: Option<Arc<Slot<V>>>,
}

impl<K, V> Drop for InUse<'_, K, V>
where
    K: Clone + Eq + Hash,
    V: Clone,
{
    fn drop(&mut self) {
        let mut shard = self.flights.shard(self.key);
        let Some(slot) = self.slot.take() else { return };
        // The table's and this one.
        let is_last = Arc::strong_count(&slot) == 2;
        let is_single = slot.lock().is_single;
        if is_last && !is_single && !slot.is_fresh(Instant::now()) {
            shard.slots.remove(self.key);
        }
    }
}

impl<K, V> Flights<K, V>
where
    K: Clone + Eq + Hash,
    V: Clone,
{
    /// For at most `most` keys, and at least one.
    pub(crate) fn new(most: usize) -> Self {
        let shards = match most {
            0..1024 => 1,
            _ => SHARDS,
        };
        let shard = |_| {
            Mutex::new(Shard {
                slots: HashMap::new(),
                swept: None,
            })
        };
        Self {
            shards: (0..shards).map(shard).collect(),
            hasher: RandomState::new(),
            most: (most / shards).max(1),
        }
    }

    /// The value, if there is a fresh one.
    pub(crate) fn get(&self, key: &K) -> Option<V> {
        match self.shard(key).slots.get(key)?.see(u64::MAX) {
            Seen::Fresh(value) => Some(value),
            Seen::Failed(_) | Seen::Nothing { .. } => None,
        }
    }

    /// The value, or what `make` makes, if no other caller does so meanwhile. Dropped while it makes one, it leaves that to the
    /// next who waits.
    pub(crate) async fn get_or_make<F>(
        &self,
        key: &K,
        make: impl FnOnce() -> F,
    ) -> (Result<V, ToolError>, Source)
    where
        F: Future<Output = Result<Made<V>, Failed>>,
    {
        let in_use = InUse {
            flights: self,
            key,
            slot: Some(self.slot(key)),
        };
        let slot = in_use.slot.as_ref().expect("there until it is dropped");
        let (round, is_single) = match slot.see(u64::MAX) {
            Seen::Fresh(value) => return (Ok(value), Source::Kept),
            Seen::Failed(error) => return (Err(error), Source::Shared),
            Seen::Nothing { round, is_single } => (round, is_single),
        };
        let turn = match is_single {
            true => None,
            false => slot.turn.acquire().await.ok(),
        };
        let _turn = match slot.see(round) {
            Seen::Fresh(value) => return (Ok(value), Source::Shared),
            Seen::Failed(error) => return (Err(error), Source::Shared),
            Seen::Nothing { is_single, .. } => turn.filter(|_| !is_single),
        };
        let result = match make().await {
            Ok(made) => {
                slot.put(&made);
                Ok(made.value)
            }
            Err(failed) => {
                if failed.is_shared {
                    slot.fail(failed.error.clone());
                }
                Err(failed.error)
            }
        };
        (result, Source::Made)
    }

    /// Forgets a value, unless there is another one by now than that which `is` knows.
    pub(crate) fn forget(&self, key: &K, is: impl FnOnce(&V) -> bool) {
        if let Some(slot) = self.shard(key).slots.get(key) {
            slot.lock().value.take_if(|(value, _)| is(value));
        }
    }

    /// Forgets all values.
    pub(crate) fn clear(&self) {
        for shard in &self.shards {
            let mut shard = lock(shard);
            shard
                .slots
                .values()
                .for_each(|slot| slot.lock().value = None);
            shard.slots.retain(|_, slot| Arc::strong_count(slot) > 1);
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

    /// The slot of a key. If all that are kept are in use, it is one for this caller alone.
    fn slot(&self, key: &K) -> Arc<Slot<V>> {
        let mut shard = self.shard(key);
        if let Some(slot) = shard.slots.get(key) {
            return Arc::clone(slot);
        }
        let now = Instant::now();
        let is_due = shard.swept.is_none_or(|at| now - at >= SWEEP);
        if is_due || shard.slots.len() >= self.most {
            shard.sweep(now, self.most);
        }
        let slot = Slot::new();
        if shard.slots.len() < self.most {
            shard.slots.insert(key.clone(), Arc::clone(&slot));
        }
        slot
    }
}

fn lock<T>(shard: &Mutex<T>) -> MutexGuard<'_, T> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<K: Clone + Eq + Hash, V: Clone> Shard<K, V> {
    /// Forgets what is neither fresh nor in use; and, if that leaves no room, the eighth that will be stale first.
    fn sweep(&mut self, now: Instant, most: usize) {
        self.swept = Some(now);
        // All references are made, and given back, under the lock of this shard.
        let is_in_use = |slot: &Arc<Slot<V>>| Arc::strong_count(slot) > 1;
        self.slots
            .retain(|_, slot| is_in_use(slot) || slot.is_fresh(now));
        if self.slots.len() < most {
            return;
        }
        let idle = self.slots.values().filter(|slot| !is_in_use(slot));
        let mut ends: Vec<Instant> = idle.filter_map(|slot| slot.until()).collect();
        ends.sort_unstable();
        let Some(&last) = ends.get((most / 8).min(ends.len().saturating_sub(1))) else {
            return;
        };
        self.slots
            .retain(|_, slot| is_in_use(slot) || slot.until().is_none_or(|until| until > last));
    }
}

crate::text::opaque_debug!({K, V} Flights<K, V>);

#[cfg(test)]
mod tests;
