use std::{fmt, sync::Arc};

use tracing::Span;

use super::span::Scope;
use crate::call::ToolCall;

/// What an edge does to the span of a call before it is entered: the last moment in which a span can get
/// a parent that is in another process. In the call's extensions.
#[derive(Clone)]
pub(crate) struct NewSpan(Arc<dyn Fn(&Span) + Send + Sync>);

impl NewSpan {
    pub(crate) fn new(f: impl Fn(&Span) + Send + Sync + 'static) -> Self {
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

impl fmt::Debug for NewSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewSpan").finish_non_exhaustive()
    }
}
