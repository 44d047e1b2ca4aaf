//! The settings of a [`Registry`].

use super::registry::{DEFAULT_MAX_KEYS, Evict, Registry, check_max_keys};
use crate::{
    call::{CallInfo, ToolCall},
    config::ConfigError,
    event::Listener,
    key::Key,
};

/// The key under which a layer keeps state, the most keys, and the calls whose keys are known from the start.
#[derive(Clone, Debug)]
pub(crate) struct KeySettings {
    pub(crate) key: Key,
    pub(crate) max: usize,
    known: Vec<CallInfo>,
}

impl Default for KeySettings {
    fn default() -> Self {
        Self {
            key: Key::default(),
            max: DEFAULT_MAX_KEYS,
            known: Vec::new(),
        }
    }
}

impl KeySettings {
    /// Adds the keys of these calls to the known ones.
    pub(crate) fn know(&mut self, calls: impl IntoIterator<Item = ToolCall>) {
        self.known.extend(calls.into_iter().map(|call| call.info()));
    }

    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        check_max_keys(self.max, &self.key, &self.known)
    }

    /// The registry, with the known keys in it. Keys beyond the bound share the value `overflow`.
    pub(crate) fn registry<V: Evict>(
        self,
        listener: Listener,
        overflow: V,
        make: impl Fn() -> V,
    ) -> Registry<V> {
        let registry = Registry::new(self.key, self.max, overflow, listener);
        for call in &self.known {
            registry.declare(call, &make);
        }
        registry
    }
}
