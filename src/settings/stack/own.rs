//! Hooks and layers of a stack's user.

use std::{borrow::Cow, sync::Arc};

use tower::util::BoxCloneSyncService;
use tower_layer::Layer;
use tower_service::Service;
use tracing::Span;

use super::placed::Placed;
use crate::{
    answer::Answer,
    call::{CallInfo, ToolCall},
    error::ToolError,
    normalize::NormalizeLayer,
    outcome::{Classify, Outcome},
    trace::{End, TraceHooks},
};

/// Where a layer of your own stands in the stack. See
/// [`StackBuilder::with_layer`](super::StackBuilder::with_layer).
///
/// A layer that is innermost needs no place: put it around the tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Place {
    /// Outside of all layers but those for redaction rules, results and codes: calls have the names
    /// that their callers wrote, and nothing is observed yet.
    Outside,
    /// Below spans, metrics, the repeat guard, the check of arguments and policy, above quota: once
    /// for each call that the policy allows, before it costs a unit. For a
    /// [`OnceLayer`](crate::once::OnceLayer) or a [`CacheLayer`](crate::cache::CacheLayer), for
    /// example.
    Allowed,
    /// Below all of these and quota, above deadline and retries: once for each call that the quota
    /// lets pass. For a [check](crate::check) of answers or a
    /// [`PollLayer`](crate::poll::PollLayer), for example.
    Call,
    /// Inside retries and the rate limit, outside health, the concurrency limit and the circuit
    /// breaker: once for each attempt that passes the rate limit, even if the breaker then refuses
    /// it. For tokens, for example.
    Attempt,
}

/// The part of a stack inside a layer of your own.
pub type Below<Res> = BoxCloneSyncService<ToolCall, Res, ToolError>;

type OwnLayer<Res> = dyn Fn(Below<Res>) -> Below<Res> + Send + Sync;
type OwnHooks<Res> = dyn TraceHooks<Res> + Send + Sync;

/// Hooks and layers of your own, for answers of the type `Res`: the second type parameter
/// of a [`StackBuilder`](super::StackBuilder) once it was given any of them.
pub struct Own<Res> {
    pub(super) hooks: Option<Arc<OwnHooks<Res>>>,
    /// From the outside in.
    layers: Vec<(Place, Arc<OwnLayer<Res>>)>,
}

impl<Res> Own<Res> {
    pub(super) fn hooks<C>(&self, classifier: C) -> Hooks<Res, C> {
        Hooks {
            classifier,
            own: self.hooks.clone(),
        }
    }

    /// Puts the layers of a place around a service.
    pub(super) fn put<S>(&self, place: Place, inner: S) -> Placed<Below<Res>, S>
    where
        S: Service<ToolCall, Response = Res, Error = ToolError, Future: Send>
            + Clone
            + Send
            + Sync
            + 'static,
    {
        let mut layers = self.layers.iter().rev().filter(|(at, _)| *at == place);
        let Some((_, innermost)) = layers.next() else {
            return Placed::Bare(inner);
        };
        let below = innermost(Below::new(inner));
        Placed::Own(layers.fold(below, |below, (_, layer)| layer(below)))
    }

    /// Adds a layer inside those that are at this place already.
    pub(super) fn add_layer<L>(&mut self, place: Place, layer: L)
    where
        L: Layer<Below<Res>> + Send + Sync + 'static,
        L::Service: Service<ToolCall, Response = Res, Error: Into<ToolError>, Future: Send>
            + Clone
            + Send
            + Sync
            + 'static,
        Res: 'static,
    {
        let layer = move |below| Below::new(NormalizeLayer::new().layer(layer.layer(below)));
        self.layers.push((place, Arc::new(layer)));
    }
}

impl<Res> Clone for Own<Res> {
    fn clone(&self) -> Self {
        Self {
            hooks: self.hooks.clone(),
            layers: self.layers.clone(),
        }
    }
}

/// Nothing yet.
impl<Res> From<()> for Own<Res> {
    fn from((): ()) -> Self {
        Self {
            hooks: None,
            layers: Vec::new(),
        }
    }
}

crate::text::debug_fields! {
    {Res} |this| Own<Res> { hooks: this.hooks.is_some(), layers: this.layers.len() }
}

/// The hooks of a stack's spans: its classifier, and hooks of its user's or the answers of the
/// usual types.
pub struct Hooks<Res, C> {
    classifier: C,
    own: Option<Arc<OwnHooks<Res>>>,
}

impl<Res, C: Clone> Clone for Hooks<Res, C> {
    fn clone(&self) -> Self {
        Self {
            classifier: self.classifier.clone(),
            own: self.own.clone(),
        }
    }
}

impl<Res: 'static, C: Classify<Res>> TraceHooks<Res> for Hooks<Res, C> {
    fn classify(&self, result: Result<&Res, &ToolError>) -> Outcome {
        self.classifier.classify(result)
    }

    fn output_bytes(&self, response: &Res) -> Option<u64> {
        let own = self.own.as_ref().and_then(|own| own.output_bytes(response));
        own.or_else(|| self.answer(response).map(|answer| answer.bytes()))
    }

    fn answer<'a>(&self, response: &'a Res) -> Option<Answer<'a>> {
        let own = self.own.as_ref().and_then(|own| own.answer(response));
        own.or_else(|| Answer::of_usual(response))
    }

    fn error_type(&self, error: &ToolError) -> Option<Cow<'static, str>> {
        self.own.as_ref()?.error_type(error)
    }

    fn on_start(&self, call: &ToolCall, span: &Span) {
        if let Some(own) = &self.own {
            own.on_start(call, span);
        }
    }

    fn on_end(&self, call: &CallInfo, end: &End<'_, Res>, span: &Span) {
        if let Some(own) = &self.own {
            own.on_end(call, end, span);
        }
    }
}

crate::text::debug_fields! { {Res, C} |this| Hooks<Res, C> { own: this.own.is_some(), .. } }
