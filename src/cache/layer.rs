use std::{fmt, sync::Arc, time::Duration};

use tower_layer::Layer;

use super::{
    handle::{CacheHandle, Counts},
    service::{Cache, Kept, Key},
};
use crate::{
    call::{CallInfo, ToolCall},
    config::ConfigError,
    error::ToolError,
    event::{InertReason, Listener},
    kit::{
        fingerprint::Seed,
        flights::Flights,
        per_tool::{PerTool, ToolNames},
        principal::Principal,
        reuse::{AnyAnswer, Store},
    },
    outcome::{ByError, Classify, Outcome},
};

/// How many answers are kept by default.
const MAX_ANSWERS: usize = 1_000;

/// Layer that answers calls of named tools with what the same call has got before. See the [module docs](super) for an example.
///
/// The answers live in the layer value: services made from it, or from its clones, share them.
#[derive(Clone)]
#[must_use]
pub struct CacheLayer<C = ByError> {
    rules: Arc<Rules>,
    classifier: C,
}

/// Shared by all of a layer value.
pub(super) struct Rules {
    pub(super) flights: Arc<Flights<Key, AnyAnswer>>,
    pub(super) counts: Arc<Counts>,
    /// The tools whose answers are kept.
    pub(super) tools: PerTool<Tool>,
    pub(super) store: Store,
    pub(super) seed: Seed,
}

impl Rules {
    /// Counts a call whose answer is not kept although its tool is named.
    pub(super) fn pass(&self, call: &CallInfo, reason: InertReason, help: &'static str) {
        let inert = &self.counts.inert;
        inert.pass(&Listener::default(), call, reason, help);
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
    /// A layer that keeps answers of these tools for `ttl`, with the default settings; see [`builder`](Self::builder).
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

    /// A builder of a layer that keeps answers of these tools for `ttl`.
    ///
    /// A tool is named by its flat name (`docs__search`), if calls of it have a [server](ToolCall::server), else by its own: no server's tool is
    /// taken for that of another one. To name it is to say that it only reads.
    pub fn builder<N: Into<Box<str>>>(
        ttl: Duration,
        names: impl IntoIterator<Item = N>,
    ) -> CacheBuilder {
        let builder = CacheBuilder {
            tools: PerTool::new("cache"),
            shortest: ttl,
            longest: ttl,
            store: Store::new(Principal::Ids { narrow: true }, MAX_ANSWERS),
            classifier: ByError,
        };
        let names = names.into_iter();
        names.fold(builder, |builder, name| builder.with_tool(name, ttl))
    }
}

impl<C> CacheLayer<C> {
    /// Returns the names of tools whose answers are kept, and whether calls have matched them.
    pub fn tool_names(&self) -> ToolNames {
        self.rules.tools.names()
    }

    /// Counts hits and misses, and forgets answers.
    pub fn handle(&self) -> CacheHandle {
        CacheHandle::new(
            Arc::clone(&self.rules.flights),
            Arc::clone(&self.rules.counts),
        )
    }
}

impl<S, C: Clone> Layer<S> for CacheLayer<C> {
    type Service = Cache<S, C>;

    fn layer(&self, inner: S) -> Self::Service {
        let gate = Kept {
            rules: Arc::clone(&self.rules),
            classifier: self.classifier.clone(),
        };
        Cache::new(inner, gate)
    }
}

impl<C> fmt::Debug for CacheLayer<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CacheLayer")
            .field("counts", &self.handle().counts())
            .finish_non_exhaustive()
    }
}

/// The settings of a [`CacheLayer`].
#[derive(Clone)]
#[must_use]
pub struct CacheBuilder<C = ByError> {
    tools: PerTool<Tool>,
    shortest: Duration,
    longest: Duration,
    store: Store,
    classifier: C,
}

impl<C> CacheBuilder<C> {
    /// Adds a tool whose answers are kept, with a time of its own, or changes the time of one that was named.
    pub fn with_tool(mut self, name: impl Into<Box<str>>, ttl: Duration) -> Self {
        let name = name.into();
        let tool = Tool {
            name: (*name).into(),
            ttl,
        };
        self.tools.set(name, tool);
        self.shortest = self.shortest.min(ttl);
        self.longest = self.longest.max(ttl);
        self
    }

