use std::{any::type_name, sync::Arc, time::Duration};

use tower_layer::Layer;

use super::{hooks::DefaultHooks, service::Trace, span::Scope};
use crate::{
    call::ToolCall,
    event::{Listen, Listener},
    kit::inert::Inert,
};

/// Layer that makes a span for each call, or for each attempt. See the [module docs](super) for an
/// example.
#[derive(Clone)]
#[must_use]
pub struct TraceLayer<H = DefaultHooks> {
    pub(super) hooks: H,
    pub(super) show: Show,
    /// One pointer, because each observed call carries its layer.
    pub(super) settings: Arc<Settings>,
}

#[derive(Clone)]
pub(super) struct Settings {
    pub(super) timeout: Option<Arc<TimeoutFn>>,
    pub(super) listener: Listener,
    pub(super) inert: Arc<Inert>,
}

type TimeoutFn = dyn Fn(&ToolCall) -> Option<Duration> + Send + Sync;

/// Which data spans show.
#[derive(Clone, Copy, Debug)]
pub(super) struct Show {
    pub(super) scope: Scope,
    pub(super) fields: bool,
    pub(super) arguments: bool,
    pub(super) output: bool,
}

impl Default for TraceLayer {
    fn default() -> Self {
        Self::new()
    }
}

impl TraceLayer {
    /// Makes a layer with the default settings: a span and the events for each call.
    pub fn new() -> Self {
        Self::of(Scope::Call)
    }

    /// Returns a layer that makes a span for each attempt, inside the span of the call. Its place
    /// is inside the layer that repeats calls.
    ///
    /// An attempt has no events, and no arguments in its span: the call has them.
    pub fn attempts() -> Self {
        Self::of(Scope::Attempt)
    }

    fn of(scope: Scope) -> Self {
        Self {
            hooks: DefaultHooks::default(),
            show: Show {
                scope,
                fields: false,
                arguments: scope == Scope::Call,
                output: false,
            },
            settings: Arc::new(Settings {
                timeout: None,
                listener: Listener::default(),
                inert: Arc::new(Inert::new("trace")),
            }),
        }
    }
}

impl<H> TraceLayer<H> {
    /// Sets the classifier that decides whether an `Ok` is an error result
    /// ([`Outcome::is_reported`](crate::Outcome::is_reported)). Default: an `Ok` is a success. With
    /// any classifier an error that the tool service has [reported](crate::Record::set_reported) is
    /// an error result, as `McpService` does for `isError`. Replaces other hooks.
    pub fn with_classifier<C>(self, classifier: C) -> TraceLayer<DefaultHooks<C>> {
        self.with_hooks(DefaultHooks::new(classifier))
    }

    /// Sets the hooks, which know the answers and are called when calls begin and end. For the
    /// answers of an MCP server: `McpHooks`.
    pub fn with_hooks<G>(self, hooks: G) -> TraceLayer<G> {
        TraceLayer {
            hooks,
            show: self.show,
            settings: self.settings,
        }
    }

    /// Sets whether the span has its fields in any case. Default: only where a subscriber
    /// listens to DEBUG spans of the target [`tower_toolcall`](crate::event::TARGET), or, with the
    /// feature `otel`, where the subscriber has OpenTelemetry's layer: a subscriber that writes
    /// text prints all fields of a span with each event in it.
    pub fn with_span_fields(mut self, fields: bool) -> Self {
        self.show.fields = fields;
        self
    }

    /// Sets whether the redacted arguments stand in the span (`gen_ai.tool.call.arguments`).
    /// Default: yes for calls, no for attempts. They stand only in a span that [has its
    /// fields](Self::with_span_fields). With the feature `otel`, in a span that OpenTelemetry's
    /// sampler drops they stand only if another layer of the subscriber reads the tool's name
    /// (`gen_ai.tool.name`) there, as logs do.
    pub fn with_arguments(mut self, show: bool) -> Self {
        self.show.arguments = show;
        self
    }

    /// Sets whether the redacted answer stands in the span (`gen_ai.tool.call.result`). Default:
    /// no. Only in a span that [has its fields](Self::with_span_fields), and in spans that are
    /// sampled out as the [arguments](Self::with_arguments). Its size is there in any case, where
    /// [it is known](super#the-answers-size).
    pub fn with_output(mut self, show: bool) -> Self {
        self.show.output = show;
        self
    }

    /// Sets the timeout that `tool.start` has (`timeout_ms`), because the timeout layer is further
    /// inside: that of [`TimeoutLayer::timeout_of`](crate::timeout::TimeoutLayer::timeout_of). A
    /// shorter rest of the call's deadline takes precedence. Default: the call's own timeout. The
    /// stack of `settings` sets it.
    pub fn with_timeout_fn(
        mut self,
        timeout: impl Fn(&ToolCall) -> Option<Duration> + Send + Sync + 'static,
    ) -> Self {
        Arc::make_mut(&mut self.settings).timeout = Some(Arc::new(timeout));
        self
    }

    /// Returns how many traced calls had a limit that no layer enforces: a timeout without a
    /// [`TimeoutLayer`](crate::timeout::TimeoutLayer), or a deadline after which they succeeded.
    /// The first one is the event `tool.inert`.
    pub fn inert(&self) -> u64 {
        self.settings.inert.calls()
    }

    /// Sets the listener for calls that are dropped unfinished. Default: none; the `tool.cancelled`
    /// event is emitted either way, if a subscriber was there when the call began. A layer for
    /// attempts does not use it.
    pub fn with_listener(mut self, listen: impl Listen + 'static) -> Self {
        Arc::make_mut(&mut self.settings).listener = Listener::new(listen);
        self
    }
}

impl<S, H: Clone> Layer<S> for TraceLayer<H> {
    type Service = Trace<S, H>;

    fn layer(&self, inner: S) -> Self::Service {
        let layer = self.clone();
        Trace { inner, layer }
    }
}

crate::text::debug_fields! {
    {H} |this| TraceLayer<H> {
        hooks: format_args!("{}", type_name::<H>()),
        show,
        listener: this.settings.listener,
    }
}
