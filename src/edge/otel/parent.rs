use opentelemetry::{Context, trace::TraceContextExt};
use tracing::Span;
use tracing_opentelemetry::{OpenTelemetrySpanExt, SetParentError};

use super::propagate;
use crate::{call::ToolCall, trace::NewSpan};

/// Makes `parent`, which a peer has sent, the parent of a span that was not entered yet.
///
/// A current span of another trace is linked. A current span of the parent's own trace is nearer
/// than the parent: then the span is its child, and nothing is changed.
///
/// Nothing happens where no OpenTelemetry layer sees the span, or if it has been entered before.
pub fn set_parent(span: &Span, parent: Context) {
    let trace = parent.span().span_context().trace_id();
    if let Some(ambient) = propagate::current() {
        let ambient = ambient.span().span_context().clone();
        if ambient.trace_id() == trace {
            return;
        }
        span.add_link(ambient);
    }
    // What can fail is what the docs say: no layer sees the span, or it was entered.
    let _ = span.set_parent(parent);
}

impl ToolCall {
    /// Sets the span of the caller in another process, as [`parent_from_meta`] and
    /// [`parent_from_headers`] find it: the span of the call becomes its child, as
    /// [`otel::set_parent`](set_parent) says.
    ///
    /// The outermost [`TraceLayer`](crate::trace::TraceLayer) takes it off the call.
    ///
    /// [`parent_from_meta`]: super::parent_from_meta
    /// [`parent_from_headers`]: super::parent_from_headers
    #[must_use]
    pub fn with_remote_parent(mut self, parent: Context) -> Self {
        let set = move |span: &Span| set_parent(span, parent.clone());
        self.extensions_mut().insert(NewSpan::new(set));
        self
    }
}

/// Returns whether the subscriber has a layer of OpenTelemetry. The span is new, and stays as it
/// is.
///
/// Only `set_parent` reports that the layer is missing. It changes nothing on a span that is
/// started, or that the layer does not see: the current one, which this starts. Without a current
/// span, the parent of the new one is OpenTelemetry's current context anyway.
pub(crate) fn is_exported(span: &Span) -> bool {
    let current = Span::current();
    let found = match current.is_none() {
        true => span.set_parent(Context::current()),
        false => {
            let context = current.context();
            current.set_parent(context)
        }
    };
    !matches!(found, Err(SetParentError::LayerNotFound))
}

/// Returns whether OpenTelemetry's layer sees the span and its sampler drops it. The span has its
/// parent by now: this starts it.
pub(crate) fn is_sampled_out(span: &Span) -> bool {
    let context = span.context();
    let span = context.span();
    span.span_context().is_valid() && !span.is_recording()
}
