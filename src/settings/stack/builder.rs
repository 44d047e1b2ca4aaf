use std::{
    any::{Any, type_name},
    sync::Arc,
    time::Duration,
};

use tower_layer::Layer;
use tower_service::Service;

use super::{
    layer::StackLayer,
    own::{Below, Own, Place},
    parts::Parts,
};
use crate::tool_metrics::Metrics;
#[cfg(feature = "validate")]
use crate::validate::Schemas;
use crate::{
    cache::CacheLayer,
    call::{ReplaySafety, ToolCall},
    concurrency_limit::ConcurrencyLimitLayer,
    config::ConfigError,
    error::ToolError,
    event::Listen,
    identity::{IdentityLayer, Resolve, ToolNames},
    normalize::NormalizeLayer,
    outcome::ByError,
    policy::{Approval, ApprovalDecision, PolicyLayer},
    quota::QuotaLayer,
    repeat_guard::RepeatGuardLayer,
    retry::RetryLayer,
    settings::Settings,
    switch::Switch,
    timeout::TimeoutLayer,
    trace::TraceHooks,
};

/// The documented stack, to be completed with what no file can say; made by [`Settings::stack`].
///
/// `O` is `()`, or [`Own`] once there are hooks, checks or layers of your own: the stack is then
/// for tools with answers of their type.
#[derive(Clone)]
#[must_use]
pub struct StackBuilder<C = ByError, O = ()> {
    parts: Parts,
    classifier: C,
    own: O,
}

impl StackBuilder {
    pub(in crate::settings) fn new(settings: Settings) -> Self {
        Self {
            parts: Parts::new(settings),
            classifier: ByError,
            own: (),
        }
    }
}

impl<C, O> StackBuilder<C, O> {
    /// Sets what results mean, for every layer that asks. Default: [`ByError`]. For MCP tools:
    /// `McpClassifier`.
    pub fn with_classifier<D>(self, classifier: D) -> StackBuilder<D, O> {
        StackBuilder {
            parts: self.parts,
            classifier,
            own: self.own,
        }
    }

    /// Sets the hooks of the spans of calls and attempts, for attributes of your own for example.
    /// Default: none; answers of the usual types are known. What results mean says the
    /// [classifier](Self::with_classifier), not the hooks.
    ///
    /// For MCP tools: `McpHooks`; for Langfuse: `LangfuseHooks`, around these if need be.
    pub fn with_hooks<Res>(
        self,
        hooks: impl TraceHooks<Res> + Send + Sync + 'static,
    ) -> StackBuilder<C, Own<Res>>
    where
        O: Into<Own<Res>>,
    {
        self.edit(|own| own.hooks = Some(Arc::new(hooks)))
    }

    /// Puts a layer of your own at a place in the stack, below those that are there already.
    /// Default: none.
    ///
    /// The part of the stack below it is a [`Below`], whatever is in it, so nearly every layer
    /// fits, those of tower too; errors that are not ours are [converted](crate::normalize). Calls
    /// allocate for each place that has layers.
    ///
    /// A layer of the settings that may be off is a [`Switch`]. At [`Place::Allowed`] a kept answer
    /// costs no unit of a quota:
    ///
    /// ```
    /// use tower_toolcall::{settings::{Place, Settings}, switch::Switch};
    ///
    /// # fn main() -> Result<(), tower_toolcall::ConfigError> {
    /// let settings = Settings::default().with_env_from([("TOOLCALL_ONCE_ENABLED", "yes")])?;
    /// let once = Switch::from(settings.once_layer()?);
    /// let stack = settings.stack().with_layer::<String, _>(Place::Allowed, once).build()?;
    /// # let _ = stack; Ok(()) }
    /// ```
    ///
    /// A [`CheckLayer`](crate::check::CheckLayer) and a [`FitLayer`](crate::fit::FitLayer) stand at
    /// [`Place::Call`]; put the fit there first, so that the check sees whole answers.
    ///
    /// The layer is applied anew for each service that is made of the stack, and what it shares is
    /// its own affair: for a limit over all routes of an axum router, for example, tower's
    /// `GlobalConcurrencyLimitLayer`.
    ///
    /// Names of tools in a layer of ours are checked as those of the settings, against the
    /// [table](Self::with_identity). These are [`PolicyLayer`], [`TimeoutLayer`], [`QuotaLayer`],
    /// [`ConcurrencyLimitLayer`], and with the default classifier [`CacheLayer`],
    /// [`RepeatGuardLayer`] and [`RetryLayer`]; also a [`Switch`] of such a cache. Those of any
    /// other layer are not.
    pub fn with_layer<Res, L>(self, place: Place, layer: L) -> StackBuilder<C, Own<Res>>
    where
        O: Into<Own<Res>>,
        L: Layer<Below<Res>> + Send + Sync + 'static,
        L::Service: Service<ToolCall, Response = Res, Error: Into<ToolError>, Future: Send>
            + Clone
            + Send
            + Sync
            + 'static,
        Res: 'static,
    {
        let names = names_of(&layer);
        let mut builder = self.edit(|own| own.add_layer(place, layer));
        builder.parts.names = builder.parts.names.and(names);
        builder
    }

    fn edit<Res>(self, change: impl FnOnce(&mut Own<Res>)) -> StackBuilder<C, Own<Res>>
    where
        O: Into<Own<Res>>,
    {
        let mut own = self.own.into();
        change(&mut own);
        StackBuilder {
            parts: self.parts,
            classifier: self.classifier,
            own,
        }
    }

