use tower_layer::Layer;

use super::service::Trace;
use crate::event::{Listen, Listener};

/// Layer that makes a span for each call. See the [module docs](super) for an example.
#[derive(Clone, Debug)]
#[must_use]
pub struct TraceLayer {
    settings: Settings,
}

#[derive(Clone, Debug)]
pub(super) struct Settings {
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
                arguments: true,
                listener: Listener::default(),
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

impl<S> Layer<S> for TraceLayer {
    type Service = Trace<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Trace::new(inner, self.settings.clone())
    }
}
