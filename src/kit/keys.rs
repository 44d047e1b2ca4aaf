//! The registry of a layer with [`Keys`].

use super::{
    per_tool::PerTool,
    registry::{Evict, Registry},
};
use crate::{
    call::ToolCall,
    config::{ConfigError, refuse_if},
    event::Listener,
    key::{Key, Keys},
};

impl Keys {
    /// Limits of single tools belong to keys of single tools.
    pub(crate) fn check_tools<T>(&self, tools: &PerTool<T>) -> Result<(), ConfigError> {
        let is_shared = !tools.is_empty() && !matches!(self.key(), Key::Tool);
        let reason = "tools share the limits of this key, and can have none of their own";
        refuse_if(is_shared, "key", reason)
    }

    /// The registry, with the known keys in it. Keys beyond the bound share the value `overflow`.
    /// `make` makes the value of a call's key.
    pub(crate) fn registry<V: Evict>(
        &self,
        layer: &'static str,
        listener: Listener,
        overflow: V,
        make: impl Fn(&ToolCall) -> V,
    ) -> Registry<V> {
        let key = self.key().clone();
        let registry = Registry::new(key, self.max(), overflow, listener).of_layer(layer);
        for call in self.declared() {
            registry.declare(&call.info(), || make(&call));
        }
        registry
    }
}
