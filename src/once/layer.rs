use std::{sync::Arc, time::Duration};

use tower_layer::Layer;

use super::{
    key::Key,
    service::{Kept, Once},
};
use crate::{
    config::{ConfigError, period},
    key::DEFAULT_MAX_KEYS,
    kit::{
        fingerprint::Seed, flights::Flights, inert::Inert, principal::Principal, reuse::Store,
        store::StoreBuilder,
    },
};

/// Layer that runs a repeated call once. See the [module docs](super) for an example.
///
/// The keys live in the layer value: services made from it, or from its clones, share them.
#[derive(Clone)]
#[must_use]
pub struct OnceLayer {
    pub(super) rules: Arc<Rules>,
}

/// Shared by all of a layer value.
pub(super) struct Rules {
    /// Calls with keys of their callers.
    pub(super) keyed: Arc<Flights<Key, Kept>>,
    /// Calls without a key, by their arguments. When they are full, the oldest are evicted.
    pub(super) repeats: Arc<Flights<Key, Kept>>,
    pub(super) store: Store,
    pub(super) seed: Seed,
    pub(super) ttl: Duration,
    pub(super) within: Duration,
    pub(super) inert: Inert,
}

impl OnceLayer {
    /// Makes a layer with the default settings: callers' keys count for 24 hours, equal arguments
    /// for ten minutes.
    pub fn new() -> Self {
        OnceBuilder::new().build_checked()
    }

    /// Returns a builder with the default settings.
    pub fn builder() -> OnceBuilder {
        OnceBuilder::new()
    }

    /// Returns the number of keys, those of running calls included, and those that have ended,
    /// until others come.
    pub fn len(&self) -> usize {
        self.rules.keyed.len() + self.rules.repeats.len()
    }

    /// Returns how many calls had no principal, and were compared with each other. The first one is
    /// the event `tool.inert`.
    pub fn inert(&self) -> u64 {
        self.rules.inert.calls()
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Default for OnceLayer {
    fn default() -> Self {
        Self::new()
    }
}

impl<S> Layer<S> for OnceLayer {
    type Service = Once<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Once::new(inner, self.clone())
    }
}

crate::text::debug_fields! {
    {} |this| OnceLayer { ttl: this.rules.ttl, repeat_within: this.rules.within, len: this.len(), .. }
}

/// The settings of an [`OnceLayer`].
pub type OnceBuilder = StoreBuilder<OnceRules>;

/// The times for which a [`OnceLayer`] keeps calls that have run. See [`OnceBuilder`].
#[derive(Clone, Debug)]
pub struct OnceRules {
    ttl: Duration,
    repeat_within: Duration,
}

impl Default for OnceBuilder {
    fn default() -> Self {
        Self::new()
    }
}

impl OnceBuilder {
    /// Makes a builder with the default settings; see [`OnceLayer::new`].
    pub fn new() -> Self {
        Self {
            rules: OnceRules {
                ttl: Duration::from_secs(24 * 3600),
                repeat_within: Duration::from_secs(600),
            },
            store: Store::new(Principal::Ids { narrow: false }, DEFAULT_MAX_KEYS),
        }
    }

    /// Sets how long the answer to a call with its caller's [key](crate::ToolCall::with_once_key)
    /// is kept after the call has ended. Default 24 hours; at most 365 days.
    pub fn with_ttl(mut self, ttl: Duration) -> Self {
        self.rules.ttl = ttl;
        self
    }

    /// Sets for how long after its end a call without a key of its own is not run again with the
    /// same arguments. Default ten minutes; at most 365 days.
    ///
    /// Zero turns that off: only calls with a [key](crate::ToolCall::with_once_key) are then looked
    /// at.
    pub fn with_repeat_within(mut self, within: Duration) -> Self {
        self.rules.repeat_within = within;
        self
    }

    /// Builds the layer.
    ///
    /// # Errors
    ///
    /// If a setting is zero, or beyond its bound. The error names it.
    pub fn build(mut self) -> Result<OnceLayer, ConfigError> {
        self.store
            .check([self.rules.ttl], "every call would run again")?;
        period("repeat_within", self.rules.repeat_within)?;
        Ok(self.build_checked())
    }

    fn build_checked(self) -> OnceLayer {
        OnceLayer {
            rules: Arc::new(Rules {
                keyed: self.store.flights(false),
                repeats: self.store.flights(true),
                store: self.store,
                seed: Seed::default(),
                ttl: self.rules.ttl,
                within: self.rules.repeat_within,
                inert: Inert::new("once"),
            }),
        }
    }
}