    /// Sets how many answers are kept at most, and a principal has an eighth of that. Default 1,000; at most 16,777,216.
    ///
    /// Beyond that the eighth that is stale first is forgotten, of all or of the principal.
    pub fn with_max_keys(mut self, max: usize) -> Self {
        self.store.max_keys = max;
        self
    }

    /// Sets how many bytes an answer that is kept may have. Default 65,536; at most a principal's share of
    /// [`with_max_bytes`](Self::with_max_bytes). Larger ones are asked for each time.
    pub fn with_max_answer(mut self, bytes: u64) -> Self {
        self.store.size.max = bytes;
        self
    }

    /// Sets how many bytes the answers have together at most. Default 67,108,864 (64 MiB). A principal has an
    /// eighth, and all principals that were [not verified](ToolCall::with_unverified_ids) have half together.
    ///
    /// Beyond that those go that are stale first, of all or of the principal.
    pub fn with_max_bytes(mut self, bytes: u64) -> Self {
        self.store.max_bytes = bytes;
        self
    }

    /// Sets how many bytes an answer of this type has. Default: the bytes of its JSON, if it is of one of the
    /// [usual types](crate::Answer::of_usual) or a result of MCP. Any other counts as many as
    /// [`with_max_answer`](Self::with_max_answer) allows.
    pub fn with_size<Res: 'static>(
        mut self,
        size: impl Fn(&Res) -> u64 + Send + Sync + 'static,
    ) -> Self {
        self.store.size.measure(size);
        self
    }

    /// Sets who has the same answers: those for whom the function picks out the same text. With `None`, or an empty text, nothing is kept
    /// of a call. Default: the subject, else the [agent id](ToolCall::agent_id), with the [session id](ToolCall::session_id), if there is one.
    ///
    /// It has to be something that callers cannot choose, or choose for themselves only: who makes another's calls gets his answers.
    ///
    /// A closure that is bound to a variable first goes through [`principal_fn`](crate::key::principal_fn).
    pub fn with_principal(
        mut self,
        principal: impl Fn(&ToolCall) -> Option<&str> + Send + Sync + 'static,
    ) -> Self {
        self.store.principal = Principal::By(Arc::new(principal));
        self
    }

    /// All have the same answers: for tools whose answers are the same for everybody.
    pub fn shared(mut self) -> Self {
        self.store.principal = Principal::Shared;
        self
    }

    /// Sets the classifier of answers: only those that it takes for [successes](Outcome::is_success) are kept, and none of which the leaf
    /// has said that it is an error in the tool's own words (MCP's `isError`). Default: [`ByError`], for which every answer is one. It is cloned for each
    /// call: put large parts in an [`Arc`].
    pub fn with_classifier<D>(self, classifier: D) -> CacheBuilder<D> {
        CacheBuilder {
            tools: self.tools,
            shortest: self.shortest,
            longest: self.longest,
            store: self.store,
            classifier,
        }
    }

    /// Sets a closure as the classifier; its argument types are inferred.
    pub fn classify_fn<Res, F>(self, classify: F) -> CacheBuilder<F>
    where
        F: Fn(Result<&Res, &ToolError>) -> Outcome,
        F: Classify<Res>,
    {
        self.with_classifier(classify)
    }

    /// Builds the layer.
    ///
    /// # Errors
    ///
    /// If a setting is zero, or beyond its bound. The error names it.
    pub fn build(self) -> Result<CacheLayer<C>, ConfigError> {
        let times = [self.shortest, self.longest];
        self.store.check(times, "nothing would be kept")?;
        Ok(CacheLayer {
            rules: Arc::new(Rules {
                flights: self.store.flights(true),
                counts: Arc::default(),
                tools: self.tools,
                store: self.store,
                seed: Seed::default(),
            }),
            classifier: self.classifier,
        })
    }
}

crate::text::debug_fields! {
    {C} |this| CacheBuilder<C> {
        tools: this.tools,
        max_keys: this.store.max_keys,
        max_answer: this.store.size.max,
        max_bytes: this.store.max_bytes,
        principal: this.store.principal,
        ..
    }
}
