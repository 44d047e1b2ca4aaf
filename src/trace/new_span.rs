use std::sync::Arc;

use tracing::Span;

use super::span::Scope;
use crate::call::ToolCall;

/// A function that is given the span of a call before the span is entered: the last moment in which it can get a parent
/// in another process. Put it in the call's [extensions](ToolCall::extensions_mut); the outermost [`TraceLayer`](super::TraceLayer)
/// whose span is kept takes it out.
///
/// ```
/// use tower_toolcall::{ToolCall, trace::NewSpan};
///
/// let mut call = ToolCall::new("search");
/// call.extensions_mut().insert(NewSpan::new(|span| {
///     span.follows_from(tracing::Span::current());
/// }));
/// ```
#[derive(Clone)]
pub struct NewSpan(Arc<dyn Fn(&Span) + Send + Sync>);

impl NewSpan {
    /// It is called once, for the span of the whole call.
    pub fn new(f: impl Fn(&Span) + Send + Sync + 'static) -> Self {
        Self(Arc::new(f))
    }

    /// Does it, once: spans further down are children of this one.
    pub(super) fn take(call: &mut ToolCall, scope: Scope, span: &Span) {
        if scope == Scope::Call
            && call.extensions().get::<Self>().is_some()
            && let Some(Self(f)) = call.extensions_mut().remove()
        {
            f(span);
        }
    }
}

crate::text::opaque_debug!({} NewSpan);
