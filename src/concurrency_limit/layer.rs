use std::sync::Arc;

use tower_layer::Layer;

use super::{
    handle::ConcurrencyLimitHandle,
    limit::{ConcurrencyLimit, KeyLimit, Settings},
};
use crate::{
    config::ConfigError,
    key::Keys,
    kit::{
        keyed::KeyedBuilder,
        per_tool::{PerTool, ToolNames},
    },
};

/// Layer that bounds how many calls of a key run at a time. See the [module docs](super) for an
/// example.
///
/// The limits live in the layer value: services made from it, or from its clones, share them.
#[derive(Clone, Debug)]
#[must_use]
pub struct ConcurrencyLimitLayer {
    limits: ConcurrencyLimitHandle,
}

impl ConcurrencyLimitLayer {
    /// Makes a layer that lets `max` calls of a tool run at a time, with the default settings for
    /// the rest. With 0 every call is refused.
    pub fn new(max: usize) -> Self {
        ConcurrencyLimitBuilder::new(max).build_checked()
    }

    /// Returns a builder with the default settings.
    pub fn builder(max: usize) -> ConcurrencyLimitBuilder {
        ConcurrencyLimitBuilder::new(max)
    }

    /// Returns the names of tools that have settings of their own, and whether calls have matched
    /// them.
    pub fn tool_names(&self) -> ToolNames {
        self.limits.settings.tools.names()
    }

    /// Returns a handle that reads how many calls run and wait.
    pub fn handle(&self) -> ConcurrencyLimitHandle {
        self.limits.clone()
    }
}

impl<S> Layer<S> for ConcurrencyLimitLayer {
    type Service = ConcurrencyLimit<S>;

    fn layer(&self, inner: S) -> Self::Service {
        ConcurrencyLimit::new(inner, self.limits.clone())
    }
}

/// The settings of a [`ConcurrencyLimitLayer`].
pub type ConcurrencyLimitBuilder = KeyedBuilder<Settings>;

impl ConcurrencyLimitBuilder {
    /// Returns the default settings, with this limit. With 0 every call is refused.
    pub fn new(max: usize) -> Self {
        let settings = Settings {
            max,
            tools: PerTool::new("concurrency_limit"),
            max_queue: 64,
        };
        Self::of(settings, Keys::default())
    }

    /// Lets `max` calls of this tool run at a time. With 0 every call of it is refused. Default:
    /// the limit of all tools. Needs [`Key::Tool`](crate::Key::Tool), the default: with other keys
    /// tools share a limit.
    ///
    /// Both names of a [resolved](crate::identity) call are known: its flat name (`pay__charge`),
    /// which goes first, and the tool's own (`charge`), which holds for the tools of this name of
    /// all servers.
    pub fn with_tool(mut self, name: impl Into<Box<str>>, max: usize) -> Self {
        self.settings.tools.set(name.into(), max);
        self
    }

    /// Sets how many calls of a key wait for their turn at most; further ones are refused
    /// immediately. Default 64. With 0 none waits. Calls of a [batch](crate::Claim::Queue) do not
    /// count for it. As many of them stand in the queue at most; further ones wait for that.
    pub fn with_max_queue(mut self, max: usize) -> Self {
        self.settings.max_queue = max;
        self
    }

    /// Builds the layer.
    ///
    /// # Errors
    ///
    /// Those of [`Keys`].
    pub fn build(self) -> Result<ConcurrencyLimitLayer, ConfigError> {
        self.keys.check()?;
        self.keys.check_tools(&self.settings.tools)?;
        Ok(self.build_checked())
    }

    fn build_checked(self) -> ConcurrencyLimitLayer {
        let (keys, settings) = (self.keys, Arc::new(self.settings));
        let make = |call: &_| KeyLimit::new(&settings, call);
        let overflow = KeyLimit::overflow(&settings);
        let registry = keys.registry("concurrency_limit", self.listener, overflow, make);
        ConcurrencyLimitLayer {
            limits: ConcurrencyLimitHandle { registry, settings },
        }
    }
}
