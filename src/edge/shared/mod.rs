//! What circuit breakers and rate limits have learnt, shared between processes.
//!
//! Each of ten processes that call a dead tool finds that out by itself, with five failures, and
//! then each sends its own probes; ten that share a rate limit meet it ten times, and come back
//! together. With [`SharedState`] they tell each other, over a [`Store`], and act as one. Calls
//! never wait for it: each process decides on its own breakers and gates, as without it, and the
//! future of [`SharedState::run`] mirrors their states in the background. If that future, the
//! store, or the way to it is gone, processes go on alone with what they know.
//!
//! ```
//! use tower_toolcall::{
//!     circuit_breaker::CircuitBreakerLayer,
//!     rate_limit::RateLimitBackoffLayer,
//!     shared::{MemoryStore, SharedState},
//! };
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tower_toolcall::BoxError> {
//! let breaker = CircuitBreakerLayer::new();
//! let rate_limit = RateLimitBackoffLayer::new();
//! let shared = SharedState::new(MemoryStore::new())
//!     .breakers("breakers", &breaker.handle())?
//!     .rate_limits("limits", &rate_limit.handle())?;
//! let handle = shared.handle();
//! let mirror = tokio::spawn(shared.run()); // nothing is spawned by this crate
//! # mirror.abort();
//! println!("{:?}", handle.snapshot());
//! # Ok(()) }
//! ```
//!
//! Over a Redis or Valkey server it is the same with a `RedisStore` (feature `redis`); any other
//! store is a [`Store`] of your own.
//!
//! # What is shared
//!
//! | here | for the others |
//! |---|---|
//! | a breaker opens | a vote: theirs open for what is left of the period, once a [quorum](SharedState::with_quorum) of living processes has it open |
//! | its period is over, and it sends a probe | those that are open wait for that probe |
//! | the probe fails | they stay open for the new period; no other vote is needed, as the fleet had agreed |
//! | its probes succeed | what they took over ends; one that had failures of its own may probe at once |
//! | a handle [forces](crate::circuit_breaker::Breaker::force_open) or resets it, and that changes its state | theirs are forced or reset |
//! | a rate limit is met, by a status or a tool service's own word, or [begun](crate::rate_limit::RateLimitHandle::cool) by hand | their calls of that key wait as long; no vote is needed, as the server itself has said so |
//! | a rate limit is known by text alone | nothing |
//! | a cooldown is [ended](crate::rate_limit::RateLimitHandle::clear) by hand | theirs end |
//! | a cooldown is over | all return together as slowly as one would: each has one turn of so many |
//! | anything else: results, windows, refusals | nothing |
//!
//! A process passes on what it has seen itself, never what it took over from others. So a state
//! lasts no longer than the process that has seen it says so. An opening never shortens that of
//! another process, and each result is counted in its own process only.
//!
//! # One probe for all
//!
//! The process that was open first probes first: the others add a [grace](SharedState::with_grace)
//! to what they take over, at random once to twice as long. Its verdict reaches them before their
//! own probes. If it gets no calls, the next one probes. A process whose probe has failed adds two
//! to three graces to its own period, so that the next probe is that of another process.
//!
//! # What it cannot do
//!
//! - One process that is sick by itself (its name resolution, its network) opens breakers of tools
//!   that are well. With a quorum of 1 it would do so for all; so the default is 2. A single
//!   process is its own quorum.
//! - All processes of a fleet have to read and write the same store. Who can write to it can close
//!   and open all breakers: what is read is bounded and checked, but not signed.
//! - Between two persons who force a key at the same time, in processes that do not know of each
//!   other yet, the stricter state wins; what was forced while the store was away counts from the
//!   moment at which it is back.
//! - A store that goes on with an older copy of its content, as after a failover, is told what it
//!   lacks if the next process that asks has seen more. If it has not, what was lost is known with
//!   the next opening, or within a day.
//! - Breakers that a program makes disabled, as after
//!   [`disable_all`](crate::circuit_breaker::CircuitBreakerHandle::disable_all), are told if they
//!   were there already.
//! - A store that loses its content costs nothing that is known here: each process tells again what
//!   it has seen itself. A state that was forced by a process that has ended since, and that the
//!   store has lost, is not known to processes that start later.
//! - Keys go to the store as text: names of servers and tools, cut ones and those of more than
//!   [`MAX_KEY_BYTES`] excepted, which are not shared. Keys that a function makes are refused,
//!   unless they are [said to be public](SharedState::public_breakers). Keys of the ids of callers
//!   are refused.

mod fleet;
mod handle;
mod key;
mod layers;
mod memory;
mod mirror;
#[cfg(feature = "redis")]
mod redis;
mod store;
mod words;

use std::{
    collections::hash_map::RandomState, fmt, hash::BuildHasher as _, sync::Arc, time::Duration,
};

#[cfg(feature = "redis")]
#[cfg_attr(docsrs, doc(cfg(feature = "redis")))]
pub use self::redis::RedisStore;
use self::{
    fleet::{Fleet, MAX_VOTES},
    handle::Status,
    layers::{Layer, State},
    mirror::Mirror,
};
pub use self::{
    handle::{SharedHandle, SharedSnapshot},
    memory::MemoryStore,
    store::{
        Entry, Exchange, MAX_ENTRIES, MAX_KEY_BYTES, MAX_PEERS, MAX_VALUE_BYTES, News, Record,
        Store,
    },
};
use crate::{
    circuit_breaker::CircuitBreakerHandle,
    config::{ConfigError, refuse_if},
    key::Key,
    rate_limit::RateLimitHandle,
};

/// The longest name of a layer, in bytes.
const MAX_LAYER_BYTES: usize = 64;

/// The longest grace, and the longest time between two exchanges.
const MAX_PAUSE: Duration = Duration::from_secs(3600);

/// Shares the states of circuit breakers and rate limits with other processes. See the
/// [module](self).
#[must_use = "it does nothing until its future is polled"]
pub struct SharedState<S> {
    store: S,
    layers: Vec<Layer>,
    quorum: usize,
    grace: Duration,
    resync: Duration,
    status: Arc<Status>,
}

impl<S: Store> SharedState<S> {
    /// Over this store, with no layers yet.
    pub fn new(store: S) -> Self {
        Self {
            store,
            layers: Vec::new(),
            quorum: 2,
            grace: Duration::from_secs(5),
            resync: Duration::from_secs(1),
            status: Arc::default(),
        }
    }

    /// Adds the breakers of a layer, under a name that they have in all processes.
    ///
    /// # Errors
    ///
    /// `layer`: the name is empty, longer than 64 bytes, has a control character, or is that of
    /// another layer; or the layer's keys are made by a function: they may have what is not for the
    /// store. Keys of the ids of callers ([`Key::Session`], [`Key::per_principal`]) are never
    /// shared.
    pub fn breakers(
        self,
        name: impl Into<String>,
        handle: &CircuitBreakerHandle,
    ) -> Result<Self, ConfigError> {
        self.add(name.into(), State::Breakers(handle.clone()), false)
    }

    /// The same for a layer whose keys are made by a function: they hold no secret, as the store
    /// has them as they are; and hashes are the same in every process, so they have no seed of
    /// their own.
    ///
    /// # Errors
    ///
    /// `layer`: the name, as above; or the keys are of the ids of callers.
    pub fn public_breakers(
        self,
        name: impl Into<String>,
        handle: &CircuitBreakerHandle,
    ) -> Result<Self, ConfigError> {
        self.add(name.into(), State::Breakers(handle.clone()), true)
    }

    /// Adds the cooldowns of a rate-limit layer, under a name that they have in all processes.
    ///
    /// # Errors
    ///
    /// As [`breakers`](Self::breakers).
    pub fn rate_limits(
        self,
        name: impl Into<String>,
        handle: &RateLimitHandle,
    ) -> Result<Self, ConfigError> {
        self.add(name.into(), State::Gates(handle.clone()), false)
    }

    /// The same for a layer whose keys are made by a function, as
    /// [`public_breakers`](Self::public_breakers) has it.
    ///
    /// # Errors
    ///
    /// `layer`: the name, as above; or the keys are of the ids of callers.
    pub fn public_rate_limits(
        self,
        name: impl Into<String>,
        handle: &RateLimitHandle,
    ) -> Result<Self, ConfigError> {
        self.add(name.into(), State::Gates(handle.clone()), true)
    }

    fn add(mut self, name: String, state: State, is_public: bool) -> Result<Self, ConfigError> {
        let is_bad = name.is_empty()
            || name.len() > MAX_LAYER_BYTES
            || name.chars().any(char::is_control)
            || self.layers.iter().any(|layer| layer.name == name);
        let reason =
            "the name is empty, longer than 64 bytes, has a control character, or is used already";
        refuse_if(is_bad, "layer", reason)?;
        let (is_refused, reason) = match state.key() {
            Key::By(_) | Key::Hashed(_) => (
                !is_public,
                "its keys are made by a function: use `public_breakers` or `public_rate_limits`",
            ),
            key => (
                key.is_of_ids(),
                "its keys are of the ids of callers, which stay in their process",
            ),
        };
        refuse_if(is_refused, "layer", reason)?;
        self.layers.push(Layer { name, state });
        Ok(self)
    }

    /// Sets of how many living processes a breaker has to be open, each by results of its own,
    /// before it opens for all; at least 1. If there are fewer processes, all of them are enough.
    /// Default: 2.
    ///
    /// # Errors
    ///
    /// `quorum`: zero, or more than 64.
    pub fn with_quorum(mut self, quorum: usize) -> Result<Self, ConfigError> {
        let reason = "it is not between 1 and 64";
        refuse_if(!(1..=MAX_VOTES).contains(&quorum), "quorum", reason)?;
        self.quorum = quorum;
        Ok(self)
    }

    /// Sets what is added to a period that is taken over, once to twice at random: the time for
    /// which the process that was open first may probe alone. It should be longer than a probe
    /// takes to begin and to be told. Zero: all probe at once. Default: 5 s.
    ///
    /// # Errors
    ///
    /// `grace`: longer than an hour.
    pub fn with_grace(mut self, grace: Duration) -> Result<Self, ConfigError> {
        refuse_if(grace > MAX_PAUSE, "grace", "it is longer than an hour")?;
        self.grace = grace;
        Ok(self)
    }

    /// Sets the longest time between two exchanges with the store: what got lost on the way is
    /// known after it. Default: 1 s.
    ///
    /// # Errors
    ///
    /// `resync`: less than 10 ms, or longer than an hour.
    pub fn with_resync(mut self, resync: Duration) -> Result<Self, ConfigError> {
        let is_bad = resync < Duration::from_millis(10) || resync > MAX_PAUSE;
        refuse_if(is_bad, "resync", "it is not between 10 ms and an hour")?;
        self.resync = resync;
        Ok(self)
    }

    /// Tells how the exchange goes.
    pub fn handle(&self) -> SharedHandle {
        SharedHandle(Arc::clone(&self.status))
    }

    /// Mirrors the states until it is dropped; then the process goes on alone, and nothing that it
    /// knows is lost. It keeps its layers' states alive.
    ///
    /// An exchange that fails, or takes longer than a second, is made again after the time between
    /// two exchanges. The event `tool.store` tells when the store is down (WARN), and when it is up
    /// again (INFO).
    pub async fn run(self) {
        // Of nobody else, and not to be guessed.
        let me = format!("{:016x}", RandomState::new().hash_one(0));
        let fleet = Fleet::new(me, self.quorum);
        let mirror = Mirror::new(
            self.store,
            self.layers,
            fleet,
            self.grace,
            self.resync,
            self.status,
        );
        mirror.run().await;
    }
}

impl<S> fmt::Debug for SharedState<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let layers = self.layers.iter().map(|layer| &layer.name);
        f.debug_struct("SharedState")
            .field("layers", &layers.collect::<Vec<_>>())
            .field("quorum", &self.quorum)
            .field("grace", &self.grace)
            .field("resync", &self.resync)
            .finish_non_exhaustive()
    }
}
