use std::sync::Arc;

use tower_layer::Layer;

use super::{
    handle::ConcurrencyLimitHandle,
    limit::{KeyLimit, Settings},
    service::ConcurrencyLimit,
};
use crate::{
    call::ToolCall,
    config::ConfigError,
    event::{Listen, Listener},
    key::Key,
    kit::{
        keys::KeySettings,
        per_tool::{PerTool, ToolNames},
    },
};

/// Layer that bounds how many calls of a key run at a time. See the [module docs](super) for an example.
///
/// The limits live in the layer value: services made from it, or from its clones, share them.
#[derive(Clone, Debug)]
#[must_use]
pub struct ConcurrencyLimitLayer {
    limits: ConcurrencyLimitHandle,
}

impl ConcurrencyLimitLayer {
    /// A layer that lets `max` calls of a tool run at a time, with the default settings for the rest. With 0 every call is
    /// refused.
    pub fn new(max: usize) -> Self {
        ConcurrencyLimitBuilder::new(max).build_checked()
    }

    /// A builder with the default settings.
    pub fn builder(max: usize) -> ConcurrencyLimitBuilder {
        ConcurrencyLimitBuilder::new(max)
    }

    /// Returns the names of tools that have settings of their own, and whether calls have matched them.
    pub fn tool_names(&self) -> ToolNames {
        self.limits.settings.tools.names()
    }

    /// A handle that reads how many calls run and wait.
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
#[derive(Clone)]
#[must_use]
pub struct ConcurrencyLimitBuilder {
    settings: Settings,
    keys: KeySettings,
    listener: Listener,
}

impl ConcurrencyLimitBuilder {
    /// The default settings, with this limit. With 0 every call is refused.
    pub fn new(max: usize) -> Self {
        Self {
            settings: Settings {
                max,
                tools: PerTool::new("concurrency_limit"),
                max_queue: 64,
            },
            keys: KeySettings::default(),
            listener: Listener::default(),
        }
    }

    /// Sets what calls share a limit. Default: those of one tool of one server.
    pub fn with_key(mut self, key: Key) -> Self {
        self.keys.key = key;
        self
    }

    /// Lets `max` calls of this tool run at a time. With 0 every call of it is refused. Default: the limit of all tools. Needs [`Key::Tool`],
    /// the default: with other keys tools share a limit.
    ///
    /// Both names of a [resolved](crate::identity) call are known: its flat name (`pay__charge`), which goes first, and the tool's own
    /// (`charge`), which holds for the tools of this name of all servers.
    pub fn with_tool(mut self, name: impl Into<Box<str>>, max: usize) -> Self {
        self.settings.tools.set(name.into(), max);
        self
    }

    /// Sets how many calls of a key wait for their turn at most; further ones are refused immediately. Default 64. With 0 none waits.
    pub fn with_max_queue(mut self, max: usize) -> Self {
        self.settings.max_queue = max;
        self
    }

    /// Sets how many keys are kept. Default 10,000; at most 16,777,216. A key of which calls run or wait is not forgotten; if all
    /// are in use, calls of unknown keys pass.
    pub fn with_max_keys(mut self, max: usize) -> Self {
        self.keys.max = max;
        self
    }

    /// Makes the keys of these calls at once, and never forgets them. Of each call only what the key is made of matters.
    /// Default: none.
    ///
    /// A key is *known* if it is one of these, or once the service below has answered a call with it, with whatever `Ok`. Keys that are not
    /// known have at most half of the places and are forgotten first, so that names invented by untrusted callers take no
    /// place from real ones.
    pub fn with_known_keys(mut self, calls: impl IntoIterator<Item = ToolCall>) -> Self {
        self.keys.know(calls);
        self
    }

    /// Sets the listener for evictions. Default: none. The events are emitted through `tracing` in any case.
    pub fn with_listener(mut self, listen: impl Listen + 'static) -> Self {
        self.listener = Listener::new(listen);
        self
    }

    /// Builds the layer.
    ///
    /// # Errors
    ///
    /// `max_keys`: if it is zero, beyond its bound, or less than the keys that are known. `key`: if it is not [`Key::Tool`], and a
    /// tool has a limit of its own.
    pub fn build(self) -> Result<ConcurrencyLimitLayer, ConfigError> {
        self.keys.check()?;
        self.keys.check_tools(&self.settings.tools)?;
        Ok(self.build_checked())
    }

    fn build_checked(self) -> ConcurrencyLimitLayer {
        let settings = Arc::new(self.settings);
        let (overflow, make) = (KeyLimit::overflow(&settings), |call: &_| {
            KeyLimit::new(&settings, call)
        });
        let registry = self
            .keys
            .registry("concurrency_limit", self.listener, overflow, make);
        ConcurrencyLimitLayer {
            limits: ConcurrencyLimitHandle { registry, settings },
        }
    }
}

crate::text::debug_fields! {
    {} |this| ConcurrencyLimitBuilder {
        settings: this.settings,
        key: this.keys.key,
        max_keys: this.keys.max,
        ..
    }
}
