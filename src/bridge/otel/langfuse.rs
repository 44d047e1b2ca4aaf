use std::{borrow::Cow, fmt, sync::Arc};

use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;

use crate::{
    answer::Answer,
    call::{CallInfo, ToolCall},
    error::{ErrorKind, ToolError},
    event::names::span::CALL,
    outcome::Outcome,
    text::Short,
    trace::{DefaultHooks, End, TraceHooks},
};

const OBSERVATION_TYPE: &str = "langfuse.observation.type";
const OBSERVATION_LEVEL: &str = "langfuse.observation.level";
const USER_ID: &str = "user.id";

/// Hooks that do what the hooks `H` do, and add attributes: see [`LangfuseHooks`].
#[derive(Clone, Copy, Debug)]
pub struct Adding<H, A> {
    inner: H,
    adds: A,
}

/// Attributes that hooks add to spans, whatever the answers of the tools are.
///
/// ```
/// use tower_toolcall::{
///     CallInfo, ToolCall,
///     otel::{Adding, Adds},
///     trace::{DefaultHooks, End, TraceLayer},
/// };
/// use tracing::Span;
/// use tracing_opentelemetry::OpenTelemetrySpanExt as _;
///
/// struct Region(&'static str);
///
/// impl Adds for Region {
///     fn on_start(&self, _: &ToolCall, span: &Span) {
///         span.set_attribute("cloud.region", self.0);
///     }
///
///     fn on_end<Res>(&self, _: &CallInfo, _: &End<'_, Res>, _: &Span) {}
/// }
///
/// let hooks = Adding::of(DefaultHooks::default(), Region("eu-central-1"));
/// let layer = TraceLayer::new().with_hooks(hooks);
/// # let _: TraceLayer<_> = layer;
/// ```
pub trait Adds {
    /// Adds attributes to the span of a call, or of an attempt, that begins.
    fn on_start(&self, call: &ToolCall, span: &Span);

    /// Adds attributes to the span of a call, or of an attempt, that has ended.
    fn on_end<Res>(&self, call: &CallInfo, end: &End<'_, Res>, span: &Span);
}

/// Around the default hooks.
impl<A: Default> Default for Adding<DefaultHooks, A> {
    fn default() -> Self {
        Self::new(DefaultHooks::default())
    }
}

impl<H, A> Adding<H, A> {
    /// Adds these attributes to what `hooks` do.
    pub fn of(hooks: H, adds: A) -> Self {
        Self { inner: hooks, adds }
    }
}

impl<H, A: Default> Adding<H, A> {
    /// Adds to what `hooks` do.
    pub fn new(hooks: H) -> Self {
        Self::of(hooks, A::default())
    }
}

impl<Res, H: TraceHooks<Res>, A: Adds + Send + Sync + 'static> TraceHooks<Res> for Adding<H, A> {
    fn classify(&self, result: Result<&Res, &ToolError>) -> Outcome {
        self.inner.classify(result)
    }

    fn output_bytes(&self, response: &Res) -> Option<u64> {
        self.inner.output_bytes(response)
    }

    fn answer<'a>(&self, response: &'a Res) -> Option<Answer<'a>> {
        self.inner.answer(response)
    }

    fn error_type(&self, error: &ToolError) -> Option<Cow<'static, str>> {
        self.inner.error_type(error)
    }

    fn on_start(&self, call: &ToolCall, span: &Span) {
        self.adds.on_start(call, span);
        self.inner.on_start(call, span);
    }

    fn on_end(&self, call: &CallInfo, end: &End<'_, Res>, span: &Span) {
        self.adds.on_end(call, end, span);
        self.inner.on_end(call, end, span);
    }
}

/// Hooks that add to the spans what Langfuse reads beyond OpenTelemetry's conventions: the type of
/// the observation (`tool` for a call, `span` for an attempt), its level, and the user's id.
///
/// The level is that of the [event](crate::trace) with which the call ends: `WARNING` for timeouts,
/// `DEFAULT` for calls that were cancelled, else `ERROR` by the span's status. Input, output,
/// session id and message stand in the span without these hooks; see the [module
/// docs](super#langfuse).
///
/// Other hooks can be wrapped; for MCP tools: `LangfuseHooks::new(McpHooks::new())`.
///
/// ```
/// use tower_toolcall::{ToolCall, otel::{LangfuseHooks, UserId}, trace::TraceLayer};
///
/// let calls = TraceLayer::new().with_hooks(LangfuseHooks::default()).with_output(true);
/// let attempts = TraceLayer::attempts().with_hooks(LangfuseHooks::default());
///
/// let mut call = ToolCall::new("search").with_session_id("conversation-7");
/// call.extensions_mut().insert(UserId::new("u-12"));
/// ```
pub type LangfuseHooks<H = DefaultHooks> = Adding<H, Langfuse>;

/// The attributes of [`LangfuseHooks`].
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Langfuse;

impl Adds for Langfuse {
    fn on_start(&self, call: &ToolCall, span: &Span) {
        let of_call = span.metadata().is_some_and(|m| m.name() == CALL);
        span.set_attribute(OBSERVATION_TYPE, if of_call { "tool" } else { "span" });
        if let Some(UserId(id)) = call.extensions().get() {
            span.set_attribute(USER_ID, Short::name(id).to_string());
        }
    }

    fn on_end<Res>(&self, _: &CallInfo, end: &End<'_, Res>, span: &Span) {
        match end.failure() {
            Some(ErrorKind::Timeout | ErrorKind::DeadlineExceeded) => {
                span.set_attribute(OBSERVATION_LEVEL, "WARNING");
            }
            Some(ErrorKind::Cancelled) => span.set_attribute(OBSERVATION_LEVEL, "DEFAULT"),
            // Langfuse reads the status.
            _ => {}
        }
    }
}

/// The id of the user for whom a call is made, in the call's
/// [extensions](ToolCall::extensions_mut). [`LangfuseHooks`] copy it into the spans, redacted and
/// cut as other names are.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct UserId(Arc<str>);

impl UserId {
    /// Makes an id of a user.
    pub fn new(id: impl Into<Arc<str>>) -> Self {
        Self(id.into())
    }
}

impl fmt::Debug for UserId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("UserId")
            .field(&Short::name(&self.0))
            .finish()
    }
}
