use tower_layer::Layer;

use super::service::Trace;
use crate::{
    event::{Listen, Listener},
    outcome::ByError,
};

/// Layer that makes a span for each call. See the [module docs](super) for an example.
#[derive(Clone, Debug)]
#[must_use]
pub struct TraceLayer<C = ByError> {
    settings: Settings<C>,
}

#[derive(Clone, Debug)]
pub(super) struct Settings<C> {
    pub(super) classifier: C,
    pub(super) arguments: bool,
    pub(super) listener: Listener,
}

impl Default for TraceLayer {
    fn default() -> Self {
        Self::new()
    }
}

impl TraceLayer {
    /// A layer with the default settings.
    pub fn new() -> Self {
        Self {
            settings: Settings {
                classifier: ByError,
                arguments: true,
                listener: Listener::default(),
            },
        }
    }
}

impl<C> TraceLayer<C> {
    /// Sets who tells answers that are errors in the tool's own words
    /// ([`Outcome::is_reported`](crate::Outcome::is_reported)) from successes. Default: every `Ok` is
    /// a success. For MCP tools: `McpClassifier`.
    pub fn with_classifier<D>(self, classifier: D) -> TraceLayer<D> {
        TraceLayer {
            settings: Settings {
                classifier,
                arguments: self.settings.arguments,
                listener: self.settings.listener,
            },
        }
    }

    /// Whether the redacted arguments stand in the span (`gen_ai.tool.call.arguments`). Default: yes.
    pub fn with_arguments(mut self, show: bool) -> Self {
        self.settings.arguments = show;
        self
    }

    /// Sets who hears of calls whose future was dropped unfinished. Default: nobody; the
    /// `tool.cancelled` event is emitted either way.
    pub fn with_listener(mut self, listen: impl Listen + 'static) -> Self {
        self.settings.listener = Listener::new(listen);
        self
    }
}

impl<S, C: Clone> Layer<S> for TraceLayer<C> {
    type Service = Trace<S, C>;

    fn layer(&self, inner: S) -> Self::Service {
        Trace::new(inner, self.settings.clone())
    }
}