    /// Decides whether a call may run twice of which neither it nor `tools.*.replay_safe` says so.
    /// Default: [`ReplaySafety::Unknown`].
    pub fn with_replay_safety(
        mut self,
        decide: impl Fn(&ToolCall) -> ReplaySafety + Send + Sync + 'static,
    ) -> Self {
        self.parts.replay_safety = Some(Arc::new(decide));
        self
    }

    /// Sets a function that says what timeout a call's tool has, as
    /// [`TimeoutLayer::with_timeout_fn`](crate::timeout::TimeoutLayer::with_timeout_fn); `None`
    /// leaves it to `tools.*.timeout` and `timeout.default`. The [checks](super::super#errors) know
    /// nothing of it, nor does the time for which a probe keeps its place.
    pub fn with_timeout_fn(
        mut self,
        timeout: impl Fn(&ToolCall) -> Option<Duration> + Send + Sync + 'static,
    ) -> Self {
        self.parts.timeout = Some(Arc::new(timeout));
        self
    }

    /// Resolves the names of calls by this table of tools, a router's for example, below the layers
    /// of your own at [`Place::Outside`] and outside of all that observes or acts: see
    /// [`identity`](crate::identity). Names in the settings that match no tool of it are then an
    /// error of [`build`](Self::build). Default: keys are of the callers' names.
    pub fn with_identity(mut self, tools: impl Resolve) -> Self {
        self.parts.identity = Some(IdentityLayer::new(tools));
        self
    }

    /// Checks the arguments of calls against these schemas, as `validate` in the settings says,
    /// below spans, metrics and the repeat guard and above policy. Layers of your own, but those at
    /// [`Place::Outside`], get arguments that fit. Default: arguments are not checked.
    #[cfg(feature = "validate")]
    pub fn with_schemas(mut self, schemas: &Schemas) -> Self {
        self.parts.schemas = Some(schemas.clone());
        self
    }

    /// Sets the service that is asked for the approvals that `[policy]` wants: see
    /// [`PolicyLayer::with_approver`]. Default: none, and `policy.ask` is refused. A policy that no
    /// file can say stands at [`Place::Allowed`]: `with_layer(Place::Allowed, policy)`, before
    /// layers that keep answers, so that a kept answer is for those who may have it.
    pub fn with_approver<A>(mut self, approver: A) -> Self
    where
        A: Service<Approval, Response = ApprovalDecision> + Clone + Send + Sync + 'static,
        A::Error: Into<ToolError>,
        A::Future: Send,
    {
        let gives = move |policy: PolicyLayer| policy.with_approver(approver.clone());
        self.parts.approver = Some(Arc::new(gives));
        self
    }

    /// Gives errors other codes, those of another system for example, for callers, spans, events
    /// and metrics; `None` keeps the error's own. The events of single attempts and of a call that
    /// its caller drops keep ours. Default: ours.
    pub fn with_codes(
        mut self,
        codes: impl Fn(&ToolError) -> Option<&'static str> + Send + Sync + 'static,
    ) -> Self {
        self.parts.codes = Some(NormalizeLayer::new().with_codes(codes));
        self
    }

    /// Adds a listener for the events of all layers. Default: none.
    pub fn with_listener(mut self, listen: impl Listen + 'static) -> Self {
        Arc::make_mut(&mut self.parts.listeners).add(listen);
        self
    }

    /// Counts and times calls, and records the events of the inner layers. Default: no metrics.
    pub fn with_metrics(mut self, metrics: &Metrics) -> Self {
        self.parts.metrics = Some(metrics.clone());
        self
    }
}

/// The names of tools in a layer, if it is one of ours.
fn names_of(layer: &dyn Any) -> ToolNames {
    fn of<L: 'static>(layer: &dyn Any, names: fn(&L) -> ToolNames) -> Option<ToolNames> {
        layer.downcast_ref().map(names)
    }
    of(layer, PolicyLayer::tool_names)
        .or_else(|| of(layer, TimeoutLayer::tool_names))
        .or_else(|| of(layer, QuotaLayer::tool_names))
        .or_else(|| of(layer, ConcurrencyLimitLayer::tool_names))
        .or_else(|| of(layer, CacheLayer::<ByError>::tool_names))
        .or_else(|| {
            of(layer, |cache: &Switch<CacheLayer>| {
                cache.get().map(CacheLayer::tool_names).unwrap_or_default()
            })
        })
        .or_else(|| of(layer, RepeatGuardLayer::<ByError>::tool_names))
        .or_else(|| of(layer, RetryLayer::<ByError>::tool_names))
        .unwrap_or_default()
}

impl<C: Clone, O> StackBuilder<C, O> {
    /// Returns the layer.
    ///
    /// # Errors
    ///
    /// Those of [`Settings::check`], and a name or pattern that matches no tool of the
    /// [table](Self::with_identity).
    pub fn build(self) -> Result<StackLayer<C, O>, ConfigError> {
        self.parts.build(self.classifier, self.own)
    }
}

crate::text::debug_fields! {
    {C, O} |this| StackBuilder<C, O> {
        settings: this.parts.settings,
        classifier: format_args!("{}", type_name::<C>()),
        ..
    }
}
