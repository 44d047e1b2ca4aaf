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
//!     circuit_breaker::CircuitBreakerLayer, rate_limit::RateLimitBackoffLayer,
//! };
//! use tower_toolcall_redis::{MemoryStore, SharedState};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), tower_toolcall::BoxError> {
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
//! Over a Redis or Valkey server it is the same with a [`RedisStore`]; any other store is a
//! [`Store`] of your own. [`SharedState::from_settings`] makes it of settings (feature `settings`).
//!
//! # What is shared
//!
//! The store has a register for each key: its state, until when that holds, and a version. A
//! process that learns something by itself writes the version after the one that it has read. The
//! store takes it only if it has no such version yet, so a process never undoes what it has not
//! read.
//!
//! | here | for the others |
//! |---|---|
//! | a breaker opens, or its probe fails | theirs open for what is left of the period |
//! | its probes succeed | theirs close if they are open, unless one has failed since |
//! | a handle [forces](tower_toolcall::circuit_breaker::Breaker::force_open) or resets it, and that changes its state | theirs are forced or reset |
//! | a rate limit is met, by a status or a tool service's own report, or [begun](tower_toolcall::rate_limit::RateLimitHandle::cool) by hand | their calls of that key wait as long |
//! | a rate limit is known by text alone | nothing |
//! | a cooldown is [ended](tower_toolcall::rate_limit::RateLimitHandle::clear) by hand | theirs end |
//! | a cooldown is over | all return together as slowly as one would: each has one turn of so many |
//! | anything else: results, windows, refusals | nothing |
//!
//! A process never tells what it took over from others as its own, and a state lasts no longer than
//! the process that has seen it says so. An opening never shortens that of another process, and
//! each result is counted in its own process only.
//!
//! # Probes
//!
//! A process adds a random part of the [grace](SharedState::with_grace) to a period that it takes
//! over, so that processes do not probe together. The first probe that succeeds closes all breakers
//! of the key. If it fails, all stay open for the new period.
//!
//! # Limits
//!
//! - One process that is sick by itself (its name resolution, its network) opens breakers of tools
//!   that work for the others: an opening of one process is enough. The next probe of another
//!   process closes them, also the breaker of the sick process. So its next open period is not
//!   longer than the one before.
//! - All processes of a fleet have to read and write the same store. A program that can write to it
//!   can close and open all breakers: records are bounded and checked, but not signed.
//! - Of two persons who force a key at the same time, the one whose process reaches the store last
//!   wins. A state that was forced while the store was away counts from the moment at which it is
//!   back.
//! - A store that goes on with an older copy of its content, as after a failover, is told what it
//!   lacks if the next process that asks has seen more. Otherwise what was lost is known with the
//!   next opening.
//! - A process that was away from the store for a week does not hear of resets before.
//! - Breakers that a program makes disabled, as after
//!   [`disable_all`](tower_toolcall::circuit_breaker::CircuitBreakerHandle::disable_all), are told
//!   if they were there already.
//! - A store that loses its content costs nothing that is known here: processes tell again what
//!   they know and what still holds.
//! - Keys go to the store as text: names of servers and tools, cut ones and those of more than
//!   [`MAX_KEY_BYTES`] excepted, which are not shared. Keys that a function makes are refused,
//!   unless they are [said to be public](SharedState::public_breakers). Keys of the ids of callers
//!   are refused.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod handle;
mod key;
mod layers;
mod memory;
mod mirror;
mod random;
mod register;
mod server;
#[cfg(feature = "settings")]
mod settings;
mod store;

use std::{fmt, sync::Arc, time::Duration};

use tower_toolcall::{
    ConfigError, Key, circuit_breaker::CircuitBreakerHandle, rate_limit::RateLimitHandle,
    reader::refuse_if,
};

use self::{
    handle::Status,
    layers::{Layer, State},
    mirror::Mirror,
};
pub use self::{
    handle::{SharedHandle, SharedSnapshot},
    memory::MemoryStore,
    server::RedisStore,
    store::{
        Entry, Exchange, MAX_ENTRIES, MAX_KEY_BYTES, MAX_STEP, MAX_VALUE_BYTES, News, Record, Store,
    },
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

    /// Sets the longest random addition to an open period that is taken over: processes do not
    /// probe together. Zero: all probe when the period ends. Default: 5 s.
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

    /// Returns the handle that shows how the exchange goes.
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
        Mirror::new(self).run().await;
    }
}

impl<S> fmt::Debug for SharedState<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let layers: Vec<_> = self.layers.iter().map(|layer| &layer.name).collect();
        f.debug_struct("SharedState")
            .field("layers", &layers)
            .field("grace", &self.grace)
            .field("resync", &self.resync)
            .finish_non_exhaustive()
    }
}
