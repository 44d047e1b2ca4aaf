//! Shares the states of circuit breakers and rate limits between processes.
//!
//! Ten processes that call a dead tool need five failures each to notice, and each sends its own
//! probes. Ten processes with a common rate limit meet it ten times, and return together. With
//! [`SharedState`] they exchange their states over a [`Store`], and act as one.
//!
//! Calls never wait for the store. Each process decides by its own breakers and cooldowns, and the
//! future of [`SharedState::run`] copies states to and from the store. If the store is not
//! available, or that future was dropped, each process continues with the states that it has.
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
//! For a Redis or Valkey server use a [`RedisStore`]; for any other store implement [`Store`].
//! [`SharedState::from_settings`] reads settings (feature `settings`).
//!
//! # What is shared
//!
//! The store has an entry for each key: its state, the end of that state, and a version. To change
//! an entry, a process writes it with the next version number. The store refuses a version that
//! exists, so a process never overwrites a change that it has not read.
//!
//! If this happens in one process, the others react:
//!
//! - **a breaker opens, or its probe fails**: theirs open for the rest of the period
//! - **its probes succeed**: theirs close if they are open, unless one has failed since
//! - **a handle [forces](tower_toolcall::circuit_breaker::Breaker::force_open) or resets it, and
//!   that changes its state**: theirs are forced or reset
//! - **a rate limit is met, by a status or a tool service's own report, or
//!   [begun](tower_toolcall::rate_limit::RateLimitHandle::cool) by hand**: their calls of that key
//!   wait for the same time
//! - **a rate limit is inferred from a text**: nothing
//! - **a cooldown is [ended](tower_toolcall::rate_limit::RateLimitHandle::clear) by hand**: theirs
//!   end
//! - **a cooldown is over**: together the processes send as slowly as one process would
//! - **anything else: results, windows, refusals**: nothing
//!
//! A process never passes on a state of another process as its own. A state lasts no longer than
//! its first process says. An opening never shortens that of another process, and each result
//! counts in its own process only.
//!
//! # Probes
//!
//! A process adds a random part of the [grace](SharedState::with_grace) to a period that it takes
//! over, so that processes do not probe together. The first probe that succeeds closes all breakers
//! of the key. If it fails, all stay open for the new period.
//!
//! # Details
//!
//! ## Limits
//!
//! - A process with its own fault (its name resolution, its network) opens breakers of tools that
//!   work for the others, because the opening of one process is enough. The next probe of another
//!   process closes them, also the breaker of the sick process. So its next open period is not
//!   longer than the one before.
//! - All processes of a fleet must read and write the same store. A program that can write to it
//!   can close and open all breakers: records are bounded and checked, but not signed.
//! - If two persons force a key at the same time, the process that reaches the store last wins. A
//!   state that was forced while the store was away counts from the store's return.
//! - After a failover a store may continue with an older copy of its content. The next process that
//!   has newer states writes them again. Otherwise they are lost until the next opening.
//! - A process that was away from the store for a week misses earlier resets.
//! - Breakers that a program makes disabled, as after
//!   [`disable_all`](tower_toolcall::circuit_breaker::CircuitBreakerHandle::disable_all), are
//!   shared if they existed before.
//! - If a store loses its content, processes write their current states again.
//! - Keys go to the store as text: names of servers and tools. Cut names and names of more than
//!   [`MAX_KEY_BYTES`] are not shared. Keys made by a function are refused, unless they are
//!   [declared public](SharedState::public_breakers). Keys of the ids of callers are refused.

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
    /// Makes a shared state over this store, with no layers yet.
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
    /// `layer`, if the name is empty, longer than 64 bytes, has a control character, or is that of
    /// another layer. Also if the layer's keys are made by a function, because they may have
    /// content that the store must not see. Keys of the ids of callers ([`Key::Session`],
    /// [`Key::per_principal`]) are never shared.
    pub fn breakers(
        self,
        name: impl Into<String>,
        handle: &CircuitBreakerHandle,
    ) -> Result<Self, ConfigError> {
        self.add(name.into(), State::Breakers(handle.clone()), false)
    }

    /// Adds the breakers of a layer with keys made by a function. The keys must hold no secret,
    /// because the store keeps them unchanged. Hashes must be the same in every process, so they
    /// must not have a random seed.
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

    /// Adds the cooldowns of a layer with keys made by a function: see
    /// [`public_breakers`](Self::public_breakers).
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

    /// Mirrors the states until the future is dropped. Then the process continues alone, with its
    /// states. The future keeps its layers' states alive.
    ///
    /// An exchange that fails, or takes longer than a second, is repeated after the time between
    /// two exchanges. The event `tool.store` reports that the store is down (WARN), or up again
    /// (INFO).
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

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
