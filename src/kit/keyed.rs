//! Parts that layers with state by key share: their builder, and the registry of their keys.

use std::fmt::Debug;

use super::{
    per_tool::PerTool,
    registry::{Evict, Registry},
};
use crate::{
    call::ToolCall,
    config::{ConfigError, refuse_if},
    error::ToolError,
    event::{Listen, Listener},
    key::{Key, Keys},
    outcome::{ByError, Outcome},
};

/// The settings of a layer that keeps state by key.
#[derive(Clone)]
#[must_use]
pub struct KeyedBuilder<R, C = ByError> {
    pub(crate) settings: R,
    pub(crate) keys: Keys,
    pub(crate) listener: Listener,
    pub(crate) classifier: C,
}

/// The own settings of a layer that classifies results.
pub trait Classified: Default {
    /// Returns the keys of a layer for which none are set.
    fn keys() -> Keys {
        Keys::default()
    }
}

impl<R: Classified> KeyedBuilder<R> {
    /// Returns the default settings.
    pub fn new() -> Self {
        Self::of(R::default(), R::keys())
    }
}

impl<R: Classified> Default for KeyedBuilder<R> {
    fn default() -> Self {
        Self::new()
    }
}

impl<R> KeyedBuilder<R> {
    pub(crate) fn of(settings: R, keys: Keys) -> Self {
        let (listener, classifier) = (Listener::default(), ByError);
        Self {
            settings,
            keys,
            listener,
            classifier,
        }
    }
}

impl<R, C> KeyedBuilder<R, C> {
    /// Sets which calls share a state, how many keys are kept, and which are known. See [`Keys`].
    /// Default: one for each tool of each server, and in a [repeat guard](crate::repeat_guard) one
    /// for each [session](crate::Key::Session), else for each agent; 10,000 are kept.
    pub fn with_keys(mut self, keys: impl Into<Keys>) -> Self {
        self.keys.set(keys);
        self
    }

    /// Sets the listener for the layer's events, and for evictions of keys. Default: none. The
    /// events are emitted through `tracing` in any case.
    pub fn with_listener(mut self, listen: impl Listen + 'static) -> Self {
        self.listener = Listener::new(listen);
        self
    }
}

impl<R: Classified, C> KeyedBuilder<R, C> {
    /// Sets the classifier of results. Default: [`ByError`]. It is cloned for each call: put large
    /// parts in an [`Arc`](std::sync::Arc).
    pub fn with_classifier<D>(self, classifier: D) -> KeyedBuilder<R, D> {
        KeyedBuilder {
            settings: self.settings,
            keys: self.keys,
            listener: self.listener,
            classifier,
        }
    }

    /// Sets a closure as the classifier; its argument types are inferred.
    pub fn classify_fn<Res, F>(self, classify: F) -> KeyedBuilder<R, F>
    where
        F: Fn(Result<&Res, &ToolError>) -> Outcome,
    {
        self.with_classifier(classify)
    }
}

crate::text::debug_fields! { {R: Debug, C} |_| KeyedBuilder<R, C> { settings, keys, .. } }

impl Keys {
    /// Limits of single tools belong to keys of single tools.
    pub(crate) fn check_tools<T>(&self, tools: &PerTool<T>) -> Result<(), ConfigError> {
        let is_shared = !tools.is_empty() && !matches!(self.key(), Key::Tool);
        let reason = "tools share the limits of this key, and can have none of their own";
        refuse_if(is_shared, "key", reason)
    }

    /// Returns the registry, with the known keys in it. Keys beyond the bound share the value
    /// `overflow`. `make` makes the value of a call's key.
    pub(crate) fn registry<V: Evict>(
        &self,
        layer: &'static str,
        listener: Listener,
        overflow: V,
        make: impl Fn(&ToolCall) -> V,
    ) -> Registry<V> {
        let key = self.key().clone();
        let registry = Registry::new(layer, key, self.max(), overflow, listener);
        for call in self.declared() {
            registry.declare(&call.info(), || make(&call));
        }
        registry
    }
}
