use std::{
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use tower_layer::Layer;

use super::{
    handle::CacheHandle,
    service::{Cache, Key},
};
use crate::{
    call::CallInfo,
    config::ConfigError,
    error::ToolError,
    event::{InertReason, Listener},
    kit::{
        fingerprint::Seed,
        flights::Flights,
        inert::Inert,
        per_tool::{PerTool, ToolNames},
        principal::Principal,
        reuse::{AnyAnswer, Store},
        store::StoreBuilder,
    },
    outcome::{ByError, Outcome},
};

/// How many answers are kept by default.
const MAX_ANSWERS: usize = 1_000;

/// Layer that answers repeated calls of named tools from memory. See the [module docs](super) for
/// an example.
///
/// The answers live in the layer value: services made from it, or from its clones, share them.
#[derive(Clone)]
#[must_use]
pub struct CacheLayer<C = ByError> {
    pub(super) rules: Arc<Rules>,
    pub(super) classifier: C,
}

/// Shared by all of a layer value.
pub(super) struct Rules {
    pub(super) flights: Arc<Flights<Key, AnyAnswer>>,
    pub(super) hits: AtomicU64,
    pub(super) shared: AtomicU64,
    pub(super) misses: AtomicU64,
    pub(super) inert: Inert,
    /// The cached tools.
    pub(super) tools: PerTool<Tool>,
    pub(super) store: Store,
    pub(super) seed: Seed,
}

impl Rules {
    /// Counts a call of a cached tool that is not cached.
    pub(super) fn pass(&self, call: &CallInfo, reason: InertReason, help: &'static str) {
        self.inert.pass(&Listener::default(), call, reason, help);
    }
}

/// A tool that only reads.
#[derive(Clone, Debug)]
pub(super) struct Tool {
    pub(super) name: Arc<str>,
    /// How long its answers are kept.
    pub(super) ttl: Duration,
}

impl CacheLayer {
    /// Makes a layer that keeps answers of these tools for `ttl`, with the default settings; see
    /// [`builder`](Self::builder).
    ///
    /// # Errors
    ///
    /// If `ttl` is zero, or longer than a year.
    pub fn new<N: Into<Box<str>>>(
        ttl: Duration,
        names: impl IntoIterator<Item = N>,
    ) -> Result<Self, ConfigError> {
        Self::builder(ttl, names).build()
    }

    /// Returns a builder of a layer that keeps answers of these tools for `ttl`.
    ///
    /// A tool is named by its flat name (`docs__search`), if calls of it have a
    /// [server](crate::ToolCall::server), else by its own name. So tools of different servers are
    /// never confused. By naming a tool you declare that it only reads.
    pub fn builder<N: Into<Box<str>>>(
        ttl: Duration,
        names: impl IntoIterator<Item = N>,
    ) -> CacheBuilder {
        let builder = CacheBuilder {
            rules: CacheRules {
                tools: PerTool::new("cache"),
                ttl,
                classifier: ByError,
            },
            store: Store::new(Principal::Ids { narrow: true }, MAX_ANSWERS),
        };
        let names = names.into_iter();
        names.fold(builder, |builder, name| builder.with_tool(name, ttl))
    }
}

impl<C> CacheLayer<C> {
    /// Returns the names of cached tools, and whether calls have matched them.
    pub fn tool_names(&self) -> ToolNames {
        self.rules.tools.names()
    }

    /// Counts hits and misses, and forgets answers.
    pub fn handle(&self) -> CacheHandle {
        CacheHandle(Arc::clone(&self.rules))
    }
}

impl<S, C: Clone> Layer<S> for CacheLayer<C> {
    type Service = Cache<S, C>;

    fn layer(&self, inner: S) -> Self::Service {
        Cache::new(inner, self.clone())
    }
}

crate::text::debug_fields! { {C} |this| CacheLayer<C> { counts: this.handle().counts(), .. } }

/// The settings of a [`CacheLayer`].
pub type CacheBuilder<C = ByError> = StoreBuilder<CacheRules<C>>;

/// The tools of a [`CacheLayer`], and its classifier of successes. See [`CacheBuilder`].
#[derive(Clone)]
pub struct CacheRules<C = ByError> {
    tools: PerTool<Tool>,
    /// The time of the tools that were named first.
    ttl: Duration,
    classifier: C,
}

impl<C> CacheBuilder<C> {
    /// Adds a cached tool with its own time, or changes the time of a tool that was named before.
    pub fn with_tool(mut self, name: impl Into<Box<str>>, ttl: Duration) -> Self {
        let name = name.into();
        let tool = Tool {
            name: (*name).into(),
            ttl,
        };
        self.rules.tools.set(name, tool);
        self
    }

    /// Sets the classifier of answers. Only [successes](Outcome::is_success) are kept, and no
    /// answer that the tool service has reported as the tool's own error (MCP's `isError`).
    /// Default: [`ByError`], for which every answer is a success. It is cloned for each call: put
    /// large parts in an [`Arc`].
    pub fn with_classifier<D>(self, classifier: D) -> CacheBuilder<D> {
        CacheBuilder {
            rules: CacheRules {
                tools: self.rules.tools,
                ttl: self.rules.ttl,
                classifier,
            },
            store: self.store,
        }
    }

    /// Sets a closure as the classifier; its argument types are inferred.
    pub fn classify_fn<Res, F>(self, classify: F) -> CacheBuilder<F>
    where
        F: Fn(Result<&Res, &ToolError>) -> Outcome,
    {
        self.with_classifier(classify)
    }

    /// Builds the layer.
    ///
    /// # Errors
    ///
    /// If a setting is zero, or beyond its bound. The error names it.
    pub fn build(mut self) -> Result<CacheLayer<C>, ConfigError> {
        let own = self.rules.tools.values().map(|tool| tool.ttl);
        let times = own.chain([self.rules.ttl]);
        self.store.check(times, "nothing would be kept")?;
        Ok(CacheLayer {
            rules: Arc::new(Rules {
                flights: self.store.flights(true),
                hits: AtomicU64::default(),
                shared: AtomicU64::default(),
                misses: AtomicU64::default(),
                inert: Inert::new("cache"),
                tools: self.rules.tools,
                store: self.store,
                seed: Seed::default(),
            }),
            classifier: self.rules.classifier,
        })
    }
}

crate::text::debug_fields! { {C} |_| CacheRules<C> { tools, .. } }
