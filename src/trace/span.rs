//! The spans, with all the fields that they may have.

use std::{cell::Cell, fmt, sync::Arc};

use tracing::{Span, field::Empty, record_all};

use crate::{
    call::ToolCall,
    event::{TARGET, names::span, short},
    text::Short,
};

/// The subject of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    Call,
    Attempt,
}

impl Scope {
    /// Returns the field with the arguments.
    pub(super) const fn arguments(self) -> &'static str {
        match self {
            Self::Call => span::ARGUMENTS,
            Self::Attempt => span::ATTEMPT_ARGUMENTS,
        }
    }

    /// Returns the span, with nothing in it yet: a subscriber that writes text prints its fields
    /// with each event below.
    pub(super) fn span(self) -> Span {
        match self {
            Self::Call => call_span(),
            Self::Attempt => attempt_span(),
        }
    }

    /// Fills in the fields that are known at the beginning. Returns how often the tool's name was
    /// read: by each of the subscriber's layers that keeps it.
    pub(super) fn fill(self, span: &Span, call: &ToolCall) -> u32 {
        let name = Read {
            text: Short::field(call.tool(), 64),
            times: Cell::new(0),
        };
        let attempt = call.attempt();
        let otel_name = match self {
            Self::Call => format!("execute_tool {}", name.text),
            Self::Attempt => format!("attempt {attempt} {}", name.text),
        };
        // Each kind of span takes those that it has.
        record_all!(
            span,
            { span::OTEL_NAME } = %otel_name,
            { span::OTEL_KIND } = "internal",
            { span::OPERATION_NAME } = "execute_tool",
            { span::TOOL_NAME } = %name,
            { span::TOOL } = %name,
            { span::CALL_ID } = call.id().map(short),
            { span::ATTEMPT_CALL_ID } = call.id().map(short),
            { span::TOOL_TYPE } = "function",
            { span::CONVERSATION_ID } = call.session_id().map(short),
            { span::SERVER } = call.server().map(short),
            { span::AGENT_ID } = call.agent_id().map(short),
            { span::TRACE_ID } = call.trace_id().map(short),
            { span::SESSION_ID } = call.session_id().map(short),
            { span::ATTEMPT_NUMBER } = attempt,
        );
        name.times.get()
    }
}

/// A field's value that counts who reads it: each layer of a subscriber that keeps this field
/// prints it.
struct Read<'a> {
    text: Short<'a>,
    times: Cell<u32>,
}

impl fmt::Display for Read<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.times.set(self.times.get().saturating_add(1));
        self.text.fmt(f)
    }
}

fn call_span() -> Span {
    tracing::info_span!(
        target: TARGET,
        span::CALL,
        { span::OTEL_NAME } = Empty,
        { span::OTEL_KIND } = Empty,
        { span::OTEL_STATUS_CODE } = Empty,
        { span::OTEL_STATUS_DESCRIPTION } = Empty,
        { span::OPERATION_NAME } = Empty,
        { span::TOOL_NAME } = Empty,
        { span::CALL_ID } = Empty,
        { span::TOOL_TYPE } = Empty,
        { span::CONVERSATION_ID } = Empty,
        { span::ARGUMENTS } = Empty,
        { span::RESULT } = Empty,
        { span::ERROR_TYPE } = Empty,
        { span::SERVER } = Empty,
        { span::AGENT_ID } = Empty,
        { span::TRACE_ID } = Empty,
        { span::SESSION_ID } = Empty,
        { span::ATTEMPTS } = Empty,
        { span::MAX_ATTEMPTS } = Empty,
        { span::DURATION_MS } = Empty,
        { span::WAITED_MS } = Empty,
        { span::ERROR_CODE } = Empty,
        { span::OUTPUT_BYTES } = Empty,
        { span::SLOW } = Empty,
        { span::OUTCOME } = Empty,
        { span::SUCCESS } = Empty,
        { span::TIMEOUT_MS } = Empty,
        { span::CONFIGURED_TIMEOUT_MS } = Empty,
    )
}

/// Without OpenTelemetry's names for a tool's execution (`gen_ai.*`): backends count by them, and
/// this is a part of one.
fn attempt_span() -> Span {
    tracing::info_span!(
        target: TARGET,
        span::ATTEMPT,
        { span::OTEL_NAME } = Empty,
        { span::OTEL_KIND } = Empty,
        { span::OTEL_STATUS_CODE } = Empty,
        { span::OTEL_STATUS_DESCRIPTION } = Empty,
        { span::TOOL } = Empty,
        { span::ATTEMPT_CALL_ID } = Empty,
        { span::ATTEMPT_ARGUMENTS } = Empty,
        { span::ATTEMPT_RESULT } = Empty,
        { span::ERROR_TYPE } = Empty,
        { span::SERVER } = Empty,
        { span::TRACE_ID } = Empty,
        { span::SESSION_ID } = Empty,
        { span::ATTEMPT_NUMBER } = Empty,
        { span::DURATION_MS } = Empty,
        { span::ERROR_CODE } = Empty,
        { span::OUTPUT_BYTES } = Empty,
        { span::OUTCOME } = Empty,
        { span::SUCCESS } = Empty,
        { span::TIMEOUT_MS } = Empty,
        { span::CONFIGURED_TIMEOUT_MS } = Empty,
    )
}

/// A function that is given the span of a call before the span is entered: the last moment in which
/// it can get a parent in another process. Put it in the call's
/// [extensions](ToolCall::extensions_mut). The outermost [`TraceLayer`](super::TraceLayer) with a
/// kept span takes it out.
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
    /// Makes a hook: `f` is called once, for the span of the whole call.
    pub fn new(f: impl Fn(&Span) + Send + Sync + 'static) -> Self {
        Self(Arc::new(f))
    }

    /// Calls the function of the call, once: spans further down are children of this one.
    pub(super) fn take(call: &mut ToolCall, scope: Scope, span: &Span) {
        if scope == Scope::Call
            && call.extensions().get::<Self>().is_some()
            && let Some(Self(f)) = call.extensions_mut().remove()
        {
            f(span);
        }
    }
}

crate::text::debug_fields! { {} |_| NewSpan { .. } }
