//! The settings of a [`Registry`].

use super::{
    per_tool::PerTool,
    registry::{DEFAULT_MAX_KEYS, Evict, Registry, check_max_keys},
};
use crate::{
    call::{CallInfo, ToolCall},
    config::{ConfigError, refuse_if},
    event::Listener,
    key::Key,
};

/// The key under which a layer keeps state, the most keys, and the calls whose keys are known from the start.
#[derive(Clone, Debug)]
pub(crate) struct KeySettings {
    pub(crate) key: Key,
    pub(crate) max: usize,
    known: Vec<ToolCall>,
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
        self.known.extend(calls);
    }

    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let known: Vec<CallInfo> = self.known.iter().map(ToolCall::info).collect();
        check_max_keys(self.max, &self.key, &known)
    }

    /// Limits of single tools belong to keys of single tools.
    pub(crate) fn check_tools<T>(&self, tools: &PerTool<T>) -> Result<(), ConfigError> {
        let is_shared = !tools.is_empty() && !matches!(self.key, Key::Tool);
        let reason = "tools share the limits of this key, and can have none of their own";
        refuse_if(is_shared, "key", reason)
    }

    /// The registry, with the known keys in it. Keys beyond the bound share the value `overflow`. `make` makes the value of a call's key.
    pub(crate) fn registry<V: Evict>(
        self,
        layer: &'static str,
        listener: Listener,
        overflow: V,
        make: impl Fn(&ToolCall) -> V,
    ) -> Registry<V> {
        let registry = Registry::new(self.key, self.max, overflow, listener).of_layer(layer);
        for call in &self.known {
            registry.declare(&call.info(), || make(call));
        }
        registry
    }
}
